/*
 * test_select.c - the choice: the tables of behaviour.md E.3 and F, corners, random play against E.2 taken literally
 */
#include "unit.h"

#include <math.h>

#include "dice.h"
#include "select.h"
#include "str.h"

#define MOST 6u

static struct grid_select selection(struct grid_candidate *candidates, size_t n, uint32_t blocks)
{
    return (struct grid_select){.candidates = candidates,
                                .n = n,
                                .blocks = blocks,
                                .enabled = true,
                                .threshold = 0.8,
                                .prefill_tokens_per_second = 10000,
                                .queued_request_seconds = 2};
}

static struct grid_candidate site(const char *cluster, double depth, uint32_t run)
{
    return (struct grid_candidate){
        .site = GRID_LIT("s"), .cluster = grid_str_of(cluster), .admitted = true, .depth = depth, .run = run};
}

/* As route.c does it: by load if that settles it, else by match. */
static struct grid_choice choose(const struct grid_select *in)
{
    struct grid_choice choice;
    if (!grid_select_by_load(in, &choice))
        grid_select_by_match(in, &choice);
    return choice;
}

static void expect(const struct grid_select *in, const char *cluster, enum grid_outcome outcome)
{
    struct grid_choice choice = choose(in);
    if (!cluster) {
        assert_null(choice.taken);
        return;
    }
    assert_non_null(choice.taken);
    if (choice.outcome != outcome || !grid_str_eq(choice.taken->cluster, grid_str_of(cluster)))
        print_message("%u blocks: %.*s %s, not %s %s\n", in->blocks, GRID_FMT(choice.taken->cluster),
                      grid_outcome_name(choice.outcome), cluster, grid_outcome_name(outcome));
    assert_true(grid_str_eq(choice.taken->cluster, grid_str_of(cluster)));
    assert_int_equal(choice.outcome, outcome);
}

/* Of equal queues the site with the fewest open requests comes first, only where that is set. */
static void test_ties(void **state)
{
    (void)state;
    struct grid_candidate c[] = {site("a", 0, 0), site("b", 0, 0), site("c", 0, 0), site("d", 1, 0)};
    struct grid_select in = selection(c, COUNT(c), 40);
    c[0].open = 2;
    c[1].open = c[2].open = 1; /* equal again: the order of the candidates */
    expect(&in, "a", GRID_OUTCOME_NO_MATCH);
    in.spread_ties = true;
    expect(&in, "b", GRID_OUTCOME_NO_MATCH); /* d has none open, and a queue */
    c[1].admitted = false;
    expect(&in, "c", GRID_OUTCOME_NO_MATCH);
    c[1].admitted = true;
    c[1].health = GRID_UNHEALTHY;
    expect(&in, "c", GRID_OUTCOME_NO_MATCH);
    c[1].health = GRID_HEALTHY;
    in.explore = true;
    expect(&in, "b", GRID_OUTCOME_EXPLORATION);
    in.explore = false;
    in.blocks = 0;
    expect(&in, "b", GRID_OUTCOME_NOT_APPLICABLE);
    in.enabled = false;
    expect(&in, "b", GRID_OUTCOME_UNCOUNTED);
    in.enabled = true;
    in.blocks = 40;
    c[0].run = c[1].run = 40; /* a held prompt outweighs open requests */
    c[1].open = 9;
    expect(&in, "a", GRID_OUTCOME_STICKY);
    c[0].open = 10;
    expect(&in, "b", GRID_OUTCOME_STICKY);
    for (size_t i = 0; i < COUNT(c); i++)
        c[i].depth = INFINITY;
    expect(&in, "b", GRID_OUTCOME_STICKY); /* unmeasured ones are equal too */
}

/* ---- tables --------------------------------------------------------------------------------------------------- */

struct row {
    uint32_t blocks;
    struct {
        const char *cluster;
        double depth;
        uint32_t run;
    } sites[3]; /* in the snapshot's order */
    const char *taken;
    enum grid_outcome outcome;
};

static const struct row worked_examples[] = {
    {40, {{"b", 0, 0}, {"a", 0.1, 40}}, "a", GRID_OUTCOME_STICKY},
    {40, {{"b", 0, 0}, {"a", 1, 40}}, "b", GRID_OUTCOME_LOAD_OVERRIDE},
    {400, {{"b", 0, 0}, {"a", 1, 400}}, "a", GRID_OUTCOME_STICKY},
    {3, {{"b", 0, 0}, {"a", 0, 3}}, "b", GRID_OUTCOME_NO_MATCH},
    {4, {{"b", 0, 0}, {"a", 0, 4}}, "a", GRID_OUTCOME_STICKY},
    {5, {{"b", 0, 0}, {"a", 0, 4}}, "a", GRID_OUTCOME_STICKY},
    {6, {{"b", 0, 0}, {"a", 0, 4}}, "b", GRID_OUTCOME_NO_MATCH},
    {39, {{"b", 0, 0}, {"a", 0, 31}}, "b", GRID_OUTCOME_NO_MATCH},
    {38, {{"b", 0, 0}, {"a", 0, 31}}, "a", GRID_OUTCOME_STICKY},
    {400, {{"b", 0, 0}, {"a", 0, 32}}, "a", GRID_OUTCOME_STICKY},
    {400, {{"b", 0, 0}, {"a", 0, 31}}, "b", GRID_OUTCOME_NO_MATCH},
    {40, {{"c", 0, 0}, {"b", 0.05, 36}, {"a", 0.1, 40}}, "a", GRID_OUTCOME_STICKY},
    {40, {{"c", 0, 0}, {"a", 0.1, 40}, {"b", 0.12, 40}}, "a", GRID_OUTCOME_STICKY},
    {40, {{"b", 7, 40}, {"a", 9, 40}}, "b", GRID_OUTCOME_STICKY},
    /* the deepest only, even beside an idle partial holder; an override may take a partial holder */
    {40, {{"b", 0, 36}, {"a", 0.1, 40}}, "a", GRID_OUTCOME_STICKY},
    {40, {{"b", 0, 36}, {"a", 1, 40}}, "b", GRID_OUTCOME_LOAD_OVERRIDE},
    {512, {{"b", 0, 0}, {"a", 0, 511}}, "a", GRID_OUTCOME_STICKY},
    {400, {{"b", 0, 0}, {"c", 0, 0}, {"a", 0, 4}}, "b", GRID_OUTCOME_NO_MATCH},
    /* infinities: unmeasured sites come last in the order */
    {40, {{"b", 5, 0}, {"a", INFINITY, 40}}, "b", GRID_OUTCOME_LOAD_OVERRIDE},
    {40, {{"a", 5, 40}, {"b", INFINITY, 0}}, "a", GRID_OUTCOME_STICKY},
    {40, {{"b", INFINITY, 0}, {"a", INFINITY, 40}}, "a", GRID_OUTCOME_STICKY},
    {40, {{"a", INFINITY, 40}, {"b", INFINITY, 40}}, "a", GRID_OUTCOME_STICKY},
    /* the threshold met exactly */
    {10, {{"b", 0, 0}, {"a", 0, 8}}, "a", GRID_OUTCOME_STICKY},
    {10, {{"b", 0, 0}, {"a", 0, 7}}, "b", GRID_OUTCOME_NO_MATCH},
    {15, {{"b", 0, 0}, {"a", 0, 12}}, "a", GRID_OUTCOME_STICKY},
    {15, {{"b", 0, 0}, {"a", 0, 11}}, "b", GRID_OUTCOME_NO_MATCH},
};

static void test_worked_examples(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(worked_examples); i++) {
        const struct row *row = &worked_examples[i];
        struct grid_candidate candidates[3];
        size_t n = 0;
        for (; n < 3 && row->sites[n].cluster; n++)
            candidates[n] = site(row->sites[n].cluster, row->sites[n].depth, row->sites[n].run);
        struct grid_select in = selection(candidates, n, row->blocks);
        expect(&in, row->taken, row->outcome);
    }
}

static void test_the_price_of_a_match(void **state)
{
    (void)state;
    static const struct {
        uint32_t run;
        double worth, sticky_at, override_at;
    } rows[] = {
        {4, 0.0128, 0.0128, 0.0129}, {32, 0.1024, 0.1024, 0.1025},  {40, 0.128, 0.128, 0.1281},
        {400, 1.28, 1.28, 1.2801},   {512, 1.6384, 1.6384, 1.6385},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct grid_candidate candidates[] = {site("b", 0, 0), site("a", rows[i].sticky_at, rows[i].run)};
        struct grid_select in = selection(candidates, 2, rows[i].run);
        assert_true(grid_select_worth(&in, rows[i].run) == rows[i].worth);
        expect(&in, "a", GRID_OUTCOME_STICKY);
        candidates[1].depth = rows[i].override_at;
        expect(&in, "b", GRID_OUTCOME_LOAD_OVERRIDE);
        candidates[1].depth = nextafter(rows[i].sticky_at, INFINITY);
        expect(&in, "b", GRID_OUTCOME_LOAD_OVERRIDE);
    }
    struct grid_select in = selection(NULL, 0, 40);
    in.prefill_tokens_per_second = 5000;
    assert_true(grid_select_worth(&in, 40) == 0.256);
    in.prefill_tokens_per_second = 10000;
    in.queued_request_seconds = 0.5;
    assert_true(grid_select_worth(&in, 40) == 0.512);
}

/* ---- corners -------------------------------------------------------------------------------------------------- */

static void test_the_figures_behind_a_choice(void **state)
{
    (void)state;
    struct grid_candidate candidates[] = {site("c", 0, 0), site("b", 0.05, 36), site("a", 0.1, 40)};
    struct grid_select in = selection(candidates, 3, 40);
    struct grid_choice choice = choose(&in);
    assert_int_equal(choice.run, 40);
    assert_true(choice.worth == 0.128 && choice.best_sticky == 0.1 && choice.best_other == 0);
    assert_false(choice.unhealthy);

    in.blocks = 400; /* nothing qualifies: the run is still told */
    candidates[2].run = 31;
    candidates[1].run = 3;
    choice = choose(&in);
    assert_int_equal(choice.outcome, GRID_OUTCOME_NO_MATCH);
    assert_int_equal(choice.run, 31);
    assert_true(isnan(choice.worth) && isnan(choice.best_sticky) && isnan(choice.best_other));

    struct grid_candidate equals[] = {site("a", 7, 40), site("b", 9, 40)};
    in = selection(equals, 2, 40);
    choice = choose(&in); /* no other site: the gate is not asked */
    assert_true(choice.worth == 0.128 && isnan(choice.best_sticky) && isnan(choice.best_other));
}

static void test_one_candidate_counts_nothing(void **state)
{
    (void)state;
    struct grid_candidate candidates[] = {site("a", 9, 40), site("b", 0, 0)};
    struct grid_select in = selection(candidates, 1, 40);
    in.explore = true;
    expect(&in, "a", GRID_OUTCOME_UNCOUNTED);
    in.n = 2;
    candidates[0].admitted = false; /* the second is the only one that admits */
    expect(&in, "b", GRID_OUTCOME_UNCOUNTED);
    candidates[1].admitted = false;
    expect(&in, NULL, GRID_OUTCOME_UNCOUNTED);
    in.n = 0;
    expect(&in, NULL, GRID_OUTCOME_UNCOUNTED);
}

static void test_the_order_of_reasons(void **state)
{
    (void)state;
    struct grid_candidate candidates[] = {site("b", 0, 0), site("a", 0, 40)};
    struct grid_select in = selection(candidates, 2, 0);
    in.explore = true;
    expect(&in, "b", GRID_OUTCOME_NOT_APPLICABLE); /* ahead of exploring */
    in.blocks = 40;
    expect(&in, "b", GRID_OUTCOME_EXPLORATION); /* ahead of matching */
    in.enabled = false;
    expect(&in, "b", GRID_OUTCOME_UNCOUNTED);
    in.blocks = 0;
    expect(&in, "b", GRID_OUTCOME_UNCOUNTED);
}

static void test_who_admits_nothing_is_not_there(void **state)
{
    (void)state;
    struct grid_candidate candidates[] = {site("b", 0, 0), site("c", 0.1, 10), site("a", 0.2, 40)};
    struct grid_select in = selection(candidates, 3, 40);
    candidates[2].admitted = false;
    expect(&in, "b", GRID_OUTCOME_NO_MATCH);
    candidates[2].admitted = true;
    candidates[2].health = GRID_UNKNOWN;
    expect(&in, "b", GRID_OUTCOME_NO_MATCH);
    assert_false(grid_select_usable(&in, &candidates[2]));
    candidates[2].health = GRID_HEALTHY;
    candidates[0].admitted = false;
    candidates[1].depth = 0; /* a site that admits nothing does not open the gate either */
    candidates[2].depth = 0.1;
    expect(&in, "a", GRID_OUTCOME_STICKY);
}

static void test_health(void **state)
{
    (void)state;
    struct grid_candidate candidates[] = {site("b", 0, 0), site("c", 0.05, 0), site("a", 0.1, 40)};
    struct grid_select in = selection(candidates, 3, 40);
    candidates[2].health = GRID_UNHEALTHY; /* the holder is ill: no candidate while others are well */
    expect(&in, "b", GRID_OUTCOME_NO_MATCH);
    candidates[1].health = GRID_UNHEALTHY; /* one is left */
    expect(&in, "b", GRID_OUTCOME_UNCOUNTED);
    assert_true(grid_select_usable(&in, &candidates[0]));
    assert_false(grid_select_usable(&in, &candidates[1]));
    candidates[0].health = GRID_UNHEALTHY; /* all are ill: all are candidates again, and that is told */
    expect(&in, "a", GRID_OUTCOME_STICKY);
    assert_true(choose(&in).unhealthy);
    assert_true(grid_select_usable(&in, &candidates[1]));
    candidates[0].health = GRID_HEALTHY; /* well, but it admits nothing: as if it were not there */
    candidates[0].admitted = false;
    expect(&in, "a", GRID_OUTCOME_STICKY);
    assert_true(choose(&in).unhealthy);
    for (size_t i = 0; i < 3; i++)
        candidates[i].health = GRID_UNKNOWN;
    expect(&in, NULL, GRID_OUTCOME_UNCOUNTED);
}

/* ---- random play ---------------------------------------------------------------------------------------------- */

struct literal {
    const struct grid_candidate *pick;
    enum grid_outcome outcome;
};

/* Behaviour.md E.2, line by line; health narrows the admitted ones first. */
static struct literal by_the_book(const struct grid_select *in)
{
    const struct grid_candidate *all[MOST], *a[MOST];
    size_t n_all = 0, n_a = 0, healthy = 0;
    for (size_t i = 0; i < in->n; i++) {
        const struct grid_candidate *c = &in->candidates[i];
        if (c->admitted && c->health != GRID_UNKNOWN)
            all[n_all++] = c;
    }
    for (size_t i = 0; i < n_all; i++)
        healthy += all[i]->health == GRID_HEALTHY;
    for (size_t i = 0; i < n_all; i++)
        if (healthy == 0 || all[i]->health == GRID_HEALTHY)
            a[n_a++] = all[i];
    if (n_a == 0)
        return (struct literal){NULL, GRID_OUTCOME_UNCOUNTED};
    if (!in->enabled || n_a == 1)
        return (struct literal){a[0], GRID_OUTCOME_UNCOUNTED};
    if (in->blocks == 0)
        return (struct literal){a[0], GRID_OUTCOME_NOT_APPLICABLE};
    if (in->explore)
        return (struct literal){a[0], GRID_OUTCOME_EXPLORATION};
    double d = 0, t = in->blocks, q_s = INFINITY, q_o = INFINITY;
    for (size_t i = 0; i < n_a; i++)
        if (a[i]->run > d)
            d = a[i]->run;
    if (d < 4 || !(d >= 32 || d / t >= in->threshold))
        return (struct literal){a[0], GRID_OUTCOME_NO_MATCH};
    const struct grid_candidate *first = NULL;
    size_t others = 0;
    for (size_t i = 0; i < n_a; i++) {
        if (a[i]->run == d) {
            first = first ? first : a[i];
            q_s = a[i]->depth < q_s ? a[i]->depth : q_s;
        } else {
            others++;
            q_o = a[i]->depth < q_o ? a[i]->depth : q_o;
        }
    }
    double worth = d * 64 / in->prefill_tokens_per_second / in->queued_request_seconds;
    if (others && !(isinf(q_s) && isinf(q_o)) && q_s - q_o > worth)
        return (struct literal){a[0], GRID_OUTCOME_LOAD_OVERRIDE};
    return (struct literal){first, GRID_OUTCOME_STICKY};
}

static void roll(struct dice *dice, struct grid_select *in, struct grid_candidate *candidates)
{
    static const double gaps[] = {0, 0, 0.0128, 0.05, 0.1024, 0.128, 0.5, 3, INFINITY};
    static const uint32_t sizes[] = {0, 1, 3, 4, 5, 10, 15, 31, 32, 39, 40, 400, 512};
    static const enum grid_health healths[] = {GRID_HEALTHY, GRID_HEALTHY, GRID_HEALTHY, GRID_UNHEALTHY, GRID_UNKNOWN};
    static const double thresholds[] = {0.8, 0.8, 0.8, 1, 0.5};
    uint32_t blocks = sizes[dice_below(dice, COUNT(sizes))];
    double depth = 0;
    *in = selection(candidates, dice_below(dice, MOST + 1), blocks);
    for (size_t i = 0; i < in->n; i++) {
        uint32_t run = dice_below(dice, 3) ? sizes[dice_below(dice, COUNT(sizes))] : blocks * 4 / 5;
        depth += gaps[dice_below(dice, COUNT(gaps))]; /* the snapshot's order */
        candidates[i] = site("x", depth, run < blocks ? run : blocks);
        candidates[i].admitted = dice_below(dice, 5) != 0;
        candidates[i].health = healths[dice_below(dice, dice_below(dice, 2) ? 3 : COUNT(healths))];
    }
    in->threshold = thresholds[dice_below(dice, COUNT(thresholds))];
    in->enabled = dice_below(dice, 10) != 0;
    in->explore = dice_below(dice, 10) == 0;
}

static void test_random_play_against_the_book(void **state)
{
    (void)state;
    struct dice dice = dice_new("test_select");
    unsigned seen[GRID_N_OUTCOMES + 1] = {0};
    for (unsigned i = 0; i < 200000; i++) {
        struct grid_candidate candidates[MOST];
        struct grid_select in;
        roll(&dice, &in, candidates);
        struct literal want = by_the_book(&in);
        struct grid_choice got = choose(&in);
        assert_ptr_equal(got.taken, want.pick);
        assert_int_equal(got.outcome, want.outcome);
        seen[got.outcome]++;
    }
    for (size_t i = 0; i < COUNT(seen); i++)
        assert_true(seen[i] > 100); /* the dice reach each outcome */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_worked_examples),
        cmocka_unit_test(test_the_price_of_a_match),
        cmocka_unit_test(test_the_figures_behind_a_choice),
        cmocka_unit_test(test_one_candidate_counts_nothing),
        cmocka_unit_test(test_the_order_of_reasons),
        cmocka_unit_test(test_who_admits_nothing_is_not_there),
        cmocka_unit_test(test_health),
        cmocka_unit_test(test_random_play_against_the_book),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
