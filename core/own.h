/*
 * own.h - where an answer's own ids begin: one JSON text, read as it streams by
 *
 * Story     An answer's own objects are its top-level object and any object under `response` or `conversation` of an
 *           own one. Fed the text in any pieces, this stops behind the prefix of each id that is a member of such an
 *           object.
 * Promise   Where the pieces are cut never shows. Constant memory, no recursion, nothing kept of the text but the name
 *           that is open. After a breach of the grammar, and behind the first value, there are no ids.
 * Source    behaviour.md H.7, O (36).
 * Not here  Tags, event streams (rewrite.h).
 */
#ifndef GRID_OWN_H
#define GRID_OWN_H

#include "lex.h"

#define GRID_OWN_PREFIX_BYTES 5u /* "resp_", "conv_" */
#define GRID_OWN_NAME_BYTES 20u  /* "previous_response_id", the longest name that matters */

struct grid_own {
    uint8_t text;    /* where in the grammar */
    uint8_t escape;  /* of a string */
    uint8_t number;  /* of a number */
    uint8_t matched; /* bytes of the name or the prefix that were passed */
    bool named;      /* the string that is open is a name */
    bool takes_id;   /* the member that is open is an id, */
    bool opens_own;  /* or its object is an own one */
    char name[GRID_OWN_NAME_BYTES];
    const char *wanted;    /* the rest of a literal or a prefix */
    size_t own, foreign;   /* own objects open; what is open within the last of them */
    uint64_t foreign_kind; /* of the first 64 foreign ones: 1 an object, 0 an array */
};

void grid_own_begin(struct grid_own *own);
bool grid_own_over(const struct grid_own *own); /* no id comes any more */

/* Reads on and returns where it stopped: at `end`, where the text is over, or behind an id's prefix (*out_id, else
 * false). The rest of that id is read on by the next call; a caller may pass over some of it, quotes, escapes and
 * control characters excepted. lines: also stops at a line's end, which it leaves. */
const char *grid_own_run(struct grid_own *own, const char *at, const char *end, bool lines, bool *out_id);

/* A line of the text ended: a line feed, to the text. */
void grid_own_break(struct grid_own *own);

#endif
