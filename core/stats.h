/*
 * stats.h - counters
 *
 * Story     Requests count on any thread, scrapes read on any other. One table of families (stats.c) gives names,
 *           labels and help to /metrics, to Envoy's own store and to replay.
 * Promise   Values only grow. The set of series is bounded: fixed lists, and (site, cluster) pairs of the
 *           configuration, GRID_STATS_MAX_PAIRS in a process' life, later ones share one pair named "other".
 * Threads   Counting and reading: any, relaxed atomics, hot counters a cache line apart. Adding a pair: one at a time.
 * Source    behaviour.md K.
 */
#ifndef GRID_STATS_H
#define GRID_STATS_H

#include <stdatomic.h>

#include "grid/grid.h"

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

struct grid_stats_pair {
    struct grid_stats_pair *next;
    char site[64], cluster[GRID_MAX_NAME_BYTES + 1];
    struct grid_count decisions[GRID_N_SITE_VERDICTS];
    struct grid_count failovers; /* requests that it did not take and that went on elsewhere */
};

struct grid_stats {
    struct grid_count outcomes[GRID_N_OUTCOMES];
    struct grid_count unkeyed[GRID_N_REASONS];
    struct grid_count refusals[GRID_N_VERDICTS]; /* the first GRID_N_SITE_VERDICTS unused */
    struct grid_count reloads[GRID_N_RELOADS];
    struct grid_count resets;
    struct grid_count untagged;
    _Atomic(struct grid_stats_pair *) pairs; /* grows at the head, never shrinks */
    unsigned n_pairs;
    const struct grid_alloc *alloc;
};

void grid_stats_init(struct grid_stats *stats, const struct grid_alloc *alloc);
void grid_stats_done(struct grid_stats *stats);

static inline void grid_stats_add(struct grid_count *count)
{
    (void)atomic_fetch_add_explicit(&count->value, 1, memory_order_relaxed);
}

/* The pair's counters, made at first sight; NULL for want of memory. Stays valid as long as the stats. */
struct grid_stats_pair *grid_stats_pair_of(struct grid_stats *stats, struct grid_str site, struct grid_str cluster);

void grid_stats_each(struct grid_stats *stats, grid_series_fn *fn, void *ctx);

/* A label value as the text format wants it between its quotes. */
void grid_stats_escape(struct grid_str value, char *out, size_t size);

#endif
