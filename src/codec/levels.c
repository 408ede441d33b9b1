/*
 * levels.c - the codecs qsgd and terngrad: each float becomes a whole number of steps, by unbiased stochastic rounding.
 *
 * QSGD (Alistarh et al. 2017), s levels, R the Euclidean norm of an item or bucket, or its largest magnitude:
 *   level = floor(s |v| / R + u), u uniform in (0, 1); value = sign(v) (R / s) level
 * The code that is sent is s + sign(v) level, in W = ceil(log2(2 s + 1)) bits. Family LEVELS, parameter W; the scale is
 * R. Each 512 codes of a tile are stored as W rows of 16 words: word l of the rows has elements l, l + 16, .., lowest
 * bits first. The remaining codes of a tile are one stream of bits, lowest first, in ceil(rest W / 8) bytes.
 *
 * TernGrad (Wen et al. 2017) is QSGD with one level and R the largest magnitude M of an item, with 1 - u for u: the
 * value is +-M where u <= |v| / M, else 0. Family TERNARY; the scale is M. The c codes of a tile (trits: 0, 1, 2 for -,
 * 0, +) are stored in S = ceil(c / 5) bytes: byte j is the base-3 number of trits j, j + S, .., j + 4 S, the first with
 * weight 1, the last with weight 81; missing trits are 1.
 *
 * Scales of items need two passes over the floats (look and settle, then emit); scales of buckets need one. The last
 * bucket of a tile may be shorter. The level is computed as floor(|v| (s / R) + u) in f32, with one division for each
 * scale.
 */
#include "codec/dense.h"

#include <math.h>
#include <string.h>

enum { LEVELS_MOST = 32767, BUCKET_LEAST = 16, PACKED = 512, TRITS = 5, MORE = 16, TRIT_BYTE_MOST = 242 };

typedef struct levels_codec {
    nw_codec codec;
    int32_t levels; /* s; terngrad: 1 */
    unsigned width; /* W */
    size_t bucket;  /* 0: an item */
    bool max_norm;
} levels_codec;

static const nw_codec_ops by_buckets; /* qsgd with buckets: each bucket has its scale, and there is no look step */

static const levels_codec *of(const nw_codec *codec) { return (const levels_codec *)codec; }

static nw_status init_qsgd(nw_codec *codec)
{
    levels_codec *q = (levels_codec *)codec;
    const nw_codec_options *o = &codec->options;
    NW_FAIL_IF(o->levels < 1 || o->levels > LEVELS_MOST, NW_E_ARGUMENT, "codec qsgd has 1 to %d levels, not %d",
               LEVELS_MOST, o->levels);
    NW_FAIL_IF(o->bucket != 0 && (o->bucket < BUCKET_LEAST || o->bucket > NW_TILE_FLOATS), NW_E_ARGUMENT,
               "--bucket is %d to %d elements that share a norm, or 0 for all of a tensor, not %d", BUCKET_LEAST,
               NW_TILE_FLOATS, o->bucket);
    if (o->bucket) codec->ops = &by_buckets;
    q->levels = o->levels;
    q->bucket = (size_t)o->bucket;
    q->max_norm = o->max_norm;
    while (1 << q->width < 2 * q->levels + 1) q->width++;
    return NW_OK;
}

static nw_status init_terngrad(nw_codec *codec)
{
    levels_codec *q = (levels_codec *)codec;
    q->levels = 1;
    q->max_norm = true;
    return NW_OK;
}

/* 1 minus the variance relative to |v|^2: Alistarh et al., lemma 3.1. If R is the largest magnitude, the root mean
 * square error of each of d elements is at most half a step, R / (2 s). */
static double delta_qsgd(const nw_codec *codec, size_t n)
{
    const levels_codec *q = of(codec);
    double d = (double)(q->bucket && q->bucket < n ? q->bucket : n), s = q->levels;
    if (q->max_norm) return 1 - d / (4 * s * s);
    return 1 - fmin(d / (s * s), sqrt(d) / s);
}

/* The worst case of sum |v| (M - |v|) / |v|^2 has one element M and all others M / (sqrt(n) + 1). */
static double delta_terngrad(const nw_codec *codec, size_t n)
{
    (void)codec;
    return 1 - (sqrt((double)n) - 1) / 2;
}

static size_t qsgd_bytes(const nw_codec *codec, size_t count)
{
    return (count - count % PACKED) / 8 * of(codec)->width + (count % PACKED * of(codec)->width + 7) / 8;
}
static size_t bucket_count(const nw_codec *codec, size_t count)
{
    return (count + of(codec)->bucket - 1) / of(codec)->bucket;
}
static size_t terngrad_bytes(const nw_codec *codec, size_t count)
{
    (void)codec;
    return (count + TRITS - 1) / TRITS;
}

/* ---- scales ------------------------------------------------------------------------------------------------------ */

/* The sum of squares, or the largest magnitude; not finite if one of the numbers is not. */
static double measure(const levels_codec *q, const float *v, size_t count)
{
    if (!q->max_norm) return nw_codec_kernels_best()->squares(v, count);
    return (double)nw_float_of(nw_codec_kernels_best()->largest(v, count));
}
static float scale_of(const levels_codec *q, double measured)
{
    return nw_dense_scale(q->max_norm ? measured : sqrt(measured));
}

static void look(nw_encoding *e, int index)
{
    const nw_tile *tile = &e->block->tiles[index];
    nw_partial *p = &e->partial[index];
    p->sum = measure(of(e->codec), nw_encoding_floats(e, tile), tile->count);
    p->largest = nw_dense_largest_of_sum(p->sum);
}

/* Skips tiles with NaN or infinity: either their cut is not sent, or the encoding has failed already. */
static void settle(nw_encoding *e, int item, nw_pool *pool)
{
    const levels_codec *q = of(e->codec);
    double all = 0;
    (void)pool;
    for (int t = e->block->item_tile[item]; t < e->block->item_tile[item + 1]; t++) {
        if (e->partial[t].largest >= NW_INFINITE) continue;
        all = q->max_norm ? fmax(all, e->partial[t].sum) : all + e->partial[t].sum;
    }
    e->scratch->scales[item] = scale_of(q, all);
}

/* The factor that turns magnitudes into levels; 0 where the scale is too small to be inverted. */
static float inverse_of(const levels_codec *q, float scale)
{
    float inverse = scale > 0 ? (float)q->levels / scale : 0;
    return isinf(inverse) ? 0 : inverse;
}
static float factor_of(const levels_codec *q, float scale) { return scale / (float)q->levels; }

/* ---- qsgd -------------------------------------------------------------------------------------------------------- */

/* The number of elements from `at` on that share a scale. */
static size_t group_at(const levels_codec *q, const nw_tile *tile, size_t at)
{
    return q->bucket && q->bucket < tile->count - at ? q->bucket : tile->count - at;
}

static void level_values(const levels_codec *q, const nw_tile *tile, const uint8_t *scales, const uint16_t *codes,
                         float *out, bool add)
{
    for (size_t i = 0, group; i < tile->count; i += group, scales += sizeof(float)) {
        group = group_at(q, tile, i);
        nw_codec_kernels_best()->level_values(codes + i, group, q->levels, factor_of(q, nw_get_f32(scales)), out + i,
                                              add);
    }
}

/* Writes the scales of a tile's buckets; false: a number is not finite. */
static bool emit_scales(const levels_codec *q, const nw_tile *tile, const float *v, uint8_t *scales)
{
    for (size_t i = 0, group; i < tile->count; i += group, scales += sizeof(float)) {
        group = group_at(q, tile, i);
        double measured = measure(q, v + i, group);
        if (!isfinite(measured)) return false;
        nw_put_f32(scales, scale_of(q, measured));
    }
    return true;
}

static void emit_qsgd(nw_encoding *e, int index, nw_seen *seen)
{
    const levels_codec *q = of(e->codec);
    const nw_codec_kernels *k = nw_codec_kernels_best();
    const nw_tile *tile = &e->block->tiles[index];
    const float *v = nw_encoding_floats(e, tile);
    uint8_t *out = e->out[tile->cut], of_item[sizeof(float)];
    uint8_t *scales = q->bucket ? out + nw_dense_scales_at(tile) : of_item;
    uint16_t codes[NW_TILE_FLOATS + MORE];
    nw_drawn drawn;
    if (q->bucket)
        e->partial[index].largest = emit_scales(q, tile, v, scales) ? 0 : NW_INFINITE;
    else
        nw_put_f32(of_item, e->scratch->scales[tile->item]);
    if (e->partial[index].largest >= NW_INFINITE) return;
    const uint16_t *draw = nw_dense_draw(e, tile, &drawn);
    for (size_t i = 0, group, s = 0; i < tile->count; i += group, s++) {
        group = group_at(q, tile, i);
        k->levels(v + i, draw + i, group, inverse_of(q, nw_get_f32(scales + s * sizeof(float))), q->levels, codes + i);
    }
    k->pack(codes, tile->count, q->width, out + nw_dense_values_at(e->block, tile));
    if (seen) level_values(q, tile, scales, codes, seen->values, false);
}

static void close_qsgd(nw_encoding *e, int cut) { nw_dense_close(e, cut, (uint8_t)of(e->codec)->width); }
static nw_status check_qsgd(const nw_decoding *d) { return nw_dense_check(d, (uint8_t)of(d->codec)->width); }

static void unpack_tile(const nw_decoding *d, const nw_tile *tile, uint16_t *codes)
{
    nw_codec_kernels_best()->unpack(d->in + nw_dense_values_at(d->block, tile), tile->count, of(d->codec)->width,
                                    codes);
}

/* True if the bits after the last code are 0 and no code is above 2 s. */
static bool sound_qsgd(const nw_decoding *d, int index)
{
    const levels_codec *q = of(d->codec);
    const nw_tile *tile = &d->block->tiles[index];
    const uint8_t *end = d->in + nw_dense_values_at(d->block, tile) + qsgd_bytes(d->codec, tile->count);
    unsigned left = (unsigned)(tile->count % PACKED * q->width % 8);
    uint16_t codes[NW_TILE_FLOATS + MORE];
    if (left > 0 && end[-1] >> left != 0) return false;
    unpack_tile(d, tile, codes);
    return nw_codec_kernels_best()->most_code(codes, tile->count) <= 2 * (uint32_t)q->levels;
}

static void decode_qsgd(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_tile *tile = &d->block->tiles[index];
    uint16_t codes[NW_TILE_FLOATS + MORE];
    unpack_tile(d, tile, codes);
    level_values(of(d->codec), tile, d->in + nw_dense_scales_at(tile), codes, out, add);
}

/* ---- terngrad ---------------------------------------------------------------------------------------------------- */

static void emit_terngrad(nw_encoding *e, int index, nw_seen *seen)
{
    const nw_codec_kernels *k = nw_codec_kernels_best();
    const nw_tile *tile = &e->block->tiles[index];
    float scale = e->scratch->scales[tile->item];
    uint8_t trits[NW_TILE_FLOATS + MORE];
    nw_drawn drawn;
    k->trits(nw_encoding_floats(e, tile), nw_dense_draw(e, tile, &drawn), tile->count, inverse_of(of(e->codec), scale),
             trits);
    memset(trits + tile->count, 1, TRITS);
    k->trit_pack(trits, terngrad_bytes(e->codec, tile->count), e->out[tile->cut] + nw_dense_values_at(e->block, tile));
    if (seen) k->trit_values(trits, tile->count, scale, seen->values, false);
}

static void close_terngrad(nw_encoding *e, int cut) { nw_dense_close(e, cut, 0); }
static nw_status check_terngrad(const nw_decoding *d) { return nw_dense_check(d, 0); }

/* True if each byte is a sum of five weighted trits, and the missing trits are 1. */
static bool sound_terngrad(const nw_decoding *d, int index)
{
    const nw_codec_kernels *k = nw_codec_kernels_best();
    const nw_tile *tile = &d->block->tiles[index];
    size_t count = terngrad_bytes(d->codec, tile->count);
    const uint8_t *in = d->in + nw_dense_values_at(d->block, tile);
    if (!k->bytes_within(in, count, 0, TRIT_BYTE_MOST)) return false;
    for (size_t i = tile->count; i < TRITS * count; i++) {
        unsigned power = 1;
        for (size_t j = i / count; j > 0; j--) power *= 3;
        if (in[i % count] / power % 3 != 1) return false;
    }
    return true;
}

static void decode_terngrad(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_codec_kernels *k = nw_codec_kernels_best();
    const nw_tile *tile = &d->block->tiles[index];
    uint8_t trits[NW_TILE_FLOATS + MORE];
    k->trit_unpack(d->in + nw_dense_values_at(d->block, tile), terngrad_bytes(d->codec, tile->count), trits);
    k->trit_values(trits, tile->count, nw_get_f32(d->in + nw_dense_scales_at(tile)), out, add);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

const nw_codec_ops nw_codec_qsgd = {
    .name = "qsgd",
    .summary = "levels of a norm, by unbiased stochastic rounding: 9 bits a float with 255 levels",
    .id = NW_CODEC_PACKED,
    .family = NW_FAMILY_LEVELS,
    .size = sizeof(levels_codec),
    .init = init_qsgd,
    .delta = delta_qsgd,
    .tile_bytes = qsgd_bytes,
    .look = look,
    .settle = settle,
    .bytes = nw_dense_bytes,
    .emit = emit_qsgd,
    .close = close_qsgd,
    .check = check_qsgd,
    .sound = sound_qsgd,
    .decode = decode_qsgd,
};
static const nw_codec_ops by_buckets = {
    .name = "qsgd",
    .summary = "as above, with a norm for each bucket",
    .id = NW_CODEC_PACKED,
    .family = NW_FAMILY_LEVELS,
    .size = sizeof(levels_codec),
    .init = init_qsgd,
    .delta = delta_qsgd,
    .tile_bytes = qsgd_bytes,
    .tile_scales = bucket_count,
    .bytes = nw_dense_bytes,
    .emit = emit_qsgd,
    .close = close_qsgd,
    .check = check_qsgd,
    .sound = sound_qsgd,
    .decode = decode_qsgd,
};
const nw_codec_ops nw_codec_terngrad = {
    .name = "terngrad",
    .summary = "-1, 0 or 1 times the largest, by unbiased stochastic rounding: 1.6 bits a float",
    .id = NW_CODEC_PACKED,
    .family = NW_FAMILY_TERNARY,
    .size = sizeof(levels_codec),
    .init = init_terngrad,
    .delta = delta_terngrad,
    .tile_bytes = terngrad_bytes,
    .look = look,
    .settle = settle,
    .bytes = nw_dense_bytes,
    .emit = emit_terngrad,
    .close = close_terngrad,
    .check = check_terngrad,
    .sound = sound_terngrad,
    .decode = decode_terngrad,
};
