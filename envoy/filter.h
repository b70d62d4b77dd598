/*
 * filter.h - one HTTP stream as the module sees it
 *
 * Story     Made when a stream starts, freed when it ends. It carries the ticket from the request to the answer and
 *           remembers how far the stream has come; see filter.c for the order of things.
 */
#ifndef GRID_ENVOY_FILTER_H
#define GRID_ENVOY_FILTER_H

#include "module.h"

/* Which filter of the module a filter config is for. */
enum grid_filter_kind { GRID_FILTER_ROUTE, GRID_FILTER_OPS };

struct grid_filter_config {
    enum grid_filter_kind kind;
};

enum grid_filter_stage {
    GRID_FILTER_HEAD,    /* nothing seen, or the request was never ours */
    GRID_FILTER_BODY,    /* holding the body until its end */
    GRID_FILTER_DECIDED, /* on its way to a site */
    GRID_FILTER_REPLIED, /* answered by the gateway */
};

struct grid_filter {
    enum grid_filter_kind kind;
    enum grid_filter_stage stage;
    struct grid_module *module;
    struct grid_ticket *ticket; /* NULL until the head is read */
    bool head_only;             /* a HEAD request: its answer has no body */
    bool local;                 /* Envoy made the answer, not the site and not we */
    bool replace_body;          /* the answer's body becomes `failure` */
    struct grid_reply failure;
};

#endif
