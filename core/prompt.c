/*
 * prompt.c - carries out the tables of prompt_tables.h
 *
 * Story     An object is scanned once, noting where its read fields are; then its rows are written in the stream's order
 *           by going back to those places. Lists and objects that are open stand on a short stack of frames, so pulling a
 *           piece is a step of a loop and nothing recurses.
 * Framing   A field is tag, 0x1F, content, 0x1F. Content is a JSON token (which holds no raw 0x1F), '#' and eight bytes
 *           of digest, or the length of a decoded name in eight bytes and the name. So no two prompts share a stream, and
 *           nothing that may grow at its end has a count ahead of it.
 */
#include "prompt.h"

#include "check.h"
#include "prompt_tables.h"

#define NAME_ROOM 32u /* longer than every name and type that is known */

static const struct grid_str field_end = {"\x1F", 1};
static const struct grid_str digest_mark = {"#", 1};
static const struct grid_str media_mark = {"\x1F#", 2};
/* What a message of role "user" begins with. */
static const struct grid_str user_role = {"role\x1F\x04\0\0\0\0\0\0\0user\x1F", 5 + 8 + 4 + 1};
/* A text block of a system list that one client changes on each request (behaviour.md O.17). */
static const struct grid_str billing = {"x-anthropic-billing-header", 26};

static void refuse(struct grid_prompt *prompt, enum grid_reason reason)
{
    if (prompt->reason == GRID_REASON_NONE)
        prompt->reason = reason;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------- */

static struct grid_piece *push(struct grid_prompt *prompt, enum grid_piece_kind kind)
{
    GRID_ASSERT(prompt->n_queue < GRID_PROMPT_QUEUE);
    struct grid_piece *piece = &prompt->queue[prompt->n_queue++];
    piece->kind = kind;
    return piece;
}

static void push_text(struct grid_prompt *prompt, enum grid_piece_kind kind, struct grid_str text)
{
    push(prompt, kind)->text = text;
}

static void push_raw(struct grid_prompt *prompt, enum grid_piece_kind kind, struct grid_json_raw raw)
{
    push(prompt, kind)->raw = raw;
}

static void push_literal(struct grid_prompt *prompt, struct grid_str text)
{
    push_text(prompt, GRID_PIECE_LITERAL, text);
}

/* ---- canonical JSON (behaviour.md C.3) ----------------------------------------------------------------------------
 * Output is never longer than what was sent, so it fits the room. Members are written as they come and put in order when
 * their object closes; most already are. */

struct canonical_level {
    bool object, some;
    uint16_t start, first; /* of its text in out; of its members */
};

struct canonical {
    struct grid_prompt_room *room;
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
static int compare_names(const char *out, struct grid_prompt_member a, struct grid_prompt_member b)
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

static bool member_after(const char *out, struct grid_prompt_member a, struct grid_prompt_member b)
{
    int order = compare_names(out, a, b);
    return order > 0 || (order == 0 && a.start > b.start);
}

static void sift(const char *out, struct grid_prompt_member *members, size_t at, size_t n)
{
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && member_after(out, members[child + 1], members[child]))
            child++;
        if (!member_after(out, members[child], members[at]))
            return;
        struct grid_prompt_member swap = members[at];
        members[at] = members[child];
        members[child] = swap;
    }
}

/* Heap sort: in place, and never slow whatever a client sends. */
static void sort_members(const char *out, struct grid_prompt_member *members, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(out, members, i, n);
    for (size_t i = n; i-- > 1;) {
        struct grid_prompt_member swap = members[0];
        members[0] = members[i];
        members[i] = swap;
        sift(out, members, 0, i);
    }
}

/* Closes an object: members in order, of equal names the last. */
static void close_object(struct canonical *canonical, const struct canonical_level *level)
{
    struct grid_prompt_room *room = canonical->room;
    struct grid_prompt_member *members = room->members + level->first;
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
    struct grid_prompt_room *room = canonical->room;
    struct grid_str name;
    if (!grid_json_member(json, room->sorted, sizeof room->sorted, &name))
        return false;
    canonical->bad_utf8 |= !name.ptr; /* no name is too long for the room */
    if (level->some) {
        struct grid_prompt_member *last = &room->members[canonical->n_members - 1];
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

/* Writes the value that `json` stands before, at most GRID_CANONICAL_MAX_BYTES as sent, into room->out. */
static enum grid_json_fault canonical_value(struct grid_prompt_room *room, struct grid_json *json, size_t *out_len)
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

/* ---- objects ------------------------------------------------------------------------------------------------------ */

static size_t field_slot(uint64_t reads, enum field field)
{
    return (size_t)__builtin_popcountll(reads & (((uint64_t)1 << field) - 1));
}

static enum field field_of(uint64_t reads, struct grid_str name)
{
    for (; reads; reads &= reads - 1) {
        int field = __builtin_ctzll(reads);
        if (grid_str_eq(field_names[field], name))
            return (enum field)field;
    }
    return F_none;
}

/* Passes the object that is next, noting where the fields of `reads` are; of a repeated one, the last. */
static void scan(struct grid_json *json, uint64_t reads, struct grid_prompt_fields *out)
{
    char room[NAME_ROOM];
    struct grid_str name;
    out->seen = out->present = 0;
    out->twice = false;
    if (!grid_json_enter(json, GRID_JSON_OBJECT))
        return;
    while (grid_json_member(json, room, sizeof room, &name)) {
        enum field field = field_of(reads, name);
        bool null = grid_json_peek(json) == GRID_JSON_NULL;
        struct grid_cursor at = json->cursor;
        if (!grid_json_skip(json))
            return;
        if (field == F_none)
            continue;
        uint64_t bit = (uint64_t)1 << field;
        out->twice |= (out->seen & bit) != 0;
        out->seen |= bit;
        out->present = null ? out->present & ~bit : out->present | bit;
        out->at[field_slot(reads, field)] = at;
    }
}

/* Puts the prompt's reader before a field that is present; its kind. */
static enum grid_json_kind place(struct grid_prompt *prompt, uint64_t reads, const struct grid_prompt_fields *fields,
                                 enum field field)
{
    prompt->json.cursor = fields->at[field_slot(reads, field)];
    prompt->json.fresh = false;
    return grid_json_peek(&prompt->json);
}

static bool has(const struct grid_prompt_fields *fields, enum field field)
{
    return field < F_none && (fields->present >> field & 1);
}

static struct grid_prompt_frame *frame_open(struct grid_prompt *prompt)
{
    if (prompt->n_frames == GRID_PROMPT_FRAMES) {
        refuse(prompt, GRID_REASON_TOO_DEEP);
        return NULL;
    }
    struct grid_prompt_frame *frame = &prompt->frames[prompt->n_frames++];
    frame->list = frame->system = false;
    frame->step = frame->n_steps = frame->row = 0;
    return frame;
}

/* Which variant an object is, by its type; false with a reason. */
static bool choose_variant(struct grid_prompt *prompt, struct grid_prompt_frame *frame)
{
    const struct grid_prompt_object *object = frame->object;
    char room[NAME_ROOM];
    struct grid_str type = grid_str_of(object->plain_type);
    if (!object->variants[0].type) {
        frame->n_steps = object->variants[0].n_rows;
        return true;
    }
    if (has(&frame->fields, F_type)) {
        if (place(prompt, object->reads, &frame->fields, F_type) != GRID_JSON_STRING) {
            refuse(prompt, GRID_REASON_BAD_TYPE);
            return false;
        }
        type = (struct grid_str){room, 0}; /* no variant, if it is too long to be one that is known */
        if (grid_json_text(&prompt->json, room, sizeof room, &type) == GRID_JSON_BAD_UTF8)
            refuse(prompt, GRID_REASON_BAD_UTF8);
    } else if (!type.ptr) {
        refuse(prompt, GRID_REASON_MISSING_FIELD);
    }
    for (size_t i = 0; i < object->n_variants; i++) {
        if (grid_str_eq(grid_str_of(object->variants[i].type), type)) {
            frame->row = i;
            frame->n_steps = object->variants[i].n_rows;
            return prompt->reason == GRID_REASON_NONE;
        }
    }
    refuse(prompt, GRID_REASON_UNKNOWN_PART);
    return false;
}

/* Begins to walk the object that `json` stands before, and passes it there. */
static void open_object(struct grid_prompt *prompt, struct grid_json *json, const struct grid_prompt_object *object)
{
    if (grid_json_peek(json) != GRID_JSON_OBJECT) {
        refuse(prompt, GRID_REASON_BAD_TYPE);
        return;
    }
    struct grid_prompt_frame *frame = frame_open(prompt);
    if (!frame)
        return;
    frame->object = object;
    scan(json, object->reads, &frame->fields);
    if (json->fault != GRID_JSON_FINE)
        refuse(prompt, GRID_REASON_NOT_JSON);
    if (frame->fields.twice)
        refuse(prompt, GRID_REASON_DUPLICATE_FIELD);
    if (object->one_of && !(frame->fields.present & object->one_of))
        refuse(prompt, GRID_REASON_UNKNOWN_PART);
    if (prompt->reason == GRID_REASON_NONE)
        choose_variant(prompt, frame);
}

/* ---- rows --------------------------------------------------------------------------------------------------------- */

static struct grid_str tag_of(const struct row *row)
{
    return grid_str_of(row->tag);
}

/* The token that the prompt's reader stands before. */
static bool take_raw(struct grid_prompt *prompt, struct grid_json_raw *out_raw)
{
    if (grid_json_raw(&prompt->json, out_raw))
        return true;
    refuse(prompt, GRID_REASON_NOT_JSON);
    return false;
}

/* A field whose content is a token: as sent, or its digest. */
static void write_token(struct grid_prompt *prompt, struct grid_str tag, struct grid_json_raw raw, bool digest)
{
    push_literal(prompt, tag);
    if (digest)
        push_literal(prompt, digest_mark);
    push_raw(prompt, digest ? GRID_PIECE_DIGEST : GRID_PIECE_RAW, raw);
    push_literal(prompt, field_end);
}

static void write_text(struct grid_prompt *prompt, struct grid_str tag)
{
    struct grid_json_raw raw;
    if (grid_json_peek(&prompt->json) != GRID_JSON_STRING)
        refuse(prompt, GRID_REASON_BAD_TYPE);
    else if (take_raw(prompt, &raw))
        write_token(prompt, tag, raw, false);
}

static void write_sent(struct grid_prompt *prompt, struct grid_str tag, enum grid_json_kind kind)
{
    struct grid_json_raw raw;
    if (take_raw(prompt, &raw))
        write_token(prompt, tag, raw, kind != GRID_JSON_STRING && raw.bytes > GRID_CANONICAL_MAX_BYTES);
}

/* Decodes once ahead of use: whether a name is valid must not depend on how much of it is used. */
static bool measure_name(struct grid_prompt *prompt, struct grid_json_decode *out_name, size_t *out_bytes)
{
    struct grid_json_decode measure;
    struct grid_str run;
    size_t bytes = 0;
    if (grid_json_peek(&prompt->json) != GRID_JSON_STRING) {
        refuse(prompt, GRID_REASON_BAD_TYPE);
        return false;
    }
    if (!grid_json_decode(&prompt->json, out_name)) {
        refuse(prompt, GRID_REASON_NOT_JSON);
        return false;
    }
    measure = *out_name;
    while (grid_json_decode_next(&measure, &run))
        bytes += run.len;
    if (measure.bad)
        refuse(prompt, GRID_REASON_BAD_UTF8);
    *out_bytes = bytes;
    return !measure.bad;
}

static void write_name(struct grid_prompt *prompt, struct grid_str tag)
{
    struct grid_json_decode name;
    size_t bytes;
    if (!measure_name(prompt, &name, &bytes))
        return;
    push_literal(prompt, tag);
    struct grid_piece *piece = push(prompt, GRID_PIECE_DECODED);
    piece->name = name;
    piece->name_bytes = bytes;
    push_literal(prompt, field_end);
}

static void push_canonical(struct grid_prompt *prompt, struct grid_str tag, size_t len)
{
    push_literal(prompt, tag);
    push_text(prompt, GRID_PIECE_CANONICAL, (struct grid_str){prompt->room->out, len});
    push_literal(prompt, field_end);
}

static void write_canonical(struct grid_prompt *prompt, struct grid_str tag)
{
    struct grid_json value = prompt->json;
    struct grid_json_raw raw;
    size_t len;
    if (!take_raw(prompt, &raw))
        return;
    if (raw.bytes > GRID_CANONICAL_MAX_BYTES) {
        write_token(prompt, tag, raw, true);
        return;
    }
    enum grid_json_fault fault = canonical_value(prompt->room, &value, &len);
    if (fault == GRID_JSON_FINE)
        push_canonical(prompt, tag, len);
    else
        refuse(prompt, fault == GRID_JSON_DEEP ? GRID_REASON_TOO_DEEP : GRID_REASON_BAD_UTF8);
}

/* A string that holds JSON. Whatever is wrong with what it holds, it then counts as it was sent. */
static void write_arguments(struct grid_prompt *prompt, struct grid_str tag, enum grid_json_kind kind)
{
    struct grid_json value = prompt->json, inner;
    struct grid_json_raw raw;
    struct grid_str text;
    size_t len;
    if (!take_raw(prompt, &raw))
        return;
    bool digest = raw.bytes > GRID_CANONICAL_MAX_BYTES;
    if (!digest && kind == GRID_JSON_STRING &&
        grid_json_text(&value, prompt->room->decoded, sizeof prompt->room->decoded, &text) == GRID_JSON_FINE) {
        grid_json_init(&inner, &text, 1);
        if (canonical_value(prompt->room, &inner, &len) == GRID_JSON_FINE && grid_json_finish(&inner)) {
            push_canonical(prompt, tag, len);
            return;
        }
    }
    write_token(prompt, tag, raw, digest);
}

static void write_list(struct grid_prompt *prompt, const struct row *row)
{
    if (grid_json_peek(&prompt->json) != GRID_JSON_ARRAY) {
        refuse(prompt, GRID_REASON_BAD_TYPE);
        return;
    }
    struct grid_prompt_frame *frame = frame_open(prompt);
    if (!frame)
        return;
    frame->list = true;
    frame->system = row->field == F_system;
    frame->object = row->inner;
    frame->json = prompt->json;
    frame->behind = grid_str_of(row->behind);
    grid_json_enter(&frame->json, GRID_JSON_ARRAY);
}

static void write_content(struct grid_prompt *prompt, const struct row *row, enum grid_json_kind kind)
{
    if (kind != GRID_JSON_STRING) {
        write_list(prompt, row);
        return;
    }
    if (row->rule == RULE_INPUT)
        push_literal(prompt, user_role);
    write_text(prompt, tag_of(row));
    if (row->behind)
        push_literal(prompt, grid_str_of(row->behind));
}

/* The digest of the string that the reader stands before, under the part's type. */
static void write_media(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, bool any)
{
    struct grid_json_raw raw;
    if (!any && grid_json_peek(&prompt->json) != GRID_JSON_STRING) {
        refuse(prompt, GRID_REASON_BAD_TYPE);
        return;
    }
    if (!take_raw(prompt, &raw))
        return;
    push_literal(prompt, grid_str_of(frame->object->variants[frame->row].type));
    push_literal(prompt, media_mark);
    push_raw(prompt, GRID_PIECE_DIGEST, raw);
    push_literal(prompt, field_end);
}

/* The payload of a media part: the first of the row's keys, in the row's field or in the part itself. */
static void write_payload(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, const struct row *row)
{
    const struct grid_prompt_fields *from = &frame->fields;
    uint64_t reads = frame->object->reads;
    struct grid_prompt_fields inner;
    if (row->field != F_none) {
        if (place(prompt, reads, from, row->field) != GRID_JSON_OBJECT) {
            refuse(prompt, GRID_REASON_BAD_TYPE);
            return;
        }
        reads = 0;
        for (size_t i = 0; i < COUNT(row->keys) && row->keys[i] != F_none; i++)
            reads |= (uint64_t)1 << row->keys[i];
        scan(&prompt->json, reads, &inner);
        from = &inner;
        if (inner.twice)
            refuse(prompt, GRID_REASON_DUPLICATE_FIELD);
    }
    for (size_t i = 0; i < COUNT(row->keys) && row->keys[i] != F_none; i++) {
        if (has(from, row->keys[i])) {
            place(prompt, reads, from, row->keys[i]);
            write_media(prompt, frame, false);
            return;
        }
    }
    refuse(prompt, GRID_REASON_MISSING_FIELD);
}

static void write_part(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, const struct row *row)
{
    uint64_t reads = frame->object->reads;
    if (has(&frame->fields, F_uuid) && place(prompt, reads, &frame->fields, F_uuid) == GRID_JSON_STRING) {
        write_media(prompt, frame, false);
    } else if (row->field != F_none && !has(&frame->fields, row->field)) {
        refuse(prompt, GRID_REASON_MISSING_FIELD);
    } else if (row->rule == RULE_EMBEDS) {
        place(prompt, reads, &frame->fields, row->field);
        write_media(prompt, frame, true);
    } else {
        write_payload(prompt, frame, row);
    }
}

/* Completions: one string, or an array of one string. */
static void write_prompt(struct grid_prompt *prompt, struct grid_str tag, enum grid_json_kind kind)
{
    struct grid_json *json = &prompt->json;
    if (kind == GRID_JSON_ARRAY) {
        grid_json_enter(json, GRID_JSON_ARRAY);
        if (!grid_json_element(json)) {
            refuse(prompt, GRID_REASON_MANY_PROMPTS);
            return;
        }
        kind = grid_json_peek(json);
        if (kind == GRID_JSON_NUMBER || kind == GRID_JSON_ARRAY)
            refuse(prompt, GRID_REASON_TOKEN_ARRAY);
        struct grid_json behind = *json;
        if (grid_json_skip(&behind) && grid_json_element(&behind))
            refuse(prompt, GRID_REASON_MANY_PROMPTS);
    }
    write_text(prompt, tag);
}

static void write_present(struct grid_prompt *prompt, const struct row *row, enum grid_json_kind kind)
{
    struct grid_json json;
    switch (row->rule) {
    case RULE_TEXT:
        write_text(prompt, tag_of(row));
        return;
    case RULE_NAME:
        write_name(prompt, tag_of(row));
        return;
    case RULE_SENT:
        write_sent(prompt, tag_of(row), kind);
        return;
    case RULE_ARGUMENTS:
        write_arguments(prompt, tag_of(row), kind);
        return;
    case RULE_OUTPUT:
        if (kind == GRID_JSON_STRING)
            write_text(prompt, tag_of(row));
        else
            write_canonical(prompt, tag_of(row));
        return;
    case RULE_CANONICAL:
        write_canonical(prompt, tag_of(row));
        return;
    case RULE_CONTENT:
    case RULE_INPUT:
        write_content(prompt, row, kind);
        return;
    case RULE_LIST:
        write_list(prompt, row);
        return;
    case RULE_OBJECT:
        json = prompt->json;
        open_object(prompt, &json, row->inner);
        return;
    case RULE_PROMPT:
        write_prompt(prompt, tag_of(row), kind);
        return;
    case RULE_REFUSED:
        refuse(prompt, row->reason);
        return;
    case RULE_MEDIA:
    case RULE_EMBEDS:
    case RULE_MARK:
        return;
    }
}

static void write_row(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, const struct row *row)
{
    if (row->rule == RULE_MARK) {
        push_literal(prompt, tag_of(row));
    } else if (row->rule == RULE_MEDIA || row->rule == RULE_EMBEDS) {
        write_part(prompt, frame, row);
    } else if (has(&frame->fields, row->field)) {
        write_present(prompt, row, place(prompt, frame->object->reads, &frame->fields, row->field));
    } else if (row->need == REQUIRED || (row->need == NULLABLE && !(frame->fields.seen >> row->field & 1))) {
        refuse(prompt, GRID_REASON_MISSING_FIELD);
    }
}

/* ---- walking ------------------------------------------------------------------------------------------------------ */

/* A block of a system list that is not part of the prompt. Only its first bytes are decoded, and their UTF-8 is not
 * judged: whether the block is skipped must not depend on what is behind them. */
static bool is_billing(struct grid_prompt *prompt, const struct grid_prompt_frame *frame)
{
    struct grid_json_decode decode;
    struct grid_str run;
    size_t len = 0;
    const char *type = frame->object->variants[frame->row].type;
    if (!type || !grid_str_eq(grid_str_of(type), GRID_LIT("text")) || !has(&frame->fields, F_text) ||
        place(prompt, frame->object->reads, &frame->fields, F_text) != GRID_JSON_STRING ||
        !grid_json_decode(&prompt->json, &decode))
        return false;
    decode.high = false;
    while (len < billing.len && grid_json_decode_next(&decode, &run)) {
        size_t some = run.len < billing.len - len ? run.len : billing.len - len;
        if (memcmp(run.ptr, billing.ptr + len, some) != 0)
            return false;
        len += some;
    }
    return len == billing.len;
}

static void step_list(struct grid_prompt *prompt, struct grid_prompt_frame *frame)
{
    if (grid_json_element(&frame->json)) {
        size_t level = prompt->n_frames;
        open_object(prompt, &frame->json, frame->object);
        if (frame->system && prompt->n_frames > level && prompt->reason == GRID_REASON_NONE &&
            is_billing(prompt, &prompt->frames[level]))
            prompt->n_frames = level;
        return;
    }
    if (frame->json.fault != GRID_JSON_FINE)
        refuse(prompt, GRID_REASON_NOT_JSON);
    prompt->n_frames--;
    if (frame->behind.len)
        push_literal(prompt, frame->behind);
}

static void step(struct grid_prompt *prompt)
{
    struct grid_prompt_frame *frame = &prompt->frames[prompt->n_frames - 1];
    if (frame->list)
        step_list(prompt, frame);
    else if (frame->step == frame->n_steps)
        prompt->n_frames--;
    else
        write_row(prompt, frame, &frame->object->variants[frame->row].rows[frame->step++]);
}

const struct grid_piece *grid_prompt_next(struct grid_prompt *prompt)
{
    while (prompt->reason == GRID_REASON_NONE) {
        if (prompt->queue_at < prompt->n_queue)
            return &prompt->queue[prompt->queue_at++];
        prompt->queue_at = prompt->n_queue = 0;
        if (prompt->n_frames == 0)
            return NULL;
        step(prompt);
    }
    return NULL;
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

/* The last `model` of the body, when it is a text of a fitting length. */
static void read_model(struct grid_prompt *prompt, const struct grid_prompt_frame *top)
{
    struct grid_str model;
    if (!has(&top->fields, F_model) || place(prompt, top->object->reads, &top->fields, F_model) != GRID_JSON_STRING)
        return;
    enum grid_json_fault fault = grid_json_text(&prompt->json, prompt->model, sizeof prompt->model, &model);
    if (fault == GRID_JSON_BAD_UTF8)
        refuse(prompt, GRID_REASON_BAD_UTF8);
    if (fault != GRID_JSON_FINE || model.len == 0)
        return;
    prompt->has_model = true;
    prompt->model_len = model.len;
}

static void read_salt(struct grid_prompt *prompt, const struct grid_prompt_frame *top)
{
    size_t bytes;
    if (!has(&top->fields, F_cache_salt))
        return;
    place(prompt, top->object->reads, &top->fields, F_cache_salt);
    prompt->has_salt = measure_name(prompt, &prompt->salt, &bytes);
}

/* The one look at the whole body. Returns why there are no keys, if that is known by now. */
static enum grid_reason look(struct grid_prompt *prompt, struct grid_json *json, struct grid_prompt_frame *top,
                             bool cut)
{
    enum grid_json_kind kind = GRID_JSON_NOTHING;
    if (!grid_cursor_settle(&json->cursor))
        return cut ? GRID_REASON_BODY_TOO_LARGE : GRID_REASON_EMPTY;
    kind = grid_json_peek(json);
    if (kind == GRID_JSON_OBJECT)
        scan(json, top->object->reads, &top->fields);
    else if (kind != GRID_JSON_NOTHING)
        grid_json_skip(json);
    bool whole = grid_json_finish(json);
    if (whole || (cut && json->fault == GRID_JSON_ENDED))
        read_model(prompt, top);
    if (cut)
        return GRID_REASON_BODY_TOO_LARGE;
    if (!whole)
        return GRID_REASON_NOT_JSON;
    if (kind != GRID_JSON_OBJECT)
        return GRID_REASON_NOT_OBJECT;
    return top->fields.twice ? GRID_REASON_DUPLICATE_FIELD : GRID_REASON_NONE;
}

void grid_prompt_open(struct grid_prompt *prompt, enum grid_api api, const struct grid_str *slices, size_t n_slices,
                      bool cut, struct grid_lex_memo *memo, struct grid_prompt_room *room)
{
    struct grid_json json;
    prompt->reason = GRID_REASON_NONE;
    prompt->has_model = prompt->has_salt = false;
    prompt->model_len = 0;
    prompt->room = room;
    prompt->n_frames = prompt->n_queue = prompt->queue_at = 0;
    grid_json_init(&json, slices, n_slices);
    json.memo = memo;
    prompt->json = json;
    struct grid_prompt_frame *top = frame_open(prompt);
    top->object = tops[api];
    top->fields.seen = top->fields.present = 0;
    top->fields.twice = false;
    enum grid_reason reason = look(prompt, &json, top, cut);
    if (reason != GRID_REASON_NONE)
        prompt->reason = reason; /* outranks a fault of the model */
    if (prompt->reason != GRID_REASON_NONE || api == GRID_API_NONE) {
        prompt->n_frames = 0;
        return;
    }
    top->n_steps = top->object->variants[0].n_rows;
    read_salt(prompt, top);
}
