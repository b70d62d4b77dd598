/*
 * fake_envoy.c - callbacks of Envoy as the module's tests need them, and the drivers of its process
 */
#include "tests/support/fake_envoy.h"
#include "tests/support/fake_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TIMERS = 8, MAX_COUNTERS = 512 };

struct fake_cluster fake_clusters[8];
bool fake_validating;
int fake_init_completes, fake_timers_alive, fake_callout_result;
char fake_log[65536], fake_admin_page[1 << 20], fake_callout_path[1100];
bool fake_callout_done_inside;
uint64_t fake_last_callout;
struct fake_callout fake_callouts[FAKE_CALLOUTS];

static struct timer {
    bool made, enabled;
} timers[MAX_TIMERS];
static struct counter {
    char name[100], labels[400];
    uint64_t value;
} counters[MAX_COUNTERS];
static size_t n_counters, n_families;
static char families[64][100];
static bool in_config_new;
void *fake_specifier, *fake_filter_configs[2];
static void *module, *extension;
static char envoy_token; /* what the module hands back as "envoy" */

const char *fake_header(const struct fake_headers *headers, const char *name)
{
    static char value[1024];
    for (size_t i = 0; i < headers->n; i++) {
        if (same(headers->items[i].name, text_of(name))) {
            snprintf(value, sizeof(value), "%.*s", (int)headers->items[i].value.len, headers->items[i].value.ptr);
            return value;
        }
    }
    return NULL;
}

/* ---- callbacks: process and stream --------------------------------------------------------------------------- */

void ENVOY(log)(int level, struct grid_str text)
{
    size_t used = strlen(fake_log);
    if (used + text.len + 8 < sizeof(fake_log))
        snprintf(fake_log + used, sizeof(fake_log) - used, "%d %.*s\n", level, (int)text.len, text.ptr);
}

bool ENVOY(log_enabled)(int level)
{
    return level >= ENVOY_LOG_INFO;
}

bool ENVOY(is_validation_mode)(void)
{
    return fake_validating;
}

size_t ENVOY(http_get_headers_size)(void *stream, int map)
{
    return ((struct fake_stream *)stream)->headers[map].n;
}

bool ENVOY(http_get_headers)(void *stream, int map, struct grid_header *out)
{
    const struct fake_headers *headers = &((struct fake_stream *)stream)->headers[map];
    memcpy(out, headers->items, headers->n * sizeof(*out));
    return true;
}

bool ENVOY(http_get_header)(void *stream, int map, struct grid_str name, struct grid_str *out, size_t index,
                            size_t *out_count)
{
    const struct fake_headers *headers = &((struct fake_stream *)stream)->headers[map];
    size_t found = 0;
    *out = (struct grid_str){NULL, 0};
    for (size_t i = 0; i < headers->n; i++) {
        if (same(headers->items[i].name, name) && found++ == index)
            *out = headers->items[i].value;
    }
    if (out_count)
        *out_count = found;
    return out->ptr != NULL;
}

bool ENVOY(http_set_header)(void *stream, int map, struct grid_str name, struct grid_str value)
{
    struct fake_headers *headers = &((struct fake_stream *)stream)->headers[map];
    struct grid_header item = {fresh(name), {NULL, 0}};
    if (value.ptr)
        item.value = fresh(value);
    remove_header(headers, item.name);
    move_headers(headers);
    if (value.ptr)
        add_header(headers, item.name, item.value);
    drop(item.name);
    drop(item.value);
    return true;
}

bool ENVOY(http_add_header)(void *stream, int map, struct grid_str name, struct grid_str value)
{
    struct fake_headers *headers = &((struct fake_stream *)stream)->headers[map];
    move_headers(headers);
    add_header(headers, name, value);
    return true;
}

static struct fake_body *body_of(void *stream, int body)
{
    struct fake_stream *s = stream;
    if (body == ENVOY_REQUEST_RECEIVED && s->received_is_buffered)
        body = ENVOY_REQUEST_BUFFERED;
    return &s->bodies[body];
}

size_t ENVOY(http_get_body_size)(void *stream, int body)
{
    return body_of(stream, body)->bytes;
}

size_t ENVOY(http_get_body_chunks_size)(void *stream, int body)
{
    return body_of(stream, body)->n;
}

bool ENVOY(http_get_body_chunks)(void *stream, int body, struct grid_str *out)
{
    const struct fake_body *b = body_of(stream, body);
    memcpy(out, b->slices, b->n * sizeof(*out));
    return b->n > 0;
}

bool ENVOY(http_drain_body)(void *stream, int body, size_t bytes)
{
    if (bytes > body_of(stream, body)->bytes)
        abort(); /* more than there is */
    drain_body(body_of(stream, body), bytes);
    return true;
}

bool ENVOY(http_append_body)(void *stream, int body, struct grid_str bytes)
{
    add_slice(body_of(stream, body), bytes.ptr, bytes.len);
    return true;
}

bool ENVOY(http_received_buffered_request_body)(void *stream)
{
    return ((struct fake_stream *)stream)->received_is_buffered;
}

void ENVOY(http_set_buffer_limit)(void *stream, uint64_t bytes)
{
    ((struct fake_stream *)stream)->buffer_limit = bytes;
}

void ENVOY(http_send_response)(void *stream, uint32_t status, const struct grid_header *headers, size_t n,
                               struct grid_str body, struct grid_str details)
{
    struct fake_stream *s = stream;
    if (s->reply_status != 0)
        abort(); /* one answer a stream */
    s->reply_status = (int)status;
    s->reply_body = malloc(body.len + 1); /* the view may end with what it is of, so no strndup */
    if (!s->reply_body)
        abort();
    memcpy(s->reply_body, body.len ? body.ptr : "", body.len);
    s->reply_body[body.len] = 0;
    snprintf(s->reply_details, sizeof(s->reply_details), "%.*s", (int)details.len, details.ptr);
    for (size_t i = 0; i < n; i++)
        add_header(&s->reply_headers, headers[i].name, headers[i].value);
    ON(http_filter_local_reply)(s, s->filter, status, details, false);
}

void ENVOY(http_clear_route_cluster_cache)(void *stream)
{
    struct fake_stream *s = stream;
    char again[sizeof(s->cluster)];
    for (int i = 0; i < s->selects; i++) {
        memcpy(again, s->cluster, sizeof(again));
        bool chosen = ON(cluster_specifier_select)(fake_specifier, s);
        if (i > 0 && (chosen != (again[0] != '\0') || strcmp(again, s->cluster) != 0))
            abort(); /* asked again, the same answer */
    }
}

bool ENVOY(http_filter_get_attribute_int)(void *stream, int attribute, uint64_t *out)
{
    if (attribute != ENVOY_ATTRIBUTE_RESPONSE_FLAGS)
        return false;
    *out = ((struct fake_stream *)stream)->flags;
    return true;
}

bool ENVOY(cluster_specifier_get_cluster_host_count)(void *context, struct grid_str cluster, uint32_t priority,
                                                     size_t *out_total, size_t *out_healthy, size_t *out_degraded)
{
    (void)context, (void)priority;
    for (size_t i = 0; i < sizeof(fake_clusters) / sizeof(fake_clusters[0]); i++) {
        if (!fake_clusters[i].name || !same(text_of(fake_clusters[i].name), cluster))
            continue;
        *out_total = fake_clusters[i].total;
        *out_healthy = fake_clusters[i].healthy;
        *out_degraded = 0;
        return true;
    }
    return false;
}

void ENVOY(cluster_specifier_set_cluster_name)(void *context, struct grid_str cluster)
{
    struct fake_stream *s = context;
    snprintf(s->cluster, sizeof(s->cluster), "%.*s", (int)cluster.len, cluster.ptr);
}

/* ---- callbacks: bootstrap extension --------------------------------------------------------------------------- */

void ENVOY(bootstrap_extension_config_signal_init_complete)(void *config)
{
    (void)config;
    fake_init_completes++;
}

int ENVOY(bootstrap_extension_http_callout)(void *config, uint64_t *out_id, struct grid_str cluster,
                                            const struct grid_header *headers, size_t n, struct grid_str body,
                                            uint64_t timeout_ms)
{
    (void)body, (void)timeout_ms;
    for (size_t i = 0; i < n; i++) {
        if (same(headers[i].name, text_of(":path")))
            snprintf(fake_callout_path, sizeof(fake_callout_path), "%.*s", (int)headers[i].value.len,
                     headers[i].value.ptr);
    }
    if (fake_callout_done_inside) {
        struct grid_header status = {text_of(":status"), text_of("503")};
        ON(bootstrap_extension_http_callout_done)(config, module, 0, ENVOY_CALLOUT_DONE, &status, 1, NULL, 0);
    }
    *out_id = ++fake_last_callout;
    struct fake_callout *callout = &fake_callouts[fake_last_callout % FAKE_CALLOUTS];
    callout->id = fake_last_callout;
    snprintf(callout->cluster, sizeof(callout->cluster), "%.*s", (int)cluster.len, cluster.ptr);
    for (size_t i = 0; i < n; i++) {
        if (same(headers[i].name, text_of("host")))
            snprintf(callout->host, sizeof(callout->host), "%.*s", (int)headers[i].value.len, headers[i].value.ptr);
    }
    return fake_callout_result;
}

void *ENVOY(bootstrap_extension_timer_new)(void *config)
{
    (void)config;
    for (size_t i = 0; i < MAX_TIMERS; i++) {
        if (timers[i].made)
            continue;
        timers[i] = (struct timer){true, false};
        fake_timers_alive++;
        return &timers[i];
    }
    abort();
}

void ENVOY(bootstrap_extension_timer_enable)(void *timer, uint64_t ms)
{
    (void)ms;
    if (!((struct timer *)timer)->made)
        abort();
    ((struct timer *)timer)->enabled = true;
}

void ENVOY(bootstrap_extension_timer_delete)(void *timer)
{
    if (!((struct timer *)timer)->made)
        abort();
    ((struct timer *)timer)->made = false;
    fake_timers_alive--;
}

bool ENVOY(bootstrap_extension_file_watcher_add_watch)(void *config, struct grid_str path, uint32_t events)
{
    (void)config, (void)path, (void)events;
    return true;
}

bool ENVOY(bootstrap_extension_register_admin_handler)(void *config, struct grid_str path, struct grid_str help,
                                                       bool removable, bool mutates)
{
    (void)config, (void)path, (void)help, (void)removable, (void)mutates;
    return true;
}

void ENVOY(bootstrap_extension_admin_set_response)(void *config, struct grid_str body)
{
    (void)config;
    snprintf(fake_admin_page, sizeof(fake_admin_page), "%.*s", (int)body.len, body.ptr);
}

/* "cluster.NAME.membership_total" and "..._healthy" */
bool ENVOY(bootstrap_extension_get_gauge_value)(void *envoy, struct grid_str name, uint64_t *out)
{
    char wanted[400];
    if (envoy != &envoy_token)
        abort();
    for (size_t i = 0; i < sizeof(fake_clusters) / sizeof(fake_clusters[0]) && fake_clusters[i].name; i++) {
        snprintf(wanted, sizeof(wanted), "cluster.%s.membership_total", fake_clusters[i].name);
        bool total = same(name, text_of(wanted));
        snprintf(wanted, sizeof(wanted), "cluster.%s.membership_healthy", fake_clusters[i].name);
        *out = total ? fake_clusters[i].total : fake_clusters[i].healthy;
        if (total || same(name, text_of(wanted)))
            return true;
    }
    return false;
}

int ENVOY(bootstrap_extension_config_define_counter)(void *config, struct grid_str name, const struct grid_str *labels,
                                                     size_t n, size_t *out_id)
{
    (void)config, (void)labels, (void)n;
    if (!in_config_new)
        abort(); /* Envoy's metrics are frozen by then */
    snprintf(families[n_families], sizeof(families[0]), "%.*s", (int)name.len, name.ptr);
    *out_id = n_families++;
    return ENVOY_METRIC_OK;
}

static struct counter *find_counter(const char *name, const char *labels)
{
    for (size_t i = 0; i < n_counters; i++) {
        if (strcmp(counters[i].name, name) == 0 && strcmp(counters[i].labels, labels) == 0)
            return &counters[i];
    }
    return NULL;
}

int ENVOY(bootstrap_extension_config_increment_counter)(void *config, size_t id, const struct grid_str *values,
                                                        size_t n, uint64_t by)
{
    char labels[400] = "";
    (void)config;
    for (size_t i = 0; i < n; i++)
        snprintf(labels + strlen(labels), sizeof(labels) - strlen(labels), "%s%.*s", i ? "," : "", (int)values[i].len,
                 values[i].ptr);
    struct counter *counter = find_counter(families[id], labels);
    if (!counter) {
        counter = &counters[n_counters++];
        snprintf(counter->name, sizeof(counter->name), "%s", families[id]);
        snprintf(counter->labels, sizeof(counter->labels), "%s", labels);
        counter->value = 0;
    }
    counter->value += by;
    return ENVOY_METRIC_OK;
}

uint64_t fake_counter(const char *name, const char *labels)
{
    const struct counter *counter = find_counter(name, labels);
    return counter ? counter->value : UINT64_MAX;
}

/* ---- driving the process ------------------------------------------------------------------------------------- */

bool fake_start(const char *extension_config)
{
    n_counters = n_families = 0;
    fake_log[0] = '\0';
    in_config_new = true;
    module = ON(bootstrap_extension_config_new)(&envoy_token, text_of("grid"), text_of(extension_config));
    in_config_new = false;
    if (!module)
        return false;
    extension = ON(bootstrap_extension_new)(module, &envoy_token);
    fake_specifier = ON(cluster_specifier_config_new)(&envoy_token, text_of("grid"), text_of(""));
    fake_filter_configs[0] = ON(http_filter_config_new)(&envoy_token, text_of("grid_site_route"), text_of(""));
    fake_filter_configs[1] = ON(http_filter_config_new)(&envoy_token, text_of("grid_ops"), text_of("explain"));
    ON(bootstrap_extension_server_initialized)(&envoy_token, extension);
    return fake_specifier && fake_filter_configs[0] && fake_filter_configs[1];
}

static void shut_down(void *context)
{
    ++*(int *)context;
}

/* In the order that Envoy has: shutdown first, the bootstrap config last. */
void fake_stop(void)
{
    int done = 0;
    ON(bootstrap_extension_drain_started)(&envoy_token, extension);
    ON(bootstrap_extension_shutdown)(&envoy_token, extension, shut_down, &done);
    if (done != 1 || fake_timers_alive != 0)
        abort(); /* Envoy must hear of it, once; timers must not outlive its event loop */
    ON(http_filter_config_destroy)(fake_filter_configs[0]);
    ON(http_filter_config_destroy)(fake_filter_configs[1]);
    ON(cluster_specifier_config_destroy)(fake_specifier);
    ON(bootstrap_extension_destroy)(extension);
    ON(bootstrap_extension_config_destroy)(module);
}

void fake_fire_timers(void)
{
    struct timer before[MAX_TIMERS];
    memcpy(before, timers, sizeof(before));
    for (size_t i = 0; i < MAX_TIMERS; i++) {
        if (!before[i].made || !before[i].enabled)
            continue;
        timers[i].enabled = false;
        ON(bootstrap_extension_timer_fired)(&envoy_token, module, &timers[i]);
    }
}

void fake_touch(void)
{
    ON(bootstrap_extension_file_changed)(&envoy_token, module, text_of("serving.json"), ENVOY_FILE_MOVED_TO);
}

bool fake_finish_callout_to(const char *name, int result, const char *body)
{
    struct grid_header status = {text_of(":status"), text_of("200")};
    for (size_t i = 0; i < FAKE_CALLOUTS; i++) {
        uint64_t id = fake_callouts[i].id;
        if (id == 0 || (strcmp(fake_callouts[i].cluster, name) != 0 && strcmp(fake_callouts[i].host, name) != 0))
            continue;
        fake_callouts[i].id = 0;
        struct grid_str slice = fresh(text_of(body));
        ON(bootstrap_extension_http_callout_done)(&envoy_token, module, id, result, &status, 1, &slice, 1);
        drop(slice);
        return true;
    }
    return false;
}

void fake_finish_callout(int result, const char *status, const char *location, const char *body)
{
    struct grid_header headers[2] = {{text_of(":status"), text_of(status)}, {text_of("location"), text_of(location)}};
    struct grid_str slice = fresh(text_of(body));
    ON(bootstrap_extension_http_callout_done)(&envoy_token, module, fake_last_callout, result, headers, 2, &slice, 1);
    drop(slice);
}

uint32_t fake_admin(const char *path)
{
    return ON(bootstrap_extension_admin_request)(&envoy_token, module, text_of("GET"), text_of(path), text_of(""));
}
