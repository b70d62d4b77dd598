/*
 * prompt.h - step 1 of the data path: a body becomes the pieces of its prompt
 *
 * Story     keys.c opens a body and pulls pieces, in the fixed order of the stream whatever the order in the body
 *           (behaviour.md C). Opening reads the whole body once: is it JSON, what is its model, where do the fields
 *           begin that matter, is one given twice. Pulling goes back to those places and reads only what is keyed.
 * Promise   No copy of the body and no allocation: what must be remembered is remembered as a place. Constant memory.
 *           How the slices are cut never shows in the pieces' bytes. Every fault is a reason, never an error.
 * Not here  Blocks and keys (keys.h), JSON's grammar (json.h). What each API's body
 *           looks like: prompt_tables.h; how a row is written: rows.h.
 */
#ifndef GRID_PROMPT_H
#define GRID_PROMPT_H

#include "piece.h"

/* Reads the body once. cut: it is only the beginning. api NONE reads the model only. The slices, memo (zeroed) and room
 * must outlive the prompt; room may be NULL when no piece is pulled. */
void grid_prompt_open(struct grid_prompt *prompt, enum grid_api api, const struct grid_str *slices, size_t n_slices,
                      bool cut, struct grid_lex_memo *memo, struct grid_canonical_room *room);

/* The next piece, valid until the next pull; NULL at the end, or when the reason says why there are no keys. */
const struct grid_piece *grid_prompt_next(struct grid_prompt *prompt);

#endif
