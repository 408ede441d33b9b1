/*
 * state_store.h - copies of what ranks list as their state, as a checkpoint would keep them, to be loaded from.
 */
#ifndef NW_TESTS_STATE_STORE_H
#define NW_TESTS_STATE_STORE_H

#include <stdlib.h>
#include <string.h>

#include "net/state.h"

enum { STORE_MEMBERS = 64 };

typedef struct state_store {
    nw_state at[STORE_MEMBERS];
    int members;
} state_store;

/* Copies what the next member has. */
static inline void store_add(state_store *store, nw_state_owner owner)
{
    nw_state *s = &store->at[store->members++];
    *s = (nw_state){0};
    owner.list(owner.whose, s);
    for (int i = 0; i < s->count; i++) {
        void *copy = malloc(nw_state_bytes(&s->at[i]) + 1);
        if (!copy) abort();
        memcpy(copy, s->at[i].data, nw_state_bytes(&s->at[i]));
        s->at[i].data = copy;
    }
}

static inline void store_clear(state_store *store)
{
    for (int m = 0; m < store->members; m++) {
        for (int i = 0; i < store->at[m].count; i++) free(store->at[m].at[i].data);
        nw_state_free(&store->at[m]);
    }
    store->members = 0;
}

/* Adds to `out` what an entry has in common with the one that is asked for; returns how many elements these are. */
static inline size_t store_copy(const nw_state_entry *from, const nw_state_entry *e, void *out)
{
    size_t width = nw_state_type_bytes(e->type), end = from->first + nw_state_count(from);
    size_t begin = from->first > e->first ? from->first : e->first;
    if (end > e->first + nw_state_count(e)) end = e->first + nw_state_count(e);
    if (begin >= end) return 0;
    memcpy((char *)out + (begin - e->first) * width, (char *)from->data + (begin - from->first) * width,
           (end - begin) * width);
    return end - begin;
}

/* Of what all have in common, the first member's, or the elements that each has. */
static inline nw_status store_read(void *context, int member, const nw_state_entry *e, void *out, bool *there)
{
    const state_store *store = context;
    size_t found = 0;
    int first = e->rule == NW_STATE_KEPT || e->rule == NW_STATE_RANGE ? 0 : member;
    for (int m = first; m < (e->rule == NW_STATE_RANGE ? store->members : first + 1); m++)
        for (int i = 0; i < store->at[m].count; i++) {
            const nw_state_entry *a = &store->at[m].at[i];
            bool follows = (a->rule == NW_STATE_FOLLOWS) != (e->rule == NW_STATE_FOLLOWS); /* another of that name */
            if (strcmp(a->name, e->name) != 0 || follows) continue;
            NW_FAIL_IF(a->rule != e->rule || a->type != e->type || a->dims != e->dims, NW_E_FILE,
                       "%s is saved in another way", e->name);
            found += store_copy(a, e, out);
        }
    *there = found == nw_state_count(e);
    return NW_OK;
}

/* Loads member `me` of `members`; what is lost goes to `lost`, which may be NULL. */
static inline nw_status store_load(state_store *store, nw_state_owner owner, int me, int members, char *lost)
{
    nw_state_source source = {store, store->members, store_read, NULL, NULL};
    char nobody[256] = "";
    return nw_state_load(&owner, &source, me, members, lost ? lost : nobody, sizeof nobody);
}

#endif
