/*
 * random.c - any site, evenly
 */
#include "policy.h"

#include <stdio.h>
#include <stdlib.h>

static bool random_open(struct grid_policy *policy, char *error, size_t error_size)
{
    policy->state = calloc(1, sizeof policy->setup.seed);
    if (!policy->state) {
        (void)snprintf(error, error_size, "out of memory");
        return false;
    }
    *(uint64_t *)policy->state = policy->setup.seed;
    return grid_policy_numbers(policy, NULL, 0, error, error_size);
}

static void random_close(struct grid_policy *policy)
{
    free(policy->state);
}

static size_t random_choose(struct grid_policy *policy, const struct grid_policy_request *request,
                            struct grid_policy_note *note)
{
    (void)request;
    (void)note;
    return (size_t)(grid_policy_draw(policy->state) * (double)policy->setup.n_sites);
}

const struct grid_policy_ops grid_policy_random = {
    .name = "random",
    .line = "any site, evenly",
    .settings = "none",
    .open = random_open,
    .close = random_close,
    .choose = random_choose,
};
