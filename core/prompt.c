/*
 * prompt.c - walks a body, frame by frame
 *
 * Story     Opening looks at the whole body once. Lists and objects that are open then stand on a short stack of
 *           frames, so pulling a piece is a step of a loop and nothing recurses. What a step writes is in rows.c.
 */
#include "prompt.h"

#include "rows.h"

/* A text block of a system list that one client changes on each request (behaviour.md O.17). */
static const struct grid_str billing = {"x-anthropic-billing-header", 26};

/* ---- walking ---------------------------------------------------------------------------------------------------- */

/* A block of a system list that is not part of the prompt. Only its first bytes are decoded, and their UTF-8 is not
 * judged: whether the block is skipped must not depend on what is behind them. */
static bool is_billing(struct grid_prompt *prompt, const struct grid_prompt_frame *frame)
{
    struct grid_json_decode decode;
    struct grid_str run;
    size_t len = 0;
    const char *type = frame->object->variants[frame->row].type;
    if (!type || !grid_str_eq(grid_str_of(type), GRID_LIT("text")) || !grid_rows_has(&frame->fields, F_text) ||
        grid_rows_place(prompt, frame->object->reads, &frame->fields, F_text) != GRID_JSON_STRING ||
        !grid_json_decode(&prompt->json, &decode))
        return false;
    decode.high = false;
    while (len < billing.len && grid_json_decode_next(&decode, &run)) {
        size_t some = run.len < billing.len - len ? run.len : billing.len - len;
        if (memcmp(run.ptr, billing.ptr + len, some) != 0)
            return false;
        len += some;
    }
    return len == billing.len;
}

static void step_list(struct grid_prompt *prompt, struct grid_prompt_frame *frame)
{
    if (grid_json_element(&frame->json)) {
        size_t level = prompt->n_frames;
        grid_rows_open(prompt, &frame->json, frame->object);
        if (frame->system && prompt->n_frames > level && prompt->reason == GRID_REASON_NONE &&
            is_billing(prompt, &prompt->frames[level]))
            prompt->n_frames = level;
        return;
    }
    if (frame->json.fault != GRID_JSON_FINE)
        grid_rows_refuse(prompt, GRID_REASON_NOT_JSON);
    prompt->n_frames--;
    if (frame->behind.len)
        grid_rows_push(prompt, frame->behind);
}

static void step(struct grid_prompt *prompt)
{
    struct grid_prompt_frame *frame = &prompt->frames[prompt->n_frames - 1];
    if (frame->list)
        step_list(prompt, frame);
    else if (frame->step == frame->n_steps)
        prompt->n_frames--;
    else
        grid_rows_write(prompt, frame, &frame->object->variants[frame->row].rows[frame->step++]);
}

const struct grid_piece *grid_prompt_next(struct grid_prompt *prompt)
{
    while (prompt->reason == GRID_REASON_NONE) {
        if (prompt->queue_at < prompt->n_queue)
            return &prompt->queue[prompt->queue_at++];
        prompt->queue_at = prompt->n_queue = 0;
        if (prompt->n_frames == 0)
            return NULL;
        step(prompt);
    }
    return NULL;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* The last `model` of the body, when it is a text. One over GRID_MODEL_MAX_BYTES is a model too, but none that could be
 * served: any text of that length stands for it. */
static void read_model(struct grid_prompt *prompt, const struct grid_prompt_frame *top)
{
    struct grid_str model;
    if (!grid_rows_has(&top->fields, F_model) ||
        grid_rows_place(prompt, top->object->reads, &top->fields, F_model) != GRID_JSON_STRING)
        return;
    enum grid_json_fault fault = grid_json_text(&prompt->json, prompt->model, GRID_MODEL_MAX_BYTES, &model);
    if (fault == GRID_JSON_BAD_UTF8)
        grid_rows_refuse(prompt, GRID_REASON_BAD_UTF8);
    if (fault == GRID_JSON_LONG) {
        memset(prompt->model, '?', sizeof prompt->model);
        model = (struct grid_str){prompt->model, sizeof prompt->model};
    } else if (fault != GRID_JSON_FINE || model.len == 0) {
        return;
    }
    prompt->has_model = true;
    prompt->model_len = model.len;
}

static void read_salt(struct grid_prompt *prompt, const struct grid_prompt_frame *top)
{
    size_t bytes;
    if (!grid_rows_has(&top->fields, F_cache_salt))
        return;
    grid_rows_place(prompt, top->object->reads, &top->fields, F_cache_salt);
    prompt->has_salt = grid_rows_measure(prompt, &prompt->salt, &bytes);
}

/* The one look at the whole body. Returns why there are no keys, if that is known by now. */
static enum grid_reason look(struct grid_prompt *prompt, struct grid_json *json, struct grid_prompt_frame *top,
                             bool cut)
{
    enum grid_json_kind kind = GRID_JSON_NOTHING;
    if (!grid_cursor_settle(&json->cursor))
        return cut ? GRID_REASON_BODY_TOO_LARGE : GRID_REASON_EMPTY;
    kind = grid_json_peek(json);
    if (kind == GRID_JSON_OBJECT)
        grid_rows_scan(json, top->object->reads, &top->fields);
    else if (kind != GRID_JSON_NOTHING)
        grid_json_skip(json);
    bool whole = grid_json_finish(json);
    if (whole || (cut && json->fault == GRID_JSON_ENDED))
        read_model(prompt, top);
    if (cut)
        return GRID_REASON_BODY_TOO_LARGE;
    if (!whole)
        return GRID_REASON_NOT_JSON;
    if (kind != GRID_JSON_OBJECT)
        return GRID_REASON_NOT_OBJECT;
    return top->fields.twice ? GRID_REASON_DUPLICATE_FIELD : GRID_REASON_NONE;
}

void grid_prompt_open(struct grid_prompt *prompt, enum grid_api api, const struct grid_str *slices, size_t n_slices,
                      bool cut, struct grid_lex_memo *memo, struct grid_canonical_room *room)
{
    struct grid_json json;
    prompt->reason = GRID_REASON_NONE;
    prompt->has_model = prompt->has_salt = false;
    prompt->model_len = 0;
    prompt->room = room;
    prompt->n_frames = prompt->n_queue = prompt->queue_at = 0;
    grid_json_init(&json, slices, n_slices);
    json.memo = memo;
    prompt->json = json;
    struct grid_prompt_frame *top = grid_rows_frame(prompt);
    top->object = grid_rows_top(api);
    top->fields.seen = top->fields.present = 0;
    top->fields.twice = false;
    enum grid_reason reason = look(prompt, &json, top, cut);
    if (reason != GRID_REASON_NONE)
        prompt->reason = reason; /* outranks a fault of the model */
    if (prompt->reason != GRID_REASON_NONE || api == GRID_API_NONE) {
        prompt->n_frames = 0;
        return;
    }
    top->n_steps = top->object->variants[0].n_rows;
    read_salt(prompt, top);
}
