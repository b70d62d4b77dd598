/*
 * upstream.c - the cheapest site there is, for measuring what stands in front of it
 *
 * Usage: bench_upstream PORT [EVENTS]. Answers every request on 127.0.0.1:PORT with the same small chat completion, or
 * streams it as so many events, each written by itself; /metrics with an empty queue and /v1/models with one model. One
 * thread, epoll, keep-alive, bodies by Content-Length or chunked; nothing is parsed beyond that.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_BYTES 16384u
#define READ_BYTES 65536u

static const char chat[] =
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"llama\",\"choices\":[{\"index\":0,"
    "\"message\":{\"role\":\"assistant\",\"content\":\"Yes.\"},\"finish_reason\":\"stop\"}],\"usage\":{"
    "\"prompt_tokens\":10,\"completion_tokens\":2,\"total_tokens\":12}}";
static const char models[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"llama\",\"object\":\"model\",\"owned_by\":\"bench\"}]}";
static const char metrics[] = "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 0\n";

static const char event[] =
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"llama\",\"choices\":[{"
    "\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n";
static const char done[] = "data: [DONE]\n\n";
static unsigned long events; /* 0: answers are whole */

struct connection {
    int fd;
    bool chunked;
    size_t head_len, body_left;
    unsigned tail; /* the last four bytes of a chunked body: it ends with "0\r\n\r\n" */
    char head[HEAD_BYTES];
};

static void put(struct connection *c, const char *bytes, int n)
{
    if (n > 0 && send(c->fd, bytes, (size_t)n, MSG_NOSIGNAL) != n)
        (void)shutdown(c->fd, SHUT_RDWR);
}

static void stream(struct connection *c)
{
    static const char head[] =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    char out[1024];
    put(c, head, (int)sizeof head - 1);
    for (unsigned long i = 0; i < events; i++)
        put(c, out, snprintf(out, sizeof out, "%zx\r\n%s\r\n", sizeof event - 1, event));
    put(c, out, snprintf(out, sizeof out, "%zx\r\n%s\r\n0\r\n\r\n", sizeof done - 1, done));
}

static void answer(struct connection *c)
{
    char out[1024];
    bool scrape = strncmp(c->head, "GET /metrics", 12) == 0, list = strncmp(c->head, "GET /v1/models", 14) == 0;
    const char *body = scrape ? metrics : list ? models : chat;
    if (events > 0 && body == chat)
        stream(c);
    else
        put(c, out,
            snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n%s",
                     scrape ? "text/plain" : "application/json", strlen(body), body));
    c->head_len = 0;
    c->chunked = false;
}

/* Eats body bytes; returns how many of them belonged to this request. */
static size_t eat(struct connection *c, const char *bytes, size_t n)
{
    if (!c->chunked) {
        size_t take = n < c->body_left ? n : c->body_left;
        c->body_left -= take;
        return take;
    }
    for (size_t i = 0; i < n; i++) {
        c->tail = c->tail << 8 | (unsigned char)bytes[i];
        if (c->tail == 0x0d0a0d0au) {
            c->body_left = 0;
            return i + 1;
        }
    }
    return n;
}

static void read_head(struct connection *c, size_t end)
{
    c->head[end - 1] = 0; /* the last line feed */
    const char *length = strcasestr(c->head, "\r\ncontent-length:");
    c->chunked = strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL;
    c->body_left = c->chunked ? 1 : length ? strtoul(length + 17, NULL, 10) : 0;
    c->tail = 0;
}

static void feed(struct connection *c, const char *bytes, size_t n)
{
    while (n > 0) {
        if (c->body_left == 0) { /* in a head */
            size_t room = HEAD_BYTES - 1 - c->head_len, take = n < room ? n : room;
            memcpy(c->head + c->head_len, bytes, take);
            size_t start = c->head_len > 3 ? c->head_len - 3 : 0;
            char *end = memmem(c->head + start, c->head_len + take - start, "\r\n\r\n", 4);
            if (!end) {
                c->head_len += take;
                if (take < n)
                    (void)shutdown(c->fd, SHUT_RDWR);
                return;
            }
            size_t head_bytes = (size_t)(end + 4 - c->head), used = head_bytes - c->head_len;
            c->head_len = head_bytes;
            read_head(c, head_bytes);
            bytes += used;
            n -= used;
        } else {
            size_t used = eat(c, bytes, n);
            bytes += used;
            n -= used;
        }
        if (c->head_len && c->body_left == 0)
            answer(c);
    }
}

static int listen_on(unsigned short port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1024)) {
        perror("bench_upstream");
        exit(1);
    }
    return fd;
}

static void accept_one(int listener, int poll)
{
    int fd = accept(listener, NULL, NULL), one = 1;
    struct connection *c = fd >= 0 ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    c->fd = fd;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = c};
    (void)epoll_ctl(poll, EPOLL_CTL_ADD, fd, &wanted);
}

int main(int argc, char **argv)
{
    static char room[READ_BYTES];
    if (argc != 2 && argc != 3) {
        (void)fprintf(stderr, "usage: bench_upstream PORT [EVENTS]\n");
        return 2;
    }
    events = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    int listener = listen_on((unsigned short)strtoul(argv[1], NULL, 10)), poll = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = NULL}, ready[64];
    (void)epoll_ctl(poll, EPOLL_CTL_ADD, listener, &wanted);
    for (;;) {
        int n = epoll_wait(poll, ready, 64, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = ready[i].data.ptr;
            if (!c) {
                accept_one(listener, poll);
                continue;
            }
            ssize_t got = recv(c->fd, room, sizeof room, 0);
            if (got > 0) {
                feed(c, room, (size_t)got);
            } else if (got == 0 || errno != EINTR) {
                (void)close(c->fd);
                free(c);
            }
        }
    }
}
