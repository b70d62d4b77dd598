/*
 * histogram.h - how often a value was how large
 *
 * Story     A table of bounds says where a histogram's buckets end; values are counted as they come. Which histograms
 *           there are is in stats.h.
 * Threads   Observing and reading: any, relaxed atomics.
 */
#ifndef GRID_HISTOGRAM_H
#define GRID_HISTOGRAM_H

#include <stdatomic.h>

#include "str.h"

#define GRID_HISTOGRAM_BUCKETS 14u /* most bounds of one */

/* What a histogram is of. Bounds rise; `scale` values are one unit on /metrics (1e9: nanoseconds told as seconds). */
struct grid_histogram_form {
    const char *family, *help;
    double scale;
    size_t n;
    uint64_t bounds[GRID_HISTOGRAM_BUCKETS];
};

/* The last of the counts used is that of values over every bound. Zero it before use. */
struct grid_histogram {
    atomic_ullong counts[GRID_HISTOGRAM_BUCKETS + 1];
    atomic_ullong sum;
};

void grid_histogram_observe(struct grid_histogram *histogram, const struct grid_histogram_form *form, uint64_t value);

/* One reading, counts added up as /metrics wants them: cumulative[i] of values up to bounds[i], cumulative[n] all. */
struct grid_histogram_view {
    uint64_t cumulative[GRID_HISTOGRAM_BUCKETS + 1];
    double sum; /* in units */
};
void grid_histogram_read(const struct grid_histogram *histogram, const struct grid_histogram_form *form,
                         struct grid_histogram_view *out_view);

#endif
