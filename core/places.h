/*
 * places.h - readers of the lists that say where clusters are, for serving.c
 */
#ifndef GRID_PLACES_H
#define GRID_PLACES_H

#include "describe.h"

#define GRID_PLACES_MAX 1024u           /* clusters, and peers */
#define GRID_PLACES_MAX_ENDPOINTS 1024u /* of one cluster */

/* Readers for a table of fields whose object begins with a struct grid_serving. */
void grid_places_clusters(struct grid_fields *in, const struct grid_field *field, void *object);
void grid_places_peers(struct grid_fields *in, const struct grid_field *field, void *object);

void grid_places_describe(const struct grid_describe *to);

#endif
