/*
 * fuzz_scrape.c - any bytes as an exposition: no fault, and the same answer however they are cut
 *
 * The first byte says where to cut and how to read; the rest is the page.
 */
#include <math.h>
#include <stdlib.h>

#include "scrape.h"
#include "str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(double a, double b)
{
    return !(a < b) && !(a > b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *page = (const char *)data + 1;
    size_t len = size - 1;
    struct grid_serving_signals how = {.divisor = 1, .sum = (data[0] & 1) != 0};
    if (data[0] & 2)
        how.metric = GRID_LIT("up");
    struct grid_str whole = {page, len};
    struct grid_scrape first, again;
    bool ok = grid_scrape_depth(&whole, 1, &how, &first);
    if (ok && !(isfinite(first.depth) && first.depth >= 0 && first.depth <= GRID_SCRAPE_MAX_DEPTH))
        abort();
    if (ok != (first.why == NULL))
        abort();
    size_t a = len * (data[0] & 15) / 16, b = a + (len - a) * (data[0] >> 4) / 16;
    struct grid_str cut[] = {{page, a}, {page + a, b - a}, {page + b, len - b}};
    if (grid_scrape_depth(cut, 3, &how, &again) != ok || again.has_stamp != first.has_stamp ||
        (ok && !same(first.depth, again.depth)) || first.stamp_ms != again.stamp_ms ||
        first.has_start_time != again.has_start_time || !same(first.start_time_seconds, again.start_time_seconds))
        abort();
    return 0;
}
