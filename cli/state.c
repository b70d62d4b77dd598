/*
 * state.c - the folder through which `run` talks to Envoy and the module; see state.h
 */
#include "cli/state.h"
#include "cli/render.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool make_temporary(struct grid_state *state, char *error, size_t error_size)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (runtime == NULL || runtime[0] != '/' || access(runtime, W_OK | X_OK) != 0) {
        runtime = "/tmp";
    }
    int n = snprintf(state->dir, sizeof state->dir, "%s/grid-gateway-XXXXXX", runtime);
    if (n < 0 || (size_t)n >= sizeof state->dir || mkdtemp(state->dir) == NULL) {
        snprintf(error, error_size, "cannot make a state folder under %s: %s", runtime, strerror(errno));
        return false;
    }
    state->temporary = true;
    return true;
}

static bool lock_folder(struct grid_state *state, char *error, size_t error_size)
{
    char path[GRID_PATH_BYTES + 8];
    snprintf(path, sizeof path, "%s/lock", state->dir);
    state->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (state->lock < 0 || flock(state->lock, LOCK_EX | LOCK_NB) != 0) {
        snprintf(error, error_size, "cannot use the state folder %s: %s", state->dir,
                 errno == EWOULDBLOCK ? "another gateway runs in it" : strerror(errno));
        return false;
    }
    return true;
}

bool grid_state_open(struct grid_state *state, const char *dir, char *error, size_t error_size)
{
    *state = (struct grid_state){.lock = -1};
    if (dir == NULL) {
        return make_temporary(state, error, error_size);
    }
    if (!grid_files_absolute(dir, state->dir, sizeof state->dir)) {
        snprintf(error, error_size, "cannot use the state folder %s: the path is too long", dir);
        return false;
    }
    return grid_files_mkdir(state->dir, error, error_size) && lock_folder(state, error, error_size);
}

/* Lets the texts of secrets go; jansson's own copies lie in memory that is not ours to wipe. */
void grid_state_close(struct grid_state *state)
{
    char secrets[GRID_PATH_BYTES + 8];
    snprintf(secrets, sizeof secrets, "%s/sds", state->dir);
    if (state->dir[0] != '\0') {
        grid_files_remove_dir(secrets);
    }
    if (state->temporary) {
        grid_files_remove_dir(state->dir);
    }
    if (state->lock >= 0) {
        close(state->lock);
    }
    free(state->envoy);
    free(state->clusters);
    free(state->routes);
    json_decref(state->secrets);
    json_decref(state->named);
    free(state->plugin);
    free(state->serving);
    free(state->settled_clusters);
    *state = (struct grid_state){.lock = -1};
}

/* Writes *fresh, when it differs from *last, and moves it there; else frees it. */
static bool put(struct grid_state *state, const char *name, char **last, char **fresh, bool *changed, char *error,
                size_t error_size)
{
    if (*last != NULL && strcmp(*last, *fresh) == 0) {
        free(*fresh);
        *fresh = NULL;
        return true;
    }
    if (!grid_files_write(state->dir, name, *fresh, strlen(*fresh), error, error_size)) {
        return false;
    }
    free(*last);
    *last = *fresh;
    *fresh = NULL;
    *changed = true;
    return true;
}

static bool has_cluster(json_t *list, const char *name)
{
    size_t i;
    json_t *cluster;
    json_array_foreach(list, i, cluster)
    {
        if (strcmp(json_string_value(json_object_get(cluster, "name")), name) == 0) {
            return true;
        }
    }
    return false;
}

/* The new clusters and, behind them, the old ones that are not among them; NULL when there are none of these. */
static char *with_dropped(const char *old_text, const char *new_text)
{
    json_t *old = json_loads(old_text, 0, NULL), *fresh = json_loads(new_text, 0, NULL);
    json_t *from = json_object_get(old, "resources"), *to = json_object_get(fresh, "resources");
    size_t i;
    bool any = false;
    json_t *cluster;
    json_array_foreach(from, i, cluster)
    {
        if (!has_cluster(to, json_string_value(json_object_get(cluster, "name")))) {
            json_array_append(to, cluster);
            any = true;
        }
    }
    json_decref(old);
    if (!any) {
        json_decref(fresh);
        return NULL;
    }
    return grid_render_text(fresh);
}

/* Writes the secrets that changed. Those that are not named any more stay for the clusters that are about to go. */
static bool put_secrets(struct grid_state *state, json_t *fresh, bool *changed, char *error, size_t error_size)
{
    char dir[GRID_PATH_BYTES + 8], name[128];
    snprintf(dir, sizeof dir, "%s/sds", state->dir);
    if (json_object_size(fresh) > 0 && !grid_files_mkdir(dir, error, error_size)) {
        return false;
    }
    if (state->secrets == NULL) {
        state->secrets = json_object();
    }
    const char *key;
    json_t *secret;
    json_object_foreach(fresh, key, secret)
    {
        if (json_equal(secret, json_object_get(state->secrets, key))) {
            continue;
        }
        char *text = grid_render_text(json_pack("{s:[O]}", "resources", secret));
        snprintf(name, sizeof name, "%s.json", key);
        bool good = text != NULL && grid_files_write(dir, name, text, strlen(text), error, error_size);
        if (text != NULL) {
            explicit_bzero(text, strlen(text));
        }
        free(text);
        if (!good) {
            return false;
        }
        json_object_set(state->secrets, key, secret);
        *changed = true;
    }
    return true;
}

/* Removes the files of secrets that the configuration in force does not name. */
static void drop_secrets(struct grid_state *state)
{
    char path[2 * GRID_PATH_BYTES];
    const char *key;
    json_t *secret;
    void *next;
    json_object_foreach_safe(state->secrets, next, key, secret)
    {
        if (json_object_get(state->named, key) == NULL) {
            snprintf(path, sizeof path, "%s/sds/%s.json", state->dir, key);
            unlink(path);
            json_object_del(state->secrets, key);
        }
    }
}

enum grid_state_result grid_state_write(struct grid_state *state, const struct grid_gateway *gateway, char *error,
                                        size_t error_size)
{
    bool first = state->envoy == NULL, changed = false;
    char *envoy = first ? grid_render_envoy(gateway, state->dir) : NULL;
    char *clusters = grid_render_clusters(gateway, state->dir);
    char *plugin = grid_render_plugin(gateway);
    char *serving = grid_render_serving(gateway);
    char *routes = grid_render_routes(gateway);
    json_t *secrets = grid_render_secrets(gateway);
    bool good = (envoy != NULL || !first) && clusters != NULL && routes != NULL && secrets != NULL && plugin != NULL &&
                serving != NULL;
    if (!good) {
        snprintf(error, error_size, "cannot render the configuration: out of memory");
    } else {
        char *wide = first ? NULL : with_dropped(state->clusters, clusters);
        free(state->settled_clusters);
        state->settled_clusters = NULL;
        if (wide != NULL) {
            state->settled_clusters = clusters;
            clusters = wide;
        }
        good = put_secrets(state, secrets, &changed, error, error_size) &&
               put(state, "cds.json", &state->clusters, &clusters, &changed, error, error_size) &&
               (!gateway->provider || put(state, "rds.json", &state->routes, &routes, &changed, error, error_size)) &&
               put(state, "serving.json", &state->serving, &serving, &changed, error, error_size) &&
               put(state, "plugin.json", &state->plugin, &plugin, &changed, error, error_size) &&
               (!first || put(state, "envoy.json", &state->envoy, &envoy, &changed, error, error_size));
    }
    if (good) {
        json_decref(state->named);
        state->named = json_incref(secrets);
    }
    if (good && state->settled_clusters == NULL) {
        drop_secrets(state);
    }
    json_decref(secrets);
    free(routes);
    free(envoy);
    free(clusters);
    free(plugin);
    free(serving);
    return !good ? GRID_STATE_FAILED : changed ? GRID_STATE_CHANGED : GRID_STATE_SAME;
}

bool grid_state_settle(struct grid_state *state, char *error, size_t error_size)
{
    bool changed = false;
    if (state->settled_clusters == NULL) {
        return true;
    }
    if (!put(state, "cds.json", &state->clusters, &state->settled_clusters, &changed, error, error_size)) {
        return false;
    }
    drop_secrets(state);
    return true;
}

/* For the module (envoy/told.h): "STARTED REVISION REUSED REJECTED\nRESULT\nERROR\n", counted from the start of this
 * process; the first line of the error will do. `result` "applied" adds to none of the numbers. */
static bool tell_module(const struct grid_state *state, const char *result, const char *why, char *error, size_t size)
{
    static unsigned long long started, reused, rejected; /* one gateway a process */
    char text[512];
    struct timespec now;
    if (started == 0) {
        clock_gettime(CLOCK_REALTIME, &now);
        started = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    }
    reused += strcmp(result, "reused") == 0;
    rejected += strcmp(result, "rejected") == 0;
    int line = (int)strcspn(why, "\n");
    int len = snprintf(text, sizeof text, "%llu %u %llu %llu\n%s\n%.*s\n", started, state->revision, reused, rejected,
                       result, line < 400 ? line : 400, why);
    return len > 0 && grid_files_write(state->dir, "reload", text, strlen(text), error, size);
}

void grid_state_tell(struct grid_state *state, const char *result, const char *why)
{
    char error[GRID_PATH_BYTES + 256] = "out of memory";
    char *text = grid_render_text(
        json_pack("{s:i, s:s, s:s}", "revision", (int)++state->revision, "result", result, "error", why));
    if (text == NULL || !grid_files_write(state->dir, "reload.json", text, strlen(text), error, sizeof error) ||
        !tell_module(state, result, why, error, sizeof error)) {
        fprintf(stderr, "grid-gateway: %s\n", error);
    }
    free(text);
}

void grid_state_nudge(struct grid_state *state)
{
    char error[GRID_PATH_BYTES + 256];
    if (!tell_module(state, "applied", "", error, sizeof error)) {
        fprintf(stderr, "grid-gateway: %s\n", error);
    }
}
