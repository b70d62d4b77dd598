/*
 * demo_grid.c - three simulated sites behind one gateway, as child processes (see demo_grid.h)
 *
 * A child writes to a log in the grid's folder; that it serves is read there. Each child leads a process group of its
 * own, so that Ctrl-C reaches the demo alone, and what is left of a group can be ended at the end.
 */
#include "demo_grid.h"

#include "cli/files.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_LIMIT_S 30.0
#define STOP_LIMIT_S 3.0
#define LOOK_LIMIT_S 5.0
#define TURN_MS 20
#define LOG_TAIL_BYTES 2000
#define LOG_LIMIT_BYTES (16u << 20)
#define MAX_ARGS 24

const char *const grid_demo_site_names[GRID_DEMO_SITES] = {"east", "west", "north"};

void grid_demo_cluster_name(size_t site, char out[GRID_CLIENT_NAME_BYTES])
{
    (void)snprintf(out, GRID_CLIENT_NAME_BYTES, "pool-%s", grid_demo_site_names[site]);
}

/* ---- children ------------------------------------------------------------------------------------------------ */

/* In the child, between fork and exec. */
static void become(char *const *args, const char *log, pid_t parent)
{
    sigset_t none;
    (void)setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent)
        _exit(126);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    (void)unsetenv("GRID_SERVING_CONFIG"); /* a person's own; the demo names its file */
    int in = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(126);
    (void)execv("/proc/self/exe", args);
    _exit(127);
}

static bool start_child(struct grid_demo_child *child, const char *dir, const char *what, const char *const *args)
{
    char *copy[MAX_ARGS] = {NULL};
    bool good = true;
    (void)snprintf(child->what, sizeof child->what, "%s", what);
    (void)snprintf(child->log, sizeof child->log, "%s/%s.log", dir, what);
    for (size_t i = 0; args[i] != NULL && i + 1 < MAX_ARGS; i++)
        good = (copy[i] = strdup(args[i])) != NULL && good;
    pid_t parent = getpid();
    pid_t pid = good ? fork() : -1;
    if (pid == 0)
        become(copy, child->log, parent);
    for (size_t i = 0; i < MAX_ARGS; i++)
        free(copy[i]);
    child->pid = pid > 0 ? pid : 0;
    return pid > 0;
}

/* Collects it when it has ended. */
static bool is_alive(struct grid_demo_child *child)
{
    if (child->pid != 0 && waitpid(child->pid, NULL, WNOHANG) == child->pid) {
        (void)kill(-child->pid, SIGKILL); /* what it left behind */
        child->pid = 0;
    }
    return child->pid != 0;
}

static char *read_log(const struct grid_demo_child *child)
{
    char error[256], *text = NULL;
    size_t len;
    return grid_files_read(child->log, LOG_LIMIT_BYTES, &text, &len, error, sizeof error) ? text : NULL;
}

static void explain(const struct grid_demo_child *child, const char *how, char error[GRID_DEMO_ERROR_BYTES])
{
    char *log = read_log(child);
    size_t len = log != NULL ? strlen(log) : 0;
    const char *tail = len > LOG_TAIL_BYTES ? log + len - LOG_TAIL_BYTES : log;
    (void)snprintf(error, GRID_DEMO_ERROR_BYTES, "%s %s; the end of its log:\n%s", child->what, how,
                   len > 0 ? tail : "(empty)\n");
    free(log);
}

/* Waits for a whole line with an address of this machine, and takes the port from it. */
static bool wait_for_address(struct grid_demo_child *child, struct grid_client_loop *loop, const char *words,
                             char error[GRID_DEMO_ERROR_BYTES])
{
    double end_s = grid_client_now() + START_LIMIT_S;
    while (grid_client_now() < end_s) {
        bool alive = is_alive(child);
        char *log = read_log(child);
        const char *said = log != NULL ? strstr(log, words) : NULL;
        const char *at = said != NULL ? strstr(said, "127.0.0.1:") : NULL;
        if (at != NULL && strchr(at, '\n') != NULL)
            child->port = (int)strtol(at + strlen("127.0.0.1:"), NULL, 10);
        free(log);
        if (child->port > 0)
            return true;
        if (!alive) {
            explain(child, "ended before it served", error);
            return false;
        }
        if (!grid_client_loop_turn(loop, TURN_MS)) {
            (void)snprintf(error, GRID_DEMO_ERROR_BYTES, "interrupted");
            return false;
        }
    }
    explain(child, "does not serve", error);
    return false;
}

static void pause_ms(long ms)
{
    struct timespec rest = {ms / 1000, ms % 1000 * 1000000L};
    (void)nanosleep(&rest, NULL);
}

void grid_demo_grid_stop(struct grid_demo_grid *grid)
{
    struct grid_demo_child *all[GRID_DEMO_SITES + 1] = {&grid->gateway};
    size_t n = GRID_DEMO_SITES + 1, left = n;
    for (size_t i = 0; i < GRID_DEMO_SITES; i++)
        all[i + 1] = &grid->sites[i];
    for (size_t i = 0; i < n; i++)
        if (is_alive(all[i]))
            (void)kill(all[i]->pid, SIGTERM);
    double end_s = grid_client_now() + STOP_LIMIT_S;
    while (left > 0 && grid_client_now() < end_s) {
        left = 0;
        for (size_t i = 0; i < n; i++)
            left += is_alive(all[i]) ? 1 : 0;
        if (left > 0)
            pause_ms(TURN_MS);
    }
    for (size_t i = 0; i < n; i++)
        if (all[i]->pid != 0) {
            (void)kill(-all[i]->pid, SIGKILL);
            (void)waitpid(all[i]->pid, NULL, 0);
            all[i]->pid = 0;
        }
    free(grid->gateway_yaml);
    free(grid->serving_yaml);
    grid->gateway_yaml = grid->serving_yaml = NULL;
}

bool grid_demo_grid_alive(struct grid_demo_grid *grid, char error[GRID_DEMO_ERROR_BYTES])
{
    struct grid_demo_child *ended = is_alive(&grid->gateway) ? NULL : &grid->gateway;
    for (size_t i = 0; i < GRID_DEMO_SITES; i++)
        if (!is_alive(&grid->sites[i]))
            ended = &grid->sites[i];
    if (ended != NULL)
        explain(ended, "ended by itself", error);
    return ended == NULL;
}

/* ---- files --------------------------------------------------------------------------------------------------- */

/* A port that nothing listens on now. All are taken before any is given back, so that they differ. */
static bool free_ports(int *ports, size_t n)
{
    int sockets[8];
    bool good = true;
    size_t taken = 0;
    for (; taken < n && good; taken++) {
        struct sockaddr_in address = {.sin_family = AF_INET};
        socklen_t len = sizeof address;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        sockets[taken] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        good = sockets[taken] >= 0 && bind(sockets[taken], (struct sockaddr *)&address, sizeof address) == 0 &&
               getsockname(sockets[taken], (struct sockaddr *)&address, &len) == 0;
        ports[taken] = ntohs(address.sin_port);
    }
    for (size_t i = 0; i < taken; i++)
        if (sockets[i] >= 0)
            (void)close(sockets[i]);
    return good;
}

static bool write_gateway_file(struct grid_demo_grid *grid, char error[GRID_DEMO_ERROR_BYTES])
{
    struct grid_buf text = {.limit = 1u << 16};
    grid_buf_printf(&text,
                    "listen: 127.0.0.1:%d\nadmin: 127.0.0.1:%d\nops: 127.0.0.1:%d\n"
                    "concurrency: 1\n"
                    "grid_site_route:\n"
                    "  prefix_affinity:\n"
                    "    enabled: %s\n"
                    "    exploration: 0                     # no draw: every run of the demo goes the same way\n"
                    "    prefill_tokens_per_second: %u\n"
                    "    queued_request_seconds: %u\n"
                    "serving_config_path: serving.yaml\n",
                    grid->port, grid->admin_port, grid->ops_port, grid->affinity ? "true" : "false",
                    GRID_DEMO_PREFILL_TPS, GRID_DEMO_QUEUED_REQUEST_SECONDS);
    grid->gateway_yaml = text.failed ? NULL : strndup(text.ptr, text.len);
    grid_buf_done(&text);
    return grid->gateway_yaml != NULL && grid_files_write(grid->dir, "gateway.yaml", grid->gateway_yaml,
                                                          strlen(grid->gateway_yaml), error, GRID_DEMO_ERROR_BYTES);
}

static bool write_serving_file(struct grid_demo_grid *grid, char error[GRID_DEMO_ERROR_BYTES])
{
    struct grid_buf text = {.limit = 1u << 16};
    grid_buf_printf(&text, "local_site: %s\nwindow_secs: 60\nload_window_ms: %u\ncandidates:\n",
                    grid_demo_site_names[0], GRID_DEMO_WINDOW_MS);
    for (size_t i = 0; i < GRID_DEMO_SITES; i++)
        grid_buf_printf(&text, "  - {kind: inference_model, name: %s, site: %s, cluster: pool-%s}\n", GRID_DEMO_MODEL,
                        grid_demo_site_names[i], grid_demo_site_names[i]);
    grid_buf_puts(&text, "clusters:\n");
    for (size_t i = 0; i < GRID_DEMO_SITES; i++)
        grid_buf_printf(&text,
                        "  - {name: pool-%s, endpoints: [\"127.0.0.1:%d\"], "
                        "signals: {path: /metrics, interval_ms: %u}}\n",
                        grid_demo_site_names[i], grid->sites[i].port, GRID_DEMO_POLL_MS);
    grid->serving_yaml = text.failed ? NULL : strndup(text.ptr, text.len);
    grid_buf_done(&text);
    return grid->serving_yaml != NULL && grid_files_write(grid->dir, "serving.yaml", grid->serving_yaml,
                                                          strlen(grid->serving_yaml), error, GRID_DEMO_ERROR_BYTES);
}

/* ---- start --------------------------------------------------------------------------------------------------- */

static bool start_site(struct grid_demo_grid *grid, size_t i)
{
    char prefill[32], decode[32], seqs[32];
    (void)snprintf(prefill, sizeof prefill, "%u", GRID_DEMO_PREFILL_TPS);
    (void)snprintf(decode, sizeof decode, "%u", GRID_DEMO_DECODE_TPS);
    (void)snprintf(seqs, sizeof seqs, "%u", GRID_DEMO_MAX_NUM_SEQS);
    const char *args[] = {"grid-gateway",
                          "sim-site",
                          "--listen",
                          "127.0.0.1:0",
                          "--name",
                          grid_demo_site_names[i],
                          "--model",
                          GRID_DEMO_MODEL,
                          "--prefill-tps",
                          prefill,
                          "--decode-tps",
                          decode,
                          "--max-num-seqs",
                          seqs,
                          NULL};
    return start_child(&grid->sites[i], grid->dir, grid_demo_site_names[i], args);
}

static bool start_gateway(struct grid_demo_grid *grid)
{
    char path[GRID_DEMO_DIR_BYTES + 32], state[GRID_DEMO_DIR_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/gateway.yaml", grid->dir);
    (void)snprintf(state, sizeof state, "%s/state", grid->dir);
    const char *args[] = {"grid-gateway", "run", "-c", path, "--state-dir", state, "--drain-seconds", "0", NULL};
    return start_child(&grid->gateway, grid->dir, "gateway", args);
}

/* Until the gateway has a depth of every site. */
static bool wait_for_depths(struct grid_demo_grid *grid, struct grid_client_loop *loop,
                            char error[GRID_DEMO_ERROR_BYTES])
{
    double end_s = grid_client_now() + START_LIMIT_S;
    while (grid_client_now() < end_s) {
        struct grid_demo_view view;
        size_t measured = 0;
        if (grid_demo_grid_look(grid, loop, &view))
            for (size_t i = 0; i < GRID_DEMO_SITES; i++)
                measured += isfinite(view.depths[i]) ? 1 : 0;
        if (measured == GRID_DEMO_SITES)
            return true;
        if (!grid_demo_grid_alive(grid, error))
            return false;
        if (!grid_client_loop_turn(loop, TURN_MS)) {
            (void)snprintf(error, GRID_DEMO_ERROR_BYTES, "interrupted");
            return false;
        }
    }
    explain(&grid->gateway, "has not measured every site", error);
    return false;
}

bool grid_demo_grid_start(struct grid_demo_grid *grid, struct grid_client_loop *loop, const char *dir, int port,
                          bool affinity, char error[GRID_DEMO_ERROR_BYTES])
{
    int ports[3];
    memset(grid, 0, sizeof *grid);
    grid->affinity = affinity;
    (void)snprintf(grid->dir, sizeof grid->dir, "%s", dir);
    if (!grid_files_mkdir(dir, error, GRID_DEMO_ERROR_BYTES))
        return false;
    (void)snprintf(error, GRID_DEMO_ERROR_BYTES, "cannot start a process: %s", strerror(errno));
    for (size_t i = 0; i < GRID_DEMO_SITES; i++)
        if (!start_site(grid, i))
            return false;
    for (size_t i = 0; i < GRID_DEMO_SITES; i++)
        if (!wait_for_address(&grid->sites[i], loop, "listening on", error))
            return false;
    (void)snprintf(error, GRID_DEMO_ERROR_BYTES, "no free port, or no memory");
    if (!free_ports(ports, sizeof ports / sizeof *ports))
        return false;
    grid->port = port > 0 ? port : ports[0];
    grid->admin_port = ports[1];
    grid->ops_port = ports[2];
    if (!write_serving_file(grid, error) || !write_gateway_file(grid, error) || !start_gateway(grid))
        return false;
    return wait_for_address(&grid->gateway, loop, "serving on", error) && wait_for_depths(grid, loop, error);
}

/* ---- looking ------------------------------------------------------------------------------------------------- */

/* The value of the line of `family` whose labels hold `label` ("site=\"east\""); NAN when there is none. */
static double read_series(const char *text, const char *family, const char *label)
{
    size_t family_len = strlen(family);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchrnul(line, '\n');
        if (strncmp(line, family, family_len) == 0 && line[family_len] == '{') {
            const char *found = strstr(line, label), *close = strchr(line, '}');
            if (found != NULL && close != NULL && found < close && close < end)
                return strtod(close + 1, NULL);
        }
        line = *end != '\0' ? end + 1 : NULL;
    }
    return NAN;
}

bool grid_demo_grid_look(const struct grid_demo_grid *grid, struct grid_client_loop *loop,
                         struct grid_demo_view *out_view)
{
    struct grid_client_call *call = grid_client_fetch(loop, grid->ops_port, "/metrics", NULL, LOOK_LIMIT_S);
    bool good = call != NULL && call->trouble[0] == '\0' && call->status == 200;
    if (good)
        grid_buf_put(&call->body, "", 1); /* ends the text */
    good = good && !call->body.failed;
    for (size_t i = 0; good && i < GRID_DEMO_SITES; i++) {
        char label[GRID_CLIENT_NAME_BYTES];
        (void)snprintf(label, sizeof label, "site=\"%s\"", grid_demo_site_names[i]);
        out_view->depths[i] = read_series(call->body.ptr, "grid_route_site_score", label);
    }
    for (int i = 0; good && i < GRID_N_OUTCOMES; i++) {
        char label[GRID_CLIENT_NAME_BYTES];
        (void)snprintf(label, sizeof label, "outcome=\"%s\"", grid_outcome_name((enum grid_outcome)i));
        double value = read_series(call->body.ptr, "grid_route_prefix_affinity_total", label);
        out_view->outcomes[i] = value > 0 ? (uint64_t)value : 0;
    }
    grid_client_end(call);
    return good;
}
