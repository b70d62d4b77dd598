/*
 * config.c - the gateway's own configuration file; see config.h
 *
 * Story     The text becomes JSON (yaml.c), the JSON a jansson tree that is walked here field by field; a field's line
 *           is looked up by its path, only when there is something to say about it. The `grid_site_route` and
 *           `serving` parts go to the core as the bytes they are.
 * Not here  Whether named files can be read, and addresses (config_check.c).
 */
#include "cli/config.h"
#include "cli/config_check.h"
#include "cli/config_edge.h"
#include "cli/reading.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_LIMIT (1u << 20)
#define SERVING_VARIABLE "GRID_SERVING_CONFIG"

void grid_report_add(struct grid_report *report, const char *file, unsigned line, const char *field, const char *format,
                     ...)
{
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    report->lines.limit = REPORT_LIMIT;
    grid_buf_printf(&report->lines, "%s:%u: %s: %s\n", file, line, field, message);
    report->count++;
}

void grid_report_done(struct grid_report *report)
{
    grid_buf_done(&report->lines);
    *report = (struct grid_report){0};
}

/* The core's refusals of a text that starts `base` bytes into the document. */
static void refuse_all(struct grid_reading *r, size_t base, const char *prefix, const struct grid_errors *errors,
                       enum grid_status status)
{
    if (errors->count == 0) {
        grid_report_add(r->report, r->file, grid_yaml_line(r->yaml, base), *prefix != '\0' ? prefix : "document", "%s",
                        grid_status_name(status));
    }
    for (size_t i = 0; i < errors->count; i++) {
        const struct grid_err *err = &errors->items[i];
        char field[256];
        snprintf(field, sizeof field, "%s%s%s", prefix, *prefix != '\0' && err->field[0] != '\0' ? "." : "",
                 err->field);
        const char *whole = err->code == GRID_E_SYNTAX ? "syntax" : "document";
        grid_report_add(r->report, r->file, grid_yaml_line(r->yaml, base + err->offset),
                        field[0] != '\0' ? field : whole, "%s", err->message);
    }
}

static void read_address(struct grid_reading *r, json_t *root, const char *name, struct grid_address *out)
{
    if (json_is_number(grid_reading_member(root, name))) {
        grid_reading_refuse(r, name, "a port alone is not enough: must be ADDRESS:PORT, such as 127.0.0.1:8080");
        return;
    }
    const char *text = grid_reading_text(r, root, name);
    text = text != NULL ? text : "";
    struct grid_str whole = {text, strlen(text)};
    if (grid_address_parse(whole, true, false, out)) {
        return;
    }
    if (grid_address_parse(whole, true, true, out) && !out->is_unix) {
        grid_reading_refuse(r, name, "%s is not an IP address: must be ADDRESS:PORT, such as 127.0.0.1:%u", out->host,
                            out->port);
    } else {
        grid_reading_refuse(r, name, "must be ADDRESS:PORT with an IP address, [IPv6]:PORT, or unix:/path");
    }
    *out = (struct grid_address){0};
}

static void read_timeouts(struct grid_reading *r, json_t *root)
{
    json_t *timeouts = grid_reading_mapping(r, root, "timeouts");
    grid_reading_number(r, timeouts, "timeouts.connect_ms", &r->out->connect_ms);
    grid_reading_number(r, timeouts, "timeouts.request_body_ms", &r->out->request_body_ms);
    grid_reading_number(r, timeouts, "timeouts.idle_ms", &r->out->idle_ms);
    grid_reading_number(r, timeouts, "timeouts.total_ms", &r->out->total_ms);
}

static void read_words(struct grid_reading *r, json_t *root)
{
    static const char *const levels[] = {"trace", "debug", "info", "warning", "error", "critical", "off", NULL};
    const char *level = grid_reading_text(r, root, "log_level");
    level = level != NULL ? level : "";
    bool known = false;
    for (size_t i = 0; levels[i] != NULL && !known; i++) {
        known = strcmp(level, levels[i]) == 0;
    }
    if (known) {
        snprintf(r->out->log_level, sizeof r->out->log_level, "%s", level);
    } else {
        grid_reading_refuse(r, "log_level", "must be one of trace, debug, info, warning, error, critical, off");
    }
    grid_reading_bool(r, root, "access_log", &r->out->access_log);
}

static void read_site_route(struct grid_reading *r, json_t *root)
{
    struct grid_str text;
    grid_settings_defaults(&r->out->settings);
    if (grid_reading_member(root, "grid_site_route") == NULL || !grid_yaml_find(r->yaml, "grid_site_route", &text)) {
        return;
    }
    struct grid_errors *errors = calloc(1, sizeof *errors);
    if (errors == NULL) {
        grid_reading_refuse(r, "grid_site_route", "out of memory");
        return;
    }
    enum grid_status status = grid_settings_parse(text, r->yaml->words, &r->out->settings, errors);
    if (status != GRID_OK) {
        refuse_all(r, (size_t)(text.ptr - r->yaml->json), "grid_site_route", errors, status);
    }
    free(errors);
}

static void parse_serving(struct grid_reading *r, struct grid_str text, const char *prefix)
{
    struct grid_errors *errors = calloc(1, sizeof *errors);
    if (errors == NULL) {
        grid_report_add(r->report, r->file, 1, "document", "out of memory");
        return;
    }
    size_t base = (size_t)(text.ptr - r->yaml->json);
    enum grid_status status = grid_serving_parse(text, r->yaml->words, NULL, &r->out->serving, errors);
    if (status != GRID_OK) {
        r->out->serving = NULL;
        refuse_all(r, base, prefix, errors, status);
    } else {
        grid_config_check_serving(r, prefix);
    }
    free(errors);
}

static bool take_text(struct grid_source *source, const struct grid_source *kept, struct grid_report *report)
{
    if (kept != NULL && strcmp(kept->path, source->path) == 0) {
        source->text = malloc(kept->len + 1);
        if (source->text != NULL) {
            memcpy(source->text, kept->text, kept->len + 1);
            source->len = kept->len;
            return true;
        }
    }
    char error[GRID_PATH_BYTES + 256];
    if (grid_files_read(source->path, GRID_YAML_MAX_BYTES, &source->text, &source->len, error, sizeof error)) {
        return true;
    }
    grid_report_add(report, source->path, 1, "file", "%s", error);
    return false;
}

/* yaml.c says "NAME:LINE: message"; a refusal has a field between the two. */
static bool take_yaml(const struct grid_source *source, struct grid_yaml *out, struct grid_report *report)
{
    char error[GRID_PATH_BYTES + 512];
    if (grid_yaml_to_json((struct grid_str){source->text, source->len}, "", out, error, sizeof error)) {
        return true;
    }
    char *message = NULL;
    unsigned line = (unsigned)strtoul(error + 1, &message, 10);
    grid_report_add(report, source->path, line, "syntax", "%s", message + 2);
    return false;
}

static bool same_file(const char *a, const char *b)
{
    char *left = realpath(a, NULL), *right = realpath(b, NULL);
    bool same = left != NULL && right != NULL ? strcmp(left, right) == 0 : strcmp(a, b) == 0;
    free(left);
    free(right);
    return same;
}

static void read_serving(struct grid_reading *r, json_t *root)
{
    const char *variable = getenv(SERVING_VARIABLE);
    const char *named = grid_reading_text(r, root, "serving_config_path");
    char *path = r->out->serving_file.path;
    struct grid_str text;
    variable = variable != NULL && *variable != '\0' ? variable : NULL;
    if (grid_reading_member(root, "serving") != NULL) {
        if (named != NULL || variable != NULL) {
            grid_reading_refuse(r, "serving",
                                named != NULL ? "given beside serving_config_path; one of the two is needed"
                                              : "given beside the variable " SERVING_VARIABLE
                                                "; one of the two is needed");
        } else if (grid_yaml_find(r->yaml, "serving", &text)) {
            parse_serving(r, text, "serving");
        }
        return;
    }
    if (named == NULL && variable == NULL) {
        grid_reading_refuse(r, "serving_config_path",
                            "missing: name the serving config here or in the variable " SERVING_VARIABLE
                            ", or write it in place under serving");
        return;
    }
    if (named != NULL && !grid_files_beside(r->file, named, path, GRID_PATH_BYTES)) {
        grid_reading_refuse(r, "serving_config_path", "the path is too long");
        return;
    }
    if (named != NULL && variable != NULL && !same_file(path, variable)) {
        grid_reading_refuse(r, "serving_config_path", "the variable " SERVING_VARIABLE " names another file");
        return;
    }
    if (named == NULL) {
        snprintf(path, GRID_PATH_BYTES, "%s", variable);
    }
    struct grid_yaml yaml;
    if (take_text(&r->out->serving_file, r->kept->serving, r->report) &&
        take_yaml(&r->out->serving_file, &yaml, r->report)) {
        struct grid_reading inner = {.yaml = &yaml, .file = path, .report = r->report, .out = r->out, .kept = r->kept};
        parse_serving(&inner, (struct grid_str){yaml.json, yaml.len}, "");
        grid_yaml_done(&yaml);
    }
}

static void read_trace_keys(struct grid_reading *r, json_t *root)
{
    struct grid_gateway *out = r->out;
    json_t *trace = grid_reading_mapping(r, root, "trace_keys");
    out->trace_keys = trace != NULL;
    if (trace == NULL) {
        return;
    }
    grid_reading_path(r, trace, "trace_keys.path", out->trace_path);
    grid_reading_path(r, trace, "trace_keys.secret_path", out->trace_secret_path);
    grid_reading_number(r, trace, "trace_keys.max_bytes", &out->trace_max_bytes);
    if (grid_reading_member(trace, "path") == NULL || grid_reading_member(trace, "secret_path") == NULL) {
        grid_reading_refuse(r, "trace_keys", "path and secret_path are both needed");
    }
}

static void read_root(struct grid_reading *r, json_t *root)
{
    struct grid_gateway *out = r->out;
    uint64_t concurrency = 0;
    grid_reading_only(r, root, "");
    read_address(r, root, "listen", &out->listen);
    read_address(r, root, "admin", &out->admin);
    read_address(r, root, "ops", &out->ops);
    read_words(r, root);
    grid_config_edge_read(r, root);
    grid_reading_number(r, root, "max_body_bytes", &out->max_body_bytes);
    grid_reading_number(r, root, "failover_max_body_bytes", &out->failover_max_body_bytes);
    grid_reading_number(r, root, "max_heap_bytes", &out->max_heap_bytes);
    grid_reading_number(r, root, "max_connections", &out->max_connections);
    grid_reading_number(r, root, "concurrency", &concurrency);
    out->concurrency = (unsigned)concurrency;
    read_timeouts(r, root);
    read_trace_keys(r, root);
    read_site_route(r, root);
    read_serving(r, root);
    grid_config_edge_check(r, root);
    grid_config_check_gateway(r);
}

bool grid_config_load(const char *path, const struct grid_kept *kept, struct grid_gateway *out,
                      struct grid_report *report)
{
    static const struct grid_kept nothing = {0};
    kept = kept != NULL ? kept : &nothing;
    *out = (struct grid_gateway){.max_body_bytes = 0};
    struct grid_yaml yaml = {0};
    json_t *root = NULL;
    snprintf(out->file.path, sizeof out->file.path, "%s", path);
    if (take_text(&out->file, kept->file, report) && take_yaml(&out->file, &yaml, report)) {
        json_error_t error; /* numbers as fractions: 1.0e+06 is then a whole number like any other */
        root = json_loadb(yaml.json, yaml.len,
                          JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &error);
        struct grid_reading r = {.yaml = &yaml, .file = path, .report = report, .out = out, .kept = kept};
        if (root == NULL) {
            size_t at = error.position > 0 ? (size_t)error.position - 1 : 0;
            grid_report_add(report, path, grid_yaml_line(&yaml, at), "syntax", "%s", error.text);
        } else if (!json_is_object(root)) {
            grid_report_add(report, path, 1, "document", "must be a mapping of fields");
        } else {
            read_root(&r, root);
        }
    }
    json_decref(root);
    grid_yaml_done(&yaml);
    if (report->count > 0) {
        grid_gateway_done(out);
        return false;
    }
    return true;
}

unsigned grid_config_line(const struct grid_source *file, const char *field)
{
    struct grid_yaml yaml;
    struct grid_str value;
    char error[256];
    unsigned line = 1;
    if (!grid_yaml_to_json((struct grid_str){file->text, file->len}, file->path, &yaml, error, sizeof error)) {
        return line;
    }
    if (grid_yaml_find(&yaml, field, &value)) {
        line = grid_yaml_line(&yaml, (size_t)(value.ptr - yaml.json));
    }
    grid_yaml_done(&yaml);
    return line;
}

void grid_gateway_done(struct grid_gateway *gateway)
{
    free(gateway->file.text);
    free(gateway->serving_file.text);
    grid_config_edge_done(gateway);
    grid_materials_done(&gateway->materials);
    grid_serving_free(gateway->serving);
    *gateway = (struct grid_gateway){0};
}
