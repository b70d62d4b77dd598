/*
 * fake_envoy.h - a stand-in for Envoy that drives the module's hooks in one process
 *
 * Story     Tests open streams, feed them heads, bodies and answers as Envoy would, and look at what the module did.
 *           The callbacks that the module calls are defined here.
 * Promise   As strict as the real one: each header and slice lies in memory of its own exact size, all of it moves when
 *           a setter is called or a hook returned, so a view kept too long is a use after free.
 * Threads   One.
 */
#ifndef GRID_FAKE_ENVOY_H
#define GRID_FAKE_ENVOY_H

#include "envoy/abi.h"

#define FAKE_MAX_HEADERS 128
#define FAKE_MAX_SLICES 4096

struct fake_headers {
    struct grid_header items[FAKE_MAX_HEADERS];
    size_t n;
};

struct fake_body {
    struct grid_str slices[FAKE_MAX_SLICES];
    size_t n, bytes;
};

struct fake_stream {
    void *filter;
    struct fake_headers headers[4];
    struct fake_body bodies[4];
    bool received_is_buffered; /* an earlier filter buffered the body */
    uint64_t buffer_limit;     /* 0: never set */
    uint64_t flags;            /* attribute 17 */
    int selects;               /* how often the cluster specifier is asked in one clearing */
    char cluster[300];         /* chosen; "" for none */
    char metadata[1024];       /* the struct that was set last */
    size_t metadata_bytes;
    double ticket;          /* grid.ticket of the dynamic metadata; 0: not set */
    char local_address[64]; /* attribute 51: our end of the connection to the site; "" before there is one */

    /* what went to the site */
    bool head_sent, end_sent;
    char *sent;
    size_t sent_bytes;
    /* what the module answered itself */
    int reply_status;
    char *reply_body, reply_details[80];
    struct fake_headers reply_headers;
    /* the answer's body as the client got it */
    char *answer;
    size_t answer_bytes;
};

/* ---- the process ---- */

struct fake_cluster {
    const char *name;
    size_t total, healthy;
};
extern void *fake_specifier, *fake_filter_configs[2]; /* the route's filter, the ops filter */
extern struct fake_cluster fake_clusters[8];
extern bool fake_validating;
extern int fake_init_completes; /* how often the module said that it is ready */
extern int fake_timers_alive;
extern char fake_log[65536];
extern char fake_admin_page[1 << 20];
extern int fake_callout_result; /* what starting a callout returns */
extern bool fake_callout_done_inside;
extern uint64_t fake_last_callout;
extern char fake_callout_path[1100];
/* Callouts as they were started, the last in place fake_last_callout % FAKE_CALLOUTS. */
#define FAKE_CALLOUTS 4096u
struct fake_callout {
    uint64_t id; /* 0 once it is finished */
    char cluster[400], host[300];
};
extern struct fake_callout fake_callouts[FAKE_CALLOUTS];

/* Bootstrap extension up to server_initialized; false when the module refuses. */
bool fake_start(const char *extension_config);
void fake_stop(void);
void fake_fire_timers(void); /* every timer that is enabled, once */
void fake_touch(void);       /* the file watcher saw something */
/* The callout under way to that cluster, or with that host header; false when there is none. */
bool fake_finish_callout_to(const char *name, int result, const char *body);
void fake_finish_callout(int result, const char *status, const char *location, const char *body);
uint64_t fake_counter(const char *name, const char *labels); /* values joined by commas */
uint32_t fake_admin(const char *path);

/* ---- a stream ---- */

struct fake_stream *fake_open(const char *filter_name);
/* "name: value" lines; name starts with ':' for pseudo headers. Returns what the hook returned. */
int fake_head(struct fake_stream *stream, const char *lines, bool end);
enum fake_http { FAKE_HTTP1, FAKE_HTTP2 };
/* The body in pieces of `piece` bytes. HTTP/1 says the end in a call of its own, without bytes. */
void fake_send_body(struct fake_stream *stream, const char *bytes, size_t len, size_t piece, enum fake_http http);
void fake_send_piece(struct fake_stream *stream, const char *bytes, size_t len, bool end);
void fake_send_trailers(struct fake_stream *stream);
/* The site did not take it, or broke the connection whose end on our side is `local_address` ("": there was none).
 * True: Envoy would retry and was told where; false: the retries are used up or were never asked for. */
bool fake_retry(struct fake_stream *stream, const char *local_address);
/* The answer of a site, and one of Envoy's own. */
void fake_answer(struct fake_stream *stream, const char *lines, const char *body);
/* An answer of a site piece by piece; a piece may begin with slices that were given before it. */
void fake_answer_head(struct fake_stream *stream, const char *lines, bool end);
void fake_answer_slice(struct fake_stream *stream, const char *bytes, size_t len);
void fake_answer_piece(struct fake_stream *stream, const char *bytes, size_t len, bool end);
void fake_answer_trailers(struct fake_stream *stream);
void fake_local_answer(struct fake_stream *stream, int status, uint64_t flags, const char *lines, const char *body);
void fake_close(struct fake_stream *stream);
/* A header of the map as it is now, as text with static storage; NULL without it. */
const char *fake_header(const struct fake_headers *headers, const char *name);

#endif
