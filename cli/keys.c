/*
 * keys.c - the verb `keys`: what of a request body is keyed
 *
 * Story     Reads a body from a file or standard input, lets the core key it as for a given path and model, and prints
 *           API, model, number of blocks, the reason when there are none, and the keys.
 * Promise   Keys are made under a fixed seed: they can be compared between two runs, never with a live gateway's.
 *           Lines of a trace hold values that need its secret (behaviour.md O.45), never those keys.
 *           Prints no text of the body.
 * Not here  Where the request would go (explain.c).
 */
#include "cli.h"
#include "files.h"
#include "query.h"
#include "tagkey.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: grid-gateway keys [--path P] [--model M] [--json] FILE|-\n"
    "       grid-gateway keys --trace-secret FILE [--at MS] [--output-tokens N] … FILE|-\n"
    "\n"
    "Shows what of a request body is keyed: two prompts that begin alike have the same first keys, one\n"
    "key for each 256 bytes of prompt. Keys are made under a fixed seed, so compare them between runs of\n"
    "this command only. '-' reads standard input.\n"
    "\n"
    "  --path P    the path that the body is posted to (default /v1/chat/completions; also\n"
    "              /v1/completions, /v1/messages, /v1/responses)\n"
    "  --model M   the model; default: the body's own\n"
    "  --json      one JSON object instead of text\n"
    "  -h, --help\n"
    "\n"
    "  --trace-secret FILE  print the body as one line of a trace for 'simulate' and 'tune': its keys are made\n"
    "                       under the secret in FILE (at least 32 bytes; 'tag new-key' makes one) and cannot be\n"
    "                       linked to a prompt without it. Who holds the secret can tell whether a prompt that\n"
    "                       he guesses is in the trace: share the trace, not the secret, and delete it after.\n"
    "  --at MS              the line's timestamp (default 0)\n"
    "  --output-tokens N    the answer's length (default 256)\n"
    "\n"
    "Examples\n"
    "  grid-gateway keys request.json\n"
    "  grid-gateway keys --trace-secret secret --at 1500 request.json >> trace.jsonl\n"
    "  grid-gateway keys --path /v1/completions --json - < completion.json\n"
    "  diff <(grid-gateway keys turn1.json) <(grid-gateway keys turn2.json)   where do they part?\n"
    "\n"
    "Exit status: 0 shown, keys or not; 1 the file cannot be read; 2 usage.\n";

#define MAX_TOKENS ((uint64_t)GRID_RECORD_MAX_TOKENS)
#define MAX_AT_MS 10000000000000ull /* also milliseconds since 1970 */

struct options {
    struct grid_str path, model;
    bool json;
    const char *secret_path;
    uint64_t at_ms, output_tokens;
};

static void print_json(const struct grid_decision *decision, const uint64_t *keys, size_t n)
{
    struct grid_buf out = {.limit = (size_t)1 << 20};

    grid_buf_puts(&out, "{");
    grid_explain_facts(&out, decision, n);
    grid_buf_printf(&out, ",\"blocks\":%zu,\"keys\":", n);
    grid_query_put_keys(&out, keys, n);
    grid_buf_puts(&out, "}\n");
    if (out.ptr != NULL) {
        fwrite(out.ptr, 1, out.len, stdout);
    }
    grid_buf_done(&out);
}

static void print_text(const struct grid_decision *decision, const uint64_t *keys, size_t n)
{
    printf("api     %s\n", grid_api_name(decision->api));
    printf("model   %.*s\n", decision->model.ptr != NULL ? (int)decision->model.len : 1,
           decision->model.ptr != NULL ? decision->model.ptr : "-");
    printf("blocks  %zu%s\n", n, n == GRID_MAX_KEYS ? " (the most that are kept)" : "");
    if (n == 0) {
        printf("reason  %s\n", grid_reason_name(decision->reason));
    }
    for (size_t i = 0; i < n; i++) {
        printf("%6zu  %016" PRIx64 "\n", i + 1, keys[i]);
    }
}

/* One line of a trace; no key of this process in it. */
static void print_line(const struct options *options, struct grid_str secret, size_t body_bytes, const uint64_t *keys,
                       size_t n)
{
    uint64_t recorded[GRID_MAX_KEYS];
    struct grid_buf out = {.limit = (size_t)1 << 20};

    for (size_t i = 0; i < n; i++) {
        recorded[i] = keys[i];
    }
    grid_record_keys(secret, recorded, n);
    struct grid_record record = {.at_ms = options->at_ms,
                                 .body_bytes = body_bytes,
                                 .has_output = true,
                                 .output_tokens = options->output_tokens,
                                 .values = recorded,
                                 .n = n};
    grid_record_put(&record, &out);
    if (out.ptr != NULL) {
        fwrite(out.ptr, 1, out.len, stdout);
    }
    grid_buf_done(&out);
}

static int show(const struct options *options, struct grid_str secret, struct grid_str body)
{
    const struct grid_route_options peek = {.peek = true};
    struct grid_settings settings;
    struct grid_decision decision;
    struct grid_router *router;
    struct grid_ticket *ticket;
    size_t n;

    if (grid_query_router(secret.ptr != NULL ? grid_record_seed(secret) : 0, &router) != GRID_OK) {
        fprintf(stderr, "grid-gateway keys: out of memory\n");
        return GRID_EXIT_FAILED;
    }
    grid_router_settings(router, &settings);
    struct grid_header header = {grid_query_str(settings.model_header), options->model};
    struct grid_query query = {.method = grid_query_str("POST"),
                               .path = options->path,
                               .headers = &header,
                               .n_headers = options->model.ptr != NULL,
                               .has_body = true,
                               .body = body};
    if (grid_query_ticket(router, &query, &ticket) != GRID_OK) {
        fprintf(stderr, "grid-gateway keys: out of memory\n");
        grid_router_free(router);
        return GRID_EXIT_FAILED;
    }
    const uint64_t *keys = grid_ticket_keys(ticket, &n);
    grid_route(ticket, &peek, 0, &decision); /* for model and reason: there is no site to choose */
    if (secret.ptr != NULL) {
        print_line(options, secret, body.len, keys, n);
    } else {
        (options->json ? print_json : print_text)(&decision, keys, n);
    }
    grid_ticket_free(ticket);
    grid_router_free(router);
    return fflush(stdout) == 0 ? GRID_EXIT_OK : GRID_EXIT_FAILED;
}

/* The secret of a recording, if one is named, and the body. */
static int read_and_show(const struct options *options, const char *path)
{
    char error[384], *body;
    size_t len;
    struct grid_tagkey_set secret = {0};

    if (options->secret_path != NULL && !grid_tagkey_add(&secret, options->secret_path, error, sizeof error)) {
        fprintf(stderr, "grid-gateway keys: %s\n", error);
        return GRID_EXIT_FAILED;
    }
    if (!grid_query_read(path, &body, &len, error, sizeof error)) {
        fprintf(stderr, "grid-gateway keys: %s\n", error);
        grid_tagkey_wipe(&secret);
        return GRID_EXIT_FAILED;
    }
    int status = show(options, secret.n ? secret.keys[0] : (struct grid_str){NULL, 0}, (struct grid_str){body, len});
    free(body);
    grid_tagkey_wipe(&secret);
    return status;
}

static bool whole(const char *text, uint64_t most, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *out <= most;
}

int grid_cmd_keys(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"path", required_argument, NULL, 'p'}, {"model", required_argument, NULL, 'm'},
        {"json", no_argument, NULL, 'j'},       {"trace-secret", required_argument, NULL, 's'},
        {"at", required_argument, NULL, 'a'},   {"output-tokens", required_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};
    struct options options = {.path = grid_query_str("/v1/chat/completions"), .output_tokens = 256};
    bool good = true;
    int option;

    while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (option) {
        case 'p':
            options.path = grid_query_str(optarg);
            break;
        case 'm':
            options.model = grid_query_str(optarg);
            break;
        case 'j':
            options.json = true;
            break;
        case 's':
            options.secret_path = optarg;
            break;
        case 'a':
            good = whole(optarg, MAX_AT_MS, &options.at_ms) && good;
            break;
        case 'o':
            good = whole(optarg, MAX_TOKENS, &options.output_tokens) && good;
            break;
        case 'h':
            fputs(usage, stdout);
            return GRID_EXIT_OK;
        default:
            fprintf(stderr, "Try 'grid-gateway keys --help'.\n");
            return GRID_EXIT_USAGE;
        }
    }
    if (!good) {
        fprintf(stderr,
                "grid-gateway keys: --at and --output-tokens take whole numbers, up to %llu and %llu\n"
                "Try 'grid-gateway keys --help'.\n",
                MAX_AT_MS, (unsigned long long)MAX_TOKENS);
        return GRID_EXIT_USAGE;
    }
    if (argc - optind != 1) {
        fprintf(stderr, "grid-gateway keys: needs one FILE, or - for standard input\n"
                        "Try 'grid-gateway keys --help'.\n");
        return GRID_EXIT_USAGE;
    }
    return read_and_show(&options, argv[optind]);
}
