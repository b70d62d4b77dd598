/*
 * query.h - one request as the command knows it, and how its facts are printed
 *
 * Story     keys, explain and replay hold a request in memory: a head, perhaps a whole body. This turns it into a
 *           ticket of the core, as the proxy would, and prints keys, headers and base64 as JSON.
 * Promise   Views in a query are not kept after a call.
 * Not here  Reading request descriptions (replay_request.c).
 */
#ifndef GRID_QUERY_H
#define GRID_QUERY_H

#include <grid/grid.h>

struct grid_query {
    struct grid_str method, path;
    const struct grid_header *headers; /* lower-case names */
    size_t n_headers;
    bool has_body;
    struct grid_str body;
    size_t piece_bytes; /* the body arrives in pieces of so many bytes; 0: in one */
};

/* A ticket that has read head and body. The caller frees it with grid_ticket_free. */
enum grid_status grid_query_ticket(struct grid_router *router, const struct grid_query *query,
                                   struct grid_ticket **out_ticket) GRID_MUST_USE;

/* A router with default settings and no candidate. The caller frees it with grid_router_free. */
enum grid_status grid_query_router(uint64_t seed, struct grid_router **out_router) GRID_MUST_USE;

/* Reads a body from a file, "-" being standard input. The caller frees *out_text. */
bool grid_query_read(const char *path, char **out_text, size_t *out_len, char *error, size_t error_size) GRID_MUST_USE;

struct grid_str grid_query_str(const char *text); /* a view of a C string */

/* JSON. */
void grid_query_put_headers(struct grid_buf *out, const struct grid_header *headers, size_t n);
void grid_query_put_base64(struct grid_buf *out, struct grid_str bytes); /* with quotes */

void grid_query_put_keys(struct grid_buf *out, const uint64_t *keys, size_t n); /* ["16 hex digits",…] */

/* Strict base64 (RFC 4648, section 4, padded). The caller frees *out_bytes. */
bool grid_query_from_base64(struct grid_str text, char **out_bytes, size_t *out_len) GRID_MUST_USE;

#endif
