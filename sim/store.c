/*
 * store.c - records by id, bounded, the ones written longest ago out first
 *
 * Story     A balanced tree of the C library finds a record by its id; a list keeps them in the order of their last
 *           writing. A record that is held and no longer wanted is handed to its own kind, which frees it.
 * Promise   Finding costs O(log n). After each call the store is within its bounds.
 * Not here  What a record counts (responses.c, conversations.c).
 */
#include "store.h"
#include "prompt.h"

#include <search.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static const uint64_t SECOND_HALF = 0x9e3779b97f4a7c15ULL;

static int by_id(const void *left, const void *right)
{
    const struct grid_sim_record *a = left;
    const struct grid_sim_record *b = right;
    return strcmp(a->id, b->id);
}

void grid_sim_store_init(struct grid_sim_store *store, size_t max_count, size_t max_bytes)
{
    *store = (struct grid_sim_store){.max_count = max_count, .max_bytes = max_bytes};
    TAILQ_INIT(&store->order);
    if (getrandom(&store->chance, sizeof store->chance, 0) != (ssize_t)sizeof store->chance)
        abort();
}

void grid_sim_store_clear(struct grid_sim_store *store)
{
    while (!TAILQ_EMPTY(&store->order))
        grid_sim_store_let_go(store, TAILQ_FIRST(&store->order));
}

void grid_sim_store_id(struct grid_sim_store *store, const char *prefix, char out[GRID_SIM_MAX_ID_BYTES])
{
    uint64_t number = ++store->ids;
    uint64_t first = grid_sim_hash(number, store->chance);
    uint64_t second = grid_sim_hash(number, store->chance ^ SECOND_HALF);
    (void)snprintf(out, GRID_SIM_MAX_ID_BYTES, "%s%016llx%016llx", prefix, (unsigned long long)first,
                   (unsigned long long)second);
}

struct grid_sim_record *grid_sim_store_find(struct grid_sim_store *store, enum grid_sim_kind kind, const char *id)
{
    struct grid_sim_record wanted = {.kind = kind};
    int length = snprintf(wanted.id, sizeof wanted.id, "%s", id);
    void *found = length >= 0 && (size_t)length < sizeof wanted.id ? tfind(&wanted, &store->tree, by_id) : NULL;
    if (!found)
        return NULL;
    struct grid_sim_record *record = *(struct grid_sim_record **)found;
    return record->kind == kind ? record : NULL;
}

static void take_out(struct grid_sim_store *store, struct grid_sim_record *record)
{
    (void)tdelete(record, &store->tree, by_id);
    TAILQ_REMOVE(&store->order, record, link);
    store->count--;
    store->bytes -= record->bytes;
    record->held = false;
}

void grid_sim_store_let_go(struct grid_sim_store *store, struct grid_sim_record *record)
{
    take_out(store, record);
    if (record->kind == GRID_SIM_RESPONSE)
        grid_sim_response_let_go(record);
    else
        grid_sim_conversation_free(record);
}

void grid_sim_store_hold(struct grid_sim_store *store, struct grid_sim_record *record, size_t bytes)
{
    if (record->held) {
        take_out(store, record);
    } else {
        struct grid_sim_record **same = tfind(record, &store->tree, by_id);
        if (same)
            grid_sim_store_let_go(store, *same);
    }
    record->bytes = bytes + GRID_SIM_RECORD_BYTES;
    if (!tsearch(record, &store->tree, by_id))
        abort();
    TAILQ_INSERT_TAIL(&store->order, record, link);
    record->held = true;
    store->count++;
    store->bytes += record->bytes;
    while (store->count > store->max_count || store->bytes > store->max_bytes)
        grid_sim_store_let_go(store, TAILQ_FIRST(&store->order));
}

bool grid_sim_store_missing(enum grid_sim_kind kind, const char *id, const char *param,
                            struct grid_sim_refusal *refusal)
{
    return grid_sim_refuse(refusal, HTTP_NOTFOUND, "invalid_request_error", param, "%s with id '%.100s' not found.",
                           kind == GRID_SIM_RESPONSE ? "Response" : "Conversation", id);
}
