/*
 * apis.c - Chat Completions and Completions: what a body asks the engine for, and how answers look
 *
 * Story     http.c hands over a whole body. It is parsed, its prompt is rendered the way a chat template would (tools,
 *           then messages in order) into a stream of bytes, and each full 64 bytes become one block hash chained to the
 *           one before. Later http.c asks for the text of each event or of the whole answer.
 * Promise   Rendering is unambiguous: marks between the parts are 4 bytes framed by 0xFF, which no UTF-8 text holds. A
 *           prompt that only grows keeps its first blocks. Model and cache_salt seed the chain. A token of a token
 *           prompt is 4 bytes. The same prompt with the same --seed is answered by the same words.
 * Not here  HTTP, time. Parameters that change no prompt and no length (temperature, tool_choice, ...) are ignored.
 */
#include "sim.h"

#define XXH_INLINE_ALL
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum mark {
    MARK_START = 1,
    MARK_TOOLS,
    MARK_ROLE,
    MARK_NAME,
    MARK_CONTENT,
    MARK_PART,
    MARK_MEDIA,
    MARK_TOOL_CALLS,
    MARK_TOOL_CALL_ID,
    MARK_END_OF_MESSAGE,
    MARK_TOKENS,
};

static const char *const WORDS[] = {
    "the",   "river", "runs",  "past", "old",   "mill",  "and",   "over",  "stone", "bridge", "where",
    "light", "falls", "on",    "calm", "water", "green", "hills", "rise",  "slow",  "clouds", "drift",
    "above", "a",     "small", "town", "wakes", "to",    "bells", "birds", "sing",  "again",
};
enum { MAX_DELAY_MS = 3600 * 1000, MAX_FAULT_HEADER_BYTES = 256, WORD_COUNT = sizeof WORDS / sizeof WORDS[0] };

/* Collects a rendered prompt's hashes; the text itself is never kept. */
struct render {
    uint8_t block[GRID_SIM_BLOCK_BYTES];
    size_t used;
    uint64_t chain;
    uint64_t bytes;
    uint64_t *blocks;
    size_t count;
    size_t room;
};

static void end_block(struct render *render)
{
    render->chain = XXH64(render->block, GRID_SIM_BLOCK_BYTES, render->chain);
    render->used = 0;
    if (render->count == render->room) {
        render->room = render->room ? render->room * 2 : 64;
        uint64_t *grown = realloc(render->blocks, render->room * sizeof *grown);
        if (!grown)
            abort();
        render->blocks = grown;
    }
    render->blocks[render->count++] = render->chain;
}

static void put(struct render *render, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    render->bytes += bytes;
    while (bytes > 0) {
        size_t part = GRID_SIM_BLOCK_BYTES - render->used;
        if (part > bytes)
            part = bytes;
        memcpy(render->block + render->used, from, part);
        render->used += part;
        from += part;
        bytes -= part;
        if (render->used == GRID_SIM_BLOCK_BYTES)
            end_block(render);
    }
}

static void put_mark(struct render *render, enum mark mark)
{
    const uint8_t bytes[GRID_SIM_TOKEN_BYTES] = {0xff, (uint8_t)mark, (uint8_t)mark, 0xff};
    put(render, bytes, sizeof bytes);
}

static int put_dumped(const char *text, size_t bytes, void *arg)
{
    put(arg, text, bytes);
    return 0;
}

static void put_string(struct render *render, const json_t *string)
{
    put(render, json_string_value(string), json_string_length(string));
}

/* A string as its text, anything else as compact JSON in the order of the body. */
static void put_value(struct render *render, enum mark mark, const json_t *value)
{
    if (!value || json_is_null(value))
        return;
    put_mark(render, mark);
    if (json_is_string(value))
        put_string(render, value);
    else
        (void)json_dump_callback(value, put_dumped, render, JSON_COMPACT | JSON_ENCODE_ANY);
}

/* One text part alone renders as the same text in a string does. */
static void put_parts(struct render *render, const json_t *parts)
{
    size_t i;
    const json_t *part;
    put_mark(render, MARK_CONTENT);
    json_array_foreach(parts, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text)) {
            put_value(render, MARK_MEDIA, part);
            continue;
        }
        if (i > 0)
            put_mark(render, MARK_PART);
        put_string(render, text);
    }
}

static bool put_messages(struct render *render, const json_t *messages)
{
    size_t i;
    const json_t *message;
    json_array_foreach(messages, i, message)
    {
        const json_t *role = json_object_get(message, "role");
        if (!json_is_string(role))
            return false;
        put_value(render, MARK_ROLE, role);
        put_value(render, MARK_NAME, json_object_get(message, "name"));
        const json_t *content = json_object_get(message, "content");
        if (json_is_array(content))
            put_parts(render, content);
        else
            put_value(render, MARK_CONTENT, content);
        put_value(render, MARK_TOOL_CALLS, json_object_get(message, "tool_calls"));
        put_value(render, MARK_TOOL_CALL_ID, json_object_get(message, "tool_call_id"));
        put_mark(render, MARK_END_OF_MESSAGE);
    }
    return true;
}

static bool put_tokens(struct render *render, const json_t *tokens)
{
    size_t i;
    const json_t *token;
    put_mark(render, MARK_TOKENS);
    json_array_foreach(tokens, i, token)
    {
        if (!json_is_integer(token))
            return false;
        uint32_t value = (uint32_t)json_integer_value(token);
        put(render, &value, sizeof value);
    }
    return true;
}

/* A text, a token array, or a batch that holds just one of these. */
static bool put_completion_prompt(struct render *render, const json_t *prompt)
{
    const json_t *first = json_array_get(prompt, 0);
    if (json_array_size(prompt) == 1 && !json_is_integer(first))
        prompt = first;
    if (json_is_string(prompt)) {
        put_string(render, prompt);
        return true;
    }
    return json_array_size(prompt) > 0 && put_tokens(render, prompt);
}

__attribute__((format(printf, 5, 6))) static bool refuse(struct grid_sim_refusal *refusal, int status, const char *type,
                                                         const char *param, const char *format, ...)
{
    refusal->status = status;
    refusal->type = type;
    refusal->param = param;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(refusal->message, sizeof refusal->message, format, args);
    va_end(args);
    return false;
}

static bool bad(struct grid_sim_refusal *refusal, const char *param, const char *message)
{
    return refuse(refusal, HTTP_BADREQUEST, "BadRequestError", param, "%s", message);
}

static const char *pick_model(const struct grid_sim_options *options, const json_t *model,
                              struct grid_sim_refusal *refusal)
{
    if (!model || json_is_null(model))
        return options->models[0];
    if (!json_is_string(model)) {
        (void)bad(refusal, "model", "model must be a string");
        return NULL;
    }
    for (size_t i = 0; i < options->model_count; i++) {
        if (strcmp(options->models[i], json_string_value(model)) == 0)
            return options->models[i];
    }
    (void)refuse(refusal, HTTP_NOTFOUND, "NotFoundError", "model", "The model `%.64s` does not exist.",
                 json_string_value(model));
    return NULL;
}

/* Without a limit the answer ends by itself; with one it is exactly as long as the limit. */
static bool read_length(const json_t *root, struct grid_sim_seq *seq, struct grid_sim_refusal *refusal)
{
    const json_t *limit = json_object_get(root, "max_completion_tokens");
    if (!limit || json_is_null(limit))
        limit = json_object_get(root, "max_tokens");
    seq->answer_tokens = GRID_SIM_DEFAULT_ANSWER_TOKENS;
    seq->cut = false;
    if (!limit || json_is_null(limit))
        return true;
    if (!json_is_integer(limit) || json_integer_value(limit) < 1)
        return bad(refusal, "max_tokens", "max_tokens must be a whole number of at least 1");
    seq->cut = true;
    seq->answer_tokens = (uint64_t)json_integer_value(limit);
    if (seq->answer_tokens > GRID_SIM_MAX_ANSWER_TOKENS)
        seq->answer_tokens = GRID_SIM_MAX_ANSWER_TOKENS;
    return true;
}

static bool render_prompt(struct render *render, enum grid_sim_api api, const json_t *root,
                          struct grid_sim_refusal *refusal)
{
    put_mark(render, MARK_START);
    if (api == GRID_SIM_COMPLETIONS) {
        if (!put_completion_prompt(render, json_object_get(root, "prompt")))
            return bad(refusal, "prompt", "prompt must be one text or one array of token ids");
        return true;
    }
    const json_t *messages = json_object_get(root, "messages");
    put_value(render, MARK_TOOLS, json_object_get(root, "tools"));
    if (json_array_size(messages) == 0 || !put_messages(render, messages))
        return bad(refusal, "messages", "messages must be an array of objects with a role");
    return true;
}

static bool read_root(const struct grid_sim_options *options, const json_t *root, struct grid_sim_call *call,
                      struct grid_sim_seq *seq, struct grid_sim_refusal *refusal)
{
    if (!json_is_object(root))
        return bad(refusal, NULL, "the body must be a JSON object");
    const char *model = pick_model(options, json_object_get(root, "model"), refusal);
    if (!model || !read_length(root, seq, refusal))
        return false;
    struct render render = {.chain = XXH64(model, strlen(model), 0)};
    const json_t *salt = json_object_get(root, "cache_salt");
    if (json_is_string(salt))
        render.chain = XXH64(json_string_value(salt), json_string_length(salt), render.chain);
    if (!render_prompt(&render, call->api, root, refusal)) {
        free(render.blocks);
        return false;
    }
    seq->blocks = render.blocks;
    seq->block_count = render.count;
    seq->prompt_tokens = (render.bytes + GRID_SIM_TOKEN_BYTES - 1) / GRID_SIM_TOKEN_BYTES;
    call->words_seed = XXH64(render.block, render.used, render.chain ^ options->seed);
    call->stream = json_is_true(json_object_get(root, "stream"));
    call->include_usage = json_is_true(json_object_get(json_object_get(root, "stream_options"), "include_usage"));
    json_t *name = json_string(model);
    call->model_json = json_dumps(name, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    json_decref(name);
    if (!call->model_json)
        abort();
    return true;
}

bool grid_sim_call_read(const struct grid_sim_options *options, enum grid_sim_api api, const char *body,
                        size_t body_bytes, struct grid_sim_call *call, struct grid_sim_seq *seq,
                        struct grid_sim_refusal *refusal)
{
    static uint64_t calls;
    json_error_t error;
    json_t *root = json_loadb(body ? body : "", body_bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!root) /* jansson's own message quotes the body: only the position is told */
        return refuse(refusal, HTTP_BADREQUEST, "BadRequestError", NULL, "the body is not JSON, near byte %d",
                      error.position);
    call->api = api;
    call->created = (int64_t)time(NULL);
    calls++;
    (void)snprintf(call->id, sizeof call->id, "%s-%016llx", api == GRID_SIM_CHAT ? "chatcmpl" : "cmpl",
                   (unsigned long long)XXH64(&calls, sizeof calls, options->seed));
    bool ok = read_root(options, root, call, seq, refusal);
    json_decref(root);
    return ok;
}

void grid_sim_call_clear(struct grid_sim_call *call, struct grid_sim_seq *seq)
{
    free(call->model_json);
    call->model_json = NULL;
    free(seq->blocks);
    seq->blocks = NULL;
}

static const char *word_at(const struct grid_sim_call *call, uint64_t index)
{
    return WORDS[XXH64(&index, sizeof index, call->words_seed) % WORD_COUNT];
}

static void add_event_head(const struct grid_sim_call *call, struct evbuffer *out)
{
    (void)evbuffer_add_printf(out, "data: {\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":%s,\"choices\":[",
                              call->id, call->api == GRID_SIM_CHAT ? "chat.completion.chunk" : "text_completion",
                              (long long)call->created, call->model_json);
}

void grid_sim_call_role_event(const struct grid_sim_call *call, struct evbuffer *out)
{
    add_event_head(call, out);
    (void)evbuffer_add_printf(out, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                                   "\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

static const char *finish_reason(const struct grid_sim_seq *seq)
{
    return seq->cut ? "length" : "stop";
}

void grid_sim_call_token_event(const struct grid_sim_call *call, const struct grid_sim_seq *seq, bool last,
                               struct evbuffer *out)
{
    uint64_t index = seq->written - 1;
    const char *space = index ? " " : "";
    const char *quote = last ? "\"" : "";
    add_event_head(call, out);
    (void)evbuffer_add_printf(out,
                              call->api == GRID_SIM_CHAT ? "{\"index\":0,\"delta\":{\"content\":\"%s%s\"},"
                                                         : "{\"index\":0,\"text\":\"%s%s\",",
                              space, word_at(call, index));
    (void)evbuffer_add_printf(out, "\"logprobs\":null,\"finish_reason\":%s%s%s}]}\n\n", quote,
                              last ? finish_reason(seq) : "null", quote);
}

static json_t *usage(const struct grid_sim_seq *seq)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)seq->prompt_tokens, "total_tokens",
                     (json_int_t)seq->prompt_tokens + (json_int_t)seq->written, "completion_tokens",
                     (json_int_t)seq->written, "prompt_tokens_details", "cached_tokens",
                     (json_int_t)seq->cached_tokens);
}

/* Takes the value over. */
static void add_json(struct evbuffer *out, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (!text)
        abort();
    (void)evbuffer_add(out, text, strlen(text));
    free(text);
    json_decref(value);
}

void grid_sim_call_usage_event(const struct grid_sim_call *call, const struct grid_sim_seq *seq, struct evbuffer *out)
{
    add_event_head(call, out);
    (void)evbuffer_add_printf(out, "],\"usage\":");
    add_json(out, usage(seq));
    (void)evbuffer_add_printf(out, "}\n\n");
}

void grid_sim_call_answer(const struct grid_sim_call *call, const struct grid_sim_seq *seq, struct evbuffer *out)
{
    bool chat = call->api == GRID_SIM_CHAT;
    (void)evbuffer_add_printf(
        out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":%s,\"choices\":[{\"index\":0,%s", call->id,
        chat ? "chat.completion" : "text_completion", (long long)call->created, call->model_json,
        chat ? "\"message\":{\"role\":\"assistant\",\"content\":\"" : "\"text\":\"");
    for (uint64_t i = 0; i < seq->written; i++)
        (void)evbuffer_add_printf(out, "%s%s", i ? " " : "", word_at(call, i));
    (void)evbuffer_add_printf(out, "\"%s,\"logprobs\":null,\"finish_reason\":\"%s\"}],\"usage\":",
                              chat ? ",\"refusal\":null}" : "", finish_reason(seq));
    add_json(out, usage(seq));
    (void)evbuffer_add(out, "}", 1);
}

void grid_sim_error_body(int status, const char *type, const char *param, const char *message, struct evbuffer *out)
{
    /* A message may quote a model's name cut within a character: never trust it to be UTF-8. */
    json_t *text = json_string(message);
    if (!text)
        text = json_string("The request was refused.");
    add_json(out, json_pack("{s:{s:o, s:s, s:s?, s:i}}", "error", "message", text, "type", type, "param", param, "code",
                            status));
}

void grid_sim_models_body(const struct grid_sim_options *options, int64_t created, struct evbuffer *out)
{
    json_t *data = json_array();
    for (size_t i = 0; i < options->model_count; i++)
        (void)json_array_append_new(data,
                                    json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:i}", "id", options->models[i], "object",
                                              "model", "created", (json_int_t)created, "owned_by", "sim-site", "root",
                                              options->models[i], "parent", "max_model_len", (int)GRID_SIM_MODEL_LEN));
    add_json(out, json_pack("{s:s, s:o}", "object", "list", "data", data));
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
