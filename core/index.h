/*
 * index.h - which cluster is believed to hold which prompt blocks
 *
 * Story     Step 3 of the data path. The index is one table a cluster; a snapshot of sites (sites.h) holds references
 *           to the tables, so a request goes straight to the table it needs and nothing is looked up by name on the
 *           path. Configuration adds tables, resizes them and marks those that left as forgotten.
 * Guards    One mutex a table, held for at most 512 probes, never two at once.
 * Promise   A settle that arrives after its cluster was forgotten changes nothing (behaviour.md O.37).
 * Not here  the order of candidates (sites.h), the choice (select.h).
 */
#ifndef GRID_INDEX_H
#define GRID_INDEX_H

#include "lru.h"

#define GRID_PEND_MS 30000u /* a mark that nobody settles lapses after this (behaviour.md D.2) */

struct grid_table;

/* A table with one reference, the caller's; NULL for want of memory. */
struct grid_table *grid_index_table_new(const struct grid_alloc *alloc, uint32_t capacity) GRID_MUST_USE;
struct grid_table *grid_index_table_ref(struct grid_table *table); /* NULL stays NULL */
void grid_index_table_unref(struct grid_table *table);             /* NULL is fine; the last one frees */

uint32_t grid_index_match(struct grid_table *table, const uint64_t *keys, size_t n, uint64_t now_ms);
void grid_index_pend(struct grid_table *table, const uint64_t *keys, size_t n, uint64_t now_ms);
/* The settles return how many of the keys were so treated, 0 once the table is forgotten. */
uint32_t grid_index_confirm(struct grid_table *table, const uint64_t *keys, size_t n, uint64_t now_ms, uint64_t ttl_ms);
uint32_t grid_index_drop(struct grid_table *table, const uint64_t *keys, size_t n);
void grid_index_withdraw(struct grid_table *table, const uint64_t *keys, size_t n);

/* No candidate names the cluster any more: nothing is learned from here on, and the memory goes with the last
 * reference. */
void grid_index_forget(struct grid_table *table);

/* Swaps in `empty`, a table made by grid_lru_new of another capacity, keeping what fits. Returns the old one, empty of
 * use, for the caller to free. Or, keep false: nothing is kept (the engine restarted). */
struct grid_lru *grid_index_swap(struct grid_table *table, struct grid_lru *empty, bool keep);

struct grid_table_view {
    uint32_t entries, capacity;
    size_t bytes;
};
struct grid_table_view grid_index_view(struct grid_table *table);

#endif
