/*
 * history.h - the last minutes in a few numbers, for the ops page
 *
 * Story     Depths of each polled cluster over the load window, and outcomes over the last five minutes.
 * Not here  The depth that decides (core: the worst of the window); what was counted in all (/metrics).
 */
#ifndef GRID_ENVOY_HISTORY_H
#define GRID_ENVOY_HISTORY_H

#include "module.h"

/* Several times a second. Main thread. */
void grid_history_tick(const struct grid_module *module, uint64_t now_ms);
/* One JSON object. Any thread. */
void grid_history_json(struct grid_buf *out);
void grid_history_free(void); /* main thread */

#endif
