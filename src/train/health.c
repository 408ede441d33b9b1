/*
 * health.c - the search for numbers that are not finite; see health.h.
 *
 * The gradient is read once a step by all threads (a few milliseconds beside a step of seconds). Only when something is
 * wrong are the activations searched: parameters, then the outputs of the stages in forward order, then the loss, then
 * the gradients from the last stage to the first, as backward computed them.
 */
#include "train/health.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

/* A float is not finite if all bits of its exponent are set. Sixteen floats are tested together. */
size_t nw_first_not_finite(const float *values, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        uint32_t bits[16], bad = 0;
        memcpy(bits, values + i, sizeof bits);
        for (int j = 0; j < 16; j++) bad |= (bits[j] & 0x7f800000u) == 0x7f800000u;
        if (bad) break;
    }
    while (i < count && isfinite(values[i])) i++;
    return i;
}

typedef struct search {
    const float *values;
    size_t count;
    int bad; /* set by any chunk */
} search;

static void search_chunk(void *context, int index, int worker)
{
    (void)worker;
    search *s = context;
    size_t first = (size_t)index * CHUNK, count = s->count - first < CHUNK ? s->count - first : CHUNK;
    if (nw_first_not_finite(s->values + first, count) < count) __atomic_store_n(&s->bad, 1, __ATOMIC_RELAXED);
}

static bool all_finite(nw_exec *exec, const float *values, size_t count)
{
    search s = {.values = values, .count = count};
    nw_exec_run(exec, NW_WORK_UPDATE, (int)((count + CHUNK - 1) / CHUNK), search_chunk, &s);
    return !s.bad;
}

/* The segment that holds the first bad element of a vector; NULL if there is none. */
static const nw_segment *bad_segment(const nw_segments *segments, const float *vector)
{
    for (int i = 0; i < segments->count; i++)
        if (nw_first_not_finite(vector + segments->at[i].offset, segments->at[i].count) < segments->at[i].count)
            return &segments->at[i];
    return NULL;
}

static bool tensor_is_finite(const nw_tensor *t)
{
    size_t count = nw_tensor_bytes(t) / nw_dtype_bytes(t->dtype);
    if (t->dtype == NW_F32) return nw_first_not_finite(t->data, count) == count;
    const nw_bf16 *values = t->data;
    for (size_t i = 0; i < count; i++)
        if ((values[i] & 0x7f80u) == 0x7f80u) return false;
    return true;
}

static nw_status name_first(nw_net *net, double loss, size_t looked_at, int64_t step)
{
    const nw_params *p = &net->model.params;
    const nw_segment *segment = bad_segment(&p->learned, p->values);
    NW_FAIL_IF(segment, NW_E_NUMERIC, "step %lld: the parameter '%s' is not finite; a lower --lr may help",
               (long long)step, segment->name);
    for (int i = 0; i < net->model.count; i++) {
        const nw_stage *stage = net->model.stages[i];
        for (int u = 0; u < stage->unit_count; u++) {
            const nw_unit *unit = stage->units[u];
            NW_FAIL_IF(!tensor_is_finite(&unit->y), NW_E_NUMERIC,
                       "step %lld: the output of '%s' in stage %d (%s) is not finite, first of all; a lower --lr or "
                       "--clip-norm may help",
                       (long long)step, p->learned.at[unit->weight >= 0 ? unit->weight : unit->gamma].name, i,
                       stage->name);
        }
    }
    NW_FAIL_IF(!isfinite(loss), NW_E_NUMERIC, "step %lld: the loss is %g though all activations are finite",
               (long long)step, loss);
    for (int i = p->learned.count - 1; i >= 0; i--) {
        segment = &p->learned.at[i];
        if (segment->offset >= looked_at) continue; /* was looked at before, and may be another's by now */
        NW_FAIL_IF(
            nw_first_not_finite(p->gradients + segment->offset, segment->count) < segment->count, NW_E_NUMERIC,
            "step %lld: the gradient of '%s' is not finite, first in backward order; a lower --lr or --clip-norm "
            "may help",
            (long long)step, segment->name);
    }
    return NW_FAIL(NW_E_INTERNAL, "step %lld: a number was not finite, but a second search found none",
                   (long long)step);
}

bool nw_health_range(nw_net *net, size_t first, size_t count)
{
    return all_finite(&net->model.pass.exec, net->model.params.gradients + first, count);
}

nw_status nw_health_check(nw_net *net, double loss, size_t count, int64_t step)
{
    if (isfinite(loss) && nw_health_range(net, 0, count)) return NW_OK;
    return name_first(net, loss, count, step);
}
