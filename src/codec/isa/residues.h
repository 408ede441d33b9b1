/*
 * isa/residues.h - loops of the codec modulo (codec/modulo.h), part of isa/kernels.h.
 *
 * The sums are modulo 2^32, so that their order does not matter.
 */

/* floor(v inverse + u). Beyond 2^30 steps, where f32 has no fraction any more, it is 2^30. */
INLINE vi whole_steps(vf v, const uint16_t *draw, float inverse)
{
    const vf far = 0x1p30f - (vf){0};
    vf y = v * inverse + v_chance(draw);
    vi above = y > far, below = y < -far;
    y = (vf)(((vi)y & ~above & ~below) | ((vi)far & above) | ((vi)-far & below));
    vi k = __builtin_convertvector(y, vi);
    return k + (__builtin_convertvector(k, vf) > y);
}

static uint32_t residues(const float *v, const uint16_t *draw, size_t count, float inverse, int32_t half,
                         uint16_t *codes)
{
    vu weight = {0}, sums = {0};
    uint32_t all = 0;
    for (unsigned k = 0; k < VL; k++) weight[k] = 2 * k + 1;
    for (size_t i = 0; i < count; i += VL, weight += 2 * VL) {
        vi k = whole_steps(i + VL <= count ? v_load(v + i) : v_part(v + i, count - i), draw + i, inverse);
        sums += weight * (vu)k; /* of what is missing, k is 0 */
        v_to_halves(codes + i, (k + half) & (2 * half - 1));
    }
    for (int k = 0; k < VL; k++) all += sums[k];
    return all;
}

static uint32_t residues_apart(const uint16_t *restrict mine, const uint16_t *restrict theirs, size_t count,
                               int32_t half, float step, float *restrict apart, uint32_t *most)
{
    uint32_t sum = 0, far = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t d = (((int32_t)mine[i] - (int32_t)theirs[i] + half) & (2 * half - 1)) - half;
        uint32_t size = (uint32_t)(d < 0 ? -d : d);
        apart[i] = (float)d * step;
        sum += (2 * (uint32_t)i + 1) * (uint32_t)d;
        far = size > far ? size : far;
    }
    *most = far;
    return sum;
}
