/*
 * signals.c - queue depths, asked of each engine's own metrics
 *
 * Story     For each target (targets.c) a GET over Envoy's own cluster every interval_ms, the answer read by the core.
 *           A cluster's depth is the average of its targets', given to the router with the time at which it was
 *           taken. One timer serves all; it is set to the next poll that is due. When every target was asked once, or
 *           took too long, the gateway is ready.
 * Promise   One poll of a target at a time, and none waits for another. A cluster that gives no depth is unmeasured,
 *           never guessed. An engine that restarted has its cluster's blocks forgotten: its cache is gone.
 * Threads   Main thread. What pages show (struct grid_polled) is written and read under the mutex.
 * Source    behaviour.md I, O (23, 48, 53).
 * Not here  Reading an exposition and judging ages (core), whom to ask (targets.c), pages (shown.c).
 */
#include "signals.h"

#include <time.h>

enum {
    MAX_ANSWER_BYTES = 1 << 20,
    RETRY_MS = 100,        /* while Envoy does not know a cluster yet, at the start */
    READY_LIMIT_MS = 5000, /* the longest that a silent cluster holds the start back */
    MAX_PATH_BYTES = 1024, /* of a redirect */
    RESTART_SLACK_S = 1,   /* a start time this much later is another process */
    MAX_SLIPS = 2,         /* restarts that are believed by counters alone, in SLIPS_MS */
    SLIPS_MS = 300000,
};

/* ---- readiness and time --------------------------------------------------------------------------------------- */

static void check_ready(struct grid_module *module, uint64_t now_ms)
{
    const struct grid_signals *s = &grid_signals;
    if (atomic_load(&module->ready))
        return;
    for (size_t i = 0; i < s->n_targets && now_ms < s->ready_limit_ms; i++) {
        if (!s->targets[i].answered)
            return;
    }
    atomic_store(&module->ready, true);
    ENVOY(bootstrap_extension_config_signal_init_complete)(module->envoy);
}

static void set_timer(const struct grid_module *module, uint64_t now_ms)
{
    const struct grid_signals *s = &grid_signals;
    uint64_t next_ms = atomic_load(&module->ready) ? UINT64_MAX : s->ready_limit_ms;
    for (size_t i = 0; i < s->n_targets; i++) {
        if (!s->targets[i].in_flight && s->targets[i].next_ms < next_ms)
            next_ms = s->targets[i].next_ms;
    }
    if (s->timer && next_ms != UINT64_MAX)
        ENVOY(bootstrap_extension_timer_enable)(s->timer, next_ms > now_ms ? next_ms - now_ms : 1);
}

static struct grid_polled *cluster_of(const struct grid_target *target)
{
    return &grid_signals.clusters[target->cluster];
}

static void finish(struct grid_target *target, enum grid_poll_result result, const char *why)
{
    pthread_mutex_lock(&grid_signals.mutex);
    cluster_of(target)->counts[result]++;
    cluster_of(target)->why = why;
    pthread_mutex_unlock(&grid_signals.mutex);
    target->in_flight = false;
    target->answered = true;
    target->next_ms = grid_module_now_ms() + target->how->interval_ms;
}

/* ---- asking -------------------------------------------------------------------------------------------------- */

static void start(struct grid_module *module, struct grid_target *target, struct grid_str path)
{
    struct grid_signals *s = &grid_signals;
    struct grid_header headers[] = {{GRID_TEXT(":method"), GRID_TEXT("GET")},
                                    {GRID_TEXT(":path"), path},
                                    {GRID_TEXT("host"), target->host},
                                    {GRID_TEXT("accept"), GRID_TEXT("text/plain")},
                                    {GRID_TEXT("user-agent"), GRID_TEXT("grid-gateway")}};
    s->starting = true;
    s->done_inside = false;
    int started = ENVOY(bootstrap_extension_http_callout)(
        module->envoy, &target->callout, grid_bridge_text(target->name), headers, sizeof(headers) / sizeof(headers[0]),
        (struct grid_str){NULL, 0}, target->how->timeout_ms);
    s->starting = false;
    if (started == ENVOY_CALLOUT_STARTED && !s->done_inside) {
        target->in_flight = true;
        return;
    }
    bool unknown = started == ENVOY_CALLOUT_NO_CLUSTER;
    if (unknown && !atomic_load(&module->ready)) {
        target->next_ms = grid_module_now_ms() + RETRY_MS;
        return;
    }
    finish(target, GRID_POLL_UNREACHABLE, unknown ? "Envoy does not know the cluster" : "no endpoint is reachable");
}

bool grid_signals_fired(struct grid_module *module, void *timer)
{
    struct grid_signals *s = &grid_signals;
    if (!s->timer || timer != s->timer)
        return false;
    uint64_t now_ms = grid_module_now_ms();
    for (size_t i = 0; i < s->n_targets; i++) {
        struct grid_target *target = &s->targets[i];
        if (!target->in_flight && target->next_ms <= now_ms) {
            target->redirected = false;
            start(module, target, target->how->path);
        }
    }
    check_ready(module, now_ms);
    set_timer(module, grid_module_now_ms());
    return true;
}

/* ---- restarts ------------------------------------------------------------------------------------------------ */

/* Counters go back when the engine restarts. When they do so again and again, several engines answer behind one
 * address, by turns: then they tell nothing. */
static bool counters_went_back(struct grid_target *target, const struct grid_scrape *scrape, uint64_t now_ms)
{
    double before = target->counters;
    if (!scrape->has_counters || target->many_engines)
        return false;
    target->counters = scrape->counters;
    if (!(scrape->counters < before))
        return false;
    if (now_ms - target->slips_from_ms > SLIPS_MS) {
        target->slips_from_ms = now_ms;
        target->slips = 0;
    }
    if (++target->slips <= MAX_SLIPS)
        return true;
    target->many_engines = true;
    grid_module_log(ENVOY_LOG_WARN,
                    "cluster %s: its counters go up and down, so several engines answer at one address; restarts are "
                    "told by start times only",
                    target->name);
    return false;
}

/* A later start time than any before. An earlier one is another engine's, so that counters tell nothing either. */
static bool started_anew(struct grid_target *target, const struct grid_scrape *scrape)
{
    double before = target->start_time;
    target->many_engines = target->many_engines || scrape->start_time_seconds < before - RESTART_SLACK_S;
    if (!(scrape->start_time_seconds > before))
        return false;
    target->start_time = scrape->start_time_seconds;
    return before > 0 && scrape->start_time_seconds > before + RESTART_SLACK_S;
}

static void notice_restart(struct grid_module *module, struct grid_target *target, const struct grid_scrape *scrape,
                           uint64_t now_ms)
{
    bool anew = scrape->has_start_time && started_anew(target, scrape);
    bool back = counters_went_back(target, scrape, now_ms); /* asked in any case: it remembers them */
    if (!anew && !back)
        return;
    struct grid_polled *cluster = cluster_of(target);
    grid_module_log(ENVOY_LOG_INFO, "cluster %s: an engine restarted, what it held is forgotten", cluster->cluster);
    grid_router_forget_cluster(module->router, grid_bridge_text(cluster->cluster));
    pthread_mutex_lock(&grid_signals.mutex);
    cluster->resets++;
    pthread_mutex_unlock(&grid_signals.mutex);
}

/* ---- reading an answer --------------------------------------------------------------------------------------- */

static struct grid_str find_header(const struct grid_header *headers, size_t n, struct grid_str name)
{
    for (size_t i = 0; i < n; i++) {
        if (grid_bridge_same(headers[i].name, name))
            return headers[i].value;
    }
    return (struct grid_str){NULL, 0};
}

/* The path of a redirect that stays on the same host; empty for any other. */
static struct grid_str same_host_path(const struct grid_target *target, struct grid_str location)
{
    static const struct grid_str schemes[] = {{"http://", 7}, {"https://", 8}};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        if (!grid_bridge_starts(location, schemes[i]))
            continue;
        struct grid_str rest = {location.ptr + schemes[i].len, location.len - schemes[i].len};
        if (!grid_bridge_starts(rest, target->host))
            return (struct grid_str){NULL, 0};
        location = (struct grid_str){rest.ptr + target->host.len, rest.len - target->host.len};
    }
    bool good = location.len > 0 && location.len <= MAX_PATH_BYTES && location.ptr[0] == '/' &&
                !grid_bridge_starts(location, GRID_TEXT("//"));
    return good ? location : (struct grid_str){NULL, 0};
}

/* When the sample was taken, on our clock. One from the future was taken now. */
static uint64_t stamp_of(const struct grid_scrape *scrape, uint64_t now_ms)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t wall_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    if (!scrape->has_stamp || scrape->stamp_ms >= wall_ms)
        return now_ms;
    if (scrape->stamp_ms < 0 || (uint64_t)(wall_ms - scrape->stamp_ms) >= now_ms)
        return 0;
    return now_ms - (uint64_t)(wall_ms - scrape->stamp_ms);
}

/* The cluster's depth after one of its targets told a new one. */
static void pass_on(struct grid_module *module, const struct grid_target *target, uint64_t now_ms)
{
    struct grid_polled *cluster = cluster_of(target);
    double depth = 0;
    size_t fresh = 0;
    if (!grid_targets_depth(target->cluster, now_ms, &depth, &fresh) ||
        !grid_signal(module->router, grid_bridge_text(cluster->cluster), depth, target->depth_ms, now_ms))
        return;
    pthread_mutex_lock(&grid_signals.mutex);
    cluster->has_sample = true;
    cluster->sample_ms = target->depth_ms;
    cluster->depth = depth;
    cluster->fresh = fresh;
    pthread_mutex_unlock(&grid_signals.mutex);
    if (grid_router_refresh(module->router, now_ms) != GRID_OK)
        grid_module_log(ENVOY_LOG_WARN, "no memory for a new order of the sites; the old one stays");
}

static void take_depth(struct grid_module *module, struct grid_target *target, const struct grid_str *body, size_t n)
{
    struct grid_scrape scrape = {0};
    bool good = grid_scrape_depth(body, n, target->how, &scrape);
    uint64_t now_ms = grid_module_now_ms();
    notice_restart(module, target, &scrape, now_ms);
    finish(target, good ? GRID_POLL_OK : GRID_POLL_NO_METRIC, good ? NULL : scrape.why);
    if (!good)
        return;
    target->has_depth = true;
    target->depth = scrape.depth;
    target->depth_ms = stamp_of(&scrape, now_ms);
    pass_on(module, target, now_ms);
}

/* Envoy itself answers 503 and 504 when it reaches nobody. */
static void judge(struct grid_module *module, struct grid_target *target, const struct grid_header *headers, size_t n,
                  const struct grid_str *body, size_t n_body)
{
    int status = grid_bridge_status(find_header(headers, n, GRID_TEXT(":status")));
    if (status >= 301 && status <= 308 && !target->redirected) {
        struct grid_str path = same_host_path(target, find_header(headers, n, GRID_TEXT("location")));
        if (path.len > 0) {
            target->redirected = true;
            start(module, target, path);
            return;
        }
    }
    size_t bytes = 0;
    for (size_t i = 0; i < n_body; i++)
        bytes += body[i].len;
    if (status == 503 || status == 504)
        finish(target, GRID_POLL_UNREACHABLE, status == 503 ? "answered 503" : "answered 504");
    else if (status >= 301 && status <= 308)
        finish(target, GRID_POLL_HTTP_ERROR, "redirected elsewhere, or twice");
    else if (status != 200)
        finish(target, GRID_POLL_HTTP_ERROR, "the status is not 200");
    else if (bytes > MAX_ANSWER_BYTES)
        finish(target, GRID_POLL_TOO_BIG, "the answer is over 1 MiB");
    else
        take_depth(module, target, body, n_body);
}

static struct grid_target *in_flight(uint64_t id)
{
    for (size_t i = 0; i < grid_signals.n_targets; i++) {
        if (grid_signals.targets[i].in_flight && grid_signals.targets[i].callout == id)
            return &grid_signals.targets[i];
    }
    return NULL;
}

void grid_signals_done(struct grid_module *module, uint64_t id, int result, const struct grid_header *headers, size_t n,
                       const struct grid_str *body, size_t n_body)
{
    if (grid_signals.starting) {
        grid_signals.done_inside = true;
        return;
    }
    struct grid_target *target = in_flight(id);
    if (!target)
        return; /* it left the configuration meanwhile */
    target->in_flight = false;
    if (result == ENVOY_CALLOUT_DONE)
        judge(module, target, headers, n, body, n_body);
    else if (result == ENVOY_CALLOUT_TOO_BIG)
        finish(target, GRID_POLL_TOO_BIG, "the answer is over the limit");
    else
        finish(target, GRID_POLL_UNREACHABLE, "no answer in time, or the connection broke");
    uint64_t now_ms = grid_module_now_ms();
    check_ready(module, now_ms);
    set_timer(module, now_ms);
}

/* ---- start and end ------------------------------------------------------------------------------------------- */

void grid_signals_set(struct grid_module *module, const struct grid_serving *serving)
{
    uint64_t now_ms = grid_module_now_ms();
    grid_targets_set(serving);
    if (!grid_signals.timer) {
        grid_signals.timer = ENVOY(bootstrap_extension_timer_new)(module->envoy);
        grid_signals.ready_limit_ms = now_ms + READY_LIMIT_MS;
    }
    check_ready(module, now_ms);
    set_timer(module, now_ms);
}

void grid_signals_stop(void)
{
    if (grid_signals.timer)
        ENVOY(bootstrap_extension_timer_delete)(grid_signals.timer);
    grid_signals.timer = NULL;
    grid_targets_free();
}
