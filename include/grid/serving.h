/*
 * serving.h - the serving config: which sites serve what, and where their clusters are
 *
 * Story     The host hands over JSON text (from YAML or as it is) and gets one struct with all fields checked. A
 *           router takes the same text (grid.h); who renders a proxy's configuration reads the struct.
 * Source    behaviour.md J.2, O.23, O.47, O.56, design.md 7.
 */
#ifndef GRID_SERVING_CONFIG_H
#define GRID_SERVING_CONFIG_H

#include "grid/base.h"

enum grid_admission { GRID_NEW_AND_EXISTING, GRID_EXISTING_ONLY, GRID_NO_ADMISSION };
enum grid_kind { GRID_INFERENCE_MODEL, GRID_MCP_TOOL };

struct grid_serving_candidate {
    enum grid_kind kind;
    enum grid_admission admission;
    struct grid_str name, site, cluster;
    char mark[8]; /* the cluster's, in tagged ids; no two clusters have the same (behaviour.md O.16) */
};

struct grid_serving_tls { /* all empty: plain text */
    bool on;
    struct grid_str ca_path, cert_path, key_path, server_name;
};

/* How the depths of one cluster are read (behaviour.md O.23). */
struct grid_serving_signals {
    bool off;               /* `signals: null` or `signals: false`: never polled, always unmeasured */
    struct grid_str path;   /* "/metrics" */
    struct grid_str metric; /* empty: the first of the known names */
    uint64_t interval_ms;   /* 2000 */
    uint64_t timeout_ms;    /* 2000 */
    double divisor;         /* 1 */
    bool sum;               /* several series: sum, not average */
};

struct grid_serving_health { /* the proxy's active health checks; path empty: none */
    struct grid_str path;
    uint64_t interval_ms, timeout_ms;
    uint64_t healthy_threshold, unhealthy_threshold; /* 1 and 2: answers in a row that turn it */
};

struct grid_serving_alias {
    struct grid_str model, name; /* the model as it is asked for, and its name at the cluster's engines */
    struct grid_str json;        /* that name as a JSON string, with its quotes */
};

struct grid_serving_cluster {
    struct grid_str name;
    const struct grid_str *endpoints; /* "host:port" */
    size_t n_endpoints;
    struct grid_serving_tls tls;
    struct grid_serving_signals signals;
    struct grid_serving_health health;
    struct grid_str bearer_path;  /* file of the credential that replaces the client's; empty: none */
    const struct grid_str *paths; /* without queries; n_paths 0: no path is ruled out (behaviour.md O.47) */
    size_t n_paths;
    const struct grid_serving_alias *aliases; /* each model once */
    size_t n_aliases;
};

struct grid_serving_peer { /* the reference operator's form */
    struct grid_str site, addr, server_name, authority, path, grid_ca_path, client_cert_path, client_key_path;
    uint64_t interval_ms, connect_timeout_ms, request_timeout_ms;
};

/* The serving config (behaviour.md J.2, O.56, design.md 7), parsed. One block of memory; views point into it. */
struct grid_serving {
    struct grid_str local_site;
    uint64_t window_ms, load_window_ms;
    const struct grid_serving_candidate *candidates;
    size_t n_candidates;
    bool has_clusters; /* our form */
    const struct grid_serving_cluster *clusters;
    size_t n_clusters;
    const struct grid_serving_peer *peers;
    size_t n_peers;
    const struct grid_alloc *alloc; /* owner's business */
    void *memory;
};

/* Parses and validates. On success the caller owns *out_serving: grid_serving_free. NULL is accepted there. */
enum grid_status grid_serving_parse(struct grid_str json, bool words, const struct grid_alloc *alloc,
                                    struct grid_serving **out_serving, struct grid_errors *errors) GRID_MUST_USE;
void grid_serving_free(struct grid_serving *serving);

#endif
