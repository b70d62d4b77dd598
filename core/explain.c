/*
 * explain.c - a decision in words and as JSON
 *
 * Story     After grid_route with `peek`, the command `explain` and the ops page say from here where a request would
 *           go, why, and what would flip the decision. The latter follows from behaviour.md E.2 and F: the gate opens
 *           when the holder's queue is deeper than the best other one by more than the match is worth.
 * Promise   Reads what was decided and decides nothing; no text of the body.
 * Threads   The ticket's.
 */
#include "grid/grid.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static struct grid_str view(const char *text)
{
    return (struct grid_str){text, strlen(text)};
}

struct grid_candidate *grid_explain_runs(struct grid_router *router, struct grid_ticket *ticket, uint64_t now_ms,
                                         size_t *out_n)
{
    struct grid_candidate *candidates = grid_ticket_candidates(ticket, out_n);

    for (size_t i = 0; grid_ticket_decision(ticket)->blocks != 0 && i < *out_n; i++) {
        if (candidates[i].run == 0) {
            candidates[i].run = grid_router_run(router, ticket, candidates[i].cluster, now_ms);
        }
    }
    return candidates;
}

/* A new conversation is placed by a rule of its own. */
bool grid_explain_starts_conversation(struct grid_str path)
{
    static const char create[] = "/v1/conversations";
    const char *query = path.len > 0 ? memchr(path.ptr, '?', path.len) : NULL;
    size_t len = query != NULL ? (size_t)(query - path.ptr) : path.len;

    len -= len > 0 && path.ptr[len - 1] == '/';
    return len == sizeof create - 1 && memcmp(path.ptr, create, len) == 0;
}

/* ---- words --------------------------------------------------------------------------------------------------- */

static const char *const reason_words[GRID_N_REASONS] = {
    [GRID_REASON_NONE] = "it has keys",
    [GRID_REASON_NOT_JSON] = "the body is not JSON",
    [GRID_REASON_EMPTY] = "there is no body",
    [GRID_REASON_NOT_OBJECT] = "the body is not a JSON object",
    [GRID_REASON_MISSING_FIELD] = "a required field is missing",
    [GRID_REASON_BAD_TYPE] = "a field has the wrong type",
    [GRID_REASON_BAD_UTF8] = "a text is not valid UTF-8",
    [GRID_REASON_DUPLICATE_FIELD] = "a field is given twice",
    [GRID_REASON_UNKNOWN_PART] = "it has a part, item or tool call of unknown type",
    [GRID_REASON_TOO_DEEP] = "a value is nested too deeply",
    [GRID_REASON_TOKEN_ARRAY] = "the prompt is a list of token ids",
    [GRID_REASON_MANY_PROMPTS] = "there is not exactly one prompt",
    [GRID_REASON_PROMPT_TEMPLATE] = "it names a stored prompt whose text is unknown here",
    [GRID_REASON_STORED_STATE] = "it names a stored response or conversation",
    [GRID_REASON_TOO_SHORT] = "the prompt fills no block of 256 bytes",
    [GRID_REASON_NOT_A_PROMPT_PATH] = "the path carries no prompt",
    [GRID_REASON_METHOD] = "the method is not POST",
    [GRID_REASON_DISABLED] = "affinity is switched off",
    [GRID_REASON_BODY_TOO_LARGE] = "the body is over max_body_bytes",
    [GRID_REASON_NO_MODEL] = "no model to key under",
};

/* Did the gate compare the holder with another site? */
bool grid_explain_gate_asked(const struct grid_decision *decision)
{
    return !isnan(decision->best_sticky) && !isnan(decision->best_other);
}

/* The holder's queue depth above which the request goes by load; infinite when none would do it, NAN without a gate. */
double grid_explain_flip_depth(const struct grid_decision *decision)
{
    return grid_explain_gate_asked(decision) ? decision->best_other + decision->worth : (double)NAN;
}

/* The shortest run that would stick. */
static uint32_t needed_run(const struct grid_explained *explained)
{
    uint32_t blocks = explained->decision.blocks, run = GRID_MIN_RUN;

    while (run < GRID_FLOOR_RUN && (double)run / (double)blocks < explained->settings.threshold) {
        run++;
    }
    return run;
}

static size_t count_admitted(const struct grid_explained *explained)
{
    size_t n = 0;

    for (size_t i = 0; i < explained->n_candidates; i++) {
        n += explained->candidates[i].admitted;
    }
    return n;
}

void grid_explain_depth(struct grid_buf *out, double depth)
{
    if (isfinite(depth)) {
        grid_buf_number(out, depth);
    } else {
        grid_buf_puts(out, "unmeasured");
    }
}

static void put_gate_flip(const struct grid_decision *decision, struct grid_buf *out)
{
    double flip = grid_explain_flip_depth(decision);
    bool sticky = decision->outcome == GRID_OUTCOME_STICKY;

    if (!isfinite(flip)) {
        grid_buf_puts(out, "a measured queue at another site, with the holder's unmeasured or deeper than the other's "
                           "by more than the worth");
        return;
    }
    grid_buf_puts(out, sticky ? "a queue over " : "a queue of at most ");
    grid_buf_number(out, flip);
    grid_buf_puts(out, sticky ? " at the holder: then it goes by load" : " at the holder: then it stays there");
}

/* Does the gateway refuse because of an id, or of where it leads? */
static bool refused_id(const struct grid_decision *decision)
{
    static const char *const codes[] = {"not_found", "previous_response_not_found", "site_unavailable"};
    bool found = false;

    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        found = found || (decision->reply.code != NULL && strcmp(decision->reply.code, codes[i]) == 0);
    }
    return decision->action == GRID_REPLY && found;
}

/* What would change the decision. */
void grid_explain_flip(const struct grid_explained *explained, struct grid_buf *out)
{
    const struct grid_decision *decision = &explained->decision;

    if (refused_id(decision)) {
        grid_buf_puts(out, "an id with a genuine tag, whose site and cluster serve the model and take new requests");
    } else if (decision->action == GRID_REPLY) {
        grid_buf_puts(out, "a candidate for the model that takes new requests, and a request that can be routed");
    } else if (decision->pinned) {
        grid_buf_puts(out, "nothing but another id: no queue and no match counts");
    } else if (explained->conversation) {
        grid_buf_puts(out, "admission: a new conversation stays at the local site while that takes new requests");
    } else if (!explained->settings.enabled) {
        grid_buf_puts(out, "queue depths only: affinity is switched off");
    } else if (count_admitted(explained) < 2) {
        grid_buf_puts(out, "only another candidate: one site takes new requests");
    } else if (decision->outcome == GRID_OUTCOME_NOT_APPLICABLE) {
        grid_buf_puts(out, "queue depths only: without keys there is no match");
    } else if (decision->outcome == GRID_OUTCOME_NO_MATCH && decision->blocks < GRID_MIN_RUN) {
        grid_buf_printf(out, "a longer prompt: a match under %u blocks never counts", GRID_MIN_RUN);
    } else if (decision->outcome == GRID_OUTCOME_NO_MATCH) {
        grid_buf_printf(out, "a site that holds the first %" PRIu32 " of its %" PRIu32 " blocks", needed_run(explained),
                        decision->blocks);
    } else if (grid_explain_gate_asked(decision)) {
        put_gate_flip(decision, out);
    } else {
        grid_buf_puts(out, "no queue: every site that takes it holds as much of it");
    }
}

void grid_explain_why(const struct grid_explained *explained, struct grid_buf *out)
{
    const struct grid_decision *decision = &explained->decision;

    if (decision->action == GRID_REPLY) {
        grid_buf_printf(out, "answered by the gateway: %s", decision->reply.code != NULL ? decision->reply.code : "ok");
    } else if (decision->pinned) {
        grid_buf_puts(out, "its id was given out by this cluster, which alone holds what it names");
    } else if (explained->conversation) {
        grid_buf_puts(out, "a new conversation: the local site, or the least queued one when that takes no requests");
    } else if (!explained->settings.enabled) {
        grid_buf_puts(out, "affinity is switched off; the least queued site was taken");
    } else if (count_admitted(explained) < 2) {
        grid_buf_puts(out, "it is the only site that takes new requests for the model");
    } else {
        grid_buf_puts(out, grid_outcome_words(decision->outcome));
    }
    if (decision->blocks == 0 && decision->reason != GRID_REASON_NONE) {
        grid_buf_printf(out, "; no keys: %s", reason_words[decision->reason]);
    }
}

/* ---- JSON ---------------------------------------------------------------------------------------------------- */

void grid_explain_facts(struct grid_buf *out, const struct grid_decision *decision, size_t n_keys)
{
    grid_buf_puts(out, "\"api\":");
    grid_buf_text(out,
                  decision->api == GRID_API_NONE ? (struct grid_str){NULL, 0} : view(grid_api_name(decision->api)));
    grid_buf_puts(out, ",\"model\":");
    grid_buf_text(out, decision->model);
    grid_buf_printf(out, ",\"keyed\":%s,\"reason\":", n_keys != 0 ? "true" : "false");
    grid_buf_text(out, n_keys != 0 || decision->reason == GRID_REASON_NONE ? (struct grid_str){NULL, 0}
                                                                           : view(grid_reason_name(decision->reason)));
}

void grid_explain_candidates(struct grid_buf *out, const struct grid_candidate *candidates, size_t n)
{
    grid_buf_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        grid_buf_puts(out, i != 0 ? ",{\"site\":" : "{\"site\":");
        grid_buf_json(out, candidates[i].site);
        grid_buf_puts(out, ",\"cluster\":");
        grid_buf_json(out, candidates[i].cluster);
        grid_buf_printf(out, ",\"admitted\":%s,\"depth\":", candidates[i].admitted ? "true" : "false");
        grid_buf_number(out, candidates[i].depth);
        grid_buf_printf(out, ",\"run\":%" PRIu32 "}", candidates[i].run);
    }
    grid_buf_puts(out, "]");
}

static void put_as_text(struct grid_buf *out, const struct grid_explained *explained,
                        void (*put)(const struct grid_explained *explained, struct grid_buf *out))
{
    struct grid_buf text = {.limit = 4096};

    put(explained, &text);
    grid_buf_json(out, (struct grid_str){text.ptr, text.len});
    grid_buf_done(&text);
}

void grid_explain_json(const struct grid_explained *explained, struct grid_buf *out)
{
    const struct grid_decision *decision = &explained->decision;
    const char *outcome = grid_outcome_name(decision->outcome);
    const struct grid_str none = {NULL, 0};
    bool forward = decision->action == GRID_FORWARD;

    grid_buf_puts(out, "{");
    grid_explain_facts(out, decision, decision->blocks);
    grid_buf_printf(out, ",\"action\":\"%s\",\"status\":", forward ? "forward" : "reply");
    grid_buf_number(out, forward ? (double)NAN : decision->reply.status);
    grid_buf_puts(out, ",\"site\":");
    grid_buf_text(out, forward ? decision->site : none);
    grid_buf_puts(out, ",\"cluster\":");
    grid_buf_text(out, forward ? decision->cluster : none);
    grid_buf_puts(out, ",\"alias\":");
    grid_buf_text(out, decision->alias);
    grid_buf_printf(out, ",\"pinned\":%s,\"path\":", decision->pinned ? "true" : "false");
    grid_buf_text(out, decision->path);
    grid_buf_puts(out, ",\"outcome\":");
    grid_buf_text(out, outcome[0] != '\0' ? view(outcome) : none);
    grid_buf_printf(out, ",\"blocks\":%" PRIu32 ",\"run\":%" PRIu32 ",\"worth\":", decision->blocks, decision->run);
    grid_buf_number(out, decision->worth);
    grid_buf_puts(out, ",\"holder_depth\":");
    grid_buf_number(out, decision->best_sticky);
    grid_buf_puts(out, ",\"other_depth\":");
    grid_buf_number(out, decision->best_other);
    grid_buf_puts(out, ",\"flips_above\":");
    grid_buf_number(out, grid_explain_flip_depth(decision));
    grid_buf_puts(out, ",\"candidates\":");
    grid_explain_candidates(out, explained->candidates, explained->n_candidates);
    grid_buf_puts(out, ",\"why\":");
    put_as_text(out, explained, grid_explain_why);
    grid_buf_puts(out, ",\"flips_by\":");
    put_as_text(out, explained, grid_explain_flip);
    grid_buf_puts(out, "}");
}
