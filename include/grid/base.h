/*
 * base.h - what every other type of the core stands on: text, memory, refusals
 *
 * Not here  Everything that has to do with a grid (grid.h, which hosts include).
 */
#ifndef GRID_BASE_H
#define GRID_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRID_MUST_USE __attribute__((warn_unused_result))

/* ---- text ---------------------------------------------------------------------------------------------------- */

/* Bytes with a length; a view, never NUL-terminated by promise. {NULL, 0} means absent where absence is told apart. */
struct grid_str {
    const char *ptr;
    size_t len;
};

/* One HTTP header; lower-case name. Two views side by side, which is also how Envoy hands them over. */
struct grid_header {
    struct grid_str name;
    struct grid_str value;
};

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* Where all memory of the core comes from. NULL in place of a struct grid_alloc means malloc, realloc and free. */
struct grid_alloc {
    void *(*take)(void *ctx, size_t size);
    void *(*resize)(void *ctx, void *ptr, size_t size); /* ptr may be NULL */
    void (*give)(void *ctx, void *ptr);                 /* ptr may be NULL */
    void *ctx;
};

/* Growable text with a ceiling given at birth. Start from {.limit = N, .alloc = A}; give back with grid_buf_done. */
struct grid_buf {
    char *ptr;
    size_t len, cap, limit;
    const struct grid_alloc *alloc;
    bool failed; /* no memory or over the limit: what is in ptr is a head of the text */
};
void grid_buf_put(struct grid_buf *buf, const void *bytes, size_t len);
void grid_buf_puts(struct grid_buf *buf, const char *text);
void grid_buf_printf(struct grid_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void grid_buf_json(struct grid_buf *buf, struct grid_str text); /* as a JSON string with quotes; bad UTF-8 as U+FFFD */
void grid_buf_text(struct grid_buf *buf, struct grid_str text); /* the same; null when ptr is NULL */
/* As the shortest JSON number that reads back exactly; null when it is not finite. */
void grid_buf_number(struct grid_buf *buf, double value);
void grid_buf_done(struct grid_buf *buf);

/* ---- errors of settings -------------------------------------------------------------------------------------- */

enum grid_status {
    GRID_OK = 0,
    GRID_E_NO_MEMORY, /* the allocator gave nothing, or a ceiling was met */
    GRID_E_SYNTAX,    /* not JSON */
    GRID_E_FIELD,     /* a field is unknown, missing, of the wrong type or out of range */
    GRID_E_CONFLICT,  /* fields that are right apart and wrong together */
};
const char *grid_status_name(enum grid_status status);

/* One refusal. `field` is a dotted path: "prefix_affinity.threshold", "candidates[3].site"; "" for the whole text. */
struct grid_err {
    enum grid_status code;
    size_t offset; /* byte offset into the text that was given, of the value at fault */
    char field[128];
    char message[256]; /* names the value and the accepted range */
};

/* All refusals of one text, in its order, the first GRID_MAX_ERRORS kept. Zero it before the call. */
#define GRID_MAX_ERRORS 32u
struct grid_errors {
    size_t count;
    struct grid_err items[GRID_MAX_ERRORS];
};

#endif
