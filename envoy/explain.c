/*
 * explain.c - where a pasted request would go, for the ops page
 *
 * Story     POST /explain/v1/chat/completions with a body: the core decides as for a request on that path with these
 *           headers, under the present queues, and with what clusters are believed to hold. Nothing is sent, counted,
 *           drawn or remembered. The words are those of the command `explain`.
 * Promise   The body is held until its end, is at most GRID_OPS_MAX_BODY_BYTES long, and goes with the stream.
 * Threads   The stream's worker.
 */
#include "ops.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MAX_ANSWER_BYTES = 4 << 20 };

#define JSON_TYPE "application/json"

static void refuse(void *envoy, int status, const char *message)
{
    struct grid_buf out = {.limit = 1024};
    grid_buf_puts(&out, "{\"error\":");
    grid_buf_json(&out, grid_bridge_text(message));
    grid_buf_puts(&out, "}\n");
    grid_ops_send(envoy, status, JSON_TYPE, NULL, (struct grid_str){out.ptr, out.len});
    grid_buf_done(&out);
}

bool grid_explain_begin(void *envoy, struct grid_filter *filter, struct grid_str path, bool end)
{
    struct grid_header room[GRID_MANY_HEADERS];
    struct grid_head head = {.method = GRID_TEXT("POST"), .path = path, .no_body = end};
    if (!atomic_load(&filter->module->explains)) {
        refuse(envoy, 403, "only where ops listens on a loopback address");
        return false;
    }
    struct grid_header *headers = grid_headers_read(envoy, ENVOY_REQUEST_HEADERS, room, &head.n_headers);
    head.headers = headers;
    bool good = headers && grid_ticket_new(filter->module->router, &head, &filter->ticket) == GRID_OK;
    if (headers != room)
        free(headers);
    if (!good) {
        refuse(envoy, 500, "no memory");
        return false;
    }
    filter->explains_conversation = grid_explain_starts_conversation(path);
    if (!end)
        return true;
    grid_ticket_body(filter->ticket, NULL, 0, false);
    grid_explain_answer(envoy, filter, true, false);
    return false;
}

/* As on pages: of clusters that Envoy says nothing of, nothing is known. */
static void set_health(struct grid_ticket *ticket)
{
    size_t n = 0;
    struct grid_candidate *candidates = grid_ticket_candidates(ticket, &n);
    for (size_t i = 0; i < n; i++) {
        char cluster[GRID_MAX_NAME_BYTES + 1];
        size_t len = candidates[i].cluster.len < sizeof(cluster) ? candidates[i].cluster.len : sizeof(cluster) - 1;
        memcpy(cluster, candidates[i].cluster.ptr, len);
        cluster[len] = '\0';
        struct grid_health_view view = grid_health_get(cluster);
        if (view.known)
            candidates[i].health = view.healthy > 0 ? GRID_HEALTHY : GRID_UNHEALTHY;
    }
}

static void put_keys(struct grid_buf *out, const struct grid_ticket *ticket)
{
    size_t n = 0;
    const uint64_t *keys = grid_ticket_keys(ticket, &n);
    grid_buf_puts(out, "[");
    for (size_t i = 0; i < n; i++)
        grid_buf_printf(out, "%s\"%016" PRIx64 "\"", i ? "," : "", keys[i]);
    grid_buf_puts(out, "]");
}

static void explain(struct grid_filter *filter, struct grid_buf *out)
{
    const struct grid_route_options peek = {.peek = true};
    struct grid_explained explained = {.conversation = filter->explains_conversation};
    uint64_t now_ms = grid_module_now_ms();
    struct grid_router *router = filter->module->router;
    set_health(filter->ticket);
    grid_router_settings(router, &explained.settings);
    grid_route(filter->ticket, &peek, now_ms, &explained.decision);
    explained.candidates = grid_explain_runs(router, filter->ticket, now_ms, &explained.n_candidates);
    grid_buf_printf(out, "{\"block_bytes\":%u,\"tokens_a_block\":%d,\"decision\":", GRID_BLOCK_BYTES,
                    GRID_TOKENS_A_BLOCK);
    grid_explain_json(&explained, out);
    grid_buf_puts(out, ",\"keys\":");
    put_keys(out, filter->ticket);
    grid_buf_puts(out, "}\n");
}

void grid_explain_answer(void *envoy, struct grid_filter *filter, bool shown, bool cut)
{
    struct grid_buf out = {.limit = MAX_ANSWER_BYTES};
    if (cut && grid_ticket_max_body(filter->ticket) > GRID_OPS_MAX_BODY_BYTES) {
        refuse(envoy, 413, "the body is over 8 MiB: ask the command grid-gateway explain");
        return;
    }
    if (shown)
        explain(filter, &out);
    if (!shown || out.failed)
        refuse(envoy, 500, "no memory");
    else
        grid_ops_send(envoy, 200, JSON_TYPE, NULL, (struct grid_str){out.ptr, out.len});
    grid_buf_done(&out);
}
