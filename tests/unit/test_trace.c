/*
 * test_trace.c - the recorder: many threads, a queue that fills, a file that takes no more
 */
#include "unit.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "envoy/trace.h"

enum { THREADS = 4, NOTES = 500, MANY = 400 };

static const struct grid_str secret = {"0123456789abcdef0123456789abcdef", 32};
static char folder[64], path[96];
static struct grid_router *router;

static int set_up(void **state)
{
    (void)state;
    struct grid_options options = {.hash_seed = 1};
    assert_int_equal(grid_router_new(&options, &router), GRID_OK);
    (void)snprintf(folder, sizeof folder, "/tmp/grid-trace-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/trace.jsonl", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    grid_trace_stop();
    grid_router_free(router);
    (void)unlink(path);
    return rmdir(folder);
}

static void start(uint64_t max_bytes)
{
    char error[256] = "";
    assert_true(grid_trace_start(router, path, max_bytes, secret, error, sizeof error));
    assert_true(grid_trace_on());
}

static void add_value(const struct grid_series *series, void *ctx)
{
    uint64_t *counts = ctx;
    if (strcmp(series->family, "grid_trace_records_total") == 0)
        counts[strcmp(series->only_value, "dropped") == 0] = series->value;
}

static uint64_t counted(bool dropped)
{
    uint64_t counts[2] = {0, 0};
    grid_router_counters(router, add_value, counts);
    return counts[dropped];
}

/* Lines of the file; each must be whole. */
static uint64_t lines(void)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0;
    uint64_t n = 0;
    ssize_t len;
    assert_non_null(file);
    while ((len = getline(&line, &cap, file)) > 0) {
        assert_memory_equal(line, GRID_RECORD_HEAD, sizeof GRID_RECORD_HEAD - 1);
        assert_string_equal(line + len - 3, "]}\n");
        n++;
    }
    free(line);
    (void)fclose(file);
    return n;
}

static void add(uint64_t at_ms, size_t n)
{
    static _Thread_local uint64_t keys[GRID_MAX_KEYS];
    struct grid_trace_note note = {.at_ms = at_ms, .body_bytes = 100, .n = n};
    for (size_t i = 0; i < n; i++)
        keys[i] = at_ms * GRID_MAX_KEYS + i;
    grid_trace_add(&note, keys);
}

static void *worker(void *context)
{
    for (uint64_t i = 0; i < NOTES; i++)
        add(i, (i + (uintptr_t)context) % 20);
    return NULL;
}

static void notes_of_many_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    struct stat st;
    start(UINT64_MAX);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, worker, (void *)i), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    grid_trace_stop();
    assert_false(grid_trace_on());
    assert_int_equal(counted(false), THREADS * NOTES);
    assert_int_equal(counted(true), 0);
    assert_int_equal(lines(), THREADS * NOTES);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* The thread cannot keep up with so many: each is written or counted as dropped. */
static void a_queue_that_is_full(void **state)
{
    (void)state;
    const uint64_t most = 5 * (uint64_t)GRID_TRACE_QUEUE_BYTES / (GRID_MAX_KEYS * sizeof(uint64_t));
    start(UINT64_MAX);
    for (uint64_t i = 0; i < most; i++)
        add(i, GRID_MAX_KEYS);
    grid_trace_stop();
    assert_int_equal(counted(false) + counted(true), most);
    assert_true(counted(true) > 0);
    assert_int_equal(lines(), counted(false));
}

/* The disk takes half a line: it is cut off again, and later ones go in when there is room. */
static void a_file_that_takes_half_a_line(void **state)
{
    (void)state;
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){10000, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    start(UINT64_MAX);
    for (uint64_t i = 0; i < MANY; i++)
        add(i, 8);
    grid_trace_stop();
    uint64_t dropped = counted(true), written = counted(false);
    assert_true(dropped > 0);
    assert_int_equal(dropped + written, MANY);
    assert_int_equal(lines(), written);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    start(UINT64_MAX);
    add(1, 8);
    grid_trace_stop();
    assert_int_equal(lines(), written + 1);
}

static void a_file_that_is_no_recording_stays(void **state)
{
    (void)state;
    static const char letter[] = "a letter of somebody";
    char bytes[64] = "";
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    assert_int_equal(write(fd, letter, sizeof letter), (ssize_t)sizeof letter);
    start(UINT64_MAX);
    add(1, 8);
    grid_trace_stop();
    assert_int_equal(counted(true), 1);
    assert_int_equal(pread(fd, bytes, sizeof bytes, 0), (ssize_t)sizeof letter);
    assert_string_equal(bytes, letter);
    assert_int_equal(close(fd), 0);
}

static void stop_without_a_start(void **state)
{
    (void)state;
    grid_trace_stop();
    assert_false(grid_trace_on());
    start(UINT64_MAX);
    grid_trace_stop();
    assert_int_equal(lines(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(notes_of_many_threads),         TEST(a_queue_that_is_full),
        TEST(a_file_that_takes_half_a_line), TEST(a_file_that_is_no_recording_stays),
        TEST(stop_without_a_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
