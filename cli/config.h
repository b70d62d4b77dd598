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

#include "cli/files.h"

#include <jansson.h>

/* Where something listens: an IP address and port, or a Unix socket. */
struct grid_address {
    bool is_unix;
    char host[108]; /* the address without brackets, or the socket's path */
    unsigned port;
};

/* One of the two texts. `text` is kept so that a reload can hold on to the last good one. */
struct grid_source {
    char path[GRID_PATH_BYTES]; /* as shown in refusals; "" for a serving config in place */
    char *text;
    size_t len;
};

struct grid_gateway {
    struct grid_source file, serving_file;
    struct grid_address listen, admin, ops;
    bool tls, client_tls;
    char cert_path[GRID_PATH_BYTES], key_path[GRID_PATH_BYTES], client_ca_path[GRID_PATH_BYTES];
    uint64_t max_body_bytes, max_heap_bytes, max_connections; /* 0: no bound, for the last two */
    uint64_t connect_ms, request_body_ms, idle_ms, total_ms;
    json_t *filters_before; /* a list, never NULL after a load */
    unsigned concurrency;   /* 0: one worker a processor */
    bool access_log;
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

/* Loads the file at `path`. Texts that are given in `kept_file` and `kept_serving` (NULL: none) are taken in place of
 * what is on disk, the second only when it has the path that the first asks for. On success the caller ends *out with
 * grid_gateway_done; on failure nothing is left and the report says why. `report` starts as {0}. */
bool grid_config_load(const char *path, const struct grid_source *kept_file, const struct grid_source *kept_serving,
                      struct grid_gateway *out, struct grid_report *report) GRID_MUST_USE;
/* The line of a top field of the gateway's file; 1 when it stands on its default. */
unsigned grid_config_line(const struct grid_source *file, const char *field);

void grid_gateway_done(struct grid_gateway *gateway); /* a zeroed one is fine */

/* "HOST:PORT", "[IPv6]:PORT" or, when `allow_unix`, "unix:/path". With `allow_name` the host may be a DNS name. */
bool grid_address_parse(struct grid_str text, bool allow_unix, bool allow_name, struct grid_address *out);
bool grid_address_is_ip(const struct grid_address *address);

/* A path of the serving config, made absolute. */
bool grid_config_serving_path(const struct grid_gateway *gateway, struct grid_str path, char *out, size_t out_size);

#endif
