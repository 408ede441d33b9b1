/*
 * reference.c - compiles the plain-loop operators of reference_impl.h for float and for double; and the optimizers.
 *
 * NAME(x) pastes the suffix of the type to a name; REAL is the type. Index arithmetic lives here, once for both.
 */
#include "reference/reference.h"

#include <math.h>

int nw_ref_out(int extent, int window, int stride, int pad) { return (extent + 2 * pad - window) / stride + 1; }

/* The position of [i][j] in an array [.][J]. */
static size_t at2(int J, int i, int j) { return (size_t)i * (size_t)J + (size_t)j; }

/* The position of [i][j][k][l] in an array [.][J][K][L]. */
static size_t at4(int J, int K, int L, int i, int j, int k, int l)
{
    return ((((size_t)i * (size_t)J + (size_t)j) * (size_t)K + (size_t)k) * (size_t)L) + (size_t)l;
}

/* The number of elements of an array [i][j][k][l]. */
static size_t volume(int i, int j, int k, int l) { return (size_t)i * (size_t)j * (size_t)k * (size_t)l; }

static bool inside(int position, int extent) { return position >= 0 && position < extent; }

#define REAL    float
#define NAME(x) x##_f
#include "reference/reference_impl.h"
#undef REAL
#undef NAME

#define REAL    double
#define NAME(x) x##_d
#include "reference/reference_impl.h"
#undef REAL
#undef NAME

/* ---- SGD ------------------------------------------------------------------------------------------------------ */

void nw_ref_sgd_step_f(const nw_ref_sgd *v, size_t count, bool first, float *param, const float *grad, float *buffer)
{
    for (size_t i = 0; i < count; i++) {
        double d = (double)grad[i] + v->weight_decay * (double)param[i];
        if (v->momentum != 0.0) {
            double b = first ? d : v->momentum * (double)buffer[i] + (1.0 - v->dampening) * d;
            buffer[i] = (float)b;
            d = v->nesterov ? d + v->momentum * b : b;
        }
        param[i] = (float)((double)param[i] - v->lr * d);
    }
}

/* ---- Other optimizers ----------------------------------------------------------------------------------------- */

void nw_ref_lars_gradient_f(const nw_ref_lars *v, size_t count, const float *param, const float *grad, float *d)
{
    double p = 0.0, g = 0.0;
    for (size_t i = 0; i < count; i++) {
        p += (double)param[i] * (double)param[i];
        g += (double)grad[i] * (double)grad[i];
    }
    p = sqrt(p);
    g = sqrt(g);
    double ratio = v->trust * p / (g + v->weight_decay * p + v->eps);
    double q = v->clip ? fmin(ratio / v->lr, 1.0) : ratio;
    for (size_t i = 0; i < count; i++) {
        bool alone = p == 0.0 || g == 0.0;
        d[i] = alone ? grad[i] : (float)(q * ((double)grad[i] + v->weight_decay * (double)param[i]));
    }
}

void nw_ref_dgc_sgd_step_f(const nw_ref_sgd *v, size_t count, bool first, float *param, const float *grad,
                           float *buffer)
{
    for (size_t i = 0; i < count; i++) {
        double d = v->weight_decay * (double)param[i];
        if (v->momentum != 0.0) {
            double b = first ? d : v->momentum * (double)buffer[i] + (1.0 - v->dampening) * d;
            buffer[i] = (float)b;
            d = v->nesterov ? d + v->momentum * b : b;
        }
        param[i] = (float)((double)param[i] - v->lr * (d + (double)grad[i]));
    }
}

/* One more gradient into the averages at i; returns what is to be rooted. */
static double average(const nw_ref_moments *k, size_t i, const float *param, const float *grad, float *m, float *v,
                      float *u)
{
    double d = (double)grad[i] + k->weight_decay * (double)param[i];
    m[i] = (float)(k->beta1 * (double)m[i] + (1.0 - k->beta1) * d);
    v[i] = (float)(k->beta2 * (double)v[i] + (1.0 - k->beta2) * d * d);
    if (u) {
        u[i] = v[i] > u[i] ? v[i] : u[i];
        return (double)u[i];
    }
    return (double)v[i];
}

void nw_ref_adam_step_f(const nw_ref_moments *k, size_t count, int t, float *param, const float *grad, float *m,
                        float *v, float *u)
{
    double c1 = 1.0 - pow(k->beta1, t), c2 = 1.0 - pow(k->beta2, t);
    for (size_t i = 0; i < count; i++) {
        double root = sqrt(average(k, i, param, grad, m, v, u));
        param[i] = (float)((double)param[i] - k->lr * ((double)m[i] / c1) / (root / sqrt(c2) + k->eps));
    }
}

void nw_ref_apam_step_f(const nw_ref_moments *k, size_t count, int t, float *param, const float *grad, float *m,
                        float *v, float *u)
{
    double lr = k->lr * sqrt(1.0 - pow(k->beta2, t)) / (1.0 - pow(k->beta1, t));
    for (size_t i = 0; i < count; i++) {
        double root = sqrt(average(k, i, param, grad, m, v, u));
        param[i] = (float)((double)param[i] - lr * (double)m[i] / (root + k->eps));
    }
}

void nw_ref_apam_paper_step_f(const nw_ref_moments *k, size_t count, float *param, const float *grad, float *m,
                              float *v, float *u)
{
    for (size_t i = 0; i < count; i++) {
        double root = sqrt(average(k, i, param, grad, m, v, u)), x = (double)param[i];
        if (root != 0.0) {
            x -= k->lr * (double)m[i] / root;
        }
        param[i] = (float)fmin(fmax(x, k->low), k->high);
    }
}
