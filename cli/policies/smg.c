/*
 * smg.c - smg's (and sglang-router's) cache_aware policy
 *
 * Rule      Requests under way are counted for each site. When the most is over the least by more than
 *           balance_abs_threshold and by more than balance_rel_threshold times, the site with the fewest takes the
 *           request. Otherwise the prompt is looked up in a prefix tree of what was sent: a matched share over
 *           cache_threshold goes to the site that holds the deepest match, anything else to the site with the fewest
 *           under way (equal ones by lot). Whatever was chosen is noted in the tree at once. A site's part of the tree
 *           is cut, oldest first, over max_tree_size characters.
 * Source    lightseekorg/smg and sgl-project/sglang (sgl-router/src/policies/cache_aware.rs), defaults of the command:
 *           cache_threshold 0.3, balance_abs_threshold 64, balance_rel_threshold 1.5, max_tree_size 2^26.
 * Differs   The tree branches at 256 characters, not at any.
 */
#include "believed.h"
#include "policy.h"

#include <stdio.h>
#include <stdlib.h>

struct smg {
    double cache_threshold, abs_threshold, rel_threshold, max_tree_size;
    uint64_t draws;
    struct grid_believed believed[GRID_MAX_CANDIDATES];
    size_t load[GRID_MAX_CANDIDATES];
};

static bool smg_open(struct grid_policy *policy, char *error, size_t error_size)
{
    struct smg *smg = calloc(1, sizeof *smg);
    policy->state = smg;
    if (!smg) {
        (void)snprintf(error, error_size, "out of memory");
        return false;
    }
    smg->cache_threshold = 0.3;
    smg->abs_threshold = 64;
    smg->rel_threshold = 1.5;
    smg->max_tree_size = 67108864;
    smg->draws = policy->setup.seed;
    const struct grid_policy_number numbers[] = {{"cache_threshold", 0, 1, &smg->cache_threshold},
                                                 {"balance_abs_threshold", 0, 1e9, &smg->abs_threshold},
                                                 {"balance_rel_threshold", 0, 1e9, &smg->rel_threshold},
                                                 {"max_tree_size", GRID_BLOCK_BYTES, 1e12, &smg->max_tree_size}};
    return grid_policy_numbers(policy, numbers, sizeof numbers / sizeof *numbers, error, error_size);
}

static void smg_close(struct grid_policy *policy)
{
    struct smg *smg = policy->state;
    for (size_t i = 0; smg && i < policy->setup.n_sites; i++)
        grid_believed_done(&smg->believed[i]);
    free(smg);
}

static size_t fewest(struct smg *smg, size_t n_sites)
{
    size_t best = 0, equal = 0;
    for (size_t i = 0; i < n_sites; i++) {
        if (equal && smg->load[i] > smg->load[best])
            continue;
        equal = equal && smg->load[i] == smg->load[best] ? equal + 1 : 1;
        if (equal == 1 || grid_policy_draw(&smg->draws) * (double)equal < 1)
            best = i;
    }
    return best;
}

static bool imbalanced(const struct smg *smg, size_t n_sites)
{
    size_t most = 0, least = SIZE_MAX;
    for (size_t i = 0; i < n_sites; i++) {
        most = smg->load[i] > most ? smg->load[i] : most;
        least = smg->load[i] < least ? smg->load[i] : least;
    }
    return (double)(most - least) > smg->abs_threshold && (double)most > (double)least * smg->rel_threshold;
}

static size_t smg_choose(struct grid_policy *policy, const struct grid_policy_request *request,
                         struct grid_policy_note *note)
{
    struct smg *smg = policy->state;
    size_t n_sites = policy->setup.n_sites, best = 0, longest = 0;
    (void)note;
    for (size_t i = 0; i < n_sites; i++) {
        size_t run = grid_believed_run(&smg->believed[i], request->keys, request->n_keys);
        if (run > longest) {
            longest = run;
            best = i;
        }
    }
    bool matched = request->n_keys && (double)longest / (double)request->n_keys > smg->cache_threshold;
    if (imbalanced(smg, n_sites) || !matched)
        best = fewest(smg, n_sites);
    smg->load[best]++;
    if (!grid_believed_note(&smg->believed[best], request->keys, request->n_keys,
                            (size_t)(smg->max_tree_size / GRID_BLOCK_BYTES)))
        return SIZE_MAX;
    return best;
}

static void smg_ended(struct grid_policy *policy, struct grid_policy_note *note, size_t site, uint64_t now_us)
{
    struct smg *smg = policy->state;
    (void)note;
    (void)now_us;
    smg->load[site]--;
}

const struct grid_policy_ops grid_policy_smg = {
    .name = "smg",
    .line = "smg's cache_aware: a prefix tree, unless requests under way are out of balance",
    .settings = "cache_threshold (0.3) balance_abs_threshold (64) balance_rel_threshold (1.5) max_tree_size (2^26)",
    .open = smg_open,
    .close = smg_close,
    .choose = smg_choose,
    .ended = smg_ended,
};
