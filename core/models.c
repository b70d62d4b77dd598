/*
 * models.c - the list of the grid's models, and one entry of it, answered here
 */
#include "models.h"

#include "arena.h"

static void put_entry(struct grid_buf *out, struct grid_str name)
{
    grid_buf_puts(out, "{\"id\":");
    grid_buf_json(out, name);
    grid_buf_puts(out, ",\"object\":\"model\",\"created\":0,\"owned_by\":\"grid\"}");
}

/* One of the grid's models by its name as sent, then with %2F read as a slash (O.54). */
static const struct grid_model *find_entry(const struct grid_sites *sites, struct grid_str entry)
{
    const struct grid_model *model = grid_sites_model(sites, entry);
    char name[GRID_MAX_NAME_BYTES];
    size_t n = 0;
    for (size_t i = 0; !model && i < entry.len; i++) {
        struct grid_str left = {entry.ptr + i, entry.len - i};
        if (n == sizeof name)
            return NULL;
        bool slash = grid_str_starts(left, GRID_LIT("%2F")) || grid_str_starts(left, GRID_LIT("%2f"));
        name[n++] = slash ? '/' : left.ptr[0];
        i += slash ? 2 : 0;
    }
    return model ? model : grid_sites_model(sites, (struct grid_str){name, n});
}

void grid_models_answer(const struct grid_sites *sites, const struct grid_head_view *head, struct grid_buf *text,
                        struct grid_reply *out_reply)
{
    const struct grid_model *entry = head->model_entry ? find_entry(sites, head->entry) : NULL;
    if (head->model_entry && !entry) {
        grid_reply_make(GRID_REPLY_MODEL_NOT_FOUND, head->api, out_reply);
        return;
    }
    if (entry) {
        put_entry(text, entry->name);
    } else {
        grid_buf_puts(text, "{\"object\":\"list\",\"data\":[");
        for (size_t i = 0; i < sites->n_models; i++) {
            grid_buf_puts(text, i ? "," : "");
            put_entry(text, sites->models[i].name);
        }
        grid_buf_puts(text, "]}");
    }
    if (text->failed)
        grid_reply_make(GRID_REPLY_INTERNAL, head->api, out_reply);
    else
        grid_reply_json((struct grid_str){text->ptr, text->len}, out_reply);
}
