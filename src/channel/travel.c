/* travel.c - see travel.h. */
#include "channel/travel.h"

#include "codec/packed.h"

#include <math.h>
#include <string.h>

/* log2 of n choose k */
static double choose_bits(double n, double k) { return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2.0); }

int nw_travel_index(const nw_codec *codec)
{
    int most = nw_codec_kinds() < NW_TRAVEL_CODECS ? nw_codec_kinds() : NW_TRAVEL_CODECS;
    for (int i = 0; i < most; i++)
        if (strcmp(nw_codec_at(i)->name, codec->ops->name) == 0) return i;
    return NW_TRAVEL_CODECS - 1; /* of tests */
}

static nw_travel_codec *counts(nw_travel *t, const nw_codec *codec) { return &t->of[nw_travel_index(codec)]; }

static void add_entries(nw_travel_codec *t, const nw_codec *codec, const uint8_t *payload)
{
    nw_packed h = nw_packed_read(payload);
    nw_values values = codec->options.values;
    int64_t value = values == NW_VALUES_FP16 || values == NW_VALUES_BF16 ? 2 : 4;
    t->entries += h.entries;
    t->listed32 += h.entries * (value + 4);
    t->listed64 += h.entries * (value + 8);
    t->bound_bits += choose_bits((double)h.coordinates, (double)h.entries);
}

void nw_travel_add(nw_travel *travel, const nw_codec *codec, size_t floats, const uint8_t *payload, nw_encoded encoded)
{
    if (!travel) return;
    nw_travel_codec *t = counts(travel, codec);
    bool sparse = codec->ops->id == NW_CODEC_PACKED && codec->ops->family == NW_FAMILY_SPARSE;
    t->payloads++;
    t->floats += (int64_t)floats;
    t->bytes += (int64_t)encoded.bytes;
    t->index_bytes += (int64_t)encoded.index_bytes;
    t->scale_bytes += (int64_t)encoded.scale_bytes;
    if (sparse && encoded.bytes >= NW_PACKED_HEADER) add_entries(t, codec, payload);
}

void nw_travel_add_round(nw_travel *travel, const nw_codec *codec, size_t floats, size_t bytes)
{
    if (!travel) return;
    nw_travel_codec *t = counts(travel, codec);
    t->payloads++;
    t->floats += (int64_t)floats;
    t->bytes += (int64_t)bytes;
}

void nw_travel_add_time(nw_travel *travel, const nw_codec *codec, nw_travel_time what, int64_t ns)
{
    if (!travel) return;
    nw_travel_codec *t = counts(travel, codec);
    *(what == NW_TRAVEL_ENCODES ? &t->encode_ns : &t->decode_ns) += ns;
}

void nw_travel_merge(nw_travel_codec *to, const nw_travel_codec *from)
{
    to->encode_ns += from->encode_ns;
    to->decode_ns += from->decode_ns;
    to->payloads += from->payloads;
    to->floats += from->floats;
    to->bytes += from->bytes;
    to->index_bytes += from->index_bytes;
    to->scale_bytes += from->scale_bytes;
    to->entries += from->entries;
    to->listed32 += from->listed32;
    to->listed64 += from->listed64;
    to->bound_bits += from->bound_bits;
}

void nw_travel_read_memory(nw_travel *t)
{
    t->memory_square = t->rest ? t->rest(t->whose) : 0;
    for (size_t i = 0; t->memory && i < t->memory->floats; i++)
        t->memory_square += (double)t->memory->v[i] * (double)t->memory->v[i];
}

nw_travel_codec nw_travel_total(const nw_travel *travel, bool compressed)
{
    nw_travel_codec all = {0};
    for (int i = compressed; i < NW_TRAVEL_CODECS; i++) nw_travel_merge(&all, &travel->of[i]);
    return all;
}
