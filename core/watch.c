/*
 * watch.c - the answer side: when its tokens came, and what the engine says that the cache was worth
 *
 * Story     The host shows each piece of an answer's body as it passes, with the time. An event stream tells when its
 *           first token came and how far apart the others were; the usage that an engine reports, whole or streamed,
 *           is held against what the decision expected to find there.
 * Promise   An answer is only looked at. What is counted is counted for the site that answered, once, and of a stream
 *           that broke off only the times.
 * Source    behaviour.md K; docs/operations.md has the names.
 */
#include "router.h"

/* What counts as a hit, on either side: a block's worth of tokens. Less is a chat template's first words. */
#define HIT_TOKENS ((uint64_t)GRID_TOKENS_A_BLOCK)

static size_t led_by(const struct grid_decision *decision)
{
    return decision->pinned ? GRID_STATS_PINNED : (size_t)decision->outcome;
}

bool grid_watch_begin(struct grid_ticket *t, int status, struct grid_str content_type, struct grid_str content_encoding,
                      uint64_t asked_ns)
{
    struct grid_str coding = grid_str_trim(content_encoding);
    bool plain = coding.len == 0 || grid_str_eq_nocase(coding, GRID_LIT("identity"));
    t->watching = t->pair && t->head.post && t->head.api != GRID_API_NONE && plain && status >= 200 && status <= 299;
    if (!t->watching)
        return false;
    struct grid_str type = grid_str_trim(grid_str_until(content_type, ';'));
    grid_usage_begin(&t->usage, grid_str_eq_nocase(type, GRID_LIT("text/event-stream")));
    t->token_ns = asked_ns;
    t->has_tokens = false;
    return true;
}

void grid_watch_piece(struct grid_ticket *t, const struct grid_str *slices, size_t n_slices, uint64_t now_ns)
{
    if (!t->watching || !grid_usage_feed(&t->usage, slices, n_slices))
        return;
    struct grid_stats_times *times = &t->pair->times[led_by(&t->decision)];
    uint64_t passed = now_ns > t->token_ns ? now_ns - t->token_ns : 0;
    grid_stats_observe(t->has_tokens ? &times->token_gap : &times->first_token,
                       t->has_tokens ? GRID_STATS_TOKEN_GAP : GRID_STATS_FIRST_TOKEN, passed);
    t->has_tokens = true;
    t->token_ns = now_ns;
}

/* Leading blocks that the site which answered was believed to hold. False: it was not asked about. */
static bool believed(const struct grid_ticket *t, uint32_t *out_run)
{
    const struct grid_decision *d = &t->decision;
    for (size_t i = 0; grid_decision_matched(d) && i < t->n_candidates; i++)
        if (grid_str_eq(t->candidates[i].cluster, d->cluster) && grid_str_eq(t->candidates[i].site, d->site)) {
            *out_run = t->candidates[i].run;
            return true;
        }
    return false;
}

/* The tokens that the engine found in its cache. Engines leave the figure out when it is 0, so one that gave it before
 * says 0 by saying nothing. */
static bool reported(struct grid_ticket *t, uint64_t *out_cached)
{
    if (grid_usage_cached(&t->usage, out_cached)) {
        if (!atomic_load_explicit(&t->pair->tells_cached, memory_order_relaxed))
            atomic_store_explicit(&t->pair->tells_cached, true, memory_order_relaxed);
        return true;
    }
    return atomic_load_explicit(&t->pair->tells_cached, memory_order_relaxed);
}

void grid_watch_end(struct grid_ticket *t)
{
    uint64_t prompt, cached;
    uint32_t run;
    bool watching = t->watching;
    t->watching = false;
    if (!watching || !believed(t, &run) || !grid_usage_prompt(&t->usage, &prompt) || !reported(t, &cached))
        return;
    uint64_t predicted = (uint64_t)run * GRID_TOKENS_A_BLOCK;
    predicted = predicted < prompt ? predicted : prompt;
    cached = cached < prompt ? cached : prompt;
    grid_stats_add_n(&t->pair->prompt_tokens, prompt);
    grid_stats_add_n(&t->pair->predicted_tokens, predicted);
    grid_stats_add_n(&t->pair->cached_tokens, cached);
    bool hit = cached >= HIT_TOKENS, foreseen = predicted >= HIT_TOKENS;
    grid_stats_add(&t->pair->predictions[foreseen ? (hit ? GRID_PREDICTION_RIGHT_HIT : GRID_PREDICTION_WRONG_HIT)
                                                  : (hit ? GRID_PREDICTION_WRONG_MISS : GRID_PREDICTION_RIGHT_MISS)]);
}

void grid_watch_usage(const struct grid_ticket *t, struct grid_watched *out_watched)
{
    *out_watched = (struct grid_watched){.has_output = t->usage.given[GRID_USAGE_OUTPUT],
                                         .output_tokens = t->usage.counts[GRID_USAGE_OUTPUT]};
    out_watched->has_prompt = grid_usage_prompt(&t->usage, &out_watched->prompt_tokens);
    out_watched->has_cached = grid_usage_cached(&t->usage, &out_watched->cached_tokens);
}
