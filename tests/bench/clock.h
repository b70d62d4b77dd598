/*
 * clock.h - time and order for the benches
 */
#ifndef GRID_BENCH_CLOCK_H
#define GRID_BENCH_CLOCK_H

#include <stdlib.h>
#include <time.h>

static inline double clock_now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static inline int clock_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Least first. */
static inline void clock_sort(double *values, size_t n)
{
    qsort(values, n, sizeof *values, clock_compare);
}

#endif
