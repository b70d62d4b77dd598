/*
 * render.h - from the gateway's configuration to the files that Envoy and the module read
 *
 * Story     `run` renders the whole configuration into texts and writes them into its state folder:
 *             envoy.json    Envoy's bootstrap: listeners, admin, the module's three parts. Read once, at the start.
 *             cds.json      the clusters. Envoy watches it.
 *             rds.json      a provider's routes, the same.
 *             sds/          certificates, keys and credentials, each with its contents in place, the same.
 *             plugin.json   the grid_site_route block, with every field spelled out. The module watches it.
 *             serving.json  the serving config, the same.
 * Promise   Pure: equal configurations give equal texts, byte for byte, so a change of meaning is a change of text.
 *           Paths in the texts are absolute.
 *           The contents of secrets were read with the configuration (material.h).
 * Not here  Writing and watching (state.h), starting Envoy (launch.h).
 */
#ifndef GRID_RENDER_H
#define GRID_RENDER_H

#include "cli/config.h"

#define GRID_MODULE_NAME "grid_site_route" /* libgrid_site_route.so */

/* Each returns a text for free(), or NULL for want of memory. */
char *grid_render_envoy(const struct grid_gateway *gateway, const char *state_dir);
char *grid_render_clusters(const struct grid_gateway *gateway, const char *state_dir);
char *grid_render_routes(const struct grid_gateway *gateway); /* of a provider; "" of a consumer */
char *grid_render_plugin(const struct grid_gateway *gateway);
char *grid_render_serving(const struct grid_gateway *gateway);

/* A mapping from the name of each secret to the secret, contents and all. A new reference. */
json_t *grid_render_secrets(const struct grid_gateway *gateway);

/* Parts that the files above share. New references; NULL for want of memory. */
json_t *grid_render_downstream_tls(const struct grid_gateway *gateway, const char *state_dir);
json_t *grid_render_upstream_tls(const struct grid_gateway *gateway, const struct grid_serving_cluster *cluster,
                                 const char *state_dir);
/* The filter that puts the cluster's credential in the place of the client's; NULL when it has none. */
json_t *grid_render_credential(const struct grid_gateway *gateway, const struct grid_serving_cluster *cluster,
                               const char *state_dir);
json_t *grid_render_access_log(void);
json_t *grid_render_tracing(const struct grid_gateway *gateway);
json_t *grid_render_trace_cluster(const struct grid_gateway *gateway);
json_t *grid_render_cors_filter(void);
/* A route configuration of one host, around its routes (taken over); gateway NULL: not of the main listener. */
json_t *grid_render_host(const struct grid_gateway *gateway, const char *name, json_t *routes);
json_t *grid_render_provider_routes(const struct grid_gateway *gateway);
json_t *grid_render_address(const struct grid_address *address);
json_t *grid_render_duration(uint64_t ms);
json_t *grid_render_file(const char *path);
json_t *grid_render_local_replies(void);
/* Adds to the list of clusters what the engines of this one, which is rendered as `whole`, are polled through. */
void grid_render_polls(json_t *list, const json_t *whole, const struct grid_serving_cluster *cluster);
char *grid_render_text(json_t *value); /* takes the reference; NULL in, NULL out */

#endif
