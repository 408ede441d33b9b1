/*
 * Folder src/codec: what travels instead of floats: compressors, the memory of what they lost, and the blocks that they
 * work on. A codec sends nothing and knows no ranks; src/channel uses it. May include: base.
 *
 * codec.h - what travels: lists of floats into bytes, and bytes into lists of floats.
 *
 * A codec works on a block (block.h): items, each of which it looks at as a whole (the largest of its floats, a norm, a
 * threshold), cut between those who get it, in tiles that fit a cache. Encoding goes over the tiles once or twice:
 *
 *   aim      an item, before anything else: a guess that saves work later, never one that changes the result
 *   look     a tile, if an item has to be seen whole before anything can be said of it
 *   settle   an item: now it is known how many bytes there are
 *   emit     a tile: its bytes, and what a receiver will see of it
 *   close    the bytes of a cut: what is left, such as a header
 *
 * run.h does these in their order on all threads. Bytes depend on the floats, the codec's options and the key alone:
 * not on threads, nor on the instruction set. What is not delivered is kept by a memory (memory.h), not by the codec.
 *
 * Families say how bytes are laid out (packed.h); several codecs may share one: top-k, thresholds and DGC differ in how
 * they choose, not in what travels. Messages of none, fp16 and bf16 are bare numbers; all others begin with a header.
 *
 * Some codecs add floats instead (nw_rounds): what members would send is the mean of short vectors over all of them, in
 * one round or more. Then nothing is cut or decoded: the last round's mean says what all of them get.
 *
 * Numbers that are not finite: none, fp16 and bf16 pass them on, so that a receiver's alarms see what went wrong
 * elsewhere. All others say where the first of them is, and nothing is sent. Zeros are no entries of sparse families.
 *
 * Bytes that come from elsewhere are not trusted: `check` looks at all of them before a float is written.
 *
 * Threads: a codec is never written after it was made; look, emit and decode are called for several tiles at once.
 */
#ifndef NW_CODEC_CODEC_H
#define NW_CODEC_CODEC_H

#include "base/pool.h"
#include "codec/block.h"

/* Of messages, in their headers, and for ever: ids are never given twice. */
typedef enum nw_codec_id { NW_CODEC_NONE = 1, NW_CODEC_FP16 = 2, NW_CODEC_BF16 = 3, NW_CODEC_PACKED = 32 } nw_codec_id;

/* Of blocks, in their headers, and for ever. */
typedef enum nw_family {
    NW_FAMILY_F32 = 1,
    NW_FAMILY_FP16 = 2,
    NW_FAMILY_BF16 = 3,
    NW_FAMILY_SPARSE = 4,   /* entries with their places */
    NW_FAMILY_CHOSEN = 5,   /* entries whose places follow from the key */
    NW_FAMILY_TERNARY = 6,  /* -1, 0, 1 and a scale */
    NW_FAMILY_LEVELS = 7,   /* whole numbers and scales */
    NW_FAMILY_SIGN = 8,     /* signs and scales */
    NW_FAMILY_EXPONENT = 9, /* powers of two */
    NW_FAMILY_BYTES = 10,   /* 8 bits and scales */
    NW_FAMILY_FACTORS = 11  /* two thin matrices; travels in rounds */
} nw_family;

/* How the values of entries travel; NW_VALUES_BITS + q: q bits, 2 to 8, between the least and the greatest of an item. */
typedef enum nw_values { NW_VALUES_F32 = 1, NW_VALUES_FP16 = 2, NW_VALUES_BF16 = 3, NW_VALUES_BITS = 16 } nw_values;

/* How top-k counts its entries: max(1, round(n ratio)); ceil(n ratio), as DGC; floor(n ratio) + 1, as published code. */
typedef enum nw_counting { NW_COUNT_ROUND, NW_COUNT_CEIL, NW_COUNT_FLOOR_PLUS_1 } nw_counting;

/* Ratios that fall in the first epochs of training, and are the codec's own afterwards (DGC's warm-up). */
enum { NW_WARM_UP_MOST = 64 };
typedef struct nw_warm_up {
    int epochs;      /* 0: none */
    int64_t batches; /* of an epoch */
    double factor;   /* 0: ratio^(1 / (epochs + 1)); epoch e has max(factor^(e + 1), ratio), unless ... */
    int listed;      /* ... so many epochs have ratios of their own, at least `epochs` */
    double list[NW_WARM_UP_MOST];
} nw_warm_up;

/* DGC's sampled selection (Lin et al. 2018), where it is asked for instead of the exact one. */
typedef struct nw_sampling {
    bool used, strided, resample;
    double ratio, upper, lower;
    int iterations;
} nw_sampling;

typedef struct nw_codec_options {
    const char *name;
    uint64_t seed;
    double ratio;         /* topk, randomk: share of an item that is sent, in (0, 1] */
    nw_counting counting; /* topk */
    nw_values values;     /* sparse families; 0: f32 */
    nw_warm_up warm_up;   /* topk */
    nw_sampling sampling; /* topk */
    double threshold;     /* thresholdv: least size that is sent */
    bool shared;          /* randomk: all members send the same places, so that means of values alone travel */
    bool scaled;          /* randomk: values times n / k, which makes it unbiased */
    int levels;           /* qsgd: 1 to 32767 */
    int bucket;           /* qsgd: elements that share a norm, 16 and more; 0: an item */
    bool max_norm;        /* qsgd: the largest of them instead of their Euclidean norm */
    int rank;             /* powersgd */
} nw_codec_options;
nw_codec_options nw_codec_options_default(const char *name);

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
    uint32_t largest; /* magnitude of its floats, as the bits of an f32 without the sign: ordered as the numbers are */
    uint32_t ties;    /* the codec's own */
    double sum;       /* of what the codec adds up */
} nw_partial;

/* What receivers will see of a tile. */
typedef struct nw_seen {
    int entries;                  /* -1: all elements, in order */
    uint16_t at[NW_TILE_FLOATS];  /* else: which of the tile's, ascending ... */
    float values[NW_TILE_FLOATS]; /* ... and what each becomes; all others are 0 */
} nw_seen;

/* Room that codecs work in, made for the largest of some blocks; contents do not outlive an encoding, or a decoding. */
typedef struct nw_scratch {
    uint64_t *bits;   /* by tile NW_TILE_WORDS: which of its elements are meant */
    uint32_t *list;   /* a quarter of a block's floats */
    float *scales;    /* by item, or as many as the codec's `scales` says */
    uint32_t *counts; /* a histogram for each thread: NW_SCRATCH_BINS */
    uint32_t *places; /* of entries that were read, in the cut; grows */
    uint32_t *starts; /* by tile of the cut, and one more: the first of them in it */
    size_t tiles, floats, scale_count, place_count;
    int threads;
} nw_scratch;
enum { NW_TILE_WORDS = NW_TILE_FLOATS / 64, NW_SCRATCH_BINS = 2048 };

struct nw_memory;

/* One block in one step; filled by run.h. */
typedef struct nw_encoding {
    const nw_block *block;
    const nw_codec *codec;
    struct nw_memory *memory; /* NULL: none */
    nw_codec_key key;
    double ratio;        /* of this step */
    float clip;          /* what the gradient is multiplied with first */
    const float *vector; /* what is encoded, where there is no memory: its elements tile.first */
    float **kept;        /* by item: what rounds keep of it */
    nw_partial *partial; /* by tile */
    nw_scratch *scratch;
    uint8_t **out;         /* by cut: where its bytes go; NULL: nobody gets them */
    nw_encoded *encoded;   /* by cut */
    const nw_tile *broken; /* where numbers that are not finite were found */
} nw_encoding;

/* Bytes of one cut of a block, which were checked. */
typedef struct nw_decoding {
    const nw_block *block;
    const nw_codec *codec;
    nw_codec_key key;
    int cut;
    const uint8_t *in;
    size_t bytes;
    nw_scratch *scratch;
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
    /* What the memory hears of a tile after the last round; NULL: the target. */
    void (*sent)(const nw_encoding *e, int tile, nw_seen *seen);
} nw_rounds;

typedef struct nw_codec_ops {
    const char *name, *summary;
    nw_codec_id id;
    nw_family family;
    size_t size;                        /* of its own struct */
    nw_status (*init)(nw_codec *codec); /* checks options; fills its struct, beyond ops and options: zeros so far */
    /* How much of n floats is sure to be delivered: E |v - decoded|^2 <= (1 - delta) |v|^2. Memories need delta > 0. */
    double (*delta)(const nw_codec *codec, size_t n);
    /* Whether tensors of so many rows and floats are for it; others are sent dense. NULL: all are. */
    bool (*gains)(const nw_codec *codec, size_t rows, size_t floats);
    size_t (*scales)(const nw_block *block); /* that scratch has room for; NULL: one an item */
    /* Dense families: bytes and scales of a tile of so many floats (nw_tile.at, .scale). No tile_scales: one an item. */
    size_t (*tile_bytes)(const nw_codec *codec, size_t count);
    size_t (*tile_scales)(const nw_codec *codec, size_t count);
    void (*aim)(nw_encoding *e, int item); /* NULL: not needed, as the next two */
    void (*look)(nw_encoding *e, int tile);
    /* Pool: of items so large that they are settled one after the other on all threads; else NULL. */
    void (*settle)(nw_encoding *e, int item, nw_pool *pool);
    size_t (*bytes)(const nw_encoding *e, int cut); /* that its message needs at most; after all items are settled */
    void (*emit)(nw_encoding *e, int tile, nw_seen *seen); /* seen: what receivers will see; NULL: nobody asks */
    void (*close)(nw_encoding *e, int cut);                /* fills e->encoded; NULL: it has what `bytes` said */
    nw_status (*check)(const nw_decoding *d);              /* NW_E_MESSAGE */
    /* What `check` left to all threads: whether the bytes of a tile are such as this codec makes. NULL: nothing. */
    bool (*sound)(const nw_decoding *d, int tile);
    void (*decode)(const nw_decoding *d, int tile, float *out, bool add); /* out = decoded, or out += decoded, in f32 */
    const nw_rounds *rounds; /* instead of all from `aim` on; NULL: bytes travel */
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
int nw_codec_kinds(void);
const nw_codec_ops *nw_codec_at(int index); /* for help */
/* The codec that changes nothing, always at hand. */
extern const nw_codec nw_codec_plain;

/* The ratio of a batch's gradient: the codec's own, or its warm-up's. A pure function, the same for a whole epoch. */
double nw_codec_ratio(const nw_codec *codec, int64_t clock);
/* Entries that top-k and random-k send of n floats at such a ratio: 1 to n. */
size_t nw_codec_count(const nw_codec *codec, size_t n, double ratio);

nw_status nw_scratch_make(nw_scratch *scratch, const nw_block *const *blocks, int count, int threads);
nw_status nw_scratch_reserve_places(nw_scratch *scratch, size_t places);
void nw_scratch_free(nw_scratch *scratch);

/* For `check`: whether the bytes are exactly `width` for each float of the cut. */
nw_status nw_codec_check_bytes(const nw_decoding *d, size_t width);

#endif
