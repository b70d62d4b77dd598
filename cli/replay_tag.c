/*
 * replay_tag.c - the operations `tag` and `untag` of replay
 *
 * Story     `tag` signs an id for any site and cluster, configured or not; `untag` says what the gateway makes of an
 *           id that comes back: accepted only when it is genuine and its cluster is in the serving configuration.
 * Not here  The keys (replay_load.c), tags themselves (the core).
 */
#include "query.h"
#include "replay.h"

#include <string.h>

#define MAX_SITE_BYTES 63u

static bool is(struct grid_str text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.ptr, word, text.len) == 0;
}

bool grid_replay_tag(struct grid_replay *replay, json_t *line)
{
    struct grid_str kind, site, cluster, id;
    struct grid_buf tagged = {.limit = replay->out.limit};

    if (!grid_replay_text(replay, line, "kind", true, &kind) || !grid_replay_text(replay, line, "site", true, &site) ||
        !grid_replay_text(replay, line, "cluster", true, &cluster) ||
        !grid_replay_text(replay, line, "id", true, &id)) {
        return false;
    }
    if (!is(kind, "resp") && !is(kind, "conv")) {
        return grid_replay_refuse(replay, "kind", "is neither resp nor conv");
    }
    if (site.len == 0 || site.len > MAX_SITE_BYTES) {
        return grid_replay_refuse(replay, "site", "has %zu bytes; a site has 1 to %u", site.len, MAX_SITE_BYTES);
    }
    grid_router_tag(replay->router, is(kind, "conv") ? GRID_ID_CONVERSATION : GRID_ID_RESPONSE, site, cluster, id,
                    &tagged);
    bool done = !tagged.failed || grid_replay_refuse(replay, "", "out of memory");
    if (done) {
        grid_buf_puts(&replay->out, "{\"tagged\":");
        grid_buf_json(&replay->out, (struct grid_str){tagged.ptr, tagged.len});
        grid_buf_puts(&replay->out, "}");
    }
    grid_buf_done(&tagged);
    return done;
}

bool grid_replay_untag(struct grid_replay *replay, json_t *line)
{
    struct grid_str text;
    struct grid_opened opened;

    if (!grid_replay_text(replay, line, "id_text", true, &text)) {
        return false;
    }
    grid_router_untag(replay->router, text, &opened);
    if (!opened.accept) {
        grid_buf_printf(&replay->out, "{\"accept\":false,\"reason\":\"%s\"}", opened.reason);
        return true;
    }
    struct grid_buf inner = {.limit = replay->out.limit};
    grid_buf_puts(&inner, opened.kind == GRID_ID_CONVERSATION ? "conv_" : "resp_");
    grid_buf_put(&inner, opened.rest.ptr, opened.rest.len);
    grid_buf_puts(&replay->out, "{\"accept\":true,\"site\":");
    grid_buf_json(&replay->out, opened.site);
    grid_buf_puts(&replay->out, ",\"cluster\":");
    grid_buf_json(&replay->out, grid_query_str(opened.cluster));
    grid_buf_puts(&replay->out, ",\"inner\":");
    grid_buf_json(&replay->out, (struct grid_str){inner.ptr, inner.len});
    grid_buf_puts(&replay->out, "}");
    replay->out.failed |= inner.failed;
    grid_buf_done(&inner);
    return true;
}
