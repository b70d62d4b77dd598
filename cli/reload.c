/*
 * reload.c - a configuration that follows its files; see reload.h
 */
#include "cli/reload.h"
#include "cli/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define FOLDER_EVENTS (IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_ONLYDIR)

static void watch_folder(int inotify, const char *path)
{
    char dir[GRID_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    if (path[0] == '\0') {
        return;
    }
    snprintf(dir, sizeof dir, "%.*s",
             slash == NULL   ? 1
             : slash == path ? 1
                             : (int)(slash - path),
             slash == NULL ? "." : path);
    if (inotify_add_watch(inotify, dir, FOLDER_EVENTS) < 0) {
        fprintf(stderr, "grid-gateway: cannot watch %s; changes are seen within seconds all the same\n", dir);
    }
}

/* The folders of the key files in force, and what the files look like now. */
static void watch_keys(struct grid_reload_watch *watch)
{
    const struct grid_settings *settings = &watch->good.settings;
    grid_tagkey_stamp(settings, &watch->keys);
    for (size_t i = 0; watch->inotify >= 0 && i < settings->n_tag_key_paths; i++) {
        watch_folder(watch->inotify, settings->tag_key_paths[i]);
    }
}

/* True when a key file is another one than at the last call. */
static bool keys_changed(struct grid_reload_watch *watch)
{
    struct grid_tagkey_stamps now;
    grid_tagkey_stamp(&watch->good.settings, &now);
    bool same = grid_tagkey_same(&now, &watch->keys);
    watch->keys = now;
    return !same;
}

static void source_done(struct grid_source *source)
{
    free(source->text);
    *source = (struct grid_source){0};
}

static void source_copy(struct grid_source *to, const struct grid_source *from)
{
    source_done(to);
    if (from->text != NULL && (to->text = malloc(from->len + 1)) != NULL) {
        memcpy(to->text, from->text, from->len + 1);
        to->len = from->len;
    }
    memcpy(to->path, from->path, sizeof to->path);
}

void grid_reload_start(struct grid_reload_watch *watch, const char *path, struct grid_gateway *first)
{
    *watch =
        (struct grid_reload_watch){.path = path, .good = *first, .inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
    *first = (struct grid_gateway){0};
    source_copy(&watch->seen_file, &watch->good.file);
    source_copy(&watch->seen_serving, &watch->good.serving_file);
    if (watch->inotify >= 0) {
        watch_folder(watch->inotify, path);
        watch_folder(watch->inotify, watch->good.serving_file.path);
    }
    watch_keys(watch);
}

void grid_reload_done(struct grid_reload_watch *watch)
{
    grid_gateway_done(&watch->good);
    source_done(&watch->seen_file);
    source_done(&watch->seen_serving);
    if (watch->inotify >= 0) {
        close(watch->inotify);
    }
    watch->inotify = -1;
}

void grid_reload_drain(struct grid_reload_watch *watch)
{
    char events[4096];
    while (read(watch->inotify, events, sizeof events) > 0) {
    }
}

/* One line when a file is lost, none while it stays so. `error` is "cannot read PATH: reason". */
static void say_lost(const char *path, const char *error, bool *lost)
{
    const char *reason = strstr(error, path);
    reason = reason != NULL ? reason + strlen(path) : error;
    if (!*lost) {
        fprintf(stderr, "%s: cannot read%s; the last good one stays\n", path, reason);
    }
    *lost = true;
}

/* Reads the file again; true when its text is another than the one seen, which it then becomes. A file that is gone
 * is no change; it is told once. */
static bool changed(struct grid_source *seen, bool *lost)
{
    char *text, error[GRID_PATH_BYTES + 256];
    size_t len;
    if (seen->path[0] == '\0') {
        return false;
    }
    if (!grid_files_read(seen->path, GRID_YAML_MAX_BYTES, &text, &len, error, sizeof error)) {
        say_lost(seen->path, error, lost);
        return false;
    }
    *lost = false;
    if (seen->text != NULL && len == seen->len && memcmp(text, seen->text, len) == 0) {
        free(text);
        return false;
    }
    free(seen->text);
    seen->text = text;
    seen->len = len;
    return true;
}

static bool same_address(const struct grid_address *a, const struct grid_address *b)
{
    return a->is_unix == b->is_unix && a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* Refuses, by name, what Envoy reads only at its start. */
static bool refuse_cold(const struct grid_gateway *old, const struct grid_gateway *fresh, struct grid_report *report)
{
    const struct {
        const char *field;
        bool same;
    } parts[] = {
        {"listen", same_address(&old->listen, &fresh->listen)},
        {"admin", same_address(&old->admin, &fresh->admin)},
        {"ops", same_address(&old->ops, &fresh->ops)},
        {"tls", old->tls == fresh->tls && strcmp(old->cert_path, fresh->cert_path) == 0 &&
                    strcmp(old->key_path, fresh->key_path) == 0 &&
                    strcmp(old->client_ca_path, fresh->client_ca_path) == 0},
        {"max_body_bytes", old->max_body_bytes == fresh->max_body_bytes},
        {"max_heap_bytes", old->max_heap_bytes == fresh->max_heap_bytes},
        {"max_connections", old->max_connections == fresh->max_connections},
        {"timeouts", old->request_body_ms == fresh->request_body_ms && old->idle_ms == fresh->idle_ms &&
                         old->total_ms == fresh->total_ms},
        {"http_filters_before", json_equal(old->filters_before, fresh->filters_before) != 0},
        {"concurrency", old->concurrency == fresh->concurrency},
        {"log_level", strcmp(old->log_level, fresh->log_level) == 0},
        {"access_log", old->access_log == fresh->access_log},
    };
    bool cold = false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].same) {
            grid_report_add(report, fresh->file.path, grid_config_line(&fresh->file, parts[i].field), parts[i].field,
                            "a change of it needs a restart");
            cold = true;
        }
    }
    return cold;
}

/* One way to take the change: both files as they are, or one of them with the other's last good text. */
static bool try_load(struct grid_reload_watch *watch, bool keep_file, bool keep_serving, struct grid_gateway *out,
                     struct grid_report *report)
{
    if (!grid_config_load(watch->path, keep_file ? &watch->good.file : NULL,
                          keep_serving ? &watch->good.serving_file : NULL, out, report)) {
        return false;
    }
    if (refuse_cold(&watch->good, out, report)) {
        grid_gateway_done(out);
        return false;
    }
    return true;
}

static bool find_good(struct grid_reload_watch *watch, bool file, bool serving, struct grid_gateway *out,
                      struct grid_report *report)
{
    struct grid_report ignored = {0};
    bool good = try_load(watch, false, false, out, report);
    if (!good && serving) {
        good = try_load(watch, true, false, out, &ignored);
        grid_report_done(&ignored);
    }
    if (!good && file) {
        good = try_load(watch, false, true, out, &ignored);
        grid_report_done(&ignored);
    }
    return good;
}

/* What was refused, once more: true when all of it is good now. */
static bool try_again(struct grid_reload_watch *watch, struct grid_gateway *out)
{
    struct grid_report ignored = {0};
    bool good = watch->refused && try_load(watch, false, false, out, &ignored);
    grid_report_done(&ignored);
    return good;
}

bool grid_reload_check(struct grid_reload_watch *watch, struct grid_state *state)
{
    bool file = changed(&watch->seen_file, &watch->lost_file);
    bool serving = changed(&watch->seen_serving, &watch->lost_serving);
    bool keys = keys_changed(watch);
    struct grid_report report = {0};
    struct grid_gateway fresh;
    bool again = !file && !serving && try_again(watch, &fresh);
    if (!file && !serving && !again) {
        if (keys) {
            grid_state_nudge(state);
        }
        return false;
    }
    char error[GRID_PATH_BYTES + 256] = "";
    enum grid_state_result result = GRID_STATE_FAILED;
    bool good = again || find_good(watch, file, serving, &fresh, &report);
    if (good) {
        result = grid_state_write(state, &fresh, error, sizeof error);
        if (strcmp(fresh.serving_file.path, watch->good.serving_file.path) != 0) {
            watch_folder(watch->inotify, fresh.serving_file.path);
            source_copy(&watch->seen_serving, &fresh.serving_file);
        }
        grid_gateway_done(&watch->good);
        watch->good = fresh;
        watch_keys(watch);
    }
    grid_buf_put(&report.lines, "", 1);
    const char *why = report.count > 0 ? report.lines.ptr : error;
    watch->refused = *why != '\0';
    if (watch->refused) {
        fprintf(stderr, "%sgrid-gateway: refused; the last good configuration of the file stays in force\n", why);
    } else {
        fprintf(stderr, "grid-gateway: configuration %s\n",
                result == GRID_STATE_SAME ? "read again, same meaning" : "applied");
    }
    grid_state_tell(state, watch->refused ? "rejected" : result == GRID_STATE_SAME ? "reused" : "applied", why);
    grid_report_done(&report);
    return result == GRID_STATE_CHANGED;
}
