/*
 * piece.h - the pieces of a prompt, and the state of a body that is being read
 *
 * Story     Types alone, shared by the three files that turn a body into pieces: prompt.c walks, rows.c writes,
 *           prompt_tables.h says what. keys.c takes the pieces.
 */
#ifndef GRID_PIECE_H
#define GRID_PIECE_H

#include "canonical.h"

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
    char model[GRID_MODEL_MAX_BYTES + 1]; /* one more: a text that is too long to be any model's name */
    size_t model_len;
    struct grid_json_decode salt; /* found valid */
    /* private */
    struct grid_canonical_room *room;
    struct grid_json json; /* a reader to put to a place */
    size_t n_frames, n_queue, queue_at;
    struct grid_prompt_frame frames[GRID_PROMPT_FRAMES];
    struct grid_piece queue[GRID_PROMPT_QUEUE];
};

#endif
