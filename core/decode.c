/*
 * decode.c - values as a caller wants them: as sent, decoded, as numbers (the second half of json.h)
 *
 * Story     Runs without escapes are handed out where they lie; an escape is decoded into the struct's own room.
 */
#include "json.h"

#include <stdlib.h>

const char *grid_json_kind_name(enum grid_json_kind kind)
{
    switch (kind) {
    case GRID_JSON_NULL:
        return "null";
    case GRID_JSON_FALSE:
    case GRID_JSON_TRUE:
        return "a boolean";
    case GRID_JSON_NUMBER:
        return "a number";
    case GRID_JSON_STRING:
        return "a string";
    case GRID_JSON_ARRAY:
        return "an array";
    case GRID_JSON_OBJECT:
        return "an object";
    case GRID_JSON_NOTHING:
        break;
    }
    return "nothing";
}

static size_t utf8_encode(uint32_t code, char *room)
{
    if (code < 0x80) {
        room[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        room[0] = (char)(0xC0 | code >> 6);
        room[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        room[0] = (char)(0xE0 | code >> 12);
        room[1] = (char)(0x80 | (code >> 6 & 0x3F));
        room[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    room[0] = (char)(0xF0 | code >> 18);
    room[1] = (char)(0x80 | (code >> 12 & 0x3F));
    room[2] = (char)(0x80 | (code >> 6 & 0x3F));
    room[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

/* Decodes the escape whose backslash the cursor stands behind; false for half of a surrogate pair. */
static bool decode_escape(struct grid_json_decode *decode, struct grid_str *out_run)
{
    uint32_t unit, low;
    if (grid_lex_escape(&decode->at, &unit) != GRID_LEX_DONE)
        return false;
    if (unit >= 0xDC00 && unit <= 0xDFFF)
        return false;
    if (unit >= 0xD800 && unit <= 0xDBFF) {
        if (!grid_cursor_settle(&decode->at) || *decode->at.at != '\\')
            return false;
        decode->at.at++;
        if (grid_lex_escape(&decode->at, &low) != GRID_LEX_DONE || low < 0xDC00 || low > 0xDFFF)
            return false;
        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    *out_run = (struct grid_str){decode->room, utf8_encode(unit, decode->room)};
    return true;
}

bool grid_json_decode_next(struct grid_json_decode *decode, struct grid_str *out_run)
{
    if (decode->done || decode->bad || !grid_cursor_settle(&decode->at))
        return false;
    const char *from = decode->at.at;
    unsigned char high = 0;
    const char *stop = grid_lex_plain(from, decode->at.end, &high);
    if (stop > from) {
        size_t len = (size_t)(stop - from);
        if (decode->high)
            decode->utf8 = grid_utf8_feed(decode->utf8, from, len);
        decode->bad = decode->utf8 == GRID_UTF8_BAD || (stop < decode->at.end && decode->utf8 != 0);
        decode->at.at = stop;
        *out_run = (struct grid_str){from, len};
        return !decode->bad;
    }
    decode->bad = decode->utf8 != 0; /* a character cut by a quote or an escape */
    decode->at.at++;
    if (decode->bad || *stop == '"') {
        decode->done = true;
        return false;
    }
    decode->bad = !decode_escape(decode, out_run);
    return !decode->bad;
}

enum grid_json_fault grid_json_text(struct grid_json *json, char *room, size_t cap, struct grid_str *out)
{
    struct grid_json_decode decode;
    struct grid_str run;
    size_t len = 0;
    if (!grid_json_decode(json, &decode))
        return json->fault;
    bool fits = true;
    while (grid_json_decode_next(&decode, &run)) { /* to the end: bad text is bad, too long or not */
        fits = fits && run.len <= cap - len;
        if (!fits)
            continue;
        memcpy(room + len, run.ptr, run.len);
        len += run.len;
    }
    if (decode.bad)
        return GRID_JSON_BAD_UTF8;
    if (!fits)
        return GRID_JSON_LONG;
    *out = (struct grid_str){room, len};
    return GRID_JSON_FINE;
}

enum grid_json_fault grid_json_text_arena(struct grid_json *json, struct grid_arena *arena, size_t limit,
                                          struct grid_str *out)
{
    struct grid_json_decode decode, measure;
    struct grid_str run;
    size_t len = 0;
    if (!grid_json_decode(json, &decode))
        return json->fault;
    measure = decode;
    while (grid_json_decode_next(&measure, &run))
        len += run.len;
    if (measure.bad)
        return GRID_JSON_BAD_UTF8;
    if (len > limit)
        return GRID_JSON_LONG;
    char *text = grid_arena_take(arena, len + 1);
    if (!text)
        return GRID_JSON_NO_MEMORY;
    size_t used = 0;
    while (grid_json_decode_next(&decode, &run)) {
        memcpy(text + used, run.ptr, run.len);
        used += run.len;
    }
    text[used] = '\0';
    *out = (struct grid_str){text, used};
    return GRID_JSON_FINE;
}

bool grid_json_raw_next(struct grid_json_raw *raw, struct grid_str *out_piece)
{
    if (raw->bytes == 0 || !grid_cursor_settle(&raw->from))
        return false;
    size_t len = (size_t)(raw->from.end - raw->from.at);
    if (len > raw->bytes)
        len = raw->bytes;
    *out_piece = (struct grid_str){raw->from.at, len};
    raw->from.at += len;
    raw->bytes -= len;
    return true;
}

static void wrong_kind(struct grid_json *json)
{
    if (json->fault == GRID_JSON_FINE)
        json->fault = GRID_JSON_SYNTAX;
}

/* The lexeme of the number that the reader has passed, from `raw`; false when it does not fit. */
static bool lexeme(struct grid_json_raw raw, char *room, size_t cap)
{
    struct grid_str piece;
    if (raw.bytes > cap)
        return false;
    while (grid_json_raw_next(&raw, &piece)) {
        memcpy(room, piece.ptr, piece.len);
        room += piece.len;
    }
    return true;
}

enum grid_json_fault grid_json_number(struct grid_json *json, double *out_value, char *room, size_t cap,
                                      struct grid_str *out_lexeme)
{
    char digits[GRID_JSON_NUMBER_BYTES + 1];
    struct grid_json_raw raw;
    if (grid_json_peek(json) != GRID_JSON_NUMBER)
        wrong_kind(json);
    if (!grid_json_raw(json, &raw))
        return json->fault;
    if (out_value && !lexeme(raw, digits, GRID_JSON_NUMBER_BYTES))
        return GRID_JSON_LONG;
    if (out_lexeme && !lexeme(raw, room, cap))
        return GRID_JSON_LONG;
    if (out_value) {
        digits[raw.bytes] = '\0';
        *out_value = strtod(digits, NULL);
    }
    if (out_lexeme)
        *out_lexeme = (struct grid_str){room, raw.bytes};
    return GRID_JSON_FINE;
}

enum grid_json_fault grid_json_bool(struct grid_json *json, bool *out_value)
{
    enum grid_json_kind kind = grid_json_peek(json);
    if (kind != GRID_JSON_TRUE && kind != GRID_JSON_FALSE)
        wrong_kind(json);
    if (!grid_json_skip(json))
        return json->fault;
    *out_value = kind == GRID_JSON_TRUE;
    return GRID_JSON_FINE;
}
