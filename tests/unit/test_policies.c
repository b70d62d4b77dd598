/*
 * test_policies.c - each compared policy by itself: the cases of its published rule
 */
#include "cli/policies/policy.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

#define SITES 3

static struct grid_policy policy;
static double ttft_us[SITES];

static double world_ttft_us(void *ctx, size_t site)
{
    (void)ctx;
    return ttft_us[site];
}

static void open_sites(const char *spec, size_t n_sites)
{
    char error[256] = "";
    const struct grid_policy_setup setup = {
        .n_sites = n_sites, .seed = 7, .prefill_tokens_per_second = 1000, .world = {NULL, world_ttft_us}};
    grid_policy_close(&policy);
    if (!grid_policy_open(&policy, spec, &setup, error, sizeof error))
        fail_msg("%s: %s", spec, error);
}

static int tear_down(void **state)
{
    (void)state;
    grid_policy_close(&policy);
    return 0;
}

/* A prompt of n keys: the first `shared` are those of conversation `who`. */
static size_t send_at(uint64_t who, size_t n, uint64_t now_us, struct grid_policy_note *note)
{
    uint64_t keys[GRID_MAX_KEYS];
    for (size_t i = 0; i < n; i++)
        keys[i] = (who << 32 | (i + 1)) * 0x9e3779b97f4a7c15ull;
    const struct grid_policy_request request = {.keys = keys,
                                                .n_keys = n,
                                                .input_tokens = (uint32_t)n * GRID_TOKENS_A_BLOCK + 10,
                                                .head = keys[0],
                                                .now_us = now_us};
    *note = (struct grid_policy_note){0};
    return policy.ops->choose(&policy, &request, note);
}

static size_t send(uint64_t who, size_t n, struct grid_policy_note *note)
{
    return send_at(who, n, 0, note);
}

static void end(struct grid_policy_note *note, size_t site)
{
    if (policy.ops->answered)
        policy.ops->answered(&policy, note, site, 200, 1000);
    if (policy.ops->ended)
        policy.ops->ended(&policy, note, site, 1000);
}

static size_t send_and_end(uint64_t who, size_t n)
{
    struct grid_policy_note note;
    size_t site = send(who, n, &note);
    end(&note, site);
    return site;
}

static void test_random_takes_every_site_alike(void **state)
{
    (void)state;
    size_t counts[SITES] = {0};
    open_sites("random", SITES);
    for (int i = 0; i < 3000; i++)
        counts[send_and_end(1, 4)]++;
    for (size_t i = 0; i < SITES; i++)
        assert_in_range(counts[i], 900, 1100);
}

static void test_round_robin_goes_round(void **state)
{
    (void)state;
    open_sites("round-robin", SITES);
    size_t at = send_and_end(1, 4);
    for (int i = 0; i < 10; i++) {
        size_t next = send_and_end(1, 4);
        assert_int_equal(next, (at + 1) % SITES);
        at = next;
    }
}

static void test_head_hash_is_steady_and_moves_only_what_must(void **state)
{
    (void)state;
    size_t homes[200], counts[SITES] = {0}, moved = 0;
    open_sites("head-hash", SITES);
    for (uint64_t who = 0; who < 200; who++) {
        homes[who] = send_and_end(who, 4);
        counts[homes[who]]++;
        assert_int_equal(send_and_end(who, 40), homes[who]);
    }
    for (size_t i = 0; i < SITES; i++)
        assert_in_range(counts[i], 40, 95);
    open_sites("head-hash", SITES - 1);
    for (uint64_t who = 0; who < 200; who++)
        if (homes[who] == SITES - 1)
            moved++;
        else
            assert_int_equal(send_and_end(who, 4), homes[who]);
    assert_true(moved > 0);
}

static void test_oracle_takes_the_soonest(void **state)
{
    (void)state;
    open_sites("oracle", SITES);
    memcpy(ttft_us, (double[]){30, 10, 20}, sizeof ttft_us);
    assert_int_equal(send_and_end(1, 4), 1);
    ttft_us[1] = 40;
    assert_int_equal(send_and_end(1, 4), 2);
    memcpy(ttft_us, (double[]){5, 5, 5}, sizeof ttft_us);
    assert_int_equal(send_and_end(1, 4), 0);
}

/* ---- llm-d ------------------------------------------------------------------------------------------------------- */

static void test_llmd_sticks_from_the_threshold_on(void **state)
{
    (void)state;
    struct grid_policy_note note, other;
    open_sites("llm-d", SITES);
    size_t home = send(1, 80, &note);             /* stays under way: tokens in flight at home */
    assert_int_equal(send(1, 100, &other), home); /* 80 of 100 */
    end(&other, home);
    end(&note, home);
    open_sites("llm-d", SITES);
    home = send(1, 79, &note);
    assert_int_not_equal(send(1, 100, &other), home); /* 79 of 100: the fewest tokens in flight */
}

static void test_llmd_learns_when_it_sends(void **state)
{
    (void)state;
    struct grid_policy_note notes[2];
    open_sites("llm-d", SITES);
    size_t home = send(1, 50, &notes[0]); /* no answer yet */
    assert_int_equal(send(1, 50, &notes[1]), home);
}

static void test_llmd_opens_only_over_the_penalty(void **state)
{
    (void)state;
    struct grid_policy_note notes[2];
    /* Home has 50 * 64 + 10 = 3,210 tokens in flight. Sent again, 10 are new there, 3,210 elsewhere: no difference. */
    open_sites("llm-d:penalty_ms=20,prefill=1000", SITES);
    size_t home = send(1, 50, &notes[0]);
    assert_int_equal(send(1, 50, &notes[1]), home); /* 3,220 ms against 3,210: 10 is not over 20 */
    open_sites("llm-d:penalty_ms=9,prefill=1000", SITES);
    home = send(1, 50, &notes[0]);
    assert_int_not_equal(send(1, 50, &notes[1]), home);
    open_sites("llm-d:penalty_ms=0,prefill=1000", SITES); /* 0: never */
    home = send(1, 50, &notes[0]);
    for (int i = 0; i < 20; i++)
        assert_int_equal(send(1, 50, &notes[1]), home);
}

static void test_llmd_new_prompts_go_where_fewest_tokens_are(void **state)
{
    (void)state;
    struct grid_policy_note notes[SITES];
    bool used[SITES] = {false};
    open_sites("llm-d", SITES);
    for (uint64_t i = 0; i < SITES; i++)
        used[send(i, 10, &notes[i])] = true;
    for (size_t i = 0; i < SITES; i++)
        assert_true(used[i]);
}

static void test_llmd_forgets_the_oldest_over_its_capacity(void **state)
{
    (void)state;
    for (int small = 0; small < 2; small++) {
        struct grid_policy_note busy, other, again;
        open_sites(small ? "llm-d:capacity=20" : "llm-d", 2);
        size_t home = send_and_end(1, 20), away = 1 - home;
        while (send(9, 20, &busy) != away) { /* by lot, as both are idle */
            end(&busy, home);
            open_sites(small ? "llm-d:capacity=20" : "llm-d", 2);
            home = send_and_end(1, 20);
            away = 1 - home;
        }
        assert_int_equal(send(2, 20, &other), home); /* the fewest in flight; pushes prompt 1 out of a small table */
        end(&busy, away);
        assert_int_equal(send(1, 20, &again), small ? away : home);
    }
}

/* ---- smg --------------------------------------------------------------------------------------------------------- */

static void test_smg_matches_over_its_threshold_only(void **state)
{
    (void)state;
    struct grid_policy_note notes[4];
    open_sites("smg", SITES);
    size_t home = send(1, 31, &notes[0]);
    assert_int_equal(send(1, 100, &notes[1]), home); /* 31 % */
    open_sites("smg", SITES);
    home = send(1, 30, &notes[0]);
    assert_int_not_equal(send(1, 100, &notes[1]), home); /* 30 % is not over it: the fewest under way */
}

static void test_smg_balances_when_both_thresholds_are_passed(void **state)
{
    (void)state;
    struct grid_policy_note note;
    open_sites("smg:balance_abs_threshold=4,balance_rel_threshold=1.5", SITES);
    size_t home = send(1, 40, &note);
    for (int i = 0; i < 4; i++)
        assert_int_equal(send(1, 40, &note), home); /* 5 under way there, none elsewhere: 5 - 0 > 4 from here on */
    size_t elsewhere = send(1, 40, &note);
    assert_int_not_equal(elsewhere, home);
}

static void test_smg_counts_down_when_an_answer_ends(void **state)
{
    (void)state;
    open_sites("smg:balance_abs_threshold=1", SITES);
    size_t home = send_and_end(1, 40);
    for (int i = 0; i < 20; i++)
        assert_int_equal(send_and_end(1, 40), home);
}

/* ---- ours -------------------------------------------------------------------------------------------------------- */

static void test_ours_sticks_after_an_answer_and_not_before(void **state)
{
    (void)state;
    struct grid_policy_note first, note;
    open_sites("ours:exploration=0", SITES);
    for (size_t i = 0; i < SITES; i++)
        policy.ops->signal(&policy, i, i == 1 ? 0 : 0.1, 1000, 1000);
    size_t home = send_at(1, 400, 2000, &first);
    assert_int_equal(home, 1);
    policy.ops->signal(&policy, 1, 0.5, 2000000, 2000000);
    assert_int_equal(send_at(1, 400, 2000000, &note), 0); /* not answered: by load */
    end(&note, 0);
    end(&first, home);
    policy.ops->signal(&policy, 0, 1.3, 3000000, 3000000); /* 400 blocks are worth 1.28 queued requests */
    policy.ops->signal(&policy, 1, 1.3, 3000000, 3000000);
    assert_int_equal(send_at(1, 400, 3000000, &note), 0); /* both hold it, alike deep: the first */
    end(&note, 0);
    uint64_t outcomes[GRID_N_OUTCOMES] = {0};
    policy.ops->outcomes(&policy, outcomes);
    assert_int_equal(outcomes[GRID_OUTCOME_NO_MATCH], 2);
    assert_int_equal(outcomes[GRID_OUTCOME_STICKY] + outcomes[GRID_OUTCOME_LOAD_OVERRIDE], 1);
}

static void test_ours_drops_what_was_refused(void **state)
{
    (void)state;
    struct grid_policy_note note;
    open_sites("ours:exploration=0", SITES);
    size_t home = send(1, 40, &note);
    policy.ops->answered(&policy, &note, home, 429, 1000);
    policy.ops->ended(&policy, &note, home, 1000);
    end(&note, send(1, 40, &note));
    uint64_t outcomes[GRID_N_OUTCOMES] = {0};
    policy.ops->outcomes(&policy, outcomes);
    assert_int_equal(outcomes[GRID_OUTCOME_NO_MATCH], 2);
}

static void test_least_queue_follows_the_windowed_worst(void **state)
{
    (void)state;
    struct grid_policy_note note;
    open_sites("least-queue:load_window_ms=5000", SITES);
    for (size_t i = 0; i < SITES; i++)
        policy.ops->signal(&policy, i, 5 - (double)i, 1000, 1000);
    assert_int_equal(send_at(1, 40, 2000, &note), 2);
    end(&note, 2);
    policy.ops->signal(&policy, 2, 9, 2000000, 2000000);
    policy.ops->signal(&policy, 2, 0, 3000000, 3000000); /* the 9 is in the window still */
    assert_int_equal(send_at(1, 40, 3000000, &note), 1);
    end(&note, 1);
    policy.ops->signal(&policy, 1, 4, 8000000, 8000000);
    policy.ops->signal(&policy, 2, 1, 8000000, 8000000);
    assert_int_equal(send_at(1, 40, 8000000, &note), 2);
    end(&note, 2);
}

static void test_least_queue_has_no_affinity(void **state)
{
    (void)state;
    struct grid_policy_note note;
    open_sites("least-queue", SITES);
    assert_int_equal(send_at(1, 40, 2000, &note), 0); /* no depth yet: the configured order */
    end(&note, 0);
    for (size_t i = 0; i < SITES; i++)
        policy.ops->signal(&policy, i, i == 2 ? 0 : 0.01, 1000000, 1000000);
    assert_int_equal(send_at(1, 40, 1000000, &note), 2); /* 40 blocks are worth 0.128: affinity would stay */
    end(&note, 2);
    uint64_t outcomes[GRID_N_OUTCOMES] = {0};
    policy.ops->outcomes(&policy, outcomes);
    for (int i = 0; i < GRID_N_OUTCOMES; i++)
        assert_int_equal(outcomes[i], 0);
}

static void test_a_wrong_spec_is_refused_and_named(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"nobody", "nobody"},
                                           {"random:x=1", "'x'"},
                                           {"smg:cache_threshold=2", "cache_threshold"},
                                           {"llm-d:penalty_ms=soon", "penalty_ms"},
                                           {"ours:threshold=7", "threshold"},
                                           {"ours:no_such=7", "no_such"}};
    const struct grid_policy_setup setup = {.n_sites = SITES, .prefill_tokens_per_second = 1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char error[256] = "";
        assert_false(grid_policy_open(&policy, wrong[i][0], &setup, error, sizeof error));
        if (!strstr(error, wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], error);
        grid_policy_close(&policy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_random_takes_every_site_alike, tear_down),
        cmocka_unit_test_teardown(test_round_robin_goes_round, tear_down),
        cmocka_unit_test_teardown(test_head_hash_is_steady_and_moves_only_what_must, tear_down),
        cmocka_unit_test_teardown(test_oracle_takes_the_soonest, tear_down),
        cmocka_unit_test_teardown(test_llmd_sticks_from_the_threshold_on, tear_down),
        cmocka_unit_test_teardown(test_llmd_learns_when_it_sends, tear_down),
        cmocka_unit_test_teardown(test_llmd_opens_only_over_the_penalty, tear_down),
        cmocka_unit_test_teardown(test_llmd_new_prompts_go_where_fewest_tokens_are, tear_down),
        cmocka_unit_test_teardown(test_llmd_forgets_the_oldest_over_its_capacity, tear_down),
        cmocka_unit_test_teardown(test_smg_matches_over_its_threshold_only, tear_down),
        cmocka_unit_test_teardown(test_smg_balances_when_both_thresholds_are_passed, tear_down),
        cmocka_unit_test_teardown(test_smg_counts_down_when_an_answer_ends, tear_down),
        cmocka_unit_test_teardown(test_ours_sticks_after_an_answer_and_not_before, tear_down),
        cmocka_unit_test_teardown(test_ours_drops_what_was_refused, tear_down),
        cmocka_unit_test_teardown(test_least_queue_follows_the_windowed_worst, tear_down),
        cmocka_unit_test_teardown(test_least_queue_has_no_affinity, tear_down),
        cmocka_unit_test_teardown(test_a_wrong_spec_is_refused_and_named, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
