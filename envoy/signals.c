/*
 * signals.c - queue depths, asked of each cluster's own metrics
 *
 * Story     For each cluster of the serving config whose signals are on: a GET over Envoy's own cluster every
 *           interval_ms, the answer read by the core, the depth given to the router. One timer serves all; it is set
 *           to the next poll that is due. When every cluster was asked once, or took too long, the gateway is ready.
 * Promise   One poll of a cluster at a time. A cluster that gives no depth is unmeasured, never guessed.
 *           Counts outlive a cluster, so that one that returns counts on.
 * Threads   Main thread. What pages show of it (struct shown) is written and read under the table's mutex.
 * Not here  Reading an exposition and judging ages (core).
 * Limits    A cluster of several endpoints is sampled by its load balancing, one endpoint a poll.
 */
#include "module.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    MAX_ANSWER_BYTES = 1 << 20,
    RETRY_MS = 100,        /* while Envoy does not know a cluster yet, at the start */
    READY_LIMIT_MS = 5000, /* the longest that a silent cluster holds the start back */
    MAX_PATH_BYTES = 1024, /* of a redirect */
    MAX_LEFT = 1024,       /* clusters that left, whose counts are kept */
    RESTART_SLACK_S = 1,   /* a start time this much later is another process */
};

#define RESULTS(X)                                                                                                     \
    X(OK, "ok")                                                                                                        \
    X(HTTP_ERROR, "http_error") X(NO_METRIC, "no_metric") X(TOO_BIG, "too_big") X(UNREACHABLE, "unreachable")
enum result {
#define RESULT_ENUM(id, name) RESULT_##id,
    RESULTS(RESULT_ENUM)
#undef RESULT_ENUM
        N_RESULTS
};
static const char *const result_names[] = {
#define RESULT_NAME(id, name) name,
    RESULTS(RESULT_NAME)
#undef RESULT_NAME
};

/* What pages show of one cluster. */
struct shown {
    char cluster[GRID_MAX_NAME_BYTES + 1];
    uint64_t counts[N_RESULTS];
    bool has_sample;
    uint64_t sample_ms;
    double depth;
    const char *why; /* of the last poll that gave no depth, else NULL */
};

struct poll {
    struct shown shown;
    struct grid_str name, host;             /* views into the serving config */
    const struct grid_serving_signals *how; /* the same */
    uint64_t next_ms, callout;
    bool in_flight, redirected, answered;
    double start_time; /* newest that the engine told; 0: none yet */
};

static struct {
    pthread_mutex_t mutex;
    struct poll *polls;
    size_t n;
    struct shown *left; /* of clusters that left, the oldest first; their counts only */
    size_t n_left;
    void *timer;
    uint64_t ready_limit_ms;
    bool starting, done_inside; /* a callout may be done before the call that starts it returns */
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- readiness and time --------------------------------------------------------------------------------------- */

static void check_ready(struct grid_module *module, uint64_t now_ms)
{
    if (atomic_load(&module->ready))
        return;
    for (size_t i = 0; i < table.n && now_ms < table.ready_limit_ms; i++) {
        if (!table.polls[i].answered)
            return;
    }
    atomic_store(&module->ready, true);
    ENVOY(bootstrap_extension_config_signal_init_complete)(module->envoy);
}

static void set_timer(const struct grid_module *module, uint64_t now_ms)
{
    uint64_t next_ms = atomic_load(&module->ready) ? UINT64_MAX : table.ready_limit_ms;
    for (size_t i = 0; i < table.n; i++) {
        if (!table.polls[i].in_flight && table.polls[i].next_ms < next_ms)
            next_ms = table.polls[i].next_ms;
    }
    if (table.timer && next_ms != UINT64_MAX)
        ENVOY(bootstrap_extension_timer_enable)(table.timer, next_ms > now_ms ? next_ms - now_ms : 1);
}

static void finish(struct poll *poll, enum result result, const char *why)
{
    pthread_mutex_lock(&table.mutex);
    poll->shown.counts[result]++;
    poll->shown.why = why;
    pthread_mutex_unlock(&table.mutex);
    poll->in_flight = false;
    poll->answered = true;
    poll->next_ms = grid_module_now_ms() + poll->how->interval_ms;
}

/* ---- asking -------------------------------------------------------------------------------------------------- */

static void start(struct grid_module *module, struct poll *poll, struct grid_str path)
{
    struct grid_header headers[] = {{GRID_TEXT(":method"), GRID_TEXT("GET")},
                                    {GRID_TEXT(":path"), path},
                                    {GRID_TEXT("host"), poll->host},
                                    {GRID_TEXT("accept"), GRID_TEXT("text/plain")},
                                    {GRID_TEXT("user-agent"), GRID_TEXT("grid-gateway")}};
    table.starting = true;
    table.done_inside = false;
    int started = ENVOY(bootstrap_extension_http_callout)(module->envoy, &poll->callout, poll->name, headers,
                                                          sizeof(headers) / sizeof(headers[0]),
                                                          (struct grid_str){NULL, 0}, poll->how->timeout_ms);
    table.starting = false;
    if (started == ENVOY_CALLOUT_STARTED && !table.done_inside) {
        poll->in_flight = true;
        return;
    }
    bool unknown = started == ENVOY_CALLOUT_NO_CLUSTER;
    if (unknown && !atomic_load(&module->ready)) {
        poll->next_ms = grid_module_now_ms() + RETRY_MS;
        return;
    }
    finish(poll, RESULT_UNREACHABLE, unknown ? "Envoy does not know the cluster" : "no endpoint is reachable");
}

bool grid_signals_fired(struct grid_module *module, void *timer)
{
    if (!table.timer || timer != table.timer)
        return false;
    uint64_t now_ms = grid_module_now_ms();
    for (size_t i = 0; i < table.n; i++) {
        struct poll *poll = &table.polls[i];
        if (!poll->in_flight && poll->next_ms <= now_ms) {
            poll->redirected = false;
            start(module, poll, poll->how->path);
        }
    }
    check_ready(module, now_ms);
    set_timer(module, grid_module_now_ms());
    return true;
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
static struct grid_str same_host_path(const struct poll *poll, struct grid_str location)
{
    static const struct grid_str schemes[] = {{"http://", 7}, {"https://", 8}};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        if (!grid_bridge_starts(location, schemes[i]))
            continue;
        struct grid_str rest = {location.ptr + schemes[i].len, location.len - schemes[i].len};
        if (!grid_bridge_starts(rest, poll->host))
            return (struct grid_str){NULL, 0};
        location = (struct grid_str){rest.ptr + poll->host.len, rest.len - poll->host.len};
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

static void notice_restart(struct grid_module *module, struct poll *poll, const struct grid_scrape *scrape)
{
    if (!scrape->has_start_time || !(scrape->start_time_seconds > poll->start_time))
        return;
    if (poll->start_time > 0 && scrape->start_time_seconds > poll->start_time + RESTART_SLACK_S)
        grid_router_forget_cluster(module->router, poll->name);
    poll->start_time = scrape->start_time_seconds;
}

static void take_depth(struct grid_module *module, struct poll *poll, const struct grid_str *body, size_t n)
{
    struct grid_scrape scrape = {0};
    bool good = grid_scrape_depth(body, n, poll->how, &scrape);
    uint64_t now_ms = grid_module_now_ms();
    notice_restart(module, poll, &scrape);
    if (!good) {
        finish(poll, RESULT_NO_METRIC, scrape.why);
        return;
    }
    uint64_t stamp_ms = stamp_of(&scrape, now_ms);
    if (grid_signal(module->router, poll->name, scrape.depth, stamp_ms, now_ms)) {
        pthread_mutex_lock(&table.mutex);
        poll->shown.has_sample = true;
        poll->shown.sample_ms = stamp_ms;
        poll->shown.depth = scrape.depth;
        pthread_mutex_unlock(&table.mutex);
        if (grid_router_refresh(module->router, now_ms) != GRID_OK)
            grid_module_log(ENVOY_LOG_WARN, "no memory for a new order of the sites; the old one stays");
    }
    finish(poll, RESULT_OK, NULL);
}

/* Envoy itself answers 503 and 504 when it reaches nobody. */
static void judge(struct grid_module *module, struct poll *poll, const struct grid_header *headers, size_t n,
                  const struct grid_str *body, size_t n_body)
{
    int status = grid_bridge_status(find_header(headers, n, GRID_TEXT(":status")));
    if (status >= 301 && status <= 308 && !poll->redirected) {
        struct grid_str path = same_host_path(poll, find_header(headers, n, GRID_TEXT("location")));
        if (path.len > 0) {
            poll->redirected = true;
            start(module, poll, path);
            return;
        }
    }
    size_t bytes = 0;
    for (size_t i = 0; i < n_body; i++)
        bytes += body[i].len;
    if (status == 503 || status == 504)
        finish(poll, RESULT_UNREACHABLE, status == 503 ? "answered 503" : "answered 504");
    else if (status >= 301 && status <= 308)
        finish(poll, RESULT_HTTP_ERROR, "redirected elsewhere, or twice");
    else if (status != 200)
        finish(poll, RESULT_HTTP_ERROR, "the status is not 200");
    else if (bytes > MAX_ANSWER_BYTES)
        finish(poll, RESULT_TOO_BIG, "the answer is over 1 MiB");
    else
        take_depth(module, poll, body, n_body);
}

static struct poll *in_flight(uint64_t id)
{
    for (size_t i = 0; i < table.n; i++) {
        if (table.polls[i].in_flight && table.polls[i].callout == id)
            return &table.polls[i];
    }
    return NULL;
}

void grid_signals_done(struct grid_module *module, uint64_t id, int result, const struct grid_header *headers, size_t n,
                       const struct grid_str *body, size_t n_body)
{
    if (table.starting) {
        table.done_inside = true;
        return;
    }
    struct poll *poll = in_flight(id);
    if (!poll)
        return; /* its cluster left the configuration meanwhile */
    poll->in_flight = false;
    if (result == ENVOY_CALLOUT_DONE)
        judge(module, poll, headers, n, body, n_body);
    else if (result == ENVOY_CALLOUT_TOO_BIG)
        finish(poll, RESULT_TOO_BIG, "the answer is over the limit");
    else
        finish(poll, RESULT_UNREACHABLE, "no answer in time, or the connection broke");
    uint64_t now_ms = grid_module_now_ms();
    check_ready(module, now_ms);
    set_timer(module, now_ms);
}

/* ---- the list of clusters ------------------------------------------------------------------------------------- */

static struct poll *find(struct grid_str name)
{
    for (size_t i = 0; i < table.n; i++) {
        if (grid_bridge_same(grid_bridge_text(table.polls[i].shown.cluster), name))
            return &table.polls[i];
    }
    return NULL;
}

/* Keeps the counts of a cluster that leaves, in the place of the oldest when there are too many. Under the mutex. */
static void remember(const struct shown *shown)
{
    if (table.n_left == MAX_LEFT) {
        memmove(table.left, table.left + 1, (MAX_LEFT - 1) * sizeof(*table.left));
        table.n_left--;
    }
    struct shown *grown = realloc(table.left, (table.n_left + 1) * sizeof(*grown));
    if (!grown)
        return;
    table.left = grown;
    table.left[table.n_left] = *shown;
    table.left[table.n_left].has_sample = false;
    table.n_left++;
}

/* Gives a cluster that returns its counts back. Under the mutex. */
static void recall(struct shown *shown)
{
    for (size_t i = 0; i < table.n_left; i++) {
        if (strcmp(table.left[i].cluster, shown->cluster) != 0)
            continue;
        memcpy(shown->counts, table.left[i].counts, sizeof(shown->counts));
        memmove(&table.left[i], &table.left[i + 1], (table.n_left - i - 1) * sizeof(*table.left));
        table.n_left--;
        return;
    }
}

static void fill(struct poll *poll, const struct grid_serving_cluster *cluster)
{
    const struct poll *old = find(cluster->name);
    if (old)
        *poll = *old;
    poll->name = cluster->name;
    poll->how = &cluster->signals;
    poll->host = cluster->tls.server_name.len > 0 ? cluster->tls.server_name
                 : cluster->n_endpoints > 0       ? cluster->endpoints[0]
                                                  : cluster->name;
    poll->next_ms = old ? old->next_ms : 0;
    size_t len = cluster->name.len < GRID_MAX_NAME_BYTES ? cluster->name.len : GRID_MAX_NAME_BYTES;
    memcpy(poll->shown.cluster, cluster->name.ptr, len);
    poll->shown.cluster[len] = '\0';
    if (!old)
        recall(&poll->shown);
}

void grid_signals_set(struct grid_module *module, const struct grid_serving *serving)
{
    size_t n = 0;
    uint64_t now_ms = grid_module_now_ms();
    struct poll *polls = calloc(serving->n_clusters + 1, sizeof(*polls));
    if (!polls)
        grid_module_log(ENVOY_LOG_WARN, "no memory to poll the clusters: all are unmeasured now");
    pthread_mutex_lock(&table.mutex);
    for (size_t i = 0; polls && i < serving->n_clusters; i++) {
        if (!serving->clusters[i].signals.off)
            fill(&polls[n++], &serving->clusters[i]);
    }
    struct poll *old = table.polls;
    size_t n_old = table.n;
    table.polls = polls;
    table.n = n;
    for (size_t i = 0; i < n_old; i++) {
        if (!find(grid_bridge_text(old[i].shown.cluster)))
            remember(&old[i].shown);
    }
    pthread_mutex_unlock(&table.mutex);
    free(old);
    if (!table.timer) {
        table.timer = ENVOY(bootstrap_extension_timer_new)(module->envoy);
        table.ready_limit_ms = now_ms + READY_LIMIT_MS;
    }
    check_ready(module, now_ms);
    set_timer(module, now_ms);
}

void grid_signals_stop(void)
{
    if (table.timer)
        ENVOY(bootstrap_extension_timer_delete)(table.timer);
    table.timer = NULL;
    pthread_mutex_lock(&table.mutex);
    struct poll *old = table.polls;
    table.polls = NULL;
    table.n = 0;
    free(table.left);
    table.left = NULL;
    table.n_left = 0;
    pthread_mutex_unlock(&table.mutex);
    free(old);
}

/* ---- showing ------------------------------------------------------------------------------------------------- */

/* A copy of what is shown of every cluster, so that no lock is held while a page is written. The caller frees it.
 * `all`: with the clusters that left. */
static struct shown *copy_shown(bool all, size_t *out_n)
{
    pthread_mutex_lock(&table.mutex);
    size_t n_left = all ? table.n_left : 0;
    struct shown *copy = calloc(table.n + n_left + 1, sizeof(*copy));
    *out_n = copy ? table.n + n_left : 0;
    for (size_t i = 0; copy && i < table.n; i++)
        copy[i] = table.polls[i].shown;
    if (copy && n_left > 0)
        memcpy(copy + table.n, table.left, n_left * sizeof(*copy));
    pthread_mutex_unlock(&table.mutex);
    return copy;
}

/* A label's value: Prometheus escapes backslash, quote and line end. */
static void put_escaped(struct grid_buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n')
            grid_buf_puts(out, "\\n");
        else if (*text == '"' || *text == '\\')
            grid_buf_printf(out, "\\%c", *text);
        else
            grid_buf_put(out, text, 1);
    }
}

static void put_cluster_label(struct grid_buf *out, const char *cluster)
{
    grid_buf_puts(out, "cluster=\"");
    put_escaped(out, cluster);
    grid_buf_puts(out, "\"");
}

void grid_signals_counters(grid_series_fn *fn, void *ctx)
{
    size_t n = 0;
    struct shown *copy = copy_shown(true, &n);
    for (size_t i = 0; i < n * N_RESULTS; i++) {
        const struct shown *shown = &copy[i / N_RESULTS];
        const char *result = result_names[i % N_RESULTS];
        struct grid_buf label = {.limit = 4 * sizeof(shown->cluster)};
        put_cluster_label(&label, shown->cluster);
        grid_buf_printf(&label, ",result=\"%s\"", result);
        grid_buf_put(&label, "", 1);
        struct grid_series series = {.family = "grid_signal_polls_total",
                                     .help = "Polls of a cluster's queue depth.",
                                     .label = label.ptr,
                                     .label_names = {"cluster", "result"},
                                     .label_values = {shown->cluster, result},
                                     .n_labels = 2,
                                     .value = shown->counts[i % N_RESULTS]};
        if (!label.failed)
            fn(&series, ctx);
        grid_buf_done(&label);
    }
    free(copy);
}

void grid_signals_metrics(struct grid_buf *out, uint64_t now_ms)
{
    size_t n = 0;
    struct shown *copy = copy_shown(false, &n);
    grid_buf_puts(out, "# HELP grid_signal_sample_age_seconds Age of the newest queue depth of a cluster.\n"
                       "# TYPE grid_signal_sample_age_seconds gauge\n");
    for (size_t i = 0; i < n; i++) {
        if (!copy[i].has_sample)
            continue;
        double age = now_ms > copy[i].sample_ms ? (double)(now_ms - copy[i].sample_ms) / 1000 : 0;
        grid_buf_puts(out, "grid_signal_sample_age_seconds{");
        put_cluster_label(out, copy[i].cluster);
        grid_buf_printf(out, "} %.3f\n", age);
    }
    free(copy);
}

void grid_signals_json(struct grid_buf *out, uint64_t now_ms)
{
    size_t n = 0;
    struct shown *copy = copy_shown(false, &n);
    grid_buf_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        grid_buf_puts(out, i ? ",{\"cluster\":" : "{\"cluster\":");
        grid_buf_json(out, grid_bridge_text(copy[i].cluster));
        for (size_t k = 0; k < N_RESULTS; k++)
            grid_buf_printf(out, ",\"%s\":%llu", result_names[k], (unsigned long long)copy[i].counts[k]);
        if (copy[i].has_sample)
            grid_buf_printf(out, ",\"depth\":%.10g,\"sample_age_ms\":%llu", copy[i].depth,
                            (unsigned long long)(now_ms > copy[i].sample_ms ? now_ms - copy[i].sample_ms : 0));
        if (copy[i].why) {
            grid_buf_puts(out, ",\"why\":");
            grid_buf_json(out, grid_bridge_text(copy[i].why));
        }
        grid_buf_puts(out, "}");
    }
    grid_buf_puts(out, "]");
    free(copy);
}
