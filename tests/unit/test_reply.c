/*
 * test_reply.c - answers made here: each parses, in the shape of the API that was asked (behaviour.md L, O.41)
 */
#include "unit.h"

#include <jansson.h>

#include "reply.h"

static const struct {
    const char *type, *code, *anthropic, *retry;
    int status;
} table[] = {
#define ROW(id, status, type, code, param, anthropic, retry, message) {type, code, anthropic, retry, status},
    GRID_REPLIES(ROW)
#undef ROW
};

static json_t *parsed(const struct grid_reply *reply)
{
    json_error_t error;
    json_t *root = json_loadb(reply->body.ptr, reply->body.len, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        print_message("%s: %.*s\n", error.text, GRID_FMT(reply->body));
    assert_non_null(root);
    return root;
}

static void expect_member(const json_t *object, const char *name, const char *value)
{
    const char *text = json_string_value(json_object_get(object, name));
    assert_non_null(text);
    assert_string_equal(text, value);
}

static const struct grid_header *find(const struct grid_reply *reply, const char *name)
{
    for (size_t i = 0; i < reply->n_headers; i++)
        if (grid_str_eq(reply->headers[i].name, grid_str_of(name)))
            return &reply->headers[i];
    return NULL;
}

static void expect_header(const struct grid_reply *reply, const char *name, const char *value)
{
    const struct grid_header *header = find(reply, name);
    if (!value[0]) {
        assert_null(header);
        return;
    }
    assert_non_null(header);
    assert_true(grid_str_eq(header->value, grid_str_of(value)));
}

static void test_openai_shape(void **state)
{
    (void)state;
    static const enum grid_api apis[] = {GRID_API_NONE, GRID_API_CHAT, GRID_API_COMPLETIONS, GRID_API_RESPONSES};
    for (size_t kind = 0; kind < GRID_N_REPLIES; kind++) {
        for (size_t i = 0; i < COUNT(apis); i++) {
            struct grid_reply reply;
            grid_reply_make((enum grid_reply_kind)kind, apis[i], &reply);
            json_t *root = parsed(&reply), *error = json_object_get(root, "error");
            assert_int_equal(json_object_size(root), 1);
            expect_member(error, "type", table[kind].type);
            expect_member(error, "code", table[kind].code);
            assert_true(json_string_length(json_object_get(error, "message")) > 5);
            assert_int_equal(reply.status, table[kind].status);
            assert_string_equal(reply.code, table[kind].code);
            expect_header(&reply, "content-type", "application/json");
            expect_header(&reply, "retry-after", table[kind].retry);
            json_decref(root);
        }
    }
}

static void test_anthropic_shape(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < GRID_N_REPLIES; kind++) {
        struct grid_reply reply;
        grid_reply_make((enum grid_reply_kind)kind, GRID_API_MESSAGES, &reply);
        json_t *root = parsed(&reply), *error = json_object_get(root, "error");
        expect_member(root, "type", "error");
        assert_int_equal(json_object_size(root), 2);
        expect_member(error, "type", table[kind].anthropic);
        assert_true(json_string_length(json_object_get(error, "message")) > 5);
        assert_int_equal(json_object_size(error), 2);
        assert_int_equal(reply.status, table[kind].status);
        expect_header(&reply, "retry-after", table[kind].retry);
        json_decref(root);
    }
}

/* The rows that clients are promised, written again so that an edit of the table is noticed. */
static void test_what_clients_are_promised(void **state)
{
    (void)state;
    static const struct {
        enum grid_reply_kind kind;
        int status;
        const char *type, *code, *anthropic, *retry;
    } rows[] = {
        {GRID_REPLY_MODEL_REQUIRED, 400, "invalid_request_error", "model_required", "invalid_request_error", ""},
        {GRID_REPLY_MODEL_AMBIGUOUS, 400, "invalid_request_error", "model_ambiguous", "invalid_request_error", ""},
        {GRID_REPLY_MODEL_NOT_FOUND, 404, "invalid_request_error", "model_not_found", "not_found_error", ""},
        {GRID_REPLY_NO_ROUTE, 404, "invalid_request_error", "no_route", "not_found_error", ""},
        {GRID_REPLY_NO_HEALTHY_SITE, 503, "server_error", "no_healthy_site", "overloaded_error", "5"},
        {GRID_REPLY_STORED_NOT_FOUND, 404, "invalid_request_error", "not_found", "not_found_error", ""},
        {GRID_REPLY_PREVIOUS_NOT_FOUND, 404, "invalid_request_error", "previous_response_not_found", "not_found_error",
         ""},
        {GRID_REPLY_SITE_UNAVAILABLE, 503, "server_error", "site_unavailable", "overloaded_error", "5"},
        {GRID_REPLY_BODY_TOO_LARGE, 413, "invalid_request_error", "body_too_large", "request_too_large", ""},
        {GRID_REPLY_UPGRADE_RESPONSES, 426, "invalid_request_error", "unsupported_upgrade", "invalid_request_error",
         ""},
        {GRID_REPLY_UPGRADE, 400, "invalid_request_error", "unsupported_upgrade", "invalid_request_error", ""},
        {GRID_REPLY_UPSTREAM_UNAVAILABLE, 502, "server_error", "upstream_unavailable", "api_error", ""},
        {GRID_REPLY_UNAVAILABLE, 503, "server_error", "upstream_unavailable", "overloaded_error", "5"},
        {GRID_REPLY_OVERLOADED, 503, "server_error", "overloaded", "overloaded_error", "5"},
        {GRID_REPLY_UPSTREAM_TIMEOUT, 504, "server_error", "upstream_timeout", "api_error", ""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        enum grid_reply_kind kind = rows[i].kind;
        assert_int_equal(table[kind].status, rows[i].status);
        assert_string_equal(table[kind].type, rows[i].type);
        assert_string_equal(table[kind].code, rows[i].code);
        assert_string_equal(table[kind].anthropic, rows[i].anthropic);
        assert_string_equal(table[kind].retry, rows[i].retry);
    }
    assert_int_equal(table[GRID_REPLY_UNSUPPORTED_CODING].status, 415);
    struct grid_reply reply;
    grid_reply_make(GRID_REPLY_METHOD_NOT_ALLOWED, GRID_API_NONE, &reply);
    assert_int_equal(reply.status, 405);
    assert_non_null(find(&reply, "allow"));
}

static void test_failures_of_the_proxy(void **state)
{
    (void)state;
    static const int statuses[] = {400, 404, 408, 413, 431, 500, 502, 503, 504};
    for (size_t i = 0; i < COUNT(statuses); i++) {
        struct grid_reply reply;
        grid_failure_reply(NULL, statuses[i], false, &reply);
        assert_int_equal(reply.status, statuses[i]);
        json_decref(parsed(&reply));
    }
    struct grid_reply reply;
    grid_failure_reply(NULL, 503, true, &reply);
    assert_string_equal(reply.code, "overloaded");
    grid_failure_reply(NULL, 503, false, &reply);
    assert_string_equal(reply.code, "upstream_unavailable");
    grid_failure_reply(NULL, 599, false, &reply);
    assert_int_equal(reply.status, 500);
}

static void test_a_json_answer(void **state)
{
    (void)state;
    struct grid_reply reply;
    grid_reply_json(GRID_LIT("{}"), &reply);
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.body.len, 2);
    expect_header(&reply, "content-type", "application/json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_openai_shape),
        cmocka_unit_test(test_anthropic_shape),
        cmocka_unit_test(test_what_clients_are_promised),
        cmocka_unit_test(test_failures_of_the_proxy),
        cmocka_unit_test(test_a_json_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
