/*
 * test_recent.c - the list of the last decisions, written from many threads and read meanwhile
 *
 * Worth most under ThreadSanitizer. A line that mixed two decisions would show: each model is served by one site, so
 * site and number of blocks belong together. Prints what a note costs.
 */
#include "envoy/recent.h"
#include "world.h"

#include <pthread.h>
#include <time.h>

#define WRITERS 4u
#define NOTES 20000u /* a writer */
#define LOOKS 50u
#define KEPT 100u

static struct world world;
static struct grid_ticket *tickets[WRITERS];
static atomic_ullong noted;
static atomic_uint writing, looks; /* writers go on until the list was looked at some times */

/* Model and site of the same name, and as many blocks as no other writer's. */
static struct grid_ticket *decided(const char *model, size_t blocks)
{
    struct grid_header header = {GRID_LIT("x-model"), {model, strlen(model)}};
    struct grid_head head = {
        .method = GRID_LIT("POST"), .path = GRID_LIT("/v1/chat/completions"), .headers = &header, .n_headers = 1};
    struct text body = {.len = 0};
    struct grid_ticket *ticket = NULL;
    struct grid_decision decision;
    text_put_chat(&body, model, model[0], blocks, 1);
    struct grid_str view = text_view(&body);
    assert_int_equal(grid_ticket_new(world.router, &head, &ticket), GRID_OK);
    grid_ticket_body(ticket, &view, 1, false);
    grid_route(ticket, NULL, 1, &decision);
    assert_int_equal(decision.action, GRID_FORWARD);
    return ticket;
}

static int setup(void **state)
{
    (void)state;
    world_init(&world, "{}", "m n");
    for (unsigned i = 0; i < WRITERS; i++)
        tickets[i] = decided("m", 4 + 2 * i);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < WRITERS; i++)
        grid_ticket_free(tickets[i]);
    world_done(&world);
    return 0;
}

/* Each line names its writer twice: by its blocks, and as the attempt that it noted. */
static void check(const struct grid_buf *list, size_t at_least)
{
    unsigned long long number = 0, before = UINT64_MAX;
    unsigned n = 0;
    assert_false(list->failed);
    for (const char *at = list->ptr; (at = strstr(at, "{\"number\":")); at++, n++) {
        const char *blocks = strstr(at, "\"blocks\":"), *attempts = strstr(at, "\"attempts\":");
        assert_non_null(blocks);
        assert_non_null(attempts);
        number = strtoull(at + strlen("{\"number\":"), NULL, 10);
        assert_true(number < before);
        before = number;
        unsigned long writer = strtoul(attempts + strlen("\"attempts\":"), NULL, 10);
        assert_true(writer >= 1 && writer <= WRITERS);
        assert_int_equal(strtoul(blocks + strlen("\"blocks\":"), NULL, 10),
                         grid_ticket_decision(tickets[writer - 1])->blocks);
    }
    assert_true(n >= at_least && n <= KEPT);
}

static void *write_notes(void *arg)
{
    size_t i = (size_t)(uintptr_t)arg;
    for (unsigned k = 0; k < NOTES || atomic_load(&looks) < LOOKS; k++) {
        grid_recent_note(tickets[i], (unsigned)i + 1, k);
        atomic_fetch_add_explicit(&noted, 1, memory_order_relaxed);
    }
    atomic_fetch_sub(&writing, 1);
    return NULL;
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void one_thread_keeps_the_last_hundred(void **state)
{
    struct grid_buf list = {.limit = 1 << 20};
    (void)state;
    grid_recent_json(&list, 0);
    assert_string_equal(list.ptr, "[]");
    list.len = 0;
    double from = now_ns();
    atomic_store(&writing, 1);
    atomic_store(&looks, LOOKS);
    write_notes((void *)0);
    print_message("one thread: %.0f ns a note\n", (now_ns() - from) / NOTES);
    grid_recent_json(&list, NOTES);
    check(&list, KEPT);
    assert_non_null(strstr(list.ptr, "{\"number\":20000,\"age_ms\":1,\"site\":\"m\",\"cluster\":\"m\",\"outcome\":"));
    assert_null(strstr(list.ptr, "\"number\":19900,"));
    grid_buf_done(&list);
}

static void many_threads_and_a_reader(void **state)
{
    pthread_t threads[WRITERS];
    struct grid_buf list = {.limit = 1 << 20};
    (void)state;
    atomic_store(&noted, 0);
    atomic_store(&looks, 0);
    double from = now_ns();
    atomic_store(&writing, WRITERS);
    for (unsigned i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_notes, (void *)(uintptr_t)i), 0);
    for (; atomic_load(&writing) > 0; atomic_fetch_add(&looks, 1)) {
        list.len = 0;
        grid_recent_json(&list, NOTES);
        check(&list, 0);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    print_message("%u threads and %u looks: %.0f ns a note\n", WRITERS, atomic_load(&looks),
                  (now_ns() - from) / (double)atomic_load(&noted));
    list.len = 0;
    grid_recent_json(&list, NOTES);
    check(&list, KEPT / 2);
    grid_buf_done(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_keeps_the_last_hundred),
        cmocka_unit_test(many_threads_and_a_reader),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
