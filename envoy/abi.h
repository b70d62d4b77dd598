/*
 * abi.h - what this module and Envoy 1.40.0 call each other
 *
 * Story     Envoy ships no header for modules written in C with its binary. These are our own declarations of the
 *           callbacks that we call and of the hooks that Envoy looks up by name, and no more. `scripts/check-abi`
 *           compares them with the binary, since Envoy itself accepts any version.
 * Promise   Texts and headers cross the border as struct grid_str and struct grid_header: pointer and length, which is
 *           exactly what Envoy passes. What Envoy hands in is valid until the hook returns or a setter is called; what
 *           we hand out is copied before the call returns.
 * Threads   HTTP filter and cluster specifier: the worker of the stream. Bootstrap extension: the main thread, but
 *           for incrementing counters, which is safe anywhere.
 */
#ifndef GRID_ENVOY_ABI_H
#define GRID_ENVOY_ABI_H

#include "grid/grid.h"

#define ENVOY_ABI_VERSION "v0.2.0"

/* Short forms: ENVOY(log)(...) calls Envoy, ON(program_init) is a hook of ours. */
#define ENVOY(name) envoy_dynamic_module_callback_##name
#define ON(name) envoy_dynamic_module_on_##name
#define GRID_HOOK __attribute__((visibility("default")))

enum { ENVOY_REQUEST_HEADERS = 0, ENVOY_REQUEST_TRAILERS, ENVOY_RESPONSE_HEADERS };
enum { ENVOY_REQUEST_RECEIVED = 0, ENVOY_REQUEST_BUFFERED, ENVOY_RESPONSE_RECEIVED, ENVOY_RESPONSE_BUFFERED };
enum { ENVOY_HEADERS_CONTINUE = 0, ENVOY_HEADERS_STOP };
enum { ENVOY_BODY_CONTINUE = 0, ENVOY_BODY_STOP_AND_BUFFER, ENVOY_BODY_STOP = 3 };
enum { ENVOY_TRAILERS_CONTINUE = 0, ENVOY_TRAILERS_STOP };
enum { ENVOY_LOCAL_REPLY_CONTINUE = 0 };
enum { ENVOY_LOG_DEBUG = 1, ENVOY_LOG_INFO, ENVOY_LOG_WARN, ENVOY_LOG_ERROR };
enum { ENVOY_METRIC_OK = 0 };
enum { ENVOY_CALLOUT_STARTED = 0, ENVOY_CALLOUT_NO_CLUSTER = 2 };
enum { ENVOY_CALLOUT_DONE = 0, ENVOY_CALLOUT_RESET, ENVOY_CALLOUT_TOO_BIG };
enum { ENVOY_FILE_MOVED_TO = 1, ENVOY_FILE_MODIFIED = 2 };
enum { ENVOY_ATTRIBUTE_RESPONSE_FLAGS = 17, ENVOY_ATTRIBUTE_UPSTREAM_LOCAL_ADDRESS = 51 };

/* Bits of ENVOY_ATTRIBUTE_RESPONSE_FLAGS, as far as we ask. */
#define ENVOY_FLAG_NO_HEALTHY_UPSTREAM 0x2u
#define ENVOY_FLAG_UPSTREAM_TIMEOUT 0x4u
#define ENVOY_FLAG_LOCAL_RESET 0x8u
#define ENVOY_FLAG_UPSTREAM_REMOTE_RESET 0x10u
#define ENVOY_FLAG_UPSTREAM_CONNECT_FAILURE 0x20u
#define ENVOY_FLAG_UPSTREAM_TERMINATION 0x40u
#define ENVOY_FLAG_UPSTREAM_OVERFLOW 0x80u

/* ---- callbacks: the process ---------------------------------------------------------------------------------- */

void envoy_dynamic_module_callback_log(int level, struct grid_str text);
bool envoy_dynamic_module_callback_log_enabled(int level);
bool envoy_dynamic_module_callback_is_validation_mode(void);

/* ---- callbacks: an HTTP stream ------------------------------------------------------------------------------- */

size_t envoy_dynamic_module_callback_http_get_headers_size(void *stream, int map);
bool envoy_dynamic_module_callback_http_get_headers(void *stream, int map, struct grid_header *out);
bool envoy_dynamic_module_callback_http_get_header(void *stream, int map, struct grid_str name, struct grid_str *out,
                                                   size_t index, size_t *out_count);
/* Replaces; a value of {NULL, 0} removes. */
bool envoy_dynamic_module_callback_http_set_header(void *stream, int map, struct grid_str name, struct grid_str value);
/* Adds, also beside one of that name. */
bool envoy_dynamic_module_callback_http_add_header(void *stream, int map, struct grid_str name, struct grid_str value);
size_t envoy_dynamic_module_callback_http_get_body_size(void *stream, int body);
size_t envoy_dynamic_module_callback_http_get_body_chunks_size(void *stream, int body);
bool envoy_dynamic_module_callback_http_get_body_chunks(void *stream, int body, struct grid_str *out);
/* From the front. */
bool envoy_dynamic_module_callback_http_drain_body(void *stream, int body, size_t bytes);
/* At the end. Slices that are there stay where they are. While the trailers hook runs, what is appended to a buffer
 * that does not exist goes on at once, ahead of the trailers. */
bool envoy_dynamic_module_callback_http_append_body(void *stream, int body, struct grid_str bytes);
/* True: what is "received" is what an earlier filter buffered, so it must not be read twice. */
bool envoy_dynamic_module_callback_http_received_buffered_request_body(void *stream);
void envoy_dynamic_module_callback_http_set_buffer_limit(void *stream, uint64_t bytes);
void envoy_dynamic_module_callback_http_send_response(void *stream, uint32_t status, const struct grid_header *headers,
                                                      size_t n, struct grid_str body, struct grid_str details);
void envoy_dynamic_module_callback_http_set_dynamic_metadata_number(void *stream, struct grid_str space,
                                                                    struct grid_str key, double value);
/* The whole name space at once; `bytes` is a google.protobuf.Struct. */
bool envoy_dynamic_module_callback_http_set_dynamic_metadata_struct(void *stream, struct grid_str space,
                                                                    struct grid_str bytes);
/* Chooses the cluster anew: calls cluster_specifier_select before it returns. */
void envoy_dynamic_module_callback_http_clear_route_cluster_cache(void *stream);
bool envoy_dynamic_module_callback_http_filter_get_attribute_int(void *stream, int attribute, uint64_t *out);
bool envoy_dynamic_module_callback_http_filter_get_attribute_string(void *stream, int attribute, struct grid_str *out);

/* ---- callbacks: the bootstrap extension ---------------------------------------------------------------------- */

void envoy_dynamic_module_callback_bootstrap_extension_config_signal_init_complete(void *config);
int envoy_dynamic_module_callback_bootstrap_extension_http_callout(void *config, uint64_t *out_id,
                                                                   struct grid_str cluster,
                                                                   const struct grid_header *headers, size_t n,
                                                                   struct grid_str body, uint64_t timeout_ms);
void *envoy_dynamic_module_callback_bootstrap_extension_timer_new(void *config);
void envoy_dynamic_module_callback_bootstrap_extension_timer_enable(void *timer, uint64_t ms); /* fires once */
void envoy_dynamic_module_callback_bootstrap_extension_timer_delete(void *timer);
bool envoy_dynamic_module_callback_bootstrap_extension_file_watcher_add_watch(void *config, struct grid_str path,
                                                                              uint32_t events);
bool envoy_dynamic_module_callback_bootstrap_extension_register_admin_handler(void *config, struct grid_str path,
                                                                              struct grid_str help, bool removable,
                                                                              bool mutates);
void envoy_dynamic_module_callback_bootstrap_extension_admin_set_response(void *config, struct grid_str body);
/* False: there is no such gauge. */
bool envoy_dynamic_module_callback_bootstrap_extension_get_gauge_value(void *extension, struct grid_str name,
                                                                       uint64_t *out);
/* Only inside config_new. */
int envoy_dynamic_module_callback_bootstrap_extension_config_define_counter(void *config, struct grid_str name,
                                                                            const struct grid_str *labels, size_t n,
                                                                            size_t *out_id);
int envoy_dynamic_module_callback_bootstrap_extension_config_increment_counter(void *config, size_t id,
                                                                               const struct grid_str *values, size_t n,
                                                                               uint64_t by);

/* ---- callbacks: the cluster specifier (context valid only inside select) -------------------------------------- */

/* False: Envoy has no such cluster. Answers for any cluster. */
bool envoy_dynamic_module_callback_cluster_specifier_get_cluster_host_count(void *context, struct grid_str cluster,
                                                                            uint32_t priority, size_t *out_total,
                                                                            size_t *out_healthy, size_t *out_degraded);
/* False: the stream has no such number. */
bool envoy_dynamic_module_callback_cluster_specifier_get_dynamic_metadata_number(void *context, struct grid_str space,
                                                                                 struct grid_str path, double *out);
bool envoy_dynamic_module_callback_cluster_specifier_get_attribute_string(void *context, int attribute,
                                                                          struct grid_str *out);
void envoy_dynamic_module_callback_cluster_specifier_set_cluster_name(void *context, struct grid_str cluster);

/* ---- hooks: the process and the HTTP filter ------------------------------------------------------------------- */

GRID_HOOK const char *envoy_dynamic_module_on_program_init(void);

GRID_HOOK void *envoy_dynamic_module_on_http_filter_config_new(void *envoy, struct grid_str name,
                                                               struct grid_str config);
GRID_HOOK void envoy_dynamic_module_on_http_filter_config_destroy(void *config);
GRID_HOOK void *envoy_dynamic_module_on_http_filter_new(void *config, void *envoy);
GRID_HOOK void envoy_dynamic_module_on_http_filter_destroy(void *filter);
GRID_HOOK int envoy_dynamic_module_on_http_filter_request_headers(void *envoy, void *filter, bool end);
GRID_HOOK int envoy_dynamic_module_on_http_filter_request_body(void *envoy, void *filter, bool end);
GRID_HOOK int envoy_dynamic_module_on_http_filter_request_trailers(void *envoy, void *filter);
GRID_HOOK int envoy_dynamic_module_on_http_filter_response_headers(void *envoy, void *filter, bool end);
GRID_HOOK int envoy_dynamic_module_on_http_filter_response_body(void *envoy, void *filter, bool end);
GRID_HOOK int envoy_dynamic_module_on_http_filter_response_trailers(void *envoy, void *filter);
GRID_HOOK void envoy_dynamic_module_on_http_filter_stream_complete(void *envoy, void *filter);
GRID_HOOK int envoy_dynamic_module_on_http_filter_local_reply(void *envoy, void *filter, uint32_t status,
                                                              struct grid_str details, bool reset);
GRID_HOOK void envoy_dynamic_module_on_http_filter_scheduled(void *envoy, void *filter, uint64_t event);
GRID_HOOK void envoy_dynamic_module_on_http_filter_http_callout_done(void *envoy, void *filter, uint64_t id, int result,
                                                                     struct grid_header *headers, size_t n,
                                                                     struct grid_str *body, size_t n_body);
GRID_HOOK void envoy_dynamic_module_on_http_filter_http_stream_headers(void *envoy, void *filter, uint64_t id,
                                                                       struct grid_header *headers, size_t n, bool end);
GRID_HOOK void envoy_dynamic_module_on_http_filter_http_stream_data(void *envoy, void *filter, uint64_t id,
                                                                    const struct grid_str *body, size_t n, bool end);
GRID_HOOK void envoy_dynamic_module_on_http_filter_http_stream_trailers(void *envoy, void *filter, uint64_t id,
                                                                        struct grid_header *headers, size_t n);
GRID_HOOK void envoy_dynamic_module_on_http_filter_http_stream_complete(void *envoy, void *filter, uint64_t id);
GRID_HOOK void envoy_dynamic_module_on_http_filter_http_stream_reset(void *envoy, void *filter, uint64_t id,
                                                                     int reason);
GRID_HOOK void envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(void *envoy,
                                                                                                void *filter);
GRID_HOOK void envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(void *envoy,
                                                                                               void *filter);

/* ---- hooks: the bootstrap extension --------------------------------------------------------------------------- */

GRID_HOOK void *envoy_dynamic_module_on_bootstrap_extension_config_new(void *envoy, struct grid_str name,
                                                                       struct grid_str config);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_config_destroy(void *config);
GRID_HOOK void *envoy_dynamic_module_on_bootstrap_extension_new(void *config, void *envoy);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_destroy(void *extension);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_server_initialized(void *envoy, void *extension);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_worker_thread_initialized(void *envoy, void *extension);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_drain_started(void *envoy, void *extension);
/* Must call done(context) once. */
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_shutdown(void *envoy, void *extension,
                                                                    void (*done)(void *context), void *context);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_config_scheduled(void *envoy, void *config, uint64_t event);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_timer_fired(void *envoy, void *config, void *timer);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_file_changed(void *envoy, void *config, struct grid_str path,
                                                                        uint32_t events);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_http_callout_done(void *envoy, void *config, uint64_t id,
                                                                             int result, struct grid_header *headers,
                                                                             size_t n, struct grid_str *body,
                                                                             size_t n_body);
GRID_HOOK uint32_t envoy_dynamic_module_on_bootstrap_extension_admin_request(void *envoy, void *config,
                                                                             struct grid_str method,
                                                                             struct grid_str path,
                                                                             struct grid_str body);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_cluster_add_or_update(void *envoy, void *config,
                                                                                 struct grid_str name);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_cluster_removal(void *envoy, void *config,
                                                                           struct grid_str name);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_listener_add_or_update(void *envoy, void *config,
                                                                                  struct grid_str name);
GRID_HOOK void envoy_dynamic_module_on_bootstrap_extension_listener_removal(void *envoy, void *config,
                                                                            struct grid_str name);

/* ---- hooks: the cluster specifier ----------------------------------------------------------------------------- */

GRID_HOOK void *envoy_dynamic_module_on_cluster_specifier_config_new(void *envoy, struct grid_str name,
                                                                     struct grid_str config);
GRID_HOOK void envoy_dynamic_module_on_cluster_specifier_config_destroy(void *config);
GRID_HOOK bool envoy_dynamic_module_on_cluster_specifier_select(void *config, void *context);

#endif
