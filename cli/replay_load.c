/*
 * replay_load.c - the operations `load` and `signal` of replay
 *
 * Story     A load is validated as a whole: settings, the key files that they name, keys given in the line, the
 *           serving configuration. Only when all of it is right does any of it come into force.
 * Not here  What the settings mean (the core), YAML (yaml.c).
 */
#include "query.h"
#include "replay.h"
#include "tagkey.h"
#include "yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of the two texts of a load: NULL-pointered when the line has none. */
struct text {
    struct grid_str json;
    bool words;
    char *dumped;
    struct grid_yaml yaml;
};

static void free_text(struct text *text)
{
    free(text->dumped);
    grid_yaml_done(&text->yaml);
}

/* Reads `name` (an object) or `text_name` (YAML or JSON text). */
static bool read_text(struct grid_replay *replay, json_t *line, const char *name, const char *text_name,
                      struct text *out)
{
    json_t *object = json_object_get(line, name);
    struct grid_str given = {NULL, 0};
    char error[256];

    if (!grid_replay_text(replay, line, text_name, false, &given)) {
        return false;
    }
    if (object != NULL && given.ptr != NULL) {
        return grid_replay_refuse(replay, text_name, "%s is given too", name);
    }
    if (object != NULL) {
        if (!json_is_object(object)) {
            return grid_replay_refuse(replay, name, "is not an object");
        }
        out->dumped = json_dumps(object, JSON_COMPACT);
        if (out->dumped == NULL) {
            return grid_replay_refuse(replay, name, "cannot be written as JSON");
        }
        out->json = grid_query_str(out->dumped);
    } else if (given.ptr != NULL) {
        if (!grid_yaml_to_json(given, text_name, &out->yaml, error, sizeof error)) {
            return grid_replay_refuse(replay, text_name, "%s", error);
        }
        out->json = (struct grid_str){out->yaml.json, out->yaml.len};
        out->words = out->yaml.words;
    }
    return true;
}

/* ---- keys that sign ids --------------------------------------------------------------------------------------- */

static int hex_value(char digit)
{
    const char *digits = "0123456789abcdef", *found;
    char lower = digit >= 'A' && digit <= 'F' ? (char)(digit + ('a' - 'A')) : digit;

    found = lower != '\0' ? strchr(digits, lower) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

static bool add_hex_key(struct grid_replay *replay, const char *field, json_t *value, struct grid_tagkey_set *keys)
{
    const char *text = json_string_value(value);
    size_t len = json_string_length(value) / 2;

    if (text == NULL || json_string_length(value) % 2 != 0) {
        return grid_replay_refuse(replay, field, "is not a text of pairs of hex digits");
    }
    if (len < GRID_MIN_TAG_KEY_BYTES) {
        return grid_replay_refuse(replay, field, "the key has %zu bytes; at least %u bytes are needed", len,
                                  GRID_MIN_TAG_KEY_BYTES);
    }
    char *bytes = malloc(len);
    if (bytes == NULL) {
        return grid_replay_refuse(replay, field, "out of memory");
    }
    for (size_t i = 0; i < len; i++) {
        int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            grid_wipe(bytes, i);
            free(bytes);
            return grid_replay_refuse(replay, field, "is not a text of pairs of hex digits");
        }
        bytes[i] = (char)(high << 4 | low);
    }
    keys->memory[keys->n] = bytes;
    keys->keys[keys->n++] = (struct grid_str){bytes, len};
    return true;
}

static bool read_hex_keys(struct grid_replay *replay, json_t *list, struct grid_tagkey_set *keys)
{
    char field[64];

    if (!json_is_array(list)) {
        return grid_replay_refuse(replay, "tag_keys_hex", "is not a list");
    }
    if (json_array_size(list) > GRID_MAX_TAG_KEYS) {
        return grid_replay_refuse(replay, "tag_keys_hex", "has more than %u keys", GRID_MAX_TAG_KEYS);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        (void)snprintf(field, sizeof field, "tag_keys_hex[%zu]", i);
        if (!add_hex_key(replay, field, json_array_get(list, i), keys)) {
            return false;
        }
    }
    return true;
}

/* Reads the key files that the settings name. */
static bool read_key_files(struct grid_replay *replay, const struct grid_settings *settings,
                           struct grid_tagkey_set *keys)
{
    static const char field[] = "prefix_affinity.tag_key_path";
    char error[384];

    for (size_t i = 0; i < settings->n_tag_key_paths; i++) {
        if (!grid_tagkey_add(keys, settings->tag_key_paths[i], error, sizeof error)) {
            return grid_replay_refuse(replay, field, "%s", error);
        }
    }
    return true;
}

/* ---- load ------------------------------------------------------------------------------------------------------ */

struct change {
    struct text plugin, serving;
    uint64_t max_body_bytes;
    struct grid_tagkey_set keys;
    bool has_keys; /* keys replace the present ones */
};

static bool refuse_first(struct grid_replay *replay, enum grid_status status, const struct grid_errors *errors)
{
    if (errors->count == 0) {
        return grid_replay_refuse(replay, "", "%s", grid_status_name(status));
    }
    return grid_replay_refuse(replay, errors->items[0].field, "%s", errors->items[0].message);
}

/* The keys that the line brings: from its own list, else from the files that its settings name. */
static bool read_keys(struct grid_replay *replay, json_t *line, struct change *change)
{
    json_t *hex = json_object_get(line, "tag_keys_hex");
    struct grid_settings settings;
    struct grid_errors errors = {0};

    if (change->plugin.json.ptr != NULL) {
        enum grid_status status = grid_settings_parse(change->plugin.json, change->plugin.words, &settings, &errors);
        if (status != GRID_OK) {
            return refuse_first(replay, status, &errors);
        }
    }
    if (hex != NULL) {
        change->has_keys = true;
        return read_hex_keys(replay, hex, &change->keys);
    }
    if (change->plugin.json.ptr == NULL || replay->tag_keys_given) {
        return true;
    }
    change->has_keys = true;
    return read_key_files(replay, &settings, &change->keys);
}

static bool read_change(struct grid_replay *replay, json_t *line, struct change *change)
{
    if (!read_text(replay, line, "plugin", "plugin_text", &change->plugin) ||
        !read_text(replay, line, "serving", "serving_text", &change->serving) ||
        !grid_replay_whole(replay, line, "max_body_bytes", false, &change->max_body_bytes)) {
        return false;
    }
    if (json_object_get(line, "max_body_bytes") != NULL && change->max_body_bytes == 0) {
        return grid_replay_refuse(replay, "max_body_bytes", "0 is not above 0");
    }
    return read_keys(replay, line, change);
}

/* Lists the clusters that candidates name now. */
static bool list_sites(struct grid_replay *replay)
{
    size_t n = grid_router_sites(replay->router, replay->now_ms, NULL, 0);
    struct grid_site_view *sites = calloc(n != 0 ? n : 1, sizeof *sites);

    if (sites == NULL) {
        return false;
    }
    free(replay->sites);
    replay->sites = sites;
    replay->n_sites = grid_router_sites(replay->router, replay->now_ms, sites, n);
    return true;
}

static bool apply_change(struct grid_replay *replay, const struct change *change)
{
    struct grid_load load = {
        .plugin = change->plugin.json,
        .serving = change->serving.json,
        .words = change->plugin.words || change->serving.words,
        .max_body_bytes = change->max_body_bytes,
        .has_tag_keys = change->has_keys,
        .tag_keys = change->keys.keys,
        .n_tag_keys = change->keys.n,
    };
    struct grid_errors errors = {0};
    int text = 0;

    if (load.plugin.ptr == NULL && load.serving.ptr == NULL && load.max_body_bytes == 0 && !load.has_tag_keys) {
        return true;
    }
    enum grid_status status = grid_router_load(replay->router, &load, replay->now_ms, &errors, &text);
    if (status != GRID_OK) {
        return refuse_first(replay, status, &errors);
    }
    replay->stale = true;
    if (load.serving.ptr != NULL && !list_sites(replay)) {
        return grid_replay_refuse(replay, "", "out of memory");
    }
    return true;
}

bool grid_replay_load(struct grid_replay *replay, json_t *line)
{
    struct change change = {0};
    bool done = read_change(replay, line, &change) && apply_change(replay, &change);

    if (done) {
        replay->tag_keys_given |= json_object_get(line, "tag_keys_hex") != NULL;
    }
    grid_tagkey_wipe(&change.keys);
    free_text(&change.plugin);
    free_text(&change.serving);
    if (done) {
        grid_buf_puts(&replay->out, "{\"ok\":true}");
    }
    return done;
}

/* ---- signal ---------------------------------------------------------------------------------------------------- */

bool grid_replay_signal(struct grid_replay *replay, json_t *line)
{
    json_t *depth = json_object_get(line, "depth");
    uint64_t stamp_ms = replay->now_ms;
    struct grid_str cluster;

    if (!grid_replay_text(replay, line, "cluster", true, &cluster) ||
        !grid_replay_whole(replay, line, "stamp", false, &stamp_ms)) {
        return false;
    }
    if (!json_is_number(depth)) {
        return grid_replay_refuse(replay, "depth", depth == NULL ? "is missing" : "is not a number");
    }
    /* a sample that the core does not keep (an old stamp, a cluster that nothing names) is no mistake of the line */
    replay->stale |= grid_signal(replay->router, cluster, json_number_value(depth), stamp_ms, replay->now_ms);
    grid_buf_puts(&replay->out, "{\"ok\":true}");
    return true;
}
