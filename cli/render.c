/*
 * render.c - Envoy's bootstrap
 *
 * Story     One static main listener with our HTTP filter and, on its only route, our cluster specifier; one ops
 *           listener with the filter that answers from memory; the bootstrap extension that polls and reloads. The
 *           reasons for the less usual values stand beside them.
 * Promise   See render.h.
 * Not here  Clusters and the module's files (render_files.c), error bodies (render_replies.c).
 */
#include "cli/render.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE "type.googleapis.com/"
#define HCM "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
#define MAX_HEADERS_KB 96
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

static json_t *module_filter(const char *name)
{
    return json_pack("{s:s, s:{s:s, s:o, s:s, s:o}}", "name", name, "typed_config", "@type",
                     TYPE "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter",
                     "dynamic_module_config", module(), "filter_name", name, "filter_config", string_value(""));
}

/* Without the x-envoy-* headers that the router would add to what goes to the sites and back. */
static json_t *router_filter(void)
{
    return json_pack("{s:s, s:{s:s, s:b}}", "name", "envoy.filters.http.router", "typed_config", "@type",
                     TYPE "envoy.extensions.filters.http.router.v3.Router", "suppress_envoy_headers", 1);
}

/* Coded bodies come to our filter plain: ids in them are found, prompts are keyed (behaviour.md O.49). Answers pass as
 * the sites wrote them, and no site is told of a coding. What unpacks to more than 100 times its size is cut by Envoy
 * before our own limit is met. The window of gzip is the largest there is; Envoy's own default refuses most files. */
static void add_decoders(json_t *filters)
{
    static const char *const codings[][2] = {{"gzip", "Gzip"}, {"zstd", "Zstd"}, {"brotli", "Brotli"}};
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++) {
        json_t *library = json_pack(
            "{s:o, s:i}", "@type",
            json_sprintf(TYPE "envoy.extensions.compression.%s.decompressor.v3.%s", codings[i][0], codings[i][1]),
            "chunk_size", DECODED_CHUNK_BYTES);
        if (i == 0) {
            json_object_set_new(library, "window_bits", json_integer(GZIP_WINDOW_BITS));
        }
        json_t *config =
            json_pack("{s:s, s:{s:s, s:o}, s:{s:{s:b}, s:b}, s:{s:{s:{s:b, s:s}}}}", "@type",
                      TYPE "envoy.extensions.filters.http.decompressor.v3.Decompressor", "decompressor_library", "name",
                      codings[i][0], "typed_config", library, "request_direction_config", "common_config",
                      "ignore_no_transform_header", 1, "advertise_accept_encoding", 0, "response_direction_config",
                      "common_config", "enabled", "default_value", 0, "runtime_key", "grid.decode_answers");
        json_array_append_new(
            filters, json_pack("{s:o, s:o}", "name", json_sprintf("decode_%s", codings[i][0]), "typed_config", config));
    }
}

/* No query strings: some clients put keys there. No tagged ids, whatever became of the request: who holds one may use
 * it. */
#define LOGGED_PATH "%CEL(request.url_path.matches('(resp|conv)_[^/]*[.]') ? '-' : request.url_path)%"

static json_t *access_log(void)
{
    static const char *const fields[][2] = {
        {"time", "%START_TIME%"},
        {"method", "%REQ(:METHOD)%"},
        {"path", LOGGED_PATH},
        {"protocol", "%PROTOCOL%"},
        {"status", "%RESPONSE_CODE%"},
        {"details", "%RESPONSE_CODE_DETAILS%"},
        {"flags", "%RESPONSE_FLAGS%"},
        {"duration_ms", "%DURATION%"},
        {"first_byte_ms", "%RESPONSE_DURATION%"},
        {"bytes_in", "%BYTES_RECEIVED%"},
        {"bytes_out", "%BYTES_SENT%"},
        {"cluster", "%UPSTREAM_CLUSTER%"},
        {"host", "%UPSTREAM_HOST%"},
        {"client", "%DOWNSTREAM_REMOTE_ADDRESS%"},
        {"request_id", "%REQ(X-REQUEST-ID)%"},
        {"grid", "%DYNAMIC_METADATA(grid)%"},
    };
    json_t *format = json_object();
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_object_set_new(format, fields[i][0], json_string(fields[i][1]));
    }
    return json_pack("{s:s, s:{s:s, s:{s:o, s:[{s:s, s:{s:s}}]}}}", "name", "envoy.access_loggers.stdout",
                     "typed_config", "@type", TYPE "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
                     "log_format", "json_format", format, "formatters", "name", "envoy.formatter.cel", "typed_config",
                     "@type", TYPE "envoy.extensions.formatter.cel.v3.Cel");
}

/* The only route: which cluster is decided by our specifier, at the end of the body. No retry policy: it would make
 * Envoy keep a copy of every body. */
static json_t *main_route(const struct grid_gateway *gateway)
{
    json_t *specifier =
        json_pack("{s:{s:s, s:{s:s, s:o, s:s, s:o}}}", "extension", "name", GRID_MODULE_NAME, "typed_config", "@type",
                  TYPE "envoy.extensions.router.cluster_specifiers.dynamic_modules.v3.DynamicModuleClusterSpecifier",
                  "dynamic_module_config", module(), "specifier_name", "grid", "specifier_config", string_value(""));
    return json_pack("{s:{s:s}, s:{s:o, s:o, s:o}}", "match", "prefix", "/", "route", "timeout",
                     grid_render_duration(gateway->total_ms), "idle_timeout", grid_render_duration(gateway->idle_ms),
                     "inline_cluster_specifier_plugin", specifier);
}

static json_t *ops_route(void)
{
    return json_pack("{s:{s:s}, s:{s:i, s:{s:s}}}", "match", "prefix", "/", "direct_response", "status", 404, "body",
                     "inline_string", "not found\n");
}

static json_t *host_of(const char *name, json_t *route)
{
    return json_pack("{s:s, s:[{s:s, s:[s], s:[o]}]}", "name", name, "virtual_hosts", "name", name, "domains", "*",
                     "routes", route);
}

/* HTTP/1.0 is what some reverse proxies and probes speak. */
static json_t *http1_options(void)
{
    return json_pack("{s:b, s:s}", "accept_http_10", 1, "default_host_for_http_10", "grid");
}

static json_t *main_hcm(const struct grid_gateway *gateway)
{
    json_t *filters = json_deep_copy(gateway->filters_before);
    add_decoders(filters);
    json_array_append_new(filters, module_filter(GRID_MODULE_NAME));
    json_array_append_new(filters, router_filter());
    json_t *hcm =
        json_pack("{s:s, s:s, s:s, s:b, s:b, s:s, s:i, s:s, s:b, s:o, s:o}", "@type", TYPE HCM, "stat_prefix",
                  "ingress", "codec_type", "AUTO", "normalize_path", 1, "merge_slashes", 0,
                  "path_with_escaped_slashes_action", "KEEP_UNCHANGED", "max_request_headers_kb", MAX_HEADERS_KB,
                  "server_header_transformation", "PASS_THROUGH", "preserve_external_request_id", 1, "http_filters",
                  filters, "route_config", host_of("main", main_route(gateway)));
    /* Envoy would tell the sites a client's address in a header of its own, too. */
    json_object_set_new(json_object_get(hcm, "route_config"), "request_headers_to_remove",
                        json_pack("[s]", "x-envoy-external-address"));
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
    if (gateway->access_log) {
        json_object_set_new(hcm, "access_log", json_pack("[o]", access_log()));
    }
    return hcm;
}

static json_t *ops_hcm(void)
{
    return json_pack("{s:s, s:s, s:[o, o], s:o, s:o}", "@type", TYPE HCM, "stat_prefix", "ops", "http_filters",
                     module_filter("grid_ops"), router_filter(), "http_protocol_options", http1_options(),
                     "route_config", host_of("ops", ops_route()));
}

static json_t *downstream_tls(const struct grid_gateway *gateway)
{
    json_t *common = json_pack("{s:[s, s], s:[{s:o, s:o}]}", "alpn_protocols", "h2", "http/1.1", "tls_certificates",
                               "certificate_chain", grid_render_file(gateway->cert_path), "private_key",
                               grid_render_file(gateway->key_path));
    json_t *tls =
        json_pack("{s:s, s:O}", "@type", TYPE "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
                  "common_tls_context", common);
    if (gateway->client_tls) {
        json_object_set_new(common, "validation_context",
                            json_pack("{s:o}", "trusted_ca", grid_render_file(gateway->client_ca_path)));
        json_object_set_new(tls, "require_client_certificate", json_true());
    }
    json_decref(common);
    return json_pack("{s:s, s:o}", "name", "envoy.transport_sockets.tls", "typed_config", tls);
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
    char config[GRID_PATH_BYTES + 32];
    snprintf(config, sizeof config, "%s\n%" PRIu64, state_dir, gateway->max_body_bytes);
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
    json_t *listeners = json_pack(
        "[o, o]", listener("main", &gateway->listen, main_hcm(gateway), gateway->tls ? downstream_tls(gateway) : NULL),
        listener("ops", &gateway->ops, ops_hcm(), NULL));
    json_t *root =
        json_pack("{s:{s:s, s:s}, s:{s:o}, s:{s:o}, s:{s:{s:{s:s}}}, s:o, s:[o]}", "node", "id", "grid-gateway",
                  "cluster", "grid", "admin", "address", grid_render_address(&gateway->admin), "static_resources",
                  "listeners", listeners, "dynamic_resources", "cds_config", "path_config_source", "path", clusters,
                  "layered_runtime", runtime(), "bootstrap_extensions", bootstrap_extension(gateway, state_dir));
    if (gateway->max_heap_bytes > 0 || gateway->max_connections > 0) {
        json_object_set_new(root, "overload_manager", overload_manager(gateway));
    }
    return grid_render_text(root);
}
