/*
 * sites.c - the configuration in force, and the candidates in the order of their queues
 */
#include "sites.h"

#include <stdlib.h>

#include "check.h"

/* acquire-release on the last release: whoever frees must see what every earlier holder did. */
static bool last(atomic_uint *references)
{
    return atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel) == 1;
}

static void one_more(atomic_uint *references)
{
    (void)atomic_fetch_add_explicit(references, 1, memory_order_relaxed);
}

struct grid_shared_serving *grid_sites_share(const struct grid_alloc *alloc, struct grid_serving *serving)
{
    struct grid_shared_serving *shared = grid_take(alloc, sizeof *shared);
    if (!shared)
        return NULL;
    atomic_init(&shared->references, 1);
    shared->alloc = alloc;
    shared->serving = serving;
    return shared;
}

struct grid_shared_serving *grid_sites_share_ref(struct grid_shared_serving *shared)
{
    if (shared)
        one_more(&shared->references);
    return shared;
}

void grid_sites_share_unref(struct grid_shared_serving *shared)
{
    if (!shared || !last(&shared->references))
        return;
    grid_serving_free(shared->serving);
    grid_give(shared->alloc, shared);
}

/* Index of the cluster in config->clusters, added when it is new. At most 1,024 candidates, at configuration time. */
static uint32_t cluster_index(struct grid_config *config, struct grid_str name)
{
    for (size_t i = 0; i < config->n_clusters; i++)
        if (grid_str_eq(config->clusters[i].name, name))
            return (uint32_t)i;
    config->clusters[config->n_clusters] = (struct grid_config_cluster){.name = name};
    return (uint32_t)config->n_clusters++;
}

/* With `clusters` in the settings, other clusters have no route (behaviour.md J.1). */
static bool has_route(const struct grid_settings *settings, struct grid_str cluster)
{
    for (size_t i = 0; i < settings->n_clusters; i++)
        if (grid_str_eq(grid_str_of(settings->clusters[i]), cluster))
            return true;
    return !settings->has_clusters;
}

static const struct grid_serving_cluster *place_of(const struct grid_serving *serving, struct grid_str cluster)
{
    for (size_t i = 0; i < serving->n_clusters; i++)
        if (grid_str_eq(serving->clusters[i].name, cluster))
            return &serving->clusters[i];
    return NULL;
}

static const struct grid_serving_alias *alias_of(const struct grid_serving_cluster *place, struct grid_str model)
{
    for (size_t i = 0; place && i < place->n_aliases; i++)
        if (grid_str_eq(place->aliases[i].model, model))
            return grid_str_eq(place->aliases[i].name, model) ? NULL : &place->aliases[i];
    return NULL;
}

static bool add_candidates(struct grid_config *config, const struct grid_serving *serving, struct grid_stats *stats)
{
    config->candidates = grid_take(config->alloc, serving->n_candidates * sizeof *config->candidates);
    config->clusters = grid_take(config->alloc, serving->n_candidates * sizeof *config->clusters);
    if (!config->candidates || !config->clusters)
        return false;
    for (size_t i = 0; i < serving->n_candidates; i++) {
        const struct grid_serving_candidate *from = &serving->candidates[i];
        if (from->kind != GRID_INFERENCE_MODEL || !has_route(&config->settings, from->cluster))
            continue;
        struct grid_config_candidate *to = &config->candidates[config->n_candidates++];
        to->model = from->name;
        to->site = from->site;
        to->cluster = from->cluster;
        memcpy(to->mark, from->mark, sizeof to->mark);
        to->admitted = from->admission == GRID_NEW_AND_EXISTING;
        to->cluster_index = cluster_index(config, from->cluster);
        to->place = place_of(serving, from->cluster);
        to->alias = alias_of(to->place, from->name);
        config->has_paths |= to->place && to->place->n_paths > 0;
        to->pair = grid_stats_pair_of(stats, from->site, from->cluster);
        if (!to->pair)
            return false;
    }
    return true;
}

struct grid_config *grid_sites_config_new(const struct grid_alloc *alloc, const struct grid_settings *settings,
                                          struct grid_shared_serving *shared, struct grid_tag_ring *ring,
                                          uint64_t max_body_bytes, struct grid_stats *stats)
{
    struct grid_config *config = grid_take(alloc, sizeof *config);
    if (!config)
        return NULL;
    atomic_init(&config->references, 1);
    config->alloc = alloc;
    config->settings = *settings;
    config->serving = grid_sites_share_ref(shared);
    config->ring = grid_tag_ring_ref(ring);
    config->max_body_bytes = max_body_bytes;
    if (shared && !add_candidates(config, shared->serving, stats)) {
        grid_sites_config_unref(config);
        return NULL;
    }
    return config;
}

struct grid_config *grid_sites_config_ref(struct grid_config *config)
{
    if (config)
        one_more(&config->references);
    return config;
}

void grid_sites_config_unref(struct grid_config *config)
{
    if (!config || !last(&config->references))
        return;
    for (size_t i = 0; i < config->n_clusters; i++)
        grid_index_table_unref(config->clusters[i].table);
    grid_give(config->alloc, config->candidates);
    grid_give(config->alloc, config->clusters);
    grid_sites_share_unref(config->serving);
    grid_tag_ring_unref(config->ring);
    grid_give(config->alloc, config);
}

static int compare_names(struct grid_str a, struct grid_str b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.ptr, b.ptr, n) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* By model, then by depth, then as configured: candidates lie in config order in memory, so their address decides. */
static int compare_sites(const void *pa, const void *pb)
{
    const struct grid_site *a = pa, *b = pb;
    int order = compare_names(a->candidate->model, b->candidate->model);
    if (order)
        return order;
    if (a->depth != b->depth)
        return a->depth < b->depth ? -1 : 1;
    return (a->candidate > b->candidate) - (a->candidate < b->candidate);
}

static void group_by_model(struct grid_sites *sites)
{
    for (size_t i = 0; i < sites->n_sites; i++) {
        const struct grid_config_candidate *candidate = sites->sites[i].candidate;
        struct grid_model *model = sites->n_models ? &sites->models[sites->n_models - 1] : NULL;
        if (!model || !grid_str_eq(model->name, candidate->model)) {
            model = &sites->models[sites->n_models++];
            *model = (struct grid_model){.name = candidate->model, .first = (uint32_t)i};
        }
        model->n++;
        model->admitted += candidate->admitted;
        model->aliased |= candidate->alias != NULL;
    }
}

struct grid_sites *grid_sites_new(struct grid_config *config, const double *depths)
{
    const struct grid_alloc *alloc = config->alloc;
    struct grid_sites *sites = grid_take(alloc, sizeof *sites);
    if (!sites)
        return NULL;
    atomic_init(&sites->references, 1);
    sites->alloc = alloc;
    sites->config = grid_sites_config_ref(config);
    sites->sites = grid_take(alloc, config->n_candidates * sizeof *sites->sites);
    sites->models = grid_take(alloc, config->n_candidates * sizeof *sites->models);
    if (!sites->sites || !sites->models) {
        grid_sites_unref(sites);
        return NULL;
    }
    for (size_t i = 0; i < config->n_candidates; i++) {
        const struct grid_config_candidate *candidate = &config->candidates[i];
        sites->sites[i] = (struct grid_site){.candidate = candidate,
                                             .table = config->clusters[candidate->cluster_index].table,
                                             .depth = depths[candidate->cluster_index]};
    }
    sites->n_sites = config->n_candidates;
    if (sites->n_sites)
        qsort(sites->sites, sites->n_sites, sizeof *sites->sites, compare_sites);
    group_by_model(sites);
    return sites;
}

struct grid_sites *grid_sites_ref(struct grid_sites *sites)
{
    one_more(&sites->references);
    return sites;
}

void grid_sites_unref(struct grid_sites *sites)
{
    if (!sites || !last(&sites->references))
        return;
    grid_give(sites->alloc, sites->sites);
    grid_give(sites->alloc, sites->models);
    grid_sites_config_unref(sites->config);
    grid_give(sites->alloc, sites);
}

bool grid_sites_serves(const struct grid_serving_cluster *place, struct grid_str path)
{
    size_t n = place ? place->n_paths : 0;
    while (path.len > 1 && path.ptr[path.len - 1] == '/')
        path.len--;
    for (size_t i = 0; i < n; i++)
        if (grid_str_eq(place->paths[i], path))
            return true;
    return n == 0;
}

const struct grid_model *grid_sites_model(const struct grid_sites *sites, struct grid_str name)
{
    size_t low = 0, high = sites->n_models;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_names(sites->models[middle].name, name);
        if (order == 0)
            return &sites->models[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
