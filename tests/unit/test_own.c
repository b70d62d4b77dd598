/*
 * test_own.c - where an answer's own ids begin. What they are worth is tested with test_rewrite.c, cut everywhere.
 */
#include <string.h>

#include "own.h"
#include "unit.h"

/* Reads the text, of which '@' marks the places where a stop is due. */
static void stops(const char *marked, bool over)
{
    char text[512];
    size_t places[16], n = 0, len = 0, seen = 0;
    for (const char *at = marked; *at; at++) {
        assert_true(len < sizeof text && n < COUNT(places));
        if (*at == '@')
            places[n++] = len;
        else
            text[len++] = *at;
    }
    struct grid_own own;
    const char *at = text;
    grid_own_begin(&own);
    while (at < text + len && !grid_own_over(&own)) {
        bool id;
        const char *stop = grid_own_run(&own, at, text + len, false, &id);
        assert_true(stop > at || grid_own_over(&own));
        at = stop;
        if (id) {
            assert_true(seen < n);
            assert_int_equal(at - text, places[seen]);
            seen++;
        }
    }
    assert_int_equal(seen, n);
    assert_int_equal(grid_own_over(&own), over);
}

static void stops_behind_prefixes(void **state)
{
    (void)state;
    stops("{\"id\":\"resp_@\",\"response\":{\"id\":\"conv_@x\"},\"x\":\"resp_\",\"y\":{\"id\":\"resp_\"}}", true);
    stops("{\"id\":\"resp_@", false);
    stops("{\"id\":\"resp", false);
    stops("[{\"id\":\"resp_1\"}]", true);
    stops("{\"id\":\"resp_@1\"} {\"id\":\"resp_1\"}", true);
    stops("{\"id\":\"resp_@1\",,\"id\":\"resp_1\"}", true);
}

/* In lines a run leaves the line's end; a break is white space, and the end of what does not survive it. */
static void lines(void **state)
{
    (void)state;
    static const char head[] = "{\"response\":\n", tail[] = "{\"id\":\"resp_1\"}}", cut[] = "{\"id\":\"re\r";
    struct grid_own own;
    bool id;
    grid_own_begin(&own);
    assert_ptr_equal(grid_own_run(&own, head, head + sizeof head - 1, true, &id), head + sizeof head - 2);
    grid_own_break(&own);
    assert_ptr_equal(grid_own_run(&own, tail, tail + sizeof tail - 1, true, &id), strchr(tail, '_') + 1);
    assert_true(id);
    grid_own_begin(&own);
    assert_ptr_equal(grid_own_run(&own, cut, cut + sizeof cut - 1, true, &id), cut + sizeof cut - 2);
    assert_false(grid_own_over(&own));
    grid_own_break(&own);
    assert_true(grid_own_over(&own));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stops_behind_prefixes), cmocka_unit_test(lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
