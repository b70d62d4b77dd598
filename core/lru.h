/*
 * lru.h - one cluster's bounded table of prompt blocks
 *
 * Story     index.c keeps one of these a cluster, behind that cluster's lock. A request marks its blocks here when it
 *           is sent (pend), and the site's answer settles them (confirm, drop, withdraw).
 * Promise   1 An entry counts only when it is confirmed and now < deadline; a mark never counts.
 *           2 Keys are written tail first, so the head of a prompt is its most recent block and eviction eats a prompt
 *             from its tail.
 *           3 Reading touches neither order nor deadlines.
 *           4 All memory is taken at birth; an operation never allocates and never fails.
 * Threads   None of its own: the caller holds the cluster's lock.   Source: behaviour.md D.
 * Not here  clocks, locks, cluster names (index.h).
 */
#ifndef GRID_LRU_H
#define GRID_LRU_H

#include "arena.h"

struct grid_lru;

/* An empty table of 1..GRID_MAX_CAPACITY entries; NULL for want of memory. */
struct grid_lru *grid_lru_new(const struct grid_alloc *alloc, uint32_t capacity) GRID_MUST_USE;
void grid_lru_free(struct grid_lru *lru); /* NULL is fine */

/* Number of leading keys that count at now_ms; stops at the first that does not. */
uint32_t grid_lru_run(const struct grid_lru *lru, const uint64_t *keys, size_t n, uint64_t now_ms);

/* Sent: a live entry has one more unanswered request, a missing or expired one begins anew, unconfirmed. */
void grid_lru_pend(struct grid_lru *lru, const uint64_t *keys, size_t n, uint64_t now_ms, uint64_t deadline_ms);
/* A success: each key counts until deadline_ms, also one that was evicted meanwhile. */
void grid_lru_confirm(struct grid_lru *lru, const uint64_t *keys, size_t n, uint64_t deadline_ms);
/* The site failed: each key goes, confirmed or not. Returns how many there were. */
uint32_t grid_lru_drop(struct grid_lru *lru, const uint64_t *keys, size_t n);
/* An answer that proves nothing: one unanswered less; an unconfirmed entry that nobody waits for goes. */
void grid_lru_withdraw(struct grid_lru *lru, const uint64_t *keys, size_t n);

/* Moves the most recent entries of `from` that fit into the empty table `to`, in their order. */
void grid_lru_move(struct grid_lru *to, const struct grid_lru *from);

uint32_t grid_lru_entries(const struct grid_lru *lru);
uint32_t grid_lru_capacity(const struct grid_lru *lru);
size_t grid_lru_bytes(const struct grid_lru *lru);

#endif
