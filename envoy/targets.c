/*
 * targets.c - whose queues are asked
 *
 * Story     A cluster of one address is asked as it is. One of several static addresses has a hidden cluster in Envoy
 *           for each of them, so that every engine is asked and none hides behind another. One with names is asked
 *           through its balancing, an endpoint a poll: a sample.
 * Promise   What is known of a cluster and of an endpoint outlives a change of the rest; counts outlive even a cluster.
 *           A silent endpoint leaves the average when its last depth is old.
 * Source    behaviour.md O (23), design.md 8.
 */
#include "signals.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_LEFT = 1024,  /* clusters that left, whose counts are kept */
    YOUNG_ROUNDS = 2, /* a depth counts for this many intervals */
};

struct grid_signals grid_signals = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- clusters ------------------------------------------------------------------------------------------------ */

static struct grid_polled *find_cluster(struct grid_polled *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i].cluster, name) == 0)
            return &list[i];
    }
    return NULL;
}

/* Keeps the counts of a cluster that leaves, in the place of the oldest when there are too many. Under the mutex. */
static void remember(const struct grid_polled *polled)
{
    struct grid_signals *s = &grid_signals;
    if (s->n_left == MAX_LEFT) {
        memmove(s->left, s->left + 1, (MAX_LEFT - 1) * sizeof(*s->left));
        s->n_left--;
    }
    struct grid_polled *grown = realloc(s->left, (s->n_left + 1) * sizeof(*grown));
    if (!grown)
        return;
    s->left = grown;
    s->left[s->n_left] = *polled;
    s->left[s->n_left].has_sample = false;
    s->n_left++;
}

/* Gives a cluster that returns its counts back. Under the mutex. */
static void recall(struct grid_polled *polled)
{
    struct grid_signals *s = &grid_signals;
    struct grid_polled *left = find_cluster(s->left, s->n_left, polled->cluster);
    if (!left)
        return;
    memcpy(polled->counts, left->counts, sizeof(polled->counts));
    polled->resets = left->resets;
    size_t behind = s->n_left - (size_t)(left - s->left) - 1;
    memmove(left, left + 1, behind * sizeof(*left));
    s->n_left--;
}

static void fill_cluster(struct grid_polled *out, const struct grid_serving_cluster *cluster)
{
    char name[GRID_MAX_NAME_BYTES + 1];
    snprintf(name, sizeof(name), "%.*s", (int)cluster->name.len, cluster->name.ptr);
    const struct grid_polled *old = find_cluster(grid_signals.clusters, grid_signals.n_clusters, name);
    if (old) {
        *out = *old;
        return;
    }
    memcpy(out->cluster, name, sizeof(name));
    recall(out);
}

/* ---- targets ------------------------------------------------------------------------------------------------- */

/* An address in digits, "1.2.3.4:80" or "[::1]:80"; a name may stand for many. */
static bool is_static(struct grid_str endpoint)
{
    char host[INET6_ADDRSTRLEN];
    unsigned char bytes[sizeof(struct in6_addr)];
    size_t len = endpoint.len;
    while (len > 0 && endpoint.ptr[len - 1] != ':')
        len--;
    bool brackets = len > 2 && endpoint.ptr[0] == '[' && endpoint.ptr[len - 2] == ']';
    len = len > 0 ? len - 1 - (brackets ? 2 : 0) : 0;
    if (len == 0 || len >= sizeof(host))
        return false;
    memcpy(host, endpoint.ptr + (brackets ? 1 : 0), len);
    host[len] = '\0';
    return inet_pton(brackets ? AF_INET6 : AF_INET, host, bytes) == 1;
}

/* The command renders hidden clusters by the same rule (cli/render_polls.c). */
static bool has_hidden(const struct grid_serving_cluster *cluster)
{
    for (size_t i = 0; i < cluster->n_endpoints; i++) {
        if (!is_static(cluster->endpoints[i]))
            return false;
    }
    return cluster->n_endpoints > 1;
}

static size_t targets_of(const struct grid_serving_cluster *cluster)
{
    return cluster->signals.off ? 0 : has_hidden(cluster) ? cluster->n_endpoints : 1;
}

static const struct grid_target *find_target(const char *cluster, const char *endpoint)
{
    const struct grid_signals *s = &grid_signals;
    for (size_t i = 0; i < s->n_targets; i++) {
        if (strcmp(s->clusters[s->targets[i].cluster].cluster, cluster) == 0 &&
            strcmp(s->targets[i].endpoint, endpoint) == 0)
            return &s->targets[i];
    }
    return NULL;
}

/* `index`: into the cluster's endpoints when each has a hidden cluster. */
static void fill_target(struct grid_target *out, const struct grid_serving_cluster *cluster, size_t in, size_t index,
                        const char *name)
{
    bool hidden = has_hidden(cluster);
    struct grid_str endpoint = cluster->n_endpoints > 0 ? cluster->endpoints[index] : cluster->name;
    char text[GRID_ENDPOINT_BYTES] = "";
    if (hidden)
        snprintf(text, sizeof(text), "%.*s", (int)endpoint.len, endpoint.ptr);
    const struct grid_target *old = find_target(name, text);
    if (old)
        *out = *old;
    memcpy(out->endpoint, text, sizeof(text));
    if (hidden)
        snprintf(out->name, sizeof(out->name), "grid_poll|%zu|%s", index, name);
    else
        snprintf(out->name, sizeof(out->name), "%s", name);
    out->cluster = in;
    out->how = &cluster->signals;
    out->host = cluster->tls.server_name.len > 0 ? cluster->tls.server_name : endpoint;
}

bool grid_targets_depth(size_t cluster, uint64_t now_ms, double *out_depth, size_t *out_fresh)
{
    size_t n = 0;
    double sum = 0;
    for (size_t i = 0; i < grid_signals.n_targets; i++) {
        const struct grid_target *target = &grid_signals.targets[i];
        if (target->cluster != cluster)
            continue;
        if (!target->answered)
            return false;
        uint64_t young_ms = YOUNG_ROUNDS * target->how->interval_ms + target->how->timeout_ms;
        if (!target->has_depth || now_ms - target->depth_ms > young_ms)
            continue;
        sum += target->depth;
        n++;
    }
    *out_depth = n > 0 ? sum / (double)n : 0;
    *out_fresh = n;
    return n > 0;
}

/* ---- changing the list ---------------------------------------------------------------------------------------- */

static void swap_in(struct grid_polled *clusters, size_t n_clusters, struct grid_target *targets, size_t n_targets)
{
    struct grid_signals *s = &grid_signals;
    struct grid_polled *old = s->clusters;
    size_t n_old = s->n_clusters;
    pthread_mutex_lock(&s->mutex);
    s->clusters = clusters;
    s->n_clusters = n_clusters;
    for (size_t i = 0; i < n_old; i++) {
        if (!find_cluster(clusters, n_clusters, old[i].cluster))
            remember(&old[i]);
    }
    pthread_mutex_unlock(&s->mutex);
    free(old);
    free(s->targets);
    s->targets = targets;
    s->n_targets = n_targets;
}

void grid_targets_set(const struct grid_serving *serving)
{
    size_t n_clusters = 0, n_targets = 0;
    for (size_t i = 0; i < serving->n_clusters; i++)
        n_targets += targets_of(&serving->clusters[i]);
    struct grid_polled *clusters = calloc(serving->n_clusters + 1, sizeof(*clusters));
    struct grid_target *targets = calloc(n_targets + 1, sizeof(*targets));
    n_targets = 0;
    if (!clusters || !targets)
        grid_module_log(ENVOY_LOG_WARN, "no memory to poll the clusters: all are unmeasured now");
    pthread_mutex_lock(&grid_signals.mutex);
    for (size_t i = 0; clusters && targets && i < serving->n_clusters; i++) {
        const struct grid_serving_cluster *cluster = &serving->clusters[i];
        size_t n = targets_of(cluster);
        if (n == 0)
            continue;
        fill_cluster(&clusters[n_clusters], cluster);
        clusters[n_clusters].n_targets = n;
        for (size_t k = 0; k < n; k++)
            fill_target(&targets[n_targets++], cluster, n_clusters, k, clusters[n_clusters].cluster);
        n_clusters++;
    }
    pthread_mutex_unlock(&grid_signals.mutex);
    swap_in(clusters, n_clusters, targets, n_targets);
}

void grid_targets_free(void)
{
    struct grid_signals *s = &grid_signals;
    pthread_mutex_lock(&s->mutex);
    free(s->clusters);
    free(s->left);
    s->clusters = s->left = NULL;
    s->n_clusters = s->n_left = 0;
    pthread_mutex_unlock(&s->mutex);
    free(s->targets);
    s->targets = NULL;
    s->n_targets = 0;
}
