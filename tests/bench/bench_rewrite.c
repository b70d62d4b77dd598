/*
 * bench_rewrite.c - what tagging an answer costs, apart from any proxy
 *
 * Prints one JSON object: nanoseconds a KiB of an event stream and of JSON answers (the median of many rounds), and
 * microseconds an event when a thousand streams take turns, as they do in a worker. tests/bench/run calls it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "rewrite.h"

#define TAG "east.0a1b2c3d.9f8e7d6c5b4a3928."
#define ROUNDS 201u
#define ANSWER_BYTES (1u << 20)
#define PIECE_BYTES 16384u /* as Envoy hands bodies over */
#define STREAMS 1000u
#define TURNS 200u /* events of each stream */

#define CREATED                                                                                                        \
    "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":"        \
    "\"resp_67c9fdcecf488190bdd9a0409de3a1ec\",\"object\":\"response\",\"status\":\"in_progress\",\"output\":[],"      \
    "\"previous_response_id\":\"resp_67c9fdcecf488190bdd9a0409de3a1eb\",\"store\":true,\"metadata\":{}}}\n\n"
#define DELTA                                                                                                          \
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":"                   \
    "\"msg_67c9fdcf37fc8190ba82116e33fb28c5\",\"output_index\":0,\"content_index\":0,\"delta\":\" token\","            \
    "\"logprobs\":[],\"sequence_number\":17}\n\n"

static double now_ns(void)
{
    return clock_now_us() * 1e3;
}

/* The sorted values' member at a share of them. */
static double at_share(double *values, size_t n, double share)
{
    clock_sort(values, n);
    return values[(size_t)((double)(n - 1) * share)];
}

static void put(void *ctx, struct grid_str bytes)
{
    *(size_t *)ctx += bytes.len;
}

static char *answer_of(const char *head, const char *repeat, const char *tail, size_t *out_len)
{
    size_t len = strlen(head), step = strlen(repeat), last = strlen(tail);
    char *text = malloc(ANSWER_BYTES + len + step + last);
    memcpy(text, head, len);
    for (; len < ANSWER_BYTES; len += step)
        memcpy(text + len, repeat, step);
    memcpy(text + len, tail, last);
    *out_len = len + last;
    return text;
}

static double ns_a_kib(bool sse, const char *head, const char *repeat, const char *tail)
{
    double took[ROUNDS];
    size_t len, out = 0;
    char *text = answer_of(head, repeat, tail, &len);
    for (size_t round = 0; round < ROUNDS; round++) {
        struct grid_rewrite rewrite;
        double start = now_ns();
        grid_rewrite_begin(&rewrite, sse, TAG, sizeof TAG - 1);
        for (size_t at = 0; at < len; at += PIECE_BYTES) {
            struct grid_str piece = {text + at, len - at < PIECE_BYTES ? len - at : PIECE_BYTES};
            if (grid_rewrite_feed(&rewrite, &piece, 1, at + piece.len == len, put, &out))
                out += piece.len;
        }
        took[round] = (now_ns() - start) / ((double)len / 1024);
        if (rewrite.tagged == 0)
            abort();
    }
    if (out <= ROUNDS * len)
        abort();
    free(text);
    return at_share(took, ROUNDS, 0.5);
}

/* Each stream's next event, stream by stream. Every fiftieth has ids. */
static void events(double *out_p50_us, double *out_p99_us, size_t *out_held)
{
    static struct grid_rewrite streams[STREAMS];
    double *took = malloc(sizeof *took * STREAMS * TURNS);
    size_t n = 0, in = 0, out = 0, tagged = 0;
    *out_held = 0;
    for (size_t i = 0; i < STREAMS; i++)
        grid_rewrite_begin(&streams[i], true, TAG, sizeof TAG - 1);
    for (size_t turn = 0; turn < TURNS; turn++) {
        const struct grid_str event = turn % 50 ? GRID_LIT(DELTA) : GRID_LIT(CREATED);
        for (size_t i = 0; i < STREAMS; i++) {
            uint64_t before = streams[i].tagged;
            double start = now_ns();
            bool same = grid_rewrite_feed(&streams[i], &event, 1, false, put, &out);
            took[n++] = (now_ns() - start) / 1e3;
            in += event.len;
            out += same ? event.len : 0;
            tagged += streams[i].tagged - before;
            size_t held = in + tagged * (sizeof TAG - 1) - out;
            *out_held = held > *out_held ? held : *out_held;
        }
    }
    *out_p50_us = at_share(took, n, 0.5);
    *out_p99_us = at_share(took, n, 0.99);
    free(took);
}

int main(void)
{
    static const char head[] = "{\"id\":\"resp_1\",\"object\":\"response\",\"output\":[{\"id\":\"msg_1\",\"content\":[";
    double p50, p99;
    size_t held;
    char text_head[sizeof head + 32];
    snprintf(text_head, sizeof text_head, "%s{\"text\":\"", head);
    double sse = ns_a_kib(true, CREATED, DELTA, "data: [DONE]\n\n");
    double text = ns_a_kib(false, text_head, "Some words of an answer, as they come.\\n", "\"}]}]}");
    double logprobs =
        ns_a_kib(false, head, "{\"token\":\" word\",\"bytes\":[32,119,111],\"logprob\":-0.0123456},", "0]}]}");
    events(&p50, &p99, &held);
    printf("{\"rewrite_sse_ns_kib\":%.1f,\"rewrite_text_ns_kib\":%.1f,\"rewrite_logprobs_ns_kib\":%.1f,"
           "\"rewrite_event_p50_us\":%.3f,\"rewrite_event_p99_us\":%.3f,\"rewrite_held_bytes\":%zu}\n",
           sse, text, logprobs, p50, p99, held);
    return 0;
}
