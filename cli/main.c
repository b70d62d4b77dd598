/*
 * main.c - grid-gateway, the command: finds the verb and calls it
 *
 * Story     One table of verbs. Each lives in a file of its own and prints its own --help.
 * Promise   Exit status 0, 1 or 2 as cli.h says; `run` ends with Envoy's status.
 */
#include "cli.h"

#include "sim/sim.h"

#include <stdio.h>
#include <string.h>

#ifndef GRID_VERSION
#define GRID_VERSION "0.0.0"
#endif

static int version(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        puts("usage: grid-gateway version\n\nPrints the version of the command.\n\nExample\n"
             "  grid-gateway version\n\nExit status: 0, or 2 for a wrong command line.");
        return GRID_EXIT_OK;
    }
    if (argc > 1) {
        fprintf(stderr, "grid-gateway version: takes no argument\nTry 'grid-gateway version --help'.\n");
        return GRID_EXIT_USAGE;
    }
    puts("grid-gateway " GRID_VERSION);
    return GRID_EXIT_OK;
}

static const struct verb {
    const char *name, *line;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"run", "start the gateway: validate, render Envoy's configuration, run Envoy", grid_cmd_run},
    {"check", "validate a configuration and say file, line and field of what is wrong", grid_cmd_check},
    {"demo", "start simulated sites and a gateway, send a conversation, show where it went", grid_cmd_demo},
    {"sim-site", "run one simulated site with an OpenAI compatible API", grid_sim_main},
    {"keys", "show what of a request body is keyed", grid_cmd_keys},
    {"explain", "show where a request would go, and why", grid_cmd_explain},
    {"tag", "sign and open ids of stored responses, make a key", grid_cmd_tag},
    {"replay", "replay a history through the routing core, on a virtual clock", grid_cmd_replay},
    {"simulate", "compare routing policies on a trace, in a simulated grid", grid_cmd_simulate},
    {"tune", "find the settings that suit a trace, and the prices of real sites", grid_cmd_tune},
    {"version", "print the version", version},
};

static void usage(FILE *to)
{
    fputs("usage: grid-gateway VERB [OPTION]...\n"
          "\n"
          "Routes requests for language models to the site that already holds their prompt, through Envoy.\n"
          "\n",
          to);
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        fprintf(to, "  %-9s %s\n", verbs[i].name, verbs[i].line);
    }
    fputs("\n"
          "'grid-gateway VERB --help' explains a verb, with examples.\n"
          "\n"
          "Examples\n"
          "  grid-gateway demo                                   see it work on this machine\n"
          "  grid-gateway check -c gateway.yaml                  is this configuration right?\n"
          "  grid-gateway run -c gateway.yaml                    serve\n"
          "  grid-gateway explain --serving serving.yaml request.json\n"
          "\n"
          "Exit status: 0 done; 1 refused, or it did not work (standard error says why); 2 the command line\n"
          "is wrong. 'run' ends with the exit status of Envoy.\n",
          to);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return GRID_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        usage(stdout);
        return GRID_EXIT_OK;
    }
    if (strcmp(name, "--version") == 0) {
        name = "version";
    }
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return verbs[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "grid-gateway: no verb '%s'; try 'grid-gateway --help'\n", name);
    return GRID_EXIT_USAGE;
}
