/*
 * settings.c - the `grid_site_route` block (grid_settings_parse and grid_settings_defaults of grid.h)
 *
 * Promise   Nothing is half applied: *out_settings is written only when the whole text is right. No allocation.
 * Source    behaviour.md J.1, O.7, O.14, O.22, O.38, O.52.
 * Not here  Reading the tag key files (the host), the serving config (serving.c).
 */
#include <math.h>

#include "describe.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MS_A_SECOND 1000u

/* ---- the block ------------------------------------------------------------------------------------------------- */

void grid_settings_defaults(struct grid_settings *out_settings)
{
    *out_settings = (struct grid_settings){
        .model_header = "x-model",
        .enabled = true,
        .threshold = 0.8,
        .exploration = 0.02,
        .prefill_tokens_per_second = 10000,
        .queued_request_seconds = 2,
        .capacity = 16384,
        .ttl_ms = (uint64_t)600 * MS_A_SECOND,
    };
}

/* The block while it is read. */
struct block {
    struct grid_settings settings;
    uint64_t ttl_secs;
};

static bool is_header_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static void read_model_header(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct block *block = object;
    char *out = block->settings.model_header;
    struct grid_str text;
    if (!grid_fields_text(in, 1, GRID_MAX_NAME_BYTES, field->accepts, &text))
        return;
    for (size_t i = 0; i < text.len; i++) {
        out[i] = grid_str_lower(text.ptr[i]);
        if (!is_header_byte(out[i])) {
            grid_fields_bad(in, field->accepts);
            return;
        }
    }
    out[text.len] = 0;
    struct grid_str name = {out, text.len};
    if (grid_str_starts(name, GRID_LIT("x-praxis-")) || grid_str_starts(name, GRID_LIT("x-mcp-")))
        grid_fields_bad(in, "a header name without the reserved prefix x-praxis- or x-mcp-");
}

static void read_filter(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_str text;
    (void)object;
    if (grid_fields_text(in, 1, GRID_MAX_NAME_BYTES, field->accepts, &text) &&
        !grid_str_eq(text, GRID_LIT("grid_site_route")))
        grid_fields_bad(in, field->accepts);
}

static void read_tag_key(struct grid_fields *in, struct grid_settings *settings)
{
    struct grid_str path;
    if (!grid_fields_text(in, 1, GRID_FIELDS_PATH_BYTES, "a path of 1 to 1023 bytes", &path))
        return;
    char *out = settings->tag_key_paths[settings->n_tag_key_paths++];
    memcpy(out, path.ptr, path.len);
    out[path.len] = 0;
}

static void read_tag_key_path(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct block *block = object;
    struct grid_settings *settings = &block->settings;
    struct grid_fields_walk walk;
    in->mark = in->json;
    enum grid_json_kind kind = grid_json_peek(&in->json);
    if (kind == GRID_JSON_OBJECT) {
        grid_fields_bad(in, field->accepts);
        (void)grid_json_skip(&in->json);
    } else if (kind != GRID_JSON_ARRAY) {
        read_tag_key(in, settings);
    } else if (grid_fields_list(in, 1, sizeof settings->tag_key_paths / sizeof settings->tag_key_paths[0],
                                field->accepts, &walk)) {
        while (grid_fields_next(in, &walk))
            read_tag_key(in, settings);
    }
}

static void read_route_name(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_settings *settings = &((struct block *)object)->settings;
    struct grid_str name;
    (void)field;
    if (!grid_fields_name(in, &name) || settings->n_clusters == GRID_MAX_ROUTES)
        return;
    char *out = settings->clusters[settings->n_clusters++];
    memcpy(out, name.ptr, name.len);
    out[name.len] = 0;
}

static void read_transport(struct grid_fields *in, const struct grid_field *field, void *object)
{
    static const char *const known[] = {"plaintext", "tls", "mtls", "http", "https"};
    struct grid_str text;
    (void)object;
    if (!grid_fields_text(in, 1, GRID_MAX_NAME_BYTES, field->accepts, &text))
        return;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (grid_str_eq(text, grid_str_of(known[i])))
            return;
    grid_fields_bad(in, field->accepts);
}

static const struct grid_field route_fields[] = {
    {.name = "name", .read = read_route_name, .required = true, .accepts = "a name of 1 to 256 bytes"},
    {.name = "transport", .read = read_transport, .null_ok = true, .accepts = "plaintext, tls, mtls, http or https"},
};

/* Names, or mappings of name and transport. What the transport is, is told where the cluster is (serving config). */
static void read_routes(struct grid_fields *in, const struct grid_field *field, void *object)
{
    struct grid_fields_walk walk;
    if (!grid_fields_list(in, 0, GRID_MAX_ROUTES, field->accepts, &walk))
        return;
    ((struct block *)object)->settings.has_clusters = true;
    while (grid_fields_next(in, &walk)) {
        if (grid_json_peek(&in->json) == GRID_JSON_OBJECT)
            (void)grid_fields_object(in, route_fields, COUNT(route_fields), object, NULL);
        else
            read_route_name(in, field, object);
    }
}

#define IN_BLOCK(member) offsetof(struct block, settings.member)

#define POSITIVE "a positive finite number"
static const struct grid_field affinity_fields[] = {
    {.name = "enabled", .read = grid_fields_bool, .at = IN_BLOCK(enabled)},
    {.name = "spread_ties", .read = grid_fields_bool, .at = IN_BLOCK(spread_ties)},
    {.name = "threshold",
     .read = grid_fields_number,
     .at = IN_BLOCK(threshold),
     .high = 1,
     .above = true,
     .accepts = "a number above 0 and at most 1"},
    {.name = "exploration",
     .read = grid_fields_number,
     .at = IN_BLOCK(exploration),
     .high = 1,
     .accepts = "a number from 0 to 1"},
    {.name = "prefill_tokens_per_second",
     .read = grid_fields_number,
     .at = IN_BLOCK(prefill_tokens_per_second),
     .high = HUGE_VAL,
     .above = true,
     .accepts = POSITIVE},
    {.name = "queued_request_seconds",
     .read = grid_fields_number,
     .at = IN_BLOCK(queued_request_seconds),
     .high = HUGE_VAL,
     .above = true,
     .accepts = POSITIVE},
    {.name = "tag_key_path", .read = read_tag_key_path, .null_ok = true, .accepts = "a path or a list of 1 to 8 paths"},
    {.name = "capacity",
     .read = grid_fields_whole,
     .at = IN_BLOCK(capacity),
     .least = 1,
     .most = GRID_MAX_CAPACITY,
     .accepts = "a whole number from 1 to 67108864"},
    {.name = "ttl_secs",
     .read = grid_fields_whole,
     .at = offsetof(struct block, ttl_secs),
     .least = 1,
     .most = GRID_FIELDS_MAX_SECONDS,
     .accepts = "a whole number from 1 to 4611686018, to fit the clock"},
};

static void read_affinity(struct grid_fields *in, const struct grid_field *field, void *object)
{
    (void)field;
    (void)grid_fields_object(in, affinity_fields, COUNT(affinity_fields), object, NULL);
}

_Static_assert(GRID_MAX_CAPACITY == 67108864, "the words of capacity name the bound");

#define INNER(field)                                                                                                   \
    {                                                                                                                  \
        .name = field, .read = grid_fields_misplaced, .accepts = "it belongs under prefix_affinity"                    \
    }
static const struct grid_field block_fields[] = {
    {.name = "filter", .read = read_filter, .accepts = "grid_site_route"},
    {.name = "model_header",
     .read = read_model_header,
     .fallback = "x-model",
     .accepts = "a header name of 1 to 256 bytes"},
    {.name = "clusters", .read = read_routes, .null_ok = true, .accepts = "a list of at most 64 clusters"},
    {.name = "prefix_affinity", .read = read_affinity, .null_ok = true},
    INNER("enabled"),
    INNER("spread_ties"),
    INNER("threshold"),
    INNER("exploration"),
    INNER("prefill_tokens_per_second"),
    INNER("queued_request_seconds"),
    INNER("tag_key_path"),
    INNER("capacity"),
    INNER("ttl_secs"),
};
#undef INNER

enum grid_status grid_settings_parse(struct grid_str json, bool words, struct grid_settings *out_settings,
                                     struct grid_errors *errors)
{
    struct grid_fields in;
    struct block block = {.ttl_secs = 0};
    grid_settings_defaults(&block.settings);
    block.ttl_secs = block.settings.ttl_ms / MS_A_SECOND;
    if (!grid_fields_begin(&in, json, words, errors))
        return in.status;
    /* An empty block in YAML is null: all defaults. */
    if (grid_json_peek(&in.json) != GRID_JSON_NULL)
        (void)grid_fields_object(&in, block_fields, COUNT(block_fields), &block, NULL);
    if (in.status != GRID_OK)
        return in.status;
    block.settings.ttl_ms = block.ttl_secs * MS_A_SECOND;
    *out_settings = block.settings;
    return GRID_OK;
}

void grid_settings_describe(grid_field_teller *tell, void *context)
{
    const struct grid_describe to = {.tell = tell, .context = context};
    struct block block;
    grid_settings_defaults(&block.settings);
    block.ttl_secs = block.settings.ttl_ms / MS_A_SECOND;
    grid_describe_table(&to, "", block_fields, COUNT(block_fields), &block);
    grid_describe_table(&to, "clusters[].", route_fields, COUNT(route_fields), &block);
    grid_describe_table(&to, "prefix_affinity.", affinity_fields, COUNT(affinity_fields), &block);
}
