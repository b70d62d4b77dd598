/*
 * tagkey.c - the files that hold the keys of tags, as the command sees them; see tagkey.h
 */
#include "cli/tagkey.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OTHERS 077u /* permissions of all but the owner */

bool grid_tagkey_add(struct grid_tagkey_set *set, const char *path, char *error, size_t error_size)
{
    if (set->n == GRID_MAX_TAG_KEYS) {
        snprintf(error, error_size, "%s: more than %u keys", path, GRID_MAX_TAG_KEYS);
        return false;
    }
    char *bytes;
    size_t len;
    if (!grid_files_read(path, GRID_TAGKEY_MAX_BYTES, &bytes, &len, error, error_size)) {
        return false;
    }
    set->memory[set->n] = bytes;
    set->keys[set->n++] = (struct grid_str){bytes, len};
    if (len < GRID_MIN_TAG_KEY_BYTES) {
        snprintf(error, error_size, "%s has %zu bytes; a key has at least %u bytes", path, len, GRID_MIN_TAG_KEY_BYTES);
        return false;
    }
    return true;
}

void grid_tagkey_wipe(struct grid_tagkey_set *set)
{
    for (size_t i = 0; i < set->n; i++) {
        grid_wipe(set->memory[i], set->keys[i].len);
        free(set->memory[i]);
    }
    *set = (struct grid_tagkey_set){0};
}

void grid_tagkey_warn(const struct grid_settings *settings, FILE *to)
{
    for (size_t i = 0; i < settings->n_tag_key_paths; i++) {
        struct stat st;
        if (stat(settings->tag_key_paths[i], &st) == 0 && (st.st_mode & OTHERS) != 0) {
            fprintf(to, "grid-gateway: %s: others than its owner may read it (mode %04o); who has a key can make ids\n",
                    settings->tag_key_paths[i], (unsigned)st.st_mode & 07777u);
        }
    }
}

void grid_tagkey_stamp(const struct grid_settings *settings, struct grid_tagkey_stamps *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < settings->n_tag_key_paths; i++) {
        struct stat st;
        if (stat(settings->tag_key_paths[i], &st) != 0) {
            continue; /* a file that is gone looks like none */
        }
        out->files[i].device = st.st_dev;
        out->files[i].inode = st.st_ino;
        out->files[i].bytes = st.st_size;
        out->files[i].modified = st.st_mtim;
        out->files[i].changed = st.st_ctim;
    }
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool grid_tagkey_same(const struct grid_tagkey_stamps *a, const struct grid_tagkey_stamps *b)
{
    bool same = true;
    for (size_t i = 0; i < GRID_MAX_TAG_KEYS; i++) {
        same &= a->files[i].device == b->files[i].device && a->files[i].inode == b->files[i].inode &&
                a->files[i].bytes == b->files[i].bytes && same_time(&a->files[i].modified, &b->files[i].modified) &&
                same_time(&a->files[i].changed, &b->files[i].changed);
    }
    return same;
}
