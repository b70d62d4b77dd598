/*
 * canonical.c - JSON values in one spelling
 *
 * Story     Members are written as they come and put in order when their object closes; most already are. Output is
 *           never longer than what was sent, so the room always holds it. A member takes the place of one of the same
 *           name right before it at once. Names are compared seven bytes at a time; each byte of a name is looked at a
 *           fixed number of times, so no order of names is slow.
 */
#include "canonical.h"

#include <endian.h>

#include "check.h"

#define WORD_BYTES 7u   /* of a name in a word; the last byte of the word counts them */
#define FEW_MEMBERS 24u /* up to these, insertion is the faster sort */
#define MAX_RUNS 96u    /* 7 + 14 + ... + 7 * 68 bytes of names are more than a value has */

struct canonical_level {
    bool object, some, mixed; /* mixed: some member belongs before the one ahead of it */
    uint16_t start, first;    /* of its text in out; of its members */
};

struct canonical {
    struct grid_canonical_room *room;
    size_t len, n_members, depth;
    bool bad_utf8;
    uint64_t word; /* the first of the last name, of the member before word_of */
    size_t word_of;
    struct canonical_level levels[GRID_CANONICAL_MAX_DEPTH];
};

static void put(struct canonical *canonical, const char *bytes, size_t len)
{
    GRID_ASSERT(len <= sizeof canonical->room->out - canonical->len);
    memmove(canonical->room->out + canonical->len, bytes, len); /* the bytes may come from out */
    canonical->len += len;
}

static void put_escape(struct canonical *canonical, unsigned char byte)
{
    static const char hex[] = "0123456789abcdef";
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* byte, letter */
    for (size_t i = 0; i + 1 < sizeof shorts; i += 2) {
        if ((unsigned char)shorts[i] == byte) {
            put(canonical, (char[]){'\\', shorts[i + 1]}, 2);
            return;
        }
    }
    put(canonical, (char[]){'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]}, 6);
}

/* Decoded text with the least escapes, between quotes that the caller writes. */
static void put_escaped(struct canonical *canonical, struct grid_str text)
{
    const char *at = text.ptr, *end = text.ptr + text.len;
    unsigned char high = 0;
    while (at < end) {
        const char *stop = grid_lex_plain(at, end, &high);
        put(canonical, at, (size_t)(stop - at));
        if (stop < end)
            put_escape(canonical, (unsigned char)*stop++);
        at = stop;
    }
}

/* The next byte of a name in canonical form, decoded; -1 at its closing quote. */
static int name_byte(const char **at)
{
    const char *byte = *at;
    if (*byte == '"')
        return -1;
    *at += 1;
    if (*byte != '\\')
        return (unsigned char)*byte;
    *at += 1;
    switch (byte[1]) {
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'u': /* always \u00XY of a control byte */
        *at += 4;
        return (byte[4] - '0') * 16 + (byte[5] <= '9' ? byte[5] - '0' : byte[5] - 'a' + 10);
    default:
        return (unsigned char)byte[1];
    }
}

/* 0x80 in each byte that is equal. */
static inline uint64_t bytes_equal(uint64_t word, unsigned char byte)
{
    const uint64_t low = 0x7F7F7F7F7F7F7F7Fu;
    uint64_t differ = word ^ byte * (uint64_t)0x0101010101010101u;
    return ~(((differ & low) + low) | differ | low);
}

/* name_word of a name that has an escape among its next bytes. */
static uint64_t word_of_escapes(const char *out, uint16_t *at)
{
    const char *text = out + *at;
    uint64_t word = 0;
    unsigned n = 0;
    for (int byte; n < WORD_BYTES && (byte = name_byte(&text)) >= 0; n++)
        word |= (uint64_t)byte << 8 * (WORD_BYTES - n);
    *at = (uint16_t)(text - out);
    return word | (n + (n == WORD_BYTES && *text != '"'));
}

/* Takes up to WORD_BYTES decoded bytes of a name as a number that sorts as they do. Its last byte is how many there
 * are, or one more if others follow: so equal words of whole names mean equal names. */
static inline uint64_t name_word(const char *out, uint16_t *at)
{
    const char *text = out + *at;
    uint64_t word;
    memcpy(&word, text, sizeof word);
    word = be64toh(word);
    uint64_t quotes = bytes_equal(word, '"'), stops = quotes | bytes_equal(word, '\\');
    unsigned plain = stops ? (unsigned)__builtin_clzll(stops) / 8 : WORD_BYTES + 1;
    if (plain >= WORD_BYTES) {
        *at = (uint16_t)(*at + WORD_BYTES);
        return (word & ~(uint64_t)0xFF) | (WORD_BYTES + !(quotes & 0x80));
    }
    if (quotes << 8 * plain >> 63) {
        *at = (uint16_t)(*at + plain);
        return (word >> 8 >> 8 * (WORD_BYTES - plain) << 8 * (WORD_BYTES - plain) << 8) | plain;
    }
    return word_of_escapes(out, at);
}

/* A word that says that the name goes on behind it. */
static bool word_goes_on(uint64_t word)
{
    return (word & 0xFF) > WORD_BYTES;
}

/* The word of a member's name that begins `skip` bytes behind its quote. */
static inline uint64_t member_word(const struct grid_canonical_room *room, uint16_t member, uint16_t skip)
{
    uint16_t at = (uint16_t)(member + 1 + skip);
    return name_word(room->out, &at);
}

/* By decoded UTF-8 bytes of the names; word_a and word_b are their first words. */
static int compare_names(const char *out, uint16_t a, uint64_t word_a, uint16_t b, uint64_t word_b)
{
    if (word_a == word_b && word_goes_on(word_a)) {
        a++;
        b++;
        do {
            word_a = name_word(out, &a);
            word_b = name_word(out, &b);
        } while (word_a == word_b && word_goes_on(word_a));
    }
    return (word_a > word_b) - (word_a < word_b);
}

/* Names that are equal are spelled alike here. */
static bool same_name(const char *out, uint16_t a, uint16_t b)
{
    size_t i = 1;
    for (; out[a + i] == out[b + i] && out[a + i] != '"'; i++) {
        if (out[a + i] == '\\' && out[a + i + 1] == out[b + i + 1])
            i++;
    }
    return out[a + i] == out[b + i];
}

static void sort_few(const struct grid_canonical_room *room, const uint16_t *members, uint16_t *order, size_t n,
                     uint16_t skip)
{
    uint64_t words[FEW_MEMBERS];
    for (size_t i = 0; i < n; i++) {
        uint16_t moved = order[i];
        uint64_t word = member_word(room, members[moved], skip);
        size_t to = i;
        for (; to > 0 && words[to - 1] > word; to--) {
            order[to] = order[to - 1];
            words[to] = words[to - 1];
        }
        order[to] = moved;
        words[to] = word;
    }
}

/* By one byte of the words. */
static void scatter(const struct grid_canonical_room *room, const uint16_t *members, const uint16_t *from, uint16_t *to,
                    size_t n, uint16_t skip, unsigned shift)
{
    uint16_t at[256] = {0}, sum = 0;
    for (size_t i = 0; i < n; i++)
        at[member_word(room, members[from[i]], skip) >> shift & 0xFF]++;
    for (size_t i = 0; i < 256; i++) {
        uint16_t count = at[i];
        at[i] = sum;
        sum = (uint16_t)(sum + count);
    }
    for (size_t i = 0; i < n; i++)
        to[at[member_word(room, members[from[i]], skip) >> shift & 0xFF]++] = from[i];
}

/* Sorts by word, equal ones as they stood: byte by byte from the last, for bytes that differ at all. Words are made
 * anew each time they are looked at: keeping them would take half of all the memory that keying may have. */
static void sort_words(struct grid_canonical_room *room, const uint16_t *members, uint16_t *order, size_t n,
                       uint16_t skip)
{
    if (n <= FEW_MEMBERS) {
        sort_few(room, members, order, n, skip);
        return;
    }
    uint64_t first = member_word(room, members[order[0]], skip), differ = 0;
    for (size_t i = 1; i < n; i++)
        differ |= member_word(room, members[order[i]], skip) ^ first;
    uint16_t *from = order, *to = room->other;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if (!(differ >> shift & 0xFF))
            continue;
        scatter(room, members, from, to, n, skip, shift);
        uint16_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != order)
        memcpy(order, from, n * sizeof *order);
}

/* A run of members whose names begin alike, and how many bytes of them. */
struct run {
    uint16_t end, skip;
};

/* Sorts by name, equal ones as they came, into room->order: by the first word, then runs of equal words by the next.
 * Runs lie inside one another: an inner one is shorter by a member, whose name has a word for each run around it, so
 * that MAX_RUNS of them do not fit into a value. */
static void sort_members(struct grid_canonical_room *room, const uint16_t *members, size_t n)
{
    struct run runs[MAX_RUNS];
    size_t depth = 1;
    uint16_t *order = room->order;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint16_t)i;
    sort_words(room, members, order, n, 0);
    runs[0] = (struct run){(uint16_t)n, 0};
    for (size_t i = 0; i < n;) {
        while (runs[depth - 1].end <= i)
            depth--;
        struct run *in = &runs[depth - 1];
        uint64_t word = member_word(room, members[order[i]], in->skip);
        size_t end = i + 1;
        while (end < in->end && member_word(room, members[order[end]], in->skip) == word)
            end++;
        if (end - i < 2 || !word_goes_on(word)) {
            i = end;
            continue;
        }
        uint16_t behind = (uint16_t)(members[order[i]] + 1 + in->skip);
        (void)name_word(room->out, &behind); /* equal words are spelled alike, so this is true of all of the run */
        struct run inner = {(uint16_t)end, (uint16_t)(behind - members[order[i]] - 1)};
        if (end < in->end)
            depth++;
        GRID_ASSERT(depth <= MAX_RUNS);
        runs[depth - 1] = inner;
        sort_words(room, members, order + i, end - i, inner.skip);
    }
}

/* Closes an object: members in order, of equal names the last. */
static void close_object(struct canonical *canonical, const struct canonical_level *level)
{
    struct grid_canonical_room *room = canonical->room;
    uint16_t *members = room->members + level->first;
    size_t n = canonical->n_members - level->first, len = 0;
    canonical->n_members = level->first;
    if (!level->mixed)
        return;
    members[n] = (uint16_t)(canonical->len + 1); /* as if a comma and one more followed */
    sort_members(room, members, n);
    for (size_t i = 0; i < n; i++) {
        size_t member = room->order[i], start = members[member], bytes = members[member + 1] - 1u - start;
        if (i + 1 < n && same_name(room->out, members[member], members[room->order[i + 1]]))
            continue;
        if (len)
            room->sorted[len++] = ',';
        memcpy(room->sorted + len, room->out + start, bytes);
        len += bytes;
    }
    memcpy(room->out + level->start + 1, room->sorted, len);
    canonical->len = level->start + 1 + len;
}

/* Compares the member whose name was written last with the one ahead of it, and takes its place if they are equal. */
static void settle_member(struct canonical *canonical, struct canonical_level *level)
{
    struct grid_canonical_room *room = canonical->room;
    uint16_t last = room->members[canonical->n_members - 1];
    uint64_t word_ahead = canonical->word, word = member_word(room, last, 0);
    bool known = canonical->word_of == canonical->n_members - 1; /* else an object was closed in between */
    canonical->word = word;
    canonical->word_of = canonical->n_members;
    if (!level->some)
        return;
    uint16_t ahead = room->members[canonical->n_members - 2];
    if (!known)
        word_ahead = member_word(room, ahead, 0);
    int order = compare_names(room->out, ahead, word_ahead, last, word);
    level->mixed |= order > 0;
    if (order == 0) {
        canonical->len = ahead + (canonical->len - last); /* the name is there already */
        canonical->word_of = --canonical->n_members;
    }
}

/* Writes a comma and the name of the next member; false behind the last one. */
static bool canonical_member(struct canonical *canonical, struct grid_json *json, struct canonical_level *level)
{
    struct grid_canonical_room *room = canonical->room;
    struct grid_str name;
    if (!grid_json_member(json, room->sorted, sizeof room->sorted, &name))
        return false;
    canonical->bad_utf8 |= !name.ptr; /* no name is too long for the room */
    if (level->some)
        put(canonical, ",", 1);
    GRID_ASSERT(canonical->n_members < sizeof room->members / sizeof room->members[0]);
    room->members[canonical->n_members++] = (uint16_t)canonical->len;
    put(canonical, "\"", 1);
    if (name.len)
        put_escaped(canonical, name);
    put(canonical, "\":", 2);
    settle_member(canonical, level);
    return true;
}

/* Behind a value: to the next one, over closing brackets; false behind the outermost. */
static bool canonical_advance(struct canonical *canonical, struct grid_json *json)
{
    while (canonical->depth > 0) {
        struct canonical_level *level = &canonical->levels[canonical->depth - 1];
        bool more = level->object ? canonical_member(canonical, json, level) : grid_json_element(json);
        if (more && !level->object && level->some)
            put(canonical, ",", 1);
        if (more) {
            level->some = true;
            return true;
        }
        if (json->fault != GRID_JSON_FINE)
            return false;
        if (level->object)
            close_object(canonical, level);
        put(canonical, level->object ? "}" : "]", 1);
        canonical->depth--;
    }
    return false;
}

/* A whole number inside one slice, which most numbers are; false with nothing done for any other. */
static bool put_plain_number(struct canonical *canonical, struct grid_json *json)
{
    const char *from = json->cursor.at, *at = from;
    while (at < json->cursor.end && *at >= '0' && *at <= '9')
        at++;
    if (at == from || at == json->cursor.end || (*at != ',' && *at != '}' && *at != ']') ||
        (*from == '0' && at > from + 1))
        return false;
    put(canonical, from, (size_t)(at - from));
    json->cursor.at = at;
    json->fresh = false;
    return true;
}

static void canonical_scalar(struct canonical *canonical, struct grid_json *json, enum grid_json_kind kind)
{
    struct grid_json_decode decode;
    struct grid_json_raw raw;
    struct grid_str run;
    if (kind == GRID_JSON_NUMBER && put_plain_number(canonical, json))
        return;
    if (kind != GRID_JSON_STRING) {
        if (grid_json_raw(json, &raw))
            while (grid_json_raw_next(&raw, &run))
                put(canonical, run.ptr, run.len);
        return;
    }
    if (!grid_json_decode(json, &decode))
        return;
    put(canonical, "\"", 1);
    while (grid_json_decode_next(&decode, &run)) {
        if (run.ptr == decode.room)
            put_escaped(canonical, run);
        else
            put(canonical, run.ptr, run.len); /* as it stood in a string, so there is nothing to escape */
    }
    put(canonical, "\"", 1);
    canonical->bad_utf8 |= decode.bad;
}

enum grid_json_fault grid_canonical_write(struct grid_canonical_room *room, struct grid_json *json, size_t *out_len)
{
    struct canonical canonical;
    canonical.room = room;
    canonical.len = canonical.n_members = canonical.depth = canonical.word_of = 0;
    canonical.word = 0;
    canonical.bad_utf8 = false;
    do {
        enum grid_json_kind kind = grid_json_peek(json);
        if (kind == GRID_JSON_ARRAY || kind == GRID_JSON_OBJECT) {
            bool object = kind == GRID_JSON_OBJECT;
            if (canonical.depth == GRID_CANONICAL_MAX_DEPTH)
                return GRID_JSON_DEEP;
            grid_json_enter(json, kind);
            canonical.levels[canonical.depth++] =
                (struct canonical_level){object, false, false, (uint16_t)canonical.len, (uint16_t)canonical.n_members};
            put(&canonical, object ? "{" : "[", 1);
        } else {
            canonical_scalar(&canonical, json, kind);
        }
    } while (!canonical.bad_utf8 && json->fault == GRID_JSON_FINE && canonical_advance(&canonical, json));
    if (json->fault != GRID_JSON_FINE)
        return json->fault;
    *out_len = canonical.len;
    return canonical.bad_utf8 ? GRID_JSON_BAD_UTF8 : GRID_JSON_FINE;
}
