/*
 * test_hash.c - the chain depends on every byte before, on the seed, and on nothing else
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "core/hash.h"

static void seeds_differ(void **state)
{
    (void)state;
    struct grid_hash_seed a, b, c;
    char block[GRID_BLOCK_BYTES] = {0};
    uint64_t key_a, key_b, key_c, chain_a = 0, chain_b = 0, chain_c = 0;
    grid_hash_seed_init(&a, 1);
    grid_hash_seed_init(&b, 2);
    grid_hash_seed_init(&c, 1);
    grid_hash_blocks(&a, block, 1, &chain_a, &key_a);
    grid_hash_blocks(&b, block, 1, &chain_b, &key_b);
    grid_hash_blocks(&c, block, 1, &chain_c, &key_c);
    assert_true(key_a != key_b);
    assert_true(key_a == key_c);
}

static void blocks_together_or_apart(void **state)
{
    (void)state;
    struct grid_hash_seed seed;
    char blocks[8 * GRID_BLOCK_BYTES];
    uint64_t together[8], apart[8], chain = 7, chain_apart = 7;
    grid_hash_seed_init(&seed, 3);
    for (size_t i = 0; i < sizeof blocks; i++)
        blocks[i] = (char)(i * 31);
    grid_hash_blocks(&seed, blocks, 8, &chain, together);
    for (size_t i = 0; i < 8; i++)
        grid_hash_blocks(&seed, blocks + i * GRID_BLOCK_BYTES, 1, &chain_apart, &apart[i]);
    assert_memory_equal(together, apart, sizeof together);
    assert_true(chain == chain_apart && chain == together[7]);
}

/* Whatever vectors this machine has: the values are those of the library. */
static void vectors_give_the_same(void **state)
{
    (void)state;
    struct grid_hash_seed seed;
    char room[9 * GRID_BLOCK_BYTES];
    uint64_t keys[8], twin_keys[8];
    for (uint64_t number = 0; number < 50; number++) {
        uint64_t chain = number, twin_chain = number;
        const char *blocks = room + number; /* at any alignment */
        grid_hash_seed_init(&seed, number);
        for (size_t i = 0; i < sizeof room; i++)
            room[i] = (char)((i + number) * (i + 77) >> 3);
        grid_hash_blocks(&seed, blocks, 8, &chain, keys);
        grid_hash_blocks_twin(&seed, blocks, 8, &twin_chain, twin_keys);
        assert_memory_equal(keys, twin_keys, sizeof keys);
        assert_true(chain == twin_chain);
    }
}

static void each_byte_reaches_all_later_keys(void **state)
{
    (void)state;
    struct grid_hash_seed seed;
    char blocks[3 * GRID_BLOCK_BYTES];
    uint64_t before[3], after[3];
    grid_hash_seed_init(&seed, 4);
    memset(blocks, 'a', sizeof blocks);
    uint64_t chain = 0;
    grid_hash_blocks(&seed, blocks, 3, &chain, before);
    for (size_t i = 0; i < sizeof blocks; i++) {
        blocks[i] ^= 1;
        chain = 0;
        grid_hash_blocks(&seed, blocks, 3, &chain, after);
        for (size_t key = 0; key < 3; key++)
            assert_int_equal(before[key] == after[key], key < i / GRID_BLOCK_BYTES);
        blocks[i] ^= 1;
    }
}

static void stream_in_any_pieces(void **state)
{
    (void)state;
    struct grid_hash_seed seed;
    struct grid_hash_stream stream;
    char text[1500];
    grid_hash_seed_init(&seed, 5);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7);
    for (size_t len = 0; len <= sizeof text; len += 250) {
        uint64_t whole = grid_hash_text(&seed, (struct grid_str){text, len});
        for (size_t piece = 1; piece < 300; piece += 37) {
            grid_hash_stream_init(&stream, &seed);
            for (size_t at = 0; at < len; at += piece)
                grid_hash_stream_feed(&stream, (struct grid_str){text + at, len - at < piece ? len - at : piece});
            assert_true(grid_hash_stream_end(&stream) == whole);
        }
    }
}

static void mix_knows_its_sides(void **state)
{
    (void)state;
    struct grid_hash_seed seed;
    grid_hash_seed_init(&seed, 6);
    assert_true(grid_hash_mix(&seed, 1, 2) != grid_hash_mix(&seed, 2, 1));
    assert_true(grid_hash_mix(&seed, 0, 0) != grid_hash_mix(&seed, 0, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_differ),          cmocka_unit_test(blocks_together_or_apart),
        cmocka_unit_test(vectors_give_the_same), cmocka_unit_test(each_byte_reaches_all_later_keys),
        cmocka_unit_test(stream_in_any_pieces),  cmocka_unit_test(mix_knows_its_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
