/*
 * head.c - what the head of a request says: its API, its model, whether its body is worth reading
 */
#include "head.h"

static struct grid_str without_trailing_slashes(struct grid_str path)
{
    while (path.len > 1 && path.ptr[path.len - 1] == '/')
        path.len--;
    return path;
}

enum grid_api grid_head_api(struct grid_str path)
{
    static const struct {
        struct grid_str path;
        enum grid_api api;
    } prompts[] = {
        {GRID_LIT("/v1/chat/completions"), GRID_API_CHAT},
        {GRID_LIT("/v1/completions"), GRID_API_COMPLETIONS},
        {GRID_LIT("/v1/messages"), GRID_API_MESSAGES},
        {GRID_LIT("/v1/responses"), GRID_API_RESPONSES},
    };
    struct grid_str bare = without_trailing_slashes(path);
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        if (!grid_str_eq(bare, prompts[i].path))
            continue;
        /* More than one slash behind it is a stored response with an empty id (O.33). */
        if (prompts[i].api == GRID_API_RESPONSES && path.len > bare.len + 1)
            return GRID_API_NONE;
        return prompts[i].api;
    }
    return GRID_API_NONE;
}

/* Sub-paths of responses that are no ids (O.20), with or without one trailing slash (O.33). */
static bool is_fixed(struct grid_str rest)
{
    if (rest.ptr[rest.len - 1] == '/')
        rest.len--;
    return grid_str_eq(rest, GRID_LIT("/compact")) || grid_str_eq(rest, GRID_LIT("/input_tokens"));
}

static void read_state(struct grid_str path, struct grid_head_view *view)
{
    static const struct grid_str responses = GRID_LIT("/v1/responses"), conversations = GRID_LIT("/v1/conversations");
    bool response = grid_str_starts(path, responses);
    if (!response && !grid_str_starts(path, conversations))
        return;
    size_t from = response ? responses.len : conversations.len;
    struct grid_str rest = {path.ptr + from, path.len - from};
    if (rest.len > 0 && rest.ptr[0] != '/')
        return;
    if (rest.len <= 1 || (response && is_fixed(rest))) {
        view->state = response ? GRID_STATE_RESPONSES : GRID_STATE_CONVERSATIONS;
        return;
    }
    view->state = GRID_STATE_STORED;
    view->id = grid_str_until((struct grid_str){rest.ptr + 1, rest.len - 1}, '/');
}

/* A header value that is blank or not visible ASCII counts as absent (behaviour.md B.4, O.24). */
static bool readable(struct grid_str value)
{
    for (size_t i = 0; i < value.len; i++)
        if ((unsigned char)value.ptr[i] < 0x20 || (unsigned char)value.ptr[i] >= 0x7f)
            return false;
    return value.len > 0;
}

static void read_model(struct grid_str value, struct grid_head_view *view)
{
    value = grid_str_trim(value);
    if (!readable(value))
        return;
    if (view->has_model && !grid_str_eq(view->model, value))
        view->ambiguous = true;
    view->has_model = true;
    view->model = value;
}

/* Only bodies that can be JSON are held: uploads of audio and forms with files never are (O.42). A form type may be: it
 * is what curl says of any body. */
static bool type_can_be_json(struct grid_str type)
{
    static const struct grid_str never[] = {GRID_LIT("multipart/"), GRID_LIT("audio/"), GRID_LIT("video/"),
                                            GRID_LIT("image/"), GRID_LIT("application/octet-stream")};
    type = grid_str_trim(type);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (type.len >= never[i].len && grid_str_eq_nocase((struct grid_str){type.ptr, never[i].len}, never[i]))
            return false;
    return true;
}

static void read_models_path(struct grid_str path, struct grid_head_view *view)
{
    static const struct grid_str list = GRID_LIT("/v1/models");
    struct grid_str bare = without_trailing_slashes(path);
    if (grid_str_eq(bare, list)) {
        view->models = true;
    } else if (path.len > list.len + 1 && grid_str_starts(path, list) && path.ptr[list.len] == '/') {
        view->model_entry = true;
        view->entry = (struct grid_str){path.ptr + list.len + 1, path.len - list.len - 1};
    }
}

void grid_head_read(const struct grid_head *head, struct grid_str model_header, struct grid_head_view *out_view)
{
    struct grid_head_view view = {.path = grid_str_until(head->path, '?'), .can_be_json = true};
    view.api = grid_head_api(view.path);
    view.post = grid_str_eq(head->method, GRID_LIT("POST"));
    view.options = grid_str_eq(head->method, GRID_LIT("OPTIONS"));
    read_state(view.path, &view);
    for (size_t i = 0; i < head->n_headers; i++) {
        struct grid_str name = head->headers[i].name, value = head->headers[i].value;
        if (grid_str_eq_nocase(name, model_header))
            read_model(value, &view);
        else if (grid_str_eq_nocase(name, GRID_LIT("content-type")))
            view.can_be_json = type_can_be_json(value);
        else if (grid_str_eq_nocase(name, GRID_LIT("content-encoding")))
            view.coded = view.coded || (value.len && !grid_str_eq_nocase(grid_str_trim(value), GRID_LIT("identity")));
    }
    if (!view.has_model && (grid_str_eq(head->method, GRID_LIT("GET")) || grid_str_eq(head->method, GRID_LIT("HEAD"))))
        read_models_path(view.path, &view);
    *out_view = view;
}
