/*
 * status.h - refusals: collecting what is wrong with a text of settings
 *
 * Story     Validators (settings.c, serving.c) call grid_refuse for each fault and go on, so that a person sees all of
 *           them at once.
 */
#ifndef GRID_STATUS_H
#define GRID_STATUS_H

#include "str.h"

/* Adds one refusal and returns its code. errors may be NULL. The message says what was found and what is accepted; the
 * field is a dotted path. Both are cut to their room. */
enum grid_status grid_refuse(struct grid_errors *errors, enum grid_status code, size_t offset, const char *field,
                             const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
