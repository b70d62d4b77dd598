/*
 * stats.c - counters: the table of families, and the pairs of the configuration
 */
#include "stats.h"

#include <stddef.h>
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

#define PAIR_LABELS "site", "cluster"

/* The text of a pair's labels; `name` NULL: without a third. */
static void put_pair(char out[LABEL_BYTES], const char *site, const char *cluster, const char *name, const char *value)
{
    char escaped[2 * GRID_MAX_NAME_BYTES + 4];
    grid_stats_escape((struct grid_str){cluster, strlen(cluster)}, escaped, sizeof escaped);
    int len = snprintf(out, LABEL_BYTES, "site=\"%s\",cluster=\"%s\"", site, escaped);
    if (name)
        (void)snprintf(out + len, LABEL_BYTES - (size_t)len, ",%s=\"%s\"", name, value);
}

/* One series of a (site, cluster) pair; `value` is that of the family's own label, if it has one. */
static void emit_pair(const struct family *family, const char *site, const char *cluster, const char *value,
                      const struct grid_count *count, grid_series_fn *fn, void *ctx)
{
    char label[LABEL_BYTES];
    put_pair(label, site, cluster, family->label, value);
    struct grid_series series = {.family = family->name,
                                 .help = family->help,
                                 .label = label,
                                 .label_names = {PAIR_LABELS, family->label},
                                 .label_values = {site, cluster, value},
                                 .n_labels = family->label ? 3 : 2,
                                 .value = atomic_load_explicit(&count->value, memory_order_relaxed)};
    fn(&series, ctx);
}

static struct grid_stats_pair *first_pair(struct grid_stats *stats)
{
    return atomic_load_explicit(&stats->pairs, memory_order_acquire);
}

static void emit_decisions(struct grid_stats *stats, grid_series_fn *fn, void *ctx)
{
    static const struct family decisions = {
        "grid_route_decisions_total", "Requests decided, by the site and cluster they went to, and why.", "reason"};
    for (struct grid_stats_pair *pair = first_pair(stats); pair; pair = pair->next)
        for (size_t i = 0; i < GRID_N_SITE_VERDICTS; i++)
            emit_pair(&decisions, pair->site, pair->cluster, verdict_name(i), &pair->decisions[i], fn, ctx);
    for (size_t i = GRID_N_SITE_VERDICTS; i < GRID_N_VERDICTS; i++)
        emit_pair(&decisions, "", "", verdict_name(i), &stats->refusals[i], fn, ctx);
}

static void emit_predictions(struct grid_stats *stats, grid_series_fn *fn, void *ctx)
{
    static const struct family family = {"grid_route_cache_predictions_total",
                                         "Answers whose engine told of cached tokens, by whether that was expected.",
                                         "result"};
    static const char *const names[] = {
#define NAME(id, name) name,
        GRID_PREDICTIONS(NAME)
#undef NAME
    };
    for (struct grid_stats_pair *pair = first_pair(stats); pair; pair = pair->next)
        for (size_t i = 0; i < GRID_N_PREDICTIONS; i++)
            emit_pair(&family, pair->site, pair->cluster, names[i], &pair->predictions[i], fn, ctx);
}

/* Families with one series a pair. */
static const struct {
    struct family family;
    size_t at;
} of_pairs[] = {
    {{"grid_route_failovers_total", "Requests that a cluster did not take and that went on to another one.", NULL},
     offsetof(struct grid_stats_pair, failovers)},
    {{"grid_route_prompt_tokens_total", "Tokens of prompts whose engine told how many of them were cached.", NULL},
     offsetof(struct grid_stats_pair, prompt_tokens)},
    {{"grid_route_predicted_cached_tokens_total", "Those of them that the gateway believed to be cached there.", NULL},
     offsetof(struct grid_stats_pair, predicted_tokens)},
    {{"grid_route_reported_cached_tokens_total", "Those of them that the engine reported as cached.", NULL},
     offsetof(struct grid_stats_pair, cached_tokens)},
};

static void emit_pairs(struct grid_stats *stats, grid_series_fn *fn, void *ctx)
{
    emit_decisions(stats, fn, ctx);
    for (size_t i = 0; i < sizeof of_pairs / sizeof *of_pairs; i++)
        for (struct grid_stats_pair *pair = first_pair(stats); pair; pair = pair->next)
            emit_pair(&of_pairs[i].family, pair->site, pair->cluster, NULL,
                      (const struct grid_count *)((const char *)pair + of_pairs[i].at), fn, ctx);
    emit_predictions(stats, fn, ctx);
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
    static const struct family keyed = {"grid_route_keyed_blocks_total",
                                        "Prompt blocks of requests that affinity was asked about.", NULL};
    static const struct family records = {"grid_trace_records_total",
                                          "Lines of the recording of key streams, by result.", "result"};
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
    emit(&keyed, NULL, &stats->keyed_blocks, fn, ctx);
    emit(&records, "written", &stats->recorded, fn, ctx);
    emit(&records, "dropped", &stats->unrecorded, fn, ctx);
}

/* ---- histograms ------------------------------------------------------------------------------------------------ */

#define US 1000ull
#define MS (1000 * US)
#define S (1000 * MS)

static const struct grid_histogram_form forms[GRID_N_STATS_FORMS] = {
    [GRID_STATS_REQUEST] = {"grid_filter_request_seconds",
                            "Time spent in the filter on a request that was decided, waiting for its body apart.",
                            1e9,
                            12,
                            {2 * US, 5 * US, 10 * US, 20 * US, 50 * US, 100 * US, 200 * US, 500 * US, 1 * MS, 5 * MS,
                             20 * MS, 100 * MS}},
    [GRID_STATS_RESPONSE] = {"grid_filter_response_seconds",
                             "Time spent in the filter on a site's answer, all its pieces together.",
                             1e9,
                             12,
                             {2 * US, 5 * US, 10 * US, 20 * US, 50 * US, 100 * US, 200 * US, 500 * US, 1 * MS, 5 * MS,
                              20 * MS, 100 * MS}},
    [GRID_STATS_FIRST_TOKEN] = {"grid_route_first_token_seconds",
                                "From a whole request to the first token of its event stream.",
                                1e9,
                                13,
                                {25 * MS, 50 * MS, 100 * MS, 200 * MS, 400 * MS, 800 * MS, 1500 * MS, 3 * S, 5 * S,
                                 10 * S, 20 * S, 60 * S, 120 * S}},
    [GRID_STATS_TOKEN_GAP] = {"grid_route_token_gap_seconds",
                              "From one piece of an event stream with tokens to the next.",
                              1e9,
                              11,
                              {1 * MS, 2500 * US, 5 * MS, 10 * MS, 20 * MS, 40 * MS, 80 * MS, 160 * MS, 320 * MS, 1 * S,
                               5 * S}},
    [GRID_STATS_MATCHED] =
        {"grid_route_matched_blocks",
         "Longest run of leading blocks that any site held, of requests that affinity was asked about.",
         1,
         10,
         {0, 3, 7, 15, 31, 63, 127, 255, 511, 512}},
};

void grid_stats_observe(struct grid_histogram *histogram, enum grid_stats_form form, uint64_t value)
{
    grid_histogram_observe(histogram, &forms[form], value);
}

static bool in_use(const struct grid_histogram *histogram, const struct grid_histogram_form *form)
{
    struct grid_histogram_view view;
    grid_histogram_read(histogram, form, &view);
    return view.cumulative[form->n] > 0;
}

static const char *lead_name(size_t lead)
{
    if (lead == GRID_STATS_PINNED)
        return "pinned";
    return lead == GRID_OUTCOME_UNCOUNTED ? "none" : grid_outcome_name((enum grid_outcome)lead);
}

static void each_time(struct grid_stats *stats, enum grid_stats_form form, grid_stats_histogram_fn *fn, void *ctx)
{
    char label[LABEL_BYTES];
    for (struct grid_stats_pair *pair = first_pair(stats); pair; pair = pair->next)
        for (size_t i = 0; i < GRID_STATS_N_LEADS; i++) {
            const struct grid_stats_times *times = &pair->times[i];
            const struct grid_histogram *one = form == GRID_STATS_FIRST_TOKEN ? &times->first_token : &times->token_gap;
            if (!in_use(one, &forms[form]))
                continue;
            put_pair(label, pair->site, pair->cluster, "outcome", lead_name(i));
            fn(&forms[form], label, one, ctx);
        }
}

void grid_stats_each_histogram(struct grid_stats *stats, grid_stats_histogram_fn *fn, void *ctx)
{
    fn(&forms[GRID_STATS_REQUEST], "", &stats->request, ctx);
    fn(&forms[GRID_STATS_RESPONSE], "", &stats->response, ctx);
    fn(&forms[GRID_STATS_MATCHED], "", &stats->matched, ctx);
    each_time(stats, GRID_STATS_FIRST_TOKEN, fn, ctx);
    each_time(stats, GRID_STATS_TOKEN_GAP, fn, ctx);
}
