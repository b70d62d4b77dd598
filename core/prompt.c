/*
 * prompt.c - walks a body, frame by frame
 *
 * Story     Lists and objects that are open stand on a short stack of frames, so pulling a piece is a step of a loop
 *           and nothing recurses. What a step writes is in rows.c. The body's own members are read by one reader; while
 *           the list that ends the stream is walked early, that list's frame has it.
 */
#include "prompt.h"

#include "rows.h"

/* A text block of a system list that one client changes on each request (behaviour.md O.17). */
static const struct grid_str billing = {"x-anthropic-billing-header", 26};

/* The frame that was or is above the body's own is that of the list that ends the stream, and it is read early. */
static bool is_early_list(const struct grid_prompt *prompt)
{
    return prompt->early && prompt->n_frames == 1 && prompt->frames[0].step == prompt->frames[0].n_steps;
}

/* ---- walking ---------------------------------------------------------------------------------------------------- */

/* A block of a system list that is not part of the prompt. Only its first bytes are decoded, and their UTF-8 is not
 * judged: whether the block is skipped must not depend on what is behind them. */
static bool is_billing(const struct grid_prompt_frame *frame)
{
    struct grid_json_decode decode;
    struct grid_str run;
    size_t len = 0;
    if (!grid_str_eq(frame->object->variants[frame->row].type, GRID_LIT("text")) ||
        !grid_rows_has(&frame->fields, F_text))
        return false;
    const struct grid_json_raw *text = grid_rows_value(&frame->fields, F_text);
    if (text->kind != GRID_JSON_STRING)
        return false;
    grid_json_decode_raw(text, &decode);
    decode.high = false;
    while (len < billing.len && grid_json_decode_next(&decode, &run)) {
        size_t some = run.len < billing.len - len ? run.len : billing.len - len;
        if (memcmp(run.ptr, billing.ptr + len, some) != 0)
            return false;
        len += some;
    }
    return len == billing.len;
}

/* Behind a list. A nested one ends inside an element of the list around it: the reader passes what is left there, which
 * was looked at when the element was opened. */
static void leave_list(struct grid_prompt *prompt, struct grid_prompt_frame *frame)
{
    struct grid_json_name name;
    if (frame->json.fault != GRID_JSON_FINE)
        grid_rows_refuse(prompt, GRID_REASON_NOT_JSON);
    if (frame->nested > 0) {
        while (grid_json_named(&frame->json, &name))
            grid_json_skip(&frame->json);
        grid_rows_push(prompt, frame->behind);
        frame->nested--;
        return;
    }
    prompt->n_frames--;
    if (is_early_list(prompt))
        prompt->body = frame->json;
}

static void step_list(struct grid_prompt *prompt, struct grid_prompt_frame *frame)
{
    if (!grid_json_element(&frame->json)) {
        leave_list(prompt, frame);
        return;
    }
    size_t level = prompt->n_frames;
    grid_rows_open(prompt, &frame->json, frame->order, frame->object);
    if (frame->system && frame->nested == 0 && prompt->n_frames > level && prompt->reason == GRID_REASON_NONE &&
        is_billing(&prompt->frames[level]))
        prompt->n_frames = level;
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

/* ---- opening and closing ---------------------------------------------------------------------------------------- */

/* The last `model` of the body, when it is a text. One over GRID_MODEL_MAX_BYTES is a model too, but none that could be
 * served: any text of that length stands for it. */
static void read_model(struct grid_prompt *prompt, const struct grid_prompt_frame *top)
{
    struct grid_str model;
    if (!grid_rows_has(&top->fields, F_model))
        return;
    const struct grid_json_raw *value = grid_rows_value(&top->fields, F_model);
    if (value->kind != GRID_JSON_STRING)
        return;
    enum grid_json_fault fault =
        grid_json_text(grid_rows_reader(prompt, value), prompt->model, GRID_MODEL_MAX_BYTES, &model);
    if (fault == GRID_JSON_FINE || fault == GRID_JSON_LONG || fault == GRID_JSON_BAD_UTF8) {
        prompt->model_offset = grid_cursor_offset(&value->from);
        prompt->model_bytes = value->bytes;
    }
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
    if (grid_rows_has(&top->fields, F_cache_salt))
        prompt->has_salt =
            grid_rows_measure(prompt, grid_rows_value(&top->fields, F_cache_salt), &prompt->salt, &bytes);
}

/* The field of the list that the stream ends with. */
static enum field last_field(const struct grid_prompt_object *top)
{
    if (top->n_variants == 0)
        return F_none;
    const struct row *last = &top->variants[0].rows[top->variants[0].n_rows - 1];
    return last->rule == RULE_LIST || last->rule == RULE_INPUT ? last->field : F_none;
}

/* Notes the fields of the body, from where its reader stands. True: it stands before `last`, a list that was not met
 * before. */
static bool scan_body(struct grid_prompt *prompt, enum field last)
{
    struct grid_json_name name;
    struct grid_prompt_frame *top = &prompt->frames[0];
    struct grid_json *body = &prompt->body;
    while (grid_json_named(body, &name)) {
        enum field field = grid_rows_field(top->object->reads, &name);
        if (field == last && field != F_none && grid_json_peek(body) == GRID_JSON_ARRAY &&
            !(top->fields.seen >> field & 1)) {
            grid_rows_note_list(&top->fields, field, body);
            return true;
        }
        bool passed = field == F_none ? grid_json_skip(body) : grid_rows_note(&top->fields, field, body);
        if (!passed)
            return false;
    }
    return false;
}

/* Why there are no keys, as far as the body's own members tell, now that they were read. */
static enum grid_reason judge(struct grid_prompt *prompt, struct grid_prompt_frame *top)
{
    bool whole = grid_json_finish(&prompt->body);
    if (whole || (prompt->cut && prompt->body.fault == GRID_JSON_ENDED))
        read_model(prompt, top);
    if (prompt->cut)
        return GRID_REASON_BODY_TOO_LARGE;
    if (!whole)
        return GRID_REASON_NOT_JSON;
    if (prompt->kind != GRID_JSON_OBJECT)
        return GRID_REASON_NOT_OBJECT;
    return top->fields.twice ? GRID_REASON_DUPLICATE_FIELD : GRID_REASON_NONE;
}

/* The body was read to its end. False: there are no keys whatever the pieces say. */
static bool finish(struct grid_prompt *prompt)
{
    struct grid_prompt_frame *top = &prompt->frames[0];
    prompt->reason = GRID_REASON_NONE;
    prompt->n_frames = prompt->n_queue = prompt->queue_at = 0;
    enum grid_reason reason = judge(prompt, top);
    if (reason != GRID_REASON_NONE)
        prompt->reason = reason; /* outranks a fault of the model */
    if (prompt->reason != GRID_REASON_NONE || top->object->n_variants == 0)
        return false;
    read_salt(prompt, top);
    return prompt->reason == GRID_REASON_NONE;
}

static void begin_walk(struct grid_prompt *prompt)
{
    struct grid_prompt_frame *top = &prompt->frames[0];
    prompt->n_frames = 1;
    top->step = 0;
    top->n_steps = top->object->variants[0].n_rows;
}

bool grid_prompt_close(struct grid_prompt *prompt)
{
    struct grid_prompt_frame *top = &prompt->frames[0];
    enum grid_reason walked = prompt->reason;
    if (!prompt->early)
        return false;
    prompt->early = false;
    if (top->step < top->n_steps) { /* refused before the list was begun */
        grid_json_skip(&prompt->body);
    } else if (prompt->n_frames > 1) {
        prompt->body = prompt->frames[1].json;
        while (grid_json_element(&prompt->body))
            grid_json_skip(&prompt->body);
    }
    (void)scan_body(prompt, F_none);
    if (!finish(prompt))
        return false;
    const uint64_t unordered = BIT(model) | BIT(cache_salt);
    if (top->fields.present & ~prompt->ahead & ~unordered) {
        begin_walk(prompt);
        return true;
    }
    prompt->reason = walked;
    return false;
}

void grid_prompt_open(struct grid_prompt *prompt, enum grid_api api, const struct grid_str *slices, size_t n_slices,
                      bool cut, struct grid_lex_memo *memo, struct grid_canonical_room *room)
{
    prompt->reason = GRID_REASON_NONE;
    prompt->has_model = prompt->has_salt = prompt->early = false;
    prompt->cut = cut;
    prompt->model_len = prompt->model_offset = prompt->model_bytes = 0;
    prompt->room = room;
    prompt->n_frames = prompt->n_queue = prompt->queue_at = 0;
    grid_json_init(&prompt->body, slices, n_slices);
    prompt->body.memo = memo;
    prompt->json = prompt->body;
    struct grid_prompt_frame *top = grid_rows_frame(prompt);
    top->object = grid_rows_top(api);
    grid_rows_no_fields(&top->fields);
    if (!grid_cursor_settle(&prompt->body.cursor)) {
        prompt->n_frames = 0;
        prompt->reason = cut ? GRID_REASON_BODY_TOO_LARGE : GRID_REASON_EMPTY;
        return;
    }
    prompt->kind = grid_json_peek(&prompt->body);
    if (grid_json_enter(&prompt->body, GRID_JSON_OBJECT))
        prompt->early = scan_body(prompt, cut ? F_none : last_field(top->object));
    else if (prompt->kind != GRID_JSON_NOTHING)
        grid_json_skip(&prompt->body);
    prompt->ahead = top->fields.present;
    if (prompt->early || finish(prompt))
        begin_walk(prompt);
}
