/*
 * answer.c - the answer side of a stream
 *
 * Story     The core learns the answer's status, x-grid-* name the site. Where ids of stored state are to be tagged,
 *           each piece of the body goes through the core. An answer that Envoy made itself gets the error body of the
 *           API.
 * Promise   An answer of a site passes through as it comes: no piece waits for the next, and only tags are added.
 * Source    behaviour.md H.7, L, O (13, 41, 55).
 */
#include "filter.h"
#include "recent.h"

#include <stdio.h>
#include <stdlib.h>

enum { MANY_SLICES = 64 }; /* of one piece; more leave the stack */

/* ---- the head ------------------------------------------------------------------------------------------------ */

/* What of an answer's head is asked for. Views live until a setter is called. */
struct answer_head {
    int status;
    struct grid_str type, coding;
    bool forged;
};

static bool is_coded(struct grid_str coding)
{
    return coding.len > 0 && !(coding.len == 8 && grid_bridge_mentions(coding, GRID_TEXT("identity")));
}

/* One look at the head; false: no memory, and nothing is known of it. */
static bool read_head(void *envoy, struct answer_head *out)
{
    struct grid_header room[GRID_MANY_HEADERS];
    size_t n = 0;
    struct grid_header *headers = grid_headers_read(envoy, ENVOY_RESPONSE_HEADERS, room, &n);
    *out = (struct answer_head){0};
    if (!headers)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (grid_bridge_same(headers[i].name, GRID_TEXT(":status")))
            out->status = grid_bridge_status(headers[i].value);
        else if (grid_bridge_same(headers[i].name, GRID_TEXT("content-type")))
            out->type = headers[i].value;
        else if (grid_bridge_same(headers[i].name, GRID_TEXT("content-encoding")) && is_coded(headers[i].value))
            out->coding = headers[i].value; /* given more than once, one is enough */
    }
    out->forged = grid_headers_forged(ENVOY_RESPONSE_HEADERS, headers, n) < n;
    if (headers != room)
        free(headers);
    return true;
}

/* ---- an answer of Envoy's own ---------------------------------------------------------------------------------- */

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

/* The same for a stream. A connection that was closed while it was idle is no failure of the site (O.13, O.55). */
static enum grid_answer whose(void *envoy, const struct grid_filter *filter, uint64_t flags)
{
    if (!filter->local)
        return GRID_FROM_SITE;
    if (filter->site_failed)
        return GRID_SITE_FAILED;
    return flags & ENVOY_FLAG_UPSTREAM_TERMINATION && grid_pick_raced(envoy, filter) ? GRID_NOT_THE_SITE : blame(flags);
}

/* Statuses that Envoy itself answers with, in plain text or without a body. Other filters' own bodies stay. */
static bool envoy_made(const struct answer_head *head)
{
    static const int own[] = {400, 404, 408, 413, 431, 500, 502, 503, 504};
    if (head->type.len > 0 && !grid_bridge_starts(head->type, GRID_TEXT("text/plain")))
        return false;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (own[i] == head->status)
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

/* ---- an answer of a site ------------------------------------------------------------------------------------- */

/* The body that goes on is another than the one that these headers speak of; that of an answer to HEAD would be, too.
 */
static void forget_bytes(void *envoy)
{
    static const struct grid_str names[] = {{"content-length", 14}, {"etag", 4},
                                            {"content-md5", 11},    {"digest", 6},
                                            {"content-digest", 14}, {"repr-digest", 11}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        grid_bridge_remove(envoy, ENVOY_RESPONSE_HEADERS, names[i]);
}

/* The core learns how it ended, and says whether ids in the body get their tag. The answer's x-grid-* are ours, and
 * none that a site made up. */
static void take_answer(void *envoy, struct grid_filter *filter, const struct answer_head *head, enum grid_answer from,
                        bool end)
{
    const struct grid_decision *decision = grid_ticket_decision(filter->ticket);
    grid_learn(filter->ticket, head->status, from, grid_module_now_ms(), NULL);
    if (filter->retries > 0)
        grid_recent_note(filter->ticket, filter->retries + 1, grid_module_now_ms());
    bool tagged = from == GRID_FROM_SITE && (!end || filter->head_only) &&
                  grid_answer_begin(filter->ticket, head->status, head->type, head->coding);
    filter->tagging = tagged && !filter->head_only;
    filter->watching = from == GRID_FROM_SITE && !end &&
                       grid_watch_begin(filter->ticket, head->status, head->type, head->coding, filter->asked_ns);
    if (tagged)
        forget_bytes(envoy);
    if (head->forged)
        grid_headers_clean(envoy, ENVOY_RESPONSE_HEADERS);
    ENVOY(http_add_header)(envoy, ENVOY_RESPONSE_HEADERS, GRID_TEXT("x-grid-site"), decision->site);
    ENVOY(http_add_header)(envoy, ENVOY_RESPONSE_HEADERS, GRID_TEXT("x-grid-backend"), decision->cluster);
    grid_meta_write(envoy, filter);
}

static void take_head(void *envoy, struct grid_filter *filter, bool end)
{
    struct answer_head head;
    uint64_t flags = 0;
    if (filter->kind == GRID_FILTER_OPS || filter->stage == GRID_FILTER_REPLIED || !read_head(envoy, &head))
        return;
    if (filter->local)
        ENVOY(http_filter_get_attribute_int)(envoy, ENVOY_ATTRIBUTE_RESPONSE_FLAGS, &flags);
    filter->answered = !filter->local;
    bool replace = filter->local && envoy_made(&head);
    if (filter->ticket && grid_bridge_forwarded(grid_ticket_decision(filter->ticket)))
        take_answer(envoy, filter, &head, whose(envoy, filter, flags), end);
    if (replace)
        replace_answer(envoy, filter, head.status, flags, end);
}

/* Where bytes of the answer go on. */
struct outlet {
    void *envoy;
    int body;
};

/* Envoy copies them behind what is there, which stays where it is. */
static void put(void *ctx, struct grid_str bytes)
{
    const struct outlet *outlet = ctx;
    ENVOY(http_append_body)(outlet->envoy, outlet->body, bytes);
}

/* A piece of the answer goes through the core, which looks at it; it goes on as it came, or what the core put behind it
 * goes on. */
static void show_piece(void *envoy, struct grid_filter *filter, bool end, uint64_t now_ns)
{
    struct outlet outlet = {envoy, ENVOY_RESPONSE_RECEIVED};
    struct grid_str room[MANY_SLICES];
    size_t n = ENVOY(http_get_body_chunks_size)(envoy, outlet.body);
    struct grid_str *slices = n <= MANY_SLICES ? room : malloc(n * sizeof(*slices));
    bool shown = slices && (n == 0 || ENVOY(http_get_body_chunks)(envoy, outlet.body, slices));
    if (shown && filter->watching)
        grid_watch_piece(filter->ticket, slices, n, now_ns);
    if (shown && filter->tagging) {
        size_t bytes = ENVOY(http_get_body_size)(envoy, outlet.body);
        if (!grid_answer_body(filter->ticket, slices, n, end, put, &outlet))
            ENVOY(http_drain_body)(envoy, outlet.body, bytes);
    }
    if (slices != room)
        free(slices);
    if (shown && end && filter->watching)
        grid_watch_end(filter->ticket);
    filter->tagging = filter->tagging && slices && !end; /* without memory for the list the rest passes as it is */
    filter->watching = filter->watching && shown && !end;
}

static void take_body(void *envoy, struct grid_filter *filter, bool end, uint64_t now_ns)
{
    if (filter->tagging || filter->watching)
        show_piece(envoy, filter, end, now_ns);
    if (!filter->replace_body)
        return;
    size_t bytes = ENVOY(http_get_body_size)(envoy, ENVOY_RESPONSE_RECEIVED);
    ENVOY(http_drain_body)(envoy, ENVOY_RESPONSE_RECEIVED, bytes);
    if (end)
        ENVOY(http_append_body)(envoy, ENVOY_RESPONSE_RECEIVED, filter->failure.body);
}

/* Trailers end the body: what was held back goes ahead of them. */
static void take_trailers(void *envoy, struct grid_filter *filter)
{
    struct outlet outlet = {envoy, ENVOY_RESPONSE_BUFFERED};
    if (filter->tagging)
        grid_answer_body(filter->ticket, NULL, 0, true, put, &outlet);
    if (filter->watching)
        grid_watch_end(filter->ticket);
    filter->tagging = filter->watching = false;
}

/* ---- hooks --------------------------------------------------------------------------------------------------- */

int ON(http_filter_response_headers)(void *envoy, void *stream, bool end)
{
    struct grid_filter *filter = stream;
    uint64_t since_ns = grid_module_now_ns();
    take_head(envoy, filter, end);
    filter->spent_ns = grid_module_now_ns() - since_ns;
    return ENVOY_HEADERS_CONTINUE;
}

int ON(http_filter_response_body)(void *envoy, void *stream, bool end)
{
    struct grid_filter *filter = stream;
    uint64_t since_ns = grid_module_now_ns();
    take_body(envoy, filter, end, since_ns);
    filter->spent_ns += grid_module_now_ns() - since_ns;
    return ENVOY_BODY_CONTINUE;
}

int ON(http_filter_response_trailers)(void *envoy, void *stream)
{
    struct grid_filter *filter = stream;
    uint64_t since_ns = grid_module_now_ns();
    take_trailers(envoy, filter);
    filter->spent_ns += grid_module_now_ns() - since_ns;
    return ENVOY_TRAILERS_CONTINUE;
}

int ON(http_filter_local_reply)(void *envoy, void *stream, uint32_t status, struct grid_str details, bool reset)
{
    struct grid_filter *filter = stream;
    (void)envoy, (void)status, (void)details, (void)reset;
    filter->local = filter->stage != GRID_FILTER_REPLIED;
    filter->tagging = filter->watching = false; /* the site's answer, if there was one, is over */
    return ENVOY_LOCAL_REPLY_CONTINUE;
}
