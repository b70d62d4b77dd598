/*
 * usage.c - the reader behind usage.h
 *
 * Story     Two machines: the lines of an event stream, and the JSON text in them. Of the text only a path matters
 *           (top, response or message, usage, details); everything beside it is passed by its brackets and quotes.
 *           An event brings tokens when it has a choice (Chat Completions, Completions) or is a delta of content
 *           (Messages, Responses); its type stands anywhere in it, so that is known at its end.
 */
#include "usage.h"

#include "scan.h"

#define DATA "data:"
#define DATA_BYTES (sizeof DATA - 1)
#define MOST_TOKENS 1000000000000u /* more is no number of tokens */

enum line { LINE_NAME, LINE_TEXT, LINE_OTHER };

enum at {
    AT_VALUE,
    AT_NAME,   /* before a member's name or the end of an object */
    AT_COLON,  /* behind it */
    AT_AFTER,  /* behind a value, or within a literal: neither matters before the next comma */
    AT_CHOICE, /* behind the bracket that opens the choices */
    AT_NUMBER,
    AT_STRING,
    AT_ESCAPE,
    AT_OVER,
};

enum role { ROLE_VALUE, ROLE_NAME, ROLE_TYPE };

enum object { OBJECT_NONE, OBJECT_TOP, OBJECT_HOLDER, OBJECT_USAGE, OBJECT_DETAILS };

enum member { MEMBER_OTHER, MEMBER_OBJECT, MEMBER_CHOICES, MEMBER_TYPE, MEMBER_COUNT };

/* The members that matter: where they stand, what they are, and which object or count. */
static const struct known {
    struct grid_str name;
    uint8_t in, member, what;
} known[] = {
    {GRID_LIT("choices"), OBJECT_TOP, MEMBER_CHOICES, 0},
    {GRID_LIT("type"), OBJECT_TOP, MEMBER_TYPE, 0},
    {GRID_LIT("response"), OBJECT_TOP, MEMBER_OBJECT, OBJECT_HOLDER},
    {GRID_LIT("message"), OBJECT_TOP, MEMBER_OBJECT, OBJECT_HOLDER},
    {GRID_LIT("usage"), OBJECT_TOP, MEMBER_OBJECT, OBJECT_USAGE},
    {GRID_LIT("usage"), OBJECT_HOLDER, MEMBER_OBJECT, OBJECT_USAGE},
    {GRID_LIT("prompt_tokens"), OBJECT_USAGE, MEMBER_COUNT, GRID_USAGE_PROMPT},
    {GRID_LIT("input_tokens"), OBJECT_USAGE, MEMBER_COUNT, GRID_USAGE_PROMPT},
    {GRID_LIT("completion_tokens"), OBJECT_USAGE, MEMBER_COUNT, GRID_USAGE_OUTPUT},
    {GRID_LIT("output_tokens"), OBJECT_USAGE, MEMBER_COUNT, GRID_USAGE_OUTPUT},
    {GRID_LIT("cache_read_input_tokens"), OBJECT_USAGE, MEMBER_COUNT, GRID_USAGE_READ},
    {GRID_LIT("cache_creation_input_tokens"), OBJECT_USAGE, MEMBER_COUNT, GRID_USAGE_CREATED},
    {GRID_LIT("prompt_tokens_details"), OBJECT_USAGE, MEMBER_OBJECT, OBJECT_DETAILS},
    {GRID_LIT("input_tokens_details"), OBJECT_USAGE, MEMBER_OBJECT, OBJECT_DETAILS},
    {GRID_LIT("cached_tokens"), OBJECT_DETAILS, MEMBER_COUNT, GRID_USAGE_CACHED},
};
#define N_KNOWN (sizeof known / sizeof *known)
#define NONE_KNOWN N_KNOWN

static void begin_text(struct grid_usage *usage)
{
    usage->at = AT_VALUE;
    usage->member = NONE_KNOWN;
    usage->n_path = 0;
    usage->depth = 0;
    usage->tokens = false;
}

void grid_usage_begin(struct grid_usage *usage, bool events)
{
    *usage = (struct grid_usage){.events = events};
    begin_text(usage);
}

/* ---- the text -------------------------------------------------------------------------------------------------- */

static enum member member_of(const struct grid_usage *usage)
{
    return usage->member < N_KNOWN ? (enum member)known[usage->member].member : MEMBER_OTHER;
}

static void open_string(struct grid_usage *usage, enum role role)
{
    usage->at = AT_STRING;
    usage->role = (uint8_t)role;
    usage->len = 0;
}

/* Of a name or a type, as sent: what matters of them has no escapes. */
static void keep_text(struct grid_usage *usage, const char *bytes, size_t len)
{
    if (usage->role == ROLE_VALUE)
        return;
    if (usage->len + len > sizeof usage->text) {
        usage->len = sizeof usage->text + 1;
        return;
    }
    memcpy(usage->text + usage->len, bytes, len);
    usage->len = (uint8_t)(usage->len + len);
}

/* A delta of content: "content_block_delta", "response.output_text.delta" and its like. */
static bool is_delta(struct grid_str type)
{
    static const struct grid_str tail = GRID_LIT(".delta");
    return grid_str_eq(type, GRID_LIT("content_block_delta")) ||
           (type.len > tail.len && memcmp(type.ptr + type.len - tail.len, tail.ptr, tail.len) == 0);
}

static uint8_t find_known(uint8_t in, struct grid_str name)
{
    uint8_t i = 0;
    while (i < N_KNOWN && !(known[i].in == in && grid_str_eq(known[i].name, name)))
        i++;
    return i;
}

static void string_done(struct grid_usage *usage)
{
    struct grid_str text = {usage->text, usage->len};
    if (usage->len > sizeof usage->text)
        text.len = 0;
    usage->at = usage->role == ROLE_NAME ? AT_COLON : AT_AFTER;
    if (usage->role == ROLE_NAME)
        usage->member = find_known(usage->path[usage->n_path - 1], text);
    else if (usage->role == ROLE_TYPE)
        usage->tokens = usage->tokens || is_delta(text);
}

static void number_done(struct grid_usage *usage)
{
    usage->at = AT_AFTER;
    if (usage->number > MOST_TOKENS)
        return;
    usage->counts[known[usage->member].what] = usage->number;
    usage->given[known[usage->member].what] = true;
}

static void close_one(struct grid_usage *usage)
{
    usage->at = AT_AFTER;
    if (usage->depth > 0)
        usage->depth--;
    else if (usage->n_path > 0)
        usage->n_path--;
    if (usage->n_path == 0)
        usage->at = AT_OVER;
}

static void open_object(struct grid_usage *usage)
{
    enum object object = usage->n_path == 0                  ? OBJECT_TOP
                         : member_of(usage) == MEMBER_OBJECT ? (enum object)known[usage->member].what
                                                             : OBJECT_NONE;
    if (object == OBJECT_NONE) {
        usage->depth++;
        return;
    }
    usage->path[usage->n_path++] = (uint8_t)object; /* a path is never longer: each leads on to fewer */
    usage->at = AT_NAME;
}

static void value_step(struct grid_usage *usage, char byte)
{
    usage->at = AT_AFTER;
    if (byte == '{') {
        open_object(usage);
    } else if (usage->n_path == 0) {
        usage->at = AT_OVER; /* the text is no object */
    } else if (byte == '[') {
        usage->depth++;
        usage->at = member_of(usage) == MEMBER_CHOICES ? AT_CHOICE : AT_AFTER;
    } else if (byte == '"') {
        open_string(usage, member_of(usage) == MEMBER_TYPE ? ROLE_TYPE : ROLE_VALUE);
    } else if (byte >= '0' && byte <= '9' && member_of(usage) == MEMBER_COUNT) {
        usage->at = AT_NUMBER;
        usage->number = (uint64_t)(byte - '0');
    }
}

/* A byte that is neither blank nor in a string, a name or a number. */
static void structure_step(struct grid_usage *usage, char byte)
{
    if (usage->at == AT_CHOICE) {
        usage->tokens = usage->tokens || byte != ']';
        usage->at = AT_AFTER;
    }
    if (usage->depth > 0) {
        if (byte == '"')
            open_string(usage, ROLE_VALUE);
        else if (byte == '{' || byte == '[')
            usage->depth++;
        else if (byte == '}' || byte == ']')
            close_one(usage);
    } else if (usage->at == AT_VALUE) {
        value_step(usage, byte);
    } else if (byte == '}') {
        close_one(usage);
    } else if (usage->at == AT_NAME && byte == '"') {
        open_string(usage, ROLE_NAME);
    } else if (usage->at == AT_COLON && byte == ':') {
        usage->at = AT_VALUE;
    } else if (usage->at == AT_AFTER && byte == ',') {
        usage->at = AT_NAME;
    } else if (usage->at != AT_AFTER) {
        usage->at = AT_OVER;
    }
}

static const char *string_run(struct grid_usage *usage, const char *at, const char *end)
{
    unsigned char high = 0;
    const char *stop = grid_scan_plain(at, end, &high);
    keep_text(usage, at, (size_t)(stop - at));
    if (stop == end)
        return stop;
    if (*stop == '"') {
        string_done(usage);
    } else if (*stop == '\\') {
        keep_text(usage, stop, 1);
        usage->at = AT_ESCAPE;
    } else {
        usage->at = AT_OVER;
    }
    return stop + 1;
}

static const char *number_run(struct grid_usage *usage, const char *at, const char *end)
{
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        usage->number = usage->number > MOST_TOKENS ? usage->number : usage->number * 10 + (uint64_t)(*at - '0');
    if (at < end && (*at == '.' || *at == 'e' || *at == 'E'))
        usage->at = AT_AFTER; /* no count */
    else if (at < end)
        number_done(usage);
    return at;
}

/* Reads on to `end` or to where the text is over. */
static void text_run(struct grid_usage *usage, const char *at, const char *end)
{
    while (at < end && usage->at != AT_OVER) {
        switch ((enum at)usage->at) {
        case AT_STRING:
            at = string_run(usage, at, end);
            break;
        case AT_ESCAPE: /* the digits of a code are plain */
            usage->at = AT_STRING;
            at++;
            break;
        case AT_NUMBER:
            at = number_run(usage, at, end);
            break;
        default:
            if (*at != ' ' && *at != '\t' && *at != '\n' && *at != '\r')
                structure_step(usage, *at);
            at++;
        }
    }
}

/* ---- the lines ------------------------------------------------------------------------------------------------- */

static const char *line_of(const char *at, const char *end)
{
    while (at < end && *at != '\n' && *at != '\r')
        at++;
    return at;
}

/* Behind a line; a blank one ends the event. True: that event brought tokens. */
static bool line_end(struct grid_usage *usage)
{
    bool blank = usage->line == LINE_NAME && usage->line_said == 0, tokens = usage->tokens;
    usage->line = LINE_NAME;
    usage->line_said = 0;
    if (!blank)
        return false;
    begin_text(usage);
    return tokens;
}

static void name_step(struct grid_usage *usage, char byte)
{
    if (byte != DATA[usage->line_said])
        usage->line = LINE_OTHER;
    else if (++usage->line_said == DATA_BYTES)
        usage->line = LINE_TEXT;
}

static bool lines_run(struct grid_usage *usage, const char *at, const char *end)
{
    bool tokens = false;
    while (at < end) {
        if (*at == '\n' || *at == '\r') {
            if (!(usage->behind_cr && *at == '\n'))
                tokens |= line_end(usage);
            usage->behind_cr = *at++ == '\r';
            continue;
        }
        usage->behind_cr = false;
        if (usage->line == LINE_NAME) {
            name_step(usage, *at++);
            continue;
        }
        const char *stop = line_of(at, end);
        if (usage->line == LINE_TEXT)
            text_run(usage, at, stop);
        at = stop;
    }
    return tokens;
}

bool grid_usage_feed(struct grid_usage *usage, const struct grid_str *slices, size_t n_slices)
{
    bool tokens = false;
    for (size_t i = 0; i < n_slices; i++) {
        if (slices[i].len == 0)
            continue;
        const char *at = slices[i].ptr, *end = at + slices[i].len;
        if (usage->events)
            tokens |= lines_run(usage, at, end);
        else
            text_run(usage, at, end);
    }
    return tokens;
}

/* ---- what it said ---------------------------------------------------------------------------------------------- */

bool grid_usage_prompt(const struct grid_usage *usage, uint64_t *out_tokens)
{
    *out_tokens = usage->counts[GRID_USAGE_PROMPT] + usage->counts[GRID_USAGE_READ] + usage->counts[GRID_USAGE_CREATED];
    return usage->given[GRID_USAGE_PROMPT];
}

bool grid_usage_cached(const struct grid_usage *usage, uint64_t *out_tokens)
{
    *out_tokens = usage->counts[GRID_USAGE_CACHED] + usage->counts[GRID_USAGE_READ];
    return usage->given[GRID_USAGE_CACHED] || usage->given[GRID_USAGE_READ];
}
