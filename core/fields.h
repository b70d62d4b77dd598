/*
 * fields.h - reading configurations field by field, for settings.c and serving.c
 *
 * Story     A mapping is a table of fields; grid_fields_object walks the text's members through it and calls each
 *           field's reader. A reader that finds a fault refuses it and goes on, so a person sees all of them at once.
 * Promise   Every refusal names the dotted path, the byte offset of the value, the value, and what is accepted.
 *           Unknown and repeated names are refused in every mapping. A reader always passes its value, right or wrong.
 * Not here  Memory: texts are decoded into the reader's own room and are good until the next one.
 */
#ifndef GRID_FIELDS_H
#define GRID_FIELDS_H

#include "json.h"
#include "status.h"

#define GRID_FIELDS_PATH_BYTES 1023u          /* the longest path to a file */
#define GRID_FIELDS_MAX_SECONDS 4611686018ull /* 2^62 ns: what fits the clock */
#define GRID_FIELDS_MAX_CAPACITY 67108864u    /* entries a cluster: what an index holds (lru.h) */
#define GRID_FIELDS_MAX_FIELDS 32u            /* of one mapping */

struct grid_fields {
    struct grid_json json;
    struct grid_str text;  /* the whole of it; the reader's one slice */
    struct grid_json mark; /* stands before the value that was read last */
    bool words;            /* the text came from YAML: numbers, true and false may stand where text is wanted */
    struct grid_errors *errors;
    enum grid_status status;  /* of the first refusal */
    struct grid_arena *arena; /* for readers that keep what they read; NULL when there are none */
    size_t path_len;
    char path[128];
    char room[GRID_FIELDS_PATH_BYTES + 1];
};

struct grid_field {
    const char *name;
    void (*read)(struct grid_fields *in, const struct grid_field *field, void *object);
    size_t at; /* offset of the destination in the object */
    bool required;
    bool null_ok;         /* null is as good as absent */
    uint64_t least, most; /* of a whole number; of a text in bytes */
    double low, high;     /* of a number */
    bool above;           /* low itself is out */
    const char *accepts;  /* the same in words */
    const char *fallback; /* the default in words, of a reader that describe.c does not know */
};

/* Checks that json is one JSON value and stands before it; false: refused as no JSON. */
bool grid_fields_begin(struct grid_fields *in, struct grid_str json, bool words, struct grid_errors *errors);

/* Reads a mapping through a table of at most GRID_FIELDS_MAX_FIELDS. False, refused, when it is none. out_seen may be
 * NULL; bit i: the i-th field was there and not null. */
bool grid_fields_object(struct grid_fields *in, const struct grid_field *table, size_t n, void *object,
                        uint32_t *out_seen);

/* A list: refused as a whole unless it has least..most elements, else n is their number and each stands next in turn.
 *     if (grid_fields_list(in, 1, 8, "a list of 1 to 8 paths", &list))
 *         while (grid_fields_next(in, &list)) ... list.i                                                          */
struct grid_fields_walk {
    size_t i, n, path_len;
};
bool grid_fields_list(struct grid_fields *in, size_t least, size_t most, const char *accepts,
                      struct grid_fields_walk *walk);
bool grid_fields_next(struct grid_fields *in, struct grid_fields_walk *walk);

/* The same for a mapping whose names are free: each is a name as grid_fields_name takes it (others are refused and
 * passed over), in the reader's room, and its value is next. A name may come twice. */
bool grid_fields_map(struct grid_fields *in, size_t most, const char *accepts, struct grid_fields_walk *walk);
bool grid_fields_entry(struct grid_fields *in, struct grid_fields_walk *walk, struct grid_str *out_name);

/* Readers for tables: bool, uint64_t and double at `at`; and names that are known and refused, `accepts` saying why. */
void grid_fields_bool(struct grid_fields *in, const struct grid_field *field, void *object);
void grid_fields_whole(struct grid_fields *in, const struct grid_field *field, void *object);
void grid_fields_number(struct grid_fields *in, const struct grid_field *field, void *object);
void grid_fields_misplaced(struct grid_fields *in, const struct grid_field *field, void *object);

/* The next value as text of least..most bytes, without control characters, into in->room. False: refused. */
bool grid_fields_text(struct grid_fields *in, size_t least, size_t most, const char *accepts, struct grid_str *out);

/* The same for a name: 1..GRID_MAX_NAME_BYTES bytes, not blank. */
bool grid_fields_name(struct grid_fields *in, struct grid_str *out);

/* Refuses the value that was read last (in->mark): "NAME is VALUE: it must be ACCEPTS". */
void grid_fields_bad(struct grid_fields *in, const char *accepts);
/* Refuses with words of its own, at an offset and the present path. */
void grid_fields_refuse(struct grid_fields *in, enum grid_status code, size_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Offset of the value that a reader stands before. */
size_t grid_fields_offset(const struct grid_json *before);

#endif
