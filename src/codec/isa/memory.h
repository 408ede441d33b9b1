/*
 * isa/memory.h - the loops of memories, for isa/kernels.h.
 *
 * Each element is on its own, so plain loops give the same bits in every width; -O3 makes vectors of them.
 */

/* work = factor g - h */
static void differ(float *restrict work, const float *restrict g, float factor, const float *restrict h, size_t count)
{
    for (size_t i = 0; i < count; i++) work[i] = factor * g[i] - h[i];
}

/* all += mean; mean = all */
static void follow(float *restrict all, float *restrict mean, size_t count)
{
    for (size_t i = 0; i < count; i++) mean[i] = all[i] += mean[i];
}

static void correct(float *restrict u, float *restrict v, const float *restrict g, float momentum, float factor,
                    bool nesterov, size_t count)
{
    if (nesterov)
        for (size_t i = 0; i < count; i++) {
            float fresh = factor * g[i];
            u[i] = momentum * (u[i] + fresh);
            v[i] += u[i] + fresh;
        }
    else
        for (size_t i = 0; i < count; i++) {
            u[i] = momentum * u[i] + factor * g[i];
            v[i] += u[i];
        }
}

static void momentum(float *restrict u, float *restrict mean, float factor, bool nesterov, size_t count)
{
    if (nesterov)
        for (size_t i = 0; i < count; i++) {
            u[i] = factor * (u[i] + mean[i]);
            mean[i] = u[i] + mean[i];
        }
    else
        for (size_t i = 0; i < count; i++) mean[i] = u[i] = factor * u[i] + mean[i];
}

static void scale(float *v, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++) v[i] *= factor;
}
