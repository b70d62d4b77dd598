/*
 * test_ids.c - ids in Responses bodies and paths: which are seen, and the very bytes that stripping replaces
 *
 * Every body is read whole, cut in two at every byte, and byte by byte: all must agree.
 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ids.h"

#define T "resp_east.0a1b2c3d.9f8e7d6c5b4a3928."
#define C "conv_east.0a1b2c3d.9f8e7d6c5b4a3928."
#define MOST_BYTES 512u
#define LONG_BYTES (1u << 20)

static bool same_id(const struct grid_id *a, const struct grid_id *b)
{
    if (a->present != b->present || a->shaped != b->shaped || a->rest != b->rest || a->offset != b->offset ||
        a->bytes != b->bytes)
        return false;
    return !a->shaped ||
           (grid_str_eq((struct grid_str){a->tag.site, a->tag.site_len},
                        (struct grid_str){b->tag.site, b->tag.site_len}) &&
            memcmp(a->tag.mark, b->tag.mark, sizeof a->tag.mark) == 0 && a->tag.mac_len == b->tag.mac_len);
}

static bool same(const struct grid_ids *a, const struct grid_ids *b)
{
    return same_id(&a->previous, &b->previous) && same_id(&a->conversation, &b->conversation);
}

/* The ids of a body, however it is cut. */
static struct grid_ids find(struct grid_str body)
{
    struct grid_ids whole, cut;
    struct grid_str bytes[MOST_BYTES];
    assert_true(body.len <= MOST_BYTES);
    grid_ids_find(&body, 1, &whole);
    for (size_t at = 0; at <= body.len; at++) {
        struct grid_str halves[] = {{body.ptr, at}, {NULL, 0}, {body.ptr + at, body.len - at}};
        grid_ids_find(halves, COUNT(halves), &cut);
        if (!same(&whole, &cut))
            print_message("cut at %zu: %.*s\n", at, GRID_FMT(body));
        assert_true(same(&whole, &cut));
    }
    for (size_t i = 0; i < body.len; i++)
        bytes[i] = (struct grid_str){body.ptr + i, 1};
    grid_ids_find(bytes, body.len, &cut);
    assert_true(same(&whole, &cut));
    return whole;
}

static struct grid_ids find_text(const char *body)
{
    return find(grid_str_of(body));
}

/* The body with the tags of its ids taken out; out has room for it. */
static const char *stripped(const char *body, char *out)
{
    struct grid_ids ids = find_text(body);
    const struct grid_id *order[] = {&ids.previous, &ids.conversation};
    size_t at = 0, n = 0;
    if (order[1]->shaped && order[1]->offset < order[0]->offset) {
        order[0] = &ids.conversation;
        order[1] = &ids.previous;
    }
    for (size_t i = 0; i < COUNT(order); i++) {
        if (!order[i]->shaped)
            continue;
        memcpy(out + n, body + at, order[i]->offset - at);
        n += order[i]->offset - at;
        out[n++] = '"';
        memcpy(out + n, order[i]->tag.prefix, GRID_TAG_PREFIX_BYTES);
        n += GRID_TAG_PREFIX_BYTES;
        at = order[i]->offset + order[i]->bytes;
    }
    memcpy(out + n, body + at, strlen(body + at) + 1);
    return out;
}

static void test_what_stripping_changes(void **state)
{
    (void)state;
    static const struct {
        const char *body, *want;
    } rows[] = {
        {"{\"previous_response_id\":\"" T "abc\"}", "{\"previous_response_id\":\"resp_abc\"}"},
        {" { \"x\" : [1] ,\t\"previous_response_id\" :\n \"" T "a.b.c\" } ",
         " { \"x\" : [1] ,\t\"previous_response_id\" :\n \"resp_a.b.c\" } "},
        {"{\"conversation\":\"" C "c1\"}", "{\"conversation\":\"conv_c1\"}"},
        {"{\"conversation\":{\"id\":\"" C "c1\"}}", "{\"conversation\":{\"id\":\"conv_c1\"}}"},
        {"{\"conversation\":{\"x\":{\"id\":\"" C "no\"},\"id\":\"" C "c1\",\"y\":1}}",
         "{\"conversation\":{\"x\":{\"id\":\"" C "no\"},\"id\":\"conv_c1\",\"y\":1}}"},
        {"{\"previous_response_id\":\"" T "a\",\"conversation\":\"" C "b\"}",
         "{\"previous_response_id\":\"resp_a\",\"conversation\":\"conv_b\"}"},
        {"{\"conversation\":\"" C "b\",\"previous_response_id\":\"" T "a\"}",
         "{\"conversation\":\"conv_b\",\"previous_response_id\":\"resp_a\"}"},
        {"{\"previous_response_id\":\"" T "\\u0061\\\"\\u20ac\"}", /* what follows stays as sent */
         "{\"previous_response_id\":\"resp_\\u0061\\\"\\u20ac\"}"},
        {"{\"previous_response_id\":\"\\u0072esp\\u005feast\\u002e0a1b2c3d.9f8e7d6c5b4a3928\\u002eabc\"}",
         "{\"previous_response_id\":\"resp_abc\"}"},
        {"{\"previous_response_i\\u0064\":\"" T "abc\"}", "{\"previous_response_i\\u0064\":\"resp_abc\"}"},
        {"{\"previous_response_id\":\"resp_east.0a1b2c3d..x\"}", "{\"previous_response_id\":\"resp_x\"}"},
        {"{\"previous_response_id\":\"" T T "x\"}", "{\"previous_response_id\":\"resp_" T "x\"}"}, /* one gateway's */
        {"{\"previous_response_id\":\"" T "\"}", "{\"previous_response_id\":\"resp_\"}"},
    };
    char room[MOST_BYTES];
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_string_equal(stripped(rows[i].body, room), rows[i].want);
}

static void test_what_is_no_id(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "null",
        "[{\"previous_response_id\":\"" T "abc\"}]",
        "\"" T "abc\"",
        "{}",
        "{\"previous_response_id\":null}",
        "{\"previous_response_id\":7}",
        "{\"previous_response_id\":{\"id\":\"" T "abc\"}}", /* only a conversation may be an object */
        "{\"previous_response_id\":[\"" T "abc\"]}",
        "{\"conversation\":[{\"id\":\"" C "abc\"}]}",
        "{\"conversation\":{\"conversation\":\"" C "abc\",\"Id\":\"" C "abc\"}}",
        "{\"conversation\":{\"id\":{\"id\":\"" C "abc\"}}}",
        "{\"input\":\"" T "abc\",\"metadata\":{\"previous_response_id\":\"" T "abc\"}}",
        "{\"input\":[{\"type\":\"item_reference\",\"id\":\"" T "abc\"}],\"id\":\"" T "abc\"}",
        "{\"input\":\"{\\\"previous_response_id\\\":\\\"" T "abc\\\"}\"}",
        "{\"Previous_response_id\":\"" T "abc\",\"previous_response_id \":\"" T "abc\",\"conversation_id\":\"" C "a\"}",
        /* repeated: unreadable */
        "{\"previous_response_id\":\"" T "abc\",\"previous_response_id\":\"" T "abc\"}",
        "{\"previous_response_id\":\"" T "abc\",\"previous_response_id\":null}",
        "{\"conversation\":null,\"conversation\":\"" C "abc\",\"previous_response_id\":\"" T "abc\"}",
        "{\"conversation\":{\"id\":\"" C "abc\",\"id\":null}}",
        "{\"conversation\":{\"id\":1,\"\\u0069d\":\"" C "abc\"}}",
        /* no JSON object to its end */
        "{\"previous_response_id\":\"" T "abc\"",
        "{\"previous_response_id\":\"" T "abc\"}}",
        "{\"previous_response_id\":\"" T "abc\"} x",
        "{\"previous_response_id\":\"" T "abc\",}",
        "{\"previous_response_id\":\"" T "abc\",\"x\":[1,]}",
        "\xef\xbb\xbf{\"previous_response_id\":\"" T "abc\"}",
        /* no text to its end */
        "{\"previous_response_id\":\"" T "abc\xff\"}",
        "{\"previous_response_id\":\"" T "abc\\ud800\"}",
        "{\"previous_response_id\":\"" T "abc\n\"}",
    };
    for (size_t i = 0; i < COUNT(bodies); i++) {
        struct grid_ids ids = find_text(bodies[i]);
        if (ids.previous.present || ids.conversation.present)
            print_message("%s\n", bodies[i]);
        assert_false(ids.previous.present || ids.conversation.present);
        assert_false(ids.previous.shaped || ids.conversation.shaped);
    }
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        bool shaped, rest;
    } rows[] = {
        {"abc", false, false},
        {"", false, false},
        {"resp_", false, false},
        {"resp_abc", false, false},
        {"resp_.0a1b2c3d..x", false, false},
        {"resp_east.0a1b2c3d.x", false, false},
        {"resp_east.0a1b2c3.0.x", false, false},
        {"resp_east.0a1b2c3dd.0.x", false, false},
        {"resp_east.0a1b2c3g.0.x", false, false},
        {"msg_east.0a1b2c3d.0.x", false, false},
        {"Resp_east.0a1b2c3d.0.x", false, false},
        {"resp_east.0a1b2c3d..", true, false},
        {"resp_east.0a1b2c3d..x", true, true},
        {"conv_e/\\u0000\\\".0A1B2C3D.anything at all.x", true, true}, /* whether it is genuine is another matter */
        {T "\\u0000", true, true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char body[MOST_BYTES];
        (void)snprintf(body, sizeof body, "{\"conversation\":\"%s\"}", rows[i].id);
        struct grid_ids ids = find_text(body);
        if (ids.conversation.shaped != rows[i].shaped)
            print_message("%s\n", rows[i].id);
        assert_true(ids.conversation.present);
        assert_int_equal(ids.conversation.shaped, rows[i].shaped);
        assert_int_equal(ids.conversation.rest, rows[i].rest);
    }
}

/* An id, a site, a mac and a mark of 1 MiB: no room is needed for any of them. */
static void test_long_ids(void **state)
{
    (void)state;
    static const char *const heads[] = {T, "resp_", "resp_east.0a1b2c3d.", "resp_east."};
    static const char *const tails[] = {"", ".0a1b2c3d..x", ".x", "..x"};
    static const bool shaped[] = {true, true, true, false};
    char *body = malloc(LONG_BYTES + MOST_BYTES);
    assert_non_null(body);
    for (size_t i = 0; i < COUNT(heads); i++) {
        int head = snprintf(body, MOST_BYTES, "{\"previous_response_id\":\"%s", heads[i]);
        memset(body + head, 'a', LONG_BYTES);
        int tail = snprintf(body + head + LONG_BYTES, MOST_BYTES / 2, "%s\"}", tails[i]);
        struct grid_str slices[] = {{body, (size_t)head + 1000},
                                    {body + head + 1000, LONG_BYTES - 1000 + (size_t)tail}};
        struct grid_ids ids;
        grid_ids_find(slices, COUNT(slices), &ids);
        assert_true(ids.previous.present);
        assert_int_equal(ids.previous.shaped, shaped[i]);
        if (i == 0)
            assert_int_equal(ids.previous.bytes, 1 + strlen(T));
        else if (shaped[i])
            assert_int_equal(ids.previous.bytes, 1 + strlen(heads[i]) + LONG_BYTES + strlen(tails[i]) - 1);
    }
    free(body);
}

static void test_segments(void **state)
{
    (void)state;
    static const struct {
        const char *segment;
        bool shaped, rest;
    } rows[] = {
        {"", false, false},
        {"resp_abc", false, false},
        {T "abc", true, true},
        {C "a.b..c", true, true},
        {T, true, false},
        {T "a%2Fb", false, false},
        {T "%61", false, false},
        {"resp_east%2E0a1b2c3d.9f8e7d6c5b4a3928.x", false, false},
        {"%72" T "x", false, false},
        {T "..", true, true},
        {"x" T "x", false, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct grid_id id;
        grid_ids_segment(grid_str_of(rows[i].segment), &id);
        if (id.shaped != rows[i].shaped)
            print_message("%s\n", rows[i].segment);
        assert_int_equal(id.shaped, rows[i].shaped);
        assert_int_equal(id.rest, rows[i].rest);
        assert_int_equal(id.present, rows[i].segment[0] != 0);
        if (id.shaped)
            assert_int_equal(id.bytes, strlen(T));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_stripping_changes),
        cmocka_unit_test(test_what_is_no_id),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_long_ids),
        cmocka_unit_test(test_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
