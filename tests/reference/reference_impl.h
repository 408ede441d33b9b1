/*
 * reference_impl.h - the plain-loop operators themselves, for the type REAL with names made by NAME(x).
 *
 * Included by reference.c once per type, hence no include guard; reference.h has the contracts. Every sum runs in
 * double and is rounded to REAL once. Gathers are written as gathers (each output is one sum) also in the backward
 * passes, so that no partial sum is ever rounded.
 */

/* ---- Convolution ---------------------------------------------------------------------------------------------- */

void NAME(nw_ref_conv_forward)(const nw_ref_conv *v, const REAL *x, const REAL *w, const REAL *bias, REAL *y)
{
    int oh = nw_ref_out(v->h, v->r, v->stride, v->pad);
    int ow = nw_ref_out(v->w, v->s, v->stride, v->pad);
    for (int n = 0; n < v->n; n++) {
        for (int k = 0; k < v->k; k++) {
            for (int i = 0; i < oh; i++) {
                for (int j = 0; j < ow; j++) {
                    double sum = bias ? (double)bias[k] : 0.0;
                    for (int c = 0; c < v->c; c++) {
                        for (int r = 0; r < v->r; r++) {
                            for (int s = 0; s < v->s; s++) {
                                int h = i * v->stride + r - v->pad;
                                int q = j * v->stride + s - v->pad;
                                if (inside(h, v->h) && inside(q, v->w)) {
                                    sum += (double)x[at4(v->c, v->h, v->w, n, c, h, q)] *
                                           (double)w[at4(v->c, v->r, v->s, k, c, r, s)];
                                }
                            }
                        }
                    }
                    y[at4(v->k, oh, ow, n, k, i, j)] = (REAL)sum;
                }
            }
        }
    }
}

/* dx[n][c][h][q] = the sum over the outputs (i, j) and taps (r, s) that read pixel (h, q). */
static void NAME(conv_backward_data)(const nw_ref_conv *v, const REAL *w, const REAL *dy, REAL *dx)
{
    int oh = nw_ref_out(v->h, v->r, v->stride, v->pad);
    int ow = nw_ref_out(v->w, v->s, v->stride, v->pad);
    for (int n = 0; n < v->n; n++) {
        for (int c = 0; c < v->c; c++) {
            for (int h = 0; h < v->h; h++) {
                for (int q = 0; q < v->w; q++) {
                    double sum = 0.0;
                    for (int k = 0; k < v->k; k++) {
                        for (int r = 0; r < v->r; r++) {
                            for (int s = 0; s < v->s; s++) {
                                int top = h + v->pad - r;
                                int left = q + v->pad - s;
                                if (top % v->stride != 0 || left % v->stride != 0) {
                                    continue;
                                }
                                int i = top / v->stride;
                                int j = left / v->stride;
                                if (inside(i, oh) && inside(j, ow)) {
                                    sum += (double)dy[at4(v->k, oh, ow, n, k, i, j)] *
                                           (double)w[at4(v->c, v->r, v->s, k, c, r, s)];
                                }
                            }
                        }
                    }
                    dx[at4(v->c, v->h, v->w, n, c, h, q)] = (REAL)sum;
                }
            }
        }
    }
}

static void NAME(conv_backward_weights)(const nw_ref_conv *v, const REAL *x, const REAL *dy, REAL *dw)
{
    int oh = nw_ref_out(v->h, v->r, v->stride, v->pad);
    int ow = nw_ref_out(v->w, v->s, v->stride, v->pad);
    for (int k = 0; k < v->k; k++) {
        for (int c = 0; c < v->c; c++) {
            for (int r = 0; r < v->r; r++) {
                for (int s = 0; s < v->s; s++) {
                    double sum = 0.0;
                    for (int n = 0; n < v->n; n++) {
                        for (int i = 0; i < oh; i++) {
                            for (int j = 0; j < ow; j++) {
                                int h = i * v->stride + r - v->pad;
                                int q = j * v->stride + s - v->pad;
                                if (inside(h, v->h) && inside(q, v->w)) {
                                    sum += (double)x[at4(v->c, v->h, v->w, n, c, h, q)] *
                                           (double)dy[at4(v->k, oh, ow, n, k, i, j)];
                                }
                            }
                        }
                    }
                    dw[at4(v->c, v->r, v->s, k, c, r, s)] = (REAL)sum;
                }
            }
        }
    }
}

static void NAME(conv_backward_bias)(const nw_ref_conv *v, const REAL *dy, REAL *dbias)
{
    int oh = nw_ref_out(v->h, v->r, v->stride, v->pad);
    int ow = nw_ref_out(v->w, v->s, v->stride, v->pad);
    for (int k = 0; k < v->k; k++) {
        double sum = 0.0;
        for (int n = 0; n < v->n; n++) {
            for (int i = 0; i < oh; i++) {
                for (int j = 0; j < ow; j++) {
                    sum += (double)dy[at4(v->k, oh, ow, n, k, i, j)];
                }
            }
        }
        dbias[k] = (REAL)sum;
    }
}

void NAME(nw_ref_conv_backward)(const nw_ref_conv *v, const REAL *x, const REAL *w, const REAL *dy, REAL *dx, REAL *dw,
                                REAL *dbias)
{
    if (dx) {
        NAME(conv_backward_data)(v, w, dy, dx);
    }
    if (dw) {
        NAME(conv_backward_weights)(v, x, dy, dw);
    }
    if (dbias) {
        NAME(conv_backward_bias)(v, dy, dbias);
    }
}

/* ---- Batch norm ----------------------------------------------------------------------------------------------- */

/* y = relu?((x - mean) scale + beta + residual?) for one channel. */
static void NAME(norm_channel)(const nw_ref_norm *v, int c, double mean, double scale, double beta, const REAL *x,
                               const REAL *residual, REAL *y)
{
    for (int n = 0; n < v->n; n++) {
        for (int h = 0; h < v->h; h++) {
            for (int w = 0; w < v->w; w++) {
                size_t at = at4(v->c, v->h, v->w, n, c, h, w);
                double value = ((double)x[at] - mean) * scale + beta;
                if (residual) {
                    value += (double)residual[at];
                }
                y[at] = (REAL)(v->relu && value <= 0.0 ? 0.0 : value);
            }
        }
    }
}

void NAME(nw_ref_norm_forward)(const nw_ref_norm *v, const REAL *x, const REAL *residual, const REAL *gamma,
                               const REAL *beta, REAL *running_mean, REAL *running_var, REAL *mean, REAL *rstd, REAL *y)
{
    double count = (double)volume(v->n, 1, v->h, v->w);
    for (int c = 0; c < v->c; c++) {
        double sum = 0.0;
        for (int n = 0; n < v->n; n++) {
            for (int h = 0; h < v->h; h++) {
                for (int w = 0; w < v->w; w++) {
                    sum += (double)x[at4(v->c, v->h, v->w, n, c, h, w)];
                }
            }
        }
        double average = sum / count;
        double squares = 0.0;
        for (int n = 0; n < v->n; n++) {
            for (int h = 0; h < v->h; h++) {
                for (int w = 0; w < v->w; w++) {
                    double distance = (double)x[at4(v->c, v->h, v->w, n, c, h, w)] - average;
                    squares += distance * distance;
                }
            }
        }
        double inverse = 1.0 / sqrt(squares / count + NW_REF_NORM_EPS);
        NAME(norm_channel)(v, c, average, inverse * (double)gamma[c], (double)beta[c], x, residual, y);
        mean[c] = (REAL)average;
        rstd[c] = (REAL)inverse;
        if (running_mean) {
            double keep = 1.0 - NW_REF_NORM_MOMENTUM;
            double unbiased = squares / (count - 1.0);
            running_mean[c] = (REAL)(keep * (double)running_mean[c] + NW_REF_NORM_MOMENTUM * average);
            running_var[c] = (REAL)(keep * (double)running_var[c] + NW_REF_NORM_MOMENTUM * unbiased);
        }
    }
}

void NAME(nw_ref_norm_eval)(const nw_ref_norm *v, const REAL *x, const REAL *residual, const REAL *gamma,
                            const REAL *beta, const REAL *running_mean, const REAL *running_var, REAL *y)
{
    for (int c = 0; c < v->c; c++) {
        double inverse = 1.0 / sqrt((double)running_var[c] + NW_REF_NORM_EPS);
        NAME(norm_channel)(v, c, (double)running_mean[c], inverse * (double)gamma[c], (double)beta[c], x, residual, y);
    }
}

/*
 * With xhat = (x - mean) rstd and g = dy behind the ReLU: dbeta = sum g, dgamma = sum g xhat,
 * dx = gamma rstd (g - dbeta / M - xhat dgamma / M), dresidual = g.
 */
void NAME(nw_ref_norm_backward)(const nw_ref_norm *v, const REAL *x, const REAL *y, const REAL *gamma, const REAL *mean,
                                const REAL *rstd, const REAL *dy, REAL *dx, REAL *dgamma, REAL *dbeta, REAL *dresidual)
{
    double count = (double)volume(v->n, 1, v->h, v->w);
    for (int c = 0; c < v->c; c++) {
        double average = (double)mean[c];
        double inverse = (double)rstd[c];
        double sum_g = 0.0;
        double sum_g_xhat = 0.0;
        for (int n = 0; n < v->n; n++) {
            for (int h = 0; h < v->h; h++) {
                for (int w = 0; w < v->w; w++) {
                    size_t at = at4(v->c, v->h, v->w, n, c, h, w);
                    double g = v->relu && !(y[at] > 0) ? 0.0 : (double)dy[at];
                    sum_g += g;
                    sum_g_xhat += g * ((double)x[at] - average) * inverse;
                }
            }
        }
        for (int n = 0; n < v->n; n++) {
            for (int h = 0; h < v->h; h++) {
                for (int w = 0; w < v->w; w++) {
                    size_t at = at4(v->c, v->h, v->w, n, c, h, w);
                    double g = v->relu && !(y[at] > 0) ? 0.0 : (double)dy[at];
                    double xhat = ((double)x[at] - average) * inverse;
                    if (dx) {
                        dx[at] = (REAL)((double)gamma[c] * inverse * (g - (sum_g + xhat * sum_g_xhat) / count));
                    }
                    if (dresidual) {
                        dresidual[at] = (REAL)g;
                    }
                }
            }
        }
        if (dgamma) {
            dgamma[c] = (REAL)sum_g_xhat;
        }
        if (dbeta) {
            dbeta[c] = (REAL)sum_g;
        }
    }
}

/* ---- Pooling -------------------------------------------------------------------------------------------------- */

void NAME(nw_ref_max_pool_forward)(const nw_ref_pool *v, const REAL *x, REAL *y, int32_t *index)
{
    int oh = nw_ref_out(v->h, v->kernel, v->stride, v->pad);
    int ow = nw_ref_out(v->w, v->kernel, v->stride, v->pad);
    for (int n = 0; n < v->n; n++) {
        for (int c = 0; c < v->c; c++) {
            for (int i = 0; i < oh; i++) {
                for (int j = 0; j < ow; j++) {
                    REAL best = 0;
                    int32_t where = -1;
                    for (int r = 0; r < v->kernel; r++) {
                        for (int s = 0; s < v->kernel; s++) {
                            int h = i * v->stride + r - v->pad;
                            int w = j * v->stride + s - v->pad;
                            if (!inside(h, v->h) || !inside(w, v->w)) {
                                continue;
                            }
                            REAL value = x[at4(v->c, v->h, v->w, n, c, h, w)];
                            if (where < 0 || value > best) {
                                best = value;
                                where = h * v->w + w;
                            }
                        }
                    }
                    y[at4(v->c, oh, ow, n, c, i, j)] = best;
                    index[at4(v->c, oh, ow, n, c, i, j)] = where;
                }
            }
        }
    }
}

void NAME(nw_ref_max_pool_backward)(const nw_ref_pool *v, const int32_t *index, const REAL *dy, REAL *dx)
{
    int oh = nw_ref_out(v->h, v->kernel, v->stride, v->pad);
    int ow = nw_ref_out(v->w, v->kernel, v->stride, v->pad);
    for (int n = 0; n < v->n; n++) {
        for (int c = 0; c < v->c; c++) {
            for (int h = 0; h < v->h; h++) {
                for (int w = 0; w < v->w; w++) {
                    double sum = 0.0;
                    for (int i = 0; i < oh; i++) {
                        for (int j = 0; j < ow; j++) {
                            size_t at = at4(v->c, oh, ow, n, c, i, j);
                            if (index[at] == h * v->w + w) {
                                sum += (double)dy[at];
                            }
                        }
                    }
                    dx[at4(v->c, v->h, v->w, n, c, h, w)] = (REAL)sum;
                }
            }
        }
    }
}

void NAME(nw_ref_avg_pool_forward)(const nw_ref_pool *v, const REAL *x, REAL *y)
{
    int oh = nw_ref_out(v->h, v->kernel, v->stride, v->pad);
    int ow = nw_ref_out(v->w, v->kernel, v->stride, v->pad);
    double area = (double)(v->kernel * v->kernel);
    for (int n = 0; n < v->n; n++) {
        for (int c = 0; c < v->c; c++) {
            for (int i = 0; i < oh; i++) {
                for (int j = 0; j < ow; j++) {
                    double sum = 0.0;
                    for (int r = 0; r < v->kernel; r++) {
                        for (int s = 0; s < v->kernel; s++) {
                            int h = i * v->stride + r - v->pad;
                            int w = j * v->stride + s - v->pad;
                            if (inside(h, v->h) && inside(w, v->w)) {
                                sum += (double)x[at4(v->c, v->h, v->w, n, c, h, w)];
                            }
                        }
                    }
                    y[at4(v->c, oh, ow, n, c, i, j)] = (REAL)(sum / area);
                }
            }
        }
    }
}

void NAME(nw_ref_avg_pool_backward)(const nw_ref_pool *v, const REAL *dy, REAL *dx)
{
    int oh = nw_ref_out(v->h, v->kernel, v->stride, v->pad);
    int ow = nw_ref_out(v->w, v->kernel, v->stride, v->pad);
    double area = (double)(v->kernel * v->kernel);
    for (int n = 0; n < v->n; n++) {
        for (int c = 0; c < v->c; c++) {
            for (int h = 0; h < v->h; h++) {
                for (int w = 0; w < v->w; w++) {
                    double sum = 0.0;
                    for (int i = 0; i < oh; i++) {
                        for (int j = 0; j < ow; j++) {
                            int r = h + v->pad - i * v->stride;
                            int s = w + v->pad - j * v->stride;
                            if (inside(r, v->kernel) && inside(s, v->kernel)) {
                                sum += (double)dy[at4(v->c, oh, ow, n, c, i, j)];
                            }
                        }
                    }
                    dx[at4(v->c, v->h, v->w, n, c, h, w)] = (REAL)(sum / area);
                }
            }
        }
    }
}

void NAME(nw_ref_global_pool_forward)(const nw_ref_pool *v, const REAL *x, REAL *y)
{
    double area = (double)volume(1, 1, v->h, v->w);
    for (int n = 0; n < v->n; n++) {
        for (int c = 0; c < v->c; c++) {
            double sum = 0.0;
            for (int h = 0; h < v->h; h++) {
                for (int w = 0; w < v->w; w++) {
                    sum += (double)x[at4(v->c, v->h, v->w, n, c, h, w)];
                }
            }
            y[at2(v->c, n, c)] = (REAL)(sum / area);
        }
    }
}

void NAME(nw_ref_global_pool_backward)(const nw_ref_pool *v, const REAL *dy, REAL *dx)
{
    double area = (double)volume(1, 1, v->h, v->w);
    for (int n = 0; n < v->n; n++) {
        for (int c = 0; c < v->c; c++) {
            for (int h = 0; h < v->h; h++) {
                for (int w = 0; w < v->w; w++) {
                    dx[at4(v->c, v->h, v->w, n, c, h, w)] = (REAL)((double)dy[at2(v->c, n, c)] / area);
                }
            }
        }
    }
}

/* ---- Linear --------------------------------------------------------------------------------------------------- */

void NAME(nw_ref_linear_forward)(const nw_ref_linear *v, const REAL *x, const REAL *w, const REAL *bias, REAL *y)
{
    for (int n = 0; n < v->n; n++) {
        for (int k = 0; k < v->k; k++) {
            double sum = bias ? (double)bias[k] : 0.0;
            for (int c = 0; c < v->c; c++) {
                sum += (double)x[at2(v->c, n, c)] * (double)w[at2(v->c, k, c)];
            }
            y[at2(v->k, n, k)] = (REAL)sum;
        }
    }
}

void NAME(nw_ref_linear_backward)(const nw_ref_linear *v, const REAL *x, const REAL *w, const REAL *dy, REAL *dx,
                                  REAL *dw, REAL *dbias)
{
    for (int n = 0; dx && n < v->n; n++) {
        for (int c = 0; c < v->c; c++) {
            double sum = 0.0;
            for (int k = 0; k < v->k; k++) {
                sum += (double)dy[at2(v->k, n, k)] * (double)w[at2(v->c, k, c)];
            }
            dx[at2(v->c, n, c)] = (REAL)sum;
        }
    }
    for (int k = 0; dw && k < v->k; k++) {
        for (int c = 0; c < v->c; c++) {
            double sum = 0.0;
            for (int n = 0; n < v->n; n++) {
                sum += (double)dy[at2(v->k, n, k)] * (double)x[at2(v->c, n, c)];
            }
            dw[at2(v->c, k, c)] = (REAL)sum;
        }
    }
    for (int k = 0; dbias && k < v->k; k++) {
        double sum = 0.0;
        for (int n = 0; n < v->n; n++) {
            sum += (double)dy[at2(v->k, n, k)];
        }
        dbias[k] = (REAL)sum;
    }
}

/* ---- Element by element --------------------------------------------------------------------------------------- */

void NAME(nw_ref_dropout_forward)(size_t count, double p, const uint8_t *keep, const REAL *x, REAL *y)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = keep[i] ? (REAL)((double)x[i] / (1.0 - p)) : 0;
    }
}

/* ---- Loss ----------------------------------------------------------------------------------------------------- */

/* The target of image n is q = (1 - eps) [k = label] + eps / classes; loss = -sum q log p, dlogits = p - q. */
REAL NAME(nw_ref_cross_entropy)(const nw_ref_loss *v, const REAL *logits, const int32_t *labels, REAL *dlogits)
{
    double weight = v->mean ? 1.0 / (double)v->n : 1.0;
    double total = 0.0;
    for (int n = 0; n < v->n; n++) {
        const REAL *row = logits + at2(v->classes, n, 0);
        double highest = (double)row[0];
        for (int k = 1; k < v->classes; k++) {
            highest = (double)row[k] > highest ? (double)row[k] : highest;
        }
        double sum = 0.0;
        for (int k = 0; k < v->classes; k++) {
            sum += exp((double)row[k] - highest);
        }
        double log_sum = log(sum) + highest;
        for (int k = 0; k < v->classes; k++) {
            double log_p = (double)row[k] - log_sum;
            double q = v->smoothing / (double)v->classes + (k == labels[n] ? 1.0 - v->smoothing : 0.0);
            total -= q * log_p;
            if (dlogits) {
                dlogits[at2(v->classes, n, k)] = (REAL)(weight * (exp(log_p) - q));
            }
        }
    }
    return (REAL)(weight * total);
}
