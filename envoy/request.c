/*
 * request.c - the request side of a stream
 *
 * Story     Head: read into a ticket, forged headers removed. Body: held while the core wants it, shown to it in place
 *           at its end (or as cut when it passes the limit). Then the decision (pick.c), and either the stream goes
 *           on or the core's reply is sent. Ids of stored state go on without their tag, and the model under the name
 *           that the cluster has for it: in the head, and in the body where it lies (edit.c).
 * Promise   A body is never copied whole, and nothing of it changes but those.
 * Not here  Choosing (core, pick.c), the answer (answer.c).
 */
#include "filter.h"
#include "recent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MANY_SLICES = 64,        /* about 1 MiB of body; more leave the stack */
    BUFFER_SLACK = 2u << 20, /* over the body's limit, so that the refusal is ours and not Envoy's plain 413 */
};

/* What the site gets is not always what the client sent: ids without their tags, its own name for the model, and no
 * leave to code an answer in which ids are to be found. */
static void change_head(void *envoy, const struct grid_filter *filter, const struct grid_decision *decision)
{
    if (decision->path.ptr)
        ENVOY(http_set_header)(envoy, ENVOY_REQUEST_HEADERS, GRID_TEXT(":path"), decision->path);
    if (decision->model_header.name.ptr)
        grid_bridge_remove(envoy, ENVOY_REQUEST_HEADERS, decision->model_header.name);
    if (decision->model_header.value.ptr)
        ENVOY(http_add_header)
    (envoy, ENVOY_REQUEST_HEADERS, decision->model_header.name, decision->model_header.value);
    if (grid_ticket_tags(filter->ticket))
        grid_bridge_remove(envoy, ENVOY_REQUEST_HEADERS, GRID_TEXT("accept-encoding"));
}

/* True when the stream goes on. A route without our specifier is left as it is. `bytes`: of the body. */
static bool decide(void *envoy, struct grid_filter *filter, uint64_t bytes)
{
    grid_pick_decide(envoy, filter);
    const struct grid_decision *decision = grid_ticket_decision(filter->ticket);
    filter->stage = GRID_FILTER_DECIDED;
    filter->body_bytes = bytes;
    grid_recent_note(filter->ticket, 1, grid_module_now_ms());
    if (grid_bridge_forwarded(decision)) {
        change_head(envoy, filter, decision);
        grid_pick_arm(envoy, filter, bytes);
        return true;
    }
    if (decision->reply.status == 0)
        return true;
    grid_filter_reply(envoy, filter, &decision->reply);
    return false;
}

/* ---- head ---------------------------------------------------------------------------------------------------- */

/* What of the head is not a plain header. An HTTP/2 extended CONNECT arrives in the form of an HTTP/1 upgrade. */
static struct grid_head head_of(const struct grid_header *headers, size_t n, bool end)
{
    struct grid_head head = {.headers = headers, .n_headers = n, .no_body = end};
    bool upgrade = false, connection = false;
    for (size_t i = 0; i < n; i++) {
        if (grid_bridge_same(headers[i].name, GRID_TEXT(":method")))
            head.method = headers[i].value;
        else if (grid_bridge_same(headers[i].name, GRID_TEXT(":path")))
            head.path = headers[i].value;
        else if (grid_bridge_same(headers[i].name, GRID_TEXT("upgrade")))
            upgrade = true;
        else if (grid_bridge_same(headers[i].name, GRID_TEXT("connection")))
            connection = grid_bridge_mentions(headers[i].value, GRID_TEXT("upgrade"));
    }
    head.upgrade = (upgrade && connection) || grid_bridge_same(head.method, GRID_TEXT("CONNECT"));
    return head;
}

/* Reads the head into a ticket. False: no memory. */
static bool start_ticket(void *envoy, struct grid_filter *filter, bool end)
{
    struct grid_header room[GRID_MANY_HEADERS];
    size_t n = 0;
    struct grid_header *headers = grid_headers_read(envoy, ENVOY_REQUEST_HEADERS, room, &n);
    if (!headers)
        return false;
    struct grid_head head = head_of(headers, n, end);
    filter->head_only = grid_bridge_same(head.method, GRID_TEXT("HEAD"));
    bool good = grid_ticket_new(filter->module->router, &head, &filter->ticket) == GRID_OK;
    bool forged = grid_headers_forged(ENVOY_REQUEST_HEADERS, headers, n) < n;
    if (headers != room)
        free(headers);
    return good && (!forged || grid_headers_clean(envoy, ENVOY_REQUEST_HEADERS));
}

/* How long the head says that the body is; UINT64_MAX when it does not. */
static uint64_t said_bytes(void *envoy)
{
    struct grid_str text = grid_bridge_header(envoy, ENVOY_REQUEST_HEADERS, GRID_TEXT("content-length"));
    uint64_t bytes = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || bytes > UINT64_MAX / 100)
            return UINT64_MAX;
        bytes = bytes * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    return text.len > 0 ? bytes : UINT64_MAX;
}

static int take_head(void *envoy, struct grid_filter *filter, bool end)
{
    if (filter->kind == GRID_FILTER_OPS) {
        filter->stage = GRID_FILTER_REPLIED;
        if (grid_ops_begin(envoy, filter, end)) {
            filter->stage = GRID_FILTER_BODY;
            ENVOY(http_set_buffer_limit)(envoy, GRID_OPS_MAX_BODY_BYTES + BUFFER_SLACK);
        }
        return ENVOY_HEADERS_STOP;
    }
    if (!start_ticket(envoy, filter, end)) {
        grid_filter_fail(envoy, filter, 500);
        return ENVOY_HEADERS_STOP;
    }
    if (grid_ticket_want(filter->ticket) == GRID_WANT_BODY && !end) {
        filter->stage = GRID_FILTER_BODY;
        ENVOY(http_set_buffer_limit)(envoy, grid_ticket_max_body(filter->ticket) + BUFFER_SLACK);
        return ENVOY_HEADERS_STOP;
    }
    if (grid_ticket_want(filter->ticket) == GRID_WANT_BODY)
        grid_ticket_body(filter->ticket, NULL, 0, false);
    return decide(envoy, filter, end ? 0 : said_bytes(envoy)) ? ENVOY_HEADERS_CONTINUE : ENVOY_HEADERS_STOP;
}

/* ---- body ---------------------------------------------------------------------------------------------------- */

static struct grid_body parts_of(void *envoy, bool received)
{
    struct grid_body parts = {{ENVOY_REQUEST_BUFFERED, ENVOY_REQUEST_RECEIVED}, 1};
    if (received && !ENVOY(http_received_buffered_request_body)(envoy))
        parts.n = 2;
    return parts;
}

static uint64_t body_bytes(void *envoy, const struct grid_body *parts)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < parts->n; i++)
        bytes += ENVOY(http_get_body_size)(envoy, parts->kinds[i]);
    return bytes;
}

static uint64_t most_bytes(const struct grid_filter *filter)
{
    uint64_t most = grid_ticket_max_body(filter->ticket);
    return filter->kind == GRID_FILTER_OPS && most > GRID_OPS_MAX_BODY_BYTES ? GRID_OPS_MAX_BODY_BYTES : most;
}

/* Leaves no more than `limit` bytes: how the body was cut in pieces must not decide. Returns the slices left. */
static size_t cut_at(struct grid_str *slices, size_t n, uint64_t limit)
{
    for (size_t i = 0; i < n; i++) {
        if (slices[i].len >= limit) {
            slices[i].len = (size_t)limit;
            return i + 1;
        }
        limit -= slices[i].len;
    }
    return n;
}

/* Shows the core the body where it lies. False: no memory for the list of slices. */
static bool show_body(void *envoy, struct grid_filter *filter, const struct grid_body *parts, bool cut)
{
    struct grid_str room[MANY_SLICES];
    size_t counts[2] = {0, 0}, n = 0;
    for (size_t i = 0; i < parts->n; i++)
        counts[i] = ENVOY(http_get_body_chunks_size)(envoy, parts->kinds[i]);
    struct grid_str *slices = room;
    if (counts[0] + counts[1] > MANY_SLICES)
        slices = malloc((counts[0] + counts[1]) * sizeof(*slices));
    if (!slices)
        return false;
    for (size_t i = 0; i < parts->n; i++) {
        if (counts[i] > 0 && ENVOY(http_get_body_chunks)(envoy, parts->kinds[i], slices + n))
            n += counts[i];
    }
    if (cut)
        n = cut_at(slices, n, most_bytes(filter));
    grid_ticket_body(filter->ticket, slices, n, cut);
    if (slices != room)
        free(slices);
    return true;
}

/* A length that was given stays true, also when more is to come; without one the body is framed as it goes. */
static void change_length(void *envoy, uint64_t before, uint64_t after)
{
    char text[24];
    uint64_t said = said_bytes(envoy);
    if (said == UINT64_MAX)
        return;
    int len = snprintf(text, sizeof(text), "%" PRIu64, said - before + after);
    ENVOY(http_set_header)
    (envoy, ENVOY_REQUEST_HEADERS, GRID_TEXT("content-length"), (struct grid_str){text, (size_t)len});
}

/* Changes in the body what the core wants changed. False: no memory. */
static bool change_body(void *envoy, const struct grid_filter *filter, const struct grid_body *parts)
{
    size_t n = 0;
    const struct grid_edit *edits = grid_ticket_edits(filter->ticket, &n);
    if (n == 0)
        return true;
    uint64_t before = body_bytes(envoy, parts);
    if (!grid_edit_body(envoy, parts, edits, n))
        return false;
    change_length(envoy, before, body_bytes(envoy, parts));
    return true;
}

/* Envoy's decoder tells of itself in the trailers that it adds; a broken coding it passes over in silence. */
static bool was_decoded(void *envoy)
{
    struct grid_header room[GRID_MANY_HEADERS];
    size_t n = 0, i = 0;
    struct grid_header *trailers = grid_headers_read(envoy, ENVOY_REQUEST_TRAILERS, room, &n);
    while (trailers && i < n && !grid_bridge_starts(trailers[i].name, GRID_TEXT("x-envoy-decompressor-")))
        i++;
    if (trailers != room)
        free(trailers);
    return i < n;
}

/* What was decoded and is no JSON is half a body, or none: it must not reach a site as if it were whole. */
static bool is_broken(const struct grid_filter *filter)
{
    enum grid_reason reason = grid_ticket_decision(filter->ticket)->reason;
    return filter->decoded && (reason == GRID_REASON_NOT_JSON || reason == GRID_REASON_EMPTY);
}

/* The body is as complete as the core gets it. True when the stream goes on. */
static bool finish_body(void *envoy, struct grid_filter *filter, const struct grid_body *parts, bool cut)
{
    bool good = show_body(envoy, filter, parts, cut);
    if (filter->kind == GRID_FILTER_OPS) {
        filter->stage = GRID_FILTER_REPLIED;
        grid_explain_answer(envoy, filter, good, cut);
        return false;
    }
    if (good && !decide(envoy, filter, cut ? UINT64_MAX : body_bytes(envoy, parts)))
        return false;
    bool broken = good && is_broken(filter);
    if (good && !broken && change_body(envoy, filter, parts))
        return true;
    grid_filter_fail(envoy, filter, broken ? 400 : 500);
    return false;
}

static int take_body(void *envoy, struct grid_filter *filter, bool end)
{
    if (filter->stage == GRID_FILTER_REPLIED)
        return ENVOY_BODY_STOP;
    if (filter->stage != GRID_FILTER_BODY)
        return ENVOY_BODY_CONTINUE;
    struct grid_body parts = parts_of(envoy, true);
    bool over = body_bytes(envoy, &parts) > most_bytes(filter);
    if (!over && !end)
        return ENVOY_BODY_STOP_AND_BUFFER;
    return finish_body(envoy, filter, &parts, over) ? ENVOY_BODY_CONTINUE : ENVOY_BODY_STOP;
}

static int take_trailers(void *envoy, struct grid_filter *filter)
{
    if (filter->stage == GRID_FILTER_REPLIED)
        return ENVOY_TRAILERS_STOP;
    if (filter->stage != GRID_FILTER_BODY)
        return ENVOY_TRAILERS_CONTINUE;
    filter->decoded = was_decoded(envoy);
    struct grid_body parts = parts_of(envoy, false);
    bool over = body_bytes(envoy, &parts) > most_bytes(filter);
    return finish_body(envoy, filter, &parts, over) ? ENVOY_TRAILERS_CONTINUE : ENVOY_TRAILERS_STOP;
}

/* ---- hooks --------------------------------------------------------------------------------------------------- */

/* Adds the time since a hook began; what a request took is known when it is decided. */
static void spend(struct grid_filter *filter, uint64_t since_ns)
{
    uint64_t now_ns = grid_module_now_ns();
    if (filter->asked_ns > 0)
        return;
    filter->spent_ns += now_ns - since_ns;
    if (filter->stage != GRID_FILTER_DECIDED)
        return;
    filter->asked_ns = now_ns;
    grid_count_time(filter->module->router, GRID_SIDE_REQUEST, filter->spent_ns);
    filter->spent_ns = 0;
}

int ON(http_filter_request_headers)(void *envoy, void *stream, bool end)
{
    uint64_t since_ns = grid_module_now_ns();
    int status = take_head(envoy, stream, end);
    spend(stream, since_ns);
    return status;
}

int ON(http_filter_request_body)(void *envoy, void *stream, bool end)
{
    uint64_t since_ns = grid_module_now_ns();
    int status = take_body(envoy, stream, end);
    spend(stream, since_ns);
    return status;
}

int ON(http_filter_request_trailers)(void *envoy, void *stream)
{
    uint64_t since_ns = grid_module_now_ns();
    int status = take_trailers(envoy, stream);
    spend(stream, since_ns);
    return status;
}
