/*
 * believed.c - what a compared router believes a site to hold
 */
#include "believed.h"

#include <stdlib.h>

size_t grid_believed_run(const struct grid_believed *believed, const uint64_t *keys, size_t n)
{
    size_t run = 0;
    while (run < n && grid_set_find(&believed->at, keys[run]))
        run++;
    return run;
}

static void take_out(struct grid_believed *b, uint32_t at)
{
    struct grid_believed_entry *entry = &b->entries[at - 1];
    if (entry->newer)
        b->entries[entry->newer - 1].older = entry->older;
    else
        b->newest = entry->older;
    if (entry->older)
        b->entries[entry->older - 1].newer = entry->newer;
    else
        b->oldest = entry->newer;
}

static void put_first(struct grid_believed *b, uint32_t at)
{
    struct grid_believed_entry *entry = &b->entries[at - 1];
    entry->newer = 0;
    entry->older = b->newest;
    if (b->newest)
        b->entries[b->newest - 1].newer = at;
    else
        b->oldest = at;
    b->newest = at;
}

/* An entry to write to: a new one, or the oldest. 0 for want of memory. */
static uint32_t make_entry(struct grid_believed *b, size_t capacity)
{
    if (b->n >= capacity && b->oldest) {
        uint32_t at = b->oldest;
        take_out(b, at);
        grid_set_drop(&b->at, b->entries[at - 1].key);
        return at;
    }
    if (b->n == b->cap) {
        uint32_t more = b->cap ? b->cap * 2 : 1024;
        struct grid_believed_entry *moved = realloc(b->entries, more * sizeof *moved);
        if (!moved)
            return 0;
        b->entries = moved;
        b->cap = more;
    }
    return ++b->n;
}

static bool note_key(struct grid_believed *b, uint64_t key, size_t capacity)
{
    struct grid_set_slot *slot = grid_set_find(&b->at, key);
    bool had;
    if (slot) {
        take_out(b, slot->value);
        put_first(b, slot->value);
        return true;
    }
    uint32_t at = make_entry(b, capacity);
    slot = at ? grid_set_put(&b->at, key, &had) : NULL;
    if (!slot)
        return false;
    slot->value = at;
    b->entries[at - 1].key = key;
    put_first(b, at);
    return true;
}

bool grid_believed_note(struct grid_believed *b, const uint64_t *keys, size_t n, size_t capacity)
{
    bool good = true;
    for (size_t i = n; good && i-- > 0;)
        good = note_key(b, keys[i], capacity);
    return good;
}

void grid_believed_done(struct grid_believed *b)
{
    grid_set_done(&b->at);
    free(b->entries);
    *b = (struct grid_believed){0};
}
