/*
 * run.c - `grid-gateway run`: the gateway, start to end
 *
 * Story     Loads the configuration, renders it into the state folder, starts Envoy on it and then waits for four
 *           things in one loop: signals, a changed folder, the clock, Envoy's end. Starting lasts until the admin
 *           address says ready; a first SIGTERM or SIGINT drains, a second stops at once.
 * Promise   Envoy's end is the command's end, with its status (128 + N when signal N ended it). Envoy never outlives
 *           the command.
 * Not here  Reloading (reload.c), the folder (state.c), finding and starting Envoy (launch.c).
 */
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/refused.h"
#include "cli/reload.h"
#include "cli/state.h"
#include "cli/tagkey.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 100      /* while starting or draining */
#define DEBOUNCE_MS 150  /* after a folder changed: writers write more than once */
#define BACKSTOP_MS 5000 /* texts are compared this often in any case */
#define SLOW_START_MS 60000
#define KILL_AFTER_MS 10000 /* after SIGTERM */
#define SIGNAL_STATUS 128
#define DRAIN_SECONDS 30
#define LINGER_SECONDS 1
#define MOST_DRAIN_SECONDS 86400
#define ASK_ENVOY_MS 1000 /* after a change: what it thinks of it */
#define NEVER UINT64_MAX
#define ACTIVE_STAT "http.ingress.downstream_rq_active"

enum phase { STARTING, SERVING, DRAINING, STOPPING };

struct run {
    struct grid_reload_watch watch;
    struct grid_state state;
    pid_t envoy;
    enum phase phase;
    int signals;
    struct grid_refused refused;
    unsigned drain_seconds, linger_seconds, stops;
    uint64_t started_ms, check_ms, settle_ms, ask_ms, limit_ms; /* limit_ms: of the phase */
    uint64_t linger_ms;                                         /* until when it serves on though nothing runs */
};

static uint64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static const struct grid_address *admin_of(const struct run *run)
{
    return &run->watch.good.admin;
}

/* ---- phases -------------------------------------------------------------------------------------------------- */

static void say_ready(const struct run *run)
{
    const struct grid_gateway *gateway = &run->watch.good;
    const char *host = gateway->listen.host;
    host = strcmp(host, "0.0.0.0") == 0 ? "127.0.0.1" : strcmp(host, "::") == 0 ? "::1" : host;
    bool v6 = strchr(host, ':') != NULL;
    if (gateway->listen.is_unix) {
        printf("grid-gateway: serving on unix:%s\n", host);
    } else {
        printf("grid-gateway: serving on %s://%s%s%s:%u\n", gateway->tls ? "https" : "http", v6 ? "[" : "", host,
               v6 ? "]" : "", gateway->listen.port);
    }
    fflush(stdout);
}

static void stop_envoy(struct run *run, int with_signal)
{
    run->phase = STOPPING;
    run->limit_ms = clock_ms() + KILL_AFTER_MS;
    kill(run->envoy, with_signal);
}

/* Asks Envoy to take no new work; requests that run may end. */
static void start_drain(struct run *run)
{
    char body[256];
    fprintf(stderr, "grid-gateway: draining, for at most %u s\n", run->drain_seconds);
    run->phase = DRAINING;
    run->limit_ms = clock_ms() + (uint64_t)run->drain_seconds * 1000;
    run->linger_ms = clock_ms() + (uint64_t)run->linger_seconds * 1000;
    grid_launch_admin(admin_of(run), "POST", "/healthcheck/fail", body, sizeof body);
    grid_launch_admin(admin_of(run), "POST", "/drain_listeners?graceful", body, sizeof body);
}

static void on_stop(struct run *run)
{
    run->stops++;
    if (run->stops == 1 && run->phase == SERVING && run->drain_seconds > 0) {
        start_drain(run);
    } else {
        stop_envoy(run, run->stops > 2 ? SIGKILL : SIGTERM);
    }
}

/* Requests that Envoy serves now; -1 when it does not tell. */
static long active_requests(const struct run *run)
{
    char body[4096];
    int status = grid_launch_admin(admin_of(run), "GET", "/stats?filter=^http%5C.ingress%5C.downstream_rq_active$",
                                   body, sizeof body);
    const char *at = status == 200 ? strstr(body, ACTIVE_STAT ": ") : NULL;
    return at != NULL ? strtol(at + sizeof ACTIVE_STAT + 1, NULL, 10) : -1;
}

static void on_tick(struct run *run)
{
    char body[256], error[GRID_PATH_BYTES + 256];
    uint64_t now = clock_ms();
    if (run->phase == STARTING && grid_launch_admin(admin_of(run), "GET", "/ready", body, sizeof body) == 200) {
        run->phase = SERVING;
        run->limit_ms = NEVER;
        say_ready(run);
    } else if (run->phase == STARTING && now >= run->limit_ms) {
        fprintf(stderr, "grid-gateway: Envoy is not ready after %llu s; waiting on\n",
                (unsigned long long)(now - run->started_ms) / 1000);
        run->limit_ms = now + SLOW_START_MS;
    } else if (run->phase == DRAINING) {
        long active = active_requests(run);
        if ((active <= 0 && now >= run->linger_ms) || now >= run->limit_ms) {
            if (active > 0) {
                fprintf(stderr, "grid-gateway: drain time is up; requests cut: %ld\n", active);
            }
            stop_envoy(run, SIGTERM);
        }
    } else if (run->phase == STOPPING && now >= run->limit_ms) {
        kill(run->envoy, SIGKILL);
        run->limit_ms = NEVER;
    }
    if (now >= run->check_ms) {
        bool done = grid_reload_check(&run->watch, &run->state, now);
        run->check_ms = now + (done ? BACKSTOP_MS : DEBOUNCE_MS);
        run->ask_ms = run->ask_ms < now + ASK_ENVOY_MS ? run->ask_ms : now + ASK_ENVOY_MS;
        if (run->state.settled_clusters != NULL && run->settle_ms == NEVER) {
            run->settle_ms = now + GRID_STATE_SETTLE_MS;
        }
    }
    if (now >= run->ask_ms && run->phase == SERVING) {
        run->ask_ms = NEVER;
        grid_refused_check(&run->refused, admin_of(run), &run->state);
    }
    if (now >= run->settle_ms) {
        run->settle_ms = NEVER;
        if (!grid_state_settle(&run->state, error, sizeof error)) {
            fprintf(stderr, "grid-gateway: %s\n", error);
        }
    }
}

/* ---- the loop ------------------------------------------------------------------------------------------------ */

/* True, with the exit status, when Envoy has ended. */
static bool has_ended(struct run *run, int *out_status)
{
    int status;
    if (waitpid(run->envoy, &status, WNOHANG) != run->envoy) {
        return false;
    }
    if (WIFSIGNALED(status)) {
        *out_status = SIGNAL_STATUS + WTERMSIG(status);
        fprintf(stderr, "grid-gateway: Envoy was ended by signal %d\n", WTERMSIG(status));
        return true;
    }
    *out_status = WEXITSTATUS(status);
    if (run->phase != STOPPING) {
        fprintf(stderr, "grid-gateway: Envoy ended with status %d\n", *out_status);
    }
    return true;
}

/* True when SIGCHLD was among them. */
static bool take_signals(struct run *run)
{
    struct signalfd_siginfo info;
    bool child = false;
    while (read(run->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            child = true;
        } else if (info.ssi_signo == SIGHUP) {
            run->check_ms = 0;
        } else {
            on_stop(run);
        }
    }
    return child;
}

static int wait_ms(const struct run *run)
{
    if (run->phase != SERVING) {
        return TICK_MS;
    }
    uint64_t now = clock_ms();
    uint64_t next = run->check_ms < run->settle_ms ? run->check_ms : run->settle_ms;
    next = next < run->ask_ms ? next : run->ask_ms;
    return next <= now ? 0 : (int)(next - now);
}

static int serve(struct run *run)
{
    int status = GRID_EXIT_FAILED;
    for (;;) {
        struct pollfd fds[] = {{.fd = run->signals, .events = POLLIN}, {.fd = run->watch.inotify, .events = POLLIN}};
        if (poll(fds, 2, wait_ms(run)) < 0 && errno != EINTR) {
            fprintf(stderr, "grid-gateway: cannot wait: %s\n", strerror(errno));
            kill(run->envoy, SIGTERM);
            waitpid(run->envoy, NULL, 0);
            return status;
        }
        if (fds[0].revents != 0 && take_signals(run) && has_ended(run, &status)) {
            return status;
        }
        if (fds[1].revents != 0) {
            uint64_t soon = clock_ms() + DEBOUNCE_MS;
            grid_reload_drain(&run->watch);
            run->check_ms = run->check_ms < soon ? run->check_ms : soon;
        }
        on_tick(run);
    }
}

/* ---- the start ----------------------------------------------------------------------------------------------- */

static bool open_signals(struct run *run, char *error, size_t error_size)
{
    sigset_t set;
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a write that fails, and told */
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    run->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run->signals < 0) {
        snprintf(error, error_size, "cannot take signals: %s", strerror(errno));
    }
    return run->signals >= 0;
}

/* Envoy's listeners share their ports, so a second gateway would take half of the clients without a word. */
static bool check_ports(const struct grid_gateway *gateway)
{
    const struct {
        const char *field;
        const struct grid_address *address;
    } ports[] = {{"listen", &gateway->listen}, {"admin", &gateway->admin}, {"ops", &gateway->ops}};
    bool free_all = true;
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
        const struct grid_address *at = ports[i].address;
        if (grid_launch_is_free(at)) {
            continue;
        }
        fprintf(stderr, "%s:%u: %s: ", gateway->file.path, grid_config_line(&gateway->file, ports[i].field),
                ports[i].field);
        if (at->is_unix) {
            fprintf(stderr, "unix:%s is in use\n", at->host);
        } else {
            fprintf(stderr, strchr(at->host, ':') ? "[%s]:%u is in use\n" : "%s:%u is in use\n", at->host, at->port);
        }
        free_all = false;
    }
    return free_all;
}

static bool start(struct run *run, const char *state_dir, char *error, size_t error_size)
{
    char envoy[GRID_PATH_BYTES], module[GRID_PATH_BYTES];
    const struct grid_gateway *gateway = &run->watch.good;
    if (!grid_launch_find_envoy(envoy, sizeof envoy, error, error_size) ||
        !grid_launch_check_version(envoy, error, error_size) ||
        !grid_launch_find_module(module, sizeof module, error, error_size) ||
        !grid_state_open(&run->state, state_dir, error, error_size) || !check_ports(gateway) ||
        grid_state_write(&run->state, gateway, error, error_size) == GRID_STATE_FAILED ||
        !open_signals(run, error, error_size)) {
        return false;
    }
    struct grid_launch launch = {.envoy = envoy,
                                 .module_dir = module,
                                 .state_dir = run->state.dir,
                                 .log_level = gateway->log_level,
                                 .concurrency = gateway->concurrency,
                                 .drain_seconds = run->drain_seconds > 0 ? run->drain_seconds : 1};
    run->envoy = grid_launch_envoy(&launch, error, error_size);
    run->started_ms = clock_ms();
    run->check_ms = run->started_ms + BACKSTOP_MS;
    run->limit_ms = run->started_ms + SLOW_START_MS;
    run->settle_ms = run->ask_ms = NEVER;
    return run->envoy != 0;
}

static int run_gateway(const char *file, const char *state_dir, unsigned drain_seconds, unsigned linger_seconds)
{
    struct grid_report report = {0};
    struct grid_gateway gateway;
    char error[2 * GRID_PATH_BYTES] = "";
    if (!grid_config_load(file, NULL, &gateway, &report)) {
        fwrite(report.lines.ptr, 1, report.lines.len, stderr);
        grid_report_done(&report);
        return GRID_EXIT_FAILED;
    }
    if (!gateway.serving->has_clusters) {
        fprintf(stderr, "grid-gateway: the serving config has no clusters: nothing can be reached\n");
    }
    grid_tagkey_warn(&gateway.settings, stderr);
    struct run run = {.phase = STARTING,
                      .signals = -1,
                      .drain_seconds = drain_seconds,
                      .linger_seconds = linger_seconds,
                      .state = {.lock = -1}};
    grid_reload_start(&run.watch, file, &gateway);
    int status = GRID_EXIT_FAILED;
    if (start(&run, state_dir, error, sizeof error)) {
        status = serve(&run);
    } else if (error[0] != '\0') {
        fprintf(stderr, "grid-gateway: %s\n", error);
    }
    grid_state_close(&run.state);
    grid_reload_done(&run.watch);
    if (run.signals >= 0) {
        close(run.signals);
    }
    return status;
}

static void usage(FILE *to)
{
    fputs("usage: grid-gateway run -c FILE [OPTION]...\n"
          "\n"
          "Serves: checks the configuration, renders it for Envoy and runs Envoy until it is stopped.\n"
          "Prints one line when it serves. Follows its files: a change of the serving config or of\n"
          "grid_site_route is in force within two seconds; a file with a mistake is refused, and the last\n"
          "good one stays.\n"
          "\n"
          "  -c, --config FILE      the gateway's configuration, YAML or JSON (see examples/gateway.yaml)\n"
          "      --state-dir DIR    keep what Envoy reads in this folder (default: a new one, removed at\n"
          "                         the end)\n"
          "      --drain-seconds N  at SIGTERM or Ctrl-C let running requests end for N seconds (default\n"
          "                         30); a second signal stops at once\n"
          "      --linger-seconds N   at SIGTERM serve on for N seconds at least (default 1), with /ready at 503:\n"
          "                         time for a balancer to look elsewhere\n"
          "  -h, --help             this text\n"
          "\n"
          "Environment\n"
          "  GRID_SERVING_CONFIG    the serving config, when the configuration names none\n"
          "  GRID_ENVOY             the Envoy binary (default: beside this command, else .venv/bin/envoy in\n"
          "                         its folder or one above, else in PATH)\n"
          "  GRID_MODULE_DIR        the folder of libgrid_site_route.so (default: that of this command)\n"
          "\n"
          "Example\n"
          "  grid-gateway run -c gateway.yaml\n"
          "\n"
          "Exit status: Envoy's own, or 128 + N when signal N ended it; 1 when the start was refused; 2 for\n"
          "a wrong command line. SIGHUP reads the files again.\n",
          to);
}

static bool read_seconds(const char *option, unsigned *out)
{
    char *end = NULL;
    unsigned long seconds = strtoul(optarg, &end, 10);
    if (*optarg == '\0' || *optarg == '-' || *end != '\0' || seconds > MOST_DRAIN_SECONDS) {
        fprintf(stderr, "grid-gateway run: %s takes a number from 0 to 86400\n", option);
        return false;
    }
    *out = (unsigned)seconds;
    return true;
}

int grid_cmd_run(int argc, char **argv)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"state-dir", required_argument, NULL, 's'},
                                            {"drain-seconds", required_argument, NULL, 'd'},
                                            {"linger-seconds", required_argument, NULL, 'l'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *file = NULL, *state_dir = NULL;
    unsigned drain = DRAIN_SECONDS, linger = LINGER_SECONDS;
    for (int c; (c = getopt_long(argc, argv, "c:h", options, NULL)) != -1;) {
        switch (c) {
        case 'c':
            file = optarg;
            break;
        case 's':
            state_dir = optarg;
            break;
        case 'd':
            if (!read_seconds("--drain-seconds", &drain)) {
                return GRID_EXIT_USAGE;
            }
            break;
        case 'l':
            if (!read_seconds("--linger-seconds", &linger)) {
                return GRID_EXIT_USAGE;
            }
            break;
        case 'h':
            usage(stdout);
            return GRID_EXIT_OK;
        default:
            fprintf(stderr, "Try 'grid-gateway run --help'.\n");
            return GRID_EXIT_USAGE;
        }
    }
    if (file == NULL || optind != argc || strlen(file) >= GRID_PATH_BYTES) {
        fprintf(stderr, "grid-gateway run: -c FILE is needed, and nothing behind the options\n"
                        "Try 'grid-gateway run --help'.\n");
        return GRID_EXIT_USAGE;
    }
    return run_gateway(file, state_dir, drain, linger);
}
