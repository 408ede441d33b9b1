/*
 * logit.h - logistic regression as plain loops over dense rows, in double: the specification of src/train/logit_math.h and,
 * batch by batch, of a serial run. x is [rows][features], labels are -1 or 1. A sparse sum that leaves out zeros has the
 * same bits as the dense one, so results are compared bit for bit.
 */
#ifndef NW_TESTS_REFERENCE_LOGIT_H
#define NW_TESTS_REFERENCE_LOGIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nw_ref_logit {
    size_t rows, features;
    const double *x;
    const int8_t *labels;
    bool intercept; /* w[features], which does not decay */
    bool sum;       /* over the batch, else the mean */
    double beta1, beta2, decay, least;
} nw_ref_logit;

/* Loss of one batch, summed or averaged as the gradient is; `batch` has indices of rows. g has features + intercept. */
double nw_ref_logit_gradient(const nw_ref_logit *problem, const double *w, const uint32_t *batch, size_t count,
                             double *g);
/* One update with rate alpha. */
void nw_ref_logit_step(const nw_ref_logit *problem, double alpha, const double *g, double *w, double *m, double *v,
                       double *u);

#endif
