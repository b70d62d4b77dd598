/*
 * test_explain.c - where a pasted request would go: the ops filter against a fake Envoy
 *
 * Worth most under AddressSanitizer: the fake moves every header and slice as Envoy may.
 */
#include "tests/support/fake_changes.h"
#include "tests/support/fake_envoy.h"
#include "tests/support/filter_setting.h"

#define EXPLAIN ":method: POST\n:path: /explain/v1/chat/completions"

static struct fake_stream *explain(size_t len, char letter, size_t piece, enum fake_http http)
{
    struct fake_stream *stream = fake_open("grid_ops");
    assert_int_equal(fake_head(stream, EXPLAIN, false), ENVOY_HEADERS_STOP);
    fake_send_body(stream, chat(len, letter), len, piece, http);
    return stream;
}

static void a_body_in_any_pieces_is_explained_and_goes_nowhere(void **state)
{
    static const size_t pieces[] = {1, 255, 256, 3000};
    (void)state;
    teach_east('e');
    uint64_t sticky = outcomes("sticky");
    for (size_t i = 0; i < 2 * COUNT(pieces); i++) {
        struct fake_stream *stream = explain(3000, 'e', pieces[i / 2], i % 2 ? FAKE_HTTP2 : FAKE_HTTP1);
        assert_int_equal(stream->reply_status, 200);
        assert_non_null(strstr(stream->reply_body, "\"outcome\":\"sticky\""));
        assert_non_null(strstr(stream->reply_body, "\"cluster\":\"east\""));
        assert_non_null(strstr(stream->reply_body, "\"keys\":[\""));
        assert_false(stream->head_sent);
        fake_close(stream);
    }
    assert_int_equal(outcomes("sticky"), sticky);
    assert_int_equal(fake_admin("/grid"), 200);
    assert_null(strstr(fake_admin_page, "\"outcome\":\"sticky\""));
}

static void trailers_end_it_too(void **state)
{
    (void)state;
    struct fake_stream *stream = fake_open("grid_ops");
    fake_head(stream, EXPLAIN, false);
    fake_send_piece(stream, chat(3000, 't'), 3000, false);
    assert_int_equal(stream->reply_status, 0);
    fake_send_trailers(stream);
    assert_int_equal(stream->reply_status, 200);
    assert_non_null(strstr(stream->reply_body, "\"outcome\":\"no_match\""));
    fake_close(stream);
}

/* The gateway's own limit is told as a request would meet it. */
static void a_body_over_the_gateway_s_limit_has_no_keys(void **state)
{
    (void)state;
    struct fake_stream *stream = explain(3 * MAX_BODY, 'o', 4096, FAKE_HTTP1);
    assert_int_equal(stream->reply_status, 200);
    assert_non_null(strstr(stream->reply_body, "\"keys\":[]"));
    fake_close(stream);
}

static void without_a_body_it_is_explained_at_the_head(void **state)
{
    (void)state;
    struct fake_stream *stream = fake_open("grid_ops");
    fake_head(stream, EXPLAIN "\nx-model: llama", true);
    assert_int_equal(stream->reply_status, 200);
    assert_non_null(strstr(stream->reply_body, "\"reason\":\"empty\""));
    fake_close(stream);
}

static void a_visitor_may_leave_at_any_stage(void **state)
{
    (void)state;
    struct fake_stream *stream = fake_open("grid_ops");
    fake_close(stream);
    stream = fake_open("grid_ops");
    fake_head(stream, EXPLAIN, false);
    fake_close(stream);
    stream = fake_open("grid_ops");
    fake_head(stream, EXPLAIN, false);
    fake_send_piece(stream, chat(3000, 'l'), 1000, false);
    fake_close(stream);
}

static void pages_of_other_origins_are_refused_before_the_body(void **state)
{
    (void)state;
    struct fake_stream *stream = fake_open("grid_ops");
    fake_head(stream, EXPLAIN "\n:authority: 127.0.0.1:9902\norigin: http://elsewhere.example", false);
    assert_int_equal(stream->reply_status, 403);
    fake_close(stream);
}

int main(void)
{
#define IN_A_GRID(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        IN_A_GRID(a_body_in_any_pieces_is_explained_and_goes_nowhere),
        IN_A_GRID(trailers_end_it_too),
        IN_A_GRID(a_body_over_the_gateway_s_limit_has_no_keys),
        IN_A_GRID(without_a_body_it_is_explained_at_the_head),
        IN_A_GRID(a_visitor_may_leave_at_any_stage),
        IN_A_GRID(pages_of_other_origins_are_refused_before_the_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
