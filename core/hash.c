/*
 * hash.c - XXH3 with a process's secret, and the chain
 *
 * Story     A fixed secret and one multiply a block is twice as fast as seeding each block with the key before it
 *           (4 to 6 against 9 microseconds for 512 blocks), and chains just as well: key i depends on every byte
 *           before. XXH3 of one block, with all of it in AVX2 registers, is done here where the machine has them: 3.8
 *           against 6.4 microseconds for 512 blocks, and the same values (test_hash.c).
 */
#include "hash.h"

#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

_Static_assert(GRID_HASH_SECRET_BYTES >= XXH3_SECRET_SIZE_MIN, "XXH3 takes this secret");
_Static_assert(GRID_HASH_SECRET_BYTES == XXH3_SECRET_DEFAULT_SIZE, "what generateSecret_fromSeed writes");
_Static_assert(GRID_HASH_STATE_BYTES >= sizeof(XXH3_state_t), "room for the state");

void grid_hash_seed_init(struct grid_hash_seed *seed, uint64_t number)
{
    XXH3_generateSecret_fromSeed(seed->secret, number);
    for (uint64_t i = 0; i < 2; i++)
        seed->chain[i] = XXH3_64bits_withSeed(&i, sizeof i, ~number);
}

static inline uint64_t mix(const struct grid_hash_seed *seed, uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)(a ^ seed->chain[0]) * (b ^ seed->chain[1]);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t grid_hash_mix(const struct grid_hash_seed *seed, uint64_t a, uint64_t b)
{
    return mix(seed, a, b);
}

uint64_t grid_hash_text(const struct grid_hash_seed *seed, struct grid_str text)
{
    return XXH3_64bits_withSecret(text.len ? text.ptr : "", text.len, seed->secret, sizeof seed->secret);
}

static uint64_t block_hash(const struct grid_hash_seed *seed, const char *block)
{
    return XXH3_64bits_withSecret(block, GRID_BLOCK_BYTES, seed->secret, sizeof seed->secret);
}

void grid_hash_blocks_twin(const struct grid_hash_seed *seed, const char *blocks, size_t n, uint64_t *chain,
                           uint64_t *keys)
{
    uint64_t last = *chain;
    for (size_t i = 0; i < n; i++)
        keys[i] = last = mix(seed, block_hash(seed, blocks + i * GRID_BLOCK_BYTES), last);
    *chain = last;
}

#ifdef __SSE2__
#define AVX2 __attribute__((target("avx2")))
#define STRIPES ((size_t)4) /* of 64 bytes in a block */
#define LAST_STRIPE 121u    /* where XXH3 takes the last stripe's secret: 192 - 64 - 7 */
#define MERGE_SECRET 11u

_Static_assert(GRID_BLOCK_BYTES == 64 * STRIPES && GRID_HASH_SECRET_BYTES == LAST_STRIPE + 64 + 7, "XXH3 of one block");

AVX2 static inline __m256i load_wide(const void *from)
{
    return _mm256_loadu_si256(from);
}

/* One step of XXH3 on four of its eight sums. */
AVX2 static inline __m256i accumulate(__m256i sums, const char *data, const unsigned char *secret)
{
    __m256i bytes = load_wide(data), keyed = _mm256_xor_si256(bytes, load_wide(secret));
    __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
    return _mm256_add_epi64(_mm256_add_epi64(sums, _mm256_shuffle_epi32(bytes, _MM_SHUFFLE(1, 0, 3, 2))), product);
}

/* block_hash with the sums in two registers. */
AVX2 static inline uint64_t block_hash_wide(const struct grid_hash_seed *seed, const char *block)
{
    static const uint64_t begin[8] = XXH3_INIT_ACC;
    const unsigned char *secret = seed->secret;
    uint64_t sums[8];
    __m256i low = load_wide(begin), high = load_wide(begin + 4);
    for (size_t i = 0; i + 1 < STRIPES; i++) {
        low = accumulate(low, block + 64 * i, secret + 8 * i);
        high = accumulate(high, block + 64 * i + 32, secret + 8 * i + 32);
    }
    low = accumulate(low, block + 64 * (STRIPES - 1), secret + LAST_STRIPE);
    high = accumulate(high, block + 64 * (STRIPES - 1) + 32, secret + LAST_STRIPE + 32);
    _mm256_storeu_si256((__m256i *)(void *)sums, low);
    _mm256_storeu_si256((__m256i *)(void *)(sums + 4), high);
    return XXH3_mergeAccs(sums, secret + MERGE_SECRET, GRID_BLOCK_BYTES * XXH_PRIME64_1);
}

AVX2 static void blocks_wide(const struct grid_hash_seed *seed, const char *blocks, size_t n, uint64_t *chain,
                             uint64_t *keys)
{
    uint64_t last = *chain;
    for (size_t i = 0; i < n; i++)
        keys[i] = last = mix(seed, block_hash_wide(seed, blocks + i * GRID_BLOCK_BYTES), last);
    *chain = last;
}
#endif

void grid_hash_blocks(const struct grid_hash_seed *seed, const char *blocks, size_t n, uint64_t *chain, uint64_t *keys)
{
#ifdef __SSE2__
    if (__builtin_cpu_supports("avx2")) {
        blocks_wide(seed, blocks, n, chain, keys);
        return;
    }
#endif
    grid_hash_blocks_twin(seed, blocks, n, chain, keys);
}

void grid_hash_stream_init(struct grid_hash_stream *stream, const struct grid_hash_seed *seed)
{
    XXH3_INITSTATE((XXH3_state_t *)(void *)stream->state);
    XXH3_64bits_reset_withSecret((XXH3_state_t *)(void *)stream->state, seed->secret, sizeof seed->secret);
}

void grid_hash_stream_feed(struct grid_hash_stream *stream, struct grid_str piece)
{
    if (piece.len)
        XXH3_64bits_update((XXH3_state_t *)(void *)stream->state, piece.ptr, piece.len);
}

uint64_t grid_hash_stream_end(const struct grid_hash_stream *stream)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)stream->state);
}
