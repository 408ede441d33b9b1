/*
 * memory_momentum.c - members exchange momentum instead of gradients (Tang et al., 1-bit Adam, ICML 2021). See
 * memory.h.
 *
 * In the first `freeze` steps (early) gradients are exchanged, Adam works as usual, and m follows its momentum: m = b
 * m + (1 - b) G. From then on Adam's variance is frozen. Each member computes its own momentum from the common one, m_i
 * = b m + (1 - b) c g_i, and sends it compressed, with error feedback; owners send the mean compressed, with error
 * feedback of their own; and all members set m to that mean, which the update divides by the root of the variance
 * (optim/adam.c). Dense items compute their momentum from the mean gradient.
 */
#include "codec/kernels.h"
#include "codec/memory.h"

#include <string.h>

static float fresh_of(const nw_memory *m) { return (float)(1 - m->o.momentum); }

static void begin_momentum(nw_memory *m, const nw_tile *tile, const float *g, float clip)
{
    const nw_codec_kernels *kernels = nw_codec_kernels_best();
    float *v = m->v + tile->kept;
    if (!m->early) kernels->add(v, m->u + tile->kept, (float)m->o.momentum, tile->count);
    kernels->add(v, g, m->early ? clip : fresh_of(m) * clip, tile->count);
}

static float peek_momentum(const nw_memory *m, size_t kept, float g, float clip)
{
    if (m->early) return m->v[kept] + clip * g;
    return (m->v[kept] + (float)m->o.momentum * m->u[kept]) + fresh_of(m) * clip * g;
}

static void reduced_momentum(nw_memory *m, const nw_tile *tile, float *mean, bool dense)
{
    const nw_codec_kernels *kernels = nw_codec_kernels_best();
    float *u = m->u + tile->kept;
    if (m->early || dense) {
        kernels->scale(u, (float)m->o.momentum, tile->count);
        kernels->add(u, mean, fresh_of(m), tile->count);
    } else {
        memcpy(u, mean, tile->count * sizeof *u);
    }
    if (dense && !m->early) memcpy(mean, u, tile->count * sizeof *u);
}

const nw_memory_ops nw_memory_momentum = {.name = "momentum",
                                          .summary = "error feedback of momentum instead of gradients (1-bit Adam)",
                                          .vectors = 2,
                                          .begin = begin_momentum,
                                          .peek = peek_momentum,
                                          .sent = nw_memory_sent_error,
                                          .reduced = reduced_momentum,
                                          .common = true};
