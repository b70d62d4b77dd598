/*
 * scan.h - what ends a plain run in a JSON string, found many bytes at a time
 *
 * Story     lex.c walks strings with these. A byte means something in a string when it is a quote, a backslash or under
 *           0x20; whether some byte is not ASCII is noted on the way, since only such strings need their UTF-8 judged.
 * Promise   Each scan and its plain twin give the same answer (test_lex.c). No byte behind the end is read.
 */
#ifndef GRID_SCAN_H
#define GRID_SCAN_H

#include "str.h"

/* The first byte in [at, end) that means something; else end. Sets bit 7 of *high when a byte passed was not ASCII. */
const char *grid_scan_plain(const char *at, const char *end, unsigned char *high);
const char *grid_scan_plain_twin(const char *at, const char *end, unsigned char *high); /* byte by byte */
/* With the vectors that every machine of this kind has, whatever this one has. */
const char *grid_scan_plain_narrow(const char *at, const char *end, unsigned char *high);

/* The same among the GRID_SCAN_NEAR bytes at `at`, which must be there; NULL when none is. */
#define GRID_SCAN_NEAR 16u
const char *grid_scan_near(const char *at, unsigned char *high);

/* Which of the first n bytes (at most GRID_SCAN_WIDE) mean something: bit i stands for byte i. */
#define GRID_SCAN_WIDE 64u
struct grid_scan_marks {
    uint64_t quotes, slashes, controls, high;
};
struct grid_scan_marks grid_scan_marks(const char *at, size_t n);
struct grid_scan_marks grid_scan_marks_twin(const char *at, size_t n); /* byte by byte */

/* Passes a string's inside, 64 bytes a step, plain escapes too: up to the byte that ends the string or may not stand in
 * it, an escape that is wrong or spells a number, or where less than a step is left (an escape is passed whole or not
 * at all). Sets what it met. Where there is no AVX2 it passes whole steps without any of these and without escapes. */
const char *grid_scan_inside(const char *at, const char *end, bool *high, bool *escaped);
/* The same with vectors of 16, 32 or 64 bytes; NULL where the machine has none such. For tests. */
const char *grid_scan_inside_by(size_t width, const char *at, const char *end, bool *high, bool *escaped);

#endif
