/*
 * round_robin.c - one site after the other; each replica begins at a site of its own
 */
#include "policy.h"

#include <stdio.h>
#include <stdlib.h>

static bool round_robin_open(struct grid_policy *policy, char *error, size_t error_size)
{
    uint64_t seed = policy->setup.seed;
    size_t *next = calloc(1, sizeof *next);
    policy->state = next;
    if (!next) {
        (void)snprintf(error, error_size, "out of memory");
        return false;
    }
    *next = (size_t)(grid_policy_draw(&seed) * (double)policy->setup.n_sites);
    return grid_policy_numbers(policy, NULL, 0, error, error_size);
}

static void round_robin_close(struct grid_policy *policy)
{
    free(policy->state);
}

static size_t round_robin_choose(struct grid_policy *policy, const struct grid_policy_request *request,
                                 struct grid_policy_note *note)
{
    (void)request;
    (void)note;
    size_t *next = policy->state, site = *next;
    *next = (site + 1) % policy->setup.n_sites;
    return site;
}

const struct grid_policy_ops grid_policy_round_robin = {
    .name = "round-robin",
    .line = "one site after the other",
    .settings = "none",
    .open = round_robin_open,
    .close = round_robin_close,
    .choose = round_robin_choose,
};
