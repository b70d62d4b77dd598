/*
 * health.c - how many hosts of each cluster Envoy holds for healthy, for pages
 *
 * Story     The decision asks Envoy itself (pick.c). Pages may be written on any thread, where Envoy does not answer,
 *           so the main thread reads Envoy's own gauges once a second.
 * Threads   set, refresh, free: main thread. get: any.
 * Not here  What health means for a decision (core/select.c).
 */
#include "module.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { EVERY_MS = 1000 };

struct watched {
    struct grid_health_view view;
    char cluster[GRID_MAX_NAME_BYTES + 1];
    char stat[GRID_MAX_NAME_BYTES + 1]; /* the name as Envoy's statistics have it */
};

static struct {
    pthread_mutex_t mutex;
    struct watched *clusters;
    size_t n;
    uint64_t next_ms;
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void grid_health_set(const struct grid_serving *serving)
{
    struct watched *clusters = calloc(serving->n_clusters + 1, sizeof(*clusters));
    for (size_t i = 0; clusters && i < serving->n_clusters; i++) {
        struct grid_str name = serving->clusters[i].name;
        snprintf(clusters[i].cluster, sizeof(clusters[i].cluster), "%.*s", (int)name.len, name.ptr);
        snprintf(clusters[i].stat, sizeof(clusters[i].stat), "%.*s", (int)name.len, name.ptr);
        for (char *c = clusters[i].stat; *c; c++)
            *c = *c == ':' ? '_' : *c;
    }
    pthread_mutex_lock(&table.mutex);
    struct watched *old = table.clusters;
    table.clusters = clusters;
    table.n = clusters ? serving->n_clusters : 0;
    table.next_ms = 0;
    pthread_mutex_unlock(&table.mutex);
    free(old);
}

static bool read_gauge(void *extension, const char *stat, const char *what, size_t *out)
{
    char name[GRID_MAX_NAME_BYTES + 64];
    uint64_t value = 0;
    int len = snprintf(name, sizeof(name), "cluster.%s.%s", stat, what);
    if (!ENVOY(bootstrap_extension_get_gauge_value)(extension, (struct grid_str){name, (size_t)len}, &value))
        return false;
    *out = (size_t)value;
    return true;
}

void grid_health_refresh(const struct grid_module *module, uint64_t now_ms)
{
    if (now_ms < table.next_ms || !module->extension)
        return;
    table.next_ms = now_ms + EVERY_MS;
    for (size_t i = 0; i < table.n; i++) {
        struct grid_health_view view = {false, 0, 0};
        view.known = read_gauge(module->extension, table.clusters[i].stat, "membership_total", &view.hosts) &&
                     read_gauge(module->extension, table.clusters[i].stat, "membership_healthy", &view.healthy);
        pthread_mutex_lock(&table.mutex);
        table.clusters[i].view = view;
        pthread_mutex_unlock(&table.mutex);
    }
}

struct grid_health_view grid_health_get(const char *cluster)
{
    struct grid_health_view view = {false, 0, 0};
    pthread_mutex_lock(&table.mutex);
    for (size_t i = 0; i < table.n; i++) {
        if (strcmp(table.clusters[i].cluster, cluster) == 0)
            view = table.clusters[i].view;
    }
    pthread_mutex_unlock(&table.mutex);
    return view;
}

void grid_health_free(void)
{
    pthread_mutex_lock(&table.mutex);
    free(table.clusters);
    table.clusters = NULL;
    table.n = 0;
    pthread_mutex_unlock(&table.mutex);
}
