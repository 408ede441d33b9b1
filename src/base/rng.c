/*
 * rng.c - Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC'11, section 4).
 *
 * The stream of (seed, purpose, a, b) is fixed for all time: runs are repeated and resumed from their seed alone. It is
 *   key     = seed xor purpose * 0x9E3779B97F4A7C15, low word first
 *   counter = block index, b, a (low word first)
 * and its words are the blocks in order, each from word 0 to 3. A stream holds 2^34 words and then repeats.
 * No state is shared: distinct nw_rng may be used from distinct threads.
 */
#define _GNU_SOURCE 1
#include "base/rng.h"

#include <math.h>

enum { PHILOX_ROUNDS = 10 };

void nw_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53 * c0;
        uint64_t product1 = (uint64_t)0xCD9E8D57 * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)product1;
        c3 = (uint32_t)product0;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

nw_rng nw_rng_make(uint64_t seed, nw_purpose purpose, uint64_t a, uint32_t b)
{
    /* The multiple spreads the purpose over all bits, so no two small or consecutive seeds meet in a key. */
    uint64_t key = seed ^ ((uint64_t)purpose * 0x9E3779B97F4A7C15u);
    return (nw_rng){
        .key = {(uint32_t)key, (uint32_t)(key >> 32)},
        .counter = {0, b, (uint32_t)a, (uint32_t)(a >> 32)},
    };
}

uint32_t nw_rng_u32(nw_rng *rng)
{
    if (rng->left == 0) {
        nw_philox(rng->counter, rng->key, rng->block);
        rng->counter[0]++;
        rng->left = 4;
    }
    return rng->block[4 - rng->left--];
}

/* Lemire, Fast random integer generation in an interval, 2019: the high word of a product, redrawn where the low word
 * falls into the part of 2^32 that is left over by a division by `bound`. */
uint32_t nw_rng_below(nw_rng *rng, uint32_t bound)
{
    uint64_t product = (uint64_t)nw_rng_u32(rng) * bound;
    if ((uint32_t)product < bound) {
        uint32_t leftover = (uint32_t)-bound % bound;
        while ((uint32_t)product < leftover) product = (uint64_t)nw_rng_u32(rng) * bound;
    }
    return (uint32_t)(product >> 32);
}

/* Fisher and Yates. */
void nw_rng_shuffle(nw_rng *rng, uint32_t *order, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    for (uint32_t i = count; i-- > 1;) {
        uint32_t j = nw_rng_below(rng, i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

float nw_rng_uniform(nw_rng *rng) { return (float)(nw_rng_u32(rng) >> 8) * 0x1p-24f; }

/* Of a uniform in (0, 1], so that it is finite. */
static double log_uniform(nw_rng *rng) { return log(((double)nw_rng_u32(rng) + 1.0) * 0x1p-32); }

/* In double, then rounded once: mathematics libraries differ in the last bits of a double, which the rounding to float
 * hides, so machines agree on initial weights. */
float nw_rng_normal(nw_rng *rng)
{
    double radius = log_uniform(rng);
    double turn = (double)nw_rng_u32(rng) * 0x1p-32;
    return (float)(sqrt(-2.0 * radius) * cos(2.0 * M_PI * turn));
}

/* Marsaglia and Tsang, A simple method for generating gamma variables, 2000. A shape below 1 is that of shape + 1 times
 * uniform^(1 / shape), which may be too small for a double: hence logarithms. */
float nw_rng_log_gamma(nw_rng *rng, double shape)
{
    double smaller = shape < 1 ? log_uniform(rng) / shape : 0;
    double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = (double)nw_rng_normal(rng), u = log_uniform(rng), v = (1 + c * x) * (1 + c * x) * (1 + c * x);
        if (v > 0 && u < 0.5 * x * x + d - d * v + d * log(v)) return (float)(smaller + log(d * v));
    }
}
