/*
 * snapshot.c - the present state as JSON, the page /grid
 *
 * Story     Sites with their admission, health, queue and what is believed of their caches; outcomes so far, polls,
 *           settings, what became of changes of the configuration, the last decisions and the last minutes.
 * Promise   Counts and settings only: no key, no prompt, no secret.
 * Threads   Any.
 */
#include "history.h"
#include "recent.h"

#include <math.h>
#include <stdlib.h>

static const char *health_word(const struct grid_health_view *health)
{
    return !health->known ? "unknown" : health->healthy > 0 ? "healthy" : "unhealthy";
}

static void put_site(struct grid_buf *out, const struct grid_site_view *view)
{
    grid_buf_puts(out, "{\"site\":");
    grid_buf_json(out, grid_bridge_text(view->site));
    grid_buf_puts(out, ",\"cluster\":");
    grid_buf_json(out, grid_bridge_text(view->cluster));
    struct grid_health_view health = grid_health_get(view->cluster);
    grid_buf_printf(out, ",\"admitted\":%s,\"health\":\"%s\",\"hosts\":%zu,\"healthy_hosts\":%zu,\"depth\":",
                    view->admitted ? "true" : "false", health_word(&health), health.hosts, health.healthy);
    if (isfinite(view->depth))
        grid_buf_printf(out, "%.10g", view->depth);
    else
        grid_buf_puts(out, "null");
    if (view->has_sample)
        grid_buf_printf(out, ",\"sample_age_ms\":%llu", (unsigned long long)view->sample_age_ms);
    grid_buf_printf(out, ",\"entries\":%llu,\"capacity\":%llu,\"index_bytes\":%llu,\"bytes_per_entry\":%.4g}",
                    (unsigned long long)view->entries, (unsigned long long)view->capacity,
                    (unsigned long long)view->index_bytes,
                    view->capacity ? (double)view->index_bytes / (double)view->capacity : 0);
}

static void put_sites(struct grid_module *module, struct grid_buf *out, uint64_t now_ms)
{
    struct grid_site_view *views = calloc(GRID_MAX_CANDIDATES, sizeof(*views));
    size_t n = views ? grid_router_sites(module->router, now_ms, views, GRID_MAX_CANDIDATES) : 0;
    out->failed = out->failed || !views;
    grid_buf_puts(out, "[");
    for (size_t i = 0; i < n && i < GRID_MAX_CANDIDATES; i++) {
        if (i)
            grid_buf_puts(out, ",");
        put_site(out, &views[i]);
    }
    grid_buf_puts(out, "]");
    free(views);
}

static void put_settings(struct grid_module *module, struct grid_buf *out)
{
    struct grid_settings settings;
    grid_router_settings(module->router, &settings);
    grid_buf_puts(out, "{\"model_header\":");
    grid_buf_json(out, grid_bridge_text(settings.model_header));
    grid_buf_printf(out,
                    ",\"prefix_affinity\":{\"enabled\":%s,\"spread_ties\":%s,\"threshold\":%.10g,\"exploration\":%.10g,"
                    "\"prefill_tokens_per_second\":%.10g,\"queued_request_seconds\":%.10g,\"capacity\":%llu,"
                    "\"ttl_ms\":%llu},\"max_body_bytes\":%llu,\"failover_max_body_bytes\":%llu}",
                    settings.enabled ? "true" : "false", settings.spread_ties ? "true" : "false", settings.threshold,
                    settings.exploration, settings.prefill_tokens_per_second, settings.queued_request_seconds,
                    (unsigned long long)settings.capacity, (unsigned long long)settings.ttl_ms,
                    (unsigned long long)module->max_body_bytes, (unsigned long long)module->failover_max_body_bytes);
}

static unsigned long long age_of(uint64_t at_ms, uint64_t now_ms)
{
    return now_ms > at_ms ? now_ms - at_ms : 0;
}

static void put_reload(struct grid_buf *out, uint64_t now_ms)
{
    struct grid_module_reload last;
    grid_module_last_reload(&last);
    grid_buf_printf(out,
                    "{\"result\":\"%s\",\"age_ms\":%llu,\"count\":%llu,\"error\":", last.result ? last.result : "none",
                    age_of(last.at_ms, now_ms), (unsigned long long)last.count);
    grid_buf_json(out, grid_bridge_text(last.error));
    grid_buf_printf(out,
                    ",\"revision\":%llu,\"applied_age_ms\":%llu,\"last_refusal\":", (unsigned long long)last.revision,
                    age_of(last.applied_ms, now_ms));
    if (last.refused_ms > 0) {
        grid_buf_printf(out, "{\"age_ms\":%llu,\"error\":", age_of(last.refused_ms, now_ms));
        grid_buf_json(out, grid_bridge_text(last.refused));
        grid_buf_puts(out, "}");
    } else {
        grid_buf_puts(out, "null");
    }
    grid_buf_puts(out, ",\"refusals\":[");
    for (size_t i = 0; i < GRID_MODULE_REFUSALS && last.refusals[i].at_ms > 0; i++) {
        grid_buf_printf(out, "%s{\"age_ms\":%llu,\"error\":", i ? "," : "", age_of(last.refusals[i].at_ms, now_ms));
        grid_buf_json(out, grid_bridge_text(last.refusals[i].error));
        grid_buf_puts(out, "}");
    }
    grid_buf_puts(out, "]}");
}

/* Counters of a process' life, by what stands between the braces of their series. */
struct tally {
    struct grid_buf *out;
    const char *family;
    size_t n;
    uint64_t sum;
};

static void put_series(const struct grid_series *series, void *ctx)
{
    struct tally *tally = ctx;
    if (strcmp(series->family, tally->family) != 0)
        return;
    tally->sum += series->value;
    if (!series->only_value)
        return;
    grid_buf_puts(tally->out, tally->n++ ? "," : "");
    grid_buf_json(tally->out, grid_bridge_text(series->only_value));
    grid_buf_printf(tally->out, ":%llu", (unsigned long long)series->value);
}

static uint64_t put_family(struct grid_module *module, struct grid_buf *out, const char *family)
{
    struct tally tally = {.out = out, .family = family};
    grid_router_counters(module->router, put_series, &tally);
    return tally.sum;
}

static void put_counts(struct grid_module *module, struct grid_buf *out)
{
    grid_buf_puts(out, "{");
    (void)put_family(module, out, "grid_route_prefix_affinity_total");
    grid_buf_puts(out, "},\"unkeyed\":{");
    (void)put_family(module, out, "grid_route_unkeyed_total");
    grid_buf_printf(out, "},\"failovers\":%llu,\"resets\":%llu",
                    (unsigned long long)put_family(module, out, "grid_route_failovers_total"),
                    (unsigned long long)put_family(module, out, "grid_route_cluster_resets_total"));
}

void grid_admin_snapshot(struct grid_module *module, struct grid_buf *out)
{
    uint64_t now_ms = grid_module_now_ms();
    grid_buf_printf(out, "{\"ready\":%s,\"draining\":%s,\"sites\":", atomic_load(&module->ready) ? "true" : "false",
                    atomic_load(&module->draining) ? "true" : "false");
    put_sites(module, out, now_ms);
    grid_buf_puts(out, ",\"model_alias\":");
    grid_router_aliases(module->router, out);
    grid_buf_puts(out, ",\"outcomes\":");
    put_counts(module, out);
    grid_buf_puts(out, ",\"polls\":");
    grid_signals_json(out, now_ms);
    grid_buf_puts(out, ",\"settings\":");
    put_settings(module, out);
    grid_buf_puts(out, ",\"reload\":");
    put_reload(out, now_ms);
    grid_buf_printf(out, ",\"explain\":%s,\"history\":", atomic_load(&module->explains) ? "true" : "false");
    grid_history_json(out);
    grid_buf_puts(out, ",\"recent\":");
    grid_recent_json(out, now_ms);
    grid_buf_puts(out, "}\n");
}
