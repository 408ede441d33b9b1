/*
 * test_norm_kernels.c - batch norm from end to end (moments in a convolution's epilogue, the forward source, the sums
 * of a sink, the gradient source), and the plain parts of a step: loss, update, booking of time.
 */
#include "support/kernel_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reference/reference.h"

enum { SEED = 22 };

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))
#define EPSILON     0x1p-23 /* of f32 */

/* ---- batch norm ------------------------------------------------------------------------------------------------- */

/*
 * y = conv(x) + bias, a = relu(norm(y)), z = conv(a); from dz back to dy, the gradient that enters the first
 * convolution. Channel 1 is constant; channel 2 has a mean of `far` and a deviation near 1; channel 3 is constant
 * there.
 */
typedef struct norm_case {
    nw_conv first, second;
    int n;
    nw_dtype table, y_type, a_type;
    double far;
    bool running, accumulate;
    double *x, *dz, *da;
    float *w1, *w2, *bias, *gamma, *beta, *running_mean, *running_var, *dgamma, *dbeta;
    double *exact_y;
} norm_case;

/* What one run computes; channel arrays hold `pitch` floats. */
typedef struct norm_result {
    nw_tensor y, a, g, dy;
    float *mean, *rstd, *scale, *shift, *running_mean, *running_var, *dgamma, *dbeta, *c1, *c2, *c3;
} norm_result;

static fx_shape middle(const norm_case *f) { return (fx_shape){f->n, f->first.k, f->first.oh, f->first.ow}; }

static float *copy_floats(const float *from, size_t count, const char *name)
{
    return memcpy(fx_alloc(count * sizeof *from, name), from, count * sizeof *from);
}

static norm_result norm_compute(const norm_case *f, const fx_run *run)
{
    const nw_kernels *kernels = run->kernels;
    fx_shape in = {f->n, f->first.c, f->first.h, f->first.w}, out = {f->n, f->second.k, f->second.oh, f->second.ow};
    size_t c = (size_t)f->first.k, pitch_bytes = (size_t)nw_channel_pitch(f->first.k) * sizeof(float);
    norm_result r = {.y = fx_tensor(middle(f), run->block, f->y_type, "y"),
                     .a = fx_tensor(middle(f), run->block, f->a_type, "a"),
                     .g = fx_tensor(middle(f), run->block, f->y_type, "g"),
                     .dy = fx_tensor(middle(f), run->block, f->a_type, "dy")};
    float **channels[] = {&r.mean, &r.rstd, &r.scale, &r.shift, &r.c1, &r.c2, &r.c3};
    for (int i = 0; i < COUNT(channels); i++) *channels[i] = fx_alloc(pitch_bytes, "channels of a norm");
    if (f->running) {
        r.running_mean = copy_floats(f->running_mean, c, "running mean");
        r.running_var = copy_floats(f->running_var, c, "running variance");
    }
    r.dgamma = f->accumulate ? copy_floats(f->dgamma, c, "dgamma") : fx_alloc(c * sizeof(float), "dgamma");
    r.dbeta = f->accumulate ? copy_floats(f->dbeta, c, "dbeta") : fx_alloc(c * sizeof(float), "dbeta");

    nw_need need = nw_pointwise_need(r.y.pitch, run->block);
    need = nw_need_max(need, kernels->conv_need(&f->first, f->n, run->block, NW_FORWARD, run->threads));
    need = nw_need_max(need, kernels->conv_need(&f->second, f->n, run->block, NW_BACKWARD_DATA, run->threads));
    nw_exec exec = fx_exec(run, need);
    nw_tensor x = fx_tensor_of(f->x, in, run->block, f->table, "x"),
              dz = fx_tensor_of(f->dz, out, run->block, f->table, "dz");
    nw_source x_source = nw_source_plain(&x), dz_source = nw_source_plain(&dz);
    nw_moments moments = {fx_alloc(nw_moments_floats(&r.y) * sizeof(float), "moments")};

    kernels->conv_forward(&exec, &f->first, &x_source, f->w1, f->bias, &r.y, &moments, NW_WORK_CONV_FORWARD);
    nw_norm norm = {.moments = moments,
                    .mean = r.mean,
                    .rstd = r.rstd,
                    .scale = r.scale,
                    .shift = r.shift,
                    .c1 = r.c1,
                    .c2 = r.c2,
                    .c3 = r.c3};
    nw_norm_forward(&exec, &r.y, &norm, f->gamma, f->beta, r.running_mean, r.running_var);
    nw_source a_source = {.a = {.t = &r.y, .scale = r.scale, .shift = r.shift, .relu = true}};
    kernels->materialise(&exec, &a_source, &r.a, NULL);

    size_t sums = nw_sums_floats(&r.y) * sizeof(float);
    nw_sink sink = {.gate = {.t = &r.y, .scale = r.scale, .shift = r.shift},
                    .sum_g = fx_alloc(sums, "sum_g"),
                    .norm = {{.y = &r.y, .mean = r.mean, .sum_gy = fx_alloc(sums, "sum_gy")}}};
    kernels->conv_backward_data(&exec, &f->second, &dz_source, f->w2, &r.g, &sink, NW_WORK_CONV_DATA);
    norm.sum_g = sink.sum_g;
    norm.sum_gy = sink.norm[0].sum_gy;
    nw_norm_backward(&exec, &r.y, &norm, f->gamma, r.dgamma, r.dbeta, f->accumulate);
    nw_source dy_source = {.a = {.t = &r.g, .scale = r.c1, .shift = r.c2}, .b = {.t = &r.y, .scale = r.c3}};
    kernels->materialise(&exec, &dy_source, &r.dy, NULL);
    return r;
}

static double *exported(const nw_tensor *t)
{
    size_t count = fx_count((fx_shape){t->n, t->c, t->h, t->w});
    float *values = fx_alloc(count * sizeof *values, "export");
    nw_tensor_export(t, values);
    return fx_doubles(values, count);
}

/* Statistics, running statistics and the normalised values. */
static void norm_check_forward(const norm_case *f, const norm_result *r, const double *a)
{
    fx_shape s = middle(f);
    size_t count = fx_count(s), plane = (size_t)s.h * (size_t)s.w, c = (size_t)s.c;
    /* A bf16 tensor's moments are those of the values before they were rounded. */
    double *y = f->y_type == NW_BF16 ? f->exact_y : exported(&r->y);
    double *mean = fx_zeros(c), *rstd = fx_zeros(c), *want = fx_zeros(count),
           y_round = f->y_type == NW_BF16 ? FX_BF16 : 0.0;
    double *running_mean = fx_doubles(f->running_mean, c), *running_var = fx_doubles(f->running_var, c);
    nw_ref_norm norm = {s.n, s.c, s.h, s.w, true};
    nw_ref_norm_forward_d(&norm, y, NULL, fx_doubles(f->gamma, c), fx_doubles(f->beta, c), running_mean, running_var,
                          mean, rstd, want);
    for (size_t k = 0; k < c; k++) {
        double deviation = 1.0 / rstd[k];
        fx_near("mean", (int)k, (double)r->mean[k], mean[k], EPSILON * fabs(mean[k]) + 1e-5 * deviation);
        fx_near("rstd", (int)k, (double)r->rstd[k], rstd[k], 1e-5 * rstd[k]);
        if (!f->running) continue;
        double variance = deviation * deviation;
        fx_near("running mean", (int)k, (double)r->running_mean[k], running_mean[k],
                2 * EPSILON * fabs(mean[k]) + 1e-5);
        fx_near("running variance", (int)k, (double)r->running_var[k], running_var[k], 1e-5 * (variance + 1));
    }
    for (int k = s.c; k < r->y.pitch; k++)
        if (r->mean[k] != 0 || r->rstd[k] != 0 || r->scale[k] != 0 || r->shift[k] != 0)
            fx_fail("channel %d is not zero", k);
    for (size_t i = 0; i < count; i++) {
        /* scale y + shift loses what cancels. */
        double terms = fabs((double)r->scale[i / plane % c] * y[i]) + fabs((double)r->shift[i / plane % c]);
        fx_near("a", (int)i, a[i], want[i],
                2 * EPSILON * terms + 3e-5 + y_round * terms + (f->a_type == NW_BF16 ? FX_BF16 * fabs(want[i]) : 0));
    }
    fx_check_invariant("a", &r->a);
}

/* dgamma, dbeta and dy, from what the forward pass of the same run left. */
static void norm_check_backward(const norm_case *f, const norm_result *r, const double *a)
{
    fx_shape s = middle(f);
    size_t count = fx_count(s), plane = (size_t)s.h * (size_t)s.w, c = (size_t)s.c;
    double *y = exported(&r->y), *dy = exported(&r->dy), *g = fx_zeros(count);
    double *mean = fx_doubles(r->mean, c), *rstd = fx_doubles(r->rstd, c);
    double *want = fx_zeros(count), *dgamma = fx_zeros(c), *dbeta = fx_zeros(c), *sum = fx_zeros(c),
           *sum_y = fx_zeros(c);
    nw_ref_norm norm = {s.n, s.c, s.h, s.w, true};
    nw_ref_norm_backward_d(&norm, y, a, fx_doubles(f->gamma, c), mean, rstd, f->da, want, dgamma, dbeta, g);
    fx_compare_tensor("g", &r->g, g);
    /* What errors are measured by: where the gate is open, g or, since its sums may cancel, what is typical of it. */
    double typical = 0, total = (double)(plane * (size_t)s.n);
    for (size_t i = 0; i < count; i++) typical += f->da[i] * f->da[i] / (double)count;
    typical = 0.1 * sqrt(typical);
    for (size_t i = 0; i < count; i++) {
        size_t k = i / plane % c;
        if (!(a[i] > 0)) continue;
        sum[k] += fabs(g[i]) + typical;
        sum_y[k] += (fabs(g[i]) + typical) * fabs(y[i] - mean[k]) * rstd[k];
    }
    for (size_t k = 0; k < c; k++) {
        double before_gamma = f->accumulate ? (double)f->dgamma[k] : 0.0;
        double before_beta = f->accumulate ? (double)f->dbeta[k] : 0.0;
        fx_near("dgamma", (int)k, (double)r->dgamma[k], dgamma[k] + before_gamma,
                FX_ELEMENT * (sum_y[k] + fabs(before_gamma)));
        fx_near("dbeta", (int)k, (double)r->dbeta[k], dbeta[k] + before_beta,
                FX_ELEMENT * (sum[k] + fabs(before_beta)));
    }
    for (size_t i = 0; i < count; i++) {
        size_t k = i / plane % c;
        double c1 = fabs((double)r->c1[k]), open = a[i] > 0 ? fabs(g[i]) + typical : 0.0;
        double size = c1 * (open + (sum[k] + fabs(y[i] - mean[k]) * rstd[k] * sum_y[k]) / total);
        double allowed = FX_ELEMENT * size + 2 * EPSILON * (fabs((double)r->c2[k]) + fabs((double)r->c3[k] * y[i]));
        if (f->y_type == NW_BF16) allowed += FX_BF16 * c1 * fabs(g[i]); /* g was stored */
        if (f->a_type == NW_BF16) allowed += FX_BF16 * (fabs(want[i]) + allowed);
        fx_near("dy", (int)i, dy[i], want[i], allowed);
    }
    fx_check_invariant("dy", &r->dy);
}

static uint64_t norm_body(const fx_run *run, void *context)
{
    const norm_case *f = context;
    norm_result r = norm_compute(f, run);
    double *a = exported(&r.a);
    norm_check_forward(f, &r, a);
    norm_check_backward(f, &r, a);
    uint64_t hash = fx_hash_tensor(fx_hash_tensor(FX_HASH_START, &r.y), &r.a);
    hash = fx_hash_tensor(fx_hash_tensor(hash, &r.g), &r.dy);
    size_t bytes = (size_t)f->first.k * sizeof(float);
    hash = fx_hash(fx_hash(hash, r.mean, bytes), r.rstd, bytes);
    hash = fx_hash(fx_hash(hash, r.dgamma, bytes), r.dbeta, bytes);
    return f->running ? fx_hash(fx_hash(hash, r.running_mean, bytes), r.running_var, bytes) : hash;
}

static void norm_case_run(const int shape[6], nw_dtype table, nw_rng *rng)
{
    int n = shape[0], c = shape[1], h = shape[2], w = shape[3], k = shape[4], k2 = shape[5];
    norm_case f = {.n = n,
                   .table = table,
                   .y_type = fx_type(rng, table),
                   .a_type = fx_type(rng, table),
                   .running = !fx_chance(rng, 4),
                   .accumulate = fx_chance(rng, 2)};
    f.far = f.y_type == NW_BF16 ? 3.0 : 1000.0;
    assert_int_equal(nw_conv_make(&f.first, c, h, w, k, 3, 3, 1, 1), NW_OK);
    assert_int_equal(nw_conv_make(&f.second, k, h, w, k2, 1, 1, 1, 0), NW_OK);
    size_t first = nw_conv_weights(&f.first), second = nw_conv_weights(&f.second), channels = (size_t)k,
           filter = (size_t)c * 9;
    size_t count = fx_count(middle(&f));
    f.x = fx_values(rng, (size_t)n * (size_t)c * (size_t)h * (size_t)w, table, table);
    f.dz = fx_values(rng, (size_t)n * (size_t)k2 * (size_t)h * (size_t)w, table, table);
    double *w1 = fx_values(rng, first, table, table), *bias = fx_values(rng, channels, table, NW_F32);
    for (size_t i = 0; i < first; i++)
        w1[i] =
            i / filter == 1 || i / filter == 3 ? 0.0 : w1[i] * (table == NW_F32 ? 1.0 / sqrt((double)filter) : 0.0625);
    if (k > 2) bias[2] = f.far;
    if (k > 3) bias[3] = f.far;
    f.w1 = fx_floats(w1, first, "w1");
    f.w2 = fx_floats(fx_values(rng, second, table, table), second, "w2");
    f.bias = fx_floats(bias, channels, "bias");
    float **randoms[] = {&f.gamma, &f.beta, &f.running_mean, &f.running_var, &f.dgamma, &f.dbeta};
    for (int i = 0; i < COUNT(randoms); i++)
        *randoms[i] = fx_floats(fx_values(rng, channels, NW_F32, NW_F32), channels, "random");
    for (size_t i = 0; i < channels; i++) f.running_var[i] *= f.running_var[i];

    nw_ref_conv conv1 = {n, c, h, w, k, 3, 3, 1, 1}, conv2 = {n, k, h, w, k2, 1, 1, 1, 0};
    f.exact_y = fx_zeros(count);
    f.da = fx_zeros(count);
    nw_ref_conv_forward_d(&conv1, f.x, fx_doubles(f.w1, first), fx_doubles(f.bias, channels), f.exact_y);
    nw_ref_conv_backward_d(&conv2, NULL, fx_doubles(f.w2, second), f.dz, f.da, NULL, NULL);
    fx_describe("batch norm of %d x %d x %d x %d, y %s, a %s", n, k, h, w, fx_type_name(f.y_type),
                fx_type_name(f.a_type));
    fx_for_runs(table, norm_body, &f);
}

static void test_norm(void **state)
{
    (void)state;
    /* n, c, h, w, k, k2 */
    static const int shapes[][6] = {{2, 3, 1, 1, 4, 3},    {5, 4, 3, 2, 5, 8},     {16, 16, 4, 4, 16, 16},
                                    {17, 8, 5, 3, 24, 4},  {33, 20, 3, 3, 33, 17}, {40, 3, 6, 5, 10, 5},
                                    {64, 5, 2, 7, 48, 32}, {70, 10, 3, 4, 64, 10}};
    for (int i = 0; i < 3 * COUNT(shapes); i++)
        for (int table = NW_F32; table <= NW_BF16; table++) {
            nw_rng rng = nw_rng_make(SEED, NW_PURPOSE_TEST, (uint64_t)i, (uint32_t)table);
            norm_case_run(shapes[i % COUNT(shapes)], (nw_dtype)table, &rng);
            fx_release(0);
        }
}

/* One value a channel has variance 0, and no NaN comes of it. */
static uint64_t single_body(const fx_run *run, void *context)
{
    (void)context;
    double value[] = {7.5, -2.0};
    float gamma[] = {2, 3}, beta[] = {0.5f, -1}, running_mean[] = {1, 1}, running_var[] = {4, 4};
    float mean[4], rstd[4], scale[4], shift[4];
    nw_tensor x = fx_tensor_of(value, (fx_shape){1, 2, 1, 1}, run->block, NW_F32, "x");
    nw_tensor y = fx_tensor((fx_shape){1, 2, 1, 1}, run->block, NW_F32, "y");
    nw_moments moments = {fx_alloc(nw_moments_floats(&y) * sizeof(float), "moments")};
    nw_source source = nw_source_plain(&x);
    nw_exec exec = fx_exec(run, nw_pointwise_need(y.pitch, run->block));
    run->kernels->materialise(&exec, &source, &y, &moments);
    nw_norm norm = {.moments = moments, .mean = mean, .rstd = rstd, .scale = scale, .shift = shift};
    nw_norm_forward(&exec, &y, &norm, gamma, beta, running_mean, running_var);
    for (int c = 0; c < 2; c++) {
        fx_near("mean", c, (double)mean[c], value[c], 0);
        fx_near("rstd", c, (double)rstd[c], 1 / sqrt(1e-5), 1e-4);
        fx_near("a", c, (double)scale[c] * value[c] + (double)shift[c], (double)beta[c], 1e-3);
        fx_near("running mean", c, (double)running_mean[c], 0.9 + 0.1 * value[c], 1e-6);
        fx_near("running variance", c, (double)running_var[c], 3.6, 1e-6);
    }
    return 0;
}

static void test_norm_of_one_value(void **state)
{
    (void)state;
    fx_describe("batch norm of one value");
    fx_for_runs(NW_F32, single_body, NULL);
    fx_for_runs(NW_BF16, single_body, NULL);
}

typedef struct eval_case {
    fx_shape shape;
    nw_dtype table;
    double *x, *want;
    float *gamma, *beta, *mean, *var;
} eval_case;

static uint64_t eval_body(const fx_run *run, void *context)
{
    const eval_case *f = context;
    nw_tensor x = fx_tensor_of(f->x, f->shape, run->block, f->table, "x"),
              a = fx_tensor(f->shape, run->block, f->table, "a");
    float *scale = fx_alloc((size_t)x.pitch * sizeof(float), "scale"),
          *shift = fx_alloc((size_t)x.pitch * sizeof(float), "shift");
    nw_norm_eval(x.c, x.pitch, f->gamma, f->beta, f->mean, f->var, scale, shift);
    nw_source source = {.a = {.t = &x, .scale = scale, .shift = shift, .relu = true}};
    nw_exec exec = fx_exec(run, nw_pointwise_need(x.pitch, run->block));
    run->kernels->materialise(&exec, &source, &a, NULL);
    fx_compare_tensor("a", &a, f->want);
    return fx_hash_tensor(FX_HASH_START, &a);
}

static void test_norm_eval(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int table = NW_F32; table <= NW_BF16; table++) {
            static const int channels[] = {1, 5, 8, 16, 33, 64};
            nw_rng rng = nw_rng_make(SEED, NW_PURPOSE_TEST, (uint64_t)i, (uint32_t)(10 + table));
            eval_case f = {.shape = {18, channels[i], 2, 3}, .table = (nw_dtype)table};
            size_t count = fx_count(f.shape), c = (size_t)f.shape.c;
            f.x = fx_values(&rng, count, f.table, f.table);
            f.want = fx_zeros(count);
            float **randoms[] = {&f.gamma, &f.beta, &f.mean, &f.var};
            for (int j = 0; j < COUNT(randoms); j++)
                *randoms[j] = fx_floats(fx_values(&rng, c, NW_F32, NW_F32), c, "random");
            for (size_t k = 0; k < c; k++) f.var[k] = 0.1f + f.var[k] * f.var[k];
            nw_ref_norm norm = {18, f.shape.c, 2, 3, true};
            nw_ref_norm_eval_d(&norm, f.x, NULL, fx_doubles(f.gamma, c), fx_doubles(f.beta, c), fx_doubles(f.mean, c),
                               fx_doubles(f.var, c), f.want);
            fx_describe("evaluated batch norm of %d channels", f.shape.c);
            fx_for_runs(f.table, eval_body, &f);
            fx_release(0);
        }
}

/* ---- loss ------------------------------------------------------------------------------------------------------- */

typedef struct loss_case {
    fx_shape shape;
    double *logits;
    int32_t *labels;
    nw_loss_rule rule;
    double want;
    double *dlogits;
    int top1, top5;
} loss_case;

static uint64_t loss_body(const fx_run *run, void *context)
{
    const loss_case *f = context;
    nw_tensor logits = fx_tensor_of(f->logits, f->shape, run->block, NW_F32, "logits");
    nw_tensor dlogits = fx_tensor(f->shape, run->block, NW_F32, "dlogits");
    double *per_image = fx_alloc(nw_loss_scratch_bytes(f->shape.n), "losses"), total = 0;
    nw_exec exec = fx_exec(run, nw_pointwise_need(logits.pitch, run->block));
    nw_loss_result result, again;
    nw_cross_entropy(&exec, &logits, f->labels, &f->rule, &dlogits, per_image, &result);
    fx_near("loss", 0, result.loss, f->want, 1e-9 * fabs(f->want) + 1e-12);
    for (int i = 0; i < f->shape.n; i++) total += per_image[i];
    fx_near("sum of losses", 0, total / (f->rule.sum ? 1 : f->shape.n), f->want, 1e-9 * fabs(f->want) + 1e-12);
    if (result.top1 != f->top1 || result.top5 != f->top5)
        fx_fail("%d best and %d of five instead of %d and %d", result.top1, result.top5, f->top1, f->top5);
    fx_compare_tensor("dlogits", &dlogits, f->dlogits);
    nw_cross_entropy(&exec, &logits, f->labels, &f->rule, NULL, per_image, &again);
    if (again.loss != result.loss || again.top1 != result.top1) fx_fail("without dlogits the result is another one");
    return fx_hash(fx_hash_tensor(FX_HASH_START, &dlogits), &result.loss, sizeof result.loss);
}

/* Equal logits rank by their place, so that ties do not count twice. */
static void count_hits(loss_case *f)
{
    for (int n = 0; n < f->shape.n; n++) {
        const double *z = f->logits + (size_t)n * (size_t)f->shape.c;
        int label = f->labels[n], better = 0;
        for (int k = 0; k < f->shape.c; k++)
            better += k != label && (z[k] > z[label] || (z[k] == z[label] && k < label));
        f->top1 += better == 0;
        f->top5 += better < 5;
    }
}

static void test_loss(void **state)
{
    (void)state;
    static const int sizes[][2] = {{1, 1}, {2, 2}, {5, 10}, {16, 7}, {33, 100}, {70, 10}, {32, 17}, {40, 1000}};
    static const float smoothings[] = {0.0f, 0.1f, 0.5f};
    for (int i = 0; i < COUNT(sizes); i++)
        for (int rule = 0; rule < 6; rule++) {
            nw_rng rng = nw_rng_make(SEED, NW_PURPOSE_TEST, (uint64_t)i, (uint32_t)(20 + rule));
            loss_case f = {.shape = {sizes[i][0], sizes[i][1], 1, 1}, .rule = {smoothings[rule % 3], rule >= 3}};
            size_t count = fx_count(f.shape);
            f.logits = fx_values(&rng, count, NW_F32, NW_F32);
            f.labels = fx_alloc((size_t)f.shape.n * sizeof *f.labels, "labels");
            f.dlogits = fx_zeros(count);
            for (int n = 0; n < f.shape.n; n++) f.labels[n] = (int32_t)nw_rng_below(&rng, (uint32_t)f.shape.c);
            for (size_t j = 0; j < count; j++) {
                /* Large, far from zero, and with ties where images are odd. */
                bool tied = j / (size_t)f.shape.c % 2 == 1;
                f.logits[j] = tied ? rint(f.logits[j]) : (double)(float)(f.logits[j] * 10 + (j % 3 == 0 ? 80 : 0));
            }
            nw_ref_loss loss = {f.shape.n, f.shape.c, (double)f.rule.smoothing, !f.rule.sum};
            f.want = nw_ref_cross_entropy_d(&loss, f.logits, f.labels, f.dlogits);
            count_hits(&f);
            fx_describe("cross entropy of %d x %d, smoothing %g, %s", f.shape.n, f.shape.c, (double)f.rule.smoothing,
                        f.rule.sum ? "sum" : "mean");
            fx_for_runs(NW_F32, loss_body, &f);
            fx_release(0);
        }
}

/* A network that has diverged is never right. */
static uint64_t loss_nan_body(const fx_run *run, void *context)
{
    (void)context;
    enum { N = 3, CLASSES = 10 };
    double values[N * CLASSES];
    int32_t labels[N] = {2, 2, 2};
    for (int i = 0; i < N * CLASSES; i++) values[i] = i % CLASSES == 2 ? 1.0 : 0.0;
    values[2] = (double)NAN;                                                            /* the label's own */
    for (int k = 0; k < CLASSES; k++) values[CLASSES + k] = k == 2 ? 1.0 : (double)NAN; /* all others */
    nw_tensor logits = fx_tensor_of(values, (fx_shape){N, CLASSES, 1, 1}, run->block, NW_F32, "logits");
    double *per_image = fx_alloc(nw_loss_scratch_bytes(N), "losses");
    nw_exec exec = fx_exec(run, (nw_need){0});
    nw_loss_result result;
    nw_cross_entropy(&exec, &logits, labels, &(nw_loss_rule){0}, NULL, per_image, &result);
    if (!isnan(result.loss) || !isnan(per_image[0]) || !isnan(per_image[1]) || isnan(per_image[2]))
        fx_fail("losses %g, %g, %g", per_image[0], per_image[1], per_image[2]);
    if (result.top1 != 1 || result.top5 != 1)
        fx_fail("%d best and %d of five instead of 1 and 1", result.top1, result.top5);
    return 0;
}

static void test_loss_of_nan(void **state)
{
    (void)state;
    fx_describe("cross entropy of NaN");
    fx_for_runs(NW_F32, loss_nan_body, NULL);
}

/* ---- booking ---------------------------------------------------------------------------------------------------- */

static uint64_t profile_body(const fx_run *run, void *context)
{
    (void)context;
    nw_conv conv;
    assert_int_equal(nw_conv_make(&conv, 16, 9, 9, 16, 3, 3, 1, 1), NW_OK);
    fx_shape shape = {20, 16, 9, 9};
    nw_tensor x = fx_tensor_of(fx_zeros(fx_count(shape)), shape, run->block, NW_F32, "x");
    nw_tensor y = fx_tensor(shape, run->block, NW_F32, "y");
    nw_source source = {.a = {.t = &x}, .relu = true};
    size_t weights = nw_conv_weights(&conv);
    float *w = fx_floats(fx_zeros(weights), weights, "w"), *dw = fx_alloc(weights * sizeof *dw, "dw");
    nw_need need = nw_need_max(run->kernels->conv_need(&conv, 20, run->block, NW_FORWARD, run->threads),
                               run->kernels->conv_need(&conv, 20, run->block, NW_BACKWARD_WEIGHTS, run->threads));
    nw_exec exec = fx_exec(run, need);
    exec.profile = true;
    exec.fused_ns = fx_alloc((size_t)run->threads * 8 * sizeof *exec.fused_ns, "fused_ns");
    run->kernels->conv_forward(&exec, &conv, &source, w, NULL, &y, NULL, NW_WORK_CONV_FORWARD);
    run->kernels->conv_backward_weights(&exec, &conv, &source, &source, dw, NULL, false, NW_WORK_CONV_WEIGHTS);
    static const nw_work booked[] = {NW_WORK_CONV_FORWARD, NW_WORK_CONV_WEIGHTS, NW_WORK_NORM, NW_WORK_MOVES,
                                     NW_WORK_PACK};
    for (int i = 0; i < COUNT(booked); i++)
        if (exec.work_ns[booked[i]] <= 0) fx_fail("no time is booked under '%s'", nw_work_text(booked[i]));
    return 0;
}

static void test_profile(void **state)
{
    (void)state;
    fx_describe("profile of a convolution");
    fx_for_runs(NW_F32, profile_body, NULL);
    fx_for_runs(NW_BF16, profile_body, NULL);
    fx_release(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm), cmocka_unit_test(test_norm_of_one_value), cmocka_unit_test(test_norm_eval),
        cmocka_unit_test(test_loss), cmocka_unit_test(test_loss_of_nan),       cmocka_unit_test(test_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
