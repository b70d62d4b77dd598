/*
 * test_alloc_fail.c - for every n: the n-th allocation fails, alone or with all behind it
 *
 * What may not happen: a crash, a block that is never given back, a configuration half in force, a request refused for
 * a reason that is not true.
 */
#include "world.h"

#include <math.h>

#define MOST_ALLOCATIONS 500u /* a step that takes more has a loop in it */
#define NO_CHANCE "{'prefix_affinity':{'exploration':0}}"

static struct world world;

static int set_up(void **state)
{
    (void)state;
    world_init(&world, NO_CHANCE, "a b c");
    (void)world_answer(world_send(&world, 'x', 40, 1, 0), 200, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    failing_alloc_disarm(&world.memory);
    world_done(&world);
    return 0;
}

/* One step under a failing allocator; returns whether it succeeded. Runs with the n-th failing until none does. */
typedef bool step_fn(bool failed_before);

static void for_every_allocation(step_fn *step, bool gives_all_back)
{
    for (int for_good = 0; for_good < 2; for_good++) {
        uint64_t n = 0;
        for (bool failed = true; failed; n++) {
            assert_true(n < MOST_ALLOCATIONS);
            long long held = atomic_load(&world.memory.out);
            failing_alloc_arm(&world.memory, n, for_good);
            bool ok = step(n > 0);
            failed = atomic_load(&world.memory.failed);
            failing_alloc_disarm(&world.memory);
            assert_true(ok || failed);
            if (gives_all_back || !ok)
                assert_int_equal(atomic_load(&world.memory.out), held);
        }
        assert_true(n > 1); /* it does allocate */
    }
}

static bool step_new(bool failed_before)
{
    (void)failed_before;
    struct grid_options options = {.alloc = &world.memory.alloc, .hash_seed = 1};
    struct grid_router *router = NULL;
    enum grid_status status = grid_router_new(&options, &router);
    assert_true(status == GRID_OK || status == GRID_E_NO_MEMORY);
    assert_int_equal(router != NULL, status == GRID_OK); /* outputs untouched on failure */
    grid_router_free(router);
    return status == GRID_OK;
}

static void test_a_new_router(void **state)
{
    (void)state;
    for_every_allocation(step_new, true);
}

/* What set_up put in force. */
static void expect_unchanged(void)
{
    struct grid_settings settings;
    grid_router_settings(world.router, &settings);
    assert_true(settings.threshold == 0.8 && settings.exploration == 0);
    assert_int_equal(grid_router_sites(world.router, 0, NULL, 0), 3);
    struct grid_site_view view = world_site(&world, "a", 0);
    assert_int_equal(view.capacity, 16384);
    assert_true(view.entries >= 40);
}

static bool step_load(bool failed_before)
{
    if (failed_before)
        expect_unchanged();
    enum grid_status status = world_load(&world, "{'prefix_affinity':{'threshold':0.5,'capacity':64}}", "b a d e", 1);
    if (status != GRID_OK) {
        assert_int_equal(status, GRID_E_NO_MEMORY);
        assert_true(world.fault == 1 || world.fault == 2);
        assert_int_equal(world.errors.items[0].code, GRID_E_NO_MEMORY);
        expect_unchanged();
        return false;
    }
    struct grid_settings settings;
    grid_router_settings(world.router, &settings);
    assert_true(settings.threshold == 0.5);
    assert_int_equal(grid_router_sites(world.router, 1, NULL, 0), 4);
    assert_int_equal(world_site(&world, "a", 1).capacity, 64);
    assert_true(world_site(&world, "a", 1).entries >= 40); /* resized, not emptied */
    return true;
}

static void test_a_load(void **state)
{
    (void)state;
    /* Pairs of counters are made once in a router's life and stay, so they are made ahead. */
    world_must_load(&world, NO_CHANCE, "a b c d e", 0);
    for (int for_good = 0; for_good < 2; for_good++) {
        uint64_t n = 0;
        bool ok = false;
        world_must_load(&world, NO_CHANCE, "a b c", 0);
        world_must_load(&world, NO_CHANCE, "a b c", 0);
        (void)world_answer(world_send(&world, 'x', 40, 1, 0), 200, 0);
        for (; !ok; n++) {
            assert_true(n < MOST_ALLOCATIONS);
            long long held = atomic_load(&world.memory.out);
            failing_alloc_arm(&world.memory, n, for_good);
            ok = step_load(n > 0);
            failing_alloc_disarm(&world.memory);
            if (!ok)
                assert_int_equal(atomic_load(&world.memory.out), held);
        }
        assert_true(n > 10);
        assert_false(atomic_load(&world.memory.failed)); /* no failure passed unnoticed */
    }
}

/* A request goes on, or is told that the gateway failed: never that its model is unknown. */
static bool step_request(bool failed_before)
{
    (void)failed_before;
    static struct text body;
    struct grid_header header = {GRID_LIT("x-model"), GRID_LIT("m")};
    struct grid_head head = {
        .method = GRID_LIT("POST"), .path = GRID_LIT("/v1/chat/completions"), .headers = &header, .n_headers = 1};
    struct grid_ticket *ticket = NULL;
    struct grid_decision decision;
    enum grid_status status = grid_ticket_new(world.router, &head, &ticket);
    if (status != GRID_OK) {
        assert_int_equal(status, GRID_E_NO_MEMORY);
        assert_null(ticket);
        return false;
    }
    body.len = 0;
    text_put_chat(&body, "m", 'x', 40, 2);
    struct grid_str slice = text_view(&body);
    grid_ticket_body(ticket, &slice, 1, false);
    grid_route(ticket, NULL, 1, &decision);
    if (decision.action == GRID_REPLY)
        assert_int_equal(decision.reply.status, 500);
    else
        assert_int_equal(decision.outcome, GRID_OUTCOME_STICKY);
    grid_learn(ticket, 200, GRID_FROM_SITE, 1, NULL);
    grid_ticket_free(ticket);
    return decision.action == GRID_FORWARD;
}

static void test_a_request(void **state)
{
    (void)state;
    for_every_allocation(step_request, true);
    assert_true(step_request(false)); /* and it goes on afterwards */
}

/* A pin goes home or is not made at all: without memory it is never told that there is no such response. */
static bool step_pin(bool failed_before)
{
    (void)failed_before;
    struct grid_buf path = {.limit = 1000};
    struct grid_ticket *ticket = NULL;
    struct grid_decision decision;
    grid_buf_puts(&path, "/v1/responses/");
    grid_router_tag(world.router, GRID_ID_RESPONSE, GRID_LIT("a"), GRID_LIT("a"), GRID_LIT("1"), &path);
    struct grid_head head = {.method = GRID_LIT("GET"), .path = {path.ptr, path.len}, .no_body = true};
    enum grid_status status = grid_ticket_new(world.router, &head, &ticket);
    grid_buf_done(&path);
    if (status != GRID_OK)
        return false;
    grid_route(ticket, NULL, 1, &decision);
    assert_true(decision.pinned && grid_str_eq(decision.path, GRID_LIT("/v1/responses/resp_1")));
    assert_true(grid_answer_begin(ticket, 200, GRID_LIT(""), GRID_LIT("")));
    grid_ticket_free(ticket);
    return true;
}

static void test_a_pin(void **state)
{
    (void)state;
    for_every_allocation(step_pin, true);
}

static bool step_models(bool failed_before)
{
    (void)failed_before;
    struct grid_head head = {.method = GRID_LIT("GET"), .path = GRID_LIT("/v1/models"), .no_body = true};
    struct grid_ticket *ticket = NULL;
    struct grid_decision decision;
    if (grid_ticket_new(world.router, &head, &ticket) != GRID_OK)
        return false;
    grid_route(ticket, NULL, 1, &decision);
    assert_int_equal(decision.action, GRID_REPLY);
    assert_true(decision.reply.status == 200 || decision.reply.status == 500);
    assert_true(decision.reply.body.len > 10);
    grid_ticket_free(ticket);
    return decision.reply.status == 200;
}

static void test_the_list_of_models(void **state)
{
    (void)state;
    for_every_allocation(step_models, true);
}

static bool step_refresh(bool failed_before)
{
    (void)failed_before;
    static uint64_t now_ms;
    now_ms++;
    (void)grid_signal(world.router, GRID_LIT("a"), 3, now_ms, now_ms);
    enum grid_status status = grid_router_refresh(world.router, now_ms);
    assert_true(status == GRID_OK || status == GRID_E_NO_MEMORY);
    return status == GRID_OK;
}

static void test_a_refresh(void **state)
{
    (void)state;
    for_every_allocation(step_refresh, true); /* the new order replaces the old: as much is held as before */
    assert_true(world_site(&world, "a", 10).depth == 3);
}

/* No memory for an empty table: the entries stay, and that is not counted as a reset. */
static void test_an_engine_that_restarted(void **state)
{
    (void)state;
    for (uint64_t n = 0, done = 0; !done; n++) {
        assert_true(n < MOST_ALLOCATIONS);
        (void)world_answer(world_send(&world, 'x', 40, 1, 0), 200, 0);
        uint64_t resets = world_counter(&world, "grid_route_cluster_resets_total", "");
        long long held = atomic_load(&world.memory.out);
        failing_alloc_arm(&world.memory, n, true);
        grid_router_forget_cluster(world.router, GRID_LIT("a"));
        failing_alloc_disarm(&world.memory);
        done = world_site(&world, "a", 0).entries == 0;
        assert_int_equal(done, !atomic_load(&world.memory.failed));
        assert_int_equal(world_counter(&world, "grid_route_cluster_resets_total", ""), resets + done);
        assert_int_equal(atomic_load(&world.memory.out), held);
    }
}

static bool step_metrics(bool failed_before)
{
    (void)failed_before;
    struct grid_buf buf = {.limit = 1u << 20, .alloc = &world.memory.alloc};
    grid_router_metrics(world.router, 0, &buf);
    bool ok = !buf.failed;
    grid_buf_done(&buf);
    return ok;
}

static void test_metrics(void **state)
{
    (void)state;
    for_every_allocation(step_metrics, true);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_new_router),
        TEST(test_a_load),
        TEST(test_a_request),
        TEST(test_a_pin),
        TEST(test_the_list_of_models),
        TEST(test_a_refresh),
        TEST(test_an_engine_that_restarted),
        TEST(test_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
