/*
 * state.h - the folder through which `run` talks to Envoy and the module
 *
 * Story     The rendered files (render.h) lie in one folder, each replaced by rename. `run` writes all of them at the
 *           start, and on a change those whose text changed, in an order that never lets a request be sent to a
 *           cluster that Envoy does not know: new secrets before the clusters that name them, new clusters before the
 *           serving config that names them, dropped ones only a while after. reload.json tells what became of the last
 *           change.
 * Promise   One `run` a folder: a second one is refused. A folder made here is removed at the end.
 * Not here  When to write (run.c).
 */
#ifndef GRID_STATE_H
#define GRID_STATE_H

#include "cli/config.h"

/* How long dropped clusters stay, for requests that were decided but not sent yet. */
#define GRID_STATE_SETTLE_MS 10000

struct grid_state {
    char dir[GRID_PATH_BYTES];
    bool temporary;
    int lock;                                   /* of a folder that stays, or -1 */
    char *envoy;                                /* the bootstrap that Envoy was started with */
    char *clusters, *routes, *plugin, *serving; /* as last written */
    json_t *secrets, *named;                    /* the same, by name; those of the configuration in force */
    char *settled_clusters;                     /* to be written by grid_state_settle, or NULL */
    unsigned revision;
};

/* `dir` NULL: a new folder under XDG_RUNTIME_DIR or /tmp. */
bool grid_state_open(struct grid_state *state, const char *dir, char *error, size_t error_size) GRID_MUST_USE;
void grid_state_close(struct grid_state *state);

enum grid_state_result { GRID_STATE_FAILED, GRID_STATE_SAME, GRID_STATE_CHANGED };

/* Writes what changed since the last call: everything, on the first. */
enum grid_state_result grid_state_write(struct grid_state *state, const struct grid_gateway *gateway, char *error,
                                        size_t error_size);

/* Drops the clusters that went away; call it GRID_STATE_SETTLE_MS after a write that left settled_clusters. */
bool grid_state_settle(struct grid_state *state, char *error, size_t error_size) GRID_MUST_USE;

/* Writes reload.json: result "applied", "reused" or "rejected", and the refusals. */
void grid_state_tell(struct grid_state *state, const char *result, const char *why);

/* Has the module read its files again, those with the keys of tags too, without a change of ours: it is the module that
 * takes or refuses a key, says so and counts it. */
void grid_state_nudge(struct grid_state *state);

#endif
