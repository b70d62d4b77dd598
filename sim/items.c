/*
 * items.c - the items that inputs and conversations are made of, and lists of them
 *
 * Story     An input is a text or an array of items, some of them in a short form. It becomes an array of items in the
 *           long form, each with an id, as it is kept and listed.
 * Promise   What an item says is not changed; only an id, a status and the long form of a text are added.
 * Not here  How an item is rendered into a prompt (responses.c).
 */
#include "store.h"

#include <string.h>

/* The prefixes that engines give the ids of items. */
static const struct {
    const char *type;
    const char *prefix;
} PREFIXES[] = {
    {"message", "msg_"},
    {"function_call", "fc_"},
    {"function_call_output", "fco_"},
    {"custom_tool_call", "ctc_"},
    {"custom_tool_call_output", "ctco_"},
    {"reasoning", "rs_"},
    {"compaction", "cmp_"},
};

static const char *prefix_of(const char *type)
{
    for (size_t i = 0; i < sizeof PREFIXES / sizeof PREFIXES[0]; i++) {
        if (strcmp(PREFIXES[i].type, type) == 0)
            return PREFIXES[i].prefix;
    }
    return "item_";
}

static json_t *text_part(const json_t *role, json_t *text)
{
    const char *name = json_string_value(role);
    if (name && strcmp(name, "assistant") == 0)
        return json_pack("[{s:s, s:O, s:[]}]", "type", "output_text", "text", text, "annotations");
    return json_pack("[{s:s, s:O}]", "type", "input_text", "text", text);
}

/* NULL: it is no item. */
static json_t *long_form(struct grid_sim_store *store, const json_t *item)
{
    const json_t *role = json_object_get(item, "role");
    const json_t *type = json_object_get(item, "type");
    const char *name = type ? json_string_value(type) : "message";
    char id[GRID_SIM_MAX_ID_BYTES];
    if (!json_is_object(item) || !name || (strcmp(name, "message") == 0 && !json_is_string(role)))
        return NULL;
    grid_sim_store_id(store, prefix_of(name), id);
    json_t *whole = json_pack("{s:s, s:s, s:s}", "id", id, "type", name, "status", "completed");
    json_t *content = json_object_get(item, "content");
    (void)json_object_update(whole, (json_t *)(uintptr_t)item);
    if (json_is_null(json_object_get(whole, "id")))
        (void)json_object_set_new(whole, "id", json_string(id));
    if (strcmp(name, "message") == 0 && json_is_string(content))
        (void)json_object_set_new(whole, "content", text_part(role, content));
    return whole;
}

json_t *grid_sim_items_read(struct grid_sim_store *store, const json_t *input, const char *param,
                            struct grid_sim_refusal *refusal)
{
    json_t *items = json_array();
    size_t i;
    const json_t *item;
    if (json_is_string(input)) {
        json_t *message = json_pack("{s:s, s:O}", "role", "user", "content", (json_t *)(uintptr_t)input);
        (void)json_array_append_new(items, long_form(store, message));
        json_decref(message);
        return items;
    }
    bool ok = !input || json_is_null(input) || json_is_array(input);
    json_array_foreach(input, i, item)
    {
        json_t *whole = long_form(store, item);
        ok = ok && whole && json_array_append_new(items, whole) == 0;
    }
    if (ok)
        return items;
    json_decref(items);
    (void)grid_sim_refuse(refusal, HTTP_BADREQUEST, "BadRequestError", param,
                          "%s must be a text or an array of items; a message needs a role", param);
    return NULL;
}

static const char *id_of(const json_t *item)
{
    const char *id = json_string_value(json_object_get(item, "id"));
    return id ? id : "";
}

size_t grid_sim_items_find(const json_t *items, const char *id)
{
    size_t i = 0;
    while (i < json_array_size(items) && strcmp(id_of(json_array_get(items, i)), id) != 0)
        i++;
    return i;
}

/* Takes data over. */
static json_t *list_of(json_t *data, bool more)
{
    size_t count = json_array_size(data);
    const char *first = count ? id_of(json_array_get(data, 0)) : NULL;
    const char *last = count ? id_of(json_array_get(data, count - 1)) : NULL;
    return json_pack("{s:s, s:o, s:s?, s:s?, s:b}", "object", "list", "data", data, "first_id", first, "last_id", last,
                     "has_more", more);
}

json_t *grid_sim_items_list(const json_t *items)
{
    return list_of(json_copy((json_t *)(uintptr_t)items), false);
}

json_t *grid_sim_items_page(const json_t *items, const struct grid_sim_page *page)
{
    json_t *data = json_array();
    size_t count = json_array_size(items);
    size_t from = 0;
    if (page->after[0]) {
        size_t at = grid_sim_items_find(items, page->after);
        from = at == count ? count : page->ascending ? at + 1 : count - at;
    }
    size_t end = count - from > page->limit ? from + page->limit : count;
    for (size_t i = from; i < end; i++)
        (void)json_array_append(data, json_array_get(items, page->ascending ? i : count - 1 - i));
    return list_of(data, end < count);
}

size_t grid_sim_items_bytes(const json_t *items)
{
    return json_dumpb(items, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
}
