/*
 * recent.h - the last decisions, for the ops page
 *
 * Not here  How they are kept (recent.c); what was counted (core, /metrics).
 */
#ifndef GRID_ENVOY_RECENT_H
#define GRID_ENVOY_RECENT_H

#include "module.h"

/* Keeps what was decided for the ticket, at that attempt. Any thread; never waits. */
void grid_recent_note(struct grid_ticket *ticket, unsigned attempts, uint64_t now_ms);
/* JSON list, the newest first. Any thread. */
void grid_recent_json(struct grid_buf *out, uint64_t now_ms);

#endif
