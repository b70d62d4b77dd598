/*
 * test_filter.c - the module's hooks against a fake Envoy: bodies in any pieces, answers, failures, life and reload
 */
#include "tests/support/fake_changes.h"
#include "tests/support/fake_envoy.h"
#include "tests/support/filter_setting.h"

/* ---- request ------------------------------------------------------------------------------------------------- */

static void a_body_in_any_pieces_is_forwarded_and_keyed(void **state)
{
    static const size_t pieces[] = {1, 7, 255, 256, 1024, 3000};
    (void)state;
    uint64_t sticky = outcomes("sticky");
    teach_east('p');
    for (size_t i = 0; i < 2 * COUNT(pieces); i++) {
        struct fake_stream *stream = ask(3000, 'p', pieces[i / 2], i % 2 ? FAKE_HTTP2 : FAKE_HTTP1);
        assert_forwarded(stream, chat(3000, 'p'), 3000);
        assert_string_equal(stream->cluster, "east");
        assert_int_equal(stream->buffer_limit, MAX_BODY + SLACK);
        fake_answer(stream, ":status: 200\nx-grid-site: liar\nx-grid-other: liar\nx-gridlock: ok", "{}");
        assert_string_equal(fake_header(&stream->headers[ENVOY_RESPONSE_HEADERS], "x-grid-site"), "east");
        assert_string_equal(fake_header(&stream->headers[ENVOY_RESPONSE_HEADERS], "x-grid-backend"), "east");
        assert_null(fake_header(&stream->headers[ENVOY_RESPONSE_HEADERS], "x-grid-other"));
        assert_int_equal(stream->headers[ENVOY_RESPONSE_HEADERS].n, 4);
        assert_string_equal(stream->answer, "{}");
        fake_close(stream);
    }
    assert_int_equal(outcomes("sticky"), sticky + 2 * COUNT(pieces));
}

static void a_body_that_an_earlier_filter_held_is_read_once(void **state)
{
    (void)state;
    teach_east('p');
    uint64_t sticky = outcomes("sticky");
    struct fake_stream *stream = fake_open("grid_site_route");
    stream->received_is_buffered = true;
    fake_head(stream, POST, false);
    fake_send_piece(stream, chat(3000, 'p'), 3000, true);
    assert_forwarded(stream, chat(3000, 'p'), 3000);
    assert_int_equal(outcomes("sticky"), sticky + 1);
    fake_close(stream);
}

static void trailers_end_a_body(void **state)
{
    (void)state;
    teach_east('p');
    uint64_t sticky = outcomes("sticky");
    struct fake_stream *stream = fake_open("grid_site_route");
    fake_head(stream, POST, false);
    fake_send_piece(stream, chat(3000, 'p'), 1000, false);
    fake_send_piece(stream, chat(3000, 'p') + 1000, 2000, false);
    assert_false(stream->head_sent);
    fake_send_trailers(stream);
    assert_forwarded(stream, chat(3000, 'p'), 3000);
    assert_int_equal(outcomes("sticky"), sticky + 1);
    fake_close(stream);
}

static void a_body_over_the_limit_streams_on_when_its_model_is_known(void **state)
{
    (void)state;
    const size_t len = 3 * MAX_BODY;
    for (int http = FAKE_HTTP1; http <= FAKE_HTTP2; http++) {
        struct fake_stream *stream = fake_open("grid_site_route");
        fake_head(stream, POST "\nx-model: llama", false);
        fake_send_piece(stream, chat(len, 'q'), MAX_BODY, false);
        assert_false(stream->head_sent);
        fake_send_piece(stream, chat(len, 'q') + MAX_BODY, 1, false);
        assert_true(stream->head_sent);
        fake_send_body(stream, chat(len, 'q') + MAX_BODY + 1, len - MAX_BODY - 1, 777, (enum fake_http)http);
        assert_forwarded(stream, chat(len, 'q'), len);
        fake_close(stream);
    }
    fake_fire_timers();
    assert_int_equal(fake_counter("grid_route_unkeyed_total", "body_too_large"), 2);
}

static void a_body_over_the_limit_without_a_model_is_refused(void **state)
{
    (void)state;
    char body[MAX_BODY + 1];
    memset(body, ' ', sizeof(body));
    struct fake_stream *stream = fake_open("grid_site_route");
    fake_head(stream, POST, false);
    fake_send_body(stream, body, sizeof(body), 1000, FAKE_HTTP1);
    assert_int_equal(stream->reply_status, 413);
    assert_non_null(strstr(stream->reply_body, "body_too_large"));
    assert_false(stream->head_sent);
    fake_send_piece(stream, body, 10, true);
    assert_int_equal(stream->sent_bytes, 0);
    fake_close(stream);
}

/* The model ends with the last byte of the limit, or with the byte after it. */
static void a_body_is_cut_at_the_limit_however_it_comes(void **state)
{
    static const char model[] = "\"model\":\"llama\"";
    char body[MAX_BODY + 500];
    (void)state;
    for (size_t i = 0; i < 2 * 2 * 3; i++) {
        const size_t late = i % 2, whole = i / 2 % 2, pieces[] = {3, 999, sizeof(body)};
        memset(body, ' ', sizeof(body));
        body[0] = '{';
        memcpy(body + MAX_BODY + late - (sizeof(model) - 1), model, sizeof(model) - 1);
        struct fake_stream *stream = fake_open("grid_site_route");
        stream->received_is_buffered = whole;
        fake_head(stream, POST, false);
        fake_send_body(stream, body, sizeof(body), whole ? sizeof(body) : pieces[i / 4], FAKE_HTTP2);
        assert_int_equal(stream->reply_status, late ? 413 : 0);
        fake_close(stream);
    }
}

static void a_body_of_just_the_limit_is_not_cut(void **state)
{
    (void)state;
    struct fake_stream *stream = ask(MAX_BODY, 'l', 5000, FAKE_HTTP1);
    assert_forwarded(stream, chat(MAX_BODY, 'l'), MAX_BODY);
    fake_fire_timers();
    assert_int_equal(fake_counter("grid_route_unkeyed_total", "body_too_large"), 0);
    fake_close(stream);
}

static void refusals_are_sent_as_the_core_words_them(void **state)
{
    static const struct {
        const char *body;
        int status;
        const char *details, *retry_after;
    } cases[] = {{"{\"model\":\"nobody\"}", 404, "grid_model_not_found", NULL},
                 {"{}", 400, "grid_model_required", NULL},
                 {"{\"model\":\"gone\"}", 503, "grid_no_healthy_site", "5"}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fake_stream *stream = fake_open("grid_site_route");
        fake_head(stream, POST, false);
        fake_send_body(stream, cases[i].body, strlen(cases[i].body), 5, FAKE_HTTP2);
        assert_int_equal(stream->reply_status, cases[i].status);
        assert_string_equal(stream->reply_details, cases[i].details);
        assert_string_equal(fake_header(&stream->reply_headers, "content-type"), "application/json");
        const char *retry = fake_header(&stream->reply_headers, "retry-after");
        assert_string_equal(retry ? retry : "-", cases[i].retry_after ? cases[i].retry_after : "-");
        assert_false(stream->head_sent);
        fake_close(stream);
    }
}

static void what_needs_no_body_is_decided_at_the_head(void **state)
{
    (void)state;
    struct fake_stream *stream = fake_open("grid_site_route");
    assert_int_equal(fake_head(stream, ":method: GET\n:path: /v1/models", true), ENVOY_HEADERS_STOP);
    assert_int_equal(stream->reply_status, 200);
    assert_non_null(strstr(stream->reply_body, "\"llama\""));
    fake_close(stream);

    stream = fake_open("grid_site_route");
    assert_int_equal(fake_head(stream, POST "\nx-model: solo", false), ENVOY_HEADERS_CONTINUE);
    assert_string_equal(stream->cluster, "west");
    fake_send_body(stream, chat(3000, 's'), 3000, 100, FAKE_HTTP1);
    assert_forwarded(stream, chat(3000, 's'), 3000);
    fake_close(stream);

    stream = fake_open("grid_site_route");
    fake_head(stream, ":method: GET\n:path: /v1/responses\nconnection: Upgrade\nupgrade: websocket", false);
    assert_int_equal(stream->reply_status, 426);
    fake_close(stream);

    stream = fake_open("grid_site_route");
    fake_head(stream, POST, true);
    assert_int_equal(stream->reply_status, 400);
    fake_close(stream);
}

static void forged_headers_never_reach_a_site(void **state)
{
    char lines[4000];
    (void)state;
    for (int many = 0; many < 2; many++) {
        size_t n = (size_t)snprintf(lines, sizeof(lines),
                                    "%s\nx-model: solo\nx-grid-site: a\nx-grid-backend: b\nx-gridlock: stays\n"
                                    "x-grid-site: c\nx-grid-anything: d\nx-envoy-retry-on: 5xx\n"
                                    "x-envoy-upstream-rq-timeout-ms: 1\nx-envoys: stay",
                                    POST);
        for (int i = 0; many && i < 80; i++)
            n += (size_t)snprintf(lines + n, sizeof(lines) - n, "\nx-filler-%d: %d", i, i);
        struct fake_stream *stream = fake_open("grid_site_route");
        fake_head(stream, lines, false);
        const struct fake_headers *headers = &stream->headers[ENVOY_REQUEST_HEADERS];
        assert_null(fake_header(headers, "x-grid-site"));
        assert_null(fake_header(headers, "x-grid-backend"));
        assert_null(fake_header(headers, "x-grid-anything"));
        assert_null(fake_header(headers, "x-envoy-retry-on"));
        assert_null(fake_header(headers, "x-envoy-upstream-rq-timeout-ms"));
        assert_string_equal(fake_header(headers, "x-gridlock"), "stays");
        assert_int_equal(headers->n, many ? 86 : 6);
        fake_close(stream);
    }
}

static void a_cluster_without_healthy_hosts_is_passed_over(void **state)
{
    (void)state;
    teach_east('h');
    fake_clusters[0].healthy = 0;
    struct fake_stream *stream = ask(3000, 'h', 500, FAKE_HTTP1);
    assert_string_equal(stream->cluster, "west");
    fake_close(stream);
    fake_clusters[0].healthy = 1;
}

static void asked_twice_the_specifier_says_the_same(void **state)
{
    (void)state;
    struct fake_stream *stream = fake_open("grid_site_route");
    stream->selects = 3; /* the fake aborts when they differ */
    fake_head(stream, POST, false);
    fake_send_body(stream, chat(3000, 't'), 3000, 3000, FAKE_HTTP1);
    assert_forwarded(stream, chat(3000, 't'), 3000);
    fake_close(stream);
}

static void a_route_without_the_specifier_is_left_alone(void **state)
{
    (void)state;
    struct fake_stream *stream = fake_open("grid_site_route");
    stream->selects = 0;
    fake_head(stream, POST, false);
    fake_send_body(stream, "{}", 2, 2, FAKE_HTTP1);
    assert_forwarded(stream, "{}", 2);
    fake_answer(stream, ":status: 200", "{}");
    assert_null(fake_header(&stream->headers[ENVOY_RESPONSE_HEADERS], "x-grid-site"));
    fake_close(stream);
}

static void a_client_may_leave_at_any_stage(void **state)
{
    (void)state;
    for (int stage = 0; stage < 6; stage++) {
        struct fake_stream *stream = fake_open("grid_site_route");
        if (stage > 0)
            fake_head(stream, POST, false);
        if (stage > 1)
            fake_send_piece(stream, chat(3000, 'c'), 1500, false);
        if (stage > 2)
            fake_send_piece(stream, chat(3000, 'c') + 1500, 1500, true);
        if (stage > 3)
            fake_answer(stream, ":status: 200", stage > 4 ? "half of it" : "");
        fake_close(stream);
    }
}

/* ---- answer -------------------------------------------------------------------------------------------------- */

static void the_core_learns_whose_failure_it_was(void **state)
{
    static const uint64_t site[] = {0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x8020};
    (void)state;
    for (size_t i = 0; i < COUNT(site); i++)
        assert_lesson(true, site[i] == 0x4 ? 504 : 503, site[i], false);
    assert_lesson(true, 503, 0x80, true);  /* our own circuit breaker */
    assert_lesson(true, 503, 0xa0, true);  /* the same on a retry, after a site's failure */
    assert_lesson(true, 404, 0x100, true); /* no route */
    assert_lesson(true, 503, 0, true);     /* overload */
    assert_lesson(false, 500, 0, false);
    assert_lesson(false, 429, 0, false);
    assert_lesson(false, 400, 0, true);
    assert_lesson(false, 200, 0x40, true); /* flags count only for Envoy's own answers */
}

static void answers_of_envoy_become_the_error_of_the_api(void **state)
{
    (void)state;
    for (int body = 0; body < 2; body++) {
        struct fake_stream *stream = ask(3000, 'e', 3000, FAKE_HTTP1);
        const struct fake_headers *headers = &stream->headers[ENVOY_RESPONSE_HEADERS];
        fake_local_answer(stream, 503, 0x40, ":status: 503\ncontent-length: 9\ncontent-type: text/plain",
                          body ? "no luck.." : "");
        assert_non_null(strstr(stream->answer, "upstream_unavailable"));
        assert_int_equal(strtoul(fake_header(headers, "content-length"), NULL, 10), stream->answer_bytes);
        assert_string_equal(fake_header(headers, "content-type"), "application/json");
        assert_string_equal(fake_header(headers, "retry-after"), "5");
        assert_string_equal(fake_header(headers, "x-grid-site"), stream->cluster);
        fake_close(stream);
    }
    /* one that another filter worded stays */
    struct fake_stream *stream = ask(3000, 'e', 3000, FAKE_HTTP1);
    fake_local_answer(stream, 503, 0, ":status: 503\ncontent-type: application/json", "{\"other\":1}");
    assert_string_equal(stream->answer, "{\"other\":1}");
    fake_close(stream);
    /* before any head of ours: a filter ahead refused, or the head was never decoded */
    stream = fake_open("grid_site_route");
    fake_local_answer(stream, 408, 0, ":status: 408\ncontent-type: text/plain", "stream timeout");
    assert_non_null(strstr(stream->answer, "\"error\""));
    fake_close(stream);
    /* HEAD: no body */
    stream = fake_open("grid_site_route");
    fake_head(stream, ":method: HEAD\n:path: /v1/x\nx-model: solo", true);
    fake_local_answer(stream, 503, 0x20, ":status: 503\ncontent-type: text/plain", "");
    assert_int_equal(stream->answer_bytes, 0);
    fake_close(stream);
}

static void a_site_that_breaks_after_its_head_is_settled_once(void **state)
{
    (void)state;
    struct fake_stream *stream = ask(3000, 'k', 3000, FAKE_HTTP1);
    fake_answer(stream, ":status: 200", "{\"half\":");
    ON(http_filter_local_reply)(stream, stream->filter, 502, (struct grid_str){"x", 1}, true);
    assert_string_equal(stream->answer, "{\"half\":");
    fake_close(stream);
}

/* ---- the process --------------------------------------------------------------------------------------------- */

static void ops_pages_are_read_only(void **state)
{
    static const struct {
        const char *head, *in_body;
        int status;
    } cases[] = {{":method: GET\n:path: /metrics", "grid_signal_polls_total", 200},
                 {":method: GET\n:path: /grid?x=1", "\"polls\"", 200},
                 {":method: GET\n:path: /", "Grid Gateway", 200},
                 {":method: GET\n:path: /\naccept: text/html", "<!doctype html>", 200},
                 {":method: GET\n:path: /grid.js", "use strict", 200},
                 {":method: GET\n:path: /explain/v1/messages", "only POST", 405},
                 {":method: HEAD\n:path: /livez", "alive", 200},
                 {":method: GET\n:path: /ready", "starting", 503},
                 {":method: POST\n:path: /grid", "only GET", 405},
                 {":method: GET\n:path: /grid/x", "no such page", 404}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fake_stream *stream = fake_open("grid_ops");
        assert_int_equal(fake_head(stream, cases[i].head, true), ENVOY_HEADERS_STOP);
        assert_int_equal(stream->reply_status, cases[i].status);
        assert_non_null(strstr(stream->reply_body, cases[i].in_body));
        fake_close(stream);
    }
    assert_int_equal(fake_admin("/metrics"), 200);
    assert_non_null(strstr(fake_admin_page, AFFINITY "{outcome=\"sticky\"} 0"));
    assert_int_equal(fake_admin("/grid"), 200);
    assert_non_null(strstr(fake_admin_page, "\"settings\""));
}

static void depths_are_polled_and_the_first_poll_makes_it_ready(void **state)
{
    (void)state;
    poll_again();
    assert_string_equal(fake_callout_path, "/metrics");
    assert_int_equal(fake_init_completes, 0);
    fake_finish_callout(ENVOY_CALLOUT_DONE, "200", "", "vllm:num_requests_waiting 7\nprocess_start_time_seconds 50\n");
    assert_int_equal(fake_init_completes, 1);
    fake_admin("/grid");
    assert_non_null(strstr(fake_admin_page, "\"depth\":7"));

    teach_east('r');
    poll_again();
    fake_finish_callout(ENVOY_CALLOUT_DONE, "200", "", "vllm:num_requests_waiting 0\nprocess_start_time_seconds 99\n");
    poll_again();
    fake_finish_callout(ENVOY_CALLOUT_DONE, "200", "", "nothing 1\n");
    poll_again();
    fake_finish_callout(ENVOY_CALLOUT_DONE, "500", "", "");
    poll_again();
    fake_finish_callout(ENVOY_CALLOUT_RESET, "", "", "");
    poll_again();
    fake_finish_callout(ENVOY_CALLOUT_TOO_BIG, "", "", "");
    poll_again();
    fake_finish_callout(ENVOY_CALLOUT_DONE, "302", "http://127.0.0.1:1/deep/metrics", "");
    assert_string_equal(fake_callout_path, "/deep/metrics");
    fake_finish_callout(ENVOY_CALLOUT_DONE, "302", "/metrics", "");
    poll_again();
    fake_finish_callout(ENVOY_CALLOUT_DONE, "302", "http://127.0.0.2:1/metrics", "");
    fake_callout_done_inside = true;
    poll_again();
    fake_callout_result = 4;
    poll_again();

    fake_callout_done_inside = false;
    fake_callout_result = 0;
    fake_fire_timers();
    assert_int_equal(fake_counter(POLLS, "east,ok"), 2);
    assert_int_equal(fake_counter(POLLS, "east,no_metric"), 1);
    assert_int_equal(fake_counter(POLLS, "east,http_error"), 3);
    assert_int_equal(fake_counter(POLLS, "east,too_big"), 1);
    assert_true(fake_counter(POLLS, "east,unreachable") >= 2);
    assert_int_equal(fake_counter("grid_route_cluster_resets_total", ""), 1);
    assert_int_equal(fake_init_completes, 1);
}

static void a_change_is_taken_or_refused_as_a_whole(void **state)
{
    (void)state;
    fake_fire_timers();
    assert_int_equal(fake_counter(RELOADS, "applied"), 0);
    fake_touch();
    fake_fire_timers();
    assert_int_equal(fake_counter(RELOADS, "reused"), 1);

    struct fake_stream *old = fake_open("grid_site_route");
    fake_head(old, POST, false);
    write_serving(",{\"kind\":\"inference_model\",\"name\":\"fresh\",\"site\":\"west\",\"cluster\":\"west\"}");
    fake_touch();
    fake_fire_timers();
    assert_int_equal(fake_counter(RELOADS, "applied"), 1);
    struct fake_stream *stream = fake_open("grid_site_route");
    fake_head(stream, POST "\nx-model: fresh", false);
    assert_string_equal(stream->cluster, "west");
    fake_close(stream);

    write_file("serving.json", "{\"local_site\":\"east\",\"candidates\":7}");
    fake_touch();
    fake_fire_timers();
    assert_int_equal(fake_counter(RELOADS, "rejected"), 1);
    assert_non_null(strstr(fake_log, "serving.json: candidates"));
    fake_admin("/grid");
    assert_non_null(strstr(fake_admin_page, "\"result\":\"rejected\""));
    fake_send_body(old, chat(3000, 'o'), 3000, 3000, FAKE_HTTP1);
    assert_forwarded(old, chat(3000, 'o'), 3000);
    fake_close(old);
}

static void a_bad_start_is_refused_with_its_reason(void **state)
{
    (void)state;
    make_folder();
    assert_false(fake_start(""));
    assert_non_null(strstr(fake_log, "extension_config"));
    assert_false(fake_start("/nowhere\n12x"));
    assert_false(fake_start("/nowhere\n1000"));
    assert_non_null(strstr(fake_log, "serving.json: No such file"));
    write_file("plugin.json", "{\"prefix_affinity\":{\"threshold\":-1}}");
    assert_false(fake_start(config));
    assert_non_null(strstr(fake_log, "4 grid: plugin.json: prefix_affinity.threshold"));
    assert_null(ON(http_filter_config_new)(NULL, (struct grid_str){"grid_site_route", 15}, (struct grid_str){"", 0}));
    assert_int_equal(fake_timers_alive, 0);
    remove_folder();
}

static void a_check_only_start_asks_nobody(void **state)
{
    (void)state;
    make_folder();
    fake_validating = true;
    assert_true(fake_start(config));
    assert_int_equal(fake_timers_alive, 0);
    assert_int_equal(fake_init_completes, 1);
    fake_stop();
    remove_folder();
}

int main(void)
{
#define IN_A_GRID(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        IN_A_GRID(a_body_in_any_pieces_is_forwarded_and_keyed),
        IN_A_GRID(a_body_that_an_earlier_filter_held_is_read_once),
        IN_A_GRID(trailers_end_a_body),
        IN_A_GRID(a_body_over_the_limit_streams_on_when_its_model_is_known),
        IN_A_GRID(a_body_over_the_limit_without_a_model_is_refused),
        IN_A_GRID(a_body_is_cut_at_the_limit_however_it_comes),
        IN_A_GRID(a_body_of_just_the_limit_is_not_cut),
        IN_A_GRID(refusals_are_sent_as_the_core_words_them),
        IN_A_GRID(what_needs_no_body_is_decided_at_the_head),
        IN_A_GRID(forged_headers_never_reach_a_site),
        IN_A_GRID(a_cluster_without_healthy_hosts_is_passed_over),
        IN_A_GRID(asked_twice_the_specifier_says_the_same),
        IN_A_GRID(a_route_without_the_specifier_is_left_alone),
        IN_A_GRID(a_client_may_leave_at_any_stage),
        IN_A_GRID(the_core_learns_whose_failure_it_was),
        IN_A_GRID(answers_of_envoy_become_the_error_of_the_api),
        IN_A_GRID(a_site_that_breaks_after_its_head_is_settled_once),
        IN_A_GRID(ops_pages_are_read_only),
        IN_A_GRID(depths_are_polled_and_the_first_poll_makes_it_ready),
        IN_A_GRID(a_cluster_that_returns_counts_on),
        IN_A_GRID(a_change_is_taken_or_refused_as_a_whole),
        IN_A_GRID(what_run_did_with_a_change_is_told_once),
        cmocka_unit_test(what_an_earlier_run_left_is_not_news),
        cmocka_unit_test(a_bad_start_is_refused_with_its_reason),
        cmocka_unit_test(a_check_only_start_asks_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
