/*
 * believed.h - what a compared router believes a site to hold: a bounded table of blocks, least recently used first out
 *
 * Promise   Zeroed memory is an empty one. It grows up to the capacity that a note is given. Keys are chained, so a
 *           block stands for all that comes before it, as a node of a prefix tree does.
 * Not here  Our own index: that is the core's.
 */
#ifndef GRID_BELIEVED_H
#define GRID_BELIEVED_H

#include "cli/set.h"

struct grid_believed_entry {
    uint64_t key;
    uint32_t newer, older;
};

struct grid_believed {
    struct grid_set at; /* key -> entry + 1 */
    struct grid_believed_entry *entries;
    uint32_t n, cap, newest, oldest; /* entry + 1; 0: none */
};

/* How many leading keys are held. Reading changes no order. */
size_t grid_believed_run(const struct grid_believed *believed, const uint64_t *keys, size_t n);
/* All keys become the most recent ones, the head of the prompt most of all. False for want of memory. */
bool grid_believed_note(struct grid_believed *believed, const uint64_t *keys, size_t n, size_t capacity) GRID_MUST_USE;
void grid_believed_done(struct grid_believed *believed);

#endif
