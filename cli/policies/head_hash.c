/*
 * head_hash.c - the conversation's head, hashed to a site
 *
 * Rule      Rendezvous hashing: of all sites the one whose number mixed with the head's hash is the greatest, so a site
 *           that comes or goes moves only its own share. The head is what the simulation says (--head-blocks): the
 *           blocks that a router in front, which has no session id, would hash.
 */
#include "policy.h"

static bool head_hash_open(struct grid_policy *policy, char *error, size_t error_size)
{
    return grid_policy_numbers(policy, NULL, 0, error, error_size);
}

static void head_hash_close(struct grid_policy *policy)
{
    (void)policy;
}

static size_t head_hash_choose(struct grid_policy *policy, const struct grid_policy_request *request,
                               struct grid_policy_note *note)
{
    size_t best = 0;
    double most = -1;
    (void)note;
    for (size_t i = 0; i < policy->setup.n_sites; i++) {
        uint64_t mixed = request->head ^ (i + 1) * 0xd1342543de82ef95ull;
        double weight = grid_policy_draw(&mixed);
        if (weight > most) {
            most = weight;
            best = i;
        }
    }
    return best;
}

const struct grid_policy_ops grid_policy_head_hash = {
    .name = "head-hash",
    .line = "consistent hash on the head of the conversation (--head-blocks)",
    .settings = "none",
    .open = head_hash_open,
    .close = head_hash_close,
    .choose = head_hash_choose,
};
