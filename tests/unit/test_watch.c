/*
 * test_watch.c - times of tokens and reported against predicted cached tokens, counted for the site that answered
 */
#include "world.h"

#define MS 1000000ull

static struct world world;

static int set_up(void **state)
{
    (void)state;
    world_init(&world, "{'prefix_affinity':{'exploration':0}}", "east west");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&world);
    return 0;
}

static const char *metrics(void)
{
    static struct grid_buf out;
    grid_buf_done(&out);
    out = (struct grid_buf){.limit = 1u << 20};
    grid_router_metrics(world.router, 0, &out);
    assert_false(out.failed);
    return out.ptr;
}

static void has_line(const char *line)
{
    const char *text = metrics();
    char whole[512];
    (void)snprintf(whole, sizeof whole, "\n%s\n", line);
    if (!strstr(text, whole))
        print_message("no line %s in\n%s\n", line, text);
    assert_non_null(strstr(text, whole));
}

static void lacks(const char *part)
{
    assert_null(strstr(metrics(), part));
}

static void piece(struct grid_ticket *ticket, const char *json, uint64_t now_ns)
{
    struct text text = {.len = 0};
    text_put_json(&text, json);
    struct grid_str slice = text_view(&text);
    grid_watch_piece(ticket, &slice, 1, now_ns);
}

static bool begin(struct grid_ticket *ticket, int status, const char *type, const char *coding)
{
    grid_learn(ticket, status, GRID_FROM_SITE, 0, NULL);
    return grid_watch_begin(ticket, status, grid_str_of(type), grid_str_of(coding), 1000 * MS);
}

/* A request of 40 blocks whose answer says so much. */
static void answered(unsigned turns, const char *usage)
{
    struct grid_ticket *ticket = world_send(&world, 'p', 40, turns, 0);
    assert_true(begin(ticket, 200, "application/json", ""));
    piece(ticket, usage, 1001 * MS);
    grid_watch_end(ticket);
    grid_watch_end(ticket); /* counts once */
    grid_ticket_free(ticket);
}

static uint64_t count(const char *family, const char *site, const char *result)
{
    char label[128];
    (void)snprintf(label, sizeof label,
                   result ? "site=\"%s\",cluster=\"%s\",result=\"%s\"" : "site=\"%s\",cluster=\"%s\"", site, site,
                   result);
    return world_counter(&world, family, label);
}

static void predicted_against_reported(void **state)
{
    (void)state;
    const char *const results = "grid_route_cache_predictions_total";
    answered(1, "{'usage':{'prompt_tokens':2600}}"); /* it never told of cached tokens: nothing to compare */
    assert_int_equal(count("grid_route_prompt_tokens_total", "east", NULL), 0);
    answered(2, "{'usage':{'prompt_tokens':2700,'prompt_tokens_details':{'cached_tokens':2592}}}");
    assert_int_equal(count("grid_route_prompt_tokens_total", "east", NULL), 2700);
    assert_int_equal(count("grid_route_predicted_cached_tokens_total", "east", NULL), 40 * 64);
    assert_int_equal(count("grid_route_reported_cached_tokens_total", "east", NULL), 2592);
    assert_int_equal(count(results, "east", "right_hit"), 1);
    answered(3, "{'usage':{'prompt_tokens':100}}"); /* it told before: now it says none; and no more than the prompt */
    assert_int_equal(count("grid_route_prompt_tokens_total", "east", NULL), 2800);
    assert_int_equal(count("grid_route_predicted_cached_tokens_total", "east", NULL), 40 * 64 + 100);
    assert_int_equal(count("grid_route_reported_cached_tokens_total", "east", NULL), 2592);
    assert_int_equal(count(results, "east", "wrong_hit"), 1);
    world_signal(&world, "east", 50, 0);
    world_signal(&world, "west", 0, 0);
    answered(4,
             "{'usage':{'prompt_tokens':2600,'prompt_tokens_details':{'cached_tokens':63}}}"); /* less than a block */
    assert_int_equal(count(results, "west", "right_miss"), 1);
    assert_int_equal(count("grid_route_prompt_tokens_total", "west", NULL), 2600);
    assert_int_equal(count("grid_route_predicted_cached_tokens_total", "west", NULL), 0);
    world_must_load(&world, "{'prefix_affinity':{'exploration':0,'threshold':0.9}}", NULL, 0);
    struct grid_ticket *ticket = world_send(&world, 'q', 40, 1, 0);
    assert_true(begin(ticket, 200, "text/event-stream; charset=utf-8", "identity"));
    piece(ticket, "data: {'usage':{'prompt_tokens':2600,'prompt_tokens_details':{'cached_tokens':9999}}}\n\n", 0);
    grid_watch_end(ticket);
    grid_ticket_free(ticket);
    assert_int_equal(count(results, "west", "wrong_miss"), 1);
    assert_int_equal(count("grid_route_reported_cached_tokens_total", "west", NULL), 63 + 2600);
}

/* Drawn to go by load, or alone: nobody asked what the site holds. */
static void nothing_is_compared_where_nothing_was_predicted(void **state)
{
    (void)state;
    const char *told = "{'usage':{'prompt_tokens':2700,'prompt_tokens_details':{'cached_tokens':2592}}}";
    world_must_load(&world, "{'prefix_affinity':{'exploration':1}}", NULL, 0);
    answered(1, told);
    world_must_load(&world, "{'prefix_affinity':{'enabled':false}}", NULL, 0);
    answered(1, told);
    world_must_load(&world, "{'prefix_affinity':{'exploration':0}}", "east", 0);
    answered(1, told);
    assert_int_equal(count("grid_route_prompt_tokens_total", "east", NULL), 0);
    assert_int_equal(world_counter(&world, "grid_route_keyed_blocks_total", ""), 0);
    has_line("grid_route_matched_blocks_count 0");
}

static void times_of_an_event_stream(void **state)
{
    (void)state;
    const char *tokens = "data: {'choices':[{'delta':{}}]}\n\n";
    struct grid_ticket *ticket = world_send(&world, 'p', 40, 1, 0);
    assert_true(begin(ticket, 200, "Text/Event-Stream", ""));
    lacks("grid_route_first_token_seconds");
    piece(ticket, ": ping\n\n", 1010 * MS);
    piece(ticket, tokens, 1180 * MS);
    piece(ticket, tokens, 1195 * MS);
    piece(ticket, "data: [DONE]\n\n", 3000 * MS);
    piece(ticket, tokens, 1194 * MS); /* a clock that goes back costs nothing */
    grid_watch_end(ticket);
    piece(ticket, tokens, 9000 * MS);
    grid_ticket_free(ticket);
    has_line("grid_route_first_token_seconds_bucket{site=\"east\",cluster=\"east\",outcome=\"no_match\",le=\"0.1\"} 0");
    has_line("grid_route_first_token_seconds_bucket{site=\"east\",cluster=\"east\",outcome=\"no_match\",le=\"0.2\"} 1");
    has_line(
        "grid_route_first_token_seconds_bucket{site=\"east\",cluster=\"east\",outcome=\"no_match\",le=\"+Inf\"} 1");
    has_line("grid_route_first_token_seconds_sum{site=\"east\",cluster=\"east\",outcome=\"no_match\"} 0.18");
    has_line("grid_route_first_token_seconds_count{site=\"east\",cluster=\"east\",outcome=\"no_match\"} 1");
    has_line("grid_route_token_gap_seconds_bucket{site=\"east\",cluster=\"east\",outcome=\"no_match\",le=\"0.01\"} 1");
    has_line("grid_route_token_gap_seconds_bucket{site=\"east\",cluster=\"east\",outcome=\"no_match\",le=\"0.02\"} 2");
    has_line("grid_route_token_gap_seconds_sum{site=\"east\",cluster=\"east\",outcome=\"no_match\"} 0.015");
    has_line("# TYPE grid_route_token_gap_seconds histogram");
}

/* A request that its first site did not take is counted for the one that answered it. */
static void after_a_failover(void **state)
{
    (void)state;
    answered(1, "{}");
    struct grid_ticket *ticket = world_send(&world, 'p', 40, 2, 0);
    assert_true(grid_ticket_move(ticket, 0));
    assert_true(begin(ticket, 200, "text/event-stream", ""));
    piece(ticket,
          "data: {'choices':[1],'usage':{'prompt_tokens':2600,'prompt_tokens_details':{'cached_tokens':0}}}\n\n",
          1001 * MS);
    grid_watch_end(ticket);
    grid_ticket_free(ticket);
    assert_int_equal(count("grid_route_cache_predictions_total", "west", "right_miss"), 1);
    has_line("grid_route_first_token_seconds_count{site=\"west\",cluster=\"west\",outcome=\"sticky\"} 1");
}

static void what_is_not_looked_at(void **state)
{
    (void)state;
    struct grid_ticket *ticket = world_send(&world, 'p', 40, 1, 0);
    assert_false(begin(ticket, 404, "application/json", ""));
    assert_false(begin(ticket, 200, "application/json", "gzip"));
    piece(ticket, "{'usage':{'prompt_tokens':1}}", 0);
    struct grid_watched watched;
    grid_watch_usage(ticket, &watched);
    assert_false(watched.has_prompt || watched.has_cached || watched.has_output);
    assert_true(begin(ticket, 200, "application/json", "identity"));
    piece(ticket, "{'usage':{'prompt_tokens':2,'completion_tokens':3,'prompt_tokens_details':{'cached_tokens':1}}}", 0);
    grid_watch_usage(ticket, &watched);
    assert_true(watched.has_prompt && watched.has_cached && watched.has_output);
    assert_true(watched.prompt_tokens == 2 && watched.cached_tokens == 1 && watched.output_tokens == 3);
    grid_ticket_free(ticket); /* and ends early: nothing is counted */
    assert_int_equal(count("grid_route_prompt_tokens_total", "east", NULL), 0);
    struct grid_decision decision;
    struct request embeddings = {.path = "/v1/embeddings", .model = "m", .body = GRID_LIT("{}")};
    ticket = world_ask(&world, &embeddings);
    grid_route(ticket, NULL, 0, &decision);
    assert_false(begin(ticket, 200, "application/json", ""));
    grid_ticket_free(ticket);
    struct request get = {.method = "GET", .model = "m", .no_body = true};
    ticket = world_ask(&world, &get);
    grid_route(ticket, NULL, 0, &decision);
    assert_false(begin(ticket, 200, "application/json", ""));
    grid_ticket_free(ticket);
    ticket = world_ask(&world, &(struct request){.body = GRID_LIT("{}")});
    assert_false(begin(ticket, 200, "application/json", "")); /* no site was chosen */
    grid_ticket_free(ticket);
}

static void blocks_matched(void **state)
{
    (void)state;
    answered(1, "{}");
    answered(2, "{}");
    has_line("grid_route_matched_blocks_bucket{le=\"0\"} 1");
    has_line("grid_route_matched_blocks_bucket{le=\"31\"} 1");
    has_line("grid_route_matched_blocks_bucket{le=\"63\"} 2");
    has_line("grid_route_matched_blocks_sum 40");
    has_line("grid_route_matched_blocks_count 2");
    assert_int_equal(world_counter(&world, "grid_route_keyed_blocks_total", ""), 80);
}

static void time_in_the_filter(void **state)
{
    (void)state;
    grid_count_time(world.router, GRID_SIDE_REQUEST, 7000);
    grid_count_time(world.router, GRID_SIDE_RESPONSE, 2000000000);
    has_line("grid_filter_request_seconds_bucket{le=\"5e-06\"} 0");
    has_line("grid_filter_request_seconds_bucket{le=\"1e-05\"} 1");
    has_line("grid_filter_request_seconds_sum 7e-06");
    has_line("grid_filter_response_seconds_bucket{le=\"0.1\"} 0");
    has_line("grid_filter_response_seconds_bucket{le=\"+Inf\"} 1");
    has_line("grid_filter_response_seconds_sum 2");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(predicted_against_reported), TEST(nothing_is_compared_where_nothing_was_predicted),
        TEST(times_of_an_event_stream),   TEST(after_a_failover),
        TEST(what_is_not_looked_at),      TEST(blocks_matched),
        TEST(time_in_the_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
