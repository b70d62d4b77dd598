/*
 * fake_memory.h - headers and bodies of the fake Envoy: every text in memory of its own exact size, and able to move
 */
#ifndef GRID_FAKE_MEMORY_H
#define GRID_FAKE_MEMORY_H

#include "tests/support/fake_envoy.h"

#include <stdlib.h>
#include <string.h>

static inline char *copy(const char *bytes, size_t len)
{
    char *out = malloc(len ? len : 1);
    if (!out)
        abort();
    if (len)
        memcpy(out, bytes, len);
    return out;
}

static inline void drop(struct grid_str text)
{
    free((void *)(uintptr_t)text.ptr);
}

static inline struct grid_str fresh(struct grid_str text)
{
    return (struct grid_str){copy(text.ptr, text.len), text.len};
}

static inline struct grid_str text_of(const char *text)
{
    return (struct grid_str){text, strlen(text)};
}

static inline bool same(struct grid_str a, struct grid_str b)
{
    return a.len == b.len && memcmp(a.ptr, b.ptr, a.len) == 0;
}

static inline void move_headers(struct fake_headers *headers)
{
    for (size_t i = 0; i < headers->n; i++) {
        struct grid_header old = headers->items[i];
        headers->items[i] = (struct grid_header){fresh(old.name), fresh(old.value)};
        drop(old.name);
        drop(old.value);
    }
}

static inline void add_header(struct fake_headers *headers, struct grid_str name, struct grid_str value)
{
    if (headers->n == FAKE_MAX_HEADERS)
        abort();
    headers->items[headers->n++] = (struct grid_header){fresh(name), fresh(value)};
}

static inline void remove_header(struct fake_headers *headers, struct grid_str name)
{
    size_t kept = 0;
    for (size_t i = 0; i < headers->n; i++) {
        if (same(headers->items[i].name, name)) {
            drop(headers->items[i].name);
            drop(headers->items[i].value);
        } else {
            headers->items[kept++] = headers->items[i];
        }
    }
    headers->n = kept;
}

static inline void free_headers(struct fake_headers *headers)
{
    for (size_t i = 0; i < headers->n; i++) {
        drop(headers->items[i].name);
        drop(headers->items[i].value);
    }
    headers->n = 0;
}

static inline void add_slice(struct fake_body *body, const char *bytes, size_t len)
{
    if (len == 0)
        return;
    if (body->n == FAKE_MAX_SLICES)
        abort();
    body->slices[body->n++] = (struct grid_str){copy(bytes, len), len};
    body->bytes += len;
}

static inline void free_body(struct fake_body *body)
{
    for (size_t i = 0; i < body->n; i++)
        drop(body->slices[i]);
    body->n = body->bytes = 0;
}

/* From the front. What is left of a slice moves. */
static inline void drain_body(struct fake_body *body, size_t bytes)
{
    size_t gone = 0;
    body->bytes -= bytes;
    while (bytes > 0 && bytes >= body->slices[gone].len) {
        bytes -= body->slices[gone].len;
        drop(body->slices[gone++]);
    }
    body->n -= gone;
    memmove(body->slices, body->slices + gone, body->n * sizeof(body->slices[0]));
    if (bytes > 0) {
        struct grid_str old = body->slices[0];
        body->slices[0] = fresh((struct grid_str){old.ptr + bytes, old.len - bytes});
        drop(old);
    }
}

static inline void move_body(struct fake_body *from, struct fake_body *to)
{
    for (size_t i = 0; i < from->n; i++)
        add_slice(to, from->slices[i].ptr, from->slices[i].len);
    free_body(from);
}

static inline void move_out(struct fake_body *from, char **to, size_t *bytes)
{
    for (size_t i = 0; i < from->n; i++) {
        *to = realloc(*to, *bytes + from->slices[i].len + 1);
        memcpy(*to + *bytes, from->slices[i].ptr, from->slices[i].len);
        *bytes += from->slices[i].len;
        (*to)[*bytes] = '\0';
    }
    free_body(from);
}

static inline void read_lines(struct fake_headers *headers, const char *lines)
{
    while (*lines) {
        const char *end = strchrnul(lines, '\n');
        const char *colon = memchr(lines + 1, ':', (size_t)(end - lines) - 1);
        if (!colon)
            abort();
        add_header(headers, (struct grid_str){lines, (size_t)(colon - lines)},
                   (struct grid_str){colon + 2, (size_t)(end - colon) - 2});
        lines = *end ? end + 1 : end;
    }
}

/* No view may outlive a hook. */
static inline void hook_returned(struct fake_stream *stream)
{
    for (size_t i = 0; i < 4; i++)
        move_headers(&stream->headers[i]);
}

#endif
