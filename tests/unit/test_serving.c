/*
 * test_serving.c - the serving config in both forms: what is read, what is refused, and that want of memory is clean
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "arena.h"
#include "serving.h"
#include "str.h"

#define CANDIDATE(site, cluster)                                                                                       \
    "{\"kind\":\"inference_model\",\"name\":\"llama\",\"site\":" site ",\"cluster\":" cluster "}"
#define PEERS_FORM(candidates)                                                                                         \
    "{\"local_site\":\"east\",\"window_secs\":60,\"load_window_ms\":30000,\"candidates\":[" candidates "],\"peers\":[" \
    "]}"
#define OURS(candidates, clusters)                                                                                     \
    "{\"local_site\":\"east\",\"candidates\":[" candidates "],\"clusters\":[" clusters "]}"
#define CLUSTER(more) OURS(CANDIDATE("\"east\"", "\"a\""), "{\"name\":\"a\",\"endpoints\":[\"h:1\"]" more "}")

static struct grid_errors errors;

static struct grid_serving *parse_as(const char *text, bool words, enum grid_status *out_status)
{
    struct grid_serving *serving;
    size_t len = strlen(text);
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    memset(&errors, 0, sizeof errors);
    *out_status = grid_serving_parse((struct grid_str){copy, len}, words, NULL, &serving, &errors);
    free(copy); /* nothing of the text may be needed any more */
    assert_int_equal(*out_status == GRID_OK, serving != NULL);
    assert_int_equal(*out_status == GRID_OK, errors.count == 0);
    return serving;
}

static struct grid_serving *accept(const char *text)
{
    enum grid_status status;
    struct grid_serving *serving = parse_as(text, false, &status);
    if (!serving)
        fail_msg("%s: refused: %s: %s", text, errors.items[0].field, errors.items[0].message);
    return serving;
}

static void accepted(const char *text)
{
    grid_serving_free(accept(text));
}

static void refuse(const char *text, enum grid_status code, const char *field, const char *at, const char *topic)
{
    enum grid_status status;
    struct grid_serving *serving = parse_as(text, false, &status);
    const struct grid_err *err = &errors.items[0];
    grid_serving_free(serving);
    if (serving)
        fail_msg("accepted: %s", text);
    if (errors.count != 1 || status != code || err->code != code || strcmp(err->field, field) != 0 ||
        !strstr(err->message, topic) || (at && err->offset != (size_t)(strstr(text, at) - text)))
        fail_msg("%s: %zu refusals, %s, field %s, offset %zu, message %s", text, errors.count, grid_status_name(status),
                 err->field, err->offset, err->message);
}

static void assert_text(struct grid_str text, const char *expected)
{
    if (!grid_str_eq(text, grid_str_of(expected)))
        fail_msg("%.*s is not %s", GRID_FMT(text), expected);
}

static const char full[] =
    "{\"local_site\":\"east\",\"window_secs\":30,\"load_window_ms\":1e3,\"candidates\":["
    "{\"kind\":\"inference_model\",\"name\":\"org/model:7b\",\"site\":\"east\",\"cluster\":\"a.b/c d\"},"
    "{\"kind\":\"mcp_tool\",\"name\":\"\\u00e9\",\"site\":\"007\",\"cluster\":\"w\",\"admission\":\"existing_only\","
    "\"fresh\":false,\"credential\":{\"x\":[1]},\"stable_id\":\"s\"},"
    "{\"kind\":\"inference_model\",\"name\":\"m\",\"site\":\"w\",\"cluster\":\"w\",\"admission\":\"none\"}],"
    "\"clusters\":[{\"name\":\"a.b/c d\",\"endpoints\":[\"10.0.0.1:8000\",\"[::1]:65535\",\"h-1.example:1\"],"
    "\"tls\":{\"ca_path\":\"ca\",\"cert_path\":\"c\",\"key_path\":\"k\",\"server_name\":\"w.example\"},"
    "\"signals\":{\"path\":\"/m?x=1\",\"interval_ms\":500,\"timeout_ms\":400,\"metric\":\"a:b_1\",\"divisor\":2.5,"
    "\"how\":\"sum\"},\"health\":{\"path\":\"/health\",\"interval_ms\":100,\"timeout_ms\":50,"
    "\"healthy_threshold\":3,\"unhealthy_threshold\":4},\"credential\":{\"bearer_path\":\"e.key\"},"
    "\"paths\":[\"/v1/models\",\"/v1/messages\"]},"
    "{\"name\":\"w\",\"endpoints\":[\"h:2\"],\"signals\":null}],"
    "\"peers\":[{\"site\":\"w\",\"addr\":\"w.example:443\",\"grid_ca_path\":\"g\",\"interval_ms\":7}]}";

static void test_our_form(void **state)
{
    (void)state;
    struct grid_serving *serving = accept(full);
    assert_text(serving->local_site, "east");
    assert_int_equal(serving->window_ms, 30000);
    assert_int_equal(serving->load_window_ms, 1000);
    assert_int_equal(serving->n_candidates, 3);
    assert_text(serving->candidates[0].name, "org/model:7b");
    assert_text(serving->candidates[0].cluster, "a.b/c d");
    assert_int_equal(serving->candidates[0].admission, GRID_NEW_AND_EXISTING);
    assert_int_equal(serving->candidates[1].kind, GRID_MCP_TOOL);
    assert_text(serving->candidates[1].name, "\xc3\xa9");
    assert_text(serving->candidates[1].site, "007");
    assert_int_equal(serving->candidates[1].admission, GRID_EXISTING_ONLY);
    assert_int_equal(serving->candidates[2].admission, GRID_NO_ADMISSION);
    assert_true(serving->has_clusters);
    assert_int_equal(serving->n_clusters, 2);
    const struct grid_serving_cluster *cluster = &serving->clusters[0];
    assert_int_equal(cluster->n_endpoints, 3);
    assert_text(cluster->endpoints[1], "[::1]:65535");
    assert_true(cluster->tls.on && cluster->signals.sum && !cluster->signals.off);
    assert_text(cluster->tls.key_path, "k");
    assert_text(cluster->tls.server_name, "w.example");
    assert_text(cluster->signals.path, "/m?x=1");
    assert_text(cluster->signals.metric, "a:b_1");
    assert_int_equal(cluster->signals.interval_ms, 500);
    assert_int_equal(cluster->signals.timeout_ms, 400);
    assert_true(fabs(cluster->signals.divisor - 2.5) < 1e-12);
    assert_text(cluster->health.path, "/health");
    assert_int_equal(cluster->health.timeout_ms, 50);
    assert_int_equal(cluster->health.healthy_threshold, 3);
    assert_int_equal(cluster->health.unhealthy_threshold, 4);
    assert_text(cluster->bearer_path, "e.key");
    assert_int_equal(cluster->n_paths, 2);
    assert_text(cluster->paths[1], "/v1/messages");
    assert_true(serving->clusters[1].signals.off && !serving->clusters[1].tls.on);
    assert_int_equal(serving->n_peers, 1);
    assert_text(serving->peers[0].path, "/v1/site/signals");
    assert_int_equal(serving->peers[0].interval_ms, 7);
    assert_int_equal(serving->peers[0].request_timeout_ms, 2000);
    grid_serving_free(serving);
}

static void test_defaults(void **state)
{
    (void)state;
    struct grid_serving *serving = accept(CLUSTER(""));
    assert_int_equal(serving->window_ms, 60000);
    assert_int_equal(serving->load_window_ms, 30000);
    const struct grid_serving_signals *signals = &serving->clusters[0].signals;
    assert_text(signals->path, "/metrics");
    assert_true(!signals->off && !signals->sum && signals->metric.len == 0 && fabs(signals->divisor - 1) < 1e-12);
    assert_int_equal(signals->interval_ms, 2000);
    assert_int_equal(serving->clusters[0].health.path.len, 0);
    grid_serving_free(serving);
    serving = accept(CLUSTER(",\"tls\":{},\"signals\":false,\"health\":false"));
    assert_true(serving->clusters[0].tls.on && serving->clusters[0].signals.off);
    grid_serving_free(serving);
    accepted(CLUSTER(",\"tls\":null,\"health\":null"));
    accepted(OURS("", ""));
}

static void test_operators_form(void **state)
{
    (void)state;
    accepted(PEERS_FORM(""));
    struct grid_serving *serving = accept(PEERS_FORM(CANDIDATE("\"east\"", "\"nowhere\"")));
    assert_false(serving->has_clusters);
    grid_serving_free(serving);
    refuse("{\"local_site\":\"e\",\"load_window_ms\":1,\"candidates\":[],\"peers\":[]}", GRID_E_FIELD, "window_secs",
           "{", "missing");
    refuse("{\"local_site\":\"e\",\"window_secs\":1,\"candidates\":[],\"peers\":[]}", GRID_E_FIELD, "load_window_ms",
           "{", "missing");
    refuse("{\"local_site\":\"e\",\"window_secs\":1,\"load_window_ms\":1,\"candidates\":[]}", GRID_E_FIELD, "peers",
           "{", "clusters");
    refuse("{\"local_site\":\"e\",\"clusters\":[]}", GRID_E_FIELD, "candidates", "{", "missing");
    refuse("{\"candidates\":[],\"clusters\":[]}", GRID_E_FIELD, "local_site", "{", "missing");
}

static void test_sites(void **state)
{
    (void)state;
    static const char *const bad[] = {"\"East\"",
                                      "\"\"",
                                      "\"a_b\"",
                                      "\"a.b\"",
                                      "\"-a\"",
                                      "\"a-\"",
                                      "\"east/\"",
                                      "\"a b\"",
                                      "\"\\u00e9\"",
                                      "7",
                                      "null",
                                      "true",
                                      "\"a234567890123456789012345678901234567890123456789012345678901234\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[512];
        (void)snprintf(text, sizeof text, PEERS_FORM(CANDIDATE("%s", "\"c\"")), bad[i]);
        refuse(text, GRID_E_FIELD, "candidates[0].site", bad[i], "DNS-1123");
    }
    accepted(PEERS_FORM(CANDIDATE("\"0\"", "\"c\"")));
    accepted(PEERS_FORM(CANDIDATE("\"a23456789012345678901234567890123456789012345678901234567890123\"", "\"c\"")));
    refuse("{\"local_site\":\"E\",\"candidates\":[],\"clusters\":[]}", GRID_E_FIELD, "local_site", "\"E\"", "DNS-1123");
}

static void test_words(void **state)
{
    (void)state;
    enum grid_status status;
    struct grid_serving *serving = parse_as(PEERS_FORM(CANDIDATE("7", "true")), true, &status);
    assert_non_null(serving);
    assert_text(serving->candidates[0].site, "7");
    assert_text(serving->candidates[0].cluster, "true");
    grid_serving_free(serving);
    assert_null(parse_as(PEERS_FORM(CANDIDATE("null", "true")), true, &status));
}

static void test_names(void **state)
{
    (void)state;
    char name[300], text[800];
    for (size_t len = 256; len <= 257; len++) {
        memset(name, 'n', len);
        name[len] = 0;
        (void)snprintf(text, sizeof text, PEERS_FORM(CANDIDATE("\"e\"", "\"%s\"")), name);
        if (len == 256)
            accepted(text);
        else
            refuse(text, GRID_E_FIELD, "candidates[0].cluster", "\"nnn", "256");
    }
    refuse(PEERS_FORM(CANDIDATE("\"e\"", "\"  \"")), GRID_E_FIELD, "candidates[0].cluster", "\"  \"", "blank");
    refuse(PEERS_FORM(CANDIDATE("\"e\"", "\"\\ud800\"")), GRID_E_FIELD, "candidates[0].cluster", "\"\\ud", "name");
    refuse(PEERS_FORM(CANDIDATE("\"e\"", "\"a\\nb\"")), GRID_E_FIELD, "candidates[0].cluster", "\"a\\n", "control");
}

static void test_conflicts(void **state)
{
    (void)state;
    refuse(PEERS_FORM(CANDIDATE("\"e\"", "\"c\"") ", " CANDIDATE("\"e\"", "\"c\"")), GRID_E_CONFLICT, "candidates[1]",
           NULL, "candidates[0]");
    accepted(PEERS_FORM(CANDIDATE("\"e\"", "\"c\"") "," CANDIDATE("\"f\"", "\"c\"") "," CANDIDATE("\"e\"", "\"d\"")));
    refuse(
        OURS(CANDIDATE("\"e\"", "\"a\"") "," CANDIDATE("\"e\"", "\"zz\""), "{\"name\":\"a\",\"endpoints\":[\"h:1\"]}"),
        GRID_E_CONFLICT, "candidates[1].cluster", "\"zz\"", "zz");
    refuse(OURS("", "{\"name\":\"a\",\"endpoints\":[\"h:1\"]},{\"endpoints\":[\"h:1\"],\"name\": \"a\"}"),
           GRID_E_CONFLICT, "clusters[1].name", NULL, "clusters[0]");
    refuse(CLUSTER(",\"tls\":{\"cert_path\":\"c\"}"), GRID_E_CONFLICT, "clusters[0].tls", "{\"cert", "key_path");
    refuse("{\"local_site\":\"e\",\"candidates\":[],\"clusters\":[],\"peers\":[{\"site\":\"a\",\"addr\":\"h:1\"},"
           "{\"site\":\"a\",\"addr\":\"h:2\"}]}",
           GRID_E_CONFLICT, "peers[1].site", NULL, "peers[0]");
}

/* Two names whose SHA-256 begins with the same four bytes, 6e8e0755: found by trying. */
#define TWIN "\"pool-13038\""
#define OTHER_TWIN "\"pool-20737\""

static void test_two_clusters_with_one_mark(void **state)
{
    (void)state;
    accepted(PEERS_FORM(CANDIDATE("\"e\"", TWIN) "," CANDIDATE("\"f\"", TWIN)));
    refuse(PEERS_FORM(CANDIDATE("\"e\"", "\"c\"") "," CANDIDATE("\"e\"", TWIN) "," CANDIDATE("\"f\"", OTHER_TWIN)),
           GRID_E_CONFLICT, "candidates[2].cluster", OTHER_TWIN, "pool-13038 and pool-20737");
    refuse(PEERS_FORM(CANDIDATE("\"e\"", OTHER_TWIN) "," CANDIDATE("\"e\"", TWIN) "," CANDIDATE(
               "\"f\"", TWIN) "," CANDIDATE("\"f\"", OTHER_TWIN)), /* told once */
           GRID_E_CONFLICT, "candidates[1].cluster", TWIN, "6e8e0755");
}

static void test_cluster_fields(void **state)
{
    (void)state;
    static const char *const bad[] = {"h",          "h:",    "h:0",    "h:65536", ":1",       "h:x",
                                      "::1:80",     "[::1]", "[::1:1", "[::g]:1", "h h:1",    "-h:1",
                                      "http://h:1", "h:1/",  "h:-1",   "h: 1",    "h:000001", "[]:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, OURS("", "{\"name\":\"a\",\"endpoints\":[\"h:1\",\"%s\"]}"), bad[i]);
        refuse(text, GRID_E_FIELD, "clusters[0].endpoints[1]", NULL, "host:port");
    }
    refuse(OURS("", "{\"name\":\"a\",\"endpoints\":[]}"), GRID_E_FIELD, "clusters[0].endpoints", "[]}", "1 to 1024");
    refuse(CLUSTER(",\"signals\":{\"how\":\"max\"}"), GRID_E_FIELD, "clusters[0].signals.how", "\"max\"",
           "average or sum");
    refuse(CLUSTER(",\"signals\":{\"divisor\":0}"), GRID_E_FIELD, "clusters[0].signals.divisor", "0}", "positive");
    refuse(CLUSTER(",\"signals\":{\"metric\":\"0a\"}"), GRID_E_FIELD, "clusters[0].signals.metric", "\"0a\"", "metric");
    refuse(CLUSTER(",\"signals\":{\"interval_ms\":0}"), GRID_E_FIELD, "clusters[0].signals.interval_ms", "0}",
           "from 1");
    refuse(CLUSTER(",\"signals\":{\"path\":\"m\"}"), GRID_E_FIELD, "clusters[0].signals.path", "\"m\"", "'/'");
    refuse(CLUSTER(",\"signals\":true"), GRID_E_FIELD, "clusters[0].signals", "true", "a mapping");
    refuse(CLUSTER(",\"health\":{}"), GRID_E_FIELD, "clusters[0].health.path", "{}", "missing");
    refuse(CLUSTER(",\"health\":{\"path\":\"/a b\"}"), GRID_E_FIELD, "clusters[0].health.path", "\"/a", "blanks");
    refuse(CLUSTER(",\"health\":{\"path\":\"/\",\"healthy_threshold\":0}"), GRID_E_FIELD,
           "clusters[0].health.healthy_threshold", "0}", "from 1 to 100");
    refuse(CLUSTER(",\"health\":{\"path\":\"/\",\"unhealthy_threshold\":101}"), GRID_E_FIELD,
           "clusters[0].health.unhealthy_threshold", "101}", "from 1 to 100");
    refuse(CLUSTER(",\"health\":{\"path\":\"/\",\"timeout_ms\":86400001}"), GRID_E_FIELD,
           "clusters[0].health.timeout_ms", "86400001}", "from 1 to 86400000");
}

#define ALIAS(map) CLUSTER(",\"model_alias\":" map)

static void test_aliases(void **state)
{
    (void)state;
    accepted(ALIAS("null"));
    accepted(ALIAS("{}"));
    struct grid_serving *serving = accept(ALIAS("{\"llama\":\"meta/Llama \\\"3\\\" \\\\ \\u00e9\",\"b\":\"b\"}"));
    const struct grid_serving_cluster *cluster = &serving->clusters[0];
    assert_int_equal(cluster->n_aliases, 2);
    assert_true(grid_str_eq(cluster->aliases[0].model, GRID_LIT("llama")));
    assert_true(grid_str_eq(cluster->aliases[0].name, GRID_LIT("meta/Llama \"3\" \\ \xc3\xa9")));
    assert_true(grid_str_eq(cluster->aliases[0].json, GRID_LIT("\"meta/Llama \\\"3\\\" \\\\ \xc3\xa9\"")));
    assert_true(grid_str_eq(cluster->aliases[1].model, cluster->aliases[1].name));
    grid_serving_free(serving);
    refuse(ALIAS("[]"), GRID_E_FIELD, "clusters[0].model_alias", "[]", "a mapping of at most 1024 models");
    refuse(ALIAS("{\"llama\":7}"), GRID_E_FIELD, "clusters[0].model_alias.llama", "7}", "1 to 256");
    refuse(ALIAS("{\"llama\":\"\"}"), GRID_E_FIELD, "clusters[0].model_alias.llama", "\"\"}", "1 to 256");
    refuse(ALIAS("{\"llama\":\"a\\n\"}"), GRID_E_FIELD, "clusters[0].model_alias.llama", "\"a\\n", "control");
    refuse(ALIAS("{\"\":\"a\"}"), GRID_E_FIELD, "clusters[0].model_alias", "\"a\"}}", "1 to 256");
    refuse(ALIAS("{\" \":\"a\"}"), GRID_E_FIELD, "clusters[0].model_alias", "\"a\"}}", "not blank");
    refuse(ALIAS("{\"x\":\"a\",\"x\":\"b\"}"), GRID_E_FIELD, "clusters[0].model_alias.x", "\"b\"", "twice");
}

static void test_credential_and_paths(void **state)
{
    (void)state;
    accepted(CLUSTER(",\"credential\":null,\"paths\":null"));
    refuse(CLUSTER(",\"credential\":{}"), GRID_E_FIELD, "clusters[0].credential.bearer_path", "{}", "missing");
    refuse(CLUSTER(",\"credential\":{\"bearer_path\":\"\"}"), GRID_E_FIELD, "clusters[0].credential.bearer_path",
           "\"\"}", "1 to 1023");
}

static void test_paths(void **state)
{
    (void)state;
    refuse(CLUSTER(",\"paths\":[]"), GRID_E_FIELD, "clusters[0].paths", "[]", "1 to 64");
    refuse(CLUSTER(",\"paths\":\"/v1\""), GRID_E_FIELD, "clusters[0].paths", "\"/v1\"", "1 to 64");
    refuse(CLUSTER(",\"paths\":[\"/a\",\"b\"]"), GRID_E_FIELD, "clusters[0].paths[1]", "\"b\"", "starts with '/'");
    refuse(CLUSTER(",\"paths\":[\"/a?b\"]"), GRID_E_FIELD, "clusters[0].paths[0]", "\"/a?b\"",
           "without blanks and query");
}

static void test_unknown(void **state)
{
    (void)state;
    refuse("{\"local_site\":\"e\",\"candidates\":[],\"clusters\":[],\"prefix_affinity\":{}}", GRID_E_FIELD,
           "prefix_affinity", "{}", "grid_site_route");
    refuse("{\"local_site\":\"e\",\"candidates\":[],\"clusters\":[],\"cluster\":{}}", GRID_E_FIELD, "cluster", "{}",
           "is clusters meant?");
    refuse(CLUSTER(",\"tsl\":{}"), GRID_E_FIELD, "clusters[0].tsl", "{}", "is tls meant?");
    refuse(CLUSTER(",\"tls\":{\"x\":1}"), GRID_E_FIELD, "clusters[0].tls.x", "1}}", "unknown field x");
    refuse(CLUSTER(",\"name\":\"b\""), GRID_E_FIELD, "clusters[0].name", "\"b\"", "twice");
    refuse(PEERS_FORM("{\"kind\":\"other\",\"name\":\"a\",\"site\":\"a\",\"cluster\":\"a\"}"), GRID_E_FIELD,
           "candidates[0].kind", "\"other\"", "inference_model or mcp_tool");
    refuse(
        PEERS_FORM("{\"kind\":\"mcp_tool\",\"name\":\"a\",\"site\":\"a\",\"cluster\":\"a\",\"admission\":\"maybe\"}"),
        GRID_E_FIELD, "candidates[0].admission", "\"maybe\"", "existing_only");
    refuse(PEERS_FORM("{\"kind\":\"mcp_tool\",\"name\":\"a\",\"site\":\"a\"}"), GRID_E_FIELD, "candidates[0].cluster",
           "{\"kind", "missing");
    refuse(PEERS_FORM("3"), GRID_E_FIELD, "candidates[0]", "3]", "a mapping");
    refuse("{\"local_site\":\"e\",\"candidates\":{},\"clusters\":[]}", GRID_E_FIELD, "candidates", "{},", "a list");
    refuse("null", GRID_E_FIELD, "", "null", "a mapping");
    refuse("{\"local_site\":\"e\"", GRID_E_SYNTAX, "", NULL, "not JSON");
    enum grid_status status;
    assert_null(parse_as("{\"local_site\":\"E\",\"window_secs\":0,\"load_window_ms\":-1,\"candidates\":3,\"x\":1}",
                         false, &status));
    assert_int_equal(errors.count, 6); /* five values and no peers */
}

static void test_many_candidates(void **state)
{
    (void)state;
    for (size_t n = 1024; n <= 1025; n++) {
        struct grid_buf text = {.limit = 1u << 20};
        grid_buf_puts(&text,
                      "{\"local_site\":\"e\",\"clusters\":[{\"name\":\"c\",\"endpoints\":[\"h:1\"]}],\"candidates\":[");
        for (size_t i = 0; i < n; i++)
            grid_buf_printf(&text,
                            "%s{\"kind\":\"inference_model\",\"name\":\"m%zu\",\"site\":\"e\",\"cluster\":\"c\"}",
                            i ? "," : "", i);
        grid_buf_puts(&text, "]}");
        assert_false(text.failed);
        if (n == 1024)
            accepted(text.ptr);
        else
            refuse(text.ptr, GRID_E_FIELD, "candidates", "[{\"kind", "1025 entries");
        grid_buf_done(&text);
    }
}

/* An allocator that fails the n-th time and counts what is out. */
struct meter {
    size_t taken, fail_at;
    long out;
};

static void *meter_take(void *ctx, size_t size)
{
    struct meter *meter = ctx;
    if (++meter->taken == meter->fail_at)
        return NULL;
    meter->out++;
    return malloc(size);
}

static void *meter_resize(void *ctx, void *ptr, size_t size)
{
    struct meter *meter = ctx;
    if (++meter->taken == meter->fail_at)
        return NULL;
    meter->out += ptr == NULL;
    return realloc(ptr, size);
}

static void meter_give(void *ctx, void *ptr)
{
    struct meter *meter = ctx;
    meter->out -= ptr != NULL;
    free(ptr);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct grid_buf text = {.limit = 1u << 20};
    grid_buf_puts(&text, "{\"local_site\":\"e\",\"candidates\":[");
    for (int i = 0; i < 100; i++)
        grid_buf_printf(&text, "%s{\"kind\":\"inference_model\",\"name\":\"m%d\",\"site\":\"e\",\"cluster\":\"c\"}",
                        i ? "," : "", i);
    grid_buf_puts(&text, "],\"clusters\":[{\"name\":\"c\",\"endpoints\":[\"h:1\"");
    for (int i = 0; i < 300; i++)
        grid_buf_printf(&text, ",\"host-number-%d.example:80\"", i);
    grid_buf_puts(&text, "]}],\"peers\":[{\"site\":\"a\",\"addr\":\"h:1\"}]}");
    size_t n = 0;
    for (bool done = false; !done; n++) {
        struct meter meter = {.fail_at = n + 1};
        struct grid_alloc alloc = {meter_take, meter_resize, meter_give, &meter};
        struct grid_serving *serving;
        memset(&errors, 0, sizeof errors);
        enum grid_status status =
            grid_serving_parse((struct grid_str){text.ptr, text.len}, false, &alloc, &serving, &errors);
        done = status == GRID_OK;
        assert_int_equal(status, done ? GRID_OK : GRID_E_NO_MEMORY);
        assert_int_equal(serving != NULL, done);
        assert_true(done || errors.count > 0);
        grid_serving_free(serving);
        assert_int_equal(meter.out, 0);
    }
    assert_true(n > 5);
    grid_buf_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_our_form),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_operators_form),
        cmocka_unit_test(test_sites),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_conflicts),
        cmocka_unit_test(test_cluster_fields),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_credential_and_paths),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_many_candidates),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_two_clusters_with_one_mark),
    };
    return cmocka_run_group_tests_name("serving", tests, NULL, NULL);
}
