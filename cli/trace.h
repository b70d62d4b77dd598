/*
 * trace.h - arrivals: when a request comes, how long it is, which parts of its prompt others share
 *
 * Story     A trace is read from JSON Lines (trace.c) or made by a generator (trace_make.c). A prompt is a row of
 *           units, each named by a 64-bit id; two prompts share what their rows share at the head. A unit stands for
 *           64 tokens, one key of the gateway, or for 512, one hash of a Mooncake line, which is eight keys.
 * Promise   Requests are in the order of time. Nothing of a prompt's text is kept. A line that is not understood is
 *           refused with its number and field.
 * Not here  What happens to the requests (simulate.h).
 */
#ifndef GRID_TRACE_H
#define GRID_TRACE_H

#include <grid/grid.h>

#define GRID_TRACE_LONG_UNIT_TOKENS 512u /* of a Mooncake line: 2,048 bytes of text, eight keys */
#define GRID_TRACE_MAX_TOKENS 16777216u  /* a prompt or an answer */

struct grid_trace_request {
    uint64_t at_us;
    uint32_t input_tokens, output_tokens;
    uint32_t n_units;     /* whole ones, and a part of one at the end when the unit is a long one */
    uint32_t unit_tokens; /* 64 or 512 */
    /* ids: read ones lie in the trace's pool from `first`; made ones come from two chains, `head` units of the chain
     * `first` and the rest of the chain `own` */
    bool made;
    uint32_t head;
    uint64_t first, own;
};

struct grid_trace {
    struct grid_trace_request *requests;
    size_t n, cap;
    uint64_t *pool;
    size_t n_pool, cap_pool;
    uint32_t most_units; /* of one request */
};

/* Reads JSON Lines from `path`, "-" being standard input, up to `limit` requests (0: all). False with one line in
 * `error`. The caller frees the trace with grid_trace_done, also after a failure. */
bool grid_trace_read(const char *path, size_t limit, struct grid_trace *out, char *error,
                     size_t error_size) GRID_MUST_USE;

/* Makes `n` requests at `per_second` by the named generator (grid_trace_kinds), the same for the same seed. */
bool grid_trace_make(const char *kind, size_t n, double per_second, uint64_t seed, struct grid_trace *out, char *error,
                     size_t error_size) GRID_MUST_USE;
extern const char grid_trace_kinds[]; /* help text: one line a kind */

void grid_trace_done(struct grid_trace *trace);

/* Adds a request, growing; false for want of memory. */
bool grid_trace_add(struct grid_trace *trace, const struct grid_trace_request *request) GRID_MUST_USE;

/* Puts the requests in the order of time; equal times keep their order. */
void grid_trace_sort(struct grid_trace *trace);

/* The ids of a request's units, n_units of them. */
void grid_trace_units(const struct grid_trace *trace, const struct grid_trace_request *request, uint64_t *out_units);

/* The keys that the gateway has of a request with these units; how many there are. */
size_t grid_trace_keys(const struct grid_trace_request *request, const uint64_t *units, uint64_t keys[GRID_MAX_KEYS]);

/* Two values into one, well mixed; the order matters. */
uint64_t grid_trace_mix(uint64_t a, uint64_t b);

/* Tokens of all prompts, and how many of them one cache without an end would have had. */
struct grid_trace_sums {
    uint64_t input_tokens, output_tokens, ideal_hit_tokens;
    double seconds; /* from the first arrival to the last */
};
bool grid_trace_sum(const struct grid_trace *trace, struct grid_trace_sums *out) GRID_MUST_USE;

#endif
