/*
 * yaml.h - YAML or JSON in, JSON and line numbers out
 *
 * Story     Everything that checks a configuration reads JSON. People write YAML. This turns a document into JSON text
 *           and remembers which line each byte of it came from, so that a refusal can name file and line.
 * Promise   A document that is JSON is kept byte for byte, so repeated names and numbers stay as they were. In YAML,
 *           only true, false, null, ~ (YAML 1.2 core schema) and numbers spelled as JSON spells them are anything but
 *           text: `no`, `007` and `1_000` are strings. Anchors, aliases, tags other than !!str, a second document,
 *           names that are no scalars, over 16 MiB and over 64 levels are refused.
 * Not here  What the fields mean (config.c, the core). Reading the file (files.h).
 */
#ifndef GRID_YAML_H
#define GRID_YAML_H

#include <grid/grid.h>

#define GRID_YAML_MAX_BYTES (16ull << 20)
#define GRID_YAML_MAX_DEPTH 64u

struct grid_yaml {
    char *json; /* NUL-terminated */
    size_t len;
    bool words; /* it was YAML: hand this on to grid_settings_parse and grid_serving_parse */
    struct grid_yaml_mark {
        size_t offset;
        unsigned line;
    } * marks; /* ascending */
    size_t n_marks;
};

/* Fills *out; the caller ends it with grid_yaml_done. On failure nothing is left to free and error holds one line,
 * "NAME:LINE: message". `name` is only for that. */
bool grid_yaml_to_json(struct grid_str text, const char *name, struct grid_yaml *out, char *error,
                       size_t error_size) GRID_MUST_USE;
void grid_yaml_done(struct grid_yaml *yaml); /* a zeroed one is fine */

/* The line, from 1, that the byte of the JSON text at `offset` came from. */
unsigned grid_yaml_line(const struct grid_yaml *yaml, size_t offset);

/* The value at a dotted path ("timeouts.idle_ms", "http_filters_before[0]"), as a view into yaml->json. When a step is
 * missing: false, and the value that should have held it. */
bool grid_yaml_find(const struct grid_yaml *yaml, const char *path, struct grid_str *out_value);

#endif
