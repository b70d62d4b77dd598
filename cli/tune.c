/*
 * tune.c - the verb `tune`: which settings would suit a trace
 *
 * Story     Runs the simulation with the present settings, then with one setting changed at a time, and shows what each
 *           value would give. What helps by more than a margin is kept while the next setting is tried; the end is a
 *           line of settings beside the present ones, with the figures of both.
 * Promise   Changes nothing anywhere: it prints.
 * Not here  The prices of real sites (tune_prices.c), the simulation (simulate.h).
 */
#include "tune.h"

#include "cli.h"
#include "simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SCRAPES 64
#define DEFAULT_REPEAT 3
#define DEFAULT_REQUESTS 6000
#define MARGIN 0.01 /* less is noise: the present value stays */
#define MOST_VALUES 8

static const char head[] =
    "usage: grid-gateway tune (--trace FILE | --make KIND) [OPTION]...\n"
    "       grid-gateway tune --metrics FILE --metrics FILE … --every SECONDS\n"
    "\n"
    "First form: simulates a trace under many settings of prefix_affinity and prints what each would give and\n"
    "which suit it best. Changes nothing. Takes at most the first 6000 requests unless --requests says otherwise.\n"
    "Second form: fits prefill_tokens_per_second and queued_request_seconds to /metrics of one vLLM site,\n"
    "scraped at least twice, so many seconds apart, while it had work:\n"
    "  for i in 1 2 3 4 5 6; do curl -s http://site:8000/metrics > m$i; sleep 10; done\n"
    "\n"
    "  --for FIGURE         what is best: ttft-mean (default), ttft-p50, ttft-p99 or hit-rate\n"
    "  --now SETTINGS       the present settings, as in 'threshold=0.8,spread_ties=1' (default: the defaults)\n"
    "  --metrics FILE       a scrape of one site; give two or more, in their order\n"
    "  --every SECONDS      between two scrapes\n"
    "  -h, --help\n"
    "\n";

static const char tail[] =
    "\n"
    "--policy has no meaning here. --repeat is 3 by default: figures are means over seeds.\n"
    "\n"
    "Example\n"
    "  grid-gateway tune --trace mine.jsonl --sites 2 --prefill 12000 --load 0.8 --for ttft-p99\n"
    "\n"
    "Exit status: 0 done; 1 a file is wrong; 2 usage.\n";

/* In the order in which they are tried: what moves most first. */
static const struct setting {
    const char *name;
    double standard;
    double values[MOST_VALUES];
    size_t n;
    bool is_flag; /* 0 is false, 1 is true */
} settings[] = {
    {"spread_ties", 0, {0, 1}, 2, true},
    {"load_window_ms", 30000, {2500, 5000, 10000, 30000, 60000}, 5, false},
    {"queued_request_seconds", 2, {0.25, 0.5, 1, 2, 4, 8}, 6, false},
    {"prefill_tokens_per_second", 10000, {1000, 2500, 5000, 10000, 20000, 40000}, 6, false},
    {"threshold", 0.8, {0.3, 0.5, 0.65, 0.8, 0.95}, 5, false},
    {"exploration", 0.02, {0, 0.01, 0.02, 0.05, 0.1}, 5, false},
    {"capacity", 16384, {4096, 16384, 65536, 262144}, 4, false},
    {"ttl_secs", 600, {60, 300, 600, 1800, 7200}, 5, false},
};
#define N_SETTINGS (sizeof settings / sizeof settings[0])

static const struct target {
    const char *name;
    double (*of)(const struct grid_simulate_result *);
    bool more_is_better;
} targets[] = {{"ttft-mean", grid_simulate_ttft_mean, false},
               {"ttft-p50", grid_simulate_ttft_p50, false},
               {"ttft-p99", grid_simulate_ttft_p99, false},
               {"hit-rate", grid_simulate_hit_rate, true}};

struct tune {
    struct grid_simulate_command command;
    struct grid_trace trace;
    struct grid_trace_sums sums;
    const struct target *target;
    double values[N_SETTINGS];
    char *scrapes[MOST_SCRAPES];
    size_t n_scrapes;
    double every_s;
    const char *now;
};

struct outcome {
    double aim, hit_rate, mean, p50, p99, spread;
};

static void put_value(size_t i, double value, char *out, size_t size)
{
    if (settings[i].is_flag)
        (void)snprintf(out, size, "%s", value > 0 ? "true" : "false");
    else
        (void)snprintf(out, size, "%.10g", value);
}

static void spec_of(const double values[N_SETTINGS], char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "ours:");
    for (size_t i = 0; i < N_SETTINGS && used < size; i++) {
        char value[32];
        put_value(i, values[i], value, sizeof value);
        used += (size_t)snprintf(out + used, size - used, "%s%s=%s", i ? "," : "", settings[i].name, value);
    }
}

static double spread_of(const struct grid_simulate_result *result)
{
    return result->spread_mean;
}

static bool try_values(const struct tune *tune, const double values[N_SETTINGS], struct outcome *out, char *error,
                       size_t error_size)
{
    const struct grid_simulate_command *command = &tune->command;
    char spec[GRID_POLICY_SPEC_BYTES];
    struct grid_simulate_options options = command->grid;
    struct grid_simulate_result *results = calloc(command->repeat, sizeof *results);
    bool good = results != NULL;
    spec_of(values, spec, sizeof spec);
    options.speed = grid_simulate_speed(command, &tune->sums, command->loads[0]);
    for (size_t i = 0; good && i < command->repeat; i++) {
        options.seed = command->grid.seed + i;
        good = grid_simulate_run(&tune->trace, &options, spec, &results[i], error, error_size);
    }
    if (good)
        *out = (struct outcome){grid_simulate_figure(results, command->repeat, tune->target->of).mean,
                                grid_simulate_figure(results, command->repeat, grid_simulate_hit_rate).mean,
                                grid_simulate_figure(results, command->repeat, grid_simulate_ttft_mean).mean,
                                grid_simulate_figure(results, command->repeat, grid_simulate_ttft_p50).mean,
                                grid_simulate_figure(results, command->repeat, grid_simulate_ttft_p99).mean,
                                grid_simulate_figure(results, command->repeat, spread_of).mean};
    for (size_t i = 0; results && i < command->repeat; i++)
        grid_simulate_result_done(&results[i]);
    free(results);
    return good;
}

static bool better(const struct tune *tune, const struct outcome *a, const struct outcome *b, double margin)
{
    return tune->target->more_is_better ? a->aim > b->aim * (1 + margin) : a->aim < b->aim * (1 - margin);
}

static void print_outcome(const char *name, const struct outcome *o, const char *note)
{
    printf("  %-26s %7.2f %10.3f %9.3f %9.3f %8.2f  %s\n", name, 100 * o->hit_rate, o->mean, o->p50, o->p99, o->spread,
           note);
}

/* Tries all values of setting i; leaves the best in tune->values and *present, the outcome of what is there now. */
static bool try_setting(struct tune *tune, size_t i, struct outcome *present, char *error, size_t error_size)
{
    const struct setting *setting = &settings[i];
    double kept = tune->values[i];
    struct outcome outcomes[MOST_VALUES], best = *present;
    size_t chosen = SIZE_MAX;
    for (size_t v = 0; v < setting->n; v++) {
        double values[N_SETTINGS];
        memcpy(values, tune->values, sizeof values);
        values[i] = setting->values[v];
        if (setting->values[v] == kept)
            outcomes[v] = *present;
        else if (!try_values(tune, values, &outcomes[v], error, error_size))
            return false;
        if (better(tune, &outcomes[v], present, MARGIN) && better(tune, &outcomes[v], &best, 0)) {
            best = outcomes[v];
            chosen = v;
        }
    }
    printf("\n%s\n", setting->name);
    for (size_t v = 0; v < setting->n; v++) {
        char name[32];
        put_value(i, setting->values[v], name, sizeof name);
        print_outcome(name, &outcomes[v],
                      v == chosen                  ? "best"
                      : setting->values[v] == kept ? (chosen == SIZE_MAX ? "stays" : "now")
                                                   : "");
    }
    if (chosen != SIZE_MAX) {
        tune->values[i] = setting->values[chosen];
        *present = best;
    }
    return true;
}

static bool search(struct tune *tune, char *error, size_t error_size)
{
    struct outcome first, present;
    if (!try_values(tune, tune->values, &first, error, error_size))
        return false;
    present = first;
    printf("%zu requests, %zu sites, %zu replicas; best is by %s; a value is taken when it is better by %.0f %%.\n"
           "Each table keeps what those above it found.\n\n  %-26s %7s %10s %9s %9s %8s\n",
           tune->trace.n, tune->command.grid.n_sites, tune->command.grid.replicas, tune->target->name, 100 * MARGIN, "",
           "hit %", "TTFT mean", "p50", "p99", "spread");
    print_outcome("present settings", &first, "");
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (!try_setting(tune, i, &present, error, error_size))
            return false;
    printf("\nTogether\n");
    print_outcome("present settings", &first, "");
    print_outcome("suggested", &present, "");
    bool any = false;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (tune->values[i] == settings[i].standard)
            continue;
        char value[32];
        put_value(i, tune->values[i], value, sizeof value);
        printf("%s  %s: %s%s\n", any ? "" : "\nSettings that differ from the defaults\n", settings[i].name, value,
               strcmp(settings[i].name, "load_window_ms") == 0 ? "   (in the serving config)" : "");
        any = true;
    }
    if (!any)
        printf("\nThe defaults suit this trace: nothing tried was better by %.0f %%.\n", 100 * MARGIN);
    return true;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static int wrong(const char *why)
{
    fprintf(stderr, "grid-gateway tune: %s\nTry 'grid-gateway tune --help'.\n", why);
    return GRID_EXIT_USAGE;
}

static bool set_target(struct tune *tune, const char *name)
{
    tune->target = NULL;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(targets[i].name, name) == 0)
            tune->target = &targets[i];
    return tune->target != NULL;
}

/* "threshold=0.8,…" over the defaults. */
static bool set_now(struct tune *tune, char *error, size_t error_size)
{
    static const struct grid_policy_ops present = {.name = "--now"};
    struct grid_policy policy = {.ops = &present};
    struct grid_policy_number numbers[N_SETTINGS];
    for (size_t i = 0; i < N_SETTINGS; i++) {
        tune->values[i] = settings[i].standard;
        numbers[i] = (struct grid_policy_number){settings[i].name, 0, 1e12, &tune->values[i]};
    }
    if (tune->now && strlen(tune->now) + 2 < sizeof policy.spec)
        (void)snprintf(policy.spec, sizeof policy.spec, ":%s", tune->now);
    return grid_policy_numbers(&policy, numbers, N_SETTINGS, error, error_size);
}

static bool own_option(struct tune *tune, const char *name, char *value, const char **why)
{
    if (strcmp(name, "--for") == 0) {
        *why = set_target(tune, value) ? NULL : "--for takes ttft-mean, ttft-p50, ttft-p99 or hit-rate";
    } else if (strcmp(name, "--now") == 0) {
        tune->now = value;
    } else if (strcmp(name, "--metrics") == 0) {
        *why = tune->n_scrapes < MOST_SCRAPES ? NULL : "at most 64 scrapes";
        if (!*why)
            tune->scrapes[tune->n_scrapes++] = value;
    } else if (strcmp(name, "--every") == 0) {
        char *end;
        tune->every_s = strtod(value, &end);
        *why = *end == '\0' && tune->every_s > 0 && isfinite(tune->every_s) ? NULL : "--every takes seconds above 0";
    } else {
        return false;
    }
    return true;
}

static int read_options(int argc, char **argv, struct tune *tune, bool *done)
{
    char error[256];
    for (int i = 1; i < argc; i++) {
        char *name = argv[i];
        if (strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0) {
            fputs(head, stdout);
            fputs(grid_simulate_options_help, stdout);
            fputs("\nGenerators\n", stdout);
            fputs(grid_trace_kinds, stdout);
            fputs(tail, stdout);
            *done = true;
            return GRID_EXIT_OK;
        }
        if (strncmp(name, "--", 2) != 0 || i + 1 == argc) {
            (void)snprintf(error, sizeof error, strncmp(name, "--", 2) ? "'%s' is no option" : "%s needs a value",
                           name);
            return wrong(error);
        }
        char *value = argv[++i];
        const char *why = NULL;
        if (own_option(tune, name, value, &why)) {
            if (why)
                return wrong(why);
            continue;
        }
        enum grid_simulate_option taken = grid_simulate_option(&tune->command, name + 2, value, error, sizeof error);
        if (taken == GRID_SIMULATE_OPTION_OTHER)
            (void)snprintf(error, sizeof error, "no option %s", name);
        if (taken != GRID_SIMULATE_OPTION_TAKEN)
            return wrong(error);
    }
    if (tune->n_scrapes)
        return tune->n_scrapes > 1 && tune->every_s > 0 ? GRID_EXIT_OK
                                                        : wrong("needs two --metrics or more, and --every");
    if (!grid_simulate_finish(&tune->command, error, sizeof error) || !set_now(tune, error, sizeof error))
        return wrong(error);
    return GRID_EXIT_OK;
}

int grid_cmd_tune(int argc, char **argv)
{
    struct tune tune = {.target = &targets[0]};
    char error[512];
    bool done = false;
    grid_simulate_defaults(&tune.command);
    tune.command.repeat = DEFAULT_REPEAT;
    tune.command.requests = DEFAULT_REQUESTS;
    int status = read_options(argc, argv, &tune, &done);
    if (status != GRID_EXIT_OK || done)
        return status;
    if (tune.n_scrapes)
        return grid_tune_prices(tune.scrapes, tune.n_scrapes, tune.every_s);
    bool good = grid_simulate_trace(&tune.command, &tune.trace, &tune.sums, error, sizeof error) &&
                search(&tune, error, sizeof error);
    if (!good)
        fprintf(stderr, "grid-gateway tune: %s\n", error);
    grid_trace_done(&tune.trace);
    return good && fflush(stdout) == 0 ? GRID_EXIT_OK : GRID_EXIT_FAILED;
}
