/*
 * test_router.c - loads and their refusals, signals, what is shown of sites, the text of /metrics
 */
#include "world.h"

#include <math.h>
#include <stdlib.h>

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

/* ---- loads ------------------------------------------------------------------------------------------------------ */

/* What was set up is in force, and the index has kept what it learned. */
static void expect_unchanged(uint64_t entries)
{
    struct grid_settings settings;
    struct grid_site_view views[4];
    grid_router_settings(world.router, &settings);
    assert_true(settings.exploration == 0 && settings.threshold == 0.8);
    assert_int_equal(settings.capacity, 16384);
    assert_int_equal(settings.ttl_ms, 600000);
    assert_int_equal(grid_router_sites(world.router, 0, views, 4), 2);
    assert_string_equal(views[0].cluster, "a");
    assert_string_equal(views[1].cluster, "b");
    assert_int_equal(views[0].entries, entries);
}

static void test_a_refused_load_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *plugin, *sites;
        int fault;
    } rows[] = {
        {"{'prefix_affinity':{'capacity':0}}", NULL, 1},
        {"{'prefix_affinity':{'threshold':2}}", "c", 1},
        {"{'prefix_affinity':{'unknown':2}}", NULL, 1},
        {"{", NULL, 1},
        {"", NULL, 1},
        {"{'prefix_affinity':{'exploration':1,'capacity':7,'ttl_secs':3}}", "Not_a_label", 2},
        {NULL, "a a", 2},
        {NULL, "-a", 2},
    };
    (void)world_answer(world_send(&world, 'x', 40, 1, 0), 200, 0);
    uint64_t entries = world_site(&world, "a", 0).entries;
    assert_true(entries >= 40);
    for (size_t i = 0; i < COUNT(rows); i++) {
        long long held = atomic_load(&world.memory.out);
        assert_int_not_equal(world_load(&world, rows[i].plugin, rows[i].sites, 0), GRID_OK);
        assert_int_equal(world.fault, rows[i].fault);
        assert_true(world.errors.count > 0);
        assert_true(strlen(world.errors.items[0].message) > 5);
        assert_int_equal(atomic_load(&world.memory.out), held);
        expect_unchanged(entries);
    }
    assert_int_not_equal(world_load(&world, "{'nonsense':1}", NULL, 0), GRID_OK);
    expect_unchanged(entries);
}

static void test_a_load_with_nothing_keeps_everything(void **state)
{
    (void)state;
    (void)world_answer(world_send(&world, 'x', 40, 1, 0), 200, 0);
    uint64_t entries = world_site(&world, "a", 0).entries;
    world_must_load(&world, NULL, NULL, 0);
    expect_unchanged(entries);
    world_must_load(&world, NO_CHANCE, "a b", 0);
    expect_unchanged(entries);
}

static void test_settings_in_force(void **state)
{
    (void)state;
    struct grid_settings settings;
    world_must_load(&world, "{'model_header':'X-Other','prefix_affinity':{'threshold':0.5,'capacity':5}}", NULL, 0);
    grid_router_settings(world.router, &settings);
    assert_string_equal(settings.model_header, "x-other");
    assert_true(settings.threshold == 0.5);
    assert_true(settings.exploration == 0.02); /* what is left out is the default again */
    assert_int_equal(world_site(&world, "a", 0).capacity, 5);
    struct grid_load load = {.max_body_bytes = 1000};
    assert_int_equal(grid_router_load(world.router, &load, 0, &world.errors, NULL), GRID_OK);
    struct grid_ticket *ticket = world_send(&world, 'x', 40, 1, 0);
    assert_int_equal(grid_ticket_max_body(ticket), 1000);
    grid_ticket_free(ticket);
    world_must_load(&world, NO_CHANCE, NULL, 0);
    ticket = world_send(&world, 'x', 40, 1, 0);
    assert_int_equal(grid_ticket_max_body(ticket), 1000); /* a load without it keeps it */
    grid_ticket_free(ticket);
}

/* ---- signals, sites --------------------------------------------------------------------------------------------- */

static void test_signals(void **state)
{
    (void)state;
    assert_false(grid_signal(world.router, GRID_LIT("c"), 1, 1, 1));
    assert_false(grid_signal(world.router, GRID_LIT(""), 1, 1, 1));
    assert_true(grid_signal(world.router, GRID_LIT("a"), 5, 1000, 1000));
    assert_false(grid_signal(world.router, GRID_LIT("a"), 6, 1000, 1001));
    assert_false(grid_signal(world.router, GRID_LIT("a"), NAN, 1001, 1001));
    assert_false(grid_signal(world.router, GRID_LIT("a"), INFINITY, 1001, 1001));

    struct grid_site_view view = world_site(&world, "a", 1500);
    assert_true(isinf(view.depth)); /* not before the next refresh */
    assert_true(view.has_sample);
    assert_int_equal(view.sample_age_ms, 500);
    assert_false(world_site(&world, "b", 1500).has_sample);
    assert_int_equal(grid_router_refresh(world.router, 1500), GRID_OK);
    assert_true(world_site(&world, "a", 1500).depth == 5);

    world_must_load(&world, NO_CHANCE, "b a", 2000); /* a load orders anew, and keeps the samples */
    assert_true(world_site(&world, "a", 2000).depth == 5);
    assert_int_equal(grid_router_refresh(world.router, 31000), GRID_OK);
    assert_true(world_site(&world, "a", 31000).depth == 5);
    assert_int_equal(grid_router_refresh(world.router, 31001), GRID_OK); /* load_window_ms is over */
    assert_true(isinf(world_site(&world, "a", 31001).depth));

    world_must_load(&world, NULL, "b", 31001);
    assert_false(grid_signal(world.router, GRID_LIT("a"), 5, 40000, 40000));
    world_must_load(&world, NULL, "a b", 31001);
    assert_false(world_site(&world, "a", 31001).has_sample);
}

/* Retention decides when it is the shorter (O.38). */
static void test_the_shorter_window(void **state)
{
    (void)state;
    struct text text = {.len = 0};
    text_put_json(&text, "{'local_site':'e','window_secs':2,'load_window_ms':30000,'peers':[],'candidates':["
                         "{'kind':'inference_model','name':'m','site':'a','cluster':'a'}]}");
    struct grid_load load = {.serving = text_view(&text)};
    assert_int_equal(grid_router_load(world.router, &load, 0, &world.errors, NULL), GRID_OK);
    world_signal(&world, "a", 3, 1000);
    assert_int_equal(grid_router_refresh(world.router, 3000), GRID_OK);
    assert_true(world_site(&world, "a", 3000).depth == 3);
    assert_int_equal(grid_router_refresh(world.router, 3001), GRID_OK);
    assert_true(isinf(world_site(&world, "a", 3001).depth));
}

static void test_sites(void **state)
{
    (void)state;
    struct grid_site_view views[8];
    world_must_load(&world, NULL, "c a! /k! /l b", 0);
    assert_int_equal(grid_router_sites(world.router, 0, NULL, 0), 4);
    memset(views, 0xff, sizeof views);
    assert_int_equal(grid_router_sites(world.router, 0, views, 2), 4); /* up to cap */
    assert_string_equal(views[1].cluster, "a");
    assert_int_equal((unsigned char)views[2].site[0], 0xff);
    assert_int_equal(grid_router_sites(world.router, 0, views, COUNT(views)), 4);
    static const char *const names[] = {"c", "a", "z", "b"};
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_string_equal(views[i].cluster, names[i]);
        assert_string_equal(views[i].site, names[i]);
        assert_int_equal(views[i].admitted, i != 1); /* z admits by its second model */
        assert_true(isinf(views[i].depth));
        assert_true(views[i].index_bytes > views[i].capacity * 32);
    }
}

/* ---- metrics ---------------------------------------------------------------------------------------------------- */

static struct text page_of(struct world *of)
{
    struct text page = {.len = 0};
    struct grid_buf buf = {.limit = 1u << 20, .alloc = &of->memory.alloc};
    grid_router_metrics(of->router, 0, &buf);
    assert_false(buf.failed);
    text_put(&page, buf.ptr, buf.len);
    grid_buf_done(&buf);
    return page;
}

static size_t name_length(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:");
}

/* Behind a label's value, at its closing quote. */
static const char *skip_value(const char *at)
{
    for (; *at != '"'; at++) {
        assert_true(*at != 0 && *at != '\n');
        if (*at != '\\')
            continue;
        at++;
        assert_true(*at == '\\' || *at == '"' || *at == 'n');
    }
    return at + 1;
}

/* A sample lies under its own family; a histogram's has what it is behind the family's name. */
static void check_sample(const char *line, const char *family, bool histogram)
{
    const char *at = line + name_length(line), *more = line + strlen(family);
    assert_memory_equal(line, family, strlen(family));
    if (histogram)
        assert_true(strncmp(more, "_bucket{", 8) == 0 || strncmp(more, "_sum", 4) == 0 ||
                    strncmp(more, "_count", 6) == 0);
    else
        assert_ptr_equal(at, more);
    if (*at == '{') {
        do {
            at++;
            size_t len = name_length(at);
            assert_true(len > 0);
            at += len;
            assert_memory_equal(at, "=\"", 2);
            at = skip_value(at + 2);
        } while (*at == ',');
        assert_int_equal(*at++, '}');
    }
    assert_int_equal(*at++, ' ');
    char *end = NULL;
    (void)strtod(at, &end);
    assert_true(end > at && *end == 0);
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

/* Every line is HELP, TYPE behind its HELP, or a sample of that family; a family comes once; no series twice. */
static void check_page(const char *page)
{
    char family[128] = "", line[4096], head[256];
    bool histogram = false;
    assert_int_equal(page[strlen(page) - 1], '\n');
    for (const char *at = page; *at; at += strcspn(at, "\n") + 1) {
        (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        if (strncmp(line, "# HELP ", 7) == 0) {
            (void)snprintf(family, sizeof family, "%.*s", (int)name_length(line + 7), line + 7);
            (void)snprintf(head, sizeof head, "# HELP %s ", family);
            assert_int_equal(count(page, head), 1);
            (void)snprintf(head, sizeof head, "\n# TYPE %s ", family);
            assert_int_equal(count(page, head), 1);
            assert_true(strlen(line) > 7 + strlen(family) + 5);
            continue;
        }
        if (line[0] == '#') {
            (void)snprintf(head, sizeof head, "# TYPE %s counter", family);
            bool counter = strcmp(line, head) == 0;
            (void)snprintf(head, sizeof head, "# TYPE %s histogram", family);
            histogram = strcmp(line, head) == 0;
            (void)snprintf(head, sizeof head, "# TYPE %s gauge", family);
            assert_true(counter || histogram || strcmp(line, head) == 0);
            size_t len = strlen(family);
            assert_int_equal(counter, len > 6 && strcmp(family + len - 6, "_total") == 0);
            continue;
        }
        check_sample(line, family, histogram);
        char whole[4097];
        (void)snprintf(whole, sizeof whole, "\n%.*s", (int)(strrchr(line, ' ') + 1 - line), line);
        assert_int_equal(count(page, whole), 1);
    }
}

static void expect_line(const char *page, const char *line)
{
    char whole[512];
    (void)snprintf(whole, sizeof whole, "\n%s\n", line);
    if (!strstr(page, whole))
        print_message("%s\nis not in\n%s", line, page);
    assert_non_null(strstr(page, whole));
}

static void test_metrics_from_the_start(void **state)
{
    (void)state;
    struct text page = page_of(&world);
    check_page(page.bytes);
    expect_line(page.bytes, "grid_route_prefix_affinity_total{outcome=\"sticky\"} 0");
    expect_line(page.bytes, "grid_route_prefix_affinity_total{outcome=\"no_match\"} 0");
    expect_line(page.bytes, "grid_route_prefix_affinity_total{outcome=\"load_override\"} 0");
    expect_line(page.bytes, "grid_route_prefix_affinity_total{outcome=\"exploration\"} 0");
    expect_line(page.bytes, "grid_route_prefix_affinity_total{outcome=\"not_applicable\"} 0");
    expect_line(page.bytes, "grid_serving_config_reload_total{result=\"rejected\"} 0");
    expect_line(page.bytes, "grid_route_decisions_total{site=\"\",cluster=\"\",reason=\"no_route\"} 0");
    expect_line(page.bytes, "grid_route_site_score{site=\"a\",cluster=\"a\"} +Inf");
    assert_null(strstr(page.bytes, "grid_route_queue_depth{")); /* nothing was measured */
    assert_int_equal(count(page.bytes, "grid_route_prefix_affinity_total{"), GRID_N_OUTCOMES);
}

static void test_metrics_that_moved(void **state)
{
    (void)state;
    world_signal(&world, "a", 0.25, 1);
    uint32_t blocks = 0;
    for (int i = 0; i < 3; i++) {
        struct grid_ticket *ticket = world_send(&world, 'x', 40, 1, 1);
        blocks = grid_ticket_decision(ticket)->blocks;
        (void)world_answer(ticket, 200, 1);
    }
    grid_count_reload(world.router, GRID_RELOAD_APPLIED);
    grid_count_reload(world.router, GRID_RELOAD_REJECTED);
    struct text page = page_of(&world);
    char line[128];
    check_page(page.bytes);
    expect_line(page.bytes, "grid_route_prefix_affinity_total{outcome=\"sticky\"} 2");
    expect_line(page.bytes, "grid_route_prefix_affinity_total{outcome=\"no_match\"} 1");
    expect_line(page.bytes, "grid_route_decisions_total{site=\"a\",cluster=\"a\",reason=\"routed\"} 3");
    expect_line(page.bytes, "grid_serving_config_reload_total{result=\"applied\"} 1");
    expect_line(page.bytes, "grid_serving_config_reload_total{result=\"rejected\"} 1");
    expect_line(page.bytes, "grid_route_site_score{site=\"a\",cluster=\"a\"} 0.25");
    expect_line(page.bytes, "grid_route_queue_depth{site=\"a\",cluster=\"a\"} 0.25");
    (void)snprintf(line, sizeof line, "grid_index_entries{cluster=\"a\"} %u", blocks);
    expect_line(page.bytes, line);
    expect_line(page.bytes, "grid_index_capacity{cluster=\"b\"} 16384");

    world_must_load(&world, NULL, "b", 1); /* counters of a site that left stay; its gauges go */
    page = page_of(&world);
    check_page(page.bytes);
    expect_line(page.bytes, "grid_route_decisions_total{site=\"a\",cluster=\"a\",reason=\"routed\"} 3");
    assert_null(strstr(page.bytes, "grid_index_entries{cluster=\"a\"}"));
}

static void test_metrics_of_odd_names_and_shared_clusters(void **state)
{
    (void)state;
    struct text text = {.len = 0};
    text_put_json(&text, "{'local_site':'e','window_secs':2,'load_window_ms':3,'peers':[],'candidates':["
                         "{'kind':'inference_model','name':'m','site':'a','cluster':'q\\'\\\\ \xc3\xa9/.'},"
                         "{'kind':'inference_model','name':'k','site':'a','cluster':'q\\'\\\\ \xc3\xa9/.'},"
                         "{'kind':'inference_model','name':'k','site':'b','cluster':'q\\'\\\\ \xc3\xa9/.'}]}");
    struct grid_load load = {.serving = text_view(&text)};
    assert_int_equal(grid_router_load(world.router, &load, 0, &world.errors, NULL), GRID_OK);
    struct text page = page_of(&world);
    check_page(page.bytes);
    expect_line(page.bytes, "grid_route_site_score{site=\"b\",cluster=\"q\\\"\\\\ \xc3\xa9/.\"} +Inf");
}

static void test_metrics_without_memory(void **state)
{
    (void)state;
    struct grid_buf buf = {.limit = 100, .alloc = &world.memory.alloc};
    grid_router_metrics(world.router, 0, &buf);
    assert_true(buf.failed);
    assert_true(buf.len <= 100);
    grid_buf_done(&buf);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_refused_load_changes_nothing),
        TEST(test_a_load_with_nothing_keeps_everything),
        TEST(test_settings_in_force),
        TEST(test_signals),
        TEST(test_the_shorter_window),
        TEST(test_sites),
        TEST(test_metrics_from_the_start),
        TEST(test_metrics_that_moved),
        TEST(test_metrics_of_odd_names_and_shared_clusters),
        TEST(test_metrics_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
