/*
 * set.h - a growing table from 64-bit keys to 32-bit values
 *
 * Story     Compared routers, the simulated caches and the sums of a trace look ids up by the million. Keys are well
 *           mixed already, or are mixed here.
 * Promise   Zeroed memory is an empty table. No key is special. Not for more than 2^31 keys.
 * Not here  Order of use (simulate_cache.c).
 */
#ifndef GRID_SET_H
#define GRID_SET_H

#include <grid/grid.h>

struct grid_set_slot {
    uint64_t key;
    uint32_t value, used; /* used: 0 never, 1 taken, 2 was taken */
};

struct grid_set {
    struct grid_set_slot *slots;
    size_t n, filled, cap; /* filled: taken or was taken; cap: a power of two */
};

/* The slot of a key, or NULL. Valid until the next put. */
struct grid_set_slot *grid_set_find(const struct grid_set *set, uint64_t key);
/* The slot of a key, made with value 0 when it was not there; NULL for want of memory. */
struct grid_set_slot *grid_set_put(struct grid_set *set, uint64_t key, bool *out_had);
void grid_set_drop(struct grid_set *set, uint64_t key);
bool grid_set_add(struct grid_set *set, uint64_t key, bool *out_had) GRID_MUST_USE;
void grid_set_done(struct grid_set *set);

#endif
