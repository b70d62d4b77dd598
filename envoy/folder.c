/*
 * folder.c - the configuration, from its files into the core
 *
 * Story     The state folder holds serving.json and, when settings differ from the defaults, plugin.json; whoever runs
 *           Envoy replaces them by rename. The settings name the files with the keys of tags. All are read and loaded
 *           at the start and after each change. What `run` refused on the way is read from the file `reload` and
 *           counted as well.
 * Promise   A refused change leaves what is in force as it is, is logged and counted, once. Keys change by themselves:
 *           a text that is wrong does not hold up a new key, nor a key that is wrong a new text, save when the text is
 *           what names that key.
 * Threads   Main thread, but for grid_module_last_reload.
 * Not here  Timers and events (module.c), key files themselves (keyfile.h).
 */
#include "keyfile.h"
#include "module.h"
#include "told.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum {
    MAX_FILE_BYTES = 16 << 20,
    LATE_EVENT_MS = 1000, /* an event this soon after a change belongs to that change */
    ERROR_BYTES = 512
};

/* The files as last read, to tell a change from an event. Main thread. */
static struct {
    struct grid_buf plugin, serving;
    struct grid_told told;       /* numbers only */
    char lost_keys[ERROR_BYTES]; /* what is wrong with the key files in force; "": nothing */
    char wanted[ERROR_BYTES];    /* what is wrong with those that plugin.json wants and that hold it up; "": nothing */
} seen;

static struct {
    pthread_mutex_t mutex;
    struct grid_module_reload last;
} reloads = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void grid_module_last_reload(struct grid_module_reload *out_reload)
{
    pthread_mutex_lock(&reloads.mutex);
    *out_reload = reloads.last;
    pthread_mutex_unlock(&reloads.mutex);
}

/* The last refusal in front of those before it. */
static void keep_refusal(struct grid_module_reload *last)
{
    memmove(&last->refusals[1], &last->refusals[0], sizeof(last->refusals) - sizeof(last->refusals[0]));
    last->refusals[0].at_ms = last->refused_ms;
    memcpy(last->refusals[0].error, last->error, sizeof(last->error));
}

/* Adds `n` changes, the last of them with that result. */
static void note_reload(const char *result, struct grid_str error, uint64_t n)
{
    size_t len = error.len < sizeof(reloads.last.error) ? error.len : sizeof(reloads.last.error) - 1;
    pthread_mutex_lock(&reloads.mutex);
    reloads.last.result = result;
    reloads.last.at_ms = grid_module_now_ms();
    reloads.last.count += n;
    memcpy(reloads.last.error, error.len > 0 ? error.ptr : "", len);
    reloads.last.error[len] = '\0';
    if (strcmp(result, "applied") == 0) {
        reloads.last.revision++;
        reloads.last.applied_ms = reloads.last.at_ms;
    } else if (strcmp(result, "rejected") == 0) {
        reloads.last.refused_ms = reloads.last.at_ms;
        memcpy(reloads.last.refused, reloads.last.error, len + 1);
        keep_refusal(&reloads.last);
    }
    pthread_mutex_unlock(&reloads.mutex);
}

/* ---- files --------------------------------------------------------------------------------------------------- */

/* The whole file into *out. 0 or an errno; EFBIG over the limit. */
static int read_file(const char *folder, const char *name, struct grid_buf *out)
{
    char path[GRID_MODULE_MAX_PATH + 32], block[16384];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = 0;
    for (ssize_t got; error == 0 && (got = read(fd, block, sizeof(block))) != 0;) {
        if (got > 0)
            grid_buf_put(out, block, (size_t)got);
        if (got < 0 && errno != EINTR)
            error = errno;
        if (out->failed)
            error = EFBIG;
    }
    close(fd);
    return error;
}

/* Both files; a missing plugin.json is an empty object, all defaults. False: *error says what is wrong. */
static bool read_folder(const struct grid_module *module, struct grid_buf *plugin, struct grid_buf *serving,
                        char *error, size_t size)
{
    int failed = read_file(module->folder, "plugin.json", plugin);
    const char *name = "plugin.json";
    if (failed == ENOENT) {
        grid_buf_puts(plugin, "{}");
        failed = 0;
    }
    if (failed == 0) {
        name = "serving.json";
        failed = read_file(module->folder, name, serving);
    }
    if (failed == 0 && !plugin->failed)
        return true;
    snprintf(error, size, "%s: %s", name, strerror(failed ? failed : ENOMEM));
    return false;
}

static struct grid_str text_of(const struct grid_buf *buf)
{
    return (struct grid_str){buf->ptr, buf->len};
}

/* ---- loading ------------------------------------------------------------------------------------------------- */

static void tell_errors(int level, const char *name, enum grid_status status, const struct grid_errors *errors,
                        char *error, size_t size)
{
    size_t count = errors->count < GRID_MAX_ERRORS ? errors->count : GRID_MAX_ERRORS;
    snprintf(error, size, "%s: %s", name, grid_status_name(status));
    for (size_t i = 0; i < count; i++) {
        const struct grid_err *err = &errors->items[i];
        const char *colon = err->field[0] ? ": " : "";
        grid_module_log(level, "%s: %s%s%s", name, err->field, colon, err->message);
        if (i == 0)
            snprintf(error, size, "%s: %.127s%s%.255s", name, err->field, colon, err->message);
    }
    if (count == 0)
        grid_module_log(level, "%s: %s", name, grid_status_name(status));
}

/* Gives the core both texts, and the keys when they change with them; takes its own copy of the list of clusters. */
static bool load(struct grid_module *module, const struct grid_buf *plugin, const struct grid_buf *serving,
                 const struct grid_keyfile_set *keys, int level, char *error, size_t size)
{
    static const char *const names[] = {"serving.json", "plugin.json", "serving.json", "tag keys"};
    struct grid_errors errors = {0};
    struct grid_serving *fresh = NULL;
    int at = 2;
    /* The texts were YAML once, where a name may look like a number. */
    enum grid_status status = grid_serving_parse(text_of(serving), true, NULL, &fresh, &errors);
    if (status == GRID_OK) {
        struct grid_load request = {.plugin = text_of(plugin), .serving = text_of(serving), .words = true};
        request.max_body_bytes = module->max_body_bytes;
        if (keys) {
            request.has_tag_keys = true;
            request.tag_keys = keys->keys;
            request.n_tag_keys = keys->n;
        }
        status = grid_router_load(module->router, &request, grid_module_now_ms(), &errors, &at);
    }
    if (status != GRID_OK) {
        tell_errors(level, names[at], status, &errors, error, size);
        grid_serving_free(fresh);
        return false;
    }
    struct grid_serving *old = module->serving;
    module->serving = fresh;
    if (!module->validating)
        grid_signals_set(module, fresh);
    grid_health_set(fresh);
    grid_serving_free(old);
    return true;
}

/* ---- keys ---------------------------------------------------------------------------------------------------- */

static bool same_paths(const struct grid_settings *a, const struct grid_settings *b)
{
    bool same = a->n_tag_key_paths == b->n_tag_key_paths;
    for (size_t i = 0; same && i < a->n_tag_key_paths; i++)
        same = strcmp(a->tag_key_paths[i], b->tag_key_paths[i]) == 0;
    return same;
}

/* Whether plugin.json asks for other key files than those in force. Then *out holds their keys, or seen.wanted says
 * what is wrong. A text that is no plugin.json asks for nothing: the load will say so. */
static bool want_keys(const struct grid_module *module, const struct grid_buf *plugin, bool first,
                      struct grid_keyfile_set *out)
{
    struct grid_settings wanted, now;
    struct grid_errors errors = {0};
    seen.wanted[0] = '\0';
    if (grid_settings_parse(text_of(plugin), true, &wanted, &errors) != GRID_OK)
        return false;
    grid_router_settings(module->router, &now);
    if (!first && same_paths(&wanted, &now))
        return false;
    (void)grid_keyfile_read(&wanted, out, seen.wanted, sizeof(seen.wanted));
    return true;
}

static void warn_unkeyed(const struct grid_module *module)
{
    struct grid_settings now;
    grid_router_settings(module->router, &now);
    if (now.n_tag_key_paths == 0 && !module->validating)
        grid_module_log(ENVOY_LOG_WARN, "ids get no mac, so a client can make up an id for any site and cluster; set "
                                        "tag_key_path in production");
}

/* Reads the key files in force again. True when there was something to handle or to stay away from. */
static bool follow_keys(const struct grid_module *module)
{
    struct grid_keyfile_set set = {0};
    struct grid_settings now;
    struct grid_errors errors = {0};
    char error[ERROR_BYTES] = "";
    grid_router_settings(module->router, &now);
    bool good = grid_keyfile_read(&now, &set, error, sizeof(error));
    if (good && grid_router_same_tag_keys(module->router, set.keys, set.n)) {
        grid_keyfile_wipe(&set);
        seen.lost_keys[0] = '\0';
        return false;
    }
    if (!good && strcmp(error, seen.lost_keys) == 0)
        return true; /* told already */
    if (good) {
        struct grid_load request = {.has_tag_keys = true, .tag_keys = set.keys, .n_tag_keys = set.n};
        enum grid_status status = grid_router_load(module->router, &request, grid_module_now_ms(), &errors, NULL);
        good = status == GRID_OK;
        if (!good)
            snprintf(error, sizeof(error), "tag keys: %s", grid_status_name(status));
    }
    memcpy(seen.lost_keys, error, sizeof(error));
    grid_count_reload(module->router, good ? GRID_RELOAD_APPLIED : GRID_RELOAD_REJECTED);
    note_reload(good ? "applied" : "rejected", grid_bridge_text(error), 1);
    if (good)
        grid_module_log(ENVOY_LOG_INFO, "tag keys changed: %zu in force", set.n);
    else
        grid_module_log(ENVOY_LOG_WARN, "%s; the old keys stay in force", error);
    grid_keyfile_wipe(&set);
    return true;
}

/* ---- changes ------------------------------------------------------------------------------------------------- */

static bool is_same(const struct grid_buf *a, const struct grid_buf *b)
{
    return grid_bridge_same(text_of(a), text_of(b));
}

/* What is in the folder now is what was last seen. Takes over the memory. */
static void keep_seen(struct grid_buf *plugin, struct grid_buf *serving)
{
    grid_buf_done(&seen.plugin);
    grid_buf_done(&seen.serving);
    seen.plugin = *plugin;
    seen.serving = *serving;
}

/* What `run` refused, or read again for nothing. The applied ones are counted and logged by who loads them. */
static void take_news(const struct grid_module *module, const struct grid_told *now)
{
    uint64_t reused, rejected;
    grid_told_since(&seen.told, now, &reused, &rejected);
    for (uint64_t i = 0; i < reused; i++)
        grid_count_reload(module->router, GRID_RELOAD_REUSED);
    for (uint64_t i = 0; i < rejected; i++)
        grid_count_reload(module->router, GRID_RELOAD_REJECTED);
    if (reused + rejected == 0)
        return;
    note_reload(grid_told_name(now), now->error, reused + rejected);
    if (rejected > 0)
        grid_module_log(ENVOY_LOG_WARN, "configuration rejected by run: %.*s", (int)now->error.len, now->error.ptr);
}

/* Reads what `run` says; true when it is news. `first`: what an earlier run said is only remembered. */
static bool hear(const struct grid_module *module, bool first)
{
    struct grid_buf text = {.limit = GRID_TOLD_MAX_BYTES};
    struct grid_told now = {0};
    bool news = read_file(module->folder, "reload", &text) == 0 && grid_told_read(text_of(&text), &now) &&
                (now.started != seen.told.started || now.revision > seen.told.revision);
    if (news && !first)
        take_news(module, &now);
    if (news)
        seen.told = now;
    seen.told.result = seen.told.error = (struct grid_str){NULL, 0};
    grid_buf_done(&text);
    return news;
}

/* Loads texts that were not handled yet. Takes over the memory. */
static void take_texts(struct grid_module *module, struct grid_buf *plugin, struct grid_buf *serving, bool readable,
                       char *error, size_t size)
{
    struct grid_keyfile_set set = {0};
    bool other_keys = readable && want_keys(module, plugin, false, &set);
    bool good = readable && seen.wanted[0] == '\0';
    if (readable && !good) {
        snprintf(error, size, "%s", seen.wanted);
        grid_module_log(ENVOY_LOG_WARN, "%s", error);
    }
    good = good && load(module, plugin, serving, other_keys ? &set : NULL, ENVOY_LOG_WARN, error, size);
    grid_keyfile_wipe(&set);
    keep_seen(plugin, serving);
    grid_count_reload(module->router, good ? GRID_RELOAD_APPLIED : GRID_RELOAD_REJECTED);
    note_reload(good ? "applied" : "rejected", grid_bridge_text(error), 1);
    if (!good) {
        grid_module_log(ENVOY_LOG_WARN, "configuration rejected, the old one stays in force");
        return;
    }
    grid_module_log(ENVOY_LOG_INFO, "configuration applied: %zu candidates", module->serving->n_candidates);
    if (other_keys)
        warn_unkeyed(module);
}

/* Are the key files that hold plugin.json up still as wrong as they were? */
static bool still_wanting(const struct grid_module *module)
{
    struct grid_keyfile_set set = {0};
    char before[ERROR_BYTES];
    memcpy(before, seen.wanted, sizeof(before));
    if (before[0] == '\0')
        return true;
    (void)want_keys(module, &seen.plugin, false, &set);
    grid_keyfile_wipe(&set);
    return strcmp(before, seen.wanted) == 0;
}

void grid_folder_reload(struct grid_module *module, bool told)
{
    struct grid_buf plugin = {.limit = MAX_FILE_BYTES}, serving = {.limit = MAX_FILE_BYTES};
    char error[ERROR_BYTES] = "";
    bool good = read_folder(module, &plugin, &serving, error, sizeof(error));
    if (!good)
        grid_module_log(ENVOY_LOG_WARN, "%s", error);
    bool same = good && is_same(&plugin, &seen.plugin) && is_same(&serving, &seen.serving);
    if (!same || !still_wanting(module)) {
        module->handled_ms = grid_module_now_ms();
        take_texts(module, &plugin, &serving, good, error, sizeof(error));
        (void)follow_keys(module);
        hear(module, false);
        return;
    }
    grid_buf_done(&plugin);
    grid_buf_done(&serving);
    bool handled = follow_keys(module);
    handled |= hear(module, false);
    if (handled)
        module->handled_ms = grid_module_now_ms();
    else if (told && grid_module_now_ms() - module->handled_ms > LATE_EVENT_MS)
        grid_count_reload(module->router, GRID_RELOAD_REUSED);
}

/* ---- start and end ------------------------------------------------------------------------------------------- */

bool grid_folder_first(struct grid_module *module)
{
    struct grid_buf plugin = {.limit = MAX_FILE_BYTES}, serving = {.limit = MAX_FILE_BYTES};
    struct grid_keyfile_set set = {0};
    char error[ERROR_BYTES] = "";
    bool good = read_folder(module, &plugin, &serving, error, sizeof(error));
    if (good) {
        (void)want_keys(module, &plugin, true, &set);
        snprintf(error, sizeof(error), "%s", seen.wanted);
        good = error[0] == '\0';
    }
    if (!good)
        grid_module_log(ENVOY_LOG_ERROR, "%s", error);
    good = good && load(module, &plugin, &serving, &set, ENVOY_LOG_ERROR, error, sizeof(error));
    grid_keyfile_wipe(&set);
    keep_seen(&plugin, &serving);
    if (good) {
        note_reload("applied", GRID_TEXT(""), 1);
        warn_unkeyed(module);
    }
    hear(module, true);
    return good;
}

void grid_folder_watch(struct grid_module *module)
{
    static const char *const files[] = {"plugin.json", "serving.json", "reload"};
    char path[GRID_MODULE_MAX_PATH + 32];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", module->folder, files[i]);
        if (!ENVOY(bootstrap_extension_file_watcher_add_watch)(module->envoy, grid_bridge_text(path),
                                                               ENVOY_FILE_MOVED_TO | ENVOY_FILE_MODIFIED))
            grid_module_log(ENVOY_LOG_WARN, "%s: no watch, read every %d s instead", path, GRID_FOLDER_CHECK_MS / 1000);
    }
}

void grid_folder_free(void)
{
    grid_buf_done(&seen.plugin);
    grid_buf_done(&seen.serving);
    seen.told = (struct grid_told){0};
    seen.lost_keys[0] = seen.wanted[0] = '\0';
}
