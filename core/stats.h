/*
 * stats.h - counters
 *
 * Story     Requests count on any thread, scrapes read on any other. One table of families (stats.c) gives names,
 *           labels and help to /metrics, to Envoy's own store and to replay.
 * Promise   Values only grow, but for the number of open requests. The set of series is bounded: fixed lists, and (site, cluster) pairs of the
 *           configuration, GRID_STATS_MAX_PAIRS in a process' life, later ones share one pair named "other".
 * Threads   Counting and reading: any, relaxed atomics, hot counters a cache line apart. Adding a pair: one at a time.
 * Source    behaviour.md K.
 */
#ifndef GRID_STATS_H
#define GRID_STATS_H

#include <stdatomic.h>

#include "grid/grid.h"
#include "histogram.h"

#define GRID_STATS_MAX_PAIRS 4096u

/* Why a decision was made (grid_route_decisions_total). The first four name a site, the others none. */
#define GRID_VERDICTS(X)                                                                                               \
    X(ROUTED, "routed")           /* to a healthy or unobserved cluster */                                             \
    X(FALLBACK, "fallback")       /* to a cluster without a healthy host, since no admitted one has any */             \
    X(PINNED, "pinned")           /* to the cluster that an id names */                                                \
    X(FAILOVER, "failover")       /* there, after another site did not take it: counted beside the first decision */   \
    X(NOT_READY, "not_ready")     /* the model, or the cluster that an id names, is known, and does not admit */       \
    X(NO_ROUTE, "no_route")       /* no candidate serves the model; an id leads nowhere */                             \
    X(BAD_REQUEST, "bad_request") /* no model, too large, an upgrade, a coding that cannot be read */                  \
    X(SHED, "shed")               /* kept free: this gateway does not shed */
enum grid_verdict {
#define GRID_VERDICT_ENUM(id, name) GRID_VERDICT_##id,
    GRID_VERDICTS(GRID_VERDICT_ENUM)
#undef GRID_VERDICT_ENUM
        GRID_N_VERDICTS
};
#define GRID_N_SITE_VERDICTS 4u

/* Padded, not aligned: an allocator promises no more than max_align_t, and 64 bytes apart is never the same line. */
struct grid_count {
    atomic_ullong value;
    char line[64 - sizeof(atomic_ullong)];
};

/* What the decision expected of the engine's cache, and what the engine reported. */
#define GRID_PREDICTIONS(X)                                                                                            \
    X(RIGHT_HIT, "right_hit")   /* held, and found there */                                                            \
    X(WRONG_HIT, "wrong_hit")   /* believed to be held, and read anew */                                               \
    X(RIGHT_MISS, "right_miss") /* not held, and read anew */                                                          \
    X(WRONG_MISS, "wrong_miss") /* believed not to be held, and found there */
enum grid_prediction {
#define GRID_PREDICTION_ENUM(id, name) GRID_PREDICTION_##id,
    GRID_PREDICTIONS(GRID_PREDICTION_ENUM)
#undef GRID_PREDICTION_ENUM
        GRID_N_PREDICTIONS
};

/* What led a request to its site: an outcome of affinity, GRID_OUTCOME_UNCOUNTED, or an id. */
#define GRID_STATS_PINNED ((size_t)GRID_OUTCOME_UNCOUNTED + 1)
#define GRID_STATS_N_LEADS (GRID_STATS_PINNED + 1)

enum grid_stats_form {
    GRID_STATS_REQUEST, /* in nanoseconds, and the three below */
    GRID_STATS_RESPONSE,
    GRID_STATS_FIRST_TOKEN,
    GRID_STATS_TOKEN_GAP,
    GRID_STATS_MATCHED, /* in blocks */
    GRID_N_STATS_FORMS
};

/* Of event streams. */
struct grid_stats_times {
    struct grid_histogram first_token, token_gap;
};

struct grid_stats_pair {
    struct grid_stats_pair *next;
    char site[64], cluster[GRID_MAX_NAME_BYTES + 1];
    struct grid_count decisions[GRID_N_SITE_VERDICTS];
    struct grid_count failovers; /* requests that it did not take and that went on elsewhere */
    struct grid_count prompt_tokens, predicted_tokens, cached_tokens;
    struct grid_count predictions[GRID_N_PREDICTIONS];
    atomic_bool tells_cached; /* its engine has reported cached tokens */
    struct grid_count open;   /* requests that were sent there and have not ended: the only one that goes down */
    struct grid_stats_times times[GRID_STATS_N_LEADS];
};

struct grid_stats {
    struct grid_count outcomes[GRID_N_OUTCOMES];
    struct grid_count unkeyed[GRID_N_REASONS];
    struct grid_count refusals[GRID_N_VERDICTS]; /* the first GRID_N_SITE_VERDICTS unused */
    struct grid_count reloads[GRID_N_RELOADS];
    struct grid_count resets;
    struct grid_count untagged;
    struct grid_count keyed_blocks;
    struct grid_count recorded, unrecorded;  /* lines of trace_keys */
    struct grid_histogram request, response; /* time spent in the filter */
    struct grid_histogram matched;           /* longest run of a request that affinity was asked about */
    _Atomic(struct grid_stats_pair *) pairs; /* grows at the head, never shrinks */
    unsigned n_pairs;
    const struct grid_alloc *alloc;
};

void grid_stats_init(struct grid_stats *stats, const struct grid_alloc *alloc);
void grid_stats_done(struct grid_stats *stats);

static inline void grid_stats_add_n(struct grid_count *count, uint64_t n)
{
    (void)atomic_fetch_add_explicit(&count->value, n, memory_order_relaxed);
}

static inline void grid_stats_add(struct grid_count *count)
{
    grid_stats_add_n(count, 1);
}

static inline void grid_stats_sub(struct grid_count *count)
{
    (void)atomic_fetch_sub_explicit(&count->value, 1, memory_order_relaxed);
}

void grid_stats_observe(struct grid_histogram *histogram, enum grid_stats_form form, uint64_t value);

/* The pair's counters, made at first sight; NULL for want of memory. Stays valid as long as the stats. */
struct grid_stats_pair *grid_stats_pair_of(struct grid_stats *stats, struct grid_str site, struct grid_str cluster);

void grid_stats_each(struct grid_stats *stats, grid_series_fn *fn, void *ctx);

/* Histograms in use, families together: all of `stats`, and of a pair those that counted something. `label` as in
 * struct grid_series. */
typedef void grid_stats_histogram_fn(const struct grid_histogram_form *form, const char *label,
                                     const struct grid_histogram *histogram, void *ctx);
void grid_stats_each_histogram(struct grid_stats *stats, grid_stats_histogram_fn *fn, void *ctx);

/* A label value as the text format wants it between its quotes. */
void grid_stats_escape(struct grid_str value, char *out, size_t size);

#endif
