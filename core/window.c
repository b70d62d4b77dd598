/*
 * window.c - the queue depths of one cluster, and the worst of the recent ones
 */
#include "window.h"

#include <math.h>

bool grid_window_push(struct grid_window *window, double depth, uint64_t stamp_ms)
{
    uint64_t newest = 0;
    if (!isfinite(depth) || depth > GRID_MAX_DEPTH)
        return false;
    if (grid_window_newest(window, &newest) && stamp_ms <= newest)
        return false;
    if (window->n == GRID_WINDOW_SAMPLES) {
        window->first = (window->first + 1) % GRID_WINDOW_SAMPLES;
        window->n--;
    }
    uint32_t at = (window->first + window->n) % GRID_WINDOW_SAMPLES;
    window->samples[at].depth = depth < 0 ? 0 : depth;
    window->samples[at].stamp_ms = stamp_ms;
    window->n++;
    return true;
}

double grid_window_worst(const struct grid_window *window, uint64_t now_ms, uint64_t within_ms)
{
    uint64_t oldest = now_ms > within_ms ? now_ms - within_ms : 0;
    double worst = -INFINITY;
    for (uint32_t i = 0; i < window->n; i++) {
        uint32_t at = (window->first + i) % GRID_WINDOW_SAMPLES;
        uint64_t stamp = window->samples[at].stamp_ms;
        if (stamp >= oldest && stamp <= now_ms && window->samples[at].depth > worst)
            worst = window->samples[at].depth;
    }
    return worst == -INFINITY ? INFINITY : worst;
}

bool grid_window_newest(const struct grid_window *window, uint64_t *out_stamp_ms)
{
    if (window->n == 0)
        return false;
    *out_stamp_ms = window->samples[(window->first + window->n - 1) % GRID_WINDOW_SAMPLES].stamp_ms;
    return true;
}
