/*
 * grid.h - the public header of the core: hosts include this one
 *
 * Story     A host (the Envoy module, the command, a test) makes one router, loads two configurations into it, feeds
 *           it queue depths, and asks it about each request: grid_ticket_new at the head, grid_ticket_body when the
 *           body is complete, grid_route for the decision, grid_learn when the answer's headers arrive.
 * Promise   The core reads no file, clock, environment or random source and writes no log: all of it comes in as
 *           arguments. It never blocks beyond a short mutex and never calls the host back, save its allocator.
 *           Trouble with a body is never an error: it is a reason, and the request goes on by load.
 * Threads   A router may be used from any number of threads at once. A ticket belongs to one thread at a time.
 * Text      Every grid_str is a view. What a ticket returns lives as long as the ticket; what a caller passes in is
 *           not kept after the call returns unless the comment says so.
 * Not here  Text, memory and refusals (base.h), the serving config (serving.h): both come in through here. Envoy
 *           (envoy/), YAML and files (cli/).
 */
#ifndef GRID_GRID_H
#define GRID_GRID_H

#include "grid/serving.h"

/* Constants that no setting changes (behaviour.md P). */
#define GRID_BLOCK_BYTES 256u
#define GRID_MAX_KEYS 512u
#define GRID_MIN_RUN 4u        /* a run under this never counts */
#define GRID_FLOOR_RUN 32u     /* a run of this is always long enough */
#define GRID_TOKENS_A_BLOCK 64 /* 256 bytes at 4 bytes a token */
#define GRID_MAX_CANDIDATES 1024u
#define GRID_MAX_NAME_BYTES 256u
#define GRID_MAX_ROUTES 64u          /* clusters that grid_site_route.clusters may name */
#define GRID_MAX_CAPACITY (1u << 26) /* entries a cluster: 2 GiB of table */
#define GRID_DEFAULT_MAX_BODY_BYTES (64ull << 20)
#define GRID_MIN_TAG_KEY_BYTES 32u
#define GRID_MAX_TAG_KEYS 8u

/* ---- settings ---------------------------------------------------------------------------------------------- */

/* The `grid_site_route` block (behaviour.md J.1, design.md 7). */
struct grid_settings {
    char model_header[GRID_MAX_NAME_BYTES + 1]; /* lower case; "x-model" */
    bool enabled;
    bool spread_ties; /* of equal queues the site with the fewest open requests comes first */
    double threshold, exploration, prefill_tokens_per_second, queued_request_seconds;
    uint64_t capacity; /* entries a cluster */
    uint64_t ttl_ms;
    size_t n_tag_key_paths;
    char tag_key_paths[8][1024];
    bool has_clusters; /* only the clusters named here have a route */
    size_t n_clusters;
    char clusters[GRID_MAX_ROUTES][GRID_MAX_NAME_BYTES + 1];
};

/* `words` says that the text came from YAML: a number, true or false where text is wanted is taken as its text. */
enum grid_status grid_settings_parse(struct grid_str json, bool words, struct grid_settings *out_settings,
                                     struct grid_errors *errors) GRID_MUST_USE;
void grid_settings_defaults(struct grid_settings *out_settings);

/* The fields that grid_settings_parse and grid_serving_parse read, in order, one call each: for help and documents.
 * `path` as in refusals, "[]" for any element of a list; `fallback` is the default, NULL when there is none. */
struct grid_field_row {
    const char *path, *fallback, *accepts;
    bool required;
};
typedef void grid_field_teller(void *context, const struct grid_field_row *row);
void grid_settings_describe(grid_field_teller *tell, void *context);
void grid_serving_describe(grid_field_teller *tell, void *context);

/* ---- the router ---------------------------------------------------------------------------------------------- */

struct grid_router;

struct grid_options {
    const struct grid_alloc *alloc; /* kept; NULL: malloc */
    uint64_t hash_seed;             /* seeds the block hash; random in a gateway, fixed in replay */
    uint64_t dice_seed;             /* starts the exploration draw */
};

enum grid_status grid_router_new(const struct grid_options *options, struct grid_router **out_router) GRID_MUST_USE;
void grid_router_free(struct grid_router *router); /* NULL is fine; no ticket may be alive */

/* What to change; absent parts ({NULL,0}, 0) keep their present value. Texts are JSON. */
struct grid_load {
    struct grid_str plugin;
    struct grid_str serving;
    bool words; /* the texts came from YAML */
    uint64_t max_body_bytes;
    bool has_tag_keys;               /* tag_keys replace those in force; none: ids get no mac */
    const struct grid_str *tag_keys; /* as read from their files; the first signs, all verify. Wiped by the caller. */
    size_t n_tag_keys;
};

/* Validates all of it, then swaps it in as one step; on failure the old configuration stays in force and *errors says
 * why; *out_text says of which text: 1 plugin, 2 serving, 3 the tag keys (may be NULL; untouched on success).
 * Any thread, one at a time inside. Resizes LRUs, forgets clusters that no candidate names (behaviour.md D.3, M). */
enum grid_status grid_router_load(struct grid_router *router, const struct grid_load *load, uint64_t now_ms,
                                  struct grid_errors *errors, int *out_text) GRID_MUST_USE;

/* One queue depth of a cluster, stamped. Ignored when not finite, below 0, not newer than the newest held, or when no
 * candidate names the cluster. True when it was kept. The order of candidates changes at the next refresh. */
bool grid_signal(struct grid_router *router, struct grid_str cluster, double depth, uint64_t stamp_ms, uint64_t now_ms);

/* Re-orders the candidates by their windowed worst depth at now_ms (behaviour.md E.1, I.3). The host calls it after
 * signals came in and at least once a second; a request never sorts. */
enum grid_status grid_router_refresh(struct grid_router *router, uint64_t now_ms) GRID_MUST_USE;

/* Drops all entries of a cluster: its engine restarted (behaviour.md O.48). */
void grid_router_forget_cluster(struct grid_router *router, struct grid_str cluster);

/* ---- one request --------------------------------------------------------------------------------------------- */

enum grid_api { GRID_API_NONE, GRID_API_CHAT, GRID_API_COMPLETIONS, GRID_API_MESSAGES, GRID_API_RESPONSES };
const char *grid_api_name(enum grid_api api); /* "none", "chat", "completions", "messages", "responses" */

/* Why a request has no keys (replay.md). One table: enum, name. */
#define GRID_REASONS(X)                                                                                                \
    X(NONE, "none")                           /* it has keys */                                                        \
    X(NOT_JSON, "not_json")                   /* syntax, a byte-order mark, text behind the value */                   \
    X(EMPTY, "empty")                         /* no body */                                                            \
    X(NOT_OBJECT, "not_object")               /* the top level is no object */                                         \
    X(MISSING_FIELD, "missing_field")         /* a required field is absent or null */                                 \
    X(BAD_TYPE, "bad_type")                   /* a field of the wrong type */                                          \
    X(BAD_UTF8, "bad_utf8")                   /* invalid UTF-8, or a lone surrogate in a decoded field */              \
    X(DUPLICATE_FIELD, "duplicate_field")     /* a field that is read, given twice */                                  \
    X(UNKNOWN_PART, "unknown_part")           /* a part, item, block or tool call of unknown type */                   \
    X(TOO_DEEP, "too_deep")                   /* over 128 levels in a canonical value */                               \
    X(TOKEN_ARRAY, "token_array")             /* a prompt of token ids */                                              \
    X(MANY_PROMPTS, "many_prompts")           /* a list of no or several prompts */                                    \
    X(PROMPT_TEMPLATE, "prompt_template")     /* a stored prompt whose text is unknown here */                         \
    X(STORED_STATE, "stored_state")           /* names a stored response or conversation */                            \
    X(TOO_SHORT, "too_short")                 /* fills no block */                                                     \
    X(NOT_A_PROMPT_PATH, "not_a_prompt_path") /* the path carries no prompt */                                         \
    X(METHOD, "method")                       /* not POST */                                                           \
    X(DISABLED, "disabled")                   /* affinity is off */                                                    \
    X(BODY_TOO_LARGE, "body_too_large")       /* over max_body_bytes */                                                \
    X(NO_MODEL, "no_model")                   /* no model to key under */
enum grid_reason {
#define GRID_REASON_ENUM(id, name) GRID_REASON_##id,
    GRID_REASONS(GRID_REASON_ENUM)
#undef GRID_REASON_ENUM
        GRID_N_REASONS
};
const char *grid_reason_name(enum grid_reason reason);

/* What became of a request in the affinity metric (behaviour.md K). One table: enum, metric label, words. */
#define GRID_OUTCOMES(X)                                                                                               \
    X(STICKY, "sticky", "went to the least queued site that holds its longest run")                                    \
    X(NO_MATCH, "no_match", "no admitted site holds enough of it; the least queued site was taken")                    \
    X(LOAD_OVERRIDE, "load_override", "the holder's queue is deeper than the match is worth")                          \
    X(EXPLORATION, "exploration", "drawn to go by load, so that a second site learns the prompt")                      \
    X(NOT_APPLICABLE, "not_applicable", "it has no keys; it went by load")
enum grid_outcome {
#define GRID_OUTCOME_ENUM(id, name, words) GRID_OUTCOME_##id,
    GRID_OUTCOMES(GRID_OUTCOME_ENUM)
#undef GRID_OUTCOME_ENUM
        GRID_N_OUTCOMES,
    GRID_OUTCOME_UNCOUNTED = GRID_N_OUTCOMES /* one admitted site, affinity off, forced, refused */
};
const char *grid_outcome_name(enum grid_outcome outcome); /* "" for uncounted */
const char *grid_outcome_words(enum grid_outcome outcome);

/* The head of a request as the host has it. `path` with its query. Names of headers in lower case. */
struct grid_head {
    struct grid_str method, path;
    const struct grid_header *headers;
    size_t n_headers;
    bool upgrade; /* an upgrade or extended CONNECT */
    bool no_body; /* the head ends the request */
};

/* What the host does with the body before grid_route. */
enum grid_want {
    GRID_WANT_NOTHING, /* decide now, stream the body through */
    GRID_WANT_BODY,    /* hold it until its end or until it passes grid_ticket_max_body, then grid_ticket_body */
};

struct grid_ticket;

/* Starts a request: takes the present configuration and order of sites, reads the head. The caller owns the ticket and
 * frees it at the end of the stream; a ticket freed after grid_route and before grid_learn is a client that went away
 * (its mark in the index lapses by itself). Fails only for want of memory. */
enum grid_status grid_ticket_new(struct grid_router *router, const struct grid_head *head,
                                 struct grid_ticket **out_ticket) GRID_MUST_USE;
void grid_ticket_free(struct grid_ticket *ticket); /* NULL is fine */
enum grid_want grid_ticket_want(const struct grid_ticket *ticket);
uint64_t grid_ticket_max_body(const struct grid_ticket *ticket);

/* The body, as slices that stay valid during the call; nothing of it is kept. At most once, before grid_route.
 * cut: it passed the limit and this is only its beginning: no keys, but a model already seen counts. */
void grid_ticket_body(struct grid_ticket *ticket, const struct grid_str *slices, size_t n_slices, bool cut);

/* A ticket of a request whose keys are ready, at most GRID_MAX_KEYS of them: as grid_ticket_new and grid_ticket_body
 * would have made it of a chat body of that model with these keys. The keys are copied; two models must not share one.
 * For simulations and recorded streams. Next: grid_route. */
enum grid_status grid_ticket_of_keys(struct grid_router *router, struct grid_str model, const uint64_t *keys, size_t n,
                                     struct grid_ticket **out_ticket) GRID_MUST_USE;

/* Health of a candidate's cluster, as the proxy knows it. */
enum grid_health {
    GRID_HEALTHY,
    GRID_UNHEALTHY, /* known, no healthy host: no candidate while a healthy one is left */
    GRID_UNKNOWN,   /* the proxy has no such cluster (yet): admits nothing */
};

/* One candidate of the request's model, in the snapshot's order. */
struct grid_candidate {
    struct grid_str site, cluster;
    bool admitted;           /* by the configuration */
    enum grid_health health; /* the host may set it before grid_route; GRID_HEALTHY at first */
    double depth;            /* windowed worst; INFINITY when unmeasured */
    uint32_t run;            /* leading blocks held, filled by grid_route */
    uint64_t open;           /* requests that this router sent there and that have not ended */
};

/* The candidates of the model that the ticket has now read (empty without one). Owned by the ticket. */
struct grid_candidate *grid_ticket_candidates(struct grid_ticket *ticket, size_t *out_n);

enum grid_action { GRID_FORWARD, GRID_REPLY };

/* An answer made here. Views live as long as the ticket. */
struct grid_reply {
    int status;
    struct grid_header headers[4];
    size_t n_headers;
    struct grid_str body;
    const char *code; /* "model_not_found": for logs */
};

struct grid_decision {
    enum grid_action action;
    struct grid_reply reply;       /* GRID_REPLY */
    struct grid_str site, cluster; /* GRID_FORWARD */
    struct grid_str path; /* GRID_FORWARD: to send in place of the request's, query and all; {NULL,0}: as it is */
    bool pinned;          /* by a tagged id: affinity had no say */
    enum grid_api api;
    struct grid_str model; /* {NULL,0}: none was named */
    struct grid_str alias; /* GRID_FORWARD: what the cluster calls that model; {NULL,0}: the same */
    /* GRID_FORWARD: to send in place of the request's headers of that name; without a name: as they are, without a
     * value: none of them. */
    struct grid_header model_header;
    enum grid_outcome outcome;
    enum grid_reason reason;        /* GRID_REASON_NONE when keyed */
    uint32_t blocks;                /* keys of the request */
    uint32_t run;                   /* longest run among the candidates */
    double worth;                   /* of the match, in queued requests; NAN when no match qualified */
    double best_sticky, best_other; /* depths the gate compared; NAN when it was not asked */
};

struct grid_route_options {
    bool peek;              /* register and count nothing, never explore */
    struct grid_str forced; /* a cluster chosen elsewhere: skips admission, counts no outcome */
};

/* The decision, once a ticket; counts it and pends the keys at the chosen cluster. options may be NULL. */
void grid_route(struct grid_ticket *ticket, const struct grid_route_options *options, uint64_t now_ms,
                struct grid_decision *out_decision);

/* The decision again, for logs and the answer side. Before grid_route: action GRID_REPLY with status 0. */
const struct grid_decision *grid_ticket_decision(const struct grid_ticket *ticket);

/* Failover (behaviour.md O.43). How many other healthy candidates could take it as it was sent? And: go on to the best
 * of those, since the present one did not take it; false: none is left. Those that were tried or cannot take it are
 * GRID_UNKNOWN then; update only the others. */
size_t grid_ticket_movable(const struct grid_ticket *ticket);
bool grid_ticket_move(struct grid_ticket *ticket, uint64_t now_ms);

/* What changes in the body: `bytes` bytes at `offset` (as sent) become `text`. Ids lose their tags, the model gets its
 * name at the cluster. In order, apart; at most GRID_MAX_EDITS. Only of a request that goes on. *out_n is 0 when the
 * body goes on as it came. Owned by the ticket. */
#define GRID_MAX_EDITS 3u
struct grid_edit {
    size_t offset, bytes;
    struct grid_str text;
};
const struct grid_edit *grid_ticket_edits(const struct grid_ticket *ticket, size_t *out_n);

/* Whether ids in the answer are to be tagged: the site must not be asked for a coded answer. After grid_route. */
bool grid_ticket_tags(const struct grid_ticket *ticket);

/* The request's keys (tests, replay, explain only: never log them). */
const uint64_t *grid_ticket_keys(const struct grid_ticket *ticket, size_t *out_n);

/* ---- the answer ---------------------------------------------------------------------------------------------- */

/* Who made the answer (behaviour.md O.13). */
enum grid_answer {
    GRID_FROM_SITE,    /* the status is the site's */
    GRID_SITE_FAILED,  /* made by the gateway, the site's doing: drop */
    GRID_NOT_THE_SITE, /* made by the gateway, not the site's doing: withdraw */
};

struct grid_learned {
    uint32_t confirmed, dropped;
};

/* Settles the ticket at the answer's headers: 2xx confirms, 429 and 5xx drop, the rest withdraws. The first call
 * counts, later ones do nothing. out_learned may be NULL. */
void grid_learn(struct grid_ticket *ticket, int status, enum grid_answer answer, uint64_t now_ms,
                struct grid_learned *out_learned);

/* Begins the answer's body, after grid_learn. True: ids in it get their tag, so its length is not known beforehand and
 * each piece goes through grid_answer_body. False: it passes untouched. Views may be {NULL,0}. */
bool grid_answer_begin(struct grid_ticket *ticket, int status, struct grid_str content_type,
                       struct grid_str content_encoding);
/* The next piece, as slices. True: it goes on exactly as it is, and `put` was not called. False: what was given to
 * `put`, in order, goes on in its place (nothing, when all of it is held back: at most the beginning of a tag). `last`:
 * no more comes. Bytes given to `put` are valid during that call. */
typedef void grid_put_fn(void *ctx, struct grid_str bytes);
bool grid_answer_body(struct grid_ticket *ticket, const struct grid_str *slices, size_t n_slices, bool last,
                      grid_put_fn *put, void *ctx);
/* How many ids got their tag so far. */
uint64_t grid_answer_tagged(const struct grid_ticket *ticket);

/* Begins to look at the answer's body, after grid_learn: when its tokens come, how many of the prompt's were cached.
 * `asked_ns`: when the request was whole, by any clock that never goes back. False: there is nothing to see. Then each
 * piece as it passes, and the end of one that came whole. */
bool grid_watch_begin(struct grid_ticket *ticket, int status, struct grid_str content_type,
                      struct grid_str content_encoding, uint64_t asked_ns);
void grid_watch_piece(struct grid_ticket *ticket, const struct grid_str *slices, size_t n_slices, uint64_t now_ns);
void grid_watch_end(struct grid_ticket *ticket);
/* What the engine said so far. */
struct grid_watched {
    bool has_prompt, has_cached, has_output;
    uint64_t prompt_tokens, cached_tokens, output_tokens;
};
void grid_watch_usage(const struct grid_ticket *ticket, struct grid_watched *out_watched);

/* Counts time that the host spent on a request that was decided, or on a site's answer. */
enum grid_side { GRID_SIDE_REQUEST, GRID_SIDE_RESPONSE };
void grid_count_time(struct grid_router *router, enum grid_side side, uint64_t ns);

/* The error answer in the API's own shape for a failure that the proxy made (behaviour.md O.41): status 400, 404, 408,
 * 413, 431, 500, 502, 503 or 504. ticket may be NULL (then OpenAI's shape); *out_reply's views live as long as the
 * ticket, or for ever when it is NULL. `overloaded`: a 503 of the gateway's own limits. */
void grid_failure_reply(struct grid_ticket *ticket, int status, bool overloaded, struct grid_reply *out_reply);

/* ---- tags by hand -------------------------------------------------------------------------------------------- */

enum grid_id_kind { GRID_ID_RESPONSE, GRID_ID_CONVERSATION };

/* Writes the tagged id for any site (at most 63 bytes) and cluster under the router's first key. */
void grid_router_tag(struct grid_router *router, enum grid_id_kind kind, struct grid_str site, struct grid_str cluster,
                     struct grid_str id, struct grid_buf *out);

/* What a tagged id says. Views point into the text and, the cluster, into *out_opened. */
struct grid_opened {
    bool accept;                /* well-formed, genuine under a key, and its cluster is in the serving config */
    const char *reason;         /* NULL when accepted: "not_tagged", "bad_mac", "unknown_cluster" */
    struct grid_str site, mark; /* of a well-formed one */
    struct grid_str rest;       /* the id without prefix and tag */
    enum grid_id_kind kind;
    char cluster[GRID_MAX_NAME_BYTES + 1]; /* NUL-terminated; "" when not known */
};
void grid_router_untag(struct grid_router *router, struct grid_str text, struct grid_opened *out_opened);

/* Whether these are the keys in force, in their order: a host that reads key files again need not keep what it read. */
bool grid_router_same_tag_keys(struct grid_router *router, const struct grid_str *keys, size_t n);

/* Overwrites memory that held a secret; not removed by an optimiser. */
void grid_wipe(void *memory, size_t bytes);

/* ---- recordings ---------------------------------------------------------------------------------------------- */

/* Keys of a recording (behaviour.md O.45): a router made with this hash_seed keys a body as every holder of the secret
 * does (at least GRID_MIN_TAG_KEY_BYTES of it), and grid_record_keys turns each key into the value that is written:
 * HMAC-SHA256 under the secret. Equal heads of prompts still give equal heads of values. */
uint64_t grid_record_seed(struct grid_str secret);
void grid_record_keys(struct grid_str secret, uint64_t *keys, size_t n);

/* One line of it, with its line feed: what `simulate` and `tune` read. Each begins with GRID_RECORD_HEAD. */
#define GRID_RECORD_HEAD "{\"timestamp\":"
#define GRID_RECORD_MAX_TOKENS 16777216u
struct grid_record {
    uint64_t at_ms;         /* arrival, from any start */
    uint64_t body_bytes;    /* stands for the prompt's tokens when prompt_tokens is 0 */
    uint64_t prompt_tokens; /* as the engine counted them; 0: unknown */
    bool has_output;
    uint64_t output_tokens;
    const uint64_t *values; /* of grid_record_keys */
    size_t n;
};
void grid_record_put(const struct grid_record *record, struct grid_buf *out);

/* Counts records of a host's recording. */
void grid_count_records(struct grid_router *router, uint64_t written, uint64_t dropped);

/* ---- a decision, explained (core/explain.c) ------------------------------------------------------------------- */

/* After grid_route, with `peek` when nothing is sent. */
struct grid_explained {
    struct grid_settings settings;
    struct grid_decision decision;
    bool conversation; /* it starts one */
    const struct grid_candidate *candidates;
    size_t n_candidates;
};

/* The candidates, with the runs that the decision had no need to look up (one site, a forced cluster, a site that
 * admits nothing). Owned by the ticket. */
struct grid_candidate *grid_explain_runs(struct grid_router *router, struct grid_ticket *ticket, uint64_t now_ms,
                                         size_t *out_n);
bool grid_explain_starts_conversation(struct grid_str path);
void grid_explain_why(const struct grid_explained *explained, struct grid_buf *out);
void grid_explain_flip(const struct grid_explained *explained, struct grid_buf *out); /* what would change it */
/* Did the gate compare the holder with another site? And: the holder's depth above which the request goes by load;
 * INFINITY when none would do it, NAN without a gate. */
bool grid_explain_gate_asked(const struct grid_decision *decision);
double grid_explain_flip_depth(const struct grid_decision *decision);
void grid_explain_depth(struct grid_buf *out, double depth); /* a number, or "unmeasured" */
/* One JSON object. Its parts, without a comma around: "api":..,"model":..,"keyed":..,"reason":.. (null where there is
 * none), and the list of candidates. */
void grid_explain_json(const struct grid_explained *explained, struct grid_buf *out);
void grid_explain_facts(struct grid_buf *out, const struct grid_decision *decision, size_t n_keys);
void grid_explain_candidates(struct grid_buf *out, const struct grid_candidate *candidates, size_t n);

/* ---- looking ------------------------------------------------------------------------------------------------- */

struct grid_site_view {
    char site[64], cluster[GRID_MAX_NAME_BYTES + 1];
    bool admitted; /* by at least one candidate */
    double depth;
    bool has_sample;
    uint64_t sample_age_ms;
    uint64_t entries, capacity, index_bytes;
};
/* Each cluster that a candidate names, in config order, up to cap; returns how many there are. */
size_t grid_router_sites(struct grid_router *router, uint64_t now_ms, struct grid_site_view *out, size_t cap);

/* What clusters call the models, as a JSON object: {"pool-east":{"llama":"meta-llama/Llama-3.1-8B"}}; only clusters
 * that have another name for some model. */
void grid_router_aliases(struct grid_router *router, struct grid_buf *out);

/* How many leading keys of the ticket the cluster holds now; 0 when no candidate names it (replay's `runs`). */
uint32_t grid_router_run(struct grid_router *router, const struct grid_ticket *ticket, struct grid_str cluster,
                         uint64_t now_ms);

/* Copies the settings now in force. */
void grid_router_settings(struct grid_router *router, struct grid_settings *out_settings);

/* Counters: one call a series, families together, names as on /metrics. Values only grow. label is the exposition
 * text between the braces ("outcome=\"sticky\"", or several joined by commas), "" for none; value is the last label's
 * bare value when there is just one. The callback is not called under a lock. */
struct grid_series {
    const char *family, *help;
    const char *label;      /* text between the braces */
    const char *only_value; /* value of the single label; NULL when there are none or several */
    const char *label_names[3];
    const char *label_values[3];
    size_t n_labels;
    uint64_t value;
};
typedef void grid_series_fn(const struct grid_series *series, void *ctx);
void grid_router_counters(struct grid_router *router, grid_series_fn *fn, void *ctx);

/* Counts what the host did: `result` of a reload, and a poll of a cluster's signals. */
enum grid_reload { GRID_RELOAD_APPLIED, GRID_RELOAD_REUSED, GRID_RELOAD_REJECTED, GRID_N_RELOADS };
void grid_count_reload(struct grid_router *router, enum grid_reload result);

/* The whole of /metrics: counters and gauges in Prometheus' text format. */
void grid_router_metrics(struct grid_router *router, uint64_t now_ms, struct grid_buf *out);

/* Finds the queue depth in an exposition (behaviour.md O.23, O.53), read as slices. metric empty: the first known name
 * that is present. On success *out_depth, and *out_stamp_ms when the sample carries one (else *out_has_stamp false).
 * False with a constant text in *out_why otherwise. */
struct grid_scrape {
    double depth;
    bool has_stamp;
    int64_t stamp_ms;
    bool has_start_time, has_counters;
    double start_time_seconds; /* process_start_time_seconds, when present */
    double counters;           /* sum of what an engine only counts up: less than before tells of a restart (O.48) */
    const char *why;           /* why there is no depth; NULL when there is one */
};
bool grid_scrape_depth(const struct grid_str *slices, size_t n_slices, const struct grid_serving_signals *how,
                       struct grid_scrape *out_scrape);

#endif
