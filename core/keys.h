/*
 * keys.h - step 2 of the data path: a body becomes keys
 *
 * Story     route.c hands in a body and gets one 64-bit key for each whole block of 256 bytes of its prompt, each
 *           chained to the one before, so that equal heads of prompts give equal heads of keys. The model and the
 *           cache salt are folded into each key: two models, or two salts, share no key.
 * Promise   At most GRID_MAX_KEYS keys; nothing of the prompt behind them is read. No allocation, at most 64 KiB of
 *           stack (test_bodies.c). Any thread. Cost: docs/data-path.md; it grows with the number of messages more than
 *           with bytes.
 * Not here  What is read of a body and in what order (prompt.h), who holds which keys (index.h).
 */
#ifndef GRID_KEYS_H
#define GRID_KEYS_H

#include "hash.h"

struct grid_keyed {
    enum grid_reason reason; /* why there are no keys; NONE when there are, or none were wanted */
    uint32_t n;
    bool has_model;
    char model[GRID_MAX_NAME_BYTES + 2]; /* the model in force, with a NUL behind it (it may hold others) */
    size_t model_len;                    /* GRID_MAX_NAME_BYTES + 1: of a text too long to be any model's name */
    size_t model_offset, model_bytes;    /* where the body's own `model` stands, a text; 0 bytes: none was met */
};

/* Reads a body given as slices (valid during the call). cut: it is only the beginning, so there are no keys, but a
 * model already seen counts. want_keys false, or api NONE: finds the model only. header_model is the stronger source
 * of the model ({NULL,0}: the body's). keys gets out->n of them. */
void grid_keys_make(const struct grid_hash_seed *seed, enum grid_api api, const struct grid_str *slices,
                    size_t n_slices, bool cut, bool want_keys, struct grid_str header_model,
                    uint64_t keys[GRID_MAX_KEYS], struct grid_keyed *out);

#endif
