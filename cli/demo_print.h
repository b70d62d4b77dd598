/*
 * demo_print.h - what the demo writes on a terminal
 *
 * Story     demo.c says what happened as values; here it becomes lines of at most 100 columns, coloured only when
 *           standard output is a terminal and NO_COLOR is not set.
 * Promise   Nothing is printed that was not handed in. Each line is flushed, so that it is seen as it happens.
 * Not here  Measuring, and what a good result is (demo.c).
 */
#ifndef GRID_DEMO_PRINT_H
#define GRID_DEMO_PRINT_H

#include "cli/demo_grid.h"

/* One turn of a conversation, as it was. */
struct grid_demo_turn {
    size_t site; /* where it was answered; GRID_DEMO_SITES: unknown */
    unsigned number;
    enum grid_outcome outcome;
    uint32_t run, blocks;
    double depths[GRID_DEMO_SITES]; /* when it was sent */
    double worth;                   /* NAN: no match qualified, or none was looked for */
    uint64_t prompt_tokens, cached_tokens;
    double first_s; /* from the request to the first words */
};

/* The turns of one conversation that are compared, summed. */
struct grid_demo_sum {
    unsigned turns, sites;
    uint64_t prompt_tokens, cached_tokens;
    double median_s, worst_s; /* of the time to the first words, from turn two on */
};

void grid_demo_print_heading(const char *text);
void grid_demo_print_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void grid_demo_print_columns(void);
void grid_demo_print_turn(const struct grid_demo_turn *turn);
void grid_demo_print_sums(const struct grid_demo_sum *with, const struct grid_demo_sum *without);
void grid_demo_print_verdict(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
