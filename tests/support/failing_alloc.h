/*
 * failing_alloc.h - an allocator that fails when it is told to, and counts what is out
 *
 * Story     Fault tests give it to the core, make the n-th allocation fail for every n, and look that nothing is left
 *           behind. Any thread may use it.
 */
#ifndef GRID_TEST_FAILING_ALLOC_H
#define GRID_TEST_FAILING_ALLOC_H

#include <stdatomic.h>
#include <stdlib.h>

#include "grid/grid.h"

#define NEVER_FAILS UINT64_MAX

struct failing_alloc {
    struct grid_alloc alloc;
    atomic_ullong asked;   /* allocations asked for since failing_alloc_arm */
    atomic_ullong fail_at; /* this one fails, counted from 0; NEVER_FAILS */
    atomic_bool for_good;  /* and all after it */
    atomic_llong out;      /* blocks not given back */
    atomic_bool failed;    /* one did fail */
};

static inline bool failing_alloc_fails(struct failing_alloc *from)
{
    uint64_t n = atomic_fetch_add(&from->asked, 1), at = atomic_load(&from->fail_at);
    bool fails = n == at || (n > at && atomic_load(&from->for_good));
    if (fails)
        atomic_store(&from->failed, true);
    return fails;
}

static inline void *failing_alloc_take(void *ctx, size_t size)
{
    struct failing_alloc *from = ctx;
    void *ptr = failing_alloc_fails(from) ? NULL : malloc(size);
    if (ptr)
        (void)atomic_fetch_add(&from->out, 1);
    return ptr;
}

static inline void *failing_alloc_resize(void *ctx, void *ptr, size_t size)
{
    struct failing_alloc *from = ctx;
    void *moved = failing_alloc_fails(from) ? NULL : realloc(ptr, size);
    if (moved && !ptr)
        (void)atomic_fetch_add(&from->out, 1);
    return moved;
}

static inline void failing_alloc_give(void *ctx, void *ptr)
{
    struct failing_alloc *from = ctx;
    if (ptr)
        (void)atomic_fetch_sub(&from->out, 1);
    free(ptr);
}

static inline void failing_alloc_init(struct failing_alloc *from)
{
    from->alloc = (struct grid_alloc){failing_alloc_take, failing_alloc_resize, failing_alloc_give, from};
    atomic_init(&from->asked, 0);
    atomic_init(&from->fail_at, NEVER_FAILS);
    atomic_init(&from->for_good, false);
    atomic_init(&from->out, 0);
    atomic_init(&from->failed, false);
}

/* The n-th allocation from now on fails, and with for_good all behind it. */
static inline void failing_alloc_arm(struct failing_alloc *from, uint64_t n, bool for_good)
{
    atomic_store(&from->failed, false);
    atomic_store(&from->for_good, for_good);
    atomic_store(&from->fail_at, n);
    atomic_store(&from->asked, 0);
}

static inline void failing_alloc_disarm(struct failing_alloc *from)
{
    atomic_store(&from->fail_at, NEVER_FAILS);
}

#endif
