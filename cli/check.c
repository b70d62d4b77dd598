/*
 * check.c - `grid-gateway check`: is this configuration right?
 *
 * Story     Loads what `run` would load and says all that is wrong with it, or a summary. Where it is there, Envoy
 *           reads the rendering too: it alone can judge http_filters_before and the contents of certificates.
 * Promise   Changes nothing, opens no port.
 */
#include "cli/cli.h"
#include "cli/config_fields.h"
#include "cli/launch.h"
#include "cli/render.h"
#include "cli/state.h"
#include "cli/tagkey.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static void print_address(const char *name, const struct grid_address *address)
{
    bool v6 = strchr(address->host, ':') != NULL;
    if (address->is_unix) {
        printf("%-9s unix:%s\n", name, address->host);
    } else {
        printf("%-9s %s%s%s:%u\n", name, v6 ? "[" : "", address->host, v6 ? "]" : "", address->port);
    }
}

static int by_text(const void *a, const void *b)
{
    const struct grid_str *left = a, *right = b;
    size_t n = left->len < right->len ? left->len : right->len;
    int order = n > 0 ? memcmp(left->ptr, right->ptr, n) : 0;
    return order != 0 ? order : (left->len > right->len) - (left->len < right->len);
}

/* The distinct texts, sorted, on one line. */
static void print_texts(const char *name, struct grid_str *texts, size_t n)
{
    printf("%-9s", name);
    if (n == 0) {
        printf(" none");
    } else {
        qsort(texts, n, sizeof *texts, by_text);
    }
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || by_text(&texts[i], &texts[i - 1]) != 0) {
            printf("%s%.*s", i == 0 ? " " : ", ", (int)texts[i].len, texts[i].ptr);
        }
    }
    putchar('\n');
}

static bool same_text(struct grid_str a, struct grid_str b)
{
    return a.len == b.len && memcmp(a.ptr, b.ptr, a.len) == 0;
}

/* An alias that no candidate can use is a slip of the pen, or waits for one that was taken out. */
static void print_idle_aliases(const struct grid_serving *serving)
{
    for (size_t i = 0; i < serving->n_clusters; i++) {
        const struct grid_serving_cluster *cluster = &serving->clusters[i];
        for (size_t k = 0; k < cluster->n_aliases; k++) {
            struct grid_str model = cluster->aliases[k].model;
            bool used = false;
            for (size_t c = 0; c < serving->n_candidates; c++) {
                used = used || (same_text(serving->candidates[c].cluster, cluster->name) &&
                                same_text(serving->candidates[c].name, model));
            }
            if (!used) {
                printf("%-9s model_alias of cluster %.*s names %.*s, for which no candidate names that cluster\n",
                       "note", (int)cluster->name.len, cluster->name.ptr, (int)model.len, model.ptr);
            }
        }
    }
}

static void print_summary(const struct grid_gateway *gateway)
{
    const struct grid_serving *serving = gateway->serving;
    struct grid_str *texts = calloc(serving->n_candidates + 1, sizeof *texts);
    print_address("listen", &gateway->listen);
    print_address("admin", &gateway->admin);
    print_address("ops", &gateway->ops);
    if (texts != NULL) {
        for (size_t i = 0; i < serving->n_candidates; i++) {
            texts[i] = serving->candidates[i].site;
        }
        print_texts("sites", texts, serving->n_candidates);
        for (size_t i = 0; i < serving->n_candidates; i++) {
            texts[i] = serving->candidates[i].cluster;
        }
        print_texts("clusters", texts, serving->n_candidates);
        size_t models = 0;
        for (size_t i = 0; i < serving->n_candidates; i++) {
            if (serving->candidates[i].kind == GRID_INFERENCE_MODEL) {
                texts[models++] = serving->candidates[i].name;
            }
        }
        print_texts("models", texts, models);
    }
    free(texts);
    printf("%-9s %s\n", "affinity", gateway->settings.enabled ? "on" : "off");
    if (!serving->has_clusters) {
        printf("%-9s the serving config has no clusters: `run` can reach nothing with it\n", "note");
    }
    print_idle_aliases(serving);
    if (gateway->max_heap_bytes == 0 || gateway->max_connections == 0) {
        printf("%-9s no %s: nothing bounds the memory that clients can make the gateway take\n", "note",
               gateway->max_heap_bytes == 0 ? "max_heap_bytes" : "max_connections");
    }
}

/* Names of secrets stay, the files that they are in go: they then stand in the bootstrap itself. */
static void forget_files(json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;
    json_object_del(value, "sds_config");
    json_object_foreach(value, key, item)
    {
        forget_files(item);
    }
    json_array_foreach(value, i, item)
    {
        forget_files(item);
    }
}

/* The same for a provider's routes. */
static void set_routes(json_t *root, const char *text)
{
    json_t *listener = json_array_get(json_object_get(json_object_get(root, "static_resources"), "listeners"), 0);
    json_t *chain = json_array_get(json_object_get(listener, "filter_chains"), 0);
    json_t *hcm = json_object_get(json_array_get(json_object_get(chain, "filters"), 0), "typed_config");
    json_t *file = json_loads(text, 0, NULL), *routes = json_array_get(json_object_get(file, "resources"), 0);
    if (routes != NULL) {
        json_object_del(routes, "@type");
        json_object_del(hcm, "rds");
        json_object_set(hcm, "route_config", routes);
    }
    json_decref(file);
}

/* Envoy reads no other file in this mode, so clusters, secrets and routes go into the bootstrap. */
static bool write_whole(const struct grid_state *state, char *error, size_t error_size)
{
    json_t *root = json_loads(state->envoy, 0, NULL), *clusters = json_loads(state->clusters, 0, NULL);
    json_t *resources = json_object_get(root, "static_resources"), *own = json_object_get(resources, "clusters");
    json_t *list = own != NULL ? json_incref(own) : json_array(), *secrets = json_array(), *item;
    const char *key;
    size_t i;
    json_array_extend(list, json_object_get(clusters, "resources"));
    json_array_foreach(list, i, item)
    {
        json_object_del(item, "@type"); /* that is for a list of any kind */
    }
    json_object_foreach(state->secrets, key, item)
    {
        json_object_del(item, "@type");
        json_array_append(secrets, item);
    }
    json_object_set_new(resources, "clusters", list);
    json_object_del(root, "dynamic_resources");
    set_routes(root, state->routes != NULL ? state->routes : "");
    forget_files(root);
    json_object_set_new(resources, "secrets", secrets);
    char *text = grid_render_text(root);
    json_decref(clusters);
    bool good = text != NULL && grid_files_write(state->dir, "envoy.json", text, strlen(text), error, error_size);
    free(text);
    return good;
}

static bool ask_envoy(const struct grid_gateway *gateway, char *error, size_t error_size)
{
    char envoy[GRID_PATH_BYTES], module[GRID_PATH_BYTES];
    struct grid_state state = {.lock = -1};
    bool good = grid_launch_find_envoy(envoy, sizeof envoy, error, error_size) &&
                grid_launch_check_version(envoy, error, error_size) &&
                grid_launch_find_module(module, sizeof module, error, error_size) &&
                grid_state_open(&state, NULL, error, error_size) &&
                grid_state_write(&state, gateway, error, error_size) != GRID_STATE_FAILED &&
                write_whole(&state, error, error_size);
    if (good) {
        struct grid_launch launch = {.envoy = envoy,
                                     .module_dir = module,
                                     .state_dir = state.dir,
                                     .log_level = "error",
                                     .drain_seconds = 1,
                                     .validate = true};
        int status = 1;
        pid_t child = grid_launch_envoy(&launch, error, error_size);
        good = child != 0 && waitpid(child, &status, 0) == child && status == 0;
        if (!good && child != 0) {
            snprintf(error, error_size, "Envoy refuses the configuration, for the reason above");
        }
    }
    grid_state_close(&state);
    return good;
}

/* What only Envoy can judge stands in the file, and Envoy is there. */
static bool may_ask_envoy(const struct grid_gateway *gateway)
{
    char envoy[GRID_PATH_BYTES], module[GRID_PATH_BYTES], error[2 * GRID_PATH_BYTES];
    return (json_array_size(gateway->filters_before) > 0 || gateway->materials.n > 0) &&
           grid_launch_find_envoy(envoy, sizeof envoy, error, sizeof error) &&
           grid_launch_find_module(module, sizeof module, error, sizeof error);
}

static int check(const char *file, bool with_envoy)
{
    struct grid_report report = {0};
    struct grid_gateway gateway;
    char error[2 * GRID_PATH_BYTES] = "";
    if (!grid_config_load(file, NULL, &gateway, &report)) {
        fwrite(report.lines.ptr, 1, report.lines.len, stderr);
        grid_report_done(&report);
        return GRID_EXIT_FAILED;
    }
    bool good = !(with_envoy || may_ask_envoy(&gateway)) || ask_envoy(&gateway, error, sizeof error);
    if (good) {
        printf("%s: good\n", file);
        print_summary(&gateway);
        grid_tagkey_warn(&gateway.settings, stderr);
    } else {
        fprintf(stderr, "grid-gateway check: %s\n", error);
    }
    grid_gateway_done(&gateway);
    return good ? GRID_EXIT_OK : GRID_EXIT_FAILED;
}

static void usage(FILE *to)
{
    fputs("usage: grid-gateway check -c FILE [--with-envoy]\n"
          "       grid-gateway check --fields\n"
          "\n"
          "Checks a gateway's configuration together with the serving config that it names, and the files\n"
          "that they name. Prints a summary, or everything that is wrong on standard error, one line each:\n"
          "  file:line: field: message\n"
          "\n"
          "  -c, --config FILE    the gateway's configuration, YAML or JSON (see examples/gateway.yaml)\n"
          "      --with-envoy     let Envoy read the rendered configuration too: it alone can judge\n"
          "                       http_filters_before and the contents of certificates. Where these are\n"
          "                       given and Envoy is found, it is asked without this option\n"
          "      --fields         print every field of both files instead: file, field, default, whether a\n"
          "                       change is followed while serving (hot) or needs a restart, what it\n"
          "                       accepts; tabs in between\n"
          "  -h, --help           this text\n"
          "\n"
          "Environment\n"
          "  GRID_SERVING_CONFIG  the serving config, when the configuration names none\n"
          "\n"
          "Example\n"
          "  grid-gateway check -c gateway.yaml\n"
          "\n"
          "Exit status: 0 good; 1 refused; 2 the command line is wrong.\n",
          to);
}

int grid_cmd_check(int argc, char **argv)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"with-envoy", no_argument, NULL, 'e'},
                                            {"fields", no_argument, NULL, 'f'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *file = NULL;
    bool with_envoy = false;
    for (int c; (c = getopt_long(argc, argv, "c:h", options, NULL)) != -1;) {
        switch (c) {
        case 'c':
            file = optarg;
            break;
        case 'e':
            with_envoy = true;
            break;
        case 'f':
            grid_config_print_fields(stdout);
            return GRID_EXIT_OK;
        case 'h':
            usage(stdout);
            return GRID_EXIT_OK;
        default:
            fprintf(stderr, "Try 'grid-gateway check --help'.\n");
            return GRID_EXIT_USAGE;
        }
    }
    if (file == NULL || optind != argc || strlen(file) >= GRID_PATH_BYTES) {
        fprintf(stderr, "grid-gateway check: -c FILE is needed, and nothing behind the options\n"
                        "Try 'grid-gateway check --help'.\n");
        return GRID_EXIT_USAGE;
    }
    return check(file, with_envoy);
}
