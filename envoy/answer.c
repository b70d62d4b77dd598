/*
 * answer.c - the answer side of a stream
 *
 * Story     The core learns the answer's status, x-grid-* name the site. An answer that Envoy made itself gets the
 *           error body of the API.
 * Promise   An answer of a site passes through as it comes.
 * Source    behaviour.md L, O (13, 41).
 */
#include "filter.h"

#include <stdio.h>

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
    grid_headers_clean(envoy, ENVOY_RESPONSE_HEADERS);
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
    filter->answered = !filter->local;
    if (filter->ticket && grid_bridge_forwarded(grid_ticket_decision(filter->ticket))) {
        grid_learn(filter->ticket, status, whose(envoy, filter, flags), grid_module_now_ms(), NULL);
        name_site(envoy, grid_ticket_decision(filter->ticket));
        grid_meta_write(envoy, filter);
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
