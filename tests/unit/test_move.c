/*
 * test_move.c - failover: the ticket goes on to another site, and what that leaves in the index and the counters
 *
 * Source    behaviour.md O (43).
 */
#include "world.h"

static struct world world;

static int set_up(void **state)
{
    (void)state;
    world_init(&world, "{'prefix_affinity':{'exploration':0}}", "a b c d! /solo");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&world);
    return 0;
}

static void at(const struct grid_ticket *ticket, const char *site)
{
    const struct grid_decision *d = grid_ticket_decision(ticket);
    assert_int_equal(d->action, GRID_FORWARD);
    assert_true(grid_str_eq(d->site, grid_str_of(site)));
    assert_true(grid_str_eq(d->cluster, grid_str_of(site)));
}

static uint32_t run_at(const struct grid_ticket *ticket, const char *cluster, uint64_t now_ms)
{
    return grid_router_run(world.router, ticket, grid_str_of(cluster), now_ms);
}

static uint64_t failovers(const char *site)
{
    char label[80];
    (void)snprintf(label, sizeof label, "site=\"%s\",cluster=\"%s\"", site, site);
    return world_counter(&world, "grid_route_failovers_total", label);
}

static uint64_t decided(const char *site, const char *reason)
{
    char label[120];
    (void)snprintf(label, sizeof label, "site=\"%s\",cluster=\"%s\",reason=\"%s\"", site, site, reason);
    return world_counter(&world, "grid_route_decisions_total", label);
}

/* Teaches a site a prompt by making all others deeper. */
static void teach(const char *site, char letter, uint64_t now_ms)
{
    static const char *const names[] = {"a", "b", "c"};
    for (size_t i = 0; i < COUNT(names); i++)
        (void)grid_signal(world.router, grid_str_of(names[i]), strcmp(names[i], site) == 0 ? 0 : 900, now_ms, now_ms);
    assert_int_equal(grid_router_refresh(world.router, now_ms), GRID_OK);
    struct grid_ticket *ticket = world_send(&world, letter, 40, 1, now_ms);
    at(ticket, site);
    assert_true(world_answer(ticket, 200, now_ms).confirmed >= 40);
}

static void test_blocks_drop_here_and_count_there(void **state)
{
    (void)state;
    teach("a", 'x', 1000);
    struct grid_ticket *ticket = world_send(&world, 'x', 40, 1, 2000);
    at(ticket, "a");
    uint64_t sticky = world_counter(&world, "grid_route_prefix_affinity_total", "outcome=\"sticky\"");
    assert_true(grid_ticket_movable(ticket));
    assert_true(grid_ticket_move(ticket, 2000));
    at(ticket, "b");
    assert_int_equal(run_at(ticket, "a", 2000), 0);
    assert_int_equal(run_at(ticket, "b", 2000), 0); /* marked only */
    assert_int_equal(grid_ticket_decision(ticket)->outcome, GRID_OUTCOME_STICKY);
    assert_int_equal(failovers("a"), 1);
    assert_int_equal(failovers("b"), 0);
    assert_int_equal(decided("b", "failover"), 1);
    assert_int_equal(world_counter(&world, "grid_route_prefix_affinity_total", "outcome=\"sticky\""), sticky);

    struct grid_learned learned;
    grid_learn(ticket, 200, GRID_FROM_SITE, 2100, &learned);
    assert_true(learned.confirmed >= 40);
    assert_int_equal(run_at(ticket, "a", 2100), 0);
    assert_int_equal(run_at(ticket, "b", 2100), learned.confirmed);
    assert_false(grid_ticket_move(ticket, 2100)); /* it is settled */
    grid_ticket_free(ticket);
}

static void test_the_next_is_the_one_that_holds_most(void **state)
{
    (void)state;
    teach("a", 'y', 1000);
    teach("c", 'y', 100000); /* past the window of the first samples; a's entries are still young */
    (void)grid_signal(world.router, GRID_LIT("a"), 0, 200000, 200000);
    (void)grid_signal(world.router, GRID_LIT("b"), 0, 200000, 200000);
    (void)grid_signal(world.router, GRID_LIT("c"), 0, 200000, 200000);
    assert_int_equal(grid_router_refresh(world.router, 200000), GRID_OK);
    struct grid_ticket *ticket = world_send(&world, 'y', 40, 1, 200000);
    at(ticket, "a");
    assert_true(grid_ticket_move(ticket, 200000));
    at(ticket, "c"); /* b comes before it, but c holds the prompt */
    assert_true(grid_ticket_move(ticket, 200000));
    at(ticket, "b");
    assert_false(grid_ticket_movable(ticket));
    assert_false(grid_ticket_move(ticket, 200000));
    at(ticket, "b");
    assert_int_equal(world_answer(ticket, 500, 200000).dropped, 40);
}

static void test_only_a_healthy_admitted_other_one_will_do(void **state)
{
    (void)state;
    struct grid_ticket *ticket = world_send(&world, 'z', 40, 1, 0);
    size_t n = 0;
    struct grid_candidate *candidates = grid_ticket_candidates(ticket, &n);
    assert_int_equal(n, 4);
    at(ticket, "a");
    candidates[1].health = GRID_UNHEALTHY;
    candidates[2].health = GRID_UNKNOWN;
    assert_false(grid_ticket_movable(ticket)); /* d admits nothing */
    assert_false(grid_ticket_move(ticket, 0));
    at(ticket, "a");
    candidates[1].health = GRID_HEALTHY;
    assert_true(grid_ticket_movable(ticket));
    candidates[1].health = GRID_UNHEALTHY; /* fell ill since */
    candidates[2].health = GRID_HEALTHY;
    assert_true(grid_ticket_move(ticket, 0));
    at(ticket, "c");
    grid_ticket_free(ticket);

    struct grid_decision decision;
    ticket = world_ask(&world, &(struct request){.model = "solo", .body = GRID_LIT("{}")});
    assert_false(grid_ticket_movable(ticket)); /* not decided */
    grid_route(ticket, NULL, 0, &decision);
    assert_int_equal(decision.action, GRID_FORWARD);
    assert_false(grid_ticket_movable(ticket)); /* the only one */
    assert_false(grid_ticket_move(ticket, 0));
    grid_ticket_free(ticket);
    ticket = world_ask(&world, &(struct request){.model = "none", .body = GRID_LIT("{}")});
    grid_route(ticket, NULL, 0, &decision);
    assert_false(grid_ticket_movable(ticket)); /* refused */
    grid_ticket_free(ticket);
}

static void test_without_keys_it_goes_by_load(void **state)
{
    (void)state;
    struct grid_decision decision;
    struct grid_ticket *ticket = world_ask(&world, &(struct request){.model = "m", .body = GRID_LIT("{}")});
    grid_route(ticket, NULL, 0, &decision);
    at(ticket, "a");
    assert_true(grid_ticket_move(ticket, 0));
    at(ticket, "b");
    assert_int_equal(grid_ticket_decision(ticket)->outcome, GRID_OUTCOME_NOT_APPLICABLE);
    grid_ticket_free(ticket);
}

/* The failed site leaves the configuration while the ticket is on its way. */
static void test_a_reload_in_between(void **state)
{
    (void)state;
    struct grid_ticket *ticket = world_send(&world, 'w', 40, 1, 0);
    at(ticket, "a");
    world_must_load(&world, NULL, "b c", 0);
    assert_true(grid_ticket_move(ticket, 0));
    at(ticket, "b");
    assert_true(world_answer(ticket, 200, 0).confirmed >= 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_blocks_drop_here_and_count_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_next_is_the_one_that_holds_most, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_a_healthy_admitted_other_one_will_do, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_keys_it_goes_by_load, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_reload_in_between, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
