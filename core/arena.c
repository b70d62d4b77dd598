/*
 * arena.c - the allocator's verbs, a request's arena, growable text (grid_buf of grid.h)
 */
#include "arena.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 4096u /* most requests need less than one */

static void *default_take(void *ctx, size_t size)
{
    (void)ctx;
    return malloc(size);
}

static void *default_resize(void *ctx, void *ptr, size_t size)
{
    (void)ctx;
    return realloc(ptr, size);
}

static void default_give(void *ctx, void *ptr)
{
    (void)ctx;
    free(ptr);
}

const struct grid_alloc grid_alloc_default = {default_take, default_resize, default_give, NULL};

void *grid_take(const struct grid_alloc *alloc, size_t size)
{
    const struct grid_alloc *from = alloc ? alloc : &grid_alloc_default;
    void *ptr = from->take(from->ctx, size ? size : 1);
    if (ptr)
        memset(ptr, 0, size);
    return ptr;
}

void *grid_resize(const struct grid_alloc *alloc, void *ptr, size_t size)
{
    const struct grid_alloc *from = alloc ? alloc : &grid_alloc_default;
    return from->resize(from->ctx, ptr, size ? size : 1);
}

void grid_give(const struct grid_alloc *alloc, void *ptr)
{
    const struct grid_alloc *from = alloc ? alloc : &grid_alloc_default;
    if (ptr)
        from->give(from->ctx, ptr);
}

struct grid_arena_chunk {
    struct grid_arena_chunk *next;
    size_t size; /* bytes behind this head */
};

_Static_assert(sizeof(struct grid_arena_chunk) % _Alignof(max_align_t) == 0, "what follows the head is aligned");

void grid_arena_init(struct grid_arena *arena, const struct grid_alloc *alloc, size_t limit)
{
    *arena = (struct grid_arena){.alloc = alloc, .limit = limit};
}

void *grid_arena_take(struct grid_arena *arena, size_t size)
{
    const size_t align = _Alignof(max_align_t);
    if (size > arena->limit)
        return NULL;
    size = (size + align - 1) & ~(align - 1);
    if (size > arena->left || !arena->chunks) {
        size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;
        if (arena->taken + room > arena->limit)
            room = size;
        if (arena->taken + room > arena->limit)
            return NULL;
        struct grid_arena_chunk *chunk = grid_take(arena->alloc, sizeof *chunk + room);
        if (!chunk)
            return NULL;
        chunk->next = arena->chunks;
        chunk->size = room;
        arena->chunks = chunk;
        arena->left = room;
        arena->taken += room;
    }
    char *base = (char *)(arena->chunks + 1);
    void *ptr = base + (arena->chunks->size - arena->left);
    arena->left -= size;
    return ptr;
}

struct grid_str grid_arena_copy(struct grid_arena *arena, struct grid_str text)
{
    char *copy = grid_arena_take(arena, text.len + 1);
    if (!copy)
        return (struct grid_str){NULL, 0};
    if (text.len)
        memcpy(copy, text.ptr, text.len);
    copy[text.len] = 0;
    return (struct grid_str){copy, text.len};
}

void grid_arena_done(struct grid_arena *arena)
{
    while (arena->chunks) {
        struct grid_arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        grid_give(arena->alloc, chunk);
    }
    arena->left = arena->taken = 0;
}

/* Room for `more` bytes and a NUL. */
static bool buf_reserve(struct grid_buf *buf, size_t more)
{
    if (buf->failed || more > buf->limit || buf->len > buf->limit - more) {
        buf->failed = true;
        return false;
    }
    size_t need = buf->len + more + 1;
    if (need <= buf->cap)
        return true;
    size_t cap = buf->cap ? buf->cap : 256;
    while (cap < need)
        cap *= 2;
    char *ptr = grid_resize(buf->alloc, buf->ptr, cap);
    if (!ptr) {
        buf->failed = true;
        return false;
    }
    buf->ptr = ptr;
    buf->cap = cap;
    return true;
}

void grid_buf_put(struct grid_buf *buf, const void *bytes, size_t len)
{
    if (!buf_reserve(buf, len))
        return;
    if (len)
        memcpy(buf->ptr + buf->len, bytes, len);
    buf->len += len;
    buf->ptr[buf->len] = 0;
}

void grid_buf_puts(struct grid_buf *buf, const char *text)
{
    grid_buf_put(buf, text, strlen(text));
}

void grid_buf_printf(struct grid_buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len >= 0 && buf_reserve(buf, (size_t)len)) {
        (void)vsnprintf(buf->ptr + buf->len, (size_t)len + 1, format, again);
        buf->len += (size_t)len;
    } else {
        buf->failed = true;
    }
    va_end(again);
}

/* Length of the well-formed UTF-8 sequence at s, or 0. */
static size_t utf8_length(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

void grid_buf_json(struct grid_buf *buf, struct grid_str text)
{
    const unsigned char *s = (const unsigned char *)text.ptr;
    grid_buf_puts(buf, "\"");
    for (size_t i = 0; i < text.len;) {
        size_t n = utf8_length(s + i, text.len - i);
        if (n == 0) {
            grid_buf_puts(buf, "\xef\xbf\xbd");
            i++;
        } else if (s[i] < 0x20) {
            grid_buf_printf(buf, "\\u%04x", s[i]);
            i++;
        } else {
            if (s[i] == '"' || s[i] == '\\')
                grid_buf_puts(buf, "\\");
            grid_buf_put(buf, s + i, n);
            i += n;
        }
    }
    grid_buf_puts(buf, "\"");
}

void grid_buf_text(struct grid_buf *buf, struct grid_str text)
{
    if (text.ptr == NULL) {
        grid_buf_puts(buf, "null");
    } else {
        grid_buf_json(buf, text);
    }
}

void grid_buf_number(struct grid_buf *buf, double value)
{
    char text[40];

    if (!isfinite(value)) {
        grid_buf_puts(buf, "null");
        return;
    }
    for (int digits = DBL_DIG; digits <= DBL_DECIMAL_DIG; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (!(back < value) && !(back > value)) {
            break;
        }
    }
    grid_buf_puts(buf, text);
}

void grid_buf_done(struct grid_buf *buf)
{
    grid_give(buf->alloc, buf->ptr);
    buf->ptr = NULL;
    buf->len = buf->cap = 0;
}
