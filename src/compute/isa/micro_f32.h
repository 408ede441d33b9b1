/*
 * micro_f32.h - the f32 micro-kernels, in vector extensions, for any vector width.
 *
 * Forward and backward to the data: `rows` images x TILE outputs are kept in registers; for each tap and channel the
 * weights' TILE values are loaded once and each image's value is broadcast. Panels are packed [tap][c][TILE].
 *
 * Backward to the weights: CROWS input channels x TILE outputs in registers, over (pixel, image) positions; operands
 * are packed in panels [position][CROWS] and [position][TILE], so that both are read straight through.
 *
 * With MULTIPLY_F32 operands are rounded to bf16 on their way into scratch and panels, and multiplied in f32.
 *
 * The including file defines what fills its registers: TILE (a multiple of VL), ROWS_BIG and ROWS_SMALL (images at a
 * time; every even number up to 32 is a sum of them or rounds up to one), CROWS.
 */

typedef float mul_t;
#if MULTIPLY_F32
#define MUL_TYPE ROUNDED_F32
#else
#define MUL_TYPE NW_F32
#endif
INLINE float operand(float x) { return MUL_TYPE == NW_F32 ? x : nw_bf16_to_f32(nw_bf16_from_f32(x)); }
enum { REDUCE_ALIGN = 1, VECS = TILE / VL };

#include "compute/isa/micro.h"

INLINE void micro_begin(int reduced) { (void)reduced; }
INLINE void micro_end(void) {}

/* ---- forward and backward to the data -------------------------------------------------------------------------- */

static size_t panel_bytes(int taps, int c) { return nw_align_up((size_t)taps * (size_t)c * TILE * sizeof(float)); }

INLINE vf operands(vf x) { return MUL_TYPE == NW_F32 ? x : v_rounded(x); }

/* A run of (reduced index, tap) pairs, which an output has side by side: squares of them and of outputs are transposed,
 * so that each cache line is read once. */
static void pack_run(const filter_view *f, const float *from, size_t pairs, tap_walk *walk, float *out)
{
    size_t q = 0;
    for (; f->outputs == TILE && q + VL <= pairs; q += VL) {
        float *to[VL];
        UNROLL_FOR(i, VL) to[i] = out + next_pair(walk) * TILE;
        UNROLL_FOR(k, VECS) {
            vf square[VL];
            UNROLL_FOR(j, VL) square[j] = v_load(from + (size_t)(k * VL + j) * f->k_step + q);
            v_transpose(square);
            UNROLL_FOR(i, VL) v_store(to[i] + k * VL, operands(square[i]));
        }
    }
    for (; q < pairs; q++) {
        float *to = out + next_pair(walk) * TILE;
        for (int j = 0; j < TILE; j++) to[j] = j < f->outputs ? operand(from[(size_t)j * f->k_step + q]) : 0.0f;
    }
}

/* Panel of outputs [panel * TILE, + TILE). When taps are gathered, [tap][c] is also the order of a gathered row. */
static void pack_panel(const nw_conv *v, bool backward, bool gather, const float *w, int panel, void *packed)
{
    (void)gather;
    filter_view f = view_filter(v, backward, w, panel);
    tap_walk walk = {.taps = f.taps, .channels = (size_t)f.reduced};
    size_t reduced = (size_t)f.reduced;
    float *out = packed;
    if (!backward)
        pack_run(&f, f.w, reduced * f.taps, &walk, out);
    else if (f.taps > 1 || f.outputs < TILE)
        for (size_t c = 0; c < reduced; c++) pack_run(&f, f.w + c * f.c_step, f.taps, &walk, out);
    else /* the outputs themselves lie side by side */
        for (size_t c = 0; c < reduced; c++)
            UNROLL_FOR(k, VECS) v_store(out + c * TILE + k * VL, operands(v_load(f.w + c * f.c_step + k * VL)));
}

/* Three rows share a base pointer: base, base + pitch, base + 2 pitch are addresses that x86 and ARM form by
 * themselves, so that no offset is reloaded from the stack in the inner loop. */
#define DEFINE_MULTIPLY(NAME, ROWS, COLS)                                                                  \
    static __attribute__((noinline)) void NAME(const tap_t *taps, int count, int reduced, size_t pitch,    \
                                               const float *panel, int row0, float *tile)                  \
    {                                                                                                      \
        vf acc[ROWS][COLS];                                                                                \
        UNROLL_FOR(i, ROWS)                                                                                \
            UNROLL_FOR(v, COLS) acc[i][v] = (vf){0};                                                       \
        for (int t = 0; t < count; t++) {                                                                  \
            const float *a[((ROWS) + 2) / 3], *b = panel + (size_t)taps[t].index * (size_t)reduced * TILE; \
            UNROLL_FOR_STEP(i, ROWS, 3) a[i / 3] = taps[t].a + (size_t)(row0 + i) * pitch;                 \
            for (int c = 0; c < reduced; c++, b += TILE) {                                                 \
                vf w[COLS];                                                                                \
                UNROLL_FOR(v, COLS) w[v] = v_load(b + v * VL);                                             \
                UNROLL_FOR(i, ROWS) {                                                                      \
                    vf x = v_splat(a[i / 3][(size_t)(i % 3) * pitch]);                                     \
                    UNROLL_FOR(v, COLS) acc[i][v] += x * w[v];                                             \
                }                                                                                          \
                UNROLL_FOR(i, ((ROWS) + 2) / 3) a[i]++;                                                    \
            }                                                                                              \
        }                                                                                                  \
        UNROLL_FOR(i, ROWS)                                                                                \
            UNROLL_FOR(v, COLS) v_store(tile + (row0 + i) * TILE + v * VL, acc[i][v]);                     \
    }

DEFINE_MULTIPLY(multiply_big, ROWS_BIG, VECS)
DEFINE_MULTIPLY(multiply_small, ROWS_SMALL, VECS)
#if TILE > VL
DEFINE_MULTIPLY(multiply_big_narrow, ROWS_BIG, 1)
DEFINE_MULTIPLY(multiply_small_narrow, ROWS_SMALL, 1)
#endif

/* tile[rows][TILE] = sum over taps of source rows x panel; rows beyond may be written too. cols: outputs wanted. */
static void multiply(const tap_t *taps, int count, int reduced, int pitch, const mul_t *panel, int rows, int cols,
                     float *tile)
{
    int n = nw_round_up(rows, 2), small = 0;
    while (n > small * ROWS_SMALL && (n - small * ROWS_SMALL) % ROWS_BIG) small++;
    int big = nw_max(0, n - small * ROWS_SMALL) / ROWS_BIG, row = 0;
#if TILE > VL
    if (cols <= VL) {
        for (; big > 0; big--, row += ROWS_BIG)
            multiply_big_narrow(taps, count, reduced, (size_t)pitch, panel, row, tile);
        for (; small > 0; small--, row += ROWS_SMALL)
            multiply_small_narrow(taps, count, reduced, (size_t)pitch, panel, row, tile);
        return;
    }
#endif
    (void)cols;
    for (; big > 0; big--, row += ROWS_BIG) multiply_big(taps, count, reduced, (size_t)pitch, panel, row, tile);
    for (; small > 0; small--, row += ROWS_SMALL) multiply_small(taps, count, reduced, (size_t)pitch, panel, row, tile);
}

/* ---- backward to the weights ----------------------------------------------------------------------------------- */

/* Operand panels, per pixel: x is [block][CROWS] per panel of CROWS channels, dy is [block][TILE] per TILE outputs. */
enum { C_PANEL = CROWS };
static size_t x_panel_pixel(int block) { return (size_t)block * CROWS; }
static size_t dy_panel_pixel(int block) { return (size_t)block * TILE; }

/* One pixel's rows (f32, `pitch` apart) into all its panels; panel_stride elements from panel to panel. */
static void pack_x_pixel(const mul_t *rows, int pitch, int channels, int block, mul_t *out, size_t panel_stride)
{
    for (int c0 = 0; c0 < channels; c0 += CROWS, out += panel_stride) {
        int m = nw_min(CROWS, channels - c0);
        if (m == CROWS)
            for (int i = 0; i < block; i++)
                UNROLL_FOR(j, CROWS) out[i * CROWS + j] = rows[i * pitch + c0 + j];
        else
            for (int i = 0; i < block; i++)
                for (int j = 0; j < CROWS; j++) out[i * CROWS + j] = j < m ? rows[i * pitch + c0 + j] : 0.0f;
    }
}
static void pack_dy_pixel(const mul_t *rows, int pitch, int k0, int k1, int block, mul_t *out, size_t panel_stride)
{
    for (int k = k0; k < k1; k += TILE, out += panel_stride) {
        int m = nw_min(TILE, pitch - k);
        for (int i = 0; i < block; i++) {
            memcpy(out + i * TILE, rows + i * pitch + k, (size_t)m * sizeof(float));
            if (m < TILE) memset(out + i * TILE + m, 0, (size_t)(TILE - m) * sizeof(float));
        }
    }
}

/* acc += sum over positions of x dy: CROWS channels x TILE outputs. */
INLINE void add_products(vf acc[CROWS][VECS], const float *x, size_t x_pitch, const float *dy, size_t dy_pitch,
                         size_t positions)
{
    for (size_t i = 0; i < positions; i++, x += x_pitch, dy += dy_pitch) {
        vf g[VECS];
        UNROLL_FOR(v, VECS) g[v] = v_load(dy + v * VL);
        UNROLL_FOR(j, CROWS) {
            vf s = v_splat(x[j]);
            UNROLL_FOR(v, VECS) acc[j][v] += s * g[v];
        }
    }
}

static void accumulate(const products *p)
{
    vf acc[CROWS][VECS];
    UNROLL_FOR(j, CROWS)
        UNROLL_FOR(v, VECS) acc[j][v] = v_load(p->out + (size_t)j * p->out_pitch + v * VL);
    int pixels = p->pixels, images = p->images;
    if (images == p->block && p->x_step == x_panel_pixel(p->block)) { /* a row is one straight run */
        images *= pixels;
        pixels = 1;
    }
    for (int r = 0; r < p->rows; r++)
        for (int q = 0; q < pixels; q++) {
            const float *a = p->x + (size_t)r * p->x_row + (size_t)q * p->x_step;
            const float *b = p->dy + (size_t)r * p->dy_row + (size_t)q * p->dy_step;
            add_products(acc, a, CROWS, b, TILE, (size_t)images);
        }
    UNROLL_FOR(j, CROWS)
        UNROLL_FOR(v, VECS) v_store(p->out + (size_t)j * p->out_pitch + v * VL, acc[j][v]);
}
