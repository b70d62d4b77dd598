/*
 * query.c - one request as the command knows it, and how its facts are printed
 *
 * Story     See query.h. The body is handed over even when the core would let it stream past unread: what is asked
 *           here is what the keys are, not what a proxy may skip.
 */
#include "query.h"

#include "files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct grid_str grid_query_str(const char *text)
{
    return (struct grid_str){text, strlen(text)};
}

bool grid_query_read(const char *path, char **out_text, size_t *out_len, char *error, size_t error_size)
{
    /* well over what a gateway reads: a body that is too large is a case to look at, too */
    const size_t limit = (size_t)GRID_DEFAULT_MAX_BODY_BYTES * 4;

    return grid_files_read_input(strcmp(path, "-") == 0 ? "/dev/stdin" : path, limit, out_text, out_len, error,
                                 error_size);
}

/* ---- tickets ------------------------------------------------------------------------------------------------- */

static bool name_is(struct grid_str name, const char *text)
{
    return name.len == strlen(text) && memcmp(name.ptr, text, name.len) == 0;
}

/* Is `token` one of the comma separated words of a header value? */
static bool has_token(struct grid_str value, const char *token)
{
    size_t want = strlen(token);

    for (size_t at = 0; at < value.len;) {
        size_t end = at;
        while (end < value.len && value.ptr[end] != ',') {
            end++;
        }
        size_t first = at, last = end;
        while (first < last && (value.ptr[first] == ' ' || value.ptr[first] == '\t')) {
            first++;
        }
        while (last > first && (value.ptr[last - 1] == ' ' || value.ptr[last - 1] == '\t')) {
            last--;
        }
        if (last - first == want && strncasecmp(value.ptr + first, token, want) == 0) {
            return true;
        }
        at = end + 1;
    }
    return false;
}

/* The proxy takes a request for an upgrade when both headers say so. */
static bool is_upgrade(const struct grid_query *query)
{
    bool upgrade = false, connection = false;

    for (size_t i = 0; i < query->n_headers; i++) {
        upgrade |= name_is(query->headers[i].name, "upgrade");
        connection |= name_is(query->headers[i].name, "connection") && has_token(query->headers[i].value, "upgrade");
    }
    return upgrade && connection;
}

static enum grid_status hand_body(struct grid_ticket *ticket, const struct grid_query *query)
{
    uint64_t max = grid_ticket_max_body(ticket);
    bool cut = query->body.len > max;
    struct grid_str body = {query->body.ptr, cut ? (size_t)max : query->body.len};
    size_t piece = query->piece_bytes != 0 && query->piece_bytes < body.len ? query->piece_bytes : body.len;

    if (body.len == 0 || piece == body.len) {
        grid_ticket_body(ticket, &body, body.len != 0, cut);
        return GRID_OK;
    }
    size_t n = body.len / piece + (body.len % piece != 0);
    struct grid_str *slices = calloc(n, sizeof *slices);
    if (slices == NULL) {
        return GRID_E_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        size_t left = body.len - i * piece;
        slices[i] = (struct grid_str){body.ptr + i * piece, left < piece ? left : piece};
    }
    grid_ticket_body(ticket, slices, n, cut);
    free(slices);
    return GRID_OK;
}

enum grid_status grid_query_ticket(struct grid_router *router, const struct grid_query *query,
                                   struct grid_ticket **out_ticket)
{
    struct grid_head head = {
        .method = query->method,
        .path = query->path,
        .headers = query->headers,
        .n_headers = query->n_headers,
        .upgrade = is_upgrade(query),
        .no_body = !query->has_body,
    };
    struct grid_ticket *ticket;
    enum grid_status status = grid_ticket_new(router, &head, &ticket);

    if (status != GRID_OK) {
        return status;
    }
    if (query->has_body) {
        status = hand_body(ticket, query);
    }
    if (status != GRID_OK) {
        grid_ticket_free(ticket);
        return status;
    }
    *out_ticket = ticket;
    return GRID_OK;
}

enum grid_status grid_query_router(uint64_t seed, struct grid_router **out_router)
{
    static const char plugin[] = "{}";
    static const char serving[] = "{\"local_site\":\"local\",\"window_secs\":60,\"load_window_ms\":30000,"
                                  "\"candidates\":[],\"peers\":[]}";
    struct grid_options options = {.hash_seed = seed, .dice_seed = seed};
    struct grid_load load = {.plugin = grid_query_str(plugin), .serving = grid_query_str(serving)};
    struct grid_errors errors = {0};
    struct grid_router *router;
    int text;
    enum grid_status status = grid_router_new(&options, &router);

    if (status != GRID_OK) {
        return status;
    }
    status = grid_router_load(router, &load, 0, &errors, &text);
    if (status != GRID_OK) {
        grid_router_free(router);
        return status;
    }
    *out_router = router;
    return GRID_OK;
}

/* ---- JSON out ------------------------------------------------------------------------------------------------ */

static bool same_name(const struct grid_header *a, const struct grid_header *b)
{
    return a->name.len == b->name.len && memcmp(a->name.ptr, b->name.ptr, a->name.len) == 0;
}

/* A name that comes once has its value, a name that comes again the list of them. */
void grid_query_put_headers(struct grid_buf *out, const struct grid_header *headers, size_t n)
{
    const char *comma = "";

    grid_buf_puts(out, "{");
    for (size_t i = 0; i < n; i++) {
        bool seen = false, again = false;
        for (size_t k = 0; k < n; k++) {
            seen |= k < i && same_name(&headers[i], &headers[k]);
            again |= k > i && same_name(&headers[i], &headers[k]);
        }
        if (seen) {
            continue;
        }
        grid_buf_puts(out, comma);
        comma = ",";
        grid_buf_json(out, headers[i].name);
        grid_buf_puts(out, again ? ":[" : ":");
        grid_buf_json(out, headers[i].value);
        for (size_t k = i + 1; again && k < n; k++) {
            if (same_name(&headers[i], &headers[k])) {
                grid_buf_puts(out, ",");
                grid_buf_json(out, headers[k].value);
            }
        }
        grid_buf_puts(out, again ? "]" : "");
    }
    grid_buf_puts(out, "}");
}

void grid_query_put_keys(struct grid_buf *out, const uint64_t *keys, size_t n)
{
    grid_buf_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        grid_buf_printf(out, "%s\"%016" PRIx64 "\"", i != 0 ? "," : "", keys[i]);
    }
    grid_buf_puts(out, "]");
}

/* ---- base64 -------------------------------------------------------------------------------------------------- */

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void grid_query_put_base64(struct grid_buf *out, struct grid_str bytes)
{
    char text[4 * 1024];
    size_t used = 0;

    grid_buf_puts(out, "\"");
    for (size_t at = 0; at < bytes.len; at += 3) {
        size_t n = bytes.len - at < 3 ? bytes.len - at : 3;
        unsigned a = (unsigned char)bytes.ptr[at];
        unsigned b = n > 1 ? (unsigned char)bytes.ptr[at + 1] : 0;
        unsigned c = n > 2 ? (unsigned char)bytes.ptr[at + 2] : 0;
        text[used++] = digits64[a >> 2];
        text[used++] = digits64[(a & 3) << 4 | b >> 4];
        text[used++] = n > 1 ? digits64[(b & 15) << 2 | c >> 6] : '=';
        text[used++] = n > 2 ? digits64[c & 63] : '=';
        if (used == sizeof text) {
            grid_buf_put(out, text, used);
            used = 0;
        }
    }
    grid_buf_put(out, text, used);
    grid_buf_puts(out, "\"");
}

/* The value of each digit, -1 for any other byte. */
static void digit_values(signed char values[256])
{
    memset(values, -1, 256);
    for (int i = 0; i < 64; i++) {
        values[(unsigned char)digits64[i]] = (signed char)i;
    }
}

bool grid_query_from_base64(struct grid_str text, char **out_bytes, size_t *out_len)
{
    signed char values[256];
    size_t pad = 0, used = 0;
    unsigned long bits = 0;
    char *bytes = malloc(text.len / 4 * 3 + 1);

    digit_values(values);
    while (pad < 2 && pad < text.len && text.ptr[text.len - 1 - pad] == '=') {
        pad++;
    }
    bool right = bytes != NULL && text.len % 4 == 0;
    for (size_t i = 0; right && i < text.len - pad; i++) {
        int value = values[(unsigned char)text.ptr[i]];
        right = value >= 0;
        bits = (bits << 6 | ((unsigned long)value & 63)) & 0xffffff;
        if (i % 4 == 1) {
            bytes[used++] = (char)(unsigned char)(bits >> 4 & 0xff);
        } else if (i % 4 == 2) {
            bytes[used++] = (char)(unsigned char)(bits >> 2 & 0xff);
        } else if (i % 4 == 3) {
            bytes[used++] = (char)(unsigned char)(bits & 0xff);
        }
    }
    if (!right) {
        free(bytes);
        return false;
    }
    *out_bytes = bytes;
    *out_len = used;
    return true;
}
