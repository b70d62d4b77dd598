/*
 * config_edge.h - the gateway's edge: who may come in, to which paths, and who is told
 */
#ifndef GRID_CONFIG_EDGE_H
#define GRID_CONFIG_EDGE_H

#include "cli/reading.h"

/* Reads role, peers_allowed, allowed_paths, tls, cors, tracing and http_filters_before. */
void grid_config_edge_read(struct grid_reading *r, json_t *root);
/* What holds between them and the serving config, when all of it is read. */
void grid_config_edge_check(struct grid_reading *r, json_t *root);
void grid_config_edge_done(struct grid_gateway *gateway);

/* The cluster that a provider forwards to; {NULL, 0} when no candidate takes new requests. */
struct grid_str grid_config_backend(const struct grid_gateway *gateway);

#endif
