/*
 * test_head.c - API, model and body of a request by its head (behaviour.md B, O.19, O.24, O.33, O.40, O.42, O.54)
 */
#include "unit.h"

#include "head.h"

#define MOST_HEADERS 8u

/* Reads a head: then header names and values in pairs, up to NULL. */
static struct grid_head_view view_of(const char *method, const char *path, ...)
{
    struct grid_header headers[MOST_HEADERS];
    struct grid_head head = {.method = grid_str_of(method), .path = grid_str_of(path), .headers = headers};
    struct grid_head_view view;
    va_list list;
    va_start(list, path);
    for (const char *name = va_arg(list, const char *); name; name = va_arg(list, const char *)) {
        assert_true(head.n_headers < MOST_HEADERS);
        headers[head.n_headers++] = (struct grid_header){grid_str_of(name), grid_str_of(va_arg(list, const char *))};
    }
    va_end(list);
    grid_head_read(&head, GRID_LIT("x-model"), &view);
    return view;
}

static void expect_text(struct grid_str text, const char *want)
{
    if (!grid_str_eq(text, grid_str_of(want)))
        print_message("\"%.*s\", not \"%s\"\n", GRID_FMT(text), want);
    assert_true(grid_str_eq(text, grid_str_of(want)));
}

static void test_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum grid_api api;
    } rows[] = {
        {"/v1/chat/completions", GRID_API_CHAT},
        {"/v1/chat/completions/", GRID_API_CHAT},
        {"/v1/chat/completions///", GRID_API_CHAT},
        {"/v1/chat/completions?a=/v1/messages", GRID_API_CHAT},
        {"/v1/chat/completions/?", GRID_API_CHAT},
        {"/v1/completions", GRID_API_COMPLETIONS},
        {"/v1/completions//", GRID_API_COMPLETIONS},
        {"/v1/messages", GRID_API_MESSAGES},
        {"/v1/responses", GRID_API_RESPONSES},
        {"/v1/responses/", GRID_API_RESPONSES},
        {"/v1/responses/?x=1", GRID_API_RESPONSES},
        {"/v1/responses//", GRID_API_NONE}, /* a stored response with an empty id (O.33) */
        {"/v1/responses/resp_1", GRID_API_NONE},
        {"/v1/responses/compact", GRID_API_NONE},
        {"/v1/responsesx", GRID_API_NONE},
        {"/v1/response", GRID_API_NONE},
        {"/v1/messages/count_tokens", GRID_API_NONE},
        {"/v1/chat/completions/x", GRID_API_NONE},
        {"/openai/v1/chat/completions", GRID_API_NONE},
        {"//v1/chat/completions", GRID_API_NONE},
        {"/V1/chat/completions", GRID_API_NONE},
        {"/v1/chat%2Fcompletions", GRID_API_NONE},
        {"/v1/%63ompletions", GRID_API_NONE},
        {"/v1/chat/completions#x", GRID_API_NONE},
        {"/v1/embeddings", GRID_API_NONE},
        {"/v1/models", GRID_API_NONE},
        {"/v1/conversations", GRID_API_NONE},
        {"/", GRID_API_NONE},
        {"///", GRID_API_NONE},
        {"*", GRID_API_NONE},
        {"", GRID_API_NONE},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct grid_head_view view = view_of("POST", rows[i].path, NULL);
        if (view.api != rows[i].api)
            print_message("%s\n", rows[i].path);
        assert_int_equal(view.api, rows[i].api);
        assert_int_equal(grid_head_api(view.path), rows[i].api);
    }
    expect_text(view_of("POST", "/v1/messages/?q=1?2", NULL).path, "/v1/messages/");
}

static void test_state_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum grid_head_state state;
        const char *id;
    } rows[] = {
        {"/v1/responses", GRID_STATE_RESPONSES, ""},
        {"/v1/responses/", GRID_STATE_RESPONSES, ""},
        {"/v1/responses?x=/y", GRID_STATE_RESPONSES, ""},
        {"/v1/responses/compact", GRID_STATE_RESPONSES, ""},
        {"/v1/responses/compact/", GRID_STATE_RESPONSES, ""},
        {"/v1/responses/input_tokens?x", GRID_STATE_RESPONSES, ""},
        {"/v1/responses/compact/x", GRID_STATE_STORED, "compact"},
        {"/v1/responses/compact//", GRID_STATE_STORED, "compact"},
        {"/v1/responses/compacts", GRID_STATE_STORED, "compacts"},
        {"/v1/responses/input_token", GRID_STATE_STORED, "input_token"},
        {"/v1/responses//", GRID_STATE_STORED, ""},
        {"/v1/responses//x", GRID_STATE_STORED, ""},
        {"/v1/responses//compact", GRID_STATE_STORED, ""},
        {"/v1/responses/resp_1", GRID_STATE_STORED, "resp_1"},
        {"/v1/responses/resp_1/", GRID_STATE_STORED, "resp_1"},
        {"/v1/responses/resp_1/cancel?a=b", GRID_STATE_STORED, "resp_1"},
        {"/v1/responses/resp_1?a=/b", GRID_STATE_STORED, "resp_1"},
        {"/v1/responses/..", GRID_STATE_STORED, ".."},
        {"/v1/responses/a%2Fb/c", GRID_STATE_STORED, "a%2Fb"},
        {"/v1/conversations", GRID_STATE_CONVERSATIONS, ""},
        {"/v1/conversations/", GRID_STATE_CONVERSATIONS, ""},
        {"/v1/conversations//", GRID_STATE_STORED, ""},
        {"/v1/conversations/compact", GRID_STATE_STORED, "compact"},
        {"/v1/conversations/conv_1/items/msg_9", GRID_STATE_STORED, "conv_1"},
        {"/v1/responsesx", GRID_STATE_NONE, ""},
        {"/v1/responses%2Fx", GRID_STATE_NONE, ""},
        {"/v1/response", GRID_STATE_NONE, ""},
        {"/v1/conversationsx/conv_1", GRID_STATE_NONE, ""},
        {"/v1/chat/completions", GRID_STATE_NONE, ""},
        {"//v1/responses/resp_1", GRID_STATE_NONE, ""},
        {"/v1", GRID_STATE_NONE, ""},
        {"", GRID_STATE_NONE, ""},
    };
    static const char *const methods[] = {"POST", "GET", "DELETE"}; /* which has no say */
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct grid_head_view view = view_of(methods[i % COUNT(methods)], rows[i].path, NULL);
        if (view.state != rows[i].state)
            print_message("%s\n", rows[i].path);
        assert_int_equal(view.state, rows[i].state);
        expect_text(view.id, rows[i].id);
    }
}

static void test_methods(void **state)
{
    (void)state;
    assert_true(view_of("POST", "/v1/responses", NULL).post);
    assert_false(view_of("post", "/v1/responses", NULL).post);
    struct grid_head_view get = view_of("GET", "/v1/responses", NULL);
    assert_false(get.post || get.options);
    assert_int_equal(get.api, GRID_API_RESPONSES);
    assert_true(view_of("OPTIONS", "/v1/models", NULL).options);
}

static void test_the_model_header(void **state)
{
    (void)state;
    struct grid_head_view view = view_of("POST", "/v1/messages", "x-model", "llama", NULL);
    assert_true(view.has_model);
    expect_text(view.model, "llama");
    view = view_of("POST", "/v1/messages", "a", "b", "X-Model", " \tmeta llama/3\t ", NULL);
    expect_text(view.model, "meta llama/3");
    assert_false(view_of("POST", "/v1/messages", "x-models", "m", NULL).has_model);
    assert_false(view_of("POST", "/v1/messages", NULL).has_model);
}

static void test_a_model_header_that_counts_as_absent(void **state)
{
    (void)state;
    static const char *const values[] = {"", " ", " \t ", "caf\xc3\xa9", "a\x7f", "a\x01", "\x80", "a\nb"};
    for (size_t i = 0; i < COUNT(values); i++) {
        struct grid_head_view view = view_of("POST", "/v1/messages", "x-model", values[i], NULL);
        assert_false(view.has_model);
        assert_false(view.ambiguous);
        view = view_of("POST", "/v1/messages", "x-model", values[i], "x-model", "m", "x-model", values[i], NULL);
        assert_true(view.has_model);
        assert_false(view.ambiguous);
        expect_text(view.model, "m");
    }
}

static void test_a_repeated_model_header(void **state)
{
    (void)state;
    struct grid_head_view view = view_of("POST", "/v1/messages", "x-model", "m", "x-model", " m ", NULL);
    assert_true(view.has_model && !view.ambiguous);
    expect_text(view.model, "m");
    assert_true(view_of("POST", "/v1/messages", "x-model", "m", "x-model", "M", NULL).ambiguous);
    assert_true(view_of("POST", "/v1/messages", "x-model", "m", "x-model", "m", "x-model", "n", NULL).ambiguous);
    assert_false(view_of("POST", "/v1/messages", "x-model", "m", "y-model", "n", NULL).ambiguous);
}

static void test_content_types(void **state)
{
    (void)state;
    static const char *const read[] = {"",
                                       "application/json",
                                       "application/json; charset=utf-8",
                                       "text/plain",
                                       "x",
                                       "application/x-www-form-urlencoded",
                                       "application/vnd.api+json"};
    static const char *const left[] = {"multipart/form-data; boundary=x", "Multipart/Form-Data", "audio/wav",
                                       "application/octet-stream",        " image/png",          "video/mp4"};
    for (size_t i = 0; i < COUNT(read); i++)
        assert_true(view_of("POST", "/v1/messages", "content-type", read[i], NULL).can_be_json);
    for (size_t i = 0; i < COUNT(left); i++)
        assert_false(view_of("POST", "/v1/messages", "content-type", left[i], NULL).can_be_json);
    assert_true(view_of("POST", "/v1/messages", NULL).can_be_json);
}

static void test_codings(void **state)
{
    (void)state;
    static const char *const plain[] = {"", "identity", "Identity", " identity "};
    static const char *const coded[] = {"gzip", "zstd", "br", "identity, gzip", "x"};
    for (size_t i = 0; i < COUNT(plain); i++)
        assert_false(view_of("POST", "/v1/messages", "content-encoding", plain[i], NULL).coded);
    for (size_t i = 0; i < COUNT(coded); i++)
        assert_true(view_of("POST", "/v1/messages", "content-encoding", coded[i], NULL).coded);
    assert_true(
        view_of("POST", "/v1/messages", "content-encoding", "gzip", "content-encoding", "identity", NULL).coded);
    assert_false(view_of("POST", "/v1/messages", NULL).coded);
}

static void test_models(void **state)
{
    (void)state;
    static const char *const methods[] = {"GET", "HEAD"};
    for (size_t i = 0; i < COUNT(methods); i++) {
        struct grid_head_view view = view_of(methods[i], "/v1/models", NULL);
        assert_true(view.models && !view.model_entry);
        view = view_of(methods[i], "/v1/models/?limit=20", NULL);
        assert_true(view.models && !view.model_entry);
        view = view_of(methods[i], "/v1/models/meta/llama?x", NULL);
        assert_true(view.model_entry && !view.models);
        expect_text(view.entry, "meta/llama");
        view = view_of(methods[i], "/v1/models/a%2Fb", NULL);
        expect_text(view.entry, "a%2Fb");
        view = view_of(methods[i], "/v1/models", "x-model", "m", NULL); /* then it is routed */
        assert_false(view.models || view.model_entry);
        view = view_of(methods[i], "/v1/models/m", "x-model", "m", NULL);
        assert_false(view.models || view.model_entry);
        view = view_of(methods[i], "/v1/modelsx", NULL);
        assert_false(view.models || view.model_entry);
    }
    struct grid_head_view post = view_of("POST", "/v1/models", NULL);
    assert_false(post.models || post.model_entry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_state_paths),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_the_model_header),
        cmocka_unit_test(test_a_model_header_that_counts_as_absent),
        cmocka_unit_test(test_a_repeated_model_header),
        cmocka_unit_test(test_content_types),
        cmocka_unit_test(test_codings),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
