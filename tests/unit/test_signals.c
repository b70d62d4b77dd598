/*
 * test_signals.c - queue depths of several engines behind one cluster, and engines that restart
 *
 * Source    behaviour.md I, O (23, 48, 53).
 */
#include "tests/support/filter_setting.h"

#define RESETS "grid_route_cluster_resets_total"

/* Three engines behind east, one name behind west; `more` stands in east's signals. */
static void write_engines(const char *endpoints, const char *more)
{
    char text[2000];
    snprintf(text, sizeof(text),
             "{\"local_site\":\"east\",\"candidates\":["
             "{\"kind\":\"inference_model\",\"name\":\"llama\",\"site\":\"east\",\"cluster\":\"east\"},"
             "{\"kind\":\"inference_model\",\"name\":\"llama\",\"site\":\"west\",\"cluster\":\"west\"}],"
             "\"clusters\":[{\"name\":\"east\",\"endpoints\":[%s],\"signals\":{\"interval_ms\":1%s}},"
             "{\"name\":\"west\",\"endpoints\":[\"west.example:80\",\"also.example:80\"],"
             "\"signals\":{\"interval_ms\":1}}]}",
             endpoints, more);
    write_file("serving.json", text);
}

#define THREE "\"10.0.0.1:8000\",\"10.0.0.2:8000\",\"[fd00::3]:8000\""

static int several(void **state)
{
    (void)state;
    make_folder();
    memset(fake_callouts, 0, sizeof(fake_callouts));
    write_engines(THREE, ",\"timeout_ms\":50000");
    assert_true(fake_start(config));
    return 0;
}

/* A sample counts when it is newer than the last, by the millisecond. */
static void wait_for_the_next_millisecond(void)
{
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec == from.tv_sec && now.tv_nsec / 1000000 == from.tv_nsec / 1000000);
}

/* Waits until a poll of the cluster is under way, and ends it. */
static void tell(const char *cluster, int result, const char *page)
{
    time_t limit = time(NULL) + 20;
    wait_for_the_next_millisecond();
    while (!fake_finish_callout_to(cluster, result, page)) {
        fake_fire_timers();
        assert_true(time(NULL) < limit);
    }
}

static void tell_depth(size_t endpoint, unsigned depth)
{
    char cluster[60], page[80];
    snprintf(cluster, sizeof(cluster), "grid_poll|%zu|east", endpoint);
    snprintf(page, sizeof(page), "vllm:num_requests_waiting %u\n", depth);
    tell(cluster, ENVOY_CALLOUT_DONE, page);
}

static bool shows(const char *what)
{
    fake_admin("/grid");
    return strstr(fake_admin_page, what) != NULL;
}

static void each_engine_is_asked_and_the_depth_is_their_average(void **state)
{
    (void)state;
    fake_fire_timers();
    tell_depth(0, 3);
    assert_false(shows("\"depth\":3")); /* the others were not asked yet */
    assert_int_equal(fake_init_completes, 0);
    tell_depth(1, 9);
    tell_depth(2, 0);
    assert_true(shows("\"targets\":3,\"fresh\":3"));
    assert_true(shows("\"depth\":4,"));
    tell("west", ENVOY_CALLOUT_DONE, "vllm:num_requests_waiting 2\n"); /* names: as a whole */
    assert_int_equal(fake_init_completes, 1);
    fake_admin("/metrics");
    assert_non_null(strstr(fake_admin_page, "grid_route_queue_depth{site=\"east\",cluster=\"east\"} 4\n"));
    fake_fire_timers();
    assert_int_equal(fake_counter(POLLS, "east,ok"), 3);
    assert_int_equal(fake_counter(POLLS, "west,ok"), 1);
    for (size_t i = 0; i < FAKE_CALLOUTS; i++) {
        if (strcmp(fake_callouts[i].cluster, "grid_poll|2|east") == 0)
            assert_string_equal(fake_callouts[i].host, "[fd00::3]:8000");
    }
}

static void a_silent_engine_leaves_the_average_and_delays_nobody(void **state)
{
    (void)state;
    tell_depth(0, 10);
    tell_depth(1, 20);
    tell_depth(2, 30);
    assert_true(shows("\"depth\":20,"));
    write_engines(THREE, ",\"timeout_ms\":300"); /* how long a depth counts */
    fake_touch();
    fake_fire_timers();
    time_t limit = time(NULL) + 20; /* the third hangs: its last depth gets too old */
    while (!shows("\"fresh\":2") && time(NULL) < limit) {
        tell_depth(0, 10);
        tell_depth(1, 20);
    }
    assert_true(shows("\"fresh\":2"));
    assert_true(shows("\"depth\":15,"));
    tell("grid_poll|2|east", ENVOY_CALLOUT_RESET, "");
    assert_true(shows("\"why\":\"no answer in time, or the connection broke\""));
    tell_depth(2, 40);
    tell_depth(0, 10);
    assert_true(shows("\"fresh\":"));
}

static void what_is_known_of_an_engine_outlives_a_change_of_others(void **state)
{
    (void)state;
    tell_depth(0, 10);
    tell_depth(1, 20);
    tell_depth(2, 30);
    write_engines("\"10.0.0.2:8000\",\"10.0.0.9:8000\"", ",\"timeout_ms\":50000");
    fake_touch();
    fake_fire_timers();
    tell("10.0.0.9:8000", ENVOY_CALLOUT_DONE, "vllm:num_requests_waiting 40\n");
    assert_true(shows("\"targets\":2,\"fresh\":2"));
    assert_true(shows("\"depth\":30,")); /* the average of 20, from before, and 40 */
    write_engines("\"10.0.0.2:8000\"", "");
    fake_touch();
    fake_fire_timers();
    tell("east", ENVOY_CALLOUT_DONE, "vllm:num_requests_waiting 5\n");
    assert_true(shows("\"targets\":1,\"fresh\":1"));
}

static void a_late_answer_of_one_that_left_is_nothing(void **state)
{
    (void)state;
    fake_fire_timers();
    write_engines("\"10.0.0.7:8000\"", "");
    fake_touch();
    fake_fire_timers();
    assert_true(fake_finish_callout_to("grid_poll|2|east", ENVOY_CALLOUT_DONE, "vllm:num_requests_waiting 900\n"));
    assert_false(shows("900"));
}

static void counters_that_go_back_are_a_restart(void **state)
{
    (void)state;
    teach_east('c');
    uint64_t sticky = outcomes("sticky");
    tell("grid_poll|1|east", ENVOY_CALLOUT_DONE, "sglang:num_queue_reqs 0\nsglang:prompt_tokens_total 500\n");
    tell("grid_poll|1|east", ENVOY_CALLOUT_DONE, "sglang:num_queue_reqs 0\nsglang:prompt_tokens_total 500\n");
    tell("grid_poll|0|east", ENVOY_CALLOUT_DONE, "sglang:num_queue_reqs 0\nsglang:prompt_tokens_total 20\n");
    assert_int_equal(outcomes("sticky"), sticky);
    assert_int_equal(fake_counter(RESETS, ""), 0);
    tell("grid_poll|1|east", ENVOY_CALLOUT_DONE, "nothing that counts\n");
    tell("grid_poll|1|east", ENVOY_CALLOUT_DONE, "sglang:num_queue_reqs 0\nsglang:prompt_tokens_total 499\n");
    fake_fire_timers();
    assert_int_equal(fake_counter(RESETS, ""), 1);
    assert_true(shows("\"resets\":1"));
    fake_close(ask(3000, 'c', 3000, FAKE_HTTP1));
    assert_int_equal(outcomes("sticky"), sticky); /* forgotten */
}

static void start_times_tell_engines_apart(void **state)
{
    (void)state;
    tell("west", ENVOY_CALLOUT_DONE, "process_start_time_seconds 70\nvllm:prompt_tokens_total 500\n");
    tell("west", ENVOY_CALLOUT_DONE, "process_start_time_seconds 60\nvllm:prompt_tokens_total 1\n"); /* another pod */
    tell("west", ENVOY_CALLOUT_DONE, "process_start_time_seconds 70\nvllm:prompt_tokens_total 500\n");
    tell("west", ENVOY_CALLOUT_DONE, "process_start_time_seconds 60\nvllm:prompt_tokens_total 1\n");
    fake_fire_timers();
    assert_int_equal(fake_counter(RESETS, ""), 0);
    tell("west", ENVOY_CALLOUT_DONE, "process_start_time_seconds 80\n");
    fake_fire_timers();
    assert_int_equal(fake_counter(RESETS, ""), 1);
    tell("grid_poll|0|east", ENVOY_CALLOUT_DONE, "process_start_time_seconds 70\nvllm:prompt_tokens_total 500\n");
    tell("grid_poll|0|east", ENVOY_CALLOUT_DONE, "process_start_time_seconds 70\nvllm:prompt_tokens_total 1\n");
    fake_fire_timers();
    assert_int_equal(fake_counter(RESETS, ""), 2); /* the same start, and counters that went back */
}

static void engines_by_turns_are_not_restarts_for_ever(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        tell("west", ENVOY_CALLOUT_DONE, i % 2 ? "tgi_request_count 7\n" : "tgi_request_count 900\n");
    fake_fire_timers();
    assert_int_equal(fake_counter(RESETS, ""), 2);
    assert_non_null(strstr(fake_log, "several engines answer at one address"));
}

/* ---- pages ------------------------------------------------------------------------------------------------------ */

static void a_page_of_another_origin_reads_nothing(void **state)
{
    static const struct {
        const char *lines;
        int status;
    } cases[] = {{":authority: 10.0.0.1:9902", 200},
                 {":authority: gateway.example:9902", 200}, /* a scrape */
                 {":authority: gateway.example:9902\nuser-agent: Mozilla/5.0", 403},
                 {":authority: gateway.example:9902\nsec-fetch-site: same-origin", 403},
                 {":authority: 10.0.0.1:9902\nuser-agent: Mozilla/5.0", 200},
                 {":authority: [::1]:9902\nuser-agent: Mozilla/5.0", 200},
                 {":authority: localhost:9902\nuser-agent: Mozilla/5.0\nsec-fetch-site: same-origin", 200},
                 {":authority: grid.models.svc:9902\nuser-agent: Mozilla/5.0", 200},
                 {":authority: 10.evil:9902\nuser-agent: Mozilla/5.0", 403},
                 {":authority: localhost\nsec-fetch-site: cross-site", 403},
                 {":authority: localhost:9902\norigin: http://localhost:9902", 200},
                 {":authority: localhost:9902\norigin: http://evil.example", 403},
                 {":authority: localhost:9902\norigin: http://xlocalhost:9902", 403},
                 {":authority: localhost:9902\norigin: null", 403}};
    static const char *const paths[] = {"/", "/grid", "/metrics", "/ready"};
    (void)state;
    for (size_t i = 0; i < COUNT(cases) * COUNT(paths); i++) {
        char lines[400];
        int status = cases[i / COUNT(paths)].status;
        const char *path = paths[i % COUNT(paths)];
        snprintf(lines, sizeof(lines), ":method: GET\n:path: %s\n%s", path, cases[i / COUNT(paths)].lines);
        struct fake_stream *stream = fake_open("grid_ops");
        fake_head(stream, lines, true);
        if (status == 200 && strcmp(path, "/ready") == 0)
            status = 503; /* nothing was polled yet */
        if (stream->reply_status != status)
            print_message("%s\n", lines);
        assert_int_equal(stream->reply_status, status);
        fake_close(stream);
    }
}

static void the_state_is_told(void **state)
{
    (void)state;
    fake_clusters[0] = (struct fake_cluster){"east", 3, 2};
    fake_clusters[1] = (struct fake_cluster){"west", 1, 0};
    fake_fire_timers();
    assert_true(shows("\"cluster\":\"east\",\"admitted\":true,\"health\":\"healthy\",\"hosts\":3,\"healthy_hosts\":2"));
    assert_true(
        shows("\"cluster\":\"west\",\"admitted\":true,\"health\":\"unhealthy\",\"hosts\":1,\"healthy_hosts\":0"));
    assert_true(shows("\"outcomes\":{\"sticky\":0,"));
    assert_true(shows("\"failovers\":0,\"resets\":0"));
    assert_true(shows("\"bytes_per_entry\":"));
    assert_true(shows("\"last_refusal\":null"));
    fake_admin("/metrics");
    assert_non_null(strstr(fake_admin_page, "grid_cluster_hosts{cluster=\"east\"} 3\n"));
    assert_non_null(strstr(fake_admin_page, "grid_cluster_healthy_hosts{cluster=\"west\"} 0\n"));
    write_file("serving.json", "{\"local_site\":7}");
    fake_touch();
    fake_fire_timers();
    write_engines(THREE, "");
    fake_touch();
    fake_fire_timers();
    assert_true(shows("\"result\":\"applied\""));
    assert_true(shows("\"last_refusal\":{\"age_ms\":"));
    assert_true(shows("\"error\":\"serving.json: "));
}

int main(void)
{
#define WITH_ENGINES(test) cmocka_unit_test_setup_teardown(test, several, teardown)
    const struct CMUnitTest tests[] = {
        WITH_ENGINES(each_engine_is_asked_and_the_depth_is_their_average),
        WITH_ENGINES(a_silent_engine_leaves_the_average_and_delays_nobody),
        WITH_ENGINES(what_is_known_of_an_engine_outlives_a_change_of_others),
        WITH_ENGINES(a_late_answer_of_one_that_left_is_nothing),
        WITH_ENGINES(counters_that_go_back_are_a_restart),
        WITH_ENGINES(start_times_tell_engines_apart),
        WITH_ENGINES(engines_by_turns_are_not_restarts_for_ever),
        WITH_ENGINES(a_page_of_another_origin_reads_nothing),
        WITH_ENGINES(the_state_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
