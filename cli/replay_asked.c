/*
 * replay_asked.c - what a line says about a request, or about an answer
 */
#include "replay_asked.h"

#include <stdlib.h>
#include <string.h>

void grid_replay_asked_done(struct grid_replay_asked *asked)
{
    free(asked->headers);
    free(asked->names);
    free(asked->decoded);
}

/* How many headers an object of them holds, and how long their names are; refused when it is no such object. */
static bool count_headers(struct grid_replay *replay, json_t *object, size_t *out_n, size_t *out_bytes)
{
    const char *name;
    json_t *value;

    if (!json_is_object(object)) {
        return grid_replay_refuse(replay, "headers", "is not an object");
    }
    json_object_foreach(object, name, value)
    {
        size_t n = json_is_array(value) ? json_array_size(value) : 1;
        bool right = name[0] != '\0' && (json_is_string(value) || json_is_array(value));
        for (size_t i = 0; json_is_array(value) && i < n; i++) {
            right = right && json_is_string(json_array_get(value, i));
        }
        if (!right) {
            return grid_replay_refuse(replay, "headers", "a header is a name with a text or a list of texts");
        }
        *out_n += n;
        *out_bytes += strlen(name);
    }
    return true;
}

bool grid_replay_asked_headers(struct grid_replay *replay, json_t *line, struct grid_replay_asked *out)
{
    json_t *object = json_object_get(line, "headers"), *value;
    size_t n = 0, bytes = 0, used = 0;
    const char *name;

    if (object == NULL) {
        return true;
    }
    if (!count_headers(replay, object, &n, &bytes)) {
        return false;
    }
    out->headers = calloc(n + 1, sizeof *out->headers);
    out->names = malloc(bytes + 1);
    if (out->headers == NULL || out->names == NULL) {
        return grid_replay_refuse(replay, "headers", "out of memory");
    }
    json_object_foreach(object, name, value)
    {
        struct grid_str lower = {out->names + used, strlen(name)};
        for (const char *at = name; *at != '\0'; at++) {
            out->names[used++] = *at >= 'A' && *at <= 'Z' ? (char)(*at + ('a' - 'A')) : *at;
        }
        for (size_t i = 0; i < (json_is_array(value) ? json_array_size(value) : 1); i++) {
            json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
            struct grid_header *header = &out->headers[out->query.n_headers++];
            header->name = lower;
            header->value = (struct grid_str){json_string_value(one), json_string_length(one)};
        }
    }
    out->query.headers = out->headers;
    return true;
}

bool grid_replay_asked_body(struct grid_replay *replay, json_t *line, struct grid_replay_asked *out)
{
    struct grid_str text = {NULL, 0}, coded = {NULL, 0};
    uint64_t chunk = 0;

    if (!grid_replay_text(replay, line, "body", false, &text) ||
        !grid_replay_text(replay, line, "body_b64", false, &coded) ||
        !grid_replay_whole(replay, line, "chunk", false, &chunk)) {
        return false;
    }
    if (json_object_get(line, "chunk") != NULL && chunk == 0) {
        return grid_replay_refuse(replay, "chunk", "0 is not above 0");
    }
    if (text.ptr != NULL && coded.ptr != NULL) {
        return grid_replay_refuse(replay, "body_b64", "body is given too");
    }
    if (coded.ptr != NULL) {
        size_t len;
        if (!grid_query_from_base64(coded, &out->decoded, &len)) {
            return grid_replay_refuse(replay, "body_b64", "is not base64");
        }
        text = (struct grid_str){out->decoded, len};
    }
    out->query.has_body = text.ptr != NULL;
    out->query.body = text;
    out->query.piece_bytes = chunk < SIZE_MAX ? (size_t)chunk : SIZE_MAX;
    return true;
}

bool grid_replay_asked_read(struct grid_replay *replay, json_t *line, struct grid_replay_asked *out)
{
    out->query.method = grid_query_str("POST");
    return grid_replay_text(replay, line, "method", false, &out->query.method) &&
           grid_replay_text(replay, line, "path", true, &out->query.path) &&
           grid_replay_asked_headers(replay, line, out) && grid_replay_asked_body(replay, line, out);
}
