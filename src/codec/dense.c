/* dense.c - see dense.h. */
#include "codec/dense.h"

#include <string.h>

/* Bytes of values before padding. */
static size_t value_bytes(const nw_block *b, int cut)
{
    if (b->cut_floats[cut] == 0) return 0;
    const nw_tile *last = &b->tiles[b->cut_tile[cut + 1] - 1];
    return last->at + b->codec->ops->tile_bytes(b->codec, last->count);
}

size_t nw_dense_scale_count(const nw_block *b, int cut)
{
    const nw_codec_ops *ops = b->codec->ops;
    if (b->cut_floats[cut] == 0) return 0;
    const nw_tile *last = &b->tiles[b->cut_tile[cut + 1] - 1];
    return last->scale + (ops->tile_scales ? ops->tile_scales(b->codec, last->count) : 1);
}

static size_t block_bytes(const nw_block *b, int cut)
{
    return NW_PACKED_HEADER + sizeof(float) * nw_dense_scale_count(b, cut) + nw_pad4(value_bytes(b, cut));
}

size_t nw_dense_bytes(const nw_encoding *e, int cut) { return block_bytes(e->block, cut); }

void nw_dense_close(nw_encoding *e, int cut, uint8_t parameter)
{
    const nw_block *b = e->block;
    uint8_t *out = e->out[cut];
    size_t scales = nw_dense_scale_count(b, cut), values = value_bytes(b, cut), bytes = block_bytes(b, cut);
    uint32_t count = (uint32_t)b->cut_floats[cut];
    nw_packed_write(out, (nw_packed){.family = (uint8_t)e->codec->ops->family,
                                     .parameter = parameter,
                                     .coordinates = count,
                                     .entries = count,
                                     .bytes = (uint32_t)bytes});
    if (!e->codec->ops->tile_scales)
        memcpy(out + NW_PACKED_HEADER, e->scratch->scales + nw_cut_first_item(b, cut), sizeof(float) * scales);
    memset(out + NW_PACKED_HEADER + sizeof(float) * scales + values, 0, nw_pad4(values) - values);
    e->encoded[cut] = (nw_encoded){.bytes = bytes, .scale_bytes = sizeof(float) * scales};
}

nw_status nw_dense_check(const nw_decoding *d, uint8_t parameter)
{
    nw_packed h;
    size_t scales = nw_dense_scale_count(d->block, d->cut), values = value_bytes(d->block, d->cut);
    size_t bytes = block_bytes(d->block, d->cut);
    NW_TRY(nw_packed_check(d, 0, parameter, &h));
    NW_FAIL_IF(h.entries != h.coordinates || d->bytes != bytes, NW_E_MESSAGE,
               "a block of codec %s has %u entries of %u in %zu bytes, and should have all of them in %zu",
               d->codec->ops->name, h.entries, h.coordinates, d->bytes, bytes);
    NW_TRY(nw_packed_check_scales(d->in + NW_PACKED_HEADER, scales));
    return nw_packed_check_zeros(d->in + NW_PACKED_HEADER + sizeof(float) * scales + values, nw_pad4(values) - values);
}

const uint16_t *nw_dense_draw(const nw_encoding *e, const nw_tile *tile, nw_drawn *drawn)
{
    nw_rng stream = nw_draws_stream(e->codec, &e->key, e->block->number[tile->item], false);
    size_t before = tile->within % NW_DRAWS_GROUP;
    stream.counter[0] = tile->within / NW_DRAWS_GROUP * 16;
    nw_codec_kernels_best()->draws(stream.key, stream.counter,
                                   (before + tile->count + NW_DRAWS_GROUP - 1) / NW_DRAWS_GROUP, drawn->room);
    return drawn->room + before;
}
