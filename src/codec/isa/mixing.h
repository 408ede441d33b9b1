/*
 * isa/mixing.h - the loops of averaging in pairs (src/gossip/gossip_mix.h), for isa/kernels.h.
 *
 * Each element is on its own, so plain loops give the same bits in every width; -O3 makes vectors of them. `m` is the
 * second vector of a member, which x is mixed with: d = b (m - x) goes from one to the other.
 */

/* out = x + b (m - x) */
static void blend(const float *restrict x, const float *restrict m, float b, float *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = x[i] + b * (m[i] - x[i]);
}

static void mix(float *restrict x, float *restrict m, float b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float d = b * (m[i] - x[i]);
        x[i] += d;
        m[i] -= d;
    }
}

/* x -= a (mine - theirs) */
static void approach(float *restrict x, const float *restrict mine, const float *restrict theirs, float a, size_t count)
{
    for (size_t i = 0; i < count; i++) x[i] -= a * (mine[i] - theirs[i]);
}

/* mix, then approach both: m with am */
static void mix_and_approach(float *restrict x, float *restrict m, float b, const float *restrict mine,
                             const float *restrict theirs, float a, float am, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float d = b * (m[i] - x[i]), apart = mine[i] - theirs[i];
        x[i] = x[i] + d - a * apart;
        m[i] = m[i] - d - am * apart;
    }
}
