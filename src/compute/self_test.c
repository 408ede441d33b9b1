/*
 * self_test.c - a few convolutions with two sets of kernels, compared.
 *
 * Operands are multiples of 1/8 of modest size, exact in bf16, and results are kept in f32: so bf16 and f32 sets must
 * agree but for the order of their f32 sums.
 */
#include "compute/self_test.h"

#include "base/rng.h"

#include <math.h>

extern const nw_kernels nw_kernels_generic;

typedef struct operands {
    nw_tensor x, y, dx, dy;
    float *w, *dw;
} operands;

static void bind(operands *o, nw_exec *exec, nw_arena *arena, const nw_conv *v, int n, int block)
{
    nw_need need = {0};
    for (nw_direction d = NW_FORWARD; d <= NW_BACKWARD_WEIGHTS; d++)
        need = nw_need_max(need, exec->kernels->conv_need(v, n, block, d, 1));
    exec->worker_scratch = nw_arena_alloc(arena, exec->worker_bytes = nw_align_up(need.worker));
    exec->shared_scratch = nw_arena_alloc(arena, need.shared);
    o->x = nw_tensor_alloc(arena, n, v->c, v->h, v->w, block, NW_F32);
    o->dx = nw_tensor_alloc(arena, n, v->c, v->h, v->w, block, NW_F32);
    o->y = nw_tensor_alloc(arena, n, v->k, v->oh, v->ow, block, NW_F32);
    o->dy = nw_tensor_alloc(arena, n, v->k, v->oh, v->ow, block, NW_F32);
    o->w = nw_arena_alloc(arena, nw_conv_weights(v) * sizeof(float));
    o->dw = nw_arena_alloc(arena, nw_conv_weights(v) * sizeof(float));
}

static float draw(nw_rng *rng) { return ((float)nw_rng_below(rng, 33) - 16) * 0.125f; }

static void fill_tensor(nw_tensor *t, nw_rng *rng)
{
    float *data = t->data;
    for (int b = 0; b < nw_tensor_blocks(t); b++)
        for (int h = 0; h < t->h; h++)
            for (int w = 0; w < t->w; w++)
                for (int i = 0; i < nw_tensor_valid(t, b); i++)
                    for (int c = 0; c < t->c; c++)
                        data[nw_tensor_at(t, b, h, w) + (size_t)(i * t->pitch + c)] = draw(rng);
}

static void run(operands *o, nw_exec *exec, const nw_conv *v)
{
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, 0, 0);
    fill_tensor(&o->x, &rng);
    fill_tensor(&o->dy, &rng);
    for (size_t i = 0; i < nw_conv_weights(v); i++) o->w[i] = draw(&rng);
    nw_source x = nw_source_plain(&o->x), dy = nw_source_plain(&o->dy);
    exec->kernels->conv_forward(exec, v, &x, o->w, NULL, &o->y, NULL, NW_WORK_CONV_FORWARD);
    exec->kernels->conv_backward_data(exec, v, &dy, o->w, &o->dx, NULL, NW_WORK_CONV_DATA);
    exec->kernels->conv_backward_weights(exec, v, &x, &dy, o->dw, NULL, false, NW_WORK_CONV_WEIGHTS);
}

static double distance(const float *got, const float *want, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        size += (double)want[i] * (double)want[i];
    }
    return sqrt(difference / size);
}

static nw_status compare_on(const nw_kernels *kernels, nw_pool *pool, const nw_conv *v, double *error)
{
    enum { N = 40, BLOCK = 32 };
    const nw_kernels *tables[2] = {&nw_kernels_generic, kernels};
    nw_arena arenas[2] = {{0}};
    operands o[2];
    nw_status status = NW_OK;
    for (int i = 0; i < 2 && status == NW_OK; i++) {
        nw_exec exec = {.pool = pool, .kernels = tables[i]};
        nw_arena measure = nw_arena_measure();
        bind(&o[i], &exec, &measure, v, N, BLOCK);
        status = nw_arena_create(&arenas[i], measure.used);
        if (status != NW_OK) break;
        bind(&o[i], &exec, &arenas[i], v, N, BLOCK);
        run(&o[i], &exec, v);
    }
    if (status == NW_OK) {
        double d[3] = {distance(o[1].y.data, o[0].y.data, nw_tensor_bytes(&o[0].y) / 4),
                       distance(o[1].dx.data, o[0].dx.data, nw_tensor_bytes(&o[0].dx) / 4),
                       distance(o[1].dw, o[0].dw, nw_conv_weights(v))};
        for (int i = 0; i < 3; i++)
            if (!(d[i] <= *error)) *error = d[i]; /* NaN counts as larger */
    }
    for (int i = 0; i < 2; i++)
        if (arenas[i].base) nw_arena_destroy(&arenas[i]);
    return status;
}

nw_status nw_self_test(const nw_kernels *kernels, double *error)
{
    static const int shapes[][6] = {/* c, h, k, size, stride, pad */
                                    {3, 9, 24, 3, 1, 1},
                                    {48, 6, 40, 3, 2, 1},
                                    {64, 5, 16, 1, 1, 0}};
    nw_pool *pool;
    *error = 0;
    NW_TRY(nw_pool_create(&pool, 1));
    nw_status status = NW_OK;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && status == NW_OK; i++) {
        const int *s = shapes[i];
        nw_conv v;
        status = nw_conv_make(&v, s[0], s[1], s[1], s[2], s[3], s[3], s[4], s[5]);
        if (status == NW_OK) status = compare_on(kernels, pool, &v, error);
    }
    nw_pool_free(pool);
    if (status == NW_OK && !(*error <= 1e-5))
        status = NW_FAIL(NW_E_NUMERIC,
                         "the self-test of %s failed: results differ by %g; set NOWAIT_ISA to another "
                         "instruction set",
                         kernels->isa, *error);
    return status;
}
