/*
 * yaml.c - YAML or JSON in, JSON and line numbers out
 *
 * Story     See yaml.h. A text that opens with { or [ and that jansson accepts is JSON and is kept. Anything else goes
 *           through libyaml's events, one by one, into a text buffer; each value leaves a mark {offset, line}.
 * Promise   One level of state per nested collection, in an array: no recursion, so depth costs no stack.
 * Not here  Any meaning: a repeated name comes out repeated, for the validators to refuse.
 */
#include "cli/yaml.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define JSON_LIMIT (4 * GRID_YAML_MAX_BYTES) /* escapes make text grow, \u0001 the most */

enum place { IN_DOCUMENT, IN_LIST, IN_MAP_NAME, IN_MAP_VALUE };

struct reader {
    struct grid_yaml *out;
    struct grid_buf json;
    size_t marks_cap;
    enum place places[GRID_YAML_MAX_DEPTH + 1];
    bool first[GRID_YAML_MAX_DEPTH + 1];
    unsigned depth;
    bool document;
    const char *name;
    char *error;
    size_t error_size;
};

static bool refuse(struct reader *r, size_t line, const char *message)
{
    snprintf(r->error, r->error_size, "%s:%zu: %s", r->name, line, message);
    return false;
}

static bool mark(struct reader *r, size_t offset, size_t line)
{
    struct grid_yaml *out = r->out;
    if (out->n_marks > 0 && out->marks[out->n_marks - 1].line == line) {
        return true; /* same line: the earlier mark covers it */
    }
    if (out->n_marks == r->marks_cap) {
        size_t cap = r->marks_cap > 0 ? 2 * r->marks_cap : 64;
        struct grid_yaml_mark *marks = reallocarray(out->marks, cap, sizeof *marks);
        if (marks == NULL) {
            return refuse(r, line, "out of memory");
        }
        out->marks = marks;
        r->marks_cap = cap;
    }
    out->marks[out->n_marks++] = (struct grid_yaml_mark){offset, (unsigned)line};
    return true;
}

/* ---- JSON kept as it is -------------------------------------------------------------------------------------- */

static bool looks_like_json(struct grid_str text)
{
    size_t at = 0;
    while (at < text.len && strchr(" \t\r\n", text.ptr[at]) != NULL && text.ptr[at] != '\0') {
        at++;
    }
    if (at == text.len || (text.ptr[at] != '{' && text.ptr[at] != '[')) {
        return false;
    }
    json_error_t error;
    json_t *value = json_loadb(text.ptr, text.len, JSON_ALLOW_NUL, &error);
    json_decref(value);
    return value != NULL;
}

static bool keep_json(struct reader *r, struct grid_str text)
{
    size_t line = 1;
    bool good = mark(r, 0, line);
    for (size_t at = 0; good && at < text.len; at++) {
        if (text.ptr[at] == '\n') {
            good = mark(r, at + 1, ++line);
        }
    }
    grid_buf_put(&r->json, text.ptr, text.len);
    return good;
}

/* ---- YAML through events ------------------------------------------------------------------------------------- */

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Whether the text is a number as JSON spells one. */
static bool is_number(const char *text)
{
    text += *text == '-';
    size_t n = digits(text);
    if (n == 0 || (n > 1 && *text == '0')) {
        return false;
    }
    text += n;
    if (*text == '.') {
        n = digits(++text);
        if (n == 0) {
            return false;
        }
        text += n;
    }
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '-' || *text == '+';
        n = digits(text);
        if (n == 0) {
            return false;
        }
        text += n;
    }
    return *text == '\0';
}

/* What a plain scalar is in JSON, or NULL when it is text. */
static const char *plain_word(const char *text)
{
    static const char *const words[][2] = {
        {"", "null"},       {"~", "null"},      {"null", "null"},   {"Null", "null"},
        {"NULL", "null"},   {"true", "true"},   {"True", "true"},   {"TRUE", "true"},
        {"false", "false"}, {"False", "false"}, {"FALSE", "false"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i][0]) == 0) {
            return words[i][1];
        }
    }
    return is_number(text) ? text : NULL;
}

/* Before any value or name: comma or colon, the change of place, and the mark. */
static bool step(struct reader *r, size_t line)
{
    enum place *place = &r->places[r->depth];
    bool *first = &r->first[r->depth];
    switch (*place) {
    case IN_DOCUMENT:
        break;
    case IN_LIST:
    case IN_MAP_NAME:
        grid_buf_puts(&r->json, *first ? "" : ",");
        *first = false;
        *place = *place == IN_LIST ? IN_LIST : IN_MAP_VALUE;
        break;
    case IN_MAP_VALUE:
        grid_buf_puts(&r->json, ":");
        *place = IN_MAP_NAME;
        break;
    }
    return mark(r, r->json.len, line);
}

static bool on_scalar(struct reader *r, const yaml_event_t *event)
{
    size_t line = event->start_mark.line + 1;
    const char *text = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;
    const char *tag = (const char *)event->data.scalar.tag;
    bool is_name = r->places[r->depth] == IN_MAP_NAME;
    if (tag != NULL && strcmp(tag, YAML_STR_TAG) != 0 && strcmp(tag, "!") != 0) {
        return refuse(r, line, "a tag other than !!str is not supported");
    }
    if (!step(r, line)) {
        return false;
    }
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && tag == NULL && !is_name;
    const char *word = plain && strlen(text) == len ? plain_word(text) : NULL;
    if (word != NULL) {
        grid_buf_puts(&r->json, word);
    } else {
        grid_buf_json(&r->json, (struct grid_str){text, len});
    }
    return true;
}

static bool on_open(struct reader *r, const yaml_event_t *event, bool map)
{
    size_t line = event->start_mark.line + 1;
    const yaml_char_t *tag = map ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    if (r->places[r->depth] == IN_MAP_NAME) {
        return refuse(r, line, "a name must be a plain word or a string");
    }
    if (tag != NULL) {
        return refuse(r, line, "a tag other than !!str is not supported");
    }
    if (r->depth == GRID_YAML_MAX_DEPTH) {
        return refuse(r, line, "more than 64 levels deep");
    }
    if (!step(r, line)) {
        return false;
    }
    r->depth++;
    r->places[r->depth] = map ? IN_MAP_NAME : IN_LIST;
    r->first[r->depth] = true;
    grid_buf_puts(&r->json, map ? "{" : "[");
    return true;
}

static bool has_anchor(const yaml_event_t *event)
{
    return (event->type == YAML_SCALAR_EVENT && event->data.scalar.anchor != NULL) ||
           (event->type == YAML_SEQUENCE_START_EVENT && event->data.sequence_start.anchor != NULL) ||
           (event->type == YAML_MAPPING_START_EVENT && event->data.mapping_start.anchor != NULL);
}

static bool on_event(struct reader *r, const yaml_event_t *event)
{
    size_t line = event->start_mark.line + 1;
    if (has_anchor(event)) {
        return refuse(r, line, "anchors are not supported");
    }
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (r->document) {
            return refuse(r, line, "a second document; one is expected");
        }
        r->document = true;
        return true;
    case YAML_ALIAS_EVENT:
        return refuse(r, line, "aliases are not supported");
    case YAML_SCALAR_EVENT:
        return on_scalar(r, event);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(r, event, false);
    case YAML_MAPPING_START_EVENT:
        return on_open(r, event, true);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        r->depth--;
        grid_buf_puts(&r->json, event->type == YAML_MAPPING_END_EVENT ? "}" : "]");
        return true;
    default:
        return true;
    }
}

static bool read_yaml(struct reader *r, struct grid_str text)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        return refuse(r, 1, "out of memory");
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.ptr, text.len);
    bool good = true, more = true;
    while (good && more) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            char message[256];
            snprintf(message, sizeof message, "%s%s%s", parser.problem != NULL ? parser.problem : "not YAML",
                     parser.context != NULL ? " " : "", parser.context != NULL ? parser.context : "");
            size_t line = parser.problem_mark.line + 1;
            if (parser.error == YAML_READER_ERROR) { /* it knows an offset only */
                line = 1;
                for (size_t at = 0; at < parser.problem_offset && at < text.len; at++) {
                    line += text.ptr[at] == '\n';
                }
            }
            good = refuse(r, line, message);
            break;
        }
        more = event.type != YAML_STREAM_END_EVENT;
        good = on_event(r, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    if (good && !r->document) {
        grid_buf_puts(&r->json, "null"); /* an empty file */
        good = mark(r, 0, 1);
    }
    return good;
}

bool grid_yaml_to_json(struct grid_str text, const char *name, struct grid_yaml *out, char *error, size_t error_size)
{
    *out = (struct grid_yaml){0};
    struct reader r = {
        .out = out, .json = {.limit = JSON_LIMIT}, .name = name, .error = error, .error_size = error_size};
    if (text.len > GRID_YAML_MAX_BYTES) {
        return refuse(&r, 1, "the file is larger than 16 MiB");
    }
    bool good;
    if (looks_like_json(text)) {
        good = keep_json(&r, text);
    } else {
        out->words = true;
        good = read_yaml(&r, text);
    }
    size_t len = r.json.len;
    grid_buf_put(&r.json, "", 1);
    if (good && r.json.failed) {
        good = refuse(&r, 1, "out of memory");
    }
    if (!good) {
        grid_buf_done(&r.json);
        grid_yaml_done(out);
        return false;
    }
    /* grid_buf takes from malloc here, so the text may be handed on and freed by grid_yaml_done. */
    out->json = r.json.ptr;
    out->len = len;
    return true;
}

void grid_yaml_done(struct grid_yaml *yaml)
{
    free(yaml->json);
    free(yaml->marks);
    *yaml = (struct grid_yaml){0};
}

unsigned grid_yaml_line(const struct grid_yaml *yaml, size_t offset)
{
    size_t low = 0, high = yaml->n_marks; /* the answer is the last mark at or before the offset */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (yaml->marks[middle].offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? yaml->marks[low - 1].line : 1;
}

/* ---- looking a value up -------------------------------------------------------------------------------------- */

/* The text was checked before, so these only have to find ends. */
static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at)
{
    for (at++; *at != '"' && *at != '\0'; at++) {
        at += *at == '\\' && at[1] != '\0';
    }
    return at + (*at == '"');
}

static const char *skip_value(const char *at)
{
    unsigned depth = 0;
    do {
        at = skip_space(at);
        if (*at == '"') {
            at = skip_string(at);
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (*at == ',' || *at == ':') {
            at++;
        } else {
            at += strcspn(at, " \t\r\n,:{}[]\"");
        }
    } while (depth > 0 && *at != '\0');
    return at;
}

/* The member called `name` of the object, or the element with that number of the list, or NULL. */
static const char *find_child(const char *value, struct grid_str name)
{
    bool map = *value == '{';
    if (!map && *value != '[') {
        return NULL;
    }
    size_t wanted = map ? 0 : strtoul(name.ptr, NULL, 10);
    const char *at = skip_space(value + 1);
    for (size_t i = 0; *at != '\0' && *at != '}' && *at != ']'; i++) {
        bool found = !map && i == wanted;
        if (map) {
            const char *key = at;
            at = skip_string(at);
            found = (size_t)(at - key) == name.len + 2 && memcmp(key + 1, name.ptr, name.len) == 0;
            at = skip_space(skip_space(at) + 1); /* the colon */
        }
        if (found) {
            return at;
        }
        at = skip_space(skip_value(at));
        at = skip_space(at + (*at == ','));
    }
    return NULL;
}

bool grid_yaml_find(const struct grid_yaml *yaml, const char *path, struct grid_str *out_value)
{
    const char *value = skip_space(yaml->json);
    bool found = true;
    while (*path != '\0') {
        size_t len = strcspn(path, ".[]");
        if (len > 0) {
            const char *child = find_child(value, (struct grid_str){path, len});
            if (child == NULL) {
                found = false;
                break;
            }
            value = child;
        }
        path += len + (path[len] != '\0');
    }
    *out_value = (struct grid_str){value, (size_t)(skip_value(value) - value)};
    return found;
}
