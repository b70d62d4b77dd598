/*
 * models.h - the list of the grid's models, and one entry of it, answered here
 *
 * Story     route.c asks for it when a request for /v1/models names no model by header.
 * Promise   OpenAI's list shape, each model once, by name. Only the list needs memory: without it the answer is 500.
 * Source    behaviour.md O (40, 54).
 */
#ifndef GRID_MODELS_H
#define GRID_MODELS_H

#include "head.h"
#include "reply.h"
#include "sites.h"

/* The head asks for the list or for an entry. The reply's body is text's, when it is not a constant. */
void grid_models_answer(const struct grid_sites *sites, const struct grid_head_view *head, struct grid_buf *text,
                        struct grid_reply *out_reply);

#endif
