/*
 * json.c - the pull reader behind json.h
 *
 * Story     lex.c finds the ends of tokens; this file knows what may follow what. Skipping keeps one bit for each open
 *           bracket on the stack, up to SKIP_LEVELS; deeper levels are only counted, so there a bracket may be closed
 *           by the other kind: no body of a real client is that deep, and no keyed value is (128 levels).
 */
#include "json.h"

#include "check.h"

#define SKIP_LEVELS 16384u /* 2 KiB of bits */
#define QUICK_BYTES 48     /* room for a name, a colon, a value and what is behind it */
#define NAMED_SO_BYTES 32  /* room for a comma, quotes, a colon and a guessed name */
/* The first n bytes of a word in memory. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HEAD_OF(n) (((uint64_t)1 << 8 * (n)) - 1)
#else
#define HEAD_OF(n) ~(UINT64_MAX >> 8 * (n))
#endif

void grid_json_init(struct grid_json *json, const struct grid_str *slices, size_t n_slices)
{
    *json = (struct grid_json){.fault = GRID_JSON_FINE};
    grid_cursor_init(&json->cursor, slices, n_slices);
}

size_t grid_json_offset(const struct grid_json *json)
{
    return grid_cursor_offset(&json->cursor);
}

/* The first fault stays. */
static bool fail(struct grid_json *json, enum grid_json_fault fault)
{
    if (json->fault == GRID_JSON_FINE)
        json->fault = fault;
    return false;
}

static bool fail_lex(struct grid_json *json, enum grid_lex_result result)
{
    return result == GRID_LEX_DONE || fail(json, result == GRID_LEX_ENDED ? GRID_JSON_ENDED : GRID_JSON_SYNTAX);
}

static char token_behind_space(struct grid_json *json)
{
    struct grid_cursor *cursor = &json->cursor;
    if (cursor->end - cursor->at > 1 && *cursor->at == ' ' && cursor->at[1] > ' ')
        return *++cursor->at;
    for (;;) {
        if (!grid_cursor_settle(cursor)) {
            fail(json, GRID_JSON_ENDED);
            return 0;
        }
        cursor->at = grid_lex_space(cursor->at, cursor->end);
        if (GRID_LIKELY(cursor->at < cursor->end))
            return *cursor->at;
    }
}

/* Stands at the next byte that is not white space; 0 with a fault at the end. (A raw NUL byte is never legal.) */
static inline char token(struct grid_json *json)
{
    const struct grid_cursor *cursor = &json->cursor;
    if (GRID_UNLIKELY(json->fault != GRID_JSON_FINE))
        return 0;
    if (GRID_LIKELY(cursor->end > cursor->at && *cursor->at > ' ')) /* most bodies have no white space here */
        return *cursor->at;
    return token_behind_space(json);
}

static bool expect(struct grid_json *json, char byte)
{
    if (token(json) != byte)
        return fail(json, GRID_JSON_SYNTAX);
    json->cursor.at++;
    return true;
}

static const uint8_t kinds[256] = {
    ['n'] = GRID_JSON_NULL,   ['f'] = GRID_JSON_FALSE,  ['t'] = GRID_JSON_TRUE,   ['"'] = GRID_JSON_STRING,
    ['['] = GRID_JSON_ARRAY,  ['{'] = GRID_JSON_OBJECT, ['-'] = GRID_JSON_NUMBER, ['0'] = GRID_JSON_NUMBER,
    ['1'] = GRID_JSON_NUMBER, ['2'] = GRID_JSON_NUMBER, ['3'] = GRID_JSON_NUMBER, ['4'] = GRID_JSON_NUMBER,
    ['5'] = GRID_JSON_NUMBER, ['6'] = GRID_JSON_NUMBER, ['7'] = GRID_JSON_NUMBER, ['8'] = GRID_JSON_NUMBER,
    ['9'] = GRID_JSON_NUMBER,
};

enum grid_json_kind grid_json_peek(struct grid_json *json)
{
    enum grid_json_kind kind = (enum grid_json_kind)kinds[(unsigned char)token(json)];
    if (kind == GRID_JSON_NOTHING)
        fail(json, GRID_JSON_SYNTAX);
    return kind;
}

bool grid_json_enter(struct grid_json *json, enum grid_json_kind kind)
{
    GRID_ASSERT(kind == GRID_JSON_ARRAY || kind == GRID_JSON_OBJECT);
    if (grid_json_peek(json) != kind)
        return false;
    json->cursor.at++;
    json->fresh = true;
    return true;
}

/* The step between two entries of a container: true when one more is there. */
static bool entry(struct grid_json *json, char close)
{
    char byte = token(json);
    bool fresh = json->fresh;
    json->fresh = false;
    if (byte == close && json->fault == GRID_JSON_FINE) {
        json->cursor.at++;
        return false;
    }
    if (fresh)
        return json->fault == GRID_JSON_FINE;
    if (byte != ',')
        return fail(json, GRID_JSON_SYNTAX);
    json->cursor.at++;
    return true;
}

bool grid_json_element(struct grid_json *json)
{
    return entry(json, ']');
}

/* The common name: short, ASCII, without escapes, inside one slice. False with nothing done for any other. */
static bool plain_name(struct grid_json *json, char *room, size_t cap, struct grid_str *out_name)
{
    const char *from = json->cursor.at + 1;
    unsigned char high = 0;
    const char *stop = grid_lex_plain(from, json->cursor.end, &high);
    size_t len = (size_t)(stop - from);
    if (stop == json->cursor.end || *stop != '"' || (high & 0x80) || len > cap)
        return false;
    memcpy(room, from, len);
    *out_name = (struct grid_str){room, len};
    json->cursor.at = stop + 1;
    return true;
}

bool grid_json_member(struct grid_json *json, char *room, size_t cap, struct grid_str *out_name)
{
    if (!entry(json, '}'))
        return false;
    if (token(json) != '"')
        return fail(json, GRID_JSON_SYNTAX);
    struct grid_str name = {NULL, 0};
    if (!plain_name(json, room, cap, &name))
        grid_json_text(json, room, cap, &name);
    if (!expect(json, ':'))
        return false;
    *out_name = name;
    return true;
}

/* The common name and its colon: at most GRID_SCAN_NEAR ASCII bytes without escapes, inside one slice, no white space.
 * False with nothing done for any other. */
static inline bool near_name(struct grid_json *json, struct grid_json_name *out)
{
    const char *from = json->cursor.at + 1;
    unsigned char high = 0;
    if (json->cursor.end - from < (ptrdiff_t)GRID_SCAN_NEAR + 2)
        return false;
    const char *stop = grid_scan_near(from, &high);
    if (!stop || stop[0] != '"' || stop[1] != ':' || (high & 0x80))
        return false;
    size_t len = (size_t)(stop - from);
    memcpy(&out->head, from, sizeof out->head);
    if (len < sizeof out->head)
        out->head &= HEAD_OF(len);
    out->text = (struct grid_str){from, len};
    json->cursor.at = stop + 2;
    return true;
}

bool grid_json_named(struct grid_json *json, struct grid_json_name *out)
{
    if (!entry(json, '}'))
        return false;
    if (token(json) != '"')
        return fail(json, GRID_JSON_SYNTAX);
    if (near_name(json, out))
        return true;
    out->text = (struct grid_str){NULL, 0};
    grid_json_text(json, out->room, sizeof out->room, &out->text);
    out->head = 0;
    memcpy(&out->head, out->room, out->text.len < sizeof out->head ? out->text.len : sizeof out->head);
    return expect(json, ':');
}

bool grid_json_named_so(struct grid_json *json, const char *text, size_t len)
{
    const char *at = json->cursor.at;
    uint64_t here, wanted;
    if (json->cursor.end - at < NAMED_SO_BYTES || len > NAMED_SO_BYTES - sizeof here || json->fault != GRID_JSON_FINE)
        return false;
    if (!json->fresh && *at++ != ',')
        return false;
    if (*at++ != '"' || at[len] != '"' || at[len + 1] != ':')
        return false;
    memcpy(&here, at, sizeof here);
    memcpy(&wanted, text, sizeof wanted);
    if (len < sizeof here ? (here & HEAD_OF(len)) != wanted : here != wanted || memcmp(at, text, len) != 0)
        return false;
    json->cursor.at = at + len + 2;
    json->fresh = false;
    return true;
}

/* ---- passing values --------------------------------------------------------------------------------------------- */

static bool pass_string(struct grid_json *json, unsigned *out_traits)
{
    json->cursor.at++; /* the opening quote */
    return fail_lex(json, grid_lex_text(&json->cursor, json->memo, out_traits));
}

static bool pass_number(struct grid_json *json)
{
    return fail_lex(json, grid_lex_number(&json->cursor));
}

static bool pass_word(struct grid_json *json, const char *word)
{
    for (; *word; word++) {
        if (!grid_cursor_settle(&json->cursor))
            return fail(json, GRID_JSON_ENDED);
        if (*json->cursor.at != *word)
            return fail(json, GRID_JSON_SYNTAX);
        json->cursor.at++;
    }
    return true;
}

/* Anything but an array or object; out_traits are of strings. */
static bool pass_scalar(struct grid_json *json, enum grid_json_kind kind, unsigned *out_traits)
{
    switch (kind) {
    case GRID_JSON_STRING:
        return pass_string(json, out_traits);
    case GRID_JSON_NUMBER:
        return pass_number(json);
    case GRID_JSON_NULL:
        return pass_word(json, "null");
    case GRID_JSON_TRUE:
        return pass_word(json, "true");
    case GRID_JSON_FALSE:
        return pass_word(json, "false");
    default:
        return fail(json, GRID_JSON_SYNTAX);
    }
}

/* The brackets that are open while a value is skipped. */
struct nest {
    size_t depth, base;                  /* base: offset of the outermost */
    bool rungs;                          /* the outermost is an array, and long ones in it are noted */
    bool watch;                          /* arrays are noted or looked up */
    uint64_t objects[SKIP_LEVELS / 64];  /* a bit a level: an object */
    uint32_t starts[2 * GRID_LEX_RUNGS]; /* offsets of those that have a rung */
};

enum nest_kind { NEST_ARRAY, NEST_OBJECT, NEST_UNKNOWN };

static void nest_push(struct nest *nest, bool object)
{
    if (nest->depth < SKIP_LEVELS) {
        uint64_t bit = (uint64_t)1 << nest->depth % 64;
        uint64_t *word = &nest->objects[nest->depth / 64];
        if (nest->depth % 64 == 0) /* a word is cleared when it is first used: the whole would cost more */
            *word = 0;
        *word = object ? *word | bit : *word & ~bit;
    }
    nest->depth++;
}

static enum nest_kind nest_top(const struct nest *nest)
{
    size_t level = nest->depth - 1;
    if (level >= SKIP_LEVELS)
        return NEST_UNKNOWN;
    return nest->objects[level / 64] >> level % 64 & 1 ? NEST_OBJECT : NEST_ARRAY;
}

static bool pass_name(struct grid_json *json)
{
    unsigned traits;
    if (token(json) != '"')
        return fail(json, GRID_JSON_SYNTAX);
    return pass_string(json, &traits) && expect(json, ':');
}

/* Behind an opening bracket, or behind a value: on to the next value, over commas, names and closing brackets. False at
 * the end of the outermost bracket and on a fault. */
static bool nest_advance(struct grid_json *json, struct nest *nest, bool opened)
{
    for (;; opened = false) {
        char byte = token(json);
        enum nest_kind top = nest_top(nest);
        if ((byte == '}' && top != NEST_ARRAY) || (byte == ']' && top != NEST_OBJECT)) {
            json->cursor.at++;
            if (--nest->depth == 0)
                return false;
            if (nest->rungs && byte == ']' && grid_lex_rung(nest->depth) != SIZE_MAX)
                grid_lex_rung_note(json->memo, grid_lex_rung(nest->depth), nest->base,
                                   nest->starts[grid_lex_rung(nest->depth)], grid_json_offset(json));
            continue;
        }
        if (!opened) {
            if (byte != ',')
                return fail(json, GRID_JSON_SYNTAX);
            json->cursor.at++;
        }
        if (top == NEST_OBJECT)
            return pass_name(json);
        if (top == NEST_ARRAY || token(json) != '"')
            return json->fault == GRID_JSON_FINE;
        unsigned traits; /* too deep to know: a name or an element */
        if (!pass_string(json, &traits))
            return false;
        if (token(json) == ':') {
            json->cursor.at++;
            return true;
        }
    }
}

/* The end of a short string without escapes, a short whole number or a word that begins at `at`; NULL of any other
 * value. QUICK_BYTES can be read there. */
static inline const char *quick_scalar(const char *at)
{
    unsigned char high = 0;
    const char *stop;
    switch (kinds[(unsigned char)*at]) {
    case GRID_JSON_STRING:
        stop = grid_scan_near(at + 1, &high);
        return stop && *stop == '"' ? stop + 1 : NULL;
    case GRID_JSON_NUMBER:
        for (stop = at; stop < at + GRID_SCAN_NEAR && *stop >= '0' && *stop <= '9'; stop++) {
        }
        if (stop == at || (*at == '0' && stop > at + 1) || (*stop != ',' && *stop != '}' && *stop != ']'))
            return NULL;
        return stop;
    case GRID_JSON_NULL:
        return memcmp(at, "null", 4) == 0 ? at + 4 : NULL;
    case GRID_JSON_TRUE:
        return memcmp(at, "true", 4) == 0 ? at + 4 : NULL;
    case GRID_JSON_FALSE:
        return memcmp(at, "false", 5) == 0 ? at + 5 : NULL;
    default:
        return NULL;
    }
}

/* Takes as many steps as are plain and lie in this slice, from before a value to before a value. Whatever it does not
 * know it leaves to pass_nest, which knows everything. */
static void nest_quick(struct grid_json *json, struct nest *nest)
{
    const char *at = json->cursor.at, *end = json->cursor.end;
    while (end - at > QUICK_BYTES && nest->depth < SKIP_LEVELS) {
        bool object = nest_top(nest) == NEST_OBJECT, opens = false;
        const char *next;
        if (*at == '{' || *at == '[') {
            if (nest->depth + 1 == SKIP_LEVELS || (*at == '[' && nest->watch))
                break;
            object = *at == '{';
            next = at + 1;
            opens = *next != (object ? '}' : ']');
            if (!opens) { /* an empty one is a scalar here */
                object = nest_top(nest) == NEST_OBJECT;
                next = next[1] == ',' ? next + 1 : NULL;
            }
        } else {
            next = quick_scalar(at);
            if (next && *next != ',')
                next = NULL;
        }
        if (!next)
            break;
        if (opens && *next <= ' ')
            break; /* white space, and perhaps a closing bracket behind it */
        if (!opens)
            next += next[1] == ' ' ? 2 : 1;
        if (object) {
            const char *name = next;
            if (*name != '"' || end - name <= QUICK_BYTES || !(next = quick_scalar(name)) || *next++ != ':')
                break;
            next += *next == ' ';
        }
        if (opens)
            nest_push(nest, object);
        at = next;
    }
    json->cursor.at = at;
}

/* Enters an array or object, or passes an array that is known. True: entered. */
static bool nest_enter(struct grid_json *json, struct nest *nest, enum grid_json_kind kind)
{
    size_t rung = grid_lex_rung(nest->depth);
    if (kind == GRID_JSON_ARRAY && nest->watch) {
        if (grid_lex_rung_jump(json->memo, &json->cursor))
            return false;
        if (rung != SIZE_MAX)
            nest->starts[rung] = (uint32_t)grid_json_offset(json);
    }
    json->cursor.at++;
    nest_push(nest, kind == GRID_JSON_OBJECT);
    return true;
}

static bool pass_nest(struct grid_json *json)
{
    struct nest nest;
    nest.depth = 0;
    nest.base = grid_json_offset(json);
    nest.rungs = json->memo && *json->cursor.at == '[';
    nest.watch = json->memo && (nest.rungs || json->memo->has_rungs);
    for (;;) {
        if (nest.depth > 0)
            nest_quick(json, &nest);
        enum grid_json_kind kind = grid_json_peek(json);
        bool nested = kind == GRID_JSON_ARRAY || kind == GRID_JSON_OBJECT, entered = false;
        unsigned traits;
        if (nested)
            entered = nest_enter(json, &nest, kind);
        else if (!pass_scalar(json, kind, &traits))
            return false;
        if (nest.depth == 0 || !nest_advance(json, &nest, entered))
            return json->fault == GRID_JSON_FINE;
    }
}

static inline bool pass_kind(struct grid_json *json, enum grid_json_kind kind, unsigned *out_traits)
{
    json->fresh = false;
    if (GRID_LIKELY(kind == GRID_JSON_STRING))
        return pass_string(json, out_traits);
    *out_traits = GRID_LEX_HIGH | GRID_LEX_ESCAPED; /* of no string: not known */
    return kind == GRID_JSON_ARRAY || kind == GRID_JSON_OBJECT ? pass_nest(json) : pass_scalar(json, kind, out_traits);
}

bool grid_json_skip(struct grid_json *json)
{
    unsigned traits;
    return pass_kind(json, grid_json_peek(json), &traits);
}

bool grid_json_finish(struct grid_json *json)
{
    if (json->fault != GRID_JSON_FINE)
        return false;
    struct grid_cursor *cursor = &json->cursor;
    while (grid_cursor_settle(cursor)) {
        cursor->at = grid_lex_space(cursor->at, cursor->end);
        if (cursor->at < cursor->end)
            return fail(json, GRID_JSON_SYNTAX);
    }
    return true;
}

/* ---- tokens as sent, strings decoded ---------------------------------------------------------------------------- */

bool grid_json_raw(struct grid_json *json, struct grid_json_raw *out_raw)
{
    enum grid_json_kind kind = grid_json_peek(json); /* steps over the white space ahead */
    unsigned traits;
    out_raw->from = json->cursor;
    out_raw->kind = (uint8_t)kind;
    if (!pass_kind(json, kind, &traits))
        return false;
    out_raw->bytes = grid_cursor_offset(&json->cursor) - grid_cursor_offset(&out_raw->from);
    out_raw->high = traits & GRID_LEX_HIGH;
    out_raw->escaped = traits & GRID_LEX_ESCAPED;
    return true;
}

void grid_json_decode_raw(const struct grid_json_raw *raw, struct grid_json_decode *out_decode)
{
    *out_decode = (struct grid_json_decode){.at = raw->from, .high = raw->high};
    out_decode->at.at++; /* the opening quote */
}

bool grid_json_decode(struct grid_json *json, struct grid_json_decode *out_decode)
{
    struct grid_json_raw raw;
    if (grid_json_peek(json) != GRID_JSON_STRING)
        return fail(json, GRID_JSON_SYNTAX);
    if (!grid_json_raw(json, &raw))
        return false;
    grid_json_decode_raw(&raw, out_decode);
    return true;
}
