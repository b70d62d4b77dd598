/*
 * test_sites.c - the order of candidates, their grouping by model, and who lets go of what
 */
#include "unit.h"

#include <math.h>
#include <stdio.h>

#include "dice.h"
#include "failing_alloc.h"
#include "sites.h"

/* One candidate a line; b's models and clusters come again, one candidate is no model. */
static const char serving_text[] =
    "{\"local_site\":\"east\",\"window_secs\":60,\"load_window_ms\":30000,\"peers\":[],\"candidates\":["
    "{\"kind\":\"inference_model\",\"name\":\"m\",\"site\":\"s1\",\"cluster\":\"c1\"},"
    "{\"kind\":\"inference_model\",\"name\":\"k\",\"site\":\"s2\",\"cluster\":\"c2\",\"admission\":\"none\"},"
    "{\"kind\":\"inference_model\",\"name\":\"m\",\"site\":\"s2\",\"cluster\":\"c2\"},"
    "{\"kind\":\"mcp_tool\",\"name\":\"m\",\"site\":\"s9\",\"cluster\":\"c9\"},"
    "{\"kind\":\"inference_model\",\"name\":\"m\",\"site\":\"s3\",\"cluster\":\"c3\",\"admission\":\"existing_only\"},"
    "{\"kind\":\"inference_model\",\"name\":\"mm\",\"site\":\"s1\",\"cluster\":\"c1\"},"
    "{\"kind\":\"inference_model\",\"name\":\"m\",\"site\":\"s4\",\"cluster\":\"c4\"}]}";

static struct failing_alloc memory;
static struct grid_stats stats;
static struct grid_shared_serving *shared;
static struct grid_config *config;

static int set_up(void **state)
{
    (void)state;
    static struct grid_errors errors;
    struct grid_settings settings;
    struct grid_serving *serving = NULL;
    failing_alloc_init(&memory);
    grid_stats_init(&stats, &memory.alloc);
    grid_settings_defaults(&settings);
    errors.count = 0;
    if (grid_serving_parse(grid_str_of(serving_text), false, &memory.alloc, &serving, &errors) != GRID_OK) {
        print_message("%s: %s\n", errors.items[0].field, errors.items[0].message);
        return -1;
    }
    shared = grid_sites_share(&memory.alloc, serving);
    config = grid_sites_config_new(&memory.alloc, &settings, shared, NULL, 1000, &stats);
    return config ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    grid_sites_config_unref(config);
    grid_sites_share_unref(shared);
    grid_stats_done(&stats);
    return atomic_load(&memory.out) == 0 ? 0 : -1;
}

static struct grid_sites *order(const double *depths)
{
    struct grid_sites *sites = grid_sites_new(config, depths);
    assert_non_null(sites);
    return sites;
}

/* The clusters of the model's sites, joined by spaces, are `want`. */
static void expect_order(const struct grid_sites *sites, const char *name, const char *want)
{
    const struct grid_model *model = grid_sites_model(sites, grid_str_of(name));
    char got[256] = "";
    size_t n = 0;
    assert_non_null(model);
    for (size_t i = 0; i < model->n; i++)
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", i ? " " : "",
                              GRID_FMT(sites->sites[model->first + i].candidate->cluster));
    assert_string_equal(got, want);
}

static void test_what_a_config_holds(void **state)
{
    (void)state;
    assert_int_equal(config->n_candidates, 6); /* a tool is no candidate */
    char mark[GRID_TAG_MARK_BYTES];
    grid_tag_mark(GRID_LIT("c2"), mark);
    assert_memory_equal(config->candidates[1].mark, mark, sizeof mark);
    assert_int_equal(config->n_clusters, 4);
    assert_true(grid_str_eq(config->clusters[0].name, GRID_LIT("c1")));
    assert_true(grid_str_eq(config->clusters[3].name, GRID_LIT("c4")));
    assert_int_equal(config->max_body_bytes, 1000);
    assert_int_equal(config->candidates[2].cluster_index, 1);
    assert_ptr_equal(config->candidates[0].pair, config->candidates[4].pair);
    assert_true(config->candidates[0].admitted);
    assert_false(config->candidates[1].admitted);
    assert_false(config->candidates[3].admitted);
}

static void test_unmeasured_sites_keep_the_order_of_the_config(void **state)
{
    (void)state;
    const double depths[] = {INFINITY, INFINITY, INFINITY, INFINITY};
    struct grid_sites *sites = order(depths);
    expect_order(sites, "m", "c1 c2 c3 c4");
    grid_sites_unref(sites);
    const double equal[] = {3, 3, 3, 3};
    sites = order(equal);
    expect_order(sites, "m", "c1 c2 c3 c4");
    grid_sites_unref(sites);
}

static void test_least_queued_first_unmeasured_last(void **state)
{
    (void)state;
    const double depths[] = {INFINITY, 2, 0.5, 2};
    struct grid_sites *sites = order(depths);
    expect_order(sites, "m", "c3 c2 c4 c1");
    expect_order(sites, "mm", "c1");
    expect_order(sites, "k", "c2");
    const struct grid_model *model = grid_sites_model(sites, GRID_LIT("m"));
    assert_true(sites->sites[model->first].depth == 0.5);
    assert_true(isinf(sites->sites[model->first + 3].depth));
    grid_sites_unref(sites);
}

static void test_grouping(void **state)
{
    (void)state;
    const double depths[] = {4, 3, 2, 1};
    struct grid_sites *sites = order(depths);
    assert_int_equal(sites->n_models, 3);
    const struct grid_model *model = grid_sites_model(sites, GRID_LIT("m"));
    assert_int_equal(model->n, 4);
    assert_int_equal(model->admitted, 3);
    assert_int_equal(grid_sites_model(sites, GRID_LIT("k"))->admitted, 0);
    static const char *const absent[] = {"", "j", "l", "M", "mmm", "z", "m "};
    for (size_t i = 0; i < COUNT(absent); i++)
        assert_null(grid_sites_model(sites, grid_str_of(absent[i])));
    assert_null(grid_sites_model(sites, (struct grid_str){NULL, 0}));
    grid_sites_unref(sites);
}

static void test_random_depths_are_sorted_stably(void **state)
{
    (void)state;
    struct dice dice = dice_new("test_sites");
    for (unsigned i = 0; i < 2000; i++) {
        double depths[4];
        for (size_t j = 0; j < COUNT(depths); j++)
            depths[j] = dice_below(&dice, 5) ? (double)dice_below(&dice, 3) : (double)INFINITY;
        struct grid_sites *sites = order(depths);
        const struct grid_model *model = grid_sites_model(sites, GRID_LIT("m"));
        for (size_t j = model->first; j + 1 < model->first + model->n; j++) {
            const struct grid_site *a = &sites->sites[j], *b = a + 1;
            assert_true(a->depth < b->depth || (a->depth == b->depth && a->candidate < b->candidate));
            assert_true(a->depth == depths[a->candidate->cluster_index]);
        }
        grid_sites_unref(sites);
    }
}

static void test_a_snapshot_outlives_what_it_was_made_of(void **state)
{
    (void)state;
    const double depths[] = {1, 2, 3, 4};
    struct grid_table *table = grid_index_table_new(&memory.alloc, 4);
    assert_non_null(table);
    config->clusters[0].table = table; /* the config owns it now */
    struct grid_sites *sites = grid_sites_ref(order(depths));
    long long held = atomic_load(&memory.out);
    grid_sites_config_unref(config);
    grid_sites_share_unref(shared);
    grid_sites_unref(sites);
    assert_int_equal(atomic_load(&memory.out), held);
    expect_order(sites, "m", "c1 c2 c3 c4");
    grid_index_pend(sites->sites[grid_sites_model(sites, GRID_LIT("m"))->first].table, &(uint64_t){7}, 1, 0);
    assert_int_equal(grid_index_view(table).entries, 1);
    grid_sites_unref(sites); /* the last: all goes but the pairs */
    assert_int_equal(atomic_load(&memory.out), (long long)stats.n_pairs);
    config = NULL;
    shared = NULL;
}

static void test_no_serving_config(void **state)
{
    (void)state;
    struct grid_settings settings;
    grid_settings_defaults(&settings);
    struct grid_config *empty = grid_sites_config_new(&memory.alloc, &settings, NULL, NULL, 1, &stats);
    assert_non_null(empty);
    struct grid_sites *sites = grid_sites_new(empty, NULL);
    assert_non_null(sites);
    assert_int_equal(sites->n_models, 0);
    assert_null(grid_sites_model(sites, GRID_LIT("m")));
    grid_sites_unref(sites);
    grid_sites_config_unref(empty);
    grid_sites_unref(NULL);
    grid_sites_config_unref(NULL);
    grid_sites_share_unref(NULL);
    assert_null(grid_sites_share_ref(NULL));
    assert_null(grid_sites_config_ref(NULL));
}

static void test_want_of_memory(void **state)
{
    (void)state;
    struct grid_settings settings;
    const double depths[] = {1, 2, 3, 4};
    grid_settings_defaults(&settings);
    long long held = atomic_load(&memory.out);
    uint64_t n = 0;
    for (bool failed = true; failed; n++) {
        assert_true(n < 50);
        failing_alloc_arm(&memory, n, false);
        struct grid_config *c = grid_sites_config_new(&memory.alloc, &settings, shared, NULL, 1000, &stats);
        struct grid_sites *sites = c ? grid_sites_new(c, depths) : NULL;
        failed = atomic_load(&memory.failed);
        assert_int_equal(sites == NULL, failed);
        failing_alloc_disarm(&memory);
        grid_sites_unref(sites);
        grid_sites_config_unref(c);
        assert_int_equal(atomic_load(&memory.out), held);
    }
    assert_true(n > 5);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_a_config_holds),
        TEST(test_unmeasured_sites_keep_the_order_of_the_config),
        TEST(test_least_queued_first_unmeasured_last),
        TEST(test_grouping),
        TEST(test_random_depths_are_sorted_stably),
        TEST(test_a_snapshot_outlives_what_it_was_made_of),
        TEST(test_no_serving_config),
        TEST(test_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
