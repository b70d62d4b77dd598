/*
 * report.c - looking at a router: its sites, counters and the text of /metrics
 *
 * Everything here reads a snapshot or counters and changes nothing. Keys and prompts are never part of what is shown,
 * only counts of them.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "router.h"

static void copy_text(char *out, size_t size, struct grid_str text)
{
    (void)snprintf(out, size, "%.*s", GRID_FMT(text));
}

static void view_cluster(struct grid_router *router, struct grid_site_view *view, uint64_t now_ms)
{
    (void)pthread_mutex_lock(&router->change);
    for (const struct grid_cluster *c = router->clusters; c; c = c->next) {
        uint64_t stamp = 0;
        if (!grid_str_eq((struct grid_str){c->name, c->name_len}, grid_str_of(view->cluster)))
            continue;
        view->has_sample = grid_window_newest(&c->window, &stamp);
        view->sample_age_ms = view->has_sample && now_ms > stamp ? now_ms - stamp : 0;
    }
    (void)pthread_mutex_unlock(&router->change);
}

size_t grid_router_sites(struct grid_router *router, uint64_t now_ms, struct grid_site_view *out, size_t cap)
{
    struct grid_sites *sites = grid_router_take_sites(router);
    const struct grid_config *config = sites->config;
    size_t n = config->n_clusters;
    for (size_t i = 0; i < n && i < cap; i++) {
        struct grid_site_view *view = &out[i];
        memset(view, 0, sizeof *view);
        view->depth = INFINITY;
        copy_text(view->cluster, sizeof view->cluster, config->clusters[i].name);
        for (size_t j = 0; j < sites->n_sites; j++) {
            const struct grid_site *site = &sites->sites[j];
            if (site->candidate->cluster_index != i)
                continue;
            copy_text(view->site, sizeof view->site, site->candidate->site);
            view->depth = site->depth;
            view->admitted = view->admitted || site->candidate->admitted;
        }
        struct grid_table_view table = grid_index_view(config->clusters[i].table);
        view->entries = table.entries;
        view->capacity = table.capacity;
        view->index_bytes = table.bytes;
        view_cluster(router, view, now_ms);
    }
    grid_sites_unref(sites);
    return n;
}

static void put_aliases(struct grid_buf *out, const struct grid_serving_cluster *cluster)
{
    grid_buf_json(out, cluster->name);
    grid_buf_puts(out, ":{");
    for (size_t i = 0; i < cluster->n_aliases; i++) {
        grid_buf_puts(out, i ? "," : "");
        grid_buf_json(out, cluster->aliases[i].model);
        grid_buf_puts(out, ":");
        grid_buf_put(out, cluster->aliases[i].json.ptr, cluster->aliases[i].json.len);
    }
    grid_buf_puts(out, "}");
}

void grid_router_aliases(struct grid_router *router, struct grid_buf *out)
{
    struct grid_sites *sites = grid_router_take_sites(router);
    const struct grid_serving *serving = sites->config->serving ? sites->config->serving->serving : NULL;
    const char *comma = "";
    grid_buf_puts(out, "{");
    for (size_t i = 0; serving && i < serving->n_clusters; i++) {
        if (serving->clusters[i].n_aliases == 0)
            continue;
        grid_buf_puts(out, comma);
        put_aliases(out, &serving->clusters[i]);
        comma = ",";
    }
    grid_buf_puts(out, "}");
    grid_sites_unref(sites);
}

uint32_t grid_router_run(struct grid_router *router, const struct grid_ticket *ticket, struct grid_str cluster,
                         uint64_t now_ms)
{
    struct grid_sites *sites = grid_router_take_sites(router);
    uint32_t run = 0;
    for (size_t i = 0; i < sites->config->n_clusters; i++)
        if (grid_str_eq(sites->config->clusters[i].name, cluster))
            run = grid_index_match(sites->config->clusters[i].table, ticket->keys, ticket->keyed.n, now_ms);
    grid_sites_unref(sites);
    return run;
}

void grid_router_counters(struct grid_router *router, grid_series_fn *fn, void *ctx)
{
    grid_stats_each(&router->stats, fn, ctx);
}

struct text {
    struct grid_buf *out;
    char family[64]; /* the one whose head was written last */
};

static void put_head(struct text *text, const char *family, const char *help, const char *type)
{
    if (strcmp(text->family, family) == 0)
        return;
    (void)snprintf(text->family, sizeof text->family, "%s", family);
    grid_buf_printf(text->out, "# HELP %s %s\n# TYPE %s %s\n", family, help, family, type);
}

static void put_counter(const struct grid_series *series, void *ctx)
{
    struct text *text = ctx;
    put_head(text, series->family, series->help, "counter");
    if (series->label[0])
        grid_buf_printf(text->out, "%s{%s} %llu\n", series->family, series->label, (unsigned long long)series->value);
    else
        grid_buf_printf(text->out, "%s %llu\n", series->family, (unsigned long long)series->value);
}

static void put_number(struct grid_buf *out, double value)
{
    if (isnan(value))
        grid_buf_puts(out, "NaN\n");
    else if (isinf(value))
        grid_buf_puts(out, value > 0 ? "+Inf\n" : "-Inf\n");
    else
        grid_buf_printf(out, "%.17g\n", value);
}

static bool seen_before(const struct grid_sites *sites, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (sites->sites[j].candidate->pair == sites->sites[i].candidate->pair)
            return true;
    return false;
}

/* `measured`: only sites whose queue is known; otherwise an unknown one is shown as infinite. */
static void put_depths(struct text *text, const struct grid_sites *sites, const char *family, const char *help,
                       bool measured)
{
    for (size_t i = 0; i < sites->n_sites; i++) {
        const struct grid_stats_pair *pair = sites->sites[i].candidate->pair;
        char cluster[2 * GRID_MAX_NAME_BYTES + 4];
        if (seen_before(sites, i) || (measured && !isfinite(sites->sites[i].depth)))
            continue;
        put_head(text, family, help, "gauge");
        grid_stats_escape(grid_str_of(pair->cluster), cluster, sizeof cluster);
        grid_buf_printf(text->out, "%s{site=\"%s\",cluster=\"%s\"} ", family, pair->site, cluster);
        put_number(text->out, sites->sites[i].depth);
    }
}

static void put_scores(struct text *text, const struct grid_sites *sites)
{
    put_depths(text, sites, "grid_route_site_score", "Windowed worst queue depth that the last order of sites used.",
               false);
    put_depths(text, sites, "grid_route_queue_depth", "Windowed worst queue depth, of sites that were measured.", true);
}

static void put_open(struct text *text, const struct grid_sites *sites)
{
    static const char family[] = "grid_route_open_requests";
    for (size_t i = 0; i < sites->n_sites; i++) {
        const struct grid_stats_pair *pair = sites->sites[i].candidate->pair;
        char cluster[2 * GRID_MAX_NAME_BYTES + 4];
        if (seen_before(sites, i))
            continue;
        put_head(text, family, "Requests that were sent to a site and have not ended.", "gauge");
        grid_stats_escape(grid_str_of(pair->cluster), cluster, sizeof cluster);
        grid_buf_printf(text->out, "%s{site=\"%s\",cluster=\"%s\"} %llu\n", family, pair->site, cluster,
                        (unsigned long long)atomic_load_explicit(&pair->open.value, memory_order_relaxed));
    }
}

static void put_tables(struct text *text, const struct grid_config *config)
{
    static const struct {
        const char *family, *help;
    } gauges[] = {
        {"grid_index_entries", "Prompt blocks held for a cluster, marks included."},
        {"grid_index_capacity", "Prompt blocks that a cluster's table can hold."},
        {"grid_index_bytes", "Memory of a cluster's table."},
    };
    for (size_t g = 0; g < sizeof gauges / sizeof *gauges; g++) {
        for (size_t i = 0; i < config->n_clusters; i++) {
            char cluster[2 * GRID_MAX_NAME_BYTES + 4];
            struct grid_table_view view = grid_index_view(config->clusters[i].table);
            size_t value = g == 0 ? view.entries : g == 1 ? view.capacity : view.bytes;
            put_head(text, gauges[g].family, gauges[g].help, "gauge");
            grid_stats_escape(config->clusters[i].name, cluster, sizeof cluster);
            grid_buf_printf(text->out, "%s{cluster=\"%s\"} %zu\n", gauges[g].family, cluster, value);
        }
    }
}

static void put_histogram(const struct grid_histogram_form *form, const char *label,
                          const struct grid_histogram *histogram, void *ctx)
{
    struct text *text = ctx;
    struct grid_histogram_view view;
    const char *comma = label[0] ? "," : "";
    grid_histogram_read(histogram, form, &view);
    put_head(text, form->family, form->help, "histogram");
    for (size_t i = 0; i < form->n; i++)
        grid_buf_printf(text->out, "%s_bucket{%s%sle=\"%.9g\"} %llu\n", form->family, label, comma,
                        (double)form->bounds[i] / form->scale, (unsigned long long)view.cumulative[i]);
    unsigned long long all = view.cumulative[form->n];
    grid_buf_printf(text->out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", form->family, label, comma, all);
    const char *open = label[0] ? "{" : "", *close = label[0] ? "}" : "";
    grid_buf_printf(text->out, "%s_sum%s%s%s %.9g\n", form->family, open, label, close, view.sum);
    grid_buf_printf(text->out, "%s_count%s%s%s %llu\n", form->family, open, label, close, all);
}

void grid_router_metrics(struct grid_router *router, uint64_t now_ms, struct grid_buf *out)
{
    struct text text = {.out = out, .family = ""};
    (void)now_ms;
    grid_router_counters(router, put_counter, &text);
    grid_stats_each_histogram(&router->stats, put_histogram, &text);
    struct grid_sites *sites = grid_router_take_sites(router);
    put_scores(&text, sites);
    put_open(&text, sites);
    put_tables(&text, sites->config);
    grid_sites_unref(sites);
}
