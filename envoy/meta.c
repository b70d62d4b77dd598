/*
 * meta.c - what became of a request, as Envoy's dynamic metadata `grid`
 *
 * Story     The access log and the tracer read it: site, cluster, outcome, reason, blocks, run, worth, depth, pinned,
 *           attempts, tagged ids. It is written in one piece when the answer begins, so that it names the site that
 *           answered after any failover, and again at the end when something was added.
 * Promise   Only when somebody reads it (the filter's config says "metadata"), and never text of a request.
 * Form      A google.protobuf.Struct, encoded here: three kinds of value, no library.
 */
#include "filter.h"

#include <math.h>

enum {
    MAX_BYTES = 1024, /* of all of it: two names and a dozen short values */
    MAX_ENTRY = 2 * GRID_MAX_NAME_BYTES,
    /* tags of the wire format: field number and type */
    TAG_FIELDS = 1 << 3 | 2, /* Struct.fields, an entry of a map: */
    TAG_KEY = 1 << 3 | 2,
    TAG_VALUE = 2 << 3 | 2, /* a Value, one of: */
    TAG_NUMBER = 2 << 3 | 1,
    TAG_STRING = 3 << 3 | 2,
    TAG_BOOL = 4 << 3 | 0,
};

struct wire {
    size_t len;
    char bytes[MAX_BYTES];
};

static void put(struct wire *out, const void *bytes, size_t len)
{
    if (len <= sizeof(out->bytes) - out->len) {
        memcpy(out->bytes + out->len, bytes, len);
        out->len += len;
    }
}

static void put_byte(struct wire *out, unsigned byte)
{
    const char c = (char)byte;
    put(out, &c, 1);
}

/* A tag and a length under 2^14. */
static void put_length(struct wire *out, unsigned tag, size_t len)
{
    put_byte(out, tag);
    if (len >= 0x80)
        put_byte(out, (unsigned)(len & 0x7f) | 0x80);
    put_byte(out, (unsigned)(len >= 0x80 ? len >> 7 : len));
}

static size_t length_size(size_t len)
{
    return len >= 0x80 ? 3 : 2;
}

/* An entry up to its value, which is `len` bytes. */
static void put_entry(struct wire *out, struct grid_str key, size_t len)
{
    put_length(out, TAG_FIELDS, length_size(key.len) + key.len + length_size(len) + len);
    put_length(out, TAG_KEY, key.len);
    put(out, key.ptr, key.len);
    put_length(out, TAG_VALUE, len);
}

static void put_text(struct wire *out, struct grid_str key, struct grid_str text)
{
    if (text.len == 0 || out->len + text.len + MAX_ENTRY / 4 > sizeof(out->bytes))
        return;
    put_entry(out, key, length_size(text.len) + text.len);
    put_length(out, TAG_STRING, text.len);
    put(out, text.ptr, text.len);
}

/* Infinity is an unmeasured queue, NAN a figure that does not apply: JSON has neither. */
static void put_number(struct wire *out, struct grid_str key, double number)
{
    if (!isfinite(number) || out->len + MAX_ENTRY / 4 > sizeof(out->bytes))
        return;
    put_entry(out, key, 1 + sizeof(number));
    put_byte(out, TAG_NUMBER);
    put(out, &number, sizeof(number)); /* little endian, as the machines that Envoy is built for */
}

static void put_bool(struct wire *out, struct grid_str key, bool value)
{
    put_entry(out, key, 2);
    put_byte(out, TAG_BOOL);
    put_byte(out, value);
}

static void put_decision(struct wire *out, const struct grid_filter *filter)
{
    const struct grid_decision *decision = grid_ticket_decision(filter->ticket);
    struct grid_watched watched;
    put_text(out, GRID_TEXT("outcome"), grid_bridge_text(grid_outcome_name(decision->outcome)));
    if (decision->reason != GRID_REASON_NONE)
        put_text(out, GRID_TEXT("reason"), grid_bridge_text(grid_reason_name(decision->reason)));
    if (!grid_bridge_forwarded(decision))
        return;
    put_text(out, GRID_TEXT("site"), decision->site);
    put_text(out, GRID_TEXT("cluster"), decision->cluster);
    put_number(out, GRID_TEXT("blocks"), decision->blocks);
    put_number(out, GRID_TEXT("run"), decision->run);
    put_number(out, GRID_TEXT("worth"), decision->worth);
    put_number(out, GRID_TEXT("depth"), grid_bridge_depth(filter->ticket, decision));
    put_bool(out, GRID_TEXT("pinned"), decision->pinned);
    put_number(out, GRID_TEXT("attempts"), filter->retries + 1.);
    put_number(out, GRID_TEXT("tagged"), (double)grid_answer_tagged(filter->ticket));
    grid_watch_usage(filter->ticket, &watched);
    if (watched.has_prompt)
        put_number(out, GRID_TEXT("prompt_tokens"), (double)watched.prompt_tokens);
    if (watched.has_cached)
        put_number(out, GRID_TEXT("cached_tokens"), (double)watched.cached_tokens);
    if (filter->number > 0)
        put_number(out, GRID_TEXT("ticket"), (double)filter->number);
}

void grid_meta_write(void *envoy, struct grid_filter *filter)
{
    struct wire out = {.len = 0};
    if (!filter->metadata || !filter->ticket)
        return;
    put_decision(&out, filter);
    filter->metadata_written = true;
    ENVOY(http_set_dynamic_metadata_struct)(envoy, GRID_TEXT("grid"), (struct grid_str){out.bytes, out.len});
}

void grid_meta_end(void *envoy, struct grid_filter *filter)
{
    struct grid_watched watched = {false};
    if (filter->ticket)
        grid_watch_usage(filter->ticket, &watched);
    if (!filter->metadata_written || grid_answer_tagged(filter->ticket) > 0 || watched.has_prompt)
        grid_meta_write(envoy, filter);
}
