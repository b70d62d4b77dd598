/*
 * tag.c - tagged ids: made, read, judged
 *
 * The mac is HMAC-SHA256 over the site, one zero byte and the mark; its first 8 bytes stand in the tag as lower-case
 * hex. The functions of libsodium that are used here need no sodium_init and share no state, so any thread may call.
 */
#include "tag.h"

#include <sodium.h>
#include <stdatomic.h>

#include "arena.h"
#include "check.h"

#define MAC_RAW_BYTES (GRID_TAG_MAC_BYTES / 2)
#define MARK_RAW_BYTES (GRID_TAG_MARK_BYTES / 2)

_Static_assert(GRID_TAG_MIN_KEY_BYTES == GRID_MIN_TAG_KEY_BYTES && GRID_TAG_MAX_KEYS == GRID_MAX_TAG_KEYS,
               "the public header and this room agree");

struct grid_tag_ring {
    atomic_uint references;
    const struct grid_alloc *alloc;
    size_t n;
    crypto_auth_hmacsha256_state keyed[]; /* each key's two pads, hashed: a copy of it begins a mac */
};

/* After init the two block buffers still hold the key under a known pad. A block was just completed, so nothing in them
 * is read again. */
static void begin_mac(crypto_auth_hmacsha256_state *keyed, struct grid_str key)
{
    (void)crypto_auth_hmacsha256_init(keyed, (const unsigned char *)key.ptr, key.len);
    sodium_memzero(keyed->ictx.buf, sizeof keyed->ictx.buf);
    sodium_memzero(keyed->octx.buf, sizeof keyed->octx.buf);
}

struct grid_tag_ring *grid_tag_ring_new(const struct grid_alloc *alloc, const struct grid_str *keys, size_t n)
{
    GRID_ASSERT(n <= GRID_TAG_MAX_KEYS);
    struct grid_tag_ring *ring = grid_take(alloc, sizeof *ring + n * sizeof ring->keyed[0]);
    if (!ring)
        return NULL;
    atomic_init(&ring->references, 1);
    ring->alloc = alloc;
    ring->n = n;
    for (size_t i = 0; i < n; i++) {
        GRID_ASSERT(keys[i].len >= GRID_TAG_MIN_KEY_BYTES);
        begin_mac(&ring->keyed[i], keys[i]);
    }
    return ring;
}

struct grid_tag_ring *grid_tag_ring_ref(struct grid_tag_ring *ring)
{
    if (ring)
        (void)atomic_fetch_add_explicit(&ring->references, 1, memory_order_relaxed);
    return ring;
}

void grid_tag_ring_unref(struct grid_tag_ring *ring)
{
    if (!ring || atomic_fetch_sub_explicit(&ring->references, 1, memory_order_acq_rel) != 1)
        return;
    sodium_memzero(ring->keyed, ring->n * sizeof ring->keyed[0]);
    grid_give(ring->alloc, ring);
}

bool grid_tag_ring_keyed(const struct grid_tag_ring *ring)
{
    return ring->n > 0;
}

bool grid_tag_ring_same(const struct grid_tag_ring *ring, const struct grid_str *keys, size_t n)
{
    bool same = ring->n == n;
    for (size_t i = 0; i < n && i < ring->n; i++) {
        crypto_auth_hmacsha256_state keyed;
        begin_mac(&keyed, keys[i]);
        same &= sodium_memcmp(&keyed, &ring->keyed[i], sizeof keyed) == 0;
        sodium_memzero(&keyed, sizeof keyed);
    }
    return same;
}

void grid_wipe(void *memory, size_t bytes)
{
    sodium_memzero(memory, bytes);
}

static void put_hex(const unsigned char *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
}

void grid_tag_mark(struct grid_str cluster, char out_mark[GRID_TAG_MARK_BYTES])
{
    unsigned char digest[crypto_hash_sha256_BYTES];
    (void)crypto_hash_sha256(digest, (const unsigned char *)cluster.ptr, cluster.len);
    put_hex(digest, MARK_RAW_BYTES, out_mark);
}

static void make_mac(const crypto_auth_hmacsha256_state *keyed, const char *site, size_t site_len, const char *mark,
                     char out_mac[GRID_TAG_MAC_BYTES])
{
    static const unsigned char zero = 0;
    unsigned char full[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_state state = *keyed;
    (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)site, site_len);
    (void)crypto_auth_hmacsha256_update(&state, &zero, 1);
    (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)mark, GRID_TAG_MARK_BYTES);
    (void)crypto_auth_hmacsha256_final(&state, full);
    put_hex(full, MAC_RAW_BYTES, out_mac);
    sodium_memzero(&state, sizeof state);
    sodium_memzero(full, sizeof full);
}

size_t grid_tag_make(const struct grid_tag_ring *ring, struct grid_str site, const char mark[GRID_TAG_MARK_BYTES],
                     char out_tag[GRID_TAG_BYTES])
{
    GRID_ASSERT(site.len > 0 && site.len <= GRID_TAG_SITE_BYTES);
    char *at = out_tag;
    memcpy(at, site.ptr, site.len);
    at += site.len;
    *at++ = '.';
    memcpy(at, mark, GRID_TAG_MARK_BYTES);
    at += GRID_TAG_MARK_BYTES;
    *at++ = '.';
    if (ring->n > 0) {
        make_mac(&ring->keyed[0], site.ptr, site.len, mark, at);
        at += GRID_TAG_MAC_BYTES;
    }
    *at++ = '.';
    return (size_t)(at - out_tag);
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static void take_prefix(struct grid_tag_scan *scan, char c)
{
    static const char prefixes[2][GRID_TAG_PREFIX_BYTES + 1] = {"resp_", "conv_"};
    const char *prefix = prefixes[(scan->prefix_len ? scan->prefix[0] : c) == 'c'];
    if (c != prefix[scan->prefix_len]) {
        scan->state = GRID_TAG_NONE;
        return;
    }
    scan->prefix[scan->prefix_len++] = c;
    if (scan->prefix_len == GRID_TAG_PREFIX_BYTES)
        scan->state = GRID_TAG_SITE;
}

static void take_mark(struct grid_tag_scan *scan, char c)
{
    if (c == '.' && scan->mark_len == GRID_TAG_MARK_BYTES)
        scan->state = GRID_TAG_MAC;
    else if (!is_hex(c) || scan->mark_len == GRID_TAG_MARK_BYTES)
        scan->state = GRID_TAG_NONE;
    else
        scan->mark[scan->mark_len++] = c;
}

/* The bytes before the next dot into a room; what the room cannot hold is only counted. Returns how many were taken,
 * the dot among them. */
static size_t take_part(const char *bytes, size_t len, char *room, size_t room_len, size_t *part_len, bool *out_dot)
{
    const char *dot = memchr(bytes, '.', len);
    size_t n = dot ? (size_t)(dot - bytes) : len;
    if (*part_len < room_len) {
        size_t left = room_len - *part_len;
        memcpy(room + *part_len, bytes, n < left ? n : left);
    }
    *part_len += n;
    *out_dot = dot != NULL;
    return n + *out_dot;
}

size_t grid_tag_scan_feed(struct grid_tag_scan *scan, const char *bytes, size_t len)
{
    size_t at = 0;
    bool dot = false;
    while (at < len && scan->state < GRID_TAG_SHAPED) {
        switch (scan->state) {
        case GRID_TAG_PREFIX:
            take_prefix(scan, bytes[at++]);
            break;
        case GRID_TAG_SITE:
            at += take_part(bytes + at, len - at, scan->site, sizeof scan->site, &scan->site_len, &dot);
            if (dot)
                scan->state = scan->site_len ? GRID_TAG_MARK : GRID_TAG_NONE;
            break;
        case GRID_TAG_MARK:
            take_mark(scan, bytes[at++]);
            break;
        case GRID_TAG_MAC:
            at += take_part(bytes + at, len - at, scan->mac, sizeof scan->mac, &scan->mac_len, &dot);
            if (dot)
                scan->state = GRID_TAG_SHAPED;
            break;
        case GRID_TAG_SHAPED:
        case GRID_TAG_NONE:
            break;
        }
    }
    return at;
}

bool grid_tag_genuine(const struct grid_tag_ring *ring, const struct grid_tag_scan *scan)
{
    if (scan->state != GRID_TAG_SHAPED || scan->site_len > GRID_TAG_SITE_BYTES)
        return false;
    if (ring->n == 0) {
        bool hex = true;
        for (size_t i = 0; i < scan->mac_len && i < GRID_TAG_MAC_BYTES; i++)
            hex &= is_hex(scan->mac[i]);
        return scan->mac_len == 0 || (hex && scan->mac_len == GRID_TAG_MAC_BYTES);
    }
    if (scan->mac_len != GRID_TAG_MAC_BYTES)
        return false;
    /* Constant time by construction: sodium_memcmp reads all bytes of both macs whatever they are, and every key is
     * tried whatever the others said. Only the length of what was sent, which its sender knows, ends this early. */
    unsigned equal = 0;
    for (size_t i = 0; i < ring->n; i++) {
        char mac[GRID_TAG_MAC_BYTES];
        make_mac(&ring->keyed[i], scan->site, scan->site_len, scan->mark, mac);
        equal |= (unsigned)(sodium_memcmp(mac, scan->mac, sizeof mac) == 0);
        sodium_memzero(mac, sizeof mac);
    }
    return equal != 0;
}

static uint64_t end_hmac64(crypto_auth_hmacsha256_state state, uint64_t number)
{
    unsigned char bytes[1 + sizeof number] = {0}, full[crypto_auth_hmacsha256_BYTES];
    for (size_t i = 0; i < sizeof number; i++)
        bytes[1 + i] = (unsigned char)(number >> (8 * (sizeof number - 1 - i)));
    (void)crypto_auth_hmacsha256_update(&state, bytes, sizeof bytes);
    (void)crypto_auth_hmacsha256_final(&state, full);
    sodium_memzero(&state, sizeof state);
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof value; i++)
        value = value << 8 | full[i];
    return value;
}

void grid_tag_hmac64(struct grid_str secret, struct grid_str text, uint64_t *numbers, size_t n)
{
    crypto_auth_hmacsha256_state state;
    begin_mac(&state, secret);
    (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)text.ptr, text.len);
    for (size_t i = 0; i < n; i++)
        numbers[i] = end_hmac64(state, numbers[i]);
    sodium_memzero(&state, sizeof state);
}
