/*
 * ops.c - the pages of the ops listener, answered by the filter `grid_ops`
 *
 * Story     People and scrapes may read here what the admin listener is too powerful to be opened for: /metrics,
 *           /ready, /livez, /grid, a page for people at /, and what would become of a request that they paste.
 * Promise   Nothing here changes anything, and nothing on a page comes from a request's text. A page of some other
 *           origin cannot read them in a visitor's browser: not by asking across origins, and not under a name of its
 *           own that leads here (DNS rebinding). Clients that are no browser may use any name.
 * Threads   Any worker.
 * Not here  The pasted request (explain.c), the page itself (envoy/page/).
 */
#include "ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_PAGE_BYTES = 16 << 20 };

#define TEXT_TYPE "text/plain; charset=utf-8"

struct page {
    const char *type, *allow;
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
                               "/grid     sites, settings, the last decisions and the last reload, JSON\n"
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

static bool reads(struct grid_str method)
{
    return grid_bridge_same(method, GRID_TEXT("GET")) || grid_bridge_same(method, GRID_TEXT("HEAD"));
}

static void write_page(struct grid_module *module, struct grid_str method, struct grid_str path, struct page *page)
{
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        if (!grid_bridge_same(path, grid_bridge_text(pages[i].path)))
            continue;
        if (reads(method)) {
            pages[i].write(module, page);
            return;
        }
        page->status = 405;
        page->allow = "GET, HEAD";
        grid_buf_puts(&page->body, "only GET and HEAD\n");
        return;
    }
    page->status = 404;
    grid_buf_puts(&page->body, "no such page; / lists them\n");
}

/* What a browser may do with an answer: show it, alone, with nothing in it that comes from elsewhere. */
#define PAGE_POLICY                                                                                                    \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "   \
    "form-action 'none'; frame-ancestors 'none'"

void grid_ops_send(void *envoy, int status, const char *type, const char *allow, struct grid_str body)
{
    struct grid_header headers[] = {{GRID_TEXT("content-type"), grid_bridge_text(type)},
                                    {GRID_TEXT("cache-control"), GRID_TEXT("no-store")},
                                    {GRID_TEXT("vary"), GRID_TEXT("accept")},
                                    {GRID_TEXT("x-content-type-options"), GRID_TEXT("nosniff")},
                                    {GRID_TEXT("content-security-policy"), GRID_TEXT(PAGE_POLICY)},
                                    {GRID_TEXT("x-frame-options"), GRID_TEXT("DENY")},
                                    {GRID_TEXT("referrer-policy"), GRID_TEXT("no-referrer")},
                                    {GRID_TEXT("cross-origin-opener-policy"), GRID_TEXT("same-origin")},
                                    {GRID_TEXT("cross-origin-resource-policy"), GRID_TEXT("same-origin")},
                                    {GRID_TEXT("allow"), grid_bridge_text(allow)}};
    size_t n = sizeof(headers) / sizeof(headers[0]) - (allow ? 0 : 1);
    ENVOY(http_send_response)(envoy, (uint32_t)status, headers, n, body, GRID_TEXT("grid_ops"));
}

static void send_page(struct grid_module *module, void *envoy, struct grid_str method, struct grid_str path)
{
    struct page page = {.type = TEXT_TYPE, .status = 200, .body = {.limit = MAX_PAGE_BYTES}};
    write_page(module, method, path, &page);
    if (page.body.failed)
        grid_ops_send(envoy, 500, TEXT_TYPE, NULL, GRID_TEXT("no memory for the page\n"));
    else
        grid_ops_send(envoy, page.status, page.type, page.allow, (struct grid_str){page.body.ptr, page.body.len});
    grid_buf_done(&page.body);
}

/* A part of the page for people; for "/" only when it is a browser that asks. */
static const struct grid_asset *find_asset(void *envoy, struct grid_str path)
{
    bool html = grid_bridge_mentions(header(envoy, "accept"), GRID_TEXT("text/html"));
    for (size_t i = 0; i < grid_n_assets; i++) {
        bool front_page = strcmp(grid_assets[i].path, "/") == 0;
        if (grid_bridge_same(path, grid_bridge_text(grid_assets[i].path)) && (html || !front_page))
            return &grid_assets[i];
    }
    return NULL;
}

/* The path that follows GRID_EXPLAIN_PATH, with its query; {NULL, 0} for another page. */
static struct grid_str explained_path(struct grid_str path)
{
    struct grid_str head = GRID_TEXT(GRID_EXPLAIN_PATH "/");
    if (!grid_bridge_starts(path, head))
        return (struct grid_str){NULL, 0};
    return (struct grid_str){path.ptr + head.len - 1, path.len - head.len + 1};
}

bool grid_ops_begin(void *envoy, struct grid_filter *filter, bool end)
{
    struct grid_str method = header(envoy, ":method"), path = header(envoy, ":path");
    struct grid_str explained = explained_path(path);
    path = without_query(path);
    const struct grid_asset *asset = reads(method) ? find_asset(envoy, path) : NULL;
    if (is_foreign(envoy))
        grid_ops_send(envoy, 403, TEXT_TYPE, NULL,
                      GRID_TEXT("a browser may read this under an address, localhost or a local name only\n"));
    else if (explained.len > 0 && !grid_bridge_same(method, GRID_TEXT("POST")))
        grid_ops_send(envoy, 405, TEXT_TYPE, "POST", GRID_TEXT("only POST, with the body of a request\n"));
    else if (explained.len > 0)
        return grid_explain_begin(envoy, filter, explained, end);
    else if (asset)
        grid_ops_send(envoy, 200, asset->type, NULL, asset->text);
    else
        send_page(filter->module, envoy, method, path);
    return false;
}
