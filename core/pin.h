/*
 * pin.h - where a request goes that names stored state, or starts a conversation
 *
 * Story     route.c has read the ids and asks here. A tag that is genuine names a site and, by its mark, a cluster: the
 *           request goes there and nowhere else. A new conversation prefers the local site.
 * Promise   Queue depths, runs and affinity settings have no say in a pin; admission and the model have. Whatever is
 *           wrong with an id, or with where it leads, gives one and the same 404.
 * Source    behaviour.md H.3, H.5, H.6, O (6, 11, 34, 35).
 * Not here  Where ids stand (ids.h), how a tag is judged (tag.h).
 */
#ifndef GRID_PIN_H
#define GRID_PIN_H

#include "ids.h"
#include "reply.h"
#include "sites.h"

struct grid_pin {
    const struct grid_site *site; /* NULL: refused */
    enum grid_reply_kind refusal;
};

/* The model ({NULL,0}: not known) narrows the choice to the candidates that serve it. */
void grid_pin_path(const struct grid_sites *sites, const struct grid_id *id, struct grid_str model,
                   struct grid_pin *out_pin);
/* At least one of the ids has the shape of a tag. */
void grid_pin_body(const struct grid_sites *sites, const struct grid_ids *ids, struct grid_str model,
                   struct grid_pin *out_pin);
void grid_pin_conversation(const struct grid_sites *sites, struct grid_str model, struct grid_pin *out_pin);

#endif
