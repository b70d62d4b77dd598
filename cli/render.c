/*
 * render.c - Envoy's bootstrap
 *
 * Story     One static main listener with our HTTP filter and, on its only route, our cluster specifier; one ops
 *           listener with the filter that answers from memory; the bootstrap extension that polls and reloads. The
 *           reasons for the less usual values stand beside them.
 * Promise   See render.h.
 * Not here  Clusters and the module's files (render_files.c), error bodies (render_replies.c), secrets (render_tls.c),
 *           log, spans, other origins and a provider's routes (render_edge.c).
 */
#include "cli/render.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE "type.googleapis.com/"
#define HCM "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
#define MAX_HEADERS_KB 96
#define RETRY_BASE_MS 1 /* the next try goes to another site: there is nothing to wait for */
#define RETRY_MAX_MS 10
#define DECODED_CHUNK_BYTES 16384
#define GZIP_WINDOW_BITS 15
#define HEAP_SHRINK 0.9 /* of max_heap_bytes: give memory back; at 0.95 take no new requests */
#define HEAP_STOP 0.95
#define NO_CLIENT "255.255.255.255" /* the broadcast address is no peer of a connection */

char *grid_render_text(json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    json_decref(value);
    return text;
}

json_t *grid_render_address(const struct grid_address *address)
{
    if (address->is_unix) {
        return json_pack("{s:{s:s, s:i}}", "pipe", "path", address->host, "mode", 0600);
    }
    return json_pack("{s:{s:s, s:i}}", "socket_address", "address", address->host, "port_value", (int)address->port);
}

json_t *grid_render_duration(uint64_t ms)
{
    return json_sprintf("%" PRIu64 ".%03us", ms / 1000, (unsigned)(ms % 1000));
}

json_t *grid_render_file(const char *path)
{
    return json_pack("{s:s}", "filename", path);
}

static json_t *string_value(const char *text)
{
    return json_pack("{s:s, s:s}", "@type", TYPE "google.protobuf.StringValue", "value", text);
}

static json_t *module(void)
{
    return json_pack("{s:s, s:b}", "name", GRID_MODULE_NAME, "do_not_close", 1);
}

static json_t *module_filter(const char *name, const char *config)
{
    return json_pack("{s:s, s:{s:s, s:o, s:s, s:o}}", "name", name, "typed_config", "@type",
                     TYPE "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter",
                     "dynamic_module_config", module(), "filter_name", name, "filter_config", string_value(config));
}

/* Without the x-envoy-* headers that the router would add to what goes to the sites and back. */
static json_t *router_filter(void)
{
    return json_pack("{s:s, s:{s:s, s:b}}", "name", "envoy.filters.http.router", "typed_config", "@type",
                     TYPE "envoy.extensions.filters.http.router.v3.Router", "suppress_envoy_headers", 1);
}

static const char *const CODINGS[][2] = {{"gzip", "Gzip"}, {"zstd", "Zstd"}, {"brotli", "Brotli"}};

/* Coded bodies come to our filter plain: ids in them are found, prompts are keyed (behaviour.md O.49). Answers pass as
 * the sites wrote them, and no site is told of a coding. What unpacks to more than 100 times its size is cut by Envoy
 * before our own limit is met. The window of gzip is the largest there is; Envoy's own default refuses most files. */
static void add_decoders(json_t *filters)
{
    for (size_t i = 0; i < sizeof CODINGS / sizeof *CODINGS; i++) {
        json_t *library = json_pack(
            "{s:o, s:i}", "@type",
            json_sprintf(TYPE "envoy.extensions.compression.%s.decompressor.v3.%s", CODINGS[i][0], CODINGS[i][1]),
            "chunk_size", DECODED_CHUNK_BYTES);
        if (i == 0) {
            json_object_set_new(library, "window_bits", json_integer(GZIP_WINDOW_BITS));
        }
        json_t *config =
            json_pack("{s:s, s:{s:s, s:o}, s:{s:{s:b}, s:b}, s:{s:{s:{s:b, s:s}}}}", "@type",
                      TYPE "envoy.extensions.filters.http.decompressor.v3.Decompressor", "decompressor_library", "name",
                      CODINGS[i][0], "typed_config", library, "request_direction_config", "common_config",
                      "ignore_no_transform_header", 1, "advertise_accept_encoding", 0, "response_direction_config",
                      "common_config", "enabled", "default_value", 0, "runtime_key", "grid.decode_answers");
        json_array_append_new(filters, json_pack("{s:o, s:b, s:o}", "name", json_sprintf("decode_%s", CODINGS[i][0]),
                                                 "disabled", 1, "typed_config", config));
    }
}

/* The decoders stand in the way of coded requests only: beside each route stands one for them, the same in all else,
 * that turns the decoders on. */
static void add_coded_routes(json_t *hcm)
{
    json_t *host = json_array_get(json_object_get(json_object_get(hcm, "route_config"), "virtual_hosts"), 0);
    json_t *routes = json_object_get(host, "routes"), *both = json_array(), *on = json_object(), *route;
    size_t at;
    for (size_t i = 0; i < sizeof CODINGS / sizeof *CODINGS; i++) {
        char name[32];
        snprintf(name, sizeof name, "decode_%s", CODINGS[i][0]);
        json_object_set_new(on, name,
                            json_pack("{s:s, s:{}}", "@type", TYPE "envoy.config.route.v3.FilterConfig", "config"));
    }
    json_array_foreach(routes, at, route)
    {
        if (json_object_get(route, "route")) {
            json_t *coded = json_deep_copy(route), *match = json_object_get(coded, "match");
            json_t *headers = json_object_get(match, "headers");
            json_t *coding = json_pack("{s:s, s:b}", "name", "content-encoding", "present_match", 1);
            if (headers)
                json_array_append_new(headers, coding);
            else
                json_object_set_new(match, "headers", json_pack("[o]", coding));
            json_object_set(coded, "typed_per_filter_config", on);
            json_array_append_new(both, coded);
        }
        json_array_append(both, route);
    }
    json_decref(on);
    json_object_set_new(host, "routes", both);
}

/* The only route: which cluster is decided by our specifier, at the end of the body, and again on a retry. The policy
 * names nothing to retry on, since that would make Envoy keep a copy of every body: the filter asks by header. */
static json_t *main_route(const struct grid_gateway *gateway)
{
    json_t *specifier =
        json_pack("{s:{s:s, s:{s:s, s:o, s:s, s:o}}}", "extension", "name", GRID_MODULE_NAME, "typed_config", "@type",
                  TYPE "envoy.extensions.router.cluster_specifiers.dynamic_modules.v3.DynamicModuleClusterSpecifier",
                  "dynamic_module_config", module(), "specifier_name", "grid", "specifier_config", string_value(""));
    json_t *retry = json_pack("{s:b, s:{s:o, s:o}}", "refresh_cluster_on_retry", 1, "retry_back_off", "base_interval",
                              grid_render_duration(RETRY_BASE_MS), "max_interval", grid_render_duration(RETRY_MAX_MS));
    return json_pack("{s:{s:s}, s:{s:o, s:o, s:o, s:o}}", "match", "prefix", "/", "route", "timeout",
                     grid_render_duration(gateway->total_ms), "idle_timeout", grid_render_duration(gateway->idle_ms),
                     "inline_cluster_specifier_plugin", specifier, "retry_policy", retry);
}

static json_t *ops_route(void)
{
    return json_pack("{s:{s:s}, s:{s:i, s:{s:s}}}", "match", "prefix", "/", "direct_response", "status", 404, "body",
                     "inline_string", "not found\n");
}

/* HTTP/1.0 is what some reverse proxies and probes speak. */
static json_t *http1_options(void)
{
    return json_pack("{s:b, s:s}", "accept_http_10", 1, "default_host_for_http_10", "grid");
}

/* Preflights carry no credentials, so they are answered before a filter asks for some. A provider routes by path
 * alone. */
static json_t *main_filters(const struct grid_gateway *gateway)
{
    json_t *filters = json_array();
    if (gateway->cors.on) {
        json_array_append_new(filters, grid_render_cors_filter());
    }
    json_array_extend(filters, gateway->filters_before);
    if (!gateway->provider) {
        add_decoders(filters);
        json_array_append_new(
            filters, module_filter(GRID_MODULE_NAME, gateway->access_log || gateway->tracing.on ? "metadata" : ""));
    }
    json_array_append_new(filters, router_filter());
    return filters;
}

/* A provider's routes name its backend, which the serving config may change: they are in a file of their own. */
static void set_routes(json_t *hcm, const struct grid_gateway *gateway, const char *state_dir)
{
    if (!gateway->provider) {
        json_object_set_new(hcm, "route_config",
                            grid_render_host(gateway, "main", json_pack("[o]", main_route(gateway))));
        return;
    }
    json_object_set_new(hcm, "rds",
                        json_pack("{s:s, s:{s:{s:o}, s:s}}", "route_config_name", "main", "config_source",
                                  "path_config_source", "path", json_sprintf("%s/rds.json", state_dir),
                                  "resource_api_version", "V3"));
}

static json_t *main_hcm(const struct grid_gateway *gateway, const char *state_dir)
{
    json_t *hcm =
        json_pack("{s:s, s:s, s:s, s:b, s:b, s:s, s:i, s:s, s:b, s:o}", "@type", TYPE HCM, "stat_prefix", "ingress",
                  "codec_type", "AUTO", "normalize_path", 1, "merge_slashes", 0, "path_with_escaped_slashes_action",
                  "KEEP_UNCHANGED", "max_request_headers_kb", MAX_HEADERS_KB, "server_header_transformation",
                  "PASS_THROUGH", "preserve_external_request_id", 1, "http_filters", main_filters(gateway));
    set_routes(hcm, gateway, state_dir);
    /* A client's address is the peer's, and no client counts as internal: else its x-envoy-* headers would steer. An
     * empty list of ranges would mean Envoy's own list, loopback and private networks. A wrong HTTP/2
     * message costs its own stream only; CONNECT is let in for its refusal to be JSON. */
    json_object_set_new(hcm, "use_remote_address", json_true());
    json_object_set_new(hcm, "internal_address_config",
                        json_pack("{s:[{s:s, s:i}]}", "cidr_ranges", "address_prefix", NO_CLIENT, "prefix_len", 32));
    json_object_set_new(hcm, "http_protocol_options", http1_options());
    json_object_set_new(
        hcm, "http2_protocol_options",
        json_pack("{s:b, s:b}", "override_stream_error_on_invalid_http_message", 1, "allow_connect", 1));
    json_object_set_new(hcm, "stream_idle_timeout", grid_render_duration(gateway->idle_ms));
    json_object_set_new(hcm, "request_timeout", grid_render_duration(gateway->request_body_ms));
    json_object_set_new(hcm, "common_http_protocol_options",
                        json_pack("{s:o}", "idle_timeout", grid_render_duration(gateway->idle_ms)));
    json_object_set_new(hcm, "local_reply_config", grid_render_local_replies());
    add_coded_routes(hcm);
    if (gateway->tracing.on) {
        json_object_set_new(hcm, "tracing", grid_render_tracing(gateway));
    }
    if (gateway->access_log) {
        json_object_set_new(hcm, "access_log", json_pack("[o]", grid_render_access_log()));
    }
    return hcm;
}

/* Prompts are pasted into the page only where nobody can read them on the way. */
static json_t *ops_hcm(const struct grid_gateway *gateway)
{
    bool explains = gateway->ops.is_unix || grid_address_is_loopback(&gateway->ops);
    return json_pack("{s:s, s:s, s:[o, o], s:o, s:o}", "@type", TYPE HCM, "stat_prefix", "ops", "http_filters",
                     module_filter("grid_ops", explains ? "explain" : ""), router_filter(), "http_protocol_options",
                     http1_options(), "route_config", grid_render_host(NULL, "ops", json_pack("[o]", ops_route())));
}

static json_t *listener(const char *name, const struct grid_address *address, json_t *hcm, json_t *tls)
{
    json_t *chain = json_pack("{s:[{s:s, s:o}]}", "filters", "name", "envoy.filters.network.http_connection_manager",
                              "typed_config", hcm);
    if (tls != NULL) {
        json_object_set_new(chain, "transport_socket", tls);
    }
    return json_pack("{s:s, s:o, s:[o]}", "name", name, "address", grid_render_address(address), "filter_chains",
                     chain);
}

static json_t *heap_action(const char *action, double at)
{
    return json_pack("{s:s, s:[{s:s, s:{s:f}}]}", "name", action, "triggers", "name",
                     "envoy.resource_monitors.fixed_heap", "threshold", "value", at);
}

static json_t *overload_manager(const struct grid_gateway *gateway)
{
    json_t *monitors = json_array(), *actions = json_array();
    if (gateway->max_heap_bytes > 0) {
        json_array_append_new(
            monitors, json_pack("{s:s, s:{s:s, s:I}}", "name", "envoy.resource_monitors.fixed_heap", "typed_config",
                                "@type", TYPE "envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
                                "max_heap_size_bytes", (json_int_t)gateway->max_heap_bytes));
        json_array_append_new(actions, heap_action("envoy.overload_actions.shrink_heap", HEAP_SHRINK));
        json_array_append_new(actions, heap_action("envoy.overload_actions.stop_accepting_requests", HEAP_STOP));
    }
    if (gateway->max_connections > 0) {
        json_array_append_new(
            monitors,
            json_pack("{s:s, s:{s:s, s:I}}", "name", "envoy.resource_monitors.global_downstream_max_connections",
                      "typed_config", "@type",
                      TYPE "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                      "max_active_downstream_connections", (json_int_t)gateway->max_connections));
    }
    return json_pack("{s:s, s:o, s:o}", "refresh_interval", "0.250s", "resource_monitors", monitors, "actions",
                     actions);
}

static json_t *bootstrap_extension(const struct grid_gateway *gateway, const char *state_dir)
{
    char config[3 * GRID_PATH_BYTES + 96];
    int len = snprintf(config, sizeof config, "%s\n%" PRIu64 "\n%" PRIu64, state_dir, gateway->max_body_bytes,
                       gateway->failover_max_body_bytes);
    if (gateway->trace_keys) {
        snprintf(config + len, sizeof config - (size_t)len, "\n%s\n%s\n%" PRIu64, gateway->trace_path,
                 gateway->trace_secret_path, gateway->trace_max_bytes);
    }
    return json_pack("{s:s, s:{s:s, s:o, s:s, s:o}}", "name", "envoy.bootstrap.dynamic_modules", "typed_config",
                     "@type", TYPE "envoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension",
                     "dynamic_module_config", module(), "extension_name", "grid", "extension_config",
                     string_value(config));
}

/* Our counters keep their exact names in Envoy's own /stats/prometheus. */
static json_t *runtime(void)
{
    return json_pack("{s:[{s:s, s:{s:b}}]}", "layers", "name", "static", "static_layer",
                     "envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix", 1);
}

char *grid_render_envoy(const struct grid_gateway *gateway, const char *state_dir)
{
    char clusters[GRID_PATH_BYTES + 16];
    snprintf(clusters, sizeof clusters, "%s/cds.json", state_dir);
    json_t *listeners = json_pack("[o, o]",
                                  listener("main", &gateway->listen, main_hcm(gateway, state_dir),
                                           gateway->tls ? grid_render_downstream_tls(gateway, state_dir) : NULL),
                                  listener("ops", &gateway->ops, ops_hcm(gateway), NULL));
    json_t *root =
        json_pack("{s:{s:s, s:s}, s:{s:o}, s:{s:o}, s:{s:{s:{s:s}}}, s:o, s:[o]}", "node", "id", "grid-gateway",
                  "cluster", "grid", "admin", "address", grid_render_address(&gateway->admin), "static_resources",
                  "listeners", listeners, "dynamic_resources", "cds_config", "path_config_source", "path", clusters,
                  "layered_runtime", runtime(), "bootstrap_extensions", bootstrap_extension(gateway, state_dir));
    if (gateway->tracing.on) {
        json_object_set_new(json_object_get(root, "static_resources"), "clusters",
                            json_pack("[o]", grid_render_trace_cluster(gateway)));
    }
    if (gateway->max_heap_bytes > 0 || gateway->max_connections > 0) {
        json_object_set_new(root, "overload_manager", overload_manager(gateway));
    }
    return grid_render_text(root);
}
