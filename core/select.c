/*
 * select.c - the choice among candidates: pure arithmetic
 */
#include "select.h"

#include <math.h>

static bool admits(const struct grid_candidate *c)
{
    return c->admitted && c->health != GRID_UNKNOWN;
}

static bool any_healthy(const struct grid_select *in)
{
    for (size_t i = 0; i < in->n; i++)
        if (admits(&in->candidates[i]) && in->candidates[i].health == GRID_HEALTHY)
            return true;
    return false;
}

static bool usable(const struct grid_candidate *c, bool some_healthy)
{
    return admits(c) && (c->health == GRID_HEALTHY || !some_healthy);
}

bool grid_select_usable(const struct grid_select *in, const struct grid_candidate *candidate)
{
    return usable(candidate, any_healthy(in));
}

double grid_select_worth(const struct grid_select *in, uint32_t run)
{
    double tokens = (double)run * GRID_TOKENS_A_BLOCK;
    return tokens / in->prefill_tokens_per_second / in->queued_request_seconds;
}

/* Candidates come in the order of their queues; between equal ones that order decides, or who has fewer open requests. */
static bool comes_before(const struct grid_select *in, const struct grid_candidate *c,
                         const struct grid_candidate *first)
{
    return !first || (in->spread_ties && c->depth <= first->depth && c->open < first->open);
}

bool grid_select_by_load(const struct grid_select *in, struct grid_choice *out_choice)
{
    bool some_healthy = any_healthy(in);
    struct grid_choice choice = {
        .outcome = GRID_OUTCOME_UNCOUNTED, .worth = NAN, .best_sticky = NAN, .best_other = NAN};
    size_t n_usable = 0;
    for (size_t i = 0; i < in->n; i++) {
        if (!usable(&in->candidates[i], some_healthy))
            continue;
        n_usable++;
        if (comes_before(in, &in->candidates[i], choice.taken))
            choice.taken = &in->candidates[i];
    }
    choice.unhealthy = choice.taken && !some_healthy;
    bool settled = true;
    if (!in->enabled || n_usable < 2)
        choice.outcome = GRID_OUTCOME_UNCOUNTED;
    else if (in->blocks == 0)
        choice.outcome = GRID_OUTCOME_NOT_APPLICABLE;
    else if (in->explore)
        choice.outcome = GRID_OUTCOME_EXPLORATION;
    else
        settled = false;
    *out_choice = choice;
    return settled;
}

/* The sticky set is the candidates whose run is the longest; these are its least depth and the least depth outside. */
struct gate {
    struct grid_candidate *sticky; /* first of the set, so its least queued */
    double best_sticky, best_other;
    bool others;
};

static struct gate gate_of(const struct grid_select *in, uint32_t longest, bool some_healthy)
{
    struct gate gate = {NULL, INFINITY, INFINITY, false};
    for (size_t i = 0; i < in->n; i++) {
        struct grid_candidate *c = &in->candidates[i];
        if (!usable(c, some_healthy))
            continue;
        if (c->run == longest) {
            if (comes_before(in, c, gate.sticky))
                gate.sticky = c;
            gate.best_sticky = fmin(gate.best_sticky, c->depth);
        } else {
            gate.others = true;
            gate.best_other = fmin(gate.best_other, c->depth);
        }
    }
    return gate;
}

static bool long_enough(const struct grid_select *in, uint32_t run)
{
    if (run < GRID_MIN_RUN)
        return false;
    return run >= GRID_FLOOR_RUN || (double)run / (double)in->blocks >= in->threshold;
}

void grid_select_by_match(const struct grid_select *in, struct grid_choice *out_choice)
{
    (void)grid_select_by_load(in, out_choice); /* the front, should affinity find nothing */
    bool some_healthy = any_healthy(in);
    uint32_t longest = 0;
    for (size_t i = 0; i < in->n; i++)
        if (usable(&in->candidates[i], some_healthy) && in->candidates[i].run > longest)
            longest = in->candidates[i].run;
    out_choice->run = longest;
    out_choice->outcome = GRID_OUTCOME_NO_MATCH;
    if (!long_enough(in, longest))
        return;

    struct gate gate = gate_of(in, longest, some_healthy);
    out_choice->worth = grid_select_worth(in, longest);
    if (gate.others) {
        out_choice->best_sticky = gate.best_sticky;
        out_choice->best_other = gate.best_other;
        /* Strictly more than the worth. Two unmeasured depths differ by NAN, which compares false: the site stays. */
        if (gate.best_sticky - gate.best_other > out_choice->worth) {
            out_choice->outcome = GRID_OUTCOME_LOAD_OVERRIDE;
            return;
        }
    }
    out_choice->outcome = GRID_OUTCOME_STICKY;
    out_choice->taken = gate.sticky;
}
