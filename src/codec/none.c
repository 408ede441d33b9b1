/*
 * none.c - the codec none, which sends floats unchanged: four bytes a float, little-endian, in order.
 *
 * The payload is 4 * count bytes, all of which are values.
 */
#include "codec/run.h"

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

static double delta(const nw_codec *codec, size_t n)
{
    (void)codec;
    (void)n;
    return 1;
}

static size_t bytes(const nw_encoding *e, int cut) { return WIDTH * e->block->cut_floats[cut]; }

static void emit(nw_encoding *e, int index, nw_seen *seen)
{
    const nw_tile *tile = &e->block->tiles[index];
    const float *in = nw_encoding_floats(e, tile);
    memcpy(e->out[tile->cut] + (size_t)WIDTH * tile->place, in, (size_t)WIDTH * tile->count);
    if (seen) memcpy(seen->values, in, (size_t)WIDTH * tile->count);
}

static nw_status check(const nw_decoding *d) { return nw_codec_check_bytes(d, WIDTH); }

static void decode(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_tile *tile = &d->block->tiles[index];
    const uint8_t *in = d->in + (size_t)WIDTH * tile->place;
    size_t i = 0;
    if (!add) {
        memcpy(out, in, (size_t)WIDTH * tile->count);
        return;
    }
    for (; i + BLOCK <= tile->count; i += BLOCK) *(vf_any *)(out + i) += *(const vf_bytes *)(in + WIDTH * i);
    for (; i < tile->count; i++) {
        float x;
        memcpy(&x, in + WIDTH * i, WIDTH);
        out[i] += x;
    }
}

const nw_codec_ops nw_codec_none = {
    .name = "none",
    .summary = "4 bytes a float: nothing is lost",
    .id = NW_CODEC_NONE,
    .family = NW_FAMILY_F32,
    .size = sizeof(nw_codec),
    .init = init,
    .bytes = bytes,
    .delta = delta,
    .emit = emit,
    .check = check,
    .decode = decode,
};

const nw_codec nw_codec_plain = {.ops = &nw_codec_none, .options = {.name = "none"}, .exact = true};
