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
void grid_rows_push(struct grid_prompt *prompt, const struct grid_tag *literal); /* queues a piece of framing */

/* A new frame on top. */
struct grid_prompt_frame *grid_rows_frame(struct grid_prompt *prompt);

/* The field of `reads` that has this name, or F_none. */
enum field grid_rows_field(uint64_t reads, const struct grid_json_name *name);
/* Passes the value that is next, a field's, and notes it; of a repeated one, the last. False on a fault. */
bool grid_rows_note(struct grid_prompt_fields *fields, enum field field, struct grid_json *json);
/* The same for an array that is to be walked where it stands: it is not passed. */
void grid_rows_note_list(struct grid_prompt_fields *fields, enum field field, const struct grid_json *json);
void grid_rows_no_fields(struct grid_prompt_fields *out);
bool grid_rows_has(const struct grid_prompt_fields *fields, enum field field); /* there and not null */
/* The value of a field that is there. */
const struct grid_json_raw *grid_rows_value(const struct grid_prompt_fields *fields, enum field field);
/* The prompt's reader, put before a value that was passed. */
struct grid_json *grid_rows_reader(struct grid_prompt *prompt, const struct grid_json_raw *value);

/* Begins to walk the object that `json` stands before, and passes it there. order: of the list's frame, or NULL. */
void grid_rows_open(struct grid_prompt *prompt, struct grid_json *json, uint8_t *order,
                    const struct grid_prompt_object *object);
/* Decodes a string once ahead of use: whether it is valid must not depend on how much of it is used. False with a
 * reason. */
bool grid_rows_measure(struct grid_prompt *prompt, const struct grid_json_raw *value, struct grid_json_decode *out_name,
                       size_t *out_bytes);
/* Carries out one row of the object in `frame`, which is on top. */
void grid_rows_write(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, const struct row *row);

#endif
