/*
 * replay_asked.h - what a line says about a request, or about an answer
 *
 * Story     replay_request.c reads method, path, headers and body of a line here; an answer has the last two.
 * Owns      The names of headers in lower case and a body that came as base64; other views point into the line.
 */
#ifndef GRID_REPLAY_ASKED_H
#define GRID_REPLAY_ASKED_H

#include "query.h"
#include "replay.h"

struct grid_replay_asked {
    struct grid_query query;
    struct grid_header *headers;
    char *names;   /* header names in lower case, one after the other */
    char *decoded; /* the body, when it came as base64 */
};

/* Each refuses the line and returns false when it cannot be read. Zero *out first; grid_replay_asked_done at the end,
 * whatever was returned. */
bool grid_replay_asked_headers(struct grid_replay *replay, json_t *line, struct grid_replay_asked *out);
bool grid_replay_asked_body(struct grid_replay *replay, json_t *line, struct grid_replay_asked *out);
/* A whole request: method (POST when none is named), path, headers, body. */
bool grid_replay_asked_read(struct grid_replay *replay, json_t *line, struct grid_replay_asked *out);
void grid_replay_asked_done(struct grid_replay_asked *asked);

#endif
