/*
 * pin.c - where a request goes that names stored state, or starts a conversation
 *
 * Marks differ between clusters, so all candidates that a tag leads to are of one cluster and any that admits will do.
 */
#include "pin.h"

/* The candidates that may be chosen among: those of the model, or all when none is known. */
static size_t stretch(const struct grid_sites *sites, struct grid_str model, const struct grid_site **out_first)
{
    *out_first = sites->sites;
    if (!model.ptr)
        return sites->n_sites;
    const struct grid_model *of = grid_sites_model(sites, model);
    if (!of)
        return 0;
    *out_first = &sites->sites[of->first];
    return of->n;
}

static bool good(const struct grid_sites *sites, const struct grid_id *id)
{
    return id->shaped && id->rest && grid_tag_genuine(sites->config->ring, &id->tag);
}

static bool leads_to(const struct grid_tag_scan *tag, const struct grid_site *site)
{
    const struct grid_config_candidate *candidate = site->candidate;
    return grid_str_eq(candidate->site, (struct grid_str){tag->site, tag->site_len}) &&
           memcmp(candidate->mark, tag->mark, sizeof candidate->mark) == 0;
}

static void refuse(struct grid_pin *pin, enum grid_reply_kind kind)
{
    *pin = (struct grid_pin){.refusal = kind};
}

/* Where a genuine tag leads; `missing` is how its absence is told. */
static void follow(const struct grid_sites *sites, const struct grid_tag_scan *tag, struct grid_str model,
                   enum grid_reply_kind missing, struct grid_pin *out_pin)
{
    const struct grid_site *first;
    size_t n = stretch(sites, model, &first);
    refuse(out_pin, missing);
    for (size_t i = 0; i < n; i++) {
        if (!leads_to(tag, &first[i]))
            continue;
        if (first[i].candidate->admitted) {
            *out_pin = (struct grid_pin){.site = &first[i]};
            return;
        }
        refuse(out_pin, GRID_REPLY_SITE_UNAVAILABLE);
    }
}

void grid_pin_path(const struct grid_sites *sites, const struct grid_id *id, struct grid_str model,
                   struct grid_pin *out_pin)
{
    if (good(sites, id))
        follow(sites, &id->tag, model, GRID_REPLY_STORED_NOT_FOUND, out_pin);
    else
        refuse(out_pin, GRID_REPLY_STORED_NOT_FOUND);
}

static bool same_cluster(const struct grid_tag_scan *a, const struct grid_tag_scan *b)
{
    return grid_str_eq((struct grid_str){a->site, a->site_len}, (struct grid_str){b->site, b->site_len}) &&
           memcmp(a->mark, b->mark, sizeof a->mark) == 0;
}

void grid_pin_body(const struct grid_sites *sites, const struct grid_ids *ids, struct grid_str model,
                   struct grid_pin *out_pin)
{
    const struct grid_id *previous = &ids->previous, *conversation = &ids->conversation;
    if (previous->shaped && !good(sites, previous))
        refuse(out_pin, GRID_REPLY_PREVIOUS_NOT_FOUND);
    else if (conversation->shaped && !good(sites, conversation))
        refuse(out_pin, GRID_REPLY_STORED_NOT_FOUND);
    else if (!previous->shaped)
        follow(sites, &conversation->tag, model, GRID_REPLY_STORED_NOT_FOUND, out_pin);
    else if (conversation->shaped && !same_cluster(&previous->tag, &conversation->tag))
        refuse(out_pin, GRID_REPLY_PREVIOUS_NOT_FOUND); /* no cluster holds both */
    else
        follow(sites, &previous->tag, model, GRID_REPLY_PREVIOUS_NOT_FOUND, out_pin);
}

/* Is `a` ahead of `b` in the order of queues, then of the configuration? Models do not count. */
static bool ahead(const struct grid_site *a, const struct grid_site *b)
{
    return a->depth != b->depth ? a->depth < b->depth : a->candidate < b->candidate;
}

void grid_pin_conversation(const struct grid_sites *sites, struct grid_str model, struct grid_pin *out_pin)
{
    const struct grid_site *first, *best = NULL;
    size_t n = stretch(sites, model, &first);
    bool best_local = false;
    for (size_t i = 0; i < n; i++) {
        const struct grid_site *site = &first[i];
        if (!site->candidate->admitted || !grid_sites_serves(site->candidate->place, GRID_LIT("/v1/conversations")))
            continue;
        bool local = grid_str_eq(site->candidate->site, sites->config->serving->serving->local_site);
        if (best && (local != best_local ? best_local : !ahead(site, best)))
            continue;
        best = site;
        best_local = local;
    }
    if (best)
        *out_pin = (struct grid_pin){.site = best};
    else if (n > 0)
        refuse(out_pin, GRID_REPLY_NO_HEALTHY_SITE);
    else
        refuse(out_pin, sites->n_sites ? GRID_REPLY_MODEL_NOT_FOUND : GRID_REPLY_NO_ROUTE);
}
