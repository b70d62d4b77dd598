/*
 * keyfile.c - files of keys; see keyfile.h
 */
#include "keyfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = GRID_KEYFILE_MAX_BYTES + 1 /* one more, to see that there is more */ };

/* The file's bytes into `bytes`, which has ROOM. 0 or an errno; EFBIG when it holds more. Opening a FIFO would wait for
 * its writer, and a device may never end. */
static int read_bytes(const char *path, char *bytes, size_t *out_len)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = fstat(fd, &st) != 0 ? errno : S_ISREG(st.st_mode) ? 0 : EINVAL;
    size_t len = 0;
    while (error == 0 && len < ROOM) {
        ssize_t got = read(fd, bytes + len, ROOM - len);
        if (got == 0)
            break;
        if (got > 0)
            len += (size_t)got;
        else if (errno != EINTR)
            error = errno;
    }
    close(fd);
    *out_len = len;
    return error == 0 && len == ROOM ? EFBIG : error;
}

bool grid_keyfile_add(const char *what, const char *path, struct grid_keyfile_set *set, char *error, size_t size)
{
    size_t len = 0;
    char *bytes = malloc(ROOM);
    if (!bytes) {
        snprintf(error, size, "%s %.255s: no memory", what, path);
        return false;
    }
    int failed = read_bytes(path, bytes, &len);
    set->memory[set->n] = bytes;
    set->keys[set->n++] = (struct grid_str){bytes, len};
    if (failed)
        snprintf(error, size, "%s %.255s: %s", what, path, failed == EINVAL ? "not a regular file" : strerror(failed));
    else if (len < GRID_MIN_TAG_KEY_BYTES)
        snprintf(error, size, "%s %.255s: %zu bytes: it must have at least %u bytes", what, path, len,
                 GRID_MIN_TAG_KEY_BYTES);
    return !failed && len >= GRID_MIN_TAG_KEY_BYTES;
}

bool grid_keyfile_read(const struct grid_settings *settings, struct grid_keyfile_set *set, char *error, size_t size)
{
    bool good = true;
    for (size_t i = 0; good && i < settings->n_tag_key_paths; i++)
        good = grid_keyfile_add("tag key", settings->tag_key_paths[i], set, error, size);
    if (!good)
        grid_keyfile_wipe(set);
    return good;
}

void grid_keyfile_wipe(struct grid_keyfile_set *set)
{
    for (size_t i = 0; i < set->n; i++) {
        grid_wipe(set->memory[i], ROOM);
        free(set->memory[i]);
    }
    *set = (struct grid_keyfile_set){0};
}
