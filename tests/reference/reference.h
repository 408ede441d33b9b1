/*
 * reference.h - every operator as the plainest possible loops: the specification of what the fast kernels compute.
 *
 * Each operator of networks exists twice from one implementation (reference_impl.h): for float (suffix _f), which is
 * held to PyTorch, and for double (suffix _d), which kernels are held to. Optimizers are of float. All accumulate in
 * double; the float version rounds once, when it stores, so it is the accurate f32 answer and not one more f32
 * summation order. All arrays are plain, contiguous and owned by the caller; functions keep no state and never
 * allocate. Tests only: clarity before speed.
 *
 * Letters: N images, C input channels, K output channels, H x W input map, R x S filter, OH x OW output map with
 * OH = (H + 2 pad - R) / stride + 1, rounded down. Activations are [N][C][H][W], filters [K][C][R][S] (OIHW).
 * A gradient carries the name of its variable after a d: dx is the gradient of the loss with respect to x. Gradients
 * are overwritten, not accumulated, and an output marked "optional" may be NULL.
 */
#ifndef NW_TESTS_REFERENCE_H
#define NW_TESTS_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Declares one operator for both types. The operator's macro takes the element type and the suffix. */
#define NW_REF_BOTH(OPERATOR) OPERATOR(float, _f) OPERATOR(double, _d)

/* The output extent of a convolution or pooling window along one axis. */
int nw_ref_out(int extent, int window, int stride, int pad);

/* ---- Convolution ---------------------------------------------------------------------------------------------- */

typedef struct nw_ref_conv {
    int n, c, h, w, k, r, s, stride, pad;
} nw_ref_conv;

/* y[N][K][OH][OW]; bias, dx, dw and dbias are optional. dx alone does not read x, nor dw alone w: these may be NULL. */
#define NW_REF_DECLARE_CONV(real, T)                                                                               \
    void nw_ref_conv_forward##T(const nw_ref_conv *conv, const real *x, const real *w, const real *bias, real *y); \
    void nw_ref_conv_backward##T(const nw_ref_conv *conv, const real *x, const real *w, const real *dy, real *dx,  \
                                 real *dw, real *dbias);
NW_REF_BOTH(NW_REF_DECLARE_CONV)

/* ---- Batch norm ----------------------------------------------------------------------------------------------- */

#define NW_REF_NORM_EPS      1e-5
#define NW_REF_NORM_MOMENTUM 0.1

typedef struct nw_ref_norm {
    int n, c, h, w;
    bool relu; /* y = max(0, .) at the end */
} nw_ref_norm;

/*
 * y = relu?(gamma (x - mean) rstd + beta + residual?) per channel over M = N H W >= 2 values;
 * rstd = 1 / sqrt(biased variance + eps); running = 0.9 running + 0.1 batch, with the unbiased variance.
 * residual, the pair running_mean and running_var, and dx, dgamma, dbeta, dresidual are optional. Backward reads the
 * forward's y only when relu is set: the gradient passes where y > 0.
 */
#define NW_REF_DECLARE_NORM(real, T)                                                                             \
    void nw_ref_norm_forward##T(const nw_ref_norm *norm, const real *x, const real *residual, const real *gamma, \
                                const real *beta, real *running_mean, real *running_var, real *mean, real *rstd, \
                                real *y);                                                                        \
    void nw_ref_norm_backward##T(const nw_ref_norm *norm, const real *x, const real *y, const real *gamma,       \
                                 const real *mean, const real *rstd, const real *dy, real *dx, real *dgamma,     \
                                 real *dbeta, real *dresidual);                                                  \
    void nw_ref_norm_eval##T(const nw_ref_norm *norm, const real *x, const real *residual, const real *gamma,    \
                             const real *beta, const real *running_mean, const real *running_var, real *y);
NW_REF_BOTH(NW_REF_DECLARE_NORM)

/* ---- Pooling -------------------------------------------------------------------------------------------------- */

typedef struct nw_ref_pool {
    int n, c, h, w, kernel, stride, pad; /* 2 pad <= kernel, so that every window holds a real pixel */
} nw_ref_pool;

/*
 * Maximum: the first maximum in scan order wins, padding never wins; index[N][C][OH][OW] = h W + w of the winner.
 * Average: the sum of the real pixels over kernel^2, padding counted. Global average: y[N][C]; uses n, c, h, w only.
 */
#define NW_REF_DECLARE_POOL(real, T)                                                                           \
    void nw_ref_max_pool_forward##T(const nw_ref_pool *pool, const real *x, real *y, int32_t *index);          \
    void nw_ref_max_pool_backward##T(const nw_ref_pool *pool, const int32_t *index, const real *dy, real *dx); \
    void nw_ref_avg_pool_forward##T(const nw_ref_pool *pool, const real *x, real *y);                          \
    void nw_ref_avg_pool_backward##T(const nw_ref_pool *pool, const real *dy, real *dx);                       \
    void nw_ref_global_pool_forward##T(const nw_ref_pool *pool, const real *x, real *y);                       \
    void nw_ref_global_pool_backward##T(const nw_ref_pool *pool, const real *dy, real *dx);
NW_REF_BOTH(NW_REF_DECLARE_POOL)

/* ---- Linear --------------------------------------------------------------------------------------------------- */

typedef struct nw_ref_linear {
    int n, c, k;
} nw_ref_linear;

/* x[N][C], w[K][C], bias[K] optional, y[N][K]. dx, dw, dbias optional. */
#define NW_REF_DECLARE_LINEAR(real, T)                                                                         \
    void nw_ref_linear_forward##T(const nw_ref_linear *linear, const real *x, const real *w, const real *bias, \
                                  real *y);                                                                    \
    void nw_ref_linear_backward##T(const nw_ref_linear *linear, const real *x, const real *w, const real *dy,  \
                                   real *dx, real *dw, real *dbias);
NW_REF_BOTH(NW_REF_DECLARE_LINEAR)

/* ---- Element by element --------------------------------------------------------------------------------------- */

/* dropout: y = x keep / (1 - p) with keep 0 or 1, 0 <= p < 1. */
#define NW_REF_DECLARE_ELEMENT(real, T) \
    void nw_ref_dropout_forward##T(size_t count, double p, const uint8_t *keep, const real *x, real *y);
NW_REF_BOTH(NW_REF_DECLARE_ELEMENT)

/* ---- Loss ----------------------------------------------------------------------------------------------------- */

typedef struct nw_ref_loss {
    int n, classes;
    double smoothing; /* eps: (1 - eps) (-log p[label]) + eps (mean over classes of -log p) */
    bool mean;        /* the mean over the images, else their sum */
} nw_ref_loss;

/* Returns the loss of logits[N][classes]; dlogits optional. */
#define NW_REF_DECLARE_LOSS(real, T) \
    real nw_ref_cross_entropy##T(const nw_ref_loss *loss, const real *logits, const int32_t *labels, real *dlogits);
NW_REF_BOTH(NW_REF_DECLARE_LOSS)

/* ---- SGD ------------------------------------------------------------------------------------------------------ */

typedef struct nw_ref_sgd {
    double lr, momentum, dampening, weight_decay;
    bool nesterov;
} nw_ref_sgd;

/*
 * d = grad + weight_decay param; buffer = d on the first step, then momentum buffer + (1 - dampening) d;
 * param -= lr (d + momentum buffer with Nesterov, else buffer). With momentum 0 param -= lr d, and buffer may be NULL.
 */
void nw_ref_sgd_step_f(const nw_ref_sgd *sgd, size_t count, bool first, float *param, const float *grad, float *buffer);

/* ---- Other optimizers ----------------------------------------------------------------------------------------- */

/* lars: d = q (grad + weight_decay param) with the tensor's trust ratio q, or grad where a norm is 0; what SGD goes on
 * with, without decay. */
typedef struct nw_ref_lars {
    double lr, weight_decay, trust, eps;
    bool clip;
} nw_ref_lars;

/* The averages m and v, and AMSGrad's maximum u, which is NULL without. t is the number of the step, from 1. */
typedef struct nw_ref_moments {
    double lr, beta1, beta2, eps, weight_decay;
    double low, high; /* apam_paper's box */
} nw_ref_moments;

/*
 * dgc_sgd: d = weight_decay param goes through SGD's momentum, grad is added without.
 * adam: param -= lr (m / c1) / (sqrt(u or v) / sqrt(c2) + eps) with c = 1 - beta^t.
 * apam: param -= lr sqrt(c2) / c1 m / (sqrt(u or v) + eps).
 * apam_paper: param -= lr m / sqrt(u) where u is not 0, then cut to the box.
 */
void nw_ref_lars_gradient_f(const nw_ref_lars *lars, size_t count, const float *param, const float *grad, float *d);
void nw_ref_dgc_sgd_step_f(const nw_ref_sgd *sgd, size_t count, bool first, float *param, const float *grad,
                           float *buffer);
void nw_ref_adam_step_f(const nw_ref_moments *adam, size_t count, int t, float *param, const float *grad, float *m,
                        float *v, float *u);
void nw_ref_apam_step_f(const nw_ref_moments *apam, size_t count, int t, float *param, const float *grad, float *m,
                        float *v, float *u);
void nw_ref_apam_paper_step_f(const nw_ref_moments *apam, size_t count, float *param, const float *grad, float *m,
                              float *v, float *u);

#endif
