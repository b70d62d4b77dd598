/*
 * config_edge.c - the gateway's edge; see config_edge.h
 *
 * Source    behaviour.md J.3, O.44, O.47, O.50; design.md 7, 8.
 */
#include "cli/config_edge.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NAMES 64u
#define LONGEST_NAME 253u

/* ---- roles --------------------------------------------------------------------------------------------------- */

/* A DNS name, or a URI such as spiffe://grid/site/east. */
static bool is_peer_name(const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~') {
            return false;
        }
    }
    return strlen(text) <= LONGEST_NAME;
}

/* Ids stand in the paths of stored responses and conversations: such a path is never one that is known beforehand. */
static bool is_forwarded_path(const char *text)
{
    static const char responses[] = "/v1/responses/", conversations[] = "/v1/conversations/";
    for (const char *c = text; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~' || strchr("?#%", *c) != NULL) {
            return false;
        }
    }
    return text[0] == '/' && strlen(text) <= LONGEST_NAME && strncmp(text, responses, sizeof responses - 1) != 0 &&
           strncmp(text, conversations, sizeof conversations - 1) != 0;
}

/* The texts of a default: "a, b". */
static json_t *split(const char *text)
{
    json_t *out = json_array();
    while (*text != '\0') {
        size_t len = strcspn(text, ",");
        json_array_append_new(out, json_stringn(text, len));
        text += len + strspn(text + len, ", ");
    }
    return out;
}

static void read_role(struct grid_reading *r, json_t *root)
{
    struct grid_gateway *out = r->out;
    const char *role = grid_reading_text(r, root, "role");
    if (role != NULL && strcmp(role, "provider") != 0 && strcmp(role, "consumer") != 0) {
        grid_reading_refuse(r, "role", "must be consumer or provider");
        return;
    }
    out->provider = role != NULL && strcmp(role, "provider") == 0;
    out->peers_allowed = grid_reading_texts(r, root, "peers_allowed", MOST_NAMES, is_peer_name,
                                            "a DNS name or URI in a peer's certificate, of at most 253 bytes");
    out->allowed_paths =
        grid_reading_texts(r, root, "allowed_paths", MOST_NAMES, is_forwarded_path,
                           "an exact path that starts with '/', without query, blanks, '%' and stored ids");
    static const char *const only_provider[] = {"peers_allowed", "allowed_paths"};
    for (size_t i = 0; i < 2 && !out->provider; i++) {
        if (grid_reading_member(root, only_provider[i]) != NULL) {
            grid_reading_refuse(r, only_provider[i], "only of role provider");
        }
    }
    if (out->provider && grid_reading_member(root, "allowed_paths") == NULL) {
        out->allowed_paths = split(grid_config_field("allowed_paths")->fallback);
    }
}

/* The documents name peers by their certificates, so without mutual TLS nobody could be told apart. */
static void check_provider(struct grid_reading *r, json_t *root)
{
    const struct grid_gateway *out = r->out;
    if (!out->client_tls) {
        grid_reading_refuse(r, "role", "provider needs mutual TLS: tls with cert_path, key_path and client_ca_path");
    }
    if (grid_reading_member(root, "peers_allowed") == NULL) {
        grid_reading_refuse(r, "role", "provider needs peers_allowed: the names in the certificates of its peers");
    }
    if (grid_reading_member(root, "grid_site_route") != NULL) {
        grid_reading_refuse(r, "grid_site_route", "not of role provider: it routes nothing");
    }
    const struct grid_serving *serving = out->serving;
    for (size_t i = 0; serving != NULL && i < serving->n_candidates; i++) {
        const struct grid_serving_candidate *candidate = &serving->candidates[i], *first = &serving->candidates[0];
        bool local = candidate->site.len == serving->local_site.len &&
                     memcmp(candidate->site.ptr, serving->local_site.ptr, candidate->site.len) == 0;
        bool same = candidate->cluster.len == first->cluster.len &&
                    memcmp(candidate->cluster.ptr, first->cluster.ptr, first->cluster.len) == 0;
        if (!local || !same) {
            grid_reading_refuse(r, "role",
                                "provider forwards to one local cluster: candidates[%zu] of the serving config names "
                                "%s %.*s",
                                i, local ? "another cluster," : "another site,",
                                (int)(local ? candidate->cluster.len : candidate->site.len),
                                local ? candidate->cluster.ptr : candidate->site.ptr);
            return;
        }
    }
    for (size_t i = 0; serving != NULL && i < serving->n_clusters; i++) {
        if (serving->clusters[i].n_aliases > 0) {
            grid_reading_refuse(r, "role",
                                "provider changes no request: clusters[%zu] of the serving config has a model_alias, "
                                "which belongs to the consumers",
                                i);
        }
    }
    if (serving != NULL && !serving->has_clusters) {
        grid_reading_refuse(r, "role",
                            "provider needs clusters in its serving config: where else would it forward to?");
    }
}

struct grid_str grid_config_backend(const struct grid_gateway *gateway)
{
    const struct grid_serving *serving = gateway->serving;
    for (size_t i = 0; i < serving->n_candidates; i++) {
        if (serving->candidates[i].admission == GRID_NEW_AND_EXISTING) {
            return serving->candidates[i].cluster;
        }
    }
    return (struct grid_str){NULL, 0};
}

/* ---- TLS ----------------------------------------------------------------------------------------------------- */

static void read_tls(struct grid_reading *r, json_t *root)
{
    struct grid_gateway *out = r->out;
    json_t *tls = grid_reading_mapping(r, root, "tls");
    if (tls == NULL) {
        return;
    }
    grid_reading_path(r, tls, "tls.cert_path", out->cert_path);
    grid_reading_path(r, tls, "tls.key_path", out->key_path);
    grid_reading_path(r, tls, "tls.client_ca_path", out->client_ca_path);
    if (grid_reading_member(tls, "cert_path") == NULL || grid_reading_member(tls, "key_path") == NULL) {
        grid_reading_refuse(r, "tls", "cert_path and key_path are both needed");
    }
    out->tls = true;
    out->client_tls = out->client_ca_path[0] != '\0';
}

/* ---- pages of other origins ---------------------------------------------------------------------------------- */

static bool is_origin(const char *text)
{
    const char *slashes = strstr(text, "://");
    if (strcmp(text, "*") == 0) {
        return true;
    }
    for (const char *c = text; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~' || *c == '*') {
            return false;
        }
    }
    return slashes != NULL && slashes > text && slashes[3] != '\0' && strchr(slashes + 3, '/') == NULL &&
           strlen(text) <= LONGEST_NAME;
}

static bool is_token(const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (!isalnum((unsigned char)*c) && strchr("!#$%&'*+-.^_`|~", *c) == NULL) {
            return false;
        }
    }
    return strlen(text) <= LONGEST_NAME;
}

static void read_cors(struct grid_reading *r, json_t *root)
{
    struct grid_cors *out = &r->out->cors;
    json_t *cors = grid_reading_mapping(r, root, "cors");
    if (cors == NULL) {
        return;
    }
    out->on = true;
    out->allow_origins = grid_reading_texts(r, cors, "cors.allow_origins", MOST_NAMES, is_origin,
                                            "an origin such as https://chat.example, or \"*\"");
    out->allow_methods = grid_reading_texts(r, cors, "cors.allow_methods", MOST_NAMES, is_token, "a method");
    out->allow_headers =
        grid_reading_texts(r, cors, "cors.allow_headers", MOST_NAMES, is_token, "the name of a header");
    out->expose_headers =
        grid_reading_texts(r, cors, "cors.expose_headers", MOST_NAMES, is_token, "the name of a header");
    grid_reading_number(r, cors, "cors.max_age_secs", &out->max_age_secs);
    grid_reading_bool(r, cors, "cors.allow_credentials", &out->allow_credentials);
    if (grid_reading_member(cors, "allow_origins") == NULL) {
        grid_reading_refuse(r, "cors.allow_origins", "missing: a list of origins, or of \"*\"");
    }
    size_t i;
    json_t *origin;
    json_array_foreach(out->allow_origins, i, origin)
    {
        if (out->allow_credentials && strcmp(json_string_value(origin), "*") == 0) {
            grid_reading_refuse(r, "cors.allow_credentials", "not together with every origin: name the origins");
        }
    }
}

/* ---- tracing ------------------------------------------------------------------------------------------------- */

static void read_trace_path(struct grid_reading *r, json_t *tracing, struct grid_tracing *out)
{
    const char *path = grid_reading_text(r, tracing, "tracing.path");
    bool fits = path == NULL || (path[0] == '/' && strlen(path) < sizeof out->path);
    for (const char *c = path; fits && c != NULL && *c != '\0'; c++) {
        fits = *c > ' ' && *c <= '~';
    }
    if (!fits) {
        grid_reading_refuse(r, "tracing.path", "must be a path of at most 255 bytes that starts with '/'");
    } else {
        snprintf(out->path, sizeof out->path, "%s", path != NULL ? path : "");
    }
}

static void read_tracing(struct grid_reading *r, json_t *root)
{
    struct grid_tracing *out = &r->out->tracing;
    json_t *tracing = grid_reading_mapping(r, root, "tracing");
    if (tracing == NULL) {
        return;
    }
    *out = (struct grid_tracing){.on = true, .percent = strtod(grid_config_field("tracing.percent")->fallback, NULL)};
    const char *endpoint = grid_reading_text(r, tracing, "tracing.endpoint");
    if (endpoint != NULL
            ? !grid_address_parse((struct grid_str){endpoint, strlen(endpoint)}, false, true, &out->collector)
            : grid_reading_member(tracing, "endpoint") == NULL) {
        grid_reading_refuse(r, "tracing.endpoint", "%s: the collector's HOST:PORT or [IPv6]:PORT",
                            endpoint != NULL ? "must be" : "missing");
    }
    const char *protocol = grid_reading_text(r, tracing, "tracing.protocol");
    out->http = protocol != NULL && strcmp(protocol, "http") == 0;
    if (protocol != NULL && !out->http && strcmp(protocol, "grpc") != 0) {
        grid_reading_refuse(r, "tracing.protocol", "must be grpc or http");
    }
    read_trace_path(r, tracing, out);
    if (!out->http && grid_reading_member(tracing, "path") != NULL) {
        grid_reading_refuse(r, "tracing.path", "only of protocol http");
    }
    const char *service = grid_reading_text(r, tracing, "tracing.service_name");
    if (service != NULL && strlen(service) >= sizeof out->service_name) {
        grid_reading_refuse(r, "tracing.service_name", "must be at most 255 bytes");
    }
    snprintf(out->service_name, sizeof out->service_name, "%s", service != NULL ? service : "");
    json_t *percent = grid_reading_member(tracing, "percent");
    out->percent = json_is_number(percent) ? json_number_value(percent) : percent != NULL ? -1 : out->percent;
    if (!(out->percent >= 0 && out->percent <= 100)) {
        grid_reading_refuse(r, "tracing.percent", "must be a number from 0 to 100");
    }
}

/* ---- the whole ----------------------------------------------------------------------------------------------- */

/* Envoy's own filters, passed on as they are: each needs a name and a configuration, the rest is Envoy's to judge. */
static void read_filters(struct grid_reading *r, json_t *root)
{
    struct grid_str text;
    if (grid_reading_member(root, "http_filters_before") == NULL ||
        !grid_yaml_find(r->yaml, "http_filters_before", &text)) {
        r->out->filters_before = json_array();
        return;
    }
    json_error_t error; /* read anew: the tree at hand has its whole numbers as fractions */
    r->out->filters_before = json_loadb(text.ptr, text.len, JSON_DECODE_ANY, &error);
    if (!json_is_array(r->out->filters_before)) {
        grid_reading_refuse(r, "http_filters_before", "must be a list of Envoy HTTP filters");
        return;
    }
    size_t i;
    json_t *filter;
    json_array_foreach(r->out->filters_before, i, filter)
    {
        char path[64];
        snprintf(path, sizeof path, "http_filters_before[%zu]", i);
        if (!json_is_string(json_object_get(filter, "name")) ||
            !json_is_object(json_object_get(filter, "typed_config"))) {
            grid_reading_refuse(r, path, "must be a mapping with name and typed_config");
        }
    }
}

void grid_config_edge_read(struct grid_reading *r, json_t *root)
{
    read_role(r, root);
    read_tls(r, root);
    read_cors(r, root);
    read_tracing(r, root);
    read_filters(r, root);
}

void grid_config_edge_check(struct grid_reading *r, json_t *root)
{
    if (r->out->provider) {
        check_provider(r, root);
    }
}

void grid_config_edge_done(struct grid_gateway *gateway)
{
    json_decref(gateway->filters_before);
    json_decref(gateway->peers_allowed);
    json_decref(gateway->allowed_paths);
    json_decref(gateway->cors.allow_origins);
    json_decref(gateway->cors.allow_methods);
    json_decref(gateway->cors.allow_headers);
    json_decref(gateway->cors.expose_headers);
    gateway->cors = (struct grid_cors){0};
}
