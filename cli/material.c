/*
 * material.c - certificates, private keys and credentials; see material.h
 */
#include "cli/material.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MATERIAL_LIMIT (4u << 20)
#define BEARER_LIMIT 8192u
#define BEGIN "-----BEGIN "
#define END "-----END "
#define DASHES "-----"

static void wipe(struct grid_material *item)
{
    if (item->text != NULL) {
        explicit_bzero(item->text, item->len);
    }
    free(item->text);
    *item = (struct grid_material){0};
}

void grid_materials_done(struct grid_materials *materials)
{
    for (size_t i = 0; i < materials->n; i++) {
        wipe(&materials->items[i]);
    }
    free(materials->items);
    *materials = (struct grid_materials){0};
}

const struct grid_material *grid_materials_find(const struct grid_materials *materials, const char *path,
                                                enum grid_material_kind kind)
{
    for (size_t i = 0; materials != NULL && i < materials->n; i++) {
        if (materials->items[i].kind == kind && strcmp(materials->items[i].path, path) == 0) {
            return &materials->items[i];
        }
    }
    return NULL;
}

/* ---- what is in them ----------------------------------------------------------------------------------------- */

/* One block from its first line: the label, and what is behind the block. False when it is cut or no base64. */
static bool read_block(const char *at, char *label, size_t label_size, const char **out_behind)
{
    char last[96];
    const char *begin = at + sizeof BEGIN - 1, *dashes = strstr(begin, DASHES);
    size_t len = dashes != NULL ? (size_t)(dashes - begin) : 0;
    if (len == 0 || len >= label_size || memchr(begin, '\n', len) != NULL) {
        return false;
    }
    memcpy(label, begin, len);
    label[len] = '\0';
    snprintf(last, sizeof last, END "%s" DASHES, label);
    const char *body = dashes + sizeof DASHES - 1, *end = strstr(body, last);
    size_t digits = 0;
    for (const char *c = body; end != NULL && c < end; c++) {
        if (!isspace((unsigned char)*c) && !isalnum((unsigned char)*c) && strchr("+/=", *c) == NULL) {
            return false;
        }
        digits += isspace((unsigned char)*c) == 0;
    }
    *out_behind = end != NULL ? end + strlen(last) : NULL;
    return end != NULL && digits > 0 && digits % 4 == 0;
}

static const char *judge_pem(const struct grid_material *item)
{
    bool key = item->kind == GRID_MATERIAL_KEY;
    const char *found = key ? "no private key in it" : "no certificate in it";
    for (const char *at = strstr(item->text, BEGIN); at != NULL; at = strstr(at, BEGIN)) {
        char label[64];
        if (strncmp(at, BEGIN "ENCRYPTED", sizeof BEGIN "ENCRYPTED" - 1) == 0 ||
            strstr(item->text, "Proc-Type: 4,ENCRYPTED") != NULL) {
            return "the private key in it is encrypted";
        }
        if (!read_block(at, label, sizeof label, &at)) {
            return "a block in it is not whole";
        }
        size_t len = strlen(label), want = key ? sizeof "PRIVATE KEY" - 1 : sizeof "CERTIFICATE" - 1;
        if (len >= want && strcmp(label + len - want, key ? "PRIVATE KEY" : "CERTIFICATE") == 0) {
            found = NULL;
        }
    }
    return found;
}

/* Only what can stand in a header, without the newline that editors leave. */
static const char *judge_bearer(struct grid_material *item)
{
    size_t start = 0;
    while (item->len > start && isspace((unsigned char)item->text[item->len - 1])) {
        item->text[--item->len] = '\0';
    }
    while (start < item->len && isspace((unsigned char)item->text[start])) {
        start++;
    }
    memmove(item->text, item->text + start, item->len - start + 1);
    item->len -= start;
    if (item->len == 0) {
        return "nothing in it";
    }
    if (item->len > BEARER_LIMIT) {
        return "over 8192 bytes";
    }
    for (size_t i = 0; i < item->len; i++) {
        if (item->text[i] <= ' ' || item->text[i] > '~') {
            return "must be one word of visible ASCII";
        }
    }
    return NULL;
}

static bool read_file(struct grid_material *item, char *error, size_t error_size)
{
    if (!grid_files_read(item->path, MATERIAL_LIMIT, &item->text, &item->len, error, error_size)) {
        return false;
    }
    const char *why = item->kind == GRID_MATERIAL_BEARER ? judge_bearer(item)
                      : strlen(item->text) != item->len  ? "a NUL byte in it"
                                                         : judge_pem(item);
    if (why != NULL) {
        snprintf(error, error_size, "%s: %s", item->path, why);
        wipe(item);
    }
    return why == NULL;
}

/* ---- the list ------------------------------------------------------------------------------------------------ */

static bool copy(struct grid_material *to, const struct grid_material *from)
{
    *to = *from;
    to->text = malloc(from->len + 1);
    if (to->text != NULL) {
        memcpy(to->text, from->text, from->len + 1);
    }
    return to->text != NULL;
}

enum grid_material_result grid_materials_add(struct grid_materials *materials, const char *path,
                                             enum grid_material_kind kind, const struct grid_materials *kept,
                                             char *error, size_t error_size)
{
    if (grid_materials_find(materials, path, kind) != NULL) {
        return GRID_MATERIAL_READ;
    }
    if (materials->n == materials->cap) {
        size_t cap = materials->cap > 0 ? 2 * materials->cap : 8;
        struct grid_material *more = realloc(materials->items, cap * sizeof *more);
        if (more == NULL) {
            snprintf(error, error_size, "out of memory");
            return GRID_MATERIAL_BAD;
        }
        materials->items = more;
        materials->cap = cap;
    }
    struct grid_material *item = &materials->items[materials->n];
    *item = (struct grid_material){.kind = kind};
    snprintf(item->path, sizeof item->path, "%s", path);
    if (read_file(item, error, error_size)) {
        materials->n++;
        return GRID_MATERIAL_READ;
    }
    const struct grid_material *old = grid_materials_find(kept, path, kind);
    if (old == NULL || !copy(item, old)) {
        return GRID_MATERIAL_BAD;
    }
    materials->n++;
    return GRID_MATERIAL_KEPT;
}

bool grid_materials_equal(const struct grid_materials *a, const struct grid_materials *b)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct grid_material *other = grid_materials_find(b, a->items[i].path, a->items[i].kind);
        if (other == NULL || other->len != a->items[i].len || memcmp(other->text, a->items[i].text, other->len) != 0) {
            return false;
        }
    }
    return a->n == b->n;
}
