/*
 * test_lex.c - the vector scan against its plain twin, numbers, UTF-8, cursors
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/lex.h"

static unsigned seed_of_run(void)
{
    const char *text = getenv("GRID_TEST_SEED");
    unsigned seed = text ? (unsigned)strtoul(text, NULL, 10) : (unsigned)time(NULL);
    printf("seed %u (GRID_TEST_SEED)\n", seed);
    return seed;
}

/* xorshift: small, and the same everywhere for one seed */
static size_t draw(uint64_t *dice, size_t below)
{
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    return (size_t)(*dice % below);
}

static void plain_agrees_with_twin(void **state)
{
    (void)state;
    static const unsigned char stops[] = {'"', '\\', 0, 1, 0x1F, 0x20, 0x7F, 0x80, 0xFF, '!', '#', '[', ']'};
    char text[400];
    uint64_t dice = seed_of_run() | 1u;
    for (int round = 0; round < 20000; round++) {
        size_t from = draw(&dice, 70), len = from + draw(&dice, 300);
        memset(text, 'a', sizeof text);
        for (size_t i = draw(&dice, 4); i > 0; i--)
            text[draw(&dice, sizeof text)] = (char)stops[draw(&dice, sizeof stops)];
        unsigned char high = 0, high_twin = 0;
        const char *stop = grid_scan_plain(text + from, text + len, &high);
        const char *twin = grid_scan_plain_twin(text + from, text + len, &high_twin);
        assert_ptr_equal(stop, twin);
        assert_int_equal(high & 0x80, high_twin & 0x80);
        high = 0;
        assert_ptr_equal(grid_scan_plain_narrow(text + from, text + len, &high), twin);
        assert_int_equal(high & 0x80, high_twin & 0x80);
        size_t n = len - from < GRID_SCAN_WIDE ? len - from : GRID_SCAN_WIDE;
        struct grid_scan_marks marks = grid_scan_marks(text + from, n),
                               marks_twin = grid_scan_marks_twin(text + from, n);
        assert_memory_equal(&marks, &marks_twin, sizeof marks);
    }
}

/* What grid_scan_inside passes, byte by byte. */
static const char *inside_twin(const char *from, const char *end, bool *high, bool *escaped)
{
    const char *limit = from + (end - from) / 64 * 64, *at = from;
    while (at < limit && *at != '"' && (unsigned char)*at >= 0x20) {
        size_t bytes = 1;
        if (*at == '\\') {
            *escaped = true;
            if (limit - at < 2 || !strchr("\"\\/bfnrt", at[1]) || at[1] == '\0')
                break;
            bytes = 2;
        }
        *high |= (unsigned char)*at >= 0x80;
        at += bytes;
    }
    return at;
}

static void inside_agrees_with_twin(void **state)
{
    (void)state;
    static const char *const bits[] = {
        "\\",       "\\\\",    "\\\"", "\\n",  "\\/", "\\r",  "a",
        "\xC3\xA9", "\\u00e9", "\"",   "\x1F", "\\x", "\x7F", "bcdefghijklmnopqrstuvwxyz"};
    char text[600];
    size_t widths = 0;
    uint64_t dice = seed_of_run() | 1u;
    for (int round = 0; round < 40000; round++) {
        size_t len = 0, kinds = 1 + draw(&dice, sizeof bits / sizeof bits[0]), plain = draw(&dice, 30);
        while (len < sizeof text - 32) {
            const char *bit = draw(&dice, 30) < plain ? "plain words " : bits[draw(&dice, kinds)];
            memcpy(text + len, bit, strlen(bit));
            len += strlen(bit);
        }
        const char *from = text + draw(&dice, 70), *end = text + 70 + draw(&dice, len - 69);
        bool high_twin = false, escaped_twin = false;
        const char *twin = inside_twin(from, end, &high_twin, &escaped_twin);
        for (size_t width = 16; width <= 64; width *= 2) {
            bool high = false, escaped = false;
            const char *stop = grid_scan_inside_by(width, from, end, &high, &escaped);
            if (!stop)
                continue;
            widths |= width;
            if (width == 16) { /* whole steps alone, and no escapes */
                assert_true(stop <= twin && (stop - from) % 64 == 0 && !escaped && high <= high_twin);
                continue;
            }
            assert_ptr_equal(stop, twin);
            assert_int_equal(high, high_twin);
            assert_int_equal(escaped, escaped_twin);
        }
    }
    printf("widths of vectors tried, added up: %zu\n", widths);
}

/* Strings full of escapes, some of them wrong: one slice, where 64 bytes are looked at together, against slices of one
 * byte, where none are. */
static void strings_in_one_piece_or_bytes(void **state)
{
    (void)state;
    static const char *const bits[] = {"\\",
                                       "\\\\",
                                       "\\\"",
                                       "\"",
                                       "u00e9",
                                       "\\u00E9",
                                       "\\ud83d",
                                       "a",
                                       "bcdefghijklmnop",
                                       "\xC3\xA9",
                                       "\\n",
                                       "\x1F",
                                       "\\x",
                                       "                                                                 "};
    static struct grid_str bytes[2000];
    char text[2000];
    uint64_t dice = seed_of_run() | 1u;
    for (int round = 0; round < 20000; round++) {
        size_t len = 0;
        size_t kinds = 4 + draw(&dice, sizeof bits / sizeof bits[0] - 3), n = draw(&dice, 60);
        for (size_t i = 0; i < n; i++) {
            const char *bit = bits[draw(&dice, kinds)];
            memcpy(text + len, bit, strlen(bit));
            len += strlen(bit);
        }
        struct grid_str whole = {text, len};
        for (size_t i = 0; i < len; i++)
            bytes[i] = (struct grid_str){text + i, 1};
        struct grid_cursor one, many;
        unsigned traits = 0, traits_many = 0;
        grid_cursor_init(&one, &whole, 1);
        grid_cursor_init(&many, bytes, len);
        (void)grid_cursor_settle(&one);
        (void)grid_cursor_settle(&many);
        enum grid_lex_result result = grid_lex_text(&one, NULL, &traits);
        assert_int_equal(grid_lex_text(&many, NULL, &traits_many), result);
        assert_int_equal(grid_cursor_offset(&one), grid_cursor_offset(&many));
        if (result == GRID_LEX_DONE)
            assert_int_equal(traits, traits_many);
    }
}

static bool number_is_whole(const char *text)
{
    enum grid_lex_number state = GRID_LEX_NUMBER_START;
    struct grid_str slice = grid_str_of(text);
    struct grid_cursor cursor;
    for (const char *at = text; *at; at++)
        state = grid_lex_number_step(state, *at);
    bool whole = grid_lex_number_whole(state);
    grid_cursor_init(&cursor, &slice, 1);
    assert_int_equal(grid_lex_number(&cursor) == GRID_LEX_DONE && cursor.at == cursor.end, whole);
    return whole;
}

static void numbers(void **state)
{
    (void)state;
    static const char *good[] = {"0", "-0", "10", "-1", "1.5", "0.0", "1e5", "1E+5", "1e-10", "123456789.25e007"};
    static const char *bad[] = {"", "-", "01", "1.", ".5", "1e", "1e+", "+1", "--1", "1.e5", "0x1", "1e5.5"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(number_is_whole(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(number_is_whole(bad[i]));
}

/* The automaton and the pass over slices agree on everything that may follow a backslash. */
static void escapes_byte_by_byte(void **state)
{
    (void)state;
    static const char *const hex[] = {"", "0", "0a", "0aF", "0aF9", "0aF9e", "g", "00g", "000g", "\"", "12\""};
    for (unsigned first = 0; first < 256; first++) {
        for (size_t i = 0; i < sizeof hex / sizeof hex[0]; i++) {
            char text[8] = {(char)first};
            size_t len = 1 + strlen(hex[i]), at = 0;
            unsigned step = GRID_LEX_ESCAPE_START;
            struct grid_cursor cursor;
            uint32_t unit;
            memcpy(text + 1, hex[i], len - 1);
            grid_cursor_init(&cursor, &(struct grid_str){text, len}, 1);
            enum grid_lex_result result = grid_lex_escape(&cursor, &unit);
            while (at < len && step != GRID_LEX_ESCAPE_DONE && step != GRID_LEX_ESCAPE_BAD)
                step = grid_lex_escape_step(step, text[at++]);
            assert_int_equal(step == GRID_LEX_ESCAPE_DONE, result == GRID_LEX_DONE);
            assert_int_equal(step == GRID_LEX_ESCAPE_BAD, result == GRID_LEX_BAD);
            if (result == GRID_LEX_DONE)
                assert_int_equal(at, grid_cursor_offset(&cursor));
        }
    }
}

static void utf8_at_every_cut(void **state)
{
    (void)state;
    static const char *good[] = {"",
                                 "plain text, long enough for the fast way",
                                 "h\xC3\xA9llo \xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x98\x80!",
                                 "\xF4\x8F\xBF\xBF",
                                 "\xED\x9F\xBF\xEE\x80\x80",
                                 "\xE0\xA0\x80",
                                 "\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2"};
    static const char *bad[] = {"\x80",
                                "\xC0\x80",
                                "\xC1\xBF",
                                "\xE0\x9F\xBF",
                                "\xED\xA0\x80",
                                "\xF0\x8F\xBF\xBF",
                                "\xF4\x90\x80\x80",
                                "\xF5\x80\x80\x80",
                                "\xFF",
                                "abcdefgh\xE6\xBC"
                                "abcdefgh",
                                "\xC3",
                                "\xE6\xBC",
                                "aaaaaaaa\xE0\x80\x80"
                                "aaaaaaaaa"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        for (size_t len = strlen(good[i]), cut = 0; cut <= len; cut++)
            assert_int_equal(grid_utf8_feed(grid_utf8_feed(0, good[i], cut), good[i] + cut, len - cut), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (size_t len = strlen(bad[i]), cut = 0; cut <= len; cut++)
            assert_int_not_equal(grid_utf8_feed(grid_utf8_feed(0, bad[i], cut), bad[i] + cut, len - cut), 0);
}

static void cursor_passes_empty_slices(void **state)
{
    (void)state;
    struct grid_str slices[] = {{NULL, 0}, {"ab", 2}, {"", 0}, {NULL, 0}, {"c", 1}, {NULL, 0}};
    struct grid_cursor cursor;
    grid_cursor_init(&cursor, slices, 6);
    for (size_t i = 0; i < 3; i++) {
        assert_true(grid_cursor_settle(&cursor));
        assert_int_equal(grid_cursor_offset(&cursor), i);
        assert_int_equal(*cursor.at++, "abc"[i]);
    }
    assert_false(grid_cursor_settle(&cursor));
    assert_int_equal(grid_cursor_offset(&cursor), 3);
    grid_cursor_init(&cursor, NULL, 0);
    assert_false(grid_cursor_settle(&cursor));
}

/* A second pass jumps by the memo to the same place, at whatever cut. */
static void memo_changes_nothing(void **state)
{
    (void)state;
    static struct grid_lex_memo memo;
    char text[300];
    memset(text, 'x', sizeof text);
    memcpy(text + 100, "\\\"\\u00e9\xC3\xA9", 10);
    text[250] = '"';
    for (size_t cut = 0; cut < sizeof text; cut++) {
        struct grid_str slices[] = {{text, cut}, {text + cut, sizeof text - cut}};
        memset(&memo, 0, sizeof memo);
        for (int round = 0; round < 2; round++) {
            struct grid_cursor cursor;
            bool high = false;
            grid_cursor_init(&cursor, slices, 2);
            assert_true(grid_cursor_settle(&cursor));
            cursor.at++;
            assert_int_equal(grid_lex_string(&cursor, &memo, &high), GRID_LEX_DONE);
            assert_int_equal(grid_cursor_offset(&cursor), 251);
            assert_true(high);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_agrees_with_twin),        cmocka_unit_test(inside_agrees_with_twin),
        cmocka_unit_test(strings_in_one_piece_or_bytes), cmocka_unit_test(numbers),
        cmocka_unit_test(escapes_byte_by_byte),          cmocka_unit_test(utf8_at_every_cut),
        cmocka_unit_test(cursor_passes_empty_slices),    cmocka_unit_test(memo_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
