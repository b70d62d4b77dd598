/*
 * simulate_heap.c - what is still to happen, soonest first: a binary heap
 */
#include "simulate_heap.h"

#include <stdlib.h>

static bool before(const struct grid_heap_event *a, const struct grid_heap_event *b)
{
    return a->at_us < b->at_us || (a->at_us == b->at_us && a->order < b->order);
}

void grid_heap_push(struct grid_heap *heap, uint64_t at_us, int what, uint32_t one, uint32_t other, double depth)
{
    if (heap->n == heap->cap) {
        size_t more = heap->cap ? heap->cap * 2 : 1024;
        struct grid_heap_event *moved = realloc(heap->events, more * sizeof *moved);
        if (!moved) {
            heap->failed = true;
            return;
        }
        heap->events = moved;
        heap->cap = more;
    }
    struct grid_heap_event event = {at_us, heap->order++, what, one, other, depth};
    size_t at = heap->n++;
    for (; at && before(&event, &heap->events[(at - 1) / 2]); at = (at - 1) / 2)
        heap->events[at] = heap->events[(at - 1) / 2];
    heap->events[at] = event;
}

struct grid_heap_event grid_heap_pop(struct grid_heap *heap)
{
    struct grid_heap_event first = heap->events[0], last = heap->events[--heap->n];
    size_t at = 0;
    for (size_t child; (child = at * 2 + 1) < heap->n; at = child) {
        if (child + 1 < heap->n && before(&heap->events[child + 1], &heap->events[child]))
            child++;
        if (!before(&heap->events[child], &last))
            break;
        heap->events[at] = heap->events[child];
    }
    heap->events[at] = last;
    return first;
}

void grid_heap_done(struct grid_heap *heap)
{
    free(heap->events);
    *heap = (struct grid_heap){0};
}
