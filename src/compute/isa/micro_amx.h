/*
 * micro_amx.h - the bf16 micro-kernels on AMX tiles: 2 x 2 tiles of f32 accumulators, operands in the other four.
 *
 * A tile is 16 rows x 64 bytes; tdpbf16ps adds the products of pairs: acc[m][n] += sum over p of a[m][2p] b[p][2n] +
 * a[m][2p+1] b[p][2n+1].
 *
 * Forward and backward to the data: A is 16 images x 32 channels straight from the layout; B is packed per panel of 32
 * outputs as [tap][c / 32][half][16 channel pairs][16 outputs][2].
 * Backward to the weights: the reduction runs over images. Per pixel, A is x transposed, [32 c][block images], and B is
 * dy with image pairs interleaved, [block / 2 pairs][32 k][2].
 *
 * The instructions are written in inline assembly: GCC 12's intrinsic for ldtilecfg names only 8 of its 64 bytes as
 * input, and its tile loads and stores do not tell the compiler that memory is touched. With AMX_EMULATED the tiles are
 * arrays and the same code runs anywhere, for tests.
 *
 * Denormals (below 2^-126). tdpbf16ps takes denormal operands for zero and makes denormal results zero, and so does
 * vcvtneps2bf16, which stores bf16 (vec.h); both ignore MXCSR. Everything else keeps denormals unless MXCSR says
 * otherwise, and nothing in this program sets it: f32 arithmetic of every set, sums in this one included; rounding to
 * bf16 with integers, by which the other sets store bf16 and this one packs weights and writes tensors of up to 8
 * channels; the emulated tiles. So amx and amx-emulated may differ by what lies below 2^-126, and by nothing else but the
 * order of sums. tests/unit/test_denormals.c.
 */

typedef nw_bf16 __attribute__((may_alias)) mul_t;
#define MUL_TYPE NW_BF16
enum { REDUCE_ALIGN = 32, STEP = 1024 /* elements of B per (tap, 32 channels) */ };

#include "compute/isa/micro.h"

typedef struct tile_config {
    _Alignas(64) uint8_t palette;
    uint8_t start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "ldtilecfg reads 64 bytes");

#ifdef AMX_EMULATED

static _Thread_local struct {
    tile_config config;
    uint8_t data[8][16][64];
} amx;

static void emulate_load(int t, const void *base, size_t stride)
{
    memset(amx.data[t], 0, sizeof amx.data[t]);
    for (int i = 0; i < amx.config.rows[t]; i++)
        memcpy(amx.data[t][i], (const uint8_t *)base + (size_t)i * stride, amx.config.bytes[t]);
}
static void emulate_store(int t, void *base, size_t stride)
{
    for (int i = 0; i < amx.config.rows[t]; i++)
        memcpy((uint8_t *)base + (size_t)i * stride, amx.data[t][i], amx.config.bytes[t]);
}
/* Resolvers of clones run before a sanitizer is ready. */
#if defined __x86_64__ && defined __gnu_linux__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
__attribute__((target_clones("avx2", "default"))) /* tests spend their time here */
#endif
static void
emulate_product(int d, int a, int b)
{
    float(*acc)[16] = (float(*)[16])amx.data[d];
    nw_bf16(*x)[32] = (nw_bf16(*)[32])amx.data[a], (*y)[32] = (nw_bf16(*)[32])amx.data[b];
    for (int p = 0; p < amx.config.bytes[a] / 4; p++) {
        float y0[16], y1[16];
        for (int n = 0; n < 16; n++) {
            y0[n] = nw_bf16_to_f32(y[p][2 * n]);
            y1[n] = nw_bf16_to_f32(y[p][2 * n + 1]);
        }
        for (int m = 0; m < amx.config.rows[d]; m++) {
            float x0 = nw_bf16_to_f32(x[m][2 * p]), x1 = nw_bf16_to_f32(x[m][2 * p + 1]);
            for (int n = 0; n < 16; n++) acc[m][n] += x0 * y0[n] + x1 * y1[n];
        }
    }
}
#define TILE_CONFIG(c)              (amx.config = *(c))
#define TILE_RELEASE()              ((void)0)
#define TILE_ZERO(t)                memset(amx.data[t], 0, sizeof amx.data[t])
#define TILE_LOAD(t, base, stride)  emulate_load(t, base, (size_t)(stride))
#define TILE_STORE(t, base, stride) emulate_store(t, base, (size_t)(stride))
#define TILE_PRODUCT(d, a, b)       emulate_product(d, a, b)

#else

#define TILE_CONFIG(c) __asm__ volatile("ldtilecfg %0" ::"m"(*(c)))
#define TILE_RELEASE() __asm__ volatile("tilerelease" ::: "memory")
#define TILE_ZERO(t)   __asm__ volatile("tilezero %%tmm" #t ::: "memory")
#define TILE_LOAD(t, base, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(base), "r"((size_t)(stride)) : "memory")
#define TILE_STORE(t, base, stride) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(base), "r"((size_t)(stride)) : "memory")
#define TILE_PRODUCT(d, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #d ::: "memory")

#endif

/* Tiles 0-3 accumulate; 4, 5 are A with `reduced` values a row; 6, 7 are B with half as many rows of pairs. */
static void micro_begin(int reduced)
{
    tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.bytes[t] = (uint16_t)(t == 4 || t == 5 ? 2 * reduced : 64);
        c.rows[t] = (uint8_t)(t >= 6 ? reduced / 2 : 16);
    }
    TILE_CONFIG(&c);
}
static void micro_end(void) { TILE_RELEASE(); }

/* ---- forward and backward to the data -------------------------------------------------------------------------- */

static size_t panel_bytes(int taps, int c) { return (size_t)(taps * nw_div_up(c, 32)) * STEP * sizeof(mul_t); }

/* Sixteen outputs of two neighbours of the reduction, as words of two bf16. */
INLINE void pack_pairs(const float *even, const float *odd, size_t k_step, int outputs, uint32_t *out)
{
    vf e = {0}, o = {0};
    if (outputs >= 16) {
        UNROLL_FOR(j, 16) e[j] = even[(size_t)j * k_step];
        if (odd)
            UNROLL_FOR(j, 16) o[j] = odd[(size_t)j * k_step];
    } else {
        for (int j = 0; j < outputs; j++) {
            e[j] = even[(size_t)j * k_step];
            if (odd) o[j] = odd[(size_t)j * k_step];
        }
    }
    vu words = v_round_bf16(e) | v_round_bf16(o) << 16;
    memcpy(out, &words, sizeof words);
}

static void pack_panel(const nw_conv *v, bool backward, bool gather, const float *w, int panel, void *packed)
{
    filter_view f = view_filter(v, backward, w, panel);
    /* Gathered, the reduction is one long row [tap][c] and there is one tap. */
    size_t taps = gather ? 1 : f.taps, steps = (size_t)nw_div_up(gather ? f.reduced * (int)f.taps : f.reduced, 32);
    int reduced = gather ? f.reduced * (int)f.taps : f.reduced;
    if (reduced % 32) memset(packed, 0, panel_bytes((int)taps, reduced));
    for (int half = 0; half < 2; half++)
        for (int q = 0; q < reduced; q += 2)
            for (size_t t = 0; t < taps; t++) {
                uint32_t *to =
                    (uint32_t *)packed + ((t * steps + (size_t)(q / 32)) * 2 + (size_t)half) * 256 + q % 32 / 2 * 16;
                const float *from[2] = {NULL, NULL};
                for (int i = 0; i < 2 && q + i < reduced; i++)
                    from[i] = f.w + (size_t)(half * 16) * f.k_step +
                              (gather ? (size_t)((q + i) % f.reduced) * f.c_step + (size_t)((q + i) / f.reduced)
                                      : (size_t)(q + i) * f.c_step + t);
                pack_pairs(from[0], from[1], f.k_step, nw_max(0, f.outputs - half * 16), to);
            }
}

static void multiply(const tap_t *taps, int count, int reduced, int pitch, const mul_t *panel, int rows, int cols,
                     float *tile)
{
    size_t steps = (size_t)nw_div_up(reduced, 32), a_bytes = (size_t)pitch * sizeof(mul_t);
    if (rows > 16 && cols > 16) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
        for (int t = 0; t < count; t++) {
            const mul_t *a = taps[t].a, *a1 = a + 16 * (size_t)pitch, *b = panel + (size_t)taps[t].index * steps * STEP;
            for (size_t s = 0; s < steps; s++, a += 32, a1 += 32, b += STEP) {
                TILE_LOAD(6, b, 64);
                TILE_LOAD(4, a, a_bytes);
                TILE_PRODUCT(0, 4, 6);
                TILE_LOAD(7, b + 512, 64);
                TILE_PRODUCT(1, 4, 7);
                TILE_LOAD(5, a1, a_bytes);
                TILE_PRODUCT(2, 5, 6);
                TILE_PRODUCT(3, 5, 7);
            }
        }
        TILE_STORE(0, tile, 4 * TILE);
        TILE_STORE(1, tile + 16, 4 * TILE);
        TILE_STORE(2, tile + 16 * TILE, 4 * TILE);
        TILE_STORE(3, tile + 16 * TILE + 16, 4 * TILE);
        return;
    }
    /* Fewer images or outputs: one tile of A against one or two of B. */
    for (int row = 0; row < rows; row += 16) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        for (int t = 0; t < count; t++) {
            const mul_t *a = taps[t].a + (size_t)row * (size_t)pitch, *b = panel + (size_t)taps[t].index * steps * STEP;
            for (size_t s = 0; s < steps; s++, a += 32, b += STEP) {
                TILE_LOAD(6, b, 64);
                TILE_LOAD(4, a, a_bytes);
                TILE_PRODUCT(0, 4, 6);
                if (cols <= 16) continue;
                TILE_LOAD(7, b + 512, 64);
                TILE_PRODUCT(1, 4, 7);
            }
        }
        TILE_STORE(0, tile + row * TILE, 4 * TILE);
        if (cols > 16) TILE_STORE(1, tile + row * TILE + 16, 4 * TILE);
    }
}

/* ---- backward to the weights ----------------------------------------------------------------------------------- */

enum { C_PANEL = 32 };
static size_t x_panel_pixel(int block) { return (size_t)block * 32; }
static size_t dy_panel_pixel(int block) { return (size_t)block * 32; }

#if defined __AVX512BW__ && !defined AMX_EMULATED
/* 32 x 32 transpose of 16-bit values: rows of x `pitch` apart, rows of y 32 apart. */
static void transpose_32(const mul_t *x, int pitch, mul_t *y)
{
    __m512i r[32], t[32];
    UNROLL_FOR(i, 32) r[i] = _mm512_loadu_si512(x + (size_t)(i * pitch));
    UNROLL_FOR_STEP(i, 32, 2) {
        t[i] = _mm512_unpacklo_epi16(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi16(r[i], r[i + 1]);
    }
    UNROLL_FOR_STEP(i, 32, 4)
        UNROLL_FOR(j, 2) {
            r[i + 2 * j] = _mm512_unpacklo_epi32(t[i + j], t[i + 2 + j]);
            r[i + 2 * j + 1] = _mm512_unpackhi_epi32(t[i + j], t[i + 2 + j]);
        }
    UNROLL_FOR_STEP(i, 32, 8)
        UNROLL_FOR(j, 4) {
            t[i + 2 * j] = _mm512_unpacklo_epi64(r[i + j], r[i + 4 + j]);
            t[i + 2 * j + 1] = _mm512_unpackhi_epi64(r[i + j], r[i + 4 + j]);
        }
    /* t[8 g + q] holds, in 128-bit lane l, column 8 l + q of rows 8 g .. 8 g + 7: gather the four g of each lane. */
    UNROLL_FOR(q, 8) {
        __m512i a = _mm512_shuffle_i32x4(t[q], t[8 + q], 0x44), b = _mm512_shuffle_i32x4(t[q], t[8 + q], 0xee);
        __m512i c = _mm512_shuffle_i32x4(t[16 + q], t[24 + q], 0x44),
                d = _mm512_shuffle_i32x4(t[16 + q], t[24 + q], 0xee);
        _mm512_storeu_si512(y + (size_t)q * 32, _mm512_shuffle_i32x4(a, c, 0x88));
        _mm512_storeu_si512(y + (size_t)(8 + q) * 32, _mm512_shuffle_i32x4(a, c, 0xdd));
        _mm512_storeu_si512(y + (size_t)(16 + q) * 32, _mm512_shuffle_i32x4(b, d, 0x88));
        _mm512_storeu_si512(y + (size_t)(24 + q) * 32, _mm512_shuffle_i32x4(b, d, 0xdd));
    }
}
/* out[j][0..1] = a[j], b[j] for 32 columns. */
static void interleave_32(const mul_t *a, const mul_t *b, mul_t *out)
{
    static const uint16_t low[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b), index = _mm512_loadu_si512(low);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi16(x, index, y));
    _mm512_storeu_si512(out + 32, _mm512_permutex2var_epi16(x, _mm512_add_epi16(index, _mm512_set1_epi16(16)), y));
}
#else
static void interleave_32(const mul_t *a, const mul_t *b, mul_t *out)
{
    for (int j = 0; j < 32; j++) {
        out[2 * j] = a[j];
        out[2 * j + 1] = b[j];
    }
}
#endif

/* Rows come with pitches that are multiples of 32, zero beyond the channels. */
static void pack_x_pixel(const mul_t *rows, int pitch, int channels, int block, mul_t *out, size_t panel_stride)
{
    for (int c0 = 0; c0 < channels; c0 += 32, out += panel_stride) {
#if defined __AVX512BW__ && !defined AMX_EMULATED
        if (block == 32) {
            transpose_32(rows + c0, pitch, out);
            continue;
        }
#endif
        for (int j = 0; j < 32; j++)
            for (int i = 0; i < block; i++) out[j * block + i] = rows[i * pitch + c0 + j];
    }
}
static void pack_dy_pixel(const mul_t *rows, int pitch, int k0, int k1, int block, mul_t *out, size_t panel_stride)
{
    for (int k = k0; k < k1; k += 32, out += panel_stride)
        for (int i = 0; i < block; i += 2)
            interleave_32(rows + (size_t)(i * pitch + k), rows + (size_t)((i + 1) * pitch + k), out + (size_t)i * 32);
}

static void accumulate(const products *p)
{
    size_t bytes = p->out_pitch * sizeof(float), a_bytes = (size_t)p->block * sizeof(mul_t),
           half = 16 * (size_t)p->block;
    float *low = p->out + 16 * p->out_pitch;
    TILE_LOAD(0, p->out, bytes);
    TILE_LOAD(1, p->out + 16, bytes);
    TILE_LOAD(2, low, bytes);
    TILE_LOAD(3, low + 16, bytes);
    for (int r = 0; r < p->rows; r++) {
        const mul_t *x = p->x + (size_t)r * p->x_row, *dy = p->dy + (size_t)r * p->dy_row;
        for (int q = 0; q < p->pixels; q++, x += p->x_step, dy += p->dy_step) {
            TILE_LOAD(6, dy, 128);
            TILE_LOAD(4, x, a_bytes);
            TILE_PRODUCT(0, 4, 6);
            TILE_LOAD(7, dy + 32, 128);
            TILE_PRODUCT(1, 4, 7);
            TILE_LOAD(5, x + half, a_bytes);
            TILE_PRODUCT(2, 5, 6);
            TILE_PRODUCT(3, 5, 7);
        }
    }
    TILE_STORE(0, p->out, bytes);
    TILE_STORE(1, p->out + 16, bytes);
    TILE_STORE(2, low, bytes);
    TILE_STORE(3, low + 16, bytes);
}
