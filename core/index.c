/*
 * index.c - which cluster is believed to hold which prompt blocks: a locked table a cluster
 */
#include "index.h"

#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

struct grid_table {
    const struct grid_alloc *alloc;
    atomic_uint references;
    pthread_mutex_t lock;
    /* guarded by lock */
    struct grid_lru *lru;
    bool forgotten;
};

struct grid_table *grid_index_table_new(const struct grid_alloc *alloc, uint32_t capacity)
{
    struct grid_table *table = grid_take(alloc, sizeof *table);
    if (!table)
        return NULL;
    table->alloc = alloc;
    table->lru = grid_lru_new(alloc, capacity);
    if (!table->lru) {
        grid_give(alloc, table);
        return NULL;
    }
    atomic_init(&table->references, 1);
    (void)pthread_mutex_init(&table->lock, NULL);
    return table;
}

struct grid_table *grid_index_table_ref(struct grid_table *table)
{
    if (table)
        (void)atomic_fetch_add_explicit(&table->references, 1, memory_order_relaxed);
    return table;
}

void grid_index_table_unref(struct grid_table *table)
{
    /* acquire-release: whoever frees must see what every earlier holder wrote. */
    if (!table || atomic_fetch_sub_explicit(&table->references, 1, memory_order_acq_rel) != 1)
        return;
    (void)pthread_mutex_destroy(&table->lock);
    grid_lru_free(table->lru);
    grid_give(table->alloc, table);
}

static void lock(struct grid_table *table)
{
    int failed = pthread_mutex_lock(&table->lock);
    GRID_ASSERT(failed == 0);
}

static void unlock(struct grid_table *table)
{
    int failed = pthread_mutex_unlock(&table->lock);
    GRID_ASSERT(failed == 0);
}

uint32_t grid_index_match(struct grid_table *table, const uint64_t *keys, size_t n, uint64_t now_ms)
{
    lock(table);
    uint32_t run = grid_lru_run(table->lru, keys, n, now_ms);
    unlock(table);
    return run;
}

void grid_index_pend(struct grid_table *table, const uint64_t *keys, size_t n, uint64_t now_ms)
{
    lock(table);
    if (!table->forgotten)
        grid_lru_pend(table->lru, keys, n, now_ms, now_ms + GRID_PEND_MS);
    unlock(table);
}

uint32_t grid_index_confirm(struct grid_table *table, const uint64_t *keys, size_t n, uint64_t now_ms, uint64_t ttl_ms)
{
    lock(table);
    bool counts = !table->forgotten;
    if (counts)
        grid_lru_confirm(table->lru, keys, n, now_ms + ttl_ms);
    unlock(table);
    return counts ? (uint32_t)n : 0;
}

uint32_t grid_index_drop(struct grid_table *table, const uint64_t *keys, size_t n)
{
    lock(table);
    bool counts = !table->forgotten;
    if (counts)
        (void)grid_lru_drop(table->lru, keys, n);
    unlock(table);
    return counts ? (uint32_t)n : 0;
}

void grid_index_withdraw(struct grid_table *table, const uint64_t *keys, size_t n)
{
    lock(table);
    if (!table->forgotten)
        grid_lru_withdraw(table->lru, keys, n);
    unlock(table);
}

void grid_index_forget(struct grid_table *table)
{
    lock(table);
    table->forgotten = true;
    unlock(table);
}

struct grid_lru *grid_index_swap(struct grid_table *table, struct grid_lru *empty, bool keep)
{
    lock(table);
    struct grid_lru *old = table->lru;
    if (keep)
        grid_lru_move(empty, old);
    table->lru = empty;
    unlock(table);
    return old;
}

struct grid_table_view grid_index_view(struct grid_table *table)
{
    lock(table);
    struct grid_table_view view = {
        .entries = grid_lru_entries(table->lru),
        .capacity = grid_lru_capacity(table->lru),
        .bytes = grid_lru_bytes(table->lru),
    };
    unlock(table);
    return view;
}
