/*
 * test_window.c - the worst of the recent queue depths (behaviour.md I.2, I.3)
 */
#include "unit.h"

#include <math.h>

#include "dice.h"
#include "window.h"

static void expect_worst(const struct grid_window *window, uint64_t now_ms, uint64_t within_ms, double depth)
{
    double worst = grid_window_worst(window, now_ms, within_ms);
    if (worst != depth)
        print_message("at %llu within %llu: %g, not %g\n", (unsigned long long)now_ms, (unsigned long long)within_ms,
                      worst, depth);
    assert_true(worst == depth);
}

static void test_no_sample_is_unmeasured(void **state)
{
    (void)state;
    struct grid_window window = {.n = 0};
    uint64_t stamp = 7;
    expect_worst(&window, 0, 1000, INFINITY);
    expect_worst(&window, 5000, UINT64_MAX, INFINITY);
    assert_false(grid_window_newest(&window, &stamp));
    assert_int_equal(stamp, 7);
}

static void test_both_ends_are_in(void **state)
{
    (void)state;
    struct grid_window window = {.n = 0};
    assert_true(grid_window_push(&window, 4, 1000));
    expect_worst(&window, 999, 100, INFINITY); /* not yet */
    expect_worst(&window, 1000, 100, 4);
    expect_worst(&window, 1000, 0, 4);
    expect_worst(&window, 1100, 100, 4);
    expect_worst(&window, 1101, 100, INFINITY); /* stale */
    expect_worst(&window, 1101, UINT64_MAX, 4);
}

static void test_a_burst_is_seen_until_it_leaves(void **state)
{
    (void)state;
    struct grid_window window = {.n = 0};
    assert_true(grid_window_push(&window, 1, 100));
    assert_true(grid_window_push(&window, 9, 200));
    assert_true(grid_window_push(&window, 0, 300));
    expect_worst(&window, 300, 1000, 9);
    expect_worst(&window, 400, 200, 9);
    expect_worst(&window, 401, 200, 0);
    expect_worst(&window, 150, 1000, 1); /* what was then the future is not in it */
}

static void test_only_newer_stamps_are_kept(void **state)
{
    (void)state;
    struct grid_window window = {.n = 0};
    uint64_t stamp = 0;
    assert_true(grid_window_push(&window, 1, 0));
    assert_true(grid_window_push(&window, 1, 500));
    assert_false(grid_window_push(&window, 9, 500));
    assert_false(grid_window_push(&window, 9, 499));
    assert_true(grid_window_newest(&window, &stamp));
    assert_int_equal(stamp, 500);
    expect_worst(&window, 500, 1000, 1);
    assert_true(grid_window_push(&window, 2, 501));
    expect_worst(&window, 501, 1000, 2);
}

static void test_odd_values(void **state)
{
    (void)state;
    struct grid_window window = {.n = 0};
    assert_false(grid_window_push(&window, NAN, 1));
    assert_false(grid_window_push(&window, INFINITY, 1));
    assert_false(grid_window_push(&window, -INFINITY, 1));
    assert_false(grid_window_push(&window, GRID_MAX_DEPTH + 1, 1));
    expect_worst(&window, 10, 10, INFINITY);
    assert_true(grid_window_push(&window, -3, 1)); /* an ignored value did not take its stamp */
    expect_worst(&window, 10, 10, 0);
    assert_true(grid_window_push(&window, GRID_MAX_DEPTH, 2));
    expect_worst(&window, 10, 10, GRID_MAX_DEPTH);
}

static void test_the_ring_keeps_the_newest(void **state)
{
    (void)state;
    struct grid_window window = {.n = 0};
    for (uint32_t i = 1; i <= 3 * GRID_WINDOW_SAMPLES; i++) {
        /* the deepest first: what is gone must not be seen */
        assert_true(grid_window_push(&window, 1000.0 - i, i));
        double oldest = i <= GRID_WINDOW_SAMPLES ? 1 : i - GRID_WINDOW_SAMPLES + 1;
        expect_worst(&window, i, UINT64_MAX, 1000.0 - oldest);
    }
}

#define STEPS 4000u

static void test_random_play_against_a_plain_list(void **state)
{
    (void)state;
    struct dice dice = dice_new("test_window");
    static double depths[STEPS];
    static uint64_t stamps[STEPS];
    struct grid_window window = {.n = 0};
    size_t n = 0;
    uint64_t clock_ms = 0;
    for (unsigned i = 0; i < STEPS; i++) {
        clock_ms += dice_below(&dice, 3);
        double depth = dice_below(&dice, 50);
        if (grid_window_push(&window, depth, clock_ms)) {
            assert_true(n == 0 || clock_ms > stamps[n - 1]);
            depths[n] = depth;
            stamps[n++] = clock_ms;
        } else {
            assert_true(n > 0 && clock_ms <= stamps[n - 1]);
        }
        uint64_t now_ms = clock_ms + dice_below(&dice, 20) - (clock_ms > 10 ? dice_below(&dice, 10) : 0);
        uint64_t within_ms = dice_below(&dice, 200);
        double worst = -1;
        for (size_t j = n > GRID_WINDOW_SAMPLES ? n - GRID_WINDOW_SAMPLES : 0; j < n; j++)
            if (stamps[j] <= now_ms && now_ms - stamps[j] <= within_ms && depths[j] > worst)
                worst = depths[j];
        expect_worst(&window, now_ms, within_ms, worst < 0 ? INFINITY : worst);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_sample_is_unmeasured),
        cmocka_unit_test(test_both_ends_are_in),
        cmocka_unit_test(test_a_burst_is_seen_until_it_leaves),
        cmocka_unit_test(test_only_newer_stamps_are_kept),
        cmocka_unit_test(test_odd_values),
        cmocka_unit_test(test_the_ring_keeps_the_newest),
        cmocka_unit_test(test_random_play_against_a_plain_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
