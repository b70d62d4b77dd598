/*
 * lex.c - the scans behind lex.h
 *
 * Story     The hot loop is grid_lex_plain: almost every byte of a prompt is inside a string and ends no run, so 64
 *           bytes are looked at together where SSE2 is there (every x86-64). All other steps are a byte at a time.
 */
#include "lex.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define LAST_CONTROL 0x1F /* bytes up to this may not stand in a string unescaped */
#define MEMO_BYTES 16u    /* strings shorter than this are faster passed again than remembered */

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

const char *grid_lex_plain_twin(const char *at, const char *end, unsigned char *high)
{
    unsigned char seen = 0;
    for (; at < end; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte == '"' || byte == '\\' || byte <= LAST_CONTROL)
            break;
        seen |= byte;
    }
    *high |= seen;
    return at;
}

#ifdef __SSE2__
/* All ones in each byte that ends a plain run. */
static inline __m128i plain_stops(__m128i bytes)
{
    __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    __m128i slash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(LAST_CONTROL)), bytes);
    return _mm_or_si128(_mm_or_si128(quote, slash), control);
}

/* Looks at 16 bytes: where the run ends among them, or NULL. */
static inline const char *plain_sixteen(const char *at, unsigned *high_bits)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
    unsigned stops = (unsigned)_mm_movemask_epi8(plain_stops(bytes));
    unsigned bits = (unsigned)_mm_movemask_epi8(bytes);
    if (!stops) {
        *high_bits |= bits;
        return NULL;
    }
    unsigned before = (unsigned)__builtin_ctz(stops);
    *high_bits |= bits & ((1u << before) - 1u);
    return at + before;
}

/* Passes 64 bytes at a time while none of them ends the run. */
static inline const char *plain_far(const char *at, const char *end, unsigned *high_bits)
{
    __m128i seen = _mm_setzero_si128();
    for (; end - at >= 64; at += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)at);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(at + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(at + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(at + 48));
        __m128i stops =
            _mm_or_si128(_mm_or_si128(plain_stops(a), plain_stops(b)), _mm_or_si128(plain_stops(c), plain_stops(d)));
        if (_mm_movemask_epi8(stops))
            break;
        seen = _mm_or_si128(seen, _mm_or_si128(_mm_or_si128(a, b), _mm_or_si128(c, d)));
    }
    *high_bits |= (unsigned)_mm_movemask_epi8(seen);
    return at;
}

const char *grid_lex_plain(const char *at, const char *end, unsigned char *high)
{
    unsigned high_bits = 0;
    const char *stop = NULL;
    /* Names and other short strings end in the first 16 bytes. */
    if (end - at >= 16 && !(stop = plain_sixteen(at, &high_bits))) {
        at = plain_far(at + 16, end, &high_bits);
        while (end - at >= 16 && !(stop = plain_sixteen(at, &high_bits)))
            at += 16;
    }
    *high |= high_bits ? 0x80 : 0;
    return stop ? stop : grid_lex_plain_twin(at, end, high);
}

/* grid_lex_plain of MEMO_BYTES bytes. */
static inline const char *plain_near(const char *at, unsigned char *high)
{
    unsigned high_bits = 0;
    const char *stop = plain_sixteen(at, &high_bits);
    *high |= high_bits ? 0x80 : 0;
    return stop ? stop : at + MEMO_BYTES;
}
#else
static inline const char *plain_near(const char *at, unsigned char *high)
{
    return grid_lex_plain_twin(at, at + MEMO_BYTES, high);
}

const char *grid_lex_plain(const char *at, const char *end, unsigned char *high)
{
    return grid_lex_plain_twin(at, end, high);
}
#endif

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

/* To behind the closing quote, from anywhere between tokens of the string. */
static enum grid_lex_result string_rest(struct grid_cursor *cursor, unsigned char *high)
{
    for (;;) {
        if (!grid_cursor_settle(cursor))
            return GRID_LEX_ENDED;
        cursor->at = grid_lex_plain(cursor->at, cursor->end, high);
        if (cursor->at == cursor->end)
            continue;
        if (*cursor->at == '"') {
            cursor->at++;
            return GRID_LEX_DONE;
        }
        if (*cursor->at != '\\')
            return GRID_LEX_BAD;
        cursor->at++;
        uint32_t unit;
        enum grid_lex_result result = grid_lex_escape(cursor, &unit);
        if (result != GRID_LEX_DONE)
            return result;
    }
}

static struct grid_lex_note *memo_note(struct grid_lex_memo *memo, size_t start)
{
    /* Fibonacci hashing: offsets of strings in one body are often evenly spaced. */
    uint64_t mixed = (uint64_t)start * 0x9E3779B97F4A7C15u;
    return &memo->notes[(mixed >> 32) % GRID_LEX_MEMO_SLOTS];
}

enum grid_lex_result grid_lex_string(struct grid_cursor *cursor, struct grid_lex_memo *memo, bool *out_high)
{
    unsigned char high = 0;
    size_t start = grid_cursor_offset(cursor);
    struct grid_lex_note *note = NULL;
    if (memo && cursor->end - cursor->at >= (ptrdiff_t)MEMO_BYTES) {
        const char *near = cursor->at + MEMO_BYTES;
        const char *stop = plain_near(cursor->at, &high);
        if (stop < near && *stop == '"') { /* most strings of a body are names and other short things */
            cursor->at = stop + 1;
            *out_high = high & 0x80;
            return GRID_LEX_DONE;
        }
        note = memo_note(memo, start);
        if (note->start == start) {
            cursor->at = note->at;
            cursor->end = note->end;
            cursor->next = note->next;
            cursor->through = note->through;
            *out_high = note->high;
            return GRID_LEX_DONE;
        }
        cursor->at = stop;
    }
    enum grid_lex_result result = string_rest(cursor, &high);
    *out_high = high & 0x80;
    if (note && result == GRID_LEX_DONE && cursor->next <= UINT32_MAX)
        *note =
            (struct grid_lex_note){start, cursor->at, cursor->end, cursor->through, (uint32_t)cursor->next, *out_high};
    return result;
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
