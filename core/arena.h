/*
 * arena.h - memory: the allocator's verbs, a request's arena, growable text
 *
 * Story     Everything the core holds comes from one struct grid_alloc, so a test can fail the n-th allocation. What
 *           lives as long as one request comes from an arena with a ceiling and goes away in one step.
 * Promise   grid_arena_take returns memory aligned for any type, or NULL over the ceiling or for want of memory.
 * Not here  Long-lived tables: they allocate at birth, by grid_take.
 */
#ifndef GRID_ARENA_H
#define GRID_ARENA_H

#include "grid/grid.h"

extern const struct grid_alloc grid_alloc_default; /* malloc, realloc, free */

void *grid_take(const struct grid_alloc *alloc, size_t size); /* alloc NULL: the default; zeroed; NULL when none */
void *grid_resize(const struct grid_alloc *alloc, void *ptr, size_t size);
void grid_give(const struct grid_alloc *alloc, void *ptr);

struct grid_arena_chunk;
struct grid_arena {
    const struct grid_alloc *alloc;
    struct grid_arena_chunk *chunks;
    size_t left;  /* bytes left in the newest chunk */
    size_t taken; /* bytes taken from the allocator */
    size_t limit; /* ceiling for taken */
};

void grid_arena_init(struct grid_arena *arena, const struct grid_alloc *alloc, size_t limit);
void *grid_arena_take(struct grid_arena *arena, size_t size);
/* A copy that lives as long as the arena; {NULL,0} when there is no memory. One NUL stands behind it. */
struct grid_str grid_arena_copy(struct grid_arena *arena, struct grid_str text);
void grid_arena_done(struct grid_arena *arena); /* gives all back; the arena may be used again */

#endif
