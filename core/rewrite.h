/*
 * rewrite.h - ids in an answer get their tag as the answer streams through
 *
 * Story     learn.c begins one for an answer whose ids are to be led home; the host feeds it each piece of the body.
 *           Tagging only ever inserts: the tag goes in behind the prefix of an id that does not carry it yet.
 * Promise   Nothing else changes, whatever the bytes and wherever they are cut. Held back is at most the beginning of
 *           this very tag, so nothing at all while no id is open. Constant memory, no allocation, no recursion.
 * Source    behaviour.md H.7, O (35, 36, 51).
 * Not here  Which answers are tagged (learn.c), what a tag is (tag.h).
 */
#ifndef GRID_REWRITE_H
#define GRID_REWRITE_H

#include "lex.h"
#include "tag.h"

struct grid_rewrite {
    char tag[GRID_TAG_BYTES];
    size_t tag_len;
    uint64_t tagged; /* ids that got the tag */
};

/* sse: the content type says text/event-stream. The first byte that is not blank decides the rest (O.51). */
void grid_rewrite_begin(struct grid_rewrite *rewrite, bool sse, const char *tag, size_t tag_len);

/* The next piece of the answer, as slices. True: it passes on exactly as it is, and `put` was not called. False: what
 * was given to `put`, in order, goes on in its place (it may be nothing: held back). `last`: no more comes; what was
 * held is given out unchanged. The bytes given to `put` are views into the slices or into the rewrite. */
bool grid_rewrite_feed(struct grid_rewrite *rewrite, const struct grid_str *slices, size_t n_slices, bool last,
                       void (*put)(void *ctx, struct grid_str bytes), void *ctx);

#endif
