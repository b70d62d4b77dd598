/*
 * ready.c - requests whose keys are already there, and keys that may leave the process
 *
 * Story     A simulation or a recorded stream has keys and no prompt. grid_ticket_of_keys makes the ticket that such a
 *           request would have behind its body; from there on it is any ticket: grid_route matches, selects and pends,
 *           grid_learn settles. A recording turns keys into values that only holders of its secret can make.
 * Promise   No rule of a request is here: head, decision and answer are those of route.c and learn.c.
 *           A live key cannot be told from a recorded value, nor the value from the key, without the secret.
 * Source    behaviour.md O.45.
 * Not here  Where recordings are written (envoy/trace.c, cli/keys.c) and read (cli/trace.c).
 */
#include <inttypes.h>

#include "check.h"
#include "router.h"

enum grid_status grid_ticket_of_keys(struct grid_router *router, struct grid_str model, const uint64_t *keys, size_t n,
                                     struct grid_ticket **out_ticket)
{
    GRID_ASSERT(n <= GRID_MAX_KEYS);
    struct grid_ticket *t;
    struct grid_sites *sites = grid_router_take_sites(router);
    const struct grid_header header = {grid_str_of(sites->config->settings.model_header), model};
    const struct grid_head head = {
        .method = GRID_LIT("POST"), .path = GRID_LIT("/v1/chat/completions"), .headers = &header, .n_headers = 1};
    enum grid_status status = grid_ticket_new(router, &head, &t);
    grid_sites_unref(sites);
    if (status != GRID_OK)
        return status;
    t->want = GRID_WANT_NOTHING;
    t->has_body = true;
    t->keyed.n = (uint32_t)n;
    t->keyed.reason = n ? GRID_REASON_NONE : GRID_REASON_TOO_SHORT;
    if (n)
        memcpy(t->keys, keys, n * sizeof keys[0]);
    *out_ticket = t;
    return GRID_OK;
}

uint64_t grid_record_seed(struct grid_str secret)
{
    uint64_t seed = 0;
    grid_tag_hmac64(secret, GRID_LIT("grid recording: seed of the block hash"), &seed, 1);
    return seed;
}

void grid_record_keys(struct grid_str secret, uint64_t *keys, size_t n)
{
    grid_tag_hmac64(secret, GRID_LIT("grid recording: key of a block"), keys, n);
}

#define BYTES_A_TOKEN 4u

static uint64_t tokens_of(const struct grid_record *record)
{
    uint64_t keyed = (uint64_t)record->n * GRID_TOKENS_A_BLOCK;
    uint64_t tokens = record->prompt_tokens ? record->prompt_tokens : record->body_bytes / BYTES_A_TOKEN + 1;
    if (tokens < keyed)
        tokens = keyed;
    return tokens < GRID_RECORD_MAX_TOKENS ? tokens : GRID_RECORD_MAX_TOKENS;
}

void grid_record_put(const struct grid_record *record, struct grid_buf *out)
{
    grid_buf_printf(out, GRID_RECORD_HEAD "%" PRIu64 ",\"input_length\":%" PRIu64, record->at_ms, tokens_of(record));
    if (record->has_output)
        grid_buf_printf(out, ",\"output_length\":%" PRIu64,
                        record->output_tokens < GRID_RECORD_MAX_TOKENS ? record->output_tokens
                                                                       : GRID_RECORD_MAX_TOKENS);
    grid_buf_puts(out, ",\"keys\":[");
    for (size_t i = 0; i < record->n; i++)
        grid_buf_printf(out, "%s\"%016" PRIx64 "\"", i ? "," : "", record->values[i]);
    grid_buf_puts(out, "]}\n");
}
