/*
 * material.h - certificates, private keys and credentials: files whose contents reach Envoy through the state folder
 *
 * Story     The configuration names files. Each is read whole and looked at once a load, so that a rotation is one
 *           step for Envoy whatever way the file was replaced in, and a file that is only half there is refused while
 *           the one in force goes on.
 * Promise   Contents are wiped when they are let go, and never shown.
 * Not here  Whether certificate and key belong together, and who signed what: Envoy judges that.
 */
#ifndef GRID_MATERIAL_H
#define GRID_MATERIAL_H

#include "cli/files.h"

enum grid_material_kind { GRID_MATERIAL_CERTIFICATES, GRID_MATERIAL_KEY, GRID_MATERIAL_BEARER };

struct grid_material {
    char path[GRID_PATH_BYTES]; /* absolute */
    enum grid_material_kind kind;
    char *text; /* NUL-terminated; a bearer without the white space around it */
    size_t len;
};

struct grid_materials {
    struct grid_material *items;
    size_t n, cap;
};

void grid_materials_done(struct grid_materials *materials); /* a zeroed one is fine */
const struct grid_material *grid_materials_find(const struct grid_materials *materials, const char *path,
                                                enum grid_material_kind kind);

enum grid_material_result {
    GRID_MATERIAL_READ,
    GRID_MATERIAL_KEPT, /* what is on disk is no good; that of `kept` stands in for it, and `error` says why */
    GRID_MATERIAL_BAD,
};

/* Reads the file unless it is there already. `kept` may be NULL. */
enum grid_material_result grid_materials_add(struct grid_materials *materials, const char *path,
                                             enum grid_material_kind kind, const struct grid_materials *kept,
                                             char *error, size_t error_size);

bool grid_materials_equal(const struct grid_materials *a, const struct grid_materials *b);

#endif
