/*
 * test_tag.c - marks and macs against values that another program computed, and scans of every shape in every cut
 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failing_alloc.h"
#include "tag.h"

/* Computed apart, with the hashlib and hmac of Python. */
#define MARK_A "8934303d"
#define MARK_B "574c3c50"
#define MAC_1 "422e01c07d2da006" /* east, pool-a, the first key */
#define MAC_2 "acb679414fab11a1"
#define MAC_3 "8dcb3d436cb0c31f"
#define SITE_63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static char key_bytes[3][200];
static struct grid_str keys[3];
static struct failing_alloc memory;
static struct grid_tag_ring *bare, *first, *rotated; /* no key; the first; the second before the first */

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof key_bytes[0]; i++) {
        key_bytes[0][i] = (char)i;
        key_bytes[1][i] = (char)0xa7;
        key_bytes[2][i] = (char)(i * 7);
    }
    keys[0] = (struct grid_str){key_bytes[0], 32};
    keys[1] = (struct grid_str){key_bytes[1], 64};
    keys[2] = (struct grid_str){key_bytes[2], 200};
    failing_alloc_init(&memory);
    bare = grid_tag_ring_new(&memory.alloc, NULL, 0);
    first = grid_tag_ring_new(&memory.alloc, keys, 1);
    rotated = grid_tag_ring_new(&memory.alloc, (struct grid_str[]){keys[1], keys[0]}, 2);
    return bare && first && rotated ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    grid_tag_ring_unref(bare);
    grid_tag_ring_unref(first);
    grid_tag_ring_unref(rotated);
    grid_tag_ring_unref(NULL);
    return atomic_load(&memory.out) == 0 ? 0 : -1;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static void expect_mark(const char *cluster, const char *want)
{
    char mark[GRID_TAG_MARK_BYTES];
    grid_tag_mark(grid_str_of(cluster), mark);
    assert_memory_equal(mark, want, sizeof mark);
}

static void test_marks(void **state)
{
    (void)state;
    char longest[257];
    memset(longest, 'a', 256);
    longest[256] = '\0';
    expect_mark("pool-a", MARK_A);
    expect_mark("pool-b", MARK_B);
    expect_mark("Pool A/\xc3\xbc", "c2e9d936");
    expect_mark(longest, "02d7160d");
    expect_mark("pool-13038", "6e8e0755");
    expect_mark("pool-20737", "6e8e0755");
}

static void expect_tag(const struct grid_tag_ring *ring, const char *site, const char *cluster, const char *want)
{
    char mark[GRID_TAG_MARK_BYTES], tag[GRID_TAG_BYTES];
    grid_tag_mark(grid_str_of(cluster), mark);
    size_t len = grid_tag_make(ring, grid_str_of(site), mark, tag);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(tag, want, len);
}

static void test_tags(void **state)
{
    (void)state;
    expect_tag(bare, "east", "pool-a", "east." MARK_A "..");
    expect_tag(first, "east", "pool-a", "east." MARK_A "." MAC_1 ".");
    expect_tag(rotated, "east", "pool-a", "east." MARK_A "." MAC_2 ".");
    expect_tag(first, "x", "pool-b", "x." MARK_B ".681ce4c022ab4049.");
    expect_tag(first, SITE_63, "pool-b", SITE_63 "." MARK_B ".66c02e0896e4e4bd.");
    expect_tag(first, "east", "Pool A/\xc3\xbc", "east.c2e9d936.d66cdb5f28c37d5c.");
    struct grid_tag_ring *third = grid_tag_ring_new(&memory.alloc, &keys[2], 1); /* a key longer than a block */
    expect_tag(third, "east", "pool-a", "east." MARK_A "." MAC_3 ".");
    grid_tag_ring_unref(third);
}

/* ---- scanning ---------------------------------------------------------------------------------------------------- */

static const struct shape {
    const char *text;
    enum grid_tag_state state;
    size_t taken; /* 0: all of it */
} shapes[] = {
    {"", GRID_TAG_PREFIX, 0},
    {"r", GRID_TAG_PREFIX, 0},
    {"resp", GRID_TAG_PREFIX, 0},
    {"resp_", GRID_TAG_SITE, 0},
    {"conv_e", GRID_TAG_SITE, 0},
    {"resp_east.", GRID_TAG_MARK, 0},
    {"resp_east.8934303", GRID_TAG_MARK, 0},
    {"resp_east.8934303d", GRID_TAG_MARK, 0},
    {"resp_east.8934303d.", GRID_TAG_MAC, 0},
    {"resp_east.8934303d.422e", GRID_TAG_MAC, 0},
    {"resp_east.8934303d..", GRID_TAG_SHAPED, 0},
    {"resp_east.8934303d..abc", GRID_TAG_SHAPED, 20},
    {"resp_east.8934303d..a.b.c", GRID_TAG_SHAPED, 20},
    {"conv_east.8934303D.anything at all.abc", GRID_TAG_SHAPED, 35},
    {"resp_ea st\"/.8934303d..x", GRID_TAG_SHAPED, 23},
    {"resp_" SITE_63 "aa.8934303d..x", GRID_TAG_SHAPED, 81},
    {"xesp_", GRID_TAG_NONE, 1},
    {"Resp_east", GRID_TAG_NONE, 1},
    {"rconv_", GRID_TAG_NONE, 2},
    {"conv-east.8934303d..abc", GRID_TAG_NONE, 5},
    {"respx", GRID_TAG_NONE, 0},
    {"resp_.8934303d..abc", GRID_TAG_NONE, 6},
    {"resp_east..8934303d.abc", GRID_TAG_NONE, 11},
    {"resp_east.8934303..abc", GRID_TAG_NONE, 18},
    {"resp_east.8934303d0..abc", GRID_TAG_NONE, 19},
    {"resp_east.zz34303d..abc", GRID_TAG_NONE, 11},
    {"msg_abc", GRID_TAG_NONE, 1},
};

static void feed(struct grid_tag_scan *scan, const char *text, size_t len, size_t cut, size_t second, size_t *taken)
{
    *taken = grid_tag_scan_feed(scan, text, cut);
    if (*taken == cut)
        *taken += grid_tag_scan_feed(scan, text + cut, second - cut);
    if (*taken == second)
        *taken += grid_tag_scan_feed(scan, text + second, len - second);
}

static void test_every_shape_in_every_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(shapes); i++) {
        size_t len = strlen(shapes[i].text), want = shapes[i].taken ? shapes[i].taken : len, taken;
        struct grid_tag_scan whole = {.state = GRID_TAG_PREFIX};
        feed(&whole, shapes[i].text, len, 0, 0, &taken);
        if (whole.state != shapes[i].state || taken != want)
            fail_msg("%s: state %d, %zu bytes", shapes[i].text, (int)whole.state, taken);
        for (size_t a = 0; a <= len; a++)
            for (size_t b = a; b <= len; b++) {
                struct grid_tag_scan scan = {.state = GRID_TAG_PREFIX};
                feed(&scan, shapes[i].text, len, a, b, &taken);
                assert_int_equal(taken, want);
                assert_memory_equal(&scan, &whole, sizeof scan);
            }
    }
}

static void test_what_a_scan_keeps(void **state)
{
    (void)state;
    struct grid_tag_scan scan = {.state = GRID_TAG_PREFIX};
    const char text[] = "conv_east.8934303D.422e01c07d2da006.abc";
    (void)grid_tag_scan_feed(&scan, text, strlen(text));
    assert_memory_equal(scan.prefix, "conv_", 5);
    assert_int_equal(scan.site_len, 4);
    assert_memory_equal(scan.site, "east", 4);
    assert_memory_equal(scan.mark, "8934303D", 8);
    assert_int_equal(scan.mac_len, 16);
    assert_memory_equal(scan.mac, MAC_1, 16);
    assert_int_equal(grid_tag_scan_feed(&scan, "more", 4), 0);
}

/* A NUL, and parts of a MiB: counted, not kept. */
static void test_long_parts_cost_nothing(void **state)
{
    (void)state;
    size_t size = 1 << 20;
    char *text = malloc(size);
    struct grid_tag_scan site = {.state = GRID_TAG_PREFIX}, mac = {.state = GRID_TAG_PREFIX};
    memset(text, 'a', size);
    text[7] = '\0';
    (void)grid_tag_scan_feed(&site, "resp_", 5);
    for (size_t at = 0; at < size; at += 1000)
        (void)grid_tag_scan_feed(&site, text + at, at + 1000 < size ? 1000 : size - at);
    assert_int_equal(site.state, GRID_TAG_SITE);
    assert_int_equal(site.site_len, size);
    (void)grid_tag_scan_feed(&site, ".8934303d..", 11);
    assert_int_equal(site.state, GRID_TAG_SHAPED);
    assert_false(grid_tag_genuine(bare, &site));
    assert_false(grid_tag_genuine(first, &site));
    (void)grid_tag_scan_feed(&mac, "resp_east.8934303d.", 19);
    (void)grid_tag_scan_feed(&mac, text, size);
    (void)grid_tag_scan_feed(&mac, ".", 1);
    assert_int_equal(mac.state, GRID_TAG_SHAPED);
    assert_int_equal(mac.mac_len, size);
    assert_false(grid_tag_genuine(bare, &mac));
    assert_false(grid_tag_genuine(first, &mac));
    free(text);
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

static bool genuine(const struct grid_tag_ring *ring, const char *text)
{
    struct grid_tag_scan scan = {.state = GRID_TAG_PREFIX};
    (void)grid_tag_scan_feed(&scan, text, strlen(text));
    return grid_tag_genuine(ring, &scan);
}

static void test_only_the_right_mac_is_genuine(void **state)
{
    (void)state;
    assert_true(genuine(first, "resp_east." MARK_A "." MAC_1 ".abc"));
    assert_true(genuine(first, "conv_east." MARK_A "." MAC_1 ".z"));
    assert_false(genuine(first, "resp_east." MARK_A "." MAC_2 ".abc"));        /* another key */
    assert_false(genuine(first, "resp_east." MARK_A "..abc"));                 /* none */
    assert_false(genuine(first, "resp_east." MARK_A ".422E01C07D2DA006.abc")); /* upper case */
    assert_false(genuine(first, "resp_east." MARK_A ".422e01c07d2da00.abc"));  /* cut off */
    assert_false(genuine(first, "resp_east." MARK_A "." MAC_1 "0.abc"));       /* one more */
    assert_false(genuine(first, "resp_west." MARK_A "." MAC_1 ".abc"));        /* another site */
    assert_false(genuine(first, "resp_east." MARK_B "." MAC_1 ".abc"));        /* another cluster */
    assert_false(genuine(first, "resp_east.8934303D." MAC_1 ".abc"));          /* the mark is signed as sent */
    assert_false(genuine(first, "resp_x." MARK_A ".681ce4c022ab4049.abc"));    /* that of x and pool-b */
    assert_false(genuine(first, "resp_east." MARK_A "." MAC_1));               /* no third dot */
    assert_false(genuine(first, "resp_abc"));
}

static void test_every_digit_of_a_mac_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < GRID_TAG_MAC_BYTES; i++)
        for (const char *digit = "0123456789abcdef"; *digit; digit++) {
            char text[] = "resp_east." MARK_A "." MAC_1 ".abc";
            bool same = text[19 + i] == *digit;
            text[19 + i] = *digit;
            assert_true(genuine(first, text) == same);
        }
}

static void test_the_first_key_signs_and_all_verify(void **state)
{
    (void)state;
    struct grid_str eight[GRID_TAG_MAX_KEYS];
    assert_true(genuine(rotated, "resp_east." MARK_A "." MAC_1 ".abc"));
    assert_true(genuine(rotated, "resp_east." MARK_A "." MAC_2 ".abc"));
    assert_false(genuine(rotated, "resp_east." MARK_A "." MAC_3 ".abc"));
    for (size_t i = 0; i < COUNT(eight); i++)
        eight[i] = (struct grid_str){key_bytes[2] + i, 40};
    eight[7] = keys[0];
    struct grid_tag_ring *ring = grid_tag_ring_new(&memory.alloc, eight, COUNT(eight));
    assert_true(genuine(ring, "resp_east." MARK_A "." MAC_1 ".abc"));
    assert_false(genuine(ring, "resp_east." MARK_A "." MAC_2 ".abc"));
    grid_tag_ring_unref(ring);
}

static void test_without_keys_a_mac_is_empty_or_16_hex_digits(void **state)
{
    (void)state;
    assert_true(genuine(bare, "resp_east." MARK_A "..abc"));
    assert_true(genuine(bare, "resp_east." MARK_A ".0123456789abcdef.abc"));
    assert_true(genuine(bare, "resp_east." MARK_A ".0123456789ABCDEF.abc"));
    assert_false(genuine(bare, "resp_east." MARK_A ".0123456789abcde.abc"));
    assert_false(genuine(bare, "resp_east." MARK_A ".0123456789abcdef0.abc"));
    assert_false(genuine(bare, "resp_east." MARK_A ".0123456789abcdeg.abc"));
    assert_false(genuine(bare, "resp_east." MARK_A "."));
}

/* ---- rings ------------------------------------------------------------------------------------------------------- */

static void test_a_ring_knows_its_keys_again(void **state)
{
    (void)state;
    struct grid_str swapped[] = {keys[0], keys[1]};
    assert_false(grid_tag_ring_keyed(bare));
    assert_true(grid_tag_ring_keyed(first));
    assert_true(grid_tag_ring_same(bare, NULL, 0));
    assert_true(grid_tag_ring_same(first, keys, 1));
    assert_false(grid_tag_ring_same(first, &keys[1], 1));
    assert_false(grid_tag_ring_same(first, keys, 2));
    assert_false(grid_tag_ring_same(first, NULL, 0));
    assert_false(grid_tag_ring_same(rotated, swapped, 2));
    key_bytes[0][31] ^= 1;
    assert_false(grid_tag_ring_same(first, keys, 1));
    key_bytes[0][31] ^= 1;
}

/* Neither the key nor the key under one of the pads of HMAC is anywhere in the ring, and nothing of it is left when it
 * is given back. */
static void *watched;
static size_t watched_bytes;
static void *watch_take(void *ctx, size_t size)
{
    (void)ctx;
    watched_bytes = size;
    return watched = malloc(size);
}

static void watch_give(void *ctx, void *ptr)
{
    (void)ctx;
    (void)ptr; /* looked at first, freed by the test */
}

static bool holds(const char *bytes, size_t n, unsigned pad)
{
    const char *at = watched;
    for (size_t i = 0; i + n <= watched_bytes; i++) {
        size_t k = 0;
        while (k < n && (at[i + k] ^ (char)pad) == bytes[k])
            k++;
        if (k == n)
            return true;
    }
    return false;
}

static void test_a_ring_keeps_no_key_and_leaves_nothing(void **state)
{
    (void)state;
    static const struct grid_alloc watching = {.take = watch_take, .give = watch_give};
    static const unsigned pads[] = {0, 0x36, 0x5c};
    static char zeros[400];
    struct grid_tag_ring *ring = grid_tag_ring_new(&watching, keys, 2);
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < COUNT(pads); k++)
            assert_false(holds(keys[i].ptr, keys[i].len, pads[k]));
    assert_true(watched_bytes > sizeof zeros);
    assert_false(holds(zeros, sizeof zeros, 0));
    grid_tag_ring_unref(ring);
    assert_true(holds(zeros, sizeof zeros, 0));
    free(watched);
}

static void test_no_memory(void **state)
{
    (void)state;
    failing_alloc_arm(&memory, 0, false);
    assert_null(grid_tag_ring_new(&memory.alloc, keys, 1));
    failing_alloc_disarm(&memory);
}

static void test_a_ring_lives_until_the_last_lets_go(void **state)
{
    (void)state;
    long long before = atomic_load(&memory.out);
    struct grid_tag_ring *ring = grid_tag_ring_new(&memory.alloc, keys, 1);
    assert_ptr_equal(grid_tag_ring_ref(ring), ring);
    grid_tag_ring_unref(ring);
    assert_true(grid_tag_ring_same(ring, keys, 1));
    grid_tag_ring_unref(ring);
    assert_int_equal(atomic_load(&memory.out), before);
    assert_null(grid_tag_ring_ref(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_every_shape_in_every_cut),
        cmocka_unit_test(test_what_a_scan_keeps),
        cmocka_unit_test(test_long_parts_cost_nothing),
        cmocka_unit_test(test_only_the_right_mac_is_genuine),
        cmocka_unit_test(test_every_digit_of_a_mac_counts),
        cmocka_unit_test(test_the_first_key_signs_and_all_verify),
        cmocka_unit_test(test_without_keys_a_mac_is_empty_or_16_hex_digits),
        cmocka_unit_test(test_a_ring_knows_its_keys_again),
        cmocka_unit_test(test_a_ring_keeps_no_key_and_leaves_nothing),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_a_ring_lives_until_the_last_lets_go),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
