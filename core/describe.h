/*
 * describe.h - the tables of fields, told row by row: what `check --fields` and the documents are made from
 *
 * Promise   A row is told from the table that reads the field, its default from the object that is read into.
 * Not here  Which table stands where (settings.c, serving.c, places.c).
 */
#ifndef GRID_DESCRIBE_H
#define GRID_DESCRIBE_H

#include "values.h"

struct grid_describe {
    grid_field_teller *tell;
    void *context;
};

/* Every row whose field is read. `prefix` is "" or ends in a dot; `defaults` is what the table reads into, before it
 * reads. */
void grid_describe_table(const struct grid_describe *to, const char *prefix, const struct grid_field *table, size_t n,
                         const void *defaults);

#endif
