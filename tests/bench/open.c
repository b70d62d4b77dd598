/*
 * open.c - sends a request whenever one is due, whatever the answers do
 *
 * Usage: bench_open PORT BODY-FILE CONNECTIONS RATE SECONDS. Posts the body to /v1/chat/completions on 127.0.0.1:PORT,
 * RATE times a second on average, at moments drawn as independent clients would come (the same ones in each run). A
 * request that finds no free connection waits for one. Its time counts from the moment it was due, so a stall shows in
 * all that it held up. The first second counts for nothing. Prints one JSON object: requests, failed, p50_ms, p99_ms.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

#define HEAD_BYTES 512
#define ANSWER_BYTES 8192u
#define EVENTS 64
#define PATIENCE_US 10e6 /* behind the last request */

struct connection {
    int fd;
    size_t sent, got, want; /* want: bytes of the whole answer, 0 as long as its head is not whole */
    double due;             /* of the request that it carries */
    char answer[ANSWER_BYTES + 1];
};

static char *request;
static size_t request_len;
static struct connection *connections;
static size_t *idle, n_idle; /* a stack */
static double *took;
static size_t n_took, n_done, n_failed;
static double counts_from;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* Head and body in one piece. */
static void read_request(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        die(path);
    long len = ftell(file);
    rewind(file);
    request = malloc((size_t)len + HEAD_BYTES);
    int head = snprintf(request, HEAD_BYTES,
                        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
                        "content-length: %ld\r\n\r\n",
                        len);
    if (fread(request + head, 1, (size_t)len, file) != (size_t)len)
        die(path);
    request_len = (size_t)(head + len);
    (void)fclose(file);
}

static void connect_to(struct connection *c, int loop, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0)
        die("connect");
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, c->fd, &event) != 0)
        die("epoll_ctl");
}

static void push(struct connection *c)
{
    while (c->due > 0 && c->sent < request_len) {
        ssize_t n = send(c->fd, request + c->sent, request_len - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            die("send");
        c->sent += (size_t)n;
    }
}

/* The whole length of an answer, once its head is there. */
static size_t answer_len(const struct connection *c)
{
    const char *end = strstr(c->answer, "\r\n\r\n"), *length = strcasestr(c->answer, "\r\ncontent-length:");
    if (!end)
        return 0;
    if (!length || length > end) {
        fprintf(stderr, "an answer without a length: %.200s\n", c->answer);
        exit(1);
    }
    return (size_t)(end + 4 - c->answer) + strtoul(length + strlen("\r\ncontent-length:"), NULL, 10);
}

static void finish(struct connection *c, double now)
{
    if (strncmp(c->answer, "HTTP/1.1 200", 12) != 0)
        n_failed++;
    if (c->due >= counts_from)
        took[n_took++] = (now - c->due) / 1e3;
    n_done++;
    c->due = 0;
    c->sent = c->got = c->want = 0;
    idle[n_idle++] = (size_t)(c - connections);
}

static void pull(struct connection *c)
{
    for (;;) {
        ssize_t n = recv(c->fd, c->answer + c->got, ANSWER_BYTES - c->got, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0 || c->due <= 0)
            die("recv");
        c->got += (size_t)n;
        c->answer[c->got] = '\0';
        if (c->want == 0)
            c->want = answer_len(c);
        if (c->want > 0 && c->got >= c->want) {
            finish(c, clock_now_us());
            return;
        }
    }
}

static void wait_until(int loop, double moment)
{
    struct epoll_event events[EVENTS];
    double left = moment - clock_now_us();
    long ns = left > 0 ? (long)(left * 1e3) : 0;
    struct timespec wait = {ns / 1000000000L, ns % 1000000000L};
    int n = epoll_pwait2(loop, events, EVENTS, &wait, NULL);
    for (int i = 0; i < n; i++) {
        struct connection *c = events[i].data.ptr;
        if (events[i].events & (EPOLLERR | EPOLLHUP))
            die("connection");
        push(c);
        if (events[i].events & EPOLLIN)
            pull(c);
    }
}

static void run(int loop, const double *due, size_t n)
{
    size_t next = 0;
    double end = due[n - 1] + PATIENCE_US;
    while (n_done < n && clock_now_us() < end) {
        while (next < n && n_idle > 0 && due[next] <= clock_now_us()) {
            struct connection *c = &connections[idle[--n_idle]];
            c->due = due[next++];
            push(c);
        }
        wait_until(loop, next < n && n_idle > 0 ? due[next] : end);
    }
    n_failed += n - n_done;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fputs("usage: bench_open PORT BODY-FILE CONNECTIONS RATE SECONDS\n", stderr);
        return 2;
    }
    size_t n_connections = strtoul(argv[3], NULL, 10);
    double rate = strtod(argv[4], NULL), seconds = strtod(argv[5], NULL);
    size_t n = (size_t)(rate * seconds);
    int loop = epoll_create1(0);
    if (n_connections == 0 || n < 2 || loop < 0)
        return 2;
    (void)prctl(PR_SET_TIMERSLACK, 1ul);
    read_request(argv[2]);
    connections = calloc(n_connections, sizeof *connections);
    idle = calloc(n_connections, sizeof *idle);
    took = calloc(n, sizeof *took);
    double *due = calloc(n, sizeof *due);
    for (size_t i = 0; i < n_connections; i++) {
        connect_to(&connections[i], loop, (uint16_t)strtoul(argv[1], NULL, 10));
        idle[n_idle++] = i;
    }
    double at = clock_now_us() + 1e4;
    counts_from = at + 1e6;
    srand48(1);
    for (size_t i = 0; i < n; i++)
        due[i] = at += -log(1 - drand48()) / rate * 1e6;
    run(loop, due, n);
    clock_sort(took, n_took);
    printf("{\"requests\":%zu,\"failed\":%zu,\"p50_ms\":%.3f,\"p99_ms\":%.3f}\n", n_took, n_failed,
           n_took ? took[n_took / 2] : -1, n_took ? took[n_took * 99 / 100] : -1);
    return n_failed > 0;
}
