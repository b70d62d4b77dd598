/*
 * explain.c - the verb `explain`: where a request would go, and why
 *
 * Story     Takes a serving config, settings, queue depths and who is known to hold the prompt from the command line,
 *           a body from a file, and lets the core decide once, without counting or exploring. Says in words which
 *           sites there were, what the gate compared and what would flip the decision; or all of it as JSON.
 * Promise   The decision is the core's own. Prints no text of the body.
 * Not here  Histories (replay.c).
 */
#include "cli.h"
#include "explain.h"
#include "files.h"
#include "query.h"
#include "yaml.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: grid-gateway explain --serving FILE [OPTION]... BODY|-\n"
    "       grid-gateway explain --gateway FILE [OPTION]... BODY|-\n"
    "\n"
    "Shows where a request would go, why, and what would flip the decision. Nothing is sent. The mac of a\n"
    "tagged id is not checked: no key is read.\n"
    "\n"
    "  --serving FILE      the serving config: candidates and sites (YAML or JSON)\n"
    "  --gateway FILE      the gateway's configuration: its grid_site_route block, and its serving config\n"
    "                      unless --serving names one\n"
    "  --plugin FILE       just a grid_site_route block\n"
    "  --path P            the path (default /v1/chat/completions)\n"
    "  --model M           the model; default: the body's own\n"
    "  --depth CLUSTER=D   queue depth of a cluster (repeatable; others are unmeasured)\n"
    "  --held CLUSTER      this cluster has answered this very prompt before (repeatable)\n"
    "  --json              one JSON object instead of words\n"
    "  -h, --help\n"
    "\n"
    "Examples\n"
    "  grid-gateway explain --serving serving.yaml request.json\n"
    "  grid-gateway explain --serving serving.yaml --held pool-east --depth pool-east=0.5 \\\n"
    "      --depth pool-west=0 request.json          is the match worth that queue?\n"
    "  grid-gateway explain --gateway gateway.yaml --path /v1/completions --json - < completion.json\n"
    "\n"
    "Exit status: 0 explained, whatever the decision; 1 a file cannot be read or is refused; 2 usage.\n";

enum { MAX_GIVEN = 256 };

struct depth {
    struct grid_str cluster;
    double depth;
};

struct options {
    const char *serving, *gateway, *plugin, *body;
    struct grid_str path, model;
    struct depth depths[MAX_GIVEN];
    size_t n_depths;
    struct grid_str held[MAX_GIVEN];
    size_t n_held;
    bool json;
};

/* ---- configuration --------------------------------------------------------------------------------------------- */

/* A file, and the part of it that is loaded. */
struct source {
    const char *path;
    char *text;
    struct grid_yaml yaml;
    struct grid_str part; /* within yaml.json; {NULL,0}: none */
    char beside[GRID_PATH_BYTES];
};

static void free_source(struct source *source)
{
    free(source->text);
    grid_yaml_done(&source->yaml);
}

static bool read_source(const char *path, struct source *out)
{
    char error[512];
    size_t len;

    out->path = path;
    if (!grid_files_read(path, GRID_YAML_MAX_BYTES, &out->text, &len, error, sizeof error) ||
        !grid_yaml_to_json((struct grid_str){out->text, len}, path, &out->yaml, error, sizeof error)) {
        fprintf(stderr, "grid-gateway explain: %s\n", error);
        return false;
    }
    out->part = (struct grid_str){out->yaml.json, out->yaml.len};
    return true;
}

/* The serving config that a gateway's file holds or names. */
static bool serving_of(struct source *gateway, const char **out_path, struct source *out_serving)
{
    struct grid_str value;
    char name[GRID_PATH_BYTES];

    if (grid_yaml_find(&gateway->yaml, "serving", &value)) {
        out_serving->part = value; /* its lines are the gateway file's */
        return true;
    }
    if (!grid_yaml_find(&gateway->yaml, "serving_config_path", &value) || value.len < 2 || value.ptr[0] != '"' ||
        value.len - 2 >= sizeof name || memchr(value.ptr, '\\', value.len) != NULL) {
        fprintf(stderr, "grid-gateway explain: %s: names no serving config; give --serving FILE\n", gateway->path);
        return false;
    }
    memcpy(name, value.ptr + 1, value.len - 2);
    name[value.len - 2] = '\0';
    if (!grid_files_beside(gateway->path, name, out_serving->beside, sizeof out_serving->beside)) {
        fprintf(stderr, "grid-gateway explain: %s: serving_config_path is too long\n", gateway->path);
        return false;
    }
    *out_path = out_serving->beside;
    return true;
}

static void print_refusals(const struct source *source, const struct grid_yaml *yaml, const char *path,
                           const struct grid_errors *errors)
{
    for (size_t i = 0; i < errors->count && i < GRID_MAX_ERRORS; i++) {
        const struct grid_err *err = &errors->items[i];
        size_t base = (size_t)(source->part.ptr - yaml->json);
        fprintf(stderr, "%s:%u: %s: %s\n", path, grid_yaml_line(yaml, base + err->offset), err->field, err->message);
    }
}

/* Loads what the options name into the router. */
static bool load_sources(struct grid_router *router, const struct options *options, struct source *plugin,
                         struct source *serving)
{
    const char *serving_path = options->serving;
    const char *plugin_path = options->gateway != NULL ? options->gateway : options->plugin;
    bool in_place = false;

    if (plugin_path != NULL && !read_source(plugin_path, plugin)) {
        return false;
    }
    if (options->gateway != NULL) {
        if (serving_path == NULL && !serving_of(plugin, &serving_path, serving)) {
            return false;
        }
        in_place = serving_path == NULL;
        if (!grid_yaml_find(&plugin->yaml, "grid_site_route", &plugin->part)) {
            plugin->part = (struct grid_str){NULL, 0};
        }
    }
    if (!in_place && !read_source(serving_path, serving)) {
        return false;
    }
    struct grid_load load = {
        .plugin = plugin->part, .serving = serving->part, .words = plugin->yaml.words || serving->yaml.words};
    struct grid_errors errors = {0};
    int at_fault = 0;
    enum grid_status status = grid_router_load(router, &load, 0, &errors, &at_fault);
    if (status == GRID_OK) {
        return true;
    }
    const struct source *source = at_fault == 1 ? plugin : serving;
    const struct source *file = at_fault == 1 || in_place ? plugin : serving;
    print_refusals(source, &file->yaml, file->path, &errors);
    if (errors.count == 0) {
        fprintf(stderr, "grid-gateway explain: %s\n", grid_status_name(status));
    }
    return false;
}

/* ---- the state of the grid ------------------------------------------------------------------------------------- */

static bool is_named(const struct grid_site_view *sites, size_t n, struct grid_str cluster)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(sites[i].cluster) == cluster.len && memcmp(sites[i].cluster, cluster.ptr, cluster.len) == 0) {
            return true;
        }
    }
    fprintf(stderr, "grid-gateway explain: no candidate names the cluster '%.*s'\n", (int)cluster.len, cluster.ptr);
    return false;
}

static bool names_known(struct grid_router *router, const struct options *options)
{
    size_t n = grid_router_sites(router, 0, NULL, 0);
    struct grid_site_view *sites = calloc(n + 1, sizeof *sites);
    bool known = sites != NULL;

    if (known) {
        n = grid_router_sites(router, 0, sites, n);
    }
    for (size_t i = 0; known && i < options->n_depths; i++) {
        known = is_named(sites, n, options->depths[i].cluster);
    }
    for (size_t i = 0; known && i < options->n_held; i++) {
        known = is_named(sites, n, options->held[i]);
    }
    free(sites);
    return known;
}

/* Queue depths, and clusters that have answered this very prompt. */
static bool set_scene(struct grid_router *router, const struct options *options, const struct grid_query *query)
{
    const int success = 200;

    if (!names_known(router, options)) {
        return false;
    }
    for (size_t i = 0; i < options->n_depths; i++) {
        (void)grid_signal(router, options->depths[i].cluster, options->depths[i].depth, 0, 0);
    }
    for (size_t i = 0; i < options->n_held; i++) {
        struct grid_route_options forced = {.forced = options->held[i]};
        struct grid_decision decision;
        struct grid_ticket *ticket;
        if (grid_query_ticket(router, query, &ticket) != GRID_OK) {
            return false;
        }
        grid_route(ticket, &forced, 0, &decision);
        grid_learn(ticket, success, GRID_FROM_SITE, 0, NULL);
        grid_ticket_free(ticket);
    }
    return grid_router_refresh(router, 0) == GRID_OK;
}

static int decide(struct grid_router *router, const struct options *options, struct grid_str body)
{
    struct grid_route_options peek = {.peek = true};
    struct grid_explained explained = {0};
    struct grid_ticket *ticket;

    grid_router_settings(router, &explained.settings);
    struct grid_header header = {grid_query_str(explained.settings.model_header), options->model};
    struct grid_query query = {.method = grid_query_str("POST"),
                               .path = options->path,
                               .headers = &header,
                               .n_headers = options->model.ptr != NULL,
                               .has_body = true,
                               .body = body};
    if (!set_scene(router, options, &query) || grid_query_ticket(router, &query, &ticket) != GRID_OK) {
        return GRID_EXIT_FAILED;
    }
    grid_route(ticket, &peek, 0, &explained.decision);
    explained.conversation = grid_explain_starts_conversation(options->path);
    explained.candidates = grid_explain_runs(router, ticket, 0, &explained.n_candidates);
    (options->json ? grid_explain_as_json : grid_explain_words)(&explained);
    grid_ticket_free(ticket);
    return fflush(stdout) == 0 ? GRID_EXIT_OK : GRID_EXIT_FAILED;
}

static int explain(const struct options *options)
{
    struct source plugin = {0}, serving = {0};
    struct grid_router *router = NULL;
    char error[384], *body = NULL;
    size_t len = 0;
    int status = GRID_EXIT_FAILED;

    if (!grid_query_read(options->body, &body, &len, error, sizeof error)) {
        fprintf(stderr, "grid-gateway explain: %s\n", error);
        return GRID_EXIT_FAILED;
    }
    if (grid_query_router(0, &router) != GRID_OK) {
        fprintf(stderr, "grid-gateway explain: out of memory\n");
    } else if (load_sources(router, options, &plugin, &serving)) {
        status = decide(router, options, (struct grid_str){body, len});
    }
    free_source(&plugin);
    free_source(&serving);
    grid_router_free(router);
    free(body);
    return status;
}

/* ---- the command line ------------------------------------------------------------------------------------------ */

static bool add_depth(struct options *options, const char *text)
{
    const char *sign = strrchr(text, '=');
    char *end = NULL;
    double value = sign != NULL ? strtod(sign + 1, &end) : 0;

    if (sign == NULL || sign == text || end == sign + 1 || *end != '\0' || !isfinite(value) || value < 0) {
        fprintf(stderr, "grid-gateway explain: --depth takes CLUSTER=D with a number D of 0 or more\n");
        return false;
    }
    if (options->n_depths == MAX_GIVEN) {
        fprintf(stderr, "grid-gateway explain: over %d times --depth\n", MAX_GIVEN);
        return false;
    }
    options->depths[options->n_depths++] = (struct depth){{text, (size_t)(sign - text)}, value};
    return true;
}

static bool add_held(struct options *options, const char *text)
{
    if (options->n_held == MAX_GIVEN) {
        fprintf(stderr, "grid-gateway explain: over %d times --held\n", MAX_GIVEN);
        return false;
    }
    options->held[options->n_held++] = grid_query_str(text);
    return true;
}

static bool take_option(struct options *options, int option, const char *value)
{
    switch (option) {
    case 's':
        options->serving = value;
        return true;
    case 'g':
        options->gateway = value;
        return true;
    case 'l':
        options->plugin = value;
        return true;
    case 'p':
        options->path = grid_query_str(value);
        return true;
    case 'm':
        options->model = grid_query_str(value);
        return true;
    case 'd':
        return add_depth(options, value);
    case 'o':
        return add_held(options, value);
    case 'j':
        options->json = true;
        return true;
    default:
        return false;
    }
}

int grid_cmd_explain(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"serving", required_argument, NULL, 's'}, {"gateway", required_argument, NULL, 'g'},
        {"plugin", required_argument, NULL, 'l'},  {"path", required_argument, NULL, 'p'},
        {"model", required_argument, NULL, 'm'},   {"depth", required_argument, NULL, 'd'},
        {"held", required_argument, NULL, 'o'},    {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    struct options options = {.path = grid_query_str("/v1/chat/completions")};
    const char *wrong = NULL;
    int option;

    while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            return GRID_EXIT_OK;
        }
        if (!take_option(&options, option, optarg)) {
            fprintf(stderr, "Try 'grid-gateway explain --help'.\n");
            return GRID_EXIT_USAGE;
        }
    }
    if (argc - optind != 1) {
        wrong = "needs one BODY file, or - for standard input";
    } else if (options.gateway == NULL && options.serving == NULL) {
        wrong = "needs --serving FILE or --gateway FILE";
    } else if (options.gateway != NULL && options.plugin != NULL) {
        wrong = "--gateway and --plugin exclude each other";
    }
    if (wrong != NULL) {
        fprintf(stderr, "grid-gateway explain: %s\nTry 'grid-gateway explain --help'.\n", wrong);
        return GRID_EXIT_USAGE;
    }
    options.body = argv[optind];
    return explain(&options);
}
