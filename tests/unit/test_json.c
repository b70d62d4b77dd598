/*
 * test_json.c - the pull reader: grammar, members, decoding, numbers, slices, depth
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/json.h"

static enum grid_json_fault whole_fault(struct grid_str text, size_t slice)
{
    struct grid_json json;
    size_t n = (text.len + slice - 1) / slice;
    struct grid_str *slices = calloc(n + 1, sizeof *slices);
    for (size_t i = 0; i < n; i++)
        slices[i] =
            (struct grid_str){text.ptr + i * slice, text.len - i * slice < slice ? text.len - i * slice : slice};
    grid_json_init(&json, slices, n);
    if (grid_json_skip(&json))
        grid_json_finish(&json);
    free(slices);
    return json.fault;
}

static void grammar(void **state)
{
    (void)state;
    static const char *good[] = {"1",
                                 " {} ",
                                 "[]",
                                 "[1,2]",
                                 "{\"a\":1,\"a\":2}",
                                 "\"\\u12aB\\n\"",
                                 "[[[]],{}]",
                                 "null",
                                 "true",
                                 "false",
                                 "-0.5e+3",
                                 "\t\r\n[ 1 , {\"a\" : [ ] } ]",
                                 "\"\xC3\xA9\"",
                                 "\"\xFF\"",
                                 "\"\\ud800\"",
                                 "\"\x7F\""};
    static const char *bad[] = {"{",
                                "[1,]",
                                "{,}",
                                "{\"a\"}",
                                "{\"a\":}",
                                "{\"a\":1,}",
                                "[1 2]",
                                "nul",
                                "True",
                                "'a'",
                                "\"\\x\"",
                                "\"\n\"",
                                "\"\\u12\"",
                                "01",
                                "[1}",
                                "{\"a\":1]",
                                "1 1",
                                "[] x",
                                "\xEF\xBB\xBF{}",
                                "",
                                " ",
                                "\"abc",
                                "[1,2",
                                "{a:1}",
                                "/*c*/1",
                                "NaN",
                                "-",
                                "[,1]",
                                "\"\x01\"",
                                "[1,,2]",
                                "{\"a\" 1}",
                                "}"};
    for (size_t slice = 1; slice < 20; slice += 3) {
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
            assert_int_equal(whole_fault(grid_str_of(good[i]), slice), GRID_JSON_FINE);
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
            assert_int_not_equal(whole_fault(grid_str_of(bad[i]), slice), GRID_JSON_FINE);
        assert_int_equal(whole_fault((struct grid_str){"1\0", 2}, slice), GRID_JSON_SYNTAX);
        assert_int_equal(whole_fault(GRID_LIT("[1,"), slice), GRID_JSON_ENDED);
        assert_int_equal(whole_fault(GRID_LIT("[1;"), slice), GRID_JSON_SYNTAX);
    }
}

static void deep_nesting_is_passed(void **state)
{
    (void)state;
    const size_t n = 1 << 20;
    char *text = malloc(2 * n);
    memset(text, '[', n);
    memset(text + n, ']', n);
    assert_int_equal(whole_fault((struct grid_str){text, 2 * n}, 4096), GRID_JSON_FINE);
    assert_int_equal(whole_fault((struct grid_str){text, n}, 4096), GRID_JSON_ENDED);
    assert_int_equal(whole_fault((struct grid_str){text, 2 * n - 1}, 4096), GRID_JSON_ENDED);
    text[2 * n - 100] = '}';
    assert_int_equal(whole_fault((struct grid_str){text, 2 * n}, 4096), GRID_JSON_SYNTAX);
    for (size_t i = 0; i + 4 < 2 * n; i += 5)
        memcpy(text + i, "{\"\":[", 5);
    assert_int_equal(whole_fault((struct grid_str){text, n - n % 5}, 4096), GRID_JSON_ENDED);
    free(text);
}

static void members_and_elements(void **state)
{
    (void)state;
    struct grid_str text =
        GRID_LIT("{\"a\":1,\"\\u0062\":[true,\"x\\ty\"],\"too long a name\":{},\"\\ud800\":null,\"\":2}");
    static const char *names[] = {"a", "b", NULL, NULL, ""};
    struct grid_json json;
    struct grid_str name, value;
    char room[8], more[8];
    size_t i = 0;
    bool yes = false;
    grid_json_init(&json, &text, 1);
    assert_false(grid_json_enter(&json, GRID_JSON_ARRAY));
    assert_true(grid_json_enter(&json, GRID_JSON_OBJECT));
    for (; grid_json_member(&json, room, sizeof room, &name); i++) {
        assert_int_equal(name.ptr == NULL, names[i] == NULL);
        if (names[i])
            assert_true(grid_str_eq(name, grid_str_of(names[i])));
        if (i != 1) {
            assert_true(grid_json_skip(&json));
            continue;
        }
        assert_true(grid_json_enter(&json, GRID_JSON_ARRAY));
        assert_true(grid_json_element(&json));
        assert_int_equal(grid_json_bool(&json, &yes), GRID_JSON_FINE);
        assert_true(yes);
        assert_true(grid_json_element(&json));
        assert_int_equal(grid_json_text(&json, more, sizeof more, &value), GRID_JSON_FINE);
        assert_true(grid_str_eq(value, GRID_LIT("x\ty")));
        assert_false(grid_json_element(&json));
    }
    assert_int_equal(i, 5);
    assert_true(grid_json_finish(&json));
}

static void text_ceilings_do_not_stick(void **state)
{
    (void)state;
    struct grid_str text = GRID_LIT("[\"12345678\",\"123456789\",\"\xFF\",\"\\udc00\",\"\\ud83d\\ude00\",\"end\"]"),
                    value = {NULL, 0};
    static const enum grid_json_fault faults[] = {GRID_JSON_FINE,     GRID_JSON_LONG, GRID_JSON_BAD_UTF8,
                                                  GRID_JSON_BAD_UTF8, GRID_JSON_FINE, GRID_JSON_FINE};
    struct grid_json json;
    struct grid_arena arena;
    char room[8];
    grid_arena_init(&arena, NULL, 1 << 16);
    for (int arena_too = 0; arena_too < 2; arena_too++) {
        grid_json_init(&json, &text, 1);
        assert_true(grid_json_enter(&json, GRID_JSON_ARRAY));
        for (size_t i = 0; i < 6; i++) {
            assert_true(grid_json_element(&json));
            assert_int_equal(arena_too ? grid_json_text_arena(&json, &arena, 8, &value)
                                       : grid_json_text(&json, room, sizeof room, &value),
                             faults[i]);
            if (i == 4)
                assert_true(grid_str_eq(value, GRID_LIT("\xF0\x9F\x98\x80")));
        }
        assert_true(grid_str_eq(value, GRID_LIT("end")));
        assert_false(grid_json_element(&json));
        assert_true(grid_json_finish(&json));
    }
    grid_arena_done(&arena);
}

/* What is said of a text must not depend on where slices are cut: bad comes before long. */
static void both_too_long_and_bad(void **state)
{
    (void)state;
    static const char sent[] = "\"123456789abcdef\xFFx\"";
    for (size_t len = sizeof sent - 1, cut = 0; cut <= len; cut++) {
        struct grid_str slices[] = {{sent, cut}, {sent + cut, len - cut}}, out;
        struct grid_json json;
        char room[4];
        grid_json_init(&json, slices, 2);
        assert_int_equal(grid_json_text(&json, room, sizeof room, &out), GRID_JSON_BAD_UTF8);
        assert_true(grid_json_finish(&json));
    }
}

static void numbers(void **state)
{
    (void)state;
    struct grid_str text = GRID_LIT(
                        "[1.048576e+06,-0,1e999,12345678901234567890123456789012345678901234567890123456789012345]"),
                    lexeme;
    struct grid_json json;
    double value;
    char room[16];
    grid_json_init(&json, &text, 1);
    grid_json_enter(&json, GRID_JSON_ARRAY);
    assert_true(grid_json_element(&json));
    assert_int_equal(grid_json_number(&json, &value, room, sizeof room, &lexeme), GRID_JSON_FINE);
    assert_true(value == 1048576.0);
    assert_true(grid_str_eq(lexeme, GRID_LIT("1.048576e+06")));
    assert_true(grid_json_element(&json));
    assert_int_equal(grid_json_number(&json, &value, NULL, 0, NULL), GRID_JSON_FINE);
    assert_true(value == 0.0 && signbit(value));
    assert_true(grid_json_element(&json));
    assert_int_equal(grid_json_number(&json, &value, NULL, 0, NULL), GRID_JSON_FINE);
    assert_true(isinf(value));
    assert_true(grid_json_element(&json));
    assert_int_equal(grid_json_number(&json, &value, NULL, 0, NULL), GRID_JSON_LONG);
    assert_false(grid_json_element(&json));
    assert_true(grid_json_finish(&json));
}

static void faults_stick_and_end_loops(void **state)
{
    (void)state;
    struct grid_str text = GRID_LIT("{\"a\":[1,oops],\"b\":2}"), name;
    struct grid_json json;
    char room[8];
    grid_json_init(&json, &text, 1);
    assert_true(grid_json_enter(&json, GRID_JSON_OBJECT));
    while (grid_json_member(&json, room, sizeof room, &name))
        grid_json_skip(&json);
    assert_int_equal(json.fault, GRID_JSON_SYNTAX);
    assert_int_equal(grid_json_offset(&json), 8);
    assert_int_equal(grid_json_peek(&json), GRID_JSON_NOTHING);
    assert_false(grid_json_finish(&json));
}

static void raw_and_decode_at_every_cut(void **state)
{
    (void)state;
    static const char sent[] = " [ \"a\\u00e9\xC3\xA9\\ud83d\\ude00\\/\" , {\"k\" : [1, 2]} ]";
    static const char decoded[] = "a\xC3\xA9\xC3\xA9\xF0\x9F\x98\x80/";
    for (size_t len = sizeof sent - 1, cut = 0; cut <= len; cut++) {
        struct grid_str slices[] = {{sent, cut}, {sent + cut, len - cut}}, piece;
        struct grid_json json, mark;
        struct grid_json_raw raw;
        struct grid_json_decode decode;
        char room[64];
        size_t used = 0;
        grid_json_init(&json, slices, 2);
        grid_json_enter(&json, GRID_JSON_ARRAY);
        assert_true(grid_json_element(&json));
        mark = json;
        assert_true(grid_json_raw(&json, &raw));
        assert_true(raw.high);
        while (grid_json_raw_next(&raw, &piece)) {
            memcpy(room + used, piece.ptr, piece.len);
            used += piece.len;
        }
        assert_int_equal(used, 25);
        assert_memory_equal(room, sent + 3, used);
        json = mark;
        assert_true(grid_json_decode(&json, &decode));
        for (used = 0; grid_json_decode_next(&decode, &piece); used += piece.len)
            memcpy(room + used, piece.ptr, piece.len);
        assert_false(decode.bad);
        assert_int_equal(used, sizeof decoded - 1);
        assert_memory_equal(room, decoded, used);
        assert_true(grid_json_element(&json));
        assert_true(grid_json_raw(&json, &raw));
        assert_int_equal(raw.bytes, 14);
    }
}

/* ---- random texts: skipped in one slice, where much is done at once, and in slices of one byte ---------------- */

static uint64_t dice;

static size_t roll(size_t n)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (size_t)(dice >> 11) % n;
}

static size_t random_value(char *at, size_t room, size_t depth)
{
    static const char *const scalars[] = {"null",
                                          "true",
                                          "false",
                                          "0",
                                          "12345678901234567890",
                                          "-1.5e3",
                                          "\"\"",
                                          "\"name\"",
                                          "\"sixteen bytes ab\"",
                                          "\"a longer text than sixteen bytes\"",
                                          "\"\\u0041\"",
                                          "7"};
    static const char *const spaces[] = {"", "", "", " ", "\n", "  "};
    size_t kind = roll(depth < 5 && room > 400 ? 4 : 2), len = 0;
#define ADD(text) len += (size_t)snprintf(at + len, room - len, "%s", text)
    if (kind < 2) {
        ADD(scalars[roll(sizeof scalars / sizeof scalars[0])]);
        return len;
    }
    ADD(kind == 2 ? "[" : "{");
    for (size_t i = 0, n = roll(6); i < n && room - len > 300; i++) {
        ADD(i ? "," : "");
        ADD(spaces[roll(6)]);
        if (kind == 3) {
            ADD(scalars[6 + roll(5)]);
            ADD(spaces[roll(6)]);
            ADD(":");
            ADD(spaces[roll(6)]);
        }
        len += random_value(at + len, room - len - 60, depth + 1);
        ADD(spaces[roll(6)]);
    }
    ADD(spaces[roll(6)]);
    ADD(kind == 2 ? "]" : "}");
#undef ADD
    return len;
}

static void skipping_is_the_same_in_bytes(void **state)
{
    (void)state;
    static char text[4000];
    static struct grid_str bytes[4000];
    static struct grid_lex_memo memo;
    const char *fixed = getenv("GRID_TEST_SEED");
    uint64_t seed = fixed ? strtoull(fixed, NULL, 10) : (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    dice = seed * 2 + 1;
    size_t fine = 0;
    for (int round = 0; round < 20000; round++) {
        size_t len = random_value(text, sizeof text, 0);
        for (size_t bends = roll(3); bends > 0; bends--)
            text[roll(len)] = "{}[],:\"\\ 0a"[roll(11)];
        struct grid_str whole = {text, len};
        struct grid_json one, many;
        for (size_t i = 0; i < len; i++)
            bytes[i] = (struct grid_str){text + i, 1};
        memset(&memo, 0, sizeof memo);
        grid_json_init(&one, &whole, 1);
        one.memo = &memo;
        grid_json_init(&many, bytes, len);
        if (grid_json_skip(&one))
            grid_json_finish(&one);
        if (grid_json_skip(&many))
            grid_json_finish(&many);
        assert_int_equal(one.fault, many.fault);
        assert_int_equal(grid_json_offset(&one), grid_json_offset(&many));
        fine += one.fault == GRID_JSON_FINE;
    }
    assert_true(fine > 2000);
}

/* A name that is guessed is taken only when it stands there, whole and plain. */
static void guessed_names(void **state)
{
    (void)state;
    static const char name[24] = "content";
    static const struct {
        const char *text;
        bool taken;
    } rows[] = {
        {"{\"content\":1,\"and then some more bytes\":0}", true},
        {"{\"contents\":1,\"and then some more bytes\":0}", false},
        {"{\"conten\":1,\"and then some more bytes\":00}", false},
        {"{\"conteNt\":1,\"and then some more bytes\":0}", false},
        {"{\"content\" :1,\"and then some more bytes\":0}", false},
        {"{ \"content\":1,\"and then some more bytes\":0}", false},
        {"{\"c\\u006fntent\":1,\"and then some more bytes\":0}", false},
        {"{\"content\":1}", false},
        {"{\"content,\":1,\"and then some more bytes\":0}", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct grid_str text = {rows[i].text, strlen(rows[i].text)};
        struct grid_json json;
        grid_json_init(&json, &text, 1);
        assert_true(grid_json_enter(&json, GRID_JSON_OBJECT));
        assert_int_equal(grid_json_named_so(&json, name, 7), rows[i].taken);
        if (!rows[i].taken) {
            struct grid_json_name found;
            assert_true(grid_json_named(&json, &found));
        }
        assert_int_equal(grid_json_peek(&json), GRID_JSON_NUMBER);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammar),
        cmocka_unit_test(deep_nesting_is_passed),
        cmocka_unit_test(members_and_elements),
        cmocka_unit_test(text_ceilings_do_not_stick),
        cmocka_unit_test(both_too_long_and_bad),
        cmocka_unit_test(numbers),
        cmocka_unit_test(faults_stick_and_end_loops),
        cmocka_unit_test(raw_and_decode_at_every_cut),
        cmocka_unit_test(skipping_is_the_same_in_bytes),
        cmocka_unit_test(guessed_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
