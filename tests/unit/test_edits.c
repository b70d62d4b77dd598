/*
 * test_edits.c - what a request changes on its way to the cluster that was chosen: the model's name there
 *
 * Source    design.md 7; behaviour.md O (18, 19, 24, 43).
 */
#include "pins.h"

#define LLAMA "meta/Llama \\\"3\\\"" /* as JSON writes it */

/* llama has another name at a, none at b, the same other one at c; solo is only at a, in letters that no header has.
 * east calls east's model by its name. */
static const char serving[] =
    "{'local_site':'east','candidates':["
    "{'kind':'inference_model','name':'llama','site':'a','cluster':'a'},"
    "{'kind':'inference_model','name':'llama','site':'b','cluster':'b'},"
    "{'kind':'inference_model','name':'llama','site':'c','cluster':'c'},"
    "{'kind':'inference_model','name':'solo','site':'a','cluster':'a'},"
    "{'kind':'inference_model','name':'plain','site':'a','cluster':'a'}],'clusters':["
    "{'name':'a','endpoints':['h:1'],'model_alias':{'llama':'" LLAMA "','solo':'sol\\u00f3','plain':'plain','no':'x'}},"
    "{'name':'b','endpoints':['h:2']},"
    "{'name':'c','endpoints':['h:3'],'model_alias':{'llama':'" LLAMA "'}}]}";

static int begin(void **state)
{
    (void)set_up(state);
    struct text text = {.len = 0};
    text_put_json(&text, serving);
    struct grid_load load = {.serving = text_view(&text)};
    assert_int_equal(grid_router_load(world.router, &load, 0, &world.errors, NULL), GRID_OK);
    return 0;
}

static void expect_sent(const struct grid_ticket *ticket, struct grid_str body, const char *want)
{
    struct grid_str sent = world_sent(ticket, body);
    if (!grid_str_eq(sent, grid_str_of(want)))
        print_message("%.*s, not %s\n", GRID_FMT(sent), want);
    assert_true(grid_str_eq(sent, grid_str_of(want)));
}

struct row {
    const char *path, *model, *body, *want;
};

static void check(const struct row *row)
{
    char body[TEXT_ROOM], want[TEXT_ROOM];
    (void)snprintf(body, sizeof body, "%s", expand(row->body));
    (void)snprintf(want, sizeof want, "%s", expand(row->want));
    struct request request = {.path = row->path, .model = row->model, .body = grid_str_of(body)};
    struct grid_ticket *ticket = decide(request, NULL);
    const struct grid_decision *d = grid_ticket_decision(ticket);
    if (d->action != GRID_FORWARD)
        print_message("%s %s: %d %s\n", row->path, body, d->reply.status, d->reply.code);
    assert_int_equal(d->action, GRID_FORWARD);
    assert_true(grid_str_eq(d->cluster, GRID_LIT("a")));
    expect_sent(ticket, request.body, want);
    grid_ticket_free(ticket);
}

static void test_only_the_model_of_the_body_itself_changes(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"/v1/chat/completions", NULL, "{'model':'llama','messages':[]}", "{'model':'" LLAMA "','messages':[]}"},
        {"/v1/chat/completions", NULL, "{'messages':[{'role':'user','content':'x','model':'llama'}],'model':'llama'}",
         "{'messages':[{'role':'user','content':'x','model':'llama'}],'model':'" LLAMA "'}"},
        {"/v1/completions", NULL, " { \"mod\\u0065l\" :\t'll\\u0061ma' , 'prompt':'model'}\n",
         " { \"mod\\u0065l\" :\t'" LLAMA "' , 'prompt':'model'}\n"},
        {"/v1/messages", NULL, "{'metadata':{'model':'llama'},'model':'llama','messages':[]}",
         "{'metadata':{'model':'llama'},'model':'" LLAMA "','messages':[]}"},
        {"/v1/responses", NULL, "{'model':'llama','input':'x','previous_response_id':'resp_own'}",
         "{'model':'" LLAMA "','input':'x','previous_response_id':'resp_own'}"},
        {"/v1/embeddings", NULL, "{'input':['llama'],'model':'llama'}", "{'input':['llama'],'model':'" LLAMA "'}"},
        /* routed by the last of two (O.24), and that one changes */
        {"/v1/chat/completions", NULL, "{'model':'solo','messages':[],'model':'llama'}",
         "{'model':'solo','messages':[],'model':'" LLAMA "'}"},
        /* the header is the stronger source, so what the body says is not what was asked for */
        {"/v1/chat/completions", "llama", "{'model':'other','messages':[]}", "{'model':'" LLAMA "','messages':[]}"},
        {"/v1/embeddings", "llama", "{'input':'x','model':''}", "{'input':'x','model':'" LLAMA "'}"},
        {"/v1/embeddings", "llama", "{'input':'x','model':'\xff'}", "{'input':'x','model':'" LLAMA "'}"},
        {"/v1/embeddings", "llama", "{'input':'x','model':'\\ud800'}", "{'input':'x','model':'" LLAMA "'}"},
        /* nothing to change */
        {"/v1/embeddings", "llama", "{'input':'x'}", "{'input':'x'}"},
        {"/v1/embeddings", "llama", "{'input':'x','model':7}", "{'input':'x','model':7}"},
        {"/v1/embeddings", "llama", "{'model':'llama','model':null}", "{'model':'llama','model':null}"},
        {"/v1/embeddings", "llama", "{'model':'llama'", "{'model':'llama'"},
        {"/v1/embeddings", "llama", "['model','llama']", "['model','llama']"},
        {"/v1/chat/completions", NULL, "{'model':'plain','messages':[]}", "{'model':'plain','messages':[]}"},
        {"/v1/chat/completions", NULL, "{'model':'solo'}", "{'model':'sol\xc3\xb3'}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        check(&rows[i]);
}

static void test_beside_ids_that_lose_their_tags(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"/v1/responses", NULL, "{'model':'llama','previous_response_id':'<a|p>','conversation':'{a|c}'}",
         "{'model':'" LLAMA "','previous_response_id':'resp_p','conversation':'conv_c'}"},
        {"/v1/responses", NULL, "{'conversation':{'id':'{a|c}'},'model':'llama','previous_response_id':'<a|p>'}",
         "{'conversation':{'id':'conv_c'},'model':'" LLAMA "','previous_response_id':'resp_p'}"},
        {"/v1/responses", "llama", "{'previous_response_id':'<a|p>','conversation':'{a|c}','model':'x'}",
         "{'previous_response_id':'resp_p','conversation':'conv_c','model':'" LLAMA "'}"},
        /* no model is named: none is given another name */
        {"/v1/responses", NULL, "{'previous_response_id':'<a|p>'}", "{'previous_response_id':'resp_p'}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        check(&rows[i]);
    struct grid_ticket *ticket = decide((struct request){.path = expand("/v1/responses/<a|x>"), .no_body = true}, NULL);
    expect_site(ticket, "a", true);
    assert_null(grid_ticket_decision(ticket)->alias.ptr);
    grid_ticket_free(ticket);
}

static void test_the_header_that_carried_it_changes_too(void **state)
{
    (void)state;
    const struct grid_str name = GRID_LIT("x-model");
    struct grid_ticket *ticket = decide((struct request){.method = "GET", .model = "llama", .no_body = true}, NULL);
    const struct grid_decision *d = grid_ticket_decision(ticket);
    assert_true(grid_str_eq(d->alias, GRID_LIT("meta/Llama \"3\"")) && grid_str_eq(d->model, GRID_LIT("llama")));
    assert_true(grid_str_eq(d->model_header.name, name) && grid_str_eq(d->model_header.value, d->alias));
    grid_ticket_free(ticket);
    ticket = decide((struct request){.model = "solo", .body = GRID_LIT("{}")}, NULL);
    d = grid_ticket_decision(ticket);
    assert_true(grid_str_eq(d->model_header.name, name) && !d->model_header.value.ptr); /* no header can say it */
    grid_ticket_free(ticket);
    ticket = decide((struct request){.body = GRID_LIT("{\"model\":\"llama\"}")}, NULL);
    d = grid_ticket_decision(ticket);
    assert_true(d->alias.ptr && !d->model_header.name.ptr); /* there was none */
    grid_ticket_free(ticket);
    ticket = decide((struct request){.model = "plain", .body = GRID_LIT("{}")}, NULL);
    d = grid_ticket_decision(ticket);
    assert_true(!d->alias.ptr && !d->model_header.name.ptr);
    grid_ticket_free(ticket);
}

static void test_such_a_body_is_held(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        enum grid_want want;
    } rows[] = {{"llama", GRID_WANT_BODY}, {"solo", GRID_WANT_BODY}, {"plain", GRID_WANT_NOTHING}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct request request = {.path = "/v1/embeddings", .model = rows[i].model, .body = GRID_LIT("{}")};
        struct grid_ticket *ticket = world_ask(&world, &request);
        assert_int_equal(grid_ticket_want(ticket), rows[i].want);
        grid_ticket_free(ticket);
    }
}

static void test_a_body_over_the_limit(void **state)
{
    (void)state;
    struct request request = {.path = "/v1/embeddings", .model = "llama", .cut = true};
    request.body = GRID_LIT("{\"model\":\"llama\",\"input\":\"xxx");
    struct grid_ticket *ticket = decide(request, NULL);
    expect_sent(ticket, request.body, "{\"model\":\"" LLAMA "\",\"input\":\"xxx");
    grid_ticket_free(ticket);
    static const char *const unmet[] = {"{\"input\":\"xxx", "{\"input\":\"x\",\"model\":\"lla",
                                        "{\"input\":\"x\",\"mod"};
    for (size_t i = 0; i < COUNT(unmet); i++) { /* it may come behind what was read, and then go on unchanged */
        request.body = grid_str_of(unmet[i]);
        refused(request, 413, "body_too_large");
    }
    request.model = "plain";
    ticket = decide(request, NULL);
    assert_int_equal(grid_ticket_decision(ticket)->action, GRID_FORWARD);
    grid_ticket_free(ticket);
}

/* The keys are of the model that was asked for, and so shared by sites that call it otherwise. */
static void test_sites_with_other_names_share_keys(void **state)
{
    (void)state;
    struct text body = {.len = 0};
    text_put_chat(&body, "llama", 'k', 40, 1);
    struct request request = {.body = text_view(&body)};
    struct grid_ticket *ticket = decide(request, &(struct grid_route_options){.forced = GRID_LIT("b")});
    size_t n = 0;
    assert_null(grid_ticket_decision(ticket)->alias.ptr);
    (void)grid_ticket_edits(ticket, &n);
    assert_int_equal(n, 0);
    assert_true(world_answer(ticket, 200, 0).confirmed >= 40);
    ticket = decide(request, &(struct grid_route_options){.forced = GRID_LIT("c")});
    assert_true(grid_ticket_decision(ticket)->alias.ptr);
    assert_true(grid_router_run(world.router, ticket, GRID_LIT("b"), 0) >= 40);
    grid_ticket_free(ticket);
}

static void test_failover_only_to_where_it_is_called_the_same(void **state)
{
    (void)state;
    size_t n = 0;
    struct request request = {.body = GRID_LIT("{\"model\":\"llama\"}")};
    struct grid_ticket *ticket = decide(request, NULL);
    expect_site(ticket, "a", false);
    assert_int_equal(grid_ticket_movable(ticket), 1); /* c, not b */
    assert_true(grid_ticket_move(ticket, 0));
    expect_site(ticket, "c", false);
    assert_int_equal(grid_ticket_movable(ticket), 0);
    assert_false(grid_ticket_move(ticket, 0));
    expect_site(ticket, "c", false);
    grid_ticket_free(ticket);

    ticket = world_ask(&world, &request);
    struct grid_candidate *candidates = grid_ticket_candidates(ticket, &n);
    struct grid_decision decision;
    candidates[0].health = candidates[2].health = GRID_UNHEALTHY;
    grid_route(ticket, NULL, 0, &decision);
    expect_site(ticket, "b", false);
    candidates[0].health = candidates[2].health = GRID_HEALTHY; /* well again, but they would need another body */
    assert_int_equal(grid_ticket_movable(ticket), 0);
    assert_false(grid_ticket_move(ticket, 0));
    grid_ticket_free(ticket);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_only_the_model_of_the_body_itself_changes, begin, tear_down),
        cmocka_unit_test_setup_teardown(test_beside_ids_that_lose_their_tags, begin, tear_down),
        cmocka_unit_test_setup_teardown(test_the_header_that_carried_it_changes_too, begin, tear_down),
        cmocka_unit_test_setup_teardown(test_such_a_body_is_held, begin, tear_down),
        cmocka_unit_test_setup_teardown(test_a_body_over_the_limit, begin, tear_down),
        cmocka_unit_test_setup_teardown(test_sites_with_other_names_share_keys, begin, tear_down),
        cmocka_unit_test_setup_teardown(test_failover_only_to_where_it_is_called_the_same, begin, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
