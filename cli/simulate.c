/*
 * simulate.c - the verb `simulate`: policies beside one another, on one trace
 *
 * Story     Reads or makes a trace, runs every policy at every load with every seed, prints one table, and on request
 *           JSON and plots.
 * Promise   The same command prints the same. Nothing listens, nothing is sent.
 * Not here  The simulation (simulate_run.c), the core's rules (core/).
 */
#include "simulate.h"

#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char head[] =
    "usage: grid-gateway simulate (--trace FILE | --make KIND) [OPTION]...\n"
    "\n"
    "Runs arrivals through simulated sites and gateways, one routing policy after the other, and prints what came\n"
    "of each: prompt tokens that needed no prefill, times to the first token and to the end, how evenly the sites\n"
    "were loaded. 'ours' and 'least-queue' are the very core that routes in the gateway.\n"
    "\n";

static const char tail[] =
    "\n"
    "Output\n"
    "  --json FILE          all figures, all runs; '-': to standard output, in place of the table\n"
    "  --plot DIR           ttft.svg and depth.svg, and with two loads or more hit-rate.svg\n"
    "  -h, --help\n"
    "\n"
    "Examples\n"
    "  xz -dc conversation.jsonl.xz | grid-gateway simulate --trace - --load 0.7,0.95 --repeat 5 --plot plots\n"
    "  grid-gateway simulate --make agents --load 0.8 --policy ours --policy ours:exploration=0 --policy smg\n"
    "  grid-gateway simulate --trace mine.jsonl --sites 2 --prefill 12000,6000 --json out.json\n"
    "\n"
    "Exit status: 0 done; 1 a trace is wrong (standard error names line and field); 2 usage.\n";

static void help(void)
{
    fputs(head, stdout);
    fputs(grid_simulate_options_help, stdout);
    fputs("\nPolicies, and their settings\n", stdout);
    for (size_t i = 0; grid_policies[i]; i++)
        printf("  %-12s %s\n  %-12s   settings: %s\n", grid_policies[i]->name, grid_policies[i]->line, "",
               grid_policies[i]->settings);
    fputs("\nGenerators\n", stdout);
    fputs(grid_trace_kinds, stdout);
    fputs(tail, stdout);
}

static int wrong(const char *why)
{
    fprintf(stderr, "grid-gateway simulate: %s\nTry 'grid-gateway simulate --help'.\n", why);
    return GRID_EXIT_USAGE;
}

struct output {
    const char *json, *plot;
};

/* GRID_EXIT_OK, or what the command ends with; *done: nothing is left to do. */
static int read_options(int argc, char **argv, struct grid_simulate_command *command, struct output *output, bool *done)
{
    char error[256];
    *done = false;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0) {
            help();
            *done = true;
            return GRID_EXIT_OK;
        }
        if (strncmp(name, "--", 2) != 0 || i + 1 == argc) {
            (void)snprintf(error, sizeof error, strncmp(name, "--", 2) ? "'%s' is no option" : "%s needs a value",
                           name);
            return wrong(error);
        }
        const char *value = argv[++i];
        if (strcmp(name, "--json") == 0) {
            output->json = value;
            continue;
        }
        if (strcmp(name, "--plot") == 0) {
            output->plot = value;
            continue;
        }
        enum grid_simulate_option taken = grid_simulate_option(command, name + 2, value, error, sizeof error);
        if (taken == GRID_SIMULATE_OPTION_OTHER)
            (void)snprintf(error, sizeof error, "no option %s", name);
        if (taken != GRID_SIMULATE_OPTION_TAKEN)
            return wrong(error);
    }
    return grid_simulate_finish(command, error, sizeof error) ? GRID_EXIT_OK : wrong(error);
}

static bool run_all(const struct grid_simulate_command *command, const struct grid_trace *trace,
                    const struct grid_trace_sums *sums, struct grid_simulate_result *results, char *error,
                    size_t error_size)
{
    size_t at = 0;
    for (size_t l = 0; l < command->n_loads; l++) {
        struct grid_simulate_options options = command->grid;
        options.speed = grid_simulate_speed(command, sums, command->loads[l]);
        for (size_t p = 0; p < command->n_policies; p++)
            for (size_t r = 0; r < command->repeat; r++, at++) {
                options.seed = command->grid.seed + r;
                if (!grid_simulate_run(trace, &options, command->policies[p], &results[at], error, error_size))
                    return false;
                results[at].load = command->loads[l];
            }
    }
    return true;
}

static int show(const struct grid_simulate_report *report, const struct output *output)
{
    char error[512];
    if (!output->json || strcmp(output->json, "-") != 0)
        grid_simulate_print_table(report, stdout);
    bool good = !output->json || grid_simulate_print_json(report, output->json, error, sizeof error);
    good = good && (!output->plot || grid_simulate_plot(report, output->plot, error, sizeof error));
    if (!good)
        fprintf(stderr, "grid-gateway simulate: %s\n", error);
    return good && fflush(stdout) == 0 ? GRID_EXIT_OK : GRID_EXIT_FAILED;
}

int grid_cmd_simulate(int argc, char **argv)
{
    struct grid_simulate_command command;
    struct output output = {0};
    struct grid_trace trace = {0};
    struct grid_trace_sums sums;
    char error[512];
    bool done;
    grid_simulate_defaults(&command);
    int status = read_options(argc, argv, &command, &output, &done);
    if (status != GRID_EXIT_OK || done)
        return status;

    size_t n = command.n_loads * command.n_policies * command.repeat;
    struct grid_simulate_result *results = calloc(n, sizeof *results);
    bool good = results && grid_simulate_trace(&command, &trace, &sums, error, sizeof error) &&
                run_all(&command, &trace, &sums, results, error, sizeof error);
    if (good) {
        struct grid_simulate_report report = {
            .command = &command,
            .trace = &trace,
            .sums = &sums,
            .results = results,
            .natural_load = grid_simulate_natural_load(&command.grid, &sums, 0),
        };
        status = show(&report, &output);
    } else {
        fprintf(stderr, "grid-gateway simulate: %s\n", results ? error : "out of memory");
        status = GRID_EXIT_FAILED;
    }
    for (size_t i = 0; results && i < n; i++)
        grid_simulate_result_done(&results[i]);
    free(results);
    grid_trace_done(&trace);
    return status;
}
