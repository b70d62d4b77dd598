/*
 * dice.h - chance for random tests
 *
 * Story     A random test takes its seed here and prints it; GRID_TEST_SEED=N in the environment plays one again.
 */
#ifndef GRID_TEST_DICE_H
#define GRID_TEST_DICE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct dice {
    uint64_t state;
};

static inline struct dice dice_new(const char *test)
{
    const char *given = getenv("GRID_TEST_SEED");
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 30);
    printf("%s: GRID_TEST_SEED=%llu\n", test, (unsigned long long)seed);
    (void)fflush(stdout); /* a crash must not eat it */
    return (struct dice){seed};
}

static inline uint64_t dice_roll(struct dice *dice)
{
    uint64_t x = dice->state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* Uniform enough in 0..n-1. */
static inline uint32_t dice_below(struct dice *dice, uint32_t n)
{
    return (uint32_t)(dice_roll(dice) % n);
}

#endif
