/*
 * render_polls.c - hidden clusters, through which each engine of a cluster is asked for its queue
 *
 * Story     Envoy sends a poll of a cluster to whichever endpoint its balancing picks. A cluster of several addresses
 *           therefore gets one more cluster for each of them: the same in all that concerns the connection, and with
 *           one endpoint. No candidate names it, so no request goes there.
 * Promise   The names are those that the module polls (envoy/targets.c). Names of endpoints stay out of it: what a
 *           name stands for changes, so such a cluster is sampled as it is.
 */
#include "cli/render.h"

#include <stdio.h>
#include <string.h>

static bool all_addresses(const struct grid_serving_cluster *cluster)
{
    for (size_t i = 0; i < cluster->n_endpoints; i++) {
        struct grid_address address;
        if (!grid_address_parse(cluster->endpoints[i], false, true, &address) || !grid_address_is_ip(&address)) {
            return false;
        }
    }
    return true;
}

static json_t *poll_of(const json_t *whole, const struct grid_serving_cluster *cluster, size_t i)
{
    char name[GRID_MAX_NAME_BYTES + 64];
    struct grid_address address;
    snprintf(name, sizeof name, "grid_poll|%zu|%.*s", i, (int)cluster->name.len, cluster->name.ptr);
    grid_address_parse(cluster->endpoints[i], false, true, &address);
    json_t *out = json_deep_copy(whole);
    json_object_del(out, "health_checks");
    json_object_del(out, "outlier_detection");
    json_object_set_new(out, "name", json_stringn_nocheck(name, strlen(name)));
    json_object_set_new(out, "alt_stat_name", json_string("grid_poll"));
    json_object_set_new(out, "load_assignment",
                        json_pack("{s:O, s:[{s:[{s:{s:o}}]}]}", "cluster_name", json_object_get(out, "name"),
                                  "endpoints", "lb_endpoints", "endpoint", "address", grid_render_address(&address)));
    return out;
}

void grid_render_polls(json_t *list, const json_t *whole, const struct grid_serving_cluster *cluster)
{
    if (cluster->signals.off || cluster->n_endpoints < 2 || !all_addresses(cluster)) {
        return;
    }
    for (size_t i = 0; i < cluster->n_endpoints; i++) {
        json_array_append_new(list, poll_of(whole, cluster, i));
    }
}
