/*
 * launch.c - finding, checking, starting and asking Envoy; see launch.h
 */
#include "cli/launch.h"
#include "cli/render.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ADMIN_SECONDS 2
#define VERSION_SECONDS 20
#define EXEC_FAILED 127

/* ---- finding ------------------------------------------------------------------------------------------------- */

static bool self_dir(char *out, size_t out_size)
{
    ssize_t n = readlink("/proc/self/exe", out, out_size - 1);
    if (n <= 0) {
        return false;
    }
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

static bool runs(const char *dir, const char *name, char *out, size_t out_size)
{
    int n = snprintf(out, out_size, "%s/%s", dir, name);
    return n >= 0 && (size_t)n < out_size && access(out, X_OK) == 0;
}

static bool find_in_path(char *out, size_t out_size)
{
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        size_t len = strcspn(path, ":");
        char dir[GRID_PATH_BYTES];
        snprintf(dir, sizeof dir, "%.*s", len > 0 ? (int)len : 1, len > 0 ? path : ".");
        if (runs(dir, "envoy", out, out_size)) {
            return true;
        }
        path += len + (path[len] == ':');
    }
    return false;
}

bool grid_launch_find_envoy(char *out, size_t out_size, char *error, size_t error_size)
{
    const char *named = getenv("GRID_ENVOY");
    if (named != NULL && *named != '\0') {
        snprintf(out, out_size, "%s", named);
        if (access(out, X_OK) != 0) {
            snprintf(error, error_size, "GRID_ENVOY names %s: %s", named, strerror(errno));
            return false;
        }
        return true;
    }
    char dir[GRID_PATH_BYTES] = "";
    if (self_dir(dir, sizeof dir)) {
        if (runs(dir, "envoy", out, out_size)) {
            return true;
        }
        for (;;) {
            if (runs(dir, ".venv/bin/envoy", out, out_size)) {
                return true;
            }
            char *slash = strrchr(dir, '/');
            if (slash == NULL) {
                break;
            }
            *slash = '\0';
        }
    }
    if (find_in_path(out, out_size)) {
        return true;
    }
    snprintf(error, error_size,
             "no Envoy found: install Envoy " GRID_ENVOY_VERSION
             " as `envoy` in PATH, or name it in the variable GRID_ENVOY");
    return false;
}

bool grid_launch_find_module(char *out, size_t out_size, char *error, size_t error_size)
{
    const char *named = getenv("GRID_MODULE_DIR");
    bool found = true;
    if (named != NULL && *named != '\0') {
        found = grid_files_absolute(named, out, out_size);
    } else {
        found = self_dir(out, out_size);
    }
    char path[GRID_PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/lib" GRID_MODULE_NAME ".so", out);
    if (!found || n < 0 || (size_t)n >= sizeof path || access(path, R_OK) != 0) {
        snprintf(error, error_size,
                 "no lib" GRID_MODULE_NAME ".so in %s; the variable GRID_MODULE_DIR names its "
                 "folder",
                 out);
        return false;
    }
    return true;
}

/* ---- the version --------------------------------------------------------------------------------------------- */

/* "envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL": the part between the first two slashes after the colon. */
static bool read_version(const char *text, char *out, size_t out_size)
{
    const char *at = strstr(text, "version:");
    at = at != NULL ? strchr(at, '/') : NULL;
    if (at == NULL) {
        return false;
    }
    snprintf(out, out_size, "%.*s", (int)strcspn(at + 1, "/\n"), at + 1);
    return true;
}

/* What the child does between fork and exec; never returns. */
static void __attribute__((noreturn)) become(const char *const *argv, pid_t parent, int output)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(EXEC_FAILED); /* we died before the line above */
    }
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (output >= 0) {
        dup2(output, STDOUT_FILENO);
    }
    union {
        const char *const *in;
        char *const *out;
    } args = {argv}; /* execv changes none of them */
    execv(argv[0], args.out);
    fprintf(stderr, "grid-gateway: cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(EXEC_FAILED);
}

bool grid_launch_check_version(const char *envoy, char *error, size_t error_size)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(error, error_size, "cannot make a pipe: %s", strerror(errno));
        return false;
    }
    const char *const argv[] = {envoy, "--version", NULL};
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        alarm(VERSION_SECONDS);
        become(argv, parent, ends[1]);
    }
    close(ends[1]);
    char text[512] = "", version[64] = "";
    size_t len = 0;
    for (ssize_t n = 1; child > 0 && n > 0 && len<sizeof text - 1; len += n> 0 ? (size_t)n : 0) {
        n = read(ends[0], text + len, sizeof text - 1 - len);
    }
    close(ends[0]);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !read_version(text, version, sizeof version)) {
        snprintf(error, error_size, "%s --version tells no version; Envoy " GRID_ENVOY_VERSION " is needed", envoy);
        return false;
    }
    if (strcmp(version, GRID_ENVOY_VERSION) != 0) {
        snprintf(error, error_size, "%s is Envoy %s; this gateway needs Envoy " GRID_ENVOY_VERSION ", exactly", envoy,
                 version);
        return false;
    }
    return true;
}

/* ---- starting ------------------------------------------------------------------------------------------------ */

pid_t grid_launch_envoy(const struct grid_launch *launch, char *error, size_t error_size)
{
    char config[GRID_PATH_BYTES + 16], drain[16], workers[16];
    snprintf(config, sizeof config, "%s/envoy.json", launch->state_dir);
    snprintf(drain, sizeof drain, "%u", launch->drain_seconds);
    snprintf(workers, sizeof workers, "%u", launch->concurrency);
    const char *argv[] = {launch->envoy,
                          "-c",
                          config,
                          "--disable-hot-restart",
                          "--log-level",
                          launch->log_level,
                          "--drain-time-s",
                          drain,
                          NULL,
                          NULL,
                          NULL,
                          NULL,
                          NULL};
    size_t n = 8;
    if (launch->concurrency > 0) {
        argv[n++] = "--concurrency";
        argv[n++] = workers;
    }
    if (launch->validate) {
        argv[n++] = "--mode";
        argv[n++] = "validate";
    }
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        setenv("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", launch->module_dir, 1);
        become(argv, parent, launch->validate ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1);
    }
    if (child < 0) {
        snprintf(error, error_size, "cannot start Envoy: %s", strerror(errno));
        return 0;
    }
    return child;
}

/* ---- asking -------------------------------------------------------------------------------------------------- */

union name {
    struct sockaddr any;
    struct sockaddr_un local;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static socklen_t name_of(const struct grid_address *address, union name *out)
{
    *out = (union name){.any = {.sa_family = AF_UNSPEC}};
    if (address->is_unix) {
        out->local = (struct sockaddr_un){.sun_family = AF_UNIX};
        snprintf(out->local.sun_path, sizeof out->local.sun_path, "%s", address->host);
        return sizeof out->local;
    }
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)address->port)};
    if (inet_pton(AF_INET, address->host, &v4.sin_addr) == 1) {
        out->v4 = v4;
        return sizeof out->v4;
    }
    out->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)address->port)};
    inet_pton(AF_INET6, address->host, &out->v6.sin6_addr);
    return sizeof out->v6;
}

static int dial(const struct grid_address *address)
{
    union name to;
    socklen_t to_len = name_of(address, &to);
    int fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = ADMIN_SECONDS};
    if (fd >= 0 &&
        (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
         setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 || connect(fd, &to.any, to_len) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

bool grid_launch_is_free(const struct grid_address *address)
{
    if (address->is_unix) { /* a socket file that nobody serves is left over, and replaced */
        int served = dial(address);
        if (served >= 0) {
            close(served);
        }
        return served < 0;
    }
    union name at;
    socklen_t at_len = name_of(address, &at);
    int on = 1, fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return true; /* for Envoy to tell */
    }
    bool v6 = at.any.sa_family == AF_INET6;
    bool busy = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                (!v6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0) &&
                bind(fd, &at.any, at_len) != 0 && errno == EADDRINUSE;
    close(fd);
    return !busy;
}

int grid_launch_admin(const struct grid_address *admin, const char *method, const char *path, char *body,
                      size_t body_size)
{
    char text[8192];
    int fd = dial(admin);
    body[0] = '\0';
    if (fd < 0) {
        return 0;
    }
    int n = snprintf(text, sizeof text,
                     "%s %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
                     "content-length: 0\r\n\r\n",
                     method, path);
    size_t len = 0;
    if (send(fd, text, (size_t)n, MSG_NOSIGNAL) == n) {
        for (ssize_t got = 1; got > 0 && len<sizeof text - 1; len += got> 0 ? (size_t)got : 0) {
            got = recv(fd, text + len, sizeof text - 1 - len, 0);
        }
    }
    close(fd);
    text[len] = '\0';
    const char *rest = strstr(text, "\r\n\r\n");
    if (strncmp(text, "HTTP/1.1 ", 9) != 0) {
        return 0;
    }
    snprintf(body, body_size, "%s", rest != NULL ? rest + 4 : "");
    return (int)strtol(text + 9, NULL, 10);
}
