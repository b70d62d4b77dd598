/*
 * fake_changes.h - cases of test_filter.c about changes of the folder: what `run` tells of them, clusters that return
 */
#ifndef GRID_FAKE_CHANGES_H
#define GRID_FAKE_CHANGES_H

#include "tests/support/filter_setting.h"

static inline void a_cluster_that_returns_counts_on(void **state)
{
    (void)state;
    for (uint64_t round = 1; round < 4; round++) {
        poll_again();
        fake_finish_callout(ENVOY_CALLOUT_DONE, "200", "", "vllm:num_requests_waiting 7\n");
        fake_admin("/metrics");
        char line[80];
        snprintf(line, sizeof(line), POLLS "{cluster=\"east\",result=\"ok\"} %d\n", (int)round);
        assert_non_null(strstr(fake_admin_page, line));
        write_file("serving.json",
                   "{\"local_site\":\"west\",\"candidates\":[{\"kind\":\"inference_model\",\"name\":\"m\","
                   "\"site\":\"west\",\"cluster\":\"west\"}],\"clusters\":[{\"name\":\"west\","
                   "\"endpoints\":[\"127.0.0.1:2\"],\"signals\":false}]}");
        fake_touch();
        fake_fire_timers();
        fake_admin("/metrics");
        assert_non_null(strstr(fake_admin_page, line)); /* a counter does not vanish */
        fake_admin("/grid");
        assert_non_null(strstr(fake_admin_page, "\"polls\":[]"));
        write_serving("");
        fake_touch();
        fake_fire_timers();
        assert_int_equal(fake_counter(POLLS, "east,ok"), round);
    }
}

static inline void assert_reloads(uint64_t applied, uint64_t reused, uint64_t rejected)
{
    fake_touch();
    fake_fire_timers();
    fake_fire_timers();
    assert_int_equal(fake_counter(RELOADS, "applied"), applied);
    assert_int_equal(fake_counter(RELOADS, "reused"), reused);
    assert_int_equal(fake_counter(RELOADS, "rejected"), rejected);
    fake_admin("/grid");
}

static inline void what_run_did_with_a_change_is_told_once(void **state)
{
    (void)state;
    write_file("reload", "77 1 0 1\nrejected\ngateway.yaml:6: role: \"provider\"\n");
    assert_reloads(0, 0, 1);
    assert_non_null(strstr(fake_admin_page, "\"result\":\"rejected\""));
    assert_non_null(strstr(fake_admin_page, "\"error\":\"gateway.yaml:6: role: \\\"provider\\\"\"}"));
    assert_non_null(strstr(fake_log, "rejected"));
    assert_reloads(0, 0, 1);
    write_file("reload", "77 3 1 2\nreused\n\n"); /* one of them was not seen */
    assert_reloads(0, 1, 2);
    assert_non_null(strstr(fake_admin_page, "\"result\":\"reused\""));
    write_serving(",{\"kind\":\"inference_model\",\"name\":\"fresh\",\"site\":\"west\",\"cluster\":\"west\"}");
    write_file("reload", "77 4 1 2\napplied\n\n");
    assert_reloads(1, 1, 2);
    assert_non_null(strstr(fake_admin_page, "\"result\":\"applied\""));
    write_file("reload", "77 3 0 1\nrejected\nold\n");
    assert_reloads(1, 1, 2);
    write_file("reload", "77 4 1 2\napplied\n\n");
    assert_reloads(1, 1, 2);
    write_file("reload", "88 1 0 1\nrejected\nby another run\n");
    assert_reloads(1, 1, 3);
    static const char *const wrong[] = {"",
                                        "88",
                                        "88 2 0 9",
                                        "88 2 0 9\n",
                                        "88 2 0 -9\nrejected\n\n",
                                        "88 2 0 99999999999999999999\nrejected\n\n",
                                        "88 2 0 9\nmaybe\n\n"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        write_file("reload", wrong[i]);
        assert_reloads(1, 1, 3);
    }
}

static inline void what_an_earlier_run_left_is_not_news(void **state)
{
    (void)state;
    make_folder();
    write_file("reload", "66 9 4 5\nrejected\nlong ago\n");
    assert_true(fake_start(config));
    assert_reloads(0, 1, 0); /* an event without a change */
    write_file("reload", "67 1 0 1\nrejected\nnow\n");
    assert_reloads(0, 1, 1);
    fake_stop();
    remove_folder();
}

#endif
