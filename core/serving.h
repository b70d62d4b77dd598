/*
 * serving.h - bounds of the serving config; its verbs, grid_serving_parse and grid_serving_free, are in grid.h
 */
#ifndef GRID_SERVING_H
#define GRID_SERVING_H

#include "grid/grid.h"

#define GRID_SERVING_MAX_BYTES (64u << 20) /* of memory for one parsed config */

#endif
