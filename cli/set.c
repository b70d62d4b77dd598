/*
 * set.c - a growing table from 64-bit keys to 32-bit values: open addressing, dropped slots stay until it grows
 */
#include "set.h"

#include <stdlib.h>

enum { NEVER, TAKEN, WAS_TAKEN };
#define FIRST_SLOTS 1024

static size_t start_of(const struct grid_set *set, uint64_t key)
{
    return (size_t)((key * 0x9e3779b97f4a7c15ull) >> 20) & (set->cap - 1);
}

struct grid_set_slot *grid_set_find(const struct grid_set *set, uint64_t key)
{
    if (set->cap == 0)
        return NULL;
    for (size_t at = start_of(set, key);; at = (at + 1) & (set->cap - 1)) {
        struct grid_set_slot *slot = &set->slots[at];
        if (slot->used == NEVER)
            return NULL;
        if (slot->used == TAKEN && slot->key == key)
            return slot;
    }
}

/* Twice the room when most of it is in use, the same room when it is full of dropped slots. */
static bool make_room(struct grid_set *set)
{
    if (set->cap && set->filled * 4 < set->cap * 3)
        return true;
    struct grid_set bigger = {.cap = set->cap == 0 ? FIRST_SLOTS : set->n * 2 > set->cap ? set->cap * 2 : set->cap};
    bigger.slots = calloc(bigger.cap, sizeof *bigger.slots);
    if (!bigger.slots)
        return false;
    for (size_t i = 0; i < set->cap; i++) {
        if (set->slots[i].used != TAKEN)
            continue;
        size_t at = start_of(&bigger, set->slots[i].key);
        while (bigger.slots[at].used != NEVER)
            at = (at + 1) & (bigger.cap - 1);
        bigger.slots[at] = set->slots[i];
        bigger.n++;
    }
    bigger.filled = bigger.n;
    free(set->slots);
    *set = bigger;
    return true;
}

struct grid_set_slot *grid_set_put(struct grid_set *set, uint64_t key, bool *out_had)
{
    struct grid_set_slot *slot = grid_set_find(set, key);
    *out_had = slot != NULL;
    if (slot || !make_room(set))
        return slot;
    size_t at = start_of(set, key);
    while (set->slots[at].used == TAKEN)
        at = (at + 1) & (set->cap - 1);
    slot = &set->slots[at];
    set->filled += slot->used == NEVER;
    set->n++;
    *slot = (struct grid_set_slot){.key = key, .used = TAKEN};
    return slot;
}

bool grid_set_add(struct grid_set *set, uint64_t key, bool *out_had)
{
    return grid_set_put(set, key, out_had) != NULL;
}

void grid_set_drop(struct grid_set *set, uint64_t key)
{
    struct grid_set_slot *slot = grid_set_find(set, key);
    if (slot) {
        slot->used = WAS_TAKEN;
        set->n--;
    }
}

void grid_set_done(struct grid_set *set)
{
    free(set->slots);
    *set = (struct grid_set){0};
}
