/*
 * test_filter.c - the module's hooks against a fake Envoy: bodies in any pieces, answers, failures, life and reload
 */
#include "tests/support/fake_envoy.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AFFINITY "grid_route_prefix_affinity_total"
#define RELOADS "grid_serving_config_reload_total"
#define POLLS "grid_signal_polls_total"
#define POST ":method: POST\n:path: /v1/chat/completions\ncontent-type: application/json"

enum { MAX_BODY = 10000, SLACK = 2 << 20 };

static char folder[200], config[300];

static const char serving[] =
    "{\"local_site\":\"east\",\"candidates\":["
    "{\"kind\":\"inference_model\",\"name\":\"llama\",\"site\":\"east\",\"cluster\":\"east\"},"
    "{\"kind\":\"inference_model\",\"name\":\"llama\",\"site\":\"west\",\"cluster\":\"west\"},"
    "{\"kind\":\"inference_model\",\"name\":\"solo\",\"site\":\"west\",\"cluster\":\"west\"},"
    "{\"kind\":\"inference_model\",\"name\":\"gone\",\"site\":\"west\",\"cluster\":\"gone\"}%s],"
    "\"clusters\":[{\"name\":\"east\",\"endpoints\":[\"127.0.0.1:1\"],\"signals\":{\"interval_ms\":1}},"
    "{\"name\":\"west\",\"endpoints\":[\"127.0.0.1:2\"],\"signals\":false},"
    "{\"name\":\"gone\",\"endpoints\":[\"127.0.0.1:3\"],\"signals\":false}]}";

static void write_file(const char *name, const char *text)
{
    char path[260], temporary[270];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    FILE *file = fopen(temporary, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(temporary, path), 0);
}

static void write_serving(const char *more_candidates)
{
    char text[4000];
    snprintf(text, sizeof(text), serving, more_candidates);
    write_file("serving.json", text);
}

static void make_folder(void)
{
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/grid-filter-XXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(config, sizeof(config), "%s\n%d", folder, MAX_BODY);
    write_serving("");
    write_file("plugin.json", "{\"prefix_affinity\":{\"exploration\":0}}");
    memset(fake_clusters, 0, sizeof(fake_clusters));
    fake_clusters[0] = (struct fake_cluster){"east", 1, 1};
    fake_clusters[1] = (struct fake_cluster){"west", 1, 1};
    fake_init_completes = fake_callout_result = 0;
    fake_callout_done_inside = fake_validating = false;
}

static int setup(void **state)
{
    (void)state;
    make_folder();
    assert_true(fake_start(config));
    return 0;
}

static void remove_folder(void)
{
    static const char *const names[] = {"serving.json", "plugin.json"};
    char path[260];
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

static int teardown(void **state)
{
    (void)state;
    fake_stop();
    remove_folder();
    assert_int_equal(fake_timers_alive, 0);
    return 0;
}

/* ---- helpers ------------------------------------------------------------------------------------------------- */

/* A chat body for llama of exactly `len` bytes; `mark` tells prompts apart. Static storage. */
static const char *chat(size_t len, char mark)
{
    static char body[4 * MAX_BODY];
    static const char head[] = "{\"model\":\"llama\",\"messages\":[{\"role\":\"user\",\"content\":\"", tail[] = "\"}]}";
    assert_true(len < sizeof(body) && len > sizeof(head) + sizeof(tail));
    memset(body, mark, len);
    memcpy(body, head, sizeof(head) - 1);
    memcpy(body + len - (sizeof(tail) - 1), tail, sizeof(tail));
    return body;
}

static uint64_t outcomes(const char *outcome)
{
    fake_fire_timers();
    return fake_counter(AFFINITY, outcome);
}

/* Sends a whole chat request; the caller answers and closes it. */
static struct fake_stream *ask(size_t len, char mark, size_t piece, enum fake_http http)
{
    struct fake_stream *stream = fake_open("grid_site_route");
    assert_int_equal(fake_head(stream, POST, false), ENVOY_HEADERS_STOP);
    fake_send_body(stream, chat(len, mark), len, piece, http);
    return stream;
}

static void assert_forwarded(const struct fake_stream *stream, const char *body, size_t len)
{
    assert_int_equal(stream->reply_status, 0);
    assert_true(stream->head_sent && stream->end_sent);
    assert_int_equal(stream->sent_bytes, len);
    assert_memory_equal(stream->sent, body, len);
}

/* Makes east hold the prompt of `mark`. */
static void teach_east(char mark)
{
    fake_clusters[1].healthy = 0;
    struct fake_stream *stream = ask(3000, mark, 3000, FAKE_HTTP1);
    assert_string_equal(stream->cluster, "east");
    fake_answer(stream, ":status: 200", "{}");
    fake_close(stream);
    fake_clusters[1].healthy = 1;
}

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
        fake_answer(stream, ":status: 200\nx-grid-site: liar", "{}");
        assert_string_equal(fake_header(&stream->headers[ENVOY_RESPONSE_HEADERS], "x-grid-site"), "east");
        assert_string_equal(fake_header(&stream->headers[ENVOY_RESPONSE_HEADERS], "x-grid-backend"), "east");
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
                                    "x-grid-site: c\nx-grid-anything: d",
                                    POST);
        for (int i = 0; many && i < 80; i++)
            n += (size_t)snprintf(lines + n, sizeof(lines) - n, "\nx-filler-%d: %d", i, i);
        struct fake_stream *stream = fake_open("grid_site_route");
        fake_head(stream, lines, false);
        const struct fake_headers *headers = &stream->headers[ENVOY_REQUEST_HEADERS];
        assert_null(fake_header(headers, "x-grid-site"));
        assert_null(fake_header(headers, "x-grid-backend"));
        assert_null(fake_header(headers, "x-grid-anything"));
        assert_string_equal(fake_header(headers, "x-gridlock"), "stays");
        assert_int_equal(headers->n, many ? 85 : 5);
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

/* After an answer to a prompt that east holds: does east still hold it? */
static void assert_lesson(bool local, int status, uint64_t flags, bool held)
{
    char line[40];
    snprintf(line, sizeof(line), ":status: %d", status);
    teach_east('b');
    struct fake_stream *stream = ask(3000, 'b', 3000, FAKE_HTTP1);
    assert_string_equal(stream->cluster, "east");
    if (local)
        fake_local_answer(stream, status, flags, line, "plain");
    else
        fake_answer(stream, line, "{}");
    fake_close(stream);
    uint64_t sticky = outcomes("sticky");
    fake_close(ask(3000, 'b', 3000, FAKE_HTTP1));
    assert_int_equal(outcomes("sticky"), sticky + (held ? 1 : 0));
}

static void the_core_learns_whose_failure_it_was(void **state)
{
    static const uint64_t site[] = {0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x8020};
    (void)state;
    for (size_t i = 0; i < COUNT(site); i++)
        assert_lesson(true, site[i] == 0x4 ? 504 : 503, site[i], false);
    assert_lesson(true, 503, 0x80, true);     /* our own circuit breaker */
    assert_lesson(true, 503, 0x8080, true);   /* the same, after retries */
    assert_lesson(true, 404, 0x100, true);    /* no route */
    assert_lesson(true, 503, 0, true);        /* overload */
    assert_lesson(false, 500, 0, false);
    assert_lesson(false, 429, 0, false);
    assert_lesson(false, 400, 0, true);
    assert_lesson(false, 200, 0x40, true);    /* flags count only for Envoy's own answers */
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
