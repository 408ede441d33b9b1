/*
 * int8.c - the codec int8: each float is rounded to the nearest of 255 evenly spaced values between -M and M, where M
 * is the largest magnitude of its group of 256.
 *
 * code = rint(v (127 / M)), value = code (M / 127), in f32. The groups are 256 consecutive elements of a tile; its last
 * group may be shorter. Family BYTES, parameter 8; the scale of a group is M; a code is one byte, -128 is not used.
 */
#include "codec/dense.h"

enum { BLOCK = 256, LOG2_BLOCK = 8, CODE_MOST = 127, NOT_A_CODE = 0x80 };

static nw_status init(nw_codec *codec)
{
    (void)codec;
    return NW_OK;
}

/* The error of each of d elements is at most half a step, M / 254, and |v|^2 is at least M^2. */
static double delta(const nw_codec *codec, size_t n)
{
    (void)codec;
    return 1 - (double)(n < BLOCK ? n : BLOCK) / (4.0 * CODE_MOST * CODE_MOST);
}

static size_t tile_bytes(const nw_codec *codec, size_t count)
{
    (void)codec;
    return count;
}
static size_t tile_scales(const nw_codec *codec, size_t count)
{
    (void)codec;
    return (count + BLOCK - 1) / BLOCK;
}

/* A tile's codes and scales as floats. */
static void byte_values(const nw_tile *tile, const uint8_t *scales, const uint8_t *in, float *out, bool add)
{
    for (size_t i = 0; i < tile->count; i += BLOCK, scales += sizeof(float)) {
        size_t count = tile->count - i < BLOCK ? tile->count - i : BLOCK;
        nw_codec_kernels_best()->byte_values(in + i, count, nw_get_f32(scales) / CODE_MOST, out + i, add);
    }
}

static void emit(nw_encoding *e, int index, nw_seen *seen)
{
    const nw_codec_kernels *k = nw_codec_kernels_best();
    const nw_tile *tile = &e->block->tiles[index];
    const float *v = nw_encoding_floats(e, tile);
    uint8_t *scales = e->out[tile->cut] + nw_dense_scales_at(tile);
    uint8_t *out = e->out[tile->cut] + nw_dense_values_at(e->block, tile);
    nw_partial *p = &e->partial[index];
    p->largest = 0;
    for (size_t i = 0; i < tile->count; i += BLOCK) {
        size_t count = tile->count - i < BLOCK ? tile->count - i : BLOCK;
        uint32_t largest = k->largest(v + i, count);
        float scale = nw_dense_scale((double)nw_float_of(largest));
        if (largest > p->largest) p->largest = largest;
        nw_put_f32(scales + i / BLOCK * sizeof(float), scale);
        k->bytes(v + i, count, scale > 0 ? CODE_MOST / scale : 0, out + i);
    }
    if (seen) byte_values(tile, scales, out, seen->values, false);
}

static void close(nw_encoding *e, int cut) { nw_dense_close(e, cut, LOG2_BLOCK); }
static nw_status check(const nw_decoding *d) { return nw_dense_check(d, LOG2_BLOCK); }

static bool sound(const nw_decoding *d, int index)
{
    const nw_tile *tile = &d->block->tiles[index];
    const uint8_t *in = d->in + nw_dense_values_at(d->block, tile);
    return nw_codec_kernels_best()->bytes_within(in, tile->count, 0xff ^ NOT_A_CODE, 0xfe);
}

static void decode(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_tile *tile = &d->block->tiles[index];
    byte_values(tile, d->in + nw_dense_scales_at(tile), d->in + nw_dense_values_at(d->block, tile), out, add);
}

const nw_codec_ops nw_codec_int8 = {
    .name = "int8",
    .summary = "8 bits, scaled by the largest of every 256: 8.1 bits a float",
    .id = NW_CODEC_PACKED,
    .family = NW_FAMILY_BYTES,
    .size = sizeof(nw_codec),
    .init = init,
    .delta = delta,
    .tile_bytes = tile_bytes,
    .tile_scales = tile_scales,
    .bytes = nw_dense_bytes,
    .emit = emit,
    .close = close,
    .check = check,
    .sound = sound,
    .decode = decode,
};
