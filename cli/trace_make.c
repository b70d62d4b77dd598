/*
 * trace_make.c - arrivals from a generator
 *
 * Story     Conversations begin at random (Poisson) and go on turn by turn: each request is the whole conversation so
 *           far behind a system prompt that others share. A kind is a row of numbers: how many system prompts, how long
 *           they, questions and answers are, how many turns, how long a person or a tool takes between them; and what
 *           comes on top: bursts behind one new prompt, giants that nobody has seen.
 * Promise   The same seed makes the same trace. Units are computed from chains when they are asked for, so a million
 *           requests are 64 MB.
 * Source    Lengths are round numbers of the size that public traces have; they stand for no measured service.
 */
#include "trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char grid_trace_kinds[] =
    "  chat      conversations of 1 to 10 turns behind one of 20 system prompts\n"
    "  agents    loops of 8 to 40 quick turns with tool output, behind one of 8 long tool lists\n"
    "  shared    single questions behind one of 30 long prompts, some asked far more than others\n"
    "  bursts    chat, and now and then 40 requests in two seconds behind one new long prompt\n"
    "  giant     chat, and now and then a prompt of 100,000 tokens that nobody has seen\n"
    "  unique    single questions that share nothing\n"
    "  mix       chat, agents, shared, bursts and giants together\n";

struct range {
    uint32_t least, most; /* drawn evenly from both ends inclusive */
};

struct kind {
    const char *name;
    uint32_t systems;
    bool popular; /* system prompt k is asked for in proportion to 1/(k+1) */
    struct range system_tokens, turns, question_tokens, answer_tokens;
    double pause_s;             /* mean, between an answer and the next question */
    double bursts, giants;      /* a conversation in so many is one; 0: none */
    const char *const *mixture; /* a conversation is of one of these kinds */
};

static const char *const everything[] = {"chat", "agents", "shared", "bursts", "giant", NULL};
static const struct kind kinds[] = {
    {"chat", 20, false, {300, 1500}, {1, 10}, {30, 500}, {100, 500}, 25, 0, 0, NULL},
    {"agents", 8, false, {4000, 9000}, {8, 40}, {200, 2500}, {40, 300}, 3, 0, 0, NULL},
    {"shared", 30, true, {2000, 12000}, {1, 1}, {30, 800}, {50, 400}, 1, 0, 0, NULL},
    {"bursts", 20, false, {300, 1500}, {1, 10}, {30, 500}, {100, 500}, 25, 100, 0, NULL},
    {"giant", 20, false, {300, 1500}, {1, 10}, {30, 500}, {100, 500}, 25, 0, 60, NULL},
    {"unique", 0, false, {0, 0}, {1, 1}, {500, 6000}, {50, 400}, 1, 0, 0, NULL},
    {"mix", 0, false, {0, 0}, {1, 1}, {0, 0}, {0, 0}, 1, 0, 0, everything},
};

#define N_KINDS (sizeof kinds / sizeof kinds[0])
#define BURST_REQUESTS 40
#define BURST_SECONDS 2.0
#define BURST_TOKENS 8000
#define GIANT_TOKENS 100000
#define MOST_TOKENS 120000 /* a conversation ends there */
#define DECODE_SECONDS_A_TOKEN 0.02

struct maker {
    struct grid_trace *trace;
    size_t n;
    uint64_t seed, draws, conversations;
};

static double draw(struct maker *maker)
{
    return (double)(grid_trace_mix(maker->seed, ++maker->draws) >> 11) * 0x1p-53;
}

static uint32_t from(struct maker *maker, struct range range)
{
    return range.least + (uint32_t)(draw(maker) * (double)(range.most - range.least + 1));
}

static double wait(struct maker *maker, double mean_s)
{
    return -mean_s * log(1 - draw(maker));
}

static bool add(struct maker *maker, double at_s, uint32_t shared, uint64_t shared_chain, uint32_t input,
                uint32_t output)
{
    struct grid_trace_request request = {.at_us = (uint64_t)(at_s * 1e6),
                                         .input_tokens = input,
                                         .output_tokens = output,
                                         .n_units = input / GRID_TOKENS_A_BLOCK,
                                         .unit_tokens = GRID_TOKENS_A_BLOCK,
                                         .made = true,
                                         .head = shared / GRID_TOKENS_A_BLOCK,
                                         .first = shared_chain,
                                         .own = grid_trace_mix(maker->seed + 1, maker->conversations)};
    return maker->trace->n >= maker->n || grid_trace_add(maker->trace, &request);
}

static uint32_t pick_system(struct maker *maker, const struct kind *kind)
{
    double at = draw(maker), sum = 0;
    if (!kind->popular)
        return (uint32_t)(at * kind->systems);
    for (uint32_t i = 0; i < kind->systems; i++)
        sum += 1.0 / (i + 1);
    for (uint32_t i = 0; i < kind->systems; i++)
        if ((at -= 1.0 / (i + 1) / sum) < 0)
            return i;
    return 0;
}

static bool converse(struct maker *maker, const struct kind *kind, double at_s)
{
    uint32_t system = kind->systems ? pick_system(maker, kind) : 0, turns = from(maker, kind->turns);
    uint64_t name = (uint64_t)(kind - kinds) << 32 | system, chain = grid_trace_mix(maker->seed + 2, name);
    /* a system prompt's length hangs on the prompt, not on the conversation */
    double share = (double)(grid_trace_mix(chain, 1) >> 11) * 0x1p-53;
    uint32_t shared =
        kind->system_tokens.least + (uint32_t)(share * (kind->system_tokens.most - kind->system_tokens.least));
    uint32_t tokens = shared;
    bool good = true;
    for (uint32_t turn = 0; good && turn < turns && tokens < MOST_TOKENS; turn++) {
        uint32_t answer = from(maker, kind->answer_tokens);
        tokens += from(maker, kind->question_tokens);
        good = add(maker, at_s, shared, chain, tokens, answer);
        tokens += answer;
        at_s += 1 + answer * DECODE_SECONDS_A_TOKEN + wait(maker, kind->pause_s);
    }
    return good;
}

static bool burst(struct maker *maker, double at_s)
{
    uint64_t chain = grid_trace_mix(maker->seed + 3, maker->conversations);
    bool good = true;
    for (int i = 0; good && i < BURST_REQUESTS; i++) {
        maker->conversations++;
        good = add(maker, at_s + draw(maker) * BURST_SECONDS, BURST_TOKENS, chain,
                   BURST_TOKENS + from(maker, (struct range){30, 300}), from(maker, (struct range){50, 300}));
    }
    return good;
}

static const struct kind *find(const char *name)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

static bool begin(struct maker *maker, const struct kind *kind, double at_s)
{
    if (kind->mixture) {
        size_t n = 0;
        while (kind->mixture[n])
            n++;
        kind = find(kind->mixture[(size_t)(draw(maker) * (double)n)]);
    }
    maker->conversations++;
    if (kind->bursts > 0 && draw(maker) < 1 / kind->bursts)
        return burst(maker, at_s);
    if (kind->giants > 0 && draw(maker) < 1 / kind->giants)
        return add(maker, at_s, 0, 0, GIANT_TOKENS, from(maker, kind->answer_tokens));
    return converse(maker, kind, at_s);
}

/* How many requests a conversation of the kind makes, nearly. */
static double requests_of(const struct kind *kind)
{
    if (kind->mixture) {
        double sum = 0;
        size_t n = 0;
        for (; kind->mixture[n]; n++)
            sum += requests_of(find(kind->mixture[n]));
        return sum / (double)n;
    }
    double turns = (kind->turns.least + kind->turns.most) / 2.0;
    return turns + (kind->bursts > 0 ? BURST_REQUESTS / kind->bursts : 0);
}

bool grid_trace_make(const char *name, size_t n, double per_second, uint64_t seed, struct grid_trace *out, char *error,
                     size_t error_size)
{
    const struct kind *kind = find(name);
    *out = (struct grid_trace){0};
    if (!kind) {
        (void)snprintf(error, error_size, "no generator '%s'", name);
        return false;
    }
    struct maker maker = {.trace = out, .n = n, .seed = grid_trace_mix(0x67726964, seed)};
    double at_s = 0, between_s = requests_of(kind) / per_second;
    bool good = true;
    while (good && out->n < n) {
        at_s += wait(&maker, between_s);
        good = begin(&maker, kind, at_s);
    }
    if (good)
        grid_trace_sort(out);
    else
        (void)snprintf(error, error_size, "out of memory");
    return good;
}
