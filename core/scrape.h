/*
 * scrape.h - bounds of the exposition reader; its one verb, grid_scrape_depth, is in grid.h
 */
#ifndef GRID_SCRAPE_H
#define GRID_SCRAPE_H

#include "grid/grid.h"

#define GRID_SCRAPE_LINE_BYTES 4096u   /* a longer line is skipped, wherever its slices end */
#define GRID_SCRAPE_MAX_DEPTH 1000000. /* a count above this is no count: absent */

#endif
