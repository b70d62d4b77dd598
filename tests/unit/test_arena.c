/*
 * test_arena.c - the allocator's verbs, the arena and its ceiling, growable text
 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "failing_alloc.h"
#include "str.h"

static struct failing_alloc memory;

static int set_up(void **state)
{
    (void)state;
    failing_alloc_init(&memory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return atomic_load(&memory.out) == 0 ? 0 : -1;
}

static void test_the_verbs(void **state)
{
    (void)state;
    unsigned char *bytes = grid_take(&memory.alloc, 100);
    assert_non_null(bytes);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(bytes[i], 0);
    bytes = grid_resize(&memory.alloc, bytes, 1000);
    assert_non_null(bytes);
    grid_give(&memory.alloc, bytes);
    grid_give(&memory.alloc, NULL);
    void *nothing = grid_take(&memory.alloc, 0);
    assert_non_null(nothing);
    grid_give(&memory.alloc, nothing);
    void *plain = grid_take(NULL, 8);
    assert_non_null(plain);
    grid_give(NULL, plain);
    failing_alloc_arm(&memory, 0, false);
    assert_null(grid_take(&memory.alloc, 1));
}

static void test_what_an_arena_gives_is_aligned_and_apart(void **state)
{
    (void)state;
    struct grid_arena arena;
    grid_arena_init(&arena, &memory.alloc, 1u << 20);
    unsigned char *last = NULL;
    for (size_t size = 0; size < 300; size++) {
        unsigned char *ptr = grid_arena_take(&arena, size);
        assert_non_null(ptr);
        assert_int_equal((uintptr_t)ptr % _Alignof(max_align_t), 0);
        memset(ptr, (int)(size & 0xff), size);
        if (size > 1)
            assert_int_equal(last[size - 2], (size - 1) & 0xff); /* the one before is as it was left */
        last = ptr;
    }
    assert_true(arena.taken <= arena.limit);
    grid_arena_done(&arena);
    assert_int_equal(atomic_load(&memory.out), 0);
    assert_non_null(grid_arena_take(&arena, 10)); /* usable again */
    grid_arena_done(&arena);
}

static void test_the_ceiling_of_an_arena(void **state)
{
    (void)state;
    struct grid_arena arena;
    grid_arena_init(&arena, &memory.alloc, 1000);
    assert_null(grid_arena_take(&arena, 1001));
    assert_null(grid_arena_take(&arena, SIZE_MAX));
    assert_non_null(grid_arena_take(&arena, 900));
    assert_null(grid_arena_take(&arena, 200));
    assert_non_null(grid_arena_take(&arena, 64)); /* what still fits is given */
    grid_arena_done(&arena);
    grid_arena_init(&arena, &memory.alloc, 0);
    assert_null(grid_arena_take(&arena, 1));
    grid_arena_done(&arena);
    grid_arena_init(&arena, &memory.alloc, 1000);
    failing_alloc_arm(&memory, 0, true);
    assert_null(grid_arena_take(&arena, 1));
    grid_arena_done(&arena);
}

static void test_copies(void **state)
{
    (void)state;
    struct grid_arena arena;
    grid_arena_init(&arena, &memory.alloc, 1u << 16);
    struct grid_str copy = grid_arena_copy(&arena, GRID_LIT("a\0b"));
    assert_true(grid_str_eq(copy, GRID_LIT("a\0b")));
    assert_int_equal(copy.ptr[3], 0);
    copy = grid_arena_copy(&arena, (struct grid_str){NULL, 0});
    assert_non_null(copy.ptr); /* empty is not absent */
    assert_int_equal(copy.len, 0);
    grid_arena_done(&arena);
    grid_arena_init(&arena, &memory.alloc, 4);
    assert_null(grid_arena_copy(&arena, GRID_LIT("abcd")).ptr); /* no room for the NUL */
    grid_arena_done(&arena);
}

static void test_growable_text(void **state)
{
    (void)state;
    struct grid_buf buf = {.limit = 100000, .alloc = &memory.alloc};
    for (int i = 0; i < 1000; i++)
        grid_buf_printf(&buf, "%03d,", i);
    grid_buf_put(&buf, NULL, 0);
    grid_buf_puts(&buf, "end");
    assert_false(buf.failed);
    assert_int_equal(buf.len, 4003);
    assert_int_equal(strlen(buf.ptr), 4003);
    assert_memory_equal(buf.ptr, "000,001,", 8);
    assert_memory_equal(buf.ptr + 3996, "999,end", 7);
    grid_buf_done(&buf);
    assert_null(buf.ptr);
}

static void test_the_ceiling_of_text(void **state)
{
    (void)state;
    struct grid_buf buf = {.limit = 5, .alloc = &memory.alloc};
    grid_buf_puts(&buf, "abcde");
    assert_false(buf.failed);
    grid_buf_puts(&buf, "f");
    assert_true(buf.failed);
    assert_string_equal(buf.ptr, "abcde");
    grid_buf_put(&buf, "", 0); /* once failed, it stays so: no text with a hole */
    assert_true(buf.failed);
    grid_buf_done(&buf);

    buf = (struct grid_buf){.limit = 5, .alloc = &memory.alloc};
    grid_buf_printf(&buf, "%d", 123456);
    assert_true(buf.failed);
    grid_buf_done(&buf);

    buf = (struct grid_buf){.limit = SIZE_MAX, .alloc = &memory.alloc};
    failing_alloc_arm(&memory, 1, true);
    grid_buf_puts(&buf, "abc");
    for (int i = 0; i < 1000; i++)
        grid_buf_puts(&buf, "0123456789");
    assert_true(buf.failed);
    assert_true(buf.len < 10003);
    assert_memory_equal(buf.ptr, "abc0123", 7);
    grid_buf_done(&buf);
}

static void test_json_strings(void **state)
{
    (void)state;
    static const struct {
        struct grid_str text;
        const char *json;
    } rows[] = {
        {{NULL, 0}, "\"\""},
        {GRID_LIT("a\"b\\c/"), "\"a\\\"b\\\\c/\""},
        {GRID_LIT("\n\t\x01\0"), "\"\\u000a\\u0009\\u0001\\u0000\""},
        {GRID_LIT("\x7f"), "\"\x7f\""},
        {GRID_LIT("\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82"), "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\""},
        {GRID_LIT("a\xff"), "\"a\xef\xbf\xbd\""},
        {GRID_LIT("\xc3"), "\"\xef\xbf\xbd\""},                                 /* cut short */
        {GRID_LIT("\xc0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\""},                 /* too long a form */
        {GRID_LIT("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* a surrogate */
        {GRID_LIT("\xe0\x9f\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {GRID_LIT("\xf4\x90\x80\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct grid_buf buf = {.limit = 1000, .alloc = &memory.alloc};
        grid_buf_json(&buf, rows[i].text);
        assert_string_equal(buf.ptr, rows[i].json);
        grid_buf_done(&buf);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_verbs),
        TEST(test_what_an_arena_gives_is_aligned_and_apart),
        TEST(test_the_ceiling_of_an_arena),
        TEST(test_copies),
        TEST(test_growable_text),
        TEST(test_the_ceiling_of_text),
        TEST(test_json_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
