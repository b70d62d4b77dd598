/*
 * metrics.c - the site's counters for readers, and the knobs that tests and demos turn
 *
 * Story     http.c asks for a Prometheus page or for the state as JSON: both are read at that moment, nothing is kept
 *           here. What comes in under /sim/ (reset, load, failures) changes the server through grid_sim_control.
 * Promise   Names, types and labels are those of a vLLM server; its engine reports the first served model's name. A
 *           knob with a wrong field changes nothing.
 * Not here  Histograms: nothing that reads this site uses them. How a failure is played (http.c).
 */
#include "sim.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_DELAY_MS = 3600 * 1000,
    MAX_FAULT_HEADER_BYTES = 256,
};

enum kind {
    GAUGE,
    COUNTER,
};

static void add_escaped(struct evbuffer *out, const char *label)
{
    for (; *label; label++) {
        if (*label == '\n')
            (void)evbuffer_add(out, "\\n", 2);
        else if (*label == '"' || *label == '\\')
            (void)evbuffer_add_printf(out, "\\%c", *label);
        else
            (void)evbuffer_add(out, label, 1);
    }
}

static void add_head(struct evbuffer *out, const char *name, enum kind kind, const char *help)
{
    (void)evbuffer_add_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
                              kind == GAUGE ? "gauge" : "counter");
}

/* extra: further labels with a leading comma, or "". */
static void add_sample(struct evbuffer *out, const struct grid_sim_server *server, const char *name, const char *extra,
                       double value)
{
    (void)evbuffer_add_printf(out, "%s{engine=\"0\"%s,model_name=\"", name, extra);
    add_escaped(out, server->options->models[0]);
    (void)evbuffer_add_printf(out, "\"} %.17g\n", value);
}

static double waiting(const struct grid_sim_server *server)
{
    return (double)server->queue.waiting_count + server->synthetic_waiting;
}

static double cache_usage(const struct grid_sim_server *server)
{
    double usage = (double)server->queue.running_blocks / (double)server->options->cache_blocks;
    return usage > 1 ? 1 : usage;
}

void grid_sim_metrics_text(const struct grid_sim_server *server, struct evbuffer *out)
{
    const struct grid_sim_stats *stats = &server->queue.stats;
    const struct {
        const char *name;
        enum kind kind;
        const char *help;
        double value;
    } table[] = {
        {"vllm:num_requests_running", GAUGE, "Number of requests in model execution batches.",
         (double)server->queue.running_count},
        {"vllm:num_requests_waiting", GAUGE, "Number of requests waiting to be processed.", waiting(server)},
        {"vllm:kv_cache_usage_perc", GAUGE, "KV-cache usage. 1 means 100 percent usage.", cache_usage(server)},
        {"vllm:prefix_cache_queries_total", COUNTER, "Prefix cache queries, in number of queried tokens.",
         (double)stats->prompt_tokens},
        {"vllm:prefix_cache_hits_total", COUNTER, "Prefix cache hits, in number of cached tokens.",
         (double)stats->cached_tokens},
        {"vllm:prompt_tokens_total", COUNTER, "Number of prefill tokens processed.", (double)stats->prompt_tokens},
        {"vllm:prompt_tokens_cached_total", COUNTER, "Number of cached prompt tokens.", (double)stats->cached_tokens},
        {"vllm:generation_tokens_total", COUNTER, "Number of generation tokens processed.",
         (double)stats->generation_tokens},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        add_head(out, table[i].name, table[i].kind, table[i].help);
        add_sample(out, server, table[i].name, "", table[i].value);
    }
    static const char success[] = "vllm:request_success_total";
    add_head(out, success, COUNTER, "Count of successfully processed requests.");
    add_sample(out, server, success, ",finished_reason=\"stop\"", (double)stats->finished_stop);
    add_sample(out, server, success, ",finished_reason=\"length\"", (double)stats->finished_length);
    add_sample(out, server, success, ",finished_reason=\"abort\"", (double)stats->aborted);
    add_head(out, "process_start_time_seconds", GAUGE, "Start time of the process since unix epoch in seconds.");
    (void)evbuffer_add_printf(out, "process_start_time_seconds %.6f\n", server->started_s);
}

void grid_sim_metrics_state(const struct grid_sim_server *server, struct evbuffer *out)
{
    const struct grid_sim_stats *stats = &server->queue.stats;
    json_t *state = json_pack(
        "{s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "name", server->options->name, "waiting",
        waiting(server), "synthetic_waiting", server->synthetic_waiting, "running",
        (json_int_t)server->queue.running_count, "cached_blocks", (json_int_t)grid_sim_cache_count(server->queue.cache),
        "received", (json_int_t)server->received, "requests",
        (json_int_t)stats->finished_stop + (json_int_t)stats->finished_length, "aborted", (json_int_t)stats->aborted,
        "prompt_tokens", (json_int_t)stats->prompt_tokens, "cached_tokens", (json_int_t)stats->cached_tokens,
        "generation_tokens", (json_int_t)stats->generation_tokens, "fault", server->fault.set);
    char *text = state ? json_dumps(state, JSON_COMPACT) : NULL;
    if (!text)
        abort();
    (void)evbuffer_add(out, text, strlen(text));
    free(text);
    json_decref(state);
}

/* ---- settable failures ---- */

static bool read_whole(const json_t *value, json_int_t least, json_int_t most, int64_t *out)
{
    if (!value)
        return true;
    if (!json_is_integer(value) || json_integer_value(value) < least || json_integer_value(value) > most)
        return false;
    *out = json_integer_value(value);
    return true;
}

static bool read_text(const json_t *value, char *out, size_t room)
{
    if (!value)
        return true;
    int length = -1;
    if (json_is_string(value))
        length = snprintf(out, room, "%s", json_string_value(value));
    else if (json_is_integer(value))
        length = snprintf(out, room, "%lld", (long long)json_integer_value(value));
    return length >= 0 && (size_t)length < room && !strpbrk(out, "\r\n");
}

bool grid_sim_fault_read(const json_t *root, struct grid_sim_fault *fault)
{
    int64_t status = 0;
    const json_t *body = json_object_get(root, "body");
    const json_t *reset = json_object_get(root, "reset");
    *fault = GRID_SIM_NO_FAULT;
    if (!json_is_object(root) || !read_whole(json_object_get(root, "status"), 200, 599, &status) ||
        !read_whole(json_object_get(root, "delay_ms"), 0, MAX_DELAY_MS, &fault->delay_ms) ||
        !read_whole(json_object_get(root, "drop_after_events"), 0, INT32_MAX, &fault->drop_after_events) ||
        !read_whole(json_object_get(root, "times"), 0, INT32_MAX, &fault->times) ||
        !read_text(json_object_get(root, "retry_after"), fault->retry_after, sizeof fault->retry_after) ||
        !read_text(json_object_get(root, "path"), fault->path, sizeof fault->path) ||
        (reset && !json_is_boolean(reset)))
        return false;
    fault->status = (int)status;
    fault->reset = json_is_true(reset);
    if (json_is_string(body))
        fault->body = strdup(json_string_value(body));
    else if (body)
        fault->body = json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY);
    fault->set = fault->times != 0;
    return true;
}

/* "status=503,retry_after=2", "reset", "delay=500", "drop=3" */
bool grid_sim_fault_read_header(const char *text, struct grid_sim_fault *fault)
{
    char copy[MAX_FAULT_HEADER_BYTES];
    char *rest = copy;
    char *item;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return false;
    json_t *root = json_object();
    bool ok = true;
    while (ok && (item = strsep(&rest, ", "))) {
        char *value = strchr(item, '=');
        if (value)
            *value++ = '\0';
        char *end = NULL;
        json_int_t number = value ? strtoll(value, &end, 10) : 0;
        bool is_number = value && end != value && *end == '\0';
        if (!*item)
            continue;
        if (strcmp(item, "reset") == 0 && !value)
            ok = json_object_set_new(root, "reset", json_true()) == 0;
        else if (is_number && (strcmp(item, "status") == 0 || strcmp(item, "retry_after") == 0))
            ok = json_object_set_new(root, item, json_integer(number)) == 0;
        else if (is_number && strcmp(item, "delay") == 0)
            ok = json_object_set_new(root, "delay_ms", json_integer(number)) == 0;
        else if (is_number && strcmp(item, "drop") == 0)
            ok = json_object_set_new(root, "drop_after_events", json_integer(number)) == 0;
        else
            ok = false;
    }
    ok = ok && grid_sim_fault_read(root, fault);
    json_decref(root);
    return ok;
}

void grid_sim_fault_clear(struct grid_sim_server *server)
{
    free(server->fault.body);
    server->fault = GRID_SIM_NO_FAULT;
}

/* ---- /sim/ ---- */

static json_t *body_json(struct evbuffer *body)
{
    size_t bytes = evbuffer_get_length(body);
    const char *text = (const char *)evbuffer_pullup(body, -1);
    return json_loadb(text ? text : "", bytes, 0, NULL);
}

static bool set_fault(struct grid_sim_server *server, struct evbuffer *body)
{
    struct grid_sim_fault fault;
    json_t *root = body_json(body);
    bool ok = grid_sim_fault_read(root, &fault);
    json_decref(root);
    if (ok) {
        grid_sim_fault_clear(server);
        server->fault = fault;
    }
    return ok;
}

static bool set_load(struct grid_sim_server *server, struct evbuffer *body)
{
    json_t *root = body_json(body);
    const json_t *waiting = json_object_get(root, "waiting");
    bool ok = json_is_number(waiting) && json_number_value(waiting) >= 0;
    if (ok)
        server->synthetic_waiting = json_number_value(waiting);
    json_decref(root);
    return ok;
}

static double wall_clock_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / (double)GRID_SIM_NS_PER_S;
}

/* As a restart looks from outside: counters at 0 come with a new start time. */
static void reset_counters(struct grid_sim_server *server)
{
    grid_sim_cache_clear(server->queue.cache);
    server->queue.stats = (struct grid_sim_stats){0};
    server->received = 0;
    server->started_s = wall_clock_s();
}

void grid_sim_server_init(struct grid_sim_server *server, const struct grid_sim_options *options)
{
    *server = (struct grid_sim_server){.options = options, .fault = GRID_SIM_NO_FAULT, .started_s = wall_clock_s()};
}

enum grid_sim_control grid_sim_control(struct grid_sim_server *server, enum evhttp_cmd_type method, const char *verb,
                                       struct evbuffer *body)
{
    bool ok = true;
    if (method == EVHTTP_REQ_GET && strcmp(verb, "state") == 0)
        return GRID_SIM_CONTROL_DONE;
    if (method == EVHTTP_REQ_POST && strcmp(verb, "reset") == 0)
        reset_counters(server);
    else if (method == EVHTTP_REQ_POST && strcmp(verb, "load") == 0)
        ok = set_load(server, body);
    else if (method == EVHTTP_REQ_POST && strcmp(verb, "faults") == 0)
        ok = set_fault(server, body);
    else if (method == EVHTTP_REQ_DELETE && strcmp(verb, "faults") == 0)
        grid_sim_fault_clear(server);
    else
        return GRID_SIM_CONTROL_UNKNOWN;
    return ok ? GRID_SIM_CONTROL_DONE : GRID_SIM_CONTROL_BAD;
}
