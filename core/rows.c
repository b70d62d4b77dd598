/*
 * rows.c - carries out the rows of prompt_tables.h
 *
 * Story     An object is scanned once, noting where its read fields are; then its rows are written in the stream's
 *           order by going back to those places. Writing a row queues its pieces, and opens a frame for what lies
 *           inside it.
 * Framing   A field is tag, 0x1F, content, 0x1F. Content is a JSON token (which holds no raw 0x1F), '#' and eight bytes
 *           of digest, or the length of a decoded name in eight bytes and the name. So no two prompts share a stream,
 *           and nothing that may grow at its end has a count ahead of it.
 */
#include "rows.h"

#include "check.h"

#define NAME_ROOM 32u /* longer than every name and type that is known */

static const struct grid_str field_end = {"\x1F", 1};
static const struct grid_str digest_mark = {"#", 1};
static const struct grid_str media_mark = {"\x1F#", 2};
/* What a message of role "user" begins with. */
static const struct grid_str user_role = {"role\x1F\x04\0\0\0\0\0\0\0user\x1F", 5 + 8 + 4 + 1};
void grid_rows_refuse(struct grid_prompt *prompt, enum grid_reason reason)
{
    if (prompt->reason == GRID_REASON_NONE)
        prompt->reason = reason;
}

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

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

void grid_rows_push(struct grid_prompt *prompt, struct grid_str text)
{
    push_text(prompt, GRID_PIECE_LITERAL, text);
}

/* ---- objects ---------------------------------------------------------------------------------------------------- */

/* Fields of one object have places in the order of their bits. */
static inline size_t field_slot(uint64_t reads, enum field field)
{
    size_t slot = 0;
    for (uint64_t below = reads & (((uint64_t)1 << field) - 1); below; below &= below - 1)
        slot++;
    return slot;
}

static enum field field_of(uint64_t reads, struct grid_str name)
{
    for (; reads; reads &= reads - 1) {
        int field = __builtin_ctzll(reads);
        if (field_names[field].len == name.len && field_names[field].ptr[0] == name.ptr[0] &&
            memcmp(field_names[field].ptr, name.ptr, name.len) == 0)
            return (enum field)field;
    }
    return F_none;
}

/* Passes the object that is next, noting where the fields of `reads` are; of a repeated one, the last. */
void grid_rows_scan(struct grid_json *json, uint64_t reads, struct grid_prompt_fields *out)
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
enum grid_json_kind grid_rows_place(struct grid_prompt *prompt, uint64_t reads, const struct grid_prompt_fields *fields,
                                    enum field field)
{
    prompt->json.cursor = fields->at[field_slot(reads, field)];
    prompt->json.fresh = false;
    return grid_json_peek(&prompt->json);
}

bool grid_rows_has(const struct grid_prompt_fields *fields, enum field field)
{
    return field < F_none && (fields->present >> field & 1);
}

struct grid_prompt_frame *grid_rows_frame(struct grid_prompt *prompt)
{
    if (prompt->n_frames == GRID_PROMPT_FRAMES) {
        grid_rows_refuse(prompt, GRID_REASON_TOO_DEEP);
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
    if (grid_rows_has(&frame->fields, F_type)) {
        if (grid_rows_place(prompt, object->reads, &frame->fields, F_type) != GRID_JSON_STRING) {
            grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
            return false;
        }
        type = (struct grid_str){room, 0}; /* no variant, if it is too long to be one that is known */
        if (grid_json_text(&prompt->json, room, sizeof room, &type) == GRID_JSON_BAD_UTF8)
            grid_rows_refuse(prompt, GRID_REASON_BAD_UTF8);
    } else if (!type.ptr) {
        grid_rows_refuse(prompt, GRID_REASON_MISSING_FIELD);
    }
    for (size_t i = 0; i < object->n_variants; i++) {
        if (grid_str_eq(grid_str_of(object->variants[i].type), type)) {
            frame->row = i;
            frame->n_steps = object->variants[i].n_rows;
            return prompt->reason == GRID_REASON_NONE;
        }
    }
    grid_rows_refuse(prompt, GRID_REASON_UNKNOWN_PART);
    return false;
}

/* Begins to walk the object that `json` stands before, and passes it there. */
void grid_rows_open(struct grid_prompt *prompt, struct grid_json *json, const struct grid_prompt_object *object)
{
    if (grid_json_peek(json) != GRID_JSON_OBJECT) {
        grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
        return;
    }
    struct grid_prompt_frame *frame = grid_rows_frame(prompt);
    if (!frame)
        return;
    frame->object = object;
    grid_rows_scan(json, object->reads, &frame->fields);
    if (json->fault != GRID_JSON_FINE)
        grid_rows_refuse(prompt, GRID_REASON_NOT_JSON);
    if (frame->fields.twice)
        grid_rows_refuse(prompt, GRID_REASON_DUPLICATE_FIELD);
    if (object->one_of && !(frame->fields.present & object->one_of))
        grid_rows_refuse(prompt, GRID_REASON_UNKNOWN_PART);
    if (prompt->reason == GRID_REASON_NONE)
        choose_variant(prompt, frame);
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static struct grid_str tag_of(const struct row *row)
{
    return grid_str_of(row->tag);
}

/* The token that the prompt's reader stands before. */
static bool take_raw(struct grid_prompt *prompt, struct grid_json_raw *out_raw)
{
    if (grid_json_raw(&prompt->json, out_raw))
        return true;
    grid_rows_refuse(prompt, GRID_REASON_NOT_JSON);
    return false;
}

/* A field whose content is a token: as sent, or its digest. */
static void write_token(struct grid_prompt *prompt, struct grid_str tag, struct grid_json_raw raw, bool digest)
{
    grid_rows_push(prompt, tag);
    if (digest)
        grid_rows_push(prompt, digest_mark);
    push_raw(prompt, digest ? GRID_PIECE_DIGEST : GRID_PIECE_RAW, raw);
    grid_rows_push(prompt, field_end);
}

static void write_text(struct grid_prompt *prompt, struct grid_str tag)
{
    struct grid_json_raw raw;
    if (grid_json_peek(&prompt->json) != GRID_JSON_STRING)
        grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
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
bool grid_rows_measure(struct grid_prompt *prompt, struct grid_json_decode *out_name, size_t *out_bytes)
{
    struct grid_json_decode measure;
    struct grid_str run;
    size_t bytes = 0;
    if (grid_json_peek(&prompt->json) != GRID_JSON_STRING) {
        grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
        return false;
    }
    if (!grid_json_decode(&prompt->json, out_name)) {
        grid_rows_refuse(prompt, GRID_REASON_NOT_JSON);
        return false;
    }
    measure = *out_name;
    while (grid_json_decode_next(&measure, &run))
        bytes += run.len;
    if (measure.bad)
        grid_rows_refuse(prompt, GRID_REASON_BAD_UTF8);
    *out_bytes = bytes;
    return !measure.bad;
}

static void write_name(struct grid_prompt *prompt, struct grid_str tag)
{
    struct grid_json_decode name;
    size_t bytes;
    if (!grid_rows_measure(prompt, &name, &bytes))
        return;
    grid_rows_push(prompt, tag);
    struct grid_piece *piece = push(prompt, GRID_PIECE_DECODED);
    piece->name = name;
    piece->name_bytes = bytes;
    grid_rows_push(prompt, field_end);
}

static void push_canonical(struct grid_prompt *prompt, struct grid_str tag, size_t len)
{
    grid_rows_push(prompt, tag);
    push_text(prompt, GRID_PIECE_CANONICAL, (struct grid_str){prompt->room->out, len});
    grid_rows_push(prompt, field_end);
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
    enum grid_json_fault fault = grid_canonical_write(prompt->room, &value, &len);
    if (fault == GRID_JSON_FINE)
        push_canonical(prompt, tag, len);
    else
        grid_rows_refuse(prompt, fault == GRID_JSON_DEEP ? GRID_REASON_TOO_DEEP : GRID_REASON_BAD_UTF8);
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
        if (grid_canonical_write(prompt->room, &inner, &len) == GRID_JSON_FINE && grid_json_finish(&inner)) {
            push_canonical(prompt, tag, len);
            return;
        }
    }
    write_token(prompt, tag, raw, digest);
}

static void write_list(struct grid_prompt *prompt, const struct row *row)
{
    if (grid_json_peek(&prompt->json) != GRID_JSON_ARRAY) {
        grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
        return;
    }
    struct grid_prompt_frame *frame = grid_rows_frame(prompt);
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
        grid_rows_push(prompt, user_role);
    write_text(prompt, tag_of(row));
    if (row->behind)
        grid_rows_push(prompt, grid_str_of(row->behind));
}

/* The digest of the string that the reader stands before, under the part's type. */
static void write_media(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, bool any)
{
    struct grid_json_raw raw;
    if (!any && grid_json_peek(&prompt->json) != GRID_JSON_STRING) {
        grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
        return;
    }
    if (!take_raw(prompt, &raw))
        return;
    grid_rows_push(prompt, grid_str_of(frame->object->variants[frame->row].type));
    grid_rows_push(prompt, media_mark);
    push_raw(prompt, GRID_PIECE_DIGEST, raw);
    grid_rows_push(prompt, field_end);
}

/* The payload of a media part: the first of the row's keys, in the row's field or in the part itself. */
static void write_payload(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, const struct row *row)
{
    const struct grid_prompt_fields *from = &frame->fields;
    uint64_t reads = frame->object->reads;
    struct grid_prompt_fields inner;
    if (row->field != F_none) {
        if (grid_rows_place(prompt, reads, from, row->field) != GRID_JSON_OBJECT) {
            grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
            return;
        }
        reads = 0;
        for (size_t i = 0; i < COUNT(row->keys) && row->keys[i] != F_none; i++)
            reads |= (uint64_t)1 << row->keys[i];
        grid_rows_scan(&prompt->json, reads, &inner);
        from = &inner;
        if (inner.twice)
            grid_rows_refuse(prompt, GRID_REASON_DUPLICATE_FIELD);
    }
    for (size_t i = 0; i < COUNT(row->keys) && row->keys[i] != F_none; i++) {
        if (grid_rows_has(from, row->keys[i])) {
            grid_rows_place(prompt, reads, from, row->keys[i]);
            write_media(prompt, frame, false);
            return;
        }
    }
    grid_rows_refuse(prompt, GRID_REASON_MISSING_FIELD);
}

static void write_part(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, const struct row *row)
{
    uint64_t reads = frame->object->reads;
    if (grid_rows_has(&frame->fields, F_uuid) &&
        grid_rows_place(prompt, reads, &frame->fields, F_uuid) == GRID_JSON_STRING) {
        write_media(prompt, frame, false);
    } else if (row->field != F_none && !grid_rows_has(&frame->fields, row->field)) {
        grid_rows_refuse(prompt, GRID_REASON_MISSING_FIELD);
    } else if (row->rule == RULE_EMBEDS) {
        grid_rows_place(prompt, reads, &frame->fields, row->field);
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
            grid_rows_refuse(prompt, GRID_REASON_MANY_PROMPTS);
            return;
        }
        kind = grid_json_peek(json);
        if (kind == GRID_JSON_NUMBER || kind == GRID_JSON_ARRAY)
            grid_rows_refuse(prompt, GRID_REASON_TOKEN_ARRAY);
        struct grid_json behind = *json;
        if (grid_json_skip(&behind) && grid_json_element(&behind))
            grid_rows_refuse(prompt, GRID_REASON_MANY_PROMPTS);
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
        grid_rows_open(prompt, &json, row->inner);
        return;
    case RULE_PROMPT:
        write_prompt(prompt, tag_of(row), kind);
        return;
    case RULE_REFUSED:
        grid_rows_refuse(prompt, row->reason);
        return;
    case RULE_MEDIA:
    case RULE_EMBEDS:
    case RULE_MARK:
        return;
    }
}

void grid_rows_write(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, const struct row *row)
{
    if (row->rule == RULE_MARK) {
        grid_rows_push(prompt, tag_of(row));
    } else if (row->rule == RULE_MEDIA || row->rule == RULE_EMBEDS) {
        write_part(prompt, frame, row);
    } else if (grid_rows_has(&frame->fields, row->field)) {
        write_present(prompt, row, grid_rows_place(prompt, frame->object->reads, &frame->fields, row->field));
    } else if (row->need == REQUIRED || (row->need == NULLABLE && !(frame->fields.seen >> row->field & 1))) {
        grid_rows_refuse(prompt, GRID_REASON_MISSING_FIELD);
    }
}

const struct grid_prompt_object *grid_rows_top(enum grid_api api)
{
    return tops[api];
}
