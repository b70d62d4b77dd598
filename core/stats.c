/*
 * stats.c - counters: the table of families, and the pairs of the configuration
 */
#include "stats.h"

#include <stdio.h>
#include <string.h>

#include "arena.h"

const char *grid_outcome_name(enum grid_outcome outcome)
{
    static const char *const names[] = {
#define NAME(id, name, words) name,
        GRID_OUTCOMES(NAME)
#undef NAME
    };
    return outcome < GRID_N_OUTCOMES ? names[outcome] : "";
}

const char *grid_outcome_words(enum grid_outcome outcome)
{
    static const char *const words_of[] = {
#define WORDS(id, name, words) words,
        GRID_OUTCOMES(WORDS)
#undef WORDS
    };
    return outcome < GRID_N_OUTCOMES ? words_of[outcome] : "counted in no outcome";
}

const char *grid_reason_name(enum grid_reason reason)
{
    static const char *const names[] = {
#define NAME(id, name) name,
        GRID_REASONS(NAME)
#undef NAME
    };
    return reason < GRID_N_REASONS ? names[reason] : "";
}

const char *grid_api_name(enum grid_api api)
{
    static const char *const names[] = {"none", "chat", "completions", "messages", "responses"};
    return names[api];
}

static const char *verdict_name(size_t verdict)
{
    static const char *const names[] = {
#define NAME(id, name) name,
        GRID_VERDICTS(NAME)
#undef NAME
    };
    return names[verdict];
}

void grid_stats_init(struct grid_stats *stats, const struct grid_alloc *alloc)
{
    memset(stats, 0, sizeof *stats);
    stats->alloc = alloc;
}

void grid_stats_done(struct grid_stats *stats)
{
    struct grid_stats_pair *pair = atomic_load_explicit(&stats->pairs, memory_order_acquire);
    while (pair) {
        struct grid_stats_pair *next = pair->next;
        grid_give(stats->alloc, pair);
        pair = next;
    }
    atomic_store_explicit(&stats->pairs, NULL, memory_order_relaxed);
}

static bool same(const char *text, struct grid_str view)
{
    return strlen(text) == view.len && memcmp(text, view.ptr, view.len) == 0;
}

static struct grid_stats_pair *find_pair(struct grid_stats_pair *pair, struct grid_str site, struct grid_str cluster)
{
    while (pair && !(same(pair->site, site) && same(pair->cluster, cluster)))
        pair = pair->next;
    return pair;
}

struct grid_stats_pair *grid_stats_pair_of(struct grid_stats *stats, struct grid_str site, struct grid_str cluster)
{
    struct grid_stats_pair *head = atomic_load_explicit(&stats->pairs, memory_order_acquire);
    struct grid_stats_pair *pair = find_pair(head, site, cluster);
    if (!pair && stats->n_pairs >= GRID_STATS_MAX_PAIRS) {
        site = cluster = (struct grid_str){"other", 5};
        pair = find_pair(head, site, cluster);
    }
    if (pair)
        return pair;
    pair = grid_take(stats->alloc, sizeof *pair);
    if (!pair)
        return NULL;
    (void)snprintf(pair->site, sizeof pair->site, "%.*s", (int)site.len, site.ptr);
    (void)snprintf(pair->cluster, sizeof pair->cluster, "%.*s", (int)cluster.len, cluster.ptr);
    pair->next = head;
    stats->n_pairs++;
    /* release: a reader that sees the pair sees its names. */
    atomic_store_explicit(&stats->pairs, pair, memory_order_release);
    return pair;
}

void grid_stats_escape(struct grid_str value, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < value.len && n + 3 < size; i++) {
        char c = value.ptr[i];
        if (c == '\n') {
            out[n++] = '\\';
            out[n++] = 'n';
            continue;
        }
        if (c == '"' || c == '\\')
            out[n++] = '\\';
        out[n++] = c;
    }
    out[n] = 0;
}

#define LABEL_BYTES 2048u /* three labels of at most 256 bytes, each byte escaped */

struct family {
    const char *name, *help, *label;
};

/* One series with at most one label. */
static void emit(const struct family *family, const char *value, const struct grid_count *count, grid_series_fn *fn,
                 void *ctx)
{
    char label[LABEL_BYTES] = "";
    if (family->label)
        (void)snprintf(label, sizeof label, "%s=\"%s\"", family->label, value);
    struct grid_series series = {.family = family->name,
                                 .help = family->help,
                                 .label = label,
                                 .only_value = family->label ? value : NULL,
                                 .label_names = {family->label},
                                 .label_values = {value},
                                 .n_labels = family->label ? 1 : 0,
                                 .value = atomic_load_explicit(&count->value, memory_order_relaxed)};
    fn(&series, ctx);
}

/* One series of a (site, cluster) pair; verdict NULL: without that label. */
static void emit_pair(const struct family *family, const char *site, const char *cluster, const char *verdict,
                      const struct grid_count *count, grid_series_fn *fn, void *ctx)
{
    char label[LABEL_BYTES], escaped[2 * GRID_MAX_NAME_BYTES + 4];
    grid_stats_escape((struct grid_str){cluster, strlen(cluster)}, escaped, sizeof escaped);
    (void)snprintf(label, sizeof label, "site=\"%s\",cluster=\"%s\"%s%s%s", site, escaped, verdict ? ",reason=\"" : "",
                   verdict ? verdict : "", verdict ? "\"" : "");
    struct grid_series series = {.family = family->name,
                                 .help = family->help,
                                 .label = label,
                                 .label_names = {"site", "cluster", "reason"},
                                 .label_values = {site, cluster, verdict},
                                 .n_labels = verdict ? 3 : 2,
                                 .value = atomic_load_explicit(&count->value, memory_order_relaxed)};
    fn(&series, ctx);
}

static void emit_pairs(struct grid_stats *stats, grid_series_fn *fn, void *ctx)
{
    static const struct family decisions = {"grid_route_decisions_total",
                                            "Requests decided, by the site and cluster they went to, and why.", NULL};
    static const struct family failovers = {
        "grid_route_failovers_total", "Requests that a cluster did not take and that went on to another one.", NULL};
    struct grid_stats_pair *first = atomic_load_explicit(&stats->pairs, memory_order_acquire);
    for (struct grid_stats_pair *pair = first; pair; pair = pair->next)
        for (size_t i = 0; i < GRID_N_SITE_VERDICTS; i++)
            emit_pair(&decisions, pair->site, pair->cluster, verdict_name(i), &pair->decisions[i], fn, ctx);
    for (size_t i = GRID_N_SITE_VERDICTS; i < GRID_N_VERDICTS; i++)
        emit_pair(&decisions, "", "", verdict_name(i), &stats->refusals[i], fn, ctx);
    for (struct grid_stats_pair *pair = first; pair; pair = pair->next)
        emit_pair(&failovers, pair->site, pair->cluster, NULL, &pair->failovers, fn, ctx);
}

void grid_stats_each(struct grid_stats *stats, grid_series_fn *fn, void *ctx)
{
    static const struct family outcome = {"grid_route_prefix_affinity_total",
                                          "Requests that affinity was asked about, by outcome.", "outcome"};
    static const struct family unkeyed = {"grid_route_unkeyed_total",
                                          "Requests decided without keys, by the reason why.", "reason"};
    static const struct family reload = {"grid_serving_config_reload_total",
                                         "Changed configurations handled, by result.", "result"};
    static const struct family resets = {"grid_route_cluster_resets_total",
                                         "Clusters forgotten because their engine restarted.", NULL};
    static const struct family untagged = {
        "grid_untagged_answers_total", "Answers whose ids got no tag because they came with a content coding.", NULL};
    static const char *const reload_names[] = {"applied", "reused", "rejected"};

    for (size_t i = 0; i < GRID_N_OUTCOMES; i++)
        emit(&outcome, grid_outcome_name((enum grid_outcome)i), &stats->outcomes[i], fn, ctx);
    for (size_t i = GRID_REASON_NONE + 1; i < GRID_N_REASONS; i++)
        emit(&unkeyed, grid_reason_name((enum grid_reason)i), &stats->unkeyed[i], fn, ctx);
    emit_pairs(stats, fn, ctx);
    for (size_t i = 0; i < GRID_N_RELOADS; i++)
        emit(&reload, reload_names[i], &stats->reloads[i], fn, ctx);
    emit(&resets, NULL, &stats->resets, fn, ctx);
    emit(&untagged, NULL, &stats->untagged, fn, ctx);
}
