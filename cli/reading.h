/*
 * reading.h - one field of the gateway's file at a time
 *
 * Story     config.c and config_edge.c walk the tree of a document with these; each reader takes a dotted path, finds
 *           the member in the object at hand and either fills its destination or refuses with file, line and field.
 * Promise   An absent or null member gives the default of its row in config_fields.c, if that has one, else leaves
 *           the destination as it is. A refusal never stops the reading.
 * Not here  What the fields are (config.c, config_edge.c).
 */
#ifndef GRID_READING_H
#define GRID_READING_H

#include "cli/config.h"
#include "cli/config_fields.h"
#include "cli/yaml.h"

/* The document that is being read. */
struct grid_reading {
    const struct grid_yaml *yaml;
    const char *file;
    struct grid_report *report;
    struct grid_gateway *out;
    const struct grid_kept *kept; /* never NULL */
};

/* A refusal of the field at `path`; what is missing is told at the line of its parent. */
void grid_reading_refuse(struct grid_reading *r, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The line of the field, or of its parent. */
unsigned grid_reading_line(const struct grid_reading *r, const char *path);

json_t *grid_reading_member(json_t *object, const char *path); /* by the last step; NULL: absent or null */
/* Refuses every member that has no row. `prefix` is "" or ends in a dot. */
void grid_reading_only(struct grid_reading *r, json_t *object, const char *prefix);
/* The member as a mapping; NULL when it is absent or was refused. */
json_t *grid_reading_mapping(struct grid_reading *r, json_t *root, const char *path);

/* A whole number in the range of its row. */
void grid_reading_number(struct grid_reading *r, json_t *object, const char *path, uint64_t *out);
void grid_reading_bool(struct grid_reading *r, json_t *object, const char *path, bool *out);
/* NULL when the field is absent and has no default or, after a refusal, no text. */
const char *grid_reading_text(struct grid_reading *r, json_t *object, const char *path);
/* A path to a file, taken from the folder of the document, made absolute. `out` has GRID_PATH_BYTES. */
void grid_reading_path(struct grid_reading *r, json_t *object, const char *path, char *out);
/* A list of 1 to `most` texts that `fits` takes: a new reference. NULL when it is absent, whatever its default, or was
 * refused. */
typedef bool grid_reading_fits(const char *text);
json_t *grid_reading_texts(struct grid_reading *r, json_t *object, const char *path, size_t most,
                           grid_reading_fits *fits, const char *accepts);

#endif
