/*
 * reply.c - answers that the gateway makes itself
 *
 * All texts are constants of the table, so no answer needs memory or escaping: both shapes are put together by the
 * compiler.
 */
#include "reply.h"

struct row {
    int status;
    const char *code, *retry_after;
    struct grid_str openai, anthropic;
};

#define OPENAI(type, code, param, message)                                                                             \
    "{\"error\":{\"message\":\"" message "\",\"type\":\"" type "\"" param ",\"code\":\"" code "\"}}"
#define ANTHROPIC(type, message) "{\"type\":\"error\",\"error\":{\"type\":\"" type "\",\"message\":\"" message "\"}}"

static const struct row rows[] = {
#define ROW(id, status, type, code, param, anthropic, retry, message)                                                  \
    {status, code, retry, GRID_LIT(OPENAI(type, code, param, message)), GRID_LIT(ANTHROPIC(anthropic, message))},
    GRID_REPLIES(ROW)
#undef ROW
};

static void add_header(struct grid_reply *reply, struct grid_str name, struct grid_str value)
{
    reply->headers[reply->n_headers++] = (struct grid_header){name, value};
}

void grid_reply_make(enum grid_reply_kind kind, enum grid_api api, struct grid_reply *out_reply)
{
    const struct row *row = &rows[kind];
    struct grid_reply reply = {.status = row->status, .code = row->code};
    reply.body = api == GRID_API_MESSAGES ? row->anthropic : row->openai;
    add_header(&reply, GRID_LIT("content-type"), GRID_LIT("application/json"));
    if (row->retry_after[0])
        add_header(&reply, GRID_LIT("retry-after"), grid_str_of(row->retry_after));
    if (kind == GRID_REPLY_METHOD_NOT_ALLOWED)
        add_header(&reply, GRID_LIT("allow"), GRID_LIT("GET, HEAD, POST, DELETE"));
    *out_reply = reply;
}

void grid_reply_json(struct grid_str body, struct grid_reply *out_reply)
{
    struct grid_reply reply = {.status = 200, .code = "ok", .body = body};
    add_header(&reply, GRID_LIT("content-type"), GRID_LIT("application/json"));
    *out_reply = reply;
}

enum grid_reply_kind grid_reply_kind_of(int status, bool overloaded)
{
    switch (status) {
    case 400:
        return GRID_REPLY_BAD_REQUEST;
    case 404:
        return GRID_REPLY_NOT_FOUND;
    case 408:
        return GRID_REPLY_REQUEST_TIMEOUT;
    case 413:
        return GRID_REPLY_BODY_TOO_LARGE;
    case 431:
        return GRID_REPLY_HEADERS_TOO_LARGE;
    case 502:
        return GRID_REPLY_UPSTREAM_UNAVAILABLE;
    case 503:
        return overloaded ? GRID_REPLY_OVERLOADED : GRID_REPLY_UNAVAILABLE;
    case 504:
        return GRID_REPLY_UPSTREAM_TIMEOUT;
    default:
        return GRID_REPLY_INTERNAL;
    }
}
