/*
 * places.c - where the clusters of a serving config are: `clusters` (our form) and `peers` (the operator's)
 *
 * Story     serving.c's table of fields hands over here for the two lists. Endpoints, TLS, how queue depths are read,
 *           health checks, the credential, which paths a cluster serves, what it calls the models.
 * Source    behaviour.md J.2, O.23; design.md 7.
 * Not here  Candidates, and whether their clusters are there (serving.c).
 */
#include "places.h"

#include <math.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_MS 86400000u /* a day: no interval and no timeout is longer */
#define DEFAULT_SIGNALS_MS 2000u
#define DEFAULT_HEALTH_INTERVAL_MS 5000u
#define DEFAULT_HEALTH_TIMEOUT_MS 2000u
#define DEFAULT_HEALTHY 1u
#define DEFAULT_UNHEALTHY 2u
#define MAX_THRESHOLD 100u
#define MAX_PATHS 64u
#define MS_WORDS "a whole number of milliseconds from 1 to 86400000"
#define NAME_WORDS "a name of 1 to 256 bytes"
#define THRESHOLD_WORDS "a whole number from 1 to 100"
#define PATH_WORDS "a path of 1 to 1023 bytes"
#define ALIAS_WORDS "a mapping of at most 1024 models, each to its name at this cluster"

/* `null` and `false` both say "none". */
static bool take_false(struct grid_fields *in)
{
    if (grid_json_peek(&in->json) != GRID_JSON_FALSE)
        return false;
    (void)grid_json_skip(&in->json);
    return true;
}

/* ---- clusters -------------------------------------------------------------------------------------------------- */

static void read_endpoints(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_serving_cluster *cluster = object;
    static const struct grid_field endpoint = {.at = 0};
    struct grid_fields_walk walk;
    if (!grid_fields_list(in, 1, GRID_PLACES_MAX_ENDPOINTS, field->accepts, &walk))
        return;
    struct grid_str *endpoints = grid_values_take(in, walk.n, sizeof *endpoints);
    while (grid_fields_next(in, &walk)) {
        if (endpoints)
            grid_values_address(in, &endpoint, &endpoints[walk.i]);
        else
            (void)grid_json_skip(&in->json);
    }
    cluster->endpoints = endpoints;
    cluster->n_endpoints = endpoints ? walk.n : 0;
}

#define IN_TLS(member) offsetof(struct grid_serving_tls, member)
static const struct grid_field tls_fields[] = {
    {.name = "ca_path",
     .read = grid_values_text,
     .at = IN_TLS(ca_path),
     .most = GRID_FIELDS_PATH_BYTES,
     .accepts = PATH_WORDS},
    {.name = "cert_path",
     .read = grid_values_text,
     .at = IN_TLS(cert_path),
     .most = GRID_FIELDS_PATH_BYTES,
     .accepts = PATH_WORDS},
    {.name = "key_path",
     .read = grid_values_text,
     .at = IN_TLS(key_path),
     .most = GRID_FIELDS_PATH_BYTES,
     .accepts = PATH_WORDS},
    {.name = "server_name",
     .read = grid_values_text,
     .at = IN_TLS(server_name),
     .most = GRID_VALUES_HOST_BYTES,
     .accepts = "a host name of 1 to 253 bytes"},
};

static void read_tls(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_serving_cluster *cluster = object;
    size_t offset = grid_fields_offset(&in->json);
    uint32_t seen;
    (void)field;
    if (!grid_fields_object(in, tls_fields, COUNT(tls_fields), &cluster->tls, &seen))
        return;
    cluster->tls.on = true;
    if (((seen >> 1) & 1) != ((seen >> 2) & 1))
        grid_fields_refuse(in, GRID_E_CONFLICT, offset,
                           "%s is missing: cert_path and key_path come together or not at all",
                           seen & 2 ? "key_path" : "cert_path");
}

static void read_metric(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_str text;
    if (!grid_fields_text(in, 1, GRID_MAX_NAME_BYTES, field->accepts, &text))
        return;
    bool fine = text.ptr[0] < '0' || text.ptr[0] > '9';
    for (size_t i = 0; i < text.len; i++) {
        char c = grid_str_lower(text.ptr[i]);
        fine = fine && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == ':');
    }
    if (fine)
        grid_values_keep(in, field, object, text);
    else
        grid_fields_bad(in, field->accepts);
}

static void read_how(struct grid_fields *in, const struct grid_field *field, void *object)
{
    static const char *const words[] = {"average", "sum"};
    struct grid_serving_signals *signals = object;
    signals->sum = grid_values_choice(in, field, words, COUNT(words)) == 1;
}

#define IN_SIGNALS(member) offsetof(struct grid_serving_signals, member)
static const struct grid_field signals_fields[] = {
    {.name = "path", .read = grid_values_url_path, .at = IN_SIGNALS(path)},
    {.name = "interval_ms",
     .read = grid_fields_whole,
     .at = IN_SIGNALS(interval_ms),
     .least = 1,
     .most = MAX_MS,
     .accepts = MS_WORDS},
    {.name = "timeout_ms",
     .read = grid_fields_whole,
     .at = IN_SIGNALS(timeout_ms),
     .least = 1,
     .most = MAX_MS,
     .accepts = MS_WORDS},
    {.name = "metric",
     .read = read_metric,
     .at = IN_SIGNALS(metric),
     .null_ok = true,
     .accepts = "a Prometheus metric name: letters, digits, '_' and ':', no digit first"},
    {.name = "divisor",
     .read = grid_fields_number,
     .at = IN_SIGNALS(divisor),
     .high = HUGE_VAL,
     .above = true,
     .accepts = "a positive finite number"},
    {.name = "how", .read = read_how, .fallback = "average", .accepts = "average or sum"},
};

static void read_signals(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_serving_cluster *cluster = object;
    (void)field;
    if (grid_json_peek(&in->json) == GRID_JSON_NULL) {
        (void)grid_json_skip(&in->json);
        cluster->signals.off = true;
    } else if (take_false(in)) {
        cluster->signals.off = true;
    } else {
        (void)grid_fields_object(in, signals_fields, COUNT(signals_fields), &cluster->signals, NULL);
    }
}

#define IN_HEALTH(member) offsetof(struct grid_serving_health, member)
static const struct grid_field health_fields[] = {
    {.name = "path", .read = grid_values_url_path, .at = IN_HEALTH(path), .required = true, .accepts = GRID_VALUES_URL},
    {.name = "interval_ms",
     .read = grid_fields_whole,
     .at = IN_HEALTH(interval_ms),
     .least = 1,
     .most = MAX_MS,
     .accepts = MS_WORDS},
    {.name = "timeout_ms",
     .read = grid_fields_whole,
     .at = IN_HEALTH(timeout_ms),
     .least = 1,
     .most = MAX_MS,
     .accepts = MS_WORDS},
    {.name = "healthy_threshold",
     .read = grid_fields_whole,
     .at = IN_HEALTH(healthy_threshold),
     .least = 1,
     .most = MAX_THRESHOLD,
     .accepts = THRESHOLD_WORDS},
    {.name = "unhealthy_threshold",
     .read = grid_fields_whole,
     .at = IN_HEALTH(unhealthy_threshold),
     .least = 1,
     .most = MAX_THRESHOLD,
     .accepts = THRESHOLD_WORDS},
};

static void read_health(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_serving_cluster *cluster = object;
    (void)field;
    if (!take_false(in))
        (void)grid_fields_object(in, health_fields, COUNT(health_fields), &cluster->health, NULL);
}

static const struct grid_field credential_fields[] = {
    {.name = "bearer_path",
     .read = grid_values_text,
     .at = offsetof(struct grid_serving_cluster, bearer_path),
     .required = true,
     .most = GRID_FIELDS_PATH_BYTES,
     .accepts = PATH_WORDS},
};

static void read_credential(struct grid_fields *in, const struct grid_field *field, void *object)
{
    (void)field;
    (void)grid_fields_object(in, credential_fields, COUNT(credential_fields), object, NULL);
}

/* Compared with a request's path without its query, so there is none in them. */
static void read_paths(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_serving_cluster *cluster = object;
    static const struct grid_field path = {.at = 0};
    struct grid_fields_walk walk;
    if (!grid_fields_list(in, 1, MAX_PATHS, field->accepts, &walk))
        return;
    struct grid_str *paths = grid_values_take(in, walk.n, sizeof *paths);
    while (grid_fields_next(in, &walk)) {
        if (!paths) {
            (void)grid_json_skip(&in->json);
            continue;
        }
        grid_values_url_path(in, &path, &paths[walk.i]);
        if (paths[walk.i].ptr && memchr(paths[walk.i].ptr, '?', paths[walk.i].len))
            grid_fields_bad(in, "a path that starts with '/', without blanks and query");
    }
    cluster->paths = paths;
    cluster->n_paths = paths ? walk.n : 0;
}

/* The name as a JSON string. It holds no control character, and a JSON text is valid UTF-8: only two bytes need an
 * escape. */
static struct grid_str quoted(struct grid_fields *in, struct grid_str name)
{
    char *json = grid_values_take(in, 2 * name.len + 2, 1);
    size_t n = 0;
    if (!json)
        return (struct grid_str){NULL, 0};
    json[n++] = '"';
    for (size_t i = 0; i < name.len; i++) {
        if (name.ptr[i] == '"' || name.ptr[i] == '\\')
            json[n++] = '\\';
        json[n++] = name.ptr[i];
    }
    json[n++] = '"';
    return (struct grid_str){json, n};
}

/* The entry that stands next in the text. */
static void read_alias(struct grid_fields *in, struct grid_str asked, struct grid_serving_cluster *cluster,
                       struct grid_serving_alias *aliases)
{
    static const struct grid_field model = {.at = offsetof(struct grid_serving_alias, model)};
    static const struct grid_field name = {.at = offsetof(struct grid_serving_alias, name)};
    struct grid_serving_alias alias = {.model = {NULL, 0}};
    grid_values_keep(in, &model, &alias, asked); /* before the value takes its room */
    for (size_t i = 0; i < cluster->n_aliases; i++)
        if (grid_str_eq(aliases[i].model, asked)) {
            grid_fields_refuse(in, GRID_E_FIELD, grid_fields_offset(&in->json), "%.*s is given twice", GRID_FMT(asked));
            break;
        }
    grid_values_name(in, &name, &alias);
    if (!alias.model.ptr || !alias.name.ptr)
        return;
    alias.json = quoted(in, alias.name);
    aliases[cluster->n_aliases++] = alias;
}

static void read_aliases(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_serving_cluster *cluster = object;
    struct grid_fields_walk walk;
    struct grid_str asked;
    if (!grid_fields_map(in, GRID_MAX_CANDIDATES, field->accepts, &walk))
        return;
    struct grid_serving_alias *aliases = grid_values_take(in, walk.n, sizeof *aliases);
    while (grid_fields_entry(in, &walk, &asked)) {
        if (aliases)
            read_alias(in, asked, cluster, aliases);
        else
            (void)grid_json_skip(&in->json);
    }
    cluster->aliases = aliases;
}

/* As a candidate: the name's place, for a name that another cluster has. */
struct cluster_slot {
    struct grid_serving_cluster cluster;
    size_t name_offset;
};

static void read_cluster_name(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct cluster_slot *slot = object;
    grid_values_name(in, field, object);
    slot->name_offset = grid_fields_offset(&in->mark);
}

#define IN_CLUSTER(member) offsetof(struct cluster_slot, cluster.member)
static const struct grid_field cluster_fields[] = {
    {.name = "name", .read = read_cluster_name, .at = IN_CLUSTER(name), .required = true, .accepts = NAME_WORDS},
    {.name = "endpoints", .read = read_endpoints, .required = true, .accepts = "a list of 1 to 1024 addresses"},
    {.name = "tls", .read = read_tls, .null_ok = true},
    {.name = "signals", .read = read_signals},
    {.name = "health", .read = read_health, .null_ok = true},
    {.name = "credential", .read = read_credential, .null_ok = true},
    {.name = "paths", .read = read_paths, .null_ok = true, .accepts = "a list of 1 to 64 paths"},
    {.name = "model_alias", .read = read_aliases, .null_ok = true, .accepts = ALIAS_WORDS},
};

static const struct grid_serving_cluster cluster_defaults = {
    .signals = {.path = {"/metrics", sizeof "/metrics" - 1},
                .interval_ms = DEFAULT_SIGNALS_MS,
                .timeout_ms = DEFAULT_SIGNALS_MS,
                .divisor = 1},
    .health = {.interval_ms = DEFAULT_HEALTH_INTERVAL_MS,
               .timeout_ms = DEFAULT_HEALTH_TIMEOUT_MS,
               .healthy_threshold = DEFAULT_HEALTHY,
               .unhealthy_threshold = DEFAULT_UNHEALTHY},
};

void grid_places_clusters(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_serving *serving = object;
    struct grid_fields_walk walk;
    if (!grid_fields_list(in, 0, GRID_PLACES_MAX, field->accepts, &walk))
        return;
    struct grid_serving_cluster *clusters = grid_values_take(in, walk.n, sizeof *clusters);
    while (grid_fields_next(in, &walk)) {
        struct cluster_slot slot = {.cluster = cluster_defaults};
        (void)grid_fields_object(in, cluster_fields, COUNT(cluster_fields), &slot, NULL);
        for (size_t i = 0; clusters && slot.cluster.name.ptr && i < walk.i; i++)
            if (grid_str_eq(slot.cluster.name, clusters[i].name)) {
                grid_values_stand_at(in, "clusters[%zu].name", walk.i);
                grid_fields_refuse(in, GRID_E_CONFLICT, slot.name_offset,
                                   "name %.*s is that of clusters[%zu]: each must be another",
                                   GRID_FMT(slot.cluster.name), i);
                break;
            }
        if (clusters)
            clusters[walk.i] = slot.cluster;
    }
    serving->clusters = clusters;
    serving->n_clusters = clusters ? walk.n : 0;
}

/* ---- peers ----------------------------------------------------------------------------------------------------- */

#define IN_PEER(member) offsetof(struct grid_serving_peer, member)
#define PEER_PATH(member)                                                                                              \
    {                                                                                                                  \
        .name = #member, .read = grid_values_text, .at = IN_PEER(member), .null_ok = true,                             \
        .most = GRID_FIELDS_PATH_BYTES, .accepts = PATH_WORDS                                                          \
    }
#define PEER_MS(member)                                                                                                \
    {                                                                                                                  \
        .name = #member, .read = grid_fields_whole, .at = IN_PEER(member), .least = 1, .most = MAX_MS,                 \
        .accepts = MS_WORDS                                                                                            \
    }
static const struct grid_field peer_fields[] = {
    {.name = "site", .read = grid_values_site, .at = IN_PEER(site), .required = true, .accepts = GRID_VALUES_SITE},
    {.name = "addr",
     .read = grid_values_address,
     .at = IN_PEER(addr),
     .required = true,
     .accepts = GRID_VALUES_ADDRESS},
    {.name = "server_name",
     .read = grid_values_text,
     .at = IN_PEER(server_name),
     .null_ok = true,
     .most = GRID_VALUES_HOST_BYTES,
     .accepts = "a host name of 1 to 253 bytes"},
    {.name = "authority",
     .read = grid_values_text,
     .at = IN_PEER(authority),
     .null_ok = true,
     .most = GRID_VALUES_ADDRESS_BYTES,
     .accepts = "host or host:port"},
    {.name = "path", .read = grid_values_url_path, .at = IN_PEER(path)},
    PEER_MS(interval_ms),
    PEER_MS(connect_timeout_ms),
    PEER_MS(request_timeout_ms),
    PEER_PATH(grid_ca_path),
    PEER_PATH(client_cert_path),
    PEER_PATH(client_key_path),
};

static const struct grid_serving_peer peer_defaults = {
    .path = {"/v1/site/signals", sizeof "/v1/site/signals" - 1},
    .interval_ms = DEFAULT_SIGNALS_MS,
    .connect_timeout_ms = DEFAULT_SIGNALS_MS,
    .request_timeout_ms = DEFAULT_SIGNALS_MS,
};

void grid_places_peers(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_serving *serving = object;
    struct grid_fields_walk walk;
    if (!grid_fields_list(in, 0, GRID_PLACES_MAX, field->accepts, &walk))
        return;
    struct grid_serving_peer *peers = grid_values_take(in, walk.n, sizeof *peers);
    while (grid_fields_next(in, &walk)) {
        struct grid_serving_peer peer = peer_defaults;
        struct grid_json start = in->json;
        (void)grid_fields_object(in, peer_fields, COUNT(peer_fields), &peer, NULL);
        for (size_t i = 0; peers && peer.site.ptr && i < walk.i; i++)
            if (grid_str_eq(peer.site, peers[i].site)) {
                grid_values_stand_at(in, "peers[%zu].site", walk.i);
                grid_fields_refuse(in, GRID_E_CONFLICT, grid_fields_offset(&start),
                                   "site %.*s is that of peers[%zu]: each must be another", GRID_FMT(peer.site), i);
                break;
            }
        if (peers)
            peers[walk.i] = peer;
    }
    serving->peers = peers;
    serving->n_peers = peers ? walk.n : 0;
}

/* ---- description ----------------------------------------------------------------------------------------------- */

void grid_places_describe(const struct grid_describe *to)
{
    const struct cluster_slot slot = {.cluster = cluster_defaults};
    const struct grid_serving_cluster *cluster = &slot.cluster;
    grid_describe_table(to, "clusters[].", cluster_fields, COUNT(cluster_fields), &slot);
    grid_describe_table(to, "clusters[].tls.", tls_fields, COUNT(tls_fields), &cluster->tls);
    grid_describe_table(to, "clusters[].signals.", signals_fields, COUNT(signals_fields), &cluster->signals);
    grid_describe_table(to, "clusters[].health.", health_fields, COUNT(health_fields), &cluster->health);
    grid_describe_table(to, "clusters[].credential.", credential_fields, COUNT(credential_fields), cluster);
    grid_describe_table(to, "peers[].", peer_fields, COUNT(peer_fields), &peer_defaults);
}
