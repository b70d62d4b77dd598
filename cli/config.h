/*
 * config.h - the gateway's own configuration file
 *
 * Story     `check` and `run` load the file that a person wrote, with the serving config that it names or holds, into
 *           one struct. Rendering reads only that struct.
 * Promise   Everything is checked, the `grid_site_route` block and the serving config by the core, and every refusal
 *           is collected with file, line and field. Paths in a file are taken from that file's own folder and come
 *           out absolute.
 * Not here  Envoy's configuration (render.h). Watching the files (watch.h).
 */
#ifndef GRID_CONFIG_H
#define GRID_CONFIG_H

#include "cli/material.h"

#include <jansson.h>

/* Where something listens: an IP address and port, or a Unix socket. */
struct grid_address {
    bool is_unix;
    char host[256]; /* the address or name without brackets, or the socket's path */
    unsigned port;
};

/* One of the two texts. `text` is kept so that a reload can hold on to the last good one. */
struct grid_source {
    char path[GRID_PATH_BYTES]; /* as shown in refusals; "" for a serving config in place */
    char *text;
    size_t len;
};

/* Which pages of other origins may call (behaviour.md O.50). */
struct grid_cors {
    bool on, allow_credentials;
    json_t *allow_origins, *allow_methods, *allow_headers, *expose_headers; /* NULL: the default of the last three */
    uint64_t max_age_secs;
};

/* Where spans go, in OpenTelemetry's protocol. */
struct grid_tracing {
    bool on, http; /* http: OTLP over HTTP, else gRPC */
    struct grid_address collector;
    char path[256], service_name[256];
    double percent;
};

struct grid_gateway {
    struct grid_source file, serving_file;
    struct grid_address listen, admin, ops;
    bool provider;         /* role: only allowed_paths, only from peers_allowed, to one local cluster */
    json_t *peers_allowed; /* a provider's: names in certificates; else NULL */
    json_t *allowed_paths; /* a provider's; else NULL */
    bool tls, client_tls;
    char cert_path[GRID_PATH_BYTES], key_path[GRID_PATH_BYTES], client_ca_path[GRID_PATH_BYTES];
    struct grid_materials materials; /* contents of all certificates, keys and credentials that are named */
    struct grid_cors cors;
    struct grid_tracing tracing;
    uint64_t failover_max_body_bytes;                         /* 0: no body is kept for another site */
    uint64_t max_body_bytes, max_heap_bytes, max_connections; /* 0: no bound, for the last two */
    uint64_t connect_ms, request_body_ms, idle_ms, total_ms;
    json_t *filters_before; /* a list, never NULL after a load */
    unsigned concurrency;   /* 0: one worker a processor */
    bool access_log;
    bool trace_keys; /* record key streams */
    char trace_path[GRID_PATH_BYTES], trace_secret_path[GRID_PATH_BYTES];
    uint64_t trace_max_bytes;
    char log_level[16];
    struct grid_settings settings;
    struct grid_serving *serving;
};

/* Refusals, one "file:line: field: message" a line. */
struct grid_report {
    size_t count;
    struct grid_buf lines;
};
void grid_report_add(struct grid_report *report, const char *file, unsigned line, const char *field, const char *format,
                     ...) __attribute__((format(printf, 5, 6)));
void grid_report_done(struct grid_report *report);

/* What of the configuration in force stands in for what is on disk; all of it may be NULL. */
struct grid_kept {
    const struct grid_source *file, *serving; /* the second only when the file asks for its path */
    const struct grid_materials *materials;   /* each only for a file that is no good now; `notes` gets why */
    const struct grid_settings *settings;     /* the same for files with the keys of tags */
    struct grid_report *notes;
};

/* Loads the file at `path`; `kept` may be NULL. On success the caller ends *out with grid_gateway_done; on failure
 * nothing is left and the report says why. `report` starts as {0}. */
bool grid_config_load(const char *path, const struct grid_kept *kept, struct grid_gateway *out,
                      struct grid_report *report) GRID_MUST_USE;
/* The line of a top field of the gateway's file; 1 when it stands on its default. */
unsigned grid_config_line(const struct grid_source *file, const char *field);

void grid_gateway_done(struct grid_gateway *gateway); /* a zeroed one is fine */

/* "HOST:PORT", "[IPv6]:PORT" or, when `allow_unix`, "unix:/path". With `allow_name` the host may be a DNS name. */
bool grid_address_parse(struct grid_str text, bool allow_unix, bool allow_name, struct grid_address *out);
bool grid_address_is_ip(const struct grid_address *address);
bool grid_address_is_loopback(const struct grid_address *address); /* reached from this machine only */

/* A path of the serving config, made absolute. */
bool grid_config_serving_path(const struct grid_gateway *gateway, struct grid_str path, char *out, size_t out_size);

#endif
