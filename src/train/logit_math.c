/*
 * logit_math.c - see logit_math.h.
 *
 * Every operation of the update is one that IEEE 754 rounds exactly, and contraction is off, so vectors of any width give
 * the same bits. This file is built with -O3, which makes vectors of the loop in `step`; on x86-64 it is there a second
 * time for AVX2. Weights go from the owner's copy to the shared ones in blocks that are still in the first cache, since
 * atomic stores go one by one.
 */
#include "train/logit_math.h"

#include <math.h>
#include <string.h>

_Static_assert(sizeof(nw_shared_double) == sizeof(double), "an atomic double is a double, without a lock beside it");

enum { BLOCK = 512 };

/* ---- tallies ------------------------------------------------------------------------------------------------------- */

void nw_logit_tally_add(nw_logit_tally *to, const nw_logit_tally *from)
{
    to->loss += from->loss;
    to->correct += from->correct;
    to->rows += from->rows;
}

double nw_logit_tally_loss(const nw_logit_tally *t) { return t->rows ? t->loss / (double)t->rows : (double)NAN; }
double nw_logit_tally_top1(const nw_logit_tally *t)
{
    return t->rows ? 100.0 * (double)t->correct / (double)t->rows : (double)NAN;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

double nw_logit_loss(double margin) { return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin; }

double nw_logit_pull(double margin)
{
    double e = exp(-fabs(margin));
    return margin > 0 ? e / (1 + e) : 1 / (1 + e);
}

static void tally_row(nw_logit_tally *tally, double z, int8_t label)
{
    tally->loss += nw_logit_loss(label * z);
    tally->correct += nw_logit_says_one(z) == (label > 0);
    tally->rows++;
}

static inline double load(const nw_shared_double *weight) { return atomic_load_explicit(weight, memory_order_relaxed); }

static inline void add(nw_logit_sums *s, nw_logit_gradient *g, int32_t index, double value)
{
    if (s->mark[index] != s->now) {
        s->mark[index] = s->now;
        s->sum[index] = 0;
        g->index[g->count++] = index;
    }
    s->sum[index] += value;
}

void nw_logit_gradient_of(const nw_sparse *data, int32_t features, bool intercept, const nw_shared_double *weights,
                          const uint32_t *rows, int64_t count, double scale, nw_logit_sums *s, nw_logit_gradient *g)
{
    g->count = 0;
    g->tally = (nw_logit_tally){0};
    if (++s->now == 0) { /* marks of 2^32 batches ago */
        memset(s->mark, 0, ((size_t)features + intercept) * sizeof *s->mark);
        s->now = 1;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t begin = data->begin[rows[i]], end = data->begin[rows[i] + 1];
        int8_t label = data->label[rows[i]];
        double z = intercept ? load(&weights[features]) : 0;
        for (int64_t e = begin; e < end; e++) z += data->value[e] * load(&weights[data->index[e]]);
        tally_row(&g->tally, z, label);
        double c = -label * nw_logit_pull(label * z) * scale;
        for (int64_t e = begin; e < end; e++) add(s, g, data->index[e], c * data->value[e]);
        if (intercept) add(s, g, features, c);
    }
    for (int64_t k = 0; k < g->count; k++) g->value[k] = s->sum[g->index[k]];
}

nw_logit_tally nw_logit_evaluate(const nw_sparse *data, int32_t features, bool intercept, const double *weights)
{
    nw_logit_tally tally = {0};
    for (int64_t r = 0; r < data->rows; r++) {
        double z = intercept ? weights[features] : 0;
        for (int64_t e = data->begin[r]; e < data->begin[r + 1] && data->index[e] < features; e++)
            z += data->value[e] * weights[data->index[e]];
        tally_row(&tally, z, data->label[r]);
    }
    return tally;
}

/* ---- the update ---------------------------------------------------------------------------------------------------- */

/* Both branches of a choice are safe to compute, so that the loop has none. */
static inline __attribute__((always_inline)) void step(const nw_logit_rule *rule, int64_t count,
                                                       const double *restrict gradient, double *restrict w,
                                                       double *restrict m, double *restrict v, double *restrict u)
{
    const double alpha = rule->alpha, beta1 = rule->beta1, beta2 = rule->beta2, rest1 = 1 - beta1, rest2 = 1 - beta2;
    const double decay = rule->decay, least = rule->least;
    for (int64_t i = 0; i < count; i++) {
        double g = gradient[i] + decay * w[i];
        double mean = beta1 * m[i] + rest1 * g;
        double square = beta2 * v[i] + rest2 * (g * g);
        double most = square > u[i] ? square : u[i];
        m[i] = mean;
        v[i] = square;
        u[i] = most;
        double moves = most > least ? mean : 0, root = most > least ? most : 1;
        w[i] -= alpha * moves / sqrt(root);
    }
}

static void step_plain(const nw_logit_rule *rule, int64_t count, const double *g, double *w, double *m, double *v,
                       double *u)
{
    step(rule, count, g, w, m, v, u);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void step_avx2(const nw_logit_rule *rule, int64_t count, const double *g,
                                                      double *w, double *m, double *v, double *u)
{
    step(rule, count, g, w, m, v, u);
}
static bool has_avx2(void) { return __builtin_cpu_supports("avx2"); }
#else
#define step_avx2 step_plain
static bool has_avx2(void) { return false; }
#endif

void nw_logit_update(const nw_logit_rule *rule, int64_t count, const double *g, double *w, double *m, double *v,
                     double *u, nw_shared_double *shared)
{
    bool wide = has_avx2();
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;
        (wide ? step_avx2 : step_plain)(rule, n, g + at, w + at, m + at, v + at, u + at);
        for (int64_t i = at; i < at + n; i++) atomic_store_explicit(&shared[i], w[i], memory_order_relaxed);
    }
}
