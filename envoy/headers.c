/*
 * headers.c - header maps: read whole, and rid of what only the gateway or Envoy may say
 *
 * Story     request.c reads the head of a request with it, answer.c cleans the head of an answer.
 * Promise   A view of a header lives until a setter is called on its map: nothing here returns one from after that.
 */
#include "filter.h"

#include <stdlib.h>

/* Only the gateway says x-grid-*, and only Envoy x-envoy-*: from a client these would change timeouts and retries. */
static const struct grid_str GRID_HEAD = {"x-grid-", 7}, ENVOY_HEAD = {"x-envoy-", 8};

/* All headers of a map in one call, in `room` or, when they are too many, in memory that the caller frees. */
struct grid_header *grid_headers_read(void *envoy, int map, struct grid_header *room, size_t *out_n)
{
    size_t n = ENVOY(http_get_headers_size)(envoy, map);
    struct grid_header *headers = n <= GRID_MANY_HEADERS ? room : malloc(n * sizeof(*headers));
    if (headers && n > 0 && !ENVOY(http_get_headers)(envoy, map, headers))
        n = 0;
    *out_n = n;
    return headers;
}

/* Envoy itself sets the client's address on every request; it steers nothing. */
static bool is_forged(int map, struct grid_str name)
{
    return grid_bridge_starts(name, GRID_HEAD) ||
           (map == ENVOY_REQUEST_HEADERS && grid_bridge_starts(name, ENVOY_HEAD) &&
            !grid_bridge_same(name, GRID_TEXT("x-envoy-external-address")));
}

size_t grid_headers_forged(int map, const struct grid_header *headers, size_t n)
{
    size_t i = 0;
    while (i < n && !is_forged(map, headers[i].name))
        i++;
    return i;
}

/* NUL-terminated and the caller's; NULL for want of memory. The view itself has no NUL behind it. */
static char *copy_name(struct grid_str name)
{
    char *copy = malloc(name.len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, name.ptr, name.len);
    copy[name.len] = 0;
    return copy;
}

/* Removes what only the gateway or Envoy may say. A removal ends the life of every view, so the names are read anew. */
bool grid_headers_clean(void *envoy, int map)
{
    struct grid_header room[GRID_MANY_HEADERS];
    for (;;) {
        size_t n = 0;
        struct grid_header *headers = grid_headers_read(envoy, map, room, &n);
        size_t at = headers ? grid_headers_forged(map, headers, n) : n;
        char *name = headers && at < n ? copy_name(headers[at].name) : NULL;
        bool more = name != NULL, failed = !headers || (at < n && !name);
        if (headers != room)
            free(headers);
        if (more)
            grid_bridge_remove(envoy, map, grid_bridge_text(name));
        free(name);
        if (!more)
            return !failed;
    }
}
