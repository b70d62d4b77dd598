/*
 * edit.c - changes in a body that is held, in the buffers where it lies
 *
 * Story     request.c has the core's edits: `bytes` at `offset` become `text`. Envoy's buffers only take bytes at the
 *           end and lose them at the front, so the body is turned round once: each piece goes from the front to the
 *           end, and where an edit stands its text goes instead.
 * Promise   No second copy of the body: one piece of GRID_EDIT_PIECE_BYTES at a time. The bytes between edits stay as
 *           they are, however the body is cut into slices and wherever its two buffers meet.
 * Source    design.md 8.
 * Not here  Which edits (core).
 */
#include "filter.h"

#include <stdlib.h>

enum { MANY_SLICES = 64 }; /* more leave the stack */

/* A buffer that is being turned, and room for one piece. */
struct mill {
    void *envoy;
    int from, to;
    char *room;
    size_t room_bytes;
};

/* Copies what is at the front, at most `want` bytes, into the room. 0: there is nothing, or no memory. */
static size_t copy_front(const struct mill *mill, uint64_t want)
{
    struct grid_str on_stack[MANY_SLICES];
    size_t n = ENVOY(http_get_body_chunks_size)(mill->envoy, mill->from), copied = 0;
    struct grid_str *slices = n <= MANY_SLICES ? on_stack : malloc(n * sizeof(*slices));
    if (slices && n > 0 && ENVOY(http_get_body_chunks)(mill->envoy, mill->from, slices)) {
        size_t limit = want < mill->room_bytes ? (size_t)want : mill->room_bytes;
        for (size_t i = 0; i < n && copied < limit; i++) {
            size_t take = slices[i].len < limit - copied ? slices[i].len : limit - copied;
            if (take > 0)
                memcpy(mill->room + copied, slices[i].ptr, take);
            copied += take;
        }
    }
    if (slices != on_stack)
        free(slices);
    return copied;
}

/* The next `bytes` go from the front of one buffer to the end of the other, or of the same. */
static bool turn(const struct mill *mill, uint64_t bytes)
{
    while (bytes > 0) {
        size_t n = copy_front(mill, bytes);
        if (n == 0 || !ENVOY(http_append_body)(mill->envoy, mill->to, (struct grid_str){mill->room, n}) ||
            !ENVOY(http_drain_body)(mill->envoy, mill->from, n))
            return false;
        bytes -= n;
    }
    return true;
}

static bool turn_edited(const struct mill *mill, const struct grid_edit *edits, size_t n, uint64_t total)
{
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (!turn(mill, edits[i].offset - at) || !ENVOY(http_drain_body)(mill->envoy, mill->from, edits[i].bytes) ||
            (edits[i].text.len > 0 && !ENVOY(http_append_body)(mill->envoy, mill->to, edits[i].text)))
            return false;
        at = edits[i].offset + edits[i].bytes;
    }
    return turn(mill, total - at);
}

bool grid_edit_body(void *envoy, const struct grid_body *body, const struct grid_edit *edits, size_t n)
{
    uint64_t held = ENVOY(http_get_body_size)(envoy, body->kinds[0]);
    uint64_t received = body->n > 1 ? ENVOY(http_get_body_size)(envoy, body->kinds[1]) : 0;
    uint64_t total = held + received;
    struct mill mill = {.envoy = envoy, .from = body->kinds[0], .to = body->kinds[0]};
    mill.room_bytes = total < GRID_EDIT_PIECE_BYTES ? (size_t)total : GRID_EDIT_PIECE_BYTES;
    mill.room = malloc(mill.room_bytes);
    bool good = mill.room != NULL;
    if (held == 0) {
        mill.from = mill.to = body->kinds[body->n - 1];
    } else if (good && received > 0) { /* first all of it in one buffer: an edit may stand where the two meet */
        mill.from = body->kinds[1];
        good = turn(&mill, received);
        mill.from = body->kinds[0];
    }
    good = good && turn_edited(&mill, edits, n, total);
    free(mill.room);
    return good;
}
