/*
 * replay_request.c - the operations of replay that carry a request: request, answer, abandon, keys, runs
 *
 * Story     A request becomes a ticket of the core; a forwarded one waits under its id for `answer` or `abandon`.
 * Promise   What is printed is what the chosen cluster, or the client, would get. An id is free again after its answer.
 * Not here  Lines and the clock (replay.c), reading a request from a line (replay_asked.c).
 */
#include "replay_asked.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool make_ticket(struct grid_replay *replay, const struct grid_replay_asked *asked,
                        struct grid_ticket **out_ticket)
{
    if (!grid_replay_order(replay)) {
        return false;
    }
    if (grid_query_ticket(replay->router, &asked->query, out_ticket) != GRID_OK) {
        return grid_replay_refuse(replay, "", "out of memory");
    }
    return true;
}

/* ---- requests that wait for their answer ----------------------------------------------------------------------- */

struct open_request {
    struct grid_str id; /* behind the struct, or in the line while looking one up */
    struct grid_ticket *ticket;
};

static int compare_ids(const void *left, const void *right)
{
    const struct open_request *a = left, *b = right;
    int order = memcmp(a->id.ptr, b->id.ptr, a->id.len < b->id.len ? a->id.len : b->id.len);

    return order != 0 ? order : (a->id.len > b->id.len) - (a->id.len < b->id.len);
}

static struct open_request *find_open(struct grid_replay *replay, struct grid_str id)
{
    struct open_request key = {.id = id};
    struct open_request **found = tfind(&key, &replay->open, compare_ids);

    return found != NULL ? *found : NULL;
}

static struct open_request *new_open(struct grid_str id)
{
    struct open_request *request = malloc(sizeof *request + id.len + 1);

    if (request != NULL) {
        char *copy = (char *)(request + 1);
        memcpy(copy, id.ptr, id.len);
        *request = (struct open_request){.id = {copy, id.len}};
    }
    return request;
}

static void free_open(void *request)
{
    grid_ticket_free(((struct open_request *)request)->ticket);
    free(request);
}

static void close_request(struct grid_replay *replay, struct open_request *request)
{
    (void)tdelete(request, &replay->open, compare_ids);
    free_open(request);
}

void grid_replay_free_requests(struct grid_replay *replay)
{
    tdestroy(replay->open, free_open);
    replay->open = NULL;
}

/* ---- request --------------------------------------------------------------------------------------------------- */

static bool has_name(const struct grid_header *header, const char *name)
{
    return header->name.len == strlen(name) && memcmp(header->name.ptr, name, header->name.len) == 0;
}

static bool same_name(const struct grid_header *header, struct grid_str name)
{
    return name.len > 0 && header->name.len == name.len && memcmp(header->name.ptr, name.ptr, name.len) == 0;
}

/* What a client writes in the gateway's own headers does not go on, nor what it would have decoded where ids in the
 * answer are to be tagged. */
static bool is_dropped(const struct grid_header *header, bool tags)
{
    static const char ours[] = "x-grid-";
    const size_t len = sizeof ours - 1;

    return (header->name.len >= len && memcmp(header->name.ptr, ours, len) == 0) ||
           (tags && has_name(header, "accept-encoding"));
}

/* The body that goes on. */
static void put_edited(struct grid_buf *out, struct grid_str body, const struct grid_edit *edits, size_t n)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        grid_buf_put(out, body.ptr + at, edits[i].offset - at);
        grid_buf_put(out, edits[i].text.ptr, edits[i].text.len);
        at = edits[i].offset + edits[i].bytes;
    }
    grid_buf_put(out, body.ptr + at, body.len - at);
}

static void put_forward(struct grid_buf *out, struct grid_replay_asked *asked, const struct grid_ticket *ticket,
                        const struct grid_decision *decision)
{
    struct grid_buf body = {.limit = SIZE_MAX / 2};
    size_t kept = 0, n_edits;
    const struct grid_edit *edits = grid_ticket_edits(ticket, &n_edits);
    char length[24];

    if (n_edits > 0) {
        put_edited(&body, asked->query.body, edits, n_edits);
    }
    int digits = snprintf(length, sizeof length, "%zu", body.len);
    for (size_t i = 0; i < asked->query.n_headers; i++) {
        struct grid_header *header = &asked->headers[i];
        if (n_edits > 0 && has_name(header, "content-length")) {
            header->value = (struct grid_str){length, (size_t)digits};
        }
        bool renamed = same_name(header, decision->model_header.name);
        if (renamed) {
            header->value = decision->model_header.value;
        }
        if (!is_dropped(header, grid_ticket_tags(ticket)) && (!renamed || header->value.ptr != NULL)) {
            asked->headers[kept++] = *header;
        }
    }
    grid_buf_puts(out, "\"action\":\"forward\",\"site\":");
    grid_buf_json(out, decision->site);
    grid_buf_puts(out, ",\"cluster\":");
    grid_buf_json(out, decision->cluster);
    grid_buf_puts(out, ",\"path\":");
    grid_buf_json(out, decision->path.ptr != NULL ? decision->path : asked->query.path);
    grid_buf_puts(out, ",\"headers\":");
    grid_query_put_headers(out, asked->headers, kept);
    grid_buf_puts(out, ",\"body_b64\":");
    if (n_edits > 0) {
        grid_query_put_base64(out, (struct grid_str){body.ptr, body.len});
    } else {
        grid_buf_puts(out, "null");
    }
    out->failed = out->failed || body.failed;
    grid_buf_done(&body);
}

static void put_reply(struct grid_buf *out, const struct grid_reply *reply)
{
    grid_buf_printf(out, "\"action\":\"reply\",\"status\":%d,\"headers\":", reply->status);
    grid_query_put_headers(out, reply->headers, reply->n_headers);
    grid_buf_puts(out, ",\"body\":");
    grid_buf_json(out, reply->body.ptr != NULL ? reply->body : grid_query_str(""));
    grid_buf_puts(out, ",\"site\":null,\"cluster\":null,\"path\":null,\"body_b64\":null");
}

static void put_decision(struct grid_replay *replay, struct grid_str id, struct grid_replay_asked *asked,
                         struct grid_ticket *ticket, const struct grid_decision *decision)
{
    struct grid_buf *out = &replay->out;
    const char *outcome = grid_outcome_name(decision->outcome);
    size_t n;
    const struct grid_candidate *candidates = grid_explain_runs(replay->router, ticket, replay->now_ms, &n);

    grid_buf_puts(out, "{\"id\":");
    grid_buf_text(out, id);
    grid_buf_puts(out, ",");
    grid_explain_facts(out, decision, decision->blocks);
    grid_buf_puts(out, ",");
    if (decision->action == GRID_FORWARD) {
        put_forward(out, asked, ticket, decision);
    } else {
        put_reply(out, &decision->reply);
    }
    grid_buf_puts(out, ",\"outcome\":");
    grid_buf_text(out, outcome[0] != '\0' ? grid_query_str(outcome) : (struct grid_str){NULL, 0});
    grid_buf_printf(out, ",\"blocks\":%u,\"candidates\":", (unsigned)decision->blocks);
    grid_explain_candidates(out, candidates, n);
    grid_buf_puts(out, ",\"worth\":");
    grid_buf_number(out, decision->worth);
    grid_buf_puts(out, "}");
}

static bool names_cluster(const struct grid_replay *replay, struct grid_str cluster)
{
    for (size_t i = 0; i < replay->n_sites; i++) {
        const char *name = replay->sites[i].cluster;
        if (strlen(name) == cluster.len && memcmp(name, cluster.ptr, cluster.len) == 0) {
            return true;
        }
    }
    return false;
}

/* Decides, answers, and keeps a forwarded request under its id. */
static bool decide(struct grid_replay *replay, struct grid_str id, struct grid_replay_asked *asked,
                   const struct grid_route_options *options)
{
    struct open_request *open = options->peek ? NULL : new_open(id);
    struct grid_ticket *ticket;
    struct grid_decision decision;

    if (open == NULL && !options->peek) {
        return grid_replay_refuse(replay, "", "out of memory");
    }
    if (!make_ticket(replay, asked, &ticket)) {
        free(open);
        return false;
    }
    grid_route(ticket, options, replay->now_ms, &decision);
    put_decision(replay, id, asked, ticket, &decision);
    if (open == NULL || decision.action != GRID_FORWARD || tsearch(open, &replay->open, compare_ids) == NULL) {
        grid_ticket_free(ticket);
        free(open);
    } else {
        open->ticket = ticket;
    }
    return true;
}

bool grid_replay_request(struct grid_replay *replay, json_t *line)
{
    struct grid_route_options options = {0};
    struct grid_replay_asked asked = {0};
    struct grid_str id = {NULL, 0};

    if (!grid_replay_flag(replay, line, "peek", &options.peek) ||
        !grid_replay_text(replay, line, "id", !options.peek, &id) ||
        !grid_replay_text(replay, line, "cluster", false, &options.forced)) {
        return false;
    }
    if (options.forced.ptr != NULL && !names_cluster(replay, options.forced)) {
        return grid_replay_refuse(replay, "cluster", "no candidate names this cluster");
    }
    if (!options.peek && find_open(replay, id) != NULL) {
        return grid_replay_refuse(replay, "id", "a request with this id waits for its answer");
    }
    bool done = grid_replay_asked_read(replay, line, &asked) && decide(replay, id, &asked, &options);
    grid_replay_asked_done(&asked);
    return done;
}

/* ---- answer, abandon ------------------------------------------------------------------------------------------- */

static bool read_open(struct grid_replay *replay, json_t *line, struct open_request **out)
{
    struct grid_str id;

    if (!grid_replay_text(replay, line, "id", true, &id)) {
        return false;
    }
    *out = find_open(replay, id);
    return *out != NULL ? true : grid_replay_refuse(replay, "id", "no request with this id waits for an answer");
}

/* The value of an answer's header; {NULL,0} when it has none of the name. */
static struct grid_str value_of(const struct grid_replay_asked *answer, const char *name)
{
    for (size_t i = 0; i < answer->query.n_headers; i++) {
        if (has_name(&answer->headers[i], name)) {
            return answer->headers[i].value;
        }
    }
    return (struct grid_str){NULL, 0};
}

static void put_piece(void *ctx, struct grid_str bytes)
{
    grid_buf_put(ctx, bytes.ptr, bytes.len);
}

/* The body as it leaves the gateway, piece by piece as it came. */
static void rewrite_body(struct grid_ticket *ticket, const struct grid_query *answer, struct grid_buf *out)
{
    size_t size = answer->piece_bytes > 0 ? answer->piece_bytes : answer->body.len, at = 0;

    do {
        size_t left = answer->body.len - at;
        struct grid_str piece = {answer->body.len > 0 ? answer->body.ptr + at : "", left < size ? left : size};
        at += piece.len;
        if (grid_answer_body(ticket, &piece, 1, at == answer->body.len, put_piece, out)) {
            grid_buf_put(out, piece.ptr, piece.len);
        }
    } while (at < answer->body.len);
}

/* Headers that speak of the body as the site wrote it. */
static bool tells_of_bytes(const struct grid_header *header)
{
    static const char *const names[] = {"content-length", "etag",           "content-md5",
                                        "digest",         "content-digest", "repr-digest"};
    bool found = false;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        found = found || has_name(header, names[i]);
    }
    return found;
}

/* What the client gets. */
static void put_answer(struct grid_buf *out, struct grid_ticket *ticket, struct grid_replay_asked *answer, int status)
{
    struct grid_buf body = {.limit = SIZE_MAX / 2};
    size_t kept = 0;
    bool rewritten =
        grid_answer_begin(ticket, status, value_of(answer, "content-type"), value_of(answer, "content-encoding"));

    for (size_t i = 0; i < answer->query.n_headers; i++) {
        if (!rewritten || !tells_of_bytes(&answer->headers[i])) {
            answer->headers[kept++] = answer->headers[i];
        }
    }
    if (rewritten) {
        rewrite_body(ticket, &answer->query, &body);
    }
    grid_buf_printf(out, "\"status\":%d,\"headers\":", status);
    grid_query_put_headers(out, answer->headers, kept);
    grid_buf_puts(out, ",\"body_b64\":");
    grid_query_put_base64(out, rewritten ? (struct grid_str){body.ptr, body.len} : answer->query.body);
    grid_buf_printf(out, ",\"tagged\":%llu", (unsigned long long)grid_answer_tagged(ticket));
    out->failed = out->failed || body.failed;
    grid_buf_done(&body);
}

bool grid_replay_answer(struct grid_replay *replay, json_t *line)
{
    const uint64_t lowest = 100, highest = 599; /* RFC 9110, section 15 */
    struct grid_replay_asked answer = {0};
    struct open_request *open;
    struct grid_learned learned = {0, 0};
    uint64_t status;

    if (!read_open(replay, line, &open) || !grid_replay_whole(replay, line, "status", true, &status)) {
        return false;
    }
    if (status < lowest || status > highest) {
        return grid_replay_refuse(replay, "status", "is not within 100 and 599");
    }
    if (!grid_replay_asked_headers(replay, line, &answer) || !grid_replay_asked_body(replay, line, &answer)) {
        grid_replay_asked_done(&answer);
        return false;
    }
    /* the core drops on 502, 503 and 504 too, so one made by the gateway needs no telling apart */
    grid_learn(open->ticket, (int)status, GRID_FROM_SITE, replay->now_ms, &learned);
    grid_buf_puts(&replay->out, "{\"id\":");
    grid_buf_json(&replay->out, open->id);
    grid_buf_puts(&replay->out, ",");
    put_answer(&replay->out, open->ticket, &answer, (int)status);
    grid_buf_printf(&replay->out, ",\"confirmed\":%u,\"dropped\":%u}", (unsigned)learned.confirmed,
                    (unsigned)learned.dropped);
    close_request(replay, open);
    grid_replay_asked_done(&answer);
    return true;
}

bool grid_replay_abandon(struct grid_replay *replay, json_t *line)
{
    struct open_request *open;

    if (!read_open(replay, line, &open)) {
        return false;
    }
    close_request(replay, open);
    grid_buf_puts(&replay->out, "{\"ok\":true}");
    return true;
}

/* ---- keys, runs ------------------------------------------------------------------------------------------------ */

bool grid_replay_keys(struct grid_replay *replay, json_t *line)
{
    struct grid_replay_asked asked = {0};
    struct grid_ticket *ticket = NULL;
    bool done = grid_replay_asked_read(replay, line, &asked) && make_ticket(replay, &asked, &ticket);

    if (done) {
        const struct grid_route_options peek = {.peek = true};
        struct grid_decision decision;
        size_t n;
        const uint64_t *keys = grid_ticket_keys(ticket, &n);
        grid_route(ticket, &peek, replay->now_ms, &decision); /* for the reason; whether it has a route is no matter */
        grid_buf_puts(&replay->out, "{");
        grid_explain_facts(&replay->out, &decision, n);
        grid_buf_puts(&replay->out, ",\"keys\":");
        grid_query_put_keys(&replay->out, keys, n);
        grid_buf_puts(&replay->out, "}");
    }
    grid_ticket_free(ticket);
    grid_replay_asked_done(&asked);
    return done;
}

bool grid_replay_runs(struct grid_replay *replay, json_t *line)
{
    struct grid_replay_asked asked = {0};
    struct grid_ticket *ticket = NULL;
    bool done = grid_replay_asked_read(replay, line, &asked) && make_ticket(replay, &asked, &ticket);

    if (done) {
        size_t n;
        (void)grid_ticket_keys(ticket, &n);
        grid_buf_printf(&replay->out, "{\"blocks\":%zu,\"runs\":{", n);
        for (size_t i = 0; i < replay->n_sites; i++) {
            struct grid_str cluster = grid_query_str(replay->sites[i].cluster);
            grid_buf_puts(&replay->out, i != 0 ? "," : "");
            grid_buf_json(&replay->out, cluster);
            grid_buf_printf(&replay->out, ":%u",
                            (unsigned)grid_router_run(replay->router, ticket, cluster, replay->now_ms));
        }
        grid_buf_puts(&replay->out, "}}");
    }
    grid_ticket_free(ticket);
    grid_replay_asked_done(&asked);
    return done;
}
