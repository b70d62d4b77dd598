/*
 * config_check.h - what only looking around can tell about a configuration
 *
 * Story     config.c calls these when fields are right by themselves: are named files there and long enough, do
 *           addresses clash, can each endpoint be dialled at all.
 * Not here  Types and ranges (config.c and the core).
 */
#ifndef GRID_CONFIG_CHECK_H
#define GRID_CONFIG_CHECK_H

#include "cli/reading.h"

/* The gateway's own part; makes tag key paths absolute and reads certificates and keys on the way. */
void grid_config_check_gateway(struct grid_reading *r);

/* The serving config; `prefix` is "serving" when it is in place, else "". Reads what its clusters name. */
void grid_config_check_serving(struct grid_reading *r, const char *prefix);

#endif
