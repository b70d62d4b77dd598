/*
 * rewrite.c - the streaming tagger behind rewrite.h
 *
 * Story     Three machines, one inside the other, each a few bytes of state: the lines of an event stream, the JSON
 *           text in them (own.h), and the id within the text. A pass is one call of feed: it knows how far the slices
 *           were given out and where a tag would go in, and gives out nothing until something changes.
 *           What is not whole is left alone: an id that ends within the tag, a text after a breach of the grammar. The
 *           next event begins a new text.
 */
#include "rewrite.h"

#include "check.h"

#define FIRST_PRINTED ' ' /* bytes below may not stand in a string */
#define FIELD "data"
#define FIELD_BYTES (sizeof FIELD - 1)
#define BOM "\xEF\xBB\xBF"
#define BOM_BYTES (sizeof BOM - 1)

enum lead { LEAD_BOM, LEAD_BLANK, LEAD_KNOWN };

enum line {
    LINE_NAME,  /* at a line's start or within "data" */
    LINE_TEXT,  /* behind "data:"; a space there is white space to the text */
    LINE_OTHER, /* nothing of this line matters */
};

struct pass {
    struct grid_rewrite *rewrite;
    const struct grid_str *slices;
    size_t slice;      /* the one being read */
    size_t from_slice; /* the first byte not given out */
    const char *from;
    size_t mark_slice; /* where the tag goes in, if it does */
    const char *mark;
    size_t kept; /* bytes held since earlier passes: they come at the mark */
    bool changed;
    void (*put)(void *ctx, struct grid_str bytes);
    void *ctx;
};

/* ---- giving out ------------------------------------------------------------------------------------------------ */

static const char *slice_end(const struct grid_str *slice)
{
    return slice->len > 0 ? slice->ptr + slice->len : slice->ptr;
}

static void give(struct pass *pass, const char *from, size_t len)
{
    if (len > 0)
        pass->put(pass->ctx, (struct grid_str){from, len});
}

static void give_from(struct pass *pass, const char *end)
{
    if (end != pass->from)
        give(pass, pass->from, (size_t)(end - pass->from));
}

static void give_until(struct pass *pass, size_t slice, const char *at)
{
    for (; pass->from_slice < slice; pass->from = pass->slices[pass->from_slice].ptr)
        give_from(pass, slice_end(&pass->slices[pass->from_slice++]));
    give_from(pass, at);
    pass->from = at;
    pass->changed = true;
}

/* The id needs no tag, or is not whole: what was held goes out as it came. */
static void id_stays(struct pass *pass)
{
    pass->rewrite->id_open = false;
    if (pass->kept == 0)
        return;
    give_until(pass, pass->mark_slice, pass->mark);
    give(pass, pass->rewrite->tag, pass->kept);
    pass->kept = 0;
}

static void id_tagged(struct pass *pass)
{
    struct grid_rewrite *rewrite = pass->rewrite;
    rewrite->id_open = false;
    rewrite->tagged++;
    give_until(pass, pass->mark_slice, pass->mark);
    give(pass, rewrite->tag, rewrite->tag_len);
    give(pass, rewrite->tag, pass->kept);
    pass->kept = 0;
}

/* ---- the text -------------------------------------------------------------------------------------------------- */

static bool ends_line(char byte)
{
    return byte == '\n' || byte == '\r';
}

static void id_begin(struct pass *pass, const char *at)
{
    pass->rewrite->id_open = true;
    pass->rewrite->matched = 0;
    pass->mark_slice = pass->slice;
    pass->mark = at;
}

/* Behind an id's prefix, as long as the tag may still follow. What ends it is left to the text. */
static const char *id_run(struct pass *pass, const char *at, const char *end)
{
    struct grid_rewrite *rewrite = pass->rewrite;
    for (; at < end && rewrite->id_open; at++) {
        if ((unsigned char)*at < FIRST_PRINTED || (*at == '"' && rewrite->matched == 0)) {
            id_stays(pass);
            break;
        }
        if (*at == '"' || *at == '\\' || *at != rewrite->tag[rewrite->matched]) {
            id_tagged(pass);
            break;
        }
        if (++rewrite->matched == rewrite->tag_len)
            id_stays(pass);
    }
    return at;
}

/* Reads on to `end`, to where the text is over, or, in lines, to a line's end. */
static const char *text_run(struct pass *pass, const char *at, const char *end)
{
    struct grid_rewrite *rewrite = pass->rewrite;
    while (at < end && !grid_own_over(&rewrite->text) && !(rewrite->lines && ends_line(*at))) {
        if (rewrite->id_open) {
            at = id_run(pass, at, end);
            continue;
        }
        bool id;
        at = grid_own_run(&rewrite->text, at, end, rewrite->lines, &id);
        if (id)
            id_begin(pass, at);
    }
    return at;
}

/* ---- the lines ------------------------------------------------------------------------------------------------- */

static void line_end(struct pass *pass)
{
    struct grid_rewrite *rewrite = pass->rewrite;
    if (rewrite->id_open)
        id_stays(pass);
    if (rewrite->line == LINE_NAME && rewrite->line_named == 0)
        grid_own_begin(&rewrite->text); /* a blank line: the next event */
    else if (rewrite->line_named == FIELD_BYTES)
        grid_own_break(&rewrite->text);
    rewrite->line = LINE_NAME;
    rewrite->line_named = 0;
}

static void line_name_step(struct grid_rewrite *rewrite, char byte)
{
    if (rewrite->line_named < FIELD_BYTES && byte == FIELD[rewrite->line_named]) {
        rewrite->line_named++;
    } else if (rewrite->line_named == FIELD_BYTES && byte == ':') {
        rewrite->line = LINE_TEXT;
    } else {
        rewrite->line = LINE_OTHER;
        rewrite->line_named = 0;
    }
}

static const char *rest_of_line(const char *at, const char *end)
{
    unsigned char high = 0;
    while ((at = grid_lex_plain(at, end, &high)) < end && !ends_line(*at))
        at++;
    return at;
}

static void lines_run(struct pass *pass, const char *at, const char *end)
{
    struct grid_rewrite *rewrite = pass->rewrite;
    while (at < end) {
        if (ends_line(*at)) {
            if (!(rewrite->behind_cr && *at == '\n'))
                line_end(pass);
            rewrite->behind_cr = *at++ == '\r';
            continue;
        }
        rewrite->behind_cr = false;
        if (rewrite->line == LINE_NAME) {
            line_name_step(rewrite, *at++);
        } else if (rewrite->line == LINE_TEXT && !grid_own_over(&rewrite->text)) {
            at = text_run(pass, at, end);
        } else {
            at = rest_of_line(at, end);
        }
    }
}

/* ---- the beginning --------------------------------------------------------------------------------------------- */

static const char *bom_run(struct grid_rewrite *rewrite, const char *at, const char *end)
{
    for (; at < end && rewrite->lead == LEAD_BOM; at++) {
        if (*at != BOM[rewrite->bom])
            break;
        rewrite->lead = ++rewrite->bom == BOM_BYTES ? LEAD_BLANK : LEAD_BOM;
    }
    if (at == end || rewrite->lead != LEAD_BOM)
        return at;
    rewrite->lead = LEAD_BLANK;
    if (rewrite->bom > 0) { /* part of a mark is the beginning of a name */
        rewrite->lead = LEAD_KNOWN;
        rewrite->lines = true;
        rewrite->line = LINE_OTHER;
    }
    return at;
}

/* Blanks at the beginning decide nothing yet, but they may end lines. */
static const char *blank_run(struct pass *pass, const char *at, const char *end)
{
    struct grid_rewrite *rewrite = pass->rewrite;
    const char *first = rewrite->sse ? at : grid_lex_space(at, end);
    lines_run(pass, at, first);
    if (first < end) {
        rewrite->lines = rewrite->sse || (*first != '{' && *first != '[');
        rewrite->lead = LEAD_KNOWN;
    }
    return first;
}

static void slice_run(struct pass *pass, const char *at, const char *end)
{
    struct grid_rewrite *rewrite = pass->rewrite;
    if (rewrite->lead == LEAD_BOM)
        at = bom_run(rewrite, at, end);
    if (rewrite->lead == LEAD_BLANK)
        at = blank_run(pass, at, end);
    if (rewrite->lead == LEAD_KNOWN && rewrite->lines)
        lines_run(pass, at, end);
    else if (rewrite->lead == LEAD_KNOWN)
        (void)text_run(pass, at, end);
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

/* Holds back what may be the beginning of the tag; gives out the rest if anything changed. */
static bool pass_end(struct pass *pass, size_t n_slices, bool last)
{
    struct grid_rewrite *rewrite = pass->rewrite;
    if (rewrite->id_open && last)
        id_stays(pass);
    if (rewrite->id_open && rewrite->matched > pass->kept) {
        give_until(pass, pass->mark_slice, pass->mark);
        return false;
    }
    if (pass->changed)
        give_until(pass, n_slices - 1, slice_end(&pass->slices[n_slices - 1]));
    return !pass->changed;
}

void grid_rewrite_begin(struct grid_rewrite *rewrite, bool sse, const char *tag, size_t tag_len)
{
    GRID_ASSERT(tag_len > 0 && tag_len <= GRID_TAG_BYTES);
    *rewrite = (struct grid_rewrite){.tag_len = tag_len, .sse = sse};
    memcpy(rewrite->tag, tag, tag_len);
    grid_own_begin(&rewrite->text);
}

bool grid_rewrite_feed(struct grid_rewrite *rewrite, const struct grid_str *slices, size_t n_slices, bool last,
                       void (*put)(void *ctx, struct grid_str bytes), void *ctx)
{
    static const struct grid_str none = {"", 0};
    if (n_slices == 0) {
        slices = &none;
        n_slices = 1;
    }
    struct pass pass = {.rewrite = rewrite, .slices = slices, .put = put, .ctx = ctx};
    pass.from = pass.mark = slices[0].ptr;
    pass.kept = rewrite->id_open ? rewrite->matched : 0;
    for (; pass.slice < n_slices; pass.slice++)
        if (slices[pass.slice].len > 0)
            slice_run(&pass, slices[pass.slice].ptr, slice_end(&slices[pass.slice]));
    return pass_end(&pass, n_slices, last);
}
