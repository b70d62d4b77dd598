/*
 * simulate_run.c - one policy, one trace, one clock
 *
 * Story     Arrivals come in their order; everything else is an event in a heap: a request reaches its site, its
 *           prefill ends, its answer ends, the answer's head and end reach the gateway, a poll reads a depth, the
 *           depth arrives, a sample of all sites is taken.
 * Promise   A request under way is one flight; its place is used again when it has ended.
 * Not here  What a router does with it (policies/), what a cache holds (simulate_cache.c).
 */
#include "simulate.h"

#include "simulate_cache.h"
#include "simulate_heap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define US 1e6
#define SAMPLE_US 1000000u
#define NOBODY UINT32_MAX

enum what { REACH, PREFILLED, DONE, HEAD, END, POLL, SIGNAL, SAMPLE };

struct flight {
    uint32_t request, site, replica, next; /* next: in the site's line, or in the list of free places */
    uint32_t hit;
    bool refused;
    double estimate_us; /* its prefill, as the oracle saw it when it was sent */
    struct grid_policy_note note;
};

struct site {
    const struct grid_simulate_site *set;
    struct grid_kv kv;
    uint32_t first, last, waiting, running, prefilling; /* prefilling: a flight, or NOBODY */
    uint64_t free_at_us;                                /* when the prefill under way ends */
    double line_us, busy_us,
        decode_us; /* prefills of the line and of what is on its way to it; of all; mean of an answer */
};

struct run {
    const struct grid_trace *trace;
    const struct grid_simulate_options *options;
    struct grid_simulate_result *out;
    struct site sites[GRID_SIMULATE_MAX_SITES];
    struct grid_policy policies[GRID_SIMULATE_MAX_REPLICAS];
    struct grid_heap heap;
    uint64_t now_us, draws;
    struct flight *flights;
    uint32_t n_flights, cap_flights, free_flights, under_way;
    const struct grid_trace_request *arriving;
    uint64_t *arriving_units, *units; /* room for the longest row */
    double spread_sum, imbalance_sum;
    size_t n_imbalance, cap_samples;
    bool failed; /* for want of memory */
};

/* ---- a site ------------------------------------------------------------------------------------------------------ */

static const struct grid_trace_request *request_of(const struct run *run, uint32_t flight)
{
    return &run->trace->requests[run->flights[flight].request];
}

static uint64_t delay_us(const struct site *site)
{
    return (uint64_t)(site->set->delay_ms * 1000);
}

static double prefill_us(const struct site *site, uint32_t tokens)
{
    return (double)tokens / site->set->prefill_tokens_per_second * US;
}

static double depth_of(const struct run *run, const struct site *site)
{
    if (!run->options->slots_only)
        return site->waiting;
    return fmax(0, (double)site->waiting + site->running - site->set->slots);
}

/* Begins the next prefill, if there is one to begin and room for it. */
static void begin_next(struct run *run, uint32_t number)
{
    struct site *site = &run->sites[number];
    if (site->prefilling != NOBODY || !site->waiting || site->running >= site->set->slots)
        return;
    uint32_t flight = site->first;
    const struct grid_trace_request *request = request_of(run, flight);
    grid_trace_units(run->trace, request, run->units);
    uint32_t hit = grid_kv_hit(&site->kv, request, run->units);
    enum grid_kv_taken taken = grid_kv_take(&site->kv, request, run->units);
    run->failed = run->failed || taken == GRID_KV_NO_MEMORY;
    if (taken != GRID_KV_TAKEN)
        return;
    double work_us = prefill_us(site, request->input_tokens - hit);
    site->first = run->flights[flight].next;
    site->waiting--;
    site->running++;
    site->prefilling = flight;
    site->line_us -= run->flights[flight].estimate_us;
    site->busy_us += work_us;
    site->free_at_us = run->now_us + (uint64_t)work_us;
    run->flights[flight].hit = hit;
    grid_heap_push(&run->heap, site->free_at_us, PREFILLED, flight, 0, 0);
}

static void on_reach(struct run *run, uint32_t number)
{
    struct flight *flight = &run->flights[number];
    struct site *site = &run->sites[flight->site];
    const struct grid_trace_request *request = request_of(run, number);
    if (grid_kv_need(request) > site->kv.blocks ||
        (site->set->max_waiting > 0 && site->waiting >= site->set->max_waiting)) {
        flight->refused = true;
        site->line_us -= flight->estimate_us;
        grid_heap_push(&run->heap, run->now_us + delay_us(site), HEAD, number, 0, 0);
        return;
    }
    if (site->waiting++)
        run->flights[site->last].next = number;
    else
        site->first = number;
    site->last = number;
    if (run->options->early_headers)
        grid_heap_push(&run->heap, run->now_us + delay_us(site), HEAD, number, 0, 0);
    begin_next(run, flight->site);
}

static void on_prefilled(struct run *run, uint32_t number)
{
    struct flight *flight = &run->flights[number];
    struct site *site = &run->sites[flight->site];
    struct grid_simulate_result *out = run->out;
    const struct grid_trace_request *request = request_of(run, number);
    double answer_us = request->output_tokens / site->set->decode_tokens_per_second * US;
    uint64_t begun_us = (uint64_t)((double)(request->at_us - run->trace->requests[0].at_us) / run->options->speed);
    double ttft_us = (double)(run->now_us + delay_us(site) - begun_us);
    out->input_tokens += request->input_tokens;
    out->hit_tokens += flight->hit;
    out->ttft_s[out->answered] = (float)(ttft_us / US);
    out->e2e_s[out->answered++] = (float)((ttft_us + answer_us) / US);
    out->site_requests[flight->site]++;
    site->decode_us += (answer_us - site->decode_us) * 0.05;
    site->prefilling = NOBODY;
    if (!run->options->early_headers)
        grid_heap_push(&run->heap, run->now_us + delay_us(site), HEAD, number, 0, 0);
    grid_heap_push(&run->heap, run->now_us + (uint64_t)answer_us, DONE, number, 0, 0);
    begin_next(run, flight->site);
}

static void on_done(struct run *run, uint32_t number)
{
    struct site *site = &run->sites[run->flights[number].site];
    const struct grid_trace_request *request = request_of(run, number);
    grid_trace_units(run->trace, request, run->units);
    grid_kv_give(&site->kv, request, run->units);
    site->running--;
    grid_heap_push(&run->heap, run->now_us + delay_us(site), END, number, 0, 0);
    begin_next(run, run->flights[number].site);
}

/* For the oracle: the first token, were the arriving request sent to the site now. */
static double world_ttft_us(void *ctx, size_t number)
{
    const struct run *run = ctx;
    const struct site *site = &run->sites[number];
    uint32_t hit = grid_kv_hit(&site->kv, run->arriving, run->arriving_units);
    double left_us = site->prefilling != NOBODY ? (double)(site->free_at_us - run->now_us) : 0;
    double over = (double)site->running + site->waiting + 1 - site->set->slots;
    double slot_us = over > 0 ? over * site->decode_us / site->set->slots : 0;
    return fmax(left_us + site->line_us, slot_us) + prefill_us(site, run->arriving->input_tokens - hit) +
           2 * (double)delay_us(site);
}

/* ---- the gateway ------------------------------------------------------------------------------------------------- */

static uint32_t new_flight(struct run *run)
{
    uint32_t number = run->free_flights;
    if (number != NOBODY) {
        run->free_flights = run->flights[number].next;
        return number;
    }
    if (run->n_flights == run->cap_flights) {
        uint32_t more = run->cap_flights ? run->cap_flights * 2 : 1024;
        struct flight *moved = realloc(run->flights, more * sizeof *moved);
        if (!moved) {
            run->failed = true;
            return NOBODY;
        }
        run->flights = moved;
        run->cap_flights = more;
    }
    return run->n_flights++;
}

static void refuse_here(struct run *run, uint32_t number)
{
    struct flight *flight = &run->flights[number];
    struct grid_policy *policy = &run->policies[flight->replica];
    run->out->refused++;
    if (policy->ops->ended)
        policy->ops->ended(policy, &flight->note, 0, run->now_us);
    flight->next = run->free_flights;
    run->free_flights = number;
}

static void on_arrival(struct run *run, uint32_t request)
{
    uint64_t keys[GRID_MAX_KEYS];
    uint32_t number = new_flight(run);
    if (number == NOBODY)
        return;
    run->arriving = &run->trace->requests[request];
    grid_trace_units(run->trace, run->arriving, run->arriving_units);
    size_t n = grid_trace_keys(run->arriving, run->arriving_units, keys);
    size_t head = n < run->options->head_blocks ? n : run->options->head_blocks;
    struct grid_policy_request asked = {.keys = keys,
                                        .n_keys = n,
                                        .input_tokens = run->arriving->input_tokens,
                                        .head = head ? grid_trace_mix(keys[head - 1], 0) : grid_trace_mix(request, 1),
                                        .now_us = run->now_us};
    double share = run->options->front_hash ? (double)(grid_trace_mix(asked.head, 2) >> 11) * 0x1p-53
                                            : grid_policy_draw(&run->draws);
    struct flight *flight = &run->flights[number];
    *flight = (struct flight){.request = request, .replica = (uint32_t)(share * (double)run->options->replicas)};
    struct grid_policy *policy = &run->policies[flight->replica];
    size_t site = policy->ops->choose(policy, &asked, &flight->note);
    if (site >= run->options->n_sites) {
        refuse_here(run, number);
        return;
    }
    struct site *to = &run->sites[site];
    flight->site = (uint32_t)site;
    flight->estimate_us =
        prefill_us(to, run->arriving->input_tokens - grid_kv_hit(&to->kv, run->arriving, run->arriving_units));
    to->line_us += flight->estimate_us;
    run->under_way++;
    grid_heap_push(&run->heap, run->now_us + delay_us(to), REACH, number, 0, 0);
}

static void on_end(struct run *run, uint32_t number)
{
    struct flight *flight = &run->flights[number];
    struct grid_policy *policy = &run->policies[flight->replica];
    if (policy->ops->ended)
        policy->ops->ended(policy, &flight->note, flight->site, run->now_us);
    flight->next = run->free_flights;
    run->free_flights = number;
    run->under_way--;
}

static void on_head(struct run *run, uint32_t number)
{
    struct flight *flight = &run->flights[number];
    struct grid_policy *policy = &run->policies[flight->replica];
    if (policy->ops->answered)
        policy->ops->answered(policy, &flight->note, flight->site, flight->refused ? 429 : 200, run->now_us);
    if (flight->refused) {
        run->out->refused++;
        on_end(run, number);
    }
}

static void on_poll(struct run *run, uint32_t replica, uint32_t site, bool more)
{
    double depth = depth_of(run, &run->sites[site]);
    grid_heap_push(&run->heap, run->now_us + (uint64_t)(run->options->signal_delay_ms * 1000), SIGNAL, replica, site,
                   depth);
    if (more)
        grid_heap_push(&run->heap, run->now_us + (uint64_t)(run->options->poll_ms * 1000), POLL, replica, site, 0);
}

static void on_signal(struct run *run, const struct grid_heap_event *event)
{
    struct grid_policy *policy = &run->policies[event->one];
    if (policy->ops->signal)
        policy->ops->signal(policy, event->other, event->depth, run->now_us, run->now_us);
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

static void on_sample(struct run *run, bool more)
{
    struct grid_simulate_result *out = run->out;
    double most = 0, least = INFINITY, sum = 0, busiest = 0, busy = 0, n = (double)run->options->n_sites;
    for (size_t i = 0; i < run->options->n_sites; i++) {
        double depth = run->sites[i].waiting, under_way = depth + run->sites[i].running;
        most = fmax(most, depth);
        least = fmin(least, depth);
        sum += depth;
        busiest = fmax(busiest, under_way);
        busy += under_way;
    }
    if (out->n_samples == run->cap_samples) {
        size_t cap = run->cap_samples ? run->cap_samples * 2 : 1024;
        struct grid_simulate_sample *moved = realloc(out->samples, cap * sizeof *moved);
        run->failed = run->failed || !moved;
        if (!moved)
            return;
        out->samples = moved;
        run->cap_samples = cap;
    }
    out->samples[out->n_samples++] = (struct grid_simulate_sample){(float)most, (float)least, (float)(sum / n)};
    run->spread_sum += most - least;
    if (busy >= n) {
        run->imbalance_sum += busiest / (busy / n);
        run->n_imbalance++;
    }
    if (more)
        grid_heap_push(&run->heap, run->now_us + SAMPLE_US, SAMPLE, 0, 0, 0);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double sorted_mean(float *values, size_t n)
{
    double sum = 0;
    qsort(values, n, sizeof *values, by_value);
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    return n ? sum / (double)n : NAN;
}

static void sum_up(struct run *run)
{
    struct grid_simulate_result *out = run->out;
    double busiest = 0, busy = 0;
    float *spreads = malloc((out->n_samples + 1) * sizeof *spreads);
    out->ttft_mean_s = sorted_mean(out->ttft_s, out->answered);
    out->e2e_mean_s = sorted_mean(out->e2e_s, out->answered);
    for (size_t i = 0; spreads && i < out->n_samples; i++)
        spreads[i] = out->samples[i].most_waiting - out->samples[i].least_waiting;
    if (spreads) {
        (void)sorted_mean(spreads, out->n_samples);
        out->spread_p99 = grid_simulate_quantile(spreads, out->n_samples, 0.99);
    }
    run->failed = run->failed || !spreads;
    free(spreads);
    out->spread_mean = out->n_samples ? run->spread_sum / (double)out->n_samples : NAN;
    out->imbalance = run->n_imbalance ? run->imbalance_sum / (double)run->n_imbalance : NAN;
    for (size_t i = 0; i < run->options->n_sites; i++) {
        busiest = fmax(busiest, run->sites[i].busy_us);
        busy += run->sites[i].busy_us;
    }
    out->share_most = busy > 0 ? busiest / (busy / (double)run->options->n_sites) : NAN;
    out->seconds = (double)run->now_us / US;
    for (size_t i = 0; i < run->options->replicas; i++)
        if (run->policies[i].ops->outcomes)
            run->policies[i].ops->outcomes(&run->policies[i], out->outcomes);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static bool set_up(struct run *run, const char *spec, char *error, size_t error_size)
{
    const struct grid_simulate_options *options = run->options;
    size_t n = run->trace->n, room = run->trace->most_units + (size_t)1;
    double prefill = 0;
    run->out->ttft_s = malloc((n + 1) * sizeof(float));
    run->out->e2e_s = malloc((n + 1) * sizeof(float));
    run->units = malloc(room * sizeof *run->units);
    run->arriving_units = malloc(room * sizeof *run->arriving_units);
    if (!run->out->ttft_s || !run->out->e2e_s || !run->units || !run->arriving_units) {
        (void)snprintf(error, error_size, "out of memory");
        return false;
    }
    for (size_t i = 0; i < options->n_sites; i++) {
        run->sites[i].set = &options->sites[i];
        run->sites[i].prefilling = NOBODY;
        grid_kv_init(&run->sites[i].kv, (uint64_t)options->sites[i].kv_blocks);
        prefill += options->sites[i].prefill_tokens_per_second;
    }
    for (size_t i = 0; i < options->replicas; i++) {
        struct grid_policy_setup setup = {.n_sites = options->n_sites,
                                          .seed = grid_trace_mix(options->seed, i),
                                          .prefill_tokens_per_second = prefill / (double)options->n_sites,
                                          .world = {run, world_ttft_us}};
        if (!grid_policy_open(&run->policies[i], spec, &setup, error, error_size))
            return false;
    }
    for (uint32_t replica = 0; replica < options->replicas; replica++)
        for (uint32_t site = 0; site < options->n_sites; site++) /* replicas and sites are polled out of step */
            grid_heap_push(&run->heap, (uint64_t)(grid_policy_draw(&run->draws) * options->poll_ms * 1000), POLL,
                           replica, site, 0);
    grid_heap_push(&run->heap, SAMPLE_US, SAMPLE, 0, 0, 0);
    return true;
}

static void handle(struct run *run, const struct grid_heap_event *event, bool more)
{
    switch ((enum what)event->what) {
    case REACH:
        on_reach(run, event->one);
        break;
    case PREFILLED:
        on_prefilled(run, event->one);
        break;
    case DONE:
        on_done(run, event->one);
        break;
    case HEAD:
        on_head(run, event->one);
        break;
    case END:
        on_end(run, event->one);
        break;
    case POLL:
        on_poll(run, event->one, event->other, more);
        break;
    case SIGNAL:
        on_signal(run, event);
        break;
    case SAMPLE:
        on_sample(run, more);
        break;
    }
}

static void go(struct run *run)
{
    const struct grid_trace *trace = run->trace;
    size_t next = 0;
    while (!run->failed && !run->heap.failed && (next < trace->n || run->heap.n)) {
        uint64_t arrives_us = UINT64_MAX;
        if (next < trace->n)
            arrives_us =
                (uint64_t)((double)(trace->requests[next].at_us - trace->requests[0].at_us) / run->options->speed);
        if (run->heap.n == 0 || arrives_us <= run->heap.events[0].at_us) {
            run->now_us = arrives_us;
            on_arrival(run, (uint32_t)next++);
            continue;
        }
        struct grid_heap_event event = grid_heap_pop(&run->heap);
        run->now_us = event.at_us;
        handle(run, &event, next < trace->n || run->under_way);
    }
}

static void tear_down(struct run *run)
{
    for (size_t i = 0; i < run->options->replicas; i++)
        grid_policy_close(&run->policies[i]);
    for (size_t i = 0; i < run->options->n_sites; i++)
        grid_kv_done(&run->sites[i].kv);
    grid_heap_done(&run->heap);
    free(run->flights);
    free(run->units);
    free(run->arriving_units);
}

bool grid_simulate_run(const struct grid_trace *trace, const struct grid_simulate_options *options, const char *spec,
                       struct grid_simulate_result *out, char *error, size_t error_size)
{
    *out = (struct grid_simulate_result){.n = trace->n, .seed = options->seed};
    (void)snprintf(out->spec, sizeof out->spec, "%s", spec);
    struct run *run = calloc(1, sizeof *run);
    if (!run) {
        (void)snprintf(error, error_size, "out of memory");
        return false;
    }
    run->trace = trace;
    run->options = options;
    run->out = out;
    run->draws = grid_trace_mix(options->seed, 0x7265706c69636173);
    run->free_flights = NOBODY;
    bool good = set_up(run, spec, error, error_size);
    if (good) {
        go(run);
        sum_up(run);
        good = !run->failed && !run->heap.failed;
        if (!good)
            (void)snprintf(error, error_size, "out of memory");
    }
    tear_down(run);
    free(run);
    return good;
}
