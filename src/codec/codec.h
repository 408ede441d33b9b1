/*
 * codec.h - what travels: a range of floats into bytes, and bytes into a range of floats.
 *
 *   name   bytes per float   what is lost
 *   none   4                 nothing
 *   fp16   2                 IEEE binary16, rounded to nearest even; finite numbers saturate at 65504
 *   bf16   2                 the upper half of the float, rounded to nearest even
 *
 * Infinities and NaNs stay what they are in all of them, so that a receiver's alarms see what went wrong elsewhere.
 *
 * Exchanges know codecs only through this interface: how many bytes at most, encode, add what bytes stand for to a
 * range, or put it there. A codec that draws random numbers takes them from `key` alone, so that the same range of the
 * same step gives the same bytes wherever and whenever it is encoded. Codecs have no state: what is not delivered is
 * kept by memories around them (nw_memory, with the codecs that lose something on purpose).
 *
 * encode and decode are deterministic, whatever the instruction set: all sets round alike.
 *
 * Bytes that come from elsewhere are not trusted: decoding checks them against `count` before it writes anything, and
 * fails with NW_E_MESSAGE. Bytes may lie at any address; a range and its bytes must not overlap. `key` may be NULL for
 * codecs that draw nothing.
 *
 * Threads: a codec may be used from several threads at once on different ranges.
 */
#ifndef NW_CODEC_CODEC_H
#define NW_CODEC_CODEC_H

#include "base/status.h"

typedef struct nw_codec nw_codec;

/* In headers, and for ever: ids are never given twice. */
typedef enum nw_codec_id { NW_CODEC_NONE = 1, NW_CODEC_FP16 = 2, NW_CODEC_BF16 = 3 } nw_codec_id;

typedef struct nw_codec_options {
    const char *name;
    uint64_t seed;
} nw_codec_options;

/* What random numbers are drawn from, with the codec's seed. */
typedef struct nw_codec_key {
    uint64_t step;
    uint32_t segment, part, rank;
} nw_codec_key;

/* What became of a range; values are the rest of the bytes. */
typedef struct nw_encoded {
    size_t bytes, index_bytes, scale_bytes;
} nw_encoded;

typedef struct nw_codec_ops {
    const char *name, *summary;
    nw_codec_id id;
    size_t size;                                          /* of its own struct */
    size_t width;                                         /* bytes of each float, if each stands alone; else 0 */
    nw_status (*init)(nw_codec *codec);                   /* fills it, beyond ops and options: zeros so far */
    size_t (*bound)(const nw_codec *codec, size_t count); /* bytes that `count` floats take at most */
    nw_status (*encode)(const nw_codec *codec, const nw_codec_key *key, const float *in, size_t count, void *out,
                        nw_encoded *encoded);
    /* out = decoded; sum += decoded, elementwise in f32 */
    nw_status (*decode)(const nw_codec *codec, const nw_codec_key *key, const void *in, size_t bytes, float *out,
                        size_t count);
    nw_status (*decode_add)(const nw_codec *codec, const nw_codec_key *key, const void *in, size_t bytes, float *sum,
                            size_t count);
} nw_codec_ops;

/* The first member of every codec's own struct. */
struct nw_codec {
    const nw_codec_ops *ops;
    nw_codec_options options;
    bool exact; /* decode(encode(x)) is x, bit for bit */
};

/* NW_E_UNKNOWN names the nearest. The options are copied; their name becomes the registry's own. */
nw_status nw_codec_create(nw_codec **codec, const nw_codec_options *options);
void nw_codec_free(nw_codec *codec);
int nw_codec_count(void);
const nw_codec_ops *nw_codec_at(int index); /* for help */

/* For decode and decode_add: whether `bytes` are exactly `count` values of `width` bytes. Cannot overflow. */
nw_status nw_codec_check_bytes(const nw_codec *codec, size_t bytes, size_t count, size_t width);

#endif
