/*
 * refused.h - what Envoy refused of what it was given
 *
 * Story     `run` checks all that it can before it writes, but whether a key belongs to its certificate only Envoy can
 *           tell. Envoy then keeps what it has, and counts. `run` asks for the counts after a change and now and then.
 * Not here  Refusals of the module: it tells them itself.
 */
#ifndef GRID_REFUSED_H
#define GRID_REFUSED_H

#include "cli/state.h"

struct grid_refused {
    unsigned long long count; /* of refusals, as last seen */
};

/* Asks the admin address; a refusal that was not there before is logged and told in the state folder. */
void grid_refused_check(struct grid_refused *refused, const struct grid_address *admin, struct grid_state *state);

#endif
