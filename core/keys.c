/*
 * keys.c - pieces into blocks, blocks into keys
 *
 * Story     Pieces are cut into blocks of 256 bytes. Whole blocks inside one slice of the body are hashed where they
 *           lie; only the bytes at the seams are copied, into one block.
 */
#include "keys.h"

#include "prompt.h"

#define LENGTH_BYTES 8u /* of the length ahead of a decoded name, least byte first */

struct chain {
    const struct grid_hash_seed *seed;
    uint64_t last;
    uint64_t *keys;
    size_t n, fill;
    bool bad_utf8;
    char block[GRID_BLOCK_BYTES];
};

static void chain_blocks(struct chain *chain, const char *blocks, size_t n)
{
    grid_hash_blocks(chain->seed, blocks, n, &chain->last, chain->keys + chain->n);
    chain->n += n;
}

/* Bytes that the stream may still take. */
static size_t chain_room(const struct chain *chain)
{
    return (GRID_MAX_KEYS - chain->n) * GRID_BLOCK_BYTES - chain->fill;
}

static void chain_feed(struct chain *chain, const char *bytes, size_t len)
{
    if (len < GRID_BLOCK_BYTES - chain->fill && chain->n < GRID_MAX_KEYS) { /* most pieces close no block */
        memcpy(chain->block + chain->fill, bytes, len);
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
        memcpy(chain->block + chain->fill, bytes, some);
        chain->fill += some;
        bytes += some;
        len -= some;
        if (chain->fill < GRID_BLOCK_BYTES)
            return;
        chain->fill = 0;
        chain_blocks(chain, chain->block, 1);
    }
    size_t whole = len / GRID_BLOCK_BYTES;
    if (whole > 0)
        chain_blocks(chain, bytes, whole);
    chain->fill = len % GRID_BLOCK_BYTES;
    if (chain->fill > 0)
        memcpy(chain->block, bytes + whole * GRID_BLOCK_BYTES, chain->fill);
}

/* UTF-8 is judged on the bytes that are used and no others, so that slices never show. */
static void chain_raw(struct chain *chain, struct grid_json_raw raw)
{
    struct grid_str piece;
    uint32_t utf8 = 0;
    for (size_t room; (room = chain_room(chain)) > 0 && grid_json_raw_next(&raw, &piece);) {
        if (piece.len > room)
            piece.len = room;
        if (raw.high)
            utf8 = grid_utf8_feed(utf8, piece.ptr, piece.len);
        chain->bad_utf8 |= utf8 == GRID_UTF8_BAD;
        chain_feed(chain, piece.ptr, piece.len);
    }
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
    uint64_t digest = grid_hash_stream_end(&stream);
    chain->bad_utf8 |= utf8 != 0;
    chain_feed(chain, (const char *)&digest, sizeof digest);
}

static void chain_name(struct chain *chain, struct grid_json_decode name, size_t bytes)
{
    char length[LENGTH_BYTES];
    struct grid_str run;
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        length[i] = (char)((uint64_t)bytes >> 8 * i & 0xFF);
    chain_feed(chain, length, sizeof length);
    while (grid_json_decode_next(&name, &run))
        chain_feed(chain, run.ptr, run.len);
}

static void chain_piece(struct chain *chain, const struct grid_piece *piece)
{
    switch (piece->kind) {
    case GRID_PIECE_LITERAL:
    case GRID_PIECE_CANONICAL:
        chain_feed(chain, piece->text.ptr, piece->text.len);
        return;
    case GRID_PIECE_RAW:
        chain_raw(chain, piece->raw);
        return;
    case GRID_PIECE_DECODED:
        chain_name(chain, piece->name, piece->name_bytes);
        return;
    case GRID_PIECE_DIGEST:
        chain_digest(chain, piece->raw);
        return;
    }
}

/* What the chain begins with: the model, and the salt or that there is none. */
static uint64_t chain_start(const struct grid_hash_seed *seed, struct grid_str model, const struct grid_prompt *prompt)
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

static enum grid_reason chain_prompt(struct chain *chain, struct grid_prompt *prompt)
{
    const struct grid_piece *piece;
    while (chain->n < GRID_MAX_KEYS && !chain->bad_utf8 && (piece = grid_prompt_next(prompt)))
        chain_piece(chain, piece);
    if (chain->bad_utf8)
        return GRID_REASON_BAD_UTF8;
    if (prompt->reason != GRID_REASON_NONE)
        return prompt->reason;
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
    set_model(out, model);
    want_keys = want_keys && api != GRID_API_NONE;
    if (!want_keys && model.ptr)
        return; /* nothing in the body can matter */
    memset(&memo, 0, sizeof memo);
    grid_prompt_open(&prompt, want_keys ? api : GRID_API_NONE, slices, n_slices, cut, &memo, &room);
    if (!model.ptr && prompt.has_model) {
        model = (struct grid_str){prompt.model, prompt.model_len};
        set_model(out, model);
    }
    if (!want_keys)
        return;
    out->reason = prompt.reason;
    if (prompt.reason != GRID_REASON_NONE)
        return;
    struct chain chain;
    chain.seed = seed;
    chain.keys = keys;
    chain.n = chain.fill = 0;
    chain.bad_utf8 = false;
    chain.last = chain_start(seed, model, &prompt);
    out->reason = chain_prompt(&chain, &prompt);
    if (!model.ptr && (out->reason == GRID_REASON_NONE || out->reason == GRID_REASON_TOO_SHORT))
        out->reason = GRID_REASON_NO_MODEL;
    out->n = out->reason == GRID_REASON_NONE ? (uint32_t)chain.n : 0;
}
