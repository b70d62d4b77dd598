/*
 * module.c - the module as a whole: its start, its state folder, its end
 *
 * Story     Envoy configures the bootstrap extension first, with "FOLDER\nMAX_BODY_BYTES". The folder holds
 *           serving.json and, when settings differ from the defaults, plugin.json; whoever runs Envoy replaces them by
 *           rename. They are read and loaded here, at the start and after each change. What `run` refused on the way is
 *           read from the file `reload` and counted as well.
 * Promise   At the start a configuration that the core refuses stops Envoy, with the reasons in its log. Later a
 *           refused change leaves the old configuration in force, is logged and counted.
 * Threads   Main thread, but for grid_module_get, grid_module_log, grid_module_now_ms and grid_module_last_reload.
 */
#include "module.h"
#include "told.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_FILE_BYTES = 16 << 20,
    QUIET_MS = 100,       /* a change comes as several events, and often in two files */
    TICK_MS = 250,        /* counters in Envoy's store lag by this much */
    CHECK_MS = 5000,      /* the folder is read even when no event came */
    LATE_EVENT_MS = 1000, /* an event this soon after a change belongs to that change */
    FAILOVER_MAX_BODY_BYTES = 1 << 20,
    CLOCK_BASE_S = 86400 /* a day: no window reaches back before the clock's start */
};

static _Atomic(struct grid_module *) current;

/* The files as last read, to tell a change from an event. Main thread. */
static struct {
    struct grid_buf plugin, serving;
    struct grid_told told; /* numbers only */
} seen;

static struct {
    pthread_mutex_t mutex;
    struct grid_module_reload last;
} reloads = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct grid_module *grid_module_get(void)
{
    return atomic_load_explicit(&current, memory_order_acquire);
}

uint64_t grid_module_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec + CLOCK_BASE_S) * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void grid_module_log(int level, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!ENVOY(log_enabled)(level))
        return;
    size_t head = (size_t)snprintf(line, sizeof(line), "grid: ");
    va_start(args, format);
    int len = vsnprintf(line + head, sizeof(line) - head, format, args);
    va_end(args);
    if (len < 0)
        return;
    size_t total = head + (size_t)len < sizeof(line) ? head + (size_t)len : sizeof(line) - 1;
    ENVOY(log)(level, (struct grid_str){line, total});
}

void grid_module_last_reload(struct grid_module_reload *out_reload)
{
    pthread_mutex_lock(&reloads.mutex);
    *out_reload = reloads.last;
    pthread_mutex_unlock(&reloads.mutex);
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

/* Gives the core both texts and takes its own copy of the list of clusters. */
static bool load(struct grid_module *module, const struct grid_buf *plugin, const struct grid_buf *serving, int level,
                 char *error, size_t size)
{
    struct grid_errors errors = {0};
    struct grid_serving *fresh = NULL;
    int at = 2;
    /* The texts were YAML once, where a name may look like a number. */
    enum grid_status status = grid_serving_parse(text_of(serving), true, NULL, &fresh, &errors);
    if (status == GRID_OK) {
        struct grid_load request = {.plugin = text_of(plugin), .serving = text_of(serving), .words = true};
        request.max_body_bytes = module->max_body_bytes;
        status = grid_router_load(module->router, &request, grid_module_now_ms(), &errors, &at);
    }
    if (status != GRID_OK) {
        tell_errors(level, at == 1 ? "plugin.json" : "serving.json", status, &errors, error, size);
        grid_serving_free(fresh);
        return false;
    }
    struct grid_serving *old = module->serving;
    module->serving = fresh;
    if (!module->validating)
        grid_signals_set(module, fresh);
    grid_serving_free(old);
    return true;
}

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

/* Reads the folder again. `told`: by an event; otherwise files that did not change are passed over in silence. */
static void reload(struct grid_module *module, bool told)
{
    struct grid_buf plugin = {.limit = MAX_FILE_BYTES}, serving = {.limit = MAX_FILE_BYTES};
    char error[512] = "";
    bool good = read_folder(module, &plugin, &serving, error, sizeof(error));
    if (!good)
        grid_module_log(ENVOY_LOG_WARN, "%s", error);
    bool same = good && is_same(&plugin, &seen.plugin) && is_same(&serving, &seen.serving);
    if (same) {
        grid_buf_done(&plugin);
        grid_buf_done(&serving);
        if (hear(module, false))
            module->handled_ms = grid_module_now_ms();
        else if (told && grid_module_now_ms() - module->handled_ms > LATE_EVENT_MS)
            grid_count_reload(module->router, GRID_RELOAD_REUSED);
        return;
    }
    module->handled_ms = grid_module_now_ms();
    good = good && load(module, &plugin, &serving, ENVOY_LOG_WARN, error, sizeof(error));
    keep_seen(&plugin, &serving);
    grid_count_reload(module->router, good ? GRID_RELOAD_APPLIED : GRID_RELOAD_REJECTED);
    note_reload(good ? "applied" : "rejected", grid_bridge_text(error), 1);
    if (good)
        grid_module_log(ENVOY_LOG_INFO, "configuration applied: %zu candidates", module->serving->n_candidates);
    else
        grid_module_log(ENVOY_LOG_WARN, "configuration rejected, the old one stays in force");
    hear(module, false);
}

/* ---- start and end ------------------------------------------------------------------------------------------- */

/* "FOLDER\nMAX_BODY_BYTES"; the second line may be absent. */
static bool read_extension_config(struct grid_module *module, struct grid_str text)
{
    const char *line = text.len > 0 ? memchr(text.ptr, '\n', text.len) : NULL;
    size_t len = line ? (size_t)(line - text.ptr) : text.len;
    if (len == 0 || len >= sizeof(module->folder) || memchr(text.ptr, '\0', text.len))
        return false;
    memcpy(module->folder, text.ptr, len);
    module->max_body_bytes = GRID_DEFAULT_MAX_BODY_BYTES;
    if (!line || len + 1 == text.len)
        return true;
    uint64_t bytes = 0;
    for (size_t i = len + 1; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || bytes > UINT64_MAX / 100)
            return false;
        bytes = bytes * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    module->max_body_bytes = bytes;
    return bytes > 0;
}

static bool make_router(struct grid_module *module)
{
    uint64_t seeds[2];
    struct grid_options options = {0};
    if (getrandom(seeds, sizeof(seeds), 0) != (ssize_t)sizeof(seeds))
        return false;
    options.hash_seed = seeds[0];
    options.dice_seed = seeds[1];
    return grid_router_new(&options, &module->router) == GRID_OK;
}

/* The first configuration; all of it must be good. */
static bool first_load(struct grid_module *module)
{
    struct grid_buf plugin = {.limit = MAX_FILE_BYTES}, serving = {.limit = MAX_FILE_BYTES};
    char error[512] = "";
    bool good = read_folder(module, &plugin, &serving, error, sizeof(error));
    if (!good)
        grid_module_log(ENVOY_LOG_ERROR, "%s", error);
    good = good && load(module, &plugin, &serving, ENVOY_LOG_ERROR, error, sizeof(error));
    keep_seen(&plugin, &serving);
    if (good)
        note_reload("applied", GRID_TEXT(""), 1);
    hear(module, true);
    return good;
}

static void free_module(struct grid_module *module)
{
    atomic_store_explicit(&current, NULL, memory_order_release);
    grid_signals_stop();
    grid_admin_free();
    grid_router_free(module->router);
    grid_serving_free(module->serving);
    grid_buf_done(&seen.plugin);
    grid_buf_done(&seen.serving);
    seen.told = (struct grid_told){0};
    free(module);
}

static bool start(struct grid_module *module, struct grid_str config)
{
    if (!read_extension_config(module, config)) {
        grid_module_log(ENVOY_LOG_ERROR, "extension_config: wanted the state folder and, on a second line, the most "
                                         "bytes of a body");
        return false;
    }
    if (!make_router(module) || !first_load(module))
        return false;
    grid_admin_define(module);
    return true;
}

const char *ON(program_init)(void)
{
    return ENVOY_ABI_VERSION;
}

void *ON(bootstrap_extension_config_new)(void *envoy, struct grid_str name, struct grid_str config)
{
    (void)name;
    struct grid_module *module = calloc(1, sizeof(*module));
    if (!module)
        return NULL;
    module->envoy = envoy;
    module->validating = ENVOY(is_validation_mode)();
    module->failover_max_body_bytes = FAILOVER_MAX_BODY_BYTES;
    if (!start(module, config)) {
        free_module(module);
        return NULL;
    }
    atomic_store_explicit(&current, module, memory_order_release);
    if (module->validating) {
        ENVOY(bootstrap_extension_config_signal_init_complete)(envoy);
        return module;
    }
    module->next_check_ms = grid_module_now_ms() + CHECK_MS;
    module->reload_timer = ENVOY(bootstrap_extension_timer_new)(envoy);
    module->tick_timer = ENVOY(bootstrap_extension_timer_new)(envoy);
    ENVOY(bootstrap_extension_timer_enable)(module->tick_timer, TICK_MS);
    return module;
}

void ON(bootstrap_extension_config_destroy)(void *config)
{
    free_module(config);
}

void *ON(bootstrap_extension_new)(void *config, void *envoy)
{
    (void)envoy;
    return config;
}

void ON(bootstrap_extension_destroy)(void *extension)
{
    (void)extension;
}

void ON(bootstrap_extension_server_initialized)(void *envoy, void *extension)
{
    static const char *const files[] = {"plugin.json", "serving.json", "reload"};
    struct grid_module *module = extension;
    char path[GRID_MODULE_MAX_PATH + 32];
    (void)envoy;
    if (module->validating)
        return;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", module->folder, files[i]);
        if (!ENVOY(bootstrap_extension_file_watcher_add_watch)(module->envoy, grid_bridge_text(path),
                                                               ENVOY_FILE_MOVED_TO | ENVOY_FILE_MODIFIED))
            grid_module_log(ENVOY_LOG_WARN, "%s: no watch, read every %d s instead", path, CHECK_MS / 1000);
    }
    ENVOY(bootstrap_extension_register_admin_handler)
    (module->envoy, GRID_TEXT("/metrics"), GRID_TEXT("Grid Gateway: counters and gauges"), true, false);
    ENVOY(bootstrap_extension_register_admin_handler)
    (module->envoy, GRID_TEXT("/grid"), GRID_TEXT("Grid Gateway: sites, settings, last reload"), true, false);
}

void ON(bootstrap_extension_file_changed)(void *envoy, void *config, struct grid_str path, uint32_t events)
{
    struct grid_module *module = config;
    (void)envoy, (void)path, (void)events;
    if (module->reload_timer)
        ENVOY(bootstrap_extension_timer_enable)(module->reload_timer, QUIET_MS);
}

static void tick(struct grid_module *module)
{
    uint64_t now_ms = grid_module_now_ms();
    if (now_ms >= module->next_check_ms) {
        module->next_check_ms = now_ms + CHECK_MS;
        reload(module, false);
    }
    if (grid_router_refresh(module->router, now_ms) != GRID_OK)
        grid_module_log(ENVOY_LOG_WARN, "no memory for a new order of the sites; the old one stays");
    grid_admin_sync(module);
    ENVOY(bootstrap_extension_timer_enable)(module->tick_timer, TICK_MS);
}

void ON(bootstrap_extension_timer_fired)(void *envoy, void *config, void *timer)
{
    struct grid_module *module = config;
    (void)envoy;
    if (timer == module->tick_timer)
        tick(module);
    else if (timer == module->reload_timer)
        reload(module, true);
    else
        grid_signals_fired(module, timer);
}

void ON(bootstrap_extension_http_callout_done)(void *envoy, void *config, uint64_t id, int result,
                                               struct grid_header *headers, size_t n, struct grid_str *body,
                                               size_t n_body)
{
    (void)envoy;
    grid_signals_done(config, id, result, headers, n, body, n_body);
}

void ON(bootstrap_extension_drain_started)(void *envoy, void *extension)
{
    (void)envoy;
    atomic_store(&((struct grid_module *)extension)->draining, true);
}

/* Streams are still alive here: only what could still call us is stopped. */
void ON(bootstrap_extension_shutdown)(void *envoy, void *extension, void (*done)(void *context), void *context)
{
    struct grid_module *module = extension;
    (void)envoy;
    if (module->reload_timer)
        ENVOY(bootstrap_extension_timer_delete)(module->reload_timer);
    if (module->tick_timer)
        ENVOY(bootstrap_extension_timer_delete)(module->tick_timer);
    module->reload_timer = module->tick_timer = NULL;
    grid_signals_stop();
    done(context);
}

/* Hooks that Envoy insists on and that we have no use for. */
void ON(bootstrap_extension_worker_thread_initialized)(void *envoy, void *extension)
{
    (void)envoy, (void)extension;
}

void ON(bootstrap_extension_config_scheduled)(void *envoy, void *config, uint64_t event)
{
    (void)envoy, (void)config, (void)event;
}

void ON(bootstrap_extension_cluster_add_or_update)(void *envoy, void *config, struct grid_str name)
{
    (void)envoy, (void)config, (void)name;
}

void ON(bootstrap_extension_cluster_removal)(void *envoy, void *config, struct grid_str name)
{
    (void)envoy, (void)config, (void)name;
}

void ON(bootstrap_extension_listener_add_or_update)(void *envoy, void *config, struct grid_str name)
{
    (void)envoy, (void)config, (void)name;
}

void ON(bootstrap_extension_listener_removal)(void *envoy, void *config, struct grid_str name)
{
    (void)envoy, (void)config, (void)name;
}
