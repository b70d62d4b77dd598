/*
 * simulate_cache.h - the KV cache of a simulated engine
 *
 * Story     Blocks of 16 tokens. What running requests use is held; the rest stays, least recently used first out, and
 *           of one prompt its tail before its head: as vLLM's block pool does it.
 * Promise   No more blocks in use than there are. A prompt's last token is always computed.
 * Not here  Who waits for room (simulate_run.c).
 */
#ifndef GRID_SIMULATE_CACHE_H
#define GRID_SIMULATE_CACHE_H

#include "cli/set.h"
#include "cli/trace.h"

#define GRID_KV_BLOCK_TOKENS 16u

struct grid_kv_entry {
    uint64_t id;
    uint32_t blocks, held;
    uint32_t newer, older; /* entry + 1; 0: none; only while nobody holds it */
};

struct grid_kv {
    uint64_t blocks, used, held; /* used: all that is taken, held: of it by running requests */
    struct grid_set at;          /* id -> entry + 1 */
    struct grid_kv_entry *entries;
    uint32_t n, cap, free, newest, oldest;
};

void grid_kv_init(struct grid_kv *kv, uint64_t blocks);
void grid_kv_done(struct grid_kv *kv);

/* Blocks that the request takes while it runs, with its answer. */
uint64_t grid_kv_need(const struct grid_trace_request *request);
/* Tokens of the prompt that need no prefill. Changes nothing. */
uint32_t grid_kv_hit(const struct grid_kv *kv, const struct grid_trace_request *request, const uint64_t *units);
enum grid_kv_taken { GRID_KV_TAKEN, GRID_KV_NO_ROOM, GRID_KV_NO_MEMORY };
enum grid_kv_taken grid_kv_take(struct grid_kv *kv, const struct grid_trace_request *request, const uint64_t *units);
void grid_kv_give(struct grid_kv *kv, const struct grid_trace_request *request, const uint64_t *units);

#endif
