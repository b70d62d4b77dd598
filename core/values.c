/*
 * values.c - the values of a serving config that are kept: names, sites, paths, addresses
 *
 * Promise   A reader keeps a copy in the config's arena, or refuses the value and keeps nothing.
 * Source    behaviour.md J.2; design.md 7.
 * Not here  Which field takes which (serving.c), numbers and booleans (fields.c).
 */
#include "values.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>

#define MAX_PORT 65535u

void *grid_values_take(struct grid_fields *in, size_t n, size_t size)
{
    void *ptr = grid_arena_take(in->arena, (n ? n : 1) * size);
    if (!ptr)
        grid_fields_refuse(in, GRID_E_NO_MEMORY, grid_fields_offset(&in->json), "no memory for the serving config");
    else
        memset(ptr, 0, (n ? n : 1) * size);
    return ptr;
}

void grid_values_keep(struct grid_fields *in, const struct grid_field *field, void *object, struct grid_str text)
{
    struct grid_str copy = grid_arena_copy(in->arena, text);
    if (copy.ptr)
        *(struct grid_str *)((char *)object + field->at) = copy;
    else
        grid_fields_refuse(in, GRID_E_NO_MEMORY, grid_fields_offset(&in->mark), "no memory for the serving config");
}

void grid_values_name(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_str text;
    if (grid_fields_name(in, &text))
        grid_values_keep(in, field, object, text);
}

/* A path to a file, a host name, any short text. */
void grid_values_text(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_str text;
    if (grid_fields_text(in, 1, (size_t)field->most, field->accepts, &text))
        grid_values_keep(in, field, object, text);
}

static bool is_label_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

void grid_values_site(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_str text;
    if (!grid_fields_text(in, 1, GRID_VALUES_SITE_BYTES, GRID_VALUES_SITE, &text))
        return;
    bool fine = text.ptr[0] != '-' && text.ptr[text.len - 1] != '-';
    for (size_t i = 0; i < text.len; i++)
        fine = fine && is_label_byte(text.ptr[i]);
    if (fine)
        grid_values_keep(in, field, object, text);
    else
        grid_fields_bad(in, GRID_VALUES_SITE);
}

/* The path of a request that the gateway makes itself. */
void grid_values_url_path(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_str text;
    if (!grid_fields_text(in, 1, GRID_FIELDS_PATH_BYTES, GRID_VALUES_URL, &text))
        return;
    bool fine = text.ptr[0] == '/';
    for (size_t i = 0; i < text.len; i++)
        fine = fine && text.ptr[i] > ' ' && text.ptr[i] != '#'; /* signed or not: ASCII, or refused */
    if (fine)
        grid_values_keep(in, field, object, text);
    else
        grid_fields_bad(in, GRID_VALUES_URL);
}

static bool is_host(struct grid_str host)
{
    char address[INET6_ADDRSTRLEN];
    unsigned char room[sizeof(struct in6_addr)];
    if (host.len >= 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']') {
        size_t len = host.len - 2;
        if (len >= sizeof address)
            return false;
        memcpy(address, host.ptr + 1, len);
        address[len] = 0;
        return inet_pton(AF_INET6, address, room) == 1;
    }
    bool fine = host.len > 0 && host.len <= GRID_VALUES_HOST_BYTES && host.ptr[0] != '-' && host.ptr[0] != '.';
    for (size_t i = 0; i < host.len; i++)
        fine = fine && (is_label_byte(grid_str_lower(host.ptr[i])) || host.ptr[i] == '.' || host.ptr[i] == '_');
    return fine;
}

static bool is_address(struct grid_str text)
{
    const char *colon = text.len ? memrchr(text.ptr, ':', text.len) : NULL;
    if (!colon)
        return false;
    size_t digits = text.len - (size_t)(colon - text.ptr) - 1;
    unsigned port = 0;
    if (digits == 0 || digits > 5)
        return false;
    for (size_t i = 1; i <= digits; i++) {
        if (colon[i] < '0' || colon[i] > '9')
            return false;
        port = port * 10 + (unsigned)(colon[i] - '0');
    }
    return port > 0 && port <= MAX_PORT && is_host((struct grid_str){text.ptr, (size_t)(colon - text.ptr)});
}

void grid_values_address(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_str text;
    if (!grid_fields_text(in, 1, GRID_VALUES_ADDRESS_BYTES, GRID_VALUES_ADDRESS, &text))
        return;
    if (is_address(text))
        grid_values_keep(in, field, object, text);
    else
        grid_fields_bad(in, GRID_VALUES_ADDRESS);
}

/* One of a few words: its number, or n when it is none of them (refused). */
size_t grid_values_choice(struct grid_fields *in, const struct grid_field *field, const char *const *words, size_t n)
{
    struct grid_str text;
    if (!grid_fields_text(in, 1, GRID_MAX_NAME_BYTES, field->accepts, &text))
        return n;
    for (size_t i = 0; i < n; i++)
        if (grid_str_eq(text, grid_str_of(words[i])))
            return i;
    grid_fields_bad(in, field->accepts);
    return n;
}

/* Moves the path for a refusal that comes after the value was read; the next step of a list moves it back. */
void grid_values_stand_at(struct grid_fields *in, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(in->path, sizeof in->path, format, args);
    va_end(args);
    in->path_len = strlen(in->path);
}
