/*
 * reload.c - a configuration that follows its files; see reload.h
 */
#include "cli/reload.h"
#include "cli/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define NS 1000000000ull
#define MS_A_SECOND 1000u
#define REST_MS 140           /* a file that did not change for so long is not being written */
#define LONGEST_WRITE_MS 1000 /* who writes on and on is not waited for */

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

/* ---- looking -------------------------------------------------------------------------------------------------- */

static struct grid_reload_look look_at(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return (struct grid_reload_look){.error = errno};
    }
    return (struct grid_reload_look){
        .device = st.st_dev,
        .file = st.st_ino,
        .bytes = (unsigned long long)st.st_size,
        .written_ns = (unsigned long long)st.st_mtim.tv_sec * NS + (unsigned long long)st.st_mtim.tv_nsec,
        .changed_ns = (unsigned long long)st.st_ctim.tv_sec * NS + (unsigned long long)st.st_ctim.tv_nsec};
}

static bool same_look(const struct grid_reload_look *a, const struct grid_reload_look *b)
{
    return a->device == b->device && a->file == b->file && a->bytes == b->bytes && a->written_ns == b->written_ns &&
           a->changed_ns == b->changed_ns && a->error == b->error;
}

/* Adds a file to those that are followed, with what was handled of it before, if it was followed before. */
static void follow(struct grid_reload_watch *watch, const char *path, const struct grid_reload_file *old, size_t n_old)
{
    struct grid_reload_file *file = &watch->files[watch->n_files];
    if (path[0] == '\0') {
        return;
    }
    for (size_t i = 0; i < watch->n_files; i++) {
        if (strcmp(watch->files[i].path, path) == 0) {
            return;
        }
    }
    *file = (struct grid_reload_file){0};
    snprintf(file->path, sizeof file->path, "%s", path);
    file->handled = look_at(path);
    for (size_t i = 0; i < n_old; i++) {
        if (strcmp(old[i].path, path) == 0) {
            *file = old[i];
        }
    }
    watch->n_files++;
    if (watch->inotify >= 0) {
        watch_folder(watch->inotify, path);
    }
}

/* The files of the configuration in force. For want of memory those of before go on being followed. */
static void follow_all(struct grid_reload_watch *watch)
{
    const struct grid_materials *materials = &watch->good.materials;
    struct grid_reload_file *old = watch->files, *fresh = calloc(materials->n + 2, sizeof *fresh);
    size_t n_old = watch->n_files;
    if (fresh == NULL) {
        return;
    }
    watch->files = fresh;
    watch->n_files = 0;
    follow(watch, watch->path, old, n_old);
    follow(watch, watch->good.serving_file.path, old, n_old);
    for (size_t i = 0; i < materials->n; i++) {
        follow(watch, materials->items[i].path, old, n_old);
    }
    free(old);
}

enum motion { STILL, CHANGED, MOVING };

/* A file that took the place of another is whole; one that is written in place may be half there. */
static enum motion motion_of(struct grid_reload_file *file, uint64_t now_ms)
{
    struct grid_reload_look look = look_at(file->path);
    if (same_look(&look, &file->handled)) {
        return STILL;
    }
    bool in_place = look.error == 0 && look.device == file->handled.device && look.file == file->handled.file;
    if (!in_place) {
        return CHANGED;
    }
    if (!same_look(&look, &file->seen)) {
        file->first_ms = file->first_ms != 0 ? file->first_ms : now_ms;
        file->seen_ms = now_ms;
        file->seen = look;
    }
    return now_ms - file->seen_ms >= REST_MS || now_ms - file->first_ms >= LONGEST_WRITE_MS ? CHANGED : MOVING;
}

static enum motion look_around(struct grid_reload_watch *watch, uint64_t now_ms)
{
    enum motion out = STILL;
    for (size_t i = 0; i < watch->n_files; i++) {
        enum motion motion = motion_of(&watch->files[i], now_ms);
        out = motion > out ? motion : out;
    }
    for (size_t i = 0; out == CHANGED && i < watch->n_files; i++) {
        struct grid_reload_file *file = &watch->files[i];
        file->handled = look_at(file->path);
        file->first_ms = 0;
    }
    return out;
}

void grid_reload_start(struct grid_reload_watch *watch, const char *path, struct grid_gateway *first)
{
    *watch =
        (struct grid_reload_watch){.path = path, .good = *first, .inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
    *first = (struct grid_gateway){0};
    source_copy(&watch->seen_file, &watch->good.file);
    source_copy(&watch->seen_serving, &watch->good.serving_file);
    follow_all(watch);
    watch_keys(watch);
}

void grid_reload_done(struct grid_reload_watch *watch)
{
    grid_gateway_done(&watch->good);
    source_done(&watch->seen_file);
    source_done(&watch->seen_serving);
    free(watch->files);
    free(watch->standing);
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

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* How one of the two texts stands to the one that was handled last. */
enum text { TEXT_SAME, TEXT_FRESH, TEXT_LOST };

static enum text read_again(struct grid_source *seen, struct grid_report *report)
{
    char *text, error[GRID_PATH_BYTES + 256];
    size_t len;
    if (seen->path[0] == '\0') {
        return TEXT_SAME;
    }
    if (!grid_files_read(seen->path, GRID_YAML_MAX_BYTES, &text, &len, error, sizeof error)) {
        const char *reason = strstr(error, seen->path);
        reason = reason != NULL ? reason + strlen(seen->path) : error;
        grid_report_add(report, seen->path, 1, "file", "cannot read%s", reason);
        return TEXT_LOST;
    }
    if (seen->text != NULL && len == seen->len && memcmp(text, seen->text, len) == 0) {
        free(text);
        return TEXT_SAME;
    }
    free(seen->text);
    seen->text = text;
    seen->len = len;
    return TEXT_FRESH;
}

static bool same_address(const struct grid_address *a, const struct grid_address *b)
{
    return a->is_unix == b->is_unix && a->port == b->port && strcmp(a->host, b->host) == 0;
}

static bool same_list(json_t *a, json_t *b)
{
    return a == b || json_equal(a, b) != 0;
}

static bool same_cors(const struct grid_cors *a, const struct grid_cors *b)
{
    return a->on == b->on && a->allow_credentials == b->allow_credentials && a->max_age_secs == b->max_age_secs &&
           same_list(a->allow_origins, b->allow_origins) && same_list(a->allow_methods, b->allow_methods) &&
           same_list(a->allow_headers, b->allow_headers) && same_list(a->expose_headers, b->expose_headers);
}

static bool same_tracing(const struct grid_tracing *a, const struct grid_tracing *b)
{
    return a->on == b->on && a->http == b->http && same_address(&a->collector, &b->collector) &&
           strcmp(a->path, b->path) == 0 && strcmp(a->service_name, b->service_name) == 0 &&
           !(a->percent < b->percent || a->percent > b->percent);
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
        {"role", old->provider == fresh->provider},
        {"tls", old->tls == fresh->tls && old->client_tls == fresh->client_tls},
        {"cors", same_cors(&old->cors, &fresh->cors)},
        {"tracing", same_tracing(&old->tracing, &fresh->tracing)},
        {"max_body_bytes", old->max_body_bytes == fresh->max_body_bytes},
        {"failover_max_body_bytes", old->failover_max_body_bytes == fresh->failover_max_body_bytes},
        {"max_heap_bytes", old->max_heap_bytes == fresh->max_heap_bytes},
        {"max_connections", old->max_connections == fresh->max_connections},
        {"timeouts", old->request_body_ms == fresh->request_body_ms && old->idle_ms == fresh->idle_ms &&
                         old->total_ms == fresh->total_ms},
        {"http_filters_before", json_equal(old->filters_before, fresh->filters_before) != 0},
        {"concurrency", old->concurrency == fresh->concurrency},
        {"log_level", strcmp(old->log_level, fresh->log_level) == 0},
        {"access_log", old->access_log == fresh->access_log},
        {"trace_keys", old->trace_keys == fresh->trace_keys && strcmp(old->trace_path, fresh->trace_path) == 0 &&
                           strcmp(old->trace_secret_path, fresh->trace_secret_path) == 0 &&
                           old->trace_max_bytes == fresh->trace_max_bytes},
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

/* One way to take the change: both files as they are, or one of them with the other's last good text. Certificates,
 * keys and credentials that are no good stay as they were in any case, and `notes` says so. */
static bool try_load(struct grid_reload_watch *watch, bool keep_file, bool keep_serving, struct grid_gateway *out,
                     struct grid_report *report, struct grid_report *notes)
{
    struct grid_kept kept = {.file = keep_file ? &watch->good.file : NULL,
                             .serving = keep_serving ? &watch->good.serving_file : NULL,
                             .materials = &watch->good.materials,
                             .settings = &watch->good.settings,
                             .notes = notes};
    grid_report_done(notes);
    if (!grid_config_load(watch->path, &kept, out, report)) {
        return false;
    }
    if (refuse_cold(&watch->good, out, report)) {
        grid_gateway_done(out);
        return false;
    }
    return true;
}

static bool find_good(struct grid_reload_watch *watch, enum text file, enum text serving, struct grid_gateway *out,
                      struct grid_report *report, struct grid_report *notes)
{
    struct grid_report ignored = {0};
    bool no_file = file == TEXT_LOST, no_serving = serving == TEXT_LOST;
    bool good = try_load(watch, no_file, no_serving, out, report, notes);
    if (!good && serving == TEXT_FRESH) {
        good = try_load(watch, true, false, out, &ignored, notes);
        grid_report_done(&ignored);
    }
    if (!good && file == TEXT_FRESH) {
        good = try_load(watch, no_file, true, out, &ignored, notes);
        grid_report_done(&ignored);
    }
    return good;
}

/* Samples are kept for as long as at the start (behaviour.md M): the rest of the file is taken all the same. */
static void keep_window(const struct grid_gateway *old, struct grid_gateway *fresh, struct grid_report *notes)
{
    bool in_place = fresh->serving_file.path[0] == '\0';
    const struct grid_source *file = in_place ? &fresh->file : &fresh->serving_file;
    const char *field = in_place ? "serving.window_secs" : "window_secs";
    if (fresh->serving->window_ms != old->serving->window_ms) {
        grid_report_add(notes, file->path, grid_config_line(file, field), field,
                        "a change of it needs a restart; %llu stays in force, the rest is taken",
                        (unsigned long long)old->serving->window_ms / MS_A_SECOND);
        fresh->serving->window_ms = old->serving->window_ms;
    }
}

/* ---- telling --------------------------------------------------------------------------------------------------- */

/* A refusal is told when it comes up or changes, not at each change of something else while it stands. */
static bool is_new(struct grid_reload_watch *watch, const char *why)
{
    const char *before = watch->standing != NULL ? watch->standing : "";
    if (strcmp(before, why) == 0) {
        return false;
    }
    free(watch->standing);
    watch->standing = *why != '\0' ? strdup(why) : NULL;
    return true;
}

static void tell(struct grid_state *state, const char *why, const char *result)
{
    if (strcmp(result, "rejected") == 0) {
        fprintf(stderr, "%s%sgrid-gateway: refused; the last good configuration of the file stays in force\n", why,
                why[strlen(why) - 1] == '\n' ? "" : "\n");
    } else {
        fprintf(stderr, "grid-gateway: configuration %s\n",
                strcmp(result, "reused") == 0 ? "read again, same meaning" : result);
    }
    grid_state_tell(state, result, why);
}

/* Writes what is in force now, and tells. What the folder does not take is tried again at each check, told once. */
static void write_out(struct grid_reload_watch *watch, struct grid_state *state, const char *why, bool idle)
{
    char error[GRID_PATH_BYTES + 256] = "";
    bool again = watch->unwritten;
    enum grid_state_result result = grid_state_write(state, &watch->good, error, sizeof error);
    watch->unwritten = result == GRID_STATE_FAILED;
    why = watch->unwritten ? error : why;
    bool fresh = is_new(watch, why);
    if (*why != '\0' && fresh) {
        tell(state, why, "rejected");
    } else if (!watch->unwritten && (!idle || fresh || again)) {
        tell(state, why, result == GRID_STATE_SAME ? "reused" : "applied");
    }
}

/* Takes what the files say now; what is wrong with them goes into `why`. True when nothing is another than before. */
static bool take(struct grid_reload_watch *watch, struct grid_buf *why)
{
    struct grid_report report = {0}, notes = {0};
    struct grid_gateway fresh;
    enum text file = read_again(&watch->seen_file, &report), serving = read_again(&watch->seen_serving, &report);
    bool idle = file != TEXT_FRESH && serving != TEXT_FRESH;
    if (find_good(watch, file, serving, &fresh, &report, &notes)) {
        idle = idle && grid_materials_equal(&fresh.materials, &watch->good.materials);
        keep_window(&watch->good, &fresh, &notes);
        if (strcmp(fresh.serving_file.path, watch->good.serving_file.path) != 0) {
            source_copy(&watch->seen_serving, &fresh.serving_file);
        }
        grid_gateway_done(&watch->good);
        watch->good = fresh;
        follow_all(watch);
        watch_keys(watch);
    }
    why->limit = report.lines.len + notes.lines.len + 1;
    grid_buf_put(why, report.lines.ptr, report.lines.len);
    grid_buf_put(why, notes.lines.ptr, notes.lines.len);
    grid_buf_put(why, "", 1);
    grid_report_done(&report);
    grid_report_done(&notes);
    return idle;
}

bool grid_reload_check(struct grid_reload_watch *watch, struct grid_state *state, uint64_t now_ms)
{
    enum motion motion = look_around(watch, now_ms);
    if (keys_changed(watch)) {
        grid_state_nudge(state);
    }
    /* What was refused may be right by now for a reason that is not followed: a file that it names has come. */
    if (motion == MOVING || (motion == STILL && watch->standing == NULL && !watch->unwritten)) {
        return motion == STILL;
    }
    struct grid_buf why = {0};
    bool idle = take(watch, &why);
    write_out(watch, state, why.failed ? "out of memory" : why.ptr, idle);
    grid_buf_done(&why);
    return true;
}
