/*
 * update.h - optimizer steps over a range of the flat parameter vector, and the sums that norms are made of.
 *
 * With g the gradient times gradient_scale, cut to +-clip, and d = g + weight_decay w:
 *
 *   sgd          d = trust d; b = momentum b + fresh d (the first time: d); w -= lr (nesterov ? d + momentum b : b).
 *                Without momentum w -= lr d.
 *   dgc          g has momentum already. c = weight_decay w; b = momentum b + fresh c (the first time: c);
 *                w -= lr ((nesterov ? c + momentum b : b) + g). Without momentum w -= lr (c + g).
 *   adam         m = beta1 m + (1 - beta1) d; v = beta2 v + (1 - beta2) d^2; amsgrad: u = max(u, v), else u = v;
 *                w -= lr m / (sqrt(u) / root + eps); frozen: only where u is not 0
 *   apam-paper   m, v, u as in amsgrad; w -= lr m / sqrt(u) where u is not 0; w is cut to the box
 *
 * All of them pass once over memory: 12 bytes a weight without state, 20 with one vector, 28 with two, 36 with three.
 *
 * Whole vectors only are computed with: what is left at the end of a range goes through the same code in a buffer.
 * So an element gets the same bits at any place of a range, although the compiler is free to fuse a b + c d either way,
 * and servers may cut the vector where they like.
 */

enum { UPDATE_PIECE = 1 << 16 };

#define NOINLINE __attribute__((noinline))

INLINE vf v_min(vf v, vf high) { return -v_max(-v, -high); } /* keeps NaN, as v_max does */
INLINE vf v_sqrt(vf v)
{
#if defined __AVX512F__ && VL == 16
    return (vf)_mm512_sqrt_ps((__m512)v);
#elif defined __AVX__ && VL == 8
    return (vf)_mm256_sqrt_ps((__m256)v);
#else
    UNROLL_FOR(i, VL) v[i] = sqrtf(v[i]);
    return v;
#endif
}

INLINE vf gradient_at(const nw_update_range *r, float clip, size_t i)
{
    return v_min(v_max(v_splat(r->gradient_scale) * v_load(r->g + i), v_splat(-clip)), v_splat(clip));
}

/* In these, count is a multiple of VL. */
NOINLINE static void sgd_vectors(const nw_update_rule *rule, const nw_update_range *r)
{
    const vf lr = v_splat(rule->lr), momentum = v_splat(rule->momentum);
    const vf fresh = v_splat(rule->first ? 1.0f : rule->fresh);
    const vf decay = v_splat(r->weight_decay), trust = v_splat(r->trust);
    const float clip = rule->clip;
    float *w = r->w, *b = r->state[0];
    if (rule->momentum == 0.0f) {
        for (size_t i = 0; i < r->count; i += VL) {
            vf x = v_load(w + i), d = trust * (gradient_at(r, clip, i) + decay * x);
            v_store(w + i, x - lr * d);
        }
        return;
    }
    const bool nesterov = rule->nesterov;
    for (size_t i = 0; i < r->count; i += VL) {
        vf x = v_load(w + i), d = trust * (gradient_at(r, clip, i) + decay * x);
        vf buffer = momentum * v_load(b + i) + fresh * d;
        v_store(b + i, buffer);
        v_store(w + i, x - lr * (nesterov ? d + momentum * buffer : buffer));
    }
}

NOINLINE static void dgc_vectors(const nw_update_rule *rule, const nw_update_range *r)
{
    const vf lr = v_splat(rule->lr), momentum = v_splat(rule->momentum), decay = v_splat(r->weight_decay);
    const vf fresh = v_splat(rule->first ? 1.0f : rule->fresh);
    const float clip = rule->clip;
    float *w = r->w, *b = r->state[0];
    if (rule->momentum == 0.0f) {
        for (size_t i = 0; i < r->count; i += VL) {
            vf x = v_load(w + i);
            v_store(w + i, x - lr * (decay * x + gradient_at(r, clip, i)));
        }
        return;
    }
    const bool nesterov = rule->nesterov;
    for (size_t i = 0; i < r->count; i += VL) {
        vf x = v_load(w + i), c = decay * x;
        vf buffer = momentum * v_load(b + i) + fresh * c;
        v_store(b + i, buffer);
        v_store(w + i, x - lr * ((nesterov ? c + momentum * buffer : buffer) + gradient_at(r, clip, i)));
    }
}

/* The moments after one more gradient; returns m, and in *u what is to be rooted. */
INLINE vf moments_at(const nw_update_rule *rule, const nw_update_range *r, vf x, size_t i, bool amsgrad, vf *u)
{
    vf d = gradient_at(r, rule->clip, i) + v_splat(r->weight_decay) * x;
    vf m = v_splat(rule->beta1) * v_load(r->state[0] + i) + v_splat(rule->fresh1) * d;
    vf v = v_splat(rule->beta2) * v_load(r->state[1] + i) + v_splat(rule->fresh2) * (d * d);
    v_store(r->state[0] + i, m);
    v_store(r->state[1] + i, v);
    *u = v;
    if (amsgrad) {
        *u = v_max(v, v_load(r->state[2] + i));
        v_store(r->state[2] + i, *u);
    }
    return m;
}

INLINE void adam_loop(const nw_update_rule *rule, const nw_update_range *range, const bool amsgrad, const bool frozen)
{
    const nw_update_rule k = *rule; /* copies, so that no store to the vectors makes them be read again */
    const nw_update_range r = *range;
    const vf lr = v_splat(k.lr), root = v_splat(k.root), eps = v_splat(k.eps);
    for (size_t i = 0; i < r.count; i += VL) {
        vf x = v_load(r.w + i), u, m = moments_at(&k, &r, x, i, amsgrad, &u);
        vf step = m / (v_sqrt(u) / root + eps);
        if (frozen) step = v_keep(step, u != v_splat(0.0f));
        v_store(r.w + i, x - lr * step);
    }
}
NOINLINE static void adam_vectors(const nw_update_rule *rule, const nw_update_range *r)
{
    if (rule->frozen)
        adam_loop(rule, r, rule->amsgrad, true);
    else if (rule->amsgrad)
        adam_loop(rule, r, true, false);
    else
        adam_loop(rule, r, false, false);
}

NOINLINE static void apam_paper_vectors(const nw_update_rule *rule, const nw_update_range *range)
{
    const nw_update_rule k = *rule;
    const nw_update_range r = *range;
    const vf lr = v_splat(k.lr), low = v_splat(k.low), high = v_splat(k.high);
    for (size_t i = 0; i < r.count; i += VL) {
        vf x = v_load(r.w + i), u, m = moments_at(&k, &r, x, i, true, &u);
        vi moved = u != v_splat(0.0f); /* true for NaN: it must not hide */
        x -= lr * v_keep(m / v_sqrt(u), moved);
        v_store(r.w + i, v_min(v_max(x, low), high));
    }
}

static void update_vectors(const nw_update_rule *rule, const nw_update_range *r)
{
    switch (rule->kind) {
    case NW_UPDATE_SGD:
        sgd_vectors(rule, r);
        break;
    case NW_UPDATE_DGC:
        dgc_vectors(rule, r);
        break;
    case NW_UPDATE_ADAM:
        adam_vectors(rule, r);
        break;
    case NW_UPDATE_APAM_PAPER:
        apam_paper_vectors(rule, r);
        break;
    }
}

static void update(const nw_update_rule *rule, const nw_update_range *range)
{
    nw_update_range r = *range;
    for (int s = 0; s < NW_UPDATE_STATES && rule->first; s++) /* whatever it held, NaN too */
        if (r.state[s]) memset(r.state[s], 0, r.count * sizeof(float));
    size_t left = r.count % VL, whole = r.count - left;
    r.count = whole;
    update_vectors(rule, &r);
    if (left == 0) return;

    float w[VL] = {0}, g[VL] = {0}, state[NW_UPDATE_STATES][VL] = {{0}};
    nw_update_range tail = r;
    memcpy(w, r.w + whole, left * sizeof(float));
    memcpy(g, r.g + whole, left * sizeof(float));
    tail.w = w;
    tail.g = g;
    tail.count = VL;
    for (int s = 0; s < NW_UPDATE_STATES; s++)
        if (r.state[s]) tail.state[s] = memcpy(state[s], r.state[s] + whole, left * sizeof(float));
    update_vectors(rule, &tail);
    memcpy(r.w + whole, w, left * sizeof(float));
    for (int s = 0; s < NW_UPDATE_STATES; s++)
        if (r.state[s]) memcpy(r.state[s] + whole, state[s], left * sizeof(float));
}

/* ---- sums ------------------------------------------------------------------------------------------------------- */

enum { SUMS = 2 * VL }; /* independent sums: four vectors of doubles */

INLINE void add_squares(double *sum, const float *x)
{
    for (int j = 0; j < SUMS; j++) sum[j] += (double)x[j] * (double)x[j];
}
static double squares(const float *x, size_t count)
{
    double sum[SUMS] = {0}, total = 0;
    float tail[SUMS] = {0};
    size_t left = count % SUMS;
    for (size_t i = 0; i < count - left; i += SUMS) add_squares(sum, x + i);
    memcpy(tail, x + count - left, left * sizeof(float));
    add_squares(sum, tail);
    for (int j = 0; j < SUMS; j++) total += sum[j];
    return total;
}
