/*
 * tune.h - what the two halves of the verb `tune` share
 */
#ifndef GRID_TUNE_H
#define GRID_TUNE_H

#include <stddef.h>

/* Fits the two prices to scrapes of one site, taken so many seconds apart, and prints them. Returns an exit status. */
int grid_tune_prices(char *const *paths, size_t n, double every_s);

#endif
