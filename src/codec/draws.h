/*
 * draws.h - the random numbers of codecs: 16 bits for each element, from (seed, channel, step, item, member).
 *
 * With u = (r + 1/2) / 65536, stochastic rounding is unbiased to 2^-17 of a level, which is the precision of f32 at 255
 * levels; 32 bits for each element would take twice the time. The stream is nw_rng_make(seed, 64 + channel, step | item
 * << 40, member + 1), with 0 instead of member + 1 where all members share it. Element i of the *item* takes half-word
 * (i / 16) % 8 (the low half of a word first) of Philox block 16 (i / 128) + i % 16, so that 16 lanes need no shuffles.
 *
 *   seed 1, channel 3, step 5, item 2, member 0, elements 0 1 2 3 16 32 128: 62826 2594 713 27621 44509 45620 54859
 */
#ifndef NW_CODEC_DRAWS_H
#define NW_CODEC_DRAWS_H

#include "base/rng.h"
#include "codec/codec.h"

enum { NW_DRAWS_PURPOSE = 64, NW_DRAWS_GROUP = 128 };

/* Counter and key of an item's stream; counter[0] is the number of the Philox block. */
static inline nw_rng nw_draws_stream(const nw_codec *codec, const nw_codec_key *key, uint32_t item, bool shared)
{
    return nw_rng_make(codec->options.seed, (nw_purpose)(NW_DRAWS_PURPOSE + key->channel),
                       key->step | (uint64_t)item << 40, shared ? 0 : key->member + 1);
}

/* One number, computed plainly; for tests. */
static inline uint16_t nw_draw(const nw_rng *stream, uint32_t element)
{
    uint32_t counter[4] = {16 * (element / 128) + element % 16, stream->counter[1], stream->counter[2],
                           stream->counter[3]};
    uint32_t out[4], half = element / 16 % 8;
    nw_philox(counter, stream->key, out);
    return (uint16_t)(out[half / 2] >> 16 * (half % 2));
}

#endif
