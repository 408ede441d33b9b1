/*
 * Folder src/codec: what travels instead of floats: compressors, the memory of what they lost, and the blocks that they
 * work on. A codec sends nothing and knows no ranks; channels of src/exchange use it. May include: base.
 *
 * codec.h - what travels: lists of floats into bytes, and bytes into lists of floats.
 *
 *   name   bytes per float   what is lost
 *   none   4                 nothing
 *   fp16   2                 IEEE binary16, rounded to nearest even; finite numbers saturate at 65504
 *   bf16   2                 the upper half of the float, rounded to nearest even
 *
 * Infinities and NaNs stay what they are in all of them, so that a receiver's alarms see what went wrong elsewhere.
 *
 * A codec works on a block (block.h): items, each of which it looks at as a whole (the largest of its floats, a norm, a
 * threshold), cut between those who get it, in tiles that fit a cache. Encoding goes over the tiles once or twice:
 *
 *   look     a tile, if an item has to be seen whole before anything can be said of it
 *   settle   an item: now it is known how many bytes there are
 *   emit     a tile: its bytes, and what a receiver will see of it
 *   close    the bytes of a cut: what is left, such as a header
 *
 * run.h does these in their order on all threads. Bytes depend on the floats, the codec's options and the key alone:
 * not on threads, nor on the instruction set. What is not delivered is kept by a memory (memory.h), not by the codec.
 *
 * Some codecs add floats instead (nw_rounds): what members would send is the mean of short vectors over all of them, in
 * one round or more. Then nothing is cut or decoded: the last round's mean says what all of them get.
 *
 * Bytes that come from elsewhere are not trusted: `check` looks at all of them before a float is written.
 *
 * Threads: a codec is never written after it was made; look, emit and decode are called for several tiles at once.
 */
#ifndef NW_CODEC_CODEC_H
#define NW_CODEC_CODEC_H

#include "codec/block.h"

/* In headers, and for ever: ids are never given twice. */
typedef enum nw_codec_id { NW_CODEC_NONE = 1, NW_CODEC_FP16 = 2, NW_CODEC_BF16 = 3 } nw_codec_id;

typedef struct nw_codec_options {
    const char *name;
    uint64_t seed;
} nw_codec_options;

/* What random numbers and positions are drawn from, with the codec's seed and the item's number. */
typedef struct nw_codec_key {
    uint64_t step;
    uint32_t channel, member; /* of the sender */
} nw_codec_key;

/* What became of a cut; values are the rest of the bytes. */
typedef struct nw_encoded {
    size_t bytes, index_bytes, scale_bytes;
} nw_encoded;

/* What is known of a tile while its block is encoded; the codec's. */
typedef struct nw_partial {
    uint32_t entries; /* that are sent of it */
    uint32_t before;  /* of its cut, that come before them */
} nw_partial;

struct nw_memory;

/* One block in one step; filled by run.h. */
typedef struct nw_encoding {
    const nw_block *block;
    const nw_codec *codec;
    struct nw_memory *memory; /* NULL: none */
    nw_codec_key key;
    int64_t clock;       /* the batch that it belongs to, for what changes in the course of training */
    const float *vector; /* what is encoded, where there is no memory: its elements tile.first */
    float **kept;        /* by item: what rounds keep of it */
    nw_partial *partial; /* by tile */
    uint8_t **out;       /* by cut: where its bytes go; NULL: nobody gets them */
    nw_encoded *encoded; /* by cut */
} nw_encoding;

/* Bytes of one cut of a block, which were checked. */
typedef struct nw_decoding {
    const nw_block *block;
    const nw_codec *codec;
    nw_codec_key key;
    int cut;
    const uint8_t *in;
    size_t bytes;
} nw_decoding;

/* Of codecs that add floats. Each round has some for each item, of which the mean over all members is taken. */
typedef struct nw_rounds {
    int count;
    size_t (*floats)(const nw_block *block, int item, int round);
    size_t (*keeps)(const nw_block *block, int item); /* floats that are kept of an item, the same on all members */
    void (*start)(const nw_codec *codec, const nw_block *block, int item, float *kept);
    void (*give)(nw_encoding *e, int item, int round, float *out); /* what this member adds */
    /* The mean has come. After the last round: `target`, the item's elements as all get them (tile.first). */
    void (*turn)(nw_encoding *e, int item, int round, const float *mean, float *target);
} nw_rounds;

typedef struct nw_codec_ops {
    const char *name, *summary;
    nw_codec_id id;
    size_t size;                                    /* of its own struct */
    nw_status (*init)(nw_codec *codec);             /* fills it, beyond ops and options: zeros so far */
    void (*look)(nw_encoding *e, int tile);         /* NULL: not needed */
    void (*settle)(nw_encoding *e, int item);       /* NULL: not needed */
    size_t (*bytes)(const nw_encoding *e, int cut); /* that its message needs at most; after all items are settled */
    void (*emit)(nw_encoding *e, int tile, float *decoded); /* decoded: what receivers will see; NULL: nobody asks */
    void (*close)(nw_encoding *e, int cut);                 /* fills e->encoded; NULL: it has what `bytes` said */
    nw_status (*check)(const nw_decoding *d);               /* NW_E_MESSAGE */
    void (*decode)(const nw_decoding *d, int tile, float *out, bool add); /* out = decoded, or out += decoded, in f32 */
    const nw_rounds *rounds; /* instead of all from `look` on; NULL: bytes travel */
} nw_codec_ops;

/* The first member of every codec's own struct. */
struct nw_codec {
    const nw_codec_ops *ops;
    nw_codec_options options;
    bool exact; /* decoded is what was encoded, bit for bit */
};

/* NW_E_UNKNOWN names the nearest. The options are copied; their name becomes the registry's own. */
nw_status nw_codec_create(nw_codec **codec, const nw_codec_options *options);
void nw_codec_free(nw_codec *codec);
int nw_codec_count(void);
const nw_codec_ops *nw_codec_at(int index); /* for help */
/* The codec that changes nothing, always at hand. */
extern const nw_codec nw_codec_plain;

/* For `check`: whether the bytes are exactly `width` for each float of the cut. */
nw_status nw_codec_check_bytes(const nw_decoding *d, size_t width);

#endif
