/*
 * filter_setting.h - the grid that test_filter.c plays in: a state folder with two sites, and what requests look like
 */
#ifndef GRID_FILTER_SETTING_H
#define GRID_FILTER_SETTING_H

#include "tests/support/fake_envoy.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AFFINITY "grid_route_prefix_affinity_total"
#define RELOADS "grid_serving_config_reload_total"
#define POLLS "grid_signal_polls_total"
#define POST ":method: POST\n:path: /v1/chat/completions\ncontent-type: application/json"

enum { MAX_BODY = 10000, SLACK = 2 << 20 };

static char folder[200], config[300];

static const char serving[] =
    "{\"local_site\":\"east\",\"candidates\":["
    "{\"kind\":\"inference_model\",\"name\":\"llama\",\"site\":\"east\",\"cluster\":\"east\"},"
    "{\"kind\":\"inference_model\",\"name\":\"llama\",\"site\":\"west\",\"cluster\":\"west\"},"
    "{\"kind\":\"inference_model\",\"name\":\"solo\",\"site\":\"west\",\"cluster\":\"west\"},"
    "{\"kind\":\"inference_model\",\"name\":\"gone\",\"site\":\"west\",\"cluster\":\"gone\"}%s],"
    "\"clusters\":[{\"name\":\"east\",\"endpoints\":[\"127.0.0.1:1\"],\"signals\":{\"interval_ms\":1}},"
    "{\"name\":\"west\",\"endpoints\":[\"127.0.0.1:2\"],\"signals\":false},"
    "{\"name\":\"gone\",\"endpoints\":[\"127.0.0.1:3\"],\"signals\":false}]}";

static inline void write_file(const char *name, const char *text)
{
    char path[260], temporary[270];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    FILE *file = fopen(temporary, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(temporary, path), 0);
}

static inline void write_serving(const char *more_candidates)
{
    char text[4000];
    snprintf(text, sizeof(text), serving, more_candidates);
    write_file("serving.json", text);
}

static inline void make_folder(void)
{
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/grid-filter-XXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(config, sizeof(config), "%s\n%d", folder, MAX_BODY);
    write_serving("");
    write_file("plugin.json", "{\"prefix_affinity\":{\"exploration\":0}}");
    memset(fake_clusters, 0, sizeof(fake_clusters));
    fake_clusters[0] = (struct fake_cluster){"east", 1, 1};
    fake_clusters[1] = (struct fake_cluster){"west", 1, 1};
    fake_init_completes = fake_callout_result = 0;
    fake_callout_done_inside = fake_validating = false;
}

static inline void remove_folder(void)
{
    static const char *const names[] = {"serving.json", "plugin.json", "reload"};
    char path[260];
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

/* A chat body for llama of exactly `len` bytes; `mark` tells prompts apart. Static storage. */
static inline const char *chat(size_t len, char mark)
{
    static char body[4 * MAX_BODY];
    static const char head[] = "{\"model\":\"llama\",\"messages\":[{\"role\":\"user\",\"content\":\"", tail[] = "\"}]}";
    assert_true(len < sizeof(body) && len > sizeof(head) + sizeof(tail));
    memset(body, mark, len);
    memcpy(body, head, sizeof(head) - 1);
    memcpy(body + len - (sizeof(tail) - 1), tail, sizeof(tail));
    return body;
}

static inline uint64_t outcomes(const char *outcome)
{
    fake_fire_timers();
    return fake_counter(AFFINITY, outcome);
}

/* Sends a whole chat request; the caller answers and closes it. */
static inline struct fake_stream *ask(size_t len, char mark, size_t piece, enum fake_http http)
{
    struct fake_stream *stream = fake_open("grid_site_route");
    assert_int_equal(fake_head(stream, POST, false), ENVOY_HEADERS_STOP);
    fake_send_body(stream, chat(len, mark), len, piece, http);
    return stream;
}

static inline void assert_forwarded(const struct fake_stream *stream, const char *body, size_t len)
{
    assert_int_equal(stream->reply_status, 0);
    assert_true(stream->head_sent && stream->end_sent);
    assert_int_equal(stream->sent_bytes, len);
    assert_memory_equal(stream->sent, body, len);
}

/* Makes east hold the prompt of `mark`. */
static inline void teach_east(char mark)
{
    fake_clusters[1].healthy = 0;
    struct fake_stream *stream = ask(3000, mark, 3000, FAKE_HTTP1);
    assert_string_equal(stream->cluster, "east");
    fake_answer(stream, ":status: 200", "{}");
    fake_close(stream);
    fake_clusters[1].healthy = 1;
}

static inline int setup(void **state)
{
    (void)state;
    make_folder();
    assert_true(fake_start(config));
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    fake_stop();
    remove_folder();
    assert_int_equal(fake_timers_alive, 0);
    return 0;
}

/* After an answer to a prompt that east holds: does east still hold it? */
static inline void assert_lesson(bool local, int status, uint64_t flags, bool held)
{
    char line[40];
    snprintf(line, sizeof(line), ":status: %d", status);
    teach_east('b');
    struct fake_stream *stream = ask(3000, 'b', 3000, FAKE_HTTP1);
    assert_string_equal(stream->cluster, "east");
    if (local)
        fake_local_answer(stream, status, flags, line, "plain");
    else
        fake_answer(stream, line, "{}");
    fake_close(stream);
    uint64_t sticky = outcomes("sticky");
    fake_close(ask(3000, 'b', 3000, FAKE_HTTP1));
    assert_int_equal(outcomes("sticky"), sticky + (held ? 1 : 0));
}

/* Lets the next poll become due, and starts it. */
static inline void poll_again(void)
{
    uint64_t before = fake_last_callout;
    time_t limit = time(NULL) + 20;
    while (fake_last_callout == before && time(NULL) < limit)
        fake_fire_timers();
    assert_true(fake_last_callout > before);
}

#endif
