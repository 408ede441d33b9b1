/*
 * half.c - the codecs fp16 and bf16: two bytes a float, little-endian, in order. half_convert.h says how they round.
 *
 * The payload is 2 * count bytes, all of them values.
 */
#include "codec/half_convert.h"
#include "codec/run.h"

enum { WIDTH = 2 };

typedef struct half_codec {
    nw_codec codec;
    const nw_half_loops *loops; /* of the best instruction set */
} half_codec;

static const nw_half_loops *loops_of(const nw_codec *codec) { return ((const half_codec *)codec)->loops; }

static nw_status init_fp16(nw_codec *codec)
{
    ((half_codec *)codec)->loops = &nw_half_set_best()->f16;
    return NW_OK;
}
static nw_status init_bf16(nw_codec *codec)
{
    ((half_codec *)codec)->loops = &nw_half_set_best()->bf16;
    return NW_OK;
}

/* In its range; numbers below it are lost whole. */
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
    .size = sizeof(half_codec),
    .init = init_fp16,
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
    .size = sizeof(half_codec),
    .init = init_bf16,
    .bytes = bytes,
    .delta = delta,
    .emit = emit,
    .check = check,
    .decode = decode,
};
