/*
 * demo_twin.c - the gateway's core once more, inside the demo (see demo_twin.h)
 */
#include "demo_twin.h"

#include "cli/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_MS 10000u /* past the demo's window, well within an entry's life of ten minutes */

static struct grid_str view_of(const char *text)
{
    return (struct grid_str){text, strlen(text)};
}

bool grid_demo_twin_load(struct grid_demo_twin *twin, const struct grid_demo_grid *grid,
                         char error[GRID_DEMO_ERROR_BYTES])
{
    struct grid_options options = {0};
    struct grid_yaml gateway = {0}, serving = {0};
    struct grid_str plugin;
    struct grid_errors *errors = calloc(1, sizeof *errors);
    int text = 0;
    (void)snprintf(error, GRID_DEMO_ERROR_BYTES, "no memory");
    bool good =
        errors != NULL && grid_router_new(&options, &twin->router) == GRID_OK &&
        grid_yaml_to_json(view_of(grid->gateway_yaml), "gateway.yaml", &gateway, error, GRID_DEMO_ERROR_BYTES) &&
        grid_yaml_to_json(view_of(grid->serving_yaml), "serving.yaml", &serving, error, GRID_DEMO_ERROR_BYTES) &&
        grid_yaml_find(&gateway, "grid_site_route", &plugin);
    if (good) {
        struct grid_load load = {.plugin = plugin, .serving = {serving.json, serving.len}, .words = true};
        good = grid_router_load(twin->router, &load, twin->now_ms, errors, &text) == GRID_OK;
        if (!good && errors->count > 0)
            (void)snprintf(error, GRID_DEMO_ERROR_BYTES, "the core refuses the demo's own configuration: %s: %s",
                           errors->items[0].field, errors->items[0].message);
    }
    grid_yaml_done(&gateway);
    grid_yaml_done(&serving);
    free(errors);
    return good;
}

bool grid_demo_twin_ask(struct grid_demo_twin *twin, const char *body, const double depths[GRID_DEMO_SITES],
                        struct grid_decision *out_decision)
{
    struct grid_header type = {view_of("content-type"), view_of("application/json")};
    struct grid_head head = {
        .method = view_of("POST"), .path = view_of("/v1/chat/completions"), .headers = &type, .n_headers = 1};
    struct grid_str text = view_of(body);
    twin->now_ms += STEP_MS;
    for (size_t i = 0; i < GRID_DEMO_SITES; i++) {
        char cluster[GRID_CLIENT_NAME_BYTES];
        grid_demo_cluster_name(i, cluster);
        (void)grid_signal(twin->router, view_of(cluster), depths[i], twin->now_ms, twin->now_ms);
    }
    grid_demo_twin_settle(twin, 0);
    if (grid_router_refresh(twin->router, twin->now_ms) != GRID_OK ||
        grid_ticket_new(twin->router, &head, &twin->ticket) != GRID_OK)
        return false;
    if (grid_ticket_want(twin->ticket) == GRID_WANT_BODY)
        grid_ticket_body(twin->ticket, &text, 1, false);
    grid_route(twin->ticket, NULL, twin->now_ms, out_decision);
    return true;
}

void grid_demo_twin_settle(struct grid_demo_twin *twin, int status)
{
    if (twin->ticket != NULL && status != 0)
        grid_learn(twin->ticket, status, GRID_FROM_SITE, twin->now_ms, NULL);
    grid_ticket_free(twin->ticket);
    twin->ticket = NULL;
}

void grid_demo_twin_done(struct grid_demo_twin *twin)
{
    grid_demo_twin_settle(twin, 0);
    grid_router_free(twin->router);
    twin->router = NULL;
}
