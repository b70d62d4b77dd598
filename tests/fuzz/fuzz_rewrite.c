/*
 * fuzz_rewrite.c - the tagger on any bytes, cut into any pieces
 *
 * Input     byte 0: bit 0 an event stream by its type, the others the size of a piece; the rest is the answer.
 * Checks    One piece and many give the same; so do pieces of one slice and of several. Taking out what was put in
 *           gives the input back: where what comes out differs from what came in, the tag stands, behind a prefix.
 *           What is held back is a beginning of the tag. What came out, put in again, is not touched.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/rewrite.h"

#define TAG "ea.0a1b2c3d.."
#define TAG_BYTES (sizeof TAG - 1)
#define SLICES 3u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct out {
    char *at;
    size_t len;
};

static void put(void *ctx, struct grid_str bytes)
{
    struct out *out = ctx;
    GRID_ASSERT(bytes.len > 0);
    memcpy(out->at + out->len, bytes.ptr, bytes.len);
    out->len += bytes.len;
}

/* Feeds the text in pieces of up to three slices; returns what came out. */
static struct out rewritten(bool sse, const char *text, size_t len, size_t slice, size_t slices, uint64_t *out_tagged)
{
    struct grid_rewrite rewrite;
    struct out out = {malloc(len * (TAG_BYTES + 1) + 1), 0};
    size_t fed = 0;
    grid_rewrite_begin(&rewrite, sse, TAG, TAG_BYTES);
    do {
        struct grid_str piece[SLICES];
        size_t n = 0, from = fed, had = out.len;
        for (; n < slices; n++) {
            piece[n] = (struct grid_str){text + fed, len - fed < slice ? len - fed : slice};
            fed += piece[n].len;
        }
        if (grid_rewrite_feed(&rewrite, piece, n, fed == len, put, &out)) {
            GRID_ASSERT(out.len == had);
            if (fed > from)
                put(&out, (struct grid_str){text + from, fed - from});
        }
        size_t held = fed + rewrite.tagged * TAG_BYTES - out.len;
        GRID_ASSERT(held < TAG_BYTES && (held == 0 || memcmp(text + fed - held, TAG, held) == 0));
        GRID_ASSERT(held == 0 || (rewrite.id_open && fed < len));
    } while (fed < len);
    *out_tagged = rewrite.tagged;
    return out;
}

static void only_tags_differ(struct out out, const char *text, size_t len, uint64_t tagged)
{
    size_t at = 0;
    uint64_t seen = 0;
    for (size_t i = 0; i < out.len;) {
        bool tag = out.len - i >= TAG_BYTES && memcmp(out.at + i, TAG, TAG_BYTES) == 0;
        bool there = len - at >= TAG_BYTES && memcmp(text + at, TAG, TAG_BYTES) == 0;
        if (tag && !there) {
            GRID_ASSERT(at >= GRID_TAG_PREFIX_BYTES);
            const char *prefix = text + at - GRID_TAG_PREFIX_BYTES;
            GRID_ASSERT(memcmp(prefix, "resp_", 5) == 0 || memcmp(prefix, "conv_", 5) == 0);
            i += TAG_BYTES;
            seen++;
        } else {
            GRID_ASSERT(at < len && out.at[i] == text[at]);
            i++;
            at++;
        }
    }
    GRID_ASSERT(at == len && seen == tagged);
}

static void same(struct out a, const char *text, size_t len)
{
    GRID_ASSERT(a.len == len && memcmp(a.at, text, len) == 0);
    free(a.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    bool sse = data[0] & 1;
    const char *text = (const char *)data + 1;
    size_t len = size - 1, slice = (size_t)(data[0] >> 1) + 1;
    uint64_t tagged, again;
    struct out whole = rewritten(sse, text, len, len + 1, 1, &tagged);
    only_tags_differ(whole, text, len, tagged);
    same(rewritten(sse, text, len, slice, 1, &again), whole.at, whole.len);
    same(rewritten(sse, text, len, slice, SLICES, &again), whole.at, whole.len);
    same(rewritten(sse, text, len, 1, 1, &again), whole.at, whole.len);
    same(rewritten(sse, whole.at, whole.len, whole.len + 1, 1, &again), whole.at, whole.len);
    GRID_ASSERT(again == 0);
    free(whole.at);
    return 0;
}
