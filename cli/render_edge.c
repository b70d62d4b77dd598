/*
 * render_edge.c - the edge of the main listener: a provider's paths, other origins, the access log, spans
 *
 * Story     What the decision was is in the dynamic metadata `grid` of a request (envoy/); the log and the spans read
 *           it from there. Neither has a query (some clients put keys there) or an id of a stored response: who has the
 *           id can read what is stored under it.
 * Source    behaviour.md J.3, O.41, O.47, O.50; design.md 8.
 */
#include "cli/config_edge.h"
#include "cli/config_fields.h"
#include "cli/render.h"

#include <string.h>

#define TYPE "type.googleapis.com/"
#define TRACE_CLUSTER "grid:tracing"
#define TRACE_TIMEOUT_MS 1000
#define LONGEST_TRACED_PATH 20 /* the longest keyed path, and too short for an id */
#define MESSAGES_PATH "/v1/messages"
/* No ids, whatever became of the request and however odd its path: who holds a tagged one may use it. */
#define PLAIN_PATH                                                                                                     \
    "%CEL(request.url_path.startsWith('/v1/responses/') ? '/v1/responses/*' : "                                        \
    "request.url_path.startsWith('/v1/conversations/') ? '/v1/conversations/*' : "                                     \
    "request.url_path.matches('(resp|conv)_[^/]*[.]') ? '-' : request.url_path)%"

/* Set by the module, in this order in a line of the log. */
static const char *const decided[] = {"site",   "cluster",       "outcome",      "reason", "blocks",
                                      "run",    "worth",         "depth",        "pinned", "attempts",
                                      "tagged", "prompt_tokens", "cached_tokens"};
#define N_DECIDED (sizeof decided / sizeof *decided)

/* ---- the access log ------------------------------------------------------------------------------------------ */

json_t *grid_render_access_log(void)
{
    static const char *const fields[][2] = {
        {"time", "%START_TIME%"},
        {"method", "%REQ(:METHOD)%"},
        {"path", PLAIN_PATH},
        {"protocol", "%PROTOCOL%"},
        {"status", "%RESPONSE_CODE%"},
        {"details", "%RESPONSE_CODE_DETAILS%"},
        {"flags", "%RESPONSE_FLAGS%"},
        {"duration_ms", "%DURATION%"},
        {"request_ms", "%REQUEST_DURATION%"},
        {"first_byte_ms", "%RESPONSE_DURATION%"},
        {"bytes_in", "%BYTES_RECEIVED%"},
        {"bytes_out", "%BYTES_SENT%"},
        {"upstream_cluster", "%UPSTREAM_CLUSTER%"},
        {"host", "%UPSTREAM_HOST%"},
        {"client", "%DOWNSTREAM_REMOTE_ADDRESS%"},
        {"request_id", "%REQ(X-REQUEST-ID)%"},
    };
    json_t *format = json_object();
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_object_set_new(format, fields[i][0], json_string(fields[i][1]));
    }
    for (size_t i = 0; i < N_DECIDED; i++) {
        json_object_set_new(format, decided[i], json_sprintf("%%DYNAMIC_METADATA(grid:%s)%%", decided[i]));
    }
    return json_pack("{s:s, s:{s:s, s:{s:o, s:[{s:s, s:{s:s}}]}}}", "name", "envoy.access_loggers.stdout",
                     "typed_config", "@type", TYPE "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
                     "log_format", "json_format", format, "formatters", "name", "envoy.formatter.cel", "typed_config",
                     "@type", TYPE "envoy.extensions.formatter.cel.v3.Cel");
}

/* ---- spans --------------------------------------------------------------------------------------------------- */

json_t *grid_render_tracing(const struct grid_gateway *gateway)
{
    const struct grid_tracing *tracing = &gateway->tracing;
    json_t *tags = json_array();
    for (size_t i = 0; i < N_DECIDED; i++) {
        json_array_append_new(tags, json_pack("{s:o, s:{s:{s:{}}, s:{s:s, s:[{s:s}]}}}", "tag",
                                              json_sprintf("grid.%s", decided[i]), "metadata", "kind", "request",
                                              "metadata_key", "key", "grid", "path", "key", decided[i]));
    }
    json_t *config = json_pack("{s:s, s:s}", "@type", TYPE "envoy.config.trace.v3.OpenTelemetryConfig", "service_name",
                               tracing->service_name);
    if (tracing->http) {
        json_object_set_new(
            config, "http_service",
            json_pack("{s:{s:o, s:s, s:o}}", "http_uri", "uri",
                      json_sprintf("http://%s:%u%s", tracing->collector.host, tracing->collector.port, tracing->path),
                      "cluster", TRACE_CLUSTER, "timeout", grid_render_duration(TRACE_TIMEOUT_MS)));
    } else {
        json_object_set_new(config, "grpc_service",
                            json_pack("{s:{s:s}, s:o}", "envoy_grpc", "cluster_name", TRACE_CLUSTER, "timeout",
                                      grid_render_duration(TRACE_TIMEOUT_MS)));
    }
    return json_pack("{s:{s:s, s:o}, s:{s:f}, s:o, s:i}", "provider", "name", "envoy.tracers.opentelemetry",
                     "typed_config", config, "random_sampling", "value", tracing->percent, "custom_tags", tags,
                     "max_path_tag_length", LONGEST_TRACED_PATH);
}

json_t *grid_render_trace_cluster(const struct grid_gateway *gateway)
{
    const struct grid_address *collector = &gateway->tracing.collector;
    bool is_ip = grid_address_is_ip(collector);
    json_t *out = json_pack("{s:s, s:s, s:o, s:{s:s, s:[{s:[{s:{s:o}}]}]}}", "name", TRACE_CLUSTER, "type",
                            is_ip ? "STATIC" : "STRICT_DNS", "connect_timeout", grid_render_duration(TRACE_TIMEOUT_MS),
                            "load_assignment", "cluster_name", TRACE_CLUSTER, "endpoints", "lb_endpoints", "endpoint",
                            "address", grid_render_address(collector));
    if (!gateway->tracing.http) {
        json_object_set_new(out, "typed_extension_protocol_options",
                            json_pack("{s:{s:s, s:{s:{}}}}", "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                                      "@type", TYPE "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                                      "explicit_http_config", "http2_protocol_options"));
    }
    return out;
}

/* ---- pages of other origins ---------------------------------------------------------------------------------- */

json_t *grid_render_cors_filter(void)
{
    return json_pack("{s:s, s:{s:s}}", "name", "envoy.filters.http.cors", "typed_config", "@type",
                     TYPE "envoy.extensions.filters.http.cors.v3.Cors");
}

/* The texts on one line, as headers list them. */
static json_t *joined(json_t *list)
{
    struct grid_buf text = {.limit = 1u << 16};
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        grid_buf_puts(&text, i > 0 ? ", " : "");
        grid_buf_puts(&text, json_string_value(item));
    }
    json_t *out = json_stringn(text.len > 0 ? text.ptr : "", text.len);
    grid_buf_done(&text);
    return out;
}

static json_t *cors_policy(const struct grid_gateway *gateway)
{
    const struct grid_cors *cors = &gateway->cors;
    json_t *origins = json_array(), *origin;
    size_t i;
    json_array_foreach(cors->allow_origins, i, origin)
    {
        bool any = strcmp(json_string_value(origin), "*") == 0;
        json_array_append_new(origins, any ? json_pack("{s:{s:s}}", "safe_regex", "regex", ".*")
                                           : json_pack("{s:s}", "exact", json_string_value(origin)));
    }
    json_t *headers =
        cors->allow_headers != NULL
            ? joined(cors->allow_headers)
            : json_sprintf("%s, %s", grid_config_field("cors.allow_headers")->fallback, gateway->settings.model_header);
    json_t *out = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:b}", "@type", TYPE "envoy.extensions.filters.http.cors.v3.CorsPolicy",
        "allow_origin_string_match", origins, "allow_methods",
        cors->allow_methods != NULL ? joined(cors->allow_methods)
                                    : json_string(grid_config_field("cors.allow_methods")->fallback),
        "allow_headers", headers, "expose_headers",
        cors->expose_headers != NULL ? joined(cors->expose_headers)
                                     : json_string(grid_config_field("cors.expose_headers")->fallback),
        "max_age", json_sprintf("%u", (unsigned)cors->max_age_secs), "allow_credentials", cors->allow_credentials);
    return json_pack("{s:o}", "envoy.filters.http.cors", out);
}

/* ---- routes -------------------------------------------------------------------------------------------------- */

json_t *grid_render_host(const struct grid_gateway *gateway, const char *name, json_t *routes)
{
    json_t *host = json_pack("{s:s, s:[s], s:o}", "name", name, "domains", "*", "routes", routes);
    if (gateway != NULL && gateway->cors.on) {
        json_object_set_new(host, "typed_per_filter_config", cors_policy(gateway));
    }
    json_t *out = json_pack("{s:s, s:[o]}", "name", name, "virtual_hosts", host);
    if (gateway != NULL) { /* Envoy would tell the sites a client's address in a header of its own, too */
        json_object_set_new(out, "request_headers_to_remove", json_pack("[s]", "x-envoy-external-address"));
    }
    return out;
}

static json_t *set_header(const char *name, const char *value)
{
    return json_pack("{s:{s:s, s:s}, s:s}", "header", "key", name, "value", value, "append_action",
                     "OVERWRITE_IF_EXISTS_OR_ADD");
}

static json_t *wrong_method(const char *path)
{
    bool messages = strcmp(path, MESSAGES_PATH) == 0;
    const char *body = messages ? "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
                                  "\"Only GET and POST are answered here.\"}}"
                                : "{\"error\":{\"message\":\"Only GET and POST are answered here.\",\"type\":"
                                  "\"invalid_request_error\",\"code\":\"method_not_allowed\"}}";
    return json_pack("{s:{s:s}, s:{s:i, s:{s:s}}, s:[o, o]}", "match", "path", path, "direct_response", "status", 405,
                     "body", "inline_string", body, "response_headers_to_add", set_header("allow", "GET, POST"),
                     set_header("content-type", "application/json"));
}

static json_t *forwarded(const struct grid_gateway *gateway, const char *path, struct grid_str backend)
{
    json_t *out = json_pack("{s:{s:s, s:[{s:s, s:{s:{s:s}}}]}}", "match", "path", path, "headers", "name", ":method",
                            "string_match", "safe_regex", "regex", "GET|POST");
    if (backend.ptr == NULL) { /* nothing takes new requests: render_replies.c gives it its body */
        json_object_set_new(out, "direct_response", json_pack("{s:i}", "status", 503));
    } else {
        json_object_set_new(out, "route",
                            json_pack("{s:o, s:o, s:o}", "cluster", json_stringn_nocheck(backend.ptr, backend.len),
                                      "timeout", grid_render_duration(gateway->total_ms), "idle_timeout",
                                      grid_render_duration(gateway->idle_ms)));
    }
    return out;
}

json_t *grid_render_provider_routes(const struct grid_gateway *gateway)
{
    struct grid_str backend = grid_config_backend(gateway);
    json_t *routes = json_array(), *path;
    size_t i;
    json_array_foreach(gateway->allowed_paths, i, path)
    {
        json_array_append_new(routes, forwarded(gateway, json_string_value(path), backend));
        json_array_append_new(routes, wrong_method(json_string_value(path)));
    }
    json_array_append_new(routes,
                          json_pack("{s:{s:s}, s:{s:i}}", "match", "prefix", "/", "direct_response", "status", 404));
    return grid_render_host(gateway, "main", routes);
}
