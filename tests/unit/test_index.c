/*
 * test_index.c - a cluster's table behind its lock: marks, settles, forgetting, swapping
 */
#include "unit.h"

#include "failing_alloc.h"
#include "index.h"

#define TTL_MS 1000u

static const uint64_t keys[] = {11, 22, 33, 44, 55};
#define N COUNT(keys)

static struct failing_alloc memory;

static int set_up(void **state)
{
    failing_alloc_init(&memory);
    *state = grid_index_table_new(&memory.alloc, 8);
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    grid_index_table_unref(*state);
    return atomic_load(&memory.out) == 0 ? 0 : -1;
}

static void test_a_mark_does_not_count(void **state)
{
    struct grid_table *table = *state;
    grid_index_pend(table, keys, N, 0);
    assert_int_equal(grid_index_match(table, keys, N, 1), 0);
    assert_int_equal(grid_index_view(table).entries, N);
}

static void test_a_confirmation_counts_until_its_deadline(void **state)
{
    struct grid_table *table = *state;
    grid_index_pend(table, keys, N, 0);
    assert_int_equal(grid_index_confirm(table, keys, N, 500, TTL_MS), N);
    assert_int_equal(grid_index_match(table, keys, N, 1499), N);
    assert_int_equal(grid_index_match(table, keys, N, 1500), 0);
    assert_int_equal(grid_index_match(table, keys, 2, 1499), 2);
}

static void test_a_drop_takes_confirmed_ones_too(void **state)
{
    struct grid_table *table = *state;
    (void)grid_index_confirm(table, keys, N, 0, TTL_MS);
    assert_int_equal(grid_index_drop(table, keys, N), N);
    assert_int_equal(grid_index_match(table, keys, N, 1), 0);
    assert_int_equal(grid_index_view(table).entries, 0);
}

static void test_a_withdrawal_takes_only_marks(void **state)
{
    struct grid_table *table = *state;
    (void)grid_index_confirm(table, keys, 2, 0, TTL_MS);
    grid_index_pend(table, keys, N, 1);
    grid_index_withdraw(table, keys, N);
    assert_int_equal(grid_index_view(table).entries, 2);
    assert_int_equal(grid_index_match(table, keys, N, 2), 2);
}

/* The mark of a request that never got an answer: it lapses by itself, so the next mark begins anew. */
static void test_a_mark_lapses(void **state)
{
    struct grid_table *table = *state;
    grid_index_pend(table, keys, N, 0);
    grid_index_pend(table, keys, N, GRID_PEND_MS - 1);
    grid_index_withdraw(table, keys, N);
    assert_int_equal(grid_index_view(table).entries, N); /* the first is still waited for */
    grid_index_pend(table, keys, N, GRID_PEND_MS);
    grid_index_withdraw(table, keys, N);
    assert_int_equal(grid_index_view(table).entries, 0);
}

static void test_a_forgotten_table_learns_nothing(void **state)
{
    struct grid_table *table = *state;
    (void)grid_index_confirm(table, keys, 2, 0, TTL_MS);
    grid_index_forget(table);
    grid_index_pend(table, keys, N, 1);
    assert_int_equal(grid_index_confirm(table, keys, N, 1, TTL_MS), 0);
    assert_int_equal(grid_index_drop(table, keys, N), 0);
    grid_index_withdraw(table, keys, N);
    assert_int_equal(grid_index_view(table).entries, 2);
    assert_int_equal(grid_index_match(table, keys, N, 1), 2);
}

static void test_swapping_keeps_what_fits(void **state)
{
    struct grid_table *table = *state;
    (void)grid_index_confirm(table, keys, N, 0, TTL_MS);
    struct grid_lru *small = grid_lru_new(&memory.alloc, 3);
    assert_non_null(small);
    struct grid_lru *old = grid_index_swap(table, small, true);
    assert_int_equal(grid_lru_capacity(old), 8);
    grid_lru_free(old);
    assert_int_equal(grid_index_match(table, keys, N, 999), 3);
    assert_int_equal(grid_index_match(table, keys, N, 1000), 0); /* deadlines stay */
    struct grid_table_view view = grid_index_view(table);
    assert_int_equal(view.capacity, 3);
    assert_int_equal(view.entries, 3);
    assert_true(view.bytes > 3 * 32);
}

static void test_swapping_for_an_empty_one(void **state)
{
    struct grid_table *table = *state;
    (void)grid_index_confirm(table, keys, N, 0, TTL_MS);
    struct grid_lru *empty = grid_lru_new(&memory.alloc, 8);
    assert_non_null(empty);
    grid_lru_free(grid_index_swap(table, empty, false));
    assert_int_equal(grid_index_match(table, keys, N, 1), 0);
    (void)grid_index_confirm(table, keys, N, 1, TTL_MS); /* and it learns again */
    assert_int_equal(grid_index_match(table, keys, N, 2), N);
}

static void test_the_last_reference_frees(void **state)
{
    struct grid_table *table = *state;
    assert_ptr_equal(grid_index_table_ref(table), table);
    long long held = atomic_load(&memory.out);
    grid_index_table_unref(table);
    assert_int_equal(atomic_load(&memory.out), held);
    grid_index_pend(table, keys, N, 0);
    assert_null(grid_index_table_ref(NULL));
    grid_index_table_unref(NULL);
}

static void test_want_of_memory(void **state)
{
    (void)state;
    long long held = atomic_load(&memory.out);
    uint64_t n = 0;
    for (bool failed = true; failed; n++) {
        assert_true(n < 20);
        failing_alloc_arm(&memory, n, false);
        struct grid_table *table = grid_index_table_new(&memory.alloc, 4);
        failed = atomic_load(&memory.failed);
        assert_int_equal(table == NULL, failed);
        failing_alloc_disarm(&memory);
        grid_index_table_unref(table);
        assert_int_equal(atomic_load(&memory.out), held);
    }
    assert_true(n > 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_mark_does_not_count),
        TEST(test_a_confirmation_counts_until_its_deadline),
        TEST(test_a_drop_takes_confirmed_ones_too),
        TEST(test_a_withdrawal_takes_only_marks),
        TEST(test_a_mark_lapses),
        TEST(test_a_forgotten_table_learns_nothing),
        TEST(test_swapping_keeps_what_fits),
        TEST(test_swapping_for_an_empty_one),
        TEST(test_the_last_reference_frees),
        TEST(test_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
