/*
 * module.h - what the files of the module share
 *
 * Story     One copy of the module serves a whole Envoy: the bootstrap extension owns the router and the state folder
 *           (module.c, folder.c), polls depths (signals.c), mirrors counters and answers the admin pages (admin.c). The
 *           HTTP filter (filter.c), the cluster specifier (pick.c) and the ops pages (ops.c) only use the router.
 * Threads   struct grid_module is changed on the main thread only. Its router is thread-safe, its atomics too; the
 *           tables behind grid_signals_counters and the reload's last word have a mutex of their own.
 * Lifetime  Made in bootstrap config_new, freed in bootstrap config_destroy, which is the last hook Envoy calls: every
 *           stream and every filter config is gone by then.
 */
#ifndef GRID_ENVOY_MODULE_H
#define GRID_ENVOY_MODULE_H

#include "bridge.h"

#include <stdatomic.h>

enum { GRID_MODULE_MAX_PATH = 4096 };

struct grid_module {
    void *envoy;     /* the bootstrap config, first argument of its callbacks */
    void *extension; /* first argument of the callbacks that read statistics; NULL before it is made */
    struct grid_router *router;
    char folder[GRID_MODULE_MAX_PATH];
    uint64_t max_body_bytes;
    uint64_t failover_max_body_bytes; /* a longer body is not kept for a retry; 0: none is */
    struct grid_serving *serving;     /* our copy of the serving config in force, for its list of clusters */
    bool validating;                  /* started only to check the configuration */
    void *reload_timer;               /* waits for the folder to be quiet */
    void *tick_timer;                 /* counters, order of candidates */
    uint64_t next_check_ms;           /* when the folder is read without having been told to */
    uint64_t handled_ms;              /* when the last change was taken or refused */
    _Atomic bool ready;               /* first configuration applied, every cluster polled or timed out */
    _Atomic bool draining;
    _Atomic bool explains; /* the ops listener takes requests to explain (explain.c) */
};

/* The module, or NULL before the bootstrap extension is configured. Any thread. */
struct grid_module *grid_module_get(void);

/* Milliseconds of a clock that never goes back, far from 0. */
uint64_t grid_module_now_ms(void);
/* The same clock in nanoseconds. */
uint64_t grid_module_now_ns(void);

/* Writes one line to Envoy's log. Never given text of a request. */
void grid_module_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum { GRID_MODULE_REFUSALS = 5 };
struct grid_module_refusal {
    uint64_t at_ms; /* 0: none */
    char error[512];
};

/* The last change of the configuration, copied for a page. Any thread. */
struct grid_module_reload {
    const char *result; /* "applied", "reused", "rejected" */
    uint64_t at_ms;
    uint64_t count;
    char error[512];                           /* of a rejected one, else "" */
    uint64_t revision, applied_ms, refused_ms; /* applied so far; when the last of each kind was, 0: never */
    char refused[512];                         /* why the last refusal was */
    struct grid_module_refusal refusals[GRID_MODULE_REFUSALS]; /* the last ones, the newest first */
};
void grid_module_last_reload(struct grid_module_reload *out_reload);

/* ---- folder.c: the configuration, from its files into the core (main thread, but for grid_module_last_reload) -- */

enum { GRID_FOLDER_CHECK_MS = 5000 /* files are read this often even when no event came */ };

/* The first configuration; all of it must be good. */
bool grid_folder_first(struct grid_module *module);
/* Reads the files again. `told`: by an event; otherwise files that did not change are passed over in silence. */
void grid_folder_reload(struct grid_module *module, bool told);
void grid_folder_watch(struct grid_module *module); /* inside server_initialized only */
void grid_folder_free(void);

/* ---- signals.c: queue depths (main thread, unless said otherwise) --------------------------------------------- */

/* Takes over the list of clusters to poll from a new serving config; what is known of those that stay is kept.
 * The views of `serving` are used until the next call. */
void grid_signals_set(struct grid_module *module, const struct grid_serving *serving);
void grid_signals_stop(void);
bool grid_signals_fired(struct grid_module *module, void *timer); /* false: not our timer */
void grid_signals_done(struct grid_module *module, uint64_t id, int result, const struct grid_header *headers, size_t n,
                       const struct grid_str *body, size_t n_body);
/* The series of polling, as grid_router_counters gives its own. Any thread. */
void grid_signals_counters(grid_series_fn *fn, void *ctx);
/* JSON list of polled clusters. Any thread. */
void grid_signals_json(struct grid_buf *out, uint64_t now_ms);
void grid_signals_put_escaped(struct grid_buf *out, const char *text); /* as the value of a label */
/* Gauges in Prometheus' text format. Any thread. */
void grid_signals_metrics(struct grid_buf *out, uint64_t now_ms);

/* ---- health.c: Envoy's own view of the clusters (main thread, but for get) ------------------------------------- */

struct grid_health_view {
    bool known;
    size_t hosts, healthy;
};
void grid_health_set(const struct grid_serving *serving);
void grid_health_refresh(const struct grid_module *module, uint64_t now_ms);
struct grid_health_view grid_health_get(const char *cluster);
void grid_health_free(void);

/* ---- admin.c, snapshot.c: counters, pages ---------------------------------------------------------------- */

void grid_admin_define(struct grid_module *module); /* inside config_new only */
void grid_admin_sync(struct grid_module *module);   /* brings Envoy's counters up to ours */
void grid_admin_free(void);
/* Any thread. */
void grid_admin_metrics(struct grid_module *module, struct grid_buf *out);
void grid_admin_snapshot(struct grid_module *module, struct grid_buf *out);

#endif
