/*
 * rewrite.h - ids in an answer get their tag as the answer streams through
 *
 * Story     learn.c begins one for an answer whose ids are to be led home; the host feeds it each piece of the body.
 *           Tagging only ever inserts: the tag goes in behind the prefix of an id that does not carry it yet.
 * Promise   Nothing else changes, whatever the bytes and wherever they are cut. Held back is at most the beginning of
 *           this very tag, so nothing at all while no id is open. Constant memory, no allocation, no recursion. A
 *           rewritten answer rewritten again stays as it is.
 * Source    behaviour.md H.7, O (35, 36, 51).
 * Not here  Which answers are tagged (learn.c), what a tag is (tag.h), which ids are an answer's own (own.h).
 */
#ifndef GRID_REWRITE_H
#define GRID_REWRITE_H

#include "own.h"
#include "tag.h"

struct grid_rewrite {
    char tag[GRID_TAG_BYTES];
    size_t tag_len;
    uint64_t tagged; /* ids that got the tag */

    struct grid_own text; /* the JSON text that is open */
    bool id_open;         /* behind an id's prefix, and not yet known whether it carries the tag */
    size_t matched;       /* bytes of the tag that followed the prefix: held back, between calls */

    bool sse;           /* by its type; `lines` by its bytes too */
    bool lines;         /* an event stream: only its data lines are text */
    bool behind_cr;     /* a line feed that comes now belongs to the line end before */
    uint8_t lead;       /* how much of the beginning is known */
    uint8_t bom;        /* bytes of a byte order mark passed */
    uint8_t line;       /* where in a line */
    uint8_t line_named; /* bytes of the field name "data" passed */
};

/* sse: the content type says text/event-stream. The first byte that is not blank decides the rest (O.51); a byte order
 * mark before it does not count. */
void grid_rewrite_begin(struct grid_rewrite *rewrite, bool sse, const char *tag, size_t tag_len);

/* The next piece of the answer, as slices. True: it passes on exactly as it is, and `put` was not called. False: what
 * was given to `put`, in order, goes on in its place (it may be nothing: held back). `last`: no more comes; what was
 * held is given out unchanged. The bytes given to `put` are views into the slices or into the rewrite. */
bool grid_rewrite_feed(struct grid_rewrite *rewrite, const struct grid_str *slices, size_t n_slices, bool last,
                       void (*put)(void *ctx, struct grid_str bytes), void *ctx);

#endif
