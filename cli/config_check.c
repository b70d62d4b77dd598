/*
 * config_check.c - what only looking around can tell about a configuration; see config_check.h
 *
 * Promise   Reads named files, changes none. A file that cannot be read is a refusal of the field that names it.
 */
#include "cli/config_check.h"
#include "cli/tagkey.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_PORT 65535u
#define SOCKET_BYTES 108u /* what the kernel takes, its NUL included */

/* ---- addresses ----------------------------------------------------------------------------------------------- */

bool grid_address_is_ip(const struct grid_address *address)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, address->host, bytes) == 1 || inet_pton(AF_INET6, address->host, bytes) == 1;
}

static bool is_dns_name(const char *host)
{
    for (const char *at = host; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("-._", *at) == NULL) {
            return false;
        }
    }
    return *host != '\0' && *host != '-' && *host != '.';
}

static bool read_port(struct grid_str text, unsigned *out)
{
    unsigned port = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (!isdigit((unsigned char)text.ptr[i]) || port > MOST_PORT) {
            return false;
        }
        port = 10 * port + (unsigned)(text.ptr[i] - '0');
    }
    *out = port;
    return text.len > 0 && port > 0 && port <= MOST_PORT;
}

bool grid_address_parse(struct grid_str text, bool allow_unix, bool allow_name, struct grid_address *out)
{
    static const char unix_prefix[] = "unix:";
    *out = (struct grid_address){0};
    struct grid_str host = text;
    size_t skip = sizeof unix_prefix - 1;
    if (allow_unix && text.len > skip && memcmp(text.ptr, unix_prefix, skip) == 0) {
        out->is_unix = true;
        host = (struct grid_str){text.ptr + skip, text.len - skip};
    } else {
        const char *colon = memrchr(text.ptr, ':', text.len);
        if (colon == NULL) {
            return false;
        }
        host.len = (size_t)(colon - text.ptr);
        if (!read_port((struct grid_str){colon + 1, text.len - host.len - 1}, &out->port)) {
            return false;
        }
        bool brackets = host.len > 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';
        if (!brackets && memchr(host.ptr, ':', host.len) != NULL) {
            return false; /* IPv6 without brackets: which colon is the port's? */
        }
        host = brackets ? (struct grid_str){host.ptr + 1, host.len - 2} : host;
    }
    if (host.len == 0 || host.len >= sizeof out->host || memchr(host.ptr, '\0', host.len) != NULL) {
        return false;
    }
    memcpy(out->host, host.ptr, host.len);
    if (out->is_unix) {
        return out->host[0] == '/' && host.len < SOCKET_BYTES;
    }
    return grid_address_is_ip(out) || (allow_name && is_dns_name(out->host));
}

bool grid_address_is_loopback(const struct grid_address *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, address->host, &v4) == 1) {
        return ntohl(v4.s_addr) >> 24 == 127;
    }
    return inet_pton(AF_INET6, address->host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static bool is_any(const struct grid_address *address)
{
    return strcmp(address->host, "0.0.0.0") == 0 || strcmp(address->host, "::") == 0;
}

static bool clash(const struct grid_address *a, const struct grid_address *b)
{
    if (a->is_unix != b->is_unix || a->port != b->port || a->host[0] == '\0' || b->host[0] == '\0') {
        return false;
    }
    return strcmp(a->host, b->host) == 0 || (!a->is_unix && (is_any(a) || is_any(b)));
}

/* ---- files --------------------------------------------------------------------------------------------------- */

/* Reads the file, which is told at `field`. */
static void take_material(struct grid_reading *r, const char *field, const char *path, enum grid_material_kind kind)
{
    char error[GRID_PATH_BYTES + 256];
    if (path[0] == '\0') {
        return;
    }
    switch (grid_materials_add(&r->out->materials, path, kind, r->kept->materials, error, sizeof error)) {
    case GRID_MATERIAL_READ:
        break;
    case GRID_MATERIAL_KEPT:
        if (r->kept->notes != NULL) {
            grid_report_add(r->kept->notes, r->file, grid_reading_line(r, field), field, "%s", error);
        }
        break;
    case GRID_MATERIAL_BAD:
        grid_reading_refuse(r, field, "%s", error);
        break;
    }
}

/* A file of keys that went bad changes nothing for those that the module holds: it is told, and the rest goes on. */
static bool is_in_force(const struct grid_reading *r, const char *path)
{
    const struct grid_settings *settings = r->kept->settings;
    for (size_t i = 0; settings != NULL && i < settings->n_tag_key_paths; i++) {
        if (strcmp(settings->tag_key_paths[i], path) == 0) {
            return true;
        }
    }
    return false;
}

static void check_tag_key(struct grid_reading *r, const char *field, const char *path)
{
    struct grid_tagkey_set set = {0};
    char error[GRID_PATH_BYTES + 256];
    bool good = grid_tagkey_add(&set, path, error, sizeof error);
    grid_tagkey_wipe(&set);
    if (!good && is_in_force(r, path) && r->kept->notes != NULL) {
        grid_report_add(r->kept->notes, r->file, grid_reading_line(r, field), field, "%s", error);
    } else if (!good) {
        grid_reading_refuse(r, field, "%s", error);
    }
}

static void check_tag_keys(struct grid_reading *r)
{
    struct grid_gateway *gateway = r->out;
    static const char whole_field[] = "grid_site_route.prefix_affinity.tag_key_path";
    struct grid_str value;
    for (size_t i = 0; i < gateway->settings.n_tag_key_paths; i++) {
        char *path = gateway->settings.tag_key_paths[i];
        char beside[GRID_PATH_BYTES], whole[GRID_PATH_BYTES], field[sizeof whole_field + 24];
        snprintf(field, sizeof field, "%s[%zu]", whole_field, i);
        if (!grid_yaml_find(r->yaml, field, &value)) {
            memcpy(field, whole_field, sizeof whole_field); /* one path, not a list */
        }
        if (!grid_files_beside(r->file, path, beside, sizeof beside) ||
            !grid_files_absolute(beside, whole, sizeof whole) ||
            strlen(whole) >= sizeof gateway->settings.tag_key_paths[i]) {
            grid_reading_refuse(r, field, "the path is too long");
            continue;
        }
        memcpy(path, whole, strlen(whole) + 1);
        check_tag_key(r, field, path);
    }
}

/* Whether a file may be written on: it is empty, or a recording. */
static bool is_recording(const char *path)
{
    char head[sizeof GRID_RECORD_HEAD - 1];
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, head, sizeof head);
    if (fd >= 0) {
        (void)close(fd);
    }
    return len == 0 || (len == (ssize_t)sizeof head && memcmp(head, GRID_RECORD_HEAD, sizeof head) == 0);
}

/* Where key streams are recorded: a recording, or none yet in a folder that takes one. Nothing is made here. */
static void check_trace_path(struct grid_reading *r, const char *path)
{
    static const char field[] = "trace_keys.path";
    char folder[GRID_PATH_BYTES];
    struct stat st;
    if (stat(path, &st) == 0) {
        if (!S_ISREG(st.st_mode)) {
            grid_reading_refuse(r, field, "%s is not a regular file", path);
        } else if (access(path, R_OK | W_OK) != 0) {
            grid_reading_refuse(r, field, "%s: %s", path, strerror(errno));
        } else if (!is_recording(path)) {
            grid_reading_refuse(r, field, "%s is there, and is no recording", path);
        }
        return;
    }
    snprintf(folder, sizeof folder, "%s", path);
    *(strrchr(folder, '/') + 1) = '\0'; /* the path is absolute */
    if (access(folder, W_OK | X_OK) != 0) {
        grid_reading_refuse(r, field, "%s: %s", folder, strerror(errno));
    }
}

/* At the start only: the secret may be gone while its recording goes on. */
static void check_trace(struct grid_reading *r)
{
    const struct grid_gateway *gateway = r->out;
    struct grid_tagkey_set secret = {0};
    char error[GRID_PATH_BYTES + 256];
    if (gateway->trace_path[0] == '\0' || gateway->trace_secret_path[0] == '\0' || r->kept->settings != NULL) {
        return;
    }
    if (gateway->provider) {
        grid_reading_refuse(r, "trace_keys", "not of role provider: it reads no prompt");
    }
    if (strchr(gateway->trace_path, '\n') != NULL || strchr(gateway->trace_secret_path, '\n') != NULL) {
        grid_reading_refuse(r, "trace_keys", "a path must not hold a line feed");
    }
    check_trace_path(r, gateway->trace_path);
    if (!grid_tagkey_add(&secret, gateway->trace_secret_path, error, sizeof error)) {
        grid_reading_refuse(r, "trace_keys.secret_path", "%s", error);
    }
    grid_tagkey_wipe(&secret);
}

void grid_config_check_gateway(struct grid_reading *r)
{
    const struct grid_gateway *gateway = r->out;
    const struct grid_address *admin = &gateway->admin;
    if (admin->host[0] != '\0' && !admin->is_unix && !grid_address_is_loopback(admin)) {
        grid_reading_refuse(r, "admin",
                            "must be a loopback address or a Unix socket: whoever reaches it can stop the gateway");
    }
    if (clash(&gateway->listen, admin)) {
        grid_reading_refuse(r, "admin", "the same port as listen");
    }
    if (clash(&gateway->listen, &gateway->ops)) {
        grid_reading_refuse(r, "ops", "the same port as listen");
    }
    if (clash(admin, &gateway->ops)) {
        grid_reading_refuse(r, "ops", "the same port as admin");
    }
    take_material(r, "tls.cert_path", gateway->cert_path, GRID_MATERIAL_CERTIFICATES);
    take_material(r, "tls.key_path", gateway->key_path, GRID_MATERIAL_KEY);
    take_material(r, "tls.client_ca_path", gateway->client_ca_path, GRID_MATERIAL_CERTIFICATES);
    check_tag_keys(r);
    check_trace(r);
}

/* ---- the serving config -------------------------------------------------------------------------------------- */

bool grid_config_serving_path(const struct grid_gateway *gateway, struct grid_str path, char *out, size_t out_size)
{
    char text[GRID_PATH_BYTES], beside[GRID_PATH_BYTES];
    const char *file = gateway->serving_file.path[0] != '\0' ? gateway->serving_file.path : gateway->file.path;
    if (path.len >= sizeof text) {
        return false;
    }
    if (path.len == 0) {
        out[0] = '\0';
        return true;
    }
    memcpy(text, path.ptr, path.len);
    text[path.len] = '\0';
    return grid_files_beside(file, text, beside, sizeof beside) && grid_files_absolute(beside, out, out_size);
}

static void check_cluster(struct grid_reading *r, const char *prefix, size_t i)
{
    const struct grid_gateway *gateway = r->out;
    const struct grid_serving_cluster *cluster = &gateway->serving->clusters[i];
    char field[256], path[GRID_PATH_BYTES];
    for (size_t k = 0; k < cluster->n_endpoints; k++) {
        struct grid_address address;
        if (!grid_address_parse(cluster->endpoints[k], false, true, &address)) {
            snprintf(field, sizeof field, "%sclusters[%zu].endpoints[%zu]", prefix, i, k);
            grid_reading_refuse(r, field, "must be HOST:PORT or [IPv6]:PORT");
        }
    }
    const struct {
        const char *name;
        struct grid_str path;
        enum grid_material_kind kind;
    } files[] = {{"tls.ca_path", cluster->tls.ca_path, GRID_MATERIAL_CERTIFICATES},
                 {"tls.cert_path", cluster->tls.cert_path, GRID_MATERIAL_CERTIFICATES},
                 {"tls.key_path", cluster->tls.key_path, GRID_MATERIAL_KEY},
                 {"credential.bearer_path", cluster->bearer_path, GRID_MATERIAL_BEARER}};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        snprintf(field, sizeof field, "%sclusters[%zu].%s", prefix, i, files[k].name);
        if (!grid_config_serving_path(gateway, files[k].path, path, sizeof path)) {
            grid_reading_refuse(r, field, "the path is too long");
        } else {
            take_material(r, field, path, files[k].kind);
        }
    }
}

void grid_config_check_serving(struct grid_reading *r, const char *prefix)
{
    char dotted[64];
    snprintf(dotted, sizeof dotted, "%s%s", prefix, *prefix != '\0' ? "." : "");
    for (size_t i = 0; i < r->out->serving->n_clusters; i++) {
        check_cluster(r, dotted, i);
    }
}
