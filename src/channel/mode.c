/* mode.c - see mode.h. */
#include "channel/mode.h"

#include "codec/packed.h"

#include <string.h>

unsigned nw_ceil_log2(uint64_t n, uint64_t k)
{
    unsigned b = 0;
    while (b < 63 && k << b < n) b++;
    return b;
}

unsigned nw_value_bits(const nw_codec *codec)
{
    nw_values values = codec->options.values;
    return values > NW_VALUES_BITS                                ? (unsigned)values - NW_VALUES_BITS
           : values == NW_VALUES_FP16 || values == NW_VALUES_BF16 ? 16
                                                                  : 32;
}

nw_mode nw_mode_of(const nw_codec *codec, uint64_t n, uint64_t k, uint64_t members)
{
    nw_family family = codec->ops->family;
    if (codec->ops->rounds) return NW_MODE_SUMMED;
    if (codec->exact || family <= NW_FAMILY_BF16) return NW_MODE_OWNERS;
    if (members <= 2 || family == NW_FAMILY_CHOSEN) return NW_MODE_GATHER;
    if (family != NW_FAMILY_SPARSE) return NW_MODE_OWNERS;
    return members * k * (nw_value_bits(codec) + 2 + nw_ceil_log2(n, k)) <= 8 * n ? NW_MODE_GATHER : NW_MODE_OWNERS;
}

nw_mode nw_mode_choose(nw_collective wanted, const nw_codec *codec, uint64_t n, uint64_t k, uint64_t members)
{
    nw_mode own = nw_mode_of(codec, n, k, members);
    if (wanted == NW_COLLECTIVE_AUTO || own == NW_MODE_SUMMED || codec->exact) return own;
    if (wanted == NW_COLLECTIVE_GATHER) return NW_MODE_GATHER;
    return codec->ops->family == NW_FAMILY_CHOSEN ? NW_MODE_GATHER : NW_MODE_OWNERS;
}

uint64_t nw_mode_entries(const nw_codec *codec, uint64_t n)
{
    nw_family family = codec->ops->family;
    bool counted = strcmp(codec->ops->name, "topk") == 0 || strcmp(codec->ops->name, "randomk") == 0;
    if (counted) return nw_codec_count(codec, n, codec->options.ratio);
    return family == NW_FAMILY_SPARSE ? n / 100 + (n < 100) : n;
}

/* Bits for one float in a dense family, without scales. */
static uint64_t bits_of_family(const nw_codec *codec)
{
    switch (codec->ops->family) {
    case NW_FAMILY_FP16:
    case NW_FAMILY_BF16:
        return 16;
    case NW_FAMILY_LEVELS:
        return nw_ceil_log2(2 * (uint64_t)codec->options.levels + 1, 1);
    case NW_FAMILY_RESIDUES:
        return (uint64_t)codec->options.bits;
    case NW_FAMILY_SIGN:
        return 1;
    case NW_FAMILY_EXPONENT:
    case NW_FAMILY_BYTES:
        return 8;
    default:
        return 32;
    }
}

/* The number of scales in a message of n floats. */
static uint64_t scales_of(const nw_codec *codec, uint64_t n, uint64_t items)
{
    uint64_t shared = codec->ops->family == NW_FAMILY_SIGN    ? 1024
                      : codec->ops->family == NW_FAMILY_BYTES ? 256
                                                              : (uint64_t)codec->options.bucket;
    bool own = codec->ops->family == NW_FAMILY_TERNARY || codec->ops->family == NW_FAMILY_LEVELS ||
               codec->ops->family == NW_FAMILY_SIGN || codec->ops->family == NW_FAMILY_BYTES;
    if (codec->ops->family == NW_FAMILY_RESIDUES) return 2 * items + n / NW_TILE_FLOATS; /* and a check for each tile */
    return !own ? 0 : shared ? (n + shared - 1) / shared : items;
}

uint64_t nw_mode_bytes(const nw_codec *codec, uint64_t n, uint64_t k, uint64_t items)
{
    nw_family family = codec->ops->family;
    uint64_t header = codec->ops->id == NW_CODEC_PACKED && !codec->ops->rounds ? NW_PACKED_HEADER : 0;
    if (family == NW_FAMILY_SPARSE) return k * (nw_value_bits(codec) + 2 + nw_ceil_log2(n, k)) / 8 + k / 128 + 28;
    if (family == NW_FAMILY_CHOSEN) return header + nw_pad4((k * nw_value_bits(codec) + 7) / 8);
    if (family == NW_FAMILY_TERNARY) return header + nw_pad4((n + 4) / 5) + 4 * items;
    return header + nw_pad4((k * bits_of_family(codec) + 7) / 8) + 4 * scales_of(codec, n, items);
}

uint64_t nw_mode_sends(nw_mode mode, uint64_t bytes, uint64_t members)
{
    return mode == NW_MODE_GATHER ? (members - 1) * bytes : 2 * (members - 1) * bytes / members;
}

const char *nw_mode_name(nw_mode mode)
{
    static const char *const names[] = {"owners", "gather", "summed"};
    return names[mode];
}
