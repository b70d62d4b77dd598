/*
 * check.h - asserts for our own mistakes, and clean-up where a variable is declared
 *
 * Promise   GRID_ASSERT is on in every build: a broken invariant in a process that routes other people's requests is
 *           worth the branch. GRID_DEAR_ASSERT is for checks that cost, and is off in release.
 * Not here  Bad settings (status.h) and bad traffic (an outcome with a reason): neither is ever asserted.
 */
#ifndef GRID_CHECK_H
#define GRID_CHECK_H

#include <stdlib.h>

#define GRID_ASSERT(condition) ((condition) ? (void)0 : abort())

#ifdef NDEBUG
#define GRID_DEAR_ASSERT(condition) ((void)0)
#else
#define GRID_DEAR_ASSERT(condition) GRID_ASSERT(condition)
#endif

/* Calls done(&variable) when the variable leaves its scope. */
#define GRID_AUTO(done) __attribute__((cleanup(done)))

#define GRID_LIKELY(x) __builtin_expect(!!(x), 1)
#define GRID_UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif
