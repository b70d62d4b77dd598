/*
 * head.h - what the head of a request says: its API, its model, whether its body is worth reading
 *
 * Story     The first thing a ticket does. Views point into the caller's headers: route.c copies what it keeps.
 * Source    behaviour.md B, O (19, 20, 33, 40, 42, 49, 50, 54).
 * Not here  bodies (prompt.h), answers (reply.h).
 */
#ifndef GRID_HEAD_H
#define GRID_HEAD_H

#include "str.h"

/* What a path has to do with stored state, whatever the method. */
enum grid_head_state {
    GRID_STATE_NONE,
    GRID_STATE_RESPONSES,     /* creates a response, or is a fixed sub-path that takes the same body */
    GRID_STATE_CONVERSATIONS, /* creates a conversation */
    GRID_STATE_STORED,        /* of one response or conversation, which `id` names */
};

struct grid_head_view {
    struct grid_str path; /* without its query */
    enum grid_head_state state;
    struct grid_str id; /* GRID_STATE_STORED: the segment of the path, as sent; may be empty */
    enum grid_api api;
    bool post, options;
    bool models, model_entry;  /* GET or HEAD /v1/models, or of one entry, without a model header */
    struct grid_str entry;     /* the model that model_entry asks for, as sent */
    bool has_model, ambiguous; /* by the header; ambiguous: repeated with different values */
    struct grid_str model;
    bool can_be_json; /* the content type does not rule it out */
    bool coded;       /* a content coding that is not identity */
};

/* model_header in lower case. */
void grid_head_read(const struct grid_head *head, struct grid_str model_header, struct grid_head_view *out_view);

/* The API of a path without query (behaviour.md B.1). */
enum grid_api grid_head_api(struct grid_str path);

#endif
