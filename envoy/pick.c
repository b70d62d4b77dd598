/*
 * pick.c - the cluster specifier: where the decision is taken
 *
 * Story     The filter asks Envoy to choose the cluster anew; Envoy calls `select` on the same thread before that call
 *           returns. Only inside `select` can the health of any cluster be asked, so the core decides here. The
 *           ticket is handed over in a variable of the thread.
 * Promise   Without a ticket no cluster is chosen: Envoy asks once before the filters run, and that must not send the
 *           request anywhere. Asked again for a ticket that is decided, it gives the same cluster.
 */
#include "module.h"

/* The ticket whose cluster is being chosen on this thread, between the two lines of grid_pick_decide. */
static _Thread_local struct grid_ticket *deciding;

void grid_pick_decide(void *stream, struct grid_ticket *ticket)
{
    deciding = ticket;
    ENVOY(http_clear_route_cluster_cache)(stream);
    deciding = NULL;
}

static enum grid_health health_of(void *context, struct grid_str cluster)
{
    size_t total = 0, healthy = 0, degraded = 0;
    if (!ENVOY(cluster_specifier_get_cluster_host_count)(context, cluster, 0, &total, &healthy, &degraded))
        return GRID_UNKNOWN;
    return healthy + degraded == 0 ? GRID_UNHEALTHY : GRID_HEALTHY;
}

static void decide(void *context, struct grid_ticket *ticket)
{
    struct grid_decision decision;
    size_t n = 0;
    struct grid_candidate *candidates = grid_ticket_candidates(ticket, &n);
    for (size_t i = 0; i < n; i++)
        candidates[i].health = health_of(context, candidates[i].cluster);
    grid_route(ticket, NULL, grid_module_now_ms(), &decision);
}

void *ON(cluster_specifier_config_new)(void *envoy, struct grid_str name, struct grid_str config)
{
    (void)envoy, (void)name, (void)config;
    static char token; /* there is nothing to configure; Envoy wants a pointer that is not NULL */
    return &token;
}

void ON(cluster_specifier_config_destroy)(void *config)
{
    (void)config;
}

bool ON(cluster_specifier_select)(void *config, void *context)
{
    (void)config;
    if (!deciding)
        return false;
    const struct grid_decision *decision = grid_ticket_decision(deciding);
    if (!grid_bridge_forwarded(decision) && decision->reply.status == 0)
        decide(context, deciding);
    decision = grid_ticket_decision(deciding);
    if (!grid_bridge_forwarded(decision))
        return false;
    ENVOY(cluster_specifier_set_cluster_name)(context, decision->cluster);
    return true;
}
