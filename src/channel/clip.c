/* clip.c - see clip.h. */
#include "channel/clip.h"

#include "codec/kernels.h"

#include <math.h>

typedef struct norm_job {
    const float *gradient;
    size_t floats;
    double *parts;
} norm_job;

size_t nw_local_clip_parts(size_t floats) { return (floats + NW_TILE_FLOATS - 1) / NW_TILE_FLOATS; }

static void square_part(void *context, int index, int worker)
{
    const norm_job *j = context;
    size_t first = (size_t)index * NW_TILE_FLOATS, left = j->floats - first;
    const float *g = j->gradient + first;
    (void)worker;
    j->parts[index] = nw_codec_kernels_best()->dot(g, g, left < NW_TILE_FLOATS ? left : NW_TILE_FLOATS);
}

float nw_local_clip_factor(const float *gradient, size_t floats, double norm, int members, double *parts, nw_pool *pool)
{
    norm_job j = {gradient, floats, parts};
    int count = (int)nw_local_clip_parts(floats);
    double squares = 0;
    if (pool)
        nw_pool_run(pool, count, square_part, &j);
    else
        for (int i = 0; i < count; i++) square_part(&j, i, 0);
    for (int i = 0; i < count; i++) squares += parts[i];
    double factor = norm / sqrt(members) / (sqrt(squares) + 1e-6);
    return factor < 1 ? (float)factor : 1;
}
