/*
 * cache.c - the prefix cache of the simulated engine
 *
 * Story     A block is known by its chained hash alone, so holding it means holding all that comes before it. Entries
 *           lie in one array; a chained hash table finds them, a doubly linked list orders them by use.
 * Promise   Match and insert cost O(1) a block. Memory is taken once; at capacity the least recently used block goes.
 * Not here  When a block becomes usable (queue.c: once its prefill finished), what a block's hash covers (apis.c).
 */
#include "sim.h"

#include <string.h>

static const uint32_t NONE = UINT32_MAX;

struct entry {
    uint64_t hash;
    uint32_t next_in_bucket;
    uint32_t newer;
    uint32_t older;
};

struct grid_sim_cache {
    struct entry *entries;
    uint32_t *buckets;
    size_t bucket_mask;
    size_t capacity;
    size_t count;
    uint32_t newest;
    uint32_t oldest;
};

struct grid_sim_cache *grid_sim_cache_new(size_t capacity)
{
    struct grid_sim_cache *cache = grid_sim_alloc(1, sizeof *cache);
    size_t buckets = 1;
    while (buckets < capacity)
        buckets *= 2;
    cache->capacity = capacity;
    cache->bucket_mask = buckets - 1;
    cache->entries = grid_sim_alloc(capacity, sizeof *cache->entries);
    cache->buckets = grid_sim_alloc(buckets, sizeof *cache->buckets);
    grid_sim_cache_clear(cache);
    return cache;
}

void grid_sim_cache_free(struct grid_sim_cache *cache)
{
    if (!cache)
        return;
    free(cache->entries);
    free(cache->buckets);
    free(cache);
}

void grid_sim_cache_clear(struct grid_sim_cache *cache)
{
    memset(cache->buckets, 0xff, (cache->bucket_mask + 1) * sizeof *cache->buckets);
    cache->count = 0;
    cache->newest = NONE;
    cache->oldest = NONE;
}

size_t grid_sim_cache_count(const struct grid_sim_cache *cache)
{
    return cache->count;
}

static uint32_t *bucket_of(struct grid_sim_cache *cache, uint64_t hash)
{
    return &cache->buckets[hash & cache->bucket_mask];
}

static uint32_t find(struct grid_sim_cache *cache, uint64_t hash)
{
    uint32_t at = *bucket_of(cache, hash);
    while (at != NONE && cache->entries[at].hash != hash)
        at = cache->entries[at].next_in_bucket;
    return at;
}

static void unlink_use(struct grid_sim_cache *cache, uint32_t at)
{
    struct entry *entry = &cache->entries[at];
    if (entry->newer != NONE)
        cache->entries[entry->newer].older = entry->older;
    else
        cache->newest = entry->older;
    if (entry->older != NONE)
        cache->entries[entry->older].newer = entry->newer;
    else
        cache->oldest = entry->newer;
}

static void link_newest(struct grid_sim_cache *cache, uint32_t at)
{
    struct entry *entry = &cache->entries[at];
    entry->newer = NONE;
    entry->older = cache->newest;
    if (cache->newest != NONE)
        cache->entries[cache->newest].newer = at;
    else
        cache->oldest = at;
    cache->newest = at;
}

static void unlink_bucket(struct grid_sim_cache *cache, uint32_t at)
{
    uint32_t *slot = bucket_of(cache, cache->entries[at].hash);
    while (*slot != at)
        slot = &cache->entries[*slot].next_in_bucket;
    *slot = cache->entries[at].next_in_bucket;
}

/* An entry that may be written: an unused one, or the least recently used. */
static uint32_t take(struct grid_sim_cache *cache)
{
    if (cache->count < cache->capacity)
        return (uint32_t)cache->count++;
    uint32_t at = cache->oldest;
    unlink_bucket(cache, at);
    unlink_use(cache, at);
    return at;
}

size_t grid_sim_cache_match(struct grid_sim_cache *cache, const uint64_t *blocks, size_t count)
{
    size_t held = 0;
    while (held < count && find(cache, blocks[held]) != NONE)
        held++;
    /* From the end, so that the start of a prompt, which more prompts share, is the last to be evicted. */
    for (size_t i = held; i-- > 0;) {
        uint32_t at = find(cache, blocks[i]);
        unlink_use(cache, at);
        link_newest(cache, at);
    }
    return held;
}

void grid_sim_cache_insert(struct grid_sim_cache *cache, const uint64_t *blocks, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        uint32_t at = find(cache, blocks[i]);
        if (at != NONE) {
            unlink_use(cache, at);
        } else {
            at = take(cache);
            uint32_t *bucket = bucket_of(cache, blocks[i]);
            cache->entries[at].hash = blocks[i];
            cache->entries[at].next_in_bucket = *bucket;
            *bucket = at;
        }
        link_newest(cache, at);
    }
}
