/*
 * move.c - failover: the ticket goes on to another site
 *
 * Story     The host could not hand the request over to the site that was chosen. What the index believed of that site
 *           is dropped, the choice is made anew among the sites not tried yet, and the keys are marked there; from
 *           then on the ticket names the site that answers.
 * Promise   Never for a pinned request, and only to a cluster that calls the model the same: the request was changed
 *           for the first one, and there is no other copy of it. The outcome stays what the decision said and is
 *           counted once; what is counted here is the failover and where it went. A ticket may move as often as there
 *           are sites.
 * Source    behaviour.md D.2, O (43).
 * Not here  Whether the site may have seen the request (envoy/pick.c), the choice itself (select.c).
 */
#include "router.h"

static struct grid_select question_of(struct grid_ticket *t)
{
    const struct grid_settings *settings = &t->sites->config->settings;
    return (struct grid_select){.candidates = t->candidates,
                                .n = t->n_candidates,
                                .blocks = t->decision.blocks,
                                .enabled = settings->enabled,
                                .spread_ties = settings->spread_ties,
                                .threshold = settings->threshold,
                                .prefill_tokens_per_second = settings->prefill_tokens_per_second,
                                .queued_request_seconds = settings->queued_request_seconds};
}

static bool may_move(const struct grid_ticket *t)
{
    return t->state == GRID_TICKET_ROUTED && t->decision.action == GRID_FORWARD && !t->decision.pinned;
}

/* What was sent to the present site is what the i-th candidate would be sent. */
static bool takes_the_same(const struct grid_ticket *t, size_t i)
{
    const struct grid_serving_alias *alias = grid_edits_alias(t, t->sites->sites[t->first_site + i].candidate);
    return grid_str_eq(alias ? alias->name : (struct grid_str){NULL, 0}, t->decision.alias);
}

/* Healthy ones only: a site without a healthy host would not take the request either. */
static size_t count_left(const struct grid_ticket *t)
{
    size_t left = 0;
    for (size_t i = 0; i < t->n_candidates; i++)
        left += t->candidates[i].admitted && t->candidates[i].health == GRID_HEALTHY && takes_the_same(t, i) &&
                !grid_str_eq(t->candidates[i].cluster, t->decision.cluster);
    return left;
}

size_t grid_ticket_movable(const struct grid_ticket *t)
{
    return may_move(t) ? count_left(t) : 0;
}

/* Leaves the site: no candidate that names its cluster is asked again by this ticket, nor one that could not take it.
 */
static void leave(struct grid_ticket *t)
{
    for (size_t i = 0; i < t->n_candidates; i++) {
        bool here = grid_str_eq(t->candidates[i].cluster, t->decision.cluster);
        if (here || !takes_the_same(t, i))
            t->candidates[i].health = GRID_UNKNOWN;
        if (!here)
            continue;
        if (grid_str_eq(t->candidates[i].site, t->decision.site))
            grid_stats_add(&t->sites->sites[t->first_site + i].candidate->pair->failovers);
    }
    if (t->pended)
        (void)grid_index_drop(t->pended, t->keys, t->decision.blocks);
    t->pended = NULL;
}

static void go_on(struct grid_ticket *t, const struct grid_site *site, uint64_t now_ms)
{
    t->decision.site = site->candidate->site;
    t->decision.cluster = site->candidate->cluster;
    grid_stats_sub(&t->pair->open);
    t->pair = site->candidate->pair;
    grid_stats_add(&t->pair->open);
    grid_stats_add(&t->pair->decisions[GRID_VERDICT_FAILOVER]);
    if (t->decision.blocks == 0)
        return;
    grid_index_pend(site->table, t->keys, t->decision.blocks, now_ms);
    t->pended = site->table;
}

bool grid_ticket_move(struct grid_ticket *t, uint64_t now_ms)
{
    if (!grid_ticket_movable(t))
        return false;
    leave(t);
    struct grid_select question = question_of(t);
    struct grid_choice choice;
    if (!grid_select_by_load(&question, &choice)) {
        for (size_t i = 0; i < t->n_candidates; i++)
            if (grid_select_usable(&question, &t->candidates[i]))
                t->candidates[i].run =
                    grid_index_match(t->sites->sites[t->first_site + i].table, t->keys, t->decision.blocks, now_ms);
        grid_select_by_match(&question, &choice);
    }
    go_on(t, &t->sites->sites[t->first_site + (size_t)(choice.taken - t->candidates)], now_ms);
    return true;
}
