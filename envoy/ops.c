/*
 * ops.c - the pages of the ops listener, answered by the filter `grid_ops`
 *
 * Story     People and scrapes may read here what the admin listener is too powerful to be opened for: /metrics,
 *           /ready, /livez, /grid and a page in plain text.
 * Promise   Read only. Nothing on a page comes from a request's text.
 * Threads   Any worker.
 */
#include "filter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_PAGE_BYTES = 16 << 20 };

struct page {
    const char *type;
    int status;
    struct grid_buf body;
};

static void metrics(struct grid_module *module, struct page *page)
{
    page->type = "text/plain; version=0.0.4; charset=utf-8";
    grid_admin_metrics(module, &page->body);
}

static void snapshot(struct grid_module *module, struct page *page)
{
    page->type = "application/json";
    grid_admin_snapshot(module, &page->body);
}

static void livez(struct grid_module *module, struct page *page)
{
    (void)module;
    grid_buf_puts(&page->body, "alive\n");
}

static void ready(struct grid_module *module, struct page *page)
{
    bool draining = atomic_load(&module->draining);
    bool good = atomic_load(&module->ready) && !draining;
    page->status = good ? 200 : 503;
    grid_buf_puts(&page->body, good ? "ready\n" : draining ? "draining\n" : "starting\n");
}

static void list_sites(struct grid_module *module, struct grid_buf *out)
{
    uint64_t now_ms = grid_module_now_ms();
    struct grid_site_view *views = calloc(GRID_MAX_CANDIDATES, sizeof(*views));
    size_t n = views ? grid_router_sites(module->router, now_ms, views, GRID_MAX_CANDIDATES) : 0;
    grid_buf_puts(out, "site                 cluster              admitted   queue   known blocks\n");
    for (size_t i = 0; i < n && i < GRID_MAX_CANDIDATES; i++) {
        char depth[32] = "-";
        if (isfinite(views[i].depth))
            snprintf(depth, sizeof(depth), "%.1f", views[i].depth);
        grid_buf_printf(out, "%-20s %-20s %-8s %7s %14llu\n", views[i].site, views[i].cluster,
                        views[i].admitted ? "yes" : "no", depth, (unsigned long long)views[i].entries);
    }
    free(views);
}

static void front(struct grid_module *module, struct page *page)
{
    grid_buf_puts(&page->body, "Grid Gateway\n\n");
    list_sites(module, &page->body);
    grid_buf_puts(&page->body, "\n/metrics  counters and gauges, Prometheus\n"
                               "/grid     sites, settings and the last reload, JSON\n"
                               "/ready    200 when it takes requests\n"
                               "/livez    200 while it runs\n");
}

static const struct {
    const char *path;
    void (*write)(struct grid_module *module, struct page *page);
} pages[] = {{"/", front}, {"/metrics", metrics}, {"/grid", snapshot}, {"/ready", ready}, {"/livez", livez}};

static struct grid_str without_query(struct grid_str path)
{
    const char *mark = path.len > 0 ? memchr(path.ptr, '?', path.len) : NULL;
    return (struct grid_str){path.ptr, mark ? (size_t)(mark - path.ptr) : path.len};
}

static void write_page(struct grid_module *module, struct grid_str method, struct grid_str path, struct page *page)
{
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        if (!grid_bridge_same(path, grid_bridge_text(pages[i].path)))
            continue;
        if (grid_bridge_same(method, GRID_TEXT("GET")) || grid_bridge_same(method, GRID_TEXT("HEAD"))) {
            pages[i].write(module, page);
            return;
        }
        page->status = 405;
        grid_buf_puts(&page->body, "only GET and HEAD\n");
        return;
    }
    page->status = 404;
    grid_buf_puts(&page->body, "no such page; / lists them\n");
}

void grid_ops_answer(struct grid_module *module, void *stream)
{
    struct page page = {.type = "text/plain; charset=utf-8", .status = 200, .body = {.limit = MAX_PAGE_BYTES}};
    struct grid_str method = grid_bridge_header(stream, ENVOY_REQUEST_HEADERS, GRID_TEXT(":method"));
    struct grid_str path = grid_bridge_header(stream, ENVOY_REQUEST_HEADERS, GRID_TEXT(":path"));
    write_page(module, method, without_query(path), &page);
    struct grid_header headers[] = {{GRID_TEXT("content-type"), grid_bridge_text(page.type)},
                                    {GRID_TEXT("cache-control"), GRID_TEXT("no-store")},
                                    {GRID_TEXT("x-content-type-options"), GRID_TEXT("nosniff")},
                                    {GRID_TEXT("allow"), GRID_TEXT("GET, HEAD")}};
    size_t n = sizeof(headers) / sizeof(headers[0]) - (page.status == 405 ? 0 : 1);
    struct grid_str body = {page.body.ptr, page.body.len};
    if (page.body.failed) {
        page.status = 500;
        body = GRID_TEXT("no memory for the page\n");
    }
    ENVOY(http_send_response)(stream, (uint32_t)page.status, headers, n, body, GRID_TEXT("grid_ops"));
    grid_buf_done(&page.body);
}
