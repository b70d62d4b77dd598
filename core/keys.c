/*
 * keys.c - pieces into blocks, blocks into keys
 *
 * Story     Pieces are cut into blocks of 256 bytes. Whole blocks inside one slice of the body are hashed where they
 *           lie; only the bytes at the seams are copied, into one block.
 */
#include "keys.h"

#include "check.h"
#include "prompt.h"

#define FIELD_END 0x1F
#define DIGEST_MARK '#'
#define SHORT_BYTES 16u

struct chain {
    const struct grid_hash_seed *seed;
    uint64_t last;
    uint64_t *keys;
    size_t n, fill;
    bool bad_utf8;
    char block[2 * GRID_BLOCK_BYTES]; /* what is copied in one step may end behind the block */
};

static void chain_blocks(struct chain *chain, const char *blocks, size_t n)
{
    grid_hash_blocks(chain->seed, blocks, n, &chain->last, chain->keys + chain->n);
    chain->n += n;
}

/* Bytes that the stream may still take. */
static size_t chain_room(const struct chain *chain)
{
    return chain->n < GRID_MAX_KEYS ? (GRID_MAX_KEYS - chain->n) * GRID_BLOCK_BYTES - chain->fill : 0;
}

/* Copies less than a block; a whole one where `there` says that so much can be read: lengths are hard to predict, and
 * such a copy needs none. */
static inline void copy_part(char *to, const char *from, size_t len, size_t there)
{
    if (GRID_LIKELY(there >= GRID_BLOCK_BYTES))
        memcpy(to, from, GRID_BLOCK_BYTES);
    else
        memcpy(to, from, len);
}

/* Takes len bytes, of `there` that can be read. */
static void chain_feed(struct chain *chain, const char *bytes, size_t len, size_t there)
{
    if (len < GRID_BLOCK_BYTES - chain->fill && chain->n < GRID_MAX_KEYS) { /* most pieces close no block */
        copy_part(chain->block + chain->fill, bytes, len, there);
        chain->fill += len;
        return;
    }
    size_t room = chain_room(chain);
    if (len > room)
        len = room;
    if (chain->fill > 0) {
        size_t some = GRID_BLOCK_BYTES - chain->fill;
        if (some > len)
            some = len;
        copy_part(chain->block + chain->fill, bytes, some, there);
        chain->fill += some;
        bytes += some;
        len -= some;
        there -= some;
        if (chain->fill < GRID_BLOCK_BYTES)
            return;
        chain->fill = 0;
        chain_blocks(chain, chain->block, 1);
    }
    size_t whole = len / GRID_BLOCK_BYTES * GRID_BLOCK_BYTES;
    if (whole > 0)
        chain_blocks(chain, bytes, whole / GRID_BLOCK_BYTES);
    chain->fill = len - whole;
    if (chain->fill > 0)
        copy_part(chain->block, bytes + whole, chain->fill, there - whole);
}

/* The block is full, and some bytes of the next may stand behind it. */
static void chain_turn(struct chain *chain)
{
    chain->fill -= GRID_BLOCK_BYTES;
    if (chain->n == GRID_MAX_KEYS)
        return;
    chain_blocks(chain, chain->block, 1);
    memcpy(chain->block, chain->block + GRID_BLOCK_BYTES, sizeof(struct grid_tag));
}

/* A tag is copied whole, which is one step whatever its length. */
static inline void chain_tag(struct chain *chain, const struct grid_tag *tag)
{
    memcpy(chain->block + chain->fill, tag, sizeof *tag);
    chain->fill += tag->len;
    if (GRID_UNLIKELY(chain->fill >= GRID_BLOCK_BYTES))
        chain_turn(chain);
}

static inline void chain_byte(struct chain *chain, char byte)
{
    chain->block[chain->fill++] = byte;
    if (GRID_UNLIKELY(chain->fill == GRID_BLOCK_BYTES))
        chain_turn(chain);
}

static inline void chain_number(struct chain *chain, uint64_t number)
{
    memcpy(chain->block + chain->fill, &number, sizeof number);
    chain->fill += sizeof number;
    if (GRID_UNLIKELY(chain->fill >= GRID_BLOCK_BYTES))
        chain_turn(chain);
}

/* UTF-8 is judged on the bytes that are used and no others, so that slices never show. */
static void chain_slices(struct chain *chain, struct grid_json_raw raw)
{
    struct grid_str piece;
    uint32_t utf8 = 0;
    for (size_t room; (room = chain_room(chain)) > 0 && grid_json_raw_next(&raw, &piece);) {
        if (piece.len > room)
            piece.len = room;
        if (raw.high)
            utf8 = grid_utf8_feed(utf8, piece.ptr, piece.len);
        chain->bad_utf8 |= utf8 == GRID_UTF8_BAD;
        chain_feed(chain, piece.ptr, piece.len, piece.len);
    }
}

static void chain_raw(struct chain *chain, const struct grid_json_raw *raw)
{
    size_t there = (size_t)(raw->from.end - raw->from.at);
    if (!raw->high && there >= raw->bytes)
        chain_feed(chain, raw->from.at, raw->bytes, there);
    else
        chain_slices(chain, *raw);
}

/* A name without its quotes. Most are short, and all of a short stretch is copied in one step. */
static void chain_plain_name(struct chain *chain, const struct grid_json_raw *raw)
{
    size_t len = raw->bytes - 2;
    chain_number(chain, len);
    if (len <= SHORT_BYTES && raw->from.end - raw->from.at > (ptrdiff_t)SHORT_BYTES) {
        memcpy(chain->block + chain->fill, raw->from.at + 1, SHORT_BYTES);
        chain->fill += len;
        if (GRID_UNLIKELY(chain->fill >= GRID_BLOCK_BYTES))
            chain_turn(chain);
        return;
    }
    struct grid_json_raw name = *raw;
    name.from.at++;
    name.bytes = len;
    chain_slices(chain, name);
}

static void chain_digest(struct chain *chain, struct grid_json_raw raw)
{
    struct grid_hash_stream stream;
    struct grid_str piece;
    uint32_t utf8 = 0;
    grid_hash_stream_init(&stream, chain->seed);
    while (grid_json_raw_next(&raw, &piece)) {
        if (raw.high)
            utf8 = grid_utf8_feed(utf8, piece.ptr, piece.len);
        grid_hash_stream_feed(&stream, piece);
    }
    chain->bad_utf8 |= utf8 != 0;
    chain_byte(chain, DIGEST_MARK);
    chain_number(chain, grid_hash_stream_end(&stream));
}

static void chain_name(struct chain *chain, struct grid_json_decode name, size_t bytes)
{
    struct grid_str run;
    chain_number(chain, bytes);
    while (grid_json_decode_next(&name, &run))
        chain_feed(chain, run.ptr, run.len, run.len);
}

static void chain_piece(struct chain *chain, const struct grid_piece *piece)
{
    chain_tag(chain, piece->tag);
    switch (piece->kind) {
    case GRID_PIECE_LITERAL:
        return;
    case GRID_PIECE_NAME:
        chain_plain_name(chain, piece->raw);
        break;
    case GRID_PIECE_DECODED:
        chain_name(chain, piece->name, piece->name_bytes);
        break;
    case GRID_PIECE_CANONICAL:
        chain_feed(chain, piece->text.ptr, piece->text.len, piece->text.len);
        break;
    case GRID_PIECE_RAW:
        chain_raw(chain, piece->raw);
        break;
    case GRID_PIECE_DIGEST:
        chain_digest(chain, *piece->raw);
        break;
    }
    chain_byte(chain, FIELD_END);
}

/* What is folded into every key: the model, and the salt or that there is none. They may stand at the end of a body, so
 * the chain does without them. */
static uint64_t key_space(const struct grid_hash_seed *seed, struct grid_str model, const struct grid_prompt *prompt)
{
    uint64_t salt = 0;
    if (prompt->has_salt) {
        struct grid_json_decode decode = prompt->salt;
        struct grid_hash_stream stream;
        struct grid_str run;
        grid_hash_stream_init(&stream, seed);
        while (grid_json_decode_next(&decode, &run))
            grid_hash_stream_feed(&stream, run);
        salt = grid_hash_mix(seed, grid_hash_stream_end(&stream), 1); /* never the value for no salt, but by chance */
    }
    return grid_hash_mix(seed, grid_hash_text(seed, model), salt);
}

static void chain_prompt(struct chain *chain, struct grid_prompt *prompt)
{
    const struct grid_piece *piece;
    do {
        chain->n = chain->fill = 0;
        chain->last = 0;
        chain->bad_utf8 = false;
        while (chain->n < GRID_MAX_KEYS && !chain->bad_utf8 && (piece = grid_prompt_next(prompt)))
            chain_piece(chain, piece);
    } while (grid_prompt_close(prompt));
}

static enum grid_reason reason_of(const struct chain *chain, const struct grid_prompt *prompt, bool has_model)
{
    if (prompt->reason != GRID_REASON_NONE)
        return prompt->reason;
    if (chain->bad_utf8)
        return GRID_REASON_BAD_UTF8;
    if (!has_model)
        return GRID_REASON_NO_MODEL;
    return chain->n == 0 ? GRID_REASON_TOO_SHORT : GRID_REASON_NONE;
}

static void set_model(struct grid_keyed *out, struct grid_str model)
{
    const size_t most = sizeof out->model - 1;
    out->has_model = model.ptr;
    out->model_len = model.len < most ? model.len : most;
    if (out->model_len)
        memcpy(out->model, model.ptr, out->model_len);
    out->model[out->model_len] = '\0';
}

void grid_keys_make(const struct grid_hash_seed *seed, enum grid_api api, const struct grid_str *slices,
                    size_t n_slices, bool cut, bool want_keys, struct grid_str header_model,
                    uint64_t keys[GRID_MAX_KEYS], struct grid_keyed *out)
{
    struct grid_lex_memo memo;
    struct grid_canonical_room room; /* not cleared: touched only by prompts with canonical values */
    struct grid_prompt prompt;
    struct grid_str model = header_model;
    out->reason = GRID_REASON_NONE;
    out->n = 0;
    out->model_offset = out->model_bytes = 0;
    set_model(out, model);
    want_keys = want_keys && api != GRID_API_NONE;
    if (!want_keys && model.ptr)
        return; /* nothing in the body can matter */
    memset(&memo, 0, sizeof memo);
    grid_prompt_open(&prompt, want_keys ? api : GRID_API_NONE, slices, n_slices, cut, &memo, &room);
    struct chain chain;
    chain.seed = seed;
    chain.keys = keys;
    chain_prompt(&chain, &prompt);
    out->model_offset = prompt.model_offset;
    out->model_bytes = prompt.model_bytes;
    if (!model.ptr && prompt.has_model) {
        model = (struct grid_str){prompt.model, prompt.model_len};
        set_model(out, model);
    }
    if (!want_keys)
        return;
    out->reason = reason_of(&chain, &prompt, model.ptr);
    if (out->reason != GRID_REASON_NONE)
        return;
    uint64_t space = key_space(seed, model, &prompt);
    out->n = (uint32_t)chain.n;
    for (size_t i = 0; i < chain.n; i++)
        keys[i] = grid_hash_mix(seed, keys[i], space);
}
