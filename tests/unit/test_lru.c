/*
 * test_lru.c - the table of prompt blocks: examples of behaviour.md D, and random play against a plain list
 */
#include "unit.h"

#include "dice.h"
#include "naive_lru.h"

/* Included, to compare the order of recency and every field, which no verb shows. */
#include "lru.c"

#define FOR_EVER UINT64_MAX

/* n keys of one prompt: prompts of different names share none. */
static const uint64_t *keys_of(uint64_t prompt, size_t n)
{
    static uint64_t keys[4][20000];
    static unsigned next;
    uint64_t *room = keys[next++ % 4];
    for (size_t i = 0; i < n; i++)
        room[i] = prompt * 1000000 + i + 1;
    return room;
}

static void confirm(struct grid_lru *lru, uint64_t prompt, size_t n, uint64_t deadline_ms)
{
    grid_lru_confirm(lru, keys_of(prompt, n), n, deadline_ms);
}

static uint32_t run(const struct grid_lru *lru, uint64_t prompt, size_t n, uint64_t now_ms)
{
    return grid_lru_run(lru, keys_of(prompt, n), n, now_ms);
}

static struct grid_lru *new_lru(uint32_t capacity)
{
    struct grid_lru *lru = grid_lru_new(NULL, capacity);
    assert_non_null(lru);
    assert_int_equal(grid_lru_entries(lru), 0);
    assert_int_equal(grid_lru_capacity(lru), capacity);
    return lru;
}

static void test_a_mark_does_not_count(void **state)
{
    (void)state;
    struct grid_lru *lru = new_lru(16);
    grid_lru_pend(lru, keys_of(1, 5), 5, 0, 30000);
    assert_int_equal(grid_lru_entries(lru), 5);
    assert_int_equal(run(lru, 1, 5, 1), 0);
    confirm(lru, 1, 5, 600000);
    assert_int_equal(run(lru, 1, 5, 1), 5);
    grid_lru_free(lru);
    grid_lru_free(NULL);
}

static void test_at_the_deadline_it_no_longer_counts(void **state)
{
    (void)state;
    struct grid_lru *lru = new_lru(16);
    confirm(lru, 1, 3, 1000);
    assert_int_equal(run(lru, 1, 3, 999), 3);
    assert_int_equal(run(lru, 1, 3, 1000), 0);
    assert_int_equal(run(lru, 1, 3, 1001), 0);
    confirm(lru, 1, 3, 2000); /* each success renews it in full */
    assert_int_equal(run(lru, 1, 3, 1999), 3);
    grid_lru_free(lru);
}

/* D.2: a prompt of the whole capacity, then one of 10 keys: the first keeps all but its last 10. */
static void test_eviction_eats_from_the_tail(void **state)
{
    (void)state;
    struct grid_lru *lru = new_lru(16384);
    confirm(lru, 1, 16384, FOR_EVER);
    assert_int_equal(run(lru, 1, 16384, 0), 16384);
    confirm(lru, 2, 10, FOR_EVER);
    assert_int_equal(run(lru, 1, 16384, 0), 16374);
    assert_int_equal(run(lru, 2, 10, 0), 10);
    assert_int_equal(grid_lru_entries(lru), 16384);
    grid_lru_free(lru);
}

/* D.4 */
static void test_shrinking(void **state)
{
    (void)state;
    struct grid_lru *lru = new_lru(10), *small = new_lru(6), *large = new_lru(12);
    confirm(lru, 1, 5, FOR_EVER);
    confirm(lru, 2, 5, FOR_EVER);
    grid_lru_move(small, lru);
    assert_int_equal(grid_lru_entries(small), 6);
    assert_int_equal(run(small, 1, 5, 0), 1);
    assert_int_equal(run(small, 2, 5, 0), 5);
    grid_lru_move(large, small);
    assert_int_equal(grid_lru_entries(large), 6);
    assert_int_equal(run(large, 1, 5, 0), 1);
    confirm(large, 3, 6, FOR_EVER); /* room for all */
    assert_int_equal(run(large, 1, 5, 0), 1);
    assert_int_equal(run(large, 3, 6, 0), 6);
    confirm(large, 4, 1, FOR_EVER); /* the least recent is the tail of 1 */
    assert_int_equal(run(large, 1, 5, 0), 0);
    assert_int_equal(run(large, 2, 5, 0), 5);
    grid_lru_free(lru);
    grid_lru_free(small);
    grid_lru_free(large);
}

static void test_a_look_changes_nothing(void **state)
{
    (void)state;
    struct grid_lru *lru = new_lru(4);
    confirm(lru, 1, 2, 1000);
    confirm(lru, 2, 2, 1000);
    for (int i = 0; i < 5; i++)
        assert_int_equal(run(lru, 1, 2, 500), 2);
    confirm(lru, 3, 2, 1000); /* 1 is still the least recent */
    assert_int_equal(run(lru, 1, 2, 500), 0);
    assert_int_equal(run(lru, 2, 2, 500), 2);
    assert_int_equal(run(lru, 2, 2, 1000), 0);
    grid_lru_free(lru);
}

static void test_a_run_ends_at_the_first_hole(void **state)
{
    (void)state;
    struct grid_lru *lru = new_lru(16);
    confirm(lru, 1, 8, FOR_EVER);
    assert_int_equal(grid_lru_drop(lru, keys_of(1, 8) + 3, 1), 1);
    assert_int_equal(run(lru, 1, 8, 0), 3);
    assert_int_equal(grid_lru_entries(lru), 7);
    assert_int_equal(run(lru, 1, 0, 0), 0);
    grid_lru_free(lru);
}

static void test_capacity_of_one(void **state)
{
    (void)state;
    struct grid_lru *lru = new_lru(1);
    confirm(lru, 1, 5, FOR_EVER);
    assert_int_equal(grid_lru_entries(lru), 1);
    assert_int_equal(run(lru, 1, 5, 0), 1); /* written tail first: the head is what is left */
    grid_lru_pend(lru, keys_of(2, 3), 3, 0, 30000);
    assert_int_equal(grid_lru_entries(lru), 1);
    assert_int_equal(run(lru, 1, 5, 0), 0);
    grid_lru_withdraw(lru, keys_of(2, 3), 3);
    assert_int_equal(grid_lru_entries(lru), 0);
    assert_int_equal(grid_lru_drop(lru, keys_of(2, 3), 3), 0);
    grid_lru_free(lru);
}

static void test_withdraw_leaves_what_is_confirmed_or_waited_for(void **state)
{
    (void)state;
    struct grid_lru *lru = new_lru(16);
    grid_lru_pend(lru, keys_of(1, 2), 2, 0, 30000);
    grid_lru_pend(lru, keys_of(1, 2), 2, 0, 30000);
    grid_lru_withdraw(lru, keys_of(1, 2), 2);
    assert_int_equal(grid_lru_entries(lru), 2);
    grid_lru_withdraw(lru, keys_of(1, 2), 2);
    assert_int_equal(grid_lru_entries(lru), 0);

    confirm(lru, 2, 2, 1000);
    grid_lru_pend(lru, keys_of(2, 2), 2, 0, 30000);
    for (int i = 0; i < 3; i++)
        grid_lru_withdraw(lru, keys_of(2, 2), 2);
    assert_int_equal(run(lru, 2, 2, 999), 2);
    assert_int_equal(run(lru, 2, 2, 1000), 0); /* the mark did not move its deadline */
    grid_lru_free(lru);
}

static void test_a_mark_on_an_expired_entry_begins_anew(void **state)
{
    (void)state;
    struct grid_lru *lru = new_lru(16);
    confirm(lru, 1, 1, 1000);
    grid_lru_pend(lru, keys_of(1, 1), 1, 1000, 31000);
    assert_int_equal(run(lru, 1, 1, 1000), 0);
    grid_lru_withdraw(lru, keys_of(1, 1), 1);
    assert_int_equal(grid_lru_entries(lru), 0);
    grid_lru_free(lru);
}

static void test_confirm_brings_back_what_was_evicted(void **state)
{
    (void)state;
    struct grid_lru *lru = new_lru(2);
    grid_lru_pend(lru, keys_of(1, 2), 2, 0, 30000);
    grid_lru_pend(lru, keys_of(2, 2), 2, 0, 30000);
    confirm(lru, 1, 2, 1000);
    assert_int_equal(run(lru, 1, 2, 0), 2);
    grid_lru_free(lru);
}

/* The count of unanswered requests stops at its ceiling and then stays: the entry lives until its deadline. */
static void test_the_count_of_unanswered_saturates(void **state)
{
    (void)state;
    struct grid_lru *lru = new_lru(4);
    for (unsigned i = 0; i < UINT16_MAX - 1; i++)
        grid_lru_pend(lru, keys_of(1, 1), 1, 0, 30000);
    for (unsigned i = 0; i < UINT16_MAX - 1; i++)
        grid_lru_withdraw(lru, keys_of(1, 1), 1);
    assert_int_equal(grid_lru_entries(lru), 0); /* one below the ceiling is exact */

    for (unsigned i = 0; i < UINT16_MAX + 10u; i++)
        grid_lru_pend(lru, keys_of(1, 1), 1, 0, 30000);
    for (unsigned i = 0; i < UINT16_MAX + 10u; i++)
        grid_lru_withdraw(lru, keys_of(1, 1), 1);
    assert_int_equal(grid_lru_entries(lru), 1);
    grid_lru_pend(lru, keys_of(1, 1), 1, 30000, 60000);
    grid_lru_withdraw(lru, keys_of(1, 1), 1);
    assert_int_equal(grid_lru_entries(lru), 0);
    grid_lru_free(lru);
}

static void test_memory_is_told(void **state)
{
    (void)state;
    struct grid_lru *small = new_lru(1), *large = new_lru(16384);
    assert_true(grid_lru_bytes(small) >= 2 * 32);
    assert_true(grid_lru_bytes(large) >= 16384 * 32);
    assert_true(grid_lru_bytes(large) <= 16384 * 64);
    grid_lru_free(small);
    grid_lru_free(large);
}

/* ---- random play ---------------------------------------------------------------------------------------------- */

#define PLAYS 200u
#define STEPS 1000u /* a play: 200,000 in all */
#define UNIVERSE 40u
#define MOST_KEYS 12u
#define MOST_CAPACITY 24u

static void compare(const struct grid_lru *lru, const struct naive_lru *naive)
{
    assert_int_equal(lru->entry_count, naive->n);
    assert_int_equal(lru->capacity, naive->capacity);
    uint32_t at = lru->newest, newer = 0;
    for (size_t i = 0; i < naive->n; i++) {
        assert_int_not_equal(at, 0);
        const struct entry *e = &lru->entries[at];
        assert_int_equal(e->key, naive->list[i].key);
        assert_int_equal(e->deadline_ms, naive->list[i].deadline_ms);
        assert_int_equal(e->unanswered, naive->list[i].unanswered);
        assert_int_equal(e->confirmed, naive->list[i].confirmed);
        assert_int_equal(e->newer, newer);
        assert_int_equal(find(lru, e->key), at);
        newer = at;
        at = e->older;
    }
    assert_int_equal(at, 0);
    assert_int_equal(lru->oldest, newer);
}

/* Distinct keys, as a prompt's are: a stretch of a small circle. */
static size_t roll_keys(struct dice *dice, uint64_t *keys)
{
    size_t n = dice_below(dice, MOST_KEYS + 1), from = dice_below(dice, UNIVERSE);
    for (size_t i = 0; i < n; i++)
        keys[i] = ((from + i) % UNIVERSE) * 0x123456789abcdefull; /* 0 is a key like any other */
    return n;
}

static struct grid_lru *resize(struct dice *dice, struct grid_lru *lru, struct naive_lru *naive)
{
    uint32_t capacity = 1 + dice_below(dice, MOST_CAPACITY);
    struct grid_lru *other = new_lru(capacity);
    grid_lru_move(other, lru);
    naive_resize(naive, capacity);
    grid_lru_free(lru);
    return other;
}

static struct grid_lru *step(struct dice *dice, struct grid_lru *lru, struct naive_lru *naive, uint64_t now_ms)
{
    uint64_t keys[MOST_KEYS], ttl_ms = 1 + dice_below(dice, 200);
    size_t n = roll_keys(dice, keys);
    switch (dice_below(dice, 16)) {
    case 0 ... 4:
        grid_lru_pend(lru, keys, n, now_ms, now_ms + 30);
        naive_pend(naive, keys, n, now_ms, now_ms + 30);
        break;
    case 5 ... 8:
        grid_lru_confirm(lru, keys, n, now_ms + ttl_ms);
        naive_confirm(naive, keys, n, now_ms + ttl_ms);
        break;
    case 9 ... 10:
        assert_int_equal(grid_lru_drop(lru, keys, n), naive_drop(naive, keys, n));
        break;
    case 11 ... 13:
        grid_lru_withdraw(lru, keys, n);
        naive_withdraw(naive, keys, n);
        break;
    case 14:
        return dice_below(dice, 20) ? lru : resize(dice, lru, naive);
    default:
        break;
    }
    assert_int_equal(grid_lru_run(lru, keys, n, now_ms), naive_run(naive, keys, n, now_ms));
    return lru;
}

static void test_random_play_against_a_plain_list(void **state)
{
    (void)state;
    struct dice dice = dice_new("test_lru");
    for (unsigned play = 0; play < PLAYS; play++) {
        struct naive_lru naive = {.capacity = 1 + dice_below(&dice, MOST_CAPACITY)};
        struct grid_lru *lru = new_lru((uint32_t)naive.capacity);
        uint64_t now_ms = 0;
        for (unsigned i = 0; i < STEPS; i++) {
            lru = step(&dice, lru, &naive, now_ms);
            compare(lru, &naive);
            now_ms += dice_below(&dice, 4);
        }
        grid_lru_free(lru);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_mark_does_not_count),
        cmocka_unit_test(test_at_the_deadline_it_no_longer_counts),
        cmocka_unit_test(test_eviction_eats_from_the_tail),
        cmocka_unit_test(test_shrinking),
        cmocka_unit_test(test_a_look_changes_nothing),
        cmocka_unit_test(test_a_run_ends_at_the_first_hole),
        cmocka_unit_test(test_capacity_of_one),
        cmocka_unit_test(test_withdraw_leaves_what_is_confirmed_or_waited_for),
        cmocka_unit_test(test_a_mark_on_an_expired_entry_begins_anew),
        cmocka_unit_test(test_confirm_brings_back_what_was_evicted),
        cmocka_unit_test(test_the_count_of_unanswered_saturates),
        cmocka_unit_test(test_memory_is_told),
        cmocka_unit_test(test_random_play_against_a_plain_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
