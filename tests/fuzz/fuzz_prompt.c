/*
 * fuzz_prompt.c - keys of any body, in any slices
 *
 * Input     byte 0: API, byte 1: slice size; the rest is the body.
 * Checks    Slices never show: same keys, reason and model. Keys and reason agree with each other. White space around
 *           the body changes nothing.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct made {
    struct grid_keyed info;
    uint64_t keys[GRID_MAX_KEYS];
};

static void make(enum grid_api api, const struct grid_str *slices, size_t n, bool cut, struct made *out)
{
    static struct grid_hash_seed seed;
    static bool ready;
    if (!ready)
        grid_hash_seed_init(&seed, 1);
    ready = true;
    memset(out, 0, sizeof *out);
    grid_keys_make(&seed, api, slices, n, cut, true, (struct grid_str){NULL, 0}, out->keys, &out->info);
    GRID_ASSERT(out->info.n <= GRID_MAX_KEYS);
    GRID_ASSERT((out->info.n > 0) == (out->info.reason == GRID_REASON_NONE) || api == GRID_API_NONE);
    GRID_ASSERT(out->info.model_len <= GRID_MAX_NAME_BYTES + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct made one, many, padded;
    if (size < 2)
        return 0;
    enum grid_api api = (enum grid_api)(data[0] % (GRID_API_RESPONSES + 1));
    const char *text = (const char *)data + 2;
    size_t len = size - 2, slice = (size_t)data[1] % 64 + 1, n = (len + slice - 1) / slice;
    struct grid_str whole = {text, len}, *slices = calloc(n + 1, sizeof *slices);
    struct grid_str spaced[3] = {{" \n", 2}, whole, {"\t\r", 2}};
    GRID_ASSERT(slices);
    for (size_t i = 0; i < n; i++)
        slices[i] = (struct grid_str){text + i * slice, len - i * slice < slice ? len - i * slice : slice};
    make(api, &whole, 1, false, &one);
    make(api, slices, n, false, &many);
    GRID_ASSERT(memcmp(&one, &many, sizeof one) == 0);
    if (len > 0) {
        make(api, spaced, 3, false, &padded);
        GRID_ASSERT(padded.info.model_bytes == 0 || text[padded.info.model_offset - spaced[0].len] == '"');
        padded.info.model_offset -= padded.info.model_bytes ? spaced[0].len : 0;
        GRID_ASSERT(memcmp(&one, &padded, sizeof one) == 0);
    }
    make(api, &whole, 1, true, &one);
    make(api, slices, n, true, &many);
    GRID_ASSERT(memcmp(&one, &many, sizeof one) == 0);
    GRID_ASSERT(one.info.n == 0);
    free(slices);
    return 0;
}
