/*
 * canonical.c - JSON values in one spelling
 *
 * Story     Members are written as they come and put in order when their object closes; most already are. Output is
 *           never longer than what was sent, so the room always holds it.
 */
#include "canonical.h"

#include "check.h"

struct canonical_level {
    bool object, some;
    uint16_t start, first; /* of its text in out; of its members */
};

struct canonical {
    struct grid_canonical_room *room;
    size_t len, n_members, depth;
    bool bad_utf8;
    struct canonical_level levels[GRID_CANONICAL_MAX_DEPTH];
};

static void put(struct canonical *canonical, const char *bytes, size_t len)
{
    GRID_ASSERT(len <= sizeof canonical->room->out - canonical->len);
    memcpy(canonical->room->out + canonical->len, bytes, len);
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

/* By decoded UTF-8 bytes of the name. */
static int compare_names(const char *out, struct grid_canonical_member a, struct grid_canonical_member b)
{
    const char *left = out + a.start + 1, *right = out + b.start + 1;
    for (;;) {
        int x = name_byte(&left), y = name_byte(&right);
        if (x != y)
            return x < y ? -1 : 1;
        if (x < 0)
            return 0;
    }
}

static bool member_after(const char *out, struct grid_canonical_member a, struct grid_canonical_member b)
{
    int order = compare_names(out, a, b);
    return order > 0 || (order == 0 && a.start > b.start);
}

static void sift(const char *out, struct grid_canonical_member *members, size_t at, size_t n)
{
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && member_after(out, members[child + 1], members[child]))
            child++;
        if (!member_after(out, members[child], members[at]))
            return;
        struct grid_canonical_member swap = members[at];
        members[at] = members[child];
        members[child] = swap;
    }
}

/* Heap sort: in place, and never slow whatever a client sends. */
static void sort_members(const char *out, struct grid_canonical_member *members, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(out, members, i, n);
    for (size_t i = n; i-- > 1;) {
        struct grid_canonical_member swap = members[0];
        members[0] = members[i];
        members[i] = swap;
        sift(out, members, 0, i);
    }
}

/* Closes an object: members in order, of equal names the last. */
static void close_object(struct canonical *canonical, const struct canonical_level *level)
{
    struct grid_canonical_room *room = canonical->room;
    struct grid_canonical_member *members = room->members + level->first;
    size_t n = canonical->n_members - level->first, len = 0;
    bool ordered = true;
    canonical->n_members = level->first;
    if (n > 0)
        members[n - 1].len = (uint16_t)(canonical->len - members[n - 1].start);
    for (size_t i = 1; i < n && ordered; i++)
        ordered = compare_names(room->out, members[i - 1], members[i]) < 0;
    if (ordered)
        return;
    sort_members(room->out, members, n);
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && compare_names(room->out, members[i], members[i + 1]) == 0)
            continue;
        if (len)
            room->sorted[len++] = ',';
        memcpy(room->sorted + len, room->out + members[i].start, members[i].len);
        len += members[i].len;
    }
    memcpy(room->out + level->start + 1, room->sorted, len);
    canonical->len = level->start + 1 + len;
}

/* Writes a comma and the name of the next member; false behind the last one. */
static bool canonical_member(struct canonical *canonical, struct grid_json *json, const struct canonical_level *level)
{
    struct grid_canonical_room *room = canonical->room;
    struct grid_str name;
    if (!grid_json_member(json, room->sorted, sizeof room->sorted, &name))
        return false;
    canonical->bad_utf8 |= !name.ptr; /* no name is too long for the room */
    if (level->some) {
        struct grid_canonical_member *last = &room->members[canonical->n_members - 1];
        last->len = (uint16_t)(canonical->len - last->start);
        put(canonical, ",", 1);
    }
    GRID_ASSERT(canonical->n_members < sizeof room->members / sizeof room->members[0]);
    room->members[canonical->n_members++].start = (uint16_t)canonical->len;
    put(canonical, "\"", 1);
    if (name.len)
        put_escaped(canonical, name);
    put(canonical, "\":", 2);
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

static void canonical_scalar(struct canonical *canonical, struct grid_json *json, enum grid_json_kind kind)
{
    struct grid_json_decode decode;
    struct grid_json_raw raw;
    struct grid_str run;
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
    canonical.len = canonical.n_members = canonical.depth = 0;
    canonical.bad_utf8 = false;
    do {
        enum grid_json_kind kind = grid_json_peek(json);
        if (kind == GRID_JSON_ARRAY || kind == GRID_JSON_OBJECT) {
            bool object = kind == GRID_JSON_OBJECT;
            if (canonical.depth == GRID_CANONICAL_MAX_DEPTH)
                return GRID_JSON_DEEP;
            grid_json_enter(json, kind);
            canonical.levels[canonical.depth++] =
                (struct canonical_level){object, false, (uint16_t)canonical.len, (uint16_t)canonical.n_members};
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
