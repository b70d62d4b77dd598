/*
 * reuse.c - connections to sites that have answered before
 *
 * Story     A server closes a connection that was idle for some seconds, and now and then a request is already on its
 *           way to it. That is no failure of the site, and nobody has read the request. Envoy does not say whether
 *           a connection was new, but it tells our end of it: an address that carried an answer a moment ago, and was
 *           reset before a byte came, was idle in between.
 * Promise   Forgets: a place holds the last address that fell into it. What is forgotten counts as new.
 * Threads   A connection belongs to one worker, and so does this memory of it.
 * Source    behaviour.md O (13, 55).
 */
#include "filter.h"

enum {
    PLACES = 1024,
    IDLE_MS = 5000, /* Envoy's own idle limit towards sites is 4 s */
};

static _Thread_local struct {
    uint64_t address, ms;
} places[PLACES];

/* FNV-1a: two addresses of one worker that meet cost a retry that was not needed, or one that was. */
static uint64_t mix(struct grid_str text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < text.len; i++)
        hash = (hash ^ (unsigned char)text.ptr[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

void grid_reuse_note(struct grid_str local_address, uint64_t now_ms)
{
    uint64_t address = mix(local_address);
    if (local_address.len == 0)
        return;
    places[address % PLACES].address = address;
    places[address % PLACES].ms = now_ms;
}

bool grid_reuse_known(struct grid_str local_address, uint64_t since_ms)
{
    uint64_t address = mix(local_address);
    return local_address.len > 0 && places[address % PLACES].address == address &&
           places[address % PLACES].ms + IDLE_MS >= since_ms;
}
