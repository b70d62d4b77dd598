/*
 * demo_client.c - the demo's event loop and its HTTP client (see demo_client.h)
 *
 * Each call has a connection of its own, so a call can be cancelled without a word to the others. Event streams are
 * read line by line as they arrive; the time of the first words is taken in the callback that brought them.
 */
#include "demo_client.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOST "127.0.0.1"
#define CONNECTION_LIMIT_S 60
#define POLL_MS 50

/* What the SDK for Python, version 3.57, sends with each request, in its order. */
static const struct {
    const char *name, *value;
} sdk_headers[] = {
    {"Accept-Encoding", "gzip, deflate"}, /* the simulated sites never compress */
    {"Connection", "keep-alive"},
    {"authorization", "Bearer sk-demo"},
    {"accept", "application/json"},
    {"content-type", "application/json"},
    {"user-agent", "OpenAI/Python 3.57.0"},
    {"x-stainless-lang", "python"},
    {"x-stainless-package-version", "3.57.0"},
    {"x-stainless-os", "Linux"},
    {"x-stainless-arch", "x64"},
    {"x-stainless-runtime", "CPython"},
    {"x-stainless-runtime-version", "3.11.2"},
    {"x-stainless-async", "false"},
    {"x-stainless-retry-count", "0"},
    {"x-stainless-read-timeout", "600"},
};

double grid_client_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- the loop ------------------------------------------------------------------------------------------------ */

static void on_signal(evutil_socket_t number, short what, void *ctx)
{
    struct grid_client_loop *loop = ctx;
    (void)number;
    (void)what;
    loop->stopped = true;
    (void)event_base_loopbreak(loop->base);
}

bool grid_client_loop_init(struct grid_client_loop *loop)
{
    memset(loop, 0, sizeof *loop);
    loop->base = event_base_new();
    if (loop->base == NULL)
        return false;
    loop->on_int = evsignal_new(loop->base, SIGINT, on_signal, loop);
    loop->on_term = evsignal_new(loop->base, SIGTERM, on_signal, loop);
    return loop->on_int != NULL && loop->on_term != NULL && evsignal_add(loop->on_int, NULL) == 0 &&
           evsignal_add(loop->on_term, NULL) == 0;
}

void grid_client_loop_done(struct grid_client_loop *loop)
{
    if (loop->on_int != NULL)
        event_free(loop->on_int);
    if (loop->on_term != NULL)
        event_free(loop->on_term);
    if (loop->base != NULL)
        event_base_free(loop->base);
    memset(loop, 0, sizeof *loop);
}

bool grid_client_loop_turn(struct grid_client_loop *loop, unsigned for_ms)
{
    struct timeval limit = {for_ms / 1000, (suseconds_t)(for_ms % 1000) * 1000};
    if (loop->stopped)
        return false;
    (void)event_base_loopexit(loop->base, &limit);
    (void)event_base_loop(loop->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return !loop->stopped;
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

static void read_usage(struct grid_client_call *call, const json_t *usage)
{
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    json_int_t prompt = json_integer_value(json_object_get(usage, "prompt_tokens"));
    json_int_t cached = json_integer_value(json_object_get(details, "cached_tokens"));
    call->prompt_tokens = prompt > 0 ? (uint64_t)prompt : 0;
    call->cached_tokens = cached > 0 ? (uint64_t)cached : 0;
}

static void read_event(struct grid_client_call *call, const char *data, size_t len)
{
    if (len == strlen("[DONE]") && memcmp(data, "[DONE]", len) == 0) {
        call->finished = true;
        return;
    }
    json_t *event = json_loadb(data, len, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *words = json_object_get(json_object_get(choice, "delta"), "content");
    const json_t *usage = json_object_get(event, "usage");
    if (json_is_string(words) && json_string_length(words) > 0) {
        if (call->first_s <= 0)
            call->first_s = grid_client_now();
        grid_buf_put(&call->text, json_string_value(words), json_string_length(words));
    }
    if (json_is_object(usage))
        read_usage(call, usage);
    json_decref(event);
}

/* Takes the whole lines out of the body and reads those that carry data. */
static void read_events(struct grid_client_call *call)
{
    static const char mark[] = "data:";
    size_t begin = 0;
    for (;;) {
        const char *line = call->body.ptr + begin;
        const char *end = call->body.len > begin ? memchr(line, '\n', call->body.len - begin) : NULL;
        if (end == NULL)
            break;
        size_t len = (size_t)(end - line);
        begin += len + 1;
        if (len > 0 && line[len - 1] == '\r')
            len--;
        if (len < sizeof mark - 1 || memcmp(line, mark, sizeof mark - 1) != 0)
            continue;
        size_t skip = sizeof mark - 1;
        if (skip < len && line[skip] == ' ')
            skip++;
        read_event(call, line + skip, len - skip);
    }
    if (begin > 0) {
        memmove(call->body.ptr, call->body.ptr + begin, call->body.len - begin);
        call->body.len -= begin;
    }
}

static void give_up(struct grid_client_call *call, const char *why)
{
    if (call->trouble[0] == '\0')
        (void)snprintf(call->trouble, sizeof call->trouble, "%s", why);
}

static int on_head(struct evhttp_request *request, void *ctx)
{
    struct grid_client_call *call = ctx;
    struct evkeyvalq *headers = evhttp_request_get_input_headers(request);
    const char *site = evhttp_find_header(headers, "x-grid-site");
    const char *type = evhttp_find_header(headers, "content-type");
    call->status = evhttp_request_get_response_code(request);
    call->stream = type != NULL && strncmp(type, "text/event-stream", strlen("text/event-stream")) == 0;
    (void)snprintf(call->site, sizeof call->site, "%s", site != NULL ? site : "");
    return 0;
}

static void on_piece(struct evhttp_request *request, void *ctx)
{
    struct grid_client_call *call = ctx;
    struct evbuffer *input = evhttp_request_get_input_buffer(request);
    size_t len = evbuffer_get_length(input);
    if (len > 0)
        grid_buf_put(&call->body, evbuffer_pullup(input, -1), len);
    if (call->stream)
        read_events(call);
}

static void on_error(enum evhttp_request_error error, void *ctx)
{
    static const char *const words[] = {
        [EVREQ_HTTP_TIMEOUT] = "timed out",
        [EVREQ_HTTP_EOF] = "the connection closed",
        [EVREQ_HTTP_INVALID_HEADER] = "the answer's head is not HTTP",
        [EVREQ_HTTP_BUFFER_ERROR] = "the connection broke",
        [EVREQ_HTTP_REQUEST_CANCEL] = "cancelled",
        [EVREQ_HTTP_DATA_TOO_LONG] = "the answer is too long",
    };
    give_up(ctx, (size_t)error < sizeof words / sizeof *words && words[error] ? words[error] : "no answer");
}

static void on_end(struct evhttp_request *request, void *ctx)
{
    struct grid_client_call *call = ctx;
    if (request == NULL || evhttp_request_get_response_code(request) == 0)
        give_up(call, "no answer");
    else if (call->body.failed || call->text.failed)
        give_up(call, "the answer is too long");
    else if (call->stream && !call->finished)
        give_up(call, "the event stream ended early");
    call->end_s = grid_client_now();
    call->done = true;
    (void)event_base_loopbreak(call->base);
}

/* ---- calls --------------------------------------------------------------------------------------------------- */

static bool fill_request(struct evhttp_request *request, int port, const char *body)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    char host[64];
    (void)snprintf(host, sizeof host, "%s:%d", HOST, port);
    if (evhttp_add_header(headers, "Host", host) != 0)
        return false;
    for (size_t i = 0; i < sizeof sdk_headers / sizeof *sdk_headers; i++)
        if (evhttp_add_header(headers, sdk_headers[i].name, sdk_headers[i].value) != 0)
            return false;
    struct evbuffer *output = evhttp_request_get_output_buffer(request);
    return body == NULL || evbuffer_add(output, body, strlen(body)) == 0;
}

struct grid_client_call *grid_client_start(struct grid_client_loop *loop, int port, const char *path, const char *body)
{
    struct grid_client_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    call->base = loop->base;
    call->body.limit = call->text.limit = GRID_CLIENT_MAX_ANSWER_BYTES;
    call->connection = evhttp_connection_base_new(loop->base, NULL, HOST, (unsigned short)port);
    struct evhttp_request *request = evhttp_request_new(on_end, call);
    if (call->connection == NULL || request == NULL || !fill_request(request, port, body)) {
        if (request != NULL)
            evhttp_request_free(request);
        grid_client_end(call);
        return NULL;
    }
    evhttp_connection_set_timeout(call->connection, CONNECTION_LIMIT_S);
    evhttp_request_set_header_cb(request, on_head);
    evhttp_request_set_chunked_cb(request, on_piece);
    evhttp_request_set_error_cb(request, on_error);
    call->sent_s = grid_client_now();
    /* Owns the request from here on, also when it fails. */
    if (evhttp_make_request(call->connection, request, body ? EVHTTP_REQ_POST : EVHTTP_REQ_GET, path) != 0 &&
        !call->done) {
        give_up(call, "no connection");
        call->done = true;
    }
    return call;
}

void grid_client_end(struct grid_client_call *call)
{
    if (call == NULL)
        return;
    if (call->connection != NULL)
        evhttp_connection_free(call->connection);
    grid_buf_done(&call->body);
    grid_buf_done(&call->text);
    free(call);
}

bool grid_client_wait(struct grid_client_loop *loop, const struct grid_client_call *call, double limit_s)
{
    double end_s = grid_client_now() + limit_s;
    while (!call->done)
        if (grid_client_now() >= end_s || !grid_client_loop_turn(loop, POLL_MS))
            return false;
    return true;
}

struct grid_client_call *grid_client_fetch(struct grid_client_loop *loop, int port, const char *path, const char *body,
                                           double limit_s)
{
    struct grid_client_call *call = grid_client_start(loop, port, path, body);
    if (call != NULL && !grid_client_wait(loop, call, limit_s)) {
        if (loop->stopped) {
            grid_client_end(call);
            return NULL;
        }
        give_up(call, "timed out");
    }
    return call;
}
