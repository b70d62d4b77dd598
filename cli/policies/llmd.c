/*
 * llmd.c - llm-d-router's optimized baseline: prefix-cache-affinity-filter, token-load-scorer, max-score-picker
 *
 * Rule      The share of the prompt's 64-token blocks that a site is believed to hold is its score; sites with at least
 *           affinityThreshold are sticky. With some sticky and some not, all stay when the best sticky site's
 *           estimated time to first token is over the best other's by more than maxTTFTPenaltyMs; else the sticky
 *           ones stay. Of those that stay, the fewest tokens in flight; equal ones by lot. The estimate is tokens in
 *           flight, with this request's own, over peakPrefillThroughput. Blocks are noted when a request is sent,
 *           before any answer, in an LRU of lruCapacityPerServer blocks a site.
 * Source    llm-d/llm-d-router, pkg/epp/framework/plugins/scheduling/filter/prefixcacheaffinity (plugin.go and README,
 *           as of 2026-08), guides/optimized-baseline: affinityThreshold 0.80, maxTTFTPenaltyMs 18000,
 *           explorationProbability 0, 31,250 blocks a server. peakPrefillThroughput is calibrated: the sites' own rate.
 * Differs   Tokens in flight are the ones that the site is believed not to hold, from sending to the end of the answer.
 */
#include "believed.h"
#include "policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct llmd {
    double threshold, exploration, penalty_ms, prefill, capacity;
    uint64_t draws;
    struct grid_believed believed[GRID_MAX_CANDIDATES];
    double tokens[GRID_MAX_CANDIDATES];    /* in flight */
    double projected[GRID_MAX_CANDIDATES]; /* of the request at hand, were it sent there */
    bool sticky[GRID_MAX_CANDIDATES];
};

static bool llmd_open(struct grid_policy *policy, char *error, size_t error_size)
{
    struct llmd *llmd = calloc(1, sizeof *llmd);
    policy->state = llmd;
    if (!llmd) {
        (void)snprintf(error, error_size, "out of memory");
        return false;
    }
    llmd->threshold = 0.8;
    llmd->penalty_ms = 18000;
    llmd->prefill = policy->setup.prefill_tokens_per_second;
    llmd->capacity = 31250;
    llmd->draws = policy->setup.seed;
    const struct grid_policy_number numbers[] = {{"threshold", 0, 1, &llmd->threshold},
                                                 {"exploration", 0, 1, &llmd->exploration},
                                                 {"penalty_ms", 0, 1e9, &llmd->penalty_ms},
                                                 {"prefill", 1, 1e9, &llmd->prefill},
                                                 {"capacity", 1, 1e8, &llmd->capacity}};
    return grid_policy_numbers(policy, numbers, sizeof numbers / sizeof *numbers, error, error_size);
}

static void llmd_close(struct grid_policy *policy)
{
    struct llmd *llmd = policy->state;
    for (size_t i = 0; llmd && i < policy->setup.n_sites; i++)
        grid_believed_done(&llmd->believed[i]);
    free(llmd);
}

/* Which sites the filter keeps: all, or the sticky ones. */
static bool narrows(struct llmd *llmd, size_t n_sites)
{
    double best_sticky = INFINITY, best_other = INFINITY;
    size_t n_sticky = 0;
    if (n_sites <= 1 || llmd->threshold <= 0 || grid_policy_draw(&llmd->draws) < llmd->exploration)
        return false;
    for (size_t i = 0; i < n_sites; i++) {
        double ttft_ms = (llmd->tokens[i] + llmd->projected[i]) / llmd->prefill * 1000;
        n_sticky += llmd->sticky[i];
        if (llmd->sticky[i])
            best_sticky = fmin(best_sticky, ttft_ms);
        else
            best_other = fmin(best_other, ttft_ms);
    }
    if (n_sticky == 0)
        return false;
    return llmd->penalty_ms <= 0 || n_sticky == n_sites || best_sticky - best_other <= llmd->penalty_ms;
}

static size_t llmd_choose(struct grid_policy *policy, const struct grid_policy_request *request,
                          struct grid_policy_note *note)
{
    struct llmd *llmd = policy->state;
    size_t n_sites = policy->setup.n_sites, best = 0, equal = 0;
    for (size_t i = 0; i < n_sites; i++) {
        size_t run = grid_believed_run(&llmd->believed[i], request->keys, request->n_keys);
        llmd->sticky[i] = request->n_keys && (double)run / (double)request->n_keys >= llmd->threshold;
        llmd->projected[i] = fmax(0, (double)request->input_tokens - (double)run * GRID_TOKENS_A_BLOCK);
    }
    bool only_sticky = narrows(llmd, n_sites);
    for (size_t i = 0; i < n_sites; i++) {
        if (only_sticky && !llmd->sticky[i])
            continue;
        if (equal && llmd->tokens[i] > llmd->tokens[best])
            continue;
        equal = equal && llmd->tokens[i] == llmd->tokens[best] ? equal + 1 : 1;
        if (equal == 1 || grid_policy_draw(&llmd->draws) * (double)equal < 1)
            best = i;
    }
    note->number = (uint64_t)llmd->projected[best];
    llmd->tokens[best] += (double)note->number;
    if (!grid_believed_note(&llmd->believed[best], request->keys, request->n_keys, (size_t)llmd->capacity))
        return SIZE_MAX;
    return best;
}

static void llmd_ended(struct grid_policy *policy, struct grid_policy_note *note, size_t site, uint64_t now_us)
{
    struct llmd *llmd = policy->state;
    (void)now_us;
    llmd->tokens[site] -= (double)note->number;
}

const struct grid_policy_ops grid_policy_llmd = {
    .name = "llm-d",
    .line = "llm-d-router's prefix-cache-affinity filter, then the fewest tokens in flight",
    .settings = "threshold (0.8) exploration (0) penalty_ms (18000) prefill (the sites' rate) capacity (31250)",
    .open = llmd_open,
    .close = llmd_close,
    .choose = llmd_choose,
    .ended = llmd_ended,
};
