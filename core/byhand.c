/*
 * byhand.c - tags made and read by hand
 *
 * Story     `grid-gateway tag`, `replay` and tests sign an id for any site and cluster, and ask what a tagged id says
 *           under the keys and the serving config in force. Requests do the same in route.c and learn.c.
 * Promise   The judgement is that of a request, and in addition says why: for people, never for a client's answer.
 */
#include "router.h"

#include "check.h"

enum why { ACCEPTED, NOT_TAGGED, BAD_MAC, UNKNOWN_CLUSTER };
static const char *const reasons[] = {
    [ACCEPTED] = NULL, [NOT_TAGGED] = "not_tagged", [BAD_MAC] = "bad_mac", [UNKNOWN_CLUSTER] = "unknown_cluster"};

void grid_router_tag(struct grid_router *router, enum grid_id_kind kind, struct grid_str site, struct grid_str cluster,
                     struct grid_str id, struct grid_buf *out)
{
    char mark[GRID_TAG_MARK_BYTES], tag[GRID_TAG_BYTES];
    if (site.len == 0 || site.len > GRID_TAG_SITE_BYTES) {
        out->failed = true;
        return;
    }
    grid_tag_mark(cluster, mark);
    struct grid_sites *sites = grid_router_take_sites(router);
    size_t len = grid_tag_make(sites->config->ring, site, mark, tag);
    grid_sites_unref(sites);
    grid_buf_puts(out, kind == GRID_ID_CONVERSATION ? "conv_" : "resp_");
    grid_buf_put(out, tag, len);
    grid_buf_put(out, id.ptr, id.len);
}

/* Cuts a shaped id of `len` bytes, whose third dot is its byte `behind` - 1, into its parts. */
static void cut(struct grid_str text, const struct grid_tag_scan *scan, size_t behind, struct grid_opened *out)
{
    const char *site = text.ptr + GRID_TAG_PREFIX_BYTES;
    out->kind = scan->prefix[0] == 'c' ? GRID_ID_CONVERSATION : GRID_ID_RESPONSE;
    out->site = (struct grid_str){site, scan->site_len};
    out->mark = (struct grid_str){site + scan->site_len + 1, scan->mark_len};
    out->rest = (struct grid_str){text.ptr + behind, text.len - behind};
}

/* Fills in the cluster that the mark stands for, wherever it is; true when it is at the site that the tag names. */
static bool find_cluster(const struct grid_config *config, struct grid_opened *opened)
{
    bool here = false;
    for (size_t i = 0; i < config->n_candidates && !here; i++) {
        const struct grid_config_candidate *candidate = &config->candidates[i];
        if (!grid_str_eq(opened->mark, (struct grid_str){candidate->mark, sizeof candidate->mark}))
            continue;
        memcpy(opened->cluster, candidate->cluster.ptr, candidate->cluster.len);
        opened->cluster[candidate->cluster.len] = '\0';
        here = grid_str_eq(opened->site, candidate->site);
    }
    return here;
}

static enum why judge(const struct grid_config *config, struct grid_str text, struct grid_opened *opened)
{
    struct grid_tag_scan scan = {.state = GRID_TAG_PREFIX};
    size_t behind = grid_tag_scan_feed(&scan, text.ptr, text.len);
    if (scan.state != GRID_TAG_SHAPED || behind == text.len)
        return NOT_TAGGED;
    cut(text, &scan, behind, opened);
    bool here = find_cluster(config, opened);
    if (!grid_tag_genuine(config->ring, &scan))
        return BAD_MAC;
    return here ? ACCEPTED : UNKNOWN_CLUSTER;
}

void grid_router_untag(struct grid_router *router, struct grid_str text, struct grid_opened *out_opened)
{
    struct grid_sites *sites = grid_router_take_sites(router);
    *out_opened = (struct grid_opened){.accept = false};
    enum why why = judge(sites->config, text, out_opened);
    grid_sites_unref(sites);
    out_opened->accept = why == ACCEPTED;
    out_opened->reason = reasons[why];
}

bool grid_router_same_tag_keys(struct grid_router *router, const struct grid_str *keys, size_t n)
{
    struct grid_sites *sites = grid_router_take_sites(router);
    bool same = grid_tag_ring_same(sites->config->ring, keys, n);
    grid_sites_unref(sites);
    return same;
}
