/*
 * histogram.c - buckets, a handful of them: looked through from the smallest
 */
#include "histogram.h"

void grid_histogram_observe(struct grid_histogram *histogram, const struct grid_histogram_form *form, uint64_t value)
{
    size_t i = 0;
    while (i < form->n && value > form->bounds[i])
        i++;
    (void)atomic_fetch_add_explicit(&histogram->counts[i], 1, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&histogram->sum, value, memory_order_relaxed);
}

void grid_histogram_read(const struct grid_histogram *histogram, const struct grid_histogram_form *form,
                         struct grid_histogram_view *out_view)
{
    uint64_t so_far = 0;
    for (size_t i = 0; i <= form->n; i++) {
        so_far += atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
        out_view->cumulative[i] = so_far;
    }
    out_view->sum = (double)atomic_load_explicit(&histogram->sum, memory_order_relaxed) / form->scale;
}
