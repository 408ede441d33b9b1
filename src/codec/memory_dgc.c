/*
 * memory_dgc.c - momentum correction and masking (Lin et al., Deep Gradient Compression, ICLR 2018). See memory.h.
 *
 *   begin     u = m u + c g, v += u;   Nesterov  u = m (u + c g), v += u + c g
 *   sent      v -= d;  with masking u = 0 where an entry was sent
 *   reduced   dense items: u = m u + G, G := u;   Nesterov  u = m (u + G), G := u + G
 *
 * One vector u serves both kinds, because an item is either dense or compressed. Where a message has all elements of an
 * item (uncompressed epochs, and a ratio of 1), nothing is masked: otherwise there would be no momentum at all.
 */
#include "codec/kernels.h"
#include "codec/memory.h"

static void begin_dgc(nw_memory *m, const nw_tile *tile, const float *g, float clip)
{
    nw_codec_kernels_best()->correct(m->u + tile->kept, m->v + tile->kept, g, (float)m->o.momentum, clip, m->o.nesterov,
                                     tile->count);
}

static float peek_dgc(const nw_memory *m, size_t kept, float g, float clip)
{
    float momentum = (float)m->o.momentum, u = m->u[kept], fresh = clip * g;
    return m->v[kept] + (m->o.nesterov ? momentum * (u + fresh) + fresh : momentum * u + fresh);
}

static void sent_dgc(nw_memory *m, const nw_tile *tile, const nw_seen *d)
{
    float *u = m->u + tile->kept, *v = m->v + tile->kept;
    if (d->entries < 0) nw_codec_kernels_best()->subtract(v, d->values, tile->count);
    for (int i = 0; i < d->entries; i++) {
        v[d->at[i]] -= d->values[i];
        if (m->o.masking && !m->whole) u[d->at[i]] = 0;
    }
}

static void reduced_dgc(nw_memory *m, const nw_tile *tile, float *mean, bool dense)
{
    if (dense)
        nw_codec_kernels_best()->momentum(m->u + tile->kept, mean, (float)m->o.momentum, m->o.nesterov, tile->count);
}

const nw_memory_ops nw_memory_dgc = {.name = "dgc",
                                     .summary = "error feedback with momentum correction (deep gradient compression)",
                                     .vectors = 2,
                                     .begin = begin_dgc,
                                     .peek = peek_dgc,
                                     .sent = sent_dgc,
                                     .reduced = reduced_dgc};
