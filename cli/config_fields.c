/*
 * config_fields.c - the table of the gateway's fields; see config_fields.h
 *
 * Source    behaviour.md J.3, O.44, O.47, O.50; design.md 7, 8.
 */
#include "cli/config_fields.h"

#include <string.h>

#define LONGEST_MS (31.0 * 24 * 3600 * 1000) /* a month */
#define LARGEST_BODY (2.0 * 1024 * 1024 * 1024)
#define LARGEST_EXACT 9007199254740992.0 /* 2^53 */
#define MOST_WORKERS 1024.0
#define LONGEST_AGE 86400.0
#define ADDRESS "ADDRESS:PORT with an IP address, [IPv6]:PORT, or unix:/path"
#define A_FILE "the path of a file"
#define HEADERS "a list of 1 to 64 names of headers"
#define PATHS "/v1/chat/completions, /v1/completions, /v1/messages, /v1/embeddings, /v1/models"
#define SDK_HEADERS                                                                                                    \
    "authorization, content-type, x-api-key, anthropic-version, anthropic-beta, openai-organization, openai-project"

static const struct grid_config_field fields[] = {
    {.path = "listen", .fallback = "0.0.0.0:8080", .accepts = ADDRESS},
    {.path = "admin", .fallback = "127.0.0.1:9901", .accepts = "ADDRESS:PORT on loopback, or unix:/path"},
    {.path = "ops", .fallback = "127.0.0.1:9902", .accepts = ADDRESS},
    {.path = "serving_config_path", .accepts = A_FILE, .hot = true},
    {.path = "serving", .accepts = "the serving config itself, a mapping", .hot = true},
    {.path = "grid_site_route", .accepts = "a mapping", .hot = true},
    {.path = "max_body_bytes", .fallback = "67108864", .least = 1, .most = LARGEST_BODY},
    {.path = "failover_max_body_bytes", .fallback = "1048576", .most = LARGEST_BODY},
    {.path = "max_heap_bytes", .least = 1, .most = LARGEST_EXACT},
    {.path = "max_connections", .least = 1, .most = LARGEST_EXACT},
    {.path = "concurrency", .least = 1, .most = MOST_WORKERS},
    {.path = "timeouts", .accepts = "a mapping"},
    {.path = "timeouts.connect_ms", .fallback = "1000", .least = 1, .most = LONGEST_MS, .hot = true},
    {.path = "timeouts.request_body_ms", .fallback = "60000", .most = LONGEST_MS},
    {.path = "timeouts.idle_ms", .fallback = "3600000", .most = LONGEST_MS},
    {.path = "timeouts.total_ms", .fallback = "0", .most = LONGEST_MS},
    {.path = "trace_keys", .accepts = "a mapping"},
    {.path = "trace_keys.path", .accepts = A_FILE, .required = true},
    {.path = "trace_keys.secret_path", .accepts = A_FILE ", of at least 32 bytes", .required = true},
    {.path = "trace_keys.max_bytes", .fallback = "1073741824", .least = 1, .most = LARGEST_EXACT},
    {.path = "access_log", .fallback = "false", .accepts = "true or false"},
    {.path = "log_level", .fallback = "warning", .accepts = "trace, debug, info, warning, error, critical or off"},
    {.path = "http_filters_before", .accepts = "a list of Envoy HTTP filters, each with name and typed_config"},
    {.path = "role", .fallback = "consumer", .accepts = "consumer or provider"},
    {.path = "peers_allowed",
     .accepts = "a list of 1 to 64 DNS names or URIs of at most 253 bytes; only of role provider",
     .hot = true},
    {.path = "allowed_paths",
     .fallback = PATHS,
     .accepts = "a list of 1 to 64 exact paths without query, '%' and stored ids; only of role provider",
     .hot = true},
    {.path = "tls", .accepts = "a mapping"},
    {.path = "tls.cert_path", .accepts = A_FILE, .required = true, .hot = true},
    {.path = "tls.key_path", .accepts = A_FILE, .required = true, .hot = true},
    {.path = "tls.client_ca_path", .accepts = A_FILE, .hot = true},
    {.path = "cors", .accepts = "a mapping"},
    {.path = "cors.allow_origins", .accepts = "a list of 1 to 64 of scheme://host[:port], or \"*\"", .required = true},
    {.path = "cors.allow_methods", .fallback = "GET, POST, DELETE", .accepts = "a list of 1 to 64 methods"},
    {.path = "cors.allow_headers", .fallback = SDK_HEADERS, .accepts = HEADERS},
    {.path = "cors.expose_headers",
     .fallback = "x-request-id, x-grid-site, x-grid-backend, retry-after",
     .accepts = HEADERS},
    {.path = "cors.max_age_secs", .fallback = "600", .most = LONGEST_AGE},
    {.path = "cors.allow_credentials",
     .fallback = "false",
     .accepts = "true or false; not true together with the origin \"*\""},
    {.path = "tracing", .accepts = "a mapping"},
    {.path = "tracing.endpoint", .accepts = "HOST:PORT or [IPv6]:PORT", .required = true},
    {.path = "tracing.protocol", .fallback = "grpc", .accepts = "grpc or http"},
    {.path = "tracing.path", .fallback = "/v1/traces", .accepts = "a path of at most 255 bytes; only of protocol http"},
    {.path = "tracing.service_name", .fallback = "grid-gateway", .accepts = "text of at most 255 bytes"},
    {.path = "tracing.percent", .fallback = "100", .accepts = "a number from 0 to 100"},
};
#define N_FIELDS (sizeof fields / sizeof fields[0])

const struct grid_config_field *grid_config_field(const char *path)
{
    size_t i = 0;
    while (i + 1 < N_FIELDS && strcmp(fields[i].path, path) != 0) {
        i++;
    }
    return &fields[i];
}

bool grid_config_knows(const char *prefix, const char *name)
{
    size_t len = strlen(prefix);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (strncmp(fields[i].path, prefix, len) == 0 && strcmp(fields[i].path + len, name) == 0) {
            return strchr(name, '.') == NULL;
        }
    }
    return false;
}

void grid_config_names(const char *path, char *out, size_t out_size)
{
    size_t len = strlen(path), n = 0, told = 0, at = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < N_FIELDS; i++) {
            const char *rest = fields[i].path + len;
            if (strncmp(fields[i].path, path, len) != 0 || *rest != '.') {
                continue;
            }
            if (pass == 0) {
                n++;
            } else if (at < out_size) {
                told++;
                const char *between = told == 1 ? "" : told == n ? " and " : ", ";
                at += (size_t)snprintf(out + at, out_size - at, "%s%s", between, rest + 1);
            }
        }
    }
}

/* ---- printed --------------------------------------------------------------------------------------------------- */

struct printer {
    FILE *to;
    const char *file, *prefix;
};

static void print_row(void *context, const struct grid_field_row *row)
{
    const struct printer *printer = context;
    const char *fallback = row->required ? "required" : row->fallback != NULL ? row->fallback : "none";
    /* Samples of queue depths are kept for as long as at the start: see keep_window in reload.c. */
    bool hot = strcmp(row->path, "window_secs") != 0;
    fprintf(printer->to, "%s\t%s%s\t%s\t%s\t%s\n", printer->file, printer->prefix, row->path, fallback,
            hot ? "hot" : "restart", row->accepts);
}

void grid_config_print_fields(FILE *to)
{
    struct printer printer = {.to = to, .file = "gateway", .prefix = "grid_site_route."};
    fputs("file\tfield\tdefault\tchange\taccepts\n", to);
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct grid_config_field *field = &fields[i];
        const char *fallback = field->required ? "required" : field->fallback != NULL ? field->fallback : "none";
        fprintf(to, "gateway\t%s\t%s\t%s\t", field->path, fallback, field->hot ? "hot" : "restart");
        if (field->accepts != NULL) {
            fprintf(to, "%s\n", field->accepts);
        } else {
            fprintf(to, "a whole number from %.0f to %.0f\n", field->least, field->most);
        }
    }
    grid_settings_describe(print_row, &printer);
    printer.file = "serving";
    printer.prefix = "";
    grid_serving_describe(print_row, &printer);
}
