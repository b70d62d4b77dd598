/*
 * sites.h - the configuration in force, and the candidates in the order of their queues
 *
 * Story     router.c builds a config at each load and a new order of sites at each refresh; a request takes one
 *           snapshot and sees nothing else of either until it ends.
 * Owns      A config owns the parsed serving config, the keys of tags and a reference to each cluster's table; a
 *           snapshot owns its config.
 * Promise   Immutable once built, counted, freed by whoever lets go last, on any thread.
 * Source    behaviour.md A, E.1.
 * Not here  depths (window.h), the choice (select.h).
 */
#ifndef GRID_SITES_H
#define GRID_SITES_H

#include <stdatomic.h>

#include "index.h"
#include "stats.h"
#include "str.h"
#include "tag.h"

/* A parsed serving config that several configs may share: a plugin reload keeps it. */
struct grid_shared_serving {
    atomic_uint references;
    const struct grid_alloc *alloc;
    struct grid_serving *serving;
};
/* Takes the serving config over; NULL (and the serving config still the caller's) for want of memory. */
struct grid_shared_serving *grid_sites_share(const struct grid_alloc *alloc, struct grid_serving *serving);
struct grid_shared_serving *grid_sites_share_ref(struct grid_shared_serving *shared);
void grid_sites_share_unref(struct grid_shared_serving *shared);

struct grid_config_cluster {
    struct grid_str name; /* into the serving config */
    struct grid_table *table;
};

struct grid_config_candidate {
    struct grid_str model, site, cluster;
    char mark[GRID_TAG_MARK_BYTES]; /* the cluster's */
    bool admitted;
    uint32_t cluster_index;                   /* into clusters */
    const struct grid_serving_cluster *place; /* NULL in the operator's form */
    const struct grid_serving_alias *alias;   /* of the model; NULL: the cluster knows it by that name */
    struct grid_stats_pair *pair;
};

struct grid_config {
    atomic_uint references;
    const struct grid_alloc *alloc;
    struct grid_settings settings;
    struct grid_shared_serving *serving;
    struct grid_tag_ring *ring; /* the keys of tags */
    uint64_t max_body_bytes;
    struct grid_config_candidate *candidates; /* inference models only, in config order */
    size_t n_candidates;
    struct grid_config_cluster *clusters; /* distinct, in config order */
    size_t n_clusters;
    bool has_paths; /* some cluster serves only some paths (behaviour.md O.47) */
};
/* The candidates and their distinct clusters, with tables still NULL; references to `shared` and `ring` are added.
 * NULL for want of memory. */
struct grid_config *grid_sites_config_new(const struct grid_alloc *alloc, const struct grid_settings *settings,
                                          struct grid_shared_serving *shared, struct grid_tag_ring *ring,
                                          uint64_t max_body_bytes, struct grid_stats *stats);
struct grid_config *grid_sites_config_ref(struct grid_config *config);
void grid_sites_config_unref(struct grid_config *config);

struct grid_site {
    const struct grid_config_candidate *candidate;
    struct grid_table *table; /* borrowed from the config */
    double depth;
};

struct grid_model {
    struct grid_str name;
    uint32_t first, n, admitted; /* a stretch of sites */
    bool aliased;                /* some cluster has another name for it */
};

struct grid_sites {
    atomic_uint references;
    const struct grid_alloc *alloc;
    struct grid_config *config;
    struct grid_site *sites; /* by model, then by depth, then as configured */
    size_t n_sites;
    struct grid_model *models; /* by name */
    size_t n_models;
};
/* depths[i] is that of config->clusters[i]. A reference to config is added. NULL for want of memory. */
struct grid_sites *grid_sites_new(struct grid_config *config, const double *depths);
struct grid_sites *grid_sites_ref(struct grid_sites *sites);
void grid_sites_unref(struct grid_sites *sites);

/* Whether a cluster serves a path without its query; NULL serves all. */
bool grid_sites_serves(const struct grid_serving_cluster *place, struct grid_str path);

/* The model's stretch of sites; NULL when no candidate serves it. */
const struct grid_model *grid_sites_model(const struct grid_sites *sites, struct grid_str name);

#endif
