/*
 * fake_retry.c - callbacks of Envoy that a retry needs, and its driver
 */
#include "tests/support/fake_envoy.h"
#include "tests/support/fake_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ENVOY(http_filter_get_attribute_string)(void *stream, int attribute, struct grid_str *out)
{
    if (attribute != ENVOY_ATTRIBUTE_UPSTREAM_LOCAL_ADDRESS)
        return false;
    *out = text_of(((struct fake_stream *)stream)->local_address);
    return out->len > 0;
}

bool ENVOY(cluster_specifier_get_attribute_string)(void *context, int attribute, struct grid_str *out)
{
    return ENVOY(http_filter_get_attribute_string)(context, attribute, out);
}

bool ENVOY(http_set_dynamic_metadata_struct)(void *stream, struct grid_str space, struct grid_str bytes)
{
    struct fake_stream *s = stream;
    if (!same(space, text_of("grid")) || bytes.len > sizeof(s->metadata))
        abort();
    memcpy(s->metadata, bytes.ptr, bytes.len);
    s->metadata_bytes = bytes.len;
    return true;
}

void ENVOY(http_set_dynamic_metadata_number)(void *stream, struct grid_str space, struct grid_str key, double value)
{
    if (same(space, text_of("grid")) && same(key, text_of("ticket")))
        ((struct fake_stream *)stream)->ticket = value;
}

bool ENVOY(cluster_specifier_get_dynamic_metadata_number)(void *context, struct grid_str space, struct grid_str path,
                                                          double *out)
{
    const struct fake_stream *s = context;
    if (!same(space, text_of("grid")) || !same(path, text_of("ticket")) || s->ticket < 1)
        return false;
    *out = s->ticket;
    return true;
}

bool fake_retry(struct fake_stream *stream, const char *local_address)
{
    const char *left = fake_header(&stream->headers[ENVOY_REQUEST_HEADERS], "x-envoy-max-retries");
    if (!left || left[0] == '0' || left[1])
        return false;
    char fewer[2] = {(char)(left[0] - 1), 0};
    ENVOY(http_set_header)
    (stream, ENVOY_REQUEST_HEADERS, text_of("x-envoy-max-retries"), text_of(fewer));
    snprintf(stream->local_address, sizeof(stream->local_address), "%s", local_address);
    if (!ON(cluster_specifier_select)(NULL, stream))
        abort(); /* Envoy would stay where it is */
    return strcmp(stream->cluster, " ") != 0;
}
