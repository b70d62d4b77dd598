/*
 * http.c - the site's HTTP server: routes, settable failures, echo
 *
 * Story     libevent's evhttp calls on_request with a whole request. Requests under /sim/ are answered at once. Every
 *           other one becomes an exchange, which a settable failure may delay, refuse, reset or cut later, and which
 *           then goes to whoever answers its path.
 * Promise   A body is hashed where it lies.
 * Not here  How an exchange ends (exchange.c), what bodies mean (apis.c, responses.c), when tokens are due (queue.c).
 */
#include "exchange.h"

#include <event2/buffer.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_ECHOED_HEADERS_BYTES = 4096,
    US_PER_MS = 1000,
};

static void reply_state(struct grid_sim_server *server, struct evhttp_request *req)
{
    struct evbuffer *out = grid_sim_buffer_new();
    grid_sim_metrics_state(server, out);
    grid_sim_reply(req, HTTP_OK, "application/json", out);
}

/* ---- pages, echo ---- */

static void send_models(struct grid_sim_exchange *x)
{
    struct evbuffer *out = grid_sim_buffer_new();
    grid_sim_models_body(x->server->options, (int64_t)x->server->started_s, out);
    grid_sim_reply(grid_sim_exchange_release(x), HTTP_OK, "application/json", out);
}

static void send_metrics(struct grid_sim_exchange *x)
{
    struct evbuffer *out = grid_sim_buffer_new();
    grid_sim_metrics_text(x->server, out);
    grid_sim_reply(grid_sim_exchange_release(x), HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", out);
}

static void send_health(struct grid_sim_exchange *x)
{
    grid_sim_reply(grid_sim_exchange_release(x), HTTP_OK, "text/plain", grid_sim_buffer_new());
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

static void echo(struct grid_sim_exchange *x)
{
    struct evbuffer *out = grid_sim_buffer_new();
    char *headers = headers_text(x->req);
    if (headers)
        grid_sim_header_add(x->req, "x-sim-headers", headers);
    free(headers);
    (void)evbuffer_add_buffer(out, evhttp_request_get_input_buffer(x->req));
    grid_sim_reply(grid_sim_exchange_release(x), HTTP_OK, "application/octet-stream", out);
}

/* ---- routes ---- */

static const struct route {
    const char *path;
    enum evhttp_cmd_type method;
    void (*start)(struct grid_sim_exchange *x);
} ROUTES[] = {
    {"/v1/chat/completions", EVHTTP_REQ_POST, grid_sim_chat_start},
    {"/v1/completions", EVHTTP_REQ_POST, grid_sim_completions_start},
    {"/v1/models", EVHTTP_REQ_GET, send_models},
    {"/metrics", EVHTTP_REQ_GET, send_metrics},
    {"/health", EVHTTP_REQ_GET, send_health},
};

/* Collections with paths below them. */
static const struct collection {
    const char *path;
    void (*start)(struct grid_sim_exchange *x, enum evhttp_cmd_type method, const char *rest);
} COLLECTIONS[] = {
    {"/v1/responses", grid_sim_responses_start},
    {"/v1/conversations", grid_sim_conversations_start},
};

static const char *path_of(struct evhttp_request *req)
{
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(req);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    return path ? path : "";
}

static void dispatch(struct grid_sim_exchange *x)
{
    enum evhttp_cmd_type method = evhttp_request_get_command(x->req);
    const char *path = path_of(x->req);
    const char *wants_echo = grid_sim_header_of(x->req, "x-sim-echo");
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
            grid_sim_exchange_no_route(x, true);
        return;
    }
    for (size_t i = 0; i < sizeof COLLECTIONS / sizeof COLLECTIONS[0]; i++) {
        size_t length = strlen(COLLECTIONS[i].path);
        if (strncmp(COLLECTIONS[i].path, path, length) == 0 && (path[length] == '\0' || path[length] == '/')) {
            COLLECTIONS[i].start(x, method, path + length);
            return;
        }
    }
    grid_sim_exchange_no_route(x, false);
}

/* ---- settable failures ---- */

/* The failure that this request meets, if any; the header wins over the set one. False: the header is wrong. */
static bool take_fault(struct grid_sim_exchange *x)
{
    struct grid_sim_server *server = x->server;
    struct grid_sim_fault *set = &server->fault;
    const char *header = grid_sim_header_of(x->req, "x-sim-fault");
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

static void reply_fault(struct grid_sim_exchange *x)
{
    struct evbuffer *out = grid_sim_buffer_new();
    int status = x->fault.status;
    if (x->fault.retry_after[0])
        grid_sim_header_add(x->req, "Retry-After", x->fault.retry_after);
    if (x->fault.body)
        (void)evbuffer_add(out, x->fault.body, strlen(x->fault.body));
    else
        grid_sim_error_body(status, "SimulatedError", NULL, "A failure that was asked for.", out);
    grid_sim_reply(grid_sim_exchange_release(x), status, "application/json", out);
}

static void go_on(struct grid_sim_exchange *x)
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
    struct grid_sim_exchange *x = arg;
    if (x->dropping)
        grid_sim_exchange_reset_flushed(x);
    else if (x->fault.reset)
        grid_sim_exchange_reset(x);
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
        grid_sim_reply_error(req, HTTP_BADREQUEST, "BadRequestError", NULL,
                             "a field is missing or out of range, see --help");
        break;
    case GRID_SIM_CONTROL_UNKNOWN:
        grid_sim_reply_error(req, HTTP_NOTFOUND, "NotFoundError", NULL, "Not Found");
        break;
    }
}

/* What was received, for tests that prove a body was forwarded byte for byte. */
static void add_body_headers(struct evhttp_request *req)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(req);
    char text[32];
    (void)snprintf(text, sizeof text, "%zu", evbuffer_get_length(body));
    grid_sim_header_add(req, "x-sim-body-bytes", text);
    (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)grid_sim_body_hash(body));
    grid_sim_header_add(req, "x-sim-body-xxh64", text);
}

static void on_request(struct evhttp_request *req, void *arg)
{
    static const char control_prefix[] = "/sim/";
    struct grid_sim_server *server = arg;
    const char *path = path_of(req);
    grid_sim_header_add(req, "x-sim-site", server->options->name);
    if (strncmp(path, control_prefix, sizeof control_prefix - 1) == 0) {
        control(server, req, path + sizeof control_prefix - 1);
        return;
    }
    struct grid_sim_exchange *x = grid_sim_alloc(1, sizeof *x);
    x->server = server;
    x->req = req;
    (void)event_assign(&x->timer, server->base, -1, 0, on_timer, x);
    grid_sim_exchange_open(x);
    if (evhttp_request_get_command(req) == EVHTTP_REQ_POST) {
        server->received++;
        add_body_headers(req);
    }
    if (!take_fault(x)) {
        grid_sim_reply_error(grid_sim_exchange_release(x), HTTP_BADREQUEST, "BadRequestError", NULL,
                             "x-sim-fault is wrong, see --help");
    } else if (x->fault.delay_ms > 0 || x->fault.reset) {
        grid_sim_exchange_watch(x);
        grid_sim_exchange_arm(x, x->fault.delay_ms * US_PER_MS);
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
