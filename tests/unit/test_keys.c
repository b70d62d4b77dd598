/*
 * test_keys.c - keys: how many, what shares them, that slices never show, that prompts that grow keep their head
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/keys.h"
#include "core/str.h"

struct made {
    struct grid_keyed info;
    uint64_t keys[GRID_MAX_KEYS];
};

static struct grid_hash_seed seed;
static const struct grid_str no_header = {NULL, 0};

static void make_slices(enum grid_api api, struct grid_str body, size_t first, size_t slice, struct made *out)
{
    struct grid_str *slices = calloc(body.len / slice + 3, sizeof *slices);
    size_t n = 0;
    slices[n++] = (struct grid_str){body.ptr, first};
    for (size_t at = first; at < body.len; at += slice)
        slices[n++] = (struct grid_str){body.ptr + at, body.len - at < slice ? body.len - at : slice};
    memset(out, 0, sizeof *out);
    grid_keys_make(&seed, api, slices, n, false, true, no_header, out->keys, &out->info);
    free(slices);
}

static void make(enum grid_api api, struct grid_str body, struct made *out)
{
    make_slices(api, body, body.len, body.len + 1, out);
}

static size_t shared(const struct made *a, const struct made *b)
{
    size_t n = 0;
    while (n < a->info.n && n < b->info.n && a->keys[n] == b->keys[n])
        n++;
    return n;
}

/* A body with %s replaced by `fill` bytes of text. Freed by the caller. */
static struct grid_str body_of(const char *format, size_t fill)
{
    const char *hole = strstr(format, "%s");
    size_t head = (size_t)(hole - format), len = strlen(format) - 2 + fill;
    char *text = malloc(len + 1);
    memcpy(text, format, head);
    for (size_t i = 0; i < fill; i++)
        text[head + i] = (char)('a' + (i * i + i / 26) % 26);
    memcpy(text + head + fill, hole + 2, strlen(hole + 2));
    return (struct grid_str){text, len};
}

static void drop(struct grid_str body)
{
    free((void *)(uintptr_t)body.ptr);
}

static const char chat_form[] = "{\"model\":\"llama\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}";

static void counts_and_cap(void **state)
{
    (void)state;
    static const struct {
        size_t fill;
        uint32_t n;
        enum grid_reason reason;
    } rows[] = {{0, 0, GRID_REASON_TOO_SHORT}, {200, 0, GRID_REASON_TOO_SHORT}, {256, 1, GRID_REASON_NONE},
                {4000, 15, GRID_REASON_NONE},  {131072, 512, GRID_REASON_NONE}, {400000, 512, GRID_REASON_NONE}};
    struct made made;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct grid_str body = body_of(chat_form, rows[i].fill);
        make(GRID_API_CHAT, body, &made);
        assert_int_equal(made.info.n, rows[i].n);
        assert_int_equal(made.info.reason, rows[i].reason);
        drop(body);
    }
}

static void growth_keeps_the_head(void **state)
{
    (void)state;
    struct made before, after;
    for (size_t fill = 300; fill < 5000; fill += 377) {
        struct grid_str a = body_of(chat_form, fill), b = body_of(chat_form, fill + 1000);
        struct grid_str c = body_of("{\"model\":\"llama\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},"
                                    "{\"role\":\"assistant\",\"content\":\"and so on and on\"}]}",
                                    fill);
        make(GRID_API_CHAT, a, &before);
        make(GRID_API_CHAT, b, &after);
        assert_true(shared(&before, &after) + 2 >= before.info.n);
        make(GRID_API_CHAT, c, &after);
        assert_true(shared(&before, &after) + 2 >= before.info.n);
        drop(a);
        drop(b);
        drop(c);
    }
}

/* Bodies that must have the same keys, and such that must share none. */
static void equal_and_disjoint(void **state)
{
    (void)state;
    static const struct {
        enum grid_api api_a, api_b;
        const char *a, *b;
        bool equal;
    } rows[] = {
        {GRID_API_CHAT, GRID_API_CHAT, chat_form,
         " { \"messages\" : [ {\"content\":[{\"text\":\"%s\",\"type\":\"text\"}],\"r\\u006fle\":\"us\\u0065r\"} ] , "
         "\"model\":\"llama\"}\n",
         true},
        {GRID_API_CHAT, GRID_API_CHAT, chat_form,
         "{\"model\":\"llama2\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", false},
        {GRID_API_CHAT, GRID_API_CHAT, chat_form,
         "{\"model\":\"llama\",\"cache_salt\":\"\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", false},
        {GRID_API_CHAT, GRID_API_CHAT,
         "{\"model\":\"llama\",\"cache_salt\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
         "{\"model\":\"llama\",\"cache_salt\":\"b\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", false},
        {GRID_API_CHAT, GRID_API_CHAT,
         "{\"model\":\"llama\",\"cache_salt\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
         "{\"model\":\"llama\",\"cache_salt\":\"\\u0061\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
         true},
        {GRID_API_CHAT, GRID_API_CHAT, chat_form,
         "{\"model\":\"llama\",\"cache_salt\":null,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", true},
        {GRID_API_CHAT, GRID_API_CHAT, chat_form,
         "{\"model\":\"llama\",\"messages\":[{\"role\":\"use\",\"content\":\"r%s\"}]}", false},
        {GRID_API_CHAT, GRID_API_CHAT, "{\"model\":\"llama\",\"messages\":[{\"role\":\"user\",\"content\":\"A%s\"}]}",
         "{\"model\":\"llama\",\"messages\":[{\"role\":\"user\",\"content\":\"\\u0041%s\"}]}", false},
        {GRID_API_COMPLETIONS, GRID_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"%s\"}",
         "{\"model\":\"m\",\"prompt\":[\"%s\"]}", true},
        {GRID_API_RESPONSES, GRID_API_RESPONSES, "{\"model\":\"m\",\"input\":\"%s\"}",
         "{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"%s\"}]}]}",
         true},
        {GRID_API_MESSAGES, GRID_API_MESSAGES, "{\"model\":\"m\",\"system\":\"%s\",\"messages\":[]}",
         "{\"model\":\"m\",\"system\":[{\"type\":\"text\",\"text\":\"%s\"}],\"messages\":[]}", true},
    };
    struct made a, b;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct grid_str body_a = body_of(rows[i].a, 3000), body_b = body_of(rows[i].b, 3000);
        make(rows[i].api_a, body_a, &a);
        make(rows[i].api_b, body_b, &b);
        assert_true(a.info.n >= 11 && b.info.n >= 11);
        assert_int_equal(shared(&a, &b), rows[i].equal ? a.info.n : 0);
        drop(body_a);
        drop(body_b);
    }
}

/* One body of each kind, cut at every offset and into equal small pieces. */
static void slices_never_show(void **state)
{
    (void)state;
    static const struct {
        enum grid_api api;
        const char *form;
    } rows[] = {
        {GRID_API_CHAT, "{\"model\":\"m\\u006f\",\"tools\":[{\"b\":\"\\ud83d\\ude00\",\"a\":1.5e3}],\"cache_salt\":"
                        "\"s\xC3\xA9\",\"messages\":["
                        "{\"role\":\"system\",\"content\":\"h\xC3\xA9 \xE6\xBC\xA2 \\n "
                        "%s\"},{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
                        "\"image_url\":{\"url\":\"data:\\/"
                        "xyz\"}},{\"type\":\"text\",\"text\":\"what\"}]},{\"role\":\"assistant\",\"tool_calls\":["
                        "{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"b\\\":[1,2],\\\"a\\\":null}\"}}]}]}"},
        {GRID_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[\"\\u0041%s\"]}"},
        {GRID_API_MESSAGES, "{\"model\":\"m\",\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header "
                            "\xFF\"},{\"type\":\"text\","
                            "\"text\":\"%s\"}],\"messages\":[{\"role\":\"u\",\"content\":[{\"type\":\"tool_result\","
                            "\"content\":\"r\"}]}]}"},
        {GRID_API_RESPONSES, "{\"model\":\"m\",\"input\":[{\"role\":\"u\",\"content\":\"%s\"},{\"type\":\"function_"
                             "call_output\",\"output\":{\"b\":1,\"a\":2}}]}"},
        {GRID_API_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"u\",\"content\":\"%s \xE6\xBC\"}]}"},
        {GRID_API_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"u\\ud800\",\"content\":\"%s\"}]}"},
        {GRID_API_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"u\",\"content\":\"%s\"}]} x"},
    };
    static const size_t sizes[] = {1, 2, 3, 7, 64, 255};
    struct made whole, cut;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct grid_str body = body_of(rows[i].form, 900);
        make(rows[i].api, body, &whole);
        assert_int_equal(whole.info.n > 0, i < 4);
        for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++) {
            make_slices(rows[i].api, body, 0, sizes[size], &cut);
            assert_memory_equal(&whole, &cut, sizeof whole);
        }
        for (size_t at = 0; at <= body.len; at++) {
            make_slices(rows[i].api, body, at, body.len + 1, &cut);
            assert_memory_equal(&whole, &cut, sizeof whole);
        }
        drop(body);
    }
}

static void the_seed_matters(void **state)
{
    (void)state;
    struct made a, b;
    struct grid_str body = body_of(chat_form, 2000);
    make(GRID_API_CHAT, body, &a);
    grid_hash_seed_init(&seed, 2);
    make(GRID_API_CHAT, body, &b);
    grid_hash_seed_init(&seed, 1);
    assert_int_equal(shared(&a, &b), 0);
    drop(body);
}

static void header_is_the_stronger_model(void **state)
{
    (void)state;
    struct made a, b;
    struct grid_str body = body_of(chat_form, 2000),
                    nameless = body_of("{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", 2000);
    make(GRID_API_CHAT, body, &a);
    memset(&b, 0, sizeof b);
    grid_keys_make(&seed, GRID_API_CHAT, &nameless, 1, false, true, GRID_LIT("llama"), b.keys, &b.info);
    assert_int_equal(a.info.n, 7);
    assert_int_equal(shared(&a, &b), 7);
    assert_true(b.info.has_model && b.info.model_len == 5);
    grid_keys_make(&seed, GRID_API_CHAT, &body, 1, false, true, GRID_LIT("other"), b.keys, &b.info);
    assert_int_equal(shared(&a, &b), 0);
    make(GRID_API_CHAT, nameless, &b);
    assert_int_equal(b.info.reason, GRID_REASON_NO_MODEL);
    assert_int_equal(b.info.n, 0);
    drop(body);
    drop(nameless);
}

static void model_only(void **state)
{
    (void)state;
    struct made made;
    struct grid_str body = GRID_LIT("{\"model\":\"m\",\"messages\":5}");
    grid_keys_make(&seed, GRID_API_CHAT, &body, 1, false, false, no_header, made.keys, &made.info);
    assert_int_equal(made.info.reason, GRID_REASON_NONE);
    assert_int_equal(made.info.n, 0);
    assert_string_equal(made.info.model, "m");
    grid_keys_make(&seed, GRID_API_NONE, &body, 1, false, true, no_header, made.keys, &made.info);
    assert_true(made.info.has_model);
    body.len -= 3;
    grid_keys_make(&seed, GRID_API_CHAT, &body, 1, true, true, no_header, made.keys, &made.info);
    assert_int_equal(made.info.reason, GRID_REASON_BODY_TOO_LARGE);
    assert_true(made.info.has_model);
}

/* Too long to be served is not absent: it is a model, of one byte more than any name, however it is sliced. */
static void long_model(void **state)
{
    (void)state;
    static const char form[] = "{\"messages\":[],\"model\":\"%s\"}";
    struct made whole, cut;
    for (size_t fill = 256; fill < 2000; fill += 1 + fill / 4) {
        struct grid_str body = body_of(form, fill);
        make(GRID_API_CHAT, body, &whole);
        assert_true(whole.info.has_model);
        assert_int_equal(whole.info.reason, GRID_REASON_TOO_SHORT);
        assert_int_equal(whole.info.model_len, fill == 256 ? 256 : 257);
        make_slices(GRID_API_CHAT, body, 0, 7, &cut);
        assert_memory_equal(&whole, &cut, sizeof whole);
        struct grid_str header = {body.ptr, fill};
        grid_keys_make(&seed, GRID_API_CHAT, &body, 1, false, false, header, cut.keys, &cut.info);
        assert_true(cut.info.has_model);
        assert_int_equal(cut.info.model_len, fill == 256 ? 256 : 257);
        drop(body);
    }
}

/* 16,384 bytes as sent are canonical, one more is a digest; arguments count their quotes and escapes. */
static void long_values_are_digests(void **state)
{
    (void)state;
    static const char tools[] = "{\"model\":\"m\",\"messages\":[],\"tools\":[\"%s\"]}";
    static const char calls[] = "{\"model\":\"m\",\"messages\":[{\"role\":\"a\",\"tool_calls\":[{\"function\":{"
                                "\"name\":\"f\",\"arguments\":\"%s\"}}]}]}";
    struct made made;
    for (size_t over = 0; over < 2; over++) {
        struct grid_str a = body_of(tools, GRID_BLOCK_BYTES * 64 - 4 + over),
                        b = body_of(calls, GRID_BLOCK_BYTES * 64 - 2 + over);
        make(GRID_API_CHAT, a, &made);
        assert_int_equal(made.info.n, over ? 0 : 64);
        make(GRID_API_CHAT, b, &made);
        assert_int_equal(made.info.n, over ? 0 : 64);
        drop(a);
        drop(b);
    }
}

/* A body may be bad behind the cap: nothing there is read but its syntax. */
static void nothing_is_read_behind_the_cap(void **state)
{
    (void)state;
    struct made made;
    struct grid_str a =
        body_of("{\"model\":\"m\",\"messages\":[{\"role\":\"a\",\"content\":\"%s\xFF\"},{\"role\":5}]}", 140000);
    make(GRID_API_CHAT, a, &made);
    assert_int_equal(made.info.n, GRID_MAX_KEYS);
    drop(a);
    a = body_of("{\"model\":\"m\",\"messages\":[{\"role\":\"a\",\"content\":\"%s\xFF\"},{\"role\":5}]", 140000);
    make(GRID_API_CHAT, a, &made);
    assert_int_equal(made.info.reason, GRID_REASON_NOT_JSON);
    drop(a);
}

static void ten_million_brackets(void **state)
{
    (void)state;
    const size_t n = 10 << 20;
    char *text = malloc(n);
    struct made made;
    memset(text, '[', n);
    make(GRID_API_CHAT, (struct grid_str){text, n}, &made);
    assert_int_equal(made.info.reason, GRID_REASON_NOT_JSON);
    free(text);
}

static int start(void **state)
{
    (void)state;
    grid_hash_seed_init(&seed, 1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_cap),
        cmocka_unit_test(growth_keeps_the_head),
        cmocka_unit_test(equal_and_disjoint),
        cmocka_unit_test(slices_never_show),
        cmocka_unit_test(the_seed_matters),
        cmocka_unit_test(header_is_the_stronger_model),
        cmocka_unit_test(model_only),
        cmocka_unit_test(long_model),
        cmocka_unit_test(long_values_are_digests),
        cmocka_unit_test(nothing_is_read_behind_the_cap),
        cmocka_unit_test(ten_million_brackets),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
