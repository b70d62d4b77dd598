/*
 * oracle.c - a router that sees each site's cache and queue as they are
 *
 * Rule      The site that would have the first token out soonest, were the request sent there now: what it still has to
 *           prefill ahead of it, and what of this prompt its cache lacks at this moment. Greedy: it does not see what
 *           comes later, so it is no upper bound by proof; a router that learns from answers has less to go by.
 */
#include "policy.h"

#include <math.h>

static bool oracle_open(struct grid_policy *policy, char *error, size_t error_size)
{
    return grid_policy_numbers(policy, NULL, 0, error, error_size);
}

static void oracle_close(struct grid_policy *policy)
{
    (void)policy;
}

static size_t oracle_choose(struct grid_policy *policy, const struct grid_policy_request *request,
                            struct grid_policy_note *note)
{
    const struct grid_policy_world *world = &policy->setup.world;
    size_t best = 0;
    double soonest = INFINITY;
    (void)request;
    (void)note;
    for (size_t i = 0; i < policy->setup.n_sites; i++) {
        double ttft_us = world->ttft_us(world->ctx, i);
        if (ttft_us < soonest) {
            soonest = ttft_us;
            best = i;
        }
    }
    return best;
}

const struct grid_policy_ops grid_policy_oracle = {
    .name = "oracle",
    .line = "sees every cache and queue as it is, takes the soonest first token",
    .settings = "none",
    .open = oracle_open,
    .close = oracle_close,
    .choose = oracle_choose,
};
