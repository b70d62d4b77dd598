/*
 * test_stored_filter.c - stored state through the module's hooks, against a fake Envoy: ids go on without their tags in
 * paths and bodies, and come back with them in answers, however both are cut
 */
#include "tests/support/fake_envoy.h"
#include "tests/support/fake_memory.h"
#include "tests/support/filter_setting.h"

#include "tag.h"

enum { BIG_BODY = 2 << 20 };

#define CREATE ":method: POST\n:path: /v1/responses\ncontent-type: application/json"
#define UNTAGGED "grid_untagged_answers_total"

/* "east.MARK..", as an unkeyed gateway writes it. */
static const char *tag_of(const char *site)
{
    static char tag[GRID_TAG_BYTES + 1];
    char mark[GRID_TAG_MARK_BYTES];
    grid_tag_mark((struct grid_str){site, strlen(site)}, mark);
    snprintf(tag, sizeof(tag), "%s.%.*s..", site, (int)sizeof(mark), mark);
    return tag;
}

/* Replaces each '@' of the pattern by east's tag. The caller frees it. */
static char *tagged(const char *pattern)
{
    const char *tag = tag_of("east");
    char *out = malloc(strlen(pattern) * (strlen(tag) + 1) + 1), *at = out;
    assert_non_null(out);
    for (; *pattern; pattern++)
        at = *pattern == '@' ? stpcpy(at, tag) : (*at = *pattern, at + 1);
    *at = '\0';
    return out;
}

/* The pattern without its '@'. The caller frees it. */
static char *plain(const char *pattern)
{
    char *out = strdup(pattern), *at = out;
    assert_non_null(out);
    for (; *pattern; pattern++)
        if (*pattern != '@')
            *at++ = *pattern;
    *at = '\0';
    return out;
}

static int setup_big(void **state)
{
    (void)state;
    make_folder();
    snprintf(config, sizeof(config), "%s\n%d", folder, BIG_BODY);
    assert_true(fake_start(config));
    return 0;
}

static const char *request_header(const struct fake_stream *stream, const char *name)
{
    return fake_header(&stream->headers[ENVOY_REQUEST_HEADERS], name);
}

static const char *answer_header(const struct fake_stream *stream, const char *name)
{
    return fake_header(&stream->headers[ENVOY_RESPONSE_HEADERS], name);
}

/* ---- request ------------------------------------------------------------------------------------------------- */

static struct fake_stream *get(const char *path_pattern)
{
    char *path = tagged(path_pattern), lines[600];
    snprintf(lines, sizeof(lines), ":method: GET\n:path: %s\naccept-encoding: gzip", path);
    struct fake_stream *stream = fake_open("grid_site_route");
    fake_head(stream, lines, true);
    free(path);
    return stream;
}

static void a_path_goes_on_without_its_tag(void **state)
{
    static const char *const paths[] = {"/v1/responses/resp_@abc", "/v1/responses/resp_@a.b/input_items?limit=2&x=%2F",
                                        "/v1/conversations/conv_@c1/items/msg_1"};
    (void)state;
    fake_clusters[1].healthy = 0;
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct fake_stream *stream = get(paths[i]);
        char *want = plain(paths[i]);
        assert_true(stream->head_sent);
        assert_string_equal(stream->cluster, "east");
        assert_string_equal(request_header(stream, ":path"), want);
        assert_null(request_header(stream, "accept-encoding"));
        free(want);
        fake_close(stream);
    }
}

static void other_requests_keep_path_and_codings(void **state)
{
    (void)state;
    struct fake_stream *stream = fake_open("grid_site_route");
    fake_head(stream, POST "\naccept-encoding: gzip", false);
    fake_send_body(stream, chat(3000, 'k'), 3000, 3000, FAKE_HTTP1);
    assert_forwarded(stream, chat(3000, 'k'), 3000);
    assert_string_equal(request_header(stream, "accept-encoding"), "gzip");
    assert_string_equal(request_header(stream, ":path"), "/v1/chat/completions");
    fake_close(stream);
}

/* Whatever is wrong with an id, the client sees the same bytes. */
static void refusals_do_not_tell_why(void **state)
{
    static const char *const paths[] = {"/v1/responses/resp_abc", "/v1/responses/resp_east.00000000..abc",
                                        "/v1/responses/resp_nowhere.0a1b2c3d..abc", "/v1/responses//x",
                                        "/v1/responses/resp_@"};
    (void)state;
    struct fake_stream *first = get(paths[0]);
    assert_int_equal(first->reply_status, 404);
    for (size_t i = 1; i < COUNT(paths); i++) {
        struct fake_stream *stream = get(paths[i]);
        assert_int_equal(stream->reply_status, 404);
        assert_string_equal(stream->reply_body, first->reply_body);
        assert_string_equal(stream->reply_details, first->reply_details);
        assert_int_equal(stream->reply_headers.n, first->reply_headers.n);
        assert_false(stream->head_sent);
        fake_close(stream);
    }
    fake_close(first);
}

static const char *const bodies[] = {
    "{\"previous_response_id\":\"resp_@abc\",\"model\":\"llama\",\"input\":\"resp_x.y.z.w\"}",
    "{\"model\":\"llama\",\"input\":\"i\", \"previous_response_id\" : \"resp_@abc\"}",
    "{\"model\":\"llama\",\"conversation\":{\"id\":\"conv_@c\"},\"previous_response_id\":\"resp_@abc\",\"input\":\"\"}",
    "{\"conversation\":\"conv_@c\",\"input\":\"i\",\"model\":\"llama\",\"metadata\":{\"id\":\"resp_q\"}}",
};

static struct fake_stream *open_create(size_t length, bool whole)
{
    char lines[200];
    struct fake_stream *stream = fake_open("grid_site_route");
    stream->received_is_buffered = whole;
    if (length > 0)
        snprintf(lines, sizeof(lines), CREATE "\ncontent-length: %zu", length);
    fake_head(stream, length > 0 ? lines : CREATE, false);
    return stream;
}

static void assert_stripped(struct fake_stream *stream, const char *pattern, bool length)
{
    char *want = plain(pattern), digits[24];
    snprintf(digits, sizeof(digits), "%zu", strlen(want));
    assert_forwarded(stream, want, strlen(want));
    assert_string_equal(stream->cluster, "east");
    if (length)
        assert_string_equal(request_header(stream, "content-length"), digits);
    else
        assert_null(request_header(stream, "content-length"));
    free(want);
    fake_close(stream);
}

static void ids_in_bodies_go_on_without_their_tags(void **state)
{
    static const size_t pieces[] = {1, 2, 7, 64, 1000};
    (void)state;
    for (size_t i = 0; i < COUNT(bodies) * COUNT(pieces) * 4; i++) {
        const char *pattern = bodies[i / 4 / COUNT(pieces)];
        char *body = tagged(pattern);
        struct fake_stream *stream = open_create(i % 2 ? strlen(body) : 0, false);
        fake_send_body(stream, body, strlen(body), pieces[i / 4 % COUNT(pieces)], i / 2 % 2 ? FAKE_HTTP2 : FAKE_HTTP1);
        free(body);
        assert_stripped(stream, pattern, i % 2);
    }
}

/* What is held and what comes last meet at every byte, within ids and without. */
static void the_two_buffers_may_meet_anywhere(void **state)
{
    (void)state;
    for (size_t b = 0; b < COUNT(bodies); b++) {
        char *body = tagged(bodies[b]);
        for (size_t at = 0; at <= strlen(body); at++) {
            struct fake_stream *stream = open_create(strlen(body), false);
            fake_send_piece(stream, body, at, false);
            fake_send_piece(stream, body + at, strlen(body) - at, true);
            assert_stripped(stream, bodies[b], true);
        }
        free(body);
    }
}

static void trailers_and_earlier_filters_change_nothing(void **state)
{
    (void)state;
    for (size_t b = 0; b < COUNT(bodies); b++) {
        char *body = tagged(bodies[b]);
        struct fake_stream *stream = open_create(strlen(body), false);
        fake_send_piece(stream, body, 30, false);
        fake_send_piece(stream, body + 30, strlen(body) - 30, false);
        fake_send_trailers(stream);
        assert_stripped(stream, bodies[b], true);
        stream = open_create(strlen(body), true);
        fake_send_piece(stream, body, strlen(body), true);
        assert_stripped(stream, bodies[b], true);
        free(body);
    }
}

/* Envoy's decoder says nothing of a coding that breaks off; what is left is then no JSON. */
static void half_a_decoded_body_is_refused(void **state)
{
    static const char *const trailers[] = {"x-envoy-decompressor-gzip-uncompressed-bytes: 20", "x-mine: 1"};
    static const char *const bodies_of[] = {"{\"model\":\"llama\",\"input\":\"i\"}", "{\"model\":\"llama\",\"inp", ""};
    (void)state;
    for (size_t i = 0; i < COUNT(trailers) * COUNT(bodies_of); i++) {
        const char *body = bodies_of[i / 2];
        bool refused = i % 2 == 0 && i / 2 > 0;
        struct fake_stream *stream = fake_open("grid_site_route");
        fake_head(stream, CREATE "\nx-model: llama", false);
        fake_send_piece(stream, body, strlen(body), false);
        read_lines(&stream->headers[ENVOY_REQUEST_TRAILERS], trailers[i % 2]);
        fake_send_trailers(stream);
        assert_int_equal(stream->reply_status, refused ? 400 : 0);
        assert_int_equal(stream->sent_bytes, refused ? 0 : strlen(body));
        fake_close(stream);
    }
}

/* Longer than the room that a body is turned in, with ids near its ends and where two pieces of the room meet. */
static void a_long_body_is_turned_in_pieces(void **state)
{
    static const size_t fills[] = {0, 10, GRID_BLOCK_BYTES << 10, (GRID_BLOCK_BYTES << 10) - 70, 700000, 1500000};
    (void)state;
    for (size_t i = 0; i < COUNT(fills) * 2; i++) {
        size_t fill = fills[i / 2], room = fill + 300;
        char *pattern = malloc(room), *filler = malloc(fill + 1);
        assert_non_null(pattern);
        assert_non_null(filler);
        for (size_t at = 0; at < fill; at++)
            filler[at] = (char)('a' + at % 23);
        filler[fill] = '\0';
        snprintf(pattern, room,
                 "{\"conversation\":\"conv_@c\",\"model\":\"llama\",\"input\":\"%s\","
                 "\"previous_response_id\":\"resp_@r\"}",
                 filler);
        char *body = tagged(pattern);
        struct fake_stream *stream = open_create(strlen(body), false);
        fake_send_body(stream, body, strlen(body), 16384, i % 2 ? FAKE_HTTP2 : FAKE_HTTP1);
        assert_stripped(stream, pattern, true);
        free(body);
        free(filler);
        free(pattern);
    }
}

/* ---- answer -------------------------------------------------------------------------------------------------- */

#define ANSWER ":status: 200\ncontent-type: application/json\ncontent-length: 77"
#define EVENTS ":status: 200\ncontent-type: Text/Event-Stream; charset=utf-8"

static struct fake_stream *created(void)
{
    static const char body[] = "{\"model\":\"llama\",\"input\":\"hi\"}";
    struct fake_stream *stream = open_create(sizeof(body) - 1, false);
    fake_clusters[1].healthy = 0;
    fake_send_body(stream, body, sizeof(body) - 1, 1000, FAKE_HTTP1);
    fake_clusters[1].healthy = 1;
    assert_forwarded(stream, body, sizeof(body) - 1);
    assert_string_equal(stream->cluster, "east");
    return stream;
}

static void assert_answer(struct fake_stream *stream, const char *pattern)
{
    char *want = tagged(pattern);
    assert_non_null(stream->answer);
    assert_string_equal(stream->answer, want);
    free(want);
    assert_string_equal(answer_header(stream, "x-grid-site"), "east");
    fake_close(stream);
}

static const char *const answers[] = {
    "{\"id\":\"resp_@abc\",\"object\":\"response\",\"previous_response_id\":null,\"output\":[{\"id\":\"resp_no\"}]}",
    ("{\"object\":\"response\",\"conversation\":{\"id\":\"conv_@c\"},\"text\":\"\\\"id\\\":\\\"resp_q\",\"id\":\"resp_@"
     "\"}"),
    "{\"id\":\"msg_1\"}",
};

/* In pieces of any length, each piece of one slice or of many; the end with the last piece or after it. */
static void ids_in_answers_get_their_tag(void **state)
{
    static const size_t pieces[] = {1, 2, 5, 16, 1000};
    (void)state;
    for (size_t i = 0; i < COUNT(answers) * COUNT(pieces) * 4; i++) {
        char *body = plain(answers[i / 4 / COUNT(pieces)]);
        size_t len = strlen(body), piece = pieces[i / 4 % COUNT(pieces)];
        struct fake_stream *stream = created();
        fake_answer_head(stream, ANSWER, false);
        assert_null(answer_header(stream, "content-length"));
        for (size_t at = 0; at < len; at += piece) {
            size_t n = len - at < piece ? len - at : piece;
            for (size_t s = 0; i % 2 && s + 1 < n; s++)
                fake_answer_slice(stream, body + at + s, 1);
            size_t done = i % 2 ? n - 1 : 0;
            fake_answer_piece(stream, body + at + done, n - done, i / 2 % 2 && at + n == len);
        }
        if (i / 2 % 2 == 0)
            fake_answer_piece(stream, NULL, 0, true);
        free(body);
        assert_answer(stream, i / 4 / COUNT(pieces) == 1
                                  ? "{\"object\":\"response\",\"conversation\":{\"id\":\"conv_@c\"},"
                                    "\"text\":\"\\\"id\\\":\\\"resp_q\",\"id\":\"resp_\"}"
                                  : answers[i / 4 / COUNT(pieces)]);
    }
}

/* An event goes on with the piece that ends it. */
static void events_do_not_wait(void **state)
{
    static const char *const events[] = {
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_@a\"}}\n\n",
        "event: response.output_text.delta\ndata: {\"delta\":\"resp_x\"}\n\n",
        "event: response.completed\ndata: {\"response\":{\"id\":\"resp_@a\",\"output\":[]}}\n\n",
    };
    struct grid_buf all = {.limit = 4000};
    (void)state;
    struct fake_stream *stream = created();
    fake_answer_head(stream, EVENTS, false);
    for (size_t i = 0; i < COUNT(events); i++) {
        char *event = plain(events[i]), *want = tagged(events[i]);
        fake_answer_piece(stream, event, strlen(event), false);
        grid_buf_puts(&all, want);
        assert_int_equal(stream->answer_bytes, all.len);
        assert_memory_equal(stream->answer, all.ptr, all.len);
        free(event);
        free(want);
    }
    fake_answer_piece(stream, NULL, 0, true);
    assert_int_equal(stream->answer_bytes, all.len);
    grid_buf_done(&all);
    fake_close(stream);
}

/* Cut at every byte, with an end and with trailers: what was held goes out, and nothing is made up. */
static void an_answer_cut_off_loses_nothing(void **state)
{
    (void)state;
    char *full = tagged("{\"id\":\"resp_@abc\"}");
    for (size_t len = 1; len <= strlen(full) * 2; len++) {
        struct fake_stream *stream = created();
        size_t n = len / 2;
        fake_answer_head(stream, ANSWER, false);
        if (n > 0)
            fake_answer_piece(stream, full, n, false); /* already tagged: it may be held up to the tag's end */
        if (len % 2)
            fake_answer_trailers(stream);
        else
            fake_answer_piece(stream, NULL, 0, true);
        char *want = strndup(full, n);
        if (n > 0)
            assert_string_equal(stream->answer, want);
        free(want);
        fake_close(stream);
    }
    free(full);
}

static void what_is_not_ours_to_tag_passes_untouched(void **state)
{
    static const char *const heads[] = {
        ":status: 200\ncontent-type: application/json\ncontent-encoding: gzip\ncontent-length: 20",
        ":status: 404\ncontent-type: application/json\ncontent-length: 20",
        ":status: 503\ncontent-type: text/event-stream\ncontent-length: 20",
    };
    static const char body[] = "{\"id\":\"resp_abcdef\"}";
    (void)state;
    fake_fire_timers();
    uint64_t untagged = fake_counter(UNTAGGED, "");
    for (size_t i = 0; i < COUNT(heads); i++) {
        struct fake_stream *stream = created();
        fake_answer(stream, heads[i], body);
        assert_string_equal(stream->answer, body);
        assert_string_equal(answer_header(stream, "content-length"), "20");
        fake_close(stream);
    }
    fake_fire_timers();
    assert_int_equal(fake_counter(UNTAGGED, ""), untagged + 1);
    struct fake_stream *stream = ask(3000, 'u', 3000, FAKE_HTTP1);
    fake_answer(stream, ":status: 200\ncontent-length: 20", body);
    assert_string_equal(stream->answer, body);
    assert_string_equal(answer_header(stream, "content-length"), "20");
    fake_close(stream);
}

static void answers_without_a_body_keep_their_length(void **state)
{
    (void)state;
    struct fake_stream *stream = get("/v1/responses/resp_@abc");
    fake_answer(stream, ":status: 204\ncontent-length: 0", "");
    assert_string_equal(answer_header(stream, "content-length"), "0");
    assert_null(stream->answer);
    fake_close(stream);
    char *path = tagged(":method: HEAD\n:path: /v1/responses/resp_@abc");
    stream = fake_open("grid_site_route");
    fake_head(stream, path, true);
    free(path);
    fake_answer(stream, ":status: 200\ncontent-length: 999\netag: \"x\"", "");
    assert_null(answer_header(stream, "content-length")); /* that of the body without tags */
    assert_null(answer_header(stream, "etag"));
    assert_null(stream->answer);
    fake_close(stream);
}

#define DIGESTS "\netag: \"x\"\ncontent-md5: x\ndigest: x\ncontent-digest: x\nrepr-digest: x"

/* They speak of the bytes that the site wrote. */
static void digests_stay_where_the_bytes_stay(void **state)
{
    static const char *const names[] = {"etag", "content-md5", "digest", "content-digest", "repr-digest"};
    (void)state;
    struct fake_stream *stream = created();
    fake_answer(stream, ANSWER DIGESTS, "{\"id\":\"resp_a\"}");
    for (size_t i = 0; i < COUNT(names); i++)
        assert_null(answer_header(stream, names[i]));
    assert_answer(stream, "{\"id\":\"resp_@a\"}");
    static const char *const kept[] = {":status: 400" DIGESTS, ":status: 206" DIGESTS,
                                       ":status: 200\ncontent-encoding: gzip\ncontent-encoding: identity" DIGESTS,
                                       ":status: 200\ncontent-encoding: identity\ncontent-encoding: br" DIGESTS};
    for (size_t k = 0; k < COUNT(kept); k++) {
        stream = created();
        fake_answer(stream, kept[k], "{\"id\":\"resp_a\"}");
        for (size_t i = 0; i < COUNT(names); i++)
            assert_non_null(answer_header(stream, names[i]));
        assert_answer(stream, "{\"id\":\"resp_a\"}");
    }
}

/* A site that fails while its answer is on its way: what Envoy says instead is not read as the site's. */
static void an_answer_of_envoy_is_not_tagged(void **state)
{
    (void)state;
    struct fake_stream *stream = created();
    fake_answer_head(stream, ANSWER, false);
    ON(http_filter_local_reply)(stream, stream->filter, 502, (struct grid_str){"x", 1}, false);
    fake_answer_piece(stream, "{\"id\":\"resp_q\"}", 15, true);
    assert_string_equal(stream->answer, "{\"id\":\"resp_q\"}");
    fake_close(stream);
    stream = created();
    fake_local_answer(stream, 503, ENVOY_FLAG_UPSTREAM_CONNECT_FAILURE, ":status: 503\ncontent-type: text/plain",
                      "plain");
    assert_non_null(strstr(stream->answer, "upstream_unavailable"));
    fake_close(stream);
}

/* A forged name on an answer that is tagged: one look, then it is gone. */
static void a_site_cannot_name_itself(void **state)
{
    (void)state;
    struct fake_stream *stream = created();
    fake_answer(stream, ANSWER "\nx-grid-site: liar\nx-grid-backend: liar\nx-grid-other: liar", "{\"id\":\"resp_a\"}");
    assert_string_equal(answer_header(stream, "x-grid-backend"), "east");
    assert_null(answer_header(stream, "x-grid-other"));
    assert_int_equal(stream->headers[ENVOY_RESPONSE_HEADERS].n, 4);
    assert_answer(stream, "{\"id\":\"resp_@a\"}");
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
#define BIG_CASE(function) cmocka_unit_test_setup_teardown(function, setup_big, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_path_goes_on_without_its_tag),
        CASE(other_requests_keep_path_and_codings),
        CASE(refusals_do_not_tell_why),
        CASE(ids_in_bodies_go_on_without_their_tags),
        CASE(the_two_buffers_may_meet_anywhere),
        CASE(trailers_and_earlier_filters_change_nothing),
        CASE(half_a_decoded_body_is_refused),
        BIG_CASE(a_long_body_is_turned_in_pieces),
        CASE(ids_in_answers_get_their_tag),
        CASE(events_do_not_wait),
        CASE(an_answer_cut_off_loses_nothing),
        CASE(what_is_not_ours_to_tag_passes_untouched),
        CASE(answers_without_a_body_keep_their_length),
        CASE(digests_stay_where_the_bytes_stay),
        CASE(an_answer_of_envoy_is_not_tagged),
        CASE(a_site_cannot_name_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
