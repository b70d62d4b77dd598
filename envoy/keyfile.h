/*
 * keyfile.h - the files that hold the keys of tags, or the secret of a recording
 *
 * Story     folder.c reads them at the start, with each change of the settings and at each look at the folder, hands
 *           what they hold to the core and wipes it.
 * Promise   What was read is overwritten before its memory is given back. An error names the file, never its content.
 * Not here  Whether the keys are other ones than those in force (the core).
 */
#ifndef GRID_ENVOY_KEYFILE_H
#define GRID_ENVOY_KEYFILE_H

#include <grid/grid.h>

enum { GRID_KEYFILE_MAX_BYTES = 64 << 10 };

/* The raw keys, in the order of the settings. Start from {0}. */
struct grid_keyfile_set {
    size_t n;
    struct grid_str keys[GRID_MAX_TAG_KEYS];
    char *memory[GRID_MAX_TAG_KEYS];
};

/* Reads all that the settings name. False: *error says which file is wrong and why, and the set is empty. */
bool grid_keyfile_read(const struct grid_settings *settings, struct grid_keyfile_set *set, char *error, size_t size);
/* Adds the key in one file; `what` it is goes into the error. */
bool grid_keyfile_add(const char *what, const char *path, struct grid_keyfile_set *set, char *error, size_t size);
void grid_keyfile_wipe(struct grid_keyfile_set *set);

#endif
