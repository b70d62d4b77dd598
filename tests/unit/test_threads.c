/*
 * test_threads.c - everything at once: requests, answers, loads, signals, refreshes, scrapes
 *
 * Worth most under ThreadSanitizer and AddressSanitizer. Each thread does a fixed number of rounds; the counters must
 * add up to what was sent.
 */
#include "world.h"

#include <pthread.h>

#include "dice.h"

#define REQUEST_THREADS 4u
#define REQUESTS 2500u /* a thread */
#define MOST_UNDER_WAY 8u

static struct world world;
static atomic_uint asking; /* request threads that are not done; the others go on until then */
static atomic_ullong clock_ms, counted, forwarded, refused, confirmed;
static uint64_t seed;
static struct text bodies[16];

static uint64_t now(void)
{
    return atomic_fetch_add_explicit(&clock_ms, 1, memory_order_relaxed);
}

/* cmocka's asserts leave by longjmp, which must not cross threads: these stop the process. */
static void must(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "failed: %s\n", what);
    abort();
}
#define MUST(condition) must(condition, #condition)

static struct grid_ticket *send_one(struct dice *dice)
{
    struct grid_header header = {GRID_LIT("x-model"), GRID_LIT("m")};
    struct grid_head head = {.method = GRID_LIT("POST"),
                             .path = GRID_LIT("/v1/chat/completions"),
                             .headers = &header,
                             .n_headers = dice_below(dice, 2)};
    struct grid_ticket *ticket = NULL;
    struct grid_decision decision;
    MUST(grid_ticket_new(world.router, &head, &ticket) == GRID_OK);
    struct grid_str body = text_view(&bodies[dice_below(dice, COUNT(bodies))]);
    if (grid_ticket_want(ticket) == GRID_WANT_BODY)
        grid_ticket_body(ticket, &body, 1, dice_below(dice, 20) == 0);
    size_t n = 0;
    struct grid_candidate *candidates = grid_ticket_candidates(ticket, &n);
    for (size_t i = 0; i < n; i++)
        candidates[i].health = dice_below(dice, 10) ? GRID_HEALTHY : GRID_UNHEALTHY;
    bool peek = dice_below(dice, 10) == 0;
    grid_route(ticket, &(struct grid_route_options){.peek = peek}, now(), &decision);
    MUST(decision.run <= decision.blocks);
    if (peek)
        return ticket;
    if (decision.outcome != GRID_OUTCOME_UNCOUNTED)
        (void)atomic_fetch_add(&counted, 1);
    (void)atomic_fetch_add(decision.action == GRID_FORWARD ? &forwarded : &refused, 1);
    return ticket;
}

static void settle_one(struct dice *dice, struct grid_ticket *ticket)
{
    static const int statuses[] = {200, 200, 200, 200, 429, 500, 404};
    struct grid_learned learned = {0, 0};
    if (dice_below(dice, 10)) /* else the client went away */
        grid_learn(ticket, statuses[dice_below(dice, COUNT(statuses))], GRID_FROM_SITE, now(), &learned);
    (void)atomic_fetch_add(&confirmed, learned.confirmed);
    (void)grid_router_run(world.router, ticket, GRID_LIT("a"), now());
    grid_ticket_free(ticket);
}

static void *requests(void *arg)
{
    struct dice dice = {seed + (uintptr_t)arg};
    struct grid_ticket *under_way[MOST_UNDER_WAY] = {NULL};
    for (unsigned i = 0; i < REQUESTS; i++) {
        struct grid_ticket **slot = &under_way[dice_below(&dice, MOST_UNDER_WAY)];
        if (*slot)
            settle_one(&dice, *slot);
        *slot = send_one(&dice);
    }
    for (size_t i = 0; i < MOST_UNDER_WAY; i++)
        if (under_way[i])
            settle_one(&dice, under_way[i]);
    (void)atomic_fetch_sub(&asking, 1);
    return NULL;
}

/* Tags are made and judged while their keys change. */
static const struct grid_str keys[] = {GRID_LIT("a key that has 32 bytes, or more."),
                                       GRID_LIT("another key: it has 32 bytes too."),
                                       GRID_LIT("the third key, at least 32 bytes.")};

static void load_text(const char *plugin, const char *sites, enum grid_status want, unsigned applied)
{
    static struct text plugin_text, serving_text; /* the loading thread's */
    static struct grid_errors errors;
    plugin_text.len = serving_text.len = 0;
    errors.count = 0;
    text_put_json(&plugin_text, plugin);
    text_put_serving(&serving_text, sites);
    struct grid_load load = {.plugin = text_view(&plugin_text),
                             .serving = text_view(&serving_text),
                             .has_tag_keys = want == GRID_OK,
                             .tag_keys = keys + applied % 2, /* the other one */
                             .n_tag_keys = 1 + applied / 2 % 2};
    MUST(grid_router_load(world.router, &load, now(), &errors, NULL) == want);
    grid_count_reload(world.router, want == GRID_OK ? GRID_RELOAD_APPLIED : GRID_RELOAD_REJECTED);
}

/* Capacities change, clusters come and go, now and then a load is refused. */
static void *loads(void *arg)
{
    static const char *const sites[] = {"a b c", "b a", "c d a", "a b! c", "a b c d e", "e"};
    struct dice dice = {seed + (uintptr_t)arg};
    unsigned applied = 0;
    while (atomic_load(&asking) > 0) {
        char plugin[128];
        (void)snprintf(plugin, sizeof plugin, "{'prefix_affinity':{'capacity':%u,'ttl_secs':%u,'exploration':0.1}}",
                       1 + dice_below(&dice, 300), 1 + dice_below(&dice, 5));
        load_text(plugin, sites[dice_below(&dice, COUNT(sites))], GRID_OK, applied);
        load_text("{'prefix_affinity':{'threshold':0.7}}", "Bad_Site", GRID_E_FIELD, applied);
        applied++;
    }
    return (void *)(uintptr_t)applied;
}

static void *signals(void *arg)
{
    static const char *const clusters[] = {"a", "b", "c", "d", "none"};
    struct dice dice = {seed + (uintptr_t)arg};
    while (atomic_load(&asking) > 0) {
        struct grid_str cluster = grid_str_of(clusters[dice_below(&dice, COUNT(clusters))]);
        uint64_t stamp_ms = now();
        (void)grid_signal(world.router, cluster, dice_below(&dice, 5), stamp_ms, stamp_ms);
        MUST(grid_router_refresh(world.router, now()) == GRID_OK);
        if (dice_below(&dice, 50) == 0)
            grid_router_forget_cluster(world.router, cluster);
    }
    return NULL;
}

static void *scrapes(void *arg)
{
    (void)arg;
    while (atomic_load(&asking) > 0) {
        struct grid_buf page = {.limit = 1u << 20, .alloc = &world.memory.alloc};
        struct grid_site_view views[8];
        struct grid_settings settings;
        grid_router_metrics(world.router, now(), &page);
        MUST(!page.failed && page.len > 100);
        grid_buf_done(&page);
        struct grid_opened opened;
        struct grid_buf id = {.limit = 200, .alloc = &world.memory.alloc};
        grid_router_tag(world.router, GRID_ID_RESPONSE, GRID_LIT("a"), GRID_LIT("a"), GRID_LIT("x"), &id);
        grid_router_untag(world.router, (struct grid_str){id.ptr, id.len}, &opened);
        MUST(grid_str_eq(opened.rest, GRID_LIT("x")));
        grid_buf_done(&id);
        size_t n = grid_router_sites(world.router, now(), views, COUNT(views));
        for (size_t i = 0; i < n && i < COUNT(views); i++)
            MUST(views[i].entries <= views[i].capacity);
        grid_router_settings(world.router, &settings);
        MUST(settings.capacity >= 1);
    }
    return NULL;
}

static void add_decisions(const struct grid_series *series, void *ctx)
{
    uint64_t *sums = ctx; /* forwarded, refused */
    if (strcmp(series->family, "grid_route_decisions_total") == 0)
        sums[series->label_values[0][0] == 0] += series->value;
}

static void test_everything_at_once(void **state)
{
    (void)state;
    pthread_t askers[REQUEST_THREADS], others[4];
    static void *(*const jobs[])(void *) = {loads, signals, scrapes, scrapes};
    seed = dice_new("test_threads").state;
    world_init(&world, NULL, "a b c");
    for (size_t i = 0; i < COUNT(bodies); i++)
        text_put_chat(&bodies[i], i % 5 ? "m" : "none", (char)('a' + i / 4), 10 + i % 4 * 8, 1 + (unsigned)i % 4);
    atomic_store(&asking, REQUEST_THREADS);
    for (uintptr_t i = 0; i < REQUEST_THREADS; i++)
        assert_int_equal(pthread_create(&askers[i], NULL, requests, (void *)(i * 1000)), 0);
    for (uintptr_t i = 0; i < COUNT(jobs); i++)
        assert_int_equal(pthread_create(&others[i], NULL, jobs[i], (void *)(i * 77777)), 0);
    void *applied = NULL;
    for (size_t i = 0; i < REQUEST_THREADS; i++)
        assert_int_equal(pthread_join(askers[i], NULL), 0);
    for (size_t i = 0; i < COUNT(jobs); i++)
        assert_int_equal(pthread_join(others[i], i == 0 ? &applied : NULL), 0);

    uint64_t sums[2] = {0, 0};
    grid_router_counters(world.router, add_decisions, sums);
    assert_int_equal(world_all_outcomes(&world), atomic_load(&counted));
    assert_int_equal(sums[0], atomic_load(&forwarded));
    assert_int_equal(sums[1], atomic_load(&refused));
    assert_true(atomic_load(&counted) > REQUESTS / 10 && atomic_load(&confirmed) > 0);
    assert_true((uintptr_t)applied > 0);
    assert_int_equal(world_counter(&world, "grid_serving_config_reload_total", "result=\"applied\""),
                     (uintptr_t)applied);
    assert_int_equal(world_counter(&world, "grid_serving_config_reload_total", "result=\"rejected\""),
                     (uintptr_t)applied);
    world_done(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_everything_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
