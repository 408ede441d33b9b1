/*
 * sign.c - the codec sign: the sign of each float, times the mean magnitude of its group (scaled sign, EF-signSGD;
 * Karimireddy et al. 2019).
 *
 * value = sign(v) mean |v|, the mean over groups of 1,024 elements of a tile, of which the last may be shorter. Family
 * SIGN, parameter 10; the scale of a group is its mean, summed in double. Bit j of a tile's ceil(count / 8) bytes is
 * the sign bit of element j; the bits after the last are 0. A zero also becomes plus or minus the mean; the error
 * memory corrects that.
 */
#include "codec/dense.h"

#include <math.h>

enum { BLOCK = 1024, LOG2_BLOCK = 10 };

static nw_status init(nw_codec *codec)
{
    (void)codec;
    return NW_OK;
}

/* |v - decoded|^2 = |v|^2 - (sum |v|)^2 / d for d elements; it is largest if only one element is not 0. */
static double delta(const nw_codec *codec, size_t n)
{
    (void)codec;
    return 1.0 / (double)(n < BLOCK ? n : BLOCK);
}

static size_t tile_bytes(const nw_codec *codec, size_t count)
{
    (void)codec;
    return (count + 7) / 8;
}
static size_t tile_scales(const nw_codec *codec, size_t count)
{
    (void)codec;
    return (count + BLOCK - 1) / BLOCK;
}

/* A tile's bits and scales as floats. */
static void sign_values(const nw_tile *tile, const uint8_t *scales, const uint8_t *in, float *out, bool add)
{
    for (size_t i = 0; i < tile->count; i += BLOCK, scales += sizeof(float)) {
        size_t count = tile->count - i < BLOCK ? tile->count - i : BLOCK;
        nw_codec_kernels_best()->sign_values(in + i / 8, count, nw_get_f32(scales), out + i, add);
    }
}

static void emit(nw_encoding *e, int index, nw_seen *seen)
{
    const nw_codec_kernels *k = nw_codec_kernels_best();
    const nw_tile *tile = &e->block->tiles[index];
    const float *v = nw_encoding_floats(e, tile);
    uint8_t *scales = e->out[tile->cut] + nw_dense_scales_at(tile);
    uint8_t *out = e->out[tile->cut] + nw_dense_values_at(e->block, tile);
    double all = 0;
    for (size_t i = 0; i < tile->count; i += BLOCK) {
        size_t count = tile->count - i < BLOCK ? tile->count - i : BLOCK;
        double sum = k->magnitudes(v + i, count);
        nw_put_f32(scales + i / BLOCK * sizeof(float), nw_dense_scale(sum / (double)count));
        all += sum;
    }
    e->partial[index].largest = nw_dense_largest_of_sum(all);
    k->signs(v, tile->count, out);
    if (seen) sign_values(tile, scales, out, seen->values, false);
}

static void close(nw_encoding *e, int cut) { nw_dense_close(e, cut, LOG2_BLOCK); }
static nw_status check(const nw_decoding *d) { return nw_dense_check(d, LOG2_BLOCK); }

static bool sound(const nw_decoding *d, int index)
{
    const nw_tile *tile = &d->block->tiles[index];
    const uint8_t *in = d->in + nw_dense_values_at(d->block, tile);
    return tile->count % 8 == 0 || in[tile->count / 8] >> tile->count % 8 == 0;
}

static void decode(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_tile *tile = &d->block->tiles[index];
    sign_values(tile, d->in + nw_dense_scales_at(tile), d->in + nw_dense_values_at(d->block, tile), out, add);
}

const nw_codec_ops nw_codec_sign = {
    .name = "sign",
    .summary = "signs, and the mean magnitude of every 1,024: 1.03 bits a float",
    .id = NW_CODEC_PACKED,
    .family = NW_FAMILY_SIGN,
    .size = sizeof(nw_codec),
    .init = init,
    .delta = delta,
    .bytes = nw_dense_bytes,
    .tile_bytes = tile_bytes,
    .tile_scales = tile_scales,
    .emit = emit,
    .close = close,
    .check = check,
    .sound = sound,
    .decode = decode,
};
