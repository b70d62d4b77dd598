/*
 * lex.h - JSON bytes: a cursor over slices, and the scans that walk it
 *
 * Story     A body is a list of slices that is never flattened. A cursor stands at one byte of it; a copy of a cursor
 *           is a bookmark. Scans start at a cursor and may stop and go on at any byte, so where the slices are cut
 *           never shows. json.c is built on this, and so is whatever else must find its way in JSON bytes.
 * Promise   Constant memory, no recursion.
 * Not here  The vectors under the scans (scan.h). Values, members, decoding (json.h).
 */
#ifndef GRID_LEX_H
#define GRID_LEX_H

#include "scan.h"

/* A place in a list of slices. at == end: the current slice is used up (or none was begun). */
struct grid_cursor {
    const char *at, *end; /* the rest of the current slice */
    const struct grid_str *slices;
    size_t n_slices;
    size_t next;    /* the slice behind the current one */
    size_t through; /* bytes of all slices up to the end of the current one */
};

void grid_cursor_init(struct grid_cursor *cursor, const struct grid_str *slices, size_t n_slices);
/* Steps over used-up and empty slices; false at the end of all bytes. */
bool grid_cursor_settle(struct grid_cursor *cursor);
/* Byte offset of the cursor in the whole text. */
size_t grid_cursor_offset(const struct grid_cursor *cursor);

/* The first byte in [at, end) that means something in a JSON string: see scan.h. */
static inline const char *grid_lex_plain(const char *at, const char *end, unsigned char *high)
{
    return grid_scan_plain(at, end, high);
}

/* The first byte in [at, end) that is not JSON white space; else end. */
const char *grid_lex_space(const char *at, const char *end);

/* Where long strings that were passed once end, so that a second and third look jump. A cache: forgetting costs time
 * only. Zero it before use; belongs to one list of slices. */
#define GRID_LEX_MEMO_SLOTS 64u
#define GRID_LEX_RUNGS 96u
struct grid_lex_memo {
    struct grid_lex_note {
        size_t start;   /* offset of the byte behind the opening quote; 0 in an unused note */
        const char *at; /* the cursor behind the closing quote */
        size_t through;
        uint32_t next;
        uint32_t traits;
    } notes[GRID_LEX_MEMO_SLOTS];
    /* The same of long arrays in arrays, for who looks at each level anew (tool results in tool results): the longest
     * of each of the first levels that a look passed, and of every GRID_LEX_RUNGSth. Going down, each look passes a few
     * levels and jumps over the rest, so that no byte is passed more than a few times however deep they nest. */
    struct grid_lex_rung {
        uint32_t start, end; /* offsets of its bracket, and behind its closing one */
    } rungs[2 * GRID_LEX_RUNGS];
    uint8_t rung_of[512]; /* by start, mixed */
    bool has_rungs;
};

/* The rung of an array at this many brackets below the one that a look began with; SIZE_MAX: none is kept. */
static inline size_t grid_lex_rung(size_t depth)
{
    size_t level = depth / 2; /* lists of objects: every other bracket */
    if (depth == 0 || depth % 2)
        return SIZE_MAX;
    if (level < GRID_LEX_RUNGS)
        return level;
    return level % GRID_LEX_RUNGS == 0 && level < (size_t)GRID_LEX_RUNGS * GRID_LEX_RUNGS
               ? GRID_LEX_RUNGS + level / GRID_LEX_RUNGS
               : SIZE_MAX;
}
/* Notes an array that begins at offset start and ends at offset end, of a look that began at offset base. */
void grid_lex_rung_note(struct grid_lex_memo *memo, size_t rung, size_t base, size_t start, size_t end);
/* Takes a cursor that stands at an array's bracket behind that array, if it was noted. */
bool grid_lex_rung_jump(const struct grid_lex_memo *memo, struct grid_cursor *cursor);

enum grid_lex_result { GRID_LEX_DONE, GRID_LEX_BAD, GRID_LEX_ENDED };

/* What a string has: bits. */
enum { GRID_LEX_HIGH = 1 /* a byte that is not ASCII */, GRID_LEX_ESCAPED = 2 /* an escape */ };

/* Passes a string whose opening quote the cursor stands behind, up to behind its closing quote; escapes are checked for
 * form, UTF-8 is not. On BAD and ENDED the cursor is where it went wrong. memo may be NULL. */
enum grid_lex_result grid_lex_text(struct grid_cursor *cursor, struct grid_lex_memo *memo, unsigned *out_traits);

/* The same for who only asks whether some byte is not ASCII. */
static inline enum grid_lex_result grid_lex_string(struct grid_cursor *cursor, struct grid_lex_memo *memo,
                                                   bool *out_high)
{
    unsigned traits;
    enum grid_lex_result result = grid_lex_text(cursor, memo, &traits);
    *out_high = traits & GRID_LEX_HIGH;
    return result;
}

/* Passes the rest of an escape whose backslash the cursor stands behind. *out_unit is the UTF-16 unit it spells. */
enum grid_lex_result grid_lex_escape(struct grid_cursor *cursor, uint32_t *out_unit);

/* An escape's automaton, byte by byte behind the backslash, begun with GRID_LEX_ESCAPE_START. What lies between DONE
 * and START counts the hex digits that are due. */
enum grid_lex_escape_state {
    GRID_LEX_ESCAPE_DONE = 0,
    GRID_LEX_ESCAPE_HEX = 4,
    GRID_LEX_ESCAPE_START,
    GRID_LEX_ESCAPE_BAD,
};
unsigned grid_lex_escape_step(unsigned state, char byte);

/* A number's automaton, byte by byte, begun with GRID_LEX_NUMBER_START. STOP: the byte does not belong to it. */
enum grid_lex_number {
    GRID_LEX_NUMBER_START,
    GRID_LEX_NUMBER_MINUS,
    GRID_LEX_NUMBER_ZERO,
    GRID_LEX_NUMBER_INT,
    GRID_LEX_NUMBER_DOT,
    GRID_LEX_NUMBER_FRACTION,
    GRID_LEX_NUMBER_E,
    GRID_LEX_NUMBER_SIGN,
    GRID_LEX_NUMBER_EXPONENT,
    GRID_LEX_NUMBER_STOP,
};
enum grid_lex_number grid_lex_number_step(enum grid_lex_number state, char byte);
bool grid_lex_number_whole(enum grid_lex_number state); /* may the number end after this state? */

/* Passes a number that the cursor stands before. A number cut by the end of all bytes may be whole. */
enum grid_lex_result grid_lex_number(struct grid_cursor *cursor);

/* UTF-8, resumable: state 0 is "between characters"; GRID_UTF8_BAD stays. Overlong forms, surrogates and values over
 * U+10FFFF are bad. */
#define GRID_UTF8_BAD UINT32_MAX
uint32_t grid_utf8_feed(uint32_t state, const char *bytes, size_t len);

#endif
