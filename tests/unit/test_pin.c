/*
 * test_pin.c - requests that an id leads home (behaviour.md H.3 to H.5, L, O.6, 11, 18, 20, 21, 24, 33 to 35, 41)
 */
#include "pins.h"

/* ---- paths ------------------------------------------------------------------------------------------------------ */

static void test_a_stored_path_goes_home_without_its_tag(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *site, *sent;
    } rows[] = {
        {"GET", "/v1/responses/<a|abc>", "a", "/v1/responses/resp_abc"},
        {"DELETE", "/v1/responses/<east|abc>", "east", "/v1/responses/resp_abc"},
        {"POST", "/v1/responses/<a|a.b.c>/cancel", "a", "/v1/responses/resp_a.b.c/cancel"},
        {"GET", "/v1/responses/<a|x>/input_items?limit=2&after=<a|y>", "a", NULL},
        {"GET", "/v1/responses/<a|x>?stream=true", "a", "/v1/responses/resp_x?stream=true"},
        {"GET", "/v1/responses/<a|x>/", "a", "/v1/responses/resp_x/"},
        {"GET", "/v1/responses/<a|x>//y/../%2F..", "a", "/v1/responses/resp_x//y/../%2F.."},
        {"GET", "/v1/responses/<a|..>", "a", "/v1/responses/resp_.."}, /* no segment of dots comes to be */
        {"GET", "/v1/responses/{a|x}", "a", "/v1/responses/conv_x"},
        {"POST", "/v1/conversations/{a|c1}/items", "a", "/v1/conversations/conv_c1/items"},
        {"GET", "/v1/conversations/{z|c1}/items/msg_9", "z", "/v1/conversations/conv_c1/items/msg_9"},
        {"PATCH", "/v1/conversations/{a|compact}", "a", "/v1/conversations/conv_compact"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct grid_ticket *ticket = decide(stored(rows[i].method, rows[i].path, NULL), NULL);
        const struct grid_decision *d = grid_ticket_decision(ticket);
        size_t n = 9;
        expect_site(ticket, rows[i].site, true);
        assert_int_equal(d->reason, GRID_REASON_NOT_A_PROMPT_PATH);
        assert_null(d->model.ptr);
        if (rows[i].sent) {
            if (!grid_str_eq(d->path, grid_str_of(rows[i].sent)))
                print_message("%.*s\n", GRID_FMT(d->path));
            assert_true(grid_str_eq(d->path, grid_str_of(rows[i].sent)));
        } else { /* a query is not looked at */
            char want[TEXT_ROOM];
            (void)snprintf(want, sizeof want, "/v1/responses/resp_x/input_items?limit=2&after=%s", expand("<a|y>"));
            assert_true(grid_str_eq(d->path, grid_str_of(want)));
        }
        (void)grid_ticket_edits(ticket, &n);
        assert_int_equal(n, 0);
        grid_ticket_free(ticket);
    }
    assert_int_equal(world_all_outcomes(&world), 0);
    assert_int_equal(world_decisions(&world, "a", "pinned"), COUNT(rows) - 2);
    assert_int_equal(world_decisions(&world, "a", "routed"), 0);
}

/* One answer for all reasons: nothing in it tells a wrong key from a site that left. */
static void test_one_refusal_of_paths(void **state)
{
    (void)state;
    char wrong_key[TEXT_ROOM];
    load_keys(KEY_TWO, NULL);
    (void)snprintf(wrong_key, sizeof wrong_key, "%s", expand("/v1/responses/<a|abc>"));
    load_keys(KEY_ONE, NULL);
    const char *const paths[] = {
        "/v1/responses/resp_abc",
        "/v1/responses/abc",
        "/v1/responses//",
        "/v1/responses//cancel",
        "/v1/responses/<gone|abc>", /* no such site */
        "/v1/responses/<a|>",
        "/v1/responses/<a|a%2Fb>",
        "/v1/responses/<a|%2e%2e>",
        "/v1/responses/%72<a|abc>",
        "/v1/responses/x<a|abc>",
        "/v1/responses/resp_a.0a1b2c3d..abc", /* no mac where there is a key */
        "/v1/responses/resp_a.0a1b2c3d.0000000000000000.abc",
        "/v1/responses/compact/x",
        "/v1/conversations//",
        "/v1/conversations/conv_abc",
        "/v1/conversations/{gone|abc}/items",
        wrong_key,
    };
    struct grid_ticket *first = decide(stored("GET", paths[0], NULL), NULL);
    const struct grid_reply *want = &grid_ticket_decision(first)->reply;
    assert_int_equal(want->n_headers, 1);
    assert_null(strstr(want->body.ptr, "\"param\""));
    for (size_t i = 0; i < COUNT(paths); i++) {
        refused(stored("GET", paths[i], NULL), 404, "not_found");
        struct grid_ticket *ticket = decide(stored("DELETE", paths[i], "m"), NULL);
        const struct grid_reply *got = &grid_ticket_decision(ticket)->reply;
        assert_true(grid_str_eq(got->body, want->body));
        assert_int_equal(got->n_headers, want->n_headers);
        grid_ticket_free(ticket);
    }
    grid_ticket_free(first);
    assert_int_equal(world_decisions(&world, "", "no_route"), 2 * COUNT(paths) + 1);
}

static void test_a_mac_is_of_its_site_and_cluster(void **state)
{
    (void)state;
    char a[TEXT_ROOM], east[TEXT_ROOM], path[2 * TEXT_ROOM];
    (void)snprintf(a, sizeof a, "%s", expand("<a|abc>"));
    (void)snprintf(east, sizeof east, "%s", expand("<east|abc>"));
    (void)snprintf(path, sizeof path, "/v1/responses/resp_east%s", a + strlen("resp_a")); /* another site */
    refused(stored("GET", path, NULL), 404, "not_found");
    (void)snprintf(path, sizeof path, "/v1/responses/resp_a.%.8s%s", east + strlen("resp_east."),
                   a + strlen("resp_a.") + 8); /* another cluster */
    refused(stored("GET", path, NULL), 404, "not_found");
    (void)snprintf(path, sizeof path, "/v1/responses/%s", a);
    for (size_t at = strlen("/v1/responses/resp_a."); at < strlen(path) - 4; at++) {
        char was = path[at];
        path[at] = was == 'a' ? 'b' : 'a'; /* each digit of mark and mac, and the dot between */
        refused(stored("GET", path, NULL), 404, "not_found");
        path[at] = was;
    }
    goes(stored("GET", path, NULL), "a", true);
    (void)snprintf(path, sizeof path, "/v1/responses/<a|abc>");
    load_keys(NULL, NULL); /* unkeyed: any well-formed tag whose cluster is there */
    goes(stored("GET", path, NULL), "a", true);
    (void)snprintf(path, sizeof path, "/v1/responses/resp_a.%.8s.0123456789ABCDEF.abc", a + strlen("resp_a."));
    goes(stored("GET", path, NULL), "a", true);
    (void)snprintf(path, sizeof path, "/v1/responses/resp_a.%.8s.0123456789abcde.abc", a + strlen("resp_a."));
    refused(stored("GET", path, NULL), 404, "not_found");
    refused(stored("GET", "/v1/responses/resp_a.FFFFFFFF..abc", NULL), 404, "not_found");
}

/* A genuine tag of a pair that the grid does not have. */
static void test_a_cluster_of_another_site(void **state)
{
    (void)state;
    struct grid_buf path = {.limit = TEXT_ROOM};
    grid_buf_puts(&path, "/v1/responses/");
    grid_router_tag(world.router, GRID_ID_RESPONSE, GRID_LIT("east"), GRID_LIT("a"), GRID_LIT("abc"), &path);
    refused(stored("GET", path.ptr, NULL), 404, "not_found");
    grid_buf_done(&path);
}

static void test_keys_that_change(void **state)
{
    (void)state;
    char old[TEXT_ROOM];
    (void)snprintf(old, sizeof old, "%s", expand("/v1/responses/<a|abc>"));
    load_keys(KEY_TWO, KEY_ONE); /* the first signs, all verify */
    goes(stored("GET", old, NULL), "a", true);
    goes(stored("GET", "/v1/responses/<a|abc>", NULL), "a", true);
    assert_string_not_equal(expand("/v1/responses/<a|abc>"), old);
    load_keys(KEY_TWO, NULL);
    refused(stored("GET", old, NULL), 404, "not_found");
}

static void test_admission_and_model(void **state)
{
    (void)state;
    struct grid_ticket *ticket = decide(stored("GET", "/v1/responses/<b|abc>", NULL), NULL);
    const struct grid_reply *reply = &grid_ticket_decision(ticket)->reply;
    assert_int_equal(reply->status, 503);
    assert_string_equal(reply->code, "site_unavailable");
    assert_true(grid_str_eq(reply->headers[1].name, GRID_LIT("retry-after")));
    assert_true(grid_str_eq(reply->headers[1].value, GRID_LIT("5")));
    grid_ticket_free(ticket);
    assert_int_equal(world_decisions(&world, "", "not_ready"), 1);
    refused(stored("GET", "/v1/responses/<b|abc>", "m"), 503, "site_unavailable");
    refused(stored("GET", "/v1/responses/<b|abc>", "granite"), 404, "not_found");
    refused(stored("GET", "/v1/responses/<a|abc>", "granite"), 404, "not_found");
    refused(stored("GET", "/v1/responses/<a|abc>", "none-such"), 404, "not_found");
    goes(stored("GET", "/v1/responses/<z|abc>", "granite"), "z", true);
    goes(stored("GET", "/v1/responses/<z|abc>", NULL), "z", true);
    refused(create("{'previous_response_id':'<b|abc>','input':'x'}", NULL), 503, "site_unavailable");
    world_must_load(&world, NULL, "a! /granite", 0); /* drained, then gone, then back */
    refused(stored("GET", "/v1/responses/<a|abc>", "m"), 503, "site_unavailable");
    world_must_load(&world, NULL, "/granite", 0);
    refused(stored("GET", "/v1/responses/<a|abc>", "m"), 404, "not_found");
    world_must_load(&world, NULL, SITES, 0);
    goes(stored("GET", "/v1/responses/<a|abc>", "m"), "a", true);
}

/* The body of a stored request may name the model that narrows the pin (O.24). */
static void test_the_model_of_a_stored_body(void **state)
{
    (void)state;
    struct request request = {.path = expand("/v1/conversations/{a|c1}/items")};
    struct grid_ticket *ticket = world_ask(&world, &request);
    assert_int_equal(grid_ticket_want(ticket), GRID_WANT_BODY);
    grid_ticket_free(ticket);
    request.body = GRID_LIT("{\"items\":[]}");
    goes(request, "a", true);
    request.body = GRID_LIT("not json");
    goes(request, "a", true);
    request.body = GRID_LIT("{\"model\":\"m\"}");
    goes(request, "a", true);
    request.body = GRID_LIT("{\"model\":\"granite\"}");
    refused(request, 404, "not_found");
    request.cut = true;
    refused(request, 404, "not_found"); /* its model was seen by then */
    request.body = GRID_LIT("{\"it");
    refused(request, 413, "body_too_large");
    request.model = "m";
    goes(request, "a", true);
    ticket = world_ask(&world, &request);
    assert_int_equal(grid_ticket_want(ticket), GRID_WANT_NOTHING);
    grid_ticket_free(ticket);
}

/* ---- bodies ----------------------------------------------------------------------------------------------------- */

/* The body that goes on. */
static void expect_sent(const struct grid_ticket *ticket, struct grid_str body, const char *want)
{
    struct grid_str sent = world_sent(ticket, body);
    if (!grid_str_eq(sent, grid_str_of(want)))
        print_message("%.*s, not %s\n", GRID_FMT(sent), want);
    assert_true(grid_str_eq(sent, grid_str_of(want)));
    assert_null(grid_ticket_decision(ticket)->path.ptr);
}

static void test_a_body_goes_home_without_its_tags(void **state)
{
    (void)state;
    static const struct {
        const char *body, *site, *sent;
    } rows[] = {
        {"{'previous_response_id':'<a|abc>','input':'x'}", "a", "{'previous_response_id':'resp_abc','input':'x'}"},
        {"{ 'input' : 'x', 'previous_response_id' : '<z|abc>' }", "z",
         "{ 'input' : 'x', 'previous_response_id' : 'resp_abc' }"},
        {"{'conversation':'{east|c1}','input':'x'}", "east", "{'conversation':'conv_c1','input':'x'}"},
        {"{'conversation':{'id':'{east|c1}'},'input':'x'}", "east", "{'conversation':{'id':'conv_c1'},'input':'x'}"},
        {"{'previous_response_id':'<a|p>','conversation':'{a|c}','input':'<a|p>'}", "a", NULL},
        {"{'conversation':'{a|c}','previous_response_id':'<a|p>'}", "a",
         "{'conversation':'conv_c','previous_response_id':'resp_p'}"},
        {"{'conversation':'conv_own','previous_response_id':'<a|p>'}", "a",
         "{'conversation':'conv_own','previous_response_id':'resp_p'}"}, /* the other is left alone */
        {"{'conversation':'{a|c}','previous_response_id':'resp_own'}", "a",
         "{'conversation':'conv_c','previous_response_id':'resp_own'}"},
        {"{'previous_response_id':'{a|c}'}", "a", "{'previous_response_id':'conv_c'}"},
        {"{'input':'x','input':'y','previous_response_id':'<a|p>'}", "a", /* the keyer would stop at the second input */
         "{'input':'x','input':'y','previous_response_id':'resp_p'}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct request request = create(rows[i].body, NULL);
        struct grid_ticket *ticket = decide(request, NULL);
        expect_site(ticket, rows[i].site, true);
        assert_int_equal(grid_ticket_decision(ticket)->reason, GRID_REASON_STORED_STATE);
        if (rows[i].sent) {
            expect_sent(ticket, request.body, expand(rows[i].sent));
        } else { /* the same text inside the input stays */
            char want[TEXT_ROOM];
            (void)snprintf(want, sizeof want,
                           "{\"previous_response_id\":\"resp_p\",\"conversation\":\"conv_c\",\"input\":\"%s\"}",
                           expand("<a|p>"));
            expect_sent(ticket, request.body, want);
        }
        grid_ticket_free(ticket);
    }
    assert_int_equal(world_all_outcomes(&world), 0);
    assert_int_equal(world_decisions(&world, "z", "pinned"), 1);
    assert_int_equal(world_counter(&world, "grid_route_unkeyed_total", "reason=\"stored_state\""), COUNT(rows));
}

static void test_bodies_that_are_refused(void **state)
{
    (void)state;
    static const char *const previous[] = {
        "{'previous_response_id':'<gone|abc>','input':'x'}",
        "{'previous_response_id':'<a|>','input':'x'}",
        "{'previous_response_id':'resp_a.0a1b2c3d.0000000000000000.x','input':'x'}",
        "{'previous_response_id':'resp_a.0a1b2c3d..x','input':'x'}",
        "{'previous_response_id':'<a|p>','conversation':'{east|c}','input':'x'}", /* two homes */
        "{'conversation':'{east|c}','previous_response_id':'<a|p>','input':'x'}",
        "{'conversation':'{a|c}','previous_response_id':'<a|>','input':'x'}",
        "{'previous_response_id':'<a|p>','model':'granite','input':'x'}",
    };
    static const char *const conversation[] = {
        "{'conversation':'{gone|c}','input':'x'}",
        "{'conversation':{'id':'{a|}'},'input':'x'}",
        "{'conversation':'conv_a.0a1b2c3d.0000000000000000.x','input':'x'}",
        "{'previous_response_id':'<a|p>','conversation':'conv_a.0a1b2c3d.0000000000000000.x','input':'x'}",
    };
    for (size_t i = 0; i < COUNT(previous); i++)
        refused(create(previous[i], NULL), 404, "previous_response_not_found");
    for (size_t i = 0; i < COUNT(conversation); i++)
        refused(create(conversation[i], NULL), 404, "not_found");
    struct grid_ticket *ticket = decide(create(previous[0], "m"), NULL);
    const struct grid_reply *reply = &grid_ticket_decision(ticket)->reply;
    assert_non_null(strstr(reply->body.ptr, "\"param\":\"previous_response_id\",\"code\":"));
    assert_int_equal(reply->n_headers, 1);
    grid_ticket_free(ticket);
}

static void test_bodies_that_name_no_place(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        enum grid_reason reason;
    } rows[] = {
        {"{'previous_response_id':'resp_abc','input':'x'}", GRID_REASON_STORED_STATE},
        {"{'previous_response_id':'<a|p>','previous_response_id':'<a|p>','input':'x'}", GRID_REASON_DUPLICATE_FIELD},
        {"{'conversation':{'id':'{a|c}','id':'{a|c}'},'input':'x'}", GRID_REASON_STORED_STATE},
        {"{'conversation':['{a|c}'],'input':'x'}", GRID_REASON_STORED_STATE},
        {"{'input':[{'type':'message','role':'user','content':'<a|p>'}]}", GRID_REASON_TOO_SHORT},
        {"{'input':[{'type':'item_reference','id':'<a|p>'}]}", GRID_REASON_UNKNOWN_PART},
        {"{'metadata':{'previous_response_id':'<a|p>'},'input':'x'}", GRID_REASON_TOO_SHORT},
        {"{'previous_response_id':'<a|p>','input':'x'", GRID_REASON_NOT_JSON},
        {"{'previous_response_id':null,'conversation':null,'input':'x'}", GRID_REASON_TOO_SHORT},
    };
    world_signal(&world, "a", 1, 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct request request = create(rows[i].body, "m");
        struct grid_ticket *ticket = decide(request, NULL);
        expect_site(ticket, "a", false); /* by load: it alone is measured */
        assert_int_equal(grid_ticket_decision(ticket)->reason, rows[i].reason);
        assert_int_equal(grid_ticket_decision(ticket)->outcome, GRID_OUTCOME_NOT_APPLICABLE);
        expect_sent(ticket, request.body, request.body.ptr);
        assert_true(grid_ticket_tags(ticket));
        grid_ticket_free(ticket);
    }
    /* ids are looked for on the create paths of responses alone */
    struct request chat = {.model = "m", .body = grid_str_of(expand("{'messages':[],'previous_response_id':'<z|p>'}"))};
    struct grid_ticket *ticket = decide(chat, NULL);
    expect_site(ticket, "a", false);
    assert_false(grid_ticket_tags(ticket));
    grid_ticket_free(ticket);
}

/* A body that its type rules out is not looked at, even when it is shown. */
static void test_a_body_that_cannot_be_json(void **state)
{
    (void)state;
    struct grid_header headers[] = {{GRID_LIT("content-type"), GRID_LIT("multipart/form-data")},
                                    {GRID_LIT("x-model"), GRID_LIT("m")}};
    struct grid_head head = {
        .method = GRID_LIT("POST"), .path = GRID_LIT("/v1/responses"), .headers = headers, .n_headers = 2};
    struct grid_str body = grid_str_of(expand("{'previous_response_id':'<east|p>'}"));
    struct grid_ticket *ticket = NULL;
    struct grid_decision decision;
    assert_int_equal(grid_ticket_new(world.router, &head, &ticket), GRID_OK);
    assert_int_equal(grid_ticket_want(ticket), GRID_WANT_NOTHING);
    grid_ticket_body(ticket, &body, 1, false);
    grid_route(ticket, NULL, 0, &decision);
    expect_site(ticket, "a", false);
    grid_ticket_free(ticket);
}

static void test_ids_are_seen_whatever_affinity_does(void **state)
{
    (void)state;
    static const char *const plugins[] = {"{'prefix_affinity':{'enabled':false}}",
                                          "{'prefix_affinity':{'exploration':1}}"};
    const struct grid_route_options forced = {.forced = GRID_LIT("east")}, peek = {.peek = true};
    world_signal(&world, "a", 99, 0);
    world_signal(&world, "east", 0, 0);
    for (size_t i = 0; i < COUNT(plugins); i++) {
        world_must_load(&world, plugins[i], NULL, 0);
        goes(create("{'previous_response_id':'<a|p>','input':'x'}", "m"), "a", true);
        goes(stored("GET", "/v1/responses/<a|p>", "m"), "a", true);
    }
    struct request other = create("{'previous_response_id':'<a|p>','input':'x'}", NULL);
    other.method = "PUT";
    goes(other, "a", true);
    static const char *const fixed[] = {"/v1/responses/compact", "/v1/responses/compact/",
                                        "/v1/responses/input_tokens"};
    for (size_t i = 0; i < COUNT(fixed); i++) {
        struct request request = create("{'previous_response_id':'<a|p>','input':'x'}", "m");
        request.path = fixed[i];
        goes(request, "a", true);
        request.body = GRID_LIT("{\"input\":\"x\"}");
        goes(request, "east", false);
    }
    uint64_t pins = world_decisions(&world, "a", "pinned");
    struct grid_ticket *ticket = decide(stored("GET", "/v1/responses/<a|p>", "m"), &forced);
    expect_site(ticket, "a", true); /* a choice made elsewhere does not count */
    grid_ticket_free(ticket);
    ticket = decide(stored("GET", "/v1/responses/<a|p>", "m"), &peek);
    expect_site(ticket, "a", true);
    grid_ticket_free(ticket);
    assert_int_equal(world_decisions(&world, "a", "pinned"), pins + 1);
    assert_int_equal(world_site(&world, "a", 0).entries, 0);
}

static void test_what_is_refused_before_ids_are_looked_at(void **state)
{
    (void)state;
    struct request request = create("{'previous_response_id':'<a|p>','input':'x'}", "m");
    request.cut = true;
    refused(request, 413, "body_too_large");
    request.path = "/v1/responses/compact";
    refused(request, 413, "body_too_large");
    request = stored("GET", "/v1/responses/<a|p>", "m");
    request.upgrade = true;
    refused(request, 400, "unsupported_upgrade");
    refused(stored("OPTIONS", "/v1/responses/<a|p>", "m"), 405, "method_not_allowed");
    refused(stored("GET", "/v1/responses", NULL), 400, "model_required"); /* an ordinary request */
    refused(stored("GET", "/v1/responsesx/<a|p>", NULL), 400, "model_required");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_stored_path_goes_home_without_its_tag),
        TEST(test_one_refusal_of_paths),
        TEST(test_a_mac_is_of_its_site_and_cluster),
        TEST(test_a_cluster_of_another_site),
        TEST(test_keys_that_change),
        TEST(test_admission_and_model),
        TEST(test_the_model_of_a_stored_body),
        TEST(test_a_body_goes_home_without_its_tags),
        TEST(test_bodies_that_are_refused),
        TEST(test_bodies_that_name_no_place),
        TEST(test_a_body_that_cannot_be_json),
        TEST(test_ids_are_seen_whatever_affinity_does),
        TEST(test_what_is_refused_before_ids_are_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
