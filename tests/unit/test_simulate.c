/*
 * test_simulate.c - the parts of a simulated grid: the KV cache of an engine, traces, one small run worked out by hand
 */
#include "cli/simulate.h"
#include "cli/simulate_cache.h"

#include <math.h>
#include <string.h>

#include "unit.h"

/* A prompt of whole units of 64 tokens. */
static struct grid_trace_request request_of(uint32_t units, uint32_t output)
{
    return (struct grid_trace_request){
        .input_tokens = units * 64, .output_tokens = output, .n_units = units, .unit_tokens = 64};
}

static void test_cache_hits_what_was_there_but_the_last_token(void **state)
{
    (void)state;
    const uint64_t units[] = {1, 2, 3, 4};
    struct grid_kv kv;
    struct grid_trace_request two = request_of(2, 0), four = request_of(4, 16);
    grid_kv_init(&kv, 1000);
    assert_int_equal(grid_kv_hit(&kv, &four, units), 0);
    assert_int_equal(grid_kv_take(&kv, &two, units), GRID_KV_TAKEN);
    assert_int_equal(grid_kv_hit(&kv, &four, units), 128);
    assert_int_equal(grid_kv_hit(&kv, &two, units), 112); /* the block of the last token is computed again */
    grid_kv_give(&kv, &two, units);
    assert_int_equal(grid_kv_hit(&kv, &four, units), 128);
    assert_int_equal(kv.used, 8);
    assert_int_equal(kv.held, 0);
    grid_kv_done(&kv);
}

static void test_cache_evicts_tails_first_and_never_what_is_held(void **state)
{
    (void)state;
    const uint64_t a[] = {1, 2, 3, 4}, b[] = {11, 12, 13, 14}, c[] = {21, 22, 23, 24};
    struct grid_kv kv;
    struct grid_trace_request four = request_of(4, 0), three = request_of(3, 0);
    grid_kv_init(&kv, 32); /* two prompts of four units */
    assert_int_equal(grid_kv_take(&kv, &four, a), GRID_KV_TAKEN);
    assert_int_equal(grid_kv_take(&kv, &four, b), GRID_KV_TAKEN);
    assert_int_equal(grid_kv_take(&kv, &three, c), GRID_KV_NO_ROOM);
    grid_kv_give(&kv, &four, a);
    assert_int_equal(grid_kv_take(&kv, &three, c), GRID_KV_TAKEN);
    struct grid_trace_request longer = request_of(5, 0);
    const uint64_t a5[] = {1, 2, 3, 4, 5}, b5[] = {11, 12, 13, 14, 15};
    assert_int_equal(grid_kv_hit(&kv, &longer, a5), 64); /* only the head is left */
    assert_int_equal(grid_kv_hit(&kv, &longer, b5), 256);
    grid_kv_give(&kv, &four, b);
    grid_kv_give(&kv, &three, c);
    assert_int_equal(kv.held, 0);
    assert_true(kv.used <= kv.blocks);
    grid_kv_done(&kv);
}

static void test_cache_answers_take_room_and_leave_nothing(void **state)
{
    (void)state;
    const uint64_t a[] = {1};
    struct grid_kv kv;
    struct grid_trace_request one = request_of(1, 64);
    grid_kv_init(&kv, 100);
    assert_int_equal(grid_kv_need(&one), 8);
    assert_int_equal(grid_kv_take(&kv, &one, a), GRID_KV_TAKEN);
    assert_int_equal(kv.held, 8);
    grid_kv_give(&kv, &one, a);
    assert_int_equal(kv.used, 4);
    grid_kv_done(&kv);
}

/* Random takes and gives: the counts always agree with the entries. */
static void test_cache_counts_agree_with_a_recount(void **state)
{
    (void)state;
    uint64_t draws = 42, units[16][12];
    struct grid_trace_request requests[16];
    bool taken[16] = {false};
    struct grid_kv kv;
    grid_kv_init(&kv, 200);
    for (int step = 0; step < 20000; step++) {
        size_t i = (size_t)(grid_policy_draw(&draws) * 16);
        if (taken[i]) {
            grid_kv_give(&kv, &requests[i], units[i]);
            taken[i] = false;
        } else {
            requests[i] = request_of(1 + (uint32_t)(grid_policy_draw(&draws) * 11), 20);
            uint64_t who = (uint64_t)(grid_policy_draw(&draws) * 10);
            for (uint32_t u = 0; u < requests[i].n_units; u++)
                units[i][u] = (who + 1) * 1000 + u;
            taken[i] = grid_kv_take(&kv, &requests[i], units[i]) == GRID_KV_TAKEN;
        }
        uint64_t used = 0;
        for (size_t s = 0; s < kv.at.cap; s++)
            used += kv.at.slots[s].used == 1 ? kv.entries[kv.at.slots[s].value - 1].blocks : 0;
        for (size_t r = 0; r < 16; r++)
            used += taken[r] ? 2 : 0; /* an answer of 20 tokens */
        assert_int_equal(used, kv.used);
        assert_true(kv.used <= kv.blocks && kv.held <= kv.used);
    }
    grid_kv_done(&kv);
}

static void test_long_units_become_eight_keys_that_share_alike(void **state)
{
    (void)state;
    const uint64_t a[] = {7, 8}, b[] = {7, 9};
    uint64_t keys_a[GRID_MAX_KEYS], keys_b[GRID_MAX_KEYS];
    struct grid_trace_request request = {.input_tokens = 1000, .n_units = 2, .unit_tokens = 512};
    size_t n = grid_trace_keys(&request, a, keys_a);
    assert_int_equal(n, 15); /* whole blocks of 64 tokens only */
    assert_int_equal(grid_trace_keys(&request, b, keys_b), 15);
    for (size_t i = 0; i < n; i++)
        assert_true((keys_a[i] == keys_b[i]) == (i < 8));
    request.input_tokens = 1000000;
    request.n_units = 2;
    assert_int_equal(grid_trace_keys(&request, a, keys_a), 16);
}

static bool equal(const struct grid_trace_request *a, const struct grid_trace_request *b)
{
    return a->at_us == b->at_us && a->input_tokens == b->input_tokens && a->output_tokens == b->output_tokens &&
           a->n_units == b->n_units && a->head == b->head && a->first == b->first && a->own == b->own;
}

static void test_generators_are_the_same_for_the_same_seed(void **state)
{
    (void)state;
    static const char *const kinds[] = {"chat", "agents", "shared", "bursts", "giant", "unique", "mix"};
    char error[256];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct grid_trace one, same, other;
        struct grid_trace_sums sums;
        assert_true(grid_trace_make(kinds[i], 3000, 5, 3, &one, error, sizeof error));
        assert_true(grid_trace_make(kinds[i], 3000, 5, 3, &same, error, sizeof error));
        assert_true(grid_trace_make(kinds[i], 3000, 5, 4, &other, error, sizeof error));
        assert_int_equal(one.n, 3000);
        size_t alike = 0;
        for (size_t r = 0; r < one.n; r++) {
            assert_true(equal(&one.requests[r], &same.requests[r]));
            alike += equal(&one.requests[r], &other.requests[r]);
        }
        assert_true(alike < 10);
        assert_true(grid_trace_sum(&one, &sums));
        double shared = (double)sums.ideal_hit_tokens / (double)sums.input_tokens;
        assert_true(strcmp(kinds[i], "unique") == 0 ? shared == 0 : shared > 0.3);
        grid_trace_done(&one);
        grid_trace_done(&same);
        grid_trace_done(&other);
    }
}

/* Two alike prompts of 1,000 tokens on one site of 1,000 tokens a second: worked out by hand. */
static void test_a_run_worked_out_by_hand(void **state)
{
    (void)state;
    struct grid_trace trace = {0};
    struct grid_simulate_result result;
    char error[256];
    struct grid_trace_request request = {.input_tokens = 1000,
                                         .output_tokens = 100,
                                         .n_units = 15,
                                         .unit_tokens = 64,
                                         .made = true,
                                         .head = 15,
                                         .first = 5};
    assert_true(grid_trace_add(&trace, &request));
    request.at_us = 500000;
    assert_true(grid_trace_add(&trace, &request));
    struct grid_simulate_options options = {.sites = {{1000, 50, 10, 2, 1000, 0}},
                                            .n_sites = 1,
                                            .replicas = 1,
                                            .head_blocks = 16,
                                            .poll_ms = 2000,
                                            .signal_delay_ms = 0,
                                            .speed = 1,
                                            .seed = 1};
    options.sites[0].slots = 2;
    assert_true(grid_simulate_run(&trace, &options, "ours", &result, error, sizeof error));
    assert_int_equal(result.answered, 2);
    assert_int_equal(result.hit_tokens, 960);
    /* the first: 10 ms there, 1 s prefill, 10 ms back; the second waits 0.5 s for it, then computes 40 tokens */
    assert_true(fabs((double)result.ttft_s[1] - 1.020) < 1e-4);
    assert_true(fabs((double)result.ttft_s[0] - 0.560) < 1e-4);
    assert_true(fabs((double)result.e2e_s[1] - 3.020) < 1e-4);
    grid_simulate_result_done(&result);

    options.sites[0].max_waiting = 1; /* of three at once one is prefilled, one waits, one is refused */
    trace.requests[1].at_us = 0;
    assert_true(grid_trace_add(&trace, &trace.requests[0]));
    assert_true(grid_simulate_run(&trace, &options, "random", &result, error, sizeof error));
    assert_int_equal(result.answered, 2);
    assert_int_equal(result.refused, 1);
    grid_simulate_result_done(&result);
    grid_trace_done(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_hits_what_was_there_but_the_last_token),
        cmocka_unit_test(test_cache_evicts_tails_first_and_never_what_is_held),
        cmocka_unit_test(test_cache_answers_take_room_and_leave_nothing),
        cmocka_unit_test(test_cache_counts_agree_with_a_recount),
        cmocka_unit_test(test_long_units_become_eight_keys_that_share_alike),
        cmocka_unit_test(test_generators_are_the_same_for_the_same_seed),
        cmocka_unit_test(test_a_run_worked_out_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
