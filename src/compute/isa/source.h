/*
 * source.h - reading sources: the affine, the second view and the ReLU are applied as rows are loaded.
 *
 * source_pixel writes one pixel of one block, all its channels, to a destination with its own pitch and type, and
 * keeps the invariant of tensor.h: rows of missing images and channels beyond the pitch become zero.
 */

enum { VIEW_NONE, VIEW_PLAIN, VIEW_SCALE, VIEW_AFFINE };

INLINE int view_kind(const nw_view *v)
{
    return !v->t ? VIEW_NONE : !v->scale ? VIEW_PLAIN : !v->shift ? VIEW_SCALE : VIEW_AFFINE;
}
INLINE float view_low(bool relu) { return relu ? 0.0f : -INFINITY; }

INLINE vf view_apply(vf x, const nw_view *v, size_t c, const int kind)
{
    if (kind == VIEW_AFFINE) return x * v_load(v->scale + c) + v_load(v->shift + c);
    if (kind == VIEW_SCALE) return x * v_load(v->scale + c);
    return x;
}
INLINE float view_get(const nw_view *v, size_t at, int c)
{
    float x = x_get(v->t->data, at, v->t->dtype);
    if (v->scale) x = x * v->scale[c] + (v->shift ? v->shift[c] : 0.0f);
    return v->relu && x < 0.0f ? 0.0f : x;
}
/* One element; for narrow tensors and tails. */
INLINE float source_get(const nw_source *s, size_t at, int c)
{
    float x = view_get(&s->a, at, c);
    if (s->b.t) x += view_get(&s->b, at, c);
    return s->relu && x < 0.0f ? 0.0f : x;
}

INLINE vf source_load(const nw_source *s, size_t at, size_t c, const int ka, const nw_dtype ta, const int kb,
                      const nw_dtype tb, vf low_a, vf low_b, vf low)
{
    vf x = view_apply(x_load(s->a.t->data, at, ta), &s->a, c, ka);
    if (kb == VIEW_NONE) return v_max(x, low_a); /* the caller folded the two ReLUs */
    vf y = view_apply(x_load(s->b.t->data, at, tb), &s->b, c, kb);
    return v_max(v_max(x, low_a) + v_max(y, low_b), low);
}

INLINE void source_rows(const nw_source *s, size_t at, int rows, int pitch, void *out, size_t to, int out_pitch,
                        const int ka, const nw_dtype ta, const int kb, const nw_dtype tb, const nw_dtype td)
{
    vf low_a = v_splat(view_low(s->a.relu || (kb == VIEW_NONE && s->relu)));
    vf low_b = v_splat(view_low(s->b.relu)), low = v_splat(view_low(s->relu));
    for (int i = 0; i < rows; i++, at += (size_t)pitch, to += (size_t)out_pitch)
        for (size_t c = 0; c < (size_t)pitch; c += VL)
            x_store(out, to + c, source_load(s, at + c, c, ka, ta, kb, tb, low_a, low_b, low), td);
}

/* Fix the kinds and types as constants for the loop above. */
#define SOURCE_CASE(KA, TA, KB, TB, TD)                                                   \
    if (ka == (KA) && ta == (TA) && kb == (KB) && tb == (TB) && td == (TD)) {             \
        source_rows(s, at, rows, pitch, out, to, out_pitch, (KA), (TA), (KB), (TB), (TD)); \
        return;                                                                           \
    }
#define SOURCE_CASES_B(KA, TA, TB, TD)             \
    SOURCE_CASE(KA, TA, VIEW_PLAIN, TB, TD)        \
    SOURCE_CASE(KA, TA, VIEW_SCALE, TB, TD)        \
    SOURCE_CASE(KA, TA, VIEW_AFFINE, TB, TD)
#if BF16
#define SOURCE_CASES_A(KA, TD)                     \
    SOURCE_CASE(KA, NW_BF16, VIEW_NONE, NW_F32, TD) \
    SOURCE_CASE(KA, NW_F32, VIEW_NONE, NW_F32, TD) \
    SOURCE_CASES_B(KA, NW_BF16, NW_BF16, TD)       \
    SOURCE_CASES_B(KA, NW_BF16, NW_F32, TD)        \
    SOURCE_CASES_B(KA, NW_F32, NW_BF16, TD)        \
    SOURCE_CASES_B(KA, NW_F32, NW_F32, TD)
#else
#define SOURCE_CASES_A(KA, TD)                     \
    SOURCE_CASE(KA, NW_F32, VIEW_NONE, NW_F32, TD) \
    SOURCE_CASES_B(KA, NW_F32, NW_F32, TD)
#endif

static void source_rows_any(const nw_source *s, size_t at, int rows, int pitch, void *out, size_t to, int out_pitch,
                            nw_dtype td)
{
    int ka = view_kind(&s->a), kb = view_kind(&s->b);
    nw_dtype ta = s->a.t->dtype, tb = kb == VIEW_NONE ? NW_F32 : s->b.t->dtype;
    SOURCE_CASES_A(VIEW_PLAIN, NW_F32)
    SOURCE_CASES_A(VIEW_AFFINE, NW_F32)
#if BF16
    SOURCE_CASES_A(VIEW_PLAIN, NW_BF16)
    SOURCE_CASES_A(VIEW_AFFINE, NW_BF16)
#endif
    __builtin_unreachable();
}

/* One pixel (element index `at` of image 0) with `rows` real images of `block`. */
static void source_pixel(const nw_source *s, size_t at, int rows, int block, void *out, size_t to, int out_pitch,
                         nw_dtype td)
{
    int pitch = s->a.t->pitch;
    if (pitch % VL == 0) {
        source_rows_any(s, at, rows, pitch, out, to, out_pitch, td);
    } else {
        for (int i = 0; i < rows; i++)
            for (int c = 0; c < pitch; c++)
                x_put(out, to + (size_t)(i * out_pitch + c),
                      c < s->a.t->c ? source_get(s, at + (size_t)(i * pitch + c), c) : 0.0f, td);
    }
    if (out_pitch > pitch)
        for (int i = 0; i < rows; i++) x_zero(out, to + (size_t)(i * out_pitch + pitch), (size_t)(out_pitch - pitch), td);
    if (rows < block)
        x_zero(out, to + (size_t)rows * (size_t)out_pitch, (size_t)(block - rows) * (size_t)out_pitch, td);
}
