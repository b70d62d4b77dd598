/*
 * test_pick.c - retries against a fake Envoy: which requests may be retried, where they go, and when they must not
 *
 * Source    behaviour.md O (13, 43, 55).
 */
#include "tests/support/filter_setting.h"

#define FAILOVERS "grid_route_failovers_total"
#define SENT(stream) fake_header(&(stream)->headers[ENVOY_REQUEST_HEADERS], "x-envoy-retry-on")

static uint64_t failovers(const char *labels)
{
    fake_fire_timers();
    return fake_counter(FAILOVERS, labels);
}

/* A whole exchange over the connection with that end, so that it is known afterwards. */
static void use(const char *local_address)
{
    struct fake_stream *stream = ask(3000, 'u', 3000, FAKE_HTTP1);
    snprintf(stream->local_address, sizeof(stream->local_address), "%s", local_address);
    fake_answer(stream, ":status: 200", "{}");
    fake_close(stream);
}

static void what_was_not_taken_goes_on(void **state)
{
    (void)state;
    teach_east('f');
    struct fake_stream *stream = ask(3000, 'f', 3000, FAKE_HTTP1);
    assert_string_equal(stream->cluster, "east");
    assert_string_equal(SENT(stream), "connect-failure,refused-stream,reset-before-request,reset");
    assert_string_equal(fake_header(&stream->headers[ENVOY_REQUEST_HEADERS], "x-envoy-max-retries"), "2");
    assert_true(fake_retry(stream, ""));
    assert_string_equal(stream->cluster, "west");
    assert_int_equal(failovers("east,east"), 1);
    assert_int_equal(failovers("west,west"), 0);
    assert_int_equal(fake_counter("grid_route_decisions_total", "west,west,failover"), 1);
    fake_answer(stream, ":status: 200", "{}");
    assert_string_equal(fake_header(&stream->headers[ENVOY_RESPONSE_HEADERS], "x-grid-site"), "west");
    fake_close(stream);
    stream = ask(3000, 'f', 3000, FAKE_HTTP1);
    assert_string_equal(stream->cluster, "west"); /* which holds it now, and east no more */
    fake_close(stream);
}

static void none_left_is_the_same_again(void **state)
{
    (void)state;
    struct fake_stream *stream = ask(3000, 'n', 3000, FAKE_HTTP1);
    assert_true(fake_retry(stream, ""));
    assert_string_equal(stream->cluster, "west");
    assert_true(fake_retry(stream, ""));
    assert_string_equal(stream->cluster, "west");
    assert_false(fake_retry(stream, "")); /* Envoy's own count */
    fake_local_answer(stream, 503, 0x20, ":status: 503\ncontent-type: text/plain", "no");
    assert_string_equal(fake_header(&stream->headers[ENVOY_RESPONSE_HEADERS], "x-grid-site"), "west");
    fake_close(stream);
    assert_int_equal(failovers("east,east"), 1);
}

static void an_ill_site_is_not_gone_on_to(void **state)
{
    (void)state;
    struct fake_stream *stream = ask(3000, 'i', 3000, FAKE_HTTP1);
    fake_clusters[1].healthy = 0;
    assert_true(fake_retry(stream, ""));
    assert_string_equal(stream->cluster, "east");
    assert_int_equal(failovers("east,east"), 0);
    fake_close(stream);
    stream = ask(3000, 'i', 3000, FAKE_HTTP1);
    assert_null(SENT(stream));
    fake_close(stream);
    fake_clusters[1].healthy = 1;
}

static void who_cannot_use_a_retry_does_not_pay_for_one(void **state)
{
    (void)state;
    struct fake_stream *stream = fake_open("grid_site_route"); /* the only site */
    fake_head(stream, POST "\nx-model: solo\ncontent-length: 3000", false);
    assert_null(SENT(stream));
    assert_int_equal((int)stream->ticket, 0);
    fake_close(stream);
    static const char *const heads[] = {"\ncontent-length: 1048576", "\ncontent-length: 1048577", "",
                                        "\ncontent-length: 99999999999999999999999"};
    for (size_t i = 0; i < COUNT(heads); i++) { /* streamed through: only its length is known */
        char head[300];
        snprintf(head, sizeof(head),
                 ":method: POST\n:path: /v1/audio/speech\ncontent-type: audio/wav\nx-model: llama%s", heads[i]);
        stream = fake_open("grid_site_route");
        fake_head(stream, head, false);
        assert_true(stream->head_sent);
        assert_int_equal(SENT(stream) != NULL, i == 0);
        fake_close(stream);
    }
    stream = fake_open("grid_site_route"); /* without a body at all */
    fake_head(stream, ":method: GET\n:path: /v1/files\nx-model: llama", true);
    assert_non_null(SENT(stream));
    fake_close(stream);
}

static void what_the_site_may_have_seen_stays(void **state)
{
    (void)state;
    teach_east('s');
    struct fake_stream *stream = ask(3000, 's', 3000, FAKE_HTTP1);
    assert_false(fake_retry(stream, "10.0.0.1:7001")); /* a new connection: the request was read */
    fake_local_answer(stream, 503, 0x2, ":status: 503\ncontent-type: text/plain", "no");
    assert_non_null(strstr(stream->answer, "upstream_unavailable"));
    assert_string_equal(fake_header(&stream->headers[ENVOY_RESPONSE_HEADERS], "x-grid-site"), "east");
    fake_close(stream);
    uint64_t sticky = outcomes("sticky");
    fake_close(ask(3000, 's', 3000, FAKE_HTTP1));
    assert_int_equal(outcomes("sticky"), sticky); /* its blocks dropped */
    assert_int_equal(failovers("east,east"), 0);
}

static void an_idle_connection_may_end_once(void **state)
{
    (void)state;
    teach_east('r');
    use("10.0.0.1:7002");
    struct fake_stream *stream = ask(3000, 'r', 3000, FAKE_HTTP1);
    assert_true(fake_retry(stream, "10.0.0.1:7002"));
    assert_string_equal(stream->cluster, "east");
    use("10.0.0.1:7003");
    assert_false(fake_retry(stream, "10.0.0.1:7003"));
    fake_close(stream);
    assert_int_equal(failovers("east,east"), 0);

    stream = ask(3000, 'r', 3000, FAKE_HTTP1); /* after the race the site may still be gone */
    assert_true(fake_retry(stream, "10.0.0.1:7002"));
    assert_string_equal(stream->cluster, "east");
    assert_true(fake_retry(stream, ""));
    assert_string_equal(stream->cluster, "west");
    fake_close(stream);
    assert_int_equal(failovers("east,east"), 1);
}

/* One that cannot be retried: the race still is no lesson. */
static void the_end_of_an_idle_connection_teaches_nothing(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        teach_east('t');
        use("10.0.0.1:7004");
        fake_clusters[1].healthy = 0;
        struct fake_stream *stream = ask(3000, 't', 3000, FAKE_HTTP1);
        fake_clusters[1].healthy = 1;
        assert_null(SENT(stream));
        snprintf(stream->local_address, sizeof(stream->local_address), "10.0.0.1:%d", known ? 7004 : 7005);
        fake_local_answer(stream, 503, 0x40, ":status: 503\ncontent-type: text/plain", "no");
        fake_close(stream);
        uint64_t sticky = outcomes("sticky");
        fake_close(ask(3000, 't', 3000, FAKE_HTTP1));
        assert_int_equal(outcomes("sticky"), sticky + (known ? 1 : 0));
    }
}

/* Streams end in any order, and a number of one that ended leads nowhere. */
static void many_streams_find_their_own(void **state)
{
    enum { MANY = 3000 };
    static struct fake_stream *streams[MANY];
    (void)state;
    for (size_t i = 0; i < MANY; i++)
        streams[i] = ask(300, (char)('a' + i % 26), 300, FAKE_HTTP2);
    for (size_t i = 0; i < MANY; i += 2) {
        fake_close(streams[i]);
        streams[i] = NULL;
    }
    for (size_t i = MANY - 1; i < MANY; i -= 2) {
        assert_true(fake_retry(streams[i], ""));
        assert_string_equal(streams[i]->cluster, "west");
        fake_close(streams[i]);
    }
    assert_int_equal(failovers("east,east"), MANY / 2);
    struct fake_stream *stream = fake_open("grid_site_route");
    stream->ticket = 1e300;
    assert_false(ON(cluster_specifier_select)(NULL, stream));
    stream->ticket = 1;
    assert_false(ON(cluster_specifier_select)(NULL, stream));
    fake_close(stream);
}

int main(void)
{
#define IN_A_GRID(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        IN_A_GRID(what_was_not_taken_goes_on),
        IN_A_GRID(none_left_is_the_same_again),
        IN_A_GRID(an_ill_site_is_not_gone_on_to),
        IN_A_GRID(who_cannot_use_a_retry_does_not_pay_for_one),
        IN_A_GRID(what_the_site_may_have_seen_stays),
        IN_A_GRID(an_idle_connection_may_end_once),
        IN_A_GRID(the_end_of_an_idle_connection_teaches_nothing),
        IN_A_GRID(many_streams_find_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
