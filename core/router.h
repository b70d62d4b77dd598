/*
 * router.h - the handle, and a request's ticket
 *
 * Story     One router a process. Configuration and signals change it (router.c); requests read it (route.c, learn.c).
 * Guards    `change`: one load, signal or refresh at a time; requests never take it. `now`: the pointer to the
 *           snapshot, held for a pointer copy and a count. Order: change, then now, or a table's lock; requests hold
 *           one lock at a time.
 * Not here  the steps of a request (route.c), what it changes of one (edits.c), of a failover (move.c), of an answer
 *           (learn.c, watch.c).
 */
#ifndef GRID_ROUTER_H
#define GRID_ROUTER_H

#include <pthread.h>

#include "hash.h"
#include "head.h"
#include "ids.h"
#include "keys.h"
#include "reply.h"
#include "rewrite.h"
#include "select.h"
#include "sites.h"
#include "usage.h"
#include "window.h"

/* A cluster that a candidate names, from the load that brought it to the load that leaves it out. */
struct grid_cluster {
    struct grid_cluster *next;
    struct grid_table *table;
    struct grid_window window;
    bool named; /* by the config that is being put in force */
    size_t name_len;
    char name[GRID_MAX_NAME_BYTES];
};

struct grid_router {
    const struct grid_alloc *alloc;
    void *memory; /* what the allocator gave: the router stands in it, aligned as its seed wants */
    struct grid_hash_seed seed;
    uint64_t dice_seed;
    atomic_ullong dice; /* draws made */
    struct grid_stats stats;

    pthread_mutex_t change;
    /* guarded by change */
    struct grid_config *config;
    struct grid_cluster *clusters;

    pthread_mutex_t now;
    /* guarded by now */
    struct grid_sites *sites;
};

/* The snapshot now in force, with a reference for the caller. */
struct grid_sites *grid_router_take_sites(struct grid_router *router);

enum grid_ticket_state { GRID_TICKET_NEW, GRID_TICKET_ROUTED, GRID_TICKET_SETTLED };

struct grid_ticket {
    struct grid_router *router;
    struct grid_sites *sites;
    enum grid_ticket_state state;
    enum grid_want want;

    /* the head; `head.model`, `head.entry` and `stripped` are views into text below */
    struct grid_head_view head;
    bool upgrade;
    struct grid_id path_id;   /* of a stored path */
    struct grid_str stripped; /* that path without the tag, with its query; {NULL,0} when its id has none */
    struct grid_str text;     /* copies of what the head's views pointed to */

    /* the body */
    bool has_body, body_cut;
    struct grid_keyed keyed;
    struct grid_ids ids; /* that a create names */

    /* the decision */
    struct grid_candidate *candidates;
    size_t n_candidates;
    size_t first_site; /* candidates[i] stands for sites->sites[first_site + i] */
    struct grid_decision decision;
    struct grid_table *pended;    /* where the keys were marked; borrowed from sites */
    struct grid_stats_pair *pair; /* of the decision's site and cluster; NULL: only peeked, or no site */
    struct grid_buf reply_text;
    struct grid_edit edits[GRID_MAX_EDITS];
    size_t n_edits;

    /* the answer */
    bool rewriting;
    struct grid_rewrite rewrite;
    bool watching, has_tokens;
    uint64_t token_ns; /* when the last tokens came; before them, when the request was whole */
    struct grid_usage usage;

    uint64_t keys[GRID_MAX_KEYS];
};

/* Whether the sites were asked what they hold of it: not when it has no keys or was drawn to go by load. */
static inline bool grid_decision_matched(const struct grid_decision *decision)
{
    return decision->outcome == GRID_OUTCOME_STICKY || decision->outcome == GRID_OUTCOME_NO_MATCH ||
           decision->outcome == GRID_OUTCOME_LOAD_OVERRIDE;
}

/* What changes on the way to the candidate that the decision names: notes it in the ticket (edits.c). */
void grid_edits_make(struct grid_ticket *ticket, const struct grid_config_candidate *candidate);
/* What the candidate's cluster calls the model of the request; NULL: the same. */
const struct grid_serving_alias *grid_edits_alias(const struct grid_ticket *ticket,
                                                  const struct grid_config_candidate *candidate);

#endif
