/*
 * finish.h - epilogues: what happens to a tile of f32 results on its way to memory.
 *
 * A tile is [block][TILE] floats: one pixel of one block, up to TILE channels starting at channel k0. finish_value
 * adds the bias and takes moments; finish_gradient applies a sink. Channels are walked in the outer loop so that the
 * sums stay in registers; items (one row of one block) belong to one task, so each sum has one fixed order.
 */

/* Where a tile goes: pixel `at` of tensor t, channels k0 .. k0 + count - 1, `rows` real images. */
typedef struct tile_place {
    const nw_tensor *t;
    size_t at;
    int k0, count, rows;
    size_t item; /* block * h + row */
    bool first;  /* the item's first pixel */
} tile_place;

INLINE void zero_missing(const tile_place *p)
{
    for (int i = p->rows; i < p->t->block; i++)
        x_zero(p->t->data, p->at + (size_t)(i * p->t->pitch + p->k0), (size_t)p->count, p->t->dtype);
}

/* Narrow tensors and odd ends, element by element; the same sums in the same order of images. */
static void finish_value_narrow(const float *tile, int tile_pitch, const tile_place *p, const float *bias,
                                const nw_moments *moments, int v0)
{
    size_t pitch = (size_t)p->t->pitch;
    for (int v = v0; v < p->count; v++) {
        int k = p->k0 + v;
        float b = bias && k < p->t->c ? bias[k] : 0.0f;
        float *m = moments ? moments->partial + p->item * 3 * pitch + (size_t)k : NULL;
        if (m && p->first) {
            m[0] = tile[v] + b;
            m[pitch] = m[2 * pitch] = 0.0f;
        }
        for (int i = 0; i < p->rows; i++) {
            float x = tile[i * tile_pitch + v] + b;
            x_put(p->t->data, p->at + (size_t)i * pitch + (size_t)k, x, p->t->dtype);
            if (m) {
                float d = x - m[0];
                m[pitch] += d;
                m[2 * pitch] += d * d;
            }
        }
    }
}

INLINE void finish_value_typed(const float *tile, int tile_pitch, const tile_place *p, const float *bias,
                               const nw_moments *moments, const nw_dtype type)
{
    size_t pitch = (size_t)p->t->pitch;
    int v = 0;
    for (; v + VL <= p->count; v += VL) {
        size_t k = (size_t)(p->k0 + v);
        vf b = {0};
        if (bias) {
            if ((int)k + VL <= p->t->c)
                b = v_load(bias + k);
            else
                for (int j = 0; (int)k + j < p->t->c; j++) b[j] = bias[k + (size_t)j];
        }
        if (moments) {
            float *m = moments->partial + p->item * 3 * pitch + k;
            if (p->first) {
                v_store(m, v_load(tile + v) + b);
                v_store(m + pitch, (vf){0});
                v_store(m + 2 * pitch, (vf){0});
            }
            vf shift = v_load(m), sum = v_load(m + pitch), square = v_load(m + 2 * pitch);
            for (int i = 0; i < p->rows; i++) {
                vf x = v_load(tile + i * tile_pitch + v) + b, d = x - shift;
                x_store(p->t->data, p->at + (size_t)i * pitch + k, x, type);
                sum += d;
                square += d * d;
            }
            v_store(m + pitch, sum);
            v_store(m + 2 * pitch, square);
        } else {
            for (int i = 0; i < p->rows; i++)
                x_store(p->t->data, p->at + (size_t)i * pitch + k, v_load(tile + i * tile_pitch + v) + b, type);
        }
    }
    if (v < p->count) finish_value_narrow(tile, tile_pitch, p, bias, moments, v);
    zero_missing(p);
}

static void finish_value(const float *tile, int tile_pitch, const tile_place *p, const float *bias,
                         const nw_moments *moments)
{
    if (BF16 && p->t->dtype == NW_BF16)
        finish_value_typed(tile, tile_pitch, p, bias, moments, NW_BF16);
    else
        finish_value_typed(tile, tile_pitch, p, bias, moments, NW_F32);
}

static void finish_gradient_narrow(const float *tile, int tile_pitch, const tile_place *p, const nw_sink *sink, int v0)
{
    size_t pitch = (size_t)p->t->pitch;
    for (int v = v0; v < p->count; v++) {
        size_t k = (size_t)(p->k0 + v), item = p->item * pitch + k;
        for (int i = 0; i < p->rows; i++) {
            size_t at = p->at + (size_t)i * pitch + k;
            float g = tile[i * tile_pitch + v];
            if (sink->add) g += x_get(sink->add->data, at, sink->add->dtype);
            if (sink->gate.t) {
                float x = x_get(sink->gate.t->data, at, sink->gate.t->dtype);
                if (sink->gate.scale) x = x * sink->gate.scale[k] + sink->gate.shift[k];
                if (!(x > 0.0f)) g = 0.0f;
            }
            x_put(p->t->data, at, g, p->t->dtype);
            if (!sink->sum_g) continue;
            bool start = p->first && i == 0;
            sink->sum_g[item] = (start ? 0.0f : sink->sum_g[item]) + g;
            for (int j = 0; j < NW_SINK_NORMS; j++) {
                const nw_norm_sums *n = &sink->norm[j];
                if (!n->y) continue;
                float centred = x_get(n->y->data, at, n->y->dtype) - n->mean[k];
                n->sum_gy[item] = (start ? 0.0f : n->sum_gy[item]) + g * centred;
            }
        }
    }
}

INLINE void finish_gradient_typed(const float *tile, int tile_pitch, const tile_place *p, const nw_sink *sink,
                                  const nw_dtype type, const bool mixed, const int norms)
{
    size_t pitch = (size_t)p->t->pitch;
    int v = 0;
    for (; v + VL <= p->count; v += VL) {
        size_t k = (size_t)(p->k0 + v), item = p->item * pitch + k;
        vf scale = v_splat(1.0f), shift = {0}, sum = {0}, sum_y[NW_SINK_NORMS] = {{0}}, mean[NW_SINK_NORMS] = {{0}};
        if (sink->gate.t && sink->gate.scale) {
            scale = v_load(sink->gate.scale + k);
            shift = v_load(sink->gate.shift + k);
        }
        UNROLL_FOR(j, norms) {
            mean[j] = v_load(sink->norm[j].mean + k);
            if (!p->first) sum_y[j] = v_load(sink->norm[j].sum_gy + item);
        }
        if (sink->sum_g && !p->first) sum = v_load(sink->sum_g + item);
        for (int i = 0; i < p->rows; i++) {
            size_t at = p->at + (size_t)i * pitch + k;
            vf g = v_load(tile + i * tile_pitch + v);
            if (sink->add) g += x_load(sink->add->data, at, mixed ? sink->add->dtype : type);
            if (sink->gate.t) {
                vf x = x_load(sink->gate.t->data, at, mixed ? sink->gate.t->dtype : type) * scale + shift;
                g = v_keep(g, x > 0.0f);
            }
            x_store(p->t->data, at, g, type);
            sum += g;
            UNROLL_FOR(j, norms) {
                const nw_tensor *y = sink->norm[j].y;
                sum_y[j] += g * (x_load(y->data, at, mixed ? y->dtype : type) - mean[j]);
            }
        }
        if (sink->sum_g) v_store(sink->sum_g + item, sum);
        UNROLL_FOR(j, norms) v_store(sink->norm[j].sum_gy + item, sum_y[j]);
    }
    if (v < p->count) finish_gradient_narrow(tile, tile_pitch, p, sink, v);
    zero_missing(p);
}

/* True if everything the sink touches has the tensor's own type: the usual case, with no choice inside the loops. The
 * gradients of a reversible network's f32 streams meet bf16 tensors. */
static bool sink_is_uniform(const nw_sink *sink, nw_dtype type)
{
    if (sink->add && sink->add->dtype != type) return false;
    if (sink->gate.t && sink->gate.t->dtype != type) return false;
    for (int j = 0; j < NW_SINK_NORMS; j++)
        if (sink->norm[j].y && sink->norm[j].y->dtype != type) return false;
    return true;
}

INLINE void finish_gradient_norms(const float *tile, int tile_pitch, const tile_place *p, const nw_sink *sink,
                                  const nw_dtype type, const bool mixed)
{
    if (sink->norm[1].y)
        finish_gradient_typed(tile, tile_pitch, p, sink, type, mixed, 2);
    else if (sink->norm[0].y)
        finish_gradient_typed(tile, tile_pitch, p, sink, type, mixed, 1);
    else
        finish_gradient_typed(tile, tile_pitch, p, sink, type, mixed, 0);
}

static void finish_gradient(const float *tile, int tile_pitch, const tile_place *p, const nw_sink *sink)
{
    static const nw_sink none = {.add = NULL};
    if (!sink) sink = &none;
    nw_dtype type = p->t->dtype;
    bool mixed = BF16 && !sink_is_uniform(sink, type);
    if (BF16 && type == NW_BF16 && mixed)
        finish_gradient_norms(tile, tile_pitch, p, sink, NW_BF16, true);
    else if (BF16 && type == NW_BF16)
        finish_gradient_norms(tile, tile_pitch, p, sink, NW_BF16, false);
    else if (BF16 && mixed)
        finish_gradient_norms(tile, tile_pitch, p, sink, NW_F32, true);
    else
        finish_gradient_norms(tile, tile_pitch, p, sink, NW_F32, false);
}
