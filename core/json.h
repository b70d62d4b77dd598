/*
 * json.h - a pull reader of JSON over slices
 *
 * Story     prompt.c pulls request bodies through it, settings.c and serving.c pull configurations. The caller asks for
 *           what comes next and says what to do with it: enter, read, skip. A copy of the struct is a bookmark: go back
 *           to it at any time while the slices live.
 * Promise   The slices are read in place: never flattened, no tree, no allocation, no recursion. The grammar is RFC
 *           8259 to the letter (no byte-order mark, no trailing comma, nothing but white space around). Nesting that is
 *           skipped has no limit. Where slices are cut never shows.
 * Faults    A syntax fault, an early end or a wrong type of call sticks: every later call answers "nothing" and loops
 *           over members and elements end; look at `fault` once, at the end. A string that is too long or not valid
 *           UTF-8 is the caller's business and does not stick: the reader stands behind it and goes on.
 * Not here  Writing JSON (grid_buf_json), what a body means (prompt.h).
 *
 *     struct grid_json json;
 *     char room[64];
 *     struct grid_str name;
 *     grid_json_init(&json, &text, 1);
 *     if (grid_json_enter(&json, GRID_JSON_OBJECT))
 *         while (grid_json_member(&json, room, sizeof room, &name))
 *             grid_json_skip(&json);          (each value must be read, entered or skipped)
 *     grid_json_finish(&json);
 *     if (json.fault != GRID_JSON_FINE) ... at byte grid_json_offset(&json)
 */
#ifndef GRID_JSON_H
#define GRID_JSON_H

#include "arena.h"
#include "lex.h"

enum grid_json_kind {
    GRID_JSON_NOTHING, /* a fault, or no value here */
    GRID_JSON_NULL,
    GRID_JSON_FALSE,
    GRID_JSON_TRUE,
    GRID_JSON_NUMBER,
    GRID_JSON_STRING,
    GRID_JSON_ARRAY,
    GRID_JSON_OBJECT,
};
const char *grid_json_kind_name(enum grid_json_kind kind); /* "null", "a boolean", "a number", "a string", ... */

enum grid_json_fault {
    GRID_JSON_FINE,
    GRID_JSON_SYNTAX,    /* sticks */
    GRID_JSON_ENDED,     /* sticks: the bytes ended inside the value */
    GRID_JSON_BAD_UTF8,  /* of one string: invalid UTF-8 or a lone surrogate escape */
    GRID_JSON_LONG,      /* of one string or number: over the caller's ceiling */
    GRID_JSON_DEEP,      /* of one value: over the nesting that a caller set (canonical values) */
    GRID_JSON_NO_MEMORY, /* of one string: the arena gave nothing */
};

struct grid_json {
    struct grid_cursor cursor;
    struct grid_lex_memo *memo; /* NULL, or set after init to make second looks cheap */
    enum grid_json_fault fault;
    bool fresh; /* behind an opening bracket: no comma is due */
};

/* Begins at the first byte of the slices, which must outlive the reader and its copies. */
void grid_json_init(struct grid_json *json, const struct grid_str *slices, size_t n_slices);

/* The kind of the value that is next; white space is passed, nothing else. A byte that begins no value is a fault. */
enum grid_json_kind grid_json_peek(struct grid_json *json);

/* Enters the array or object that is next; false, with nothing done, when the next value is of another kind. */
bool grid_json_enter(struct grid_json *json, enum grid_json_kind kind);

/* The next element of the array that was entered: true and its value is next; false behind the closing bracket. */
bool grid_json_element(struct grid_json *json);

/* The next member of the object that was entered: true, its decoded name (in room or in place), and its value is next;
 * false behind the closing brace. A name over cap bytes or not valid UTF-8 is unread: {NULL,0}. The empty name has a
 * pointer. Names are given in order and as often as they are sent: duplicates are the caller's business. */
bool grid_json_member(struct grid_json *json, char *room, size_t cap, struct grid_str *out_name);

/* The same for who compares names with many: */
struct grid_json_name {
    struct grid_str text; /* decoded; {NULL,0}: over GRID_JSON_NAME_BYTES or not valid UTF-8 */
    uint64_t head;        /* its first eight bytes as they stand in memory, zeros behind a shorter one */
    char room[32];
};
#define GRID_JSON_NAME_BYTES 32u
bool grid_json_named(struct grid_json *json, struct grid_json_name *out);
/* Passes the name that is next and its colon if it is this one, spelled plainly; else false with nothing done. A guess
 * that is right costs a comparison, where finding out the name costs the wait for its length. text has 24 bytes. */
bool grid_json_named_so(struct grid_json *json, const char *text, size_t len);

/* Passes the next value whole, checked against the grammar. False on a fault. */
bool grid_json_skip(struct grid_json *json);

/* The next value, which must be a string, decoded into room (at most cap bytes, no NUL). FINE, or LONG or BAD_UTF8 with
 * *out untouched and the reader behind the string (both: BAD_UTF8). Decoded text may hold NUL bytes (the escape
 * \u0000). */
enum grid_json_fault grid_json_text(struct grid_json *json, char *room, size_t cap, struct grid_str *out);
/* The same into the arena, with one NUL behind it; limit is the ceiling in decoded bytes. */
enum grid_json_fault grid_json_text_arena(struct grid_json *json, struct grid_arena *arena, size_t limit,
                                          struct grid_str *out);

/* The next value, which must be a number: its lexeme into room (cap is the ceiling; LONG otherwise) and its value as a
 * double (may be infinite when out of range). Either output may be NULL; room may be NULL when out_lexeme is. */
#define GRID_JSON_NUMBER_BYTES 64u /* lexemes over this are LONG whatever the cap, when out_value is asked for */
enum grid_json_fault grid_json_number(struct grid_json *json, double *out_value, char *room, size_t cap,
                                      struct grid_str *out_lexeme);

/* The next value, which must be true or false. */
enum grid_json_fault grid_json_bool(struct grid_json *json, bool *out_value);

/* Behind the outermost value: only white space may follow. True when the whole text was one value. */
bool grid_json_finish(struct grid_json *json);

/* Offset of the byte that the reader stands at: the start of a value after peek, the byte at fault after a fault. */
size_t grid_json_offset(const struct grid_json *json);

/* ---- for prompts: tokens as sent, strings decoded piece by piece ------------------------------------------------ */

/* A stretch of bytes over slices, handed out slice by slice; begun as a value that was passed. */
struct grid_json_raw {
    struct grid_cursor from;
    size_t bytes; /* left */
    bool high;    /* no string, or one in which some byte is not ASCII */
    bool escaped; /* no string, or one with escapes */
    uint8_t kind; /* enum grid_json_kind */
};
/* Passes the next value as grid_json_skip does and gives its bytes as sent (a string: with quotes and escapes). */
bool grid_json_raw(struct grid_json *json, struct grid_json_raw *out_raw);
/* The next piece, in place; false when all were given. */
bool grid_json_raw_next(struct grid_json_raw *raw, struct grid_str *out_piece);

/* The decoded bytes of a string, a run at a time. */
struct grid_json_decode {
    struct grid_cursor at;
    bool high, done, bad; /* bad: invalid UTF-8 or a lone surrogate; nothing more comes */
    uint32_t utf8;
    char room[4]; /* an escape, decoded */
};
/* Passes the next value, which must be a string, and prepares to decode it. False on a fault. */
bool grid_json_decode(struct grid_json *json, struct grid_json_decode *out_decode);
/* The same for a string that was passed. */
void grid_json_decode_raw(const struct grid_json_raw *raw, struct grid_json_decode *out_decode);
/* The next run, in place or in the struct's room; false at the end or when bad. */
bool grid_json_decode_next(struct grid_json_decode *decode, struct grid_str *out_run);

#endif
