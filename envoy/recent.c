/*
 * recent.c - the last decisions, for the ops page
 *
 * Story     request.c notes each decision, answer.c a request that went on to another site; /grid lists what is kept.
 * Promise   A ring of fixed size: names of the configuration and numbers, never text of a request. Nobody waits: a note
 *           whose place is being read or written at that moment is left out.
 * Threads   Any.
 */
#include "recent.h"

#include <math.h>
#include <stdlib.h>

enum { KEPT = 100, TRIES = 1000, SITE_BYTES = 64, CODE_BYTES = 40 };

struct line {
    uint64_t number; /* counts from 1; 0: nothing was noted here */
    uint64_t at_ms;
    char site[SITE_BYTES], cluster[GRID_MAX_NAME_BYTES + 1]; /* "": the gateway answered itself */
    char code[CODE_BYTES];                                   /* of such an answer */
    int status;
    enum grid_outcome outcome;
    enum grid_reason reason;
    bool pinned;
    unsigned attempts;
    uint32_t blocks, run;
    double worth, depth, holder, other;
};

/* `busy` guards the line; it is only ever tried. */
struct place {
    _Atomic bool busy;
    struct line line;
};

static struct {
    _Atomic uint64_t last;
    struct place places[KEPT];
} ring;

/* ---- noting ---------------------------------------------------------------------------------------------------- */

static bool take(struct place *place)
{
    return !atomic_exchange_explicit(&place->busy, true, memory_order_acquire);
}

static void leave(struct place *place)
{
    atomic_store_explicit(&place->busy, false, memory_order_release);
}

static void copy_text(char *to, size_t size, struct grid_str text)
{
    size_t len = text.len < size ? text.len : size - 1;
    memcpy(to, len > 0 ? text.ptr : "", len);
    to[len] = '\0';
}

static void fill(struct line *line, struct grid_ticket *ticket, const struct grid_decision *decision)
{
    bool forwarded = grid_bridge_forwarded(decision);
    struct grid_str none = {NULL, 0};
    copy_text(line->site, sizeof(line->site), forwarded ? decision->site : none);
    copy_text(line->cluster, sizeof(line->cluster), forwarded ? decision->cluster : none);
    copy_text(line->code, sizeof(line->code), forwarded ? none : grid_bridge_text(decision->reply.code));
    line->status = forwarded ? 0 : decision->reply.status;
    line->outcome = decision->outcome;
    line->reason = decision->reason;
    line->pinned = decision->pinned;
    line->blocks = decision->blocks;
    line->run = decision->run;
    line->worth = decision->worth;
    line->holder = decision->best_sticky;
    line->other = decision->best_other;
    line->depth = forwarded ? grid_bridge_depth(ticket, decision) : (double)NAN;
}

void grid_recent_note(struct grid_ticket *ticket, unsigned attempts, uint64_t now_ms)
{
    const struct grid_decision *decision = grid_ticket_decision(ticket);
    uint64_t number = atomic_fetch_add_explicit(&ring.last, 1, memory_order_relaxed) + 1;
    struct place *place = &ring.places[number % KEPT];
    if (!take(place))
        return;
    if (place->line.number < number) {
        fill(&place->line, ticket, decision);
        place->line.number = number;
        place->line.attempts = attempts;
        place->line.at_ms = now_ms;
    }
    leave(place);
}

/* ---- listing --------------------------------------------------------------------------------------------------- */

static int newer_first(const void *a, const void *b)
{
    uint64_t x = ((const struct line *)a)->number, y = ((const struct line *)b)->number;
    return x < y ? 1 : x > y ? -1 : 0;
}

static size_t copy_lines(struct line *lines)
{
    size_t n = 0;
    for (size_t i = 0; i < KEPT; i++) {
        int tries = 0;
        while (!take(&ring.places[i]) && tries < TRIES)
            tries++;
        if (tries == TRIES)
            continue;
        lines[n] = ring.places[i].line;
        leave(&ring.places[i]);
        n += lines[n].number > 0;
    }
    qsort(lines, n, sizeof(*lines), newer_first);
    return n;
}

static void put_name(struct grid_buf *out, const char *key, const char *text)
{
    grid_buf_printf(out, ",\"%s\":", key);
    grid_buf_text(out, text[0] ? grid_bridge_text(text) : (struct grid_str){NULL, 0});
}

static void put_number(struct grid_buf *out, const char *key, double value)
{
    grid_buf_printf(out, ",\"%s\":", key);
    grid_buf_number(out, value);
}

static void put_line(struct grid_buf *out, const struct line *line, uint64_t now_ms)
{
    grid_buf_printf(out, "{\"number\":%llu,\"age_ms\":%llu", (unsigned long long)line->number,
                    (unsigned long long)(now_ms > line->at_ms ? now_ms - line->at_ms : 0));
    put_name(out, "site", line->site);
    put_name(out, "cluster", line->cluster);
    put_name(out, "outcome", grid_outcome_name(line->outcome));
    put_name(out, "reason", line->reason == GRID_REASON_NONE ? "" : grid_reason_name(line->reason));
    grid_buf_printf(out, ",\"blocks\":%u,\"run\":%u,\"pinned\":%s,\"attempts\":%u", line->blocks, line->run,
                    line->pinned ? "true" : "false", line->attempts);
    put_number(out, "worth", line->worth);
    put_number(out, "depth", line->depth);
    put_number(out, "holder_depth", line->holder);
    put_number(out, "other_depth", line->other);
    put_number(out, "status", line->status > 0 ? line->status : (double)NAN);
    put_name(out, "code", line->code);
    grid_buf_puts(out, "}");
}

void grid_recent_json(struct grid_buf *out, uint64_t now_ms)
{
    struct line *lines = calloc(KEPT, sizeof(*lines));
    size_t n = lines ? copy_lines(lines) : 0;
    grid_buf_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        grid_buf_puts(out, i ? "," : "");
        put_line(out, &lines[i], now_ms);
    }
    grid_buf_puts(out, "]");
    free(lines);
}
