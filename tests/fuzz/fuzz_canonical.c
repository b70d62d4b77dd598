/*
 * fuzz_canonical.c - any value in canonical form
 *
 * Input     byte 0: slice size; the rest is the value.
 * Checks    Slices never show. The form is no longer than the value. Canonical form is its own canonical form, and is
 *           the same when it is read from where it is written, as the arguments of calls are.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/canonical.h"
#include "core/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct grid_canonical_room room;

static enum grid_json_fault form(const struct grid_str *slices, size_t n, size_t *out_len)
{
    struct grid_json json;
    grid_json_init(&json, slices, n);
    enum grid_json_fault fault = grid_canonical_write(&room, &json, out_len);
    if (fault == GRID_JSON_FINE && !grid_json_finish(&json))
        return json.fault;
    return fault;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char once[GRID_CANONICAL_MAX_BYTES];
    if (size < 1 || size > GRID_CANONICAL_MAX_BYTES)
        return 0;
    const char *text = (const char *)data + 1;
    size_t len = size - 1, slice = (size_t)data[0] % 64 + 1, n = (len + slice - 1) / slice, got = 0, again = 0;
    struct grid_str whole = {text, len}, *slices = calloc(n + 1, sizeof *slices), in_place = {room.out, len};
    GRID_ASSERT(slices);
    for (size_t i = 0; i < n; i++)
        slices[i] = (struct grid_str){text + i * slice, len - i * slice < slice ? len - i * slice : slice};
    enum grid_json_fault fault = form(&whole, 1, &got);
    if (fault == GRID_JSON_FINE) {
        GRID_ASSERT(got <= len);
        memcpy(once, room.out, got);
    }
    GRID_ASSERT(form(slices, n, &again) == fault);
    GRID_ASSERT(fault != GRID_JSON_FINE || (again == got && memcmp(once, room.out, got) == 0));
    memcpy(room.out, text, len);
    GRID_ASSERT(form(&in_place, 1, &again) == fault);
    GRID_ASSERT(fault != GRID_JSON_FINE || (again == got && memcmp(once, room.out, got) == 0));
    if (fault == GRID_JSON_FINE) {
        whole = (struct grid_str){once, got};
        GRID_ASSERT(form(&whole, 1, &again) == GRID_JSON_FINE);
        GRID_ASSERT(again == got && memcmp(once, room.out, got) == 0);
    }
    free(slices);
    return 0;
}
