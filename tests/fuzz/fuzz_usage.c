/*
 * fuzz_usage.c - the reader of usage on any bytes, cut into any pieces
 *
 * Input     byte 0: bit 0 an event stream, the others the size of a piece; the rest is the answer.
 * Checks    One piece and many say the same of the tokens, and whether some piece brought any.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/usage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each piece in memory of exactly its size, so that a read behind it is seen. */
static bool read_in_pieces(struct grid_usage *usage, bool events, const uint8_t *text, size_t len, size_t piece)
{
    bool tokens = false;
    grid_usage_begin(usage, events);
    for (size_t fed = 0; fed < len;) {
        size_t n = len - fed < piece ? len - fed : piece;
        char *bytes = malloc(n);
        GRID_ASSERT(bytes);
        memcpy(bytes, text + fed, n);
        struct grid_str slices[] = {{NULL, 0}, {bytes, n}};
        tokens |= grid_usage_feed(usage, slices, 2);
        GRID_ASSERT(usage->n_path <= GRID_USAGE_PATH);
        free(bytes);
        fed += n;
    }
    return tokens;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct grid_usage whole, cut;
    bool events = data[0] & 1;
    bool tokens = read_in_pieces(&whole, events, data + 1, size - 1, SIZE_MAX);
    GRID_ASSERT(read_in_pieces(&cut, events, data + 1, size - 1, (size_t)(data[0] >> 1) + 1) == tokens);
    GRID_ASSERT(memcmp(whole.counts, cut.counts, sizeof whole.counts) == 0);
    GRID_ASSERT(memcmp(whole.given, cut.given, sizeof whole.given) == 0);
    return 0;
}
