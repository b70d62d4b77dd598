/*
 * render_tls.c - secrets: TLS in both directions, and the credentials of sites
 *
 * Story     Envoy is told a secret's name and file, never what is in it. Each file, sds/NAME.json, holds one secret
 *           with its contents in place, so a certificate and its key always change in one step; Envoy follows the file
 *           and keeps the old secret when the new one is no good. Names come from the paths of the files, so a rotation
 *           changes a secret and no cluster.
 * Source    behaviour.md O.44, O.47; design.md 7, 8.
 */
#include "cli/render.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TYPE "type.googleapis.com/"
#define TLS TYPE "envoy.extensions.transport_sockets.tls.v3."
#define SYSTEM_CA "/etc/ssl/certs/ca-certificates.crt"
#define NAME_BYTES 64
#define FNV_START 14695981039346656037ull
#define FNV_PRIME 1099511628211ull
#define OWN_CERT "listen-cert"
#define OWN_CLIENTS "listen-clients"

/* The TLS of one cluster, with absolute paths and the name that its certificate must carry. */
struct upstream {
    char ca[GRID_PATH_BYTES], cert[GRID_PATH_BYTES], key[GRID_PATH_BYTES], bearer[GRID_PATH_BYTES];
    char name[256];
    bool is_ip;
};

/* FNV-1a of both texts, a NUL between them: a name for a file, no secret. */
static void name_secret(char out[NAME_BYTES], const char *kind, const char *a, const char *b)
{
    uint64_t hash = FNV_START;
    for (const char *c = a; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * FNV_PRIME;
    }
    hash *= FNV_PRIME;
    for (const char *c = b; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * FNV_PRIME;
    }
    snprintf(out, NAME_BYTES, "%s-%016" PRIx64, kind, hash);
}

static bool read_upstream(const struct grid_gateway *gateway, const struct grid_serving_cluster *cluster,
                          struct upstream *out)
{
    struct grid_address first = {0};
    *out = (struct upstream){0};
    if (cluster->n_endpoints > 0) {
        grid_address_parse(cluster->endpoints[0], false, true, &first);
    }
    struct grid_str given = cluster->tls.server_name;
    snprintf(out->name, sizeof out->name, "%.*s", given.len > 0 ? (int)given.len : (int)strlen(first.host),
             given.len > 0 ? given.ptr : first.host);
    out->is_ip = given.len == 0 && grid_address_is_ip(&first);
    return grid_config_serving_path(gateway, cluster->tls.ca_path, out->ca, sizeof out->ca) &&
           grid_config_serving_path(gateway, cluster->tls.cert_path, out->cert, sizeof out->cert) &&
           grid_config_serving_path(gateway, cluster->tls.key_path, out->key, sizeof out->key) &&
           grid_config_serving_path(gateway, cluster->bearer_path, out->bearer, sizeof out->bearer);
}

/* ---- where a secret is -------------------------------------------------------------------------------------- */

static json_t *secret_at(const char *name, const char *state_dir)
{
    return json_pack("{s:s, s:{s:{s:o}, s:s}}", "name", name, "sds_config", "path_config_source", "path",
                     json_sprintf("%s/sds/%s.json", state_dir, name), "resource_api_version", "V3");
}

static json_t *san(const char *type, const char *name)
{
    return json_pack("{s:s, s:{s:s}}", "san_type", type, "matcher", "exact", name);
}

json_t *grid_render_downstream_tls(const struct grid_gateway *gateway, const char *state_dir)
{
    json_t *common = json_pack("{s:[s, s], s:[o]}", "alpn_protocols", "h2", "http/1.1",
                               "tls_certificate_sds_secret_configs", secret_at(OWN_CERT, state_dir));
    json_t *tls = json_pack("{s:s, s:O}", "@type", TLS "DownstreamTlsContext", "common_tls_context", common);
    if (gateway->client_tls) {
        json_object_set_new(common, "validation_context_sds_secret_config", secret_at(OWN_CLIENTS, state_dir));
        json_object_set_new(tls, "require_client_certificate", json_true());
    }
    json_decref(common);
    return json_pack("{s:s, s:o}", "name", "envoy.transport_sockets.tls", "typed_config", tls);
}

json_t *grid_render_upstream_tls(const struct grid_gateway *gateway, const struct grid_serving_cluster *cluster,
                                 const char *state_dir)
{
    struct upstream up;
    char name[NAME_BYTES];
    if (!read_upstream(gateway, cluster, &up)) {
        return NULL;
    }
    json_t *common = json_object();
    if (up.ca[0] != '\0') {
        name_secret(name, "ca", up.ca, up.name);
        json_object_set_new(common, "validation_context_sds_secret_config", secret_at(name, state_dir));
    } else { /* the system's list is no secret of ours */
        json_object_set_new(common, "validation_context",
                            json_pack("{s:o, s:[o]}", "trusted_ca", grid_render_file(SYSTEM_CA),
                                      "match_typed_subject_alt_names", san(up.is_ip ? "IP_ADDRESS" : "DNS", up.name)));
    }
    if (up.cert[0] != '\0') {
        name_secret(name, "cert", up.cert, up.key);
        json_object_set_new(common, "tls_certificate_sds_secret_configs", json_pack("[o]", secret_at(name, state_dir)));
    }
    json_t *tls = json_pack("{s:s, s:o}", "@type", TLS "UpstreamTlsContext", "common_tls_context", common);
    if (!up.is_ip) {
        json_object_set_new(tls, "sni", json_string(up.name));
    }
    return json_pack("{s:s, s:o}", "name", "envoy.transport_sockets.tls", "typed_config", tls);
}

json_t *grid_render_credential(const struct grid_gateway *gateway, const struct grid_serving_cluster *cluster,
                               const char *state_dir)
{
    struct upstream up;
    char name[NAME_BYTES];
    if (cluster->bearer_path.len == 0 || !read_upstream(gateway, cluster, &up)) {
        return NULL;
    }
    name_secret(name, "bearer", up.bearer, "");
    json_t *injected =
        json_pack("{s:s, s:{s:s, s:o, s:s, s:s}}", "name", "envoy.http.injected_credentials.generic", "typed_config",
                  "@type", TYPE "envoy.extensions.http.injected_credentials.generic.v3.Generic", "credential",
                  secret_at(name, state_dir), "header", "authorization", "header_value_prefix", "Bearer ");
    return json_pack("{s:s, s:{s:s, s:b, s:b, s:o}}", "name", "envoy.filters.http.credential_injector", "typed_config",
                     "@type", TYPE "envoy.extensions.filters.http.credential_injector.v3.CredentialInjector",
                     "overwrite", 1, "allow_request_without_credential", 0, "credential", injected);
}

/* ---- what is in it ------------------------------------------------------------------------------------------- */

static json_t *content(const struct grid_gateway *gateway, const char *path, enum grid_material_kind kind)
{
    const struct grid_material *item = grid_materials_find(&gateway->materials, path, kind);
    return item != NULL ? json_pack("{s:s}", "inline_string", item->text) : NULL;
}

static void put(json_t *secrets, const char *name, const char *what, json_t *value)
{
    json_object_set_new(secrets, name, json_pack("{s:s, s:s, s:o}", "@type", TLS "Secret", "name", name, what, value));
}

static void put_certificate(json_t *secrets, const char *name, const struct grid_gateway *gateway, const char *cert,
                            const char *key)
{
    put(secrets, name, "tls_certificate",
        json_pack("{s:o, s:o}", "certificate_chain", content(gateway, cert, GRID_MATERIAL_CERTIFICATES), "private_key",
                  content(gateway, key, GRID_MATERIAL_KEY)));
}

/* Of clients anybody that the CA vouches for, or a provider's peers by name. */
static json_t *clients_of(const struct grid_gateway *gateway)
{
    json_t *out =
        json_pack("{s:o}", "trusted_ca", content(gateway, gateway->client_ca_path, GRID_MATERIAL_CERTIFICATES));
    if (gateway->peers_allowed == NULL) {
        return out;
    }
    json_t *names = json_array(), *peer;
    size_t i;
    json_array_foreach(gateway->peers_allowed, i, peer)
    {
        const char *name = json_string_value(peer);
        json_array_append_new(names, san(strstr(name, "://") != NULL ? "URI" : "DNS", name));
    }
    json_object_set_new(out, "match_typed_subject_alt_names", names);
    return out;
}

static void put_cluster(json_t *secrets, const struct grid_gateway *gateway, const struct grid_serving_cluster *cluster)
{
    struct upstream up;
    char name[NAME_BYTES];
    if (!read_upstream(gateway, cluster, &up)) {
        return;
    }
    if (up.ca[0] != '\0') {
        name_secret(name, "ca", up.ca, up.name);
        put(secrets, name, "validation_context",
            json_pack("{s:o, s:[o]}", "trusted_ca", content(gateway, up.ca, GRID_MATERIAL_CERTIFICATES),
                      "match_typed_subject_alt_names", san(up.is_ip ? "IP_ADDRESS" : "DNS", up.name)));
    }
    if (up.cert[0] != '\0') {
        name_secret(name, "cert", up.cert, up.key);
        put_certificate(secrets, name, gateway, up.cert, up.key);
    }
    if (up.bearer[0] != '\0') {
        name_secret(name, "bearer", up.bearer, "");
        put(secrets, name, "generic_secret",
            json_pack("{s:o}", "secret", content(gateway, up.bearer, GRID_MATERIAL_BEARER)));
    }
}

json_t *grid_render_secrets(const struct grid_gateway *gateway)
{
    json_t *secrets = json_object();
    if (gateway->tls) {
        put_certificate(secrets, OWN_CERT, gateway, gateway->cert_path, gateway->key_path);
    }
    if (gateway->client_tls) {
        put(secrets, OWN_CLIENTS, "validation_context", clients_of(gateway));
    }
    for (size_t i = 0; i < gateway->serving->n_clusters; i++) {
        put_cluster(secrets, gateway, &gateway->serving->clusters[i]);
    }
    return secrets;
}
