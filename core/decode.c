/*
 * decode.c - the decoded bytes of a JSON string, a run at a time (grid_json_decode_next of json.h)
 *
 * Story     Runs without escapes are handed out where they lie; an escape is decoded into the struct's own room.
 */
#include "json.h"

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
