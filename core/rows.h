/*
 * rows.h - one object of a body: where its fields are, and what is written of them
 *
 * Story     prompt.c opens objects and steps through their rows; each step queues pieces in the prompt or opens a
 *           frame. What is wrong with a body is told by grid_rows_refuse, once: the first reason stays.
 * Not here  The order of steps (prompt.c), which rows there are (prompt_tables.h).
 */
#ifndef GRID_ROWS_H
#define GRID_ROWS_H

#include "prompt_tables.h"

const struct grid_prompt_object *grid_rows_top(enum grid_api api); /* the body itself */

void grid_rows_refuse(struct grid_prompt *prompt, enum grid_reason reason);
void grid_rows_push(struct grid_prompt *prompt, struct grid_str literal); /* queues a piece of framing */

/* A new frame on top, or NULL with a reason when too many are open. */
struct grid_prompt_frame *grid_rows_frame(struct grid_prompt *prompt);

/* Passes the object that is next, noting where the fields of `reads` are; of a repeated one, the last. */
void grid_rows_scan(struct grid_json *json, uint64_t reads, struct grid_prompt_fields *out);
bool grid_rows_has(const struct grid_prompt_fields *fields, enum field field); /* there and not null */
/* Puts the prompt's reader before a field that is there; its kind. */
enum grid_json_kind grid_rows_place(struct grid_prompt *prompt, uint64_t reads, const struct grid_prompt_fields *fields,
                                    enum field field);
/* Begins to walk the object that `json` stands before, and passes it there. */
void grid_rows_open(struct grid_prompt *prompt, struct grid_json *json, const struct grid_prompt_object *object);
/* Decodes the string at the prompt's reader once ahead of use: whether it is valid must not depend on how much of it is
 * used. False with a reason. */
bool grid_rows_measure(struct grid_prompt *prompt, struct grid_json_decode *out_name, size_t *out_bytes);
/* Carries out one row of the object in `frame`. */
void grid_rows_write(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, const struct row *row);

#endif
