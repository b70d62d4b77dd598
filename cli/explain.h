/*
 * explain.h - a decision in words and as JSON
 *
 * Story     explain.c lets the core decide; explain_print.c prints what it decided on standard output.
 */
#ifndef GRID_EXPLAIN_H
#define GRID_EXPLAIN_H

#include <grid/grid.h>

struct grid_explained {
    struct grid_settings settings;
    struct grid_decision decision;
    bool conversation; /* it starts one */
    const struct grid_candidate *candidates;
    size_t n_candidates;
};

void grid_explain_words(const struct grid_explained *explained);
void grid_explain_json(const struct grid_explained *explained);

#endif
