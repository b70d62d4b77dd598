/*
 * test_ticket.c - what is wanted of a body, and requests that are answered here (behaviour.md L, O.18-19, O.40-42)
 */
#include "world.h"

#include <jansson.h>

static struct world world;
static struct text body;

static int set_up(void **state)
{
    (void)state;
    world_init(&world, "{'prefix_affinity':{'exploration':0}}", "a b /meta/llama");
    body.len = 0;
    text_put_chat(&body, "m", 'x', 40, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&world);
    return 0;
}

static struct grid_ticket *decided(struct request request)
{
    struct grid_decision decision;
    struct grid_ticket *ticket = world_ask(&world, &request);
    grid_route(ticket, NULL, 0, &decision);
    return ticket;
}

/* The answer's JSON is the caller's; the ticket ends. */
static json_t *answer(struct request request, int status)
{
    struct grid_ticket *ticket = decided(request);
    const struct grid_decision *d = grid_ticket_decision(ticket);
    assert_int_equal(d->action, GRID_REPLY);
    assert_int_equal(d->outcome, GRID_OUTCOME_UNCOUNTED);
    assert_int_equal(d->reply.status, status);
    json_t *root = json_loadb(d->reply.body.ptr, d->reply.body.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    grid_ticket_free(ticket);
    return root;
}

static void refused(struct request request, int status, const char *code)
{
    json_t *root = answer(request, status);
    const char *got = json_string_value(json_object_get(json_object_get(root, "error"), "code"));
    assert_non_null(got);
    assert_string_equal(got, code);
    json_decref(root);
}

static void forwarded(struct request request, const char *cluster, enum grid_outcome outcome, enum grid_reason reason)
{
    struct grid_ticket *ticket = decided(request);
    const struct grid_decision *d = grid_ticket_decision(ticket);
    assert_int_equal(d->action, GRID_FORWARD);
    assert_true(grid_str_eq(d->cluster, grid_str_of(cluster)));
    assert_int_equal(d->outcome, outcome);
    assert_int_equal(d->reason, reason);
    if (outcome != GRID_OUTCOME_UNCOUNTED) /* else the body need not have been read */
        assert_int_equal(d->blocks > 0, reason == GRID_REASON_NONE);
    grid_ticket_free(ticket);
}

static enum grid_want want(struct request request)
{
    struct grid_ticket *ticket = world_ask(&world, &request);
    enum grid_want got = grid_ticket_want(ticket);
    grid_ticket_free(ticket);
    return got;
}

static void test_what_is_wanted_of_a_body(void **state)
{
    (void)state;
    struct request chat = {.body = text_view(&body)};
    assert_int_equal(want(chat), GRID_WANT_BODY);
    chat.model = "m";
    assert_int_equal(want(chat), GRID_WANT_BODY); /* two sites admit: its keys matter */
    chat.path = "/v1/embeddings";
    assert_int_equal(want(chat), GRID_WANT_NOTHING);
    chat.model = NULL;
    assert_int_equal(want(chat), GRID_WANT_BODY); /* its model matters */
    assert_int_equal(want((struct request){.path = "/v1/responses", .model = "m"}), GRID_WANT_BODY);
    assert_int_equal(want((struct request){.model = "meta/llama"}), GRID_WANT_NOTHING); /* one site */
    assert_int_equal(want((struct request){.model = "none-such"}), GRID_WANT_NOTHING);
    assert_int_equal(want((struct request){.no_body = true}), GRID_WANT_NOTHING);
    assert_int_equal(want((struct request){.upgrade = true}), GRID_WANT_NOTHING);
    assert_int_equal(want((struct request){.method = "OPTIONS"}), GRID_WANT_NOTHING);
    assert_int_equal(want((struct request){.method = "GET", .path = "/v1/models"}), GRID_WANT_NOTHING);
    world_must_load(&world, NULL, "a b!", 0);
    assert_int_equal(want((struct request){.model = "m"}), GRID_WANT_NOTHING);
    struct request request = {.body = text_view(&body)};
    struct grid_ticket *ticket = world_ask(&world, &request);
    assert_int_equal(grid_ticket_max_body(ticket), GRID_DEFAULT_MAX_BODY_BYTES);
    grid_ticket_free(ticket);
}

static void test_where_the_model_comes_from(void **state)
{
    (void)state;
    forwarded((struct request){.body = text_view(&body)}, "a", GRID_OUTCOME_NO_MATCH, GRID_REASON_NONE);
    forwarded((struct request){.model = "meta/llama", .body = text_view(&body)}, "z", GRID_OUTCOME_UNCOUNTED,
              GRID_REASON_NONE); /* the header is the stronger source; one site admits, so the body is not read */
    forwarded((struct request){.path = "/v1/embeddings", .body = GRID_LIT("{\"model\":\"m\",\"input\":\"x\"}")}, "a",
              GRID_OUTCOME_NOT_APPLICABLE, GRID_REASON_NOT_A_PROMPT_PATH);
    forwarded((struct request){.method = "PUT", .model = "m"}, "a", GRID_OUTCOME_NOT_APPLICABLE, GRID_REASON_METHOD);
    forwarded((struct request){.body = GRID_LIT("{\"model\":\"m\",\"messages\":[]}")}, "a", GRID_OUTCOME_NOT_APPLICABLE,
              GRID_REASON_TOO_SHORT);
    forwarded((struct request){.model = "m", .body = GRID_LIT("not json")}, "a", GRID_OUTCOME_NOT_APPLICABLE,
              GRID_REASON_NOT_JSON);
    forwarded((struct request){.model = "m", .no_body = true}, "a", GRID_OUTCOME_NOT_APPLICABLE, GRID_REASON_EMPTY);
    assert_int_equal(world_outcomes(&world, GRID_OUTCOME_NOT_APPLICABLE), 5);
    assert_int_equal(world_counter(&world, "grid_route_unkeyed_total", "reason=\"not_json\""), 1);
    assert_int_equal(world_counter(&world, "grid_route_unkeyed_total", "reason=\"too_short\""), 1);
}

static void test_no_model(void **state)
{
    (void)state;
    static const struct grid_str bodies[] = {GRID_LIT(""),
                                             GRID_LIT("{}"),
                                             GRID_LIT("x"),
                                             GRID_LIT("{\"model\":7}"),
                                             GRID_LIT("{\"model\":null}"),
                                             GRID_LIT("[{\"model\":\"m\"}]"),
                                             GRID_LIT("{\"model\":\"\"}")};
    for (size_t i = 0; i < COUNT(bodies); i++)
        refused((struct request){.body = bodies[i]}, 400, "model_required");
    refused((struct request){.no_body = true}, 400, "model_required");
    assert_int_equal(world_decisions(&world, "", "bad_request"), COUNT(bodies) + 1);
    assert_int_equal(world_all_outcomes(&world), 0);
}

static void test_no_site(void **state)
{
    (void)state;
    refused((struct request){.model = "none-such"}, 404, "model_not_found");
    refused((struct request){.body = GRID_LIT("{\"model\":\"M\"}")}, 404, "model_not_found");
    assert_int_equal(world_decisions(&world, "", "no_route"), 2);
    world_must_load(&world, NULL, "a! b!", 0);
    json_t *root = answer((struct request){.path = "/v1/messages", .model = "m"}, 503);
    json_t *type = json_object_get(json_object_get(root, "error"), "type");
    assert_string_equal(json_string_value(type), "overloaded_error"); /* in the shape of its API */
    json_decref(root);
    refused((struct request){.model = "m"}, 503, "no_healthy_site");
    assert_int_equal(world_decisions(&world, "", "not_ready"), 2);
    world_must_load(&world, NULL, "", 0); /* every route withdrawn */
    refused((struct request){.model = "m"}, 404, "no_route");
}

static void test_no_config_at_all(void **state)
{
    (void)state;
    struct grid_options options = {.hash_seed = 1};
    struct world bare = {.fault = 0};
    struct grid_decision decision;
    assert_int_equal(grid_router_new(&options, &bare.router), GRID_OK);
    struct request request = {.body = text_view(&body)};
    struct grid_ticket *ticket = world_ask(&bare, &request);
    grid_route(ticket, NULL, 0, &decision);
    assert_int_equal(decision.reply.status, 404);
    assert_string_equal(decision.reply.code, "no_route");
    grid_ticket_free(ticket);
    assert_false(grid_signal(bare.router, GRID_LIT("a"), 1, 1, 1));
    assert_int_equal(grid_router_refresh(bare.router, 1), GRID_OK);
    grid_router_free(bare.router);
    grid_router_free(NULL);
}

static void test_a_cut_body(void **state)
{
    (void)state;
    struct grid_str head = {body.bytes, 4000}, start = {body.bytes, 5};
    forwarded((struct request){.model = "m", .body = head, .cut = true}, "a", GRID_OUTCOME_NOT_APPLICABLE,
              GRID_REASON_BODY_TOO_LARGE);
    forwarded((struct request){.body = head, .cut = true}, "a", GRID_OUTCOME_NOT_APPLICABLE,
              GRID_REASON_BODY_TOO_LARGE); /* its model was seen by then */
    refused((struct request){.body = start, .cut = true}, 413, "body_too_large");
    refused((struct request){.path = "/v1/responses", .model = "m", .body = head, .cut = true}, 413, "body_too_large");
    json_t *root = answer((struct request){.path = "/v1/messages", .body = start, .cut = true}, 413);
    json_t *type = json_object_get(json_object_get(root, "error"), "type");
    assert_string_equal(json_string_value(type), "request_too_large");
    json_decref(root);
}

static void test_upgrades_and_options(void **state)
{
    (void)state;
    refused((struct request){.method = "GET", .path = "/v1/responses", .model = "m", .upgrade = true}, 426,
            "unsupported_upgrade");
    refused((struct request){.method = "GET", .path = "/v1/realtime", .upgrade = true}, 400, "unsupported_upgrade");
    refused((struct request){.method = "GET", .path = "/v1/models", .upgrade = true}, 400, "unsupported_upgrade");
    refused((struct request){.method = "OPTIONS", .model = "m"}, 405, "method_not_allowed");
}

static struct grid_ticket *with_header(const char *name, const char *value, const char *path)
{
    char model[] = "m"; /* gone after the call, as a proxy's headers may be */
    struct grid_header headers[] = {{GRID_LIT("x-model"), grid_str_of(model)}, {grid_str_of(name), grid_str_of(value)}};
    struct grid_head head = {.method = GRID_LIT("POST"), .path = grid_str_of(path), .headers = headers, .n_headers = 2};
    struct grid_ticket *ticket = NULL;
    struct grid_decision decision;
    assert_int_equal(grid_ticket_new(world.router, &head, &ticket), GRID_OK);
    model[0] = '?';
    memset(headers, 0xff, sizeof headers);
    assert_int_equal(grid_ticket_want(ticket), GRID_WANT_NOTHING);
    grid_route(ticket, NULL, 0, &decision);
    return ticket;
}

static void test_heads_that_decide(void **state)
{
    (void)state;
    struct grid_ticket *ticket = with_header("x-model", "other", "/v1/chat/completions");
    assert_string_equal(grid_ticket_decision(ticket)->reply.code, "model_ambiguous");
    grid_ticket_free(ticket);
    ticket = with_header("content-encoding", "gzip", "/v1/chat/completions");
    assert_int_equal(grid_ticket_decision(ticket)->action, GRID_FORWARD);
    assert_int_equal(grid_ticket_decision(ticket)->outcome, GRID_OUTCOME_NOT_APPLICABLE);
    assert_true(grid_str_eq(grid_ticket_decision(ticket)->model, GRID_LIT("m")));
    grid_ticket_free(ticket);
    ticket = with_header("content-encoding", "gzip", "/v1/responses");
    assert_int_equal(grid_ticket_decision(ticket)->reply.status, 415);
    grid_ticket_free(ticket);
    ticket = with_header("content-type", "multipart/form-data; boundary=x", "/v1/audio/transcriptions");
    assert_int_equal(grid_ticket_decision(ticket)->action, GRID_FORWARD);
    grid_ticket_free(ticket);
}

static void expect_entry(const json_t *entry, const char *id)
{
    assert_string_equal(json_string_value(json_object_get(entry, "id")), id);
    assert_string_equal(json_string_value(json_object_get(entry, "object")), "model");
    assert_string_equal(json_string_value(json_object_get(entry, "owned_by")), "grid");
    assert_int_equal(json_integer_value(json_object_get(entry, "created")), 0);
    assert_true(json_is_integer(json_object_get(entry, "created")));
    assert_int_equal(json_object_size(entry), 4);
}

static void test_the_list_of_models(void **state)
{
    (void)state;
    world_must_load(&world, NULL, "a b /zz /B!", 0);
    json_t *root = answer((struct request){.method = "GET", .path = "/v1/models"}, 200);
    json_t *data = json_object_get(root, "data");
    assert_string_equal(json_string_value(json_object_get(root, "object")), "list");
    static const char *const names[] = {"B", "m", "zz"}; /* each once, sorted, admitted or not */
    assert_int_equal(json_array_size(data), COUNT(names));
    for (size_t i = 0; i < COUNT(names); i++)
        expect_entry(json_array_get(data, i), names[i]);
    json_decref(root);
    json_decref(answer((struct request){.method = "HEAD", .path = "/v1/models/"}, 200));
    world_must_load(&world, NULL, "", 0);
    root = answer((struct request){.method = "GET", .path = "/v1/models"}, 200);
    assert_int_equal(json_array_size(json_object_get(root, "data")), 0);
    json_decref(root);
    assert_int_equal(world_decisions(&world, "", "bad_request"), 0);
}

static void test_one_model(void **state)
{
    (void)state;
    static const char *const found[] = {"/v1/models/meta/llama", "/v1/models/meta%2Fllama",
                                        "/v1/models/meta%2fllama?x"};
    for (size_t i = 0; i < COUNT(found); i++) {
        json_t *root = answer((struct request){.method = "GET", .path = found[i]}, 200);
        expect_entry(root, "meta/llama");
        json_decref(root);
    }
    static const char *const missing[] = {"/v1/models/x",      "/v1/models/meta", "/v1/models/meta%252Fllama",
                                          "/v1/models/meta%2", "/v1/models/%6D",  "/v1/models/m%2F"};
    for (size_t i = 0; i < COUNT(missing); i++)
        refused((struct request){.method = "GET", .path = missing[i]}, 404, "model_not_found");
    char longest[1024];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "/v1/models/", 11);
    longest[sizeof longest - 1] = 0;
    refused((struct request){.method = "GET", .path = longest}, 404, "model_not_found");
    forwarded((struct request){.method = "GET", .path = "/v1/models", .model = "m"}, "a", GRID_OUTCOME_NOT_APPLICABLE,
              GRID_REASON_NOT_A_PROMPT_PATH); /* with a model header: routed */
}

static void test_failures_speak_the_requests_api(void **state)
{
    (void)state;
    struct grid_reply reply;
    struct request request = {.path = "/v1/messages", .model = "m"};
    struct grid_ticket *ticket = world_ask(&world, &request);
    grid_failure_reply(ticket, 504, false, &reply);
    assert_true(grid_str_starts(reply.body, GRID_LIT("{\"type\":\"error\"")));
    grid_failure_reply(NULL, 504, false, &reply);
    assert_true(grid_str_starts(reply.body, GRID_LIT("{\"error\"")));
    grid_ticket_free(ticket);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_wanted_of_a_body),
        TEST(test_where_the_model_comes_from),
        TEST(test_no_model),
        TEST(test_no_site),
        TEST(test_no_config_at_all),
        TEST(test_a_cut_body),
        TEST(test_upgrades_and_options),
        TEST(test_heads_that_decide),
        TEST(test_the_list_of_models),
        TEST(test_one_model),
        TEST(test_failures_speak_the_requests_api),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
