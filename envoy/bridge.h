/*
 * bridge.h - small translations between Envoy's calls and the core's values
 *
 * Story     Every file of this room includes it. Nothing here decides anything.
 * Not here  The declarations of the calls themselves (abi.h), state (module.h).
 */
#ifndef GRID_ENVOY_BRIDGE_H
#define GRID_ENVOY_BRIDGE_H

#include "abi.h"

#include <math.h>
#include <string.h>
#include <strings.h>

/* A view of a string literal. */
#define GRID_TEXT(literal) ((struct grid_str){(literal), sizeof(literal) - 1})

static inline struct grid_str grid_bridge_text(const char *text)
{
    return (struct grid_str){text, text ? strlen(text) : 0};
}

static inline bool grid_bridge_same(struct grid_str a, struct grid_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool grid_bridge_starts(struct grid_str text, struct grid_str head)
{
    return text.len >= head.len && memcmp(text.ptr, head.ptr, head.len) == 0;
}

/* Whether `word` is somewhere in `text`, without regard to case. */
static inline bool grid_bridge_mentions(struct grid_str text, struct grid_str word)
{
    for (size_t i = 0; i + word.len <= text.len; i++) {
        if (strncasecmp(text.ptr + i, word.ptr, word.len) == 0)
            return true;
    }
    return false;
}

/* The first header of that name, {NULL, 0} without one. */
static inline struct grid_str grid_bridge_header(void *stream, int map, struct grid_str name)
{
    struct grid_str value = {NULL, 0};
    size_t count = 0;
    if (!ENVOY(http_get_header)(stream, map, name, &value, 0, &count))
        return (struct grid_str){NULL, 0};
    return value;
}

static inline void grid_bridge_remove(void *stream, int map, struct grid_str name)
{
    ENVOY(http_set_header)(stream, map, name, (struct grid_str){NULL, 0});
}

/* On its way to a site; a ticket that is not decided yet names no cluster. */
static inline bool grid_bridge_forwarded(const struct grid_decision *decision)
{
    return decision->action == GRID_FORWARD && decision->cluster.len > 0;
}

/* The number that `text` is; 0 when it is not all digits or too long to be a status. */
static inline int grid_bridge_status(struct grid_str text)
{
    int status = 0;
    if (text.len > 3)
        return 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return 0;
        status = status * 10 + (text.ptr[i] - '0');
    }
    return status;
}

/* The queue of the cluster that was taken, as the decision saw it; NAN when none was looked at. */
static inline double grid_bridge_depth(struct grid_ticket *ticket, const struct grid_decision *decision)
{
    size_t n = 0;
    const struct grid_candidate *candidates = decision->pinned ? NULL : grid_ticket_candidates(ticket, &n);
    for (size_t i = 0; i < n; i++) {
        if (grid_bridge_same(candidates[i].cluster, decision->cluster))
            return candidates[i].depth;
    }
    return NAN;
}

#endif
