/* memory.c - see memory.h. */
#include "codec/memory.h"

#include "base/suggest.h"

#include <stdlib.h>
#include <string.h>

static void begin_error(nw_memory *m, const nw_tile *tile, const float *g)
{
    float *e = m->v + tile->kept;
    for (uint32_t i = 0; i < tile->count; i++) e[i] += g[i];
}

static void sent_error(nw_memory *m, const nw_tile *tile, const float *d)
{
    float *e = m->v + tile->kept;
    for (uint32_t i = 0; i < tile->count; i++) e[i] -= d[i];
}

static const nw_memory_ops memories[] = {
    {"none", "nothing is kept", NULL, NULL},
    {"error", "what was not delivered is added the next time", begin_error, sent_error},
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

nw_status nw_memory_create(nw_memory **memory, const char *name, size_t floats)
{
    const nw_memory_ops *ops = memories;
    *memory = NULL;
    if (name) NW_TRY(find(name, &ops));
    if (!ops->begin) return NW_OK;
    nw_memory *m = calloc(1, sizeof *m);
    if (m) m->v = calloc(floats + 1, sizeof *m->v);
    if (!m || !m->v) {
        free(m);
        return NW_FAIL(NW_E_MEMORY, "no memory to keep %zu floats that are not delivered", floats);
    }
    m->ops = ops;
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
