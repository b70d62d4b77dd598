/*
 * naive_lru.h - the table of prompt blocks as a plain list, written from behaviour.md D
 *
 * Story     test_lru.c does the same random things to this and to the real table, and compares all of both. Slow and
 *           obvious on purpose: list[0] is the most recent entry.
 */
#ifndef GRID_TEST_NAIVE_LRU_H
#define GRID_TEST_NAIVE_LRU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NAIVE_MAX 256u
#define NAIVE_CEILING 65535u /* unanswered requests saturate here, and then stay */

struct naive_entry {
    uint64_t key, deadline_ms;
    uint32_t unanswered;
    bool confirmed;
};

struct naive_lru {
    size_t capacity, n;
    struct naive_entry list[NAIVE_MAX];
};

static inline struct naive_entry *naive_find(struct naive_lru *lru, uint64_t key)
{
    for (size_t i = 0; i < lru->n; i++)
        if (lru->list[i].key == key)
            return &lru->list[i];
    return NULL;
}

static inline void naive_remove(struct naive_lru *lru, struct naive_entry *entry)
{
    size_t at = (size_t)(entry - lru->list);
    memmove(entry, entry + 1, (lru->n - at - 1) * sizeof *entry);
    lru->n--;
}

/* Puts the entry in front; the least recent goes when there is no room. */
static inline void naive_put(struct naive_lru *lru, struct naive_entry entry)
{
    struct naive_entry *old = naive_find(lru, entry.key);
    if (old)
        naive_remove(lru, old);
    else if (lru->n == lru->capacity)
        lru->n--;
    memmove(lru->list + 1, lru->list, lru->n * sizeof entry);
    lru->list[0] = entry;
    lru->n++;
}

static inline uint32_t naive_run(struct naive_lru *lru, const uint64_t *keys, size_t n, uint64_t now_ms)
{
    uint32_t run = 0;
    while (run < n) {
        const struct naive_entry *entry = naive_find(lru, keys[run]);
        if (!entry || !entry->confirmed || now_ms >= entry->deadline_ms)
            break;
        run++;
    }
    return run;
}

static inline void naive_pend(struct naive_lru *lru, const uint64_t *keys, size_t n, uint64_t now_ms,
                              uint64_t deadline_ms)
{
    for (size_t i = n; i-- > 0;) {
        const struct naive_entry *old = naive_find(lru, keys[i]);
        struct naive_entry entry = {.key = keys[i], .deadline_ms = deadline_ms, .unanswered = 1};
        if (old && now_ms < old->deadline_ms) {
            entry = *old;
            if (entry.unanswered < NAIVE_CEILING)
                entry.unanswered++;
        }
        naive_put(lru, entry);
    }
}

static inline uint32_t naive_one_less(uint32_t unanswered)
{
    return unanswered == 0 || unanswered == NAIVE_CEILING ? unanswered : unanswered - 1;
}

static inline void naive_confirm(struct naive_lru *lru, const uint64_t *keys, size_t n, uint64_t deadline_ms)
{
    for (size_t i = n; i-- > 0;) {
        const struct naive_entry *old = naive_find(lru, keys[i]);
        uint32_t unanswered = old ? naive_one_less(old->unanswered) : 0;
        naive_put(lru, (struct naive_entry){keys[i], deadline_ms, unanswered, true});
    }
}

static inline uint32_t naive_drop(struct naive_lru *lru, const uint64_t *keys, size_t n)
{
    uint32_t dropped = 0;
    for (size_t i = 0; i < n; i++) {
        struct naive_entry *entry = naive_find(lru, keys[i]);
        if (entry) {
            naive_remove(lru, entry);
            dropped++;
        }
    }
    return dropped;
}

static inline void naive_withdraw(struct naive_lru *lru, const uint64_t *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct naive_entry *entry = naive_find(lru, keys[i]);
        if (!entry)
            continue;
        entry->unanswered = naive_one_less(entry->unanswered);
        if (entry->unanswered == 0 && !entry->confirmed)
            naive_remove(lru, entry);
    }
}

static inline void naive_resize(struct naive_lru *lru, size_t capacity)
{
    lru->capacity = capacity;
    if (lru->n > capacity)
        lru->n = capacity;
}

#endif
