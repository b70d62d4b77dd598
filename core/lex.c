/*
 * lex.c - cursors, strings, numbers and UTF-8
 *
 * Story     Almost every byte of a prompt is inside a string; scan.c looks at many of them together. All other steps
 *           are a byte at a time.
 */
#include "lex.h"

#include "check.h"

#define RUNG_BYTES 1024u /* the same of arrays */
#define MEMO_BYTES 256u  /* strings shorter than this are faster passed again than remembered */

void grid_cursor_init(struct grid_cursor *cursor, const struct grid_str *slices, size_t n_slices)
{
    *cursor = (struct grid_cursor){.slices = slices, .n_slices = n_slices};
}

bool grid_cursor_settle(struct grid_cursor *cursor)
{
    while (cursor->at == cursor->end) {
        if (cursor->next == cursor->n_slices)
            return false;
        struct grid_str slice = cursor->slices[cursor->next++];
        if (slice.len == 0)
            continue;
        cursor->at = slice.ptr;
        cursor->end = slice.ptr + slice.len;
        cursor->through += slice.len;
    }
    return true;
}

size_t grid_cursor_offset(const struct grid_cursor *cursor)
{
    return cursor->through - (size_t)(cursor->end - cursor->at);
}

const char *grid_lex_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

static int hex_digit(char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    char low = grid_str_lower(byte);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

static enum grid_lex_result escape_hex(struct grid_cursor *cursor, uint32_t *out_unit)
{
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        if (!grid_cursor_settle(cursor))
            return GRID_LEX_ENDED;
        int digit = hex_digit(*cursor->at);
        if (digit < 0)
            return GRID_LEX_BAD;
        unit = unit << 4 | (uint32_t)digit;
        cursor->at++;
    }
    *out_unit = unit;
    return GRID_LEX_DONE;
}

enum grid_lex_result grid_lex_escape(struct grid_cursor *cursor, uint32_t *out_unit)
{
    if (!grid_cursor_settle(cursor))
        return GRID_LEX_ENDED;
    char byte = *cursor->at;
    switch (byte) {
    case '"':
    case '\\':
    case '/':
        *out_unit = (uint32_t)(unsigned char)byte;
        break;
    case 'b':
        *out_unit = '\b';
        break;
    case 'f':
        *out_unit = '\f';
        break;
    case 'n':
        *out_unit = '\n';
        break;
    case 'r':
        *out_unit = '\r';
        break;
    case 't':
        *out_unit = '\t';
        break;
    case 'u':
        cursor->at++;
        return escape_hex(cursor, out_unit);
    default:
        return GRID_LEX_BAD;
    }
    cursor->at++;
    return GRID_LEX_DONE;
}

unsigned grid_lex_escape_step(unsigned state, char byte)
{
    if (state > GRID_LEX_ESCAPE_DONE && state <= GRID_LEX_ESCAPE_HEX)
        return hex_digit(byte) < 0 ? (unsigned)GRID_LEX_ESCAPE_BAD : state - 1;
    if (state == GRID_LEX_ESCAPE_START && byte == 'u')
        return GRID_LEX_ESCAPE_HEX;
    bool known = state == GRID_LEX_ESCAPE_START && byte != '\0' && strchr("\"\\/bfnrt", byte);
    return known ? GRID_LEX_ESCAPE_DONE : GRID_LEX_ESCAPE_BAD;
}

/* Bytes of the escape that begins at a backslash; 0 when it is cut by the end or wrong: string_rest tells which. */
static inline size_t escape_bytes(const char *at, const char *end)
{
    if (end - at < 2)
        return 0;
    switch (at[1]) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return 2;
    case 'u':
        break;
    default:
        return 0;
    }
    if (end - at < 6)
        return 0;
    bool whole = hex_digit(at[2]) >= 0 && hex_digit(at[3]) >= 0 && hex_digit(at[4]) >= 0 && hex_digit(at[5]) >= 0;
    return whole ? 6 : 0;
}

/* Takes the escapes among 64 bytes, and what they hide, out of the marks: as far as the string's end, or *out_stop when
 * an escape reaches behind the 64 bytes or (stuck) is cut or wrong. True when there was one. */
static inline bool pass_escapes(const char *at, const char *end, struct grid_scan_marks *found, uint64_t *stops,
                                size_t *out_stop, bool *out_stuck)
{
    bool some = false;
    while (found->slashes) {
        size_t slash = (size_t)__builtin_ctzll(found->slashes);
        if (*stops & (((uint64_t)1 << slash) - 1))
            break; /* behind the end of the string */
        size_t bytes = escape_bytes(at + slash, end);
        some = true;
        if (slash + bytes >= GRID_SCAN_WIDE || bytes == 0) {
            *out_stop = slash + bytes;
            *out_stuck = bytes == 0;
            *stops = 0;
            break;
        }
        uint64_t behind = ~(uint64_t)0 << (slash + bytes);
        found->slashes &= behind;
        *stops &= behind;
    }
    return some;
}

/* Passes what it can of a string's inside in one slice: true behind the closing quote; else *at_io is where
 * string_rest goes on: the end of the slice, an escape that is cut or wrong, or a control byte. */
static bool string_here(const char **at_io, const char *end, unsigned *traits)
{
    const char *at = *at_io;
    bool done = false, stuck = false, high = false, escaped = false;
    while (!done && !stuck && at < end) {
        at = grid_scan_inside(at, end, &high, &escaped);
        if (GRID_LIKELY(at < end && *at == '"')) {
            at++;
            done = true;
            break;
        }
        size_t n = (size_t)(end - at) < GRID_SCAN_WIDE ? (size_t)(end - at) : GRID_SCAN_WIDE;
        struct grid_scan_marks found = grid_scan_marks(at, n);
        uint64_t stops = found.quotes | found.controls;
        size_t stop = n;
        if (found.slashes)
            escaped |= pass_escapes(at, end, &found, &stops, &stop, &stuck);
        if (stops) {
            stop = (size_t)__builtin_ctzll(stops);
            done = at[stop] == '"';
            stuck = !done;
        }
        high |= (stop < GRID_SCAN_WIDE ? found.high & (((uint64_t)1 << stop) - 1) : found.high) != 0;
        at += stop + done;
    }
    *traits |= (high ? GRID_LEX_HIGH : 0u) | (escaped ? GRID_LEX_ESCAPED : 0u);
    *at_io = at;
    return done;
}

/* To behind the closing quote, from anywhere between tokens of the string. */
static enum grid_lex_result string_rest(struct grid_cursor *cursor, unsigned *traits)
{
    for (;;) {
        if (!grid_cursor_settle(cursor))
            return GRID_LEX_ENDED;
        if (string_here(&cursor->at, cursor->end, traits))
            return GRID_LEX_DONE;
        if (cursor->at == cursor->end)
            continue;
        if (*cursor->at != '\\')
            return GRID_LEX_BAD;
        cursor->at++;
        uint32_t unit;
        enum grid_lex_result result = grid_lex_escape(cursor, &unit);
        if (result != GRID_LEX_DONE)
            return result;
    }
}

/* Fibonacci hashing: offsets in one body are often evenly spaced. */
static uint64_t mixed(size_t offset)
{
    return (uint64_t)offset * 0x9E3779B97F4A7C15u;
}

static struct grid_lex_note *memo_note(struct grid_lex_memo *memo, size_t start)
{
    return &memo->notes[(mixed(start) >> 32) % GRID_LEX_MEMO_SLOTS];
}

static size_t rung_place(const struct grid_lex_memo *memo, size_t start)
{
    return (mixed(start) >> 32) % sizeof memo->rung_of;
}

void grid_lex_rung_note(struct grid_lex_memo *memo, size_t rung, size_t base, size_t start, size_t end)
{
    struct grid_lex_rung *kept = &memo->rungs[rung];
    if (end > UINT32_MAX || end - start < RUNG_BYTES)
        return;
    /* What lies ahead of the look was left behind. Of arrays on one level the longest counts: the others are at most
     * half of what they lie in, which bounds how often a byte of them is passed. */
    if (kept->start > base && kept->end - kept->start > end - start)
        return;
    *kept = (struct grid_lex_rung){(uint32_t)start, (uint32_t)end};
    memo->rung_of[rung_place(memo, start)] = (uint8_t)rung;
    memo->has_rungs = true;
}

bool grid_lex_rung_jump(const struct grid_lex_memo *memo, struct grid_cursor *cursor)
{
    size_t start = grid_cursor_offset(cursor);
    const struct grid_lex_rung *kept = &memo->rungs[memo->rung_of[rung_place(memo, start)]];
    if (kept->start != start || kept->end == 0)
        return false;
    while (cursor->through < kept->end) {
        struct grid_str slice = cursor->slices[cursor->next++];
        cursor->at = slice.ptr;
        cursor->end = slice.ptr + slice.len;
        cursor->through += slice.len;
    }
    cursor->at = cursor->end - (cursor->through - kept->end);
    return true;
}

/* A string that is not short. */
static enum grid_lex_result string_noted(struct grid_cursor *cursor, struct grid_lex_memo *memo, unsigned *out_traits)
{
    size_t start = grid_cursor_offset(cursor);
    struct grid_lex_note *note = memo ? memo_note(memo, start) : NULL;
    if (note && note->start == start && start > 0) {
        cursor->at = note->at;
        cursor->next = note->next;
        cursor->end = cursor->slices[note->next - 1].ptr + cursor->slices[note->next - 1].len;
        cursor->through = note->through;
        *out_traits = note->traits;
        return GRID_LEX_DONE;
    }
    *out_traits = 0;
    enum grid_lex_result result = string_rest(cursor, out_traits);
    if (note && result == GRID_LEX_DONE && cursor->next <= UINT32_MAX &&
        grid_cursor_offset(cursor) - start >= MEMO_BYTES)
        *note = (struct grid_lex_note){start, cursor->at, cursor->through, (uint32_t)cursor->next, *out_traits};
    return result;
}

enum grid_lex_result grid_lex_text(struct grid_cursor *cursor, struct grid_lex_memo *memo, unsigned *out_traits)
{
    if (cursor->end - cursor->at >= (ptrdiff_t)GRID_SCAN_NEAR) {
        unsigned char high = 0;
        const char *stop = grid_scan_near(cursor->at, &high);
        if (stop && *stop == '"') { /* most strings of a body are names and other short things */
            cursor->at = stop + 1;
            *out_traits = high & 0x80 ? GRID_LEX_HIGH : 0;
            return GRID_LEX_DONE;
        }
    }
    return string_noted(cursor, memo, out_traits);
}

static enum grid_lex_number number_start(enum grid_lex_number state, char byte)
{
    if (byte == '-' && state == GRID_LEX_NUMBER_START)
        return GRID_LEX_NUMBER_MINUS;
    if (byte == '0')
        return GRID_LEX_NUMBER_ZERO;
    return byte >= '1' && byte <= '9' ? GRID_LEX_NUMBER_INT : GRID_LEX_NUMBER_STOP;
}

enum grid_lex_number grid_lex_number_step(enum grid_lex_number state, char byte)
{
    bool digit = byte >= '0' && byte <= '9';
    bool power = byte == 'e' || byte == 'E';
    switch (state) {
    case GRID_LEX_NUMBER_START:
    case GRID_LEX_NUMBER_MINUS:
        return number_start(state, byte);
    case GRID_LEX_NUMBER_ZERO:
    case GRID_LEX_NUMBER_INT:
        if (digit && state == GRID_LEX_NUMBER_INT)
            return GRID_LEX_NUMBER_INT;
        if (byte == '.')
            return GRID_LEX_NUMBER_DOT;
        return power ? GRID_LEX_NUMBER_E : GRID_LEX_NUMBER_STOP;
    case GRID_LEX_NUMBER_DOT:
        return digit ? GRID_LEX_NUMBER_FRACTION : GRID_LEX_NUMBER_STOP;
    case GRID_LEX_NUMBER_FRACTION:
        if (digit)
            return GRID_LEX_NUMBER_FRACTION;
        return power ? GRID_LEX_NUMBER_E : GRID_LEX_NUMBER_STOP;
    case GRID_LEX_NUMBER_E:
        if (byte == '+' || byte == '-')
            return GRID_LEX_NUMBER_SIGN;
        return digit ? GRID_LEX_NUMBER_EXPONENT : GRID_LEX_NUMBER_STOP;
    case GRID_LEX_NUMBER_SIGN:
    case GRID_LEX_NUMBER_EXPONENT:
        return digit ? GRID_LEX_NUMBER_EXPONENT : GRID_LEX_NUMBER_STOP;
    case GRID_LEX_NUMBER_STOP:
        break;
    }
    return GRID_LEX_NUMBER_STOP;
}

bool grid_lex_number_whole(enum grid_lex_number state)
{
    return state == GRID_LEX_NUMBER_ZERO || state == GRID_LEX_NUMBER_INT || state == GRID_LEX_NUMBER_FRACTION ||
           state == GRID_LEX_NUMBER_EXPONENT;
}

enum grid_lex_result grid_lex_number(struct grid_cursor *cursor)
{
    enum grid_lex_number state = GRID_LEX_NUMBER_START;
    while (cursor->at < cursor->end || grid_cursor_settle(cursor)) {
        enum grid_lex_number next = grid_lex_number_step(state, *cursor->at);
        if (next == GRID_LEX_NUMBER_STOP)
            return grid_lex_number_whole(state) ? GRID_LEX_DONE : GRID_LEX_BAD;
        bool run = next == state; /* digits: they may go on */
        state = next;
        cursor->at++;
        while (run && cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9')
            cursor->at++;
    }
    return grid_lex_number_whole(state) ? GRID_LEX_DONE : GRID_LEX_ENDED;
}

/* A state of UTF-8 within a character: bytes still due, and the range of the next one. */
static inline uint32_t utf8_due(uint32_t bytes, uint32_t low, uint32_t high)
{
    return bytes | low << 8 | high << 16;
}

static uint32_t utf8_lead(unsigned char byte)
{
    if (byte < 0x80)
        return 0;
    if (byte < 0xC2 || byte > 0xF4) /* a follower, an overlong form of ASCII, or over U+10FFFF */
        return GRID_UTF8_BAD;
    if (byte < 0xE0)
        return utf8_due(1, 0x80, 0xBF);
    if (byte < 0xF0) /* E0 may be overlong, ED a surrogate */
        return utf8_due(2, byte == 0xE0 ? 0xA0 : 0x80, byte == 0xED ? 0x9F : 0xBF);
    return utf8_due(3, byte == 0xF0 ? 0x90 : 0x80, byte == 0xF4 ? 0x8F : 0xBF);
}

static uint32_t utf8_step(uint32_t state, unsigned char byte)
{
    if (state == 0)
        return utf8_lead(byte);
    if (byte < (state >> 8 & 0xFF) || byte > state >> 16)
        return GRID_UTF8_BAD;
    uint32_t due = (state & 0xFF) - 1;
    return due ? utf8_due(due, 0x80, 0xBF) : 0;
}

/* Passes whole characters of the common kinds; what it leaves, the automaton judges. */
static const char *utf8_common(const char *at, const char *end)
{
    while (end - at >= 8) {
        uint64_t eight;
        memcpy(&eight, at, sizeof eight);
        if (!(eight & 0x8080808080808080u)) {
            at += 8;
            continue;
        }
        const unsigned char *byte = (const unsigned char *)at;
        if (byte[0] < 0x80)
            at++;
        else if (byte[0] > 0xE0 && byte[0] < 0xF0 && byte[0] != 0xED && (byte[1] & 0xC0) == 0x80 &&
                 (byte[2] & 0xC0) == 0x80)
            at += 3;
        else if (byte[0] >= 0xC2 && byte[0] < 0xE0 && (byte[1] & 0xC0) == 0x80)
            at += 2;
        else
            break;
    }
    return at;
}

uint32_t grid_utf8_feed(uint32_t state, const char *bytes, size_t len)
{
    if (len == 0 || state == GRID_UTF8_BAD)
        return state;
    const char *end = bytes + len;
    while (bytes < end && state != GRID_UTF8_BAD) {
        if (state == 0)
            bytes = utf8_common(bytes, end);
        if (bytes < end)
            state = utf8_step(state, (unsigned char)*bytes++);
    }
    return state;
}
