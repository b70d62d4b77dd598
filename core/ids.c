/*
 * ids.c - the ids of stored state that a Responses body, or a path, names
 *
 * Members are pulled one by one; a text that may be an id is decoded a run at a time into the scan of its tag, so that
 * escapes are honoured and no length needs room. Where the third dot stands as sent is told by the reader's cursor.
 */
#include "ids.h"

#define NAME_BYTES 32u /* more than "previous_response_id" has */

/* The text that is next. What does not decode to its end is no id: nobody could tell which one it is. */
static void read_id(struct grid_json *json, struct grid_id *out_id)
{
    struct grid_id id = {.offset = grid_json_offset(json)};
    struct grid_json_decode decode;
    struct grid_str run;
    if (!grid_json_decode(json, &decode))
        return;
    while (grid_json_decode_next(&decode, &run)) {
        if (id.shaped) {
            id.rest = true;
            continue;
        }
        size_t taken = grid_tag_scan_feed(&id.tag, run.ptr, run.len), left = run.len - taken;
        if (id.tag.state != GRID_TAG_SHAPED)
            continue;
        id.shaped = true;
        id.rest = left > 0;
        id.bytes = grid_cursor_offset(&decode.at) - left - id.offset; /* a dot that was an escape leaves nothing over */
    }
    id.present = !decode.bad;
    if (id.present)
        *out_id = id;
}

/* The value of a member that holds an id: a text, or an object that has one as its `id`. False when that is given
 * twice. */
static bool read_value(struct grid_json *json, bool object, struct grid_id *out_id)
{
    char room[NAME_BYTES];
    struct grid_str name;
    size_t ids = 0;
    if (grid_json_peek(json) == GRID_JSON_STRING) {
        read_id(json, out_id);
        return true;
    }
    if (!object || !grid_json_enter(json, GRID_JSON_OBJECT)) {
        grid_json_skip(json);
        return true;
    }
    while (grid_json_member(json, room, sizeof room, &name)) {
        bool is_id = grid_str_eq(name, GRID_LIT("id"));
        ids += is_id;
        if (is_id && grid_json_peek(json) == GRID_JSON_STRING)
            read_id(json, out_id);
        else
            grid_json_skip(json);
    }
    return ids <= 1;
}

static bool read_members(struct grid_json *json, struct grid_ids *ids)
{
    char room[NAME_BYTES];
    struct grid_str name;
    size_t previous = 0, conversation = 0;
    bool once = true;
    while (grid_json_member(json, room, sizeof room, &name)) {
        if (grid_str_eq(name, GRID_LIT("previous_response_id"))) {
            previous++;
            once = read_value(json, false, &ids->previous) && once;
        } else if (grid_str_eq(name, GRID_LIT("conversation"))) {
            conversation++;
            once = read_value(json, true, &ids->conversation) && once;
        } else {
            grid_json_skip(json);
        }
    }
    return once && previous <= 1 && conversation <= 1;
}

void grid_ids_find(const struct grid_str *slices, size_t n_slices, struct grid_ids *out_ids)
{
    struct grid_ids ids, none;
    struct grid_json json;
    memset(&none, 0, sizeof none);
    ids = none;
    grid_json_init(&json, slices, n_slices);
    bool good = grid_json_enter(&json, GRID_JSON_OBJECT) && read_members(&json, &ids);
    good = grid_json_finish(&json) && good;
    *out_ids = good ? ids : none;
}

void grid_ids_segment(struct grid_str segment, struct grid_id *out_id)
{
    struct grid_id id;
    memset(&id, 0, sizeof id);
    id.present = segment.len > 0;
    id.bytes = grid_tag_scan_feed(&id.tag, segment.ptr, segment.len);
    id.shaped = id.tag.state == GRID_TAG_SHAPED && !memchr(segment.ptr, '%', segment.len);
    id.rest = id.shaped && id.bytes < segment.len;
    *out_id = id;
}
