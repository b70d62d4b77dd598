/*
 * unit.h - cmocka and what it wants included before it
 */
#ifndef GRID_TEST_UNIT_H
#define GRID_TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

#endif
