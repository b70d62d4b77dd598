/*
 * test_ready.c - requests whose keys are ready, and keys of recordings
 */
#include "world.h"

static struct world world;

static int set_up(void **state)
{
    (void)state;
    world_init(&world, "{'prefix_affinity':{'exploration':0}}", "a b");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&world);
    return 0;
}

static struct grid_ticket *ticket_of(const uint64_t *keys, size_t n)
{
    struct grid_ticket *ticket;
    assert_int_equal(grid_ticket_of_keys(world.router, grid_str_of("m"), keys, n, &ticket), GRID_OK);
    return ticket;
}

static void fill(uint64_t *keys, size_t n, uint64_t from)
{
    for (size_t i = 0; i < n; i++)
        keys[i] = (from + i) * 0x9e3779b97f4a7c15ull;
}

static void test_ready_keys_are_matched_pended_and_learned(void **state)
{
    (void)state;
    uint64_t keys[50];
    struct grid_decision decision;
    fill(keys, 50, 1);
    const struct grid_route_options at_b = {.forced = grid_str_of("b")};
    struct grid_ticket *ticket = ticket_of(keys, 40);
    grid_route(ticket, &at_b, 0, &decision);
    grid_learn(ticket, 200, GRID_FROM_SITE, 10, NULL);
    grid_ticket_free(ticket);

    ticket = ticket_of(keys, 50);
    grid_route(ticket, NULL, 20, &decision);
    assert_int_equal(decision.outcome, GRID_OUTCOME_STICKY);
    assert_int_equal(decision.run, 40);
    assert_int_equal(decision.blocks, 50);
    assert_int_equal(decision.reason, GRID_REASON_NONE);
    assert_memory_equal(decision.cluster.ptr, "b", 1);
    grid_learn(ticket, 503, GRID_FROM_SITE, 30, NULL);
    grid_ticket_free(ticket);

    ticket = ticket_of(keys, 50); /* the failure dropped them */
    grid_route(ticket, NULL, 40, &decision);
    assert_int_equal(decision.outcome, GRID_OUTCOME_NO_MATCH);
    grid_ticket_free(ticket);
}

static void test_no_keys_go_by_load(void **state)
{
    (void)state;
    struct grid_decision decision;
    struct grid_ticket *ticket = ticket_of(NULL, 0);
    grid_route(ticket, NULL, 0, &decision);
    assert_int_equal(decision.action, GRID_FORWARD);
    assert_int_equal(decision.outcome, GRID_OUTCOME_NOT_APPLICABLE);
    assert_int_equal(decision.reason, GRID_REASON_TOO_SHORT);
    grid_ticket_free(ticket);
}

static void test_an_unknown_model_is_refused(void **state)
{
    (void)state;
    uint64_t keys[8];
    struct grid_ticket *ticket;
    struct grid_decision decision;
    fill(keys, 8, 1);
    assert_int_equal(grid_ticket_of_keys(world.router, grid_str_of("other"), keys, 8, &ticket), GRID_OK);
    grid_route(ticket, NULL, 0, &decision);
    assert_int_equal(decision.action, GRID_REPLY);
    assert_int_equal(decision.reply.status, 404);
    grid_ticket_free(ticket);
}

static void test_no_memory_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    uint64_t keys[8];
    struct grid_ticket *ticket = NULL;
    fill(keys, 8, 1);
    failing_alloc_arm(&world.memory, 0, false);
    assert_int_equal(grid_ticket_of_keys(world.router, grid_str_of("m"), keys, 8, &ticket), GRID_E_NO_MEMORY);
    failing_alloc_disarm(&world.memory);
}

/* By python3: hmac.new(secret, text + b'\0' + number.to_bytes(8, 'big'), 'sha256').digest()[:8] */
static void test_recorded_values_are_the_documented_hmac(void **state)
{
    (void)state;
    const struct grid_str secret = grid_str_of("0123456789abcdef0123456789abcdef");
    uint64_t keys[2] = {1, 0xfedcba9876543210ull};
    grid_record_keys(secret, keys, 2);
    assert_true(keys[0] == 0xd34096358864fa76ull);
    assert_true(keys[1] == 0xe1aae18c12fa1418ull);
    assert_true(grid_record_seed(secret) == 0xd41541615c0b2446ull);
    uint64_t other = 1;
    grid_record_keys(grid_str_of("another secret of more than 32 bytes"), &other, 1);
    assert_true(other != keys[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ready_keys_are_matched_pended_and_learned, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_keys_go_by_load, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_unknown_model_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory_is_an_error_and_leaks_nothing, set_up, tear_down),
        cmocka_unit_test(test_recorded_values_are_the_documented_hmac),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
