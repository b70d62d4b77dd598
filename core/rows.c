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

#define NAME_ROOM 32u /* longer than every type that is known */

/* What a message of role "user" begins with, and its text. */
static const struct grid_tag user_text = {"role\x1F\x04\0\0\0\0\0\0\0user\x1Ftext\x1F", 5 + 8 + 4 + 1 + 5};

void grid_rows_refuse(struct grid_prompt *prompt, enum grid_reason reason)
{
    if (prompt->reason == GRID_REASON_NONE)
        prompt->reason = reason;
}

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

static struct grid_piece *push(struct grid_prompt *prompt, enum grid_piece_kind kind, const struct grid_tag *tag)
{
    GRID_ASSERT(prompt->n_queue < GRID_PROMPT_QUEUE);
    struct grid_piece *piece = &prompt->queue[prompt->n_queue++];
    piece->kind = kind;
    piece->tag = tag;
    return piece;
}

void grid_rows_push(struct grid_prompt *prompt, const struct grid_tag *literal)
{
    push(prompt, GRID_PIECE_LITERAL, literal);
}

/* ---- objects ---------------------------------------------------------------------------------------------------- */

enum field grid_rows_field(uint64_t reads, const struct grid_json_name *name)
{
    const size_t head_bytes = sizeof name->head;
    for (; reads; reads &= reads - 1) {
        int field = __builtin_ctzll(reads);
        const struct field_name *known = &field_names[field];
        uint64_t head;
        memcpy(&head, known->text, sizeof head);
        if (head == name->head && known->len == name->text.len &&
            (known->len <= head_bytes ||
             memcmp(known->text + head_bytes, name->text.ptr + head_bytes, known->len - head_bytes) == 0))
            return (enum field)field;
    }
    return F_none;
}

/* Where a field's value is noted. */
static struct grid_json_raw *note(struct grid_prompt_fields *fields, enum field field)
{
    uint64_t bit = (uint64_t)1 << field;
    if (GRID_UNLIKELY(fields->seen & bit)) {
        fields->twice = true;
    } else {
        GRID_DEAR_ASSERT(fields->n < GRID_PROMPT_FIELDS);
        fields->place[field] = fields->n++;
        fields->seen |= bit;
    }
    return &fields->at[fields->place[field]];
}

bool grid_rows_note(struct grid_prompt_fields *fields, enum field field, struct grid_json *json)
{
    uint64_t bit = (uint64_t)1 << field;
    struct grid_json_raw *value = note(fields, field);
    bool passed = grid_json_raw(json, value); /* noted where it stays: it is too large to be copied for each field */
    fields->present = value->kind == GRID_JSON_NULL ? fields->present & ~bit : fields->present | bit;
    return passed;
}

void grid_rows_note_list(struct grid_prompt_fields *fields, enum field field, const struct grid_json *json)
{
    *note(fields, field) =
        (struct grid_json_raw){.from = json->cursor, .kind = GRID_JSON_ARRAY, .high = true, .escaped = true};
    fields->present |= (uint64_t)1 << field;
}

void grid_rows_no_fields(struct grid_prompt_fields *out)
{
    out->seen = out->present = 0;
    out->twice = false;
    out->n = 0;
}

/* The next member: its field, or F_none; false behind the last. Objects of one list tend to have their members in one
 * order, so the name at place i is first compared with the one that stood there before. */
static inline bool next_field(struct grid_json *json, uint64_t reads, uint8_t *order, size_t i, enum field *out_field)
{
    struct grid_json_name name;
    bool guess = order && i < GRID_PROMPT_GUESSES;
    if (guess && order[i] != F_none &&
        grid_json_named_so(json, field_names[order[i]].text, field_names[order[i]].len)) {
        *out_field = (enum field)order[i];
        return true;
    }
    if (!grid_json_named(json, &name))
        return false;
    *out_field = grid_rows_field(reads, &name);
    if (guess)
        order[i] = (uint8_t)*out_field;
    return true;
}

/* Passes the object that is next, noting the fields of `reads`. order may be NULL. */
static void scan(struct grid_json *json, uint64_t reads, uint8_t *order, struct grid_prompt_fields *out)
{
    enum field field;
    grid_rows_no_fields(out);
    if (!grid_json_enter(json, GRID_JSON_OBJECT))
        return;
    for (size_t i = 0; next_field(json, reads, order, i, &field); i++) {
        bool passed = field == F_none ? grid_json_skip(json) : grid_rows_note(out, field, json);
        if (!passed)
            return;
    }
}

bool grid_rows_has(const struct grid_prompt_fields *fields, enum field field)
{
    return field < F_none && (fields->present >> field & 1);
}

const struct grid_json_raw *grid_rows_value(const struct grid_prompt_fields *fields, enum field field)
{
    return &fields->at[fields->place[field]];
}

struct grid_json *grid_rows_reader(struct grid_prompt *prompt, const struct grid_json_raw *value)
{
    prompt->json.cursor = value->from;
    prompt->json.fresh = false;
    return &prompt->json;
}

struct grid_prompt_frame *grid_rows_frame(struct grid_prompt *prompt)
{
    GRID_ASSERT(prompt->n_frames < GRID_PROMPT_FRAMES); /* the tables nest no deeper */
    struct grid_prompt_frame *frame = &prompt->frames[prompt->n_frames++];
    frame->list = frame->system = false;
    frame->step = frame->n_steps = frame->row = frame->nested = 0;
    return frame;
}

/* The decoded text of a `type`; one that is too long to be known is empty. */
static struct grid_str type_text(struct grid_prompt *prompt, const struct grid_json_raw *value, char room[NAME_ROOM])
{
    struct grid_str type = {room, 0};
    if (value->kind != GRID_JSON_STRING)
        grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
    else if (!value->escaped && !value->high && value->from.end - value->from.at >= (ptrdiff_t)value->bytes)
        type = (struct grid_str){value->from.at + 1, value->bytes - 2};
    else if (grid_json_text(grid_rows_reader(prompt, value), room, NAME_ROOM, &type) == GRID_JSON_BAD_UTF8)
        grid_rows_refuse(prompt, GRID_REASON_BAD_UTF8);
    return type;
}

/* Which variant an object is, by its type; false with a reason. */
static bool choose_variant(struct grid_prompt *prompt, struct grid_prompt_frame *frame)
{
    const struct grid_prompt_object *object = frame->object;
    char room[NAME_ROOM];
    struct grid_str type = object->plain_type;
    if (!object->variants[0].type.ptr) {
        frame->n_steps = object->variants[0].n_rows;
        return true;
    }
    if (grid_rows_has(&frame->fields, F_type))
        type = type_text(prompt, grid_rows_value(&frame->fields, F_type), room);
    else if (!type.ptr)
        grid_rows_refuse(prompt, GRID_REASON_MISSING_FIELD);
    for (size_t i = 0; i < object->n_variants && prompt->reason == GRID_REASON_NONE; i++) {
        if (grid_str_eq(object->variants[i].type, type)) {
            frame->row = i;
            frame->n_steps = object->variants[i].n_rows;
            return true;
        }
    }
    grid_rows_refuse(prompt, GRID_REASON_UNKNOWN_PART);
    return false;
}

void grid_rows_open(struct grid_prompt *prompt, struct grid_json *json, uint8_t *order,
                    const struct grid_prompt_object *object)
{
    if (grid_json_peek(json) != GRID_JSON_OBJECT) {
        grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
        grid_json_skip(json);
        return;
    }
    struct grid_prompt_frame *frame = grid_rows_frame(prompt);
    frame->object = object;
    scan(json, object->reads, order, &frame->fields);
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

/* A field whose content is a token: as sent, or its digest. */
static void write_token(struct grid_prompt *prompt, const struct grid_tag *tag, const struct grid_json_raw *value,
                        bool digest)
{
    push(prompt, digest ? GRID_PIECE_DIGEST : GRID_PIECE_RAW, tag)->raw = value;
}

static void write_text(struct grid_prompt *prompt, const struct grid_tag *tag, const struct grid_json_raw *value)
{
    if (value->kind == GRID_JSON_STRING)
        write_token(prompt, tag, value, false);
    else
        grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
}

static void write_sent(struct grid_prompt *prompt, const struct grid_tag *tag, const struct grid_json_raw *value)
{
    write_token(prompt, tag, value, value->kind != GRID_JSON_STRING && value->bytes > GRID_CANONICAL_MAX_BYTES);
}

bool grid_rows_measure(struct grid_prompt *prompt, const struct grid_json_raw *value, struct grid_json_decode *out_name,
                       size_t *out_bytes)
{
    struct grid_json_decode measure;
    struct grid_str run;
    size_t bytes = 0;
    if (value->kind != GRID_JSON_STRING) {
        grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
        return false;
    }
    grid_json_decode_raw(value, out_name);
    measure = *out_name;
    while (grid_json_decode_next(&measure, &run))
        bytes += run.len;
    if (measure.bad)
        grid_rows_refuse(prompt, GRID_REASON_BAD_UTF8);
    *out_bytes = bytes;
    return !measure.bad;
}

static void write_name(struct grid_prompt *prompt, const struct grid_tag *tag, const struct grid_json_raw *value)
{
    struct grid_json_decode name;
    size_t bytes;
    if (value->kind == GRID_JSON_STRING && !value->escaped && !value->high) {
        push(prompt, GRID_PIECE_NAME, tag)->raw = value;
    } else if (grid_rows_measure(prompt, value, &name, &bytes)) {
        struct grid_piece *piece = push(prompt, GRID_PIECE_DECODED, tag);
        piece->name = name;
        piece->name_bytes = bytes;
    }
}

static void push_canonical(struct grid_prompt *prompt, const struct grid_tag *tag, size_t len)
{
    push(prompt, GRID_PIECE_CANONICAL, tag)->text = (struct grid_str){prompt->room->out, len};
}

static void write_canonical(struct grid_prompt *prompt, const struct grid_tag *tag, const struct grid_json_raw *value)
{
    size_t len;
    if (value->bytes > GRID_CANONICAL_MAX_BYTES) {
        write_token(prompt, tag, value, true);
        return;
    }
    enum grid_json_fault fault = grid_canonical_write(prompt->room, grid_rows_reader(prompt, value), &len);
    if (fault == GRID_JSON_FINE)
        push_canonical(prompt, tag, len);
    else
        grid_rows_refuse(prompt, fault == GRID_JSON_DEEP ? GRID_REASON_TOO_DEEP : GRID_REASON_BAD_UTF8);
}

/* A string that holds JSON. Whatever is wrong with what it holds, it then counts as it was sent. It is decoded to where
 * its canonical form is written, which never overtakes it. */
static void write_arguments(struct grid_prompt *prompt, const struct grid_tag *tag, const struct grid_json_raw *value)
{
    struct grid_canonical_room *room = prompt->room;
    struct grid_json inner;
    struct grid_str text;
    size_t len;
    bool digest = value->bytes > GRID_CANONICAL_MAX_BYTES;
    if (!digest && value->kind == GRID_JSON_STRING &&
        grid_json_text(grid_rows_reader(prompt, value), room->out, sizeof room->out, &text) == GRID_JSON_FINE) {
        grid_json_init(&inner, &text, 1);
        if (grid_canonical_write(room, &inner, &len) == GRID_JSON_FINE && grid_json_finish(&inner)) {
            push_canonical(prompt, tag, len);
            return;
        }
    }
    write_token(prompt, tag, value, digest);
}

/* A list inside an element of a list of the same kind, as the last row of that element: nothing of the element is left
 * to write, so its frame goes and the list's frame goes on with the inner list. However deep they nest, frames are few.
 * step_list of prompt.c finds the way back. */
static struct grid_prompt_frame *nest_list(struct grid_prompt *prompt, const struct row *row)
{
    struct grid_prompt_frame *list = &prompt->frames[--prompt->n_frames - 1];
    GRID_ASSERT(list->list && list->object == row->inner);
    list->nested++;
    list->behind = row->behind;
    return list;
}

static void write_list(struct grid_prompt *prompt, const struct row *row, const struct grid_json_raw *value)
{
    if (value->kind != GRID_JSON_ARRAY) {
        grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
        return;
    }
    struct grid_prompt_frame *frame = row->behind ? nest_list(prompt, row) : grid_rows_frame(prompt);
    if (!row->behind) {
        frame->list = true;
        frame->system = row->field == F_system;
        frame->object = row->inner;
        memset(frame->order, F_none, sizeof frame->order);
    }
    frame->json = *grid_rows_reader(prompt, value);
    grid_json_enter(&frame->json, GRID_JSON_ARRAY);
}

static void write_content(struct grid_prompt *prompt, const struct row *row, const struct grid_json_raw *value)
{
    if (value->kind != GRID_JSON_STRING) {
        write_list(prompt, row, value);
        return;
    }
    write_text(prompt, row->rule == RULE_INPUT ? &user_text : &row->tag, value);
    if (row->behind)
        grid_rows_push(prompt, row->behind);
}

/* The digest of a string under the part's tag. */
static void write_media(struct grid_prompt *prompt, const struct row *row, const struct grid_json_raw *value)
{
    if (value->kind == GRID_JSON_STRING || row->rule == RULE_EMBEDS)
        write_token(prompt, &row->tag, value, true);
    else
        grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
}

/* The payload of a media part: the first of the row's keys, in the row's field or in the part itself. */
static void write_payload(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, const struct row *row)
{
    const struct grid_prompt_fields *from = &frame->fields;
    struct grid_prompt_fields inner;
    if (row->field != F_none) {
        const struct grid_json_raw *value = grid_rows_value(from, row->field);
        if (value->kind != GRID_JSON_OBJECT) {
            grid_rows_refuse(prompt, GRID_REASON_BAD_TYPE);
            return;
        }
        uint64_t reads = 0;
        for (size_t i = 0; row->keys[i] != F_none; i++)
            reads |= (uint64_t)1 << row->keys[i];
        scan(grid_rows_reader(prompt, value), reads, NULL, &inner);
        from = &inner;
        if (inner.twice)
            grid_rows_refuse(prompt, GRID_REASON_DUPLICATE_FIELD);
    }
    for (size_t i = 0; row->keys[i] != F_none; i++) {
        if (grid_rows_has(from, row->keys[i])) {
            prompt->held = *grid_rows_value(from, row->keys[i]);
            write_media(prompt, row, &prompt->held);
            return;
        }
    }
    grid_rows_refuse(prompt, GRID_REASON_MISSING_FIELD);
}

static void write_part(struct grid_prompt *prompt, const struct grid_prompt_frame *frame, const struct row *row)
{
    const struct grid_prompt_fields *fields = &frame->fields;
    const struct grid_json_raw *uuid = grid_rows_has(fields, F_uuid) ? grid_rows_value(fields, F_uuid) : NULL;
    if (uuid && uuid->kind == GRID_JSON_STRING)
        write_media(prompt, row, uuid);
    else if (row->field != F_none && !grid_rows_has(fields, row->field))
        grid_rows_refuse(prompt, GRID_REASON_MISSING_FIELD);
    else if (row->rule == RULE_EMBEDS)
        write_media(prompt, row, grid_rows_value(fields, row->field));
    else
        write_payload(prompt, frame, row);
}

/* Completions: one string, or an array of one string. */
static void write_prompt(struct grid_prompt *prompt, const struct grid_tag *tag, const struct grid_json_raw *value)
{
    struct grid_json_raw *only = &prompt->held;
    if (value->kind != GRID_JSON_ARRAY) {
        write_text(prompt, tag, value);
        return;
    }
    struct grid_json *json = grid_rows_reader(prompt, value);
    grid_json_enter(json, GRID_JSON_ARRAY);
    if (!grid_json_element(json)) {
        grid_rows_refuse(prompt, GRID_REASON_MANY_PROMPTS);
        return;
    }
    grid_json_raw(json, only);
    if (only->kind == GRID_JSON_NUMBER || only->kind == GRID_JSON_ARRAY)
        grid_rows_refuse(prompt, GRID_REASON_TOKEN_ARRAY);
    if (grid_json_element(json))
        grid_rows_refuse(prompt, GRID_REASON_MANY_PROMPTS);
    write_text(prompt, tag, only);
}

static void write_present(struct grid_prompt *prompt, const struct row *row, const struct grid_json_raw *value)
{
    switch (row->rule) {
    case RULE_TEXT:
        write_text(prompt, &row->tag, value);
        return;
    case RULE_NAME:
        write_name(prompt, &row->tag, value);
        return;
    case RULE_SENT:
        write_sent(prompt, &row->tag, value);
        return;
    case RULE_ARGUMENTS:
        write_arguments(prompt, &row->tag, value);
        return;
    case RULE_OUTPUT:
        if (value->kind == GRID_JSON_STRING)
            write_text(prompt, &row->tag, value);
        else
            write_canonical(prompt, &row->tag, value);
        return;
    case RULE_CANONICAL:
        write_canonical(prompt, &row->tag, value);
        return;
    case RULE_CONTENT:
    case RULE_INPUT:
        write_content(prompt, row, value);
        return;
    case RULE_LIST:
        write_list(prompt, row, value);
        return;
    case RULE_OBJECT:
        grid_rows_open(prompt, grid_rows_reader(prompt, value), NULL, row->inner);
        return;
    case RULE_PROMPT:
        write_prompt(prompt, &row->tag, value);
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
    const struct grid_prompt_fields *fields = &frame->fields;
    if (row->rule == RULE_MARK)
        grid_rows_push(prompt, &row->tag);
    else if (row->rule == RULE_MEDIA || row->rule == RULE_EMBEDS)
        write_part(prompt, frame, row);
    else if (grid_rows_has(fields, row->field))
        write_present(prompt, row, grid_rows_value(fields, row->field));
    else if (row->need == REQUIRED || (row->need == NULLABLE && !(fields->seen >> row->field & 1)))
        grid_rows_refuse(prompt, GRID_REASON_MISSING_FIELD);
}

const struct grid_prompt_object *grid_rows_top(enum grid_api api)
{
    return tops[api];
}
