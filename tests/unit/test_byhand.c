/*
 * test_byhand.c - keys of tags in a router: loads and refusals, ids signed and opened by hand
 */
#include "world.h"

#define MARK_A "ca978112" /* of the cluster a, by the sha256sum of coreutils */

static struct world world;
static char bytes[2][200];
static struct grid_str keys[2];

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bytes[0]; i++) {
        bytes[0][i] = (char)i;
        bytes[1][i] = (char)(200 - i);
    }
    keys[0] = (struct grid_str){bytes[0], 32};
    keys[1] = (struct grid_str){bytes[1], 33};
    world_init(&world, NULL, "a b! /c");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&world);
    return 0;
}

static enum grid_status load_keys(const struct grid_str *list, size_t n)
{
    struct grid_load load = {.has_tag_keys = true, .tag_keys = list, .n_tag_keys = n};
    world.errors.count = 0;
    world.fault = 0;
    return grid_router_load(world.router, &load, 0, &world.errors, &world.fault);
}

/* The id as it leaves from that site and cluster; static storage. */
static const char *tagged(enum grid_id_kind kind, const char *site, const char *cluster, const char *id)
{
    static char text[1000];
    struct grid_buf buf = {.limit = sizeof text - 1, .alloc = &world.memory.alloc};
    grid_router_tag(world.router, kind, grid_str_of(site), grid_str_of(cluster), grid_str_of(id), &buf);
    assert_false(buf.failed);
    memcpy(text, buf.ptr, buf.len);
    text[buf.len] = '\0';
    grid_buf_done(&buf);
    return text;
}

static struct grid_opened opened;
static const char *reason_of(const char *text)
{
    grid_router_untag(world.router, grid_str_of(text), &opened);
    assert_true(opened.accept == (opened.reason == NULL));
    return opened.reason ? opened.reason : "accepted";
}

static void test_an_id_comes_back(void **state)
{
    (void)state;
    assert_string_equal(tagged(GRID_ID_RESPONSE, "a", "a", "x"), "resp_a." MARK_A "..x");
    assert_int_equal(load_keys(keys, 2), GRID_OK);
    const char *text = tagged(GRID_ID_CONVERSATION, "a", "a", "x.y");
    assert_int_equal(strlen(text), strlen("conv_a." MARK_A "...x.y") + 16 - 1);
    assert_string_equal(reason_of(text), "accepted");
    assert_int_equal(opened.kind, GRID_ID_CONVERSATION);
    assert_true(grid_str_eq(opened.site, GRID_LIT("a")));
    assert_true(grid_str_eq(opened.mark, GRID_LIT(MARK_A)));
    assert_true(grid_str_eq(opened.rest, GRID_LIT("x.y")));
    assert_string_equal(opened.cluster, "a");
    assert_string_equal(reason_of(tagged(GRID_ID_RESPONSE, "b", "b", "x")), "accepted"); /* it admits nothing now */
}

static void test_why_an_id_is_not_accepted(void **state)
{
    (void)state;
    assert_int_equal(load_keys(keys, 1), GRID_OK);
    assert_string_equal(reason_of(""), "not_tagged");
    assert_string_equal(reason_of("resp_abc"), "not_tagged");
    assert_string_equal(reason_of("resp_a." MARK_A ".0123456789abcdef."), "not_tagged"); /* no id behind it */
    assert_null(opened.site.ptr);
    assert_string_equal(reason_of("resp_a." MARK_A ".0123456789abcdef.x"), "bad_mac");
    assert_true(grid_str_eq(opened.site, GRID_LIT("a")));
    assert_string_equal(opened.cluster, "a"); /* what it says, true or not */
    assert_string_equal(reason_of("resp_a." MARK_A "..x"), "bad_mac");
    assert_string_equal(reason_of(tagged(GRID_ID_RESPONSE, "a", "gone", "x")), "unknown_cluster");
    assert_string_equal(opened.cluster, "");
    assert_string_equal(reason_of(tagged(GRID_ID_RESPONSE, "a", "b", "x")), "unknown_cluster"); /* not at that site */
    assert_string_equal(opened.cluster, "b");
    char upper[] = "resp_a.CA978112..x";
    assert_int_equal(load_keys(NULL, 0), GRID_OK);
    assert_string_equal(reason_of(upper), "unknown_cluster");
    assert_string_equal(reason_of("resp_a." MARK_A ".xyz.x"), "bad_mac");
    assert_string_equal(reason_of("resp_a." MARK_A "..x"), "accepted");
}

static void test_keys_rotate(void **state)
{
    (void)state;
    char old[1000];
    struct grid_str rotated[] = {keys[1], keys[0]};
    assert_int_equal(load_keys(keys, 1), GRID_OK);
    (void)snprintf(old, sizeof old, "%s", tagged(GRID_ID_RESPONSE, "a", "a", "x"));
    assert_int_equal(load_keys(rotated, 2), GRID_OK);
    assert_string_equal(reason_of(old), "accepted");
    assert_string_not_equal(tagged(GRID_ID_RESPONSE, "a", "a", "x"), old);
    assert_string_equal(reason_of(tagged(GRID_ID_RESPONSE, "a", "a", "x")), "accepted");
    assert_int_equal(load_keys(&keys[1], 1), GRID_OK);
    assert_string_equal(reason_of(old), "bad_mac");
}

static void test_a_load_without_keys_keeps_them(void **state)
{
    (void)state;
    assert_int_equal(load_keys(keys, 2), GRID_OK);
    world_must_load(&world, "{'model_header':'x-other'}", "a b", 0);
    assert_true(grid_router_same_tag_keys(world.router, keys, 2));
    assert_int_equal(load_keys(keys, 2), GRID_OK); /* the same again */
    assert_true(grid_router_same_tag_keys(world.router, keys, 2));
    assert_false(grid_router_same_tag_keys(world.router, keys, 1));
}

static void test_bad_keys_are_refused_and_the_old_stay(void **state)
{
    (void)state;
    struct grid_str list[GRID_MAX_TAG_KEYS + 1];
    for (size_t i = 0; i < COUNT(list); i++)
        list[i] = keys[0];
    assert_int_equal(load_keys(keys, 1), GRID_OK);
    long long held = atomic_load(&world.memory.out);
    assert_int_equal(load_keys(list, COUNT(list)), GRID_E_FIELD);
    assert_string_equal(world.errors.items[0].field, "tag_keys");
    list[1].len = 31;
    list[3].len = 0;
    assert_int_equal(load_keys(list, 4), GRID_E_FIELD);
    assert_int_equal(world.fault, 3);
    assert_int_equal(world.errors.count, 2);
    assert_string_equal(world.errors.items[0].field, "tag_keys[1]");
    assert_non_null(strstr(world.errors.items[0].message, "31 bytes"));
    assert_non_null(strstr(world.errors.items[0].message, "at least 32 bytes"));
    assert_string_equal(world.errors.items[1].field, "tag_keys[3]");
    struct grid_load whole = {.plugin = GRID_LIT("{\"model_header\":\"x-new\"}"),
                              .has_tag_keys = true,
                              .tag_keys = &list[3],
                              .n_tag_keys = 1};
    assert_int_equal(grid_router_load(world.router, &whole, 0, NULL, &world.fault), GRID_E_FIELD);
    struct grid_settings settings;
    grid_router_settings(world.router, &settings);
    assert_string_equal(settings.model_header, "x-model"); /* nothing of the load came into force */
    assert_true(grid_router_same_tag_keys(world.router, keys, 1));
    assert_int_equal(atomic_load(&world.memory.out), held);
    list[1].len = 32;
    list[3].len = 32;
    assert_int_equal(load_keys(list, GRID_MAX_TAG_KEYS), GRID_OK);
}

static void test_no_memory_for_keys(void **state)
{
    (void)state;
    enum grid_status status = GRID_E_NO_MEMORY;
    assert_int_equal(load_keys(keys, 1), GRID_OK);
    for (uint64_t n = 0; status != GRID_OK; n++) {
        assert_true(n < 100);
        long long held = atomic_load(&world.memory.out);
        failing_alloc_arm(&world.memory, n, true);
        status = load_keys(&keys[1], 1);
        failing_alloc_disarm(&world.memory);
        assert_true(status == GRID_OK || status == GRID_E_NO_MEMORY);
        assert_int_equal(atomic_load(&world.memory.out), held);
        assert_true(grid_router_same_tag_keys(world.router, &keys[status == GRID_OK], 1));
    }
}

static void test_what_cannot_be_tagged(void **state)
{
    (void)state;
    char site[65];
    memset(site, 'a', 64);
    site[64] = '\0';
    struct grid_buf buf = {.limit = 100};
    grid_router_tag(world.router, GRID_ID_RESPONSE, grid_str_of(site), GRID_LIT("a"), GRID_LIT("x"), &buf);
    assert_true(buf.failed);
    buf.failed = false;
    grid_router_tag(world.router, GRID_ID_RESPONSE, GRID_LIT(""), GRID_LIT("a"), GRID_LIT("x"), &buf);
    assert_true(buf.failed);
    grid_buf_done(&buf);
}

static void test_wiping(void **state)
{
    (void)state;
    char secret[5] = "abcd";
    grid_wipe(secret, 4);
    assert_memory_equal(secret, "\0\0\0\0", 5);
    grid_wipe(NULL, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_id_comes_back),
        TEST(test_why_an_id_is_not_accepted),
        TEST(test_keys_rotate),
        TEST(test_a_load_without_keys_keeps_them),
        TEST(test_bad_keys_are_refused_and_the_old_stay),
        TEST(test_no_memory_for_keys),
        TEST(test_what_cannot_be_tagged),
        TEST(test_wiping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
