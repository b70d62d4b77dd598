/*
 * status.c - names of the status codes, and the list of refusals
 */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

const char *grid_status_name(enum grid_status status)
{
    switch (status) {
    case GRID_OK:
        return "ok";
    case GRID_E_NO_MEMORY:
        return "no_memory";
    case GRID_E_SYNTAX:
        return "syntax";
    case GRID_E_FIELD:
        return "field";
    case GRID_E_CONFLICT:
        return "conflict";
    }
    return "unknown";
}

enum grid_status grid_refuse(struct grid_errors *errors, enum grid_status code, size_t offset, const char *field,
                             const char *format, ...)
{
    if (!errors)
        return code;
    if (errors->count < GRID_MAX_ERRORS) {
        struct grid_err *err = &errors->items[errors->count];
        err->code = code;
        err->offset = offset;
        (void)snprintf(err->field, sizeof err->field, "%s", field);
        va_list args;
        va_start(args, format);
        (void)vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        errors->count++;
    }
    return code;
}
