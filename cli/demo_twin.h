/*
 * demo_twin.h - the gateway's core once more, inside the demo
 *
 * Story     The gateway tells which outcome it counted, not how long the match was. The demo asks the same core about
 *           the same bodies, with the depths that the gateway sees, and so has run, blocks and worth.
 * Promise   It is told only what the gateway can know: the two configurations, the depths, bodies and answers. demo.c
 *           compares its word with what the gateway did, every turn.
 * Not here  Any rule: all of them are in the core.
 */
#ifndef GRID_DEMO_TWIN_H
#define GRID_DEMO_TWIN_H

#include "cli/demo_grid.h"

struct grid_demo_twin {
    struct grid_router *router;
    uint64_t now_ms; /* a clock of its own: it jumps past every window from turn to turn */
    struct grid_ticket *ticket;
};

/* Loads the texts of the grid's two files. A twin starts zeroed. */
bool grid_demo_twin_load(struct grid_demo_twin *twin, const struct grid_demo_grid *grid,
                         char error[GRID_DEMO_ERROR_BYTES]) GRID_MUST_USE;

/* Where would this chat body go at these depths? The decision's views live until grid_demo_twin_settle. */
bool grid_demo_twin_ask(struct grid_demo_twin *twin, const char *body, const double depths[GRID_DEMO_SITES],
                        struct grid_decision *out_decision) GRID_MUST_USE;

/* The answer's status to what was asked last; 0: there was none. Without a question nothing happens. */
void grid_demo_twin_settle(struct grid_demo_twin *twin, int status);

void grid_demo_twin_done(struct grid_demo_twin *twin);

#endif
