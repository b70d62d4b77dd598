/*
 * reload.h - a configuration that follows its files
 *
 * Story     `run` asks it now and then, and at once when the folder of a file changes. It compares texts, so nothing
 *           happens when nothing changed.
 * Promise   The last good configuration stays in force, each of the two files by itself: a mistake in one does not
 *           hold up the other. What only a restart can change is refused by name.
 * Not here  The waiting (run.c).
 */
#ifndef GRID_RELOAD_H
#define GRID_RELOAD_H

#include "cli/config.h"
#include "cli/state.h"
#include "cli/tagkey.h"

struct grid_reload_watch {
    const char *path; /* of the gateway's file */
    struct grid_gateway good;
    struct grid_source seen_file, seen_serving; /* texts that were handled, good or not */
    bool lost_file, lost_serving;               /* cannot be read now, and that was said */
    bool refused;                               /* what the files now say was refused, all of it or a part */
    struct grid_tagkey_stamps keys;             /* of the key files in force, when the module last heard of them */
    int inotify;                                /* readable when a folder changed, or -1 */
};

/* `first` is the configuration that is in force; it is taken over. */
void grid_reload_start(struct grid_reload_watch *watch, const char *path, struct grid_gateway *first);
void grid_reload_done(struct grid_reload_watch *watch);

/* Empties the queue of the descriptor. */
void grid_reload_drain(struct grid_reload_watch *watch);

/* Handles what changed, if anything did; logs to standard error. What was refused is tried again in silence: a key or a
 * certificate that it names may be good by now. True when files were written. Of a change of a key
 * file only the module is told. */
bool grid_reload_check(struct grid_reload_watch *watch, struct grid_state *state);

#endif
