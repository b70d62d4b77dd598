/*
 * str.h - verbs on views of text
 *
 * Story     struct grid_str (grid.h) is pointer and length by value; these are its few inline verbs.
 * Not here  growable text (arena.h), JSON (json.h).
 */
#ifndef GRID_STR_H
#define GRID_STR_H

#include <string.h>

#include "grid/grid.h"

_Static_assert(sizeof(struct grid_str) == 2 * sizeof(void *), "a view is two machine words");

/* A literal as a view. */
#define GRID_LIT(s) ((struct grid_str){(s), sizeof(s) - 1})
/* For printf's "%.*s". */
#define GRID_FMT(s) (int)((s).len), (s).ptr

static inline bool grid_str_eq(struct grid_str a, struct grid_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool grid_str_starts(struct grid_str s, struct grid_str head)
{
    return s.len >= head.len && (head.len == 0 || memcmp(s.ptr, head.ptr, head.len) == 0);
}

/* The text before the first `byte`, or all of it. */
static inline struct grid_str grid_str_until(struct grid_str s, char byte)
{
    const char *at = s.len ? memchr(s.ptr, byte, s.len) : NULL;
    return (struct grid_str){s.ptr, at ? (size_t)(at - s.ptr) : s.len};
}

/* A NUL-terminated text as a view; NULL as absent. */
static inline struct grid_str grid_str_of(const char *text)
{
    return (struct grid_str){text, text ? strlen(text) : 0};
}

/* ASCII lower case of one byte. */
static inline char grid_str_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* Equal to a text in lower case, without regard to ASCII case? */
static inline bool grid_str_eq_nocase(struct grid_str a, struct grid_str lower)
{
    if (a.len != lower.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (grid_str_lower(a.ptr[i]) != lower.ptr[i])
            return false;
    return true;
}

/* Without the blanks around it. */
static inline struct grid_str grid_str_trim(struct grid_str s)
{
    while (s.len && (s.ptr[0] == ' ' || s.ptr[0] == '\t'))
        s.ptr++, s.len--;
    while (s.len && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t'))
        s.len--;
    return s;
}

#endif
