/*
 * values.h - readers for tables of fields (fields.h) that keep a text in the config's arena, at field->at
 */
#ifndef GRID_VALUES_H
#define GRID_VALUES_H

#include "fields.h"

#define GRID_VALUES_SITE_BYTES 63u /* a DNS-1123 label */
#define GRID_VALUES_HOST_BYTES 253u
#define GRID_VALUES_ADDRESS_BYTES (GRID_VALUES_HOST_BYTES + sizeof "[]:65535")

/* What is accepted, in words. */
#define GRID_VALUES_SITE "a DNS-1123 label: 1 to 63 of a-z, 0-9 and '-', no '-' at either end"
#define GRID_VALUES_ADDRESS "host:port, or [address]:port for IPv6, the port from 1 to 65535"
#define GRID_VALUES_URL "a path that starts with '/', without blanks"

/* Zeroed room for n things in the arena; NULL, refused, when there is no memory. */
void *grid_values_take(struct grid_fields *in, size_t n, size_t size);
/* Copies the text into the arena and to the field's place. */
void grid_values_keep(struct grid_fields *in, const struct grid_field *field, void *object, struct grid_str text);

void grid_values_name(struct grid_fields *in, const struct grid_field *field, void *object);
/* A path to a file, a host name: any text of 1..field->most bytes. */
void grid_values_text(struct grid_fields *in, const struct grid_field *field, void *object);
void grid_values_site(struct grid_fields *in, const struct grid_field *field, void *object);
/* The path of a request that the gateway makes itself. */
void grid_values_url_path(struct grid_fields *in, const struct grid_field *field, void *object);
void grid_values_address(struct grid_fields *in, const struct grid_field *field, void *object);

/* One of a few words: its number, or n when it is none of them (refused). */
size_t grid_values_choice(struct grid_fields *in, const struct grid_field *field, const char *const *words, size_t n);

/* Moves the path for a refusal that comes after the value was read; the next step of a list moves it back. */
void grid_values_stand_at(struct grid_fields *in, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
