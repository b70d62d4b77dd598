/*
 * pick.c - the cluster specifier: where the decision is taken, and taken again when a site does not take the request
 *
 * Story     The filter asks Envoy to choose the cluster anew; Envoy calls `select` on the same thread before that call
 *           returns. Only inside `select` can the health of any cluster be asked, so the core decides here. The
 *           stream is handed over in a variable of the thread. A request that may go on to another site is then armed:
 *           headers that only the filter can set turn Envoy's retries on for it alone, and a number in its metadata
 *           leads `select`, which Envoy calls again for each retry, back to the stream.
 * Promise   Without a stream no cluster is chosen: Envoy asks once before the filters run, and that must not send the
 *           request anywhere. Asked again for a ticket that is decided, it gives the same cluster. What the site may
 *           have seen is not sent again, but for one case: a connection that had been idle was closed under it.
 * Threads   A stream and its retries stay on one worker, and so does its place in `armed`.
 * Source    behaviour.md O (43, 55).
 */
#include "filter.h"

enum {
    ARMED_BUCKETS = 1024,
    MAX_TRIES = 9, /* one digit in a header */
    RACE_MS = 500, /* a connection closed while idle tells within a round trip; later, the site was at work */
};

/* Told to go nowhere, Envoy would go where it went before. No cluster has a blank name, so a retry there is a 503. */
#define NOWHERE GRID_TEXT(" ")
#define SPACE GRID_TEXT("grid")
#define TICKET GRID_TEXT("ticket")

/* The stream whose cluster is being chosen on this thread, between the two lines of grid_pick_decide. */
static _Thread_local struct grid_filter *deciding;

/* Streams of this thread that may be retried, by number. */
static _Thread_local struct grid_filter *armed[ARMED_BUCKETS];
static _Thread_local uint64_t last_number;

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

/* ---- retries ------------------------------------------------------------------------------------------------- */

static struct grid_filter *find_armed(uint64_t number)
{
    struct grid_filter *filter = armed[number % ARMED_BUCKETS];
    while (filter && filter->number != number)
        filter = filter->next_armed;
    return filter;
}

void grid_pick_arm(void *stream, struct grid_filter *filter, uint64_t bytes)
{
    filter->sent_ms = grid_module_now_ms();
    size_t others = bytes <= filter->module->failover_max_body_bytes ? grid_ticket_movable(filter->ticket) : 0;
    if (others == 0)
        return;
    others += 1; /* the race */
    char tries = (char)('0' + (others < MAX_TRIES ? others : MAX_TRIES));
    struct grid_filter **bucket = &armed[++last_number % ARMED_BUCKETS];
    filter->number = last_number;
    filter->next_armed = *bucket;
    *bucket = filter;
    ENVOY(http_set_dynamic_metadata_number)(stream, SPACE, TICKET, (double)filter->number);
    ENVOY(http_set_header)
    (stream, ENVOY_REQUEST_HEADERS, GRID_TEXT("x-envoy-retry-on"),
     GRID_TEXT("connect-failure,refused-stream,reset-before-request,reset"));
    ENVOY(http_set_header)
    (stream, ENVOY_REQUEST_HEADERS, GRID_TEXT("x-envoy-max-retries"), (struct grid_str){&tries, 1});
}

void grid_pick_disarm(struct grid_filter *filter)
{
    if (filter->number == 0)
        return;
    struct grid_filter **link = &armed[filter->number % ARMED_BUCKETS];
    while (*link && *link != filter)
        link = &(*link)->next_armed;
    if (*link)
        *link = filter->next_armed;
    filter->number = 0;
}

/* The request did not reach its site: on to the next one. With none left the same is tried again. */
static void move(void *context, struct grid_filter *filter)
{
    size_t n = 0;
    struct grid_candidate *candidates = grid_ticket_candidates(filter->ticket, &n);
    for (size_t i = 0; i < n; i++) {
        if (candidates[i].health != GRID_UNKNOWN)
            candidates[i].health = health_of(context, candidates[i].cluster);
    }
    (void)grid_ticket_move(filter->ticket, grid_module_now_ms());
}

static bool was_idle(const struct grid_filter *filter, struct grid_str local, uint64_t now_ms)
{
    return now_ms - filter->sent_ms <= RACE_MS && grid_reuse_known(local, filter->sent_ms);
}

bool grid_pick_raced(void *stream, const struct grid_filter *filter)
{
    struct grid_str local = {NULL, 0};
    return ENVOY(http_filter_get_attribute_string)(stream, ENVOY_ATTRIBUTE_UPSTREAM_LOCAL_ADDRESS, &local) &&
           was_idle(filter, local, grid_module_now_ms());
}

/* Envoy would try again: may it? Our end of a connection is known from when the request was handed over. Then only the
 * race with the end of an idle connection is tried again, once and at the same site. */
static bool retry(void *context, struct grid_filter *filter)
{
    struct grid_str local = {NULL, 0};
    uint64_t now_ms = grid_module_now_ms();
    bool handed_over =
        ENVOY(cluster_specifier_get_attribute_string)(context, ENVOY_ATTRIBUTE_UPSTREAM_LOCAL_ADDRESS, &local) &&
        local.len > 0;
    if (handed_over && (filter->raced || !was_idle(filter, local, now_ms))) {
        filter->site_failed = true;
        return false;
    }
    if (handed_over)
        filter->raced = true;
    else
        move(context, filter);
    filter->retries++;
    filter->sent_ms = now_ms;
    return true;
}

/* The stream of a retry; NULL when Envoy asks before the filters ran. */
static struct grid_filter *retried(void *context)
{
    double number = 0;
    if (last_number == 0 || !ENVOY(cluster_specifier_get_dynamic_metadata_number)(context, SPACE, TICKET, &number) ||
        !(number >= 1 && number <= (double)last_number))
        return NULL;
    return find_armed((uint64_t)number);
}

/* ---- hooks --------------------------------------------------------------------------------------------------- */

void grid_pick_decide(void *stream, struct grid_filter *filter)
{
    deciding = filter;
    ENVOY(http_clear_route_cluster_cache)(stream);
    deciding = NULL;
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
    struct grid_filter *filter = deciding ? deciding : retried(context);
    if (!filter)
        return false;
    if (!deciding && !retry(context, filter)) {
        ENVOY(cluster_specifier_set_cluster_name)(context, NOWHERE);
        return true;
    }
    const struct grid_decision *decision = grid_ticket_decision(filter->ticket);
    if (!grid_bridge_forwarded(decision) && decision->reply.status == 0)
        decide(context, filter->ticket);
    decision = grid_ticket_decision(filter->ticket);
    if (!grid_bridge_forwarded(decision))
        return false;
    ENVOY(cluster_specifier_set_cluster_name)(context, decision->cluster);
    return true;
}
