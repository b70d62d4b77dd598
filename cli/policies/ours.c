/*
 * ours.c - this gateway, by its own core
 *
 * Story     One router of the core a replica: keys that are ready become a ticket, grid_route decides, grid_learn
 *           settles, grid_signal and grid_router_refresh take depths in. Nothing of the rule is here. `least-queue` is
 *           the same with affinity off.
 * Settings  Those of prefix_affinity, by their names, and load_window_ms of the serving config.
 */
#include "policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_SECS 3600 /* retention of samples: load_window_ms decides */
#define SECOND_US 1000000u

struct ours {
    struct grid_router *router;
    uint64_t refreshed_us;
};

static const struct grid_str model = {"m", 1};

/* {"prefix_affinity":{…}} of the spec's settings; load_window_ms goes to *window. */
static bool plugin_text(const struct grid_policy *policy, struct grid_buf *out, struct grid_str *window)
{
    struct grid_policy_setting setting;
    bool first = true;
    grid_buf_puts(out, "{\"prefix_affinity\":{");
    if (policy->ops == &grid_policy_least_queue) {
        grid_buf_puts(out, "\"enabled\":false");
        first = false;
    }
    for (size_t at = 0; grid_policy_next(policy, &at, &setting);) {
        static const struct grid_str name = {"load_window_ms", 14};
        if (setting.name.len == name.len && memcmp(setting.name.ptr, name.ptr, name.len) == 0) {
            *window = setting.value;
            continue;
        }
        grid_buf_puts(out, first ? "" : ",");
        grid_buf_json(out, setting.name);
        grid_buf_puts(out, ":");
        grid_buf_put(out, setting.value.ptr, setting.value.len);
        first = false;
    }
    grid_buf_puts(out, "}}");
    return !out->failed;
}

static void serving_text(const struct grid_policy *policy, struct grid_str window, struct grid_buf *out)
{
    grid_buf_printf(out, "{\"local_site\":\"site-0\",\"window_secs\":%d,\"load_window_ms\":%.*s,\"peers\":[],",
                    WINDOW_SECS, (int)window.len, window.ptr);
    grid_buf_puts(out, "\"candidates\":[");
    for (size_t i = 0; i < policy->setup.n_sites; i++)
        grid_buf_printf(out,
                        "%s{\"kind\":\"inference_model\",\"name\":\"m\",\"site\":\"site-%zu\",\"cluster\":\"%zu\"}",
                        i ? "," : "", i, i);
    grid_buf_puts(out, "]}");
}

static bool load(struct grid_policy *policy, struct ours *ours, char *error, size_t error_size)
{
    struct grid_buf plugin = {.limit = 1u << 16}, serving = {.limit = 1u << 20};
    struct grid_str window = {"30000", 5};
    struct grid_errors errors = {0};
    bool good = plugin_text(policy, &plugin, &window);
    serving_text(policy, window, &serving);
    struct grid_load texts = {.plugin = {plugin.ptr, plugin.len}, .serving = {serving.ptr, serving.len}};
    good = good && !serving.failed && grid_router_load(ours->router, &texts, 0, &errors, NULL) == GRID_OK;
    if (!good)
        (void)snprintf(error, error_size, "policy %s: %s: %s", policy->ops->name,
                       errors.count ? errors.items[0].field : "settings",
                       errors.count ? errors.items[0].message : "out of memory");
    grid_buf_done(&plugin);
    grid_buf_done(&serving);
    return good;
}

static bool ours_open(struct grid_policy *policy, char *error, size_t error_size)
{
    struct ours *ours = calloc(1, sizeof *ours);
    policy->state = ours;
    struct grid_options options = {.hash_seed = 1, .dice_seed = policy->setup.seed};
    if (!ours || grid_router_new(&options, &ours->router) != GRID_OK) {
        (void)snprintf(error, error_size, "out of memory");
        return false;
    }
    return load(policy, ours, error, error_size);
}

static void ours_close(struct grid_policy *policy)
{
    struct ours *ours = policy->state;
    if (ours)
        grid_router_free(ours->router);
    free(ours);
}

static size_t ours_choose(struct grid_policy *policy, const struct grid_policy_request *request,
                          struct grid_policy_note *note)
{
    struct ours *ours = policy->state;
    struct grid_ticket *ticket;
    struct grid_decision decision;
    uint64_t now_ms = request->now_us / 1000;
    if (request->now_us - ours->refreshed_us >= SECOND_US) { /* the host does so at least once a second */
        ours->refreshed_us = request->now_us;
        if (grid_router_refresh(ours->router, now_ms) != GRID_OK)
            return SIZE_MAX;
    }
    if (grid_ticket_of_keys(ours->router, model, request->keys, request->n_keys, &ticket) != GRID_OK)
        return SIZE_MAX;
    grid_route(ticket, NULL, now_ms, &decision);
    note->ptr = ticket;
    if (decision.action != GRID_FORWARD)
        return SIZE_MAX;
    size_t site = 0; /* clusters are named by their number */
    for (size_t i = 0; i < decision.cluster.len; i++)
        site = site * 10 + (size_t)(decision.cluster.ptr[i] - '0');
    return site;
}

static void ours_answered(struct grid_policy *policy, struct grid_policy_note *note, size_t site, int status,
                          uint64_t now_us)
{
    (void)policy;
    (void)site;
    grid_learn(note->ptr, status, GRID_FROM_SITE, now_us / 1000, NULL);
}

static void ours_ended(struct grid_policy *policy, struct grid_policy_note *note, size_t site, uint64_t now_us)
{
    (void)policy;
    (void)site;
    (void)now_us;
    grid_ticket_free(note->ptr);
    note->ptr = NULL;
}

static void ours_signal(struct grid_policy *policy, size_t site, double depth, uint64_t stamp_us, uint64_t now_us)
{
    struct ours *ours = policy->state;
    char name[24];
    int len = snprintf(name, sizeof name, "%zu", site);
    (void)grid_signal(ours->router, (struct grid_str){name, (size_t)len}, depth, stamp_us / 1000, now_us / 1000);
    if (grid_router_refresh(ours->router, now_us / 1000) == GRID_OK) /* else the old order stays for now */
        ours->refreshed_us = now_us;
}

static void count(const struct grid_series *series, void *ctx)
{
    uint64_t *out = ctx;
    if (strcmp(series->family, "grid_route_prefix_affinity_total") != 0 || !series->only_value)
        return;
    for (int i = 0; i < GRID_N_OUTCOMES; i++)
        if (strcmp(series->only_value, grid_outcome_name((enum grid_outcome)i)) == 0)
            out[i] += series->value;
}

static void ours_outcomes(struct grid_policy *policy, uint64_t out[GRID_N_OUTCOMES])
{
    struct ours *ours = policy->state;
    grid_router_counters(ours->router, count, out);
}

const struct grid_policy_ops grid_policy_ours = {
    .name = "ours",
    .line = "this gateway, by its own core",
    .settings = "threshold exploration prefill_tokens_per_second queued_request_seconds capacity ttl_secs enabled"
                " spread_ties; load_window_ms (30000)",
    .open = ours_open,
    .close = ours_close,
    .choose = ours_choose,
    .answered = ours_answered,
    .ended = ours_ended,
    .signal = ours_signal,
    .outcomes = ours_outcomes,
};

const struct grid_policy_ops grid_policy_least_queue = {
    .name = "least-queue",
    .line = "this gateway with affinity off: the least windowed queue depth, polled as for ours",
    .settings = "load_window_ms (30000)",
    .open = ours_open,
    .close = ours_close,
    .choose = ours_choose,
    .answered = ours_answered,
    .ended = ours_ended,
    .signal = ours_signal,
    .outcomes = ours_outcomes,
};
