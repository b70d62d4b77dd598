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

#define GRID_CANONICAL_MEMBERS (GRID_CANONICAL_MAX_BYTES / 5 + 2) /* "":0, is the shortest */

/* Working memory (107 KiB, untouched when there are no such values). */
struct grid_canonical_room {
    char out[GRID_CANONICAL_MAX_BYTES + 8]; /* 8 more may be looked at */
    union {
        char sorted[GRID_CANONICAL_MAX_BYTES + 8];
        uint16_t other[GRID_CANONICAL_MEMBERS]; /* while members are put in order */
    };
    char decoded[GRID_CANONICAL_MAX_BYTES + 8]; /* for the caller: text that holds JSON */
    struct grid_canonical_member {
        uint64_t word;           /* the next bytes of the decoded name, see name_word */
        uint16_t start, len, at; /* in out: "name":value; at: the bytes of the name behind the word */
        uint16_t run;            /* of the place, not of the member: where the run that begins here ends */
    } members[GRID_CANONICAL_MEMBERS];
    uint16_t order[GRID_CANONICAL_MEMBERS]; /* members of the object that closes, by number */
};

/* Writes the value that `json` stands before, at most GRID_CANONICAL_MAX_BYTES as sent, into room->out and passes it.
 * FINE; DEEP over GRID_CANONICAL_MAX_DEPTH levels; BAD_UTF8 of a string or name in it; or the reader's fault. */
enum grid_json_fault grid_canonical_write(struct grid_canonical_room *room, struct grid_json *json, size_t *out_len);

#endif
