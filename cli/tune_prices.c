/*
 * tune_prices.c - the two prices, fitted to what a real site says of itself
 *
 * Story     Two scrapes of vLLM's /metrics tell what happened between them: how many prompt tokens came, how many of
 *           them the prefix cache had, how long prefills took in sum, how many requests left the line.
 *             prefill_tokens_per_second = tokens that were not cached / seconds of prefill
 *             queued_request_seconds    = seconds from one start to the next while some wait: what each request that
 *                                         stands in the line adds to the wait of one that joins it
 *           The second can be seen only between two scrapes at which requests waited. Where there was no line, the mean
 *           prefill of a request is shown: a line would move no faster than that on one engine.
 * Promise   A figure that the scrapes cannot give is said to be missing, never guessed.
 * Source    vLLM's names: vllm:prompt_tokens_total, vllm:prompt_tokens_cached_total, vllm:prefix_cache_hits_total (in
 *           tokens), vllm:request_prefill_time_seconds, vllm:num_requests_waiting.
 */
#include "tune.h"

#include "cli.h"
#include "files.h"

#include <grid/grid.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SCRAPE_BYTES ((size_t)16 << 20)

/* Sums over all series of a name; NAN when there is none. */
struct scrape {
    double prompt_tokens, hit_tokens, cached_tokens, prefill_s, prefills, waiting;
};

/* The sum of all series of one name in an exposition. */
static double sum_of(const char *text, const char *name)
{
    double sum = NAN;
    size_t len = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, name, len) != 0 || !strchr("{ \t", line[len]))
            continue;
        const char *at = line + len, *end = strchr(line, '\n');
        if (*at == '{') { /* a label's value may hold a brace: the last one of the line ends the labels */
            size_t all = end ? (size_t)(end - at) : strlen(at);
            at = memrchr(at, '}', all);
            if (!at)
                continue;
            at++;
        }
        char *after;
        double value = strtod(at, &after);
        if (after != at && isfinite(value))
            sum = (isnan(sum) ? 0 : sum) + value;
    }
    return sum;
}

static bool read_scrape(const char *path, struct scrape *out)
{
    char error[384], *text;
    size_t len;
    if (!grid_files_read_input(path, MOST_SCRAPE_BYTES, &text, &len, error, sizeof error)) {
        fprintf(stderr, "grid-gateway tune: %s\n", error);
        return false;
    }
    *out = (struct scrape){.prompt_tokens = sum_of(text, "vllm:prompt_tokens_total"),
                           .hit_tokens = sum_of(text, "vllm:prefix_cache_hits_total"),
                           .cached_tokens = sum_of(text, "vllm:prompt_tokens_cached_total"),
                           .prefill_s = sum_of(text, "vllm:request_prefill_time_seconds_sum"),
                           .prefills = sum_of(text, "vllm:request_prefill_time_seconds_count"),
                           .waiting = sum_of(text, "vllm:num_requests_waiting")};
    free(text);
    if (isnan(out->prompt_tokens) || isnan(out->prefill_s) || isnan(out->prefills)) {
        fprintf(stderr, "grid-gateway tune: %s: has no vllm:prompt_tokens_total or vllm:request_prefill_time_seconds\n",
                path);
        return false;
    }
    return true;
}

/* All that happened between the first scrape and the last, and while there was a line. */
struct seen {
    double seconds, tokens, fresh, prefill_s, prefills;
    double line_s, line_starts;
    bool has_cached;
};

static bool add_up(const struct scrape *a, const struct scrape *b, double every_s, struct seen *seen)
{
    double tokens = b->prompt_tokens - a->prompt_tokens, starts = b->prefills - a->prefills;
    double cached = b->cached_tokens - a->cached_tokens;
    if (isnan(cached))
        cached = b->hit_tokens - a->hit_tokens;
    if (tokens < 0 || starts < 0 || b->prefill_s < a->prefill_s || cached < 0)
        return false; /* the engine began anew */
    seen->has_cached = seen->has_cached || !isnan(cached);
    seen->seconds += every_s;
    seen->tokens += tokens;
    seen->fresh += isnan(cached) ? tokens : fmax(0, tokens - cached);
    seen->prefill_s += b->prefill_s - a->prefill_s;
    seen->prefills += starts;
    if (a->waiting > 0 && b->waiting > 0) {
        seen->line_s += every_s;
        seen->line_starts += starts;
    }
    return true;
}

static void print(const struct seen *seen)
{
    printf("%.0f s: %.0f requests began, %.0f prompt tokens, %.0f of them prefilled in %.2f s%s\n\n", seen->seconds,
           seen->prefills, seen->tokens, seen->fresh, seen->prefill_s,
           seen->has_cached ? "" : " (cached tokens are not told: all are taken for prefilled)");
    if (seen->prefill_s > 0 && seen->fresh > 0)
        printf("  prefill_tokens_per_second: %.0f\n", seen->fresh / seen->prefill_s);
    else
        puts("  prefill_tokens_per_second: cannot be told: nothing was prefilled");
    if (seen->line_starts > 0)
        printf("  queued_request_seconds: %.3g   (from %.0f s in which requests waited)\n",
               seen->line_s / seen->line_starts, seen->line_s);
    else if (seen->prefills > 0)
        printf("  queued_request_seconds: cannot be told: at no two scrapes in a row requests waited.\n"
               "    A prefill took %.3g s on average: on one engine a line would not move faster.\n",
               seen->prefill_s / seen->prefills);
    else
        puts("  queued_request_seconds: cannot be told: no request began");
    puts("\nNothing was changed. They go under grid_site_route.prefix_affinity; one pair is for all sites, so take "
         "what\n"
         "suits most of them.");
}

int grid_tune_prices(char *const *paths, size_t n, double every_s)
{
    struct scrape before = {0}, now;
    struct seen seen = {0};
    for (size_t i = 0; i < n; i++) {
        if (!read_scrape(paths[i], &now))
            return GRID_EXIT_FAILED;
        if (i && !add_up(&before, &now, every_s, &seen)) {
            fprintf(stderr, "grid-gateway tune: %s: counters went back: the engine began anew\n", paths[i]);
            return GRID_EXIT_FAILED;
        }
        before = now;
    }
    print(&seen);
    return fflush(stdout) == 0 ? GRID_EXIT_OK : GRID_EXIT_FAILED;
}
