/*
 * router.c - life of the handle: new, load, signal, refresh, look
 *
 * A load prepares everything that can fail (parsed texts, tables, resized tables, the new order of sites) and then puts
 * it in force in one step that cannot, so a refusal leaves nothing half done.
 */
#include "router.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "status.h"

static void lock(pthread_mutex_t *mutex)
{
    int failed = pthread_mutex_lock(mutex);
    GRID_ASSERT(failed == 0);
}

static void unlock(pthread_mutex_t *mutex)
{
    int failed = pthread_mutex_unlock(mutex);
    GRID_ASSERT(failed == 0);
}

struct grid_sites *grid_router_take_sites(struct grid_router *router)
{
    lock(&router->now);
    struct grid_sites *sites = grid_sites_ref(router->sites);
    unlock(&router->now);
    return sites;
}

/* Takes the reference to `sites` over. */
static void publish(struct grid_router *router, struct grid_sites *sites)
{
    lock(&router->now);
    struct grid_sites *old = router->sites;
    router->sites = sites;
    unlock(&router->now);
    grid_sites_unref(old);
}

static struct grid_cluster *find_cluster(struct grid_cluster *clusters, struct grid_str name)
{
    for (struct grid_cluster *c = clusters; c; c = c->next)
        if (grid_str_eq((struct grid_str){c->name, c->name_len}, name))
            return c;
    return NULL;
}

static void free_clusters(struct grid_router *router, struct grid_cluster *clusters)
{
    while (clusters) {
        struct grid_cluster *next = clusters->next;
        grid_index_table_unref(clusters->table);
        grid_give(router->alloc, clusters);
        clusters = next;
    }
}

/* The order of sites under `config` at now_ms; depths come from the clusters of both lists. */
static struct grid_sites *order_sites(struct grid_router *router, struct grid_config *config,
                                      struct grid_cluster *fresh, uint64_t now_ms)
{
    double *depths = grid_take(router->alloc, config->n_clusters * sizeof *depths);
    if (!depths)
        return NULL;
    const struct grid_serving *serving = config->serving ? config->serving->serving : NULL;
    uint64_t within = 0;
    if (serving) /* retention decides when it is the shorter (O.38) */
        within = serving->load_window_ms < serving->window_ms ? serving->load_window_ms : serving->window_ms;
    for (size_t i = 0; i < config->n_clusters; i++) {
        struct grid_cluster *c = find_cluster(router->clusters, config->clusters[i].name);
        if (!c)
            c = find_cluster(fresh, config->clusters[i].name);
        depths[i] = c ? grid_window_worst(&c->window, now_ms, within) : (double)INFINITY;
    }
    struct grid_sites *sites = grid_sites_new(config, depths);
    grid_give(router->alloc, depths);
    return sites;
}

/* What a load has prepared. */
struct change {
    struct grid_config *config;
    struct grid_cluster *fresh; /* clusters that are new */
    struct grid_lru **resized;  /* [config->n_clusters], NULL where the capacity stays */
    struct grid_sites *sites;
};

static struct grid_cluster *cluster_new(struct grid_router *router, struct grid_str name, uint32_t capacity)
{
    struct grid_cluster *c = grid_take(router->alloc, sizeof *c);
    if (!c)
        return NULL;
    c->table = grid_index_table_new(router->alloc, capacity);
    if (!c->table) {
        grid_give(router->alloc, c);
        return NULL;
    }
    c->name_len = name.len;
    memcpy(c->name, name.ptr, name.len);
    return c;
}

/* Gives each cluster of the config its table: the one it has, with room of the new capacity set aside, or a new one. */
static bool prepare_tables(struct grid_router *router, struct change *change)
{
    struct grid_config *config = change->config;
    uint32_t capacity = (uint32_t)config->settings.capacity;
    change->resized = grid_take(router->alloc, config->n_clusters * sizeof(struct grid_lru *));
    if (!change->resized)
        return false;
    for (size_t i = 0; i < config->n_clusters; i++) {
        struct grid_cluster *c = find_cluster(router->clusters, config->clusters[i].name);
        if (!c) {
            c = cluster_new(router, config->clusters[i].name, capacity);
            if (!c)
                return false;
            c->next = change->fresh;
            change->fresh = c;
        } else if (grid_index_view(c->table).capacity != capacity) {
            change->resized[i] = grid_lru_new(router->alloc, capacity);
            if (!change->resized[i])
                return false;
        }
        config->clusters[i].table = grid_index_table_ref(c->table);
    }
    return true;
}

static void abandon(struct grid_router *router, struct change *change)
{
    if (change->resized)
        for (size_t i = 0; i < change->config->n_clusters; i++)
            grid_lru_free(change->resized[i]);
    grid_give(router->alloc, change->resized);
    free_clusters(router, change->fresh);
    grid_sites_unref(change->sites);
    grid_sites_config_unref(change->config);
}

static bool prepare(struct grid_router *router, struct change *change, uint64_t now_ms)
{
    if (change->config && prepare_tables(router, change)) {
        change->sites = order_sites(router, change->config, change->fresh, now_ms);
        if (change->sites)
            return true;
    }
    if (change->config)
        abandon(router, change);
    return false;
}

/* Forgets the clusters that the config does not name. */
static void forget_unnamed(struct grid_router *router, const struct grid_config *config)
{
    for (struct grid_cluster *c = router->clusters; c; c = c->next)
        c->named = false;
    for (size_t i = 0; i < config->n_clusters; i++)
        find_cluster(router->clusters, config->clusters[i].name)->named = true;
    for (struct grid_cluster **link = &router->clusters; *link;) {
        struct grid_cluster *c = *link;
        if (c->named) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        c->next = NULL;
        grid_index_forget(c->table);
        free_clusters(router, c);
    }
}

/* Cannot fail. */
static void put_in_force(struct grid_router *router, struct change *change)
{
    while (change->fresh) {
        struct grid_cluster *c = change->fresh;
        change->fresh = c->next;
        c->next = router->clusters;
        router->clusters = c;
    }
    for (size_t i = 0; i < change->config->n_clusters; i++)
        if (change->resized[i])
            grid_lru_free(grid_index_swap(change->config->clusters[i].table, change->resized[i], true));
    grid_give(router->alloc, change->resized);
    forget_unnamed(router, change->config);
    struct grid_config *old = router->config;
    router->config = change->config;
    publish(router, change->sites);
    grid_sites_config_unref(old);
}

/* Parsed texts of a load, before they meet what is in force. */
struct parsed {
    bool has_settings;
    struct grid_settings settings;
    struct grid_shared_serving *serving; /* NULL: keep */
    struct grid_tag_ring *ring;          /* NULL: keep */
};

static enum grid_status parse_settings(const struct grid_load *load, struct parsed *out, struct grid_errors *errors)
{
    if (!load->plugin.ptr)
        return GRID_OK;
    enum grid_status status = grid_settings_parse(load->plugin, load->words, &out->settings, errors);
    if (status != GRID_OK)
        return status;
    out->has_settings = true;
    return GRID_OK;
}

static enum grid_status parse_serving(struct grid_router *router, const struct grid_load *load, struct parsed *out,
                                      struct grid_errors *errors)
{
    if (!load->serving.ptr)
        return GRID_OK;
    struct grid_serving *serving = NULL;
    enum grid_status status = grid_serving_parse(load->serving, load->words, router->alloc, &serving, errors);
    if (status != GRID_OK)
        return status;
    out->serving = grid_sites_share(router->alloc, serving);
    if (!out->serving) {
        grid_serving_free(serving);
        return grid_refuse(errors, GRID_E_NO_MEMORY, 0, "", "no memory for the serving config");
    }
    return GRID_OK;
}

/* The keys themselves stay the caller's: the ring holds what begins a mac, not what they are. */
static enum grid_status parse_keys(struct grid_router *router, const struct grid_load *load, struct parsed *out,
                                   struct grid_errors *errors)
{
    enum grid_status status = GRID_OK;
    if (!load->has_tag_keys)
        return GRID_OK;
    if (load->n_tag_keys > GRID_MAX_TAG_KEYS)
        return grid_refuse(errors, GRID_E_FIELD, 0, "tag_keys", "there are %zu keys: at most %u may be in force",
                           load->n_tag_keys, GRID_MAX_TAG_KEYS);
    for (size_t i = 0; i < load->n_tag_keys; i++) {
        char field[32];
        if (load->tag_keys[i].len >= GRID_MIN_TAG_KEY_BYTES)
            continue;
        (void)snprintf(field, sizeof field, "tag_keys[%zu]", i);
        status = grid_refuse(errors, GRID_E_FIELD, 0, field, "the key has %zu bytes: it must have at least %u bytes",
                             load->tag_keys[i].len, GRID_MIN_TAG_KEY_BYTES);
    }
    if (status != GRID_OK)
        return status;
    out->ring = grid_tag_ring_new(router->alloc, load->tag_keys, load->n_tag_keys);
    return out->ring ? GRID_OK : grid_refuse(errors, GRID_E_NO_MEMORY, 0, "tag_keys", "no memory for the keys of tags");
}

/* Joins what was parsed with what stays, and puts it in force. */
static enum grid_status apply(struct grid_router *router, const struct parsed *parsed, uint64_t max_body_bytes,
                              uint64_t now_ms)
{
    lock(&router->change);
    const struct grid_config *old = router->config;
    struct change change = {
        .config = grid_sites_config_new(router->alloc, parsed->has_settings ? &parsed->settings : &old->settings,
                                        parsed->serving ? parsed->serving : old->serving,
                                        parsed->ring ? parsed->ring : old->ring,
                                        max_body_bytes ? max_body_bytes : old->max_body_bytes, &router->stats)};
    bool ready = prepare(router, &change, now_ms);
    if (ready)
        put_in_force(router, &change);
    unlock(&router->change);
    return ready ? GRID_OK : GRID_E_NO_MEMORY;
}

enum grid_status grid_router_load(struct grid_router *router, const struct grid_load *load, uint64_t now_ms,
                                  struct grid_errors *errors, int *out_text)
{
    struct parsed parsed = {.has_settings = false};
    int text = 1;
    enum grid_status status = parse_settings(load, &parsed, errors);
    if (status == GRID_OK) {
        text = 2;
        status = parse_serving(router, load, &parsed, errors);
    }
    if (status == GRID_OK) {
        text = 3;
        status = parse_keys(router, load, &parsed, errors);
    }
    if (status == GRID_OK) {
        text = 2;
        status = apply(router, &parsed, load->max_body_bytes, now_ms);
        if (status != GRID_OK)
            (void)grid_refuse(errors, status, 0, "", "no memory for this configuration's tables");
    }
    grid_sites_share_unref(parsed.serving);
    grid_tag_ring_unref(parsed.ring);
    if (status != GRID_OK && out_text)
        *out_text = text;
    return status;
}

enum grid_status grid_router_new(const struct grid_options *options, struct grid_router **out_router)
{
    const struct grid_alloc *alloc = options->alloc ? options->alloc : &grid_alloc_default;
    const size_t align = _Alignof(struct grid_router); /* more than an allocator promises */
    char *memory = grid_take(alloc, sizeof(struct grid_router) + align - 1);
    if (!memory)
        return GRID_E_NO_MEMORY;
    struct grid_router *router = (void *)(memory + (align - (uintptr_t)memory % align) % align);
    router->memory = memory;
    router->alloc = alloc;
    router->dice_seed = options->dice_seed;
    grid_hash_seed_init(&router->seed, options->hash_seed);
    grid_stats_init(&router->stats, alloc);
    (void)pthread_mutex_init(&router->change, NULL);
    (void)pthread_mutex_init(&router->now, NULL);
    struct grid_settings settings;
    grid_settings_defaults(&settings);
    struct grid_tag_ring *ring = grid_tag_ring_new(alloc, NULL, 0);
    if (ring)
        router->config =
            grid_sites_config_new(alloc, &settings, NULL, ring, GRID_DEFAULT_MAX_BODY_BYTES, &router->stats);
    grid_tag_ring_unref(ring);
    if (router->config)
        router->sites = order_sites(router, router->config, NULL, 0);
    if (!router->sites) {
        grid_router_free(router);
        return GRID_E_NO_MEMORY;
    }
    *out_router = router;
    return GRID_OK;
}

void grid_router_free(struct grid_router *router)
{
    if (!router)
        return;
    grid_sites_unref(router->sites);
    grid_sites_config_unref(router->config);
    free_clusters(router, router->clusters);
    grid_stats_done(&router->stats);
    (void)pthread_mutex_destroy(&router->change);
    (void)pthread_mutex_destroy(&router->now);
    grid_give(router->alloc, router->memory);
}

bool grid_signal(struct grid_router *router, struct grid_str cluster, double depth, uint64_t stamp_ms, uint64_t now_ms)
{
    (void)now_ms; /* a stamp ahead of the clock waits in the window until its time has come */
    lock(&router->change);
    struct grid_cluster *c = find_cluster(router->clusters, cluster);
    bool kept = c && grid_window_push(&c->window, depth, stamp_ms);
    unlock(&router->change);
    return kept;
}

enum grid_status grid_router_refresh(struct grid_router *router, uint64_t now_ms)
{
    lock(&router->change);
    struct grid_sites *sites = order_sites(router, router->config, NULL, now_ms);
    if (sites)
        publish(router, sites);
    unlock(&router->change);
    return sites ? GRID_OK : GRID_E_NO_MEMORY;
}

void grid_router_forget_cluster(struct grid_router *router, struct grid_str cluster)
{
    lock(&router->change);
    struct grid_cluster *c = find_cluster(router->clusters, cluster);
    struct grid_lru *empty = c ? grid_lru_new(router->alloc, grid_index_view(c->table).capacity) : NULL;
    if (empty) {
        grid_lru_free(grid_index_swap(c->table, empty, false));
        grid_stats_add(&router->stats.resets);
    }
    unlock(&router->change);
}

void grid_router_settings(struct grid_router *router, struct grid_settings *out_settings)
{
    struct grid_sites *sites = grid_router_take_sites(router);
    *out_settings = sites->config->settings;
    grid_sites_unref(sites);
}

void grid_count_records(struct grid_router *router, uint64_t written, uint64_t dropped)
{
    grid_stats_add_n(&router->stats.recorded, written);
    grid_stats_add_n(&router->stats.unrecorded, dropped);
}

void grid_count_time(struct grid_router *router, enum grid_side side, uint64_t ns)
{
    struct grid_stats *stats = &router->stats;
    if (side == GRID_SIDE_REQUEST)
        grid_stats_observe(&stats->request, GRID_STATS_REQUEST, ns);
    else
        grid_stats_observe(&stats->response, GRID_STATS_RESPONSE, ns);
}

void grid_count_reload(struct grid_router *router, enum grid_reload result)
{
    grid_stats_add(&router->stats.reloads[result]);
}
