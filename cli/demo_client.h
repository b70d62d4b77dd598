/*
 * demo_client.h - the demo's event loop and its HTTP client
 *
 * Story     The demo is one thread around one event loop. A call sends one request the way the official OpenAI SDK for
 *           Python does (headers, order of the body's members, event stream) and gathers the answer: the site it came
 *           from, the text, the usage and the time to the first piece of text. Several calls may be under way at once.
 * Promise   Nothing here blocks outside the loop. Every call ends as done, with `trouble` when there is no answer.
 * Not here  What is asked and why (demo.c), processes and files (demo_grid.c).
 */
#ifndef GRID_DEMO_CLIENT_H
#define GRID_DEMO_CLIENT_H

#include <grid/grid.h>

struct event_base;
struct event;
struct evhttp_connection;

/* The loop. `stopped`: a person pressed Ctrl-C or the process was told to end; waits then return at once. */
struct grid_client_loop {
    struct event_base *base;
    struct event *on_int, *on_term;
    bool stopped;
};
bool grid_client_loop_init(struct grid_client_loop *loop) GRID_MUST_USE;
void grid_client_loop_done(struct grid_client_loop *loop);

/* Handles events for at most so long; false when the loop was stopped. */
bool grid_client_loop_turn(struct grid_client_loop *loop, unsigned for_ms);

/* Seconds on the monotonic clock. */
double grid_client_now(void);

#define GRID_CLIENT_NAME_BYTES 64
#define GRID_CLIENT_TROUBLE_BYTES 160
#define GRID_CLIENT_MAX_ANSWER_BYTES (8u << 20)

/* One request and its answer. Read the fields once done is true. */
struct grid_client_call {
    bool done;
    char trouble[GRID_CLIENT_TROUBLE_BYTES]; /* "" when an answer came whole */
    int status;
    char site[GRID_CLIENT_NAME_BYTES]; /* x-grid-site; "" when absent */
    struct grid_buf body;              /* the answer as it came; of an event stream, its unread rest */
    struct grid_buf text;              /* of an event stream: the model's words */
    bool finished;                     /* the event stream closed with [DONE] */
    uint64_t prompt_tokens, cached_tokens;
    double sent_s, first_s, end_s; /* monotonic; first_s is 0 before the first words */
    /* the call's own */
    bool stream;
    struct evhttp_connection *connection;
    struct event_base *base;
};

/* Starts GET, or POST when body is not NULL (JSON, copied). The loop must outlive the call; the caller ends it with
 * grid_client_end, which also cancels it. NULL when there is no memory. */
struct grid_client_call *grid_client_start(struct grid_client_loop *loop, int port, const char *path, const char *body);
void grid_client_end(struct grid_client_call *call); /* NULL is fine; not from inside the loop */

/* Starts and waits. The caller ends the call; NULL when there is no memory or the loop was stopped. */
struct grid_client_call *grid_client_fetch(struct grid_client_loop *loop, int port, const char *path, const char *body,
                                           double limit_s);

/* Runs the loop until the call is done; false at the limit or when the loop was stopped. */
bool grid_client_wait(struct grid_client_loop *loop, const struct grid_client_call *call, double limit_s);

#endif
