/*
 * hash.h - the hash under every key
 *
 * Story     keys.c chains 256-byte blocks of a prompt into keys; media and long values enter the prompt as digests.
 *           All of it is XXH3 under a secret of this process, so nobody outside can aim at a collision.
 * Promise   Same seed, same bytes, same values, however the bytes are cut. Nothing here allocates.
 * Not here  What is hashed (prompt.h), in which order (keys.h). No other file includes xxHash.
 */
#ifndef GRID_HASH_H
#define GRID_HASH_H

#include "grid/grid.h"

#define GRID_HASH_SECRET_BYTES 192u
#define GRID_HASH_STATE_BYTES 640u

/* A process's secret. Immutable once made; any number of threads may read it. */
struct grid_hash_seed {
    _Alignas(64) unsigned char secret[GRID_HASH_SECRET_BYTES];
    uint64_t chain[2]; /* whitens both sides of the chain's multiply */
};

void grid_hash_seed_init(struct grid_hash_seed *seed, uint64_t number);

/* Two values into one; the order matters. */
uint64_t grid_hash_mix(const struct grid_hash_seed *seed, uint64_t a, uint64_t b);

/* A short text, such as a model's name. */
uint64_t grid_hash_text(const struct grid_hash_seed *seed, struct grid_str text);

/* n whole blocks behind one another, chained from *chain, which moves on: keys[i] is the chain behind block i. */
void grid_hash_blocks(const struct grid_hash_seed *seed, const char *blocks, size_t n, uint64_t *chain, uint64_t *keys);
/* The same on any machine, for tests. */
void grid_hash_blocks_twin(const struct grid_hash_seed *seed, const char *blocks, size_t n, uint64_t *chain,
                           uint64_t *keys);

/* A digest of text that comes in pieces. */
struct grid_hash_stream {
    _Alignas(64) unsigned char state[GRID_HASH_STATE_BYTES];
};
void grid_hash_stream_init(struct grid_hash_stream *stream, const struct grid_hash_seed *seed);
void grid_hash_stream_feed(struct grid_hash_stream *stream, struct grid_str piece);
uint64_t grid_hash_stream_end(const struct grid_hash_stream *stream);

#endif
