/*
 * test_rewrite.c - tagged answers: every text of a corpus, cut everywhere
 *
 * A text of the corpus is written as it should come out: '@' is where a tag goes in, '#' a tag that is already there.
 * Without the '@' it is what comes in.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "rewrite.h"
#include "rewrite_answers.h"
#include "unit.h"

#define TAG "east.0a1b2c3d.9f8e7d6c5b4a3928."
#define TAG_LEN (sizeof TAG - 1)
#define PAIRS_BYTES 220u /* texts up to this length are cut at every pair of offsets */

struct out {
    char *at;
    size_t len, room, puts;
};

static void put(void *ctx, struct grid_str bytes)
{
    struct out *out = ctx;
    assert_true(bytes.len > 0 && out->len + bytes.len <= out->room);
    memcpy(out->at + out->len, bytes.ptr, bytes.len);
    out->len += bytes.len;
    out->puts++;
}

/* The bytes that may be the beginning of a tag at the end of what was fed: what may be held back at all. */
static size_t may_hold(const char *text, size_t len)
{
    for (size_t n = len < TAG_LEN - 1 ? len : TAG_LEN - 1; n > 0; n--)
        if (memcmp(text + len - n, TAG, n) == 0 && n + GRID_TAG_PREFIX_BYTES <= len &&
            (memcmp(text + len - n - GRID_TAG_PREFIX_BYTES, "resp_", GRID_TAG_PREFIX_BYTES) == 0 ||
             memcmp(text + len - n - GRID_TAG_PREFIX_BYTES, "conv_", GRID_TAG_PREFIX_BYTES) == 0))
            return n;
    return 0;
}

struct feeding {
    struct grid_rewrite rewrite;
    struct out out;
    const char *text;
    size_t fed, tagged_bytes;
};

static void feed_slices(struct feeding *feeding, const struct grid_str *slices, size_t n, bool last)
{
    size_t puts = feeding->out.puts, had = feeding->out.len;
    bool same = grid_rewrite_feed(&feeding->rewrite, slices, n, last, put, &feeding->out);
    if (same) {
        assert_int_equal(puts, feeding->out.puts);
        assert_int_equal(had, feeding->out.len);
    }
    for (size_t i = 0; i < n; i++) {
        if (same && slices[i].len > 0)
            put(&feeding->out, slices[i]);
        feeding->fed += slices[i].len;
    }
    /* Held back is nothing, or the beginning of this very tag behind a prefix. */
    size_t held = feeding->fed + feeding->rewrite.tagged * TAG_LEN - feeding->out.len;
    if (held != 0)
        assert_int_equal(held, may_hold(feeding->text, feeding->fed));
    assert_true(held == 0 || (!last && feeding->rewrite.id_open));
}

static void feed(struct feeding *feeding, size_t len, bool last)
{
    feed_slices(feeding, &(struct grid_str){feeding->text + feeding->fed, len}, 1, last);
}

struct sample {
    bool sse;
    char *in, *want;
    size_t in_len, want_len;
    struct feeding feeding;
};

static void sample_init(struct sample *sample, bool sse, const char *spelled, size_t len)
{
    *sample = (struct sample){.sse = sse};
    sample->in = malloc(len * TAG_LEN + 1);
    sample->want = malloc(len * TAG_LEN + 1);
    for (size_t i = 0; i < len; i++) {
        bool tag = spelled[i] == '@' || spelled[i] == '#';
        const char *from = tag ? TAG : spelled + i;
        size_t n = tag ? TAG_LEN : 1;
        if (spelled[i] != '@') {
            memcpy(sample->in + sample->in_len, from, n);
            sample->in_len += n;
        }
        memcpy(sample->want + sample->want_len, from, n);
        sample->want_len += n;
    }
    sample->feeding.out.room = len * TAG_LEN + 1;
    sample->feeding.out.at = malloc(sample->feeding.out.room);
}

static void sample_done(struct sample *sample)
{
    free(sample->in);
    free(sample->want);
    free(sample->feeding.out.at);
}

static struct feeding *begin(struct sample *sample, const char *text)
{
    struct feeding *feeding = &sample->feeding;
    feeding->out.len = feeding->out.puts = feeding->fed = 0;
    feeding->text = text;
    grid_rewrite_begin(&feeding->rewrite, sample->sse, TAG, TAG_LEN);
    return feeding;
}

static void came_out(const struct sample *sample)
{
    const struct out *out = &sample->feeding.out;
    if (out->len != sample->want_len || memcmp(out->at, sample->want, out->len) != 0)
        print_error("in:   %.*s\nwant: %.*s\ngot:  %.*s\n", (int)sample->in_len, sample->in, (int)sample->want_len,
                    sample->want, (int)out->len, out->at);
    assert_int_equal(out->len, sample->want_len);
    assert_memory_equal(out->at, sample->want, out->len);
}

static void in_pieces(struct sample *sample, size_t piece)
{
    struct feeding *feeding = begin(sample, sample->in);
    while (sample->in_len - feeding->fed > piece)
        feed(feeding, piece, false);
    feed(feeding, sample->in_len - feeding->fed, true);
    came_out(sample);
}

static void in_slices(struct sample *sample, size_t piece)
{
    struct grid_str *slices = calloc(sample->in_len / piece + 2, sizeof *slices);
    size_t n = 0;
    for (size_t at = 0; at < sample->in_len; at += piece) {
        size_t left = sample->in_len - at;
        slices[n++] = (struct grid_str){sample->in + at, left < piece ? left : piece};
    }
    n += 1; /* and one of no bytes at all */
    feed_slices(begin(sample, sample->in), slices, n, true);
    came_out(sample);
    free(slices);
}

static void cut_everywhere(struct sample *sample)
{
    size_t len = sample->in_len, second = len <= PAIRS_BYTES ? len : 0;
    for (size_t first = 0; first <= len; first++) {
        for (size_t to = first; to <= (second > first ? second : first); to++) {
            struct feeding *feeding = begin(sample, sample->in);
            feed(feeding, first, false);
            if (to > first)
                feed(feeding, to - first, false);
            feed(feeding, len - to, false);
            feed_slices(feeding, NULL, 0, true);
            came_out(sample);
        }
    }
}

/* What came out goes in: nothing changes. And what needs no tag is never copied. */
static void again(struct sample *sample)
{
    feed(begin(sample, sample->in), sample->in_len, true);
    came_out(sample);
    bool changed = sample->want_len != sample->in_len;
    assert_int_equal(sample->feeding.rewrite.tagged, (sample->want_len - sample->in_len) / TAG_LEN);
    assert_true(changed || sample->feeding.out.puts == (sample->in_len > 0));
    feed(begin(sample, sample->want), sample->want_len, true);
    came_out(sample);
    assert_int_equal(sample->feeding.rewrite.tagged, 0);
    assert_int_equal(sample->feeding.out.puts, sample->in_len > 0);
}

static void check(bool sse, const char *spelled, size_t len)
{
    static const size_t pieces[] = {1, 2, 3, 7};
    struct sample sample;
    sample_init(&sample, sse, spelled, len);
    again(&sample);
    for (size_t i = 0; i < COUNT(pieces); i++) {
        in_pieces(&sample, pieces[i]);
        in_slices(&sample, pieces[i]);
    }
    cut_everywhere(&sample);
    sample_done(&sample);
}

static void answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rewrite_answers); i++)
        check(false, rewrite_answers[i], strlen(rewrite_answers[i]));
}

static void streams(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rewrite_streams); i++) {
        check(true, rewrite_streams[i], strlen(rewrite_streams[i]));
        check(false, rewrite_streams[i], strlen(rewrite_streams[i])); /* its bytes tell */
    }
}

/* The same stream with each kind of line end. */
static void line_ends(void **state)
{
    (void)state;
    static const char *ends[] = {"\n", "\r\n", "\r"};
    for (size_t i = 0; i < COUNT(rewrite_streams); i++)
        for (size_t end = 0; end < COUNT(ends); end++) {
            char text[8192];
            size_t len = 0;
            if (strchr(rewrite_streams[i], '\r'))
                continue;
            for (const char *at = rewrite_streams[i]; *at; at++) {
                assert_true(len + 2 < sizeof text);
                if (*at == '\n')
                    len += (size_t)snprintf(text + len, 3, "%s", ends[end]);
                else
                    text[len++] = *at;
            }
            check(true, text, len);
        }
}

/* An event stream by its type begins with whatever it likes: a brace is the beginning of some line. */
static void the_type_and_the_first_byte(void **state)
{
    (void)state;
    static const char *by_type = "{\"id\":\"resp_1\"}\n\ndata: {\"id\":\"resp_@1\"}\n\n";
    static const char *by_byte = "{\"id\":\"resp_@1\"}\n\ndata: {\"id\":\"resp_1\"}\n\n";
    check(true, by_type, strlen(by_type));
    check(false, by_byte, strlen(by_byte));
    static const char blanks[] = " \r\n\t{\"id\":\"resp_@1\"}";
    check(false, blanks, sizeof blanks - 1);
    static const char nul[] = "{\"id\":\"resp_@a\0b\",\"response_id\":\"resp_1\"}"; /* a NUL is a breach */
    check(false, nul, sizeof nul - 1);
    static const char escaped_nul[] = "{\"a\":\"\\\0\",\"id\":\"resp_1\"}";
    check(false, escaped_nul, sizeof escaped_nul - 1);
}

static void append(char *text, size_t *len, const char *more, size_t times)
{
    size_t n = strlen(more);
    for (; times > 0; times--, *len += n)
        memcpy(text + *len, more, n);
}

static void deep(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    static const char *const shapes[][3] = {
        /* opens, is in the middle, closes */
        {"[", "\"id\"", "]"},
        {"{\"response\":", "{\"id\":\"resp_@i\"}", "}"},
        {"{\"a\":", "{\"id\":\"resp_i\"}", "}"},
        {"{\"a\":[{\"id\":\"resp_i\"},", "1e5", "],\"id\":\"resp_\"}"},
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        char *text = malloc((size_t)DEPTH * 48);
        size_t len = 0;
        struct sample sample;
        append(text, &len, i == 1 ? "{\"response\":" : "{\"x\":", 1);
        append(text, &len, shapes[i][0], DEPTH);
        append(text, &len, shapes[i][1], 1);
        append(text, &len, shapes[i][2], DEPTH);
        append(text, &len, ",\"id\":\"resp_@1\"}", 1);
        sample_init(&sample, false, text, len);
        in_pieces(&sample, 100003);
        in_pieces(&sample, len);
        sample_done(&sample);
        free(text);
    }
}

/* A closing bracket of the wrong kind is a breach 64 foreign levels deep; deeper, brackets are only counted. */
static void the_level_up_to_which_kinds_are_kept(void **state)
{
    (void)state;
    for (size_t depth = 60; depth < 70; depth++) {
        char text[300];
        size_t len = 0;
        append(text, &len, "{\"x\":", 1);
        append(text, &len, "[", depth);
        append(text, &len, "[]", 1);
        append(text, &len, "}", 1);
        append(text, &len, "]", depth - 1);
        append(text, &len, depth <= 64 ? ",\"id\":\"resp_1\"}" : ",\"id\":\"resp_@1\"}", 1);
        check(false, text, len);
    }
}

/* ---- without an end -------------------------------------------------------------------------------------------- */

struct count {
    size_t bytes, puts;
};

static void put_count(void *ctx, struct grid_str bytes)
{
    struct count *count = ctx;
    count->bytes += bytes.len;
    count->puts++;
}

static long peak_kib(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* 100 MiB through the state that is there: a kilobyte, whatever passes. Only the piece with the id is touched. */
static void without_an_end(void **state)
{
    (void)state;
    enum { PIECE = 65536, PIECES = 1600 };
    static char piece[PIECE];
    struct grid_rewrite rewrite;
    struct count count = {0, 0};
    assert_true(sizeof rewrite < 512);
    memset(piece, 'a', sizeof piece);
    long before = peak_kib();
    grid_rewrite_begin(&rewrite, false, TAG, TAG_LEN);
    assert_true(grid_rewrite_feed(&rewrite, &GRID_LIT("{\"output\":[{\"text\":\""), 1, false, put_count, &count));
    for (int i = 0; i < PIECES; i++)
        assert_true(grid_rewrite_feed(&rewrite, &(struct grid_str){piece, PIECE}, 1, false, put_count, &count));
    assert_int_equal(count.puts, 0);
    assert_false(grid_rewrite_feed(&rewrite, &GRID_LIT("\"}],\"id\":\"resp_1\"}"), 1, true, put_count, &count));
    assert_int_equal(rewrite.tagged, 1);
    assert_int_equal(count.bytes, strlen("\"}],\"id\":\"resp_1\"}") + TAG_LEN);
    assert_true(peak_kib() - before < 1024);
}

static void a_stream_without_an_end(void **state)
{
    (void)state;
    static const char event[] = "event: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"response\":"
                                "{\"object\":\"response\",\"id\":\"resp_77\",\"output\":[{\"id\":\"resp_no\"}]}}\n\n";
    struct grid_str slice = {event, sizeof event - 1};
    struct grid_rewrite rewrite;
    struct count count = {0, 0};
    size_t events = ((size_t)100 << 20) / slice.len;
    grid_rewrite_begin(&rewrite, true, TAG, TAG_LEN);
    for (size_t i = 0; i < events; i++)
        assert_false(grid_rewrite_feed(&rewrite, &slice, 1, false, put_count, &count));
    assert_int_equal(rewrite.tagged, events);
    assert_int_equal(count.bytes, events * (slice.len + TAG_LEN));
}

/* Wherever no id is open, everything that came in has gone out; a piece that needs no change is not even looked at by
 * put. (feed_slices asserts the same of every text above.) */
static void nothing_is_held_while_no_id_is_open(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rewrite_streams); i++) {
        struct sample sample;
        sample_init(&sample, true, rewrite_streams[i], strlen(rewrite_streams[i]));
        struct feeding *feeding = begin(&sample, sample.in);
        while (feeding->fed < sample.in_len) {
            feed(feeding, 1, false);
            size_t held = feeding->fed + feeding->rewrite.tagged * TAG_LEN - feeding->out.len;
            if (!feeding->rewrite.id_open)
                assert_int_equal(held, 0);
            assert_true(held < TAG_LEN);
        }
        sample_done(&sample);
    }
}

/* A tag as long as tags get, and one of a single byte. */
static void tags_of_any_length(void **state)
{
    (void)state;
    char tag[GRID_TAG_BYTES];
    memset(tag, 'e', sizeof tag);
    const struct grid_str body = GRID_LIT("{\"id\":\"resp_eeee\",\"response_id\":\"conv_f\"}");
    for (size_t len = 1; len <= sizeof tag; len += sizeof tag - 1) {
        struct grid_rewrite rewrite;
        struct count count = {0, 0};
        grid_rewrite_begin(&rewrite, false, tag, len);
        assert_false(grid_rewrite_feed(&rewrite, &body, 1, true, put_count, &count));
        assert_int_equal(rewrite.tagged, len == 1 ? 1 : 2);
        assert_int_equal(count.bytes, body.len + rewrite.tagged * len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(streams),
        cmocka_unit_test(line_ends),
        cmocka_unit_test(the_type_and_the_first_byte),
        cmocka_unit_test(deep),
        cmocka_unit_test(the_level_up_to_which_kinds_are_kept),
        cmocka_unit_test(without_an_end),
        cmocka_unit_test(a_stream_without_an_end),
        cmocka_unit_test(nothing_is_held_while_no_id_is_open),
        cmocka_unit_test(tags_of_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
