/*
 * filter.h - one HTTP stream as the module sees it
 *
 * Story     Made when a stream starts, freed when it ends. It carries the ticket from the request to the answer and
 *           remembers how far the stream has come. request.c, then pick.c, then answer.c; life and replies in filter.c.
 */
#ifndef GRID_ENVOY_FILTER_H
#define GRID_ENVOY_FILTER_H

#include "module.h"

/* Which filter of the module a filter config is for. */
enum grid_filter_kind { GRID_FILTER_ROUTE, GRID_FILTER_OPS };

struct grid_filter_config {
    enum grid_filter_kind kind;
    bool metadata; /* somebody reads what became of requests */
};

enum grid_filter_stage {
    GRID_FILTER_HEAD,    /* nothing seen, or the request was never ours */
    GRID_FILTER_BODY,    /* holding the body until its end */
    GRID_FILTER_DECIDED, /* on its way to a site */
    GRID_FILTER_REPLIED, /* answered by the gateway */
};

struct grid_filter {
    enum grid_filter_kind kind;
    enum grid_filter_stage stage;
    struct grid_module *module;
    struct grid_ticket *ticket; /* NULL until the head is read */
    bool head_only;             /* a HEAD request: its answer has no body */
    bool decoded;               /* the body came coded, and Envoy's decoder was ahead of us */
    bool local;                 /* Envoy made the answer, not the site and not we */
    bool answered;              /* the site's answer has begun */
    bool replace_body;          /* the answer's body becomes `failure` */
    bool tagging;               /* the answer's body goes through the core, piece by piece */
    bool watching;              /* the core looks at each piece */
    uint64_t spent_ns;          /* in the hooks of the request, then of the answer */
    uint64_t asked_ns;          /* when the request was whole and decided; 0 before */
    uint64_t body_bytes;        /* of the request; UINT64_MAX: nobody said */
    struct grid_reply failure;
    bool metadata, metadata_written; /* wanted; done for the answer (meta.c) */
    bool explains_conversation;      /* of a pasted request (explain.c) */

    /* of a request that may go on to another site (pick.c) */
    uint64_t number; /* on this thread; 0: not armed */
    struct grid_filter *next_armed;
    uint64_t sent_ms; /* when it was sent on, for the last time */
    unsigned retries; /* made so far */
    bool raced;       /* one of them because a connection was closed while it was idle */
    bool site_failed; /* a retry was refused: the site may have seen the request */
};

/* ---- the cluster (pick.c) --------------------------------------------------------------------------------------- */

/* Has Envoy choose the stream's cluster anew; the decision is taken inside, for its ticket. */
void grid_pick_decide(void *stream, struct grid_filter *filter);
/* Lets Envoy retry a request of so many bytes at other sites, should the chosen one not take it; does nothing when that
 * may not be. Once, before the request goes on. */
void grid_pick_arm(void *stream, struct grid_filter *filter, uint64_t bytes);
/* Whether the connection that broke under the request had been idle until then. */
bool grid_pick_raced(void *stream, const struct grid_filter *filter);
void grid_pick_disarm(struct grid_filter *filter); /* before the stream's end */

/* ---- replies (filter.c) ---------------------------------------------------------------------------------------- */

/* Answers the stream here; no hook of the answer follows. */
void grid_filter_reply(void *envoy, struct grid_filter *filter, const struct grid_reply *reply);
void grid_filter_fail(void *envoy, struct grid_filter *filter, int status);

/* ---- the ops listener (ops.c, explain.c) ------------------------------------------------------------------------ */

#define GRID_OPS_MAX_BODY_BYTES (8ull << 20)

/* The head of a request to the ops listener. True: its body is wanted, for filter->ticket. False: it was answered. */
bool grid_ops_begin(void *envoy, struct grid_filter *filter, bool end);
/* Answers once the ticket was shown the body; `shown`: false when there was no memory for it. `cut`: it is longer. */
void grid_explain_answer(void *envoy, struct grid_filter *filter, bool shown, bool cut);

/* ---- metadata (meta.c) ------------------------------------------------------------------------------------------ */

/* Says what became of the request so far, for the access log and the tracer. */
void grid_meta_write(void *envoy, struct grid_filter *filter);
/* The same at the stream's end, if there is something that was not said. */
void grid_meta_end(void *envoy, struct grid_filter *filter);

/* ---- connections (reuse.c) -------------------------------------------------------------------------------------- */

/* An answer came over the connection whose end on our side has this address. */
void grid_reuse_note(struct grid_str local_address, uint64_t now_ms);
/* One had come shortly before `since_ms`: the connection was idle then, not new. */
bool grid_reuse_known(struct grid_str local_address, uint64_t since_ms);
/* ---- a held body (edit.c) ---------------------------------------------------------------------------------------- */

/* Where a body lies: held by us first, then what came with this call (unless that is the same buffer). */
struct grid_body {
    int kinds[2];
    size_t n;
};

#define GRID_EDIT_PIECE_BYTES (256u << 10)

/* Applies the core's edits. False: no memory; the body is then in disorder and must not go on. */
bool grid_edit_body(void *envoy, const struct grid_body *body, const struct grid_edit *edits, size_t n);

/* ---- header maps (headers.c) ------------------------------------------------------------------------------------ */

#define GRID_MANY_HEADERS 64u /* more than that leave the stack */

/* All headers of a map in one call, in `room` (of GRID_MANY_HEADERS) or, when they are too many, in memory that the
 * caller frees; NULL when there is none. */
struct grid_header *grid_headers_read(void *envoy, int map, struct grid_header *room, size_t *out_n);
/* Where the first header is that only the gateway or Envoy may say; n without one. */
size_t grid_headers_forged(int map, const struct grid_header *headers, size_t n);
/* Removes those. Ends the life of every view into the map. False: no memory. */
bool grid_headers_clean(void *envoy, int map);

#endif
