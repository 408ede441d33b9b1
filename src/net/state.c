/* state.c - see state.h. */
#include "net/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t nw_state_type_bytes(nw_state_type type)
{
    static const size_t bytes[] = {4, 8, 8, 1};
    return bytes[type];
}

size_t nw_state_count(const nw_state_entry *e)
{
    size_t count = 1;
    for (int d = 0; d < e->dims; d++) count *= (size_t)e->shape[d];
    return count;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

void nw_state_add(nw_state *s, nw_state_entry entry)
{
    if (s->count == s->capacity) {
        int capacity = s->capacity ? 2 * s->capacity : 32;
        nw_state_entry *at = realloc(s->at, (size_t)capacity * sizeof *at);
        if (!at) {
            s->status = NW_FAIL(NW_E_MEMORY, "no memory for a list of %d tensors", capacity);
            return;
        }
        s->at = at;
        s->capacity = capacity;
    }
    s->at[s->count++] = entry;
}

void nw_state_tensor(nw_state *s, const char *name, nw_state_rule rule, nw_state_type type, int dims,
                     const int64_t *shape, void *data)
{
    nw_state_entry e = {.rule = rule, .type = type, .dims = dims, .data = data};
    if (snprintf(e.name, sizeof e.name, "%s", name) >= NW_STATE_NAME) abort(); /* it could not be found again */
    for (int d = 0; d < dims; d++) e.shape[d] = shape[d];
    nw_state_add(s, e);
}

void nw_state_integer(nw_state *s, const char *name, nw_state_rule rule, int64_t *value)
{
    nw_state_tensor(s, name, rule, NW_STATE_I64, 0, NULL, value);
}

void nw_state_real(nw_state *s, const char *name, nw_state_rule rule, double *value)
{
    nw_state_tensor(s, name, rule, NW_STATE_F64, 0, NULL, value);
}

void nw_state_vector(nw_state *s, const char *name, nw_state_rule rule, float *data, size_t first, size_t count)
{
    int64_t shape = (int64_t)count;
    int before = s->count;
    nw_state_tensor(s, name, rule, NW_STATE_F32, 1, &shape, data);
    if (s->count == before) return;
    s->at[before].vector = true;
    s->at[before].first = first;
}

nw_state_entry *nw_state_find(const nw_state *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->at[i].name, name) == 0) return &s->at[i];
    return NULL;
}

void nw_state_free(nw_state *s)
{
    free(s->at);
    *s = (nw_state){0};
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

typedef struct loading {
    const nw_state_source *source;
    int me, members;
    char *lost;
    size_t lost_size;
} loading;

static void add_lost(loading *l, const char *name)
{
    size_t used = strlen(l->lost);
    if (used + 3 < l->lost_size) snprintf(l->lost + used, l->lost_size - used, "%s%s", used ? ", " : "", name);
}

/* Adds what several old members would have delivered. */
static nw_status read_delivered(loading *l, const nw_state_entry *e, bool *there)
{
    size_t count = nw_state_count(e);
    float *sum = e->data, *one, factor = e->mean ? (float)l->members / (float)l->source->members : 1.0f;
    NW_FAIL_IF(e->type != NW_STATE_F32, NW_E_INTERNAL, "only floats can be delivered, and %s has others", e->name);
    one = malloc(count * sizeof *one + 1);
    NW_FAIL_IF(!one, NW_E_MEMORY, "no memory for %zu floats of %s", count, e->name);
    memset(sum, 0, count * sizeof *sum);
    nw_status status = NW_OK;
    *there = true;
    for (int j = l->me; j < l->source->members && status == NW_OK && *there; j += l->members) {
        status = l->source->read(l->source->context, j, e, one, there);
        for (size_t i = 0; i < count && status == NW_OK && *there; i++) sum[i] += factor * one[i];
    }
    free(one);
    return status;
}

static nw_status read_entry(loading *l, const nw_state_entry *e)
{
    const nw_state_source *s = l->source;
    bool same = s->members == l->members, there;
    if (!same && e->rule == NW_STATE_OWN) {
        add_lost(l, e->name);
        return NW_OK;
    }
    NW_FAIL_IF(!same && e->rule == NW_STATE_REFUSED, NW_E_ARGUMENT,
               "%s was saved by %d ranks, and cannot be continued by %d; use as many, or start a new run from the "
               "weights with --init",
               e->name, s->members, l->members);
    if (!same && e->rule == NW_STATE_DELIVERED)
        NW_TRY(read_delivered(l, e, &there));
    else
        NW_TRY(s->read(s->context, l->me % s->members, e, e->data, &there));
    NW_FAIL_IF(!there && !e->later, NW_E_FILE, "the checkpoint lacks %s; take an earlier one", e->name);
    return NW_OK;
}

static nw_status read_list(loading *l, const nw_state_owner *o, bool numbers)
{
    nw_state s = {0};
    o->list(o->whose, &s);
    nw_status status = s.status;
    for (int i = 0; i < s.count && status == NW_OK; i++)
        if ((s.at[i].dims == 0) == numbers) status = read_entry(l, &s.at[i]);
    nw_state_free(&s);
    return status;
}

nw_status nw_state_load(const nw_state_owner *owner, const nw_state_source *source, int me, int members, char *lost,
                        size_t lost_size)
{
    loading l = {source, me, members, lost, lost_size};
    NW_TRY(read_list(&l, owner, true));
    if (owner->loaded) NW_TRY(owner->loaded(owner->whose));
    return read_list(&l, owner, false);
}
