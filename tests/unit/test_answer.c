/*
 * test_answer.c - new conversations, and answers whose ids get their tag (behaviour.md H.6, H.7, O.36, O.51)
 */
#include "pins.h"

/* ---- new conversations ------------------------------------------------------------------------------------------ */

static struct request conversation(const char *model)
{
    return (struct request){.path = "/v1/conversations", .model = model, .body = GRID_LIT("{}")};
}

static void test_a_new_conversation(void **state)
{
    (void)state;
    world_signal(&world, "east", 9, 0);
    world_signal(&world, "a", 2, 0);
    world_signal(&world, "z", 1, 0);
    goes(conversation(NULL), "east", false); /* the local site, whatever its queue */
    goes(conversation("m"), "east", false);
    goes(conversation("granite"), "z", false); /* which the local site lacks */
    refused(conversation("none-such"), 404, "model_not_found");
    world_must_load(&world, NULL, "a east /zz", 0);
    goes(conversation(NULL), "east", false); /* wherever it stands among the others */
    world_signal(&world, "a", 20, 1);
    goes(conversation(NULL), "east", false);
    world_must_load(&world, NULL, SITES, 0);
    struct request other = conversation(NULL);
    other.method = "GET";
    other.path = "/v1/conversations/?x";
    other.no_body = true;
    goes(other, "east", false);
    other = conversation(NULL);
    other.body = GRID_LIT("{\"model\":\"granite\"}");
    goes(other, "z", false);
    world_must_load(&world, "{'prefix_affinity':{'enabled':false}}", "a east! /granite", 0);
    goes(conversation("m"), "a", false);
    goes(conversation(NULL), "z", false); /* the least queued of all */
    world_signal(&world, "z", 30, 1);
    goes(conversation(NULL), "a", false);
    world_must_load(&world, NULL, "a! east!", 0);
    refused(conversation(NULL), 503, "no_healthy_site");
    refused(conversation("granite"), 404, "model_not_found");
    world_must_load(&world, NULL, "", 0);
    refused(conversation(NULL), 404, "no_route");
    assert_int_equal(world_all_outcomes(&world), 0);
    assert_int_equal(world_decisions(&world, "a", "pinned"), 0);
    assert_int_equal(world_decisions(&world, "a", "routed"), 2);
}

static void test_equal_queues_follow_the_configuration(void **state)
{
    (void)state;
    world_must_load(&world, NULL, "/z2 b a", 0); /* models are in the order of their names elsewhere */
    goes(conversation(NULL), "z", false);
    world_must_load(&world, NULL, "b /a2", 0);
    goes(conversation(NULL), "b", false);
}

static void test_no_config_at_all(void **state)
{
    (void)state;
    struct world loaded = world;
    struct grid_options options = {.hash_seed = 1};
    world = (struct world){.fault = 0};
    assert_int_equal(grid_router_new(&options, &world.router), GRID_OK);
    refused(conversation(NULL), 404, "no_route");
    refused(stored("GET", "/v1/responses/<a|abc>", NULL), 404, "not_found");
    refused(create("{'previous_response_id':'<a|p>'}", NULL), 404, "previous_response_not_found");
    grid_router_free(world.router);
    world = loaded;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static bool begins(struct request request, int status, const char *type, const char *coding)
{
    struct grid_ticket *ticket = decide(request, NULL);
    grid_learn(ticket, status, GRID_FROM_SITE, 0, NULL);
    bool began = grid_answer_begin(ticket, status, grid_str_of(type), grid_str_of(coding));
    assert_int_equal(grid_answer_tagged(ticket), 0);
    grid_ticket_free(ticket);
    return began;
}

static void test_which_answers_are_tagged(void **state)
{
    (void)state;
    struct request request = create("{'model':'m','input':'x'}", NULL);
    struct request chat = {.model = "m", .body = GRID_LIT("{}")};
    assert_true(begins(request, 200, "application/json", NULL));
    assert_true(begins(request, 299, NULL, ""));
    assert_true(begins(request, 201, "Text/Event-Stream; charset=utf-8", " Identity\t"));
    assert_true(begins(stored("DELETE", "/v1/responses/<a|p>", NULL), 200, NULL, NULL));
    assert_true(begins(conversation(NULL), 200, NULL, NULL));
    assert_false(begins(request, 199, NULL, NULL));
    assert_false(begins(request, 300, NULL, NULL));
    assert_false(begins(request, 404, NULL, NULL));
    assert_false(begins(request, 404, NULL, "gzip"));
    assert_false(begins(chat, 200, NULL, NULL));
    assert_false(begins(chat, 200, NULL, "gzip"));
    assert_false(begins(stored("GET", "/v1/responses/resp_x", NULL), 200, NULL, NULL)); /* answered here */
    assert_int_equal(world_counter(&world, "grid_untagged_answers_total", ""), 0);
    static const char *const codings[] = {"gzip", "br", "zstd", "identity, gzip", "x"};
    for (size_t i = 0; i < COUNT(codings); i++)
        assert_false(begins(request, 200, NULL, codings[i]));
    assert_int_equal(world_counter(&world, "grid_untagged_answers_total", ""), COUNT(codings));
}

static void put(void *ctx, struct grid_str bytes)
{
    text_put(ctx, bytes.ptr, bytes.len);
}

/* What the client gets of an answer, in pieces of `size` bytes. */
static const char *answered(struct grid_ticket *ticket, const char *type, const char *body, size_t size)
{
    static struct text out;
    size_t len = strlen(body);
    out.len = 0;
    assert_true(grid_answer_begin(ticket, 200, grid_str_of(type), (struct grid_str){NULL, 0}));
    for (size_t at = 0; at < len; at += size) {
        struct grid_str piece = {body + at, len - at < size ? len - at : size};
        if (grid_answer_body(ticket, &piece, 1, at + size >= len, put, &out))
            text_put(&out, piece.ptr, piece.len);
    }
    return out.bytes;
}

static void test_the_tag_of_an_answer(void **state)
{
    (void)state;
    const char *type = "TEXT/event-stream;x=y", *json = "{\"id\":\"resp_1\",\"conversation\":{\"id\":\"conv_2\"}}";
    const char *sse = "data: {\"response\":{\"id\":\"resp_1\"}}\n\ndata: [DONE]\n\n";
    for (size_t size = 1; size < 40; size++) {
        struct grid_ticket *ticket = decide(create("{'previous_response_id':'<z|p>','input':'x'}", NULL), NULL);
        assert_string_equal(answered(ticket, NULL, json, size),
                            expand("{'id':'<z|1>','conversation':{'id':'{z|2}'}}")); /* of the cluster that answers */
        assert_int_equal(grid_answer_tagged(ticket), 2);
        assert_string_equal(answered(ticket, type, sse, size),
                            expand("data: {'response':{'id':'<z|1>'}}\n\ndata: [DONE]\n\n"));
        assert_int_equal(grid_answer_tagged(ticket), 1);
        grid_ticket_free(ticket);
    }
    struct grid_ticket *ticket = decide(create("{'model':'m','input':'x'}", NULL), NULL);
    (void)answered(ticket, " text/Event-Stream ; x", "{\"id\":\"resp_1\"}\n", 3);
    assert_int_equal(grid_answer_tagged(ticket), 0); /* no data line */
    load_keys(KEY_TWO, KEY_ONE);                     /* the key in force when the answer begins */
    assert_string_equal(answered(ticket, NULL, "{\"id\":\"resp_1\"}", 3), expand("{'id':'<a|1>'}"));
    grid_ticket_free(ticket);
}

static void test_an_answer_that_is_not_tagged_passes(void **state)
{
    (void)state;
    struct text out = {.len = 0};
    struct grid_ticket *ticket = decide(create("{'model':'m','input':'x'}", NULL), NULL);
    struct grid_str piece = GRID_LIT("{\"id\":\"resp_1\"}");
    assert_false(grid_answer_begin(ticket, 500, piece, piece));
    assert_true(grid_answer_body(ticket, &piece, 1, true, put, &out));
    assert_int_equal(out.len, 0);
    grid_ticket_free(ticket);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_new_conversation),   TEST(test_equal_queues_follow_the_configuration),
        TEST(test_no_config_at_all),     TEST(test_which_answers_are_tagged),
        TEST(test_the_tag_of_an_answer), TEST(test_an_answer_that_is_not_tagged_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
