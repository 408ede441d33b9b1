/* memory.c - the registry of memories, the rules where each may be used, and the memories error and ef21. See
 * memory.h. */
#include "codec/memory.h"

#include "base/suggest.h"
#include "codec/kernels.h"

#include <stdlib.h>
#include <string.h>

/* ---- error feedback ---------------------------------------------------------------------------------------------- */

static void begin_error(nw_memory *m, const nw_tile *tile, const float *g, float clip)
{
    nw_codec_kernels_best()->add(m->v + tile->kept, g, clip, tile->count);
}

static float peek_error(const nw_memory *m, size_t kept, float g, float clip) { return m->v[kept] + clip * g; }

void nw_memory_sent_error(nw_memory *m, const nw_tile *tile, const nw_seen *d)
{
    float *v = m->v + tile->kept;
    if (d->entries < 0)
        nw_codec_kernels_best()->subtract(v, d->values, tile->count);
    else
        for (int i = 0; i < d->entries; i++) v[d->at[i]] -= d->values[i];
}

/* ---- EF21 -------------------------------------------------------------------------------------------------------- */

static void begin_ef21(nw_memory *m, const nw_tile *tile, const float *g, float clip)
{
    nw_codec_kernels_best()->differ(m->v + tile->kept, g, clip, m->u + tile->kept, tile->count);
}

static float peek_ef21(const nw_memory *m, size_t kept, float g, float clip) { return clip * g - m->u[kept]; }

static void sent_ef21(nw_memory *m, const nw_tile *tile, const nw_seen *d)
{
    float *h = m->u + tile->kept;
    if (d->entries < 0)
        nw_codec_kernels_best()->add(h, d->values, 1, tile->count);
    else
        for (int i = 0; i < d->entries; i++) h[d->at[i]] += d->values[i];
    nw_memory_sent_error(m, tile, d); /* what is left is how far the estimate is from the gradient */
}

static void reduced_ef21(nw_memory *m, const nw_tile *tile, float *mean, bool dense)
{
    if (!dense) nw_codec_kernels_best()->follow(m->mean + tile->kept, mean, tile->count);
}

/* ---- the registry ------------------------------------------------------------------------------------------------ */

extern const nw_memory_ops nw_memory_dgc, nw_memory_momentum;

static const nw_memory_ops nothing = {.name = "none", .summary = "nothing is kept"};
static const nw_memory_ops error_feedback = {.name = "error",
                                             .summary =
                                                 "error feedback: what was not sent is added to the next gradient",
                                             .vectors = 1,
                                             .begin = begin_error,
                                             .peek = peek_error,
                                             .sent = nw_memory_sent_error};
static const nw_memory_ops ef21 = {.name = "ef21",
                                   .summary = "receivers keep an estimate of the gradient; its corrections are sent",
                                   .vectors = 3,
                                   .begin = begin_ef21,
                                   .peek = peek_ef21,
                                   .sent = sent_ef21,
                                   .reduced = reduced_ef21,
                                   .estimates = true};

static const nw_memory_ops *const memories[] = {&nothing, &error_feedback, &ef21, &nw_memory_dgc, &nw_memory_momentum};
enum { MEMORIES = sizeof memories / sizeof memories[0] };

int nw_memory_kinds(void) { return MEMORIES; }
const nw_memory_ops *nw_memory_at(int index) { return memories[index]; }

nw_status nw_memory_find(const char *name, const nw_memory_ops **ops)
{
    const char *names[MEMORIES];
    for (int i = 0; i < MEMORIES; i++) {
        names[i] = memories[i]->name;
        if (strcmp(name, names[i]) != 0) continue;
        *ops = memories[i];
        return NW_OK;
    }
    return NW_FAIL(NW_E_UNKNOWN, "there is no memory '%s'%s", name, nw_suggest(name, names, MEMORIES, "").text);
}

/* ---- where each may be used -------------------------------------------------------------------------------------- */

/* Codecs that are not contractive but still work with error feedback: the error of thresholdv stays below its
 * threshold, and that of powersgd shrinks from step to step because it keeps its factors. */
static bool is_bounded(const nw_codec *codec)
{
    return strcmp(codec->ops->name, "thresholdv") == 0 || strcmp(codec->ops->name, "powersgd") == 0;
}

/* What else makes a codec contractive. */
static const char *other_remedy(const nw_codec *codec)
{
    if (strcmp(codec->ops->name, "qsgd") == 0) return ", or scales of fewer elements with --bucket 512 --qstates 127";
    return codec->options.scaled ? ", or leave --scaled out" : "";
}

nw_status nw_memory_check(const nw_codec *codec, const nw_memory_options *o, size_t n)
{
    const nw_memory_ops *ops = &nothing;
    const char *name = codec->ops->name;
    if (o->name) NW_TRY(nw_memory_find(o->name, &ops));
    if (!ops->begin || codec->exact) return NW_OK;
    NW_FAIL_IF(ops == &nw_memory_dgc && strcmp(name, "topk") != 0, NW_E_ARGUMENT,
               "memory dgc resets the momentum of entries that were sent, and %s sends all; leave such tensors "
               "uncompressed (--codec-for 'PATTERN=none'), or choose --method topk --memory error",
               name);
    bool averages = ops == &nw_memory_dgc || ops == &nw_memory_momentum;
    NW_FAIL_IF(averages && !(o->momentum >= 0 && o->momentum < 1), NW_E_ARGUMENT,
               "the momentum of memory %s is %g; it must lie in [0, 1)", ops->name, o->momentum);
    NW_FAIL_IF(
        ops == &nw_memory_momentum && o->freeze < 1, NW_E_ARGUMENT,
        "memory momentum divides by Adam's variance, which must first be estimated in uncompressed batches, and there "
        "are none; set --freeze-variance to 1 or more");
    if (ops == &error_feedback && is_bounded(codec)) return NW_OK;
    NW_FAIL_IF(is_bounded(codec), NW_E_ARGUMENT,
               "memory %s needs a contractive codec, which %s is not; choose --memory error", ops->name, name);
    double delta = codec->ops->delta ? codec->ops->delta(codec, n) : 1;
    NW_FAIL_IF(
        !(delta > 0), NW_E_ARGUMENT,
        "with codec %s memory %s could grow without bound: for tensors of %zu floats the codec's contraction factor is "
        "%g, and it must be above 0; choose --memory none%s",
        name, ops->name, n, delta, other_remedy(codec));
    return NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static nw_status make_vectors(nw_memory *m)
{
    float **vectors[] = {&m->v, &m->u, &m->mean};
    for (int i = 0; i < m->ops->vectors; i++)
        NW_NEW(*vectors[i], m->floats + 1, "an error memory of %zu floats", m->floats);
    return NW_OK;
}

size_t nw_memory_bytes(const nw_memory_options *o, size_t floats)
{
    for (int i = 0; i < MEMORIES && o->name; i++)
        if (strcmp(memories[i]->name, o->name) == 0) return (size_t)memories[i]->vectors * floats * sizeof(float);
    return 0;
}

nw_status nw_memory_create(nw_memory **memory, const nw_memory_options *options, size_t floats)
{
    const nw_memory_ops *ops = &nothing;
    *memory = NULL;
    if (options->name) NW_TRY(nw_memory_find(options->name, &ops));
    if (!ops->begin) return NW_OK;
    nw_memory *m = calloc(1, sizeof *m);
    NW_FAIL_IF(!m, NW_E_MEMORY, "no memory for an error memory of %zu floats", floats);
    *m = (nw_memory){.ops = ops, .o = *options, .floats = floats};
    NW_TRY_OR(make_vectors(m), nw_memory_free(m));
    *memory = m;
    return NW_OK;
}

void nw_memory_free(nw_memory *m)
{
    if (!m) return;
    free(m->v);
    free(m->u);
    free(m->mean);
    free(m);
}
