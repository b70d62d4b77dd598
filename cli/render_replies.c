/*
 * render_replies.c - Envoy's own answers as JSON
 *
 * Story     Most failures pass our HTTP filter on their way out and get their body there. A few never do: what Envoy's
 *           codecs refuse before a filter exists, an upgrade, a site that breaks while its answer is held back. The
 *           mappers here give those the same bodies (behaviour.md O.41).
 * Promise   An answer that the module made (its details start with "grid") is never touched.
 */
#include "cli/render.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGES_PATH "/v1/messages"
#define RESPONSES_PATH "/v1/responses"

/* The filter of a mapper is a list of these, all of which must hold. */
static json_t *if_status(int status)
{
    return json_pack("{s:{s:{s:s, s:{s:i, s:s}}}}", "status_code_filter", "comparison", "op", "EQ", "value",
                     "default_value", status, "runtime_key", "grid.unused");
}

static json_t *if_path(const char *prefix)
{
    return json_pack("{s:{s:{s:s, s:{s:s}}}}", "header_filter", "header", "name", ":path", "string_match", "prefix",
                     prefix);
}

static json_t *if_details(const char *expression)
{
    return json_pack("{s:{s:s, s:{s:s, s:s}}}", "extension_filter", "name",
                     "envoy.access_loggers.extension_filters.cel", "typed_config", "@type",
                     "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
                     "expression", expression);
}

static json_t *if_not_ours(void)
{
    return if_details("!response.code_details.startsWith('grid')");
}

/* What the overload manager refuses has no flag, only the word. */
static json_t *if_overloaded(void)
{
    return json_pack("{s:{s:[{s:{s:[s, s]}}, o]}}", "or_filter", "filters", "response_flag_filter", "flags", "UO", "OM",
                     if_details("response.code_details == 'overload'"));
}

static json_t *if_upgrade(void)
{
    return if_details("response.code_details == 'upgrade_failed'");
}

/* A percent sign in a format is a command of Envoy's. */
static void put_escaped(struct grid_buf *out, struct grid_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        grid_buf_put(out, &text.ptr[i], 1);
        if (text.ptr[i] == '%') {
            grid_buf_put(out, "%", 1);
        }
    }
}

static json_t *mapper(json_t *conditions, struct grid_str body, int new_status, const char *retry_after)
{
    struct grid_buf text = {.limit = 4096};
    put_escaped(&text, body);
    grid_buf_put(&text, "", 1);
    json_t *format = json_pack("{s:{s:s}, s:s}", "text_format_source", "inline_string", text.failed ? "" : text.ptr,
                               "content_type", "application/json");
    grid_buf_done(&text);
    json_t *out =
        json_pack("{s:{s:{s:o}}, s:o}", "filter", "and_filter", "filters", conditions, "body_format_override", format);
    if (new_status != 0) {
        json_object_set_new(out, "status_code", json_integer(new_status));
    }
    if (retry_after != NULL) {
        json_object_set_new(out, "headers_to_add",
                            json_pack("[{s:{s:s, s:s}, s:s}]", "header", "key", "retry-after", "value", retry_after,
                                      "append_action", "OVERWRITE_IF_EXISTS_OR_ADD"));
    }
    return out;
}

static const char *anthropic_type(int status)
{
    switch (status) {
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 503:
        return "overloaded_error";
    default:
        return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

/* The same message in Anthropic's form. */
static json_t *mapper_messages(json_t *conditions, int status, struct grid_str openai, const char *retry_after)
{
    json_error_t error;
    json_t *body = json_loadb(openai.ptr, openai.len, 0, &error);
    json_t *message = json_object_get(json_object_get(body, "error"), "message");
    json_t *made =
        json_pack("{s:s, s:{s:s, s:O}}", "type", "error", "error", "type", anthropic_type(status), "message", message);
    char *text = made != NULL ? json_dumps(made, JSON_COMPACT) : NULL;
    json_t *out = text != NULL ? mapper(conditions, (struct grid_str){text, strlen(text)}, 0, retry_after) : NULL;
    free(text);
    json_decref(made);
    json_decref(body);
    return out;
}

static void add_status(json_t *mappers, int status, bool overloaded)
{
    struct grid_reply reply;
    grid_failure_reply(NULL, status, overloaded, &reply);
    const char *retry_after = status == 503 ? "5" : NULL;
    for (int messages = 1; messages >= 0; messages--) {
        json_t *conditions = json_pack("[o, o]", if_status(status), if_not_ours());
        if (overloaded) {
            json_array_append_new(conditions, if_overloaded());
        }
        if (messages) {
            json_array_append_new(conditions, if_path(MESSAGES_PATH));
            json_array_append_new(mappers, mapper_messages(conditions, status, reply.body, retry_after));
        } else {
            json_array_append_new(mappers, mapper(conditions, reply.body, 0, retry_after));
        }
    }
}

static void add_upgrades(json_t *mappers)
{
    static const char text[] = "{\"error\":{\"message\":\"This gateway does not upgrade connections.\","
                               "\"type\":\"invalid_request_error\",\"code\":\"unsupported_upgrade\"}}";
    struct grid_str body = {text, sizeof text - 1};
    json_t *conditions = json_pack("[o, o]", if_upgrade(), if_path(RESPONSES_PATH));
    json_array_append_new(mappers, mapper(conditions, body, 426, NULL));
    conditions = json_pack("[o, o]", if_upgrade(), if_path(MESSAGES_PATH));
    json_array_append_new(mappers, mapper_messages(conditions, 400, body, NULL));
    json_object_set_new(json_array_get(mappers, 1), "status_code", json_integer(400));
    conditions = json_pack("[o, o]", if_upgrade(), if_status(403));
    json_array_append_new(mappers, mapper(conditions, body, 400, NULL));
}

json_t *grid_render_local_replies(void)
{
    static const int statuses[] = {400, 404, 408, 413, 431, 500, 502, 503, 504};
    json_t *mappers = json_array();
    add_upgrades(mappers);
    add_status(mappers, 503, true);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        add_status(mappers, statuses[i], false);
    }
    return json_pack("{s:o}", "mappers", mappers);
}
