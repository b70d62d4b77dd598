/*
 * test_str.c - verbs on views of text
 */
#include "unit.h"

#include "str.h"

static const struct grid_str absent = {NULL, 0};

static void test_equality(void **state)
{
    (void)state;
    assert_true(grid_str_eq(GRID_LIT("abc"), GRID_LIT("abc")));
    assert_false(grid_str_eq(GRID_LIT("abc"), GRID_LIT("abd")));
    assert_false(grid_str_eq(GRID_LIT("abc"), GRID_LIT("ab")));
    assert_true(grid_str_eq(GRID_LIT(""), absent));
    assert_true(grid_str_eq(GRID_LIT("a\0b"), GRID_LIT("a\0b")));
    assert_false(grid_str_eq(GRID_LIT("a\0b"), GRID_LIT("a\0c")));
}

static void test_beginnings(void **state)
{
    (void)state;
    assert_true(grid_str_starts(GRID_LIT("abc"), GRID_LIT("ab")));
    assert_true(grid_str_starts(GRID_LIT("abc"), GRID_LIT("abc")));
    assert_true(grid_str_starts(GRID_LIT("abc"), GRID_LIT("")));
    assert_false(grid_str_starts(GRID_LIT("ab"), GRID_LIT("abc")));
    assert_false(grid_str_starts(GRID_LIT("abc"), GRID_LIT("bc")));
    assert_true(grid_str_starts(absent, absent));
    assert_false(grid_str_starts(absent, GRID_LIT("a")));
}

static void test_until(void **state)
{
    (void)state;
    assert_true(grid_str_eq(grid_str_until(GRID_LIT("a?b?c"), '?'), GRID_LIT("a")));
    assert_true(grid_str_eq(grid_str_until(GRID_LIT("abc"), '?'), GRID_LIT("abc")));
    assert_true(grid_str_eq(grid_str_until(GRID_LIT("?"), '?'), GRID_LIT("")));
    assert_null(grid_str_until(absent, '?').ptr);
}

static void test_of(void **state)
{
    (void)state;
    assert_int_equal(grid_str_of("abc").len, 3);
    assert_non_null(grid_str_of("").ptr);
    assert_null(grid_str_of(NULL).ptr);
    assert_int_equal(grid_str_of(NULL).len, 0);
}

static void test_lower(void **state)
{
    (void)state;
    assert_int_equal(grid_str_lower('A'), 'a');
    assert_int_equal(grid_str_lower('Z'), 'z');
    assert_int_equal(grid_str_lower('@'), '@');
    assert_int_equal(grid_str_lower('['), '[');
    assert_int_equal(grid_str_lower('a'), 'a');
    assert_int_equal(grid_str_lower((char)0xc4), (char)0xc4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equality), cmocka_unit_test(test_beginnings), cmocka_unit_test(test_until),
        cmocka_unit_test(test_of),       cmocka_unit_test(test_lower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
