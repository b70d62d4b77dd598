/*
 * bench_contention.c - what the index costs when every worker wants the same cluster
 *
 * Four workers on two cores, as a busy gateway's: each keys a prompt of 512 blocks, as a request does, then matches,
 * marks and confirms it in one and the same table. Prints one JSON object: microseconds that the index took of a
 * request (median, p99), and the same with one worker alone. tests/bench/run calls it.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "grid/grid.h"
#include "hash.h"
#include "index.h"
#include "keys.h"

#define WORKERS 4u
#define CORES 2u
#define ROUNDS 4000u
#define WARM 200u
#define MESSAGE_BYTES 140000u
#define CAPACITY 16384u
#define TTL_MS 600000u

struct worker {
    pthread_t thread;
    struct grid_table *table;
    struct grid_buf body;
    double took[ROUNDS];
};

/* A prompt of the worker's own. */
static void write_body(struct grid_buf *out, unsigned number)
{
    out->limit = 1u << 20;
    grid_buf_printf(out, "{\"model\":\"llama\",\"messages\":[{\"role\":\"user\",\"content\":\"%u ", number);
    for (unsigned i = 0; out->len < MESSAGE_BYTES; i++)
        grid_buf_printf(out, "word%u ", (i * 131 + number * 7919) % 1000);
    grid_buf_puts(out, "\"}]}");
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct grid_str slice = {worker->body.ptr, worker->body.len};
    struct grid_hash_seed seed;
    uint64_t keys[GRID_MAX_KEYS];
    struct grid_keyed keyed;
    grid_hash_seed_init(&seed, 42);
    for (size_t i = 0; i < ROUNDS + WARM; i++) {
        grid_keys_make(&seed, GRID_API_CHAT, &slice, 1, false, true, (struct grid_str){NULL, 0}, keys, &keyed);
        double start = clock_now_us();
        (void)grid_index_match(worker->table, keys, keyed.n, 1);
        grid_index_pend(worker->table, keys, keyed.n, 1);
        (void)grid_index_confirm(worker->table, keys, keyed.n, 1, TTL_MS);
        if (i >= WARM)
            worker->took[i - WARM] = clock_now_us() - start;
    }
    if (keyed.n != GRID_MAX_KEYS)
        abort();
    return NULL;
}

/* Microseconds of the index a request, with so many workers: median and p99. */
static void run(struct worker *workers, size_t n, double *out_p50, double *out_p99)
{
    static double all[WORKERS * ROUNDS];
    struct grid_table *table = grid_index_table_new(NULL, CAPACITY);
    if (!table)
        abort();
    for (size_t i = 0; i < n; i++) {
        workers[i].table = table;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < n; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        for (size_t k = 0; k < ROUNDS; k++)
            all[i * ROUNDS + k] = workers[i].took[k];
    }
    clock_sort(all, n * ROUNDS);
    *out_p50 = all[n * ROUNDS / 2];
    *out_p99 = all[n * ROUNDS * 99 / 100];
    grid_index_table_unref(table);
}

int main(void)
{
    static struct worker workers[WORKERS];
    double p50 = 0, p99 = 0;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (unsigned i = 0; i < CORES; i++)
        CPU_SET(i, &cores);
    (void)sched_setaffinity(0, sizeof cores, &cores);
    for (unsigned i = 0; i < WORKERS; i++)
        write_body(&workers[i].body, i);
    run(workers, 1, &p50, &p99);
    printf("{\"index_alone_p50_us\":%.2f,\"index_alone_p99_us\":%.2f,", p50, p99);
    run(workers, WORKERS, &p50, &p99);
    printf("\"index_contended_p50_us\":%.2f,\"index_contended_p99_us\":%.2f}\n", p50, p99);
    for (unsigned i = 0; i < WORKERS; i++)
        grid_buf_done(&workers[i].body);
    return 0;
}
