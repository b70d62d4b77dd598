/*
 * prompt.c - see prompt.h
 *
 * Story     Bytes are put one after the other; a full block is hashed where it lies and only its hash stays.
 * Promise   The only file of the simulated site that hashes.
 * Not here  Holding blocks (cache.c).
 */
#include "prompt.h"

#define XXH_INLINE_ALL
#include <event2/buffer.h>
#include <string.h>
#include <xxhash.h>

static const char *const WORDS[] = {
    "the",   "river", "runs",  "past", "old",   "mill",  "and",   "over",  "stone", "bridge", "where",
    "light", "falls", "on",    "calm", "water", "green", "hills", "rise",  "slow",  "clouds", "drift",
    "above", "a",     "small", "town", "wakes", "to",    "bells", "birds", "sing",  "again",
};

enum { WORD_COUNT = sizeof WORDS / sizeof WORDS[0] };

static void end_block(struct grid_sim_prompt *prompt)
{
    prompt->chain = XXH64(prompt->block, GRID_SIM_BLOCK_BYTES, prompt->chain);
    prompt->used = 0;
    if (prompt->count == prompt->room) {
        prompt->room = prompt->room ? prompt->room * 2 : 64;
        uint64_t *grown = realloc(prompt->blocks, prompt->room * sizeof *grown);
        if (!grown)
            abort();
        prompt->blocks = grown;
    }
    prompt->blocks[prompt->count++] = prompt->chain;
}

static void put(struct grid_sim_prompt *prompt, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    prompt->bytes += bytes;
    while (bytes > 0) {
        size_t part = GRID_SIM_BLOCK_BYTES - prompt->used;
        if (part > bytes)
            part = bytes;
        memcpy(prompt->block + prompt->used, from, part);
        prompt->used += part;
        from += part;
        bytes -= part;
        if (prompt->used == GRID_SIM_BLOCK_BYTES)
            end_block(prompt);
    }
}

void grid_sim_prompt_mark(struct grid_sim_prompt *prompt, enum grid_sim_mark mark)
{
    const uint8_t bytes[GRID_SIM_TOKEN_BYTES] = {0xff, (uint8_t)mark, (uint8_t)mark, 0xff};
    put(prompt, bytes, sizeof bytes);
}

static int put_dumped(const char *text, size_t bytes, void *arg)
{
    put(arg, text, bytes);
    return 0;
}

void grid_sim_prompt_string(struct grid_sim_prompt *prompt, const json_t *string)
{
    put(prompt, json_string_value(string), json_string_length(string));
}

/* A string as its text, anything else as compact JSON in the order of the body. */
void grid_sim_prompt_value(struct grid_sim_prompt *prompt, enum grid_sim_mark mark, const json_t *value)
{
    if (!value || json_is_null(value))
        return;
    grid_sim_prompt_mark(prompt, mark);
    if (json_is_string(value))
        grid_sim_prompt_string(prompt, value);
    else
        (void)json_dump_callback(value, put_dumped, prompt, JSON_COMPACT | JSON_ENCODE_ANY);
}

/* One text part alone renders as the same text in a string does. */
static void put_parts(struct grid_sim_prompt *prompt, const json_t *parts)
{
    size_t i;
    const json_t *part;
    grid_sim_prompt_mark(prompt, GRID_SIM_MARK_CONTENT);
    json_array_foreach(parts, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text)) {
            grid_sim_prompt_value(prompt, GRID_SIM_MARK_MEDIA, part);
            continue;
        }
        if (i > 0)
            grid_sim_prompt_mark(prompt, GRID_SIM_MARK_PART);
        grid_sim_prompt_string(prompt, text);
    }
}

bool grid_sim_prompt_message(struct grid_sim_prompt *prompt, const json_t *message)
{
    const json_t *role = json_object_get(message, "role");
    const json_t *content = json_object_get(message, "content");
    if (!json_is_string(role))
        return false;
    grid_sim_prompt_value(prompt, GRID_SIM_MARK_ROLE, role);
    grid_sim_prompt_value(prompt, GRID_SIM_MARK_NAME, json_object_get(message, "name"));
    if (json_is_array(content))
        put_parts(prompt, content);
    else
        grid_sim_prompt_value(prompt, GRID_SIM_MARK_CONTENT, content);
    grid_sim_prompt_value(prompt, GRID_SIM_MARK_TOOL_CALLS, json_object_get(message, "tool_calls"));
    grid_sim_prompt_value(prompt, GRID_SIM_MARK_TOOL_CALL_ID, json_object_get(message, "tool_call_id"));
    grid_sim_prompt_mark(prompt, GRID_SIM_MARK_END_OF_MESSAGE);
    return true;
}

bool grid_sim_prompt_tokens(struct grid_sim_prompt *prompt, const json_t *tokens)
{
    size_t i;
    const json_t *token;
    grid_sim_prompt_mark(prompt, GRID_SIM_MARK_TOKENS);
    json_array_foreach(tokens, i, token)
    {
        if (!json_is_integer(token))
            return false;
        uint32_t value = (uint32_t)json_integer_value(token);
        put(prompt, &value, sizeof value);
    }
    return true;
}

void grid_sim_prompt_start(struct grid_sim_prompt *prompt, const char *model, const json_t *salt)
{
    *prompt = (struct grid_sim_prompt){.chain = XXH64(model, strlen(model), 0)};
    if (json_is_string(salt))
        prompt->chain = XXH64(json_string_value(salt), json_string_length(salt), prompt->chain);
    grid_sim_prompt_mark(prompt, GRID_SIM_MARK_START);
}

uint64_t grid_sim_prompt_end(struct grid_sim_prompt *prompt, uint64_t seed, struct grid_sim_seq *seq)
{
    seq->blocks = prompt->blocks;
    seq->block_count = prompt->count;
    seq->prompt_tokens = (prompt->bytes + GRID_SIM_TOKEN_BYTES - 1) / GRID_SIM_TOKEN_BYTES;
    prompt->blocks = NULL;
    return XXH64(prompt->block, prompt->used, prompt->chain ^ seed);
}

void grid_sim_prompt_drop(struct grid_sim_prompt *prompt)
{
    free(prompt->blocks);
    prompt->blocks = NULL;
}

const char *grid_sim_word(uint64_t words_seed, uint64_t index)
{
    return WORDS[grid_sim_hash(index, words_seed) % WORD_COUNT];
}

uint64_t grid_sim_hash(uint64_t number, uint64_t seed)
{
    return XXH64(&number, sizeof number, seed);
}

uint64_t grid_sim_body_hash(struct evbuffer *body)
{
    XXH64_state_t state;
    struct evbuffer_iovec piece;
    struct evbuffer_ptr at;
    (void)XXH64_reset(&state, 0);
    (void)evbuffer_ptr_set(body, &at, 0, EVBUFFER_PTR_SET);
    while (evbuffer_peek(body, -1, &at, &piece, 1) > 0 && piece.iov_len > 0) {
        (void)XXH64_update(&state, piece.iov_base, piece.iov_len);
        if (evbuffer_ptr_set(body, &at, piece.iov_len, EVBUFFER_PTR_ADD) != 0)
            break;
    }
    return XXH64_digest(&state);
}
