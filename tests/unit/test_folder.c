/*
 * test_folder.c - the module and its key files, against a fake Envoy: what is taken, what is refused, how often it is
 * told
 */
#include "envoy/module.h"
#include "tests/support/fake_envoy.h"
#include "tests/support/filter_setting.h"

#include <sys/stat.h>

#define SECRET "0123456789abcdefghijklmnopqrstuv" /* 32 bytes */
#define OTHER "vutsrqponmlkjihgfedcba9876543210"
#define THIRD "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"

static char key_path[2][300];

/* plugin.json names the first n key files. */
static void write_plugin(size_t n)
{
    char text[1000];
    if (n == 0)
        snprintf(text, sizeof(text), "{}");
    else if (n == 1)
        snprintf(text, sizeof(text), "{\"prefix_affinity\":{\"tag_key_path\":\"%s\"}}", key_path[0]);
    else
        snprintf(text, sizeof(text), "{\"prefix_affinity\":{\"tag_key_path\":[\"%s\",\"%s\"]}}", key_path[0],
                 key_path[1]);
    write_file("plugin.json", text);
}

static int set_up(void **state)
{
    (void)state;
    make_folder();
    for (size_t i = 0; i < 2; i++)
        snprintf(key_path[i], sizeof(key_path[i]), "%s/%zu.key", folder, i);
    write_file("0.key", SECRET);
    write_file("1.key", OTHER);
    write_plugin(1);
    fake_log[0] = '\0';
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_stop();
    (void)unlink(key_path[0]);
    (void)unlink(key_path[1]);
    remove_folder();
    assert_null(strstr(fake_log, "0123456789abcd")); /* no log line ever holds a piece of a key */
    assert_null(strstr(fake_log, "vutsrqponmlkji"));
    return 0;
}

/* The keys in force are these, in this order. */
static void expect_keys(const char *first, const char *second)
{
    struct grid_str keys[] = {grid_bridge_text(first), grid_bridge_text(second)};
    size_t n = second ? 2 : first ? 1 : 0;
    assert_true(grid_router_same_tag_keys(grid_module_get()->router, keys, n));
}

static void expect_counts(uint64_t applied, uint64_t reused, uint64_t rejected)
{
    fake_fire_timers();
    assert_int_equal(fake_counter(RELOADS, "applied"), applied);
    assert_int_equal(fake_counter(RELOADS, "reused"), reused);
    assert_int_equal(fake_counter(RELOADS, "rejected"), rejected);
}

static size_t logged(const char *what)
{
    size_t n = 0;
    for (const char *at = fake_log; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static void look(void)
{
    grid_folder_reload(grid_module_get(), false);
}

static void a_changed_key_file_is_in_force_at_the_next_look(void **state)
{
    (void)state;
    assert_true(fake_start(config));
    assert_int_equal(logged("ids get no mac"), 0);
    expect_keys(SECRET, NULL);
    look();
    expect_counts(0, 0, 0);
    write_file("0.key", OTHER);
    look();
    expect_keys(OTHER, NULL);
    expect_counts(1, 0, 0);
    look();
    expect_counts(1, 0, 0);
    fake_admin("/grid");
    assert_non_null(strstr(fake_admin_page, "\"result\":\"applied\""));
    assert_null(strstr(fake_admin_page, OTHER));
}

static void a_short_or_lost_key_is_refused_once_and_the_old_one_stays(void **state)
{
    (void)state;
    assert_true(fake_start(config));
    write_file("0.key", "0123456789abcdefghijklmnopqrstu");
    for (int i = 0; i < 3; i++)
        look();
    expect_counts(0, 0, 1);
    assert_int_equal(logged("3 grid: tag key "), 1);
    assert_int_equal(logged("0.key: 31 bytes: it must have at least 32 bytes; the old keys stay in force"), 1);
    expect_keys(SECRET, NULL);
    fake_admin("/grid");
    assert_non_null(strstr(fake_admin_page, "at least 32 bytes"));
    assert_int_equal(unlink(key_path[0]), 0);
    for (int i = 0; i < 3; i++)
        look();
    expect_counts(0, 0, 2);
    assert_int_equal(logged("0.key: No such file"), 1);
    expect_keys(SECRET, NULL);
    write_file("0.key", OTHER);
    look();
    expect_keys(OTHER, NULL);
    expect_counts(1, 0, 2);
}

static void an_event_with_the_same_key_is_a_reuse(void **state)
{
    (void)state;
    assert_true(fake_start(config));
    write_file("0.key", SECRET);
    fake_touch();
    expect_counts(0, 1, 0);
    write_file("0.key", "short");
    fake_touch();
    expect_counts(0, 1, 1);
    fake_touch(); /* still short: neither news nor a reuse */
    expect_counts(0, 1, 1);
}

static void a_wrong_key_does_not_hold_up_a_serving_config(void **state)
{
    (void)state;
    assert_true(fake_start(config));
    write_file("0.key", "short");
    write_serving(",{\"kind\":\"inference_model\",\"name\":\"fresh\",\"site\":\"west\",\"cluster\":\"west\"}");
    look();
    expect_counts(1, 0, 1);
    expect_keys(SECRET, NULL);
    write_file("0.key", OTHER);
    write_file("serving.json", "{");
    look();
    expect_keys(OTHER, NULL);
    expect_counts(2, 0, 2);
}

static void settings_with_other_key_files_bring_their_keys(void **state)
{
    (void)state;
    assert_true(fake_start(config));
    write_plugin(2);
    look();
    expect_keys(SECRET, OTHER);
    expect_counts(1, 0, 0);
    write_plugin(0);
    look();
    expect_keys(NULL, NULL);
    expect_counts(2, 0, 0);
    assert_int_equal(logged("3 grid: ids get no mac"), 1);
}

static void settings_wait_for_the_key_file_that_they_name(void **state)
{
    (void)state;
    assert_true(fake_start(config));
    assert_int_equal(unlink(key_path[1]), 0);
    write_plugin(2);
    for (int i = 0; i < 3; i++)
        look();
    expect_counts(0, 0, 1);
    assert_int_equal(logged("1.key: No such file"), 1);
    expect_keys(SECRET, NULL);
    write_file("0.key", THIRD); /* the one in force goes on being followed */
    look();
    expect_keys(THIRD, NULL);
    expect_counts(1, 0, 1);
    write_file("1.key", OTHER);
    look();
    expect_keys(THIRD, OTHER);
    expect_counts(2, 0, 1);
    look();
    expect_counts(2, 0, 1);
}

static void a_start_without_keys_warns_once(void **state)
{
    (void)state;
    write_plugin(0);
    assert_true(fake_start(config));
    look();
    assert_int_equal(logged("3 grid: ids get no mac"), 1);
    expect_keys(NULL, NULL);
    expect_counts(0, 0, 0);
}

static void a_start_with_a_bad_key_is_refused(void **state)
{
    (void)state;
    static char big[(64 << 10) + 2];
    write_file("0.key", "short");
    assert_false(fake_start(config));
    assert_int_equal(logged("4 grid: tag key "), 1);
    assert_int_equal(logged("0.key: 5 bytes: it must have at least 32 bytes"), 1);
    memset(big, 'k', sizeof(big) - 1);
    write_file("0.key", big);
    assert_false(fake_start(config));
    assert_int_equal(logged("0.key: File too large"), 1);
    assert_int_equal(unlink(key_path[0]), 0);
    assert_int_equal(mkfifo(key_path[0], 0600), 0);
    assert_false(fake_start(config));
    assert_int_equal(logged("0.key: not a regular file"), 1);
    big[64 << 10] = '\0';
    assert_int_equal(unlink(key_path[0]), 0);
    write_file("0.key", big);
    assert_true(fake_start(config));
    expect_keys(big, NULL);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_changed_key_file_is_in_force_at_the_next_look),
        TEST(a_short_or_lost_key_is_refused_once_and_the_old_one_stays),
        TEST(an_event_with_the_same_key_is_a_reuse),
        TEST(a_wrong_key_does_not_hold_up_a_serving_config),
        TEST(settings_with_other_key_files_bring_their_keys),
        TEST(settings_wait_for_the_key_file_that_they_name),
        TEST(a_start_without_keys_warns_once),
        TEST(a_start_with_a_bad_key_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
