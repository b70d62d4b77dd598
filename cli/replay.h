/*
 * replay.h - what the files of the verb `replay` share
 *
 * Story     replay.c reads a line, checks its fields, moves the clock and calls the line's operation; replay_load.c
 *           has load and signal, replay_request.c the operations that carry a request, replay_tag.c those of tagged
 *           ids. An operation writes its answer into replay->out and returns true, or calls grid_replay_refuse and
 *           returns false: then nothing changed.
 * Threads   One.
 */
#ifndef GRID_REPLAY_H
#define GRID_REPLAY_H

#include <grid/grid.h>
#include <jansson.h>

struct grid_replay {
    struct grid_router *router;
    uint64_t now_ms;  /* the virtual clock */
    bool stale;       /* clock, signals or configuration moved since the sites were put in order */
    bool refused_any; /* the exit status is 1 */
    void *open;       /* requests that wait for their answer, by id: a tree of search.h */
    struct grid_buf out;
    struct grid_site_view *sites; /* clusters that candidates name */
    size_t n_sites;
    bool tag_keys_given; /* by tag_keys_hex, which outranks a tag_key_path */
    char error_field[128];
    char error_message[512];
};

/* Notes why a line is refused; returns false, so that an operation can return it. */
bool grid_replay_refuse(struct grid_replay *replay, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads a field of the line. An absent one leaves *out as it is and is refused when it is required. */
bool grid_replay_text(struct grid_replay *replay, json_t *line, const char *name, bool required, struct grid_str *out);
bool grid_replay_whole(struct grid_replay *replay, json_t *line, const char *name, bool required, uint64_t *out);
bool grid_replay_flag(struct grid_replay *replay, json_t *line, const char *name, bool *out);

/* Puts the sites in order at the present clock, if that was not done yet. */
bool grid_replay_order(struct grid_replay *replay);

bool grid_replay_load(struct grid_replay *replay, json_t *line);
bool grid_replay_signal(struct grid_replay *replay, json_t *line);
bool grid_replay_request(struct grid_replay *replay, json_t *line);
bool grid_replay_answer(struct grid_replay *replay, json_t *line);
bool grid_replay_abandon(struct grid_replay *replay, json_t *line);
bool grid_replay_keys(struct grid_replay *replay, json_t *line);
bool grid_replay_runs(struct grid_replay *replay, json_t *line);
bool grid_replay_tag(struct grid_replay *replay, json_t *line);
bool grid_replay_untag(struct grid_replay *replay, json_t *line);

/* At the end. */
void grid_replay_free_requests(struct grid_replay *replay);

#endif
