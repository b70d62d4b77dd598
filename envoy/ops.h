/*
 * ops.h - what the files of the ops listener share
 *
 * Story     ops.c answers what is read, explain.c what is pasted, and the page for people is embedded at build (page.c,
 *           made from envoy/page/ by cmake/embed.cmake).
 */
#ifndef GRID_ENVOY_OPS_H
#define GRID_ENVOY_OPS_H

#include "filter.h"

/* A file of envoy/page/. */
struct grid_asset {
    const char *path, *type;
    struct grid_str text;
};
extern const struct grid_asset grid_assets[];
extern const size_t grid_n_assets;

/* Answers the stream. `allow`: the methods that are taken, of a 405; else NULL. */
void grid_ops_send(void *envoy, int status, const char *type, const char *allow, struct grid_str body);

/* ---- explain.c ------------------------------------------------------------------------------------------------- */

#define GRID_EXPLAIN_PATH "/explain"

/* The head of a POST whose path begins with GRID_EXPLAIN_PATH; what follows is the path that is explained. True: its
 * body is wanted. False: it was answered. */
bool grid_explain_begin(void *envoy, struct grid_filter *filter, struct grid_str path, bool end);

#endif
