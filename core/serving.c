/*
 * serving.c - the serving config: which sites serve what, where their clusters are, how their queues are read
 *
 * Story     An operator or a person writes it and rewrites it while traffic flows. Two forms are read: ours, with
 *           `clusters`, and the reference operator's, with `peers`. Each mapping is a table of fields (fields.h); what
 *           spans fields is checked at the end of each mapping.
 * Promise   All faults of a text are collected. On success everything lives in the arena of one struct parsed, views
 *           and all; on failure nothing is left behind.
 * Source    behaviour.md J.2, O.7, O.16, O.23, O.38, O.52, O.56; design.md 7.
 * Not here  Order and admission of candidates (sites.c), files and their watching (hosts).
 */
#include "serving.h"

#include "places.h"
#include "tag.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MS_A_SECOND 1000u
#define DEFAULT_WINDOW_SECS 60u
#define DEFAULT_LOAD_WINDOW_MS 30000u

#define NAME_WORDS "a name of 1 to 256 bytes"

/* A serving config and all that it points to. */
struct parsed {
    struct grid_serving serving;
    struct grid_arena arena;
    uint64_t window_secs;
    size_t *cluster_offsets; /* where each candidate's cluster stands in the text */
};

/* What is accepted and not read. */
static void read_nothing(struct grid_fields *in, const struct grid_field *field, void *object)
{
    (void)field;
    (void)object;
    (void)grid_json_skip(&in->json);
}

/* ---- candidates ------------------------------------------------------------------------------------------------ */

static void read_kind(struct grid_fields *in, const struct grid_field *field, void *object)
{
    static const char *const words[] = {"inference_model", "mcp_tool"};
    struct grid_serving_candidate *candidate = object;
    switch (grid_values_choice(in, field, words, COUNT(words))) {
    case 0:
        candidate->kind = GRID_INFERENCE_MODEL;
        break;
    case 1:
        candidate->kind = GRID_MCP_TOOL;
        break;
    default:
        break; /* refused */
    }
}

static void read_admission(struct grid_fields *in, const struct grid_field *field, void *object)
{
    static const char *const words[] = {"new_and_existing", "existing_only", "none"};
    struct grid_serving_candidate *candidate = object;
    switch (grid_values_choice(in, field, words, COUNT(words))) {
    case 0:
        candidate->admission = GRID_NEW_AND_EXISTING;
        break;
    case 1:
        candidate->admission = GRID_EXISTING_ONLY;
        break;
    case 2:
        candidate->admission = GRID_NO_ADMISSION;
        break;
    default:
        break;
    }
}

static void read_fresh(struct grid_fields *in, const struct grid_field *field, void *object)
{
    bool ignored;
    (void)object;
    grid_fields_bool(in, &(struct grid_field){.name = field->name}, &ignored);
}

static bool same_candidate(const struct grid_serving_candidate *a, const struct grid_serving_candidate *b)
{
    return a->name.ptr && a->site.ptr && a->cluster.ptr && a->kind == b->kind && grid_str_eq(a->name, b->name) &&
           grid_str_eq(a->site, b->site) && grid_str_eq(a->cluster, b->cluster);
}

/* As the name, and remembers where it stood: whether there is such a cluster is known only at the end. */
struct candidate_slot {
    struct grid_serving_candidate candidate;
    size_t cluster_offset;
};

static void read_candidate_cluster(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct candidate_slot *slot = object;
    grid_values_name(in, field, object);
    slot->cluster_offset = grid_fields_offset(&in->mark);
}

#define IN_CANDIDATE(member) offsetof(struct candidate_slot, candidate.member)
static const struct grid_field candidate_fields[] = {
    {.name = "kind", .read = read_kind, .required = true, .accepts = "inference_model or mcp_tool"},
    {.name = "name", .read = grid_values_name, .at = IN_CANDIDATE(name), .required = true, .accepts = NAME_WORDS},
    {.name = "site", .read = grid_values_site, .at = IN_CANDIDATE(site), .required = true, .accepts = GRID_VALUES_SITE},
    {.name = "cluster",
     .read = read_candidate_cluster,
     .at = IN_CANDIDATE(cluster),
     .required = true,
     .accepts = NAME_WORDS},
    {.name = "admission",
     .read = read_admission,
     .null_ok = true,
     .fallback = "new_and_existing",
     .accepts = "new_and_existing, existing_only or none"},
    {.name = "fresh", .read = read_fresh, .null_ok = true, .accepts = "true or false"},
    {.name = "credential", .read = read_nothing, .null_ok = true, .accepts = "anything"},
    {.name = "stable_id", .read = read_nothing, .null_ok = true, .accepts = "anything"},
};

static void read_candidates(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct parsed *parsed = object;
    struct grid_fields_walk walk;
    if (!grid_fields_list(in, 0, GRID_MAX_CANDIDATES, field->accepts, &walk))
        return;
    struct grid_serving_candidate *candidates = grid_values_take(in, walk.n, sizeof *candidates);
    size_t *offsets = grid_values_take(in, walk.n, sizeof *offsets);
    bool kept = candidates && offsets;
    while (grid_fields_next(in, &walk)) {
        struct candidate_slot slot = {.cluster_offset = 0};
        struct grid_json start = in->json;
        bool read = grid_fields_object(in, candidate_fields, COUNT(candidate_fields), &slot, NULL);
        if (!kept)
            continue;
        if (slot.candidate.cluster.ptr)
            grid_tag_mark(slot.candidate.cluster, slot.candidate.mark);
        candidates[walk.i] = slot.candidate;
        offsets[walk.i] = slot.cluster_offset;
        for (size_t i = 0; read && i < walk.i; i++)
            if (same_candidate(&slot.candidate, &candidates[i])) {
                grid_fields_refuse(in, GRID_E_CONFLICT, grid_fields_offset(&start),
                                   "the same kind, name, site and cluster as candidates[%zu]: each may stand once", i);
                break;
            }
    }
    if (!kept)
        return;
    parsed->serving.candidates = candidates;
    parsed->serving.n_candidates = walk.n;
    parsed->cluster_offsets = offsets;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

enum { LOCAL_SITE, WINDOW, LOAD_WINDOW, CANDIDATES, CLUSTERS, PEERS };
#define SAW(seen, field) (((seen) >> (field)) & 1u)

#define SECONDS_WORDS "a whole number of seconds from 1 to 4611686018"
#define WINDOW_WORDS "a whole number of milliseconds from 1 to 4611686018000"
static const struct grid_field serving_fields[] = {
    [LOCAL_SITE] = {.name = "local_site",
                    .read = grid_values_site,
                    .at = offsetof(struct parsed, serving.local_site),
                    .required = true,
                    .accepts = GRID_VALUES_SITE},
    [WINDOW] = {.name = "window_secs",
                .read = grid_fields_whole,
                .at = offsetof(struct parsed, window_secs),
                .least = 1,
                .most = GRID_FIELDS_MAX_SECONDS,
                .accepts = SECONDS_WORDS},
    [LOAD_WINDOW] = {.name = "load_window_ms",
                     .read = grid_fields_whole,
                     .at = offsetof(struct parsed, serving.load_window_ms),
                     .least = 1,
                     .most = GRID_FIELDS_MAX_SECONDS * MS_A_SECOND,
                     .accepts = WINDOW_WORDS},
    [CANDIDATES] = {.name = "candidates",
                    .read = read_candidates,
                    .required = true,
                    .accepts = "a list of at most 1024 candidates, which may be empty"},
    [CLUSTERS] = {.name = "clusters", .read = grid_places_clusters, .accepts = "a list of at most 1024 clusters"},
    [PEERS] = {.name = "peers",
               .read = grid_places_peers,
               .accepts = "a list of at most 1024 peers, which may be empty"},
    {.name = "prefix_affinity",
     .read = grid_fields_misplaced,
     .accepts = "it belongs under grid_site_route in the gateway's own file"},
    {.name = "grid_site_route", .read = grid_fields_misplaced, .accepts = "it belongs in the gateway's own file"},
};

static void refuse_missing(struct grid_fields *in, size_t offset, const char *name, const char *more)
{
    grid_values_stand_at(in, "%s", name);
    grid_fields_refuse(in, GRID_E_FIELD, offset, "missing field %s: %s", name, more);
}

/* What the operator's form must have and ours may leave out. */
static void check_form(struct grid_fields *in, size_t offset, uint32_t seen)
{
    if (SAW(seen, CLUSTERS))
        return;
    if (!SAW(seen, WINDOW))
        refuse_missing(in, offset, "window_secs", "it must be " SECONDS_WORDS);
    if (!SAW(seen, LOAD_WINDOW))
        refuse_missing(in, offset, "load_window_ms", "it must be " WINDOW_WORDS);
    if (!SAW(seen, PEERS))
        refuse_missing(in, offset, "peers",
                       "there must be a list of peers, or of clusters, to say where the sites are");
}

static bool has_cluster(const struct grid_serving *serving, struct grid_str name)
{
    for (size_t i = 0; i < serving->n_clusters; i++)
        if (grid_str_eq(serving->clusters[i].name, name))
            return true;
    return false;
}

/* A name in a message that holds two: its beginning, so that both fit. */
#define MAX_SHOWN 60u
#define SHOWN(s) (int)((s).len < MAX_SHOWN ? (s).len : MAX_SHOWN), (s).ptr

static void check_clusters(struct grid_fields *in, const struct parsed *parsed)
{
    const struct grid_serving *serving = &parsed->serving;
    for (size_t i = 0; i < serving->n_candidates; i++) {
        struct grid_str name = serving->candidates[i].cluster;
        if (!name.ptr || has_cluster(serving, name))
            continue;
        grid_values_stand_at(in, "candidates[%zu].cluster", i);
        grid_fields_refuse(in, GRID_E_CONFLICT, parsed->cluster_offsets[i],
                           "cluster %.*s: it must be the name of one of the clusters", GRID_FMT(name));
    }
}

/* An id that is led home by its mark must have one home (O.16, O.39). Each later cluster is told of once. */
static void check_marks(struct grid_fields *in, const struct parsed *parsed)
{
    const struct grid_serving_candidate *all = parsed->serving.candidates;
    for (size_t i = 0; i < parsed->serving.n_candidates; i++) {
        const struct grid_serving_candidate *twin = NULL;
        bool told = !all[i].cluster.ptr;
        for (size_t k = 0; k < i && !told; k++) {
            if (!all[k].cluster.ptr || memcmp(all[k].mark, all[i].mark, sizeof all[i].mark) != 0)
                continue;
            told = grid_str_eq(all[k].cluster, all[i].cluster);
            twin = twin ? twin : &all[k];
        }
        if (told || !twin)
            continue;
        grid_values_stand_at(in, "candidates[%zu].cluster", i);
        grid_fields_refuse(in, GRID_E_CONFLICT, parsed->cluster_offsets[i],
                           "clusters %.*s and %.*s have the same mark, %.8s: ids could not tell them apart; one of "
                           "them must have another name",
                           SHOWN(twin->cluster), SHOWN(all[i].cluster), all[i].mark);
    }
}

static void read_all(struct grid_fields *in, struct parsed *parsed)
{
    uint32_t seen = 0;
    size_t offset = grid_fields_offset(&in->json);
    if (!grid_fields_object(in, serving_fields, COUNT(serving_fields), parsed, &seen))
        return;
    parsed->serving.has_clusters = SAW(seen, CLUSTERS);
    check_form(in, offset, seen);
    /* A list of clusters that was itself refused would make every candidate wrong. */
    if (parsed->serving.clusters)
        check_clusters(in, parsed);
    check_marks(in, parsed);
    parsed->serving.window_ms = parsed->window_secs * MS_A_SECOND;
}

static void set_defaults(struct parsed *parsed)
{
    parsed->window_secs = DEFAULT_WINDOW_SECS;
    parsed->serving.load_window_ms = DEFAULT_LOAD_WINDOW_MS;
}

enum grid_status grid_serving_parse(struct grid_str json, bool words, const struct grid_alloc *alloc,
                                    struct grid_serving **out_serving, struct grid_errors *errors)
{
    struct grid_fields in;
    *out_serving = NULL;
    if (!grid_fields_begin(&in, json, words, errors))
        return in.status;
    struct parsed *parsed = grid_take(alloc, sizeof *parsed);
    if (!parsed)
        return grid_refuse(errors, GRID_E_NO_MEMORY, 0, "", "no memory for the serving config");
    grid_arena_init(&parsed->arena, alloc, GRID_SERVING_MAX_BYTES);
    parsed->serving.alloc = alloc;
    parsed->serving.memory = parsed;
    set_defaults(parsed);
    in.arena = &parsed->arena;
    read_all(&in, parsed);
    if (in.status != GRID_OK) {
        grid_serving_free(&parsed->serving);
        return in.status;
    }
    *out_serving = &parsed->serving;
    return GRID_OK;
}

void grid_serving_free(struct grid_serving *serving)
{
    if (!serving)
        return;
    struct parsed *parsed = serving->memory;
    const struct grid_alloc *alloc = serving->alloc;
    grid_arena_done(&parsed->arena);
    grid_give(alloc, parsed);
}

void grid_serving_describe(grid_field_teller *tell, void *context)
{
    const struct grid_describe to = {.tell = tell, .context = context};
    static const struct candidate_slot slot;
    struct parsed parsed = {.window_secs = 0};
    set_defaults(&parsed);
    grid_describe_table(&to, "", serving_fields, COUNT(serving_fields), &parsed);
    grid_describe_table(&to, "candidates[].", candidate_fields, COUNT(candidate_fields), &slot);
    grid_places_describe(&to);
}
