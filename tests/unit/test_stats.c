/*
 * test_stats.c - counters: names, pairs and their bound, what is told of them
 */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "failing_alloc.h"
#include "stats.h"
#include "str.h"

static struct failing_alloc memory;
static struct grid_stats stats;

static int set_up(void **state)
{
    (void)state;
    failing_alloc_init(&memory);
    grid_stats_init(&stats, &memory.alloc);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    grid_stats_done(&stats);
    return atomic_load(&memory.out) == 0 ? 0 : -1;
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(grid_outcome_name(GRID_OUTCOME_STICKY), "sticky");
    assert_string_equal(grid_outcome_name(GRID_OUTCOME_NO_MATCH), "no_match");
    assert_string_equal(grid_outcome_name(GRID_OUTCOME_LOAD_OVERRIDE), "load_override");
    assert_string_equal(grid_outcome_name(GRID_OUTCOME_EXPLORATION), "exploration");
    assert_string_equal(grid_outcome_name(GRID_OUTCOME_NOT_APPLICABLE), "not_applicable");
    assert_string_equal(grid_outcome_name(GRID_OUTCOME_UNCOUNTED), "");
    assert_string_equal(grid_reason_name(GRID_REASON_NONE), "none");
    assert_string_equal(grid_reason_name(GRID_REASON_NO_MODEL), "no_model");
    assert_string_equal(grid_reason_name(GRID_N_REASONS), "");
    assert_string_equal(grid_api_name(GRID_API_NONE), "none");
    assert_string_equal(grid_api_name(GRID_API_RESPONSES), "responses");
    for (int i = 0; i <= GRID_N_OUTCOMES; i++)
        assert_true(strlen(grid_outcome_words((enum grid_outcome)i)) > 10);
}

static void test_a_pair_is_made_once(void **state)
{
    (void)state;
    struct grid_stats_pair *a = grid_stats_pair_of(&stats, GRID_LIT("east"), GRID_LIT("pool"));
    struct grid_stats_pair *b = grid_stats_pair_of(&stats, GRID_LIT("west"), GRID_LIT("pool"));
    struct grid_stats_pair *c = grid_stats_pair_of(&stats, GRID_LIT("eas"), GRID_LIT("tpool"));
    assert_true(a && b && c && a != b && a != c);
    assert_ptr_equal(grid_stats_pair_of(&stats, GRID_LIT("east"), GRID_LIT("pool")), a);
    assert_string_equal(a->site, "east");
    assert_string_equal(a->cluster, "pool");
}

/* Names of the longest kind, and a bound on how many there can be: those that came first keep their own. */
static void test_pairs_are_bounded(void **state)
{
    (void)state;
    char site[64], cluster[GRID_MAX_NAME_BYTES + 1];
    memset(site, 's', sizeof site);
    memset(cluster, 'c', sizeof cluster);
    struct grid_str site_view = {site, 63}, cluster_view = {cluster, GRID_MAX_NAME_BYTES};
    struct grid_stats_pair *first = NULL, *other = NULL;
    for (unsigned i = 0; i < GRID_STATS_MAX_PAIRS; i++) {
        (void)snprintf(site, sizeof site, "%063u", i);
        struct grid_stats_pair *pair = grid_stats_pair_of(&stats, site_view, cluster_view);
        assert_non_null(pair);
        assert_int_equal(strlen(pair->cluster), GRID_MAX_NAME_BYTES);
        assert_int_equal(strlen(pair->site), 63);
        first = first ? first : pair;
    }
    for (unsigned i = 0; i < 3; i++) {
        (void)snprintf(site, sizeof site, "%063u", GRID_STATS_MAX_PAIRS + i);
        struct grid_stats_pair *pair = grid_stats_pair_of(&stats, site_view, cluster_view);
        assert_string_equal(pair->site, "other");
        assert_string_equal(pair->cluster, "other");
        other = other ? other : pair;
        assert_ptr_equal(pair, other);
    }
    (void)snprintf(site, sizeof site, "%063u", 0);
    assert_ptr_equal(grid_stats_pair_of(&stats, site_view, cluster_view), first);
}

static void test_escapes(void **state)
{
    (void)state;
    char out[16];
    grid_stats_escape(GRID_LIT("a\"b\\c\nd"), out, sizeof out);
    assert_string_equal(out, "a\\\"b\\\\c\\nd");
    grid_stats_escape(GRID_LIT(""), out, sizeof out);
    assert_string_equal(out, "");
    grid_stats_escape(GRID_LIT("\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\""), out, sizeof out); /* cut, never within an escape */
    assert_true(strlen(out) < sizeof out);
    assert_int_equal(strlen(out) % 2, 0);
}

struct tally {
    size_t series, families;
    char family[64];
    uint64_t sum;
};

static void tally(const struct grid_series *series, void *ctx)
{
    struct tally *t = ctx;
    char label[4096] = "";
    size_t n = 0;
    for (size_t i = 0; i < series->n_labels; i++)
        n += (size_t)snprintf(label + n, sizeof label - n, "%s%s=\"%s\"", i ? "," : "", series->label_names[i],
                              series->label_values[i]);
    assert_string_equal(series->label, label);
    assert_int_equal(series->only_value != NULL, series->n_labels == 1);
    if (series->only_value)
        assert_string_equal(series->only_value, series->label_values[0]);
    if (strcmp(t->family, series->family) != 0)
        t->families++;
    (void)snprintf(t->family, sizeof t->family, "%s", series->family);
    t->series++;
    t->sum += series->value;
}

static void test_each_series_is_told_once(void **state)
{
    (void)state;
    struct tally t = {.series = 0};
    grid_stats_each(&stats, tally, &t);
    const size_t fixed =
        GRID_N_OUTCOMES + (GRID_N_REASONS - 1) + (GRID_N_VERDICTS - GRID_N_SITE_VERDICTS) + GRID_N_RELOADS + 5;
    assert_int_equal(t.series, fixed);
    assert_int_equal(t.families, 8); /* and each family's series lie together */
    assert_int_equal(t.sum, 0);

    struct grid_stats_pair *pair = grid_stats_pair_of(&stats, GRID_LIT("east"), GRID_LIT("pool"));
    grid_stats_add(&pair->decisions[GRID_VERDICT_ROUTED]);
    grid_stats_add(&stats.outcomes[GRID_OUTCOME_STICKY]);
    grid_stats_add(&stats.outcomes[GRID_OUTCOME_STICKY]);
    grid_stats_add(&stats.resets);
    t = (struct tally){.series = 0};
    grid_stats_each(&stats, tally, &t);
    assert_int_equal(t.series, fixed + GRID_N_SITE_VERDICTS + GRID_N_PREDICTIONS + 4);
    assert_int_equal(t.families, 13); /* with the failovers, tokens and predictions of the pair */
    assert_int_equal(t.sum, 4);
}

static void test_want_of_memory(void **state)
{
    (void)state;
    failing_alloc_arm(&memory, 0, true);
    assert_null(grid_stats_pair_of(&stats, GRID_LIT("east"), GRID_LIT("pool")));
    failing_alloc_disarm(&memory);
    assert_non_null(grid_stats_pair_of(&stats, GRID_LIT("east"), GRID_LIT("pool")));
    failing_alloc_arm(&memory, 0, true);
    assert_non_null(grid_stats_pair_of(&stats, GRID_LIT("east"), GRID_LIT("pool")));
    failing_alloc_disarm(&memory);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_names),   TEST(test_a_pair_is_made_once),      TEST(test_pairs_are_bounded),
        TEST(test_escapes), TEST(test_each_series_is_told_once), TEST(test_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
