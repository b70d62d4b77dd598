/*
 * fuzz_ids.c - ids in any body, cut into any slices
 *
 * Input     byte 0: slice size; the rest is the body.
 * Checks    One slice and many give the same ids. An id that is to be stripped lies within the body and opens with a
 *           quote, the stripped body is JSON again, and ids never overlap.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/ids.h"
#include "core/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare(const struct grid_id *a, const struct grid_id *b)
{
    GRID_ASSERT(a->present == b->present && a->shaped == b->shaped && a->rest == b->rest);
    GRID_ASSERT(!a->shaped || (a->offset == b->offset && a->bytes == b->bytes));
    GRID_ASSERT(!a->shaped || (a->tag.site_len == b->tag.site_len && a->tag.mac_len == b->tag.mac_len));
    GRID_ASSERT(!a->shaped || memcmp(a->tag.mark, b->tag.mark, sizeof a->tag.mark) == 0);
}

/* Takes one tag out; what is left must be a JSON text still. */
static void strip(const char *body, size_t len, const struct grid_id *id)
{
    if (!id->shaped)
        return;
    GRID_ASSERT(id->present && id->offset < len && id->bytes <= len - id->offset);
    GRID_ASSERT(body[id->offset] == '"' && id->bytes > GRID_TAG_PREFIX_BYTES);
    size_t from = id->offset + id->bytes, head = id->offset + 1 + GRID_TAG_PREFIX_BYTES;
    char *left = malloc(head + len - from);
    struct grid_json json;
    GRID_ASSERT(left);
    memcpy(left, body, id->offset + 1);
    memcpy(left + id->offset + 1, id->tag.prefix, GRID_TAG_PREFIX_BYTES);
    memcpy(left + head, body + from, len - from);
    struct grid_str text = {left, head + len - from};
    grid_json_init(&json, &text, 1);
    GRID_ASSERT(grid_json_skip(&json) && grid_json_finish(&json));
    free(left);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *body = (const char *)data + 1;
    size_t len = size - 1, slice = (size_t)data[0] + 1, n = (len + slice - 1) / slice;
    struct grid_str whole = {body, len}, *slices = calloc(n + 1, sizeof *slices);
    struct grid_ids one, many;
    struct grid_id segment;
    GRID_ASSERT(slices);
    for (size_t i = 0; i < n; i++)
        slices[i] = (struct grid_str){body + i * slice, len - i * slice < slice ? len - i * slice : slice};
    grid_ids_find(&whole, 1, &one);
    grid_ids_find(slices, n, &many);
    compare(&one.previous, &many.previous);
    compare(&one.conversation, &many.conversation);
    strip(body, len, &one.previous);
    strip(body, len, &one.conversation);
    if (one.previous.shaped && one.conversation.shaped) {
        size_t a = one.previous.offset, b = one.conversation.offset;
        GRID_ASSERT(a < b ? a + one.previous.bytes <= b : b + one.conversation.bytes <= a);
    }
    grid_ids_segment(whole, &segment);
    GRID_ASSERT(!segment.shaped || segment.bytes <= len);
    free(slices);
    return 0;
}
