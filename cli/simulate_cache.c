/*
 * simulate_cache.c - the KV cache of a simulated engine
 */
#include "simulate_cache.h"

#include <stdlib.h>

void grid_kv_init(struct grid_kv *kv, uint64_t blocks)
{
    *kv = (struct grid_kv){.blocks = blocks};
}

void grid_kv_done(struct grid_kv *kv)
{
    grid_set_done(&kv->at);
    free(kv->entries);
    *kv = (struct grid_kv){0};
}

static uint64_t blocks_for(uint64_t tokens)
{
    return (tokens + GRID_KV_BLOCK_TOKENS - 1) / GRID_KV_BLOCK_TOKENS;
}

uint64_t grid_kv_need(const struct grid_trace_request *request)
{
    return blocks_for((uint64_t)request->input_tokens + request->output_tokens);
}

/* Whole blocks of unit number i: the last one may be a part of a unit. */
static uint32_t unit_blocks(const struct grid_trace_request *request, uint32_t i)
{
    uint64_t from = (uint64_t)i * request->unit_tokens, to = from + request->unit_tokens;
    if (to > request->input_tokens)
        to = request->input_tokens > from ? request->input_tokens : from;
    return (uint32_t)((to - from) / GRID_KV_BLOCK_TOKENS);
}

uint32_t grid_kv_hit(const struct grid_kv *kv, const struct grid_trace_request *request, const uint64_t *units)
{
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < request->n_units && grid_set_find(&kv->at, units[i]); i++)
        blocks += unit_blocks(request, i);
    uint64_t most = (request->input_tokens - 1) / GRID_KV_BLOCK_TOKENS; /* the last token's logits are needed */
    return (uint32_t)(blocks < most ? blocks : most) * GRID_KV_BLOCK_TOKENS;
}

static void take_out(struct grid_kv *kv, uint32_t at)
{
    struct grid_kv_entry *entry = &kv->entries[at - 1];
    if (entry->newer)
        kv->entries[entry->newer - 1].older = entry->older;
    else
        kv->newest = entry->older;
    if (entry->older)
        kv->entries[entry->older - 1].newer = entry->newer;
    else
        kv->oldest = entry->newer;
}

static void put_first(struct grid_kv *kv, uint32_t at)
{
    struct grid_kv_entry *entry = &kv->entries[at - 1];
    entry->newer = 0;
    entry->older = kv->newest;
    if (kv->newest)
        kv->entries[kv->newest - 1].newer = at;
    else
        kv->oldest = at;
    kv->newest = at;
}

static void drop_oldest(struct grid_kv *kv)
{
    uint32_t at = kv->oldest;
    struct grid_kv_entry *entry = &kv->entries[at - 1];
    take_out(kv, at);
    grid_set_drop(&kv->at, entry->id);
    kv->used -= entry->blocks;
    entry->older = kv->free; /* free entries are a list, too */
    kv->free = at;
}

static bool insert(struct grid_kv *kv, uint64_t id, uint32_t blocks)
{
    bool had;
    uint32_t at = kv->free;
    if (at) {
        kv->free = kv->entries[at - 1].older;
    } else {
        if (kv->n == kv->cap) {
            uint32_t more = kv->cap ? kv->cap * 2 : 4096;
            struct grid_kv_entry *moved = realloc(kv->entries, more * sizeof *moved);
            if (!moved)
                return false;
            kv->entries = moved;
            kv->cap = more;
        }
        at = ++kv->n;
    }
    kv->entries[at - 1] = (struct grid_kv_entry){.id = id, .blocks = blocks, .held = 1};
    struct grid_set_slot *slot = grid_set_put(&kv->at, id, &had);
    if (slot)
        slot->value = at;
    kv->used += blocks;
    kv->held += blocks;
    return slot != NULL;
}

/* What the request needs beyond blocks that are held by others now. */
static uint64_t to_hold(const struct grid_kv *kv, const struct grid_trace_request *request, const uint64_t *units)
{
    uint64_t need = grid_kv_need(request);
    for (uint32_t i = 0; i < request->n_units; i++) {
        const struct grid_set_slot *slot = grid_set_find(&kv->at, units[i]);
        if (!slot)
            break;
        if (kv->entries[slot->value - 1].held)
            need -= kv->entries[slot->value - 1].blocks;
    }
    return need;
}

/* Blocks that nothing names: the answer's, and the end of the prompt. */
static uint64_t nameless(const struct grid_trace_request *request)
{
    uint64_t blocks = grid_kv_need(request);
    for (uint32_t i = 0; i < request->n_units; i++)
        blocks -= unit_blocks(request, i);
    return blocks;
}

enum grid_kv_taken grid_kv_take(struct grid_kv *kv, const struct grid_trace_request *request, const uint64_t *units)
{
    uint64_t extra = nameless(request);
    if (kv->held + to_hold(kv, request, units) > kv->blocks)
        return GRID_KV_NO_ROOM;
    bool good = true;
    for (uint32_t i = 0; good && i < request->n_units; i++) {
        uint32_t blocks = unit_blocks(request, i);
        struct grid_set_slot *slot = blocks ? grid_set_find(&kv->at, units[i]) : NULL;
        if (slot) {
            struct grid_kv_entry *entry = &kv->entries[slot->value - 1];
            if (entry->held++ == 0) {
                take_out(kv, slot->value);
                kv->held += entry->blocks;
            }
        } else if (blocks) {
            good = insert(kv, units[i], blocks);
        }
    }
    kv->used += extra;
    kv->held += extra;
    while (kv->used > kv->blocks && kv->oldest)
        drop_oldest(kv);
    return good ? GRID_KV_TAKEN : GRID_KV_NO_MEMORY;
}

void grid_kv_give(struct grid_kv *kv, const struct grid_trace_request *request, const uint64_t *units)
{
    uint64_t extra = nameless(request);
    kv->used -= extra;
    kv->held -= extra;
    for (uint32_t i = request->n_units; i-- > 0;) {
        struct grid_set_slot *slot = unit_blocks(request, i) ? grid_set_find(&kv->at, units[i]) : NULL;
        struct grid_kv_entry *entry = slot ? &kv->entries[slot->value - 1] : NULL;
        if (entry && --entry->held == 0) {
            kv->held -= entry->blocks;
            put_first(kv, slot->value);
        }
    }
}
