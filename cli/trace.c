/*
 * trace.c - arrivals read from JSON Lines, and what every trace can tell about itself
 *
 * Story     A line is one request. Its prompt is given in one of three ways: `hash_ids` (Mooncake: one id for each 512
 *           tokens), `keys` (a recorded key stream: one value for each 256 bytes), or `body` (an OpenAI or Anthropic
 *           body, keyed here by the core, then forgotten). Fields that are not named here are passed over.
 * Promise   A refusal names line and field. No text of a body gets into it.
 * Not here  Generators (trace_make.c).
 */
#include "trace.h"

#include "query.h"
#include "set.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define US_A_MS 1000.0
#define MAX_TIMESTAMP_MS 1e13 /* also milliseconds since 1970 */
#define DEFAULT_OUTPUT_TOKENS 256
#define BYTES_A_TOKEN 4

struct reader {
    struct grid_trace *trace;
    const char *path;
    size_t line, ids; /* ids: of the line at hand, as they lie in the pool */
    struct grid_router *router;
    char *error;
    size_t error_size;
};

uint64_t grid_trace_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15ull + b + 0x632be59bd9b4e019ull; /* splitmix64, twice */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Room for one more item. */
static bool grow(void **items, size_t *cap, size_t n, size_t size)
{
    if (n < *cap)
        return true;
    size_t more = *cap ? *cap * 2 : 1024;
    void *moved = realloc(*items, more * size);
    if (!moved)
        return false;
    *items = moved;
    *cap = more;
    return true;
}

bool grid_trace_add(struct grid_trace *trace, const struct grid_trace_request *request)
{
    if (!grow((void **)&trace->requests, &trace->cap, trace->n, sizeof *trace->requests))
        return false;
    trace->requests[trace->n++] = *request;
    if (request->n_units > trace->most_units)
        trace->most_units = request->n_units;
    return true;
}

static bool add_id(struct grid_trace *trace, uint64_t id)
{
    if (!grow((void **)&trace->pool, &trace->cap_pool, trace->n_pool, sizeof *trace->pool))
        return false;
    trace->pool[trace->n_pool++] = id;
    return true;
}

void grid_trace_done(struct grid_trace *trace)
{
    free(trace->requests);
    free(trace->pool);
    *trace = (struct grid_trace){0};
}

/* ---- one line ---------------------------------------------------------------------------------------------------- */

static bool refuse(struct reader *reader, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool refuse(struct reader *reader, const char *field, const char *format, ...)
{
    char why[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    (void)snprintf(reader->error, reader->error_size, "%s:%zu: %s%s%s", reader->path, reader->line, field,
                   *field ? ": " : "", why);
    return false;
}

static bool number(struct reader *reader, json_t *line, const char *name, double least, double most, double *value)
{
    json_t *given = json_object_get(line, name);
    if (!given)
        return true;
    if (!json_is_number(given))
        return refuse(reader, name, "is not a number");
    *value = json_number_value(given);
    if (!(*value >= least && *value <= most))
        return refuse(reader, name, "is %.17g: it must be from %.17g to %.17g", *value, least, most);
    return true;
}

static bool read_hash_ids(struct reader *reader, json_t *ids, struct grid_trace_request *request)
{
    uint64_t chain = 0;
    request->unit_tokens = GRID_TRACE_LONG_UNIT_TOKENS;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id))
            return refuse(reader, "hash_ids", "entry %zu is not a whole number", i);
        chain = grid_trace_mix(chain, (uint64_t)json_integer_value(id)); /* equal only behind equal heads */
        if (!add_id(reader->trace, chain))
            return refuse(reader, "", "out of memory");
    }
    size_t want = ((size_t)request->input_tokens + request->unit_tokens - 1) / request->unit_tokens;
    if (json_array_size(ids) != want)
        return refuse(reader, "hash_ids", "has %zu entries; input_length %u makes %zu", json_array_size(ids),
                      request->input_tokens, want);
    return true;
}

static bool read_key(const char *text, uint64_t *out_key)
{
    *out_key = 0;
    for (size_t i = 0; i < 16; i++) {
        const char *digits = "0123456789abcdef", *at = text[i] ? strchr(digits, text[i]) : NULL;
        if (!at)
            return false;
        *out_key = *out_key << 4 | (uint64_t)(at - digits);
    }
    return text[16] == '\0';
}

static bool read_keys(struct reader *reader, json_t *keys)
{
    if (json_array_size(keys) > GRID_MAX_KEYS)
        return refuse(reader, "keys", "has %zu entries, at most %u", json_array_size(keys), GRID_MAX_KEYS);
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const char *text = json_string_value(json_array_get(keys, i));
        uint64_t key;
        if (!text || !read_key(text, &key))
            return refuse(reader, "keys", "entry %zu is not 16 lower-case hex digits", i);
        if (!add_id(reader->trace, key))
            return refuse(reader, "", "out of memory");
    }
    return true;
}

/* The body as text, whether it is given as text or as an object. */
static char *body_text(json_t *body, size_t *out_len)
{
    char *text = json_is_string(body) ? strdup(json_string_value(body)) : json_dumps(body, JSON_COMPACT);
    *out_len = text ? strlen(text) : 0;
    return text;
}

static bool read_body(struct reader *reader, json_t *line, json_t *body, struct grid_trace_request *request)
{
    const char *path = json_string_value(json_object_get(line, "path"));
    struct grid_ticket *ticket;
    size_t n = 0, len;
    if (json_object_get(line, "path") && !path)
        return refuse(reader, "path", "is not text");
    char *text = body_text(body, &len);
    struct grid_query query = {.method = grid_query_str("POST"),
                               .path = grid_query_str(path ? path : "/v1/chat/completions"),
                               .has_body = true,
                               .body = {text, len}};
    if (!text || grid_query_ticket(reader->router, &query, &ticket) != GRID_OK) {
        free(text);
        return refuse(reader, "", "out of memory");
    }
    free(text);
    const uint64_t *keys = grid_ticket_keys(ticket, &n);
    bool kept = true;
    for (size_t i = 0; i < n && kept; i++)
        kept = add_id(reader->trace, keys[i]);
    grid_ticket_free(ticket);
    if (request->input_tokens == 0)
        request->input_tokens = (uint32_t)fmin((double)len / BYTES_A_TOKEN + 1, GRID_TRACE_MAX_TOKENS);
    return kept || refuse(reader, "", "out of memory");
}

static bool read_prompt(struct reader *reader, json_t *line, struct grid_trace_request *request)
{
    json_t *ids = json_object_get(line, "hash_ids"), *keys = json_object_get(line, "keys");
    json_t *body = json_object_get(line, "body");
    if (!ids + !keys + !body != 2)
        return refuse(reader, "", "needs exactly one of hash_ids, keys and body");
    if (ids && !json_is_array(ids))
        return refuse(reader, "hash_ids", "is not a list");
    if (keys && !json_is_array(keys))
        return refuse(reader, "keys", "is not a list");
    if (body && !json_is_string(body) && !json_is_object(body))
        return refuse(reader, "body", "is neither an object nor text");
    if (ids && request->input_tokens == 0)
        return refuse(reader, "input_length", "is missing");
    if (ids)
        return read_hash_ids(reader, ids, request);
    return keys ? read_keys(reader, keys) : read_body(reader, line, body, request);
}

static bool read_request(struct reader *reader, json_t *line)
{
    struct grid_trace_request request = {.unit_tokens = GRID_TOKENS_A_BLOCK, .first = reader->trace->n_pool};
    double at_ms = NAN, input = 0, output = DEFAULT_OUTPUT_TOKENS;
    if (!json_is_object(line))
        return refuse(reader, "", "is not an object");
    if (!number(reader, line, "timestamp", 0, MAX_TIMESTAMP_MS, &at_ms) ||
        !number(reader, line, "input_length", 1, GRID_TRACE_MAX_TOKENS, &input) ||
        !number(reader, line, "output_length", 0, GRID_TRACE_MAX_TOKENS, &output))
        return false;
    if (isnan(at_ms))
        return refuse(reader, "timestamp", "is missing");
    request.at_us = (uint64_t)(at_ms * US_A_MS);
    request.input_tokens = (uint32_t)input;
    request.output_tokens = (uint32_t)output;
    if (!read_prompt(reader, line, &request))
        return false;
    request.n_units = (uint32_t)(reader->trace->n_pool - request.first);
    uint32_t covered = request.unit_tokens == GRID_TOKENS_A_BLOCK ? request.n_units * request.unit_tokens : 1;
    if (request.input_tokens < covered)
        request.input_tokens = covered;
    return grid_trace_add(reader->trace, &request) || refuse(reader, "", "out of memory");
}

static bool read_lines(struct reader *reader, FILE *file, size_t limit)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    bool good = true;
    while (good && (limit == 0 || reader->trace->n < limit) && (len = getline(&line, &cap, file)) >= 0) {
        json_error_t why;
        reader->line++;
        if (strspn(line, " \t\r\n") == (size_t)len)
            continue;
        json_t *value = json_loadb(line, (size_t)len, 0, &why);
        good = value ? read_request(reader, value) : refuse(reader, "", "is not JSON (column %d)", why.column);
        json_decref(value);
    }
    free(line);
    if (good && ferror(file))
        good = refuse(reader, "", "cannot be read on");
    if (good && reader->trace->n == 0)
        good = refuse(reader, "", "no request in it");
    return good;
}

bool grid_trace_read(const char *path, size_t limit, struct grid_trace *out, char *error, size_t error_size)
{
    bool standard = strcmp(path, "-") == 0;
    *out = (struct grid_trace){0};
    struct reader reader = {
        .trace = out, .path = standard ? "standard input" : path, .error = error, .error_size = error_size};
    FILE *file = standard ? stdin : fopen(path, "r");
    if (!file) {
        (void)snprintf(error, error_size, "%s: %s", path, strerror(errno));
        return false;
    }
    bool good = grid_query_router(0, &reader.router) == GRID_OK || refuse(&reader, "", "out of memory");
    good = good && read_lines(&reader, file, limit);
    grid_router_free(reader.router);
    if (!standard)
        (void)fclose(file);
    if (good)
        grid_trace_sort(out);
    return good;
}

/* ---- what a trace tells ------------------------------------------------------------------------------------------ */

/* Merges two sorted stretches; stable. */
static void merge(struct grid_trace_request *items, size_t half, size_t n, struct grid_trace_request *scratch)
{
    size_t left = 0, right = half, at = 0;
    while (left < half && right < n)
        scratch[at++] = items[right].at_us < items[left].at_us ? items[right++] : items[left++];
    memcpy(scratch + at, items + left, (half - left) * sizeof *items);
    at += half - left;
    memcpy(items, scratch, at * sizeof *items);
}

static void sort(struct grid_trace_request *items, size_t n, struct grid_trace_request *scratch)
{
    if (n < 2)
        return;
    sort(items, n / 2, scratch);
    sort(items + n / 2, n - n / 2, scratch);
    merge(items, n / 2, n, scratch);
}

void grid_trace_sort(struct grid_trace *trace)
{
    bool sorted = true;
    for (size_t i = 1; i < trace->n && sorted; i++)
        sorted = trace->requests[i - 1].at_us <= trace->requests[i].at_us;
    struct grid_trace_request *scratch = sorted ? NULL : malloc(trace->n * sizeof *scratch);
    if (scratch)
        sort(trace->requests, trace->n, scratch);
    free(scratch);
}

void grid_trace_units(const struct grid_trace *trace, const struct grid_trace_request *request, uint64_t *out_units)
{
    if (!request->made && request->n_units)
        memcpy(out_units, trace->pool + request->first, request->n_units * sizeof *out_units);
    for (uint32_t i = 0; request->made && i < request->n_units; i++)
        out_units[i] = grid_trace_mix(i < request->head ? request->first : request->own, i);
}

size_t grid_trace_keys(const struct grid_trace_request *request, const uint64_t *units, uint64_t keys[GRID_MAX_KEYS])
{
    uint32_t in_unit = request->unit_tokens / GRID_TOKENS_A_BLOCK;
    size_t n = request->input_tokens / GRID_TOKENS_A_BLOCK; /* whole blocks only, as in life */
    if (n > (size_t)request->n_units * in_unit)
        n = (size_t)request->n_units * in_unit;
    if (n > GRID_MAX_KEYS)
        n = GRID_MAX_KEYS;
    for (size_t i = 0; i < n; i++)
        keys[i] = in_unit == 1 ? units[i] : grid_trace_mix(units[i / in_unit], i % in_unit);
    return n;
}

bool grid_trace_sum(const struct grid_trace *trace, struct grid_trace_sums *out)
{
    *out = (struct grid_trace_sums){0};
    uint64_t *units = malloc((trace->most_units + (size_t)1) * sizeof *units);
    struct grid_set seen = {0};
    bool good = units != NULL;
    for (size_t i = 0; good && i < trace->n; i++) {
        const struct grid_trace_request *request = &trace->requests[i];
        uint64_t tokens = 0;
        bool hit = true;
        grid_trace_units(trace, request, units);
        for (uint32_t u = 0; good && u < request->n_units; u++) {
            bool had = false;
            good = grid_set_add(&seen, units[u], &had);
            hit = hit && had;
            if (hit)
                tokens += request->unit_tokens;
        }
        out->input_tokens += request->input_tokens;
        out->output_tokens += request->output_tokens;
        out->ideal_hit_tokens += tokens < request->input_tokens ? tokens : request->input_tokens - 1;
    }
    grid_set_done(&seen);
    free(units);
    if (trace->n)
        out->seconds = (double)(trace->requests[trace->n - 1].at_us - trace->requests[0].at_us) / 1e6;
    return good;
}
