/*
 * replay.c - the verb `replay`: the core, driven by a script of JSON Lines
 *
 * Story     One object in, one object out, in order, flushed after each line. The clock is virtual, the seeds are
 *           given, so two runs print the same. replay_load.c, replay_request.c and replay_tag.c hold the operations.
 * Promise   A line that is not understood answers {"ok":false,"error":{…}} and changes nothing, the clock included.
 *           No text of a body gets into an error.
 * Not here  Anything that listens or sends.
 */
#include "cli.h"
#include "query.h"
#include "replay.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A body of 64 MiB as base64 with all that stands around it fits well. */
#define MAX_OUT_BYTES ((size_t)1 << 30)
#define KEEP_OUT_BYTES ((size_t)1 << 20) /* an output buffer that grew over this is given back */

static const char usage[] =
    "usage: grid-gateway replay [--seed N] [FILE]\n"
    "\n"
    "Replays a history through the routing core, on a virtual clock. Reads JSON Lines from FILE or\n"
    "standard input and answers each object with one object. Nothing listens, nothing is sent.\n"
    "\n"
    "  --seed N   fixes the block hash and the exploration draw (default 0)\n"
    "  -h, --help\n"
    "\n"
    "The clock starts at 0 ms and moves to \"at\" when a line has it. Operations (\"op\"):\n"
    "  load      plugin | plugin_text, serving | serving_text, tag_keys_hex, max_body_bytes\n"
    "  signal    cluster, depth [, stamp]                one queue depth\n"
    "  request   id, method, path, headers, body | body_b64 [, chunk, cluster, peek]   the decision\n"
    "  answer    id, status [, headers, body | body_b64, chunk]    the site answered: what was learned\n"
    "  abandon   id                                      the client went away\n"
    "  keys      path, headers, body | body_b64 [, chunk]          the keys of a body\n"
    "  runs      path, headers, body | body_b64          how much of it each cluster holds\n"
    "  metrics                                           every counter\n"
    "  tag       kind, site, cluster, id                 an id as it leaves the gateway, signed\n"
    "  untag     id_text                                 what the gateway makes of it when it comes back\n"
    "\n"
    "Example (history.jsonl)\n"
    "  {\"op\":\"load\",\"serving_text\":\"{local_site: east, window_secs: 60, load_window_ms: 30000,"
    " peers: [],\n"
    "    candidates: [{kind: inference_model, name: llama, site: east, cluster: pool-east}]}\"}\n"
    "  {\"op\":\"signal\",\"at\":1000,\"cluster\":\"pool-east\",\"depth\":2}\n"
    "  {\"op\":\"request\",\"id\":\"r1\",\"path\":\"/v1/chat/completions\",\"headers\":{\"x-model\":\"llama\"},\n"
    "    \"body\":\"{\\\"messages\\\":[{\\\"role\\\":\\\"user\\\",\\\"content\\\":\\\"hi\\\"}]}\"}\n"
    "  {\"op\":\"answer\",\"at\":1500,\"id\":\"r1\",\"status\":200}\n"
    "  {\"op\":\"metrics\"}\n"
    "(each object on one line; two are broken here to fit) and then\n"
    "  grid-gateway replay history.jsonl\n"
    "\n"
    "Exit status: 0 all lines understood, 1 a line was refused or the file cannot be read, 2 usage.\n";

/* ---- what operations use ------------------------------------------------------------------------------------- */

bool grid_replay_refuse(struct grid_replay *replay, const char *field, const char *format, ...)
{
    va_list args;

    (void)snprintf(replay->error_field, sizeof replay->error_field, "%s", field);
    va_start(args, format);
    (void)vsnprintf(replay->error_message, sizeof replay->error_message, format, args);
    va_end(args);
    return false;
}

bool grid_replay_text(struct grid_replay *replay, json_t *line, const char *name, bool required, struct grid_str *out)
{
    json_t *value = json_object_get(line, name);

    if (value == NULL) {
        return required ? grid_replay_refuse(replay, name, "is missing") : true;
    }
    if (!json_is_string(value)) {
        return grid_replay_refuse(replay, name, "is not text");
    }
    *out = (struct grid_str){json_string_value(value), json_string_length(value)};
    return true;
}

bool grid_replay_whole(struct grid_replay *replay, json_t *line, const char *name, bool required, uint64_t *out)
{
    const double too_much = 9007199254740992.0; /* 2^53: doubles count one by one up to here */
    json_t *value = json_object_get(line, name);

    if (value == NULL) {
        return required ? grid_replay_refuse(replay, name, "is missing") : true;
    }
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
        return true;
    }
    if (json_is_real(value)) {
        double real = json_real_value(value);
        if (real >= 0 && real < too_much && !(real < floor(real)) && !(real > floor(real))) {
            *out = (uint64_t)real;
            return true;
        }
    }
    return grid_replay_refuse(replay, name, "is not a whole number of 0 or more");
}

bool grid_replay_flag(struct grid_replay *replay, json_t *line, const char *name, bool *out)
{
    json_t *value = json_object_get(line, name);

    if (value != NULL && !json_is_boolean(value)) {
        return grid_replay_refuse(replay, name, "is neither true nor false");
    }
    *out = value != NULL && json_is_true(value);
    return true;
}

bool grid_replay_order(struct grid_replay *replay)
{
    if (!replay->stale) {
        return true;
    }
    if (grid_router_refresh(replay->router, replay->now_ms) != GRID_OK) {
        return grid_replay_refuse(replay, "", "out of memory");
    }
    replay->stale = false;
    return true;
}

/* ---- metrics ------------------------------------------------------------------------------------------------- */

struct families {
    struct grid_buf *out;
    const char *family; /* the one that is being written; static text of the core */
    bool open;          /* its object is not closed yet */
};

static void close_family(struct families *families)
{
    if (families->open) {
        grid_buf_puts(families->out, "}");
    }
    families->open = false;
}

static void put_series(const struct grid_series *series, void *ctx)
{
    struct families *families = ctx;
    bool first = families->family == NULL || strcmp(families->family, series->family) != 0;
    const char *key = series->only_value != NULL ? series->only_value : series->label;

    if (first) {
        close_family(families);
        grid_buf_puts(families->out, families->family == NULL ? "" : ",");
        grid_buf_json(families->out, grid_query_str(series->family));
        families->family = series->family;
        families->open = series->n_labels != 0;
        grid_buf_puts(families->out, families->open ? ":{" : ":");
    }
    if (families->open) {
        grid_buf_puts(families->out, first ? "" : ",");
        grid_buf_json(families->out, grid_query_str(key));
        grid_buf_puts(families->out, ":");
    }
    grid_buf_printf(families->out, "%llu", (unsigned long long)series->value);
}

static bool op_metrics(struct grid_replay *replay, json_t *line)
{
    struct families families = {.out = &replay->out};

    (void)line;
    grid_buf_puts(&replay->out, "{");
    grid_router_counters(replay->router, put_series, &families);
    close_family(&families);
    grid_buf_puts(&replay->out, "}");
    return true;
}

/* ---- lines --------------------------------------------------------------------------------------------------- */

/* The operations, each with the fields that its line may have besides op and at. */
static const struct op {
    const char *name;
    bool (*run)(struct grid_replay *replay, json_t *line);
    const char *fields[10];
} ops[] = {
    {"load", grid_replay_load, {"plugin", "plugin_text", "serving", "serving_text", "tag_keys_hex", "max_body_bytes"}},
    {"signal", grid_replay_signal, {"cluster", "depth", "stamp"}},
    {"request",
     grid_replay_request,
     {"id", "method", "path", "headers", "body", "body_b64", "chunk", "cluster", "peek"}},
    {"answer", grid_replay_answer, {"id", "status", "headers", "body", "body_b64", "chunk"}},
    {"abandon", grid_replay_abandon, {"id"}},
    {"keys", grid_replay_keys, {"method", "path", "headers", "body", "body_b64", "chunk"}},
    {"runs", grid_replay_runs, {"method", "path", "headers", "body", "body_b64", "chunk"}},
    {"metrics", op_metrics, {NULL}},
    {"tag", grid_replay_tag, {"kind", "site", "cluster", "id"}},
    {"untag", grid_replay_untag, {"id_text"}},
};

static const struct op *find_op(struct grid_replay *replay, json_t *line)
{
    struct grid_str name = {"", 0};

    if (!grid_replay_text(replay, line, "op", true, &name)) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strlen(ops[i].name) == name.len && memcmp(ops[i].name, name.ptr, name.len) == 0) {
            return &ops[i];
        }
    }
    (void)grid_replay_refuse(replay, "op",
                             "is none of load, signal, request, answer, abandon, keys, runs, metrics, "
                             "tag, untag");
    return NULL;
}

static bool fields_known(struct grid_replay *replay, const struct op *op, json_t *line)
{
    const char *key;
    json_t *value;

    json_object_foreach(line, key, value)
    {
        bool known = strcmp(key, "op") == 0 || strcmp(key, "at") == 0;
        for (size_t i = 0; !known && i < sizeof op->fields / sizeof op->fields[0]; i++) {
            known = op->fields[i] != NULL && strcmp(op->fields[i], key) == 0;
        }
        if (!known) {
            return grid_replay_refuse(replay, key, "is no field of %s", op->name);
        }
    }
    return true;
}

static bool run_line(struct grid_replay *replay, json_t *line)
{
    uint64_t before = replay->now_ms, at = before;

    if (!json_is_object(line)) {
        return grid_replay_refuse(replay, "", "the line is not an object");
    }
    const struct op *op = find_op(replay, line);
    if (op == NULL || !fields_known(replay, op, line) || !grid_replay_whole(replay, line, "at", false, &at)) {
        return false;
    }
    if (at < before) {
        return grid_replay_refuse(replay, "at", "%llu ms is before the clock, which is at %llu ms",
                                  (unsigned long long)at, (unsigned long long)before);
    }
    replay->stale |= at != before;
    replay->now_ms = at;
    if (op->run(replay, line)) {
        return true;
    }
    replay->now_ms = before;
    replay->stale = true;
    return false;
}

/* Answers one line of text; false when the answer cannot be written. */
static bool answer_line(struct grid_replay *replay, const char *text, size_t len)
{
    json_error_t error;
    json_t *line = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    bool done;

    replay->out.len = 0;
    replay->out.failed = false;
    if (line == NULL) {
        /* jansson's own text quotes what stands near the place, which may be a prompt */
        done = grid_replay_refuse(replay, "", "the line is not JSON, or names a field twice (byte %d)", error.position);
    } else {
        done = run_line(replay, line);
    }
    json_decref(line);
    if (done && replay->out.failed) {
        done = grid_replay_refuse(replay, "", "out of memory for the answer");
        replay->out.failed = false;
    }
    if (!done) {
        replay->refused_any = true;
        replay->out.len = 0;
        grid_buf_puts(&replay->out, "{\"ok\":false,\"error\":{\"field\":");
        grid_buf_json(&replay->out, grid_query_str(replay->error_field));
        grid_buf_puts(&replay->out, ",\"message\":");
        grid_buf_json(&replay->out, grid_query_str(replay->error_message));
        grid_buf_puts(&replay->out, "}}");
    }
    grid_buf_puts(&replay->out, "\n");
    bool written = fwrite(replay->out.ptr, 1, replay->out.len, stdout) == replay->out.len;
    written = fflush(stdout) == 0 && written;
    if (replay->out.cap > KEEP_OUT_BYTES) {
        grid_buf_done(&replay->out);
        replay->out = (struct grid_buf){.limit = MAX_OUT_BYTES};
    }
    return written;
}

static int replay_file(struct grid_replay *replay, FILE *in)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t len;
    bool written = true;

    while (written && (len = getline(&text, &room, in)) != -1) {
        if (len > 0 && text[len - 1] == '\n') {
            len--;
        }
        written = answer_line(replay, text, (size_t)len);
    }
    free(text);
    if (!written) {
        fprintf(stderr, "grid-gateway replay: cannot write: %s\n", strerror(errno));
    } else if (ferror(in)) {
        fprintf(stderr, "grid-gateway replay: cannot read: %s\n", strerror(errno));
    }
    return written && !ferror(in) && !replay->refused_any ? GRID_EXIT_OK : GRID_EXIT_FAILED;
}

static bool read_seed(const char *text, uint64_t *out_seed)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) {
        fprintf(stderr, "grid-gateway replay: --seed takes a whole number of 0 or more\n");
        return false;
    }
    *out_seed = value;
    return true;
}

static int run_replay(uint64_t seed, FILE *in)
{
    struct grid_replay replay = {.stale = true, .out = {.limit = MAX_OUT_BYTES}};
    int status = GRID_EXIT_FAILED;

    if (grid_query_router(seed, &replay.router) != GRID_OK) {
        fprintf(stderr, "grid-gateway replay: out of memory\n");
    } else {
        status = replay_file(&replay, in);
    }
    grid_replay_free_requests(&replay);
    grid_router_free(replay.router);
    free(replay.sites);
    grid_buf_done(&replay.out);
    return status;
}

int grid_cmd_replay(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    uint64_t seed = 0;
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            return GRID_EXIT_OK;
        }
        if (option != 's' || !read_seed(optarg, &seed)) {
            fprintf(stderr, "Try 'grid-gateway replay --help'.\n");
            return GRID_EXIT_USAGE;
        }
    }
    if (argc - optind > 1) {
        fprintf(stderr, "grid-gateway replay: one FILE at most\nTry 'grid-gateway replay --help'.\n");
        return GRID_EXIT_USAGE;
    }
    if (optind == argc || strcmp(argv[optind], "-") == 0) {
        return run_replay(seed, stdin);
    }
    FILE *in = fopen(argv[optind], "re");
    if (in == NULL) {
        fprintf(stderr, "grid-gateway replay: %s: %s\n", argv[optind], strerror(errno));
        return GRID_EXIT_FAILED;
    }
    int status = run_replay(seed, in);
    fclose(in);
    return status;
}
