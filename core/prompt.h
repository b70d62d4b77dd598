/*
 * prompt.h - step 1 of the data path: a body becomes the pieces of its prompt
 *
 * Story     keys.c opens a body and pulls pieces, in the fixed order of the stream whatever the order in the body
 *           (behaviour.md C). Opening reads the whole body once: is it JSON, what is its model, where do the fields begin
 *           that matter, is one given twice. Pulling goes back to those places and reads only what is keyed.
 * Promise   No copy of the body and no allocation: what must be remembered is remembered as a place. Constant memory.
 *           How the slices are cut never shows in the pieces' bytes. Every fault is a reason, never an error.
 * Not here  Blocks and keys (keys.h), JSON's grammar (json.h). What each API's body looks like: prompt_tables.h.
 */
#ifndef GRID_PROMPT_H
#define GRID_PROMPT_H

#include "json.h"

#define GRID_CANONICAL_MAX_BYTES 16384u /* values longer than this, as sent, are digested */
#define GRID_CANONICAL_MAX_DEPTH 128u
#define GRID_MODEL_MAX_BYTES 256u

enum grid_piece_kind {
    GRID_PIECE_LITERAL,   /* bytes of the framing */
    GRID_PIECE_RAW,       /* a token as sent; valid UTF-8 is the puller's to check on what it uses */
    GRID_PIECE_DECODED,   /* a short text, decoded and found valid; its length goes ahead of it */
    GRID_PIECE_CANONICAL, /* JSON in canonical form */
    GRID_PIECE_DIGEST,    /* a token as sent, to be digested; the same about UTF-8 */
};

struct grid_piece {
    enum grid_piece_kind kind;
    struct grid_str text;         /* LITERAL; CANONICAL: valid until the next pull */
    struct grid_json_raw raw;     /* RAW, DIGEST */
    struct grid_json_decode name; /* DECODED */
    size_t name_bytes;            /* DECODED: its decoded length */
};

/* Working memory of canonical values (61 KiB, untouched when a prompt has none). */
struct grid_prompt_room {
    char out[GRID_CANONICAL_MAX_BYTES + 8];
    char sorted[GRID_CANONICAL_MAX_BYTES + 8];
    char decoded[GRID_CANONICAL_MAX_BYTES + 8];
    struct grid_prompt_member {
        uint16_t start, len;                     /* in out: "name":value */
    } members[GRID_CANONICAL_MAX_BYTES / 5 + 2]; /* "":0, is the shortest */
};

#define GRID_PROMPT_FIELDS 10u /* most fields that are read of one object */
#define GRID_PROMPT_FRAMES 14u /* most lists and objects open at once: tool results in tool results end here */
#define GRID_PROMPT_QUEUE 4u

struct grid_prompt_object; /* prompt_tables.h */

/* Where the read fields of one object are. */
struct grid_prompt_fields {
    uint64_t seen, present; /* bits of enum field; present: not null */
    bool twice;             /* a read field was given twice */
    struct grid_cursor at[GRID_PROMPT_FIELDS];
};

/* A list or an object that is being walked. */
struct grid_prompt_frame {
    const struct grid_prompt_object *object; /* of the list's elements, or of this object */
    bool list, system;
    size_t row, step, n_steps; /* object: its variant and the next row of it */
    struct grid_str behind;    /* list: what closes it in the stream */
    struct grid_json json;     /* list: the next element */
    struct grid_prompt_fields fields;
};

struct grid_prompt {
    enum grid_reason reason; /* NONE so far */
    bool has_model, has_salt;
    char model[GRID_MODEL_MAX_BYTES];
    size_t model_len;
    struct grid_json_decode salt; /* found valid */
    /* private */
    struct grid_prompt_room *room;
    struct grid_json json; /* a reader to put to a place */
    size_t n_frames, n_queue, queue_at;
    struct grid_prompt_frame frames[GRID_PROMPT_FRAMES];
    struct grid_piece queue[GRID_PROMPT_QUEUE];
};

/* Reads the body once. cut: it is only the beginning. api NONE reads the model only. The slices, memo (zeroed) and room
 * must outlive the prompt; room may be NULL when no piece is pulled. */
void grid_prompt_open(struct grid_prompt *prompt, enum grid_api api, const struct grid_str *slices, size_t n_slices,
                      bool cut, struct grid_lex_memo *memo, struct grid_prompt_room *room);

/* The next piece, valid until the next pull; NULL at the end, or when the reason says why there are no keys. */
const struct grid_piece *grid_prompt_next(struct grid_prompt *prompt);

#endif
