/*
 * config_fields.h - the table of the gateway's fields: which there are, their defaults, what they accept
 *
 * Story     config.c and config_edge.c read a field by its dotted path and find default and range here; a name that is
 *           not here is refused. `check --fields` prints the table, with the rows of the core behind it.
 */
#ifndef GRID_CONFIG_FIELDS_H
#define GRID_CONFIG_FIELDS_H

#include "grid/grid.h"

#include <stdio.h>

struct grid_config_field {
    const char *path;
    const char *fallback; /* the default as it would be written, a list without brackets; NULL: none */
    const char *accepts;  /* in words; NULL: a whole number from least to most */
    double least, most;
    bool required; /* where its mapping is given */
    bool hot;      /* followed while `run` serves */
};

/* The row of a path that the table has. */
const struct grid_config_field *grid_config_field(const char *path);
/* Whether "prefix" + name is in the table; prefix is "" or ends in a dot. */
bool grid_config_knows(const char *prefix, const char *name);
/* The names right under "PATH.", as "a, b and c". */
void grid_config_names(const char *path, char *out, size_t out_size);

/* A line each of both files: FILE, field, default, hot or restart, what it accepts, between tabs. */
void grid_config_print_fields(FILE *to);

#endif
