/*
 * pins.h - requests that name stored state, for tests of the whole core
 *
 * Story     Ids are written <site|id> and {site|id} and are signed by the router itself. One world a test file.
 */
#ifndef GRID_TEST_PINS_H
#define GRID_TEST_PINS_H

#include "world.h"

#define KEY_ONE "0123456789abcdef0123456789abcdef"
#define KEY_TWO "ffffffffffffffffffffffffffffffff"
#define SITES "a east b! /granite" /* model m at a, east and b; granite at z; the local site is east */
#define TEXT_ROOM 1024u

static struct world world;

static inline void load_keys(const char *first, const char *second)
{
    struct grid_str keys[] = {grid_str_of(first), grid_str_of(second)};
    struct grid_load load = {.has_tag_keys = true, .tag_keys = keys, .n_tag_keys = !first ? 0 : second ? 2 : 1};
    assert_int_equal(grid_router_load(world.router, &load, 0, &world.errors, NULL), GRID_OK);
}

static inline int set_up(void **state)
{
    (void)state;
    world_init(&world, "{'prefix_affinity':{'exploration':0}}", SITES);
    load_keys(KEY_ONE, NULL);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    world_done(&world);
    return 0;
}

/* A text in which <a|id> stands for that id as given out by site and cluster a: "resp_a.mark.mac.id", and {a|id} for a
 * conversation's. Single quotes become double ones. One of four rooms, in turn. */
static inline const char *expand(const char *pattern)
{
    static char rooms[4][TEXT_ROOM];
    static unsigned turn;
    char *out = rooms[turn++ % 4];
    size_t n = 0;
    for (const char *at = pattern; *at; at++) {
        assert_true(n + 1 < TEXT_ROOM);
        const char *bar = strchr(at, '|'), *end = strpbrk(at, ">}");
        if ((*at != '<' && *at != '{') || !bar || !end || bar > end || strchr("'\" ", at[1])) {
            out[n++] = *at == '\'' ? '"' : *at;
            continue;
        }
        struct grid_buf buf = {.limit = TEXT_ROOM - n - 1};
        struct grid_str name = {at + 1, (size_t)(bar - at - 1)}, id = {bar + 1, (size_t)(end - bar - 1)};
        grid_router_tag(world.router, *at == '<' ? GRID_ID_RESPONSE : GRID_ID_CONVERSATION, name, name, id, &buf);
        memcpy(out + n, buf.ptr, buf.len);
        n += buf.len;
        grid_buf_done(&buf);
        at = end;
    }
    out[n] = 0;
    return out;
}

static inline struct grid_ticket *decide(struct request request, const struct grid_route_options *options)
{
    struct grid_decision decision;
    struct grid_ticket *ticket = world_ask(&world, &request);
    grid_route(ticket, options, 0, &decision);
    return ticket;
}

static inline struct request stored(const char *method, const char *path, const char *model)
{
    return (struct request){.method = method, .path = expand(path), .model = model, .no_body = true};
}

static inline struct request create(const char *body, const char *model)
{
    return (struct request){.path = "/v1/responses", .model = model, .body = grid_str_of(expand(body))};
}

static inline void expect_site(struct grid_ticket *ticket, const char *site, bool pinned)
{
    const struct grid_decision *d = grid_ticket_decision(ticket);
    if (d->action != GRID_FORWARD || !grid_str_eq(d->cluster, grid_str_of(site)))
        print_message("%d %s %.*s, not %s\n", d->reply.status, d->reply.code ? d->reply.code : "", GRID_FMT(d->cluster),
                      site);
    assert_int_equal(d->action, GRID_FORWARD);
    assert_true(grid_str_eq(d->site, grid_str_of(site)) && grid_str_eq(d->cluster, grid_str_of(site)));
    assert_int_equal(d->pinned, pinned);
    if (pinned) {
        size_t n = 9;
        assert_int_equal(d->outcome, GRID_OUTCOME_UNCOUNTED);
        assert_int_equal(d->blocks, 0);
        (void)grid_ticket_keys(ticket, &n);
        assert_int_equal(n, 0);
        n = 9;
        (void)grid_ticket_candidates(ticket, &n);
        assert_int_equal(n, 0);
        assert_true(grid_ticket_tags(ticket));
    }
}

static inline void goes(struct request request, const char *site, bool pinned)
{
    struct grid_ticket *ticket = decide(request, NULL);
    expect_site(ticket, site, pinned);
    grid_ticket_free(ticket);
}

static inline void refused(struct request request, int status, const char *code)
{
    struct grid_ticket *ticket = decide(request, NULL);
    const struct grid_decision *d = grid_ticket_decision(ticket);
    size_t n = 9;
    if (d->action != GRID_REPLY || d->reply.status != status || strcmp(d->reply.code, code) != 0)
        print_message("%s %.*s: %d %s, not %d %s\n", request.path, GRID_FMT(request.body), d->reply.status,
                      d->reply.code ? d->reply.code : "", status, code);
    assert_int_equal(d->action, GRID_REPLY);
    assert_int_equal(d->reply.status, status);
    assert_string_equal(d->reply.code, code);
    assert_false(d->pinned || grid_ticket_tags(ticket));
    (void)grid_ticket_edits(ticket, &n);
    assert_int_equal(n, 0);
    grid_ticket_free(ticket);
}

#endif
