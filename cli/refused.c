/*
 * refused.c - what Envoy refused of what it was given; see refused.h
 */
#include "cli/refused.h"
#include "cli/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_BYTES 8000
#define QUERY "/stats?usedonly&filter=(update_rejected|key_rotation_failed)$"

/* Adds up the lines "NAME: N"; `name` gets that of the last one. */
static unsigned long long add_up(char *text, char *name, size_t name_size)
{
    unsigned long long sum = 0;
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
        char *colon = strstr(line, ": ");
        if (colon == NULL) {
            continue;
        }
        sum += strtoull(colon + 2, NULL, 10);
        snprintf(name, name_size, "%.*s", (int)(colon - line), line);
    }
    return sum;
}

void grid_refused_check(struct grid_refused *refused, const struct grid_address *admin, struct grid_state *state)
{
    char body[ANSWER_BYTES], name[256] = "", why[512];
    if (grid_launch_admin(admin, "GET", QUERY, body, sizeof body) != 200) {
        return;
    }
    unsigned long long count = add_up(body, name, sizeof name);
    if (count > refused->count) {
        snprintf(why, sizeof why, "Envoy refused a change (%s) and keeps what it had; its log says why", name);
        fprintf(stderr, "grid-gateway: %s\n", why);
        grid_state_tell(state, "rejected", why);
    }
    refused->count = count;
}
