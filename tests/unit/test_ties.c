/*
 * test_ties.c - spread_ties: what is open at a site, from the decision to the end of the stream
 */
#include "world.h"

static struct world world;

static int set_up(void **state)
{
    (void)state;
    world_init(&world, "{'prefix_affinity':{'exploration':0,'spread_ties':true}}", "a b");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&world);
    return 0;
}

static uint64_t open_at(const char *cluster)
{
    struct grid_ticket *ticket = world_ask(&world, &(struct request){.model = "m", .body = GRID_LIT("{}")});
    size_t n;
    uint64_t open = UINT64_MAX;
    const struct grid_candidate *candidates = grid_ticket_candidates(ticket, &n);
    for (size_t i = 0; i < n; i++)
        if (grid_str_eq(candidates[i].cluster, grid_str_of(cluster)))
            open = candidates[i].open;
    grid_ticket_free(ticket);
    return open;
}

/* Open is what was sent and has not ended, whatever its answer; a failover takes it along. */
static void test_ties_go_by_open_requests(void **state)
{
    (void)state;
    struct grid_ticket *open[4];
    for (size_t i = 0; i < COUNT(open); i++) {
        open[i] = world_send(&world, (char)('p' + i), 8, 1, 0);
        assert_true(grid_str_eq(grid_ticket_decision(open[i])->cluster, i % 2 ? GRID_LIT("b") : GRID_LIT("a")));
    }
    assert_int_equal(open_at("a"), 2);
    assert_int_equal(open_at("b"), 2);
    grid_learn(open[1], 200, GRID_FROM_SITE, 0, NULL);
    assert_int_equal(open_at("b"), 2); /* its answer streams */
    assert_true(grid_ticket_move(open[0], 0));
    assert_int_equal(open_at("a"), 1);
    assert_int_equal(open_at("b"), 3);
    world_must_load(&world, "{'prefix_affinity':{'exploration':0}}", NULL, 0);
    assert_int_equal(open_at("b"), 3);
    world_answer(world_send(&world, 'x', 8, 1, 0), 200, 0); /* and back to the order of the candidates */
    for (size_t i = 0; i < COUNT(open); i++)
        grid_ticket_free(open[i]);
    assert_int_equal(open_at("a") + open_at("b"), 0);
}

/* Only looked at: nothing was sent. */
static void test_a_peek_opens_nothing(void **state)
{
    (void)state;
    const struct grid_route_options peek = {.peek = true};
    struct grid_decision decision;
    struct grid_ticket *ticket = world_ask(&world, &(struct request){.model = "m", .body = GRID_LIT("{}")});
    grid_route(ticket, &peek, 0, &decision);
    assert_int_equal(open_at("a"), 0);
    grid_ticket_free(ticket);
    assert_int_equal(open_at("a"), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_ties_go_by_open_requests), TEST(test_a_peek_opens_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
