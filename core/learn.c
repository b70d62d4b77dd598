/*
 * learn.c - the answer side: what the answer's status teaches the index, and whether its ids get their tag
 *
 * The ticket carries everything from the request, so nothing is computed twice. It is settled once, at the answer's
 * headers; a stream that dies later stays as it was settled (behaviour.md D.2, O.1, O.13).
 */
#include "router.h"

/* The TTL in force now: a change applies to every later confirmation, also of requests that were sent before it. */
static uint64_t ttl_ms_now(struct grid_router *router)
{
    struct grid_sites *sites = grid_router_take_sites(router);
    uint64_t ttl_ms = sites->config->settings.ttl_ms;
    grid_sites_unref(sites);
    return ttl_ms;
}

enum lesson { CONFIRM, DROP, WITHDRAW };

static enum lesson lesson_of(int status, enum grid_answer answer)
{
    if (answer == GRID_SITE_FAILED)
        return DROP;
    if (answer == GRID_NOT_THE_SITE)
        return WITHDRAW;
    if (status >= 200 && status <= 299)
        return CONFIRM;
    return status == 429 || (status >= 500 && status <= 599) ? DROP : WITHDRAW;
}

void grid_learn(struct grid_ticket *t, int status, enum grid_answer answer, uint64_t now_ms,
                struct grid_learned *out_learned)
{
    struct grid_learned learned = {0, 0};
    if (t->state == GRID_TICKET_ROUTED && t->pended) {
        uint32_t n = t->decision.blocks;
        switch (lesson_of(status, answer)) {
        case CONFIRM:
            learned.confirmed = grid_index_confirm(t->pended, t->keys, n, now_ms, ttl_ms_now(t->router));
            break;
        case DROP:
            learned.dropped = grid_index_drop(t->pended, t->keys, n);
            break;
        case WITHDRAW:
            grid_index_withdraw(t->pended, t->keys, n);
            break;
        }
    }
    t->state = GRID_TICKET_SETTLED;
    if (out_learned)
        *out_learned = learned;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

#define PARTIAL_CONTENT 206 /* a part of a text, which may begin anywhere: it passes as it is */

/* The tag of the cluster that answers, under the key now in force: a new key signs from its first answer on. */
static size_t make_tag(struct grid_ticket *t, char out_tag[GRID_TAG_BYTES])
{
    struct grid_sites *sites = grid_router_take_sites(t->router);
    char mark[GRID_TAG_MARK_BYTES];
    grid_tag_mark(t->decision.cluster, mark);
    size_t len = grid_tag_make(sites->config->ring, t->decision.site, mark, out_tag);
    grid_sites_unref(sites);
    return len;
}

bool grid_answer_begin(struct grid_ticket *t, int status, struct grid_str content_type,
                       struct grid_str content_encoding)
{
    char tag[GRID_TAG_BYTES];
    t->rewriting = false;
    if (!grid_ticket_tags(t) || status < 200 || status > 299 || status == PARTIAL_CONTENT)
        return false;
    struct grid_str coding = grid_str_trim(content_encoding);
    if (coding.len && !grid_str_eq_nocase(coding, GRID_LIT("identity"))) {
        grid_stats_add(&t->router->stats.untagged);
        return false;
    }
    struct grid_str type = grid_str_trim(grid_str_until(content_type, ';'));
    bool sse = grid_str_eq_nocase(type, GRID_LIT("text/event-stream"));
    grid_rewrite_begin(&t->rewrite, sse, tag, make_tag(t, tag));
    t->rewriting = true;
    return true;
}

bool grid_answer_body(struct grid_ticket *t, const struct grid_str *slices, size_t n_slices, bool last,
                      grid_put_fn *put, void *ctx)
{
    return !t->rewriting || grid_rewrite_feed(&t->rewrite, slices, n_slices, last, put, ctx);
}

uint64_t grid_answer_tagged(const struct grid_ticket *t)
{
    return t->rewriting ? t->rewrite.tagged : 0;
}

void grid_failure_reply(struct grid_ticket *t, int status, bool overloaded, struct grid_reply *out_reply)
{
    grid_reply_make(grid_reply_kind_of(status, overloaded), t ? t->head.api : GRID_API_NONE, out_reply);
}
