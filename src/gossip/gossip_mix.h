/*
 * gossip_mix.h - the arithmetic of averaging in pairs, with continuous momentum or without. No state, no messages.
 *
 * A member has parameters x and, with momentum (A2CiD2, Nabli et al. 2023), a second vector x~. Between events both move
 * towards each other,
 *     dx = eta (x~ - x) dt,   dx~ = eta (x - x~) dt,
 * which over a time t is exactly
 *     d = b (x~ - x),   x += d,   x~ -= d,   b = (1 - exp(-2 eta t)) / 2,
 * so that t = 0 changes nothing, x + x~ stays, and mixing over s and then over t is mixing over s + t. A member that
 * sends its parameters sends x as it would be by now (blend); the mixing itself is made up for when something else has
 * to be written.
 *
 * Of two members that have sent s_i and s_j, each moves by what both know: with m = s_own - s_other,
 *     x -= step m / 2,   x~ -= step alpha m,
 * (step is 1 unless one is cautious) and what one loses the other gains, whatever has happened to x meanwhile.
 *
 * Bits hang on no C library: exp is a polynomial here, and exponential times come from comparisons of uniform numbers.
 */
#ifndef NW_EXCHANGE_GOSSIP_MIX_H
#define NW_EXCHANGE_GOSSIP_MIX_H

#include "base/pool.h"
#include "base/rng.h"

/* exp(-y) for y >= 0, to 2 units in the last place. */
double nw_mix_exp(double y);
/* b of a time; 0 where eta or the time is. */
float nw_mix_weight(double eta, double time);
/* Exponentially distributed with mean 1, by von Neumann's comparisons (1951). */
double nw_mix_exponential(nw_rng *rng);

/* Ranges of `count` floats, on the pool where they are long (NULL: the calling thread alone). other NULL: there is no
 * second vector, and b counts for nothing. */
void nw_mix_send(const float *x, const float *other, float b, float *out, size_t count, nw_pool *pool);
void nw_mix_both(float *x, float *other, float b, size_t count, nw_pool *pool);
void nw_mix_approach(float *x, float *other, float b, const float *mine, const float *theirs, float step, float alpha,
                     size_t count, nw_pool *pool);

/* Means of several vectors with the squares of their distances, from those of parts (Chan et al. 1979): a mean of
 * `count` vectors and the sum of their squared distances to it, joined with another of that kind. */
typedef struct nw_mean_part {
    float *mean;
    int64_t count;
    double spread;
} nw_mean_part;
void nw_mean_join(nw_mean_part *to, const nw_mean_part *part, size_t floats);

#endif
