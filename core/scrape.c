/*
 * scrape.c - the queue depth of a site, out of its Prometheus exposition
 *
 * Story     The host polls a cluster's /metrics and hands the page over in the slices it came in. We walk it line by
 *           line, keep the sums of the few names we know, and answer with the first name that has a usable sample.
 * Promise   Reads the page in place and allocates nothing: only a line that crosses two slices is put together, in a
 *           buffer of fixed size. A line that makes no sense costs itself and nothing else. How the page is cut into
 *           slices never changes the answer.
 * Reads     The text format 0.0.4 and OpenMetrics (`# EOF` ends it; its stamps are seconds). Values that are no finite
 *           number are skipped, negative ones read as 0, ones over GRID_SCRAPE_MAX_DEPTH are absent.
 * Not here  Fetching the page and its clock (envoy/signals.c), the window over samples (window.c).
 */
#include "scrape.h"

#include <math.h>
#include <stdlib.h>

#include "str.h"

#define NUMBER_BYTES 64u /* longer than any number that a client library prints */
#define MS_A_SECOND 1000.
#define MAX_STAMP_MS 9007199254740992. /* 2^53: whole milliseconds beyond this are not exact, and no real time */

/* In order of preference: the first that is present wins wherever it stands in the page. */
static const struct grid_str known_names[] = {
    GRID_LIT("llm_d_epp_average_queue_size"),
    GRID_LIT("inference_pool_average_queue_size"),
    GRID_LIT("vllm:num_requests_waiting"),
    GRID_LIT("sglang:num_queue_reqs"),
    GRID_LIT("tgi_queue_size"),
};
#define N_KNOWN (sizeof known_names / sizeof known_names[0])

/* What the engines count over their life; a multi-process engine tells no start time, so that these have to do. All
 * that are present are summed: a request moves one of them up and none down. */
static const struct grid_str life_counters[] = {
    GRID_LIT("vllm:prompt_tokens_total"),
    GRID_LIT("vllm:generation_tokens_total"),
    GRID_LIT("vllm:request_success_total"),
    GRID_LIT("sglang:prompt_tokens_total"),
    GRID_LIT("sglang:generation_tokens_total"),
    GRID_LIT("sglang:num_requests_total"),
    GRID_LIT("tgi_request_count"),
    GRID_LIT("tgi_request_success"),
};
#define N_LIFE (sizeof life_counters / sizeof life_counters[0])
static const struct grid_str start_time_name = GRID_LIT("process_start_time_seconds");

/* What the samples of one name came to. */
struct tally {
    bool seen; /* a line had the name, usable or not */
    size_t n;
    double sum;
    bool unstamped, fraction; /* some sample had no stamp; some stamp was no whole number */
    double newest;            /* as written: milliseconds, or seconds in OpenMetrics */
};

struct page {
    const struct grid_str *names;
    size_t n_names;
    double divisor;
    struct tally tallies[N_KNOWN];
    bool has_start, has_life;
    double start, life;
    bool ended, eof; /* `# EOF` was met: OpenMetrics */
};

/* A position in one line. */
struct cursor {
    const char *at, *end;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == ':';
}

static void skip_blanks(struct cursor *line)
{
    while (line->at < line->end && is_blank(*line->at))
        line->at++;
}

static bool take_byte(struct cursor *line, char c)
{
    if (line->at >= line->end || *line->at != c)
        return false;
    line->at++;
    return true;
}

static struct grid_str take_name(struct cursor *line)
{
    const char *from = line->at;
    while (line->at < line->end && is_name_byte(*line->at))
        line->at++;
    return (struct grid_str){from, (size_t)(line->at - from)};
}

static struct grid_str take_token(struct cursor *line)
{
    const char *from = line->at;
    while (line->at < line->end && !is_blank(*line->at))
        line->at++;
    return (struct grid_str){from, (size_t)(line->at - from)};
}

/* A label value with its quotes; whatever stands behind a backslash belongs to it. */
static bool skip_quoted(struct cursor *line)
{
    if (!take_byte(line, '"'))
        return false;
    while (line->at < line->end) {
        char c = *line->at++;
        if (c == '"')
            return true;
        if (c == '\\' && line->at < line->end)
            line->at++;
    }
    return false;
}

/* The label set from '{' to '}', a comma before '}' allowed. */
static bool skip_labels(struct cursor *line)
{
    if (!take_byte(line, '{'))
        return true;
    for (;;) {
        skip_blanks(line);
        if (take_byte(line, '}'))
            return true;
        if (take_name(line).len == 0)
            return false;
        skip_blanks(line);
        if (!take_byte(line, '='))
            return false;
        skip_blanks(line);
        if (!skip_quoted(line))
            return false;
        skip_blanks(line);
        if (take_byte(line, ','))
            continue;
        return take_byte(line, '}');
    }
}

static size_t count_digits(struct cursor *text)
{
    const char *from = text->at;
    while (text->at < text->end && is_digit(*text->at))
        text->at++;
    return (size_t)(text->at - from);
}

/* A decimal number and nothing else: no hexadecimal, no "inf", which strtod would take. */
static bool is_decimal(struct grid_str token)
{
    struct cursor text = {token.ptr, token.ptr + token.len};
    if (!take_byte(&text, '-'))
        (void)take_byte(&text, '+');
    size_t digits = count_digits(&text);
    if (take_byte(&text, '.'))
        digits += count_digits(&text);
    if (digits == 0)
        return false;
    if (take_byte(&text, 'e') || take_byte(&text, 'E')) {
        if (!take_byte(&text, '-'))
            (void)take_byte(&text, '+');
        if (count_digits(&text) == 0)
            return false;
    }
    return text.at == text.end;
}

/* False for what is no finite number; +Inf and NaN are such. */
static bool read_number(struct grid_str token, double *out)
{
    char text[NUMBER_BYTES];
    if (token.len >= sizeof text || !is_decimal(token))
        return false;
    memcpy(text, token.ptr, token.len);
    text[token.len] = 0;
    char *end;
    *out = strtod(text, &end);
    return end == text + token.len && isfinite(*out);
}

static void count_sample(struct page *page, struct tally *tally, double value, bool stamped, double stamp)
{
    double depth = value / page->divisor;
    if (!isfinite(depth) || depth > GRID_SCRAPE_MAX_DEPTH)
        return;
    tally->sum += depth > 0 ? depth : 0;
    tally->n++;
    if (!stamped) {
        tally->unstamped = true;
        return;
    }
    tally->fraction = tally->fraction || floor(stamp) < stamp;
    if (tally->n == 1 || stamp > tally->newest)
        tally->newest = stamp;
}

static struct tally *find_tally(struct page *page, struct grid_str name)
{
    for (size_t i = 0; i < page->n_names; i++)
        if (grid_str_eq(name, page->names[i]))
            return &page->tallies[i];
    return NULL;
}

static bool counts_a_life(struct grid_str name)
{
    for (size_t i = 0; i < N_LIFE; i++)
        if (grid_str_eq(name, life_counters[i]))
            return true;
    return false;
}

/* What the page tells of the engine itself, beside its queue. */
static void note_engine(struct page *page, struct grid_str name, double value)
{
    /* Several processes behind one page: the newest start tells of a restart. */
    if (grid_str_eq(name, start_time_name) && (!page->has_start || value > page->start)) {
        page->has_start = true;
        page->start = value;
    }
    if (counts_a_life(name)) {
        page->has_life = true;
        page->life += value;
    }
}

/* name[{labels}] value [stamp] [# exemplar] */
static void read_sample(struct page *page, struct cursor line)
{
    struct grid_str name = take_name(&line);
    struct tally *tally = find_tally(page, name);
    if (!tally && !grid_str_eq(name, start_time_name) && !counts_a_life(name))
        return;
    const char *behind = line.at;
    skip_blanks(&line);
    bool labels = line.at < line.end && *line.at == '{';
    if (!labels && line.at == behind)
        return; /* some other name that goes on with a byte that no name has */
    if (tally)
        tally->seen = true;
    double value, stamp = 0;
    if (!skip_labels(&line))
        return;
    skip_blanks(&line);
    if (!read_number(take_token(&line), &value))
        return;
    skip_blanks(&line);
    bool stamped = line.at < line.end && *line.at != '#';
    if (stamped && !read_number(take_token(&line), &stamp))
        return;
    skip_blanks(&line);
    if (line.at < line.end && *line.at != '#')
        return;
    if (tally)
        count_sample(page, tally, value, stamped, stamp);
    note_engine(page, name, value);
}

static void read_line(struct page *page, struct grid_str text)
{
    struct cursor line = {text.ptr, text.ptr + text.len};
    if (line.at < line.end && line.end[-1] == '\r')
        line.end--;
    skip_blanks(&line);
    if (line.at == line.end)
        return;
    if (*line.at != '#') {
        read_sample(page, line);
        return;
    }
    struct grid_str rest = {line.at, (size_t)(line.end - line.at)};
    if (grid_str_eq(rest, GRID_LIT("# EOF")))
        page->eof = page->ended = true;
}

/* A line that goes on in the next slice. */
struct carry {
    size_t len;
    bool too_long;
    char bytes[GRID_SCRAPE_LINE_BYTES];
};

static void carry_put(struct carry *carry, struct grid_str piece)
{
    if (carry->too_long || piece.len > sizeof carry->bytes - carry->len) {
        carry->too_long = true;
        return;
    }
    if (piece.len)
        memcpy(carry->bytes + carry->len, piece.ptr, piece.len);
    carry->len += piece.len;
}

static void carry_flush(struct carry *carry, struct page *page)
{
    if (!carry->too_long)
        read_line(page, (struct grid_str){carry->bytes, carry->len});
    carry->len = 0;
    carry->too_long = false;
}

static void read_slice(struct page *page, struct carry *carry, struct grid_str slice)
{
    while (slice.len > 0 && !page->ended) {
        struct grid_str line = grid_str_until(slice, '\n');
        if (line.len == slice.len) {
            carry_put(carry, line);
            return;
        }
        if (carry->len > 0 || carry->too_long) {
            carry_put(carry, line);
            carry_flush(carry, page);
        } else if (line.len <= GRID_SCRAPE_LINE_BYTES) {
            read_line(page, line);
        }
        slice.ptr += line.len + 1;
        slice.len -= line.len + 1;
    }
}

static void set_stamp(const struct page *page, const struct tally *tally, struct grid_scrape *out)
{
    double stamp_ms = page->eof || tally->fraction ? tally->newest * MS_A_SECOND : tally->newest;
    if (tally->unstamped || !(fabs(stamp_ms) <= MAX_STAMP_MS))
        return;
    out->has_stamp = true;
    out->stamp_ms = (int64_t)llround(stamp_ms);
}

static bool pick(const struct page *page, bool configured, bool sum, struct grid_scrape *out)
{
    bool seen = false;
    for (size_t i = 0; i < page->n_names; i++) {
        const struct tally *tally = &page->tallies[i];
        seen = seen || tally->seen;
        if (tally->n == 0)
            continue;
        double depth = sum ? tally->sum : tally->sum / (double)tally->n;
        if (depth > GRID_SCRAPE_MAX_DEPTH)
            continue;
        out->depth = depth;
        set_stamp(page, tally, out);
        return true;
    }
    if (seen)
        out->why = "the queue metric has no usable value";
    else
        out->why = configured ? "the configured metric is not on the page" : "no known queue metric is on the page";
    return false;
}

bool grid_scrape_depth(const struct grid_str *slices, size_t n_slices, const struct grid_serving_signals *how,
                       struct grid_scrape *out_scrape)
{
    bool configured = how && how->metric.len > 0;
    struct page page = {
        .names = configured ? &how->metric : known_names,
        .n_names = configured ? 1 : N_KNOWN,
        .divisor = how && isfinite(how->divisor) && how->divisor > 0 ? how->divisor : 1,
    };
    struct carry carry;
    carry.len = 0;
    carry.too_long = false;
    *out_scrape = (struct grid_scrape){.why = NULL};
    for (size_t i = 0; i < n_slices && !page.ended; i++)
        read_slice(&page, &carry, slices[i]);
    if (!page.ended)
        carry_flush(&carry, &page); /* a last line without its newline */
    out_scrape->has_start_time = page.has_start;
    out_scrape->start_time_seconds = page.start;
    out_scrape->has_counters = page.has_life && isfinite(page.life);
    out_scrape->counters = page.life;
    return pick(&page, configured, how && how->sum, out_scrape);
}
