/*
 * render_files.c - the clusters as Envoy reads them, and the two files that the module reads
 *
 * Promise   See render.h. Clusters come in the order of the serving config.
 * Not here  The bootstrap (render.c).
 */
#include "cli/render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE "type.googleapis.com/"
#define NO_BREAKER 1000000  /* Envoy's 1,024 turns open streams into 503 */
#define ENGINE_IDLE_MS 4000 /* engines' servers close idle connections after 5 s */
#define QUIET_S 15 /* a connection that is silent for so long is probed, each PROBE_S, and given up after PROBES */
#define PROBE_S 5
#define PROBES 3
#define FAILURES_TO_EJECT 5
#define EJECT_MS 5000
#define LONGEST_EJECT_MS 30000
#define EJECT_CHECK_MS 1000

static json_t *text_of(struct grid_str text)
{
    return json_stringn_nocheck(text.ptr != NULL ? text.ptr : "", text.len);
}

static void set_text(json_t *object, const char *name, struct grid_str text)
{
    if (text.len > 0) {
        json_object_set_new(object, name, text_of(text));
    }
}

static void set_path(json_t *object, const char *name, const struct grid_gateway *gateway, struct grid_str path)
{
    char whole[GRID_PATH_BYTES];
    if (path.len > 0 && grid_config_serving_path(gateway, path, whole, sizeof whole)) {
        json_object_set_new(object, name, json_string(whole));
    }
}

/* ---- clusters ------------------------------------------------------------------------------------------------ */

/* `all_ip` turns false when a host is a name. */
static json_t *endpoints_of(const struct grid_serving_cluster *cluster, bool *all_ip)
{
    json_t *list = json_array();
    *all_ip = true;
    for (size_t i = 0; i < cluster->n_endpoints; i++) {
        struct grid_address address;
        if (!grid_address_parse(cluster->endpoints[i], false, true, &address)) {
            continue; /* was refused by config_check.c */
        }
        *all_ip = *all_ip && grid_address_is_ip(&address);
        json_array_append_new(list, json_pack("{s:{s:o}}", "endpoint", "address", grid_render_address(&address)));
    }
    return json_pack("{s:o, s:[{s:o}]}", "cluster_name", text_of(cluster->name), "endpoints", "lb_endpoints", list);
}

/* Limits are the engines' business: the breakers are out of the way, that of retries too. A request is only tried again
 * when its site did not take it, so a dead site's requests all go on at once and cost the others nothing twice. */
static json_t *breakers(void)
{
    json_t *thresholds = json_array();
    static const char *const priorities[] = {"DEFAULT", "HIGH"};
    for (size_t i = 0; i < sizeof priorities / sizeof *priorities; i++) {
        json_array_append_new(thresholds, json_pack("{s:s, s:i, s:i, s:i, s:i}", "priority", priorities[i],
                                                    "max_connections", NO_BREAKER, "max_pending_requests", NO_BREAKER,
                                                    "max_requests", NO_BREAKER, "max_retries", NO_BREAKER));
    }
    return json_pack("{s:o}", "thresholds", thresholds);
}

/* Only what Envoy itself saw fail (no connection, reset, timeout) ejects a host: a 503 of an engine means busy. */
static json_t *outliers(void)
{
    return json_pack(
        "{s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o}", "split_external_local_origin_errors", 1,
        "enforcing_consecutive_5xx", 0, "enforcing_consecutive_gateway_failure", 0, "enforcing_success_rate", 0,
        "enforcing_local_origin_success_rate", 0, "enforcing_failure_percentage", 0, "consecutive_local_origin_failure",
        FAILURES_TO_EJECT, "enforcing_consecutive_local_origin_failure", 100, "max_ejection_percent", 100, "interval",
        grid_render_duration(EJECT_CHECK_MS), "base_ejection_time", grid_render_duration(EJECT_MS), "max_ejection_time",
        grid_render_duration(LONGEST_EJECT_MS));
}

/* An answer may be silent for minutes, so only the peer's kernel can say that the host is still there. Without this a
 * stream to one that lost its power or its network would hang until `timeouts.idle_ms`. */
static json_t *keepalive(void)
{
    return json_pack("{s:{s:i, s:i, s:i}}", "tcp_keepalive", "keepalive_time", QUIET_S, "keepalive_interval", PROBE_S,
                     "keepalive_probes", PROBES);
}

static json_t *health_check(const struct grid_serving_health *health)
{
    return json_pack("[{s:o, s:o, s:o, s:I, s:I, s:{s:o}}]", "timeout", grid_render_duration(health->timeout_ms),
                     "interval", grid_render_duration(health->interval_ms), "no_traffic_interval",
                     grid_render_duration(health->interval_ms), "unhealthy_threshold",
                     (json_int_t)health->unhealthy_threshold, "healthy_threshold",
                     (json_int_t)health->healthy_threshold, "http_health_check", "path", text_of(health->path));
}

/* `credential`: a filter on the way to the site, or NULL. */
static json_t *protocol_options(json_t *credential)
{
    json_t *out =
        json_pack("{s:s, s:{s:o}, s:{s:{}}}", "@type", TYPE "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                  "common_http_protocol_options", "idle_timeout", grid_render_duration(ENGINE_IDLE_MS),
                  "explicit_http_config", "http_protocol_options");
    if (credential != NULL) {
        json_object_set_new(out, "http_filters",
                            json_pack("[o, {s:s, s:{s:s}}]", credential, "name", "envoy.filters.http.upstream_codec",
                                      "typed_config", "@type",
                                      TYPE "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"));
    }
    return json_pack("{s:o}", "envoy.extensions.upstreams.http.v3.HttpProtocolOptions", out);
}

static json_t *cluster_of(const struct grid_gateway *gateway, const struct grid_serving_cluster *cluster,
                          const char *state_dir)
{
    bool all_ip;
    json_t *endpoints = endpoints_of(cluster, &all_ip);
    json_t *out = json_pack("{s:s, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:{s:{s:f}}}", "@type",
                            TYPE "envoy.config.cluster.v3.Cluster", "name", text_of(cluster->name), "type",
                            all_ip ? "STATIC" : "STRICT_DNS", "lb_policy", "LEAST_REQUEST", "connect_timeout",
                            grid_render_duration(gateway->connect_ms), "load_assignment", endpoints, "circuit_breakers",
                            breakers(), "outlier_detection", outliers(), "typed_extension_protocol_options",
                            protocol_options(grid_render_credential(gateway, cluster, state_dir)), "common_lb_config",
                            "healthy_panic_threshold", "value", 0.0);
    json_object_set_new(out, "upstream_connection_options", keepalive());
    if (!all_ip) {
        json_object_set_new(out, "dns_lookup_family", json_string("V4_PREFERRED"));
    }
    if (cluster->health.path.len > 0) {
        json_object_set_new(out, "health_checks", health_check(&cluster->health));
    }
    if (cluster->tls.on) {
        json_object_set_new(out, "transport_socket", grid_render_upstream_tls(gateway, cluster, state_dir));
    }
    return out;
}

char *grid_render_clusters(const struct grid_gateway *gateway, const char *state_dir)
{
    json_t *list = json_array();
    for (size_t i = 0; i < gateway->serving->n_clusters; i++) {
        json_t *whole = cluster_of(gateway, &gateway->serving->clusters[i], state_dir);
        grid_render_polls(list, whole, &gateway->serving->clusters[i]);
        json_array_append_new(list, whole);
    }
    return grid_render_text(json_pack("{s:o}", "resources", list));
}

char *grid_render_routes(const struct grid_gateway *gateway)
{
    if (!gateway->provider) {
        return strdup("");
    }
    json_t *routes = grid_render_provider_routes(gateway);
    json_object_set_new(routes, "@type", json_string(TYPE "envoy.config.route.v3.RouteConfiguration"));
    return grid_render_text(json_pack("{s:[o]}", "resources", routes));
}

/* ---- what the module reads ----------------------------------------------------------------------------------- */

char *grid_render_plugin(const struct grid_gateway *gateway)
{
    const struct grid_settings *settings = &gateway->settings;
    json_t *affinity = json_pack(
        "{s:b, s:b, s:f, s:f, s:f, s:f, s:I, s:I}", "enabled", settings->enabled, "spread_ties", settings->spread_ties,
        "threshold", settings->threshold, "exploration", settings->exploration, "prefill_tokens_per_second",
        settings->prefill_tokens_per_second, "queued_request_seconds", settings->queued_request_seconds, "capacity",
        (json_int_t)settings->capacity, "ttl_secs", (json_int_t)(settings->ttl_ms / 1000));
    json_t *keys = json_array();
    for (size_t i = 0; i < settings->n_tag_key_paths; i++) {
        json_array_append_new(keys, json_string(settings->tag_key_paths[i]));
    }
    if (json_array_size(keys) > 0) {
        json_object_set(affinity, "tag_key_path", keys);
    }
    json_decref(keys);
    json_t *plugin = json_pack("{s:s, s:o}", "model_header", settings->model_header, "prefix_affinity", affinity);
    if (settings->has_clusters) {
        json_t *clusters = json_array();
        for (size_t i = 0; i < settings->n_clusters; i++) {
            json_array_append_new(clusters, json_string(settings->clusters[i]));
        }
        json_object_set_new(plugin, "clusters", clusters);
    }
    return grid_render_text(plugin);
}

static json_t *candidate_of(const struct grid_serving_candidate *candidate)
{
    static const char *const kinds[] = {"inference_model", "mcp_tool"};
    static const char *const admissions[] = {"new_and_existing", "existing_only", "none"};
    return json_pack("{s:s, s:o, s:o, s:o, s:s}", "kind", kinds[candidate->kind], "name", text_of(candidate->name),
                     "site", text_of(candidate->site), "cluster", text_of(candidate->cluster), "admission",
                     admissions[candidate->admission]);
}

static json_t *signals_of(const struct grid_serving_signals *signals)
{
    if (signals->off) {
        return json_false();
    }
    json_t *out = json_pack("{s:I, s:I, s:f, s:s}", "interval_ms", (json_int_t)signals->interval_ms, "timeout_ms",
                            (json_int_t)signals->timeout_ms, "divisor", signals->divisor, "how",
                            signals->sum ? "sum" : "average");
    set_text(out, "path", signals->path);
    set_text(out, "metric", signals->metric);
    return out;
}

static json_t *aliases_of(const struct grid_serving_cluster *cluster)
{
    json_t *out = json_object();
    for (size_t i = 0; i < cluster->n_aliases; i++) {
        char model[GRID_MAX_NAME_BYTES + 1];
        snprintf(model, sizeof model, "%.*s", (int)cluster->aliases[i].model.len, cluster->aliases[i].model.ptr);
        json_object_set_new(out, model, text_of(cluster->aliases[i].name));
    }
    return out;
}

static json_t *serving_cluster_of(const struct grid_gateway *gateway, const struct grid_serving_cluster *cluster)
{
    json_t *endpoints = json_array();
    for (size_t i = 0; i < cluster->n_endpoints; i++) {
        json_array_append_new(endpoints, text_of(cluster->endpoints[i]));
    }
    json_t *out = json_pack("{s:o, s:o, s:o}", "name", text_of(cluster->name), "endpoints", endpoints, "signals",
                            signals_of(&cluster->signals));
    if (cluster->tls.on) {
        json_t *tls = json_object();
        set_path(tls, "ca_path", gateway, cluster->tls.ca_path);
        set_path(tls, "cert_path", gateway, cluster->tls.cert_path);
        set_path(tls, "key_path", gateway, cluster->tls.key_path);
        set_text(tls, "server_name", cluster->tls.server_name);
        json_object_set_new(out, "tls", tls);
    }
    if (cluster->health.path.len > 0) {
        json_object_set_new(out, "health",
                            json_pack("{s:o, s:I, s:I, s:I, s:I}", "path", text_of(cluster->health.path), "interval_ms",
                                      (json_int_t)cluster->health.interval_ms, "timeout_ms",
                                      (json_int_t)cluster->health.timeout_ms, "healthy_threshold",
                                      (json_int_t)cluster->health.healthy_threshold, "unhealthy_threshold",
                                      (json_int_t)cluster->health.unhealthy_threshold));
    }
    if (cluster->bearer_path.len > 0) {
        json_t *credential = json_object();
        set_path(credential, "bearer_path", gateway, cluster->bearer_path);
        json_object_set_new(out, "credential", credential);
    }
    if (cluster->n_paths > 0) {
        json_t *paths = json_array();
        for (size_t i = 0; i < cluster->n_paths; i++) {
            json_array_append_new(paths, text_of(cluster->paths[i]));
        }
        json_object_set_new(out, "paths", paths);
    }
    if (cluster->n_aliases > 0) {
        json_object_set_new(out, "model_alias", aliases_of(cluster));
    }
    return out;
}

static json_t *peer_of(const struct grid_gateway *gateway, const struct grid_serving_peer *peer)
{
    json_t *out =
        json_pack("{s:I, s:I, s:I}", "interval_ms", (json_int_t)peer->interval_ms, "connect_timeout_ms",
                  (json_int_t)peer->connect_timeout_ms, "request_timeout_ms", (json_int_t)peer->request_timeout_ms);
    set_text(out, "site", peer->site);
    set_text(out, "addr", peer->addr);
    set_text(out, "server_name", peer->server_name);
    set_text(out, "authority", peer->authority);
    set_text(out, "path", peer->path);
    set_path(out, "grid_ca_path", gateway, peer->grid_ca_path);
    set_path(out, "client_cert_path", gateway, peer->client_cert_path);
    set_path(out, "client_key_path", gateway, peer->client_key_path);
    return out;
}

char *grid_render_serving(const struct grid_gateway *gateway)
{
    const struct grid_serving *serving = gateway->serving;
    json_t *candidates = json_array(), *clusters = json_array(), *peers = json_array();
    for (size_t i = 0; i < serving->n_candidates; i++) {
        json_array_append_new(candidates, candidate_of(&serving->candidates[i]));
    }
    for (size_t i = 0; i < serving->n_clusters; i++) {
        json_array_append_new(clusters, serving_cluster_of(gateway, &serving->clusters[i]));
    }
    for (size_t i = 0; i < serving->n_peers; i++) {
        json_array_append_new(peers, peer_of(gateway, &serving->peers[i]));
    }
    json_t *root = json_pack("{s:o, s:o, s:o, s:o}", "local_site", text_of(serving->local_site), "window_secs",
                             json_integer((json_int_t)(serving->window_ms / 1000)), "load_window_ms",
                             json_integer((json_int_t)serving->load_window_ms), "candidates", candidates);
    if (serving->has_clusters) {
        json_object_set(root, "clusters", clusters);
    }
    if (!serving->has_clusters || serving->n_peers > 0) {
        json_object_set(root, "peers", peers);
    }
    json_decref(clusters);
    json_decref(peers);
    return grid_render_text(root);
}
