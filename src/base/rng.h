/*
 * rng.h - counter-based random numbers (Philox4x32-10, Salmon et al., SC'11).
 *
 * A stream is keyed by what it is for: (seed, purpose) is the key, (a, b) with a running index the counter, for example
 * a = epoch and b = sample. Nothing is shared and nothing is carried along, so any thread can draw any number of any
 * stream in any order and resume needs no generator state.
 */
#ifndef NW_BASE_RNG_H
#define NW_BASE_RNG_H

#include <stdint.h>

typedef enum nw_purpose {
    NW_PURPOSE_INIT = 1,  /* a: segment */
    NW_PURPOSE_SYNTHETIC, /* a: sample */
    NW_PURPOSE_DROPOUT,   /* a: step, b: layer */
    NW_PURPOSE_TEST,
    NW_PURPOSE_SHUFFLE = 8, /* a: epoch */
    NW_PURPOSE_AUGMENT = 9, /* a: epoch, b: sample */
    NW_PURPOSE_SPLIT = 32,  /* a: class; which images validate */
    NW_PURPOSE_DELAY = 33,  /* a: update, b: law; how old the parameters of its gradient are */
    NW_PURPOSE_DEAL = 34,   /* a: class; which images are whose */
    NW_PURPOSE_PAIR = 36,   /* a: round, b: fragment; who meets whom */

    NW_PURPOSE_STEP_TIME = 40, /* a: step, b: rank; of a virtual cluster */
    NW_PURPOSE_JITTER = 41,    /* a: message, b: sender and receiver */
    NW_PURPOSE_GOSSIP_TIME = 42,    /* a: timers so far, b: member; until it asks for the next averaging */
    NW_PURPOSE_GOSSIP_PARTNER = 43, /* a: choices so far, b: member; whom it asks */

    NW_PURPOSE_GRAPH = 48,    /* a: members, b: neighbours; of a random graph */
    NW_PURPOSE_MATCHING = 49, /* a: round, b: edge; or a: tournament */
} nw_purpose;

typedef struct nw_rng {
    uint32_t key[2];
    uint32_t counter[4]; /* [0]: index of the block, [1]: b, [2..3]: a */
    uint32_t block[4];
    int left;
} nw_rng;

/* One block: 4 words from counter and key. */
void nw_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

nw_rng nw_rng_make(uint64_t seed, nw_purpose purpose, uint64_t a, uint32_t b);
uint32_t nw_rng_u32(nw_rng *rng);
uint32_t nw_rng_below(nw_rng *rng, uint32_t bound);                /* uniform in [0, bound), without bias; bound >= 1 */
void nw_rng_shuffle(nw_rng *rng, uint32_t *order, uint32_t count); /* a permutation of 0 .. count - 1 */
float nw_rng_uniform(nw_rng *rng);                                 /* [0, 1), 24 bits */
float nw_rng_normal(nw_rng *rng);                                  /* Box-Muller; two uniforms a number */
float nw_rng_log_gamma(nw_rng *rng, double shape);                 /* logarithm of a gamma variate; shape > 0 */

#endif
