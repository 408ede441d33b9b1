/*
 * half.c - the codecs fp16 and bf16: two bytes a float, little-endian, in order. kernels.h says how they round.
 *
 * The payload is 2 * count bytes, all of which are values.
 */
#include "codec/kernels.h"
#include "codec/run.h"

enum { WIDTH = 2 };

static const nw_half_loops *loops_of(const nw_codec *codec)
{
    const nw_codec_kernels *k = nw_codec_kernels_best();
    return codec->ops->family == NW_FAMILY_FP16 ? &k->f16 : &k->bf16;
}

static nw_status init(nw_codec *codec)
{
    (void)codec;
    return NW_OK;
}

/* For numbers in the range of the format; smaller ones are lost completely. */
static double delta(const nw_codec *codec, size_t n)
{
    (void)n;
    return codec->ops->family == NW_FAMILY_FP16 ? 1 - 0x1p-22 : 1 - 0x1p-18;
}

static size_t bytes(const nw_encoding *e, int cut) { return WIDTH * e->block->cut_floats[cut]; }

static void emit(nw_encoding *e, int index, nw_seen *seen)
{
    const nw_tile *tile = &e->block->tiles[index];
    uint8_t *out = e->out[tile->cut] + (size_t)WIDTH * tile->place;
    loops_of(e->codec)->encode(nw_encoding_floats(e, tile), tile->count, out);
    if (seen) loops_of(e->codec)->decode(out, tile->count, seen->values);
}

static nw_status check(const nw_decoding *d) { return nw_codec_check_bytes(d, WIDTH); }

static void decode(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_tile *tile = &d->block->tiles[index];
    const uint8_t *in = d->in + (size_t)WIDTH * tile->place;
    if (add)
        loops_of(d->codec)->add(in, tile->count, out);
    else
        loops_of(d->codec)->decode(in, tile->count, out);
}

const nw_codec_ops nw_codec_fp16 = {
    .name = "fp16",
    .summary = "2 bytes a float: IEEE binary16, up to 65504",
    .id = NW_CODEC_FP16,
    .family = NW_FAMILY_FP16,
    .size = sizeof(nw_codec),
    .init = init,
    .bytes = bytes,
    .delta = delta,
    .emit = emit,
    .check = check,
    .decode = decode,
};
const nw_codec_ops nw_codec_bf16 = {
    .name = "bf16",
    .summary = "2 bytes a float: its upper half, all of its range",
    .id = NW_CODEC_BF16,
    .family = NW_FAMILY_BF16,
    .size = sizeof(nw_codec),
    .init = init,
    .bytes = bytes,
    .delta = delta,
    .emit = emit,
    .check = check,
    .decode = decode,
};
