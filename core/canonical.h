/*
 * canonical.h - JSON values in one spelling (behaviour.md C.3)
 *
 * Story     prompt.c writes tools, arguments and other values so that white space, the order of members and escapes
 *           do not matter: members by decoded name, of equal names the last, least escapes, numbers as sent.
 * Promise   No allocation, no recursion; never slow, whatever a client sends.
 */
#ifndef GRID_CANONICAL_H
#define GRID_CANONICAL_H

#include "json.h"

#define GRID_CANONICAL_MAX_BYTES 16384u /* values longer than this, as sent, are digested instead */
#define GRID_CANONICAL_MAX_DEPTH 128u

/* Two neighbours of different names take 11 bytes at least: "":0,"a":0, */
#define GRID_CANONICAL_MEMBERS (GRID_CANONICAL_MAX_BYTES / 11 * 2 + 5)

/* Working memory (44 KiB, untouched when there are no such values). */
struct grid_canonical_room {
    char out[GRID_CANONICAL_MAX_BYTES + 8]; /* 8 more may be looked at */
    union {
        char sorted[GRID_CANONICAL_MAX_BYTES + 8];
        uint16_t other[GRID_CANONICAL_MEMBERS]; /* while members are put in order */
    };
    uint16_t members[GRID_CANONICAL_MEMBERS]; /* of open objects, as they came: where "name":value begins in out */
    uint16_t order[GRID_CANONICAL_MEMBERS];   /* of the object that closes: its members by number, in order */
};

/* Writes the value that `json` stands before, at most GRID_CANONICAL_MAX_BYTES as sent, into room->out and passes it.
 * It may be read from room->out itself: what is written never overtakes what was read.
 * FINE; DEEP over GRID_CANONICAL_MAX_DEPTH levels; BAD_UTF8 of a string or name in it; or the reader's fault. */
enum grid_json_fault grid_canonical_write(struct grid_canonical_room *room, struct grid_json *json, size_t *out_len);

#endif
