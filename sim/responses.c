/*
 * responses.c - one response: what a body asks for, how its object and its events look
 *
 * Story     A body names its input, and by previous_response_id or conversation what came before. Both together are
 *           rendered as one prompt, so the prefix cache counts the whole history. Whatever is shown later, an object or
 *           an event, is made from the response as it stands: event number n is always the same text.
 * Promise   A response keeps all it continues, by reference: letting an earlier one go does not shorten a later one.
 * Not here  HTTP, the engine's callbacks, who reads (stored.c). Tool calls: answers are words.
 */
#include "prompt.h"
#include "store.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

enum {
    EVENTS_BEFORE_TEXT = 4, /* created, in_progress, output_item.added, content_part.added */
    EVENTS_AT_START = 2,
    EVENTS_AFTER_TEXT = 4, /* output_text.done, content_part.done, output_item.done, completed */
};

/* ---- reading ---- */

/* Fields that an answer repeats as they were sent, and what stands there when they were not. */
static const struct {
    const char *name;
    const char *absent;
} REPEATED[] = {
    {"instructions", "null"},
    {"max_output_tokens", "null"},
    {"metadata", "{}"},
    {"parallel_tool_calls", "true"},
    {"previous_response_id", "null"},
    {"reasoning", "null"},
    {"temperature", "1.0"},
    {"text", "{\"format\":{\"type\":\"text\"}}"},
    {"tool_choice", "\"auto\""},
    {"tools", "[]"},
    {"top_p", "1.0"},
    {"truncation", "\"disabled\""},
    {"user", "null"},
};

static void read_fields(struct grid_sim_response *response, const json_t *root, const char *model)
{
    response->fields = json_pack("{s:s}", "model", model);
    for (size_t i = 0; i < sizeof REPEATED / sizeof REPEATED[0]; i++) {
        json_t *sent = json_object_get(root, REPEATED[i].name);
        if (sent && !json_is_null(sent))
            (void)json_object_set(response->fields, REPEATED[i].name, sent);
        else
            (void)json_object_set_new(response->fields, REPEATED[i].name,
                                      json_loads(REPEATED[i].absent, JSON_DECODE_ANY, NULL));
    }
    json_t *conversation = response->conversation[0] ? json_pack("{s:s}", "id", response->conversation) : json_null();
    (void)json_object_set_new(response->fields, "conversation", conversation);
}

/* Items of what is continued, from the start of the talk; empty when nothing is. NULL: refusal says why. */
static json_t *read_history(struct grid_sim_response *response, const json_t *root, struct grid_sim_refusal *refusal)
{
    const json_t *previous = json_object_get(root, "previous_response_id");
    const json_t *conversation = json_object_get(root, "conversation");
    const char *id = json_string_value(previous);
    if (json_is_object(conversation))
        conversation = json_object_get(conversation, "id");
    const char *talk = json_string_value(conversation);
    json_t *history = json_array();
    if (id && talk) {
        (void)grid_sim_refuse(refusal, HTTP_BADREQUEST, "invalid_request_error", "previous_response_id",
                              "previous_response_id and conversation exclude each other");
    } else if (id) {
        struct grid_sim_record *record = grid_sim_store_find(response->store, GRID_SIM_RESPONSE, id);
        const struct grid_sim_response *before = record ? grid_sim_response_of(record) : NULL;
        if (before) {
            (void)json_array_extend(history, before->context);
            (void)json_array_extend(history, before->answer);
            return history;
        }
        (void)grid_sim_store_missing(GRID_SIM_RESPONSE, id, "previous_response_id", refusal);
    } else if (talk) {
        struct grid_sim_record *record = grid_sim_store_find(response->store, GRID_SIM_CONVERSATION, talk);
        if (record) {
            (void)snprintf(response->conversation, sizeof response->conversation, "%s", talk);
            (void)json_array_extend(history, grid_sim_conversation_of(record)->items);
            return history;
        }
        (void)grid_sim_store_missing(GRID_SIM_CONVERSATION, talk, "conversation", refusal);
    } else {
        return history;
    }
    json_decref(history);
    return NULL;
}

/* Messages as in a chat; of other items all but what the site itself has added. */
static void put_item(struct grid_sim_prompt *prompt, json_t *item)
{
    if (grid_sim_prompt_message(prompt, item))
        return;
    json_t *told = json_copy(item);
    (void)json_object_del(told, "id");
    (void)json_object_del(told, "status");
    grid_sim_prompt_value(prompt, GRID_SIM_MARK_TOOL_CALLS, told);
    grid_sim_prompt_mark(prompt, GRID_SIM_MARK_END_OF_MESSAGE);
    json_decref(told);
}

static void render(struct grid_sim_response *response, const json_t *root, const char *model, uint64_t seed)
{
    struct grid_sim_prompt prompt;
    json_t *instructions = json_object_get(root, "instructions");
    size_t i;
    json_t *item;
    grid_sim_prompt_start(&prompt, model, json_object_get(root, "cache_salt"));
    grid_sim_prompt_value(&prompt, GRID_SIM_MARK_TOOLS, json_object_get(root, "tools"));
    if (instructions && !json_is_null(instructions)) {
        json_t *system = json_pack("{s:s, s:O}", "role", "system", "content", instructions);
        (void)grid_sim_prompt_message(&prompt, system);
        json_decref(system);
    }
    json_array_foreach(response->context, i, item) put_item(&prompt, item);
    response->words_seed = grid_sim_prompt_end(&prompt, seed, &response->seq);
}

/* One engine lets the caller choose: taken when it looks like an id. */
static void read_id(struct grid_sim_response *response, const json_t *root)
{
    static const char prefix[] = "resp_";
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *wanted = json_string_value(json_object_get(root, "request_id"));
    size_t length = wanted ? strlen(wanted) : 0;
    grid_sim_store_id(response->store, prefix, response->record.id);
    if (length >= sizeof prefix && length < sizeof response->record.id &&
        strncmp(wanted, prefix, sizeof prefix - 1) == 0 && strspn(wanted, letters) == length)
        (void)snprintf(response->record.id, sizeof response->record.id, "%s", wanted);
}

static bool read_root(struct grid_sim_response *response, const struct grid_sim_options *options, const json_t *root,
                      struct grid_sim_refusal *refusal)
{
    if (!json_is_object(root))
        return grid_sim_refuse(refusal, HTTP_BADREQUEST, "BadRequestError", NULL, "the body must be a JSON object");
    const char *model = grid_sim_model_pick(options, json_object_get(root, "model"), refusal);
    if (!model ||
        !grid_sim_length_read(json_object_get(root, "max_output_tokens"), "max_output_tokens", &response->seq, refusal))
        return false;
    response->background = json_is_true(json_object_get(root, "background"));
    response->stream = json_is_true(json_object_get(root, "stream"));
    response->keep = !json_is_false(json_object_get(root, "store")) && response->store->max_count > 0;
    if (response->background && !response->keep)
        return grid_sim_refuse(refusal, HTTP_BADREQUEST, "invalid_request_error", "background",
                               "background needs a response that is stored");
    response->context = read_history(response, root, refusal);
    response->input = response->context
                          ? grid_sim_items_read(response->store, json_object_get(root, "input"), "input", refusal)
                          : NULL;
    if (!response->input)
        return false;
    (void)json_array_extend(response->context, response->input);
    if (json_array_size(response->context) == 0)
        return grid_sim_refuse(refusal, HTTP_BADREQUEST, "BadRequestError", "input", "input is missing");
    read_id(response, root);
    read_fields(response, root, model);
    render(response, root, model, options->seed);
    return true;
}

struct grid_sim_response *grid_sim_response_read(const struct grid_sim_options *options, struct grid_sim_store *store,
                                                 const json_t *root, struct grid_sim_refusal *refusal)
{
    struct grid_sim_response *response = grid_sim_alloc(1, sizeof *response);
    response->store = store;
    response->refs = 1;
    response->created = (int64_t)time(NULL);
    response->record.kind = GRID_SIM_RESPONSE;
    TAILQ_INIT(&response->readers);
    if (read_root(response, options, root, refusal)) {
        grid_sim_store_id(store, "msg_", response->item_id);
        return response;
    }
    grid_sim_response_unref(response);
    return NULL;
}

void grid_sim_response_unref(struct grid_sim_response *response)
{
    if (--response->refs > 0)
        return;
    json_decref(response->fields);
    json_decref(response->input);
    json_decref(response->context);
    json_decref(response->answer);
    free(response->seq.blocks);
    free(response);
}

/* ---- the object ---- */

static const char *status_of(const struct grid_sim_response *response)
{
    switch (response->outcome) {
    case GRID_SIM_RUNNING:
        return response->seq.stage <= GRID_SIM_WAITING ? "queued" : "in_progress";
    case GRID_SIM_COMPLETED:
        return response->seq.cut ? "incomplete" : "completed";
    case GRID_SIM_CANCELLED:
        break;
    }
    return "cancelled";
}

static json_t *text_of(const struct grid_sim_response *response)
{
    struct evbuffer *text = evbuffer_new();
    if (!text)
        abort();
    for (uint64_t i = 0; i < response->seq.written; i++)
        (void)evbuffer_add_printf(text, "%s%s", i ? " " : "", grid_sim_word(response->words_seed, i));
    size_t bytes = evbuffer_get_length(text);
    json_t *string = json_stringn(bytes ? (const char *)evbuffer_pullup(text, -1) : "", bytes);
    evbuffer_free(text);
    return string;
}

static json_t *part_of(json_t *text)
{
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", text, "annotations", "logprobs");
}

/* Takes content over. */
static json_t *message_of(const struct grid_sim_response *response, const char *status, json_t *content)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", response->item_id, "type", "message", "role", "assistant",
                     "status", status, "content", content);
}

json_t *grid_sim_response_output(const struct grid_sim_response *response)
{
    return json_pack("[o]", message_of(response, status_of(response), json_pack("[o]", part_of(text_of(response)))));
}

json_t *grid_sim_response_usage(const struct grid_sim_response *response)
{
    const struct grid_sim_seq *seq = &response->seq;
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:i}, s:I}", "input_tokens", (json_int_t)seq->prompt_tokens,
                     "input_tokens_details", "cached_tokens", (json_int_t)seq->cached_tokens, "output_tokens",
                     (json_int_t)seq->written, "output_tokens_details", "reasoning_tokens", 0, "total_tokens",
                     (json_int_t)seq->prompt_tokens + (json_int_t)seq->written);
}

/* ended: as it stands when its answer is whole; else as it stood before the first token. */
static json_t *object_of(const struct grid_sim_response *response, const char *status, bool ended)
{
    bool cut = ended && response->seq.cut;
    json_t *reason = cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null();
    json_t *object = json_pack("{s:s, s:s, s:I, s:s, s:b, s:n, s:o}", "id", response->record.id, "object", "response",
                               "created_at", (json_int_t)response->created, "status", status, "background",
                               response->background, "error", "incomplete_details", reason);
    (void)json_object_update(object, response->fields);
    if (ended)
        (void)json_object_set(object, "output", response->answer);
    else
        (void)json_object_set_new(object, "output", json_array());
    (void)json_object_set_new(object, "store", json_boolean(response->keep));
    (void)json_object_set_new(object, "usage", ended ? grid_sim_response_usage(response) : json_null());
    return object;
}

json_t *grid_sim_response_object(const struct grid_sim_response *response)
{
    return object_of(response, status_of(response), response->outcome == GRID_SIM_COMPLETED);
}

/* ---- events ---- */

uint64_t grid_sim_response_events(const struct grid_sim_response *response)
{
    uint64_t written = response->seq.written;
    if (response->outcome == GRID_SIM_COMPLETED)
        return EVENTS_BEFORE_TEXT + written + EVENTS_AFTER_TEXT;
    return written ? EVENTS_BEFORE_TEXT + written : EVENTS_AT_START;
}

/* Takes value over. */
static json_t *item_event(const struct grid_sim_response *response, const char *name, json_t *value)
{
    return json_pack("{s:i, s:s, s:i, s:o}", "content_index", 0, "item_id", response->item_id, "output_index", 0, name,
                     value);
}

static json_t *delta_event(const struct grid_sim_response *response, uint64_t index)
{
    json_t *delta = json_sprintf("%s%s", index ? " " : "", grid_sim_word(response->words_seed, index));
    json_t *event = item_event(response, "delta", delta);
    (void)json_object_set_new(event, "logprobs", json_array());
    return event;
}

static json_t *start_event(const struct grid_sim_response *response, uint64_t number, const char **out_type)
{
    static const char *const types[] = {"response.created", "response.in_progress", "response.output_item.added",
                                        "response.content_part.added"};
    *out_type = types[number];
    if (number < EVENTS_AT_START)
        return json_pack("{s:o}", "response",
                         object_of(response, response->background && number == 0 ? "queued" : "in_progress", false));
    if (number == EVENTS_AT_START)
        return json_pack("{s:o, s:i}", "item", message_of(response, "in_progress", json_array()), "output_index", 0);
    return item_event(response, "part", part_of(json_string("")));
}

static json_t *end_event(const struct grid_sim_response *response, uint64_t number, const char **out_type)
{
    static const char *const types[] = {"response.output_text.done", "response.content_part.done",
                                        "response.output_item.done", "response.completed"};
    *out_type = types[number];
    json_t *message = json_array_get(response->answer, 0);
    json_t *part = json_array_get(json_object_get(message, "content"), 0);
    if (number == 0) {
        json_t *event = item_event(response, "text", json_incref(json_object_get(part, "text")));
        (void)json_object_set_new(event, "logprobs", json_array());
        return event;
    }
    if (number == 1)
        return item_event(response, "part", json_incref(part));
    if (number == 2)
        return json_pack("{s:O, s:i}", "item", message, "output_index", 0);
    return json_pack("{s:o}", "response", grid_sim_response_object(response));
}

void grid_sim_response_event(const struct grid_sim_response *response, uint64_t number, struct evbuffer *out)
{
    const char *type = "response.output_text.delta";
    uint64_t text_end = EVENTS_BEFORE_TEXT + response->seq.written;
    json_t *event;
    if (number < EVENTS_BEFORE_TEXT)
        event = start_event(response, number, &type);
    else if (number < text_end)
        event = delta_event(response, number - EVENTS_BEFORE_TEXT);
    else
        event = end_event(response, number - text_end, &type);
    (void)json_object_set_new(event, "sequence_number", json_integer((json_int_t)number));
    (void)json_object_set_new(event, "type", json_string(type));
    (void)evbuffer_add_printf(out, "event: %s\ndata: ", type);
    grid_sim_json_add(out, event);
    (void)evbuffer_add(out, "\n\n", 2);
}
