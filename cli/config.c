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
#include "cli/yaml.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_MS (31.0 * 24 * 3600 * 1000) /* a month */
#define LARGEST_BODY (2.0 * 1024 * 1024 * 1024)
#define MOST_WORKERS 1024.0
#define LARGEST_EXACT 9007199254740992.0 /* 2^53 */
#define REPORT_LIMIT (1u << 20)
#define DEFAULT_LISTEN "0.0.0.0:8080"
#define DEFAULT_ADMIN "127.0.0.1:9901"
#define DEFAULT_OPS "127.0.0.1:9902"
#define DEFAULT_LOG_LEVEL "warning"
#define SERVING_VARIABLE "GRID_SERVING_CONFIG"

/* The document that is being read. */
struct reading {
    const struct grid_yaml *yaml;
    const char *file;
    struct grid_report *report;
    struct grid_gateway *out;
};

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

/* A refusal of the field at `path` in the gateway's file. */
static void refuse(struct reading *r, const char *path, const char *message)
{
    struct grid_str value;
    bool found = grid_yaml_find(r->yaml, path, &value);
    (void)found; /* what is missing is told at the line of its parent */
    unsigned line = grid_yaml_line(r->yaml, (size_t)(value.ptr - r->yaml->json));
    grid_report_add(r->report, r->file, line, path[0] != '\0' ? path : "document", "%s", message);
}

/* The core's refusals of a text that starts `base` bytes into the document. */
static void refuse_all(struct reading *r, size_t base, const char *prefix, const struct grid_errors *errors,
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

static json_t *member(json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

/* Refuses every member whose name is not in the NULL-closed list. */
static void only(struct reading *r, json_t *object, const char *prefix, const char *const *names)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        bool known = false;
        for (size_t i = 0; names[i] != NULL && !known; i++) {
            known = strcmp(names[i], key) == 0;
        }
        if (!known) {
            char path[256];
            snprintf(path, sizeof path, "%s%.200s", prefix, key);
            refuse(r, path, "unknown field");
        }
    }
}

static void read_number(struct reading *r, json_t *object, const char *path, double least, double most, uint64_t *out)
{
    const char *dot = strrchr(path, '.');
    json_t *value = member(object, dot != NULL ? dot + 1 : path);
    if (value == NULL) {
        return;
    }
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(number >= least && number <= most) || floor(number) != number) {
        char message[128];
        snprintf(message, sizeof message, "must be a whole number from %.0f to %.0f", least, most);
        refuse(r, path, message);
        return;
    }
    *out = (uint64_t)number;
}

/* NULL when the field is absent or, after a refusal, no text. */
static const char *read_text(struct reading *r, json_t *object, const char *path)
{
    const char *dot = strrchr(path, '.');
    json_t *value = member(object, dot != NULL ? dot + 1 : path);
    if (value == NULL) {
        return NULL;
    }
    if (!json_is_string(value) || json_string_length(value) == 0 ||
        strlen(json_string_value(value)) != json_string_length(value)) {
        refuse(r, path, "must be text and not empty");
        return NULL;
    }
    return json_string_value(value);
}

static void read_path(struct reading *r, json_t *object, const char *path, char *out)
{
    const char *text = read_text(r, object, path);
    char whole[GRID_PATH_BYTES];
    if (text != NULL &&
        !(grid_files_beside(r->file, text, whole, sizeof whole) && grid_files_absolute(whole, out, GRID_PATH_BYTES))) {
        refuse(r, path, "the path is too long");
    }
}

static void read_address(struct reading *r, json_t *root, const char *name, const char *fallback,
                         struct grid_address *out)
{
    if (json_is_number(member(root, name))) {
        refuse(r, name, "a port alone is not enough: must be ADDRESS:PORT, such as 127.0.0.1:8080");
        return;
    }
    const char *text = read_text(r, root, name);
    text = text != NULL ? text : fallback;
    struct grid_str whole = {text, strlen(text)};
    if (grid_address_parse(whole, true, false, out)) {
        return;
    }
    if (grid_address_parse(whole, true, true, out) && !out->is_unix) {
        char message[256];
        snprintf(message, sizeof message, "%s is not an IP address: must be ADDRESS:PORT, such as 127.0.0.1:%u",
                 out->host, out->port);
        refuse(r, name, message);
    } else {
        refuse(r, name, "must be ADDRESS:PORT with an IP address, [IPv6]:PORT, or unix:/path");
    }
    *out = (struct grid_address){0};
}

static void read_tls(struct reading *r, json_t *root)
{
    static const char *const names[] = {"cert_path", "key_path", "client_ca_path", NULL};
    struct grid_gateway *out = r->out;
    json_t *tls = member(root, "tls");
    if (tls == NULL) {
        return;
    }
    if (!json_is_object(tls)) {
        refuse(r, "tls", "must be a mapping of cert_path, key_path and client_ca_path");
        return;
    }
    only(r, tls, "tls.", names);
    read_path(r, tls, "tls.cert_path", out->cert_path);
    read_path(r, tls, "tls.key_path", out->key_path);
    read_path(r, tls, "tls.client_ca_path", out->client_ca_path);
    if (member(tls, "cert_path") == NULL || member(tls, "key_path") == NULL) {
        refuse(r, "tls", "cert_path and key_path are both needed");
    }
    out->tls = true;
    out->client_tls = out->client_ca_path[0] != '\0';
}

static void read_timeouts(struct reading *r, json_t *root)
{
    static const char *const names[] = {"connect_ms", "request_body_ms", "idle_ms", "total_ms", NULL};
    json_t *timeouts = member(root, "timeouts");
    if (timeouts == NULL) {
        return;
    }
    if (!json_is_object(timeouts)) {
        refuse(r, "timeouts", "must be a mapping of connect_ms, request_body_ms, idle_ms and total_ms");
        return;
    }
    only(r, timeouts, "timeouts.", names);
    read_number(r, timeouts, "timeouts.connect_ms", 1, LONGEST_MS, &r->out->connect_ms);
    read_number(r, timeouts, "timeouts.request_body_ms", 0, LONGEST_MS, &r->out->request_body_ms);
    read_number(r, timeouts, "timeouts.idle_ms", 0, LONGEST_MS, &r->out->idle_ms);
    read_number(r, timeouts, "timeouts.total_ms", 0, LONGEST_MS, &r->out->total_ms);
}

/* Envoy's own filters, passed on as they are: each needs a name and a configuration, the rest is Envoy's to judge. */
static void read_filters(struct reading *r, json_t *root)
{
    struct grid_str text;
    if (member(root, "http_filters_before") == NULL || !grid_yaml_find(r->yaml, "http_filters_before", &text)) {
        r->out->filters_before = json_array();
        return;
    }
    json_error_t error; /* read anew: the tree at hand has its whole numbers as fractions */
    r->out->filters_before = json_loadb(text.ptr, text.len, JSON_DECODE_ANY, &error);
    if (!json_is_array(r->out->filters_before)) {
        refuse(r, "http_filters_before", "must be a list of Envoy HTTP filters");
        return;
    }
    size_t i;
    json_t *filter;
    json_array_foreach(r->out->filters_before, i, filter)
    {
        char path[64];
        snprintf(path, sizeof path, "http_filters_before[%zu]", i);
        if (!json_is_string(json_object_get(filter, "name")) ||
            !json_is_object(json_object_get(filter, "typed_config"))) {
            refuse(r, path, "must be a mapping with name and typed_config");
        }
    }
}

static void read_words(struct reading *r, json_t *root)
{
    static const char *const levels[] = {"trace", "debug", "info", "warning", "error", "critical", "off", NULL};
    const char *role = read_text(r, root, "role");
    if (role != NULL && strcmp(role, "provider") == 0) {
        refuse(r, "role", "provider is not supported by this version");
    } else if (role != NULL && strcmp(role, "consumer") != 0) {
        refuse(r, "role", "must be consumer");
    }
    const char *level = read_text(r, root, "log_level");
    level = level != NULL ? level : DEFAULT_LOG_LEVEL;
    bool known = false;
    for (size_t i = 0; levels[i] != NULL && !known; i++) {
        known = strcmp(level, levels[i]) == 0;
    }
    if (known) {
        snprintf(r->out->log_level, sizeof r->out->log_level, "%s", level);
    } else {
        refuse(r, "log_level", "must be one of trace, debug, info, warning, error, critical, off");
    }
    json_t *log = member(root, "access_log");
    if (log != NULL && !json_is_boolean(log)) {
        refuse(r, "access_log", "must be true or false");
    }
    r->out->access_log = json_is_true(log);
}

static void read_site_route(struct reading *r, json_t *root)
{
    struct grid_str text;
    grid_settings_defaults(&r->out->settings);
    if (member(root, "grid_site_route") == NULL || !grid_yaml_find(r->yaml, "grid_site_route", &text)) {
        return;
    }
    struct grid_errors *errors = calloc(1, sizeof *errors);
    if (errors == NULL) {
        refuse(r, "grid_site_route", "out of memory");
        return;
    }
    enum grid_status status = grid_settings_parse(text, r->yaml->words, &r->out->settings, errors);
    if (status != GRID_OK) {
        refuse_all(r, (size_t)(text.ptr - r->yaml->json), "grid_site_route", errors, status);
    }
    free(errors);
}

static void parse_serving(struct reading *r, struct grid_str text, const char *prefix)
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
        grid_config_check_serving(r->out, r->yaml, r->file, prefix, r->report);
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

static void read_serving(struct reading *r, json_t *root, const struct grid_source *kept)
{
    const char *variable = getenv(SERVING_VARIABLE);
    const char *named = read_text(r, root, "serving_config_path");
    char *path = r->out->serving_file.path;
    struct grid_str text;
    variable = variable != NULL && *variable != '\0' ? variable : NULL;
    if (member(root, "serving") != NULL) {
        if (named != NULL || variable != NULL) {
            refuse(r, "serving",
                   named != NULL ? "given beside serving_config_path; one of the two is needed"
                                 : "given beside the variable " SERVING_VARIABLE "; one of the two is needed");
        } else if (grid_yaml_find(r->yaml, "serving", &text)) {
            parse_serving(r, text, "serving");
        }
        return;
    }
    if (named == NULL && variable == NULL) {
        refuse(r, "serving_config_path",
               "missing: name the serving config here or in the variable " SERVING_VARIABLE
               ", or write it in place under serving");
        return;
    }
    if (named != NULL && !grid_files_beside(r->file, named, path, GRID_PATH_BYTES)) {
        refuse(r, "serving_config_path", "the path is too long");
        return;
    }
    if (named != NULL && variable != NULL && !same_file(path, variable)) {
        refuse(r, "serving_config_path", "the variable " SERVING_VARIABLE " names another file");
        return;
    }
    if (named == NULL) {
        snprintf(path, GRID_PATH_BYTES, "%s", variable);
    }
    struct grid_yaml yaml;
    if (take_text(&r->out->serving_file, kept, r->report) && take_yaml(&r->out->serving_file, &yaml, r->report)) {
        struct reading inner = {.yaml = &yaml, .file = path, .report = r->report, .out = r->out};
        parse_serving(&inner, (struct grid_str){yaml.json, yaml.len}, "");
        grid_yaml_done(&yaml);
    }
}

static void read_root(struct reading *r, json_t *root, const struct grid_source *kept_serving)
{
    static const char *const names[] = {"listen",
                                        "admin",
                                        "ops",
                                        "role",
                                        "max_body_bytes",
                                        "max_heap_bytes",
                                        "tls",
                                        "max_connections",
                                        "timeouts",
                                        "http_filters_before",
                                        "grid_site_route",
                                        "serving",
                                        "serving_config_path",
                                        "concurrency",
                                        "log_level",
                                        "access_log",
                                        NULL};
    struct grid_gateway *out = r->out;
    uint64_t concurrency = 0;
    only(r, root, "", names);
    read_address(r, root, "listen", DEFAULT_LISTEN, &out->listen);
    read_address(r, root, "admin", DEFAULT_ADMIN, &out->admin);
    read_address(r, root, "ops", DEFAULT_OPS, &out->ops);
    read_words(r, root);
    read_tls(r, root);
    read_number(r, root, "max_body_bytes", 1, LARGEST_BODY, &out->max_body_bytes);
    read_number(r, root, "max_heap_bytes", 1, LARGEST_EXACT, &out->max_heap_bytes);
    read_number(r, root, "max_connections", 1, LARGEST_EXACT, &out->max_connections);
    read_number(r, root, "concurrency", 1, MOST_WORKERS, &concurrency);
    out->concurrency = (unsigned)concurrency;
    read_timeouts(r, root);
    read_filters(r, root);
    read_site_route(r, root);
    read_serving(r, root, kept_serving);
    grid_config_check_gateway(out, r->yaml, r->file, r->report);
}

bool grid_config_load(const char *path, const struct grid_source *kept_file, const struct grid_source *kept_serving,
                      struct grid_gateway *out, struct grid_report *report)
{
    *out = (struct grid_gateway){.max_body_bytes = GRID_DEFAULT_MAX_BODY_BYTES,
                                 .connect_ms = 1000,
                                 .request_body_ms = 60000,
                                 .idle_ms = 3600000};
    struct grid_yaml yaml = {0};
    json_t *root = NULL;
    snprintf(out->file.path, sizeof out->file.path, "%s", path);
    if (take_text(&out->file, kept_file, report) && take_yaml(&out->file, &yaml, report)) {
        json_error_t error; /* numbers as fractions: 1.0e+06 is then a whole number like any other */
        root = json_loadb(yaml.json, yaml.len,
                          JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &error);
        struct reading r = {.yaml = &yaml, .file = path, .report = report, .out = out};
        if (root == NULL) {
            size_t at = error.position > 0 ? (size_t)error.position - 1 : 0;
            grid_report_add(report, path, grid_yaml_line(&yaml, at), "syntax", "%s", error.text);
        } else if (!json_is_object(root)) {
            grid_report_add(report, path, 1, "document", "must be a mapping of fields");
        } else {
            read_root(&r, root, kept_serving);
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
    json_decref(gateway->filters_before);
    grid_serving_free(gateway->serving);
    *gateway = (struct grid_gateway){0};
}
