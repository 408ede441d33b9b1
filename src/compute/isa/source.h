/*
 * source.h - reading sources: the affine, the second view and the ReLU are applied as rows are loaded.
 *
 * read_pixel writes one pixel of one block, all its channels, to a destination with its own pitch and type, and
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
    if (s->b.t) x += s->minus ? -view_get(&s->b, at, c) : view_get(&s->b, at, c);
    return s->relu && x < 0.0f ? 0.0f : x;
}

INLINE vf source_load(const nw_source *s, size_t at, size_t c, const int ka, const nw_dtype ta, const int kb,
                      const nw_dtype tb, vf low_a, vf low_b, vf low, vf sign)
{
    vf x = view_apply(x_load(s->a.t->data, at, ta), &s->a, c, ka);
    if (kb == VIEW_NONE) return v_max(x, low_a); /* the caller folded the two ReLUs */
    vf y = view_apply(x_load(s->b.t->data, at, tb), &s->b, c, kb);
    return v_max(v_max(x, low_a) + sign * v_max(y, low_b), low); /* sign is 1 or -1: rounded once all the same */
}

INLINE void source_rows(const nw_source *s, size_t at, int rows, int pitch, void *out, size_t to, int out_pitch,
                        const int ka, const nw_dtype ta, const int kb, const nw_dtype tb, const nw_dtype td)
{
    vf low_a = v_splat(view_low(s->a.relu || (kb == VIEW_NONE && s->relu)));
    vf low_b = v_splat(view_low(s->b.relu)), low = v_splat(view_low(s->relu)), sign = v_splat(s->minus ? -1.0f : 1.0f);
    const bool exact = ka == VIEW_PLAIN && kb == VIEW_NONE && ta == NW_BF16; /* nothing left to round */
    const nw_dtype as = exact && td == ROUNDED_F32 ? NW_F32 : td;
    for (int i = 0; i < rows; i++, at += (size_t)pitch, to += (size_t)out_pitch)
        for (size_t c = 0; c < (size_t)pitch; c += VL)
            x_store(out, to + c, source_load(s, at + c, c, ka, ta, kb, tb, low_a, low_b, low, sign), as);
}

/* One compiled loop for each combination of kinds and types; chosen once per task. */
typedef void (*rows_reader)(const nw_source *s, size_t at, int rows, int pitch, void *out, size_t to, int out_pitch);

#define DEFINE_READER(NAME, KA, TA, KB, TB, TD)                                                               \
    static void NAME(const nw_source *s, size_t at, int rows, int pitch, void *out, size_t to, int out_pitch) \
    {                                                                                                         \
        source_rows(s, at, rows, pitch, out, to, out_pitch, KA, TA, KB, TB, TD);                              \
    }
/* The second view absent, plain, scaled, affine. */
#define DEFINE_READERS(NAME, KA, TA, TB, TD)                \
    DEFINE_READER(NAME##_none, KA, TA, VIEW_NONE, TB, TD)   \
    DEFINE_READER(NAME##_plain, KA, TA, VIEW_PLAIN, TB, TD) \
    DEFINE_READER(NAME##_scale, KA, TA, VIEW_SCALE, TB, TD) \
    DEFINE_READER(NAME##_affine, KA, TA, VIEW_AFFINE, TB, TD)
#define READERS(NAME)                                          \
    {                                                          \
        NAME##_none, NAME##_plain, NAME##_scale, NAME##_affine \
    }

/* Of each pair of types of the two views, and of the destination. */
#define DEFINE_READERS_TO(NAME, TD)                                 \
    DEFINE_READERS(NAME##_plain_ff, VIEW_PLAIN, NW_F32, NW_F32, TD) \
    DEFINE_READERS(NAME##_affine_ff, VIEW_AFFINE, NW_F32, NW_F32, TD)
DEFINE_READERS_TO(to_f32, NW_F32)
#if BF16
#define DEFINE_BF16_READERS_TO(NAME, TD)                               \
    DEFINE_READERS(NAME##_plain_fb, VIEW_PLAIN, NW_F32, NW_BF16, TD)   \
    DEFINE_READERS(NAME##_affine_fb, VIEW_AFFINE, NW_F32, NW_BF16, TD) \
    DEFINE_READERS(NAME##_plain_bf, VIEW_PLAIN, NW_BF16, NW_F32, TD)   \
    DEFINE_READERS(NAME##_affine_bf, VIEW_AFFINE, NW_BF16, NW_F32, TD) \
    DEFINE_READERS(NAME##_plain_bb, VIEW_PLAIN, NW_BF16, NW_BF16, TD)  \
    DEFINE_READERS(NAME##_affine_bb, VIEW_AFFINE, NW_BF16, NW_BF16, TD)
DEFINE_BF16_READERS_TO(to_f32, NW_F32)
DEFINE_READERS_TO(to_bf16, NW_BF16)
DEFINE_BF16_READERS_TO(to_bf16, NW_BF16)
#define READERS_TO(NAME)                                                                                              \
    {                                                                                                                 \
        {{READERS(NAME##_plain_ff), READERS(NAME##_plain_fb)}, {READERS(NAME##_plain_bf), READERS(NAME##_plain_bb)}}, \
        {                                                                                                             \
            {READERS(NAME##_affine_ff), READERS(NAME##_affine_fb)},                                                   \
            {                                                                                                         \
                READERS(NAME##_affine_bf), READERS(NAME##_affine_bb)                                                  \
            }                                                                                                         \
        }                                                                                                             \
    }
#if MULTIPLY_F32
DEFINE_READERS_TO(to_rounded, ROUNDED_F32)
DEFINE_BF16_READERS_TO(to_rounded, ROUNDED_F32)
static const rows_reader readers[3][2][2][2][4] = {READERS_TO(to_f32), READERS_TO(to_bf16), READERS_TO(to_rounded)};
#else
static const rows_reader readers[2][2][2][2][4] = {READERS_TO(to_f32), READERS_TO(to_bf16)};
#endif
#else
static const rows_reader readers[1][2][1][1][4] = {{{{READERS(to_f32_plain_ff)}}, {{READERS(to_f32_affine_ff)}}}};
#endif

/* A source made ready for reading pixel after pixel into a destination of one type. */
typedef struct source_reader {
    const nw_source *source;
    nw_dtype type;
    rows_reader rows; /* NULL: the pitch does not suit the vectors */
} source_reader;

static source_reader read_source(const nw_source *s, nw_dtype type)
{
    source_reader r = {.source = s, .type = type};
    int affine = view_kind(&s->a) == VIEW_AFFINE;
    if (s->a.t->pitch % VL == 0)
        r.rows = readers[type][affine][s->a.t->dtype][s->b.t ? s->b.t->dtype : NW_F32][view_kind(&s->b)];
    return r;
}

/* One pixel (element index `at` of image 0) with `rows` real images of `block`. */
static void read_pixel(const source_reader *r, size_t at, int rows, int block, void *out, size_t to, int out_pitch)
{
    const nw_tensor *t = r->source->a.t;
    int pitch = t->pitch;
    if (r->rows) {
        r->rows(r->source, at, rows, pitch, out, to, out_pitch);
    } else {
        for (int i = 0; i < rows; i++)
            for (int c = 0; c < pitch; c++)
                x_put(out, to + (size_t)(i * out_pitch + c),
                      c < t->c ? source_get(r->source, at + (size_t)(i * pitch + c), c) : 0.0f, r->type);
    }
    if (out_pitch > pitch)
        for (int i = 0; i < rows; i++)
            x_zero(out, to + (size_t)(i * out_pitch + pitch), (size_t)(out_pitch - pitch), r->type);
    if (rows < block)
        x_zero(out, to + (size_t)rows * (size_t)out_pitch, (size_t)(block - rows) * (size_t)out_pitch, r->type);
}
