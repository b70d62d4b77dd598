/*
 * filter.c - the HTTP filter: a stream's life, and the answers that the gateway gives itself
 *
 * Story     Envoy makes a config per filter of the listener and a filter per stream; the hooks in between are in
 *           request.c and answer.c. The same module serves the pages of the ops listener (ops.c).
 * Threads   Everything of one stream happens on one worker. A config may be destroyed on any.
 */
#include "filter.h"
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- replies ------------------------------------------------------------------------------------------------- */

/* Who holds a tagged id may use it. One that goes on to its site is stripped; one that is refused must not stand in the
 * access log either. */
static void hide_id(void *envoy)
{
    static const struct grid_str stands_for_it[] = {{"/v1/responses/-", 15}, {"/v1/conversations/-", 19}};
    struct grid_str path = grid_bridge_header(envoy, ENVOY_REQUEST_HEADERS, GRID_TEXT(":path"));
    for (size_t i = 0; i < sizeof(stands_for_it) / sizeof(stands_for_it[0]); i++) {
        struct grid_str head = {stands_for_it[i].ptr, stands_for_it[i].len - 1};
        if (grid_bridge_starts(path, head) && memchr(path.ptr, '.', path.len)) {
            ENVOY(http_set_header)(envoy, ENVOY_REQUEST_HEADERS, GRID_TEXT(":path"), stands_for_it[i]);
            return;
        }
    }
}

void grid_filter_reply(void *envoy, struct grid_filter *filter, const struct grid_reply *reply)
{
    char details[64];
    int len = snprintf(details, sizeof(details), "grid_%s", reply->code ? reply->code : "reply");
    filter->stage = GRID_FILTER_REPLIED;
    grid_meta_write(envoy, filter);
    hide_id(envoy);
    ENVOY(http_send_response)
    (envoy, (uint32_t)reply->status, reply->headers, reply->n_headers, reply->body,
     (struct grid_str){details, len < 0                         ? 0
                                : (size_t)len < sizeof(details) ? (size_t)len
                                                                : sizeof(details) - 1});
}

void grid_filter_fail(void *envoy, struct grid_filter *filter, int status)
{
    struct grid_reply reply;
    grid_failure_reply(filter->ticket, status, false, &reply);
    grid_filter_reply(envoy, filter, &reply);
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

void *ON(http_filter_config_new)(void *envoy, struct grid_str name, struct grid_str text)
{
    (void)envoy;
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
    if (config) {
        config->kind = ops ? GRID_FILTER_OPS : GRID_FILTER_ROUTE;
        config->metadata = !ops && grid_bridge_same(text, GRID_TEXT("metadata"));
        if (ops)
            atomic_store(&grid_module_get()->explains, grid_bridge_same(text, GRID_TEXT("explain")));
    }
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
    filter->metadata = ((struct grid_filter_config *)config)->metadata;
    filter->module = grid_module_get();
    return filter;
}

/* A ticket that was routed and never learned from is a client that went away: its mark lapses by itself. */
void ON(http_filter_destroy)(void *stream)
{
    struct grid_filter *filter = stream;
    grid_pick_disarm(filter);
    grid_ticket_free(filter->ticket);
    free(filter);
}

/* Prompts that were read and sent on. Not read: what an id leads, and, when the head names the model, what goes to one
 * site alone or without affinity. */
static void record(const struct grid_filter *filter)
{
    const struct grid_decision *decision = grid_ticket_decision(filter->ticket);
    struct timespec now;
    struct grid_watched watched;
    struct grid_trace_note note = {.body_bytes = filter->body_bytes == UINT64_MAX ? 0 : filter->body_bytes};
    const uint64_t *keys = grid_ticket_keys(filter->ticket, &note.n);
    bool unread = (decision->reason == GRID_REASON_NONE && note.n == 0) || decision->reason == GRID_REASON_DISABLED ||
                  decision->reason == GRID_REASON_METHOD;
    if (!grid_bridge_forwarded(decision) || decision->pinned || decision->api == GRID_API_NONE || unread)
        return;
    grid_watch_usage(filter->ticket, &watched);
    note.prompt_tokens = watched.has_prompt ? watched.prompt_tokens : 0;
    note.has_output = watched.has_output;
    note.output_tokens = watched.output_tokens;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ago_ms = filter->asked_ns > 0 ? (grid_module_now_ns() - filter->asked_ns) / 1000000 : 0;
    note.at_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 - ago_ms;
    grid_trace_add(&note, keys);
}

void ON(http_filter_stream_complete)(void *envoy, void *stream)
{
    struct grid_filter *filter = stream;
    struct grid_str local = {NULL, 0};
    grid_meta_end(envoy, filter);
    if (filter->ticket && filter->kind == GRID_FILTER_ROUTE && grid_trace_on())
        record(filter);
    if (filter->answered && filter->kind == GRID_FILTER_ROUTE)
        grid_count_time(filter->module->router, GRID_SIDE_RESPONSE, filter->spent_ns);
    if (filter->answered &&
        ENVOY(http_filter_get_attribute_string)(envoy, ENVOY_ATTRIBUTE_UPSTREAM_LOCAL_ADDRESS, &local))
        grid_reuse_note(local, grid_module_now_ms());
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
