/*
 * world.h - a router with sites, and requests to send through it
 *
 * Story     Tests of the whole core write settings and bodies in JSON with single quotes, name sites by letters, and
 *           read as what a client and its sites do.
 */
#ifndef GRID_TEST_WORLD_H
#define GRID_TEST_WORLD_H

#include <stdio.h>
#include <string.h>

#include "failing_alloc.h"
#include "str.h"
#include "unit.h"

#define TEXT_BYTES 65536u

struct text {
    size_t len;
    char bytes[TEXT_BYTES];
};

static inline struct grid_str text_view(const struct text *text)
{
    return (struct grid_str){text->bytes, text->len};
}

static inline void text_put(struct text *text, const char *bytes, size_t len)
{
    assert_true(text->len + len < sizeof text->bytes);
    memcpy(text->bytes + text->len, bytes, len);
    text->len += len;
    text->bytes[text->len] = 0;
}

/* Single quotes become double ones. */
static inline void text_put_json(struct text *text, const char *json)
{
    size_t from = text->len;
    text_put(text, json, strlen(json));
    for (size_t i = from; i < text->len; i++)
        if (text->bytes[i] == '\'')
            text->bytes[i] = '"';
}

/* A serving config without peers: "a b! c" gives model m at sites a, b and c over clusters of the same names, of which
 * b admits nothing. A '/' in front of a name: another model of that name, at site z. */
static inline void text_put_serving(struct text *text, const char *sites)
{
    text_put_json(text, "{'local_site':'east','window_secs':60,'load_window_ms':30000,'peers':[],'candidates':[");
    bool first = true;
    for (const char *at = sites; *at;) {
        char line[512], name[64];
        size_t len = strcspn(at, " "), bare = len;
        bool closed = len > 0 && at[len - 1] == '!', model = at[0] == '/';
        bare -= closed;
        (void)snprintf(name, sizeof name, "%.*s", (int)(bare - model), at + model);
        (void)snprintf(line, sizeof line, "%s{'kind':'inference_model','name':'%s','site':'%s','cluster':'%s'%s}",
                       first ? "" : ",", model ? name : "m", model ? "z" : name, model ? "z" : name,
                       closed ? ",'admission':'none'" : "");
        text_put_json(text, line);
        first = false;
        at += len;
        at += strspn(at, " ");
    }
    text_put_json(text, "]}");
}

struct world {
    struct failing_alloc memory;
    struct grid_router *router;
    struct grid_errors errors;
    int fault; /* which text was at fault */
};

/* NULL keeps what is in force. */
static inline enum grid_status world_load(struct world *world, const char *plugin, const char *sites, uint64_t now_ms)
{
    struct text plugin_text = {.len = 0}, serving_text = {.len = 0};
    struct grid_load load = {.words = false};
    world->errors.count = 0;
    world->fault = 0;
    if (plugin) {
        text_put_json(&plugin_text, plugin);
        load.plugin = text_view(&plugin_text);
    }
    if (sites) {
        text_put_serving(&serving_text, sites);
        load.serving = text_view(&serving_text);
    }
    return grid_router_load(world->router, &load, now_ms, &world->errors, &world->fault);
}

static inline void world_must_load(struct world *world, const char *plugin, const char *sites, uint64_t now_ms)
{
    enum grid_status status = world_load(world, plugin, sites, now_ms);
    if (status != GRID_OK)
        print_message("%s: %s: %s\n", grid_status_name(status), world->errors.items[0].field,
                      world->errors.items[0].message);
    assert_int_equal(status, GRID_OK);
}

static inline void world_init(struct world *world, const char *plugin, const char *sites)
{
    memset(world, 0, sizeof *world);
    failing_alloc_init(&world->memory);
    struct grid_options options = {.alloc = &world->memory.alloc, .hash_seed = 1, .dice_seed = 1};
    assert_int_equal(grid_router_new(&options, &world->router), GRID_OK);
    world_must_load(world, plugin, sites, 0);
}

static inline void world_done(struct world *world)
{
    grid_router_free(world->router);
    assert_int_equal(atomic_load(&world->memory.out), 0);
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* A chat body whose first text fills `blocks` blocks (framing and a rest included), told apart by its letter, with more
 * turns behind it. */
static inline void text_put_chat(struct text *text, const char *model, char letter, size_t blocks, unsigned turns)
{
    char line[512];
    (void)snprintf(line, sizeof line, "{'model':'%s','messages':[{'role':'user','content':'", model);
    text_put_json(text, line);
    for (size_t i = 0; i < blocks * GRID_BLOCK_BYTES / 8; i++) {
        (void)snprintf(line, sizeof line, "%c %05zu ", letter, i);
        text_put(text, line, 8);
    }
    text_put_json(text, "'}");
    for (unsigned turn = 1; turn < turns; turn++) {
        (void)snprintf(line, sizeof line,
                       ",{'role':'assistant','content':'answer %u'},{'role':'user','content':'and %0150u?'}", turn,
                       turn);
        text_put_json(text, line);
    }
    text_put_json(text, "]}");
}

struct request {
    const char *method, *path, *model; /* NULL: POST, chat, no model header */
    struct grid_str body;
    bool cut, upgrade, no_body;
};

/* The ticket up to its body. */
static inline struct grid_ticket *world_ask(struct world *world, const struct request *request)
{
    struct grid_header headers[] = {{GRID_LIT("content-type"), GRID_LIT("application/json")},
                                    {GRID_LIT("x-model"), grid_str_of(request->model)}};
    struct grid_head head = {.method = grid_str_of(request->method ? request->method : "POST"),
                             .path = grid_str_of(request->path ? request->path : "/v1/chat/completions"),
                             .headers = headers,
                             .n_headers = request->model ? 2 : 1,
                             .upgrade = request->upgrade,
                             .no_body = request->no_body};
    struct grid_ticket *ticket = NULL;
    assert_int_equal(grid_ticket_new(world->router, &head, &ticket), GRID_OK);
    if (grid_ticket_want(ticket) == GRID_WANT_BODY) {
        size_t half = request->body.len / 2; /* in two slices */
        struct grid_str slices[] = {{request->body.ptr, half},
                                    {request->body.ptr ? request->body.ptr + half : NULL, request->body.len - half}};
        grid_ticket_body(ticket, slices, 2, request->cut);
    }
    return ticket;
}

/* A chat request of model m, decided. */
static inline struct grid_ticket *world_send(struct world *world, char letter, size_t blocks, unsigned turns,
                                             uint64_t now_ms)
{
    static _Thread_local struct text body;
    struct grid_decision decision;
    body.len = 0;
    text_put_chat(&body, "m", letter, blocks, turns);
    struct grid_ticket *ticket = world_ask(world, &(struct request){.body = text_view(&body)});
    grid_route(ticket, NULL, now_ms, &decision);
    return ticket;
}

/* Its answer; the ticket ends. Returns what was learned. */
static inline struct grid_learned world_answer(struct grid_ticket *ticket, int status, uint64_t now_ms)
{
    struct grid_learned learned = {99, 99};
    grid_learn(ticket, status, GRID_FROM_SITE, now_ms, &learned);
    grid_ticket_free(ticket);
    return learned;
}

/* ---- looking ---------------------------------------------------------------------------------------------------- */

struct world_wanted {
    const char *family, *label;
    uint64_t value;
    unsigned found;
};

static inline void world_find_series(const struct grid_series *series, void *ctx)
{
    struct world_wanted *wanted = ctx;
    if (strcmp(series->family, wanted->family) == 0 && strcmp(series->label, wanted->label) == 0) {
        wanted->value = series->value;
        wanted->found++;
    }
}

static inline uint64_t world_counter(struct world *world, const char *family, const char *label)
{
    struct world_wanted wanted = {.family = family, .label = label};
    grid_router_counters(world->router, world_find_series, &wanted);
    assert_true(wanted.found <= 1);
    return wanted.value;
}

static inline uint64_t world_outcomes(struct world *world, enum grid_outcome outcome)
{
    char label[64];
    (void)snprintf(label, sizeof label, "outcome=\"%s\"", grid_outcome_name(outcome));
    return world_counter(world, "grid_route_prefix_affinity_total", label);
}

static inline uint64_t world_all_outcomes(struct world *world)
{
    uint64_t sum = 0;
    for (int i = 0; i < GRID_N_OUTCOMES; i++)
        sum += world_outcomes(world, (enum grid_outcome)i);
    return sum;
}

/* site: "" for what was refused */
static inline uint64_t world_decisions(struct world *world, const char *site, const char *reason)
{
    char label[256];
    (void)snprintf(label, sizeof label, "site=\"%s\",cluster=\"%s\",reason=\"%s\"", site, site, reason);
    return world_counter(world, "grid_route_decisions_total", label);
}

static inline struct grid_site_view world_site(struct world *world, const char *cluster, uint64_t now_ms)
{
    static struct grid_site_view views[16];
    size_t n = grid_router_sites(world->router, now_ms, views, COUNT(views));
    for (size_t i = 0; i < n && i < COUNT(views); i++)
        if (strcmp(views[i].cluster, cluster) == 0)
            return views[i];
    fail_msg("no cluster %s", cluster);
    return views[0];
}

static inline void world_signal(struct world *world, const char *cluster, double depth, uint64_t now_ms)
{
    assert_true(grid_signal(world->router, grid_str_of(cluster), depth, now_ms, now_ms));
    assert_int_equal(grid_router_refresh(world->router, now_ms), GRID_OK);
}

/* The body that goes on: as it came, with the edits of the ticket. Valid until the next call. */
static inline struct grid_str world_sent(const struct grid_ticket *ticket, struct grid_str body)
{
    static char sent[TEXT_BYTES];
    size_t n_edits, at = 0, n = 0;
    const struct grid_edit *edits = grid_ticket_edits(ticket, &n_edits);
    for (size_t i = 0; i < n_edits; i++) {
        assert_true(edits[i].offset >= at && edits[i].offset + edits[i].bytes <= body.len);
        memcpy(sent + n, body.ptr + at, edits[i].offset - at);
        n += edits[i].offset - at;
        memcpy(sent + n, edits[i].text.ptr, edits[i].text.len);
        n += edits[i].text.len;
        at = edits[i].offset + edits[i].bytes;
    }
    if (body.len > at)
        memcpy(sent + n, body.ptr + at, body.len - at);
    return (struct grid_str){sent, n + body.len - at};
}

#endif
