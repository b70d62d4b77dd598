/*
 * launch.h - finding, checking, starting and asking Envoy
 *
 * Promise   Only the Envoy version that the module was written for is started: Envoy itself would take any, and the
 *           border between the two has no other guard.
 * Not here  When to start and stop it (run.c).
 */
#ifndef GRID_LAUNCH_H
#define GRID_LAUNCH_H

#include "cli/config.h"

#include <sys/types.h>

#define GRID_ENVOY_VERSION "1.40.0"

/* The variable GRID_ENVOY; else `envoy` beside this executable; else .venv/bin/envoy in its folder or one above it;
 * else `envoy` in PATH. */
bool grid_launch_find_envoy(char *out, size_t out_size, char *error, size_t error_size) GRID_MUST_USE;

/* Runs `envoy --version`. */
bool grid_launch_check_version(const char *envoy, char *error, size_t error_size) GRID_MUST_USE;

/* The folder of libgrid_site_route.so: the variable GRID_MODULE_DIR, else that of this executable. */
bool grid_launch_find_module(char *out, size_t out_size, char *error, size_t error_size) GRID_MUST_USE;

struct grid_launch {
    const char *envoy, *module_dir, *state_dir, *log_level;
    unsigned concurrency, drain_seconds;
    bool validate; /* only read the configuration, then end */
};

/* Starts it in a process group of its own (Ctrl-C is ours to handle), without core dumps (they hold prompts), and so
 * that it ends when we do. 0 on failure. */
pid_t grid_launch_envoy(const struct grid_launch *launch, char *error, size_t error_size) GRID_MUST_USE;

/* False when somebody serves the address, also one who would share the port. */
bool grid_launch_is_free(const struct grid_address *address) GRID_MUST_USE;

/* One request to the admin address, waiting 2 s at most: the HTTP status, or 0. `body` gets the answer's, cut. */
int grid_launch_admin(const struct grid_address *admin, const char *method, const char *path, char *body,
                      size_t body_size);

#endif
