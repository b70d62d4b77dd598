/*
 * conversations.c - Conversations over HTTP: create, read, update, delete, and their items
 *
 * Story     A conversation is a record with metadata and a growing array of items. Items come by its own paths, or from
 *           a response that names it (stored.c), input and answer, when that response is whole.
 * Promise   A conversation that is written to counts as new in the store's order.
 * Not here  Lists and the form of items (items.c).
 */
#include "exchange.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

static json_t *object_of(const struct grid_sim_conversation *talk)
{
    return json_pack("{s:s, s:s, s:I, s:O}", "id", talk->record.id, "object", "conversation", "created_at",
                     (json_int_t)talk->created, "metadata", talk->metadata);
}

void grid_sim_conversation_free(struct grid_sim_record *record)
{
    struct grid_sim_conversation *talk = grid_sim_conversation_of(record);
    json_decref(talk->metadata);
    json_decref(talk->items);
    free(talk);
}

/* May free it, when it alone exceeds the store. */
static void hold(struct grid_sim_store *store, struct grid_sim_conversation *talk)
{
    grid_sim_store_hold(store, &talk->record, grid_sim_items_bytes(talk->metadata) + grid_sim_items_bytes(talk->items));
}

void grid_sim_conversation_append(struct grid_sim_store *store, const char *id, json_t *input, json_t *answer)
{
    struct grid_sim_record *record = grid_sim_store_find(store, GRID_SIM_CONVERSATION, id);
    if (!record)
        return;
    struct grid_sim_conversation *talk = grid_sim_conversation_of(record);
    (void)json_array_extend(talk->items, input);
    (void)json_array_extend(talk->items, answer);
    hold(store, talk);
}

/* NULL: it has replied. Absent metadata are an empty object. */
static json_t *take_body(struct grid_sim_exchange *x)
{
    struct grid_sim_refusal refusal;
    json_t *root = grid_sim_exchange_body(x, &refusal);
    const json_t *metadata = json_object_get(root, "metadata");
    if (root && (!json_is_object(root) || (metadata && !json_is_object(metadata) && !json_is_null(metadata)))) {
        (void)grid_sim_refuse(&refusal, HTTP_BADREQUEST, "BadRequestError", "metadata",
                              "the body must be an object, and so its metadata");
        json_decref(root);
        root = NULL;
    }
    if (!root)
        grid_sim_exchange_refuse(x, &refusal);
    return root;
}

static json_t *metadata_of(const json_t *root)
{
    json_t *metadata = json_object_get(root, "metadata");
    return json_is_object(metadata) ? json_incref(metadata) : json_object();
}

static void create(struct grid_sim_exchange *x)
{
    struct grid_sim_store *store = x->server->store;
    struct grid_sim_refusal refusal;
    json_t *root = take_body(x);
    if (!root)
        return;
    json_t *items = grid_sim_items_read(store, json_object_get(root, "items"), "items", &refusal);
    if (!items) {
        json_decref(root);
        grid_sim_exchange_refuse(x, &refusal);
        return;
    }
    struct grid_sim_conversation *talk = grid_sim_alloc(1, sizeof *talk);
    talk->record.kind = GRID_SIM_CONVERSATION;
    talk->created = (int64_t)time(NULL);
    talk->metadata = metadata_of(root);
    talk->items = items;
    grid_sim_store_id(store, "conv_", talk->record.id);
    json_decref(root);
    json_t *body = object_of(talk);
    hold(store, talk);
    grid_sim_exchange_json(x, HTTP_OK, body);
}

/* ---- one that is held; name: of the item, or "" ---- */

static void retrieve(struct grid_sim_exchange *x, struct grid_sim_conversation *talk, const char *name)
{
    (void)name;
    grid_sim_exchange_json(x, HTTP_OK, object_of(talk));
}

static void update(struct grid_sim_exchange *x, struct grid_sim_conversation *talk, const char *name)
{
    (void)name;
    json_t *root = take_body(x);
    if (!root)
        return;
    json_decref(talk->metadata);
    talk->metadata = metadata_of(root);
    json_decref(root);
    json_t *body = object_of(talk);
    hold(x->server->store, talk);
    grid_sim_exchange_json(x, HTTP_OK, body);
}

static void delete (struct grid_sim_exchange *x, struct grid_sim_conversation *talk, const char *name)
{
    (void)name;
    json_t *body =
        json_pack("{s:s, s:s, s:b}", "id", talk->record.id, "object", "conversation.deleted", "deleted", true);
    grid_sim_store_let_go(x->server->store, &talk->record);
    grid_sim_exchange_json(x, HTTP_OK, body);
}

static void list_items(struct grid_sim_exchange *x, struct grid_sim_conversation *talk, const char *name)
{
    struct grid_sim_page page;
    (void)name;
    if (grid_sim_exchange_page(x, &page))
        grid_sim_exchange_json(x, HTTP_OK, grid_sim_items_page(talk->items, &page));
    else
        grid_sim_reply_error(grid_sim_exchange_release(x), HTTP_BADREQUEST, "invalid_request_error", "limit",
                             "limit must be a whole number from 1 to 100");
}

static void add_items(struct grid_sim_exchange *x, struct grid_sim_conversation *talk, const char *name)
{
    struct grid_sim_refusal refusal;
    (void)name;
    json_t *root = take_body(x);
    if (!root)
        return;
    json_t *items = grid_sim_items_read(x->server->store, json_object_get(root, "items"), "items", &refusal);
    json_decref(root);
    if (!items) {
        grid_sim_exchange_refuse(x, &refusal);
        return;
    }
    (void)json_array_extend(talk->items, items);
    json_t *body = grid_sim_items_list(items);
    json_decref(items);
    hold(x->server->store, talk);
    grid_sim_exchange_json(x, HTTP_OK, body);
}

/* The item's place; false: it has replied 404. */
static bool find_item(struct grid_sim_exchange *x, const struct grid_sim_conversation *talk, const char *name,
                      size_t *out_at)
{
    *out_at = grid_sim_items_find(talk->items, name);
    if (*out_at < json_array_size(talk->items))
        return true;
    struct grid_sim_refusal refusal;
    (void)grid_sim_refuse(&refusal, HTTP_NOTFOUND, "invalid_request_error", "item_id",
                          "Item with id '%.100s' not found.", name);
    grid_sim_exchange_refuse(x, &refusal);
    return false;
}

static void retrieve_item(struct grid_sim_exchange *x, struct grid_sim_conversation *talk, const char *name)
{
    size_t at;
    if (find_item(x, talk, name, &at))
        grid_sim_exchange_json(x, HTTP_OK, json_incref(json_array_get(talk->items, at)));
}

static void delete_item(struct grid_sim_exchange *x, struct grid_sim_conversation *talk, const char *name)
{
    size_t at;
    if (!find_item(x, talk, name, &at))
        return;
    (void)json_array_remove(talk->items, at);
    json_t *body = object_of(talk);
    hold(x->server->store, talk);
    grid_sim_exchange_json(x, HTTP_OK, body);
}

/* ---- routes ---- */

enum place {
    THE_CONVERSATION,
    ITS_ITEMS,
    ONE_ITEM,
    NOWHERE,
};

static const struct route {
    enum evhttp_cmd_type method;
    enum place place;
    void (*start)(struct grid_sim_exchange *x, struct grid_sim_conversation *talk, const char *name);
} ROUTES[] = {
    {EVHTTP_REQ_GET, THE_CONVERSATION, retrieve},  {EVHTTP_REQ_POST, THE_CONVERSATION, update},
    {EVHTTP_REQ_DELETE, THE_CONVERSATION, delete}, {EVHTTP_REQ_GET, ITS_ITEMS, list_items},
    {EVHTTP_REQ_POST, ITS_ITEMS, add_items},       {EVHTTP_REQ_GET, ONE_ITEM, retrieve_item},
    {EVHTTP_REQ_DELETE, ONE_ITEM, delete_item},
};

/* rest: behind the id. */
static enum place place_of(const char *rest, const char **out_name)
{
    static const char items[] = "/items";
    size_t length = sizeof items - 1;
    *out_name = "";
    if (*rest == '\0')
        return THE_CONVERSATION;
    if (strncmp(rest, items, length) != 0)
        return NOWHERE;
    if (rest[length] == '\0')
        return ITS_ITEMS;
    *out_name = rest + length + 1;
    return rest[length] == '/' && **out_name && !strchr(*out_name, '/') ? ONE_ITEM : NOWHERE;
}

static void start_held(struct grid_sim_exchange *x, enum evhttp_cmd_type method, const char *id_and_rest)
{
    size_t length = strcspn(id_and_rest, "/");
    const char *name;
    enum place place = length && length < GRID_SIM_MAX_ID_BYTES ? place_of(id_and_rest + length, &name) : NOWHERE;
    const struct route *found = NULL;
    for (size_t i = 0; i < sizeof ROUTES / sizeof ROUTES[0]; i++) {
        if (ROUTES[i].place == place && ROUTES[i].method == method)
            found = &ROUTES[i];
    }
    if (!found) {
        grid_sim_exchange_no_route(x, place != NOWHERE);
        return;
    }
    char id[GRID_SIM_MAX_ID_BYTES];
    struct grid_sim_refusal refusal;
    (void)snprintf(id, sizeof id, "%.*s", (int)length, id_and_rest);
    struct grid_sim_record *record = grid_sim_store_find(x->server->store, GRID_SIM_CONVERSATION, id);
    if (record) {
        found->start(x, grid_sim_conversation_of(record), name);
        return;
    }
    (void)grid_sim_store_missing(GRID_SIM_CONVERSATION, id, "conversation_id", &refusal);
    grid_sim_exchange_refuse(x, &refusal);
}

void grid_sim_conversations_start(struct grid_sim_exchange *x, enum evhttp_cmd_type method, const char *rest)
{
    if (*rest)
        start_held(x, method, rest + 1);
    else if (method == EVHTTP_REQ_POST)
        create(x);
    else
        grid_sim_exchange_no_route(x, true);
}
