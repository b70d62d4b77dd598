/*
 * exchange.h - one request outside /sim/ and the way to its answer
 *
 * Story     http.c makes an exchange of a request, plays its failure and hands it to whoever answers its path:
 *           generate.c (Chat Completions, Completions), stored.c (Responses), conversations.c. These reply at once,
 *           or watch the connection, put work into the engine and reply later, at once or event by event.
 * Promise   Whoever replies releases the exchange first and does not touch it again.
 * Not here  The engine (queue.c), the store (store.c), what bodies mean (apis.c, responses.c).
 */
#ifndef GRID_SIM_EXCHANGE_H
#define GRID_SIM_EXCHANGE_H

#include "sim.h"
#include "store.h"

enum {
    GRID_SIM_MAX_UNREAD_BYTES = 1024 * 1024, /* of an answer, before the engine holds its sequence back */
};

struct grid_sim_exchange {
    struct grid_sim_seq seq; /* first: the engine's callbacks turn it back into the exchange */
    struct grid_sim_server *server;
    struct evhttp_request *req;
    struct grid_sim_call call;
    struct grid_sim_reader reader; /* of a response */
    struct grid_sim_fault fault;
    struct event timer;
    int64_t events;
    bool dropping; /* all wanted events are written: reset as soon as the client's kernel has them */
};

/* ---- exchange.c ---- */

void grid_sim_header_add(struct evhttp_request *req, const char *name, const char *value);
const char *grid_sim_header_of(struct evhttp_request *req, const char *name);
struct evbuffer *grid_sim_buffer_new(void);
/* Frees out. */
void grid_sim_reply(struct evhttp_request *req, int status, const char *type, struct evbuffer *out);
void grid_sim_reply_error(struct evhttp_request *req, int status, const char *type, const char *param,
                          const char *message);
/* Releases the exchange and takes the value over. */
void grid_sim_exchange_json(struct grid_sim_exchange *x, int status, json_t *value);
void grid_sim_exchange_refuse(struct grid_sim_exchange *x, const struct grid_sim_refusal *refusal);

void grid_sim_exchange_open(struct grid_sim_exchange *x);
/* Before the last write of an answer: from here on the request is evhttp's, and x is freed. */
struct evhttp_request *grid_sim_exchange_release(struct grid_sim_exchange *x);
/* From here on a client that leaves is noticed. */
void grid_sim_exchange_watch(struct grid_sim_exchange *x);
void grid_sim_exchange_arm(struct grid_sim_exchange *x, int64_t delay_us);
/* Never from within evhttp's own callbacks: the connection is gone afterwards. */
void grid_sim_exchange_reset(struct grid_sim_exchange *x);
void grid_sim_exchange_reset_flushed(struct grid_sim_exchange *x);
size_t grid_sim_exchange_unread(const struct grid_sim_exchange *x);
/* The body as JSON, which may be of any type; no body is an empty object. NULL: refusal says why. Drops the body. */
json_t *grid_sim_exchange_body(struct grid_sim_exchange *x, struct grid_sim_refusal *refusal);
/* A parameter of the query, copied into out; false: it is absent or too long. */
bool grid_sim_exchange_query(const struct grid_sim_exchange *x, const char *name, char *out, size_t room);

/* limit, order and after of the query; false: limit is none. */
bool grid_sim_exchange_page(const struct grid_sim_exchange *x, struct grid_sim_page *out_page);

/* 405 when the path is known with another method, else 404. */
void grid_sim_exchange_no_route(struct grid_sim_exchange *x, bool known);

/* An event stream: the status goes out at once. */
void grid_sim_exchange_stream(struct grid_sim_exchange *x);
/* Frees event. */
void grid_sim_exchange_event(struct grid_sim_exchange *x, struct evbuffer *event);

/* ---- who answers ---- */

void grid_sim_chat_start(struct grid_sim_exchange *x);        /* generate.c */
void grid_sim_completions_start(struct grid_sim_exchange *x); /* generate.c */
/* rest: the path behind the collection's name, "" or from a slash on. */
void grid_sim_responses_start(struct grid_sim_exchange *x, enum evhttp_cmd_type method, const char *rest);
void grid_sim_conversations_start(struct grid_sim_exchange *x, enum evhttp_cmd_type method, const char *rest);

#endif
