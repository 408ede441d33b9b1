/* kernel_fixture.c - see kernel_fixture.h. */
#define _GNU_SOURCE 1
#include "support/kernel_fixture.h"
#include "support/choice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- failures and memory --------------------------------------------------------------------------------------- */

static char description[512];
static char running[96];
static double expected_size;

void fx_describe(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(description, sizeof description, format, arguments);
    va_end(arguments);
    running[0] = '\0';
    expected_size = 0;
}

void fx_expect_size(double size) { expected_size = size; }

void fx_fail(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fail_msg("%s%s: %s", running, description, text);
    abort();
}

#ifdef __SANITIZE_ADDRESS__
enum { GUARD = 0 };
#else
enum { GUARD = 256 };
#endif
enum { MOST_BUFFERS = 512, GUARD_BYTE = 0x5a };

static struct {
    unsigned char *data;
    size_t bytes;
    const char *name;
} buffers[MOST_BUFFERS];
static size_t buffers_used;

void *fx_alloc(size_t bytes, const char *name)
{
    void *data = NULL;
    assert_true(buffers_used < MOST_BUFFERS);
    assert_int_equal(posix_memalign(&data, NW_ALIGN, bytes + GUARD), 0);
    memset(data, 0xff, bytes);
    memset((unsigned char *)data + bytes, GUARD_BYTE, GUARD);
    buffers[buffers_used].data = data;
    buffers[buffers_used].bytes = bytes;
    buffers[buffers_used++].name = name;
    return data;
}

size_t fx_mark(void) { return buffers_used; }

void fx_release(size_t mark)
{
    while (buffers_used > mark) free(buffers[--buffers_used].data);
}

void fx_check_guards(void)
{
    for (size_t i = 0; i < buffers_used; i++) {
        const unsigned char *end = buffers[i].data + buffers[i].bytes;
        for (const unsigned char *at = end; at != end + GUARD; at++)
            if (*at != GUARD_BYTE)
                fx_fail("byte %td after the %zu of %s was overwritten", at - end, buffers[i].bytes, buffers[i].name);
    }
}

/* ---- runs ------------------------------------------------------------------------------------------------------- */

/* Pools live as long as the program: starting a thread for each of thousands of runs would cost more than they do. */
static nw_pool *pool_of(int threads)
{
    static nw_pool *pools[MOST_THREADS + 1];
    if (!pools[threads]) assert_int_equal(nw_pool_create(&pools[threads], threads), NW_OK);
    return pools[threads];
}

nw_exec fx_exec(const fx_run *run, nw_need need)
{
    return (nw_exec){.pool = pool_of(run->threads),
                     .kernels = run->kernels,
                     .worker_bytes = need.worker,
                     .worker_scratch = fx_alloc(need.worker * (size_t)run->threads, "worker scratch"),
                     .shared_scratch = fx_alloc(need.shared, "shared scratch")};
}

void fx_for_runs(nw_dtype table, fx_body body, void *context)
{
    for (int i = 0; i < nw_isa_count(); i++) {
        if (nw_isa_kernels(i)->dtype != table || !is_chosen(i)) continue;
        for (int block = 16; block <= 32; block += 16) {
            uint64_t first = 0;
            for (int other = other_threads(), threads = 1; threads <= other; threads += nw_max(1, other - 1)) {
                fx_run run = {nw_isa_kernels(i), block, threads};
                snprintf(running, sizeof running, "%s, block %d, %d thread%s: ", run.kernels->isa, block, threads,
                         threads > 1 ? "s" : "");
                size_t mark = fx_mark();
                uint64_t hash = body(&run, context);
                fx_check_guards();
                fx_release(mark);
                if (threads == 1)
                    first = hash;
                else if (hash != first)
                    fx_fail("the result is not that of one thread");
            }
        }
    }
    running[0] = '\0';
}

uint64_t fx_hash(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (; count >= 8; count -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    for (; count > 0; count--, at++) hash = (hash ^ *at) * 0x9E3779B97F4A7C15u;
    return hash;
}
uint64_t fx_hash_tensor(uint64_t hash, const nw_tensor *t) { return fx_hash(hash, t->data, nw_tensor_bytes(t)); }

/* ---- values ----------------------------------------------------------------------------------------------------- */

double *fx_values(nw_rng *rng, size_t count, nw_dtype table, nw_dtype type)
{
    double *values = fx_alloc(count * sizeof *values, "values");
    /* bf16 has 8 bits: multiples of 1/64 below 4; in f32 some that the rounding to bf16 changes. */
    double grain = type == NW_BF16 ? 1.0 / 64 : 1.0 / 512;
    for (size_t i = 0; i < count; i++) {
        double x = (double)nw_rng_normal(rng);
        values[i] = table == NW_F32 ? x : fmax(-255.0 / 64, fmin(255.0 / 64, rint(x / grain) * grain));
    }
    return values;
}

double *fx_zeros(size_t count)
{
    double *values = fx_alloc(count * sizeof *values, "zeros");
    memset(values, 0, count * sizeof *values);
    return values;
}

double *fx_doubles(const float *from, size_t count)
{
    double *values = fx_alloc(count * sizeof *values, "doubles");
    for (size_t i = 0; i < count; i++) values[i] = (double)from[i];
    return values;
}

float *fx_floats(const double *from, size_t count, const char *name)
{
    float *values = fx_alloc(count * sizeof *values, name);
    for (size_t i = 0; i < count; i++) values[i] = (float)from[i];
    return values;
}

double *fx_rounded(const double *from, size_t count, nw_dtype table)
{
    double *values = fx_alloc(count * sizeof *values, "rounded");
    for (size_t i = 0; i < count; i++)
        values[i] = table == NW_BF16 ? (double)nw_bf16_to_f32(nw_bf16_from_f32((float)from[i])) : from[i];
    return values;
}

float *fx_channels(nw_rng *rng, int c, nw_dtype table, const char *name)
{
    size_t pitch = (size_t)nw_channel_pitch(c);
    float *values = fx_alloc(pitch * sizeof *values, name);
    for (size_t i = 0; i < pitch; i++) {
        float size = table == NW_F32 ? 0.25f + 1.75f * nw_rng_uniform(rng) : (float)(2 + nw_rng_below(rng, 14)) / 8.0f;
        values[i] = (int)i >= c ? 0.0f : fx_chance(rng, 4) ? -size : size;
    }
    return values;
}

int fx_pick(nw_rng *rng, const int *list, int count) { return list[nw_rng_below(rng, (uint32_t)count)]; }
bool fx_chance(nw_rng *rng, uint32_t one_in) { return nw_rng_below(rng, one_in) == 0; }
nw_dtype fx_type(nw_rng *rng, nw_dtype table) { return table == NW_BF16 && !fx_chance(rng, 3) ? NW_BF16 : NW_F32; }

nw_tensor fx_tensor(fx_shape s, int block, nw_dtype type, const char *name)
{
    nw_tensor t = nw_tensor_shape(s.n, s.c, s.h, s.w, block, type);
    t.data = fx_alloc(nw_tensor_bytes(&t), name);
    return t;
}

nw_tensor fx_tensor_of(const double *values, fx_shape s, int block, nw_dtype type, const char *name)
{
    nw_tensor t = fx_tensor(s, block, type, name);
    size_t mark = fx_mark();
    nw_tensor_import(&t, fx_floats(values, fx_count(s), "import"));
    fx_release(mark);
    return t;
}

/* ---- comparing -------------------------------------------------------------------------------------------------- */

/* What errors are measured by. */
static double typical_size(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i] * values[i];
    return fmax(expected_size, sqrt(sum / (double)count));
}

void fx_compare(const char *what, const float *got, const double *want, fx_shape s, nw_dtype type)
{
    size_t count = fx_count(s), worst = 0;
    double rms = typical_size(want, count), rounding = type == NW_BF16 ? FX_BF16 : 0.0;
    double squares = 0, worst_ratio = -1, worst_allowed = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)got[i] - want[i]), allowed = FX_ELEMENT * rms + rounding * fabs(want[i]);
        double ratio = isnan(difference) ? INFINITY : difference / (allowed + 1e-300);
        squares += difference * difference;
        if (ratio > worst_ratio) {
            worst_ratio = ratio;
            worst_allowed = allowed;
            worst = i;
        }
    }
    double l2 = sqrt(squares / (double)count) / (rms + 1e-300), l2_allowed = FX_L2 + rounding;
    if (worst_ratio <= 1 && l2 <= l2_allowed) return;
    size_t plane = (size_t)s.h * (size_t)s.w, at = worst;
    fx_fail("%s [n %zu][c %zu][h %zu][w %zu] is %.9g instead of %.9g (allowed %.3g); relative L2 %.3g (allowed %.3g)",
            what, at / plane / (size_t)s.c, at / plane % (size_t)s.c, at % plane / (size_t)s.w, at % (size_t)s.w,
            (double)got[at], want[at], worst_allowed, l2, l2_allowed);
}

void fx_check_invariant(const char *what, const nw_tensor *t)
{
    for (int b = 0; b < nw_tensor_blocks(t); b++)
        for (int h = 0; h < t->h; h++)
            for (int w = 0; w < t->w; w++)
                for (int i = 0; i < t->block; i++)
                    for (int c = i < nw_tensor_valid(t, b) ? t->c : 0; c < t->pitch; c++) {
                        size_t at = nw_tensor_at(t, b, h, w) + (size_t)(i * t->pitch + c);
                        float x = t->dtype == NW_F32 ? ((const float *)t->data)[at]
                                                     : nw_bf16_to_f32(((const nw_bf16 *)t->data)[at]);
                        if (!(x == 0.0f))
                            fx_fail("%s: the padding at block %d, h %d, w %d, row %d (of %d), channel %d (of %d) is %g",
                                    what, b, h, w, i, nw_tensor_valid(t, b), c, t->c, (double)x);
                    }
}

void fx_compare_tensor(const char *what, const nw_tensor *got, const double *want)
{
    fx_shape s = {got->n, got->c, got->h, got->w};
    size_t mark = fx_mark();
    float *values = fx_alloc(fx_count(s) * sizeof *values, "export");
    nw_tensor_export(got, values);
    fx_compare(what, values, want, s, got->dtype);
    fx_check_invariant(what, got);
    fx_release(mark);
}

void fx_near(const char *what, int index, double got, double want, double allowed)
{
    if (!(fabs(got - want) <= allowed))
        fx_fail("%s [%d] is %.9g instead of %.9g (allowed difference %.3g)", what, index, got, want, allowed);
}

void fx_check_moments(const nw_tensor *y, const float *partial, const double *want)
{
    fx_shape s = {y->n, y->c, y->h, y->w};
    double rms = typical_size(want, fx_count(s));
    for (int item = 0; item < nw_items(y); item++)
        for (int c = 0; c < y->pitch; c++) {
            const float *p = partial + (size_t)item * 3 * (size_t)y->pitch + c;
            int b = item / y->h, h = item % y->h, rows = nw_tensor_valid(y, b);
            double n = rows * y->w, sum = 0, squares = 0;
            for (int i = 0; c < y->c && i < rows * y->w; i++) {
                size_t image = (size_t)(b * y->block + i / y->w);
                double x = want[((image * (size_t)y->c + (size_t)c) * (size_t)y->h + (size_t)h) * (size_t)y->w +
                                (size_t)(i % y->w)];
                sum += x;
                squares += x * x;
            }
            double mean = sum / n, variance = squares / n - mean * mean;
            double got_sum = (double)p[y->pitch], got_mean = (double)p[0] + got_sum / n;
            double got_variance = ((double)p[2 * y->pitch] - got_sum * got_sum / n) / n;
            /* The sums are of distances from the item's first value: if that lies far out, they are as large. */
            double out = fabs((double)p[0] - mean);
            fx_near("mean of item", item, got_mean, mean, FX_ELEMENT * rms + 2e-6 * out);
            fx_near("variance of item", item, got_variance, variance,
                    FX_ELEMENT * (variance + rms * rms) + 5e-6 * out * out);
        }
}

/* ---- sources ---------------------------------------------------------------------------------------------------- */

const char *fx_form_name(fx_form form)
{
    static const char *const names[] = {"plain",           "relu",      "affine", "affine+relu", "gradient", "residual",
                                        "residual affine", "two relus", "inverse"};
    return names[form];
}

fx_source_values fx_make_source(nw_rng *rng, fx_shape shape, fx_form form, nw_dtype table, nw_dtype type_a,
                                nw_dtype type_b)
{
    fx_source_values v = {.shape = shape, .form = form, .table = table, .type = {type_a, type_b}};
    size_t count = fx_count(shape), plane = (size_t)shape.h * (size_t)shape.w;
    bool two = form >= FX_GRADIENT;
    bool relu[2] = {form == FX_RELU || form == FX_AFFINE_RELU || form == FX_RELUS,
                    form == FX_RELUS || form == FX_INVERSE};
    bool relu_sum = form == FX_RESIDUAL || form == FX_RESIDUAL_AFFINE;
    for (int j = 0; j < (two ? 2 : 1); j++) {
        v.view[j] = fx_values(rng, count, table, v.type[j]);
        if (j == 0 ? form >= FX_AFFINE : form != FX_RESIDUAL) {
            v.scale[j] = fx_channels(rng, shape.c, table, "scale");
            if (j == 0 || form != FX_GRADIENT) v.shift[j] = fx_channels(rng, shape.c, table, "shift");
        }
    }
    v.value = fx_alloc(count * sizeof *v.value, "value");
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (int j = 0; j < (two ? 2 : 1); j++) {
            size_t c = i / plane % (size_t)shape.c;
            double x = v.view[j][i];
            if (v.scale[j]) x = x * (double)v.scale[j][c] + (v.shift[j] ? (double)v.shift[j][c] : 0.0);
            if (relu[j] && x < 0) x = 0.0;
            sum += j == 1 && form == FX_INVERSE ? -x : x;
        }
        v.value[i] = relu_sum && sum < 0 ? 0.0 : sum;
    }
    return v;
}

nw_source fx_source(const fx_source_values *v, int block, nw_tensor tensors[2])
{
    nw_source s = {.relu = v->form == FX_RESIDUAL || v->form == FX_RESIDUAL_AFFINE, .minus = v->form == FX_INVERSE};
    tensors[0] = fx_tensor_of(v->view[0], v->shape, block, v->type[0], "source");
    s.a = (nw_view){.t = &tensors[0],
                    .scale = v->scale[0],
                    .shift = v->shift[0],
                    .relu = v->form == FX_RELU || v->form == FX_AFFINE_RELU || v->form == FX_RELUS};
    if (v->view[1]) {
        tensors[1] = fx_tensor_of(v->view[1], v->shape, block, v->type[1], "second source");
        s.b = (nw_view){.t = &tensors[1],
                        .scale = v->scale[1],
                        .shift = v->shift[1],
                        .relu = v->form == FX_RELUS || v->form == FX_INVERSE};
    }
    return s;
}

/* ---- sinks ------------------------------------------------------------------------------------------------------ */

/* The value whose sign opens the gate. */
static double gate_value(const fx_sink_values *v, size_t i)
{
    size_t c = i / ((size_t)v->shape.h * (size_t)v->shape.w) % (size_t)v->shape.c;
    return v->gate == FX_GATE_AFFINE ? v->gated[i] * (double)v->scale[c] + (double)v->shift[c] : v->gated[i];
}

fx_sink_values fx_make_sink(nw_rng *rng, fx_shape shape, nw_dtype table, nw_dtype type)
{
    fx_sink_values v = {.shape = shape,
                        .add = (fx_add)nw_rng_below(rng, FX_ADDS),
                        .gate = (fx_gate)nw_rng_below(rng, FX_GATES),
                        .sums = !fx_chance(rng, 4),
                        .add_type = type,
                        .gate_type = type,
                        .norm_type = {type, type}};
    size_t count = fx_count(shape);
    v.norms = v.sums ? (int)nw_rng_below(rng, NW_SINK_NORMS + 1) : 0;
    if (fx_chance(rng, 3)) {
        if (v.add == FX_ADD_OTHER) v.add_type = fx_type(rng, table);
        v.gate_type = fx_type(rng, table);
        for (int j = 0; j < NW_SINK_NORMS; j++) v.norm_type[j] = fx_type(rng, table);
    }
    if (v.add != FX_ADD_NONE) v.added = fx_values(rng, count, table, v.add_type);
    if (v.gate != FX_GATE_NONE) v.gated = fx_values(rng, count, table, v.gate_type);
    if (v.gate == FX_GATE_AFFINE) {
        v.scale = fx_channels(rng, shape.c, table, "gate scale");
        v.shift = fx_channels(rng, shape.c, table, "gate shift");
    }
    for (size_t i = 0; v.gated && i < count; i++) {
        /* No sign that hangs on a rounding; and zeros, which are shut. */
        if (v.gate == FX_GATE_PLAIN && i % 7 == 3)
            v.gated[i] = 0.0;
        else if (table == NW_F32 && fabs(gate_value(&v, i)) < 1e-3)
            v.gated[i] = (double)(float)(v.gated[i] + 0.5);
    }
    for (int j = 0; j < v.norms; j++) {
        v.y[j] = fx_values(rng, count, table, v.norm_type[j]);
        v.mean[j] = fx_channels(rng, shape.c, table, "mean");
    }
    return v;
}

void fx_sink_apply(const fx_sink_values *v, double *gradient)
{
    for (size_t i = 0; i < fx_count(v->shape); i++) {
        if (v->added) gradient[i] += v->added[i];
        if (v->gated && !(gate_value(v, i) > 0)) gradient[i] = 0.0;
    }
}

void fx_sink_open(const fx_sink_values *v, nw_tensor *out, fx_sink *s)
{
    int block = out->block;
    *s = (fx_sink){.sink = {.add = NULL}};
    if (v->add == FX_ADD_OUTPUT) {
        size_t mark = fx_mark();
        nw_tensor_import(out, fx_floats(v->added, fx_count(v->shape), "import"));
        fx_release(mark);
        s->sink.add = out;
    } else if (v->add == FX_ADD_OTHER) {
        s->add = fx_tensor_of(v->added, v->shape, block, v->add_type, "add");
        s->sink.add = &s->add;
    }
    if (v->gated) {
        s->gate = fx_tensor_of(v->gated, v->shape, block, v->gate_type, "gate");
        s->sink.gate = (nw_view){.t = &s->gate, .scale = v->scale, .shift = v->shift};
    }
    if (v->sums) s->sink.sum_g = fx_alloc(nw_sums_floats(out) * sizeof(float), "sum_g");
    for (int j = 0; j < v->norms; j++) {
        s->y[j] = fx_tensor_of(v->y[j], v->shape, block, v->norm_type[j], "y of a norm");
        s->sink.norm[j] = (nw_norm_sums){
            .y = &s->y[j], .mean = v->mean[j], .sum_gy = fx_alloc(nw_sums_floats(out) * sizeof(float), "sum_gy")};
    }
}

uint64_t fx_sink_check(const fx_sink_values *v, const fx_sink *s, const nw_tensor *t, const double *want, uint64_t hash)
{
    if (!v->sums) return hash;
    double rms = typical_size(want, fx_count(v->shape));
    for (int item = 0; item < nw_items(t); item++)
        for (int c = 0; c < t->pitch; c++) {
            size_t at = (size_t)item * (size_t)t->pitch + (size_t)c;
            int b = item / t->h, h = item % t->h, n = nw_tensor_valid(t, b) * t->w;
            double sum = 0, sum_y[NW_SINK_NORMS] = {0}, far[NW_SINK_NORMS] = {0};
            for (int i = 0; c < t->c && i < n; i++) {
                size_t image = (size_t)(b * t->block + i / t->w);
                size_t from =
                    ((image * (size_t)t->c + (size_t)c) * (size_t)t->h + (size_t)h) * (size_t)t->w + (size_t)(i % t->w);
                sum += want[from];
                for (int j = 0; j < v->norms; j++) {
                    double distance = v->y[j][from] - (double)v->mean[j][c];
                    sum_y[j] += want[from] * distance;
                    far[j] += fabs(distance);
                }
            }
            fx_near("sum_g of item", item, (double)s->sink.sum_g[at], sum, FX_ELEMENT * rms * n);
            for (int j = 0; j < v->norms; j++)
                fx_near("sum_gy of item", item, (double)s->sink.norm[j].sum_gy[at], sum_y[j],
                        FX_ELEMENT * rms * far[j]);
        }
    hash = fx_hash(hash, s->sink.sum_g, nw_sums_floats(t) * sizeof(float));
    for (int j = 0; j < v->norms; j++) hash = fx_hash(hash, s->sink.norm[j].sum_gy, nw_sums_floats(t) * sizeof(float));
    return hash;
}

const char *fx_sink_name(const fx_sink_values *v)
{
    static char name[96];
    static const char *const adds[] = {"no", "another", "its own"}, *const gates[] = {"no", "plain", "affine"};
    snprintf(name, sizeof name, "sink with %s add (%s), %s gate (%s), %ssums, %d norms", adds[v->add],
             fx_type_name(v->add_type), gates[v->gate], fx_type_name(v->gate_type), v->sums ? "" : "no ", v->norms);
    return name;
}
