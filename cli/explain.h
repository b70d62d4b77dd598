/*
 * explain.h - a decision in words and as JSON
 *
 * Story     explain.c lets the core decide; explain_print.c prints what it decided on standard output.
 */
#ifndef GRID_EXPLAIN_H
#define GRID_EXPLAIN_H

#include <grid/grid.h>

void grid_explain_words(const struct grid_explained *explained);
void grid_explain_as_json(const struct grid_explained *explained);

#endif
