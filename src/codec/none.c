/*
 * none.c - the codec that changes nothing: four bytes a float, little-endian, in order.
 *
 * The payload is 4 * count bytes, all of them values.
 */
#include "codec/codec.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats travel little-endian, as they lie in memory");

enum { WIDTH = 4, BLOCK = 8 };

typedef float vf_any __attribute__((vector_size(4 * BLOCK), aligned(4), may_alias));
typedef float vf_bytes __attribute__((vector_size(4 * BLOCK), aligned(1), may_alias));

static nw_status init(nw_codec *codec)
{
    codec->exact = true;
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
    (void)codec, (void)key;
    if (count) memcpy(out, in, WIDTH * count); /* a NULL range is an empty one */
    *encoded = (nw_encoded){.bytes = WIDTH * count};
    return NW_OK;
}

static nw_status decode(const nw_codec *codec, const nw_codec_key *key, const void *in, size_t bytes, float *out,
                        size_t count)
{
    (void)key;
    NW_TRY(nw_codec_check_bytes(codec, bytes, count, WIDTH));
    if (count) memcpy(out, in, bytes);
    return NW_OK;
}

static nw_status decode_add(const nw_codec *codec, const nw_codec_key *key, const void *in, size_t bytes, float *sum,
                            size_t count)
{
    (void)key;
    NW_TRY(nw_codec_check_bytes(codec, bytes, count, WIDTH));
    const uint8_t *from = in;
    size_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK) *(vf_any *)(sum + i) += *(const vf_bytes *)(from + WIDTH * i);
    for (; i < count; i++) {
        float x;
        memcpy(&x, from + WIDTH * i, WIDTH);
        sum[i] += x;
    }
    return NW_OK;
}

const nw_codec_ops nw_codec_none = {
    .name = "none",
    .summary = "4 bytes a float: nothing is lost",
    .id = NW_CODEC_NONE,
    .size = sizeof(nw_codec),
    .width = WIDTH,
    .init = init,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
