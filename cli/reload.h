/*
 * reload.h - a configuration that follows its files
 *
 * Story     `run` asks it now and then, and at once when the folder of a file changes: the gateway's file, the serving
 *           config, and every certificate, key and credential that they name. A file that was replaced is taken at
 *           once; one that is written in place only when it has come to rest.
 * Promise   The last good configuration stays in force, each file by itself: a mistake in one does not hold up the
 *           others. What only a restart can change is refused by name. What became of a change is told once, also of a
 *           file that is gone; what could not be written is tried again.
 * Not here  The waiting (run.c).
 */
#ifndef GRID_RELOAD_H
#define GRID_RELOAD_H

#include "cli/config.h"
#include "cli/state.h"
#include "cli/tagkey.h"

/* What tells one state of a file from another without reading it. */
struct grid_reload_look {
    unsigned long long device, file, bytes, written_ns, changed_ns;
    int error; /* why there is none */
};

struct grid_reload_file {
    char path[GRID_PATH_BYTES];
    struct grid_reload_look handled, seen; /* seen: not handled yet, since it is being written */
    uint64_t seen_ms, first_ms;            /* when it took the form that was seen, and when it began to change */
};

struct grid_reload_watch {
    const char *path; /* of the gateway's file */
    struct grid_gateway good;
    struct grid_source seen_file, seen_serving; /* texts that were handled, good or not */
    struct grid_reload_file *files;
    size_t n_files;
    struct grid_tagkey_stamps keys; /* of the key files in force, when the module last heard of them */
    char *standing;                 /* the refusals that stand, as told last; NULL: none */
    bool unwritten;                 /* the folder did not take the configuration: to be tried again */
    int inotify;                    /* readable when a folder changed, or -1 */
};

/* `first` is the configuration that is in force; it is taken over. */
void grid_reload_start(struct grid_reload_watch *watch, const char *path, struct grid_gateway *first);
void grid_reload_done(struct grid_reload_watch *watch);

/* Empties the queue of the descriptor. */
void grid_reload_drain(struct grid_reload_watch *watch);

/* Handles what changed, if anything did; logs to standard error. False: a file is being written, ask again soon.
 * Of a change of a key file only the module is told. */
bool grid_reload_check(struct grid_reload_watch *watch, struct grid_state *state, uint64_t now_ms);

#endif
