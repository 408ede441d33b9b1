/*
 * Folder src/codec: gradient compression: the codecs (--method), the error memories (--memory), and the blocks of
 * floats that both work on. A codec sends nothing and knows no ranks; src/channel uses it. May include: base.
 *
 * codec.h - the interface of a codec: it encodes a list of floats into bytes, and decodes bytes into a list of floats.
 *
 * A codec works on a block (block.h). It sees each item of the block as a whole (its largest float, its norm, its
 * threshold), and writes one message for each cut. Encoding visits the tiles once or twice, in these steps:
 *
 *   aim      per item: guesses a threshold. A guess saves time later; it never changes the result.
 *   look     per tile: reads its floats, for codecs that must have seen a whole item before they can encode any of it
 *   settle   per item: decides what is sent of the item. After this step the sizes of all messages are known.
 *   emit     per tile: writes its bytes, and reports what a receiver will decode
 *   close    per cut: completes the message, for example its header
 *
 * run.h calls these steps in order, on all threads. The bytes depend only on the floats, the codec's options and the
 * key, not on the number of threads or on the instruction set. A memory (memory.h) keeps what was not sent; a codec
 * does not.
 *
 * A family is a format of bytes (packed.h). Several codecs share a family: top-k and the thresholds choose entries
 * differently, but send them in the same format. Messages of none, fp16 and bf16 are bare numbers; all others begin
 * with a header.
 *
 * Some codecs (PowerSGD, shared random-k) send no bytes of their own. They ask for the mean of short float vectors over
 * all members, in one round or several (nw_rounds), and compute the result from these means. Their blocks have a single
 * cut.
 *
 * NaN and infinity: none, fp16 and bf16 send them, so that the receiver's checks notice them. All other codecs send
 * nothing and report where the first one is. Sparse families never send zeros as entries.
 *
 * Received bytes are not trusted: `check` validates all of them before any float is written.
 *
 * Threads: a codec does not change after it was created; look, emit and decode run for several tiles at the same time.
 */
#ifndef NW_CODEC_CODEC_H
#define NW_CODEC_CODEC_H

#include "base/pool.h"
#include "codec/block.h"

/* The codec's id in message headers. Ids are permanent: a number is never used for something else later. */
typedef enum nw_codec_id { NW_CODEC_NONE = 1, NW_CODEC_FP16 = 2, NW_CODEC_BF16 = 3, NW_CODEC_PACKED = 32 } nw_codec_id;

/* The format of a block's bytes, in block headers. Permanent, too. */
typedef enum nw_family {
    NW_FAMILY_F32 = 1,
    NW_FAMILY_FP16 = 2,
    NW_FAMILY_BF16 = 3,
    NW_FAMILY_SPARSE = 4,   /* values of some entries, and their positions */
    NW_FAMILY_CHOSEN = 5,   /* values of some entries; the receiver computes their positions from the key */
    NW_FAMILY_TERNARY = 6,  /* -1, 0 or 1 for each element, and scales */
    NW_FAMILY_LEVELS = 7,   /* a whole number for each element, and scales */
    NW_FAMILY_SIGN = 8,     /* a sign for each element, and scales */
    NW_FAMILY_EXPONENT = 9, /* a power of two for each element */
    NW_FAMILY_BYTES = 10,   /* 8 bits for each element, and scales */
    NW_FAMILY_FACTORS = 11, /* two low-rank factors, which are averaged in rounds */
    NW_FAMILY_RESIDUES = 12 /* the last bits of a whole number for each element, and scales */
} nw_family;

/* The format of the values of entries. NW_VALUES_BITS + q means q bits (2 to 8), spaced evenly between the smallest and
 * the largest magnitude of the item's entries. */
typedef enum nw_values { NW_VALUES_F32 = 1, NW_VALUES_FP16 = 2, NW_VALUES_BF16 = 3, NW_VALUES_BITS = 16 } nw_values;

/* k of top-k: max(1, round(n ratio)); or ceil(n ratio), as in DGC; or floor(n ratio) + 1, as in the reference code. */
typedef enum nw_counting { NW_COUNT_ROUND, NW_COUNT_CEIL, NW_COUNT_FLOOR_PLUS_1 } nw_counting;

/* DGC's warm-up: in the first epochs the ratio falls towards the codec's own ratio. */
enum { NW_WARM_UP_MOST = 64 };
typedef struct nw_warm_up {
    int epochs;      /* how many; 0: no warm-up */
    int64_t batches; /* batches of an epoch */
    double factor;   /* epoch e has the ratio max(factor^(e + 1), ratio); 0 means ratio^(1 / (epochs + 1)) */
    int listed;      /* instead, the first `listed` epochs take their ratios from `list`; 0, or at least `epochs` */
    double list[NW_WARM_UP_MOST];
} nw_warm_up;

/* DGC's selection by a sampled threshold (Lin et al. 2018); used instead of the exact top-k if `used`. */
typedef struct nw_sampling {
    bool used, strided, resample;
    double ratio, upper, lower;
    int iterations;
} nw_sampling;

typedef struct nw_codec_options {
    const char *name;
    uint64_t seed;
    double ratio;         /* topk, randomk: share of an item's elements that is sent, in (0, 1] */
    nw_counting counting; /* topk */
    nw_values values;     /* sparse families; 0: f32 */
    nw_warm_up warm_up;   /* topk */
    nw_sampling sampling; /* topk */
    double threshold;     /* thresholdv: the smallest magnitude that is sent */
    bool shared;          /* randomk: all members send the same positions, so that their values can be averaged */
    bool scaled;          /* randomk: values are multiplied by n / k, which makes the result unbiased */
    int levels;           /* qsgd: 1 to 32767 */
    int bucket;           /* qsgd: elements that share a norm, 16 or more; 0: all elements of an item */
    bool max_norm;        /* qsgd: scales by the largest magnitude instead of the Euclidean norm */
    int rank;             /* powersgd */
    int bits;             /* modulo: 2 to 8 for each element */
} nw_codec_options;
nw_codec_options nw_codec_options_default(const char *name);

/* The key of random numbers and random positions, together with the codec's seed and the item's number. */
typedef struct nw_codec_key {
    uint64_t step;
    uint32_t channel, member; /* of the sender */
} nw_codec_key;

/* The sizes of an encoded cut. What is neither index nor scale is header and values. */
typedef struct nw_encoded {
    size_t bytes, index_bytes, scale_bytes;
} nw_encoded;

/* What a codec knows of a tile while its block is encoded. */
typedef struct nw_partial {
    uint32_t entries; /* number of its entries that are sent */
    uint32_t before;  /* number of entries of the same cut in earlier tiles */
    uint32_t largest; /* its largest magnitude, as the bits of an f32 without the sign (ordered as the numbers) */
    uint32_t ties;    /* free for the codec's own use */
    double sum;       /* a sum over its elements, of whatever the codec needs */
} nw_partial;

/* What a receiver will decode for a tile. */
typedef struct nw_seen {
    int entries;                  /* -1: values of all elements, in order. Otherwise the number of entries ... */
    uint16_t at[NW_TILE_FLOATS];  /* ... their positions in the tile, ascending ... */
    float values[NW_TILE_FLOATS]; /* ... and their values; all other elements are decoded as 0 */
} nw_seen;

/* Working memory of codecs, large enough for the largest of some blocks. Its contents are valid during one encoding or
 * decoding only. */
typedef struct nw_scratch {
    uint64_t *bits;   /* NW_TILE_WORDS for each tile: a bit for each element that is marked */
    uint32_t *list;   /* room for a quarter of a block's floats */
    float *scales;    /* one for each item, or as many as the codec's `scales` function says */
    uint32_t *counts; /* for each thread a histogram of NW_SCRATCH_BINS bins */
    uint32_t *places; /* decoded positions of entries in the cut; grows when needed */
    uint32_t *starts; /* for each tile of the cut: index of its first entry in `places`; one more for the end */
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
    float clip;          /* the gradient is multiplied by this first (gradient clipping) */
    const float *vector; /* the gradient of all parameters; a tile's elements begin at tile.first */
    float **kept;        /* for each item: the state that codecs with rounds keep of it */
    const float *steps;  /* for each item: its step, which the caller of modulo knows; NULL: that codec's own */
    nw_partial *partial; /* for each tile */
    nw_scratch *scratch;
    uint8_t **out;         /* for each cut: where its bytes go; NULL: the cut is not sent */
    nw_encoded *encoded;   /* for each cut */
    const nw_tile *broken; /* a tile in which a NaN or an infinity was found */
} nw_encoding;

/* The received bytes of one cut of a block. All but `check` may rely on `check` having accepted them. */
typedef struct nw_decoding {
    const nw_block *block;
    const nw_codec *codec;
    nw_codec_key key;
    int cut;
    const uint8_t *in;
    size_t bytes;
    nw_scratch *scratch;
} nw_decoding;

/* For codecs that are computed from means of floats. In each round every member contributes a short vector for each
 * item, and gets the mean over all members. */
typedef struct nw_rounds {
    int count;
    size_t (*floats)(const nw_block *block, int item, int round); /* length of an item's vector in a round */
    size_t (*keeps)(const nw_block *block, int item); /* floats of state of an item, which are equal on all members */
    void (*start)(const nw_codec *codec, const nw_block *block, int item, float *kept); /* the state's initial value */
    void (*contribute)(nw_encoding *e, int item, int round, float *out); /* writes this member's contribution */
    /* Reads the mean. After the last round it writes the decoded item to `target`, a vector of all parameters. */
    void (*use_mean)(nw_encoding *e, int item, int round, const float *mean, float *target);
    /* What the memory must subtract for a tile after the last round; NULL: what `use_mean` wrote to the target. */
    void (*sent)(const nw_encoding *e, int tile, nw_seen *seen);
} nw_rounds;

typedef struct nw_codec_ops {
    const char *name, *summary;
    nw_codec_id id;
    nw_family family;
    size_t size;                        /* of the codec's own struct */
    nw_status (*init)(nw_codec *codec); /* checks the options and fills the codec's own struct, which is zero before */
    /* The contraction factor for n floats: E |v - decoded|^2 <= (1 - delta) |v|^2. Most memories need delta > 0. */
    double (*delta)(const nw_codec *codec, size_t n);
    /* Whether this codec makes a tensor of that shape smaller; other tensors are sent dense. NULL: always. */
    bool (*gains)(const nw_codec *codec, size_t rows, size_t floats);
    size_t (*scales)(const nw_block *block); /* floats that it needs in scratch->scales; NULL: one for each item */
    /* Dense families: bytes and scales of a tile (nw_tile.at, .scale). tile_scales NULL: one scale for each item. */
    size_t (*tile_bytes)(const nw_codec *codec, size_t count);
    size_t (*tile_scales)(const nw_codec *codec, size_t count);
    void (*aim)(nw_encoding *e, int item); /* aim, look and settle may be NULL: the codec does not need the step */
    void (*look)(nw_encoding *e, int tile);
    /* The pool is not NULL for large items, which are settled one after the other with all threads. */
    void (*settle)(nw_encoding *e, int item, nw_pool *pool);
    size_t (*bytes)(const nw_encoding *e, int cut); /* upper bound of its message; called after all items are settled */
    void (*emit)(nw_encoding *e, int tile, nw_seen *seen); /* seen: what receivers will decode; may be NULL */
    void (*close)(nw_encoding *e, int cut);                /* fills e->encoded; NULL: `bytes` was exact */
    nw_status (*check)(const nw_decoding *d);              /* NW_E_MESSAGE */
    /* The rest of the check, which runs on all threads: whether this codec can have made a tile's bytes. May be
     * NULL. */
    bool (*sound)(const nw_decoding *d, int tile);
    void (*decode)(const nw_decoding *d, int tile, float *out, bool add); /* out = decoded, or out += decoded, in f32 */
    const nw_rounds *rounds; /* not NULL: the codec works by means of floats, and has none of aim ... decode */
} nw_codec_ops;

/* The first member of every codec's own struct. */
struct nw_codec {
    const nw_codec_ops *ops;
    nw_codec_options options;
    bool exact; /* decoding gives the encoded floats back, bit for bit */
};

/* NW_E_UNKNOWN: no codec has that name; the message names the nearest. The options are copied. */
nw_status nw_codec_create(nw_codec **codec, const nw_codec_options *options);
void nw_codec_free(nw_codec *codec);
int nw_codec_kinds(void);
const nw_codec_ops *nw_codec_at(int index); /* for help */
/* The codec `none`, which sends floats unchanged. */
extern const nw_codec nw_codec_plain;

/* Whether a warm-up changes its ratio: that of top-k only. Random-k chooses its positions for one ratio. */
bool nw_codec_warms_up(const nw_codec *codec);
/* The ratio for the gradient of batch number `clock`: the codec's own, or that of its warm-up. It is constant during an
 * epoch. */
double nw_codec_ratio(const nw_codec *codec, int64_t clock);
/* The number of entries that top-k and random-k send of n floats at that ratio: 1 to n. */
size_t nw_codec_count(const nw_codec *codec, size_t n, double ratio);

nw_status nw_scratch_make(nw_scratch *scratch, const nw_block *const *blocks, int count, int threads);
nw_status nw_scratch_reserve_places(nw_scratch *scratch, size_t places);
void nw_scratch_free(nw_scratch *scratch);

/* For `check`: fails unless there are exactly `width` bytes for each float of the cut. */
nw_status nw_codec_check_bytes(const nw_decoding *d, size_t width);

#endif
