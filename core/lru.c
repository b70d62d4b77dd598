/*
 * lru.c - one cluster's bounded table of prompt blocks
 *
 * A chained hash table whose entries are also one doubly linked list, most recent first. Entries are numbered from 1,
 * 0 is "none", so a list is a number and the table has no pointers inside.
 */
#include "lru.h"

#include "check.h"

struct entry {
    uint64_t key;
    uint64_t deadline_ms;
    uint32_t newer, older; /* the list of recency; `older` also links the free ones */
    uint32_t chain;        /* next in the same bucket */
    uint16_t unanswered;   /* requests sent and not settled; stays at its ceiling once there */
    bool confirmed;
};

_Static_assert(sizeof(struct entry) == 32, "two entries a cache line");

struct grid_lru {
    const struct grid_alloc *alloc;
    struct entry *entries; /* [capacity + 1], number 0 unused */
    uint32_t *buckets;     /* [1 << bits] */
    uint32_t capacity, used, entry_count;
    uint32_t newest, oldest, free_list;
    unsigned shift; /* 64 - bits */
};

struct grid_lru *grid_lru_new(const struct grid_alloc *alloc, uint32_t capacity)
{
    GRID_ASSERT(capacity >= 1 && capacity <= GRID_MAX_CAPACITY);
    unsigned bits = 4;
    while ((1u << bits) < capacity)
        bits++;
    const struct grid_alloc *from = alloc ? alloc : &grid_alloc_default;
    struct grid_lru *lru = grid_take(from, sizeof *lru);
    if (!lru)
        return NULL;
    *lru = (struct grid_lru){.alloc = from, .capacity = capacity, .shift = 64 - bits};
    /* Entries are written before they are read, so they need no clearing, and stay unmapped until used. */
    lru->entries = from->take(from->ctx, ((size_t)capacity + 1) * sizeof *lru->entries);
    lru->buckets = grid_take(from, sizeof *lru->buckets << bits);
    if (!lru->entries || !lru->buckets) {
        grid_lru_free(lru);
        return NULL;
    }
    return lru;
}

void grid_lru_free(struct grid_lru *lru)
{
    if (!lru)
        return;
    grid_give(lru->alloc, lru->entries);
    grid_give(lru->alloc, lru->buckets);
    grid_give(lru->alloc, lru);
}

/* Keys are hashes already; the multiplication spreads them over the high bits whatever the hash left there. */
static uint32_t *bucket_of(const struct grid_lru *lru, uint64_t key)
{
    return &lru->buckets[(key * 0x9e3779b97f4a7c15ull) >> lru->shift];
}

static uint32_t find(const struct grid_lru *lru, uint64_t key)
{
    uint32_t at = *bucket_of(lru, key);
    while (at && lru->entries[at].key != key)
        at = lru->entries[at].chain;
    return at;
}

static void unlink_recency(struct grid_lru *lru, uint32_t at)
{
    struct entry *e = &lru->entries[at];
    if (e->newer)
        lru->entries[e->newer].older = e->older;
    else
        lru->newest = e->older;
    if (e->older)
        lru->entries[e->older].newer = e->newer;
    else
        lru->oldest = e->newer;
}

static void link_newest(struct grid_lru *lru, uint32_t at)
{
    struct entry *e = &lru->entries[at];
    e->newer = 0;
    e->older = lru->newest;
    if (lru->newest)
        lru->entries[lru->newest].newer = at;
    else
        lru->oldest = at;
    lru->newest = at;
}

static void touch(struct grid_lru *lru, uint32_t at)
{
    if (lru->newest == at)
        return;
    unlink_recency(lru, at);
    link_newest(lru, at);
}

static void remove_entry(struct grid_lru *lru, uint32_t at)
{
    struct entry *e = &lru->entries[at];
    uint32_t *link = bucket_of(lru, e->key);
    while (*link != at)
        link = &lru->entries[*link].chain;
    *link = e->chain;
    unlink_recency(lru, at);
    e->older = lru->free_list;
    lru->free_list = at;
    lru->entry_count--;
}

/* A fresh entry for a key that has none, most recent; evicts the least recent when the table is full. */
static struct entry *insert(struct grid_lru *lru, uint64_t key)
{
    if (lru->entry_count == lru->capacity)
        remove_entry(lru, lru->oldest);
    uint32_t at = lru->free_list;
    if (at)
        lru->free_list = lru->entries[at].older;
    else
        at = ++lru->used;
    struct entry *e = &lru->entries[at];
    uint32_t *bucket = bucket_of(lru, key);
    *e = (struct entry){.key = key, .chain = *bucket};
    *bucket = at;
    link_newest(lru, at);
    lru->entry_count++;
    return e;
}

/* Buckets are asked for this many keys ahead, since each is a cache miss of its own. */
#define AHEAD 12u

static void ask_ahead(const struct grid_lru *lru, const uint64_t *keys, size_t n, size_t i)
{
    if (i + AHEAD < n)
        __builtin_prefetch(bucket_of(lru, keys[i + AHEAD]));
    if (i + AHEAD / 2 < n)
        __builtin_prefetch(&lru->entries[*bucket_of(lru, keys[i + AHEAD / 2])]);
}

static void ask_ahead_backward(const struct grid_lru *lru, const uint64_t *keys, size_t i)
{
    if (i >= AHEAD)
        __builtin_prefetch(bucket_of(lru, keys[i - AHEAD]));
    if (i >= AHEAD / 2)
        __builtin_prefetch(&lru->entries[*bucket_of(lru, keys[i - AHEAD / 2])]);
}

uint32_t grid_lru_run(const struct grid_lru *lru, const uint64_t *keys, size_t n, uint64_t now_ms)
{
    size_t run = 0;
    for (; run < n; run++) {
        ask_ahead(lru, keys, n, run);
        uint32_t at = find(lru, keys[run]);
        if (!at || !lru->entries[at].confirmed || now_ms >= lru->entries[at].deadline_ms)
            break;
    }
    return (uint32_t)run;
}

void grid_lru_pend(struct grid_lru *lru, const uint64_t *keys, size_t n, uint64_t now_ms, uint64_t deadline_ms)
{
    for (size_t i = n; i-- > 0;) {
        ask_ahead_backward(lru, keys, i);
        uint32_t at = find(lru, keys[i]);
        if (!at) {
            struct entry *e = insert(lru, keys[i]);
            e->unanswered = 1;
            e->deadline_ms = deadline_ms;
            continue;
        }
        struct entry *e = &lru->entries[at];
        if (now_ms >= e->deadline_ms) {
            e->unanswered = 1;
            e->confirmed = false;
            e->deadline_ms = deadline_ms;
        } else if (e->unanswered < UINT16_MAX) {
            e->unanswered++;
        }
        touch(lru, at);
    }
}

/* At the ceiling the true count is lost, so it is left there: the entry then lives until its deadline. */
static void answered(struct entry *e)
{
    if (e->unanswered > 0 && e->unanswered < UINT16_MAX)
        e->unanswered--;
}

void grid_lru_confirm(struct grid_lru *lru, const uint64_t *keys, size_t n, uint64_t deadline_ms)
{
    for (size_t i = n; i-- > 0;) {
        ask_ahead_backward(lru, keys, i);
        uint32_t at = find(lru, keys[i]);
        struct entry *e = at ? &lru->entries[at] : insert(lru, keys[i]);
        answered(e);
        e->confirmed = true;
        e->deadline_ms = deadline_ms;
        if (at)
            touch(lru, at);
    }
}

uint32_t grid_lru_drop(struct grid_lru *lru, const uint64_t *keys, size_t n)
{
    uint32_t dropped = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t at = find(lru, keys[i]);
        if (at) {
            remove_entry(lru, at);
            dropped++;
        }
    }
    return dropped;
}

void grid_lru_withdraw(struct grid_lru *lru, const uint64_t *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t at = find(lru, keys[i]);
        if (!at)
            continue;
        struct entry *e = &lru->entries[at];
        answered(e);
        if (e->unanswered == 0 && !e->confirmed)
            remove_entry(lru, at);
    }
}

void grid_lru_move(struct grid_lru *to, const struct grid_lru *from)
{
    GRID_ASSERT(to->entry_count == 0);
    /* Find where the part that fits begins, then write it oldest first. */
    uint32_t skip = from->entry_count > to->capacity ? from->entry_count - to->capacity : 0;
    for (uint32_t at = from->oldest; at; at = from->entries[at].newer) {
        if (skip) {
            skip--;
            continue;
        }
        const struct entry *e = &from->entries[at];
        struct entry *copy = insert(to, e->key);
        copy->deadline_ms = e->deadline_ms;
        copy->unanswered = e->unanswered;
        copy->confirmed = e->confirmed;
    }
}

uint32_t grid_lru_entries(const struct grid_lru *lru)
{
    return lru->entry_count;
}

uint32_t grid_lru_capacity(const struct grid_lru *lru)
{
    return lru->capacity;
}

size_t grid_lru_bytes(const struct grid_lru *lru)
{
    return sizeof *lru + ((size_t)lru->capacity + 1) * sizeof *lru->entries +
           (sizeof *lru->buckets << (64 - lru->shift));
}
