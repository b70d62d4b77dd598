/*
 * test_route.c - whole requests: what is decided, where it is remembered, what an answer teaches
 */
#include "world.h"

#include <math.h>

#define NO_CHANCE "{'prefix_affinity':{'exploration':0}}"

static struct world world;

static int set_up(void **state)
{
    (void)state;
    world_init(&world, NO_CHANCE, "a b");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&world);
    return 0;
}

static void expect(const struct grid_ticket *ticket, const char *cluster, enum grid_outcome outcome)
{
    const struct grid_decision *d = grid_ticket_decision(ticket);
    if (d->action != GRID_FORWARD || !grid_str_eq(d->cluster, grid_str_of(cluster)) || d->outcome != outcome)
        print_message("%d %.*s %s (run %u of %u, %s), not %s %s\n", d->reply.status, GRID_FMT(d->cluster),
                      grid_outcome_name(d->outcome), d->run, d->blocks, grid_reason_name(d->reason), cluster,
                      grid_outcome_name(outcome));
    assert_int_equal(d->action, GRID_FORWARD);
    assert_true(grid_str_eq(d->cluster, grid_str_of(cluster)));
    assert_true(grid_str_eq(d->site, grid_str_of(cluster)));
    assert_int_equal(d->outcome, outcome);
}

static void expect_refusal(const struct grid_ticket *ticket, int status, const char *code)
{
    const struct grid_decision *d = grid_ticket_decision(ticket);
    assert_int_equal(d->action, GRID_REPLY);
    assert_int_equal(d->reply.status, status);
    assert_string_equal(d->reply.code, code);
    assert_int_equal(d->outcome, GRID_OUTCOME_UNCOUNTED);
}

/* Sends and has it answered with 200; the decision is checked. */
static void ask(char letter, size_t blocks, unsigned turns, uint64_t now_ms, const char *cluster,
                enum grid_outcome outcome)
{
    struct grid_ticket *ticket = world_send(&world, letter, blocks, turns, now_ms);
    expect(ticket, cluster, outcome);
    uint32_t n = grid_ticket_decision(ticket)->blocks;
    assert_int_equal(world_answer(ticket, 200, now_ms).confirmed, n);
}

/* ---- the index ------------------------------------------------------------------------------------------------- */

static void test_it_sticks_from_the_second_turn(void **state)
{
    (void)state;
    world_signal(&world, "a", 0.3, 0);
    world_signal(&world, "b", 0.2, 0);
    ask('x', 40, 1, 0, "b", GRID_OUTCOME_NO_MATCH);
    world_signal(&world, "a", 0.4, 1);
    world_signal(&world, "b", 0.45, 1); /* a little deeper now: the match is worth more */
    for (unsigned turn = 2; turn < 6; turn++)
        ask('x', 40, turn, turn, "b", GRID_OUTCOME_STICKY);
    ask('y', 40, 1, 9, "a", GRID_OUTCOME_NO_MATCH);
    assert_int_equal(world_outcomes(&world, GRID_OUTCOME_STICKY), 4);
    assert_int_equal(world_outcomes(&world, GRID_OUTCOME_NO_MATCH), 2);
    assert_int_equal(world_decisions(&world, "b", "routed"), 5);
    assert_int_equal(world_decisions(&world, "a", "routed"), 1);
}

static void test_a_burst_before_the_answer_goes_by_load(void **state)
{
    (void)state;
    struct grid_ticket *burst[4];
    for (size_t i = 0; i < 4; i++) {
        world_signal(&world, i % 2 ? "a" : "b", (double)i + 1, i); /* each time the other is the least queued */
        if (i == 0)
            world_signal(&world, "a", 0, i);
        burst[i] = world_send(&world, 'x', 40, 1, i);
        expect(burst[i], i % 2 ? "b" : "a", GRID_OUTCOME_NO_MATCH);
    }
    for (size_t i = 0; i < 4; i++)
        (void)world_answer(burst[i], 200, 10);
    assert_int_equal(world_outcomes(&world, GRID_OUTCOME_NO_MATCH), 4);
}

static void test_answers_that_drop(void **state)
{
    (void)state;
    static const int statuses[] = {429, 500, 503, 529, 599};
    for (size_t i = 0; i < COUNT(statuses); i++) {
        char letter = (char)('c' + i);
        ask(letter, 40, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
        struct grid_ticket *ticket = world_send(&world, letter, 40, 1, 0);
        expect(ticket, "a", GRID_OUTCOME_STICKY);
        assert_true(world_answer(ticket, statuses[i], 0).dropped >= 40);
        assert_int_equal(world_site(&world, "a", 0).entries, 0);
    }
}

static void test_answers_that_withdraw(void **state)
{
    (void)state;
    static const int statuses[] = {100, 199, 300, 400, 404, 428, 430, 499, 600, 0};
    for (size_t i = 0; i < COUNT(statuses); i++) {
        struct grid_learned learned = world_answer(world_send(&world, 'x', 40, 1, 0), statuses[i], 0);
        assert_int_equal(learned.confirmed + learned.dropped, 0);
        assert_int_equal(world_site(&world, "a", 0).entries, 0);
    }
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
    (void)world_answer(world_send(&world, 'x', 40, 1, 0), 404, 0);
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_STICKY); /* what is confirmed stays */
    static const int successes[] = {200, 204, 299};
    for (size_t i = 0; i < COUNT(successes); i++)
        assert_true(world_answer(world_send(&world, (char)('p' + i), 40, 1, 0), successes[i], 0).confirmed >= 40);
}

static void test_answers_that_the_gateway_made(void **state)
{
    (void)state;
    struct grid_learned learned;
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
    struct grid_ticket *ticket = world_send(&world, 'x', 40, 1, 0);
    grid_learn(ticket, 503, GRID_NOT_THE_SITE, 0, &learned);
    assert_int_equal(learned.dropped, 0);
    grid_learn(ticket, 503, GRID_SITE_FAILED, 0, &learned); /* the first call counts */
    assert_int_equal(learned.dropped, 0);
    grid_ticket_free(ticket);
    ticket = world_send(&world, 'x', 40, 1, 0);
    expect(ticket, "a", GRID_OUTCOME_STICKY);
    grid_learn(ticket, 200, GRID_SITE_FAILED, 0, &learned);
    assert_true(learned.dropped >= 40);
    grid_learn(ticket, 200, GRID_FROM_SITE, 0, NULL);
    grid_ticket_free(ticket);
    assert_int_equal(world_site(&world, "a", 0).entries, 0);
}

/* A client that went away: its mark is still waited for, and lapses after 30 s. */
static void test_an_abandoned_request_lapses(void **state)
{
    (void)state;
    grid_ticket_free(world_send(&world, 'x', 40, 1, 0));
    uint64_t marks = world_site(&world, "a", 0).entries;
    assert_true(marks >= 40);
    (void)world_answer(world_send(&world, 'x', 40, 1, 29999), 400, 29999);
    assert_int_equal(world_site(&world, "a", 29999).entries, marks);
    (void)world_answer(world_send(&world, 'x', 40, 1, 30000), 400, 30000);
    assert_int_equal(world_site(&world, "a", 30000).entries, 0);
}

static void test_a_confirmation_ends_at_its_ttl(void **state)
{
    (void)state;
    ask('x', 40, 1, 5, "a", GRID_OUTCOME_NO_MATCH);
    struct grid_ticket *ticket = world_send(&world, 'x', 40, 1, 600004);
    expect(ticket, "a", GRID_OUTCOME_STICKY);
    grid_ticket_free(ticket);
    ticket = world_send(&world, 'x', 40, 1, 600005);
    expect(ticket, "a", GRID_OUTCOME_NO_MATCH);
    grid_ticket_free(ticket);
}

/* ---- load, chance ----------------------------------------------------------------------------------------------- */

static void test_the_gate_opens_just_above_the_worth(void **state)
{
    (void)state;
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
    struct grid_ticket *ticket = world_send(&world, 'x', 40, 1, 1);
    uint32_t run = grid_ticket_decision(ticket)->run;
    assert_true(run >= 40);
    grid_ticket_free(ticket);
    double worth = (double)run * 64 / 10000 / 2;

    world_signal(&world, "b", 0, 2);
    world_signal(&world, "a", worth, 2);
    ticket = world_send(&world, 'x', 40, 1, 2);
    expect(ticket, "a", GRID_OUTCOME_STICKY);
    const struct grid_decision *d = grid_ticket_decision(ticket);
    assert_true(d->worth == worth && d->best_sticky == worth && d->best_other == 0);
    grid_ticket_free(ticket);

    world_signal(&world, "a", nextafter(worth, 1e6), 3);
    ask('x', 40, 1, 3, "b", GRID_OUTCOME_LOAD_OVERRIDE);
    ask('x', 40, 1, 4, "b", GRID_OUTCOME_STICKY); /* and so b has learned it */
}

static void test_unmeasured_sites(void **state)
{
    (void)state;
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
    ask('x', 40, 1, 1, "a", GRID_OUTCOME_STICKY); /* both unmeasured: it keeps the site */
    world_signal(&world, "b", 1000, 2);
    ask('x', 40, 1, 3, "b", GRID_OUTCOME_LOAD_OVERRIDE);
    assert_int_equal(grid_router_refresh(world.router, 30003), GRID_OK); /* b's sample is stale */
    ask('y', 40, 1, 30003, "a", GRID_OUTCOME_NO_MATCH);
}

static void test_exploring(void **state)
{
    (void)state;
    world_must_load(&world, "{'prefix_affinity':{'exploration':1}}", NULL, 0);
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_EXPLORATION);
    world_must_load(&world, "{'prefix_affinity':{'exploration':0.05}}", NULL, 0);
    for (unsigned i = 0; i < 20000; i++)
        (void)world_answer(world_send(&world, 'x', 8, 1, 0), 200, 0);
    uint64_t explored = world_outcomes(&world, GRID_OUTCOME_EXPLORATION) - 1;
    assert_in_range(explored, 800, 1200);
    assert_int_equal(world_all_outcomes(&world), 20001);
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
    world_must_load(&world, "{'prefix_affinity':{'exploration':0,'spread_ties':true}}", "a b", 0);
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

static void test_affinity_off(void **state)
{
    (void)state;
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
    world_must_load(&world, "{'prefix_affinity':{'enabled':false}}", NULL, 0);
    struct grid_ticket *ticket = world_send(&world, 'x', 40, 1, 1);
    expect(ticket, "a", GRID_OUTCOME_UNCOUNTED);
    assert_int_equal(grid_ticket_decision(ticket)->reason, GRID_REASON_DISABLED);
    size_t n = 9;
    (void)grid_ticket_keys(ticket, &n);
    assert_int_equal(n, 0);
    grid_ticket_free(ticket);
    struct request request = {.model = "m"};
    ticket = world_ask(&world, &request); /* decided at its head */
    assert_int_equal(grid_ticket_want(ticket), GRID_WANT_NOTHING);
    grid_ticket_free(ticket);
    assert_int_equal(world_all_outcomes(&world), 1);
}

static void test_health_as_the_proxy_knows_it(void **state)
{
    (void)state;
    struct text body = {.len = 0};
    struct grid_decision decision;
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
    text_put_chat(&body, "m", 'x', 40, 1);
    static const struct {
        enum grid_health a, b;
        const char *taken, *reason;
        enum grid_outcome outcome;
    } rows[] = {
        {GRID_HEALTHY, GRID_HEALTHY, "a", "routed", GRID_OUTCOME_STICKY},
        {GRID_UNHEALTHY, GRID_HEALTHY, "b", "routed", GRID_OUTCOME_UNCOUNTED},
        {GRID_UNHEALTHY, GRID_UNHEALTHY, "a", "fallback", GRID_OUTCOME_STICKY},
        {GRID_UNKNOWN, GRID_UNHEALTHY, "b", "fallback", GRID_OUTCOME_UNCOUNTED},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t before = world_decisions(&world, rows[i].taken, rows[i].reason);
        struct grid_ticket *ticket = world_ask(&world, &(struct request){.body = text_view(&body)});
        size_t n = 0;
        struct grid_candidate *candidates = grid_ticket_candidates(ticket, &n);
        assert_int_equal(n, 2);
        candidates[0].health = rows[i].a;
        candidates[1].health = rows[i].b;
        grid_route(ticket, NULL, 1, &decision);
        expect(ticket, rows[i].taken, rows[i].outcome);
        assert_int_equal(world_decisions(&world, rows[i].taken, rows[i].reason), before + 1);
        grid_ticket_free(ticket);
    }
    struct grid_ticket *ticket = world_ask(&world, &(struct request){.body = text_view(&body)});
    size_t n = 0;
    struct grid_candidate *candidates = grid_ticket_candidates(ticket, &n);
    candidates[0].health = candidates[1].health = GRID_UNKNOWN;
    grid_route(ticket, NULL, 1, &decision);
    expect_refusal(ticket, 503, "no_healthy_site");
    grid_ticket_free(ticket);
}

/* ---- options of a decision -------------------------------------------------------------------------------------- */

/* Where a request for model m on the path goes; "" and the refusal's status when nowhere. */
static void expect_on(const char *path, const char *cluster, int status, const char *code)
{
    struct text body = {.len = 0};
    struct grid_decision decision;
    text_put_json(&body, "{'model':'m'}");
    struct grid_ticket *ticket = world_ask(&world, &(struct request){.path = path, .body = text_view(&body)});
    grid_route(ticket, NULL, 1, &decision);
    if (status)
        expect_refusal(ticket, status, code);
    else
        expect(ticket, cluster, decision.outcome);
    grid_ticket_free(ticket);
}

static void test_clusters_that_serve_some_paths_only(void **state)
{
    (void)state;
    struct text serving = {.len = 0};
    text_put_json(
        &serving,
        "{'local_site':'a','candidates':["
        "{'kind':'inference_model','name':'m','site':'a','cluster':'a'},"
        "{'kind':'inference_model','name':'m','site':'b','cluster':'b'}],'clusters':["
        "{'name':'a','endpoints':['h:1'],'paths':['/v1/completions','/v1/messages']},"
        "{'name':'b','endpoints':['h:2'],'paths':['/v1/completions','/v1/embeddings','/v1/conversations']}]}");
    struct grid_load load = {.serving = text_view(&serving)};
    assert_int_equal(grid_router_load(world.router, &load, 0, &world.errors, NULL), GRID_OK);
    expect_on("/v1/completions", "a", 0, NULL);
    expect_on("/v1/messages?beta=true", "a", 0, NULL);
    expect_on("/v1/embeddings", "b", 0, NULL);
    expect_on("/v1/embeddings/", "b", 0, NULL);
    expect_on("/v1/conversations", "b", 0, NULL);
    expect_on("/v1/embeddings/x", NULL, 404, "model_not_found");
    expect_on("/v1/chat/completions", NULL, 404, "model_not_found");
    assert_int_equal(world_decisions(&world, "b", "routed"), 3);
}

static void test_a_peek_counts_and_marks_nothing(void **state)
{
    (void)state;
    struct text body = {.len = 0};
    struct grid_decision decision;
    const struct grid_route_options peek = {.peek = true};
    world_must_load(&world, "{'prefix_affinity':{'exploration':1}}", NULL, 0);
    text_put_chat(&body, "m", 'x', 40, 1);
    struct grid_ticket *ticket = world_ask(&world, &(struct request){.body = text_view(&body)});
    grid_route(ticket, &peek, 0, &decision);
    expect(ticket, "a", GRID_OUTCOME_NO_MATCH); /* it never explores */
    assert_int_equal(world_answer(ticket, 200, 0).confirmed, 0);
    ticket = world_ask(&world, &(struct request){.model = "none-such", .body = text_view(&body)});
    grid_route(ticket, &peek, 0, &decision);
    expect_refusal(ticket, 404, "model_not_found");
    grid_ticket_free(ticket);
    assert_int_equal(world_site(&world, "a", 0).entries, 0);
    assert_int_equal(world_all_outcomes(&world), 0);
    assert_int_equal(world_decisions(&world, "a", "routed"), 0);
    assert_int_equal(world_decisions(&world, "", "no_route"), 0);
}

static void test_a_forced_cluster(void **state)
{
    (void)state;
    struct text body = {.len = 0};
    struct grid_decision decision;
    world_must_load(&world, NULL, "a b!", 0);
    text_put_chat(&body, "m", 'x', 40, 1);
    const struct grid_route_options forced = {.forced = GRID_LIT("b")};
    struct grid_ticket *ticket = world_ask(&world, &(struct request){.body = text_view(&body)});
    grid_route(ticket, &forced, 0, &decision);
    expect(ticket, "b", GRID_OUTCOME_UNCOUNTED);
    assert_true(world_answer(ticket, 200, 0).confirmed >= 40);
    assert_true(world_site(&world, "b", 0).entries >= 40);
    assert_int_equal(world_all_outcomes(&world), 0);
    assert_int_equal(world_decisions(&world, "b", "routed"), 1);
    const struct grid_route_options unknown = {.forced = GRID_LIT("nowhere")};
    ticket = world_ask(&world, &(struct request){.body = text_view(&body)});
    grid_route(ticket, &unknown, 0, &decision);
    expect(ticket, "a", GRID_OUTCOME_UNCOUNTED); /* as if it had not been said */
    grid_ticket_free(ticket);
}

static void test_a_decision_is_made_once(void **state)
{
    (void)state;
    struct grid_decision again;
    struct grid_ticket *ticket = world_send(&world, 'x', 40, 1, 0);
    grid_route(ticket, &(struct grid_route_options){.forced = GRID_LIT("b")}, 0, &again);
    assert_true(grid_str_eq(again.cluster, GRID_LIT("a")));
    assert_int_equal(world_all_outcomes(&world), 1);
    grid_ticket_free(ticket);
    struct request request = {.model = "m"};
    ticket = world_ask(&world, &request);
    assert_int_equal(grid_ticket_decision(ticket)->action, GRID_REPLY);
    assert_int_equal(grid_ticket_decision(ticket)->reply.status, 0);
    grid_ticket_free(ticket);
    grid_ticket_free(NULL);
}

/* ---- reconfiguration -------------------------------------------------------------------------------------------- */

static void test_a_ttl_applies_to_later_confirmations(void **state)
{
    (void)state;
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_NO_MATCH); /* until 600 s */
    struct grid_ticket *sent = world_send(&world, 'y', 40, 1, 0);
    world_must_load(&world, "{'prefix_affinity':{'exploration':0,'ttl_secs':10}}", NULL, 0);
    assert_true(world_answer(sent, 200, 1000).confirmed >= 40); /* sent before, confirmed after: until 11 s */
    struct grid_ticket *ticket = world_send(&world, 'x', 40, 1, 599999);
    expect(ticket, "a", GRID_OUTCOME_STICKY);
    grid_ticket_free(ticket);
    ticket = world_send(&world, 'y', 40, 1, 10999);
    expect(ticket, "a", GRID_OUTCOME_STICKY);
    grid_ticket_free(ticket);
    ticket = world_send(&world, 'y', 40, 1, 11000);
    expect(ticket, "a", GRID_OUTCOME_NO_MATCH);
    grid_ticket_free(ticket);
}

/* Behaviour.md D.4, with prompts of five blocks. */
static void test_a_smaller_capacity_keeps_the_newest(void **state)
{
    (void)state;
    world_must_load(&world, "{'prefix_affinity':{'exploration':0,'capacity':10}}", NULL, 0);
    ask('p', 5, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
    ask('q', 5, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
    assert_int_equal(world_site(&world, "a", 0).entries, 10);
    world_must_load(&world, "{'prefix_affinity':{'exploration':0,'capacity':6}}", NULL, 0);
    struct grid_site_view view = world_site(&world, "a", 0);
    assert_int_equal(view.entries, 6);
    assert_int_equal(view.capacity, 6);
    assert_int_equal(world_site(&world, "b", 0).capacity, 6);
    struct grid_route_options peek = {.peek = true};
    static const struct {
        char letter;
        uint32_t run;
    } rows[] = {{'p', 1}, {'q', 5}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct text body = {.len = 0};
        struct grid_decision decision;
        text_put_chat(&body, "m", rows[i].letter, 5, 1);
        struct grid_ticket *ticket = world_ask(&world, &(struct request){.body = text_view(&body)});
        grid_route(ticket, &peek, 0, &decision);
        assert_int_equal(decision.blocks, 5);
        assert_int_equal(decision.run, rows[i].run);
        assert_int_equal(grid_router_run(world.router, ticket, GRID_LIT("a"), 0), rows[i].run);
        assert_int_equal(grid_router_run(world.router, ticket, GRID_LIT("b"), 0), 0);
        assert_int_equal(grid_router_run(world.router, ticket, GRID_LIT("none"), 0), 0);
        grid_ticket_free(ticket);
    }
}

static void test_a_cluster_that_leaves_comes_back_empty(void **state)
{
    (void)state;
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
    struct grid_ticket *sent = world_send(&world, 'y', 40, 1, 0); /* under way to a */
    expect(sent, "a", GRID_OUTCOME_NO_MATCH);
    world_must_load(&world, NULL, "b c", 0);
    struct grid_learned learned;
    grid_learn(sent, 200, GRID_FROM_SITE, 0, &learned);
    assert_int_equal(learned.confirmed, 0);
    expect(sent, "a", GRID_OUTCOME_NO_MATCH); /* it keeps the snapshot that it took */
    grid_ticket_free(sent);
    ask('x', 40, 1, 0, "b", GRID_OUTCOME_NO_MATCH);
    world_must_load(&world, NULL, "a b", 0);
    assert_int_equal(world_site(&world, "a", 0).entries, 0);
    assert_true(world_site(&world, "b", 0).entries >= 40); /* b stayed all the time */
    ask('x', 40, 1, 0, "b", GRID_OUTCOME_STICKY);
}

static void test_an_engine_that_restarted(void **state)
{
    (void)state;
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
    grid_router_forget_cluster(world.router, GRID_LIT("a"));
    grid_router_forget_cluster(world.router, GRID_LIT("none"));
    assert_int_equal(world_site(&world, "a", 0).entries, 0);
    assert_int_equal(world_counter(&world, "grid_route_cluster_resets_total", ""), 1);
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_NO_MATCH);
    ask('x', 40, 1, 0, "a", GRID_OUTCOME_STICKY);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_it_sticks_from_the_second_turn),
        TEST(test_a_burst_before_the_answer_goes_by_load),
        TEST(test_answers_that_drop),
        TEST(test_answers_that_withdraw),
        TEST(test_answers_that_the_gateway_made),
        TEST(test_an_abandoned_request_lapses),
        TEST(test_a_confirmation_ends_at_its_ttl),
        TEST(test_the_gate_opens_just_above_the_worth),
        TEST(test_unmeasured_sites),
        TEST(test_exploring),
        TEST(test_affinity_off),
        TEST(test_health_as_the_proxy_knows_it),
        TEST(test_clusters_that_serve_some_paths_only),
        TEST(test_a_peek_counts_and_marks_nothing),
        TEST(test_a_forced_cluster),
        TEST(test_ties_go_by_open_requests),
        TEST(test_a_decision_is_made_once),
        TEST(test_a_ttl_applies_to_later_confirmations),
        TEST(test_a_smaller_capacity_keeps_the_newest),
        TEST(test_a_cluster_that_leaves_comes_back_empty),
        TEST(test_an_engine_that_restarted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
