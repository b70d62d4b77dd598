/*
 * exchange.c - see exchange.h
 *
 * Story     Replies are evhttp's. What evhttp does not offer is here: seeing a client leave while its answer is being
 *           made, and a reset instead of an orderly end.
 * Promise   An exchange is freed exactly once: with its answer, with its reset, or when its client goes away, which
 *           takes its work out of the engine.
 * Not here  What is answered (generate.c, stored.c, conversations.c), which failure is played (http.c).
 */
#include "exchange.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/keyvalq_struct.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    FLUSH_POLL_US = 1000,
    US_PER_S = 1000000,
    DEFAULT_PAGE_ITEMS = 20,
    MAX_PAGE_ITEMS = 100,
    MAX_NUMBER_BYTES = 24,
};

void grid_sim_header_add(struct evhttp_request *req, const char *name, const char *value)
{
    (void)evhttp_add_header(evhttp_request_get_output_headers(req), name, value);
}

const char *grid_sim_header_of(struct evhttp_request *req, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(req), name);
}

void grid_sim_reply(struct evhttp_request *req, int status, const char *type, struct evbuffer *out)
{
    grid_sim_header_add(req, "Content-Type", type);
    evhttp_send_reply(req, status, status == HTTP_OK ? "OK" : NULL, out);
    evbuffer_free(out);
}

struct evbuffer *grid_sim_buffer_new(void)
{
    struct evbuffer *buffer = evbuffer_new();
    if (!buffer)
        abort();
    return buffer;
}

void grid_sim_reply_error(struct evhttp_request *req, int status, const char *type, const char *param,
                          const char *message)
{
    struct evbuffer *out = grid_sim_buffer_new();
    grid_sim_error_body(status, type, param, message, out);
    grid_sim_reply(req, status, "application/json", out);
}

void grid_sim_exchange_json(struct grid_sim_exchange *x, int status, json_t *value)
{
    struct evbuffer *out = grid_sim_buffer_new();
    grid_sim_json_add(out, value);
    grid_sim_reply(grid_sim_exchange_release(x), status, "application/json", out);
}

void grid_sim_exchange_refuse(struct grid_sim_exchange *x, const struct grid_sim_refusal *refusal)
{
    grid_sim_reply_error(grid_sim_exchange_release(x), refusal->status, refusal->type, refusal->param,
                         refusal->message);
}

json_t *grid_sim_exchange_body(struct grid_sim_exchange *x, struct grid_sim_refusal *refusal)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(x->req);
    size_t bytes = evbuffer_get_length(body);
    if (bytes == 0)
        return json_object();
    json_t *root = grid_sim_body_parse((const char *)evbuffer_pullup(body, -1), bytes, refusal);
    (void)evbuffer_drain(body, bytes);
    return root;
}

bool grid_sim_exchange_query(const struct grid_sim_exchange *x, const char *name, char *out, size_t room)
{
    const char *query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(x->req));
    struct evkeyvalq all;
    if (!query || evhttp_parse_query_str(query, &all) != 0)
        return false;
    const char *value = evhttp_find_header(&all, name);
    int length = value ? snprintf(out, room, "%s", value) : -1;
    evhttp_clear_headers(&all);
    return length >= 0 && (size_t)length < room;
}

bool grid_sim_exchange_page(const struct grid_sim_exchange *x, struct grid_sim_page *out_page)
{
    char order[MAX_NUMBER_BYTES];
    char limit[MAX_NUMBER_BYTES];
    *out_page = (struct grid_sim_page){.limit = DEFAULT_PAGE_ITEMS};
    if (grid_sim_exchange_query(x, "order", order, sizeof order))
        out_page->ascending = strcmp(order, "asc") == 0;
    (void)grid_sim_exchange_query(x, "after", out_page->after, sizeof out_page->after);
    if (!grid_sim_exchange_query(x, "limit", limit, sizeof limit))
        return true;
    char *end;
    unsigned long long wanted = strtoull(limit, &end, 10);
    out_page->limit = (size_t)wanted;
    return end != limit && *end == '\0' && wanted >= 1 && wanted <= MAX_PAGE_ITEMS;
}

void grid_sim_exchange_no_route(struct grid_sim_exchange *x, bool known)
{
    if (known)
        grid_sim_reply_error(grid_sim_exchange_release(x), HTTP_BADMETHOD, "MethodNotAllowed", NULL,
                             "Method Not Allowed");
    else
        grid_sim_reply_error(grid_sim_exchange_release(x), HTTP_NOTFOUND, "NotFoundError", NULL, "Not Found");
}

/* ---- an exchange's life ---- */

/* Out of the engine with what only this client waits for. */
static void stop_work(struct grid_sim_exchange *x)
{
    grid_sim_queue_abort(&x->seq);
    grid_sim_reader_leave(&x->reader);
}

static void free_exchange(struct grid_sim_exchange *x)
{
    (void)event_del(&x->timer);
    grid_sim_reader_leave(&x->reader);
    grid_sim_call_clear(&x->call, &x->seq);
    free(x->fault.body);
    free(x);
}

/* The client went away, or the server ends. */
static void on_close(struct evhttp_connection *connection, void *arg)
{
    (void)connection;
    struct grid_sim_exchange *x = arg;
    stop_work(x);
    if (!evhttp_request_get_connection(x->req))
        evhttp_request_free(x->req); /* evhttp has let go of it; otherwise it goes with its connection */
    free_exchange(x);
}

void grid_sim_exchange_open(struct grid_sim_exchange *x)
{
    evhttp_connection_set_closecb(evhttp_request_get_connection(x->req), on_close, x);
}

struct evhttp_request *grid_sim_exchange_release(struct grid_sim_exchange *x)
{
    struct evhttp_request *req = x->req;
    evhttp_connection_set_closecb(evhttp_request_get_connection(req), NULL, NULL);
    free_exchange(x);
    return req;
}

/* evhttp stops reading while a request is handled and so would not see the client leave: read on, into the buffer. */
void grid_sim_exchange_watch(struct grid_sim_exchange *x)
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

void grid_sim_exchange_arm(struct grid_sim_exchange *x, int64_t delay_us)
{
    struct timeval delay = {.tv_sec = (time_t)(delay_us / US_PER_S), .tv_usec = (suseconds_t)(delay_us % US_PER_S)};
    (void)event_add(&x->timer, &delay);
}

void grid_sim_exchange_reset(struct grid_sim_exchange *x)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(x->req);
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    stop_work(x);
    (void)grid_sim_exchange_release(x);
    /* Connecting to nowhere sends RST at once; closing would let evhttp send an orderly FIN first. */
    (void)connect(bufferevent_getfd(evhttp_connection_get_bufferevent(connection)), &nowhere, sizeof nowhere);
    evhttp_connection_free(connection);
}

size_t grid_sim_exchange_unread(const struct grid_sim_exchange *x)
{
    struct bufferevent *bev = evhttp_connection_get_bufferevent(evhttp_request_get_connection(x->req));
    return evbuffer_get_length(bufferevent_get_output(bev));
}

void grid_sim_exchange_reset_flushed(struct grid_sim_exchange *x)
{
    struct bufferevent *bev = evhttp_connection_get_bufferevent(evhttp_request_get_connection(x->req));
    int unsent = 0;
    stop_work(x);
    if (grid_sim_exchange_unread(x) == 0 && (ioctl(bufferevent_getfd(bev), SIOCOUTQ, &unsent) != 0 || unsent == 0))
        grid_sim_exchange_reset(x);
    else
        grid_sim_exchange_arm(x, FLUSH_POLL_US);
}

void grid_sim_exchange_stream(struct grid_sim_exchange *x)
{
    grid_sim_header_add(x->req, "Content-Type", "text/event-stream; charset=utf-8");
    evhttp_send_reply_start(x->req, HTTP_OK, "OK");
    if (x->fault.drop_after_events == 0) {
        x->dropping = true;
        grid_sim_exchange_arm(x, 0);
    }
}

void grid_sim_exchange_event(struct grid_sim_exchange *x, struct evbuffer *event)
{
    if (!x->dropping) {
        evhttp_send_reply_chunk(x->req, event);
        x->events++;
    }
    evbuffer_free(event);
    if (!x->dropping && x->events == x->fault.drop_after_events) {
        x->dropping = true;
        grid_sim_exchange_arm(x, 0);
    }
}
