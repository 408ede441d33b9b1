/* memory.c - see memory.h. */
#include "codec/memory.h"

#include "base/suggest.h"
#include "codec/kernels.h"

#include <stdlib.h>
#include <string.h>

static void begin_error(nw_memory *m, const nw_tile *tile, const float *g, float clip)
{
    nw_codec_kernels_best()->add(m->v + tile->kept, g, clip, tile->count);
}

static float peek_error(const nw_memory *m, size_t kept, float g, float clip) { return m->v[kept] + clip * g; }

static void sent_error(nw_memory *m, const nw_tile *tile, const nw_seen *d)
{
    float *v = m->v + tile->kept;
    if (d->entries < 0)
        nw_codec_kernels_best()->subtract(v, d->values, tile->count);
    else
        for (int i = 0; i < d->entries; i++) v[d->at[i]] -= d->values[i];
}

static const nw_memory_ops memories[] = {
    {.name = "none", .summary = "nothing is kept"},
    {.name = "error",
     .summary = "what was not delivered is added the next time",
     .begin = begin_error,
     .peek = peek_error,
     .sent = sent_error},
};
enum { MEMORIES = sizeof memories / sizeof memories[0] };

static nw_status find(const char *name, const nw_memory_ops **ops)
{
    const char *names[MEMORIES];
    for (int i = 0; i < MEMORIES; i++) {
        names[i] = memories[i].name;
        if (strcmp(name, names[i]) != 0) continue;
        *ops = &memories[i];
        return NW_OK;
    }
    return NW_FAIL(NW_E_UNKNOWN, "there is no memory '%s'%s", name, nw_suggest(name, names, MEMORIES, "").text);
}

nw_status nw_memory_create(nw_memory **memory, const nw_memory_options *options, size_t floats)
{
    const nw_memory_ops *ops = memories;
    *memory = NULL;
    if (options->name) NW_TRY(find(options->name, &ops));
    if (!ops->begin) return NW_OK;
    nw_memory *m = calloc(1, sizeof *m);
    if (m) m->v = calloc(floats + 1, sizeof *m->v);
    if (!m || !m->v) {
        free(m);
        return NW_FAIL(NW_E_MEMORY, "no memory to keep %zu floats that are not delivered", floats);
    }
    m->ops = ops;
    m->o = *options;
    m->floats = floats;
    *memory = m;
    return NW_OK;
}

void nw_memory_free(nw_memory *m)
{
    if (!m) return;
    free(m->v);
    free(m);
}
