/*
 * history.c - the last minutes in a few numbers, for the ops page
 *
 * Story     A tick of the main thread looks at the newest depth of each polled cluster and at the counters. Depths fall
 *           into steps of a sixtieth of the load window, each keeping its deepest; outcomes into steps of five seconds.
 * Promise   Sixty numbers a cluster and sixty rows of outcomes, whatever happens.
 * Threads   tick, free: main thread. json: any, under the mutex.
 */
#include "history.h"

#include "signals.h"

#include <math.h>
#include <stdlib.h>

enum {
    STEPS = 60,
    LEAST_STEP_MS = 250,         /* how often the tick comes */
    OUTCOME_STEP_MS = 5000,      /* of five minutes */
    KINDS = GRID_N_OUTCOMES + 1, /* and one for what counts no outcome */
};

struct track {
    char cluster[GRID_MAX_NAME_BYTES + 1];
    double depths[STEPS]; /* a ring; NAN: unmeasured */
};

/* A ring's present place and when it ends. */
struct pace {
    uint64_t step_ms, ends_ms;
    size_t at;
};

static struct {
    pthread_mutex_t mutex;
    struct track *tracks;
    size_t n;
    uint64_t window_ms;
    struct pace depth_pace, outcome_pace;
    uint64_t counts[STEPS][KINDS]; /* a ring: what came in that step */
    uint64_t before[KINDS];        /* the counters when the present step began */
} past = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- time ------------------------------------------------------------------------------------------------------ */

/* How many steps began since the last call; `pace` stands in the newest then. */
static size_t advance(struct pace *pace, uint64_t now_ms)
{
    size_t begun = 0;
    if (now_ms >= pace->ends_ms) {
        uint64_t late = (now_ms - pace->ends_ms) / pace->step_ms + 1;
        begun = late < STEPS ? (size_t)late : STEPS;
        pace->ends_ms += late * pace->step_ms;
        pace->at = (pace->at + begun) % STEPS;
    }
    return begun;
}

/* The place of the i-th oldest step. */
static size_t place_of(const struct pace *pace, size_t i)
{
    return (pace->at + 1 + i) % STEPS;
}

/* ---- depths ---------------------------------------------------------------------------------------------------- */

static void clear(double *depths)
{
    for (size_t i = 0; i < STEPS; i++)
        depths[i] = NAN;
}

/* One track for each polled cluster, in their order; those that stay keep theirs. */
static void follow_clusters(void)
{
    size_t n = grid_signals.n_clusters, same = 0;
    while (same < n && same < past.n && strcmp(past.tracks[same].cluster, grid_signals.clusters[same].cluster) == 0)
        same++;
    if (same == n && n == past.n)
        return;
    struct track *tracks = calloc(n + 1, sizeof(*tracks));
    for (size_t i = 0; tracks && i < n; i++) {
        memcpy(tracks[i].cluster, grid_signals.clusters[i].cluster, sizeof(tracks[i].cluster));
        clear(tracks[i].depths);
        for (size_t k = 0; k < past.n; k++) {
            if (strcmp(past.tracks[k].cluster, tracks[i].cluster) == 0)
                memcpy(tracks[i].depths, past.tracks[k].depths, sizeof(tracks[i].depths));
        }
    }
    free(past.tracks);
    past.tracks = tracks;
    past.n = tracks ? n : 0;
}

static void set_window(uint64_t window_ms, uint64_t now_ms)
{
    if (past.window_ms == window_ms)
        return;
    uint64_t step_ms = window_ms / STEPS;
    past.window_ms = window_ms;
    past.depth_pace.step_ms = step_ms > LEAST_STEP_MS ? step_ms : LEAST_STEP_MS;
    past.depth_pace.ends_ms = now_ms + past.depth_pace.step_ms;
    for (size_t i = 0; i < past.n; i++)
        clear(past.tracks[i].depths);
}

static void note_depths(uint64_t now_ms)
{
    size_t begun = advance(&past.depth_pace, now_ms), at = past.depth_pace.at;
    for (size_t i = 0; i < past.n; i++) {
        const struct grid_polled *polled = &grid_signals.clusters[i];
        double *depths = past.tracks[i].depths;
        bool young = polled->has_sample && now_ms - polled->sample_ms <= past.window_ms;
        double depth = young ? polled->depth : (double)NAN;
        for (size_t k = 0; k < begun; k++) /* a tick may come late: what is newest stood all the while */
            depths[(at + STEPS - k) % STEPS] = depth;
        if (young && !(depth <= depths[at]))
            depths[at] = depth;
    }
}

/* ---- outcomes -------------------------------------------------------------------------------------------------- */

/* Outcomes by their number; behind them all decisions, of which the outcomes are taken off at the end. */
static void add_series(const struct grid_series *series, void *ctx)
{
    uint64_t *counts = ctx;
    if (strcmp(series->family, "grid_route_prefix_affinity_total") == 0) {
        for (unsigned i = 0; i < GRID_N_OUTCOMES; i++) {
            if (series->only_value && strcmp(series->only_value, grid_outcome_name((enum grid_outcome)i)) == 0)
                counts[i] = series->value;
        }
        return;
    }
    bool decisions = strcmp(series->family, "grid_route_decisions_total") == 0 && series->n_labels > 0;
    if (decisions && strcmp(series->label_values[series->n_labels - 1], "failover") != 0)
        counts[GRID_N_OUTCOMES] += series->value;
}

static void count(const struct grid_module *module, uint64_t counts[KINDS])
{
    memset(counts, 0, KINDS * sizeof(*counts));
    grid_router_counters(module->router, add_series, counts);
    uint64_t outcomes = 0;
    for (size_t i = 0; i < GRID_N_OUTCOMES; i++)
        outcomes += counts[i];
    counts[GRID_N_OUTCOMES] -= counts[GRID_N_OUTCOMES] < outcomes ? counts[GRID_N_OUTCOMES] : outcomes;
}

static uint64_t grown(uint64_t before, uint64_t now)
{
    return now > before ? now - before : 0;
}

static void note_outcomes(const uint64_t counts[KINDS], uint64_t now_ms)
{
    if (past.outcome_pace.step_ms == 0) /* counters begin at 0, and so does `before` */
        past.outcome_pace = (struct pace){OUTCOME_STEP_MS, now_ms + OUTCOME_STEP_MS, 0};
    for (size_t i = 0; i < KINDS; i++)
        past.counts[past.outcome_pace.at][i] = grown(past.before[i], counts[i]);
    size_t begun = advance(&past.outcome_pace, now_ms);
    if (begun == 0)
        return;
    memcpy(past.before, counts, sizeof(past.before));
    for (size_t k = 0; k < begun; k++)
        memset(past.counts[(past.outcome_pace.at + STEPS - k) % STEPS], 0, sizeof(past.counts[0]));
}

/* ---- the host's side ------------------------------------------------------------------------------------------- */

void grid_history_tick(const struct grid_module *module, uint64_t now_ms)
{
    uint64_t counts[KINDS];
    count(module, counts); /* not under the mutex: the core has locks of its own */
    pthread_mutex_lock(&past.mutex);
    follow_clusters();
    if (module->serving)
        set_window(module->serving->load_window_ms, now_ms);
    if (past.depth_pace.step_ms > 0)
        note_depths(now_ms);
    note_outcomes(counts, now_ms);
    pthread_mutex_unlock(&past.mutex);
}

static void put_depths(struct grid_buf *out)
{
    for (size_t i = 0; i < past.n; i++) {
        grid_buf_puts(out, i ? ",{\"cluster\":" : "{\"cluster\":");
        grid_buf_json(out, grid_bridge_text(past.tracks[i].cluster));
        grid_buf_puts(out, ",\"points\":[");
        for (size_t k = 0; k < STEPS; k++) {
            grid_buf_puts(out, k ? "," : "");
            grid_buf_number(out, past.tracks[i].depths[place_of(&past.depth_pace, k)]);
        }
        grid_buf_puts(out, "]}");
    }
}

static void put_outcomes(struct grid_buf *out)
{
    for (unsigned i = 0; i < GRID_N_OUTCOMES; i++)
        grid_buf_printf(out, "\"%s\",", grid_outcome_name((enum grid_outcome)i));
    grid_buf_puts(out, "\"other\"],\"points\":[");
    for (size_t k = 0; k < STEPS; k++) {
        const uint64_t *row = past.counts[place_of(&past.outcome_pace, k)];
        for (size_t i = 0; i < KINDS; i++)
            grid_buf_printf(out, "%s%llu", i ? "," : k ? ",[" : "[", (unsigned long long)row[i]);
        grid_buf_puts(out, "]");
    }
}

void grid_history_json(struct grid_buf *out)
{
    pthread_mutex_lock(&past.mutex);
    grid_buf_printf(out, "{\"window_ms\":%llu,\"step_ms\":%llu,\"depths\":[", (unsigned long long)past.window_ms,
                    (unsigned long long)past.depth_pace.step_ms);
    put_depths(out);
    grid_buf_printf(out, "],\"outcomes\":{\"step_ms\":%d,\"names\":[", OUTCOME_STEP_MS);
    put_outcomes(out);
    grid_buf_puts(out, "]}}");
    pthread_mutex_unlock(&past.mutex);
}

void grid_history_free(void)
{
    pthread_mutex_lock(&past.mutex);
    free(past.tracks);
    past.tracks = NULL;
    past.n = 0;
    past.window_ms = 0;
    past.depth_pace = past.outcome_pace = (struct pace){0, 0, 0};
    memset(past.counts, 0, sizeof(past.counts));
    memset(past.before, 0, sizeof(past.before));
    pthread_mutex_unlock(&past.mutex);
}
