/*
 * select.h - the choice among candidates: pure arithmetic
 *
 * Story     Step 4 of the data path. route.c hands in the candidates in the snapshot's order and the few settings that
 *           matter; out comes the one taken, the outcome and the figures behind it. grid_select_by_load settles the
 *           requests in which affinity has no say; the others need their runs (index.h) and go to
 *           grid_select_by_match.
 * Promise   Same input, same choice: no clock, no table, no random source.   Source: behaviour.md E, F, G.
 */
#ifndef GRID_SELECT_H
#define GRID_SELECT_H

#include "grid/grid.h"

struct grid_choice {
    struct grid_candidate *taken; /* NULL: no candidate admits */
    enum grid_outcome outcome;
    bool unhealthy;                 /* taken although it has no healthy host, since none has */
    uint32_t run;                   /* the longest */
    double worth;                   /* NAN when no match qualified */
    double best_sticky, best_other; /* NAN when the gate was not asked */
};

struct grid_select {
    struct grid_candidate *candidates; /* all of the model, in the snapshot's order */
    size_t n;
    uint32_t blocks; /* keys of the request */
    bool enabled, explore, spread_ties;
    double threshold, prefill_tokens_per_second, queued_request_seconds;
};

/* True when the choice is made without looking at runs: none or one admits, affinity is off, there are no keys, or the
 * draw fell on exploring. */
bool grid_select_by_load(const struct grid_select *in, struct grid_choice *out_choice);

/* The choice by runs; each candidate's `run` is filled in. At least two admit. */
void grid_select_by_match(const struct grid_select *in, struct grid_choice *out_choice);

/* What a run is worth in queued requests (behaviour.md F). */
double grid_select_worth(const struct grid_select *in, uint32_t run);

/* Whether the candidate may be taken now: admitted, and healthy while any admitted one is. */
bool grid_select_usable(const struct grid_select *in, const struct grid_candidate *candidate);

#endif
