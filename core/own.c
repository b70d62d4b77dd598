/*
 * own.c - the reader behind own.h
 *
 * Story     The text is read by the grammar. Own objects are only counted, since each is a member of the one before;
 *           what is open within them is foreign and remembered as one bit each, the first 64 deep: deeper than that,
 *           strings are passed and brackets counted. So text that merely looks like an id is never taken for one.
 *           NaN and Infinity pass for numbers, since engines written in Python print them. A name or a prefix is
 *           recognised as it is written: escapes hide it.
 */
#include "own.h"

#define KINDS 64u /* foreign levels whose kind is kept */

enum text {
    TEXT_VALUE,  /* a value is due */
    TEXT_ITEM,   /* a value or the end of the array */
    TEXT_MEMBER, /* a name or the end of the object */
    TEXT_NAME,   /* a name is due */
    TEXT_COLON,
    TEXT_AFTER, /* behind a value */
    TEXT_DEEP,  /* deeper than the kinds are kept */
    TEXT_NUMBER,
    TEXT_LITERAL,
    TEXT_STRING,
    TEXT_ESCAPE,
    TEXT_OWN_NAME, /* in the name of a member of an own object */
    TEXT_PREFIX,   /* at the start of an id */
    TEXT_OVER,     /* nothing of this text matters any more */
};

static bool in_object(const struct grid_own *own)
{
    return own->foreign == 0 || (own->foreign_kind >> (own->foreign - 1) & 1);
}

static void member_begin(struct grid_own *own, enum text text)
{
    own->takes_id = own->opens_own = false;
    own->text = (uint8_t)text;
}

static void value_done(struct grid_own *own)
{
    member_begin(own, own->own + own->foreign > 0 ? TEXT_AFTER : TEXT_OVER);
}

static void open_foreign(struct grid_own *own, bool object)
{
    if (++own->foreign > KINDS) {
        member_begin(own, TEXT_DEEP);
        return;
    }
    uint64_t bit = (uint64_t)1 << (own->foreign - 1);
    own->foreign_kind = object ? own->foreign_kind | bit : own->foreign_kind & ~bit;
    member_begin(own, object ? TEXT_MEMBER : TEXT_ITEM);
}

static void open_object(struct grid_own *own)
{
    if (own->foreign > 0 || (own->own > 0 && !own->opens_own)) {
        open_foreign(own, true);
        return;
    }
    own->own++;
    member_begin(own, TEXT_MEMBER);
}

static void close_one(struct grid_own *own, char byte)
{
    if (byte != (in_object(own) ? '}' : ']')) {
        own->text = TEXT_OVER;
        return;
    }
    if (own->foreign > 0)
        own->foreign--;
    else
        own->own--;
    value_done(own);
}

static void open_name(struct grid_own *own, char byte)
{
    own->named = true;
    own->matched = 0;
    own->text = own->foreign > 0 ? TEXT_STRING : TEXT_OWN_NAME;
    if (byte != '"')
        own->text = TEXT_OVER;
}

static void open_literal(struct grid_own *own, const char *literal)
{
    own->wanted = literal + 1;
    own->text = TEXT_LITERAL;
}

static void open_value(struct grid_own *own, char byte)
{
    switch (byte) {
    case '{':
        open_object(own);
        break;
    case '[':
        open_foreign(own, false);
        break;
    case '"':
        own->named = false;
        own->matched = 0;
        own->text = own->takes_id ? TEXT_PREFIX : TEXT_STRING;
        break;
    case 't':
        open_literal(own, "true");
        break;
    case 'f':
        open_literal(own, "false");
        break;
    case 'n':
        open_literal(own, "null");
        break;
    case 'N':
        open_literal(own, "NaN");
        break;
    case 'I':
        open_literal(own, "Infinity");
        break;
    default:
        own->number = (uint8_t)grid_lex_number_step(GRID_LEX_NUMBER_START, byte);
        own->text = own->number == GRID_LEX_NUMBER_STOP ? TEXT_OVER : TEXT_NUMBER;
    }
}

/* A byte between tokens that is not white space. */
static void structure_step(struct grid_own *own, char byte)
{
    bool may_close = own->text == TEXT_ITEM || own->text == TEXT_MEMBER;
    if (may_close && (byte == '}' || byte == ']'))
        close_one(own, byte);
    else if (own->text == TEXT_VALUE || own->text == TEXT_ITEM)
        open_value(own, byte);
    else if (own->text == TEXT_MEMBER || own->text == TEXT_NAME)
        open_name(own, byte);
    else if (own->text == TEXT_AFTER && byte == ',')
        own->text = in_object(own) ? TEXT_NAME : TEXT_VALUE;
    else if (own->text == TEXT_AFTER)
        close_one(own, byte);
    else /* TEXT_COLON */
        own->text = byte == ':' ? TEXT_VALUE : TEXT_OVER;
}

static const char *deep_run(struct grid_own *own, const char *at)
{
    if (*at == '"') {
        own->named = false;
        own->text = TEXT_STRING;
    } else if (*at == '{' || *at == '[') {
        own->foreign++;
    } else if ((*at == '}' || *at == ']') && --own->foreign == KINDS) {
        own->text = TEXT_AFTER;
    }
    return at + 1;
}

static const char *number_run(struct grid_own *own, const char *at, const char *end)
{
    enum grid_lex_number state = (enum grid_lex_number)own->number, next;
    if (state == GRID_LEX_NUMBER_MINUS && *at == 'I') {
        open_literal(own, "Infinity");
        return at + 1;
    }
    for (; at < end && (next = grid_lex_number_step(state, *at)) != GRID_LEX_NUMBER_STOP; at++)
        state = next;
    own->number = (uint8_t)state;
    if (at < end && grid_lex_number_whole(state))
        value_done(own);
    else if (at < end)
        own->text = TEXT_OVER;
    return at;
}

static const char *literal_run(struct grid_own *own, const char *at)
{
    if (*at != *own->wanted)
        own->text = TEXT_OVER;
    else if (*++own->wanted == '\0')
        value_done(own);
    return at + 1;
}

static void name_done(struct grid_own *own)
{
    static const struct {
        struct grid_str name;
        bool takes_id, opens_own;
    } names[] = {{GRID_LIT("id"), true, false},
                 {GRID_LIT("response"), false, true},
                 {GRID_LIT("response_id"), true, false},
                 {GRID_LIT("conversation"), true, true},
                 {GRID_LIT("conversation_id"), true, false},
                 {GRID_LIT("previous_response_id"), true, false}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (grid_str_eq((struct grid_str){own->name, own->matched}, names[i].name)) {
            own->takes_id = names[i].takes_id;
            own->opens_own = names[i].opens_own;
        }
}

static const char *own_name_run(struct grid_own *own, const char *at, const char *end)
{
    unsigned char high = 0;
    const char *stop = grid_lex_plain(at, end, &high);
    size_t len = (size_t)(stop - at);
    if (len > GRID_OWN_NAME_BYTES - own->matched) { /* longer than any that matters */
        own->text = TEXT_STRING;
        return stop;
    }
    memcpy(own->name + own->matched, at, len);
    own->matched = (uint8_t)(own->matched + len);
    if (stop < end) {
        own->text = TEXT_STRING;
        if (*stop == '"')
            name_done(own);
    }
    return stop;
}

static const char *prefix_run(struct grid_own *own, const char *at, bool *out_id)
{
    if (own->matched == 0)
        own->wanted = *at == 'c' ? "conv_" : "resp_";
    if (*at != *own->wanted) {
        own->text = TEXT_STRING;
        return at;
    }
    own->wanted++;
    if (++own->matched == GRID_OWN_PREFIX_BYTES) {
        own->text = TEXT_STRING;
        *out_id = true;
    }
    return at + 1;
}

static const char *string_run(struct grid_own *own, const char *at, const char *end)
{
    unsigned char high = 0;
    at = grid_lex_plain(at, end, &high);
    if (at == end)
        return at;
    if (*at == '\\') {
        own->text = TEXT_ESCAPE;
        own->escape = GRID_LEX_ESCAPE_START;
    } else if (*at != '"') {
        own->text = TEXT_OVER;
        return at; /* it may end a line */
    } else if (own->foreign > KINDS) {
        own->text = TEXT_DEEP;
    } else if (own->named) {
        own->text = TEXT_COLON;
    } else {
        value_done(own);
    }
    return at + 1;
}

static const char *escape_run(struct grid_own *own, const char *at)
{
    own->escape = (uint8_t)grid_lex_escape_step(own->escape, *at);
    if (own->escape == GRID_LEX_ESCAPE_BAD)
        own->text = TEXT_OVER;
    else if (own->escape == GRID_LEX_ESCAPE_DONE)
        own->text = TEXT_STRING;
    return at + 1;
}

void grid_own_begin(struct grid_own *own)
{
    *own = (struct grid_own){.text = TEXT_VALUE};
}

bool grid_own_over(const struct grid_own *own)
{
    return own->text == TEXT_OVER;
}

const char *grid_own_run(struct grid_own *own, const char *at, const char *end, bool lines, bool *out_id)
{
    *out_id = false;
    while (at < end && !*out_id && own->text != TEXT_OVER && !(lines && (*at == '\n' || *at == '\r'))) {
        switch ((enum text)own->text) {
        case TEXT_STRING:
            at = string_run(own, at, end);
            break;
        case TEXT_ESCAPE:
            at = escape_run(own, at);
            break;
        case TEXT_OWN_NAME:
            at = own_name_run(own, at, end);
            break;
        case TEXT_PREFIX:
            at = prefix_run(own, at, out_id);
            break;
        case TEXT_NUMBER:
            at = number_run(own, at, end);
            break;
        case TEXT_LITERAL:
            at = literal_run(own, at);
            break;
        case TEXT_DEEP:
            at = deep_run(own, at);
            break;
        default:
            if (*at != ' ' && *at != '\t' && *at != '\n' && *at != '\r')
                structure_step(own, *at);
            at++;
        }
    }
    return at;
}

void grid_own_break(struct grid_own *own)
{
    const char feed = '\n';
    if (own->text == TEXT_NUMBER)
        (void)number_run(own, &feed, &feed + 1);
    else if (own->text >= TEXT_LITERAL)
        own->text = TEXT_OVER; /* no string and no literal has a line feed in it */
}
