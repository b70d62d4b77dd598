/*
 * store.h - what a site keeps between requests: responses and conversations
 *
 * Story     A response that is done (or runs in the background) and every conversation is a record in one store, found
 *           by its id. stored.c and conversations.c put records in, find them and let them go.
 * Promise   The store is bounded by count and by bytes: the records written longest ago go first, a background response
 *           in the midst of its work too. Ids are drawn by chance for each run of a site, so no two sites share one.
 *           Nothing outlives the process.
 * Not here  How a response looks (responses.c), HTTP (stored.c, conversations.c).
 */
#ifndef GRID_SIM_STORE_H
#define GRID_SIM_STORE_H

#include "sim.h"

enum {
    GRID_SIM_MAX_ID_BYTES = 96,
    GRID_SIM_DEFAULT_STORE_COUNT = 4096,
    GRID_SIM_DEFAULT_STORE_BYTES = 64 * 1024 * 1024,
    GRID_SIM_RECORD_BYTES = 512, /* what a record counts beside its texts */
};

/* ---- store.c: records of any kind ---- */

enum grid_sim_kind {
    GRID_SIM_RESPONSE,
    GRID_SIM_CONVERSATION,
};

struct grid_sim_record {
    char id[GRID_SIM_MAX_ID_BYTES];
    enum grid_sim_kind kind;
    bool held;
    size_t bytes;
    TAILQ_ENTRY(grid_sim_record) link;
};

TAILQ_HEAD(grid_sim_record_list, grid_sim_record);

struct grid_sim_store {
    struct grid_sim_record_list order; /* written longest ago first */
    void *tree;
    size_t count;
    size_t bytes;
    size_t max_count; /* 0: nothing is kept */
    size_t max_bytes;
    uint64_t chance;
    uint64_t ids;
};

void grid_sim_store_init(struct grid_sim_store *store, size_t max_count, size_t max_bytes);
/* Lets all records go. */
void grid_sim_store_clear(struct grid_sim_store *store);
/* prefix, then 32 hex digits that no other call of any site gives. */
void grid_sim_store_id(struct grid_sim_store *store, const char *prefix, char out[GRID_SIM_MAX_ID_BYTES]);
/* NULL: not held. */
struct grid_sim_record *grid_sim_store_find(struct grid_sim_store *store, enum grid_sim_kind kind, const char *id);
/* Holds a record, instead of one with its id, or sees it written to again. The oldest records go, which may be this
 * very one. */
void grid_sim_store_hold(struct grid_sim_store *store, struct grid_sim_record *record, size_t bytes);
void grid_sim_store_let_go(struct grid_sim_store *store, struct grid_sim_record *record);
/* A refusal of status 404 for an id that is not held. */
bool grid_sim_store_missing(enum grid_sim_kind kind, const char *id, const char *param,
                            struct grid_sim_refusal *refusal);

/* ---- responses.c: one response, from its body to its answer ---- */

enum grid_sim_outcome {
    GRID_SIM_RUNNING,
    GRID_SIM_COMPLETED,
    GRID_SIM_CANCELLED,
};

struct grid_sim_response;

/* Who waits for a response: an exchange. Embedded there; zero when there is none. */
struct grid_sim_reader {
    struct grid_sim_response *response; /* NULL: none */
    bool owns;                          /* the response ends with this reader */
    uint64_t next;                      /* the event to send next */
    bool (*ready)(struct grid_sim_reader *reader);
    void (*progress)(struct grid_sim_reader *reader); /* may end the reader */
    TAILQ_ENTRY(grid_sim_reader) link;
};

TAILQ_HEAD(grid_sim_readers, grid_sim_reader);

struct grid_sim_response {
    struct grid_sim_seq seq; /* first: the engine's callbacks turn it back into the response */
    struct grid_sim_record record;
    struct grid_sim_store *store;
    struct grid_sim_readers readers;
    size_t refs; /* readers, the store, and whoever makes it */
    enum grid_sim_outcome outcome;
    bool background;
    bool stream;
    bool keep;
    uint64_t words_seed;
    int64_t created;
    json_t *fields;                           /* of the answer, without what changes while it runs */
    json_t *input;                            /* items of this request */
    json_t *context;                          /* all items before the answer, these included */
    json_t *answer;                           /* the output array, once there is one */
    char item_id[GRID_SIM_MAX_ID_BYTES];      /* of the answer's message */
    char conversation[GRID_SIM_MAX_ID_BYTES]; /* "": none */
};

/* The response of a record of that kind. */
static inline struct grid_sim_response *grid_sim_response_of(struct grid_sim_record *record)
{
    return (struct grid_sim_response *)(void *)((char *)record - offsetof(struct grid_sim_response, record));
}

/* A response that has not been submitted, with one reference; NULL: refusal says why. */
struct grid_sim_response *grid_sim_response_read(const struct grid_sim_options *options, struct grid_sim_store *store,
                                                 const json_t *root, struct grid_sim_refusal *refusal);
void grid_sim_response_unref(struct grid_sim_response *response);
json_t *grid_sim_response_object(const struct grid_sim_response *response);
/* How many events there are by now, from number 0 on; more come while it is running. */
uint64_t grid_sim_response_events(const struct grid_sim_response *response);
void grid_sim_response_event(const struct grid_sim_response *response, uint64_t number, struct evbuffer *out);
/* The output array: one message with the words written so far. */
json_t *grid_sim_response_output(const struct grid_sim_response *response);
json_t *grid_sim_response_usage(const struct grid_sim_response *response);

/* ---- stored.c ---- */

/* Ends a response that is running and tells its readers; without effect on another. */
void grid_sim_response_cancel(struct grid_sim_response *response);
/* The store lets a response go. */
void grid_sim_response_let_go(struct grid_sim_record *record);
/* Without effect on a reader of nothing. */
void grid_sim_reader_leave(struct grid_sim_reader *reader);

/* ---- items.c: what conversations and inputs are made of ---- */

/* A text or an array of items as an array of items with ids; NULL: refusal says why. NULL as input gives none. */
json_t *grid_sim_items_read(struct grid_sim_store *store, const json_t *input, const char *param,
                            struct grid_sim_refusal *refusal);
/* A page of a list, by the query's limit, order and after; NULL: refusal says why. */
struct grid_sim_page {
    size_t limit;
    bool ascending;
    char after[GRID_SIM_MAX_ID_BYTES]; /* "": from the start */
};
json_t *grid_sim_items_page(const json_t *items, const struct grid_sim_page *page);
/* The whole array, in its order, as a list. */
json_t *grid_sim_items_list(const json_t *items);
/* An array's index of the item with that id; its size when there is none. */
size_t grid_sim_items_find(const json_t *items, const char *id);
size_t grid_sim_items_bytes(const json_t *items);

/* ---- conversations.c ---- */

struct grid_sim_conversation {
    struct grid_sim_record record; /* first */
    int64_t created;
    json_t *metadata;
    json_t *items;
};

static inline struct grid_sim_conversation *grid_sim_conversation_of(struct grid_sim_record *record)
{
    return (struct grid_sim_conversation *)record;
}

/* Appends copies of both arrays' references, if it is held. */
void grid_sim_conversation_append(struct grid_sim_store *store, const char *id, json_t *input, json_t *answer);
void grid_sim_conversation_free(struct grid_sim_record *record);

#endif
