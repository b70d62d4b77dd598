/*
 * fuzz_serving.c - any bytes as a serving config and as a grid_site_route block: accepted whole or refused with reasons
 *
 * The first byte says whether the text came from YAML; the rest is the text.
 */
#include <stdlib.h>
#include <string.h>

#include "serving.h"
#include "str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(enum grid_status status, const struct grid_errors *errors, size_t size)
{
    if ((status == GRID_OK) != (errors->count == 0) || errors->count > GRID_MAX_ERRORS)
        abort();
    for (size_t i = 0; i < errors->count; i++) {
        const struct grid_err *err = &errors->items[i];
        if (err->offset > size || !err->message[0] || !memchr(err->field, 0, sizeof err->field) ||
            !memchr(err->message, 0, sizeof err->message))
            abort();
    }
}

static void check_serving(const struct grid_serving *serving)
{
    size_t bytes = serving->local_site.len; /* touches every view */
    for (size_t i = 0; i < serving->n_candidates; i++) {
        const struct grid_serving_candidate *candidate = &serving->candidates[i];
        if (!candidate->name.len || !candidate->site.len || !candidate->cluster.len)
            abort();
        bytes += candidate->name.len + (size_t)candidate->cluster.ptr[candidate->cluster.len - 1];
    }
    for (size_t i = 0; i < serving->n_clusters; i++)
        for (size_t k = 0; k < serving->clusters[i].n_endpoints; k++)
            if (!memchr(serving->clusters[i].endpoints[k].ptr, ':', serving->clusters[i].endpoints[k].len))
                abort();
    if (bytes == 0 || serving->window_ms == 0 || serving->load_window_ms == 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct grid_errors errors;
    static struct grid_settings settings;
    if (size < 1)
        return 0;
    struct grid_str text = {(const char *)data + 1, size - 1};
    struct grid_serving *serving;
    bool words = (data[0] & 1) != 0;
    memset(&errors, 0, sizeof errors);
    check(grid_serving_parse(text, words, NULL, &serving, &errors), &errors, text.len);
    if (serving)
        check_serving(serving);
    grid_serving_free(serving);
    memset(&errors, 0, sizeof errors);
    check(grid_settings_parse(text, words, &settings, &errors), &errors, text.len);
    return 0;
}
