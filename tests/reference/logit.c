/* logit.c - see logit.h. */
#include "reference/logit.h"

#include <math.h>

static double output(const nw_ref_logit *p, const double *w, const double *x)
{
    double z = p->intercept ? w[p->features] : 0;
    for (size_t i = 0; i < p->features; i++) z += x[i] * w[i];
    return z;
}

double nw_ref_logit_gradient(const nw_ref_logit *p, const double *w, const uint32_t *batch, size_t count, double *g)
{
    double scale = p->sum ? 1.0 : 1.0 / (double)count, loss = 0;
    for (size_t i = 0; i < p->features + p->intercept; i++) g[i] = 0;
    for (size_t b = 0; b < count; b++) {
        const double *x = p->x + batch[b] * p->features;
        double y = p->labels[batch[b]], t = y * output(p, w, x), share;
        if (t > 0) {
            share = exp(-t) / (1 + exp(-t));
            loss += scale * log1p(exp(-t));
        } else {
            share = 1 / (1 + exp(t));
            loss += scale * (log1p(exp(t)) - t);
        }
        for (size_t i = 0; i < p->features; i++) g[i] += -y * share * scale * x[i];
        if (p->intercept) g[p->features] += -y * share * scale;
    }
    return loss;
}

void nw_ref_logit_step(const nw_ref_logit *p, double alpha, const double *g, double *w, double *m, double *v, double *u)
{
    for (size_t i = 0; i < p->features + p->intercept; i++) {
        double d = i < p->features ? g[i] + p->decay * w[i] : g[i];
        m[i] = p->beta1 * m[i] + (1 - p->beta1) * d;
        v[i] = p->beta2 * v[i] + (1 - p->beta2) * (d * d);
        if (v[i] > u[i]) u[i] = v[i];
        if (u[i] > p->least) w[i] -= alpha * m[i] / sqrt(u[i]);
    }
}
