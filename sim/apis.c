/*
 * apis.c - Chat Completions and Completions: what a body asks the engine for, and how answers look
 *
 * Story     generate.c hands over a whole body. It is parsed and its prompt is put the way a chat template would: tools
 *           first, then messages in order. Later generate.c asks for the text of each event or of the whole answer.
 *           What responses.c needs of the same kind (a model, a length, an error's body) is here too.
 * Promise   Errors never quote the body beyond a model's name or an id.
 * Not here  HTTP, time. Parameters that change no prompt and no length (temperature, tool_choice, ...) are ignored.
 */
#include "prompt.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

/* A text, a token array, or a batch that holds just one of these. */
static bool put_completion_prompt(struct grid_sim_prompt *prompt, const json_t *value)
{
    const json_t *first = json_array_get(value, 0);
    if (json_array_size(value) == 1 && !json_is_integer(first))
        value = first;
    if (json_is_string(value)) {
        grid_sim_prompt_string(prompt, value);
        return true;
    }
    return json_array_size(value) > 0 && grid_sim_prompt_tokens(prompt, value);
}

static bool put_messages(struct grid_sim_prompt *prompt, const json_t *messages)
{
    size_t i;
    const json_t *message;
    json_array_foreach(messages, i, message)
    {
        if (!grid_sim_prompt_message(prompt, message))
            return false;
    }
    return json_array_size(messages) > 0;
}

bool grid_sim_refuse(struct grid_sim_refusal *refusal, int status, const char *type, const char *param,
                     const char *format, ...)
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
    return grid_sim_refuse(refusal, HTTP_BADREQUEST, "BadRequestError", param, "%s", message);
}

const char *grid_sim_model_pick(const struct grid_sim_options *options, const json_t *model,
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
    (void)grid_sim_refuse(refusal, HTTP_NOTFOUND, "NotFoundError", "model", "The model `%.64s` does not exist.",
                          json_string_value(model));
    return NULL;
}

bool grid_sim_length_read(const json_t *limit, const char *name, struct grid_sim_seq *seq,
                          struct grid_sim_refusal *refusal)
{
    seq->answer_tokens = GRID_SIM_DEFAULT_ANSWER_TOKENS;
    seq->cut = false;
    if (!limit || json_is_null(limit))
        return true;
    if (!json_is_integer(limit) || json_integer_value(limit) < 1)
        return grid_sim_refuse(refusal, HTTP_BADREQUEST, "BadRequestError", name,
                               "%s must be a whole number of at least 1", name);
    seq->cut = true;
    seq->answer_tokens = (uint64_t)json_integer_value(limit);
    if (seq->answer_tokens > GRID_SIM_MAX_ANSWER_TOKENS)
        seq->answer_tokens = GRID_SIM_MAX_ANSWER_TOKENS;
    return true;
}

static bool put_prompt(struct grid_sim_prompt *prompt, enum grid_sim_api api, const json_t *root,
                       struct grid_sim_refusal *refusal)
{
    if (api == GRID_SIM_COMPLETIONS) {
        if (!put_completion_prompt(prompt, json_object_get(root, "prompt")))
            return bad(refusal, "prompt", "prompt must be one text or one array of token ids");
        return true;
    }
    grid_sim_prompt_value(prompt, GRID_SIM_MARK_TOOLS, json_object_get(root, "tools"));
    if (!put_messages(prompt, json_object_get(root, "messages")))
        return bad(refusal, "messages", "messages must be an array of objects with a role");
    return true;
}

static bool read_root(const struct grid_sim_options *options, const json_t *root, struct grid_sim_call *call,
                      struct grid_sim_seq *seq, struct grid_sim_refusal *refusal)
{
    if (!json_is_object(root))
        return bad(refusal, NULL, "the body must be a JSON object");
    const char *model = grid_sim_model_pick(options, json_object_get(root, "model"), refusal);
    const json_t *limit = json_object_get(root, "max_completion_tokens");
    if (!limit || json_is_null(limit))
        limit = json_object_get(root, "max_tokens");
    if (!model || !grid_sim_length_read(limit, "max_tokens", seq, refusal))
        return false;
    struct grid_sim_prompt prompt;
    grid_sim_prompt_start(&prompt, model, json_object_get(root, "cache_salt"));
    if (!put_prompt(&prompt, call->api, root, refusal)) {
        grid_sim_prompt_drop(&prompt);
        return false;
    }
    call->words_seed = grid_sim_prompt_end(&prompt, options->seed, seq);
    call->stream = json_is_true(json_object_get(root, "stream"));
    call->include_usage = json_is_true(json_object_get(json_object_get(root, "stream_options"), "include_usage"));
    json_t *name = json_string(model);
    call->model_json = json_dumps(name, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    json_decref(name);
    if (!call->model_json)
        abort();
    return true;
}

json_t *grid_sim_body_parse(const char *body, size_t body_bytes, struct grid_sim_refusal *refusal)
{
    json_error_t error;
    json_t *root = json_loadb(body ? body : "", body_bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!root) /* jansson's own message quotes the body: only the position is told */
        (void)grid_sim_refuse(refusal, HTTP_BADREQUEST, "BadRequestError", NULL, "the body is not JSON, near byte %d",
                              error.position);
    return root;
}

bool grid_sim_call_read(const struct grid_sim_options *options, enum grid_sim_api api, const char *body,
                        size_t body_bytes, struct grid_sim_call *call, struct grid_sim_seq *seq,
                        struct grid_sim_refusal *refusal)
{
    static uint64_t calls;
    json_t *root = grid_sim_body_parse(body, body_bytes, refusal);
    if (!root)
        return false;
    call->api = api;
    call->created = (int64_t)time(NULL);
    calls++;
    (void)snprintf(call->id, sizeof call->id, "%s-%016llx", api == GRID_SIM_CHAT ? "chatcmpl" : "cmpl",
                   (unsigned long long)grid_sim_hash(calls, options->seed));
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
                              space, grid_sim_word(call->words_seed, index));
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

void grid_sim_json_add(struct evbuffer *out, json_t *value)
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
    grid_sim_json_add(out, usage(seq));
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
        (void)evbuffer_add_printf(out, "%s%s", i ? " " : "", grid_sim_word(call->words_seed, i));
    (void)evbuffer_add_printf(out, "\"%s,\"logprobs\":null,\"finish_reason\":\"%s\"}],\"usage\":",
                              chat ? ",\"refusal\":null}" : "", finish_reason(seq));
    grid_sim_json_add(out, usage(seq));
    (void)evbuffer_add(out, "}", 1);
}

void grid_sim_error_body(int status, const char *type, const char *param, const char *message, struct evbuffer *out)
{
    /* A message may quote a model's name cut within a character: never trust it to be UTF-8. */
    json_t *text = json_string(message);
    if (!text)
        text = json_string("The request was refused.");
    grid_sim_json_add(out, json_pack("{s:{s:o, s:s, s:s?, s:i}}", "error", "message", text, "type", type, "param",
                                     param, "code", status));
}

void grid_sim_models_body(const struct grid_sim_options *options, int64_t created, struct evbuffer *out)
{
    json_t *data = json_array();
    for (size_t i = 0; i < options->model_count; i++)
        (void)json_array_append_new(data,
                                    json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:i}", "id", options->models[i], "object",
                                              "model", "created", (json_int_t)created, "owned_by", "sim-site", "root",
                                              options->models[i], "parent", "max_model_len", (int)GRID_SIM_MODEL_LEN));
    grid_sim_json_add(out, json_pack("{s:s, s:o}", "object", "list", "data", data));
}
