/*
 * bench_core.c - what the core costs, apart from any proxy
 *
 * Prints one JSON object: microseconds (the median of many rounds) of keying, matching and confirming, gigabytes a
 * second of scanning, bytes an index entry; beside them, what it takes to read the same bytes into jansson's tree.
 * tests/bench/run calls it and puts the figures into its table. With a folder as argument it leaves the bodies there,
 * for readers in other languages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "clock.h"
#include "grid/grid.h"
#include "hash.h"
#include "index.h"
#include "keys.h"

#define ROUNDS 401u
#define SLICE_BYTES 16384u /* as Envoy hands bodies over */

static double median(double *values, size_t n)
{
    clock_sort(values, n);
    return values[n / 2];
}

struct body {
    char *text;
    size_t len;
    struct grid_str *slices;
    size_t n_slices;
};

static struct body cut(struct grid_buf text)
{
    struct body body = {.text = text.ptr, .len = text.len};
    body.slices = calloc(body.len / SLICE_BYTES + 1, sizeof *body.slices);
    for (size_t at = 0; at < body.len; at += SLICE_BYTES)
        body.slices[body.n_slices++] =
            (struct grid_str){text.ptr + at, body.len - at < SLICE_BYTES ? body.len - at : SLICE_BYTES};
    return body;
}

/* A chat of messages of `words` words of about eight bytes, `bytes` in all. */
static struct body chat_body(size_t bytes, unsigned words)
{
    struct grid_buf text = {.limit = 64u << 20};
    grid_buf_puts(&text, "{\"model\":\"llama\",\"stream\":true,\"messages\":[");
    for (unsigned i = 0; text.len < bytes; i++) {
        grid_buf_printf(&text, "%s{\"role\":\"%s\",\"content\":\"", i ? "," : "", i % 2 ? "assistant" : "user");
        for (unsigned word = 0; word < words; word++)
            grid_buf_printf(&text, "word%u ", (i * 131 + word * 7919) % 1000);
        grid_buf_puts(&text, "line\\nend\"}");
    }
    grid_buf_puts(&text, "]}");
    return cut(text);
}

/* A chat with one image of `bytes` as a data URL. */
static struct body image_body(size_t bytes)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct grid_buf text = {.limit = 64u << 20};
    char *image = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        image[i] = letters[(i * 2654435761u >> 7) % 64];
    grid_buf_puts(&text, "{\"model\":\"llama\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                         "\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,");
    grid_buf_put(&text, image, bytes);
    grid_buf_puts(&text, "\"}},{\"type\":\"text\",\"text\":\"");
    for (unsigned i = 0; i < 100; i++)
        grid_buf_printf(&text, "what is in the picture %u ", i);
    grid_buf_puts(&text, "\"}]}]}");
    free(image);
    return cut(text);
}

/* What a coding agent sends: tools, then 80 messages, every other one a call with its result; texts of code, full of
 * escapes. About 400 KB. */
static struct body agent_body(void)
{
    struct grid_buf text = {.limit = 64u << 20};
    grid_buf_puts(&text, "{\"messages\":[{\"role\":\"system\",\"content\":\"You edit code.\"}");
    for (unsigned i = 0; i < 40; i++) {
        grid_buf_printf(&text,
                        ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call_%u\",\"type\":"
                        "\"function\",\"function\":{\"name\":\"read_file\",\"arguments\":\"{\\\"path\\\":"
                        "\\\"src/file%u.c\\\",\\\"limit\\\":200}\"}}]},"
                        "{\"role\":\"tool\",\"tool_call_id\":\"call_%u\",\"content\":\"",
                        i, i, i);
        for (unsigned line = 0; line < 130; line++)
            grid_buf_printf(&text, "    if (count%u > limit_of_queue_%u) return name_of(\\\"value\\\");\\n", line, i);
        grid_buf_puts(&text, "\"}");
    }
    grid_buf_puts(&text, "],\"model\":\"llama\",\"stream\":true,\"tools\":[");
    for (unsigned i = 0; i < 30; i++)
        grid_buf_printf(&text,
                        "%s{\"type\":\"function\",\"function\":{\"name\":\"tool%u\",\"description\":\"%0700u\","
                        "\"parameters\":{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},"
                        "\"limit\":{\"type\":\"integer\"}},\"required\":[\"path\"]}}}",
                        i ? "," : "", i, i);
    grid_buf_puts(&text, "]}");
    return cut(text);
}

/* The same bytes read into a tree, as other gateways do. */
static double tree_us(const struct body *body, size_t rounds)
{
    double *took = calloc(rounds, sizeof *took);
    for (size_t i = 0; i < rounds; i++) {
        double start = clock_now_us();
        json_t *tree = json_loadb(body->text, body->len, 0, NULL);
        json_decref(tree);
        took[i] = clock_now_us() - start;
    }
    double result = median(took, rounds);
    free(took);
    return result;
}

static void write_body(const struct body *body, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(body->text, 1, body->len, file) != body->len || fclose(file) != 0)
        abort();
}

static double key_us(const struct body *body, size_t rounds, uint32_t *out_keys)
{
    struct grid_hash_seed seed;
    grid_hash_seed_init(&seed, 42);
    double *took = calloc(rounds, sizeof *took);
    uint64_t keys[GRID_MAX_KEYS];
    struct grid_keyed keyed;
    for (size_t i = 0; i < rounds; i++) {
        double start = clock_now_us();
        grid_keys_make(&seed, GRID_API_CHAT, body->slices, body->n_slices, false, true, (struct grid_str){NULL, 0},
                       keys, &keyed);
        took[i] = clock_now_us() - start;
    }
    double result = median(took, rounds);
    free(took);
    *out_keys = keyed.n;
    return result;
}

#define TABLES 16u

/* Tables full of other prompts, of which the first `full` hold all 512 keys and the others the first 32. */
static double match_us(size_t full, double *out_confirm_us)
{
    struct grid_table *tables[TABLES];
    uint64_t keys[GRID_MAX_KEYS], other[GRID_MAX_KEYS], x = 88172645463325252ull;
    double took[ROUNDS], confirmed[ROUNDS];
    for (size_t i = 0; i < GRID_MAX_KEYS; i++)
        keys[i] = (x ^= x << 13, x ^= x >> 7, x ^= x << 17);
    for (size_t t = 0; t < TABLES; t++) {
        tables[t] = grid_index_table_new(NULL, 16384);
        for (unsigned fill = 0; fill < 31; fill++) {
            for (size_t i = 0; i < GRID_MAX_KEYS; i++)
                other[i] = (x ^= x << 13, x ^= x >> 7, x ^= x << 17);
            (void)grid_index_confirm(tables[t], other, GRID_MAX_KEYS, 0, 1u << 30);
        }
        (void)grid_index_confirm(tables[t], keys, t < full ? GRID_MAX_KEYS : 32, 0, 1u << 30);
    }
    for (size_t round = 0; round < ROUNDS; round++) {
        double start = clock_now_us();
        uint32_t sum = 0;
        for (size_t t = 0; t < TABLES; t++)
            sum += grid_index_match(tables[t], keys, GRID_MAX_KEYS, 1);
        took[round] = clock_now_us() - start;
        if (sum < 32)
            abort();
        start = clock_now_us();
        (void)grid_index_confirm(tables[0], keys, GRID_MAX_KEYS, 0, 1u << 30);
        confirmed[round] = clock_now_us() - start;
    }
    for (size_t t = 0; t < TABLES; t++)
        grid_index_table_unref(tables[t]);
    *out_confirm_us = median(confirmed, ROUNDS);
    return median(took, ROUNDS);
}

static void bench_keys(const char *folder)
{
    const struct {
        const char *name;
        struct body body;
        size_t rounds;
    } rows[] = {
        {"8k", chat_body(8192, 120), ROUNDS},           {"128k", chat_body(140 * 1024, 120), ROUNDS},
        {"text", chat_body(140 * 1024, 17500), ROUNDS}, {"tiny", chat_body(140 * 1024, 4), ROUNDS},
        {"2m", chat_body(2u << 20, 120), 101},          {"agent", agent_body(), ROUNDS},
        {"image_10m", image_body(10u << 20), 21},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t keys = 0;
        char path[4096];
        double us = key_us(&rows[i].body, rows[i].rounds, &keys);
        printf("\"keys_%s_us\":%.2f,\"keys_%s\":%u,\"body_%s_bytes\":%zu,\"gb_s_%s\":%.2f,\"tree_%s_us\":%.2f,",
               rows[i].name, us, rows[i].name, keys, rows[i].name, rows[i].body.len, rows[i].name,
               (double)rows[i].body.len / us / 1e3, rows[i].name, tree_us(&rows[i].body, rows[i].rounds / 10 + 1));
        if (!folder)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s.json", folder, rows[i].name);
        write_body(&rows[i].body, path);
    }
}

int main(int argc, char **argv)
{
    double confirm_us = 0;
    printf("{");
    bench_keys(argc > 1 ? argv[1] : NULL);
    double one_us = match_us(1, &confirm_us), all_us = match_us(TABLES, &confirm_us);
    struct grid_table *table = grid_index_table_new(NULL, 16384);
    struct grid_table_view view = grid_index_view(table);
    printf("\"match_one_full_us\":%.2f,\"match_all_full_us\":%.2f,\"confirm_512_us\":%.2f,"
           "\"index_bytes_an_entry\":%.1f}\n",
           one_us, all_us, confirm_us, (double)view.bytes / view.capacity);
    grid_index_table_unref(table);
    return 0;
}
