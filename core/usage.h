/*
 * usage.h - what an answer says of its tokens, read as it streams by
 *
 * Story     watch.c begins one for an answer of a prompt; each piece of the body is shown to it. It finds the usage
 *           that the engine reports (prompt tokens, those of them that were cached) and says of each piece of an event
 *           stream whether tokens came in it.
 * Promise   Constant memory, no allocation, no recursion; where pieces are cut never shows. Nothing of the text is
 *           kept but a member's name or a type while it is open. It never judges: what is no JSON tells nothing.
 * Reads     `usage` at the top or in `response` or `message`: prompt_tokens or input_tokens; cached_tokens of its
 *           prompt_tokens_details or input_tokens_details; cache_read_input_tokens and cache_creation_input_tokens,
 *           which Messages does not count among its input tokens. The last one given counts.
 */
#ifndef GRID_USAGE_H
#define GRID_USAGE_H

#include "str.h"

#define GRID_USAGE_TEXT_BYTES 48u /* names and types that matter are shorter */
#define GRID_USAGE_PATH 4u        /* message, usage, details: within the top-level object */

enum grid_usage_count {
    GRID_USAGE_PROMPT,
    GRID_USAGE_CACHED,  /* of the prompt's */
    GRID_USAGE_READ,    /* beside the prompt's */
    GRID_USAGE_CREATED, /* the same */
    GRID_USAGE_OUTPUT,
    GRID_N_USAGE_COUNTS
};

struct grid_usage {
    uint64_t counts[GRID_N_USAGE_COUNTS];
    bool given[GRID_N_USAGE_COUNTS];

    /* private */
    bool events;       /* an event stream: only its data lines are text */
    bool tokens;       /* the event that is open has tokens in it */
    bool behind_cr;    /* a line feed that comes now belongs to the line end before */
    uint8_t line;      /* where in a line */
    uint8_t line_said; /* bytes of "data:" that were passed */
    uint8_t at;        /* where in the text */
    uint8_t member;    /* which of those that matter is open */
    uint8_t role;      /* of the string that is open */
    uint8_t len;       /* bytes of a name or type; over the room: it is none that matters */
    uint8_t n_path;
    uint8_t path[GRID_USAGE_PATH]; /* objects open on the way to what matters */
    uint32_t depth;                /* brackets open within the last of them */
    uint64_t number;
    char text[GRID_USAGE_TEXT_BYTES];
};

void grid_usage_begin(struct grid_usage *usage, bool events);
/* The next piece, as slices. True: in it an event ended that brings tokens. */
bool grid_usage_feed(struct grid_usage *usage, const struct grid_str *slices, size_t n_slices);

/* The prompt's tokens, and those of them that were cached. False: the answer did not say. */
bool grid_usage_prompt(const struct grid_usage *usage, uint64_t *out_tokens);
bool grid_usage_cached(const struct grid_usage *usage, uint64_t *out_tokens);

#endif
