/*
 * files.h - reading and writing whole files
 *
 * Story     Configurations are read whole and bounded; what the gateway writes for Envoy and the module is written
 *           beside its place and renamed over it, so that a reader never sees half a file.
 * Promise   Every failure comes back as false with one plain sentence in `error`.
 * Not here  What is in the files.
 */
#ifndef GRID_FILES_H
#define GRID_FILES_H

#include <grid/grid.h>

#define GRID_PATH_BYTES 4096

/* Reads a file of at most `limit` bytes and never waits: a FIFO, folder or device is refused. The caller frees
 * *out_text; a NUL follows it. */
bool grid_files_read(const char *path, size_t limit, char **out_text, size_t *out_len, char *error,
                     size_t error_size) GRID_MUST_USE;

/* The same for what a person hands to a command that then ends: a pipe is read to its end. */
bool grid_files_read_input(const char *path, size_t limit, char **out_text, size_t *out_len, char *error,
                           size_t error_size) GRID_MUST_USE;

/* Is it a regular file that may be read? */
bool grid_files_check(const char *path, char *error, size_t error_size) GRID_MUST_USE;

/* Writes DIR/NAME with mode 0600 by rename. */
bool grid_files_write(const char *dir, const char *name, const void *text, size_t len, char *error,
                      size_t error_size) GRID_MUST_USE;

/* Makes a folder (mode 0700) with those above it; one that is there is fine. */
bool grid_files_mkdir(const char *path, char *error, size_t error_size) GRID_MUST_USE;

/* Removes a folder with the plain files in it; it holds no folders. */
void grid_files_remove_dir(const char *path);

/* `path` as seen from the folder of the file `beside`; an absolute one stays. False when it is too long. */
bool grid_files_beside(const char *beside, const char *path, char *out, size_t out_size) GRID_MUST_USE;

/* The absolute form of a path whose folder exists. */
bool grid_files_absolute(const char *path, char *out, size_t out_size) GRID_MUST_USE;

#endif
