/*
 * sim.h - a simulated inference site: what its files share
 *
 * Story     main.c reads the options and owns the event loop. http.c (libevent's evhttp) receives a request, plays a
 *           settable failure and hands it as an exchange (exchange.h) to generate.c (Chat Completions, Completions),
 *           stored.c (Responses) or conversations.c. apis.c and responses.c turn a body into an engine request (prompt
 *           blocks by prompt.c, tokens to write) for queue.c, and the answer is written as queue.c says that a token is
 *           due. queue.c is the engine: a FIFO behind max_num_seqs, one prefill at a time, decoding at a fixed speed.
 *           cache.c is its prefix cache, store.c what is kept of responses and conversations (store.h).
 *           metrics.c prints the counters under vLLM's names and as JSON, and takes what tests set under /sim/.
 * Promise   One thread, one loop: nothing here needs a lock. Memory that cannot be had ends the process: this is a tool
 *           for tests and demos, and half an engine would only mislead. Prompt text is never logged, nor put in errors.
 * Not here  A tokenizer (4 bytes are one token), a model (answers are words from a fixed list), n > 1 and batches of
 *           prompts (one request is one sequence).
 */
#ifndef GRID_SIM_H
#define GRID_SIM_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <event2/http.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <time.h>

/* The whole verb; argv[0] is its name. Returns the exit status: 0 served until told to stop, 1 cannot bind, 2 usage. */
int grid_sim_main(int argc, char **argv);

enum {
    GRID_SIM_TOKEN_BYTES = 4,
    GRID_SIM_BLOCK_TOKENS = 16,
    GRID_SIM_BLOCK_BYTES = GRID_SIM_TOKEN_BYTES * GRID_SIM_BLOCK_TOKENS,
    GRID_SIM_MAX_MODELS = 16,
    GRID_SIM_DEFAULT_ANSWER_TOKENS = 32,
    GRID_SIM_MAX_ANSWER_TOKENS = 131072,
    GRID_SIM_MODEL_LEN = 131072, /* what /v1/models says; longer prompts are served too */
};

#define GRID_SIM_NS_PER_S 1000000000LL

struct grid_sim_options {
    const char *listen;
    const char *name;
    const char *models[GRID_SIM_MAX_MODELS];
    size_t model_count;
    double prefill_tps;
    double decode_tps;
    uint64_t max_num_seqs;
    uint64_t cache_blocks;
    uint64_t store_count;
    uint64_t store_bytes;
    uint64_t seed;
};

static inline void *grid_sim_alloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        abort();
    return memory;
}

static inline int64_t grid_sim_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * GRID_SIM_NS_PER_S + now.tv_nsec;
}

/* ---- cache.c: block hashes with least-recently-used eviction ---- */

struct grid_sim_cache;

/* capacity: blocks, at least 1. Never returns NULL. */
struct grid_sim_cache *grid_sim_cache_new(size_t capacity);
void grid_sim_cache_free(struct grid_sim_cache *cache);
void grid_sim_cache_clear(struct grid_sim_cache *cache);
size_t grid_sim_cache_count(const struct grid_sim_cache *cache);
/* How many of the first count blocks are held, without a gap; these become the most recently used. */
size_t grid_sim_cache_match(struct grid_sim_cache *cache, const uint64_t *blocks, size_t count);
/* Holds all blocks; the end of a prompt is evicted before its start. */
void grid_sim_cache_insert(struct grid_sim_cache *cache, const uint64_t *blocks, size_t count);

/* ---- queue.c: the engine ---- */

enum grid_sim_stage {
    GRID_SIM_NEW,
    GRID_SIM_WAITING,
    GRID_SIM_ADMITTED, /* has a slot, its prefill has not started */
    GRID_SIM_PREFILL,
    GRID_SIM_DECODE,
    GRID_SIM_DONE,
};

struct grid_sim_queue;
struct grid_sim_seq;

/* What the engine tells whoever submitted a sequence. */
struct grid_sim_seq_ops {
    bool (*ready)(struct grid_sim_seq *seq); /* false: the reader is far behind, ask again a token later */
    void (*token)(struct grid_sim_seq *seq,
                  bool last);                   /* token number seq->written - 1 is due now; must not free seq */
    void (*finished)(struct grid_sim_seq *seq); /* after the last token; the engine has let go, may free seq */
};

/* One request in the engine. The submitter fills the first part and owns the memory; queue.c owns the rest. */
struct grid_sim_seq {
    const struct grid_sim_seq_ops *ops;
    uint64_t *blocks; /* chained hashes of the prompt's full blocks */
    size_t block_count;
    uint64_t prompt_tokens;
    uint64_t answer_tokens;
    bool cut; /* the answer ends because of the caller's limit */

    enum grid_sim_stage stage;
    uint64_t cached_tokens; /* valid from GRID_SIM_PREFILL on */
    uint64_t written;
    size_t held_blocks;
    int64_t first_token_ns;
    struct event timer;
    struct grid_sim_queue *queue;
    TAILQ_ENTRY(grid_sim_seq) link;
};

struct grid_sim_stats {
    uint64_t finished_stop;
    uint64_t finished_length;
    uint64_t aborted;
    uint64_t prompt_tokens; /* of sequences whose prefill started, as the prefix cache's queries */
    uint64_t cached_tokens;
    uint64_t generation_tokens;
};

TAILQ_HEAD(grid_sim_seq_list, grid_sim_seq);

struct grid_sim_queue {
    struct event_base *base;
    struct grid_sim_cache *cache;
    const struct grid_sim_options *options;
    struct grid_sim_seq_list waiting;
    struct grid_sim_seq_list admitted;
    struct grid_sim_seq *prefilling;
    size_t waiting_count;
    size_t running_count;
    size_t running_blocks;
    struct grid_sim_stats stats;
};

void grid_sim_queue_init(struct grid_sim_queue *queue, struct event_base *base, struct grid_sim_cache *cache,
                         const struct grid_sim_options *options);
void grid_sim_queue_submit(struct grid_sim_queue *queue, struct grid_sim_seq *seq);
/* Takes a sequence out at any stage and frees its slot; without effect on one that is not in the engine. */
void grid_sim_queue_abort(struct grid_sim_seq *seq);

/* ---- apis.c: bodies in, bodies and events out ---- */

enum grid_sim_api {
    GRID_SIM_CHAT,
    GRID_SIM_COMPLETIONS,
};

/* What a body asks for. */
struct grid_sim_call {
    enum grid_sim_api api;
    bool stream;
    bool include_usage;
    uint64_t words_seed; /* from the prompt and --seed: the same prompt gets the same words */
    int64_t created;
    char id[40];
    char *model_json; /* the model's name as a JSON string; freed by grid_sim_call_clear */
};

struct grid_sim_refusal {
    int status;
    const char *type;
    const char *param; /* NULL: none */
    char message[256];
};

/* Fills refusal; always false, so that it can be returned. */
__attribute__((format(printf, 5, 6))) bool grid_sim_refuse(struct grid_sim_refusal *refusal, int status,
                                                           const char *type, const char *param, const char *format,
                                                           ...);
/* Any JSON value, the caller's; NULL: refusal says why. */
json_t *grid_sim_body_parse(const char *body, size_t body_bytes, struct grid_sim_refusal *refusal);
/* The served model of that name, the first one when there is none; NULL: refusal says why. */
const char *grid_sim_model_pick(const struct grid_sim_options *options, const json_t *model,
                                struct grid_sim_refusal *refusal);
/* Without a limit an answer ends by itself; with one it is exactly as long as the limit. name: of the field. */
bool grid_sim_length_read(const json_t *limit, const char *name, struct grid_sim_seq *seq,
                          struct grid_sim_refusal *refusal);

/* Fills call and the submitter's part of seq. False: refusal says why, nothing to clear. */
bool grid_sim_call_read(const struct grid_sim_options *options, enum grid_sim_api api, const char *body,
                        size_t body_bytes, struct grid_sim_call *call, struct grid_sim_seq *seq,
                        struct grid_sim_refusal *refusal);
void grid_sim_call_clear(struct grid_sim_call *call, struct grid_sim_seq *seq);

/* Event texts, "data: ...\n\n" each, appended to out. */
void grid_sim_call_role_event(const struct grid_sim_call *call, struct evbuffer *out);
void grid_sim_call_token_event(const struct grid_sim_call *call, const struct grid_sim_seq *seq, bool last,
                               struct evbuffer *out);
void grid_sim_call_usage_event(const struct grid_sim_call *call, const struct grid_sim_seq *seq, struct evbuffer *out);
/* The whole answer of a call without stream. */
void grid_sim_call_answer(const struct grid_sim_call *call, const struct grid_sim_seq *seq, struct evbuffer *out);
/* Compact JSON; takes the value over, which must not be NULL. */
void grid_sim_json_add(struct evbuffer *out, json_t *value);
/* OpenAI's error object. param may be NULL. */
void grid_sim_error_body(int status, const char *type, const char *param, const char *message, struct evbuffer *out);
/* XXH64, seed 0, of the bytes where they lie. */
uint64_t grid_sim_body_hash(struct evbuffer *body);
void grid_sim_models_body(const struct grid_sim_options *options, int64_t created, struct evbuffer *out);

/* A settable failure, from /sim/faults or from the header x-sim-fault. */
struct grid_sim_fault {
    bool set;
    int status; /* 0: no status of its own */
    char *body; /* NULL: an error object; owned */
    char retry_after[32];
    char path[128]; /* empty: every POST outside /sim; else requests of any method to just this path */
    int64_t delay_ms;
    bool reset;
    int64_t drop_after_events; /* -1: no drop */
    int64_t times;             /* requests left to fail; -1: until cleared */
};

struct grid_sim_store;

struct grid_sim_server {
    const struct grid_sim_options *options;
    struct event_base *base;
    struct grid_sim_queue queue;
    struct grid_sim_store *store;
    struct grid_sim_fault fault;
    double synthetic_waiting;
    uint64_t received; /* POSTs outside /sim */
    double started_s;  /* wall clock */
};

void grid_sim_http_attach(struct grid_sim_server *server, struct evhttp *http);

/* ---- metrics.c: the counters, as text for Prometheus and as JSON; what /sim/ sets ---- */

enum grid_sim_control {
    GRID_SIM_CONTROL_DONE, /* the state is the answer */
    GRID_SIM_CONTROL_BAD,
    GRID_SIM_CONTROL_UNKNOWN,
};

/* All but base and queue, which the caller sets up. */
void grid_sim_server_init(struct grid_sim_server *server, const struct grid_sim_options *options);
/* verb: the path behind /sim/. */
enum grid_sim_control grid_sim_control(struct grid_sim_server *server, enum evhttp_cmd_type method, const char *verb,
                                       struct evbuffer *body);

#define GRID_SIM_NO_FAULT ((struct grid_sim_fault){.drop_after_events = -1, .times = -1})

/* False: a field is wrong, nothing to free. On success the caller owns fault->body. root may be NULL. */
bool grid_sim_fault_read(const json_t *root, struct grid_sim_fault *fault);
/* The same from a header: "status=503,retry_after=2", "reset", "delay=500", "drop=3". */
bool grid_sim_fault_read_header(const char *text, struct grid_sim_fault *fault);

/* ---- http.c: the server ---- */
void grid_sim_fault_clear(struct grid_sim_server *server);

void grid_sim_metrics_text(const struct grid_sim_server *server, struct evbuffer *out);
void grid_sim_metrics_state(const struct grid_sim_server *server, struct evbuffer *out);

#endif
