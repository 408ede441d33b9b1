/*
 * natural.c - the codec natural: each float becomes a power of two, by unbiased stochastic rounding (natural
 * compression, Horvath et al. 2019).
 *
 * A byte is sign << 7 | c; its magnitude is 0 for c = 0, else 2^(c - 109), that is 2^-108 to 2^18. Smaller magnitudes
 * become 0, larger ones 2^18. r is a random number of 16 bits: adding r << 7 to the bits of a magnitude carries into
 * the exponent with a probability equal to its fraction, which is the rounding:
 *   f = (bits + (r << 7)) >> 23; c = 0 if f < 19, else min(f, 145) - 18
 * Family EXPONENT; no scales.
 */
#include "codec/dense.h"

static nw_status init(nw_codec *codec)
{
    (void)codec;
    return NW_OK;
}

/* The variance of an element x between 1 and 2 is (x - 1) (2 - x), at most x^2 / 8. For magnitudes in the format's
 * range. */
static double delta(const nw_codec *codec, size_t n)
{
    (void)codec;
    (void)n;
    return 1 - 1.0 / 8;
}

static size_t tile_bytes(const nw_codec *codec, size_t count)
{
    (void)codec;
    return count;
}
static size_t tile_scales(const nw_codec *codec, size_t count)
{
    (void)codec;
    (void)count;
    return 0;
}

static void emit(nw_encoding *e, int index, nw_seen *seen)
{
    const nw_codec_kernels *k = nw_codec_kernels_best();
    const nw_tile *tile = &e->block->tiles[index];
    const float *v = nw_encoding_floats(e, tile);
    uint8_t *out = e->out[tile->cut] + nw_dense_values_at(e->block, tile);
    nw_drawn drawn;
    e->partial[index].largest = k->largest(v, tile->count);
    k->exponents(v, nw_dense_draw(e, tile, &drawn), tile->count, out);
    if (seen) k->exponent_values(out, tile->count, seen->values, false);
}

static void close(nw_encoding *e, int cut) { nw_dense_close(e, cut, 0); }
static nw_status check(const nw_decoding *d) { return nw_dense_check(d, 0); }

static void decode(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_tile *tile = &d->block->tiles[index];
    nw_codec_kernels_best()->exponent_values(d->in + nw_dense_values_at(d->block, tile), tile->count, out, add);
}

const nw_codec_ops nw_codec_natural = {
    .name = "natural",
    .summary = "powers of two, by unbiased stochastic rounding: 8 bits a float",
    .id = NW_CODEC_PACKED,
    .family = NW_FAMILY_EXPONENT,
    .size = sizeof(nw_codec),
    .init = init,
    .delta = delta,
    .tile_bytes = tile_bytes,
    .tile_scales = tile_scales,
    .bytes = nw_dense_bytes,
    .emit = emit,
    .close = close,
    .check = check,
    .decode = decode,
};
