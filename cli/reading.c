/*
 * reading.c - one field of the gateway's file at a time; see reading.h
 */
#include "cli/reading.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned grid_reading_line(const struct grid_reading *r, const char *path)
{
    struct grid_str value;
    bool found = grid_yaml_find(r->yaml, path, &value);
    (void)found;
    return grid_yaml_line(r->yaml, (size_t)(value.ptr - r->yaml->json));
}

void grid_reading_refuse(struct grid_reading *r, const char *path, const char *format, ...)
{
    char message[GRID_PATH_BYTES + 256];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    grid_report_add(r->report, r->file, grid_reading_line(r, path), path[0] != '\0' ? path : "document", "%s", message);
}

json_t *grid_reading_member(json_t *object, const char *path)
{
    const char *dot = strrchr(path, '.');
    json_t *value = json_object_get(object, dot != NULL ? dot + 1 : path);
    return json_is_null(value) ? NULL : value;
}

void grid_reading_only(struct grid_reading *r, json_t *object, const char *prefix)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (!grid_config_knows(prefix, key)) {
            char path[256];
            snprintf(path, sizeof path, "%s%.200s", prefix, key);
            grid_reading_refuse(r, path, "unknown field");
        }
    }
}

json_t *grid_reading_mapping(struct grid_reading *r, json_t *root, const char *path)
{
    json_t *value = grid_reading_member(root, path);
    if (value == NULL) {
        return NULL;
    }
    if (!json_is_object(value)) {
        char text[512] = "";
        grid_config_names(path, text, sizeof text);
        grid_reading_refuse(r, path, "must be a mapping of %s", text);
        return NULL;
    }
    char prefix[128];
    snprintf(prefix, sizeof prefix, "%s.", path);
    grid_reading_only(r, value, prefix);
    return value;
}

void grid_reading_number(struct grid_reading *r, json_t *object, const char *path, uint64_t *out)
{
    const struct grid_config_field *field = grid_config_field(path);
    json_t *value = grid_reading_member(object, path);
    if (value == NULL) {
        *out = field->fallback != NULL ? strtoull(field->fallback, NULL, 10) : *out;
        return;
    }
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(number >= field->least && number <= field->most) || floor(number) != number) {
        grid_reading_refuse(r, path, "must be a whole number from %.0f to %.0f", field->least, field->most);
        return;
    }
    *out = (uint64_t)number;
}

void grid_reading_bool(struct grid_reading *r, json_t *object, const char *path, bool *out)
{
    json_t *value = grid_reading_member(object, path);
    if (value == NULL) {
        *out = strcmp(grid_config_field(path)->fallback, "true") == 0;
    } else if (!json_is_boolean(value)) {
        grid_reading_refuse(r, path, "must be true or false");
    } else {
        *out = json_is_true(value);
    }
}

/* NUL bytes would end the text early. */
static bool is_text(json_t *value)
{
    return json_is_string(value) && json_string_length(value) > 0 &&
           strlen(json_string_value(value)) == json_string_length(value);
}

const char *grid_reading_text(struct grid_reading *r, json_t *object, const char *path)
{
    json_t *value = grid_reading_member(object, path);
    if (value == NULL) {
        return grid_config_field(path)->fallback;
    }
    if (!is_text(value)) {
        grid_reading_refuse(r, path, "must be text and not empty");
        return NULL;
    }
    return json_string_value(value);
}

void grid_reading_path(struct grid_reading *r, json_t *object, const char *path, char *out)
{
    const char *text = grid_reading_text(r, object, path);
    char whole[GRID_PATH_BYTES];
    if (text != NULL &&
        !(grid_files_beside(r->file, text, whole, sizeof whole) && grid_files_absolute(whole, out, GRID_PATH_BYTES))) {
        grid_reading_refuse(r, path, "the path is too long");
    }
}

json_t *grid_reading_texts(struct grid_reading *r, json_t *object, const char *path, size_t most,
                           grid_reading_fits *fits, const char *accepts)
{
    json_t *list = grid_reading_member(object, path);
    if (list == NULL) {
        return NULL;
    }
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > most) {
        grid_reading_refuse(r, path, "must be a list of 1 to %zu: %s", most, accepts);
        return NULL;
    }
    size_t i;
    json_t *item;
    bool good = true;
    json_array_foreach(list, i, item)
    {
        if (!is_text(item) || !fits(json_string_value(item))) {
            char at[256];
            snprintf(at, sizeof at, "%s[%zu]", path, i);
            grid_reading_refuse(r, at, "must be %s", accepts);
            good = false;
        }
    }
    return good ? json_deep_copy(list) : NULL;
}
