/*
 * stored.c - Responses over HTTP: create, stream, retrieve, cancel, delete, input items, compact, input tokens
 *
 * Story     A create becomes a response (responses.c) that the engine runs (queue.c) and that readers follow: the
 *           exchange that made it, or later ones that stream a background response. A reader sends the events that
 *           there are and waits for more; without a stream it waits for the end. What is to be kept goes into the
 *           store (store.c) when it is whole, in the background at once.
 * Promise   A response in the foreground leaves the engine with its reader, one in the background with its cancel, its
 *           delete, or when the store lets it go. It is in the store before its last event is sent.
 * Not here  How objects and events look (responses.c).
 */
#include "exchange.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_NUMBER_BYTES = 24,
};

/* ---- readers ---- */

static struct grid_sim_exchange *exchange_of(struct grid_sim_reader *reader)
{
    return (struct grid_sim_exchange *)(void *)((char *)reader - offsetof(struct grid_sim_exchange, reader));
}

static bool stream_ready(struct grid_sim_reader *reader)
{
    const struct grid_sim_exchange *x = exchange_of(reader);
    return !x->dropping && grid_sim_exchange_unread(x) < GRID_SIM_MAX_UNREAD_BYTES;
}

static bool always_ready(struct grid_sim_reader *reader)
{
    return !exchange_of(reader)->dropping;
}

static void stream_progress(struct grid_sim_reader *reader)
{
    struct grid_sim_exchange *x = exchange_of(reader);
    const struct grid_sim_response *response = reader->response;
    uint64_t events = grid_sim_response_events(response);
    for (; reader->next < events; reader->next++) {
        struct evbuffer *event = grid_sim_buffer_new();
        grid_sim_response_event(response, reader->next, event);
        grid_sim_exchange_event(x, event);
    }
    if (response->outcome != GRID_SIM_RUNNING && !x->dropping)
        evhttp_send_reply_end(grid_sim_exchange_release(x));
}

static void whole_progress(struct grid_sim_reader *reader)
{
    if (reader->response->outcome != GRID_SIM_RUNNING)
        grid_sim_exchange_json(exchange_of(reader), HTTP_OK, grid_sim_response_object(reader->response));
}

static void read_response(struct grid_sim_exchange *x, struct grid_sim_response *response, bool stream, uint64_t from)
{
    x->reader = (struct grid_sim_reader){.response = response,
                                         .owns = !response->background && response->outcome == GRID_SIM_RUNNING,
                                         .next = from,
                                         .ready = stream ? stream_ready : always_ready,
                                         .progress = stream ? stream_progress : whole_progress};
    response->refs++;
    TAILQ_INSERT_TAIL(&response->readers, &x->reader, link);
    grid_sim_exchange_watch(x);
    if (stream)
        grid_sim_exchange_stream(x);
}

void grid_sim_reader_leave(struct grid_sim_reader *reader)
{
    struct grid_sim_response *response = reader->response;
    if (!response)
        return;
    reader->response = NULL;
    TAILQ_REMOVE(&response->readers, reader, link);
    if (reader->owns)
        grid_sim_response_cancel(response);
    grid_sim_response_unref(response);
}

/* Each reader may end itself, which takes it off the list. */
static void tell_readers(struct grid_sim_response *response)
{
    struct grid_sim_reader *next;
    for (struct grid_sim_reader *reader = TAILQ_FIRST(&response->readers); reader; reader = next) {
        next = TAILQ_NEXT(reader, link);
        reader->progress(reader);
    }
}

/* ---- the engine's callbacks ---- */

static bool on_ready(struct grid_sim_seq *seq)
{
    struct grid_sim_response *response = (struct grid_sim_response *)seq;
    struct grid_sim_reader *reader = TAILQ_FIRST(&response->readers);
    return response->background || !reader || reader->ready(reader);
}

static void on_token(struct grid_sim_seq *seq, bool last)
{
    (void)last;
    tell_readers((struct grid_sim_response *)seq);
}

static size_t bytes_of(const struct grid_sim_response *response)
{
    return grid_sim_items_bytes(response->input) + grid_sim_items_bytes(response->fields) +
           (response->answer ? grid_sim_items_bytes(response->answer) : 0) +
           json_array_size(response->context) * sizeof(json_t *);
}

static void keep(struct grid_sim_response *response)
{
    if (!response->record.held)
        response->refs++;
    grid_sim_store_hold(response->store, &response->record, bytes_of(response));
}

static void on_finished(struct grid_sim_seq *seq)
{
    struct grid_sim_response *response = (struct grid_sim_response *)seq;
    response->refs++; /* its last reader may leave, the store may let it go */
    response->outcome = GRID_SIM_COMPLETED;
    response->answer = grid_sim_response_output(response);
    if (response->conversation[0])
        grid_sim_conversation_append(response->store, response->conversation, response->input, response->answer);
    if (response->keep && (!response->background || response->record.held))
        keep(response);
    tell_readers(response);
    grid_sim_response_unref(response);
}

void grid_sim_response_cancel(struct grid_sim_response *response)
{
    if (response->outcome != GRID_SIM_RUNNING)
        return;
    response->outcome = GRID_SIM_CANCELLED;
    grid_sim_queue_abort(&response->seq);
    tell_readers(response);
}

void grid_sim_response_let_go(struct grid_sim_record *record)
{
    struct grid_sim_response *response = grid_sim_response_of(record);
    grid_sim_response_cancel(response);
    grid_sim_response_unref(response);
}

/* ---- create and its kin ---- */

static void start_create(struct grid_sim_exchange *x)
{
    static const struct grid_sim_seq_ops ops = {.ready = on_ready, .token = on_token, .finished = on_finished};
    struct grid_sim_refusal refusal;
    json_t *root = grid_sim_exchange_body(x, &refusal);
    struct grid_sim_response *response =
        root ? grid_sim_response_read(x->server->options, x->server->store, root, &refusal) : NULL;
    json_decref(root);
    if (!response) {
        grid_sim_exchange_refuse(x, &refusal);
        return;
    }
    response->seq.ops = &ops;
    if (response->background)
        keep(response);
    bool waits = response->stream || !response->background;
    json_t *queued = waits ? NULL : grid_sim_response_object(response);
    if (waits)
        read_response(x, response, response->stream, 0);
    if (response->outcome == GRID_SIM_RUNNING)
        grid_sim_queue_submit(&x->server->queue, &response->seq);
    if (!waits)
        grid_sim_exchange_json(x, HTTP_OK, queued);
    else if (response->stream)
        tell_readers(response); /* the events before the first token */
    grid_sim_response_unref(response);
}

/* A body's response that is only looked at: it is never submitted, and its id is new. */
static struct grid_sim_response *read_only(struct grid_sim_exchange *x)
{
    struct grid_sim_refusal refusal;
    json_t *root = grid_sim_exchange_body(x, &refusal);
    struct grid_sim_response *response =
        root ? grid_sim_response_read(x->server->options, x->server->store, root, &refusal) : NULL;
    json_decref(root);
    if (!response)
        grid_sim_exchange_refuse(x, &refusal);
    return response;
}

static void start_input_tokens(struct grid_sim_exchange *x)
{
    struct grid_sim_response *response = read_only(x);
    if (!response)
        return;
    json_t *body = json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens",
                             (json_int_t)response->seq.prompt_tokens);
    grid_sim_response_unref(response);
    grid_sim_exchange_json(x, HTTP_OK, body);
}

/* All user messages, then one item that stands for the rest; nothing is computed and nothing kept. */
static void start_compact(struct grid_sim_exchange *x)
{
    struct grid_sim_response *response = read_only(x);
    if (!response)
        return;
    json_t *output = json_array();
    char id[GRID_SIM_MAX_ID_BYTES];
    size_t i;
    json_t *item;
    json_array_foreach(response->context, i, item)
    {
        const char *role = json_string_value(json_object_get(item, "role"));
        if (role && strcmp(role, "user") == 0)
            (void)json_array_append(output, item);
    }
    grid_sim_store_id(response->store, "cmp_", id);
    (void)json_array_append_new(
        output, json_pack("{s:s, s:s, s:s}", "id", id, "type", "compaction", "encrypted_content", "sim"));
    json_t *body =
        json_pack("{s:s, s:s, s:I, s:o, s:o}", "id", response->record.id, "object", "response.compaction", "created_at",
                  (json_int_t)response->created, "output", output, "usage", grid_sim_response_usage(response));
    grid_sim_response_unref(response);
    grid_sim_exchange_json(x, HTTP_OK, body);
}

/* ---- one that is held ---- */

static bool query_is(const struct grid_sim_exchange *x, const char *name, const char *wanted)
{
    char value[MAX_NUMBER_BYTES];
    return grid_sim_exchange_query(x, name, value, sizeof value) && strcmp(value, wanted) == 0;
}

static void retrieve(struct grid_sim_exchange *x, struct grid_sim_response *response)
{
    char after[MAX_NUMBER_BYTES];
    if (!query_is(x, "stream", "true")) {
        grid_sim_exchange_json(x, HTTP_OK, grid_sim_response_object(response));
        return;
    }
    uint64_t from = 0;
    if (grid_sim_exchange_query(x, "starting_after", after, sizeof after))
        from = strtoull(after, NULL, 10) + 1;
    read_response(x, response, true, from);
    x->reader.progress(&x->reader);
}

static void cancel(struct grid_sim_exchange *x, struct grid_sim_response *response)
{
    if (!response->background || response->outcome != GRID_SIM_RUNNING) {
        grid_sim_reply_error(grid_sim_exchange_release(x), HTTP_BADREQUEST, "invalid_request_error", "response_id",
                             "Cannot cancel a synchronous response.");
        return;
    }
    grid_sim_response_cancel(response);
    grid_sim_exchange_json(x, HTTP_OK, grid_sim_response_object(response));
}

static void delete (struct grid_sim_exchange *x, struct grid_sim_response *response)
{
    json_t *body = json_pack("{s:s, s:s, s:b}", "id", response->record.id, "object", "response", "deleted", true);
    grid_sim_store_let_go(x->server->store, &response->record);
    grid_sim_exchange_json(x, HTTP_OK, body);
}

static void input_items(struct grid_sim_exchange *x, struct grid_sim_response *response)
{
    struct grid_sim_page page;
    if (grid_sim_exchange_page(x, &page))
        grid_sim_exchange_json(x, HTTP_OK, grid_sim_items_page(response->input, &page));
    else
        grid_sim_reply_error(grid_sim_exchange_release(x), HTTP_BADREQUEST, "invalid_request_error", "limit",
                             "limit must be a whole number from 1 to 100");
}

/* ---- routes ---- */

static const struct create_route {
    const char *rest;
    void (*start)(struct grid_sim_exchange *x);
} CREATES[] = {
    {"", start_create},
    {"/compact", start_compact},
    {"/input_tokens", start_input_tokens},
};

static const struct held_route {
    enum evhttp_cmd_type method;
    const char *rest; /* behind the id */
    void (*start)(struct grid_sim_exchange *x, struct grid_sim_response *response);
} HELD[] = {
    {EVHTTP_REQ_GET, "", retrieve},
    {EVHTTP_REQ_DELETE, "", delete},
    {EVHTTP_REQ_POST, "/cancel", cancel},
    {EVHTTP_REQ_GET, "/input_items", input_items},
};

static void start_held(struct grid_sim_exchange *x, enum evhttp_cmd_type method, const char *id_and_rest)
{
    size_t length = strcspn(id_and_rest, "/");
    bool may_be_id = length > 0 && length < GRID_SIM_MAX_ID_BYTES;
    const struct held_route *found = NULL;
    bool known = false;
    for (size_t i = 0; may_be_id && i < sizeof HELD / sizeof HELD[0]; i++) {
        if (strcmp(HELD[i].rest, id_and_rest + length) != 0)
            continue;
        known = true;
        if (HELD[i].method == method)
            found = &HELD[i];
    }
    if (!found) {
        grid_sim_exchange_no_route(x, known);
        return;
    }
    char id[GRID_SIM_MAX_ID_BYTES];
    struct grid_sim_refusal refusal;
    (void)snprintf(id, sizeof id, "%.*s", (int)length, id_and_rest);
    struct grid_sim_record *record = grid_sim_store_find(x->server->store, GRID_SIM_RESPONSE, id);
    if (record) {
        found->start(x, grid_sim_response_of(record));
        return;
    }
    (void)grid_sim_store_missing(GRID_SIM_RESPONSE, id, "response_id", &refusal);
    grid_sim_exchange_refuse(x, &refusal);
}

void grid_sim_responses_start(struct grid_sim_exchange *x, enum evhttp_cmd_type method, const char *rest)
{
    for (size_t i = 0; i < sizeof CREATES / sizeof CREATES[0]; i++) {
        if (strcmp(CREATES[i].rest, rest) != 0)
            continue;
        if (method == EVHTTP_REQ_POST)
            CREATES[i].start(x);
        else
            grid_sim_exchange_no_route(x, true);
        return;
    }
    start_held(x, method, rest + 1);
}
