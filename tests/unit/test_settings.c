/*
 * test_settings.c - the grid_site_route block: what is accepted, what is refused, and with which words
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "str.h"

static struct grid_settings settings;
static struct grid_errors errors;

static enum grid_status parse_as(const char *text, bool words)
{
    memset(&errors, 0, sizeof errors);
    memset(&settings, 0, sizeof settings);
    /* A copy without a NUL behind it, so that a read past the end is seen. */
    size_t len = strlen(text);
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    enum grid_status status = grid_settings_parse((struct grid_str){copy, len}, words, &settings, &errors);
    free(copy);
    assert_int_equal(status == GRID_OK, errors.count == 0);
    return status;
}

static void accept(const char *text)
{
    if (parse_as(text, false) != GRID_OK)
        fail_msg("%s: refused: %s: %s", text, errors.items[0].field, errors.items[0].message);
}

/* One refusal, at `field`, whose message holds `topic` and whose offset is where `at` stands in the text. */
static void refuse_as(bool words, const char *text, const char *field, const char *at, const char *topic)
{
    if (parse_as(text, words) == GRID_OK)
        fail_msg("accepted: %s", text);
    const struct grid_err *err = &errors.items[0];
    if (errors.count != 1 || strcmp(err->field, field) != 0 || !strstr(err->message, topic) ||
        (at && err->offset != (size_t)(strstr(text, at) - text)))
        fail_msg("%s: %zu refusals, field %s, offset %zu, message %s", text, errors.count, err->field, err->offset,
                 err->message);
}

static void refuse(const char *text, const char *field, const char *at, const char *topic)
{
    refuse_as(false, text, field, at, topic);
}

static bool is(double a, double b)
{
    return fabs(a - b) < 1e-12;
}

/* A default that is written out changes nothing. */
static void write_default(void *context, const struct grid_field_row *row)
{
    unsigned *rows = context;
    char text[256];
    const char *dot = strrchr(row->path, '.');
    (*rows)++;
    assert_non_null(row->accepts);
    if (!row->fallback)
        return;
    bool quoted = strcmp(row->path, "model_header") == 0;
    (void)snprintf(text, sizeof text, "%s\"%s\": %s%s%s}%s", dot ? "{\"prefix_affinity\": {" : "{",
                   dot ? dot + 1 : row->path, quoted ? "\"" : "", row->fallback, quoted ? "\"" : "", dot ? "}" : "");
    accept(text);
    struct grid_settings written = settings;
    accept("{}");
    assert_string_equal(written.model_header, settings.model_header);
    assert_int_equal(written.enabled, settings.enabled);
    assert_true(is(written.threshold, settings.threshold) && is(written.exploration, settings.exploration));
    assert_true(is(written.prefill_tokens_per_second, settings.prefill_tokens_per_second));
    assert_true(is(written.queued_request_seconds, settings.queued_request_seconds));
    assert_int_equal(written.capacity, settings.capacity);
    assert_int_equal(written.ttl_ms, settings.ttl_ms);
}

static void test_described(void **state)
{
    unsigned rows = 0;
    (void)state;
    grid_settings_describe(write_default, &rows);
    assert_int_equal(rows, 15);
}

static void test_defaults(void **state)
{
    (void)state;
    static const char *const empty[] = {
        "{}",   "null", "{\"prefix_affinity\":null}", "{\"prefix_affinity\":{}}", "{\"filter\":\"grid_site_route\"}",
        " { } "};
    struct grid_settings defaults;
    grid_settings_defaults(&defaults);
    assert_string_equal(defaults.model_header, "x-model");
    assert_true(defaults.enabled && !defaults.spread_ties && is(defaults.threshold, 0.8) &&
                is(defaults.exploration, 0.02));
    assert_true(is(defaults.prefill_tokens_per_second, 10000) && is(defaults.queued_request_seconds, 2));
    assert_int_equal(defaults.capacity, 16384);
    assert_int_equal(defaults.ttl_ms, 600000);
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        accept(empty[i]);
        assert_string_equal(settings.model_header, "x-model");
        assert_true(is(settings.threshold, 0.8));
        assert_int_equal(settings.ttl_ms, 600000);
        assert_int_equal(settings.n_tag_key_paths, 0);
    }
}

static void test_all_fields(void **state)
{
    (void)state;
    accept("{\"model_header\":\"X-My-Model\",\"clusters\":[\"a\",{\"name\":\"b\",\"transport\":\"tls\"}],"
           "\"prefix_affinity\":{\"enabled\":false,\"spread_ties\":true,\"threshold\":1,\"exploration\":0,"
           "\"prefill_tokens_per_second\":5e3,\"queued_request_seconds\":0.5,\"tag_key_path\":\"k\","
           "\"capacity\":1.048576e+06,\"ttl_secs\":4611686018}}");
    assert_string_equal(settings.model_header, "x-my-model");
    assert_true(!settings.enabled && settings.spread_ties && is(settings.threshold, 1) && is(settings.exploration, 0));
    assert_true(is(settings.prefill_tokens_per_second, 5000) && is(settings.queued_request_seconds, 0.5));
    assert_int_equal(settings.capacity, 1048576);
    assert_true(settings.ttl_ms == 4611686018000);
    assert_int_equal(settings.n_tag_key_paths, 1);
    assert_string_equal(settings.tag_key_paths[0], "k");
}

static void affinity(const char *field, const char *value, const char *topic)
{
    char text[512], path[128];
    (void)snprintf(text, sizeof text, "{\"prefix_affinity\":{\"%s\":%s}}", field, value);
    if (!topic) {
        accept(text);
        return;
    }
    (void)snprintf(path, sizeof path, "prefix_affinity.%s", field);
    refuse(text, path, value, topic);
}

static void test_ranges(void **state)
{
    (void)state;
    affinity("threshold", "0.0001", NULL);
    affinity("threshold", "0", "threshold is 0: it must be a number above 0 and at most 1");
    affinity("threshold", "1.0001", "1.0001");
    affinity("threshold", "-1", "-1");
    affinity("threshold", "\"high\"", "\"high\"");
    affinity("threshold", "true", "true");
    affinity("threshold", "null", "null");
    affinity("exploration", "1", NULL);
    affinity("exploration", "-0.01", "from 0 to 1");
    affinity("exploration", "1.5", "1.5");
    affinity("prefill_tokens_per_second", "0", "positive finite");
    affinity("prefill_tokens_per_second", "1e400", "1e400");
    affinity("queued_request_seconds", "-2", "positive finite");
    affinity("queued_request_seconds", "\".nan\"", ".nan");
    affinity("queued_request_seconds", "[1]", "a list");
    affinity("enabled", "\"true\"", "true or false");
    affinity("enabled", "1", "true or false");
    affinity("spread_ties", "\"yes\"", "true or false");
}

static void test_whole_numbers(void **state)
{
    (void)state;
    affinity("capacity", "1", NULL);
    affinity("capacity", "16384.0", NULL);
    affinity("capacity", "163840e-1", NULL);
    assert_int_equal(settings.capacity, 16384);
    affinity("capacity", "100", NULL);
    assert_int_equal(settings.capacity, 100);
    affinity("capacity", "1.5e1", NULL);
    assert_int_equal(settings.capacity, 15);
    affinity("capacity", "67108864", NULL);
    affinity("capacity", "67108865", "67108865");
    affinity("capacity", "0", "from 1");
    affinity("capacity", "-0", "from 1");
    affinity("capacity", "0e5", "from 1");
    affinity("capacity", "-1", "from 1");
    affinity("capacity", "1.5", "1.5");
    affinity("capacity", "1e-1", "whole");
    affinity("capacity", "1e999999999999", "whole");
    affinity("capacity", "\"16384\"", "whole");
    affinity("capacity", "\"lots\"", "capacity");
    affinity("ttl_secs", "4611686019", "clock");
    affinity("ttl_secs", "99999999999999999999999", "99999999999999999999999");
    affinity("ttl_secs", "0", "ttl_secs");
    affinity("ttl_secs", "10000000000000000000000000000000000000000000000000000000000000000000000000000", "ttl_secs");
}

static void test_tag_keys(void **state)
{
    (void)state;
    affinity("tag_key_path", "null", NULL);
    affinity("tag_key_path", "[\"a\",\"b\"]", NULL);
    assert_int_equal(settings.n_tag_key_paths, 2);
    assert_string_equal(settings.tag_key_paths[1], "b");
    affinity("tag_key_path", "[1,2,3,4,5,6,7,8,9]", "9 entries");
    affinity("tag_key_path", "[]", "0 entries");
    affinity("tag_key_path", "{}", "a list of 1 to 8 paths");
    affinity("tag_key_path", "\"\"", "tag_key_path");
    affinity("tag_key_path", "7", "7");
    refuse("{\"prefix_affinity\":{\"tag_key_path\":[\"a\",null]}}", "prefix_affinity.tag_key_path[1]", "null", "null");
    refuse("{\"prefix_affinity\":{\"tag_key_path\":\"a\\u0000b\"}}", "prefix_affinity.tag_key_path", "\"a\\u", "path");
}

static void test_model_header(void **state)
{
    (void)state;
    static const char *const bad[] = {"\"\"", "\" \"", "\"a b\"",        "\":path\"",  "\"x\\u00e9\"",
                                      "3",    "null",  "\"X-Praxis-A\"", "\"x-mcp-a\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "{\"model_header\":%s}", bad[i]);
        refuse(text, "model_header", bad[i], "header name");
    }
    accept("{\"model_header\":\"x-praxis\"}");
    assert_int_equal(parse_as("{\"model_header\":3}", true), GRID_OK);
    assert_string_equal(settings.model_header, "3");
    assert_int_equal(parse_as("{\"model_header\":true}", true), GRID_OK);
    assert_string_equal(settings.model_header, "true");
    refuse_as(true, "{\"model_header\":null}", "model_header", "null", "header name");
}

static void test_unknown_and_twice(void **state)
{
    (void)state;
    refuse("{\"prefix_affinty\":{}}", "prefix_affinty", "{}", "is prefix_affinity meant?");
    refuse("{\"bogus_thing\":1}", "bogus_thing", "1", "unknown field bogus_thing");
    refuse("{\"threshold\":1}", "threshold", "1", "belongs under prefix_affinity");
    affinity("treshold", "0.5", "is threshold meant?");
    affinity("xyz", "0.5", "unknown field xyz");
    affinity("", "0.5", "unknown field");
    refuse("{\"prefix_affinity\":{},\"prefix_affinity\":{\"threshold\":9}}", "prefix_affinity", "{\"threshold",
           "twice");
    refuse("{\"prefix_affinity\":{\"enabled\":true,\"enabled\":false}}", "prefix_affinity.enabled", "false", "twice");
    refuse("{\"filter\":\"other\"}", "filter", "\"other\"", "grid_site_route");
    refuse("{\"clusters\":[{\"name\":\"a\",\"port\":1}]}", "clusters[0].port", "1}", "unknown field");
    refuse("{\"clusters\":[{\"name\":\"a\",\"transport\":\"pigeon\"}]}", "clusters[0].transport", "\"pigeon\"", "tls");
    refuse("{\"clusters\":[\"a\",\"\"]}", "clusters[1]", "\"\"", "name");
    refuse("{\"clusters\":[\"a\",\" \\u00a0\\u2003\"]}", "clusters[1]", "\" \\u", "blank");
    refuse("{\"clusters\":{}}", "clusters", "{}}", "list");
    refuse("{\"prefix_affinity\":[]}", "prefix_affinity", "[]", "a mapping");
}

static void test_no_json(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", " ", "{", "{\"a\":1,}", "{}x", "{'a':1}", "{\"prefix_affinity\":{\"threshold\":NaN}}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse_as(bad[i], true), GRID_E_SYNTAX);
        assert_int_equal(errors.count, 1);
        assert_string_equal(errors.items[0].field, "");
    }
    refuse("[]", "", "[", "a mapping");
    refuse("7", "", "7", "a mapping");
}

static void test_all_at_once(void **state)
{
    (void)state;
    const char *text = "{\"model_header\":\"\",\"a\":1,\"prefix_affinity\":{\"threshold\":2,\"capacity\":0,\"b\":1}}";
    static const char *const fields[] = {"model_header", "a", "prefix_affinity.threshold", "prefix_affinity.capacity",
                                         "prefix_affinity.b"};
    assert_int_equal(parse_as(text, false), GRID_E_FIELD);
    assert_int_equal(errors.count, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(errors.items[i].field, fields[i]);
    assert_string_equal(settings.model_header, ""); /* untouched: it was zeroed before */
    assert_int_equal(grid_settings_parse(grid_str_of(text), false, &settings, NULL), GRID_E_FIELD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),      cmocka_unit_test(test_described),
        cmocka_unit_test(test_all_fields),    cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_whole_numbers), cmocka_unit_test(test_tag_keys),
        cmocka_unit_test(test_model_header),  cmocka_unit_test(test_unknown_and_twice),
        cmocka_unit_test(test_no_json),       cmocka_unit_test(test_all_at_once),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
