/*
 * keys.c - the verb `keys`: what of a request body is keyed
 *
 * Story     Reads a body from a file or standard input, lets the core key it as for a given path and model, and prints
 *           API, model, number of blocks, the reason when there are none, and the keys.
 * Promise   Keys are made under a fixed seed: they can be compared between two runs, never with a live gateway's.
 *           Prints no text of the body.
 * Not here  Where the request would go (explain.c).
 */
#include "cli.h"
#include "files.h"
#include "query.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: grid-gateway keys [--path P] [--model M] [--json] FILE|-\n"
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
    "Examples\n"
    "  grid-gateway keys request.json\n"
    "  grid-gateway keys --path /v1/completions --json - < completion.json\n"
    "  diff <(grid-gateway keys turn1.json) <(grid-gateway keys turn2.json)   where do they part?\n"
    "\n"
    "Exit status: 0 shown, keys or not; 1 the file cannot be read; 2 usage.\n";

struct options {
    struct grid_str path, model;
    bool json;
};

static void print_json(const struct grid_decision *decision, const uint64_t *keys, size_t n)
{
    struct grid_buf out = {.limit = (size_t)1 << 20};

    grid_buf_puts(&out, "{");
    grid_query_put_facts(&out, decision, n);
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

static int show(const struct options *options, struct grid_str body)
{
    const struct grid_route_options peek = {.peek = true};
    struct grid_settings settings;
    struct grid_decision decision;
    struct grid_router *router;
    struct grid_ticket *ticket;
    size_t n;

    if (grid_query_router(0, &router) != GRID_OK) {
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
    (options->json ? print_json : print_text)(&decision, keys, n);
    grid_ticket_free(ticket);
    grid_router_free(router);
    return fflush(stdout) == 0 ? GRID_EXIT_OK : GRID_EXIT_FAILED;
}

int grid_cmd_keys(int argc, char **argv)
{
    static const struct option long_options[] = {{"path", required_argument, NULL, 'p'},
                                                 {"model", required_argument, NULL, 'm'},
                                                 {"json", no_argument, NULL, 'j'},
                                                 {"help", no_argument, NULL, 'h'},
                                                 {NULL, 0, NULL, 0}};
    struct options options = {.path = grid_query_str("/v1/chat/completions")};
    char error[384], *body;
    size_t len;
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
        case 'h':
            fputs(usage, stdout);
            return GRID_EXIT_OK;
        default:
            fprintf(stderr, "Try 'grid-gateway keys --help'.\n");
            return GRID_EXIT_USAGE;
        }
    }
    if (argc - optind != 1) {
        fprintf(stderr, "grid-gateway keys: needs one FILE, or - for standard input\n"
                        "Try 'grid-gateway keys --help'.\n");
        return GRID_EXIT_USAGE;
    }
    if (!grid_query_read(argv[optind], &body, &len, error, sizeof error)) {
        fprintf(stderr, "grid-gateway keys: %s\n", error);
        return GRID_EXIT_FAILED;
    }
    int status = show(&options, (struct grid_str){body, len});
    free(body);
    return status;
}
