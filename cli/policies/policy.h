/*
 * policy.h - what a router of a simulation is asked and told
 *
 * Story     A simulated gateway replica holds one policy. It is asked where a request goes, told when the answer begins
 *           and when it has ended, and, if it listens, told queue depths as they were polled. Each policy lives in a
 *           file of its own beside the rule that it follows and where that rule is published.
 * Promise   A policy sees what such a router would see and no more; only the oracle looks at the sites themselves.
 * Not here  Time, sites, replicas (simulate_run.c).
 */
#ifndef GRID_POLICY_H
#define GRID_POLICY_H

#include <grid/grid.h>

#define GRID_POLICY_SPEC_BYTES 256

/* What the oracle may look at. */
struct grid_policy_world {
    void *ctx;
    /* when the site would have the first token out, were the request sent there now; in microseconds from now */
    double (*ttft_us)(void *ctx, size_t site);
};

struct grid_policy_setup {
    size_t n_sites;
    uint64_t seed;                    /* of this replica */
    double prefill_tokens_per_second; /* of a site, on average: what an operator would measure and set */
    struct grid_policy_world world;
};

struct grid_policy_request {
    const uint64_t *keys; /* of 64 tokens, whole blocks, at most GRID_MAX_KEYS; valid during choose */
    size_t n_keys;
    uint32_t input_tokens;
    uint64_t head; /* names the conversation's head, as a router that hashes it would see it */
    uint64_t now_us;
};

/* A policy's own note on a request under way. */
struct grid_policy_note {
    void *ptr;
    uint64_t number;
};

struct grid_policy;
struct grid_policy_ops {
    const char *name, *line; /* line: for --help */
    const char *settings;    /* for --help: names and defaults */
    bool (*open)(struct grid_policy *policy, char *error, size_t error_size);
    void (*close)(struct grid_policy *policy);
    size_t (*choose)(struct grid_policy *policy, const struct grid_policy_request *request,
                     struct grid_policy_note *note); /* SIZE_MAX: nowhere */
    /* NULL where a policy does not listen. answered: its head came, status 200 or 429; ended: its last byte came */
    void (*answered)(struct grid_policy *policy, struct grid_policy_note *note, size_t site, int status,
                     uint64_t now_us);
    void (*ended)(struct grid_policy *policy, struct grid_policy_note *note, size_t site, uint64_t now_us);
    void (*signal)(struct grid_policy *policy, size_t site, double depth, uint64_t stamp_us, uint64_t now_us);
    void (*outcomes)(struct grid_policy *policy, uint64_t out[GRID_N_OUTCOMES]); /* adds up */
};

struct grid_policy {
    const struct grid_policy_ops *ops;
    struct grid_policy_setup setup;
    char spec[GRID_POLICY_SPEC_BYTES]; /* as given: "ours:threshold=0.5,exploration=0" */
    void *state;
};

/* The table, ended by NULL. */
extern const struct grid_policy_ops *const grid_policies[];
extern const struct grid_policy_ops grid_policy_ours, grid_policy_least_queue, grid_policy_random,
    grid_policy_round_robin, grid_policy_head_hash, grid_policy_llmd, grid_policy_smg, grid_policy_oracle;

/* Opens the policy of a spec, "NAME" or "NAME:setting=value,…". The caller closes it, also after a failure. */
bool grid_policy_open(struct grid_policy *policy, const char *spec, const struct grid_policy_setup *setup, char *error,
                      size_t error_size) GRID_MUST_USE;
void grid_policy_close(struct grid_policy *policy);

/* One setting of a spec after the other: NULL when there are no more. `at` begins at 0. The value ends at a comma. */
struct grid_policy_setting {
    struct grid_str name, value;
};
bool grid_policy_next(const struct grid_policy *policy, size_t *at, struct grid_policy_setting *out);

/* A number in a table of settings. False, with a reason, for a name that is not there or a value out of range. */
struct grid_policy_number {
    const char *name;
    double least, most, *value;
};
bool grid_policy_numbers(const struct grid_policy *policy, const struct grid_policy_number *numbers, size_t n,
                         char *error, size_t error_size) GRID_MUST_USE;

/* A uniform draw in [0, 1), deterministic by *state. */
double grid_policy_draw(uint64_t *state);

#endif
