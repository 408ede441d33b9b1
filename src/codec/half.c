/*
 * half.c - the codecs fp16 and bf16: two bytes a float, little-endian, in order. half_convert.h says how they round.
 *
 * The payload is 2 * count bytes, all of them values.
 */
#include "codec/codec.h"
#include "codec/half_convert.h"

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

static size_t bound(const nw_codec *codec, size_t count)
{
    (void)codec;
    return WIDTH * count;
}

static nw_status encode(const nw_codec *codec, const nw_codec_key *key, const float *in, size_t count, void *out,
                        nw_encoded *encoded)
{
    (void)key;
    loops_of(codec)->encode(in, count, out);
    *encoded = (nw_encoded){.bytes = WIDTH * count};
    return NW_OK;
}

static nw_status decode(const nw_codec *codec, const nw_codec_key *key, const void *in, size_t bytes, float *out,
                        size_t count)
{
    (void)key;
    NW_TRY(nw_codec_check_bytes(codec, bytes, count, WIDTH));
    loops_of(codec)->decode(in, count, out);
    return NW_OK;
}

static nw_status decode_add(const nw_codec *codec, const nw_codec_key *key, const void *in, size_t bytes, float *sum,
                            size_t count)
{
    (void)key;
    NW_TRY(nw_codec_check_bytes(codec, bytes, count, WIDTH));
    loops_of(codec)->add(in, count, sum);
    return NW_OK;
}

const nw_codec_ops nw_codec_fp16 = {
    .name = "fp16",
    .summary = "2 bytes a float: IEEE binary16, up to 65504",
    .id = NW_CODEC_FP16,
    .size = sizeof(half_codec),
    .width = WIDTH,
    .init = init_fp16,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
const nw_codec_ops nw_codec_bf16 = {
    .name = "bf16",
    .summary = "2 bytes a float: its upper half, all of its range",
    .id = NW_CODEC_BF16,
    .size = sizeof(half_codec),
    .width = WIDTH,
    .init = init_bf16,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
