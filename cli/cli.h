/*
 * cli.h - what the verbs of grid-gateway share
 *
 * Story     main.c looks a verb up in its table and calls it. Each verb lives in a file of its own, reads its own
 *           options with getopt_long and prints its own --help.
 * Promise   argv[0] of a verb is the verb's name. A verb returns the exit status of the command: one of the values
 *           below, and nothing else, save `run`, which ends with Envoy's own status.
 * Not here  YAML (yaml.h), files (files.h), the gateway's own configuration (config.h).
 */
#ifndef GRID_CLI_H
#define GRID_CLI_H

enum {
    GRID_EXIT_OK = 0,
    GRID_EXIT_FAILED = 1, /* refused, or it did not work; standard error says why */
    GRID_EXIT_USAGE = 2,  /* the command line is wrong */
};

int grid_cmd_run(int argc, char **argv);
int grid_cmd_check(int argc, char **argv);
int grid_cmd_keys(int argc, char **argv);
int grid_cmd_explain(int argc, char **argv);
int grid_cmd_replay(int argc, char **argv);
int grid_cmd_tag(int argc, char **argv);
int grid_cmd_simulate(int argc, char **argv);
int grid_cmd_tune(int argc, char **argv);
int grid_cmd_demo(int argc, char **argv);

#endif
