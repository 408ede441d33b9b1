/*
 * norm.c - batch normalisation, from what the convolutions' epilogues gathered (Ioffe and Szegedy 2015).
 *
 *   forward    a = gamma (y - mean) rstd + beta = scale y + shift,  rstd = 1 / sqrt(var + eps), var biased
 *   backward   dy = c1 g + c2 + c3 y  with  c1 = gamma rstd, c3 = -c1 rstd dgamma / M, c2 = -c1 dbeta / M - c3 mean,
 *              dbeta = sum g, dgamma = rstd sum g (y - mean), M the number of values of a channel.
 *
 * Partial moments are combined item by item, in double, with Chan's formula; items in order, channels in groups of 16
 * that are the unit of work: nothing depends on the number of threads.
 */
#include "compute/kernels.h"

#include <math.h>

#define MOMENTUM 0.1
#define EPS      1e-5
enum { GROUP = 16 };

typedef struct norm_job {
    const nw_tensor *y;
    const nw_norm *norm;
    const float *gamma, *beta;
    float *running_mean, *running_var, *dgamma, *dbeta;
    bool accumulate;
} norm_job;

static void forward_task(void *context, int group, int worker)
{
    const norm_job *job = context;
    const nw_tensor *y = job->y;
    const nw_norm *norm = job->norm;
    int c0 = group * GROUP, count = nw_min(GROUP, y->pitch - c0);
    size_t pitch = (size_t)y->pitch;
    double mean[GROUP] = {0}, m2[GROUP] = {0}, total = 0;
    (void)worker;
    for (int item = 0; item < nw_items(y); item++) {
        const float *p = norm->moments.partial + (size_t)item * 3 * pitch + (size_t)c0;
        double n = (double)nw_tensor_valid(y, item / y->h) * y->w, share = n / (total + n), weight = total * share;
        for (int j = 0; j < count; j++) {
            double sum = (double)p[pitch + (size_t)j], m = (double)p[j] + sum / n;
            double delta = m - mean[j];
            mean[j] += delta * share;
            m2[j] += (double)p[2 * pitch + (size_t)j] - sum * sum / n + delta * delta * weight;
        }
        total += n;
    }
    for (int j = 0; j < count; j++) {
        int c = c0 + j;
        if (c >= y->c) { /* padding stays zero */
            norm->mean[c] = norm->rstd[c] = norm->scale[c] = norm->shift[c] = 0.0f;
            continue;
        }
        double var = m2[j] > 0 ? m2[j] / total : m2[j] * 0.0, rstd = 1.0 / sqrt(var + EPS); /* keeps NaN */
        norm->mean[c] = (float)mean[j];
        norm->rstd[c] = (float)rstd;
        norm->scale[c] = (float)((double)job->gamma[c] * rstd);
        norm->shift[c] = (float)((double)job->beta[c] - mean[j] * (double)job->gamma[c] * rstd);
        if (job->running_mean) {
            double unbiased = total > 1 ? var * total / (total - 1) : var;
            job->running_mean[c] += (float)(MOMENTUM * (mean[j] - (double)job->running_mean[c]));
            job->running_var[c] += (float)(MOMENTUM * (unbiased - (double)job->running_var[c]));
        }
    }
}

void nw_norm_forward(nw_exec *exec, const nw_tensor *y, const nw_norm *norm, const float *gamma, const float *beta,
                     float *running_mean, float *running_var)
{
    norm_job job = {y, norm, gamma, beta, .running_mean = running_mean, .running_var = running_var};
    nw_exec_run(exec, NW_WORK_STATS, nw_div_up(y->pitch, GROUP), forward_task, &job);
}

void nw_norm_eval(int c, int pitch, const float *gamma, const float *beta, const float *running_mean,
                  const float *running_var, float *scale, float *shift)
{
    for (int i = 0; i < pitch; i++) {
        double s = i < c ? (double)gamma[i] / sqrt((double)running_var[i] + EPS) : 0.0;
        scale[i] = (float)s;
        shift[i] = i < c ? (float)((double)beta[i] - (double)running_mean[i] * s) : 0.0f;
    }
}

static void backward_task(void *context, int group, int worker)
{
    const norm_job *job = context;
    const nw_tensor *y = job->y;
    const nw_norm *norm = job->norm;
    int c0 = group * GROUP, count = nw_min(GROUP, y->pitch - c0);
    double g[GROUP] = {0}, gy[GROUP] = {0}, total = (double)y->n * y->h * y->w;
    (void)worker;
    for (int item = 0; item < nw_items(y); item++) {
        size_t at = (size_t)item * (size_t)y->pitch + (size_t)c0;
        for (int j = 0; j < count; j++) {
            g[j] += (double)norm->sum_g[at + (size_t)j];
            gy[j] += (double)norm->sum_gy[at + (size_t)j];
        }
    }
    for (int j = 0; j < count; j++) {
        int c = c0 + j;
        if (c >= y->c) {
            norm->c1[c] = norm->c2[c] = norm->c3[c] = 0.0f;
            continue;
        }
        double rstd = (double)norm->rstd[c], dgamma = gy[j] * rstd, c1 = (double)job->gamma[c] * rstd;
        double c3 = -c1 * rstd * dgamma / total;
        job->dgamma[c] = (float)dgamma + (job->accumulate ? job->dgamma[c] : 0.0f);
        job->dbeta[c] = (float)g[j] + (job->accumulate ? job->dbeta[c] : 0.0f);
        norm->c1[c] = (float)c1;
        norm->c2[c] = (float)(-c1 * g[j] / total - c3 * (double)norm->mean[c]);
        norm->c3[c] = (float)c3;
    }
}

void nw_norm_backward(nw_exec *exec, const nw_tensor *y, const nw_norm *norm, const float *gamma, float *dgamma,
                      float *dbeta, bool accumulate)
{
    norm_job job = {y, norm, gamma, .dgamma = dgamma, .dbeta = dbeta, .accumulate = accumulate};
    nw_exec_run(exec, NW_WORK_STATS, nw_div_up(y->pitch, GROUP), backward_task, &job);
}
