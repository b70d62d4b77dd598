/*
 * render.h - from the gateway's configuration to the files that Envoy and the module read
 *
 * Story     `run` renders the whole configuration into four texts and writes them into its state folder:
 *             envoy.json    Envoy's bootstrap: listeners, admin, the module's three parts. Read once, at the start.
 *             cds.json      the clusters. Envoy watches it.
 *             plugin.json   the grid_site_route block, with every field spelled out. The module watches it.
 *             serving.json  the serving config, the same.
 * Promise   Pure: equal configurations give equal texts, byte for byte, so a change of meaning is a change of text.
 *           Paths in the texts are absolute.
 * Not here  Writing and watching (state.h), starting Envoy (launch.h).
 */
#ifndef GRID_RENDER_H
#define GRID_RENDER_H

#include "cli/config.h"

#define GRID_MODULE_NAME "grid_site_route" /* libgrid_site_route.so */

/* Each returns a text for free(), or NULL for want of memory. */
char *grid_render_envoy(const struct grid_gateway *gateway, const char *state_dir);
char *grid_render_clusters(const struct grid_gateway *gateway);
char *grid_render_plugin(const struct grid_gateway *gateway);
char *grid_render_serving(const struct grid_gateway *gateway);

/* Parts that the files above share. New references; NULL for want of memory. */
json_t *grid_render_address(const struct grid_address *address);
json_t *grid_render_duration(uint64_t ms);
json_t *grid_render_file(const char *path);
json_t *grid_render_local_replies(void);
/* Adds to the list of clusters what the engines of this one, which is rendered as `whole`, are polled through. */
void grid_render_polls(json_t *list, const json_t *whole, const struct grid_serving_cluster *cluster);
char *grid_render_text(json_t *value); /* takes the reference; NULL in, NULL out */

#endif
