/*
 * edits.c - what of a request changes on its way to the cluster that was chosen
 *
 * Story     Ids of stored state lose their tags, in the path and in the body; a model that the cluster has another name
 *           for gets that name, where the body says `model` and in the header that carried it. route.c has it noted with
 *           each decision; the host carries it out.
 * Promise   Nothing else changes. Of the body only the last `model` of its own members, when that is a text; one that
 *           names none gets none. Keys, admission and counters are of the model as it was asked for.
 * Source    behaviour.md H.4, O (19, 24, 34); design.md 7.
 * Not here  Where ids and the model stand (ids.c, prompt.c), buffers (hosts).
 */
#include "router.h"

/* In the order of their places. */
static void add(struct grid_ticket *t, struct grid_edit edit)
{
    size_t at = t->n_edits++;
    for (; at > 0 && t->edits[at - 1].offset > edit.offset; at--)
        t->edits[at] = t->edits[at - 1];
    t->edits[at] = edit;
}

static void strip(struct grid_ticket *t, const struct grid_id *id)
{
    static const struct grid_str response = GRID_LIT("\"resp_"), conversation = GRID_LIT("\"conv_");
    if (id->shaped)
        add(t,
            (struct grid_edit){id->offset, id->bytes, id->tag.prefix[0] == response.ptr[1] ? response : conversation});
}

const struct grid_serving_alias *grid_edits_alias(const struct grid_ticket *t,
                                                  const struct grid_config_candidate *candidate)
{
    return grid_str_eq(candidate->model, t->decision.model) ? candidate->alias : NULL;
}

/* A header can say visible ASCII only (behaviour.md B.4): another name is told by the body alone. */
static bool fits_header(struct grid_str name)
{
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.ptr[i] < 0x20 || (unsigned char)name.ptr[i] >= 0x7f)
            return false;
    return true;
}

static void rename(struct grid_ticket *t, const struct grid_serving_alias *alias)
{
    t->decision.alias = alias->name;
    if (t->keyed.model_bytes > 0)
        add(t, (struct grid_edit){t->keyed.model_offset, t->keyed.model_bytes, alias->json});
    if (!t->head.has_model)
        return;
    t->decision.model_header.name = grid_str_of(t->sites->config->settings.model_header);
    t->decision.model_header.value = fits_header(alias->name) ? alias->name : (struct grid_str){NULL, 0};
}

void grid_edits_make(struct grid_ticket *t, const struct grid_config_candidate *candidate)
{
    const struct grid_serving_alias *alias = grid_edits_alias(t, candidate);
    if (t->decision.pinned) {
        strip(t, &t->ids.previous);
        strip(t, &t->ids.conversation);
        t->decision.path = t->stripped;
    }
    if (alias)
        rename(t, alias);
}

const struct grid_edit *grid_ticket_edits(const struct grid_ticket *t, size_t *out_n)
{
    *out_n = t->n_edits;
    return t->edits;
}
