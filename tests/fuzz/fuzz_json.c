/*
 * fuzz_json.c - the JSON reader on any bytes, cut into any slices
 *
 * Input     byte 0: slice size; the rest is the text.
 * Checks    One slice and many give the same fault at the same offset; walking with the reader and skipping agree; what
 *           is decoded is valid UTF-8; the vector scan stops where its twin does.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/json.h"

#define WALK_DEPTH 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void scalar(struct grid_json *json, enum grid_json_kind kind)
{
    struct grid_json_decode decode;
    struct grid_str run;
    double value;
    if (kind == GRID_JSON_NUMBER) {
        grid_json_number(json, &value, NULL, 0, NULL);
        return;
    }
    if (kind != GRID_JSON_STRING) {
        grid_json_skip(json);
        return;
    }
    if (!grid_json_decode(json, &decode))
        return;
    uint32_t utf8 = 0;
    while (grid_json_decode_next(&decode, &run))
        utf8 = grid_utf8_feed(utf8, run.ptr, run.len);
    GRID_ASSERT(decode.bad || utf8 == 0);
}

/* Walks a value by entering everything, down to a depth from which it skips. */
static void walk(struct grid_json *json)
{
    bool objects[WALK_DEPTH];
    size_t depth = 0;
    char room[16];
    struct grid_str name;
    do {
        enum grid_json_kind kind = grid_json_peek(json);
        bool open = kind == GRID_JSON_ARRAY || kind == GRID_JSON_OBJECT;
        if (open && depth < WALK_DEPTH) {
            objects[depth++] = kind == GRID_JSON_OBJECT;
            grid_json_enter(json, kind);
        } else if (open) {
            grid_json_skip(json);
        } else {
            scalar(json, kind);
        }
        while (depth > 0 &&
               !(objects[depth - 1] ? grid_json_member(json, room, sizeof room, &name) : grid_json_element(json)))
            depth--;
    } while (depth > 0);
    grid_json_finish(json);
}

static void twins(const char *text, size_t len)
{
    for (size_t from = 0; from < len && from < 32; from++) {
        unsigned char a = 0, b = 0;
        GRID_ASSERT(grid_scan_plain(text + from, text + len, &a) == grid_scan_plain_twin(text + from, text + len, &b));
        GRID_ASSERT((a & 0x80) == (b & 0x80));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *text = (const char *)data + 1;
    size_t len = size - 1, slice = (size_t)data[0] + 1, n = (len + slice - 1) / slice;
    struct grid_str whole = {text, len}, *slices = calloc(n + 1, sizeof *slices);
    struct grid_json one, many, walked;
    GRID_ASSERT(slices);
    for (size_t i = 0; i < n; i++)
        slices[i] = (struct grid_str){text + i * slice, len - i * slice < slice ? len - i * slice : slice};
    twins(text, len);
    grid_json_init(&one, &whole, 1);
    grid_json_init(&many, slices, n);
    walked = many;
    if (grid_json_skip(&one))
        grid_json_finish(&one);
    if (grid_json_skip(&many))
        grid_json_finish(&many);
    walk(&walked);
    GRID_ASSERT(one.fault == many.fault && grid_json_offset(&one) == grid_json_offset(&many));
    GRID_ASSERT((walked.fault == GRID_JSON_FINE) == (one.fault == GRID_JSON_FINE));
    free(slices);
    return 0;
}
