/*
 * test_scrape.c - the queue depth out of an exposition, cut into slices in every way
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "scrape.h"
#include "str.h"

static const struct grid_serving_signals plain = {.divisor = 1};

static struct grid_scrape scrape_as(const char *page, const struct grid_serving_signals *how)
{
    struct grid_str slice = grid_str_of(page);
    struct grid_scrape scrape;
    bool ok = grid_scrape_depth(&slice, 1, how, &scrape);
    assert_int_equal(ok, scrape.why == NULL);
    return scrape;
}

static void expect(const char *page, double depth)
{
    struct grid_scrape scrape = scrape_as(page, &plain);
    if (scrape.why)
        print_message("why: %s, page: %s\n", scrape.why, page);
    assert_null(scrape.why);
    assert_true(fabs(scrape.depth - depth) < 1e-9);
}

static void expect_none(const char *page)
{
    struct grid_scrape scrape = scrape_as(page, &plain);
    if (!scrape.why)
        print_message("depth %g, page: %s\n", scrape.depth, page);
    assert_non_null(scrape.why);
}

static void test_known_names(void **state)
{
    (void)state;
    expect("llm_d_epp_average_queue_size 1\n", 1);
    expect("inference_pool_average_queue_size{name=\"p\"} 2.5\n", 2.5);
    expect("vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 3.0\n", 3);
    expect("sglang:num_queue_reqs 4\n", 4);
    expect("tgi_queue_size 5", 5);
    expect_none("");
    expect_none("vllm:num_requests_running 3\n");
    expect_none("vllm:num_requests_waiting_total 3\n");
    expect_none("my_tgi_queue_size 3\n");
    expect_none("tgi_queue_size-x 3\n");
}

static void test_first_name_wins_wherever_it_stands(void **state)
{
    (void)state;
    expect("tgi_queue_size 5\nvllm:num_requests_waiting 3\nllm_d_epp_average_queue_size 1\n", 1);
    expect("llm_d_epp_average_queue_size 1\ntgi_queue_size 5\n", 1);
    expect("llm_d_epp_average_queue_size NaN\ntgi_queue_size 5\n", 5);
}

static void test_numbers(void **state)
{
    (void)state;
    expect("tgi_queue_size 1e2\n", 100);
    expect("tgi_queue_size 1.5E+1\n", 15);
    expect("tgi_queue_size 25e-1\n", 2.5);
    expect("tgi_queue_size +7\n", 7);
    expect("tgi_queue_size -4\n", 0);
    expect("tgi_queue_size .5\n", .5);
    expect("tgi_queue_size 1000000\n", 1000000);
    expect_none("tgi_queue_size 1000001\n");
    expect_none("tgi_queue_size +Inf\n");
    expect_none("tgi_queue_size -Inf\n");
    expect_none("tgi_queue_size nan\n");
    expect_none("tgi_queue_size 0x10\n");
    expect_none("tgi_queue_size 1e999\n");
    expect_none("tgi_queue_size\n");
    expect_none("tgi_queue_size \n");
    expect_none("tgi_queue_size 1,5\n");
    expect_none("tgi_queue_size three\n");
}

static void test_corners_of_the_format(void **state)
{
    (void)state;
    expect("# HELP tgi_queue_size 9\n# TYPE tgi_queue_size gauge\ntgi_queue_size 2\n", 2);
    expect("\r\n  \r\n tgi_queue_size\t2\r\n", 2);
    expect("tgi_queue_size{} 2\n", 2);
    expect("tgi_queue_size { a = \"1\" , b=\"2\", } 2\n", 2);
    expect("tgi_queue_size{a=\"1\",}2\n", 2);
    expect("tgi_queue_size{a=\"quote \\\" slash \\\\\",b=\"} 7\\n\"} 2\n", 2);
    expect("tgi_queue_size 2 # {id=\"x\"} 9\n", 2);
    expect("tgi_queue_size 2\n# EOF\ntgi_queue_size 8\n", 2);
    expect_none("# EOF\ntgi_queue_size 8\n");
    expect_none("tgi_queue_size{a=\"1\" 2\n");
    expect_none("tgi_queue_size{a=\"1} 2\n");
    expect_none("tgi_queue_size{a=1} 2\n");
    expect_none("tgi_queue_size{a=\"1\" b=\"2\"} 2\n");
    expect_none("tgi_queue_size{,} 2\n");
    expect_none("tgi_queue_size 2 1700000000000 9\n");
    expect_none("tgi_queue_size 2 soon\n");
    expect("tgi_queue_size{a=\"1} 2\ntgi_queue_size 3\n", 3); /* a bad line costs itself alone */
}

static void test_several_series(void **state)
{
    (void)state;
    const char *page = "vllm:num_requests_waiting{engine=\"0\"} 3\nvllm:num_requests_waiting{engine=\"1\"} 6\n"
                       "vllm:num_requests_waiting{engine=\"2\"} NaN\n";
    expect(page, 4.5);
    struct grid_serving_signals sum = {.divisor = 1, .sum = true};
    assert_true(fabs(scrape_as(page, &sum).depth - 9) < 1e-9);
    struct grid_serving_signals divided = {.divisor = 3};
    assert_true(fabs(scrape_as(page, &divided).depth - 1.5) < 1e-9);
}

static void test_configured_metric(void **state)
{
    (void)state;
    struct grid_serving_signals how = {.divisor = 1000, .metric = GRID_LIT("my_queue_milli")};
    const char *page = "vllm:num_requests_waiting 3\nmy_queue_milli 5500\n";
    assert_true(fabs(scrape_as(page, &how).depth - 5.5) < 1e-9);
    assert_non_null(scrape_as("vllm:num_requests_waiting 3\n", &how).why);
}

static void test_stamps(void **state)
{
    (void)state;
    struct grid_scrape one = scrape_as("tgi_queue_size 2 1700000000123\n", &plain);
    assert_true(one.has_stamp);
    assert_int_equal(one.stamp_ms, 1700000000123);
    assert_false(scrape_as("tgi_queue_size 2\n", &plain).has_stamp);
    assert_int_equal(scrape_as("tgi_queue_size{a=\"1\"} 2 100\ntgi_queue_size{a=\"2\"} 2 50\n", &plain).stamp_ms, 100);
    assert_false(scrape_as("tgi_queue_size{a=\"1\"} 2 100\ntgi_queue_size{a=\"2\"} 2\n", &plain).has_stamp);
    struct grid_scrape open = scrape_as("tgi_queue_size 2 1700000000.25\n# EOF\n", &plain);
    assert_int_equal(open.stamp_ms, 1700000000250);
    assert_int_equal(scrape_as("tgi_queue_size 2 1700000000\n# EOF\n", &plain).stamp_ms, 1700000000000);
    assert_int_equal(scrape_as("tgi_queue_size 2 -5\n", &plain).stamp_ms, -5);
    assert_false(scrape_as("tgi_queue_size 2 1e300\n", &plain).has_stamp);
}

static void test_start_time(void **state)
{
    (void)state;
    struct grid_scrape scrape = scrape_as("process_start_time_seconds 1.7e+09\ntgi_queue_size 1\n", &plain);
    assert_true(scrape.has_start_time);
    assert_true(fabs(scrape.start_time_seconds - 1.7e9) < 1e-3);
    scrape = scrape_as("process_start_time_seconds 7\n", &plain);
    assert_non_null(scrape.why);
    assert_true(scrape.has_start_time);
    assert_false(scrape_as("tgi_queue_size 1\n", &plain).has_start_time);
}

static void test_counters_of_a_life(void **state)
{
    (void)state;
    struct grid_scrape scrape = scrape_as("vllm:prompt_tokens_total{engine=\"0\"} 10\nvllm:prompt_tokens_total 5\n"
                                          "vllm:generation_tokens_total 2.5\nvllm:prompt_tokens_total_x 900\n"
                                          "vllm:prompt_tokens_totals 900\nvllm:prompt_tokens_created 900\n",
                                          &plain);
    assert_true(scrape.has_counters);
    assert_true(fabs(scrape.counters - 17.5) < 1e-9);
    scrape = scrape_as("tgi_request_count{a=\"b\"} 4\ntgi_queue_size 1\n", &plain);
    assert_true(scrape.has_counters && fabs(scrape.counters - 4) < 1e-9);
    scrape = scrape_as("sglang:num_requests_total NaN\nsglang:num_queue_reqs 2\n", &plain);
    assert_false(scrape.has_counters);
    assert_true(fabs(scrape.depth - 2) < 1e-9);
    assert_false(scrape_as("process_start_time_seconds 7\n", &plain).has_counters);
}

/* Every cut into two slices, and one slice a byte, read as the whole does. */
static void test_slices(void **state)
{
    (void)state;
    static const char page[] =
        "# HELP x y\nprocess_start_time_seconds 12\nvllm:num_requests_waiting{a=\"\\\"\"} 3 77\r\n"
        "\nvllm:num_requests_waiting{a=\"b\"} 5 78\ntgi_queue_size 1";
    size_t len = sizeof page - 1;
    for (size_t cut = 0; cut <= len; cut++) {
        struct grid_str slices[] = {{page, cut}, {NULL, 0}, {page + cut, len - cut}};
        struct grid_scrape scrape;
        assert_true(grid_scrape_depth(slices, 3, &plain, &scrape));
        assert_true(fabs(scrape.depth - 4) < 1e-9 && scrape.stamp_ms == 78 && scrape.has_start_time);
    }
    struct grid_str bytes[sizeof page - 1];
    for (size_t i = 0; i < len; i++)
        bytes[i] = (struct grid_str){page + i, 1};
    struct grid_scrape scrape;
    assert_true(grid_scrape_depth(bytes, len, &plain, &scrape));
    assert_true(fabs(scrape.depth - 4) < 1e-9);
}

/* A line of exactly the bound is read and one byte more is not, in one slice and across two. */
static void test_long_lines(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        size_t len = GRID_SCRAPE_LINE_BYTES + extra;
        static const char behind[] = "\nsglang:num_queue_reqs 9\n";
        char *page = malloc(len + sizeof behind);
        assert_non_null(page);
        memset(page, ' ', len);
        memcpy(page, GRID_LIT("vllm:num_requests_waiting").ptr, GRID_LIT("vllm:num_requests_waiting").len);
        page[len - 1] = '3';
        memcpy(page + len, behind, sizeof behind);
        for (size_t cut = 0; cut < len; cut += 500) {
            struct grid_str slices[] = {{page, cut}, {page + cut, len + sizeof behind - 1 - cut}};
            struct grid_scrape scrape;
            assert_true(grid_scrape_depth(slices, 2, &plain, &scrape));
            assert_true(fabs(scrape.depth - (extra ? 9 : 3)) < 1e-9);
        }
        free(page);
    }
}

static void test_no_slices(void **state)
{
    (void)state;
    struct grid_scrape scrape;
    assert_false(grid_scrape_depth(NULL, 0, NULL, &scrape));
    assert_non_null(scrape.why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_names),
        cmocka_unit_test(test_first_name_wins_wherever_it_stands),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_corners_of_the_format),
        cmocka_unit_test(test_several_series),
        cmocka_unit_test(test_configured_metric),
        cmocka_unit_test(test_stamps),
        cmocka_unit_test(test_start_time),
        cmocka_unit_test(test_counters_of_a_life),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_no_slices),
    };
    return cmocka_run_group_tests_name("scrape", tests, NULL, NULL);
}
