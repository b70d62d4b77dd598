/*
 * demo_grid.h - what the demo watches: three simulated sites behind one gateway, as child processes
 *
 * Story     demo.c starts one with prefix affinity and one without. Each has a folder with the gateway's two files and
 *           the logs of its processes; the processes are this same executable: `sim-site` and `run`.
 * Promise   Ready means ready: every site and the gateway have said where they listen, and the gateway has measured
 *           every site. What was started is stopped by grid_demo_grid_stop, and by the kernel when the demo dies.
 * Not here  What is asked of them (demo.c).
 */
#ifndef GRID_DEMO_GRID_H
#define GRID_DEMO_GRID_H

#include "cli/demo_client.h"

#include <sys/types.h>

#define GRID_DEMO_SITES 3u
#define GRID_DEMO_MODEL "llama"
#define GRID_DEMO_DIR_BYTES 256
#define GRID_DEMO_ERROR_BYTES 4096

/* The simulated engines. Prefill is slow enough to be seen, and the gateway's prices are these same figures. */
#define GRID_DEMO_PREFILL_TPS 4000u
#define GRID_DEMO_DECODE_TPS 100u
#define GRID_DEMO_MAX_NUM_SEQS 4u
#define GRID_DEMO_QUEUED_REQUEST_SECONDS 1u
#define GRID_DEMO_WINDOW_MS 1000u
#define GRID_DEMO_POLL_MS 50u

extern const char *const grid_demo_site_names[GRID_DEMO_SITES];

struct grid_demo_child {
    pid_t pid; /* 0: not started, or gone and collected */
    char log[GRID_DEMO_DIR_BYTES + 32];
    char what[64];
    int port;
};

struct grid_demo_grid {
    bool affinity;
    char dir[GRID_DEMO_DIR_BYTES];
    struct grid_demo_child sites[GRID_DEMO_SITES], gateway;
    int port, admin_port, ops_port;
    char *gateway_yaml, *serving_yaml; /* the texts of the two files */
};

/* What the gateway tells on its ops listener. */
struct grid_demo_view {
    double depths[GRID_DEMO_SITES]; /* windowed worst, INFINITY when unmeasured, NAN when not told */
    uint64_t outcomes[GRID_N_OUTCOMES];
};

/* Starts all four processes and waits until they serve. On failure `error` says why; stop it all the same. */
bool grid_demo_grid_start(struct grid_demo_grid *grid, struct grid_client_loop *loop, const char *dir, int port,
                          bool affinity, char error[GRID_DEMO_ERROR_BYTES]) GRID_MUST_USE;

/* Ends the processes: asks, waits a little, then insists. A zeroed grid is fine. */
void grid_demo_grid_stop(struct grid_demo_grid *grid);

/* False, with the end of its log in `error`, when a process has ended by itself. */
bool grid_demo_grid_alive(struct grid_demo_grid *grid, char error[GRID_DEMO_ERROR_BYTES]);

bool grid_demo_grid_look(const struct grid_demo_grid *grid, struct grid_client_loop *loop,
                         struct grid_demo_view *out_view) GRID_MUST_USE;

/* "pool-east" for 0. */
void grid_demo_cluster_name(size_t site, char out[GRID_CLIENT_NAME_BYTES]);

#endif
