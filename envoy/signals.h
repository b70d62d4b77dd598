/*
 * signals.h - what the files about queue depths share
 *
 * Story     targets.c keeps the list of what is asked, signals.c asks and judges, shown.c puts it on pages.
 * Threads   Main thread, but for what stands in `shown`, which is written and read under grid_signals.mutex.
 * Not here  What others may call (module.h).
 */
#ifndef GRID_ENVOY_SIGNALS_H
#define GRID_ENVOY_SIGNALS_H

#include "module.h"

#include <pthread.h>

#define GRID_POLL_RESULTS(X)                                                                                           \
    X(OK, "ok")                                                                                                        \
    X(HTTP_ERROR, "http_error") X(NO_METRIC, "no_metric") X(TOO_BIG, "too_big") X(UNREACHABLE, "unreachable")
enum grid_poll_result {
#define GRID_POLL_ENUM(id, name) GRID_POLL_##id,
    GRID_POLL_RESULTS(GRID_POLL_ENUM)
#undef GRID_POLL_ENUM
        GRID_N_POLL_RESULTS
};

/* What pages show of one cluster. */
struct grid_polled {
    char cluster[GRID_MAX_NAME_BYTES + 1];
    uint64_t counts[GRID_N_POLL_RESULTS]; /* of all its endpoints */
    bool has_sample;
    uint64_t sample_ms;
    double depth;
    const char *why;         /* of the last poll that gave no depth, else NULL */
    size_t total, healthy;   /* hosts, as Envoy sees them */
    uint64_t resets;         /* restarts of its engines that were noticed */
    size_t n_targets, fresh; /* endpoints that are asked; those whose depth is young enough to count */
};

enum { GRID_TARGET_NAME_BYTES = GRID_MAX_NAME_BYTES + 64, GRID_ENDPOINT_BYTES = 300 };

/* What is asked: a cluster, or one of its static endpoints through a hidden cluster of its own. */
struct grid_target {
    size_t cluster;                         /* into grid_signals.clusters */
    char name[GRID_TARGET_NAME_BYTES];      /* Envoy's cluster */
    char endpoint[GRID_ENDPOINT_BYTES];     /* "": whatever the cluster's balancing picks */
    struct grid_str host;                   /* a view into the serving config */
    const struct grid_serving_signals *how; /* the same */
    uint64_t next_ms, callout;
    bool in_flight, redirected, answered;

    bool has_depth;
    double depth;
    uint64_t depth_ms; /* when it was taken */

    double start_time, counters; /* of the engine, as told last; 0: not told */
    unsigned slips;              /* times that the counters went back in the present stretch */
    uint64_t slips_from_ms;
    bool many_engines; /* so often that several engines must stand behind one address */
};

struct grid_signals {
    pthread_mutex_t mutex;
    struct grid_polled *clusters; /* of the serving config, those that are polled */
    size_t n_clusters;
    struct grid_polled *left; /* of clusters that left, the oldest first; their counts only */
    size_t n_left;

    struct grid_target *targets; /* those of one cluster side by side */
    size_t n_targets;
    void *timer;
    uint64_t ready_limit_ms;
    bool starting, done_inside; /* a callout may be done before the call that starts it returns */
};
extern struct grid_signals grid_signals;

/* Puts a new serving config's targets in the place of the old, keeping what is known of those that stay. */
void grid_targets_set(const struct grid_serving *serving);
void grid_targets_free(void);
/* The cluster's depth: the average of its endpoints' young ones. False: none, or one was not asked yet. */
bool grid_targets_depth(size_t cluster, uint64_t now_ms, double *out_depth, size_t *out_fresh);

#endif
