/*
 * ops.c - the pages of the ops listener, answered by the filter `grid_ops`
 *
 * Story     People and scrapes may read here what the admin listener is too powerful to be opened for: /metrics,
 *           /ready, /livez, /grid and a page in plain text.
 * Promise   Read only. Nothing on a page comes from a request's text. A page of some other origin cannot read them in
 *           a visitor's browser: not by asking across origins, and not under a name of its own that leads here (DNS
 *           rebinding). Clients that are no browser may use any name.
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

/* ---- who may read ---------------------------------------------------------------------------------------------- */

static struct grid_str header(void *stream, const char *name)
{
    return grid_bridge_header(stream, ENVOY_REQUEST_HEADERS, grid_bridge_text(name));
}

static bool ends(struct grid_str text, const char *tail)
{
    size_t len = strlen(tail);
    return text.len >= len && strncasecmp(text.ptr + text.len - len, tail, len) == 0;
}

static struct grid_str without_port(struct grid_str authority)
{
    size_t len = authority.len;
    while (len > 0 && authority.ptr[len - 1] >= '0' && authority.ptr[len - 1] <= '9')
        len--;
    return len > 0 && authority.ptr[len - 1] == ':' ? (struct grid_str){authority.ptr, len - 1} : authority;
}

/* An address, or a name that nobody outside can own. */
static bool is_private(struct grid_str authority)
{
    static const char *const own[] = {".localhost", ".local", ".internal", ".svc"};
    struct grid_str host = without_port(authority);
    bool digits = true, dot = false;
    for (size_t i = 0; i < host.len; i++) {
        dot = dot || host.ptr[i] == '.';
        digits = digits && (host.ptr[i] == '.' || (host.ptr[i] >= '0' && host.ptr[i] <= '9'));
    }
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (ends(host, own[i]))
            return true;
    }
    return digits || !dot || (host.len > 0 && host.ptr[0] == '[');
}

/* Browsers say where a request comes from; all that are about say at least "Mozilla/". */
static bool is_browser(void *stream)
{
    return header(stream, "sec-fetch-site").len > 0 ||
           grid_bridge_starts(header(stream, "user-agent"), GRID_TEXT("Mozilla/"));
}

static bool is_foreign(void *stream)
{
    struct grid_str host = header(stream, ":authority"), origin = header(stream, "origin");
    struct grid_str site = header(stream, "sec-fetch-site");
    if (is_browser(stream) && !is_private(host))
        return true;
    if (grid_bridge_same(site, GRID_TEXT("cross-site")))
        return true;
    if (origin.len == 0)
        return false;
    if (host.len == 0)
        return true;
    bool same = origin.len > host.len && origin.ptr[origin.len - host.len - 1] == '/';
    return !same || memcmp(origin.ptr + origin.len - host.len, host.ptr, host.len) != 0;
}

/* ---- answering --------------------------------------------------------------------------------------------------- */

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
    struct grid_str method = header(stream, ":method"), path = header(stream, ":path");
    if (is_foreign(stream)) {
        page.status = 403;
        grid_buf_puts(&page.body, "a browser may read this under an address, localhost or a local name only\n");
    } else {
        write_page(module, method, without_query(path), &page);
    }
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
