/*
 * window.h - the queue depths of one cluster, and the worst of the recent ones
 *
 * Story     router.c keeps one a cluster: grid_signal pushes, a refresh asks for the worst.
 * Promise   Stamps only grow; at most 128 samples are held, the oldest goes first.   Source: behaviour.md I.2, I.3.
 * Threads   None of its own: the caller holds the router's `change` lock.
 */
#ifndef GRID_WINDOW_H
#define GRID_WINDOW_H

#include "grid/grid.h"

#define GRID_WINDOW_SAMPLES 128u
#define GRID_MAX_DEPTH 1e6 /* a larger count is taken for a broken exporter and ignored */

struct grid_window {
    struct {
        double depth;
        uint64_t stamp_ms;
    } samples[GRID_WINDOW_SAMPLES]; /* a ring */
    uint32_t first, n;
};

/* Keeps a sample; false when it is not newer than the newest held, not finite, or over GRID_MAX_DEPTH. A negative depth
 * reads as 0. */
bool grid_window_push(struct grid_window *window, double depth, uint64_t stamp_ms);

/* The worst depth with now - within <= stamp <= now; INFINITY without one. */
double grid_window_worst(const struct grid_window *window, uint64_t now_ms, uint64_t within_ms);

/* Stamp of the newest sample; false when there is none. */
bool grid_window_newest(const struct grid_window *window, uint64_t *out_stamp_ms);

#endif
