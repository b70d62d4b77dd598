/*
 * files.c - reading and writing whole files; see files.h
 *
 * Not here  Watching for changes (watch.c).
 */
#include "cli/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_READ 65536

static bool failed(char *error, size_t size, const char *verb, const char *path)
{
    snprintf(error, size, "cannot %s %s: %s", verb, path, strerror(errno));
    return false;
}

/* Reads fd to its end; false with errno, or with 0 in it when the limit was passed. */
static bool read_all(int fd, size_t limit, char **out_text, size_t *out_len)
{
    size_t cap = FIRST_READ, len = 0;
    char *text = malloc(cap + 1);
    while (text != NULL) {
        ssize_t n = read(fd, text + len, cap - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n == 0) {
            text[len] = '\0';
            *out_text = text;
            *out_len = len;
            return true;
        }
        if (n < 0) {
            break;
        }
        len += (size_t)n;
        if (len > limit) {
            errno = 0;
            break;
        }
        if (len == cap) {
            char *more = realloc(text, 2 * cap + 1);
            if (more == NULL) {
                break;
            }
            text = more;
            cap *= 2;
        }
    }
    int why = errno;
    free(text);
    errno = why;
    return false;
}

static bool refuse_kind(char *error, size_t size, const char *path)
{
    snprintf(error, size, "cannot read %s: not a regular file", path);
    return false;
}

/* Reads what is open and closes it. */
static bool take(int fd, const char *path, size_t limit, char **out_text, size_t *out_len, char *error,
                 size_t error_size)
{
    bool good = read_all(fd, limit, out_text, out_len);
    if (!good && errno == 0) {
        snprintf(error, error_size, "cannot read %s: larger than %zu bytes", path, limit);
    } else if (!good) {
        failed(error, error_size, "read", path);
    }
    close(fd);
    return good;
}

/* Opening a FIFO would wait for its writer, and a device may never end: what is opened is looked at before a read. */
bool grid_files_read(const char *path, size_t limit, char **out_text, size_t *out_len, char *error, size_t error_size)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return failed(error, error_size, "read", path);
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return refuse_kind(error, error_size, path);
    }
    return take(fd, path, limit, out_text, out_len, error, error_size);
}

bool grid_files_read_input(const char *path, size_t limit, char **out_text, size_t *out_len, char *error,
                           size_t error_size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return failed(error, error_size, "read", path);
    }
    return take(fd, path, limit, out_text, out_len, error, error_size);
}

bool grid_files_check(const char *path, char *error, size_t error_size)
{
    struct stat st;
    if (access(path, R_OK) != 0 || stat(path, &st) != 0) {
        return failed(error, error_size, "read", path);
    }
    return S_ISREG(st.st_mode) || refuse_kind(error, error_size, path);
}

static bool write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return false;
        }
        text += n;
        len -= (size_t)n;
    }
    return true;
}

bool grid_files_write(const char *dir, const char *name, const void *text, size_t len, char *error, size_t error_size)
{
    char path[GRID_PATH_BYTES], fresh[GRID_PATH_BYTES + 8];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return failed(error, error_size, "write", name);
    }
    snprintf(fresh, sizeof fresh, "%s.new", path);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return failed(error, error_size, "write", fresh);
    }
    bool good = write_all(fd, text, len);
    good = close(fd) == 0 && good;
    if (!good || rename(fresh, path) != 0) {
        failed(error, error_size, "write", path);
        unlink(fresh);
        return false;
    }
    return true;
}

bool grid_files_mkdir(const char *path, char *error, size_t error_size)
{
    char part[GRID_PATH_BYTES];
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof part) {
        errno = ENAMETOOLONG;
        return failed(error, error_size, "make", path);
    }
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != '\0') {
            continue;
        }
        char kept = part[i];
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) {
            return failed(error, error_size, "make", part);
        }
        part[i] = kept;
    }
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return failed(error, error_size, "use", path);
    }
    return true;
}

void grid_files_remove_dir(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    closedir(dir);
    rmdir(path);
}

bool grid_files_beside(const char *beside, const char *path, char *out, size_t out_size)
{
    const char *slash = strrchr(beside, '/');
    int dir_len = path[0] == '/' || slash == NULL ? 0 : (int)(slash - beside) + 1;
    int n = snprintf(out, out_size, "%.*s%s", dir_len, beside, path);
    return n >= 0 && (size_t)n < out_size;
}

bool grid_files_absolute(const char *path, char *out, size_t out_size)
{
    char cwd[GRID_PATH_BYTES] = "";
    if (path[0] != '/' && getcwd(cwd, sizeof cwd) == NULL) {
        return false;
    }
    int n = snprintf(out, out_size, "%s%s%s", cwd, path[0] != '/' ? "/" : "", path);
    return n >= 0 && (size_t)n < out_size;
}
