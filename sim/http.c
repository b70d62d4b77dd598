/*
 * http.c - the site's HTTP server: routes, streams, settable failures, echo
 *
 * Story     libevent's evhttp calls on_request with a whole request. Requests under /sim/ are answered at once. Every
 *           other one becomes an exchange, which a settable failure may delay, refuse, reset or cut later, and which
 *           then is answered at once or waits for the engine (queue.c) to say that tokens are due.
 * Promise   An exchange is freed exactly once: with its answer, with its reset, or when its client goes away, which
 *           takes it out of the engine. A body is hashed and parsed where it lies and dropped before the engine starts.
 * Not here  What bodies mean (apis.c), when tokens are due (queue.c).
 */
#include "sim.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/keyvalq_struct.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    MAX_ECHOED_HEADERS_BYTES = 4096,
    MAX_UNREAD_BYTES = 1024 * 1024, /* of an answer, before the engine holds its sequence back */
    FLUSH_POLL_US = 1000,
    US_PER_MS = 1000,
    US_PER_S = 1000000,
};

struct exchange {
    struct grid_sim_seq seq; /* first: the engine's callbacks turn it back into the exchange */
    struct grid_sim_server *server;
    struct evhttp_request *req;
    struct grid_sim_call call;
    struct grid_sim_fault fault;
    struct event timer;
    int64_t events;
    bool dropping; /* all wanted events are written: reset as soon as the client's kernel has them */
};

/* ---- replies ---- */

static void add_header(struct evhttp_request *req, const char *name, const char *value)
{
    (void)evhttp_add_header(evhttp_request_get_output_headers(req), name, value);
}

static const char *header_of(struct evhttp_request *req, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(req), name);
}

/* Frees out. reason NULL: evhttp's own phrase. */
static void reply(struct evhttp_request *req, int status, const char *type, struct evbuffer *out)
{
    add_header(req, "Content-Type", type);
    evhttp_send_reply(req, status, status == HTTP_OK ? "OK" : NULL, out);
    evbuffer_free(out);
}

static struct evbuffer *new_buffer(void)
{
    struct evbuffer *buffer = evbuffer_new();
    if (!buffer)
        abort();
    return buffer;
}

static void reply_error(struct evhttp_request *req, int status, const char *type, const char *param,
                        const char *message)
{
    struct evbuffer *out = new_buffer();
    grid_sim_error_body(status, type, param, message, out);
    reply(req, status, "application/json", out);
}

static void reply_state(struct grid_sim_server *server, struct evhttp_request *req)
{
    struct evbuffer *out = new_buffer();
    grid_sim_metrics_state(server, out);
    reply(req, HTTP_OK, "application/json", out);
}

/* ---- an exchange's life ---- */

static void free_exchange(struct exchange *x)
{
    (void)event_del(&x->timer);
    grid_sim_call_clear(&x->call, &x->seq);
    free(x->fault.body);
    free(x);
}

/* The client went away, or the server ends. */
static void on_close(struct evhttp_connection *connection, void *arg)
{
    (void)connection;
    struct exchange *x = arg;
    grid_sim_queue_abort(&x->seq);
    if (!evhttp_request_get_connection(x->req))
        evhttp_request_free(x->req); /* evhttp has let go of it; otherwise it goes with its connection */
    free_exchange(x);
}

/* Before the last write of an answer: from here on the request is evhttp's. */
static struct evhttp_request *release(struct exchange *x)
{
    struct evhttp_request *req = x->req;
    evhttp_connection_set_closecb(evhttp_request_get_connection(req), NULL, NULL);
    free_exchange(x);
    return req;
}

/* evhttp stops reading while a request is handled and so would not see the client leave: read on, into the buffer. */
static void watch_close(struct exchange *x)
{
    struct bufferevent *bev = evhttp_connection_get_bufferevent(evhttp_request_get_connection(x->req));
    bufferevent_data_cb read_cb;
    bufferevent_data_cb write_cb;
    bufferevent_event_cb event_cb;
    void *arg;
    bufferevent_getcb(bev, &read_cb, &write_cb, &event_cb, &arg);
    bufferevent_setcb(bev, NULL, write_cb, event_cb, arg);
    (void)bufferevent_enable(bev, EV_READ);
}

static void arm(struct exchange *x, int64_t delay_us)
{
    struct timeval delay = {.tv_sec = (time_t)(delay_us / US_PER_S), .tv_usec = (suseconds_t)(delay_us % US_PER_S)};
    (void)event_add(&x->timer, &delay);
}

/* Never from within evhttp's own callbacks: the connection is gone afterwards. */
static void reset_connection(struct exchange *x)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(x->req);
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    grid_sim_queue_abort(&x->seq);
    (void)release(x);
    /* Connecting to nowhere sends RST at once; closing would let evhttp send an orderly FIN first. */
    (void)connect(bufferevent_getfd(evhttp_connection_get_bufferevent(connection)), &nowhere, sizeof nowhere);
    evhttp_connection_free(connection);
}

static size_t unread_bytes(const struct exchange *x)
{
    struct bufferevent *bev = evhttp_connection_get_bufferevent(evhttp_request_get_connection(x->req));
    return evbuffer_get_length(bufferevent_get_output(bev));
}

static void reset_when_flushed(struct exchange *x)
{
    struct bufferevent *bev = evhttp_connection_get_bufferevent(evhttp_request_get_connection(x->req));
    int unsent = 0;
    grid_sim_queue_abort(&x->seq);
    if (unread_bytes(x) == 0 && (ioctl(bufferevent_getfd(bev), SIOCOUTQ, &unsent) != 0 || unsent == 0))
        reset_connection(x);
    else
        arm(x, FLUSH_POLL_US);
}

/* ---- generation ---- */

static void send_event(struct exchange *x, struct evbuffer *event)
{
    if (!x->dropping) {
        evhttp_send_reply_chunk(x->req, event);
        x->events++;
    }
    evbuffer_free(event);
    if (!x->dropping && x->events == x->fault.drop_after_events) {
        x->dropping = true;
        arm(x, 0);
    }
}

static bool on_ready(struct grid_sim_seq *seq)
{
    const struct exchange *x = (struct exchange *)seq;
    return !x->dropping && unread_bytes(x) < MAX_UNREAD_BYTES;
}

static void on_token(struct grid_sim_seq *seq, bool last)
{
    struct exchange *x = (struct exchange *)seq;
    if (!x->call.stream)
        return;
    if (seq->written == 1 && x->call.api == GRID_SIM_CHAT) {
        struct evbuffer *role = new_buffer();
        grid_sim_call_role_event(&x->call, role);
        send_event(x, role);
    }
    struct evbuffer *event = new_buffer();
    grid_sim_call_token_event(&x->call, seq, last, event);
    send_event(x, event);
}

static void on_finished(struct grid_sim_seq *seq)
{
    struct exchange *x = (struct exchange *)seq;
    struct evbuffer *out = new_buffer();
    if (!x->call.stream) {
        grid_sim_call_answer(&x->call, seq, out);
        reply(release(x), HTTP_OK, "application/json", out);
        return;
    }
    if (x->call.include_usage) {
        grid_sim_call_usage_event(&x->call, seq, out);
        send_event(x, out);
        out = new_buffer();
    }
    (void)evbuffer_add_printf(out, "data: [DONE]\n\n");
    send_event(x, out);
    if (!x->dropping)
        evhttp_send_reply_end(release(x));
}

static void start_call(struct exchange *x, enum grid_sim_api api)
{
    static const struct grid_sim_seq_ops ops = {.ready = on_ready, .token = on_token, .finished = on_finished};
    struct evbuffer *body = evhttp_request_get_input_buffer(x->req);
    struct grid_sim_refusal refusal;
    size_t bytes = evbuffer_get_length(body);
    const char *text = (const char *)evbuffer_pullup(body, -1);
    if (!grid_sim_call_read(x->server->options, api, text, bytes, &x->call, &x->seq, &refusal)) {
        reply_error(release(x), refusal.status, refusal.type, refusal.param, refusal.message);
        return;
    }
    (void)evbuffer_drain(body, bytes);
    x->seq.ops = &ops;
    watch_close(x);
    if (x->call.stream) {
        /* As engines do: the status goes out at once, the first event when the prefill has ended. */
        add_header(x->req, "Content-Type", "text/event-stream; charset=utf-8");
        evhttp_send_reply_start(x->req, HTTP_OK, "OK");
        if (x->fault.drop_after_events == 0) {
            x->dropping = true;
            arm(x, 0);
        }
    }
    grid_sim_queue_submit(&x->server->queue, &x->seq);
}

static void start_chat(struct exchange *x)
{
    start_call(x, GRID_SIM_CHAT);
}

static void start_completions(struct exchange *x)
{
    start_call(x, GRID_SIM_COMPLETIONS);
}

/* ---- pages, echo, routes ---- */

static void send_models(struct exchange *x)
{
    struct evbuffer *out = new_buffer();
    grid_sim_models_body(x->server->options, (int64_t)x->server->started_s, out);
    reply(release(x), HTTP_OK, "application/json", out);
}

static void send_metrics(struct exchange *x)
{
    struct evbuffer *out = new_buffer();
    grid_sim_metrics_text(x->server, out);
    reply(release(x), HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", out);
}

static void send_health(struct exchange *x)
{
    reply(release(x), HTTP_OK, "text/plain", new_buffer());
}

/* Received headers as one JSON object with lower-case names; what does not fit into the limit is left out. */
static char *headers_text(struct evhttp_request *req)
{
    json_t *all = json_object();
    char *text = json_dumps(all, JSON_COMPACT);
    struct evkeyval *header;
    TAILQ_FOREACH(header, evhttp_request_get_input_headers(req), next)
    {
        char *name = strdup(header->key);
        for (char *at = name; at && *at; at++)
            *at = (char)(*at >= 'A' && *at <= 'Z' ? *at - 'A' + 'a' : *at);
        const char *before = json_string_value(json_object_get(all, name));
        json_t *value = before ? json_sprintf("%s, %s", before, header->value) : json_string(header->value);
        if (value && json_object_set_new(all, name, value) == 0) {
            char *longer = json_dumps(all, JSON_COMPACT | JSON_ENSURE_ASCII);
            bool fits = longer && strlen(longer) <= MAX_ECHOED_HEADERS_BYTES;
            free(fits ? text : longer);
            text = fits ? longer : text;
            if (!fits)
                (void)json_object_del(all, name);
        }
        free(name);
    }
    json_decref(all);
    return text;
}

static void echo(struct exchange *x)
{
    struct evbuffer *out = new_buffer();
    char *headers = headers_text(x->req);
    if (headers)
        add_header(x->req, "x-sim-headers", headers);
    free(headers);
    (void)evbuffer_add_buffer(out, evhttp_request_get_input_buffer(x->req));
    reply(release(x), HTTP_OK, "application/octet-stream", out);
}

static const struct route {
    const char *path;
    enum evhttp_cmd_type method;
    void (*start)(struct exchange *x);
} ROUTES[] = {
    {"/v1/chat/completions", EVHTTP_REQ_POST, start_chat},
    {"/v1/completions", EVHTTP_REQ_POST, start_completions},
    {"/v1/models", EVHTTP_REQ_GET, send_models},
    {"/metrics", EVHTTP_REQ_GET, send_metrics},
    {"/health", EVHTTP_REQ_GET, send_health},
};

static const char *path_of(struct evhttp_request *req)
{
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(req);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    return path ? path : "";
}

static void dispatch(struct exchange *x)
{
    enum evhttp_cmd_type method = evhttp_request_get_command(x->req);
    const char *path = path_of(x->req);
    const char *wants_echo = header_of(x->req, "x-sim-echo");
    if (method == EVHTTP_REQ_POST && wants_echo && strcmp(wants_echo, "1") == 0) {
        echo(x);
        return;
    }
    if (method == EVHTTP_REQ_HEAD)
        method = EVHTTP_REQ_GET;
    for (size_t i = 0; i < sizeof ROUTES / sizeof ROUTES[0]; i++) {
        if (strcmp(ROUTES[i].path, path) != 0)
            continue;
        if (ROUTES[i].method == method)
            ROUTES[i].start(x);
        else
            reply_error(release(x), HTTP_BADMETHOD, "MethodNotAllowed", NULL, "Method Not Allowed");
        return;
    }
    reply_error(release(x), HTTP_NOTFOUND, "NotFoundError", NULL, "Not Found");
}

/* ---- settable failures ---- */

/* The failure that this request meets, if any; the header wins over the set one. False: the header is wrong. */
static bool take_fault(struct exchange *x)
{
    struct grid_sim_server *server = x->server;
    struct grid_sim_fault *set = &server->fault;
    const char *header = header_of(x->req, "x-sim-fault");
    x->fault = GRID_SIM_NO_FAULT;
    if (header)
        return grid_sim_fault_read_header(header, &x->fault);
    bool applies =
        set->path[0] ? strcmp(set->path, path_of(x->req)) == 0 : evhttp_request_get_command(x->req) == EVHTTP_REQ_POST;
    if (!set->set || !applies)
        return true;
    x->fault = *set;
    x->fault.body = set->body ? strdup(set->body) : NULL;
    if (set->times > 0 && --set->times == 0)
        grid_sim_fault_clear(server);
    return true;
}

static void reply_fault(struct exchange *x)
{
    struct evbuffer *out = new_buffer();
    int status = x->fault.status;
    if (x->fault.retry_after[0])
        add_header(x->req, "Retry-After", x->fault.retry_after);
    if (x->fault.body)
        (void)evbuffer_add(out, x->fault.body, strlen(x->fault.body));
    else
        grid_sim_error_body(status, "SimulatedError", NULL, "A failure that was asked for.", out);
    reply(release(x), status, "application/json", out);
}

static void go_on(struct exchange *x)
{
    if (x->fault.status)
        reply_fault(x);
    else
        dispatch(x);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct exchange *x = arg;
    if (x->dropping)
        reset_when_flushed(x);
    else if (x->fault.reset)
        reset_connection(x);
    else
        go_on(x);
}

/* ---- control, entry ---- */

static void control(struct grid_sim_server *server, struct evhttp_request *req, const char *verb)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(req);
    enum evhttp_cmd_type method = evhttp_request_get_command(req);
    switch (grid_sim_control(server, method, verb, body)) {
    case GRID_SIM_CONTROL_DONE:
        reply_state(server, req);
        break;
    case GRID_SIM_CONTROL_BAD:
        reply_error(req, HTTP_BADREQUEST, "BadRequestError", NULL, "a field is missing or out of range, see --help");
        break;
    case GRID_SIM_CONTROL_UNKNOWN:
        reply_error(req, HTTP_NOTFOUND, "NotFoundError", NULL, "Not Found");
        break;
    }
}

/* What was received, for tests that prove a body was forwarded byte for byte. */
static void add_body_headers(struct evhttp_request *req)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(req);
    char text[32];
    (void)snprintf(text, sizeof text, "%zu", evbuffer_get_length(body));
    add_header(req, "x-sim-body-bytes", text);
    (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)grid_sim_body_hash(body));
    add_header(req, "x-sim-body-xxh64", text);
}

static void on_request(struct evhttp_request *req, void *arg)
{
    static const char control_prefix[] = "/sim/";
    struct grid_sim_server *server = arg;
    const char *path = path_of(req);
    add_header(req, "x-sim-site", server->options->name);
    if (strncmp(path, control_prefix, sizeof control_prefix - 1) == 0) {
        control(server, req, path + sizeof control_prefix - 1);
        return;
    }
    struct exchange *x = grid_sim_alloc(1, sizeof *x);
    x->server = server;
    x->req = req;
    (void)event_assign(&x->timer, server->base, -1, 0, on_timer, x);
    evhttp_connection_set_closecb(evhttp_request_get_connection(req), on_close, x);
    if (evhttp_request_get_command(req) == EVHTTP_REQ_POST) {
        server->received++;
        add_body_headers(req);
    }
    if (!take_fault(x)) {
        reply_error(release(x), HTTP_BADREQUEST, "BadRequestError", NULL, "x-sim-fault is wrong, see --help");
    } else if (x->fault.delay_ms > 0 || x->fault.reset) {
        watch_close(x);
        arm(x, x->fault.delay_ms * US_PER_MS);
    } else {
        go_on(x);
    }
}

void grid_sim_http_attach(struct grid_sim_server *server, struct evhttp *http)
{
    evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
                                         EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH);
    evhttp_set_gencb(http, on_request, server);
}
