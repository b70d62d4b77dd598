/*
 * fields.c - the field reader of configurations
 *
 * Story     The host hands over JSON text (from YAML or as it is). It is checked as JSON first, then settings.c and
 *           serving.c read it through tables of fields; whatever is wrong is refused here, with path, offset and value.
 * Promise   No allocation. A value is passed whole, right or wrong, so reading goes on behind every fault.
 * Source    behaviour.md J, O.52.
 * Not here  What the fields are (settings.c, serving.c), texts that are kept (values.c).
 */
#include "fields.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME_BYTES 64u  /* a member's name; longer ones are unknown anyway */
#define SHOWN_BYTES 64u /* of a value in a message */
#define NEAR 2u         /* edits between a name and the one that was meant */
#define MAX_EXPONENT 1000

/* ---- refusals -------------------------------------------------------------------------------------------------- */

/* Text for a message: no control bytes, at most SHOWN_BYTES, cut between characters. */
static void clip(char out[SHOWN_BYTES + 4], struct grid_str text)
{
    size_t len = text.len < SHOWN_BYTES ? text.len : SHOWN_BYTES;
    while (len < text.len && len > 0 && ((unsigned char)text.ptr[len] & 0xc0) == 0x80)
        len--;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        out[i] = c < 0x20 || c == 0x7f ? '?' : text.ptr[i];
    }
    (void)snprintf(out + len, 4, "%s", len < text.len ? "..." : "");
}

/* The value that a reader stands before, as sent. */
static void show(char out[SHOWN_BYTES + 4], struct grid_json before)
{
    struct grid_json_raw raw;
    struct grid_str text = {"", 0};
    enum grid_json_kind kind = grid_json_peek(&before);
    if (kind == GRID_JSON_OBJECT)
        text = GRID_LIT("a mapping");
    else if (kind == GRID_JSON_ARRAY)
        text = GRID_LIT("a list");
    else if (grid_json_raw(&before, &raw))
        (void)grid_json_raw_next(&raw, &text); /* one slice: one piece */
    clip(out, text);
}

size_t grid_fields_offset(const struct grid_json *before)
{
    struct grid_json look = *before;
    (void)grid_json_peek(&look);
    return grid_json_offset(&look);
}

void grid_fields_refuse(struct grid_fields *in, enum grid_status code, size_t offset, const char *format, ...)
{
    char message[sizeof((struct grid_err *)NULL)->message];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    (void)grid_refuse(in->errors, code, offset, in->path, "%s", message);
    if (in->status == GRID_OK || code == GRID_E_NO_MEMORY)
        in->status = code;
}

/* The last step of the path: "threshold", "endpoints[2]". */
static const char *leaf(const struct grid_fields *in)
{
    const char *dot = strrchr(in->path, '.');
    return dot ? dot + 1 : in->path_len ? in->path : "the text";
}

void grid_fields_bad(struct grid_fields *in, const char *accepts)
{
    char shown[SHOWN_BYTES + 4];
    show(shown, in->mark);
    grid_fields_refuse(in, GRID_E_FIELD, grid_fields_offset(&in->mark), "%s is %s: it must be %s", leaf(in), shown,
                       accepts);
}

/* ---- paths ----------------------------------------------------------------------------------------------------- */

static void path_cut(struct grid_fields *in, size_t len)
{
    in->path_len = len;
    in->path[len] = 0;
}

static void path_add(struct grid_fields *in, const char *text, size_t len)
{
    size_t room = sizeof in->path - 1 - in->path_len;
    len = len < room ? len : room;
    memcpy(in->path + in->path_len, text, len);
    path_cut(in, in->path_len + len);
}

static void path_member(struct grid_fields *in, struct grid_str name)
{
    char shown[SHOWN_BYTES + 4];
    clip(shown, name);
    if (in->path_len)
        path_add(in, ".", 1);
    path_add(in, shown, strlen(shown));
}

/* ---- mappings and lists ---------------------------------------------------------------------------------------- */

bool grid_fields_begin(struct grid_fields *in, struct grid_str json, bool words, struct grid_errors *errors)
{
    in->words = words;
    in->errors = errors;
    in->status = GRID_OK;
    in->arena = NULL;
    path_cut(in, 0);
    in->text = json; /* the reader keeps a pointer to its slices */
    grid_json_init(&in->json, &in->text, 1);
    bool whole = grid_json_skip(&in->json) && grid_json_finish(&in->json);
    if (whole) {
        grid_json_init(&in->json, &in->text, 1);
        return true;
    }
    size_t offset = grid_json_offset(&in->json);
    if (json.len == 0)
        grid_fields_refuse(in, GRID_E_SYNTAX, 0, "the text is empty: it must be a mapping");
    else if (in->json.fault == GRID_JSON_ENDED)
        grid_fields_refuse(in, GRID_E_SYNTAX, offset, "not JSON: the text ends inside a value");
    else
        grid_fields_refuse(in, GRID_E_SYNTAX, offset, "not JSON: the text goes wrong at byte %zu", offset);
    return false;
}

/* Edits that turn a into b, or more than NEAR. Names are short, so one row does. */
static size_t distance(struct grid_str a, struct grid_str b)
{
    size_t row[NAME_BYTES + 1];
    if (a.len > NAME_BYTES || b.len > NAME_BYTES)
        return NEAR + 1;
    for (size_t j = 0; j <= b.len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            bool same = grid_str_lower(a.ptr[i - 1]) == grid_str_lower(b.ptr[j - 1]);
            size_t best = corner + (same ? 0 : 1);
            corner = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[b.len];
}

static void refuse_unknown(struct grid_fields *in, const struct grid_field *table, size_t n, struct grid_str name)
{
    char shown[SHOWN_BYTES + 4];
    const char *meant = NULL;
    size_t best = NEAR + 1;
    clip(shown, name);
    for (size_t i = 0; i < n; i++) {
        size_t edits = distance(name, grid_str_of(table[i].name));
        if (table[i].read != grid_fields_misplaced && edits < best && edits < name.len) {
            best = edits;
            meant = table[i].name;
        }
    }
    size_t offset = grid_fields_offset(&in->json);
    if (meant)
        grid_fields_refuse(in, GRID_E_FIELD, offset, "unknown field %s: is %s meant?", shown, meant);
    else
        grid_fields_refuse(in, GRID_E_FIELD, offset, "unknown field %s", name.ptr ? shown : "with a long name");
}

/* The member that is next, through the table. */
static void read_member(struct grid_fields *in, const struct grid_field *table, size_t n, void *object,
                        struct grid_str name, uint32_t *seen, uint32_t *filled)
{
    in->mark = in->json;
    size_t i = 0;
    while (i < n && !grid_str_eq(name, grid_str_of(table[i].name)))
        i++;
    if (i == n) {
        refuse_unknown(in, table, n, name);
        (void)grid_json_skip(&in->json);
    } else if (*seen & (1u << i)) {
        grid_fields_refuse(in, GRID_E_FIELD, grid_fields_offset(&in->json), "%s is given twice", table[i].name);
        (void)grid_json_skip(&in->json);
    } else {
        *seen |= 1u << i;
        bool null = grid_json_peek(&in->json) == GRID_JSON_NULL;
        if (null && table[i].null_ok) {
            (void)grid_json_skip(&in->json);
        } else {
            *filled |= 1u << i;
            table[i].read(in, &table[i], object);
        }
    }
}

bool grid_fields_object(struct grid_fields *in, const struct grid_field *table, size_t n, void *object,
                        uint32_t *out_seen)
{
    char room[NAME_BYTES];
    struct grid_str name;
    uint32_t seen = 0, filled = 0;
    size_t path_len = in->path_len, offset = grid_fields_offset(&in->json);
    in->mark = in->json;
    if (!grid_json_enter(&in->json, GRID_JSON_OBJECT)) {
        grid_fields_bad(in, "a mapping");
        (void)grid_json_skip(&in->json);
        return false;
    }
    while (grid_json_member(&in->json, room, sizeof room, &name)) {
        path_member(in, name);
        read_member(in, table, n, object, name, &seen, &filled);
        path_cut(in, path_len);
    }
    for (size_t i = 0; i < n; i++) {
        if (!table[i].required || (seen & (1u << i)))
            continue;
        path_member(in, grid_str_of(table[i].name));
        grid_fields_refuse(in, GRID_E_FIELD, offset, "missing field %s%s%s", table[i].name,
                           table[i].accepts ? ": it must be " : "", table[i].accepts ? table[i].accepts : "");
        path_cut(in, path_len);
    }
    if (out_seen)
        *out_seen = filled;
    return true;
}

static bool next_of(struct grid_fields *in, struct grid_json *json, enum grid_json_kind kind)
{
    struct grid_str name;
    return kind == GRID_JSON_ARRAY ? grid_json_element(json) : grid_json_member(json, in->room, sizeof in->room, &name);
}

static bool begin_walk(struct grid_fields *in, enum grid_json_kind kind, size_t least, size_t most, const char *accepts,
                       struct grid_fields_walk *walk)
{
    in->mark = in->json;
    *walk = (struct grid_fields_walk){.path_len = in->path_len};
    struct grid_json count = in->json;
    if (!grid_json_enter(&count, kind)) {
        grid_fields_bad(in, accepts);
        (void)grid_json_skip(&in->json);
        return false;
    }
    while (next_of(in, &count, kind) && grid_json_skip(&count))
        walk->n++;
    if (walk->n < least || walk->n > most) {
        grid_fields_refuse(in, GRID_E_FIELD, grid_fields_offset(&in->json), "%s has %zu entries: it must be %s",
                           leaf(in), walk->n, accepts);
        (void)grid_json_skip(&in->json);
        return false;
    }
    walk->i = SIZE_MAX; /* the first step makes it 0 */
    return grid_json_enter(&in->json, kind);
}

bool grid_fields_list(struct grid_fields *in, size_t least, size_t most, const char *accepts,
                      struct grid_fields_walk *walk)
{
    return begin_walk(in, GRID_JSON_ARRAY, least, most, accepts, walk);
}

bool grid_fields_next(struct grid_fields *in, struct grid_fields_walk *walk)
{
    char step[24];
    path_cut(in, walk->path_len);
    if (!grid_json_element(&in->json))
        return false;
    walk->i++;
    int len = snprintf(step, sizeof step, "[%zu]", walk->i);
    path_add(in, step, (size_t)len);
    in->mark = in->json;
    return true;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

void grid_fields_misplaced(struct grid_fields *in, const struct grid_field *field, void *object)
{
    (void)object;
    grid_fields_refuse(in, GRID_E_FIELD, grid_fields_offset(&in->json), "unknown field %s: %s", field->name,
                       field->accepts);
    (void)grid_json_skip(&in->json);
}

void grid_fields_bool(struct grid_fields *in, const struct grid_field *field, void *object)
{
    in->mark = in->json;
    enum grid_json_kind kind = grid_json_peek(&in->json);
    if (kind == GRID_JSON_TRUE || kind == GRID_JSON_FALSE)
        *(bool *)((char *)object + field->at) = kind == GRID_JSON_TRUE;
    else
        grid_fields_bad(in, "true or false");
    (void)grid_json_skip(&in->json);
}

/* The next value's lexeme and value when it is a finite number; passes it either way. */
static bool take_number(struct grid_fields *in, char room[GRID_JSON_NUMBER_BYTES], struct grid_str *lexeme,
                        double *value)
{
    in->mark = in->json;
    if (grid_json_peek(&in->json) != GRID_JSON_NUMBER) {
        (void)grid_json_skip(&in->json);
        return false;
    }
    enum grid_json_fault fault = grid_json_number(&in->json, value, room, GRID_JSON_NUMBER_BYTES, lexeme);
    return fault == GRID_JSON_FINE && isfinite(*value);
}

void grid_fields_number(struct grid_fields *in, const struct grid_field *field, void *object)
{
    char room[GRID_JSON_NUMBER_BYTES];
    struct grid_str lexeme;
    double value;
    bool fine = take_number(in, room, &lexeme, &value) && value >= field->low && value <= field->high &&
                (!field->above || value > field->low);
    if (fine)
        *(double *)((char *)object + field->at) = value;
    else
        grid_fields_bad(in, field->accepts);
}

static bool add_digit(uint64_t *value, unsigned digit)
{
    return !__builtin_mul_overflow(*value, 10u, value) && !__builtin_add_overflow(*value, digit, value);
}

/* The exact value of a JSON number that is a whole one, "1.048576e+06" too; false when it is not, or too large. */
static bool whole_of(struct grid_str lexeme, uint64_t *out)
{
    const char *at = lexeme.ptr, *end = lexeme.ptr + lexeme.len;
    bool negative = at < end && *at == '-';
    bool point = false;
    int scale = 0, zeros = 0; /* zeros: held back until a digit other than 0 follows */
    uint64_t value = 0;
    for (at += negative; at < end && *at != 'e' && *at != 'E'; at++) {
        if (*at == '.') {
            point = true;
            continue;
        }
        scale -= point;
        if (*at == '0') {
            zeros += value != 0;
            continue;
        }
        for (; zeros > 0; zeros--)
            if (!add_digit(&value, 0))
                return false;
        if (!add_digit(&value, (unsigned)(*at - '0')))
            return false;
    }
    scale += zeros;
    if (at < end) {
        char text[GRID_JSON_NUMBER_BYTES + 1];
        size_t len = (size_t)(end - at) - 1;
        memcpy(text, at + 1, len);
        text[len] = 0;
        long exponent = strtol(text, NULL, 10);
        if (exponent > MAX_EXPONENT || exponent < -MAX_EXPONENT)
            exponent = exponent > 0 ? MAX_EXPONENT : -MAX_EXPONENT;
        scale += (int)exponent;
    }
    *out = value;
    if (value == 0)
        return true;
    if (negative || scale < 0)
        return false;
    for (; scale > 0; scale--)
        if (!add_digit(out, 0))
            return false;
    return true;
}

void grid_fields_whole(struct grid_fields *in, const struct grid_field *field, void *object)
{
    char room[GRID_JSON_NUMBER_BYTES];
    struct grid_str lexeme;
    double value;
    uint64_t whole;
    bool fine = take_number(in, room, &lexeme, &value) && whole_of(lexeme, &whole) && whole >= field->least &&
                whole <= field->most;
    if (fine)
        *(uint64_t *)((char *)object + field->at) = whole;
    else
        grid_fields_bad(in, field->accepts);
}

/* The text of a value that YAML made a number, true or false, as it was written. */
static enum grid_json_fault take_word(struct grid_fields *in, size_t most, struct grid_str *out)
{
    struct grid_json_raw raw;
    struct grid_str piece = {NULL, 0};
    if (!grid_json_raw(&in->json, &raw) || !grid_json_raw_next(&raw, &piece) || piece.len > most)
        return GRID_JSON_LONG;
    memcpy(in->room, piece.ptr, piece.len);
    *out = (struct grid_str){in->room, piece.len};
    return GRID_JSON_FINE;
}

static bool is_printed(struct grid_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < 0x20 || s.ptr[i] == 0x7f)
            return false;
    return true;
}

bool grid_fields_text(struct grid_fields *in, size_t least, size_t most, const char *accepts, struct grid_str *out)
{
    in->mark = in->json;
    enum grid_json_kind kind = grid_json_peek(&in->json);
    enum grid_json_fault fault = GRID_JSON_SYNTAX;
    if (most > sizeof in->room)
        most = sizeof in->room;
    if (kind == GRID_JSON_STRING)
        fault = grid_json_text(&in->json, in->room, most, out);
    else if (in->words && (kind == GRID_JSON_NUMBER || kind == GRID_JSON_TRUE || kind == GRID_JSON_FALSE))
        fault = take_word(in, most, out);
    else
        (void)grid_json_skip(&in->json);
    bool fine = fault == GRID_JSON_FINE && out->len >= least && is_printed(*out);
    if (!fine)
        grid_fields_bad(in, accepts);
    return fine;
}

/* White space that is not ASCII, as UTF-8 (Unicode's White_Space). */
static size_t wide_space(struct grid_str s)
{
    static const struct grid_str spaces[] = {
        GRID_LIT("\xc2\x85"),     GRID_LIT("\xc2\xa0"),     GRID_LIT("\xe1\x9a\x80"), GRID_LIT("\xe2\x80\xa8"),
        GRID_LIT("\xe2\x80\xa9"), GRID_LIT("\xe2\x80\xaf"), GRID_LIT("\xe2\x81\x9f"), GRID_LIT("\xe3\x80\x80"),
    };
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++)
        if (grid_str_starts(s, spaces[i]))
            return spaces[i].len;
    if (s.len >= 3 && grid_str_starts(s, GRID_LIT("\xe2\x80")) && (unsigned char)s.ptr[2] <= 0x8a)
        return 3; /* U+2000 to U+200A */
    return 0;
}

static bool is_blank(struct grid_str s)
{
    while (s.len > 0) {
        size_t step = s.ptr[0] == ' ' ? 1 : wide_space(s);
        if (step == 0)
            return false;
        s.ptr += step;
        s.len -= step;
    }
    return true;
}

#define NAME_WORDS "a name of 1 to 256 bytes, not blank, without control characters"

bool grid_fields_name(struct grid_fields *in, struct grid_str *out)
{
    if (!grid_fields_text(in, 1, GRID_MAX_NAME_BYTES, NAME_WORDS, out))
        return false;
    if (!is_blank(*out))
        return true;
    grid_fields_bad(in, NAME_WORDS);
    return false;
}

bool grid_fields_map(struct grid_fields *in, size_t most, const char *accepts, struct grid_fields_walk *walk)
{
    return begin_walk(in, GRID_JSON_OBJECT, 0, most, accepts, walk);
}

bool grid_fields_entry(struct grid_fields *in, struct grid_fields_walk *walk, struct grid_str *out_name)
{
    path_cut(in, walk->path_len);
    while (grid_json_member(&in->json, in->room, GRID_MAX_NAME_BYTES, out_name)) {
        in->mark = in->json;
        walk->i++;
        if (out_name->ptr && is_printed(*out_name) && !is_blank(*out_name)) {
            path_member(in, *out_name);
            return true;
        }
        grid_fields_refuse(in, GRID_E_FIELD, grid_fields_offset(&in->json),
                           "%s has an entry without a good name: it "
                           "must be " NAME_WORDS,
                           leaf(in));
        (void)grid_json_skip(&in->json);
    }
    return false;
}
