/*
 * explain_print.c - a decision, printed for a person or a program
 *
 * Story     See explain.h. The words are the core's (core/explain.c), which the ops page has too.
 */
#include "explain.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void put_sites(const struct grid_explained *explained, struct grid_buf *out)
{
    const struct grid_decision *decision = &explained->decision;

    if (explained->n_candidates == 0) {
        return;
    }
    grid_buf_printf(out, "\n  %-20s %-28s %-8s %12s %10s\n", "site", "cluster", "admits", "queue", "holds");
    for (size_t i = 0; i < explained->n_candidates; i++) {
        const struct grid_candidate *one = &explained->candidates[i];
        struct grid_buf depth = {.limit = 64};
        grid_explain_depth(&depth, one->depth);
        grid_buf_printf(out, "  %-20.*s %-28.*s %-8s %12s %4" PRIu32 " of %" PRIu32 "\n", (int)one->site.len,
                        one->site.ptr, (int)one->cluster.len, one->cluster.ptr, one->admitted ? "yes" : "no",
                        depth.ptr != NULL ? depth.ptr : "", one->run, decision->blocks);
        grid_buf_done(&depth);
    }
    grid_buf_puts(out, "\n");
}

static void put_gate(const struct grid_decision *decision, struct grid_buf *out)
{
    grid_buf_printf(out, "worth     %" PRIu32 " blocks held are about %" PRIu32 " tokens saved, worth ", decision->run,
                    decision->run * GRID_TOKENS_A_BLOCK);
    grid_buf_number(out, decision->worth);
    grid_buf_puts(out, " queued requests\n");
    if (grid_explain_gate_asked(decision)) {
        grid_buf_puts(out, "gate      the holder's queue is ");
        grid_explain_depth(out, decision->best_sticky);
        grid_buf_puts(out, ", the best other one ");
        grid_explain_depth(out, decision->best_other);
        grid_buf_puts(out, "\n");
    }
}

static void print(struct grid_buf *out)
{
    if (out->failed) {
        fprintf(stderr, "grid-gateway explain: out of memory\n");
    } else {
        fwrite(out->ptr, 1, out->len, stdout);
    }
    grid_buf_done(out);
}

void grid_explain_words(const struct grid_explained *explained)
{
    const struct grid_decision *decision = &explained->decision;
    struct grid_buf out = {.limit = (size_t)4 << 20};

    grid_buf_printf(&out, "request   api %s, model ", grid_api_name(decision->api));
    if (decision->model.ptr != NULL) {
        grid_buf_put(&out, decision->model.ptr, decision->model.len);
    } else {
        grid_buf_puts(&out, "none");
    }
    grid_buf_printf(&out, ", %" PRIu32 " blocks of %u bytes\n", decision->blocks, GRID_BLOCK_BYTES);
    put_sites(explained, &out);
    grid_buf_puts(&out, "decision  ");
    if (decision->action == GRID_FORWARD) {
        const char *outcome = grid_outcome_name(decision->outcome);
        grid_buf_printf(&out, "site %.*s, cluster %.*s (%s)\n", (int)decision->site.len, decision->site.ptr,
                        (int)decision->cluster.len, decision->cluster.ptr,
                        outcome[0] != '\0' ? outcome : "counted as no outcome");
    } else {
        grid_buf_printf(&out, "status %d from the gateway\n", decision->reply.status);
    }
    if (decision->alias.ptr != NULL) {
        grid_buf_printf(&out, "alias     the cluster calls the model %.*s\n", (int)decision->alias.len,
                        decision->alias.ptr);
    }
    if (decision->path.ptr != NULL) {
        grid_buf_printf(&out, "path      %.*s\n", (int)decision->path.len, decision->path.ptr);
    }
    grid_buf_puts(&out, "why       ");
    grid_explain_why(explained, &out);
    grid_buf_puts(&out, "\n");
    if (!isnan(decision->worth)) {
        put_gate(decision, &out);
    }
    grid_buf_puts(&out, "flips by  ");
    grid_explain_flip(explained, &out);
    grid_buf_puts(&out, "\n");
    print(&out);
}

void grid_explain_as_json(const struct grid_explained *explained)
{
    struct grid_buf out = {.limit = (size_t)4 << 20};

    grid_explain_json(explained, &out);
    grid_buf_puts(&out, "\n");
    print(&out);
}
