/*
 * trace.h - recording key streams (`trace_keys`, off by default)
 *
 * Story     filter.c notes each prompt when its stream ends. A thread of its own turns keys into values that need the
 *           recording's secret and appends a line each to the file, so that no worker waits for a disk.
 * Promise   Live keys are never written, nor any text of a request. Memory is bounded: what finds no room is dropped
 *           and counted, as is what the file or the disk has no room for. The file has whole lines only.
 * Threads   note: any. start and stop: main thread.
 * Source    behaviour.md O.45.
 * Not here  The form of a line and the values (core/ready.c), reading them (cli/trace.c).
 */
#ifndef GRID_ENVOY_TRACE_H
#define GRID_ENVOY_TRACE_H

#include "module.h"

enum { GRID_TRACE_QUEUE_BYTES = 4 << 20 }; /* twice: one is filled while the other is written */

/* What is told of a request beside its keys. */
struct grid_trace_note {
    uint64_t at_ms; /* since 1970 */
    uint64_t body_bytes, prompt_tokens, output_tokens;
    bool has_output;
    size_t n; /* keys, at most GRID_MAX_KEYS */
};

/* Starts the thread. The file is made, for its owner alone, when it is not there; trouble with it is logged and may end
 * by itself. The secret is copied. False: no memory or no thread; *error says so. */
bool grid_trace_start(struct grid_router *router, const char *path, uint64_t max_bytes, struct grid_str secret,
                      char *error, size_t size);
/* Writes what is queued and ends. Fine without a start. */
void grid_trace_stop(void);
bool grid_trace_on(void);
void grid_trace_add(const struct grid_trace_note *note, const uint64_t *keys);

#endif
