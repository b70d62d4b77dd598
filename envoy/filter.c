/*
 * filter.c - the HTTP filter: a stream's events, translated for the core
 *
 * Story     Head: read into a ticket, forged headers removed. Body: held while the core wants it, shown to it in place
 *           at its end (or as cut when it passes the limit). Then the decision (pick.c), and either the stream goes
 *           on or the core's reply is sent. Answer: the core learns its status, x-grid-* name the site; an answer
 *           that Envoy made itself gets the error body of the API.
 * Promise   A body is never copied and never changed. An answer of a site passes through as it comes.
 * Threads   Everything of one stream happens on one worker.
 * Not here  Choosing (core, pick.c), the pages of the ops listener (ops.c).
 */
#include "filter.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    MANY_HEADERS = 64,       /* more than that leave the stack */
    MANY_SLICES = 64,        /* about 1 MiB of body; more leave the stack */
    BUFFER_SLACK = 2u << 20, /* over the body's limit, so that the refusal is ours and not Envoy's plain 413 */
};

/* Only the gateway says x-grid-*, and only Envoy x-envoy-*: from a client these would change timeouts and retries. */
static const struct grid_str GRID_HEAD = {"x-grid-", 7}, ENVOY_HEAD = {"x-envoy-", 8};

/* ---- replies ------------------------------------------------------------------------------------------------- */

static void send_reply(void *envoy, struct grid_filter *filter, const struct grid_reply *reply)
{
    char details[64];
    int len = snprintf(details, sizeof(details), "grid_%s", reply->code ? reply->code : "reply");
    filter->stage = GRID_FILTER_REPLIED;
    ENVOY(http_send_response)
    (envoy, (uint32_t)reply->status, reply->headers, reply->n_headers, reply->body,
     (struct grid_str){details, len < 0                         ? 0
                                : (size_t)len < sizeof(details) ? (size_t)len
                                                                : sizeof(details) - 1});
}

static void send_failure(void *envoy, struct grid_filter *filter, int status)
{
    struct grid_reply reply;
    grid_failure_reply(filter->ticket, status, false, &reply);
    send_reply(envoy, filter, &reply);
}

/* True when the stream goes on. A route without our specifier is left as it is. */
static bool decide(void *envoy, struct grid_filter *filter)
{
    grid_pick_decide(envoy, filter->ticket);
    const struct grid_decision *decision = grid_ticket_decision(filter->ticket);
    filter->stage = GRID_FILTER_DECIDED;
    if (grid_bridge_forwarded(decision) || decision->reply.status == 0)
        return true;
    send_reply(envoy, filter, &decision->reply);
    return false;
}

/* ---- head ---------------------------------------------------------------------------------------------------- */

/* All headers of a map in one call, in `room` or, when they are too many, in memory that the caller frees. */
static struct grid_header *read_headers(void *envoy, int map, struct grid_header *room, size_t *out_n)
{
    size_t n = ENVOY(http_get_headers_size)(envoy, map);
    struct grid_header *headers = n <= MANY_HEADERS ? room : malloc(n * sizeof(*headers));
    if (headers && n > 0 && !ENVOY(http_get_headers)(envoy, map, headers))
        n = 0;
    *out_n = n;
    return headers;
}

/* What of the head is not a plain header. An HTTP/2 extended CONNECT arrives in the form of an HTTP/1 upgrade. */
static struct grid_head head_of(const struct grid_header *headers, size_t n, bool end)
{
    struct grid_head head = {.headers = headers, .n_headers = n, .no_body = end};
    bool upgrade = false, connection = false;
    for (size_t i = 0; i < n; i++) {
        if (grid_bridge_same(headers[i].name, GRID_TEXT(":method")))
            head.method = headers[i].value;
        else if (grid_bridge_same(headers[i].name, GRID_TEXT(":path")))
            head.path = headers[i].value;
        else if (grid_bridge_same(headers[i].name, GRID_TEXT("upgrade")))
            upgrade = true;
        else if (grid_bridge_same(headers[i].name, GRID_TEXT("connection")))
            connection = grid_bridge_mentions(headers[i].value, GRID_TEXT("upgrade"));
    }
    head.upgrade = (upgrade && connection) || grid_bridge_same(head.method, GRID_TEXT("CONNECT"));
    return head;
}

/* Envoy itself sets the client's address on every request; it steers nothing. */
static bool is_forged(int map, struct grid_str name)
{
    return grid_bridge_starts(name, GRID_HEAD) ||
           (map == ENVOY_REQUEST_HEADERS && grid_bridge_starts(name, ENVOY_HEAD) &&
            !grid_bridge_same(name, GRID_TEXT("x-envoy-external-address")));
}

static size_t find_forged(int map, const struct grid_header *headers, size_t n)
{
    size_t i = 0;
    while (i < n && !is_forged(map, headers[i].name))
        i++;
    return i;
}

/* NUL-terminated and the caller's; NULL for want of memory. The view itself has no NUL behind it. */
static char *copy_name(struct grid_str name)
{
    char *copy = malloc(name.len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, name.ptr, name.len);
    copy[name.len] = 0;
    return copy;
}

/* Removes what only the gateway or Envoy may say. A removal ends the life of every view, so the names are read anew. */
static bool remove_forged(void *envoy, int map)
{
    struct grid_header room[MANY_HEADERS];
    for (;;) {
        size_t n = 0;
        struct grid_header *headers = read_headers(envoy, map, room, &n);
        size_t at = headers ? find_forged(map, headers, n) : n;
        char *name = headers && at < n ? copy_name(headers[at].name) : NULL;
        bool more = name != NULL, failed = !headers || (at < n && !name);
        if (headers != room)
            free(headers);
        if (more)
            grid_bridge_remove(envoy, map, grid_bridge_text(name));
        free(name);
        if (!more)
            return !failed;
    }
}

/* Reads the head into a ticket. False: no memory. */
static bool start_ticket(void *envoy, struct grid_filter *filter, bool end)
{
    struct grid_header room[MANY_HEADERS];
    size_t n = 0;
    struct grid_header *headers = read_headers(envoy, ENVOY_REQUEST_HEADERS, room, &n);
    if (!headers)
        return false;
    struct grid_head head = head_of(headers, n, end);
    filter->head_only = grid_bridge_same(head.method, GRID_TEXT("HEAD"));
    bool good = grid_ticket_new(filter->module->router, &head, &filter->ticket) == GRID_OK;
    bool forged = find_forged(ENVOY_REQUEST_HEADERS, headers, n) < n;
    if (headers != room)
        free(headers);
    return good && (!forged || remove_forged(envoy, ENVOY_REQUEST_HEADERS));
}

int ON(http_filter_request_headers)(void *envoy, void *stream, bool end)
{
    struct grid_filter *filter = stream;
    if (filter->kind == GRID_FILTER_OPS) {
        filter->stage = GRID_FILTER_REPLIED;
        grid_ops_answer(filter->module, envoy);
        return ENVOY_HEADERS_STOP;
    }
    if (!start_ticket(envoy, filter, end)) {
        send_failure(envoy, filter, 500);
        return ENVOY_HEADERS_STOP;
    }
    if (grid_ticket_want(filter->ticket) == GRID_WANT_BODY && !end) {
        filter->stage = GRID_FILTER_BODY;
        ENVOY(http_set_buffer_limit)(envoy, grid_ticket_max_body(filter->ticket) + BUFFER_SLACK);
        return ENVOY_HEADERS_STOP;
    }
    if (grid_ticket_want(filter->ticket) == GRID_WANT_BODY)
        grid_ticket_body(filter->ticket, NULL, 0, false);
    return decide(envoy, filter) ? ENVOY_HEADERS_CONTINUE : ENVOY_HEADERS_STOP;
}

/* ---- body ---------------------------------------------------------------------------------------------------- */

/* Where the body lies: held by us first, then what came with this call (unless that is the same buffer). */
struct body_parts {
    int kinds[2];
    size_t n;
};

static struct body_parts parts_of(void *envoy, bool received)
{
    struct body_parts parts = {{ENVOY_REQUEST_BUFFERED, ENVOY_REQUEST_RECEIVED}, 1};
    if (received && !ENVOY(http_received_buffered_request_body)(envoy))
        parts.n = 2;
    return parts;
}

static uint64_t body_bytes(void *envoy, const struct body_parts *parts)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < parts->n; i++)
        bytes += ENVOY(http_get_body_size)(envoy, parts->kinds[i]);
    return bytes;
}

/* Leaves no more than `limit` bytes: how the body was cut in pieces must not decide. Returns the slices left. */
static size_t cut_at(struct grid_str *slices, size_t n, uint64_t limit)
{
    for (size_t i = 0; i < n; i++) {
        if (slices[i].len >= limit) {
            slices[i].len = (size_t)limit;
            return i + 1;
        }
        limit -= slices[i].len;
    }
    return n;
}

/* Shows the core the body where it lies. False: no memory for the list of slices. */
static bool show_body(void *envoy, struct grid_filter *filter, const struct body_parts *parts, bool cut)
{
    struct grid_str room[MANY_SLICES];
    size_t counts[2] = {0, 0}, n = 0;
    for (size_t i = 0; i < parts->n; i++)
        counts[i] = ENVOY(http_get_body_chunks_size)(envoy, parts->kinds[i]);
    struct grid_str *slices = room;
    if (counts[0] + counts[1] > MANY_SLICES)
        slices = malloc((counts[0] + counts[1]) * sizeof(*slices));
    if (!slices)
        return false;
    for (size_t i = 0; i < parts->n; i++) {
        if (counts[i] > 0 && ENVOY(http_get_body_chunks)(envoy, parts->kinds[i], slices + n))
            n += counts[i];
    }
    if (cut)
        n = cut_at(slices, n, grid_ticket_max_body(filter->ticket));
    grid_ticket_body(filter->ticket, slices, n, cut);
    if (slices != room)
        free(slices);
    return true;
}

/* The body is as complete as the core gets it. True when the stream goes on. */
static bool finish_body(void *envoy, struct grid_filter *filter, const struct body_parts *parts, bool cut)
{
    if (show_body(envoy, filter, parts, cut))
        return decide(envoy, filter);
    send_failure(envoy, filter, 500);
    return false;
}

int ON(http_filter_request_body)(void *envoy, void *stream, bool end)
{
    struct grid_filter *filter = stream;
    if (filter->stage == GRID_FILTER_REPLIED)
        return ENVOY_BODY_STOP;
    if (filter->stage != GRID_FILTER_BODY)
        return ENVOY_BODY_CONTINUE;
    struct body_parts parts = parts_of(envoy, true);
    bool over = body_bytes(envoy, &parts) > grid_ticket_max_body(filter->ticket);
    if (!over && !end)
        return ENVOY_BODY_STOP_AND_BUFFER;
    return finish_body(envoy, filter, &parts, over) ? ENVOY_BODY_CONTINUE : ENVOY_BODY_STOP;
}

int ON(http_filter_request_trailers)(void *envoy, void *stream)
{
    struct grid_filter *filter = stream;
    if (filter->stage == GRID_FILTER_REPLIED)
        return ENVOY_TRAILERS_STOP;
    if (filter->stage != GRID_FILTER_BODY)
        return ENVOY_TRAILERS_CONTINUE;
    struct body_parts parts = parts_of(envoy, false);
    bool over = body_bytes(envoy, &parts) > grid_ticket_max_body(filter->ticket);
    return finish_body(envoy, filter, &parts, over) ? ENVOY_TRAILERS_CONTINUE : ENVOY_TRAILERS_STOP;
}

/* ---- answer -------------------------------------------------------------------------------------------------- */

/* Whose doing an answer of Envoy's own is (behaviour.md O.13). */
static enum grid_answer blame(uint64_t flags)
{
    const uint64_t site = ENVOY_FLAG_NO_HEALTHY_UPSTREAM | ENVOY_FLAG_UPSTREAM_TIMEOUT | ENVOY_FLAG_LOCAL_RESET |
                          ENVOY_FLAG_UPSTREAM_REMOTE_RESET | ENVOY_FLAG_UPSTREAM_CONNECT_FAILURE |
                          ENVOY_FLAG_UPSTREAM_TERMINATION;
    if (flags & ENVOY_FLAG_UPSTREAM_OVERFLOW)
        return GRID_NOT_THE_SITE;
    return flags & site ? GRID_SITE_FAILED : GRID_NOT_THE_SITE;
}

/* Statuses that Envoy itself answers with, in plain text or without a body. Other filters' own bodies stay. */
static bool envoy_made(void *envoy, int status)
{
    static const int own[] = {400, 404, 408, 413, 431, 500, 502, 503, 504};
    struct grid_str type = grid_bridge_header(envoy, ENVOY_RESPONSE_HEADERS, GRID_TEXT("content-type"));
    if (type.len > 0 && !grid_bridge_starts(type, GRID_TEXT("text/plain")))
        return false;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (own[i] == status)
            return true;
    }
    return false;
}

/* Turns Envoy's plain answer into the API's error. Its body, if there is one, is exchanged when it comes. */
static void replace_answer(void *envoy, struct grid_filter *filter, int status, uint64_t flags, bool end)
{
    const struct grid_reply *reply = &filter->failure;
    char length[24];
    bool overloaded = (flags & ENVOY_FLAG_UPSTREAM_OVERFLOW) != 0;
    grid_failure_reply(filter->ticket, status, overloaded, &filter->failure);
    int len = snprintf(length, sizeof(length), "%zu", reply->body.len);
    for (size_t i = 0; i < reply->n_headers; i++)
        ENVOY(http_set_header)(envoy, ENVOY_RESPONSE_HEADERS, reply->headers[i].name, reply->headers[i].value);
    ENVOY(http_set_header)
    (envoy, ENVOY_RESPONSE_HEADERS, GRID_TEXT("content-length"), (struct grid_str){length, (size_t)len});
    filter->replace_body = !end && !filter->head_only;
    if (end && !filter->head_only)
        ENVOY(http_append_body)(envoy, ENVOY_RESPONSE_BUFFERED, reply->body);
}

/* The answer's x-grid-*: ours, and none that a site made up. */
static void name_site(void *envoy, const struct grid_decision *decision)
{
    remove_forged(envoy, ENVOY_RESPONSE_HEADERS);
    ENVOY(http_set_header)(envoy, ENVOY_RESPONSE_HEADERS, GRID_TEXT("x-grid-site"), decision->site);
    ENVOY(http_set_header)(envoy, ENVOY_RESPONSE_HEADERS, GRID_TEXT("x-grid-backend"), decision->cluster);
}

int ON(http_filter_response_headers)(void *envoy, void *stream, bool end)
{
    struct grid_filter *filter = stream;
    if (filter->kind == GRID_FILTER_OPS || filter->stage == GRID_FILTER_REPLIED)
        return ENVOY_HEADERS_CONTINUE;
    struct grid_str text = grid_bridge_header(envoy, ENVOY_RESPONSE_HEADERS, GRID_TEXT(":status"));
    int status = grid_bridge_status(text);
    uint64_t flags = 0;
    if (filter->local)
        ENVOY(http_filter_get_attribute_int)(envoy, ENVOY_ATTRIBUTE_RESPONSE_FLAGS, &flags);
    if (filter->ticket && grid_bridge_forwarded(grid_ticket_decision(filter->ticket))) {
        grid_learn(filter->ticket, status, filter->local ? blame(flags) : GRID_FROM_SITE, grid_module_now_ms(), NULL);
        name_site(envoy, grid_ticket_decision(filter->ticket));
    }
    if (filter->local && envoy_made(envoy, status))
        replace_answer(envoy, filter, status, flags, end);
    return ENVOY_HEADERS_CONTINUE;
}

int ON(http_filter_response_body)(void *envoy, void *stream, bool end)
{
    struct grid_filter *filter = stream;
    if (!filter->replace_body)
        return ENVOY_BODY_CONTINUE;
    size_t bytes = ENVOY(http_get_body_size)(envoy, ENVOY_RESPONSE_RECEIVED);
    ENVOY(http_drain_body)(envoy, ENVOY_RESPONSE_RECEIVED, bytes);
    if (end)
        ENVOY(http_append_body)(envoy, ENVOY_RESPONSE_RECEIVED, filter->failure.body);
    return ENVOY_BODY_CONTINUE;
}

int ON(http_filter_response_trailers)(void *envoy, void *stream)
{
    (void)envoy, (void)stream;
    return ENVOY_TRAILERS_CONTINUE;
}

int ON(http_filter_local_reply)(void *envoy, void *stream, uint32_t status, struct grid_str details, bool reset)
{
    struct grid_filter *filter = stream;
    (void)envoy, (void)status, (void)details, (void)reset;
    filter->local = filter->stage != GRID_FILTER_REPLIED;
    return ENVOY_LOCAL_REPLY_CONTINUE;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

void *ON(http_filter_config_new)(void *envoy, struct grid_str name, struct grid_str text)
{
    (void)envoy, (void)text;
    bool ops = grid_bridge_same(name, GRID_TEXT("grid_ops"));
    if (!ops && !grid_bridge_same(name, GRID_TEXT("grid_site_route"))) {
        grid_module_log(ENVOY_LOG_ERROR, "filter_name: %.*s is unknown; it is grid_site_route or grid_ops",
                        (int)name.len, name.ptr);
        return NULL;
    }
    if (!grid_module_get()) {
        grid_module_log(ENVOY_LOG_ERROR, "the filter needs the bootstrap extension of the same module");
        return NULL;
    }
    struct grid_filter_config *config = calloc(1, sizeof(*config));
    if (config)
        config->kind = ops ? GRID_FILTER_OPS : GRID_FILTER_ROUTE;
    return config;
}

void ON(http_filter_config_destroy)(void *config)
{
    free(config);
}

void *ON(http_filter_new)(void *config, void *envoy)
{
    (void)envoy;
    struct grid_filter *filter = calloc(1, sizeof(*filter));
    if (!filter)
        return NULL;
    filter->kind = ((struct grid_filter_config *)config)->kind;
    filter->module = grid_module_get();
    return filter;
}

/* A ticket that was routed and never learned from is a client that went away: its mark lapses by itself. */
void ON(http_filter_destroy)(void *stream)
{
    struct grid_filter *filter = stream;
    grid_ticket_free(filter->ticket);
    free(filter);
}

void ON(http_filter_stream_complete)(void *envoy, void *stream)
{
    (void)envoy, (void)stream;
}

/* Hooks that Envoy insists on and that nothing here makes happen. */
void ON(http_filter_scheduled)(void *envoy, void *filter, uint64_t event)
{
    (void)envoy, (void)filter, (void)event;
}

void ON(http_filter_http_callout_done)(void *envoy, void *filter, uint64_t id, int result, struct grid_header *headers,
                                       size_t n, struct grid_str *body, size_t n_body)
{
    (void)envoy, (void)filter, (void)id, (void)result, (void)headers, (void)n, (void)body, (void)n_body;
}

void ON(http_filter_http_stream_headers)(void *envoy, void *filter, uint64_t id, struct grid_header *headers, size_t n,
                                         bool end)
{
    (void)envoy, (void)filter, (void)id, (void)headers, (void)n, (void)end;
}

void ON(http_filter_http_stream_data)(void *envoy, void *filter, uint64_t id, const struct grid_str *body, size_t n,
                                      bool end)
{
    (void)envoy, (void)filter, (void)id, (void)body, (void)n, (void)end;
}

void ON(http_filter_http_stream_trailers)(void *envoy, void *filter, uint64_t id, struct grid_header *headers, size_t n)
{
    (void)envoy, (void)filter, (void)id, (void)headers, (void)n;
}

void ON(http_filter_http_stream_complete)(void *envoy, void *filter, uint64_t id)
{
    (void)envoy, (void)filter, (void)id;
}

void ON(http_filter_http_stream_reset)(void *envoy, void *filter, uint64_t id, int reason)
{
    (void)envoy, (void)filter, (void)id, (void)reason;
}

void ON(http_filter_downstream_above_write_buffer_high_watermark)(void *envoy, void *filter)
{
    (void)envoy, (void)filter;
}

void ON(http_filter_downstream_below_write_buffer_low_watermark)(void *envoy, void *filter)
{
    (void)envoy, (void)filter;
}
