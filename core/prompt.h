/*
 * prompt.h - step 1 of the data path: a body becomes the pieces of its prompt
 *
 * Story     keys.c opens a body, pulls pieces in the fixed order of the stream whatever the order in the body
 *           (behaviour.md C), and closes it. The list that the stream ends with (messages, input) is read once, while
 *           its pieces are pulled; closing reads what stands behind it. When that turns out to belong ahead of what was
 *           pulled (tools behind messages), the pieces are pulled once more, now in order. Only whether the whole body
 *           is JSON, which is known at the end, decides whether the pieces count.
 * Promise   No copy of the body and no allocation: what must be remembered is remembered as a place. Constant memory.
 *           How the slices are cut never shows in the pieces' bytes. Every fault is a reason, never an error.
 * Not here  Blocks and keys (keys.h), JSON's grammar (json.h). What each API's body
 *           looks like: prompt_tables.h; how a row is written: rows.h.
 */
#ifndef GRID_PROMPT_H
#define GRID_PROMPT_H

#include "piece.h"

/* Reads the body, up to the list that the stream ends with or to its end. cut: it is only the beginning. api NONE reads
 * the model only. The slices, memo (zeroed) and room must outlive the prompt; room may be NULL when no piece is pulled.
 */
void grid_prompt_open(struct grid_prompt *prompt, enum grid_api api, const struct grid_str *slices, size_t n_slices,
                      bool cut, struct grid_lex_memo *memo, struct grid_canonical_room *room);

/* The next piece, valid until the next pull; NULL at the end, or when the reason says why there are no keys. */
const struct grid_piece *grid_prompt_next(struct grid_prompt *prompt);

/* Reads the rest of the body, when no more pieces are wanted. True: what was pulled was not in order and counts for
 * nothing; pull anew (and close again). False: model, salt and reason are final. */
bool grid_prompt_close(struct grid_prompt *prompt);

#endif
