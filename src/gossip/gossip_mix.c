/* gossip_mix.c - see gossip_mix.h. */
#include "gossip/gossip_mix.h"

#include "codec/kernels.h"

#include <string.h>

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* 2^-k. */
static double half_to(int k)
{
    uint64_t bits = (uint64_t)(1023 - k) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* exp(-y) = 2^-k exp(-r), |r| <= ln(2) / 2, where a Taylor polynomial of degree 13 is exact to 2^-57. ln 2 is taken in two
 * parts, of which the first has zeros at its end, so that k times it is exact. */
double nw_mix_exp(double y)
{
    const double ln2 = 0x1.62e42fefa39efp-1, upper = 0x1.62e42fee00000p-1, lower = 0x1.a39ef35793c76p-33;
    if (y > 700) return 0;
    int k = (int)(y / ln2 + 0.5);
    double r = (double)k * upper - y + (double)k * lower, sum = 1; /* minus the rest of y */
    for (int i = 13; i > 0; i--) sum = 1 + r * sum / i;
    return sum * half_to(k);
}

float nw_mix_weight(double eta, double time)
{
    return eta > 0 && time > 0 ? (float)(0.5 - 0.5 * nw_mix_exp(2 * eta * time)) : 0;
}

double nw_mix_exponential(nw_rng *rng)
{
    for (double whole = 0;; whole++) {
        float first = nw_rng_uniform(rng), last = first, next;
        int falls = 1;
        for (; (next = nw_rng_uniform(rng)) < last; last = next) falls++;
        if (falls % 2) return whole + (double)first;
    }
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

enum { PIECE = 1 << 16 }; /* floats that a thread takes at once */

typedef struct work {
    float *x, *other, *out;
    const float *mine, *theirs;
    float b, half, alpha;
    size_t count;
} work;

static void run(const work *w, void (*piece)(const work *, size_t, size_t), nw_pool_task task, nw_pool *pool)
{
    if (pool && w->count >= 4 * PIECE)
        nw_pool_run(pool, (int)((w->count + PIECE - 1) / PIECE), task, (void *)(uintptr_t)w);
    else
        piece(w, 0, w->count);
}

/* A task for the pool of a function that works on a piece. */
#define PIECES(name)                                                   \
    static void name##_piece(void *context, int index, int worker)     \
    {                                                                  \
        const work *w = context;                                       \
        size_t first = (size_t)index * PIECE, left = w->count - first; \
        (void)worker;                                                  \
        name(w, first, left < PIECE ? left : PIECE);                   \
    }

static void send(const work *w, size_t first, size_t count)
{
    if (w->other && w->b != 0)
        nw_codec_kernels_best()->blend(w->x + first, w->other + first, w->b, w->out + first, count);
    else
        memcpy(w->out + first, w->x + first, count * sizeof(float));
}
PIECES(send)

static void both(const work *w, size_t first, size_t count)
{
    nw_codec_kernels_best()->mix(w->x + first, w->other + first, w->b, count);
}
PIECES(both)

static void approach(const work *w, size_t first, size_t count)
{
    const nw_codec_kernels *k = nw_codec_kernels_best();
    const float *mine = w->mine + first, *theirs = w->theirs + first;
    if (w->other)
        k->mix_and_approach(w->x + first, w->other + first, w->b, mine, theirs, w->half, w->alpha, count);
    else
        k->approach(w->x + first, mine, theirs, w->half, count);
}
PIECES(approach)

void nw_mix_send(const float *x, const float *other, float b, float *out, size_t count, nw_pool *pool)
{
    work w = {.x = (float *)(uintptr_t)x, .other = (float *)(uintptr_t)other, .out = out, .b = b, .count = count};
    run(&w, send, send_piece, pool);
}

void nw_mix_both(float *x, float *other, float b, size_t count, nw_pool *pool)
{
    work w = {.x = x, .other = other, .b = b, .count = count};
    if (other && b != 0) run(&w, both, both_piece, pool);
}

void nw_mix_approach(float *x, float *other, float b, const float *mine, const float *theirs, float step, float alpha,
                     size_t count, nw_pool *pool)
{
    work w = {.x = x,
              .other = other,
              .mine = mine,
              .theirs = theirs,
              .b = b,
              .half = 0.5f * step,
              .alpha = step * alpha,
              .count = count};
    run(&w, approach, approach_piece, pool);
}

/* ---- means ------------------------------------------------------------------------------------------------------- */

void nw_mean_join(nw_mean_part *to, const nw_mean_part *part, size_t floats)
{
    double all = (double)(to->count + part->count), square = 0;
    float share = (float)((double)part->count / all);
    for (size_t i = 0; i < floats; i++) {
        float apart = part->mean[i] - to->mean[i];
        square += (double)apart * (double)apart;
        to->mean[i] += share * apart;
    }
    to->spread += part->spread + square * (double)to->count * (double)part->count / all;
    to->count += part->count;
}
