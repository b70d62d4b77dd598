/*
 * replay_request.c - the operations of replay that carry a request: request, answer, abandon, keys, runs
 *
 * Story     A request becomes a ticket of the core; a forwarded one waits under its id for `answer` or `abandon`.
 * Promise   What is printed is what the chosen cluster, or the client, would get. An id is free again after its answer.
 * Not here  Lines and the clock (replay.c).
 */
#include "query.h"
#include "replay.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a line says about a request -------------------------------------------------------------------------- */

struct asked {
    struct grid_query query;
    struct grid_header *headers;
    char *names;   /* header names in lower case, one after the other */
    char *decoded; /* the body, when it came as base64 */
};

static void free_asked(struct asked *asked)
{
    free(asked->headers);
    free(asked->names);
    free(asked->decoded);
}

/* How many headers an object of them holds, and how long their names are; refused when it is no such object. */
static bool count_headers(struct grid_replay *replay, json_t *object, size_t *out_n, size_t *out_bytes)
{
    const char *name;
    json_t *value;

    if (!json_is_object(object)) {
        return grid_replay_refuse(replay, "headers", "is not an object");
    }
    json_object_foreach(object, name, value)
    {
        size_t n = json_is_array(value) ? json_array_size(value) : 1;
        bool right = name[0] != '\0' && (json_is_string(value) || json_is_array(value));
        for (size_t i = 0; json_is_array(value) && i < n; i++) {
            right = right && json_is_string(json_array_get(value, i));
        }
        if (!right) {
            return grid_replay_refuse(replay, "headers", "a header is a name with a text or a list of texts");
        }
        *out_n += n;
        *out_bytes += strlen(name);
    }
    return true;
}

static bool read_headers(struct grid_replay *replay, json_t *line, struct asked *out)
{
    json_t *object = json_object_get(line, "headers"), *value;
    size_t n = 0, bytes = 0, used = 0;
    const char *name;

    if (object == NULL) {
        return true;
    }
    if (!count_headers(replay, object, &n, &bytes)) {
        return false;
    }
    out->headers = calloc(n + 1, sizeof *out->headers);
    out->names = malloc(bytes + 1);
    if (out->headers == NULL || out->names == NULL) {
        return grid_replay_refuse(replay, "headers", "out of memory");
    }
    json_object_foreach(object, name, value)
    {
        struct grid_str lower = {out->names + used, strlen(name)};
        for (const char *at = name; *at != '\0'; at++) {
            out->names[used++] = *at >= 'A' && *at <= 'Z' ? (char)(*at + ('a' - 'A')) : *at;
        }
        for (size_t i = 0; i < (json_is_array(value) ? json_array_size(value) : 1); i++) {
            json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
            struct grid_header *header = &out->headers[out->query.n_headers++];
            header->name = lower;
            header->value = (struct grid_str){json_string_value(one), json_string_length(one)};
        }
    }
    out->query.headers = out->headers;
    return true;
}

static bool read_body(struct grid_replay *replay, json_t *line, struct asked *out)
{
    struct grid_str text = {NULL, 0}, coded = {NULL, 0};
    uint64_t chunk = 0;

    if (!grid_replay_text(replay, line, "body", false, &text) ||
        !grid_replay_text(replay, line, "body_b64", false, &coded) ||
        !grid_replay_whole(replay, line, "chunk", false, &chunk)) {
        return false;
    }
    if (json_object_get(line, "chunk") != NULL && chunk == 0) {
        return grid_replay_refuse(replay, "chunk", "0 is not above 0");
    }
    if (text.ptr != NULL && coded.ptr != NULL) {
        return grid_replay_refuse(replay, "body_b64", "body is given too");
    }
    if (coded.ptr != NULL) {
        size_t len;
        if (!grid_query_from_base64(coded, &out->decoded, &len)) {
            return grid_replay_refuse(replay, "body_b64", "is not base64");
        }
        text = (struct grid_str){out->decoded, len};
    }
    out->query.has_body = text.ptr != NULL;
    out->query.body = text;
    out->query.piece_bytes = chunk < SIZE_MAX ? (size_t)chunk : SIZE_MAX;
    return true;
}

/* The part that request, keys and runs have in common. */
static bool read_asked(struct grid_replay *replay, json_t *line, struct asked *out)
{
    out->query.method = grid_query_str("POST");
    return grid_replay_text(replay, line, "method", false, &out->query.method) &&
           grid_replay_text(replay, line, "path", true, &out->query.path) && read_headers(replay, line, out) &&
           read_body(replay, line, out);
}

static bool make_ticket(struct grid_replay *replay, const struct asked *asked, struct grid_ticket **out_ticket)
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

/* Headers that only the gateway may set: what a client wrote there does not go on. */
static bool is_ours(const struct grid_header *header)
{
    static const char *const ours[] = {"x-grid-site", "x-grid-backend"};

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (header->name.len == strlen(ours[i]) && memcmp(header->name.ptr, ours[i], header->name.len) == 0) {
            return true;
        }
    }
    return false;
}

static void put_forward(struct grid_buf *out, struct asked *asked, const struct grid_decision *decision)
{
    size_t kept = 0;

    for (size_t i = 0; i < asked->query.n_headers; i++) {
        if (!is_ours(&asked->headers[i])) {
            asked->headers[kept++] = asked->headers[i];
        }
    }
    grid_buf_puts(out, "\"action\":\"forward\",\"site\":");
    grid_buf_json(out, decision->site);
    grid_buf_puts(out, ",\"cluster\":");
    grid_buf_json(out, decision->cluster);
    grid_buf_puts(out, ",\"path\":");
    grid_buf_json(out, asked->query.path);
    grid_buf_puts(out, ",\"headers\":");
    grid_query_put_headers(out, asked->headers, kept);
    grid_buf_puts(out, ",\"body_b64\":null");
}

static void put_reply(struct grid_buf *out, const struct grid_reply *reply)
{
    grid_buf_printf(out, "\"action\":\"reply\",\"status\":%d,\"headers\":", reply->status);
    grid_query_put_headers(out, reply->headers, reply->n_headers);
    grid_buf_puts(out, ",\"body\":");
    grid_buf_json(out, reply->body.ptr != NULL ? reply->body : grid_query_str(""));
    grid_buf_puts(out, ",\"site\":null,\"cluster\":null,\"path\":null,\"body_b64\":null");
}

static void put_decision(struct grid_replay *replay, struct grid_str id, struct asked *asked,
                         struct grid_ticket *ticket, const struct grid_decision *decision)
{
    struct grid_buf *out = &replay->out;
    const char *outcome = grid_outcome_name(decision->outcome);
    size_t n;
    const struct grid_candidate *candidates = grid_query_candidates(replay->router, ticket, replay->now_ms, &n);

    grid_buf_puts(out, "{\"id\":");
    grid_query_put_text(out, id);
    grid_buf_puts(out, ",");
    grid_query_put_facts(out, decision, decision->blocks);
    grid_buf_puts(out, ",");
    if (decision->action == GRID_FORWARD) {
        put_forward(out, asked, decision);
    } else {
        put_reply(out, &decision->reply);
    }
    grid_buf_puts(out, ",\"outcome\":");
    grid_query_put_text(out, outcome[0] != '\0' ? grid_query_str(outcome) : (struct grid_str){NULL, 0});
    grid_buf_printf(out, ",\"blocks\":%u,\"candidates\":", (unsigned)decision->blocks);
    grid_query_put_candidates(out, candidates, n);
    grid_buf_puts(out, ",\"worth\":");
    grid_query_put_number(out, decision->worth);
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
static bool decide(struct grid_replay *replay, struct grid_str id, struct asked *asked,
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
    struct asked asked = {0};
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
    bool done = read_asked(replay, line, &asked) && decide(replay, id, &asked, &options);
    free_asked(&asked);
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

bool grid_replay_answer(struct grid_replay *replay, json_t *line)
{
    const uint64_t lowest = 100, highest = 599; /* RFC 9110, section 15 */
    struct asked answer = {0};
    struct open_request *open;
    struct grid_learned learned = {0, 0};
    uint64_t status;

    if (!read_open(replay, line, &open) || !grid_replay_whole(replay, line, "status", true, &status)) {
        return false;
    }
    if (status < lowest || status > highest) {
        return grid_replay_refuse(replay, "status", "is not within 100 and 599");
    }
    if (!read_headers(replay, line, &answer) || !read_body(replay, line, &answer)) {
        free_asked(&answer);
        return false;
    }
    /* the core drops on 502, 503 and 504 too, so one made by the gateway needs no telling apart */
    grid_learn(open->ticket, (int)status, GRID_FROM_SITE, replay->now_ms, &learned);
    grid_buf_puts(&replay->out, "{\"id\":");
    grid_buf_json(&replay->out, open->id);
    grid_buf_printf(&replay->out, ",\"status\":%d,\"headers\":", (int)status);
    grid_query_put_headers(&replay->out, answer.headers, answer.query.n_headers);
    grid_buf_puts(&replay->out, ",\"body_b64\":");
    grid_query_put_base64(&replay->out, answer.query.body);
    grid_buf_printf(&replay->out, ",\"tagged\":0,\"confirmed\":%u,\"dropped\":%u}", (unsigned)learned.confirmed,
                    (unsigned)learned.dropped);
    close_request(replay, open);
    free_asked(&answer);
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
    struct asked asked = {0};
    struct grid_ticket *ticket = NULL;
    bool done = read_asked(replay, line, &asked) && make_ticket(replay, &asked, &ticket);

    if (done) {
        const struct grid_route_options peek = {.peek = true};
        struct grid_decision decision;
        size_t n;
        const uint64_t *keys = grid_ticket_keys(ticket, &n);
        grid_route(ticket, &peek, replay->now_ms, &decision); /* for the reason; whether it has a route is no matter */
        grid_buf_puts(&replay->out, "{");
        grid_query_put_facts(&replay->out, &decision, n);
        grid_buf_puts(&replay->out, ",\"keys\":");
        grid_query_put_keys(&replay->out, keys, n);
        grid_buf_puts(&replay->out, "}");
    }
    grid_ticket_free(ticket);
    free_asked(&asked);
    return done;
}

bool grid_replay_runs(struct grid_replay *replay, json_t *line)
{
    struct asked asked = {0};
    struct grid_ticket *ticket = NULL;
    bool done = read_asked(replay, line, &asked) && make_ticket(replay, &asked, &ticket);

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
    free_asked(&asked);
    return done;
}
