/*
 * demo_print.c - what the demo writes on a terminal (see demo_print.h)
 */
#include "demo_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLAIN ""
#define BOLD "1"
#define DIM "2"
#define RED "31"
#define GREEN "32"
#define YELLOW "33"

static const char *const site_colours[GRID_DEMO_SITES] = {"36", "35", "34"};

static bool has_colour(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return (no == NULL || *no == '\0') && term != NULL && strcmp(term, "dumb") != 0 && isatty(STDOUT_FILENO) == 1;
}

/* The text in a field of so many columns, coloured or not. A negative width aligns to the left. */
static void put(const char *colour, int width, const char *text)
{
    if (*colour != '\0' && has_colour())
        printf("\033[%sm%*s\033[0m", colour, width, text);
    else
        printf("%*s", width, text);
}

static void end_line(void)
{
    (void)putchar('\n');
    (void)fflush(stdout);
}

void grid_demo_print_heading(const char *text)
{
    (void)putchar('\n');
    put(BOLD, 0, text);
    end_line();
}

void grid_demo_print_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    end_line();
}

void grid_demo_print_columns(void)
{
    char depths[64] = "queues";
    for (size_t i = 0; i < GRID_DEMO_SITES; i++)
        (void)snprintf(depths + strlen(depths), sizeof depths - strlen(depths), "%c%c", i == 0 ? ' ' : '/',
                       grid_demo_site_names[i][0]);
    printf("%4s  %-5s  %-13s %10s %13s %6s %8s %8s %11s", "turn", "site", "outcome", "run/blocks", depths, "worth",
           "prompt", "cached", "first token");
    end_line();
}

static const char *outcome_colour(enum grid_outcome outcome)
{
    return outcome == GRID_OUTCOME_STICKY ? GREEN : outcome == GRID_OUTCOME_LOAD_OVERRIDE ? YELLOW : PLAIN;
}

void grid_demo_print_turn(const struct grid_demo_turn *turn)
{
    char run[32] = "-", depths[64] = "", worth[32] = "-";
    bool known = turn->site < GRID_DEMO_SITES, counted = turn->outcome < GRID_N_OUTCOMES;
    if (turn->blocks > 0)
        (void)snprintf(run, sizeof run, "%" PRIu32 "/%" PRIu32, turn->run, turn->blocks);
    for (size_t i = 0; i < GRID_DEMO_SITES; i++)
        (void)snprintf(depths + strlen(depths), sizeof depths - strlen(depths), "%s%.3g", i == 0 ? "" : "/",
                       turn->depths[i]);
    if (isfinite(turn->worth))
        (void)snprintf(worth, sizeof worth, "%.2f", turn->worth);
    printf("%4u  ", turn->number);
    put(known ? site_colours[turn->site] : PLAIN, -5, known ? grid_demo_site_names[turn->site] : "?");
    printf("  ");
    put(outcome_colour(turn->outcome), -13, counted ? grid_outcome_name(turn->outcome) : "-");
    printf(" %10s %13s %6s %8" PRIu64 " %8" PRIu64 " %9.2f s", run, depths, worth, turn->prompt_tokens,
           turn->cached_tokens, turn->first_s);
    end_line();
}

void grid_demo_print_sums(const struct grid_demo_sum *with, const struct grid_demo_sum *without)
{
    printf("%-46s %14s %14s\n", "", "with affinity", "without");
    printf("%-46s %14u %14u\n", "sites that had to read the conversation", with->sites, without->sites);
    printf("%-46s %14" PRIu64 " %14" PRIu64 "\n", "prompt tokens sent", with->prompt_tokens, without->prompt_tokens);
    printf("%-46s %14" PRIu64 " %14" PRIu64 "\n", "  of these in the site's prefix cache", with->cached_tokens,
           without->cached_tokens);
    printf("%-46s %14" PRIu64 " %14" PRIu64 "\n", "  of these prefilled", with->prompt_tokens - with->cached_tokens,
           without->prompt_tokens - without->cached_tokens);
    printf("%-46s %12.2f s %12.2f s\n", "time to first token, turns two to last, median", with->median_s,
           without->median_s);
    printf("%-46s %12.2f s %12.2f s", "time to first token, turns two to last, worst", with->worst_s, without->worst_s);
    end_line();
}

void grid_demo_print_verdict(bool good, const char *format, ...)
{
    va_list args;
    put(good ? GREEN : RED, 0, good ? "It stuck: " : "Not as it should be: ");
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    end_line();
}
