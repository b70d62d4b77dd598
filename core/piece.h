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

/* A literal of the framing. All of a tag may be copied, whatever its length. */
#define GRID_TAG_BYTES 31u
struct grid_tag {
    char text[GRID_TAG_BYTES];
    unsigned char len;
};

enum grid_piece_kind {
    GRID_PIECE_LITERAL,   /* the tag and nothing else */
    GRID_PIECE_RAW,       /* a token as sent; valid UTF-8 is the puller's to check on what it uses */
    GRID_PIECE_NAME,      /* a short text, ASCII without escapes, as sent with quotes */
    GRID_PIECE_DECODED,   /* a short text, decoded and found valid */
    GRID_PIECE_CANONICAL, /* JSON in canonical form */
    GRID_PIECE_DIGEST,    /* a token as sent, to be digested; the same about UTF-8 */
};

/* One field of the stream: the puller writes tag, content and end. */
struct grid_piece {
    enum grid_piece_kind kind;
    const struct grid_tag *tag;
    struct grid_str text;            /* CANONICAL: valid until the next pull */
    const struct grid_json_raw *raw; /* RAW, NAME, DIGEST: valid until the next pull */
    struct grid_json_decode name;    /* DECODED */
    size_t name_bytes;               /* DECODED: its decoded length */
};

#define GRID_PROMPT_FIELDS 10u /* most fields that are read of one object */
#define GRID_PROMPT_FRAMES 6u  /* most lists and objects open at once: a tool call's function in a chat */
#define GRID_PROMPT_GUESSES 8u /* members of an object whose names are guessed from the one before it */
#define GRID_PROMPT_QUEUE 2u   /* most pieces of one row */

struct grid_prompt_object; /* prompt_tables.h */

/* The read fields of one object. */
struct grid_prompt_fields {
    uint64_t seen, present; /* bits of enum field; present: not null */
    bool twice;             /* a read field was given twice */
    uint8_t n;
    uint8_t place[64]; /* of a field that was seen: where it is in `at` */
    struct grid_json_raw at[GRID_PROMPT_FIELDS];
};

/* A list or an object that is being walked. */
struct grid_prompt_frame {
    const struct grid_prompt_object *object; /* of the list's elements, or of this object */
    bool list, system;
    size_t row, step, n_steps;     /* object: its variant and the next row of it */
    size_t nested;                 /* list: how many lists of the same kind it stands in, from element to element */
    const struct grid_tag *behind; /* list: what closes a nested one in the stream */
    struct grid_json json;         /* list: the next element */
    uint8_t order[GRID_PROMPT_GUESSES]; /* list: the read fields of its last element as they stood, F_none the others */
    struct grid_prompt_fields fields;
};

struct grid_prompt {
    enum grid_reason reason; /* NONE so far */
    bool has_model, has_salt;
    char model[GRID_MODEL_MAX_BYTES + 1]; /* one more: a text that is too long to be any model's name */
    size_t model_len;
    size_t model_offset, model_bytes; /* its token, also of a text that names none; 0 bytes: there is no text */
    struct grid_json_decode salt;     /* found valid */
    /* private */
    struct grid_canonical_room *room;
    struct grid_json json;     /* a reader to put to a place */
    struct grid_json_raw held; /* a value that is no field of an open object */
    struct grid_json body;     /* the reader of the body's own members */
    enum grid_json_kind kind;  /* of the body */
    bool cut;
    bool early;     /* the list that the stream ends with is read before what stands behind it in the body */
    uint64_t ahead; /* fields that were present when that began */
    size_t n_frames, n_queue, queue_at;
    struct grid_prompt_frame frames[GRID_PROMPT_FRAMES];
    struct grid_piece queue[GRID_PROMPT_QUEUE];
};

#endif
