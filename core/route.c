/*
 * route.c - the request side, as one story
 *
 *     head      which API, which model, is the body worth reading            grid_ticket_new
 *     body      prompt -> keys, or the ids of what is stored somewhere       grid_ticket_body
 *     decision  answer here? else led by an id, its tag stripped;            grid_route
 *               else candidates -> choice by load, or by match
 *               -> the keys are marked at the chosen cluster
 *
 * Each step takes what the one before it made; none calls back. What cannot be read is a reason, never an error.
 */
#include "check.h"
#include "models.h"
#include "pin.h"
#include "router.h"

/* ---- head ----------------------------------------------------------------------------------------------------- */

/* Appends to a copy that has room for it; returns where it stands there. */
static struct grid_str append(char *copy, size_t *used, struct grid_str text)
{
    struct grid_str there = {copy + *used, text.len};
    if (text.len)
        memcpy(copy + *used, text.ptr, text.len);
    *used += text.len;
    return there;
}

/* The parts of a stored path that stay when the tag goes: up to the id's prefix, and from behind the third dot. */
static void split_path(const struct grid_ticket *t, struct grid_str path, struct grid_str *out_head,
                       struct grid_str *out_tail)
{
    *out_head = *out_tail = (struct grid_str){NULL, 0};
    if (!t->path_id.shaped)
        return;
    size_t id = (size_t)(t->head.id.ptr - path.ptr), from = id + t->path_id.bytes;
    *out_head = (struct grid_str){path.ptr, id + GRID_TAG_PREFIX_BYTES};
    *out_tail = (struct grid_str){path.ptr + from, path.len - from};
}

/* Copies what the head's views point to: the caller's headers do not outlive its call. */
static bool keep_text(struct grid_ticket *t, struct grid_str path)
{
    struct grid_str head, tail;
    split_path(t, path, &head, &tail);
    struct grid_str asked = t->sites->config->has_paths ? t->head.path : (struct grid_str){NULL, 0};
    size_t bytes = t->head.model.len + t->head.entry.len + head.len + tail.len + asked.len, used = 0;
    t->head.id = t->head.path = (struct grid_str){NULL, 0}; /* read by now, or kept below */
    if (bytes == 0)
        return true;
    char *copy = grid_take(t->router->alloc, bytes);
    if (!copy)
        return false;
    t->head.model = append(copy, &used, t->head.model);
    t->head.entry = append(copy, &used, t->head.entry);
    if (head.ptr) {
        t->stripped = append(copy, &used, head);
        t->stripped.len += append(copy, &used, tail).len;
    }
    t->head.path = append(copy, &used, asked);
    t->text = (struct grid_str){copy, bytes};
    return true;
}

static bool affinity_has_a_say(const struct grid_ticket *t)
{
    const struct grid_model *model = grid_sites_model(t->sites, t->head.model);
    return t->sites->config->settings.enabled && model && model->admitted >= 2;
}

/* Whether some cluster has another name for it: the body's own `model` may have to change on the way. */
static bool is_aliased(const struct grid_ticket *t, struct grid_str name)
{
    const struct grid_model *model = grid_sites_model(t->sites, name);
    return model && model->aliased;
}

/* The body is held unless no byte of it can matter (behaviour.md O.18, O.24, O.42). */
static enum grid_want want_of(const struct grid_ticket *t, const struct grid_head *head)
{
    const struct grid_head_view *view = &t->head;
    if (head->no_body || head->upgrade || view->options || view->models || view->model_entry || view->ambiguous)
        return GRID_WANT_NOTHING;
    if (!view->can_be_json || view->coded)
        return GRID_WANT_NOTHING;
    if (view->state == GRID_STATE_RESPONSES || !view->has_model || is_aliased(t, view->model))
        return GRID_WANT_BODY;
    return view->post && view->api != GRID_API_NONE && affinity_has_a_say(t) ? GRID_WANT_BODY : GRID_WANT_NOTHING;
}

/* Why there are no keys as long as no body was shown: there is none, it cannot be JSON, or it need not be read. */
static enum grid_reason reason_unread(const struct grid_ticket *t, const struct grid_head *head)
{
    if (head->no_body)
        return GRID_REASON_EMPTY;
    if (!t->head.can_be_json || t->head.coded)
        return GRID_REASON_NOT_JSON;
    return t->want == GRID_WANT_BODY ? GRID_REASON_EMPTY : GRID_REASON_NONE;
}

enum grid_status grid_ticket_new(struct grid_router *router, const struct grid_head *head,
                                 struct grid_ticket **out_ticket)
{
    struct grid_ticket *t = router->alloc->take(router->alloc->ctx, sizeof *t);
    if (!t)
        return GRID_E_NO_MEMORY;
    memset(t, 0, offsetof(struct grid_ticket, keys)); /* keys are written before they are read */
    t->router = router;
    t->sites = grid_router_take_sites(router);
    t->reply_text = (struct grid_buf){.limit = 1u << 20, .alloc = router->alloc};
    t->upgrade = head->upgrade;
    grid_head_read(head, grid_str_of(t->sites->config->settings.model_header), &t->head);
    if (t->head.state == GRID_STATE_STORED)
        grid_ids_segment(t->head.id, &t->path_id);
    if (!keep_text(t, head->path)) {
        grid_ticket_free(t);
        return GRID_E_NO_MEMORY;
    }
    t->want = want_of(t, head);
    t->keyed.reason = reason_unread(t, head);
    t->decision.action = GRID_REPLY; /* with status 0: nothing is decided yet */
    *out_ticket = t;
    return GRID_OK;
}

void grid_ticket_free(struct grid_ticket *t)
{
    if (!t)
        return;
    const struct grid_alloc *alloc = t->router->alloc;
    if (t->pair)
        grid_stats_sub(&t->pair->open);
    grid_buf_done(&t->reply_text);
    grid_give(alloc, t->candidates);
    grid_give(alloc, (void *)(uintptr_t)t->text.ptr);
    grid_sites_unref(t->sites);
    grid_give(alloc, t);
}

enum grid_want grid_ticket_want(const struct grid_ticket *t)
{
    return t->want;
}

uint64_t grid_ticket_max_body(const struct grid_ticket *t)
{
    return t->sites->config->max_body_bytes;
}

/* ---- body ----------------------------------------------------------------------------------------------------- */

/* Keys, and a prompt too short for one, are made only of a body whose fields for ids are absent or null; what is no
 * JSON names nothing. */
static bool names_no_id(const struct grid_ticket *t, bool keyed)
{
    enum grid_reason reason = t->keyed.reason;
    return keyed && (reason == GRID_REASON_NONE || reason == GRID_REASON_TOO_SHORT || reason == GRID_REASON_NO_MODEL ||
                     reason == GRID_REASON_NOT_JSON || reason == GRID_REASON_EMPTY);
}

void grid_ticket_body(struct grid_ticket *t, const struct grid_str *slices, size_t n_slices, bool cut)
{
    GRID_ASSERT(t->state == GRID_TICKET_NEW);
    bool keyed = t->head.api != GRID_API_NONE && t->head.post && t->sites->config->settings.enabled && !cut;
    t->has_body = true;
    t->body_cut = cut;
    if (t->head.coded) {
        t->keyed.reason = GRID_REASON_NOT_JSON;
        return;
    }
    struct grid_str header_model = {NULL, 0};
    if (t->head.has_model &&
        (keyed || !is_aliased(t, t->head.model))) /* else the body's is looked for, to be changed */
        header_model = t->head.model;
    grid_keys_make(&t->router->seed, t->head.api, slices, n_slices, cut, keyed, header_model, t->keys, &t->keyed);
    if (t->head.state == GRID_STATE_RESPONSES && t->head.can_be_json && !cut && !names_no_id(t, keyed))
        grid_ids_find(slices, n_slices, &t->ids);
}

/* Does the request name a place by an id, genuine or not? */
static bool names_place(const struct grid_ticket *t)
{
    return t->head.state == GRID_STATE_STORED || t->ids.previous.shaped || t->ids.conversation.shaped;
}

static struct grid_str model_of(const struct grid_ticket *t)
{
    if (t->head.has_model)
        return t->head.model;
    if (t->keyed.has_model)
        return (struct grid_str){t->keyed.model, t->keyed.model_len};
    return (struct grid_str){NULL, 0};
}

/* Why there are no keys, the plainest reason first. */
static enum grid_reason reason_of(const struct grid_ticket *t)
{
    if (t->head.api == GRID_API_NONE)
        return GRID_REASON_NOT_A_PROMPT_PATH;
    if (!t->head.post)
        return GRID_REASON_METHOD;
    if (!t->sites->config->settings.enabled)
        return GRID_REASON_DISABLED;
    if (t->body_cut)
        return GRID_REASON_BODY_TOO_LARGE;
    if (names_place(t)) /* whatever else may be wrong with it */
        return GRID_REASON_STORED_STATE;
    return t->keyed.reason;
}

/* ---- decision ------------------------------------------------------------------------------------------------- */

/* What the gateway refuses before it looks for a site; GRID_N_REPLIES when there is nothing to refuse. */
static enum grid_reply_kind refusal_of(const struct grid_ticket *t, struct grid_str model)
{
    const struct grid_head_view *head = &t->head;
    bool create = head->state == GRID_STATE_RESPONSES;
    if (t->upgrade)
        return head->api == GRID_API_RESPONSES ? GRID_REPLY_UPGRADE_RESPONSES : GRID_REPLY_UPGRADE;
    if (head->options)
        return GRID_REPLY_METHOD_NOT_ALLOWED;
    if (head->ambiguous)
        return GRID_REPLY_MODEL_AMBIGUOUS;
    if (create && head->coded) /* an id in it could not be honoured (O.49) */
        return GRID_REPLY_UNSUPPORTED_CODING;
    bool unmet = t->keyed.model_bytes == 0 && model.ptr && is_aliased(t, model); /* it may stand in what was not read */
    if (t->body_cut && (create || !model.ptr || unmet))                          /* O.18 */
        return GRID_REPLY_BODY_TOO_LARGE;
    bool led = names_place(t) || head->state == GRID_STATE_CONVERSATIONS; /* without a model too */
    return model.ptr || led ? GRID_N_REPLIES : GRID_REPLY_MODEL_REQUIRED;
}

static void refuse(struct grid_ticket *t, enum grid_reply_kind kind, enum grid_verdict verdict, bool counted)
{
    grid_reply_make(kind, t->head.api, &t->decision.reply);
    if (counted)
        grid_stats_add(&t->router->stats.refusals[verdict]);
}

/* True when the request ends here. */
static bool answer_here(struct grid_ticket *t, struct grid_str model, bool counted)
{
    if (!t->upgrade && (t->head.models || t->head.model_entry)) {
        grid_models_answer(t->sites, &t->head, &t->reply_text, &t->decision.reply);
        return true;
    }
    enum grid_reply_kind kind = refusal_of(t, model);
    if (kind == GRID_N_REPLIES)
        return false;
    refuse(t, kind, GRID_VERDICT_BAD_REQUEST, counted);
    return true;
}

/* A cluster that serves some paths only is no candidate for others (behaviour.md O.47). */
static bool serves(const struct grid_ticket *t, const struct grid_site *site)
{
    return !t->sites->config->has_paths || grid_sites_serves(site->candidate->place, t->head.path);
}

/* Whether the path, not the admission, is why the model has no candidate. */
static bool nowhere(const struct grid_ticket *t)
{
    for (size_t i = 0; i < t->n_candidates; i++)
        if (serves(t, &t->sites->sites[t->first_site + i]))
            return false;
    return true;
}

static uint64_t open_at(const struct grid_config_candidate *candidate)
{
    return atomic_load_explicit(&candidate->pair->open.value, memory_order_relaxed);
}

struct grid_candidate *grid_ticket_candidates(struct grid_ticket *t, size_t *out_n)
{
    struct grid_str name = names_place(t) ? (struct grid_str){NULL, 0} : model_of(t); /* a pin has no choice */
    const struct grid_model *model = name.ptr && !t->candidates ? grid_sites_model(t->sites, name) : NULL;
    if (model) {
        t->candidates = grid_take(t->router->alloc, model->n * sizeof *t->candidates);
        t->n_candidates = t->candidates ? model->n : 0;
        t->first_site = model->first;
        for (size_t i = 0; i < t->n_candidates; i++) {
            const struct grid_site *site = &t->sites->sites[model->first + i];
            t->candidates[i] = (struct grid_candidate){.site = site->candidate->site,
                                                       .cluster = site->candidate->cluster,
                                                       .admitted = site->candidate->admitted && serves(t, site),
                                                       .depth = site->depth,
                                                       .open = open_at(site->candidate)};
        }
    }
    *out_n = t->n_candidates;
    return t->candidates;
}

/* The next draw of this replica, uniform in [0, 1): a counter, mixed (splitmix64). */
static double draw(struct grid_router *router)
{
    uint64_t n = atomic_fetch_add_explicit(&router->dice, 1, memory_order_relaxed) + 1;
    uint64_t x = router->dice_seed + n * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53;
}

static void match(struct grid_ticket *t, const struct grid_select *in, uint64_t now_ms)
{
    for (size_t i = 0; i < t->n_candidates; i++)
        if (grid_select_usable(in, &t->candidates[i]))
            t->candidates[i].run =
                grid_index_match(t->sites->sites[t->first_site + i].table, t->keys, t->keyed.n, now_ms);
}

static void choose(struct grid_ticket *t, bool peek, uint64_t now_ms, struct grid_choice *out_choice)
{
    const struct grid_settings *settings = &t->sites->config->settings;
    struct grid_select in = {.candidates = t->candidates,
                             .n = t->n_candidates,
                             .blocks = t->decision.blocks,
                             .enabled = settings->enabled,
                             .spread_ties = settings->spread_ties,
                             .threshold = settings->threshold,
                             .prefill_tokens_per_second = settings->prefill_tokens_per_second,
                             .queued_request_seconds = settings->queued_request_seconds};
    if (grid_select_by_load(&in, out_choice))
        return;
    in.explore = !peek && draw(t->router) < settings->exploration;
    if (in.explore && grid_select_by_load(&in, out_choice))
        return;
    match(t, &in, now_ms);
    grid_select_by_match(&in, out_choice);
}

static void count_outcome(struct grid_stats *stats, const struct grid_decision *d)
{
    grid_stats_add(&stats->outcomes[d->outcome]);
    if (!grid_decision_matched(d))
        return;
    grid_stats_add_n(&stats->keyed_blocks, d->blocks);
    grid_stats_observe(&stats->matched, GRID_STATS_MATCHED, d->run);
}

/* Sends the request to `site`, and marks its keys there. */
static void go(struct grid_ticket *t, const struct grid_site *site, enum grid_verdict verdict, bool peek,
               uint64_t now_ms)
{
    struct grid_decision *d = &t->decision;
    d->action = GRID_FORWARD;
    d->site = site->candidate->site;
    d->cluster = site->candidate->cluster;
    grid_edits_make(t, site->candidate);
    if (peek)
        return;
    t->pair = site->candidate->pair;
    grid_stats_add(&t->pair->open);
    grid_stats_add(&t->pair->decisions[verdict]);
    if (d->outcome != GRID_OUTCOME_UNCOUNTED)
        count_outcome(&t->router->stats, d);
    if (d->reason != GRID_REASON_NONE)
        grid_stats_add(&t->router->stats.unkeyed[d->reason]);
    if (d->blocks == 0)
        return;
    grid_index_pend(site->table, t->keys, d->blocks, now_ms);
    t->pended = site->table;
}

/* Where an id leads, or where a new conversation starts. */
static void lead(struct grid_ticket *t, bool peek, uint64_t now_ms)
{
    struct grid_str model = t->decision.model;
    struct grid_pin pin;
    if (t->head.state == GRID_STATE_STORED)
        grid_pin_path(t->sites, &t->path_id, model, &pin);
    else if (names_place(t))
        grid_pin_body(t->sites, &t->ids, model, &pin);
    else
        grid_pin_conversation(t->sites, model, &pin);
    if (!pin.site) {
        bool there = pin.refusal == GRID_REPLY_SITE_UNAVAILABLE || pin.refusal == GRID_REPLY_NO_HEALTHY_SITE;
        refuse(t, pin.refusal, there ? GRID_VERDICT_NOT_READY : GRID_VERDICT_NO_ROUTE, !peek);
        return;
    }
    t->decision.pinned = names_place(t);
    go(t, pin.site, t->decision.pinned ? GRID_VERDICT_PINNED : GRID_VERDICT_ROUTED, peek, now_ms);
}

/* A candidate that names the cluster, of this model if there is one. */
static const struct grid_site *find_forced(const struct grid_ticket *t, struct grid_str cluster)
{
    const struct grid_site *found = NULL;
    struct grid_str model = model_of(t);
    for (size_t i = 0; i < t->sites->n_sites; i++) {
        const struct grid_site *site = &t->sites->sites[i];
        if (!grid_str_eq(site->candidate->cluster, cluster))
            continue;
        if (grid_str_eq(site->candidate->model, model))
            return site;
        found = site;
    }
    return found;
}

/* Selection among the candidates of the model. */
static void select_site(struct grid_ticket *t, bool peek, uint64_t now_ms)
{
    struct grid_decision *d = &t->decision;
    if (t->n_candidates == 0) {
        if (grid_sites_model(t->sites, d->model)) /* it has candidates: there was no memory for them */
            refuse(t, GRID_REPLY_INTERNAL, GRID_VERDICT_NOT_READY, !peek);
        else
            refuse(t, t->sites->n_sites ? GRID_REPLY_MODEL_NOT_FOUND : GRID_REPLY_NO_ROUTE, GRID_VERDICT_NO_ROUTE,
                   !peek);
        return;
    }
    struct grid_choice choice;
    choose(t, peek, now_ms, &choice);
    if (!choice.taken) {
        bool none = nowhere(t);
        refuse(t, none ? GRID_REPLY_MODEL_NOT_FOUND : GRID_REPLY_NO_HEALTHY_SITE,
               none ? GRID_VERDICT_NO_ROUTE : GRID_VERDICT_NOT_READY, !peek);
        return;
    }
    d->outcome = choice.outcome;
    d->run = choice.run;
    d->worth = choice.worth;
    d->best_sticky = choice.best_sticky;
    d->best_other = choice.best_other;
    go(t, &t->sites->sites[t->first_site + (size_t)(choice.taken - t->candidates)],
       choice.unhealthy ? GRID_VERDICT_FALLBACK : GRID_VERDICT_ROUTED, peek, now_ms);
}

static void decide(struct grid_ticket *t, const struct grid_route_options *options, uint64_t now_ms)
{
    struct grid_decision *d = &t->decision;
    bool peek = options && options->peek;
    *d = (struct grid_decision){.action = GRID_REPLY,
                                .api = t->head.api,
                                .model = model_of(t),
                                .outcome = GRID_OUTCOME_UNCOUNTED,
                                .reason = reason_of(t),
                                .worth = __builtin_nan(""),
                                .best_sticky = __builtin_nan(""),
                                .best_other = __builtin_nan("")};
    d->blocks = d->reason == GRID_REASON_NONE ? t->keyed.n : 0;

    size_t n = 0;
    (void)grid_ticket_candidates(t, &n);
    bool may_force = options && options->forced.ptr && !names_place(t);
    const struct grid_site *forced = may_force ? find_forced(t, options->forced) : NULL;
    if (forced)
        go(t, forced, GRID_VERDICT_ROUTED, peek, now_ms);
    else if (answer_here(t, d->model, !peek))
        return;
    else if (names_place(t) || t->head.state == GRID_STATE_CONVERSATIONS)
        lead(t, peek, now_ms);
    else
        select_site(t, peek, now_ms);
}

void grid_route(struct grid_ticket *t, const struct grid_route_options *options, uint64_t now_ms,
                struct grid_decision *out_decision)
{
    if (t->state == GRID_TICKET_NEW) {
        decide(t, options, now_ms);
        t->state = GRID_TICKET_ROUTED;
    }
    *out_decision = t->decision;
}

const struct grid_decision *grid_ticket_decision(const struct grid_ticket *t)
{
    return &t->decision;
}

bool grid_ticket_tags(const struct grid_ticket *t)
{
    bool creates = t->head.state == GRID_STATE_RESPONSES || t->head.state == GRID_STATE_CONVERSATIONS;
    return t->decision.action == GRID_FORWARD && (creates || t->decision.pinned);
}

const uint64_t *grid_ticket_keys(const struct grid_ticket *t, size_t *out_n)
{
    *out_n = reason_of(t) == GRID_REASON_NONE ? t->keyed.n : 0;
    return t->keys;
}
