/*
 * tag.h - tagged ids: made, read, judged
 *
 * Story     An id of a stored response or conversation leaves the gateway as prefix + tag + rest, where the tag is
 *           "site.mark.mac." and the prefix "resp_" or "conv_". The mark stands for the cluster's name; the mac, under
 *           the first key, for site and mark. A tag that comes back is scanned for its shape, then judged by every key.
 * Promise   Macs are compared in constant time. A ring holds keyed states, never the keys, and wipes them at its end.
 *           No memory but a ring's. The only file that knows libsodium.
 * Source    behaviour.md H.1 to H.3, O (6, 16, 22, 35).
 * Not here  Where ids stand in bodies (ids.h), in answers (rewrite.h); who holds a cluster (sites.h).
 */
#ifndef GRID_TAG_H
#define GRID_TAG_H

#include "str.h"

#define GRID_TAG_PREFIX_BYTES 5u /* "resp_", "conv_" */
#define GRID_TAG_MARK_BYTES 8u
#define GRID_TAG_MAC_BYTES 16u
#define GRID_TAG_SITE_BYTES 63u
#define GRID_TAG_BYTES (GRID_TAG_SITE_BYTES + 1 + GRID_TAG_MARK_BYTES + 1 + GRID_TAG_MAC_BYTES + 1)
#define GRID_TAG_MIN_KEY_BYTES 32u
#define GRID_TAG_MAX_KEYS 8u

/* The keys in force: the first signs, all verify; with none, macs are empty. Immutable, counted, any thread. */
struct grid_tag_ring;
/* Copies nothing of the keys but their keyed states: the caller wipes its own. NULL for want of memory. Each key has at
 * least GRID_TAG_MIN_KEY_BYTES; n is at most GRID_TAG_MAX_KEYS. alloc must outlive the ring. */
struct grid_tag_ring *grid_tag_ring_new(const struct grid_alloc *alloc, const struct grid_str *keys, size_t n);
struct grid_tag_ring *grid_tag_ring_ref(struct grid_tag_ring *ring); /* NULL is fine, here and below */
void grid_tag_ring_unref(struct grid_tag_ring *ring);
bool grid_tag_ring_keyed(const struct grid_tag_ring *ring);
/* Whether a ring of these keys would be this one. */
bool grid_tag_ring_same(const struct grid_tag_ring *ring, const struct grid_str *keys, size_t n);

/* The mark of a cluster: the first 4 bytes of SHA-256 of its name, in lower-case hex. */
void grid_tag_mark(struct grid_str cluster, char out_mark[GRID_TAG_MARK_BYTES]);

/* "site.mark.mac." under the ring's first key; returns its length. site has at most GRID_TAG_SITE_BYTES. */
size_t grid_tag_make(const struct grid_tag_ring *ring, struct grid_str site, const char mark[GRID_TAG_MARK_BYTES],
                     char out_tag[GRID_TAG_BYTES]);

/* ---- reading ------------------------------------------------------------------------------------------------- */

enum grid_tag_state {
    GRID_TAG_PREFIX, /* where a scan begins */
    GRID_TAG_SITE,
    GRID_TAG_MARK,
    GRID_TAG_MAC,
    GRID_TAG_SHAPED, /* behind the third dot */
    GRID_TAG_NONE,   /* no tag, whatever follows */
};

/* A scan of an id from its first byte, fed in any pieces. Zero it before use. Parts that are too long to be genuine are
 * counted, not kept, so an id of any length costs the same memory. */
struct grid_tag_scan {
    enum grid_tag_state state;
    size_t prefix_len, site_len, mark_len, mac_len; /* as sent; what is kept is capped by the rooms below */
    char prefix[GRID_TAG_PREFIX_BYTES], site[GRID_TAG_SITE_BYTES], mark[GRID_TAG_MARK_BYTES], mac[GRID_TAG_MAC_BYTES];
};
/* Takes bytes until the third dot or until it is known that there is no tag; returns how many were taken. */
size_t grid_tag_scan_feed(struct grid_tag_scan *scan, const char *bytes, size_t len);

/* Is a shaped tag genuine under the ring? Keyed: its mac equals that of some key. Without keys: it is empty or has 16
 * hex digits. Neither tells whether the cluster is known. */
bool grid_tag_genuine(const struct grid_tag_ring *ring, const struct grid_tag_scan *scan);

/* Each number becomes the first 8 bytes of HMAC-SHA256 under any secret over a text, one zero byte and that number (big
 * end first). For values that leave the process in place of keys. */
void grid_tag_hmac64(struct grid_str secret, struct grid_str text, uint64_t *numbers, size_t n);

#endif
