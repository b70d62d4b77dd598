/*
 * describe.c - the tables of fields, told row by row; see describe.h
 */
#include "describe.h"

#include <stdio.h>

#define DEFAULT_BYTES 64u
#define PATH_BYTES 128u

static bool is_text(const struct grid_field *field)
{
    return field->read == grid_values_text || field->read == grid_values_name || field->read == grid_values_site ||
           field->read == grid_values_url_path || field->read == grid_values_address;
}

/* NULL: there is none. A whole number that starts at 0, where 0 cannot be written, is none. */
static const char *default_of(const struct grid_field *field, const void *defaults, char room[DEFAULT_BYTES])
{
    const void *at = (const char *)defaults + field->at;
    struct grid_str text = {NULL, 0};
    if (field->fallback || field->required)
        return field->fallback;
    if (field->read == grid_fields_bool) {
        (void)snprintf(room, DEFAULT_BYTES, "%s", *(const bool *)at ? "true" : "false");
    } else if (field->read == grid_fields_whole) {
        if (*(const uint64_t *)at < field->least)
            return NULL;
        (void)snprintf(room, DEFAULT_BYTES, "%llu", (unsigned long long)*(const uint64_t *)at);
    } else if (field->read == grid_fields_number) {
        (void)snprintf(room, DEFAULT_BYTES, "%g", *(const double *)at);
    } else {
        if (is_text(field))
            text = *(const struct grid_str *)at;
        if (!text.ptr)
            return NULL;
        (void)snprintf(room, DEFAULT_BYTES, "%.*s", GRID_FMT(text));
    }
    return room;
}

static const char *accepts_of(const struct grid_field *field)
{
    if (field->accepts)
        return field->accepts;
    if (field->read == grid_fields_bool)
        return "true or false";
    return field->read == grid_values_url_path ? GRID_VALUES_URL : "a mapping";
}

void grid_describe_table(const struct grid_describe *to, const char *prefix, const struct grid_field *table, size_t n,
                         const void *defaults)
{
    for (size_t i = 0; i < n; i++) {
        char path[PATH_BYTES], room[DEFAULT_BYTES];
        if (table[i].read == grid_fields_misplaced)
            continue;
        (void)snprintf(path, sizeof path, "%s%s", prefix, table[i].name);
        struct grid_field_row row = {.path = path,
                                     .fallback = default_of(&table[i], defaults, room),
                                     .accepts = accepts_of(&table[i]),
                                     .required = table[i].required};
        to->tell(to->context, &row);
    }
}
