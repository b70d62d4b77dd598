/*
 * told.h - what `grid-gateway run` says of the changes that it handled
 *
 * Story     `run` refuses a bad change before it comes to the folder, so the module would never hear of it. After each
 *           change `run` replaces the file `reload` there: "STARTED REVISION REUSED REJECTED\nRESULT\nERROR\n". The
 *           numbers count up from the start of that run, so that a change that was never seen is still counted.
 * Promise   A text of another form is refused as a whole.
 * Not here  Reading the file and counting (module.c). Changes that were applied: the module counts them as it loads.
 */
#ifndef GRID_ENVOY_TOLD_H
#define GRID_ENVOY_TOLD_H

#include "bridge.h"

enum {
    GRID_TOLD_MAX_BYTES = 4096,
    GRID_TOLD_MAX_DIGITS = 19,
    GRID_TOLD_MAX_NEWS = 1000, /* changes between two looks; more is a wrong file */
};

struct grid_told {
    uint64_t started; /* tells one run from another */
    uint64_t revision, reused, rejected;
    struct grid_str result, error; /* views into the text */
};

/* Takes what is before `end` off the front of *text, `end` too. False: there is none. */
static inline bool grid_told_take(struct grid_str *text, char end, struct grid_str *out)
{
    const char *at = text->len > 0 ? memchr(text->ptr, end, text->len) : NULL;
    if (!at)
        return false;
    *out = (struct grid_str){text->ptr, (size_t)(at - text->ptr)};
    *text = (struct grid_str){at + 1, text->len - out->len - 1};
    return true;
}

static inline bool grid_told_number(struct grid_str *text, char end, uint64_t *out)
{
    struct grid_str digits;
    if (!grid_told_take(text, end, &digits) || digits.len == 0 || digits.len > GRID_TOLD_MAX_DIGITS)
        return false;
    *out = 0;
    for (size_t i = 0; i < digits.len; i++) {
        if (digits.ptr[i] < '0' || digits.ptr[i] > '9')
            return false;
        *out = *out * 10 + (uint64_t)(digits.ptr[i] - '0');
    }
    return true;
}

/* The result as a text that lasts; NULL for any other. */
static inline const char *grid_told_name(const struct grid_told *told)
{
    static const char *const names[] = {"applied", "reused", "rejected"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (grid_bridge_same(told->result, grid_bridge_text(names[i])))
            return names[i];
    }
    return NULL;
}

static inline bool grid_told_read(struct grid_str text, struct grid_told *out)
{
    return grid_told_number(&text, ' ', &out->started) && grid_told_number(&text, ' ', &out->revision) &&
           grid_told_number(&text, ' ', &out->reused) && grid_told_number(&text, '\n', &out->rejected) &&
           grid_told_take(&text, '\n', &out->result) && grid_told_take(&text, '\n', &out->error) &&
           grid_told_name(out) != NULL;
}

static inline uint64_t grid_told_more(uint64_t before, uint64_t now)
{
    uint64_t n = now > before ? now - before : 0;
    return n < GRID_TOLD_MAX_NEWS ? n : GRID_TOLD_MAX_NEWS;
}

/* What came after `before`; another run counts from 0. */
static inline void grid_told_since(const struct grid_told *before, const struct grid_told *now, uint64_t *out_reused,
                                   uint64_t *out_rejected)
{
    bool same_run = before->started == now->started;
    *out_reused = grid_told_more(same_run ? before->reused : 0, now->reused);
    *out_rejected = grid_told_more(same_run ? before->rejected : 0, now->rejected);
}

#endif
