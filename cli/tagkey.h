/*
 * tagkey.h - the files that hold the keys of tags, as the command sees them
 *
 * Story     `check` and `run` judge them, `replay` and `tag` use them, `run` looks whether they changed so that it can
 *           tell the module, which reads them itself.
 * Promise   What was read is overwritten before its memory is given back; an error names the file, never its content.
 * Not here  The module's own reading (envoy/keyfile.h).
 */
#ifndef GRID_TAGKEY_H
#define GRID_TAGKEY_H

#include "cli/files.h"

#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#define GRID_TAGKEY_MAX_BYTES 65535u

/* Raw keys. Start from {0}. */
struct grid_tagkey_set {
    size_t n;
    struct grid_str keys[GRID_MAX_TAG_KEYS];
    char *memory[GRID_MAX_TAG_KEYS];
};

/* Adds what the file holds; false when it cannot be read, is short, or there are too many. */
bool grid_tagkey_add(struct grid_tagkey_set *set, const char *path, char *error, size_t error_size) GRID_MUST_USE;
void grid_tagkey_wipe(struct grid_tagkey_set *set);

/* One line on `to` for each file of the settings that others than its owner may read. */
void grid_tagkey_warn(const struct grid_settings *settings, FILE *to);

/* What the files of the settings look like from outside: a change of content shows in it. */
struct grid_tagkey_stamps {
    struct {
        dev_t device;
        ino_t inode;
        off_t bytes;
        struct timespec modified, changed;
    } files[GRID_MAX_TAG_KEYS];
};
void grid_tagkey_stamp(const struct grid_settings *settings, struct grid_tagkey_stamps *out);
bool grid_tagkey_same(const struct grid_tagkey_stamps *a, const struct grid_tagkey_stamps *b);

#endif
