/* state.c - see state.h. */
#include "net/state.h"

#include "base/text.h"

#include <stdio.h>

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
    if (nw_grow(&s->at, (size_t)s->count, sizeof entry))
        s->at[s->count++] = entry;
    else
        s->status = NW_FAIL(NW_E_MEMORY, "no memory for a list of %d tensors", s->count + 1);
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

static void add_vector(nw_state *s, const char *name, nw_state_rule rule, float *data, nw_state_along along,
                       size_t first, size_t count)
{
    int64_t shape = (int64_t)count;
    int before = s->count;
    nw_state_tensor(s, name, rule, NW_STATE_F32, 1, &shape, data);
    if (s->count == before) return;
    s->at[before].along = along;
    s->at[before].first = first;
}

void nw_state_vector(nw_state *s, const char *name, nw_state_rule rule, float *data, size_t first, size_t count)
{
    add_vector(s, name, rule, data, NW_ALONG_PARAMETERS, first, count);
}

void nw_state_statistics(nw_state *s, const char *name, nw_state_rule rule, float *data, size_t count)
{
    add_vector(s, name, rule, data, NW_ALONG_STATISTICS, 0, count);
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

/* ---- what another rank sent -------------------------------------------------------------------------------------- */

/* Elements without overflow; SIZE_MAX: too many, or less than none. */
static size_t checked_count(const nw_state_entry *e)
{
    size_t count = 1;
    for (int d = 0; d < e->dims; d++)
        if (e->shape[d] < 0 || __builtin_mul_overflow(count, (size_t)e->shape[d], &count)) return SIZE_MAX;
    return count;
}

nw_status nw_state_check(const nw_state_entry *e, int from, size_t parameters, size_t statistics)
{
    size_t length = strnlen(e->name, sizeof e->name), most = e->along == NW_ALONG_PARAMETERS ? parameters : statistics;
    bool named = length > 0 && length < sizeof e->name;
    for (size_t i = 0; named && i < length; i++) named = e->name[i] > ' ' && e->name[i] < 127;
    NW_FAIL_IF(!named, NW_E_MESSAGE, "rank %d lists a tensor without a name; use the same build on all ranks", from);
    NW_FAIL_IF((unsigned)e->rule > NW_STATE_REFUSED || (unsigned)e->type > NW_STATE_U8 || e->dims < 0 ||
                   e->dims > NW_STATE_DIMS || (unsigned)e->along > NW_ALONG_STATISTICS,
               NW_E_MESSAGE, "rank %d lists %s of rule %d, type %d and %d dimensions, which does not exist", from,
               e->name, e->rule, e->type, e->dims);
    size_t count = checked_count(e);
    NW_FAIL_IF(count > PTRDIFF_MAX / 8, NW_E_MESSAGE, "rank %d lists %s with an impossible size", from, e->name);
    bool vector = e->type == NW_STATE_F32 && e->dims == 1 && e->first <= most && count <= most - e->first;
    NW_FAIL_IF(e->along == NW_ALONG_NOTHING ? e->rule == NW_STATE_RANGE : !vector, NW_E_MESSAGE,
               "rank %d lists %zu elements of %s from %zu on, but there are only %zu", from, count, e->name, e->first,
               most);
    return NW_OK;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

typedef struct loading {
    const nw_state_source *source;
    int me, members;
    char *lost;
    size_t lost_size;
} loading;

void nw_state_lose(char *lost, size_t lost_size, const char *name)
{
    size_t used = strlen(lost), length = strlen(name);
    for (const char *at = lost; (at = strstr(at, name)); at += length) {
        bool begins = at == lost || at[-1] == ' ';
        if (begins && (at[length] == ',' || at[length] == 0)) return;
    }
    if (used + length + 3 < lost_size) snprintf(lost + used, lost_size - used, "%s%s", used ? ", " : "", name);
}

static bool has(const loading *l, int member) { return !l->source->has || l->source->has(l->source->context, member); }

static void add_entry(const nw_state_entry *e, const void *one, double factor)
{
    size_t count = nw_state_count(e);
    for (size_t i = 0; i < count; i++)
        if (e->type == NW_STATE_F32)
            ((float *)e->data)[i] += (float)factor * ((const float *)one)[i];
        else if (e->type == NW_STATE_F64)
            ((double *)e->data)[i] += factor * ((const double *)one)[i];
        else
            ((uint64_t *)e->data)[i] += ((const uint64_t *)one)[i];
}

/* Adds what several old members would have delivered. */
static nw_status read_delivered(loading *l, const nw_state_entry *e, bool *there)
{
    int have = l->members - e->from, had = l->source->members - e->was_from;
    double factor = e->mean ? (double)have / (double)had : 1;
    NW_FAIL_IF(have < 1 || had < 1 || e->from < 0 || e->was_from < 0, NW_E_FILE,
               "%s was saved by members from %d on of %d, which cannot be", e->name, e->was_from, l->source->members);
    NW_FAIL_IF(e->type == NW_STATE_U8 || (e->mean && e->type == NW_STATE_I64), NW_E_INTERNAL,
               "%s has a type whose sums are not delivered", e->name);
    NW_AUTOFREE void *one = malloc(nw_state_bytes(e) + 1);
    NW_FAIL_IF(!one, NW_E_MEMORY, "no memory for %zu bytes of %s", nw_state_bytes(e), e->name);
    memset(e->data, 0, nw_state_bytes(e));
    *there = true;
    for (int k = l->me - e->from; k >= 0 && k < had && *there; k += have) {
        int j = e->was_from + k;
        if (!has(l, j)) continue;
        NW_TRY(l->source->read(l->source->context, j, e, one, there));
        if (*there) add_entry(e, one, factor);
    }
    return NW_OK;
}

/* A number is lost if somebody had one, a tensor if it is listed. */
static nw_status note_lost(loading *l, const nw_state_entry *e)
{
    uint64_t number = e->dims > 0;
    bool there;
    for (int j = 0; j < l->source->members && number == 0; j++)
        if (has(l, j)) NW_TRY(l->source->read(l->source->context, j, e, &number, &there));
    if (number != 0) nw_state_lose(l->lost, l->lost_size, e->name);
    return NW_OK;
}

static nw_status read_entry(loading *l, const nw_state_entry *e)
{
    const nw_state_source *s = l->source;
    bool same = s->members == l->members && has(l, l->me), there;
    nw_state_entry common = *e;
    common.rule = NW_STATE_KEPT;
    if (s->skips && s->skips(s->context, e)) return NW_OK;
    int like = l->me % s->members;
    while (like > 0 && !has(l, like)) like--;
    if (!same && e->rule == NW_STATE_OWN) return note_lost(l, e);
    NW_FAIL_IF(!same && e->rule == NW_STATE_REFUSED, NW_E_ARGUMENT,
               "%s was saved by %d ranks, and cannot be continued by %d; use as many, or start a new run from the "
               "weights with --init",
               e->name, s->members, l->members);
    if ((!same || e->from != e->was_from) && e->rule == NW_STATE_DELIVERED)
        NW_TRY(read_delivered(l, e, &there));
    else
        NW_TRY(s->read(s->context, like, !same && e->rule == NW_STATE_FOLLOWS ? &common : e, e->data, &there));
    NW_FAIL_IF(!there && !e->optional && e->remedy, NW_E_ARGUMENT, "the checkpoint lacks %s; %s", e->name, e->remedy);
    NW_FAIL_IF(
        !there && !e->optional, NW_E_FILE,
        "the checkpoint lacks %s; give the options of the run that wrote it, or start a new run from its weights "
        "with --init",
        e->name);
    return NW_OK;
}

static nw_status read_list(loading *l, const nw_state_owner *o, bool numbers)
{
    NW_CLEANUP(nw_state_free) nw_state s = {0};
    o->list(o->whose, &s);
    NW_TRY(s.status);
    for (int i = 0; i < s.count; i++)
        if ((s.at[i].dims == 0) == numbers) NW_TRY(read_entry(l, &s.at[i]));
    return NW_OK;
}

nw_status nw_state_load(const nw_state_owner *owner, const nw_state_source *source, int me, int members, char *lost,
                        size_t lost_size)
{
    loading l = {source, me, members, lost, lost_size};
    NW_TRY(read_list(&l, owner, true));
    NW_TRY(owner->loaded(owner->whose));
    return read_list(&l, owner, false);
}
