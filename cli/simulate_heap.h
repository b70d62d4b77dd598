/*
 * simulate_heap.h - what is still to happen, soonest first
 *
 * Promise   Equal times come out in the order in which they went in, so a run is the same every time.
 */
#ifndef GRID_SIMULATE_HEAP_H
#define GRID_SIMULATE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grid_heap_event {
    uint64_t at_us, order;
    int what;            /* the caller's */
    uint32_t one, other; /* the caller's: a flight; or replica and site */
    double depth;        /* the caller's */
};

struct grid_heap { /* zeroed: empty */
    struct grid_heap_event *events;
    size_t n, cap;
    uint64_t order;
    bool failed; /* for want of memory; what was pushed is lost */
};

void grid_heap_push(struct grid_heap *heap, uint64_t at_us, int what, uint32_t one, uint32_t other, double depth);
struct grid_heap_event grid_heap_pop(struct grid_heap *heap); /* n > 0 */
void grid_heap_done(struct grid_heap *heap);

#endif
