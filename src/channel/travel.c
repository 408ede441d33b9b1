/* travel.c - see travel.h. */
#include "channel/travel.h"

#include "codec/packed.h"

#include <math.h>

/* log2 of n choose k */
static double choose_bits(double n, double k) { return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2.0); }

void nw_travel_add(nw_travel *t, const nw_codec *codec, size_t floats, const uint8_t *payload, nw_encoded encoded)
{
    if (!t || codec->exact) return;
    t->floats += (int64_t)floats;
    t->bytes += (int64_t)encoded.bytes;
    t->index_bytes += (int64_t)encoded.index_bytes;
    bool sparse = codec->ops->id == NW_CODEC_PACKED && codec->ops->family == NW_FAMILY_SPARSE;
    if (!sparse || encoded.bytes < NW_PACKED_HEADER) return;
    nw_packed h = nw_packed_read(payload);
    t->entries += h.entries;
    t->bound_bits += choose_bits((double)h.coordinates, (double)h.entries);
}

void nw_travel_merge(nw_travel *to, const nw_travel *from)
{
    to->encode_ns += from->encode_ns;
    to->decode_ns += from->decode_ns;
    to->floats += from->floats;
    to->bytes += from->bytes;
    to->index_bytes += from->index_bytes;
    to->entries += from->entries;
    to->bound_bits += from->bound_bits;
    to->sent_floats += from->sent_floats;
    to->memory_square += from->memory_square;
}

void nw_travel_read_memory(nw_travel *t)
{
    t->memory_square = 0;
    for (size_t i = 0; t->memory && i < t->memory->floats; i++)
        t->memory_square += (double)t->memory->v[i] * (double)t->memory->v[i];
}
