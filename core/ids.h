/*
 * ids.h - the ids of stored state that a Responses body, or a path, names
 *
 * Story     route.c asks for them when a create may name some: `previous_response_id`, and `conversation` as a text or
 *           as the `id` of an object. Each comes with the shape of its tag and with the bytes that stripping replaces.
 *           A stored path names one, in one segment.
 * Promise   One pass over the whole body, constant memory, any slices, any length of id. A body that is not one JSON
 *           object, or that repeats a field that holds an id, names none.
 * Source    behaviour.md H.4, O (6, 11, 21, 34, 35).
 * Not here  Whether a tag is genuine (tag.h), where it leads (pin.h).
 */
#ifndef GRID_IDS_H
#define GRID_IDS_H

#include "json.h"
#include "tag.h"

struct grid_id {
    bool present; /* a text that decodes: an id, tagged or not */
    bool shaped;  /* it has the shape of a tag */
    bool rest;    /* shaped, and something stands behind the third dot */
    struct grid_tag_scan tag;
    size_t offset, bytes; /* shaped: from the token's opening quote to behind the third dot, as sent */
};

struct grid_ids {
    struct grid_id previous, conversation;
};

void grid_ids_find(const struct grid_str *slices, size_t n_slices, struct grid_ids *out_ids);

/* The id of a stored path: a segment, which is not decoded, so one that holds a % has no tag. The offset is 0 and the
 * bytes are those of prefix and tag. */
void grid_ids_segment(struct grid_str segment, struct grid_id *out_id);

#endif
