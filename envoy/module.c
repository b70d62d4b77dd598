/*
 * module.c - the module as a whole: its start, its timers, its end
 *
 * Story     Envoy configures the bootstrap extension first, with "FOLDER\nMAX_BODY_BYTES\nFAILOVER_MAX_BODY_BYTES". The
 *           router is made and the first configuration loaded here; after that a tick keeps counters and the order of
 *           sites fresh and has the folder looked at now and then, and a watched file's event has it looked at soon.
 * Promise   At the start a configuration that the core refuses stops Envoy, with the reasons in its log.
 * Threads   Main thread, but for grid_module_get, grid_module_log and the clock.
 * Not here  The files of the configuration (folder.c).
 */
#include "history.h"
#include "keyfile.h"
#include "trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

enum {
    QUIET_MS = 100, /* a change comes as several events, and often in two files */
    TICK_MS = 250,  /* counters in Envoy's store lag by this much */
    FAILOVER_MAX_BODY_BYTES = 1 << 20,
    CLOCK_BASE_S = 86400 /* a day: no window reaches back before the clock's start */
};

#define NS_A_SECOND 1000000000u
#define NS_A_MILLISECOND 1000000u

static _Atomic(struct grid_module *) current;

struct grid_module *grid_module_get(void)
{
    return atomic_load_explicit(&current, memory_order_acquire);
}

uint64_t grid_module_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec + CLOCK_BASE_S) * NS_A_SECOND + (uint64_t)now.tv_nsec;
}

uint64_t grid_module_now_ms(void)
{
    return grid_module_now_ns() / NS_A_MILLISECOND;
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

/* ---- start and end ------------------------------------------------------------------------------------------- */

/* The next line, which is taken off the text. */
static struct grid_str take_line(struct grid_str *text)
{
    const char *end = text->len > 0 ? memchr(text->ptr, '\n', text->len) : NULL;
    struct grid_str line = {text->ptr, end ? (size_t)(end - text->ptr) : text->len};
    size_t passed = line.len + (end ? 1 : 0);
    text->ptr += passed;
    text->len -= passed;
    return line;
}

/* A line without anything leaves the default. */
static bool read_bytes(struct grid_str line, uint64_t *bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < line.len; i++) {
        if (line.ptr[i] < '0' || line.ptr[i] > '9' || value > UINT64_MAX / 100)
            return false;
        value = value * 10 + (uint64_t)(line.ptr[i] - '0');
    }
    *bytes = line.len > 0 ? value : *bytes;
    return true;
}

static bool read_path(struct grid_str line, char path[GRID_MODULE_MAX_PATH])
{
    if (line.len == 0 || line.len >= GRID_MODULE_MAX_PATH || memchr(line.ptr, '\0', line.len))
        return false;
    memcpy(path, line.ptr, line.len);
    path[line.len] = '\0';
    return true;
}

/* Where key streams are recorded: three lines, or none. */
struct recording {
    char path[GRID_MODULE_MAX_PATH], secret_path[GRID_MODULE_MAX_PATH];
    uint64_t max_bytes;
};

static bool read_recording(struct grid_str text, struct recording *out)
{
    out->path[0] = '\0';
    return text.len == 0 || (read_path(take_line(&text), out->path) && read_path(take_line(&text), out->secret_path) &&
                             read_bytes(take_line(&text), &out->max_bytes) && text.len == 0);
}

/* "FOLDER\nMAX_BODY_BYTES\nFAILOVER_MAX_BODY_BYTES\nTRACE_PATH\nTRACE_SECRET_PATH\nTRACE_MAX_BYTES"; what stands behind
 * the folder may be absent, line by line, and the last three together. */
static bool read_extension_config(struct grid_module *module, struct grid_str text, struct recording *recording)
{
    module->max_body_bytes = GRID_DEFAULT_MAX_BODY_BYTES;
    module->failover_max_body_bytes = FAILOVER_MAX_BODY_BYTES;
    recording->max_bytes = UINT64_MAX;
    return text.len > 0 && read_path(take_line(&text), module->folder) &&
           read_bytes(take_line(&text), &module->max_body_bytes) && module->max_body_bytes > 0 &&
           read_bytes(take_line(&text), &module->failover_max_body_bytes) && read_recording(text, recording);
}

/* `secret`: of a recording, {NULL,0} without one. Under it all replicas have the same keys, which nobody else can make.
 */
static bool make_router(struct grid_module *module, struct grid_str secret)
{
    uint64_t seeds[2];
    struct grid_options options = {0};
    if (getrandom(seeds, sizeof(seeds), 0) != (ssize_t)sizeof(seeds))
        return false;
    options.hash_seed = secret.ptr ? grid_record_seed(secret) : seeds[0];
    options.dice_seed = seeds[1];
    return grid_router_new(&options, &module->router) == GRID_OK;
}

/* The router, and the recording if one is wanted: its secret seeds the router's keys. */
static bool make_recorded_router(struct grid_module *module, const struct recording *recording)
{
    struct grid_keyfile_set secret = {0};
    char error[512] = "";
    if (recording->path[0] == '\0')
        return make_router(module, (struct grid_str){NULL, 0});
    bool good = grid_keyfile_add("trace_keys.secret_path", recording->secret_path, &secret, error, sizeof(error)) &&
                make_router(module, secret.keys[0]) &&
                (module->validating || grid_trace_start(module->router, recording->path, recording->max_bytes,
                                                        secret.keys[0], error, sizeof(error)));
    if (error[0])
        grid_module_log(ENVOY_LOG_ERROR, "%s", error);
    grid_keyfile_wipe(&secret);
    return good;
}

static void free_module(struct grid_module *module)
{
    atomic_store_explicit(&current, NULL, memory_order_release);
    grid_signals_stop();
    grid_trace_stop();
    grid_health_free();
    grid_history_free();
    grid_admin_free();
    grid_router_free(module->router);
    grid_serving_free(module->serving);
    grid_folder_free();
    free(module);
}

static bool start(struct grid_module *module, struct grid_str config)
{
    struct recording recording;
    if (!read_extension_config(module, config, &recording)) {
        grid_module_log(ENVOY_LOG_ERROR, "extension_config: wanted the state folder and, on lines of their own, the "
                                         "most bytes of a body and of one that is kept for failover, then file, secret "
                                         "and most bytes of a recording");
        return false;
    }
    if (!make_recorded_router(module, &recording) || !grid_folder_first(module))
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
    if (!start(module, config)) {
        free_module(module);
        return NULL;
    }
    atomic_store_explicit(&current, module, memory_order_release);
    if (module->validating) {
        ENVOY(bootstrap_extension_config_signal_init_complete)(envoy);
        return module;
    }
    module->next_check_ms = grid_module_now_ms() + GRID_FOLDER_CHECK_MS;
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
    ((struct grid_module *)config)->extension = envoy;
    return config;
}

void ON(bootstrap_extension_destroy)(void *extension)
{
    (void)extension;
}

void ON(bootstrap_extension_server_initialized)(void *envoy, void *extension)
{
    struct grid_module *module = extension;
    (void)envoy;
    if (module->validating)
        return;
    grid_folder_watch(module);
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
        module->next_check_ms = now_ms + GRID_FOLDER_CHECK_MS;
        grid_folder_reload(module, false);
    }
    if (grid_router_refresh(module->router, now_ms) != GRID_OK)
        grid_module_log(ENVOY_LOG_WARN, "no memory for a new order of the sites; the old one stays");
    grid_health_refresh(module, now_ms);
    grid_history_tick(module, now_ms);
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
        grid_folder_reload(module, true);
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
