/*
 * prompt.h - a prompt as the simulated engine sees it: rendered bytes, cut into blocks, each known by a chained hash
 *
 * Story     apis.c and responses.c walk a body and put what a chat template would write: marks and texts, in order.
 *           Each full 64 bytes become one block hash chained to the one before. The text itself is never kept here.
 * Promise   Rendering is unambiguous: marks between the parts are 4 bytes framed by 0xFF, which no UTF-8 text holds. A
 *           prompt that only grows keeps its first blocks. Model and cache_salt seed the chain. A token of a token
 *           prompt is 4 bytes. The same prompt with the same --seed is answered by the same words.
 * Not here  Which fields of a body are prompt (apis.c, responses.c).
 */
#ifndef GRID_SIM_PROMPT_H
#define GRID_SIM_PROMPT_H

#include "sim.h"

enum grid_sim_mark {
    GRID_SIM_MARK_START = 1,
    GRID_SIM_MARK_TOOLS,
    GRID_SIM_MARK_ROLE,
    GRID_SIM_MARK_NAME,
    GRID_SIM_MARK_CONTENT,
    GRID_SIM_MARK_PART,
    GRID_SIM_MARK_MEDIA,
    GRID_SIM_MARK_TOOL_CALLS,
    GRID_SIM_MARK_TOOL_CALL_ID,
    GRID_SIM_MARK_END_OF_MESSAGE,
    GRID_SIM_MARK_TOKENS,
};

struct grid_sim_prompt {
    uint8_t block[GRID_SIM_BLOCK_BYTES];
    size_t used;
    uint64_t chain;
    uint64_t bytes;
    uint64_t *blocks; /* until grid_sim_prompt_end or _drop takes them */
    size_t count;
    size_t room;
};

/* salt may be NULL; what is no string salts nothing. Writes the mark of the start. */
void grid_sim_prompt_start(struct grid_sim_prompt *prompt, const char *model, const json_t *salt);
void grid_sim_prompt_mark(struct grid_sim_prompt *prompt, enum grid_sim_mark mark);
void grid_sim_prompt_string(struct grid_sim_prompt *prompt, const json_t *string);
/* Mark and value: a string as its text, anything else as compact JSON in its own order; nothing for NULL and null. */
void grid_sim_prompt_value(struct grid_sim_prompt *prompt, enum grid_sim_mark mark, const json_t *value);
/* One message with a role. False: it has none, what was written stands. */
bool grid_sim_prompt_message(struct grid_sim_prompt *prompt, const json_t *message);
/* False: something in the array is no integer. */
bool grid_sim_prompt_tokens(struct grid_sim_prompt *prompt, const json_t *tokens);
/* Moves the blocks into seq; returns the seed of the answer's words. */
uint64_t grid_sim_prompt_end(struct grid_sim_prompt *prompt, uint64_t seed, struct grid_sim_seq *seq);
void grid_sim_prompt_drop(struct grid_sim_prompt *prompt);

/* Word number index (from 0) of an answer. */
const char *grid_sim_word(uint64_t words_seed, uint64_t index);
uint64_t grid_sim_hash(uint64_t number, uint64_t seed);

#endif
