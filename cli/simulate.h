/*
 * simulate.h - a simulated grid: arrivals, gateway replicas, sites, one clock
 *
 * Story     grid_simulate_run drives one policy through one trace: a discrete-event simulation in microseconds. A site
 *           is an engine: requests wait in one line until one of its slots, room in its KV cache and the prefill are
 *           free; the prefill takes what the cache lacks; then the answer is decoded at a steady speed. Depths are
 *           polled every so often by each replica and arrive late.
 * Promise   The same options and seed give the same result, to the last bit. No rule of routing is here.
 * Not here  What a router does (policies/), options and printing (simulate.c), KV caches (simulate_cache.h).
 */
#ifndef GRID_SIMULATE_H
#define GRID_SIMULATE_H

#include "cli/policies/policy.h"
#include "cli/trace.h"

#include <stdio.h>

#define GRID_SIMULATE_MAX_SITES 64
#define GRID_SIMULATE_MAX_REPLICAS 64
#define GRID_SIMULATE_MAX_POLICIES 64

struct grid_simulate_site {
    double prefill_tokens_per_second, decode_tokens_per_second, delay_ms; /* delay: one way */
    double slots, kv_blocks;                                              /* of 16 tokens */
    double max_waiting;                                                   /* more waiting than this: 429; 0: no bound */
};

struct grid_simulate_options {
    struct grid_simulate_site sites[GRID_SIMULATE_MAX_SITES];
    size_t n_sites, replicas;
    bool front_hash;    /* the load balancer in front hashes the head to a replica; else any replica */
    bool slots_only;    /* a request whose turn at the prefill has not come counts as running, not as waiting */
    bool early_headers; /* the answer's head comes when the site takes the request, not with the first token */
    size_t head_blocks; /* what a hash of the conversation's head sees */
    double poll_ms, signal_delay_ms;
    double speed; /* arrivals come so many times faster than the trace says */
    uint64_t seed;
};

/* One sample of all sites, a second apart. */
struct grid_simulate_sample {
    float most_waiting, least_waiting, mean_waiting;
};

struct grid_simulate_result {
    char spec[GRID_POLICY_SPEC_BYTES];
    uint64_t seed;
    double load;
    size_t n, answered, refused;
    uint64_t input_tokens, hit_tokens; /* of answered requests */
    float *ttft_s, *e2e_s;             /* [answered], sorted */
    double ttft_mean_s, e2e_mean_s;
    double spread_mean, spread_p99; /* waiting at the site with the most, less that at the site with the least */
    double imbalance;               /* requests under way at the busiest site over the mean, on average over time */
    double share_most;              /* prefill time of the busiest site over the mean */
    uint64_t site_requests[GRID_SIMULATE_MAX_SITES];
    uint64_t outcomes[GRID_N_OUTCOMES];
    struct grid_simulate_sample *samples;
    size_t n_samples;
    double seconds; /* of simulated time */
};

/* Runs one policy. The caller frees the result with grid_simulate_result_done, also after a failure. */
bool grid_simulate_run(const struct grid_trace *trace, const struct grid_simulate_options *options, const char *spec,
                       struct grid_simulate_result *out, char *error, size_t error_size) GRID_MUST_USE;
void grid_simulate_result_done(struct grid_simulate_result *result);

/* A quantile of sorted values; NAN of none. */
double grid_simulate_quantile(const float *sorted, size_t n, double quantile);

/* The share of the sites' time that the trace takes as it stands: prefill or slots, whichever is the scarcer. `reused`:
 * tokens that need no prefill. */
double grid_simulate_natural_load(const struct grid_simulate_options *options, const struct grid_trace_sums *sums,
                                  uint64_t reused);

/* Options that `simulate` and `tune` share (simulate_options.c). */
#define GRID_SIMULATE_SITE_FIELDS 6
struct grid_simulate_command {
    struct grid_simulate_options grid;
    double values[GRID_SIMULATE_SITE_FIELDS][GRID_SIMULATE_MAX_SITES]; /* of sites, as given: one, or one a site */
    size_t n_values[GRID_SIMULATE_SITE_FIELDS];
    const char *trace_path, *make;
    size_t requests; /* of a generator, or the most of a file; 0: the default */
    double per_second, jitter_ms, loads[16];
    size_t n_loads, repeat;
    bool load_of_ideal;
    const char *policies[GRID_SIMULATE_MAX_POLICIES];
    size_t n_policies;
};
extern const char grid_simulate_options_help[];
enum grid_simulate_option { GRID_SIMULATE_OPTION_TAKEN, GRID_SIMULATE_OPTION_OTHER, GRID_SIMULATE_OPTION_BAD };
void grid_simulate_defaults(struct grid_simulate_command *command);
/* One long option, "--NAME VALUE". BAD: a sentence is in `error`. */
enum grid_simulate_option grid_simulate_option(struct grid_simulate_command *command, const char *name,
                                               const char *value, char *error, size_t error_size);
/* After the last option: sites as they will be. False with a sentence in `error`. */
bool grid_simulate_finish(struct grid_simulate_command *command, char *error, size_t error_size) GRID_MUST_USE;
bool grid_simulate_trace(const struct grid_simulate_command *command, struct grid_trace *out,
                         struct grid_trace_sums *out_sums, char *error, size_t error_size) GRID_MUST_USE;
/* The speed that makes a trace this load. load 0: 1, as the trace says. */
double grid_simulate_speed(const struct grid_simulate_command *command, const struct grid_trace_sums *sums,
                           double load);

/* What came out (simulate_print.c, simulate_plot.c). Results lie policy by policy within load by load. */
struct grid_simulate_report {
    const struct grid_simulate_command *command;
    const struct grid_trace *trace;
    const struct grid_trace_sums *sums;
    const struct grid_simulate_result *results; /* [n_loads][n_policies][repeat] */
    double natural_load;
};
void grid_simulate_print_table(const struct grid_simulate_report *report, FILE *to);
bool grid_simulate_print_json(const struct grid_simulate_report *report, const char *path, char *error,
                              size_t error_size) GRID_MUST_USE;
/* hit-rate.svg (with two loads or more), ttft.svg and depth.svg (of the last load) in a folder. */
bool grid_simulate_plot(const struct grid_simulate_report *report, const char *dir, char *error,
                        size_t error_size) GRID_MUST_USE;

/* Mean, least and most of one figure over the seeds of a policy. */
struct grid_simulate_figure {
    double mean, least, most;
};
struct grid_simulate_figure grid_simulate_figure(const struct grid_simulate_result *results, size_t n,
                                                 double (*of)(const struct grid_simulate_result *));
double grid_simulate_hit_rate(const struct grid_simulate_result *result);
double grid_simulate_ttft_p50(const struct grid_simulate_result *result);
double grid_simulate_ttft_p90(const struct grid_simulate_result *result);
double grid_simulate_ttft_p99(const struct grid_simulate_result *result);
double grid_simulate_ttft_mean(const struct grid_simulate_result *result);

#endif
