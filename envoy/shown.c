/*
 * shown.c - what polling found, for people and scrapes
 *
 * Promise   No lock is held while a page is written: it is written from a copy.
 * Threads   Any.
 * Not here  The rest of the pages (admin.c, ops.c).
 */
#include "signals.h"

#include <math.h>
#include <stdlib.h>

static const char *const result_names[] = {
#define RESULT_NAME(id, name) name,
    GRID_POLL_RESULTS(RESULT_NAME)
#undef RESULT_NAME
};

/* A copy of what is shown of every cluster, so that no lock is held while a page is written. The caller frees it.
 * `all`: with the clusters that left. */
static struct grid_polled *copy_shown(bool all, size_t *out_n)
{
    pthread_mutex_lock(&grid_signals.mutex);
    size_t n_left = all ? grid_signals.n_left : 0;
    struct grid_polled *copy = calloc(grid_signals.n_clusters + n_left + 1, sizeof(*copy));
    *out_n = copy ? grid_signals.n_clusters + n_left : 0;
    if (copy && grid_signals.n_clusters > 0)
        memcpy(copy, grid_signals.clusters, grid_signals.n_clusters * sizeof(*copy));
    if (copy && n_left > 0)
        memcpy(copy + grid_signals.n_clusters, grid_signals.left, n_left * sizeof(*copy));
    pthread_mutex_unlock(&grid_signals.mutex);
    return copy;
}

/* A label's value: Prometheus escapes backslash, quote and line end. */
void grid_signals_put_escaped(struct grid_buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n')
            grid_buf_puts(out, "\\n");
        else if (*text == '"' || *text == '\\')
            grid_buf_printf(out, "\\%c", *text);
        else
            grid_buf_put(out, text, 1);
    }
}

static void put_cluster_label(struct grid_buf *out, const char *cluster)
{
    grid_buf_puts(out, "cluster=\"");
    grid_signals_put_escaped(out, cluster);
    grid_buf_puts(out, "\"");
}

void grid_signals_counters(grid_series_fn *fn, void *ctx)
{
    size_t n = 0;
    struct grid_polled *copy = copy_shown(true, &n);
    for (size_t i = 0; i < n * GRID_N_POLL_RESULTS; i++) {
        const struct grid_polled *polled = &copy[i / GRID_N_POLL_RESULTS];
        const char *result = result_names[i % GRID_N_POLL_RESULTS];
        struct grid_buf label = {.limit = 4 * sizeof(polled->cluster)};
        put_cluster_label(&label, polled->cluster);
        grid_buf_printf(&label, ",result=\"%s\"", result);
        grid_buf_put(&label, "", 1);
        struct grid_series series = {.family = "grid_signal_polls_total",
                                     .help = "Polls of a cluster's queue depth.",
                                     .label = label.ptr,
                                     .label_names = {"cluster", "result"},
                                     .label_values = {polled->cluster, result},
                                     .n_labels = 2,
                                     .value = polled->counts[i % GRID_N_POLL_RESULTS]};
        if (!label.failed)
            fn(&series, ctx);
        grid_buf_done(&label);
    }
    free(copy);
}

void grid_signals_metrics(struct grid_buf *out, uint64_t now_ms)
{
    size_t n = 0;
    struct grid_polled *copy = copy_shown(false, &n);
    grid_buf_puts(out, "# HELP grid_signal_sample_age_seconds Age of the newest queue depth of a cluster.\n"
                       "# TYPE grid_signal_sample_age_seconds gauge\n");
    for (size_t i = 0; i < n; i++) {
        if (!copy[i].has_sample)
            continue;
        double age = now_ms > copy[i].sample_ms ? (double)(now_ms - copy[i].sample_ms) / 1000 : 0;
        grid_buf_puts(out, "grid_signal_sample_age_seconds{");
        put_cluster_label(out, copy[i].cluster);
        grid_buf_printf(out, "} %.3f\n", age);
    }
    free(copy);
}

void grid_signals_json(struct grid_buf *out, uint64_t now_ms)
{
    size_t n = 0;
    struct grid_polled *copy = copy_shown(false, &n);
    grid_buf_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        grid_buf_puts(out, i ? ",{\"cluster\":" : "{\"cluster\":");
        grid_buf_json(out, grid_bridge_text(copy[i].cluster));
        for (size_t k = 0; k < GRID_N_POLL_RESULTS; k++)
            grid_buf_printf(out, ",\"%s\":%llu", result_names[k], (unsigned long long)copy[i].counts[k]);
        if (copy[i].has_sample)
            grid_buf_printf(out, ",\"depth\":%.10g,\"sample_age_ms\":%llu", copy[i].depth,
                            (unsigned long long)(now_ms > copy[i].sample_ms ? now_ms - copy[i].sample_ms : 0));
        grid_buf_printf(out, ",\"resets\":%llu,\"targets\":%zu,\"fresh\":%zu", (unsigned long long)copy[i].resets,
                        copy[i].n_targets, copy[i].fresh);
        if (copy[i].why) {
            grid_buf_puts(out, ",\"why\":");
            grid_buf_json(out, grid_bridge_text(copy[i].why));
        }
        grid_buf_puts(out, "}");
    }
    grid_buf_puts(out, "]");
    free(copy);
}
