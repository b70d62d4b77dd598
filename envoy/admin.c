/*
 * admin.c - counters in Envoy's own store, and the pages of the admin listener
 *
 * Story     Every counter lives in the core (and in signals.c). Four times a second the main thread adds what they
 *           grew by to counters of the same names in Envoy's store, so that /stats/prometheus has them and they outlive
 *           every reload. /metrics and /grid are written afresh at each request.
 * Promise   Families are defined once, in config_new; a series is touched by 0 when first seen, so it shows at once.
 * Threads   define, sync, free: main thread. The pages: any.
 */
#include "module.h"

#include <stdlib.h>

enum { MAX_PAGE_BYTES = 16 << 20, MAX_FAMILIES = 64 };

struct mirrored {
    size_t family;
    char *label;
    uint64_t last;
};

/* What Envoy's store has of ours. */
static struct {
    char *families[MAX_FAMILIES];
    size_t ids[MAX_FAMILIES];
    size_t n_families;
    struct mirrored *series;
    size_t n, cap;
    size_t cursor; /* series come in the same order each time */
    bool defining;
} store;

static size_t find_family(const char *name)
{
    size_t i = 0;
    while (i < store.n_families && strcmp(store.families[i], name) != 0)
        i++;
    return i;
}

static void define(void *envoy, const struct grid_series *series)
{
    struct grid_str names[3];
    for (size_t i = 0; i < series->n_labels; i++)
        names[i] = grid_bridge_text(series->label_names[i]);
    char *name = strdup(series->family);
    if (!name || store.n_families == MAX_FAMILIES ||
        ENVOY(bootstrap_extension_config_define_counter)(envoy, grid_bridge_text(name), names, series->n_labels,
                                                         &store.ids[store.n_families]) != ENVOY_METRIC_OK) {
        grid_module_log(ENVOY_LOG_WARN, "counter %s is not in Envoy's statistics, only on /metrics", series->family);
        free(name);
        return;
    }
    store.families[store.n_families++] = name;
}

/* The mirror of a series; made when it is new. NULL: no memory. */
static struct mirrored *find_series(size_t family, const char *label)
{
    for (size_t k = 0; k < store.n; k++) {
        size_t i = (store.cursor + k) % store.n;
        if (store.series[i].family == family && strcmp(store.series[i].label, label) == 0) {
            store.cursor = i + 1;
            return &store.series[i];
        }
    }
    if (store.n == store.cap) {
        size_t cap = store.cap ? store.cap * 2 : 64;
        struct mirrored *grown = realloc(store.series, cap * sizeof(*grown));
        if (!grown)
            return NULL;
        store.series = grown;
        store.cap = cap;
    }
    char *copy = strdup(label);
    if (!copy)
        return NULL;
    store.series[store.n] = (struct mirrored){family, copy, UINT64_MAX};
    return &store.series[store.n++];
}

/* Adds what a series grew by. UINT64_MAX marks one that Envoy has not seen: it is touched even by 0. */
static void mirror(const struct grid_series *series, void *envoy)
{
    size_t family = find_family(series->family);
    if (family == store.n_families && store.defining)
        define(envoy, series);
    struct mirrored *seen = family < store.n_families ? find_series(family, series->label) : NULL;
    if (!seen || seen->last == series->value)
        return;
    struct grid_str values[3];
    for (size_t i = 0; i < series->n_labels; i++)
        values[i] = grid_bridge_text(series->label_values[i]);
    bool from_zero = seen->last == UINT64_MAX || seen->last > series->value;
    uint64_t by = series->value - (from_zero ? 0 : seen->last);
    if (ENVOY(bootstrap_extension_config_increment_counter)(envoy, store.ids[family], values, series->n_labels, by) ==
        ENVOY_METRIC_OK)
        seen->last = series->value;
}

void grid_admin_sync(struct grid_module *module)
{
    grid_router_counters(module->router, mirror, module->envoy);
    grid_signals_counters(mirror, module->envoy);
}

/* A family of polls exists even when nothing is polled yet. */
void grid_admin_define(struct grid_module *module)
{
    static const struct grid_series polls = {
        .family = "grid_signal_polls_total", .label_names = {"cluster", "result"}, .n_labels = 2};
    store.defining = true;
    define(module->envoy, &polls);
    grid_admin_sync(module);
    store.defining = false;
}

void grid_admin_free(void)
{
    for (size_t i = 0; i < store.n_families; i++)
        free(store.families[i]);
    for (size_t i = 0; i < store.n; i++)
        free(store.series[i].label);
    free(store.series);
    memset(&store, 0, sizeof(store));
}

/* ---- pages --------------------------------------------------------------------------------------------------- */

static void put_poll_counter(const struct grid_series *series, void *ctx)
{
    grid_buf_printf(ctx, "%s{%s} %llu\n", series->family, series->label, (unsigned long long)series->value);
}

static void put_gauge(struct grid_buf *out, const char *family, const char *help, const struct grid_site_view *views,
                      size_t n, bool healthy)
{
    grid_buf_printf(out, "# HELP %s %s\n# TYPE %s gauge\n", family, help, family);
    for (size_t i = 0; i < n && i < GRID_MAX_CANDIDATES; i++) {
        struct grid_health_view health = grid_health_get(views[i].cluster);
        if (!health.known)
            continue;
        grid_buf_printf(out, "%s{cluster=\"", family);
        grid_signals_put_escaped(out, views[i].cluster);
        grid_buf_printf(out, "\"} %zu\n", healthy ? health.healthy : health.hosts);
    }
}

/* Hosts of the clusters that candidates name, as Envoy sees them. */
static void put_health(struct grid_module *module, struct grid_buf *out, uint64_t now_ms)
{
    struct grid_site_view *views = calloc(GRID_MAX_CANDIDATES, sizeof(*views));
    size_t n = views ? grid_router_sites(module->router, now_ms, views, GRID_MAX_CANDIDATES) : 0;
    put_gauge(out, "grid_cluster_hosts", "Hosts of a cluster.", views, n, false);
    put_gauge(out, "grid_cluster_healthy_hosts", "Hosts of a cluster that Envoy holds for healthy.", views, n, true);
    free(views);
}

void grid_admin_metrics(struct grid_module *module, struct grid_buf *out)
{
    uint64_t now_ms = grid_module_now_ms();
    grid_router_metrics(module->router, now_ms, out);
    grid_buf_puts(out, "# HELP grid_signal_polls_total Polls of a cluster's queue depth.\n"
                       "# TYPE grid_signal_polls_total counter\n");
    grid_signals_counters(put_poll_counter, out);
    grid_signals_metrics(out, now_ms);
    put_health(module, out, now_ms);
}

uint32_t ON(bootstrap_extension_admin_request)(void *envoy, void *config, struct grid_str method, struct grid_str path,
                                               struct grid_str body)
{
    struct grid_buf page = {.limit = MAX_PAGE_BYTES};
    (void)method, (void)body;
    if (grid_bridge_starts(path, GRID_TEXT("/metrics")))
        grid_admin_metrics(config, &page);
    else
        grid_admin_snapshot(config, &page);
    struct grid_str text = page.failed ? GRID_TEXT("no memory for the page\n") : (struct grid_str){page.ptr, page.len};
    uint32_t status = page.failed ? 500 : 200;
    ENVOY(bootstrap_extension_admin_set_response)(envoy, text);
    grid_buf_done(&page);
    return status;
}
