/*
 * modulo.c - see modulo.h. Family RESIDUES, parameter q; the scale of an item is its step h. A tile has its check (u32),
 * then codes (k + 2^(q-1)) modulo 2^q, packed as those of family LEVELS.
 */
#include "codec/modulo.h"

#include "codec/dense.h"

#include <math.h>
#include <string.h>

enum { PACKED = 512, MORE = 16, CHECK = sizeof(uint32_t), EXPONENT_MOST = 100 /* of a step, and minus the least */ };

static unsigned bits_of(const nw_codec *codec) { return (unsigned)codec->options.bits; }
static int32_t half_of(const nw_codec *codec) { return 1 << (bits_of(codec) - 1); }

double nw_modulo_bound(const nw_codec *codec, float step) { return (double)step * (half_of(codec) - 1); }

float nw_modulo_step(const nw_codec *codec, double bound)
{
    int exponent;
    double fraction = frexp(bound / (half_of(codec) - 1), &exponent); /* in [1/2, 1), or 0 */
    if (fraction == 0.5) exponent--;
    if (!(fraction > 0) || exponent < -EXPONENT_MOST) exponent = -EXPONENT_MOST;
    return ldexpf(1, exponent < EXPONENT_MOST ? exponent : EXPONENT_MOST);
}

static nw_status init(nw_codec *codec)
{
    int bits = codec->options.bits;
    NW_FAIL_IF(bits < NW_MODULO_BITS_LEAST || bits > NW_MODULO_BITS_MOST, NW_E_ARGUMENT,
               "codec modulo sends %d to %d bits of each float, not %d: one bit cannot say who has more",
               NW_MODULO_BITS_LEAST, NW_MODULO_BITS_MOST, bits);
    return NW_OK;
}

/* Alone it keeps nothing of a float that is beyond its bound. */
static double delta(const nw_codec *codec, size_t n)
{
    (void)codec;
    (void)n;
    return 0;
}

static size_t code_bytes(const nw_codec *codec, size_t count)
{
    return (count - count % PACKED) / 8 * bits_of(codec) + (count % PACKED * bits_of(codec) + 7) / 8;
}
static size_t tile_bytes(const nw_codec *codec, size_t count) { return CHECK + code_bytes(codec, count); }

static void settle(nw_encoding *e, int item, nw_pool *pool)
{
    (void)pool;
    e->scratch->scales[item] = e->steps ? e->steps[item] : nw_modulo_step(e->codec, 1);
}

static void emit(nw_encoding *e, int index, nw_seen *seen)
{
    const nw_codec_kernels *k = nw_codec_kernels_best();
    const nw_tile *tile = &e->block->tiles[index];
    const float *v = nw_encoding_floats(e, tile);
    float step = e->scratch->scales[tile->item];
    uint8_t *out = e->out[tile->cut] + nw_dense_values_at(e->block, tile);
    uint16_t codes[NW_TILE_FLOATS + MORE];
    nw_drawn drawn;
    e->partial[index].largest = k->largest(v, tile->count);
    if (e->partial[index].largest >= NW_INFINITE) return;
    const uint16_t *draw = nw_dense_draw(e, tile, &drawn);
    nw_put_u32(out, k->residues(v, draw, tile->count, 1 / step, half_of(e->codec), codes));
    k->pack(codes, tile->count, bits_of(e->codec), out + CHECK);
    if (seen) k->level_values(codes, tile->count, half_of(e->codec), step, seen->values, false);
}

static void close(nw_encoding *e, int cut) { nw_dense_close(e, cut, (uint8_t)bits_of(e->codec)); }

static float step_of(const nw_decoding *d, const nw_tile *tile) { return nw_get_f32(d->in + nw_dense_scales_at(tile)); }

static nw_status check(const nw_decoding *d)
{
    NW_TRY(nw_dense_check(d, (uint8_t)bits_of(d->codec)));
    for (int t = d->block->cut_tile[d->cut]; t < d->block->cut_tile[d->cut + 1]; t++) {
        float step = step_of(d, &d->block->tiles[t]);
        int exponent;
        NW_FAIL_IF(frexpf(step, &exponent) != 0.5f || exponent > EXPONENT_MOST + 1 || exponent < 1 - EXPONENT_MOST,
                   NW_E_MESSAGE,
                   "a block of codec modulo has a step of %g, which is no power of two between 2^-%d and 2^%d",
                   (double)step, EXPONENT_MOST, EXPONENT_MOST);
    }
    return NW_OK;
}

/* True if the bits after the last code are 0. */
static bool sound(const nw_decoding *d, int index)
{
    const nw_tile *tile = &d->block->tiles[index];
    unsigned left = (unsigned)(tile->count % PACKED * bits_of(d->codec) % 8);
    const uint8_t *end = d->in + nw_dense_values_at(d->block, tile) + tile_bytes(d->codec, tile->count);
    return left == 0 || end[-1] >> left == 0;
}

static uint32_t read_tile(const nw_decoding *d, const nw_tile *tile, uint16_t *codes)
{
    const uint8_t *in = d->in + nw_dense_values_at(d->block, tile);
    nw_codec_kernels_best()->unpack(in + CHECK, tile->count, bits_of(d->codec), codes);
    return nw_get_u32(in);
}

static void decode(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_tile *tile = &d->block->tiles[index];
    uint16_t codes[NW_TILE_FLOATS + MORE];
    read_tile(d, tile, codes);
    nw_codec_kernels_best()->level_values(codes, tile->count, half_of(d->codec), step_of(d, tile), out, add);
}

bool nw_modulo_apart(const nw_decoding *mine, const nw_decoding *theirs, int index, float *apart, float *most)
{
    const nw_tile *tile = &mine->block->tiles[index];
    int32_t half = half_of(mine->codec);
    float step = step_of(mine, tile);
    uint16_t own[NW_TILE_FLOATS + MORE], other[NW_TILE_FLOATS + MORE];
    uint32_t far, difference = read_tile(mine, tile, own) - read_tile(theirs, tile, other);
    uint32_t sum = nw_codec_kernels_best()->residues_apart(own, other, tile->count, half, step, apart, &far);
    *most = (float)far * step;
    return sum == difference && far < (uint32_t)half && step == step_of(theirs, tile);
}

const nw_codec_ops nw_codec_modulo = {
    .name = "modulo",
    .summary = "the last bits of each float, for a receiver that has nearly the same: 8 bits a float",
    .id = NW_CODEC_PACKED,
    .family = NW_FAMILY_RESIDUES,
    .size = sizeof(nw_codec),
    .init = init,
    .delta = delta,
    .tile_bytes = tile_bytes,
    .settle = settle,
    .bytes = nw_dense_bytes,
    .emit = emit,
    .close = close,
    .check = check,
    .sound = sound,
    .decode = decode,
};
