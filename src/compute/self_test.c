/*
 * self_test.c - a few convolutions with two sets of kernels, compared.
 *
 * Operands are multiples of 1/8 of modest size, exact in bf16, and results are kept in f32: so bf16 and f32 sets must
 * agree but for the order of their f32 sums.
 *
 * A set may die of SIGILL, although CPUID, XCR0 and the kernel offer it: virtual machines show flags of what they do not
 * run. So SIGILL is caught while the set computes, and a jump leads back. That is sound because of what it leaves behind:
 * - The jump passes over kernels only. They allocate nothing and take no lock; the pool has no thread but the caller's, is
 *   busy for ever afterwards, and is freed. The arena belongs to a frame above the jump.
 * - The signal comes to the thread that caused it. Other threads find no way out of their own and get back the handler
 *   that was there before, under which they meet their instruction again.
 * - The kernel resets the floating-point environment for a handler and restores it when that returns, which it does not.
 * Handlers are the whole process's: one self-test runs at a time, and at the start of a program nobody else sets them.
 */
#include "compute/self_test.h"

#include "base/rng.h"

#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

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

static void run_convolutions(operands *o, nw_exec *exec, const nw_conv *v)
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

/* In memory of `arena`, which the caller destroys if it was made. */
static nw_status compute(operands *o, const nw_kernels *kernels, nw_pool *pool, const nw_conv *v, int block,
                         nw_arena *arena)
{
    int n = block + 8; /* the last block is not full */
    nw_exec exec = {.pool = pool, .kernels = kernels};
    nw_arena measure = nw_arena_measure();
    bind(o, &exec, &measure, v, n, block);
    NW_TRY(nw_arena_create(arena, measure.used));
    bind(o, &exec, arena, v, n, block);
    run_convolutions(o, &exec, v);
    return NW_OK;
}

static struct sigaction before;
static _Thread_local sigjmp_buf *way_out; /* of the thread that tests */

static void on_refusal(int signal)
{
    if (way_out) siglongjmp(*way_out, 1);
    sigaction(signal, &before, NULL);
}

/* The same by a set that may die. */
static nw_status compute_or_die(operands *o, const nw_kernels *kernels, nw_pool *pool, const nw_conv *v, int block,
                                nw_arena *arena)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    struct sigaction action = {.sa_handler = on_refusal};
    sigjmp_buf here;
    fenv_t environment;
    volatile nw_status status = NW_OK;
    volatile bool died = true;
    pthread_mutex_lock(&one_at_a_time);
    fegetenv(&environment);
    sigaction(SIGILL, &action, &before);
    way_out = &here;
    if (sigsetjmp(here, 1) == 0) {
        status = compute(o, kernels, pool, v, block, arena);
        died = false;
    }
    way_out = NULL;
    sigaction(SIGILL, &before, NULL);
    if (died) fesetenv(&environment);
    pthread_mutex_unlock(&one_at_a_time);
    NW_FAIL_IF(died, NW_E_UNSUPPORTED,
               "the self-test of %s died of an instruction that this machine offers and refuses (SIGILL)",
               kernels->isa);
    return status;
}

static void release(nw_arena *arena)
{
    if (arena->base) nw_arena_destroy(arena);
}

static nw_status compare_on(const nw_kernels *kernels, nw_pool *pool, const nw_conv *v, int block, double *error)
{
    NW_CLEANUP(release) nw_arena plain = {0}, fast = {0};
    operands want, got;
    NW_TRY(compute(&want, &nw_kernels_generic, pool, v, block, &plain));
    NW_TRY(compute_or_die(&got, kernels, pool, v, block, &fast));
    double d[3] = {distance(got.y.data, want.y.data, nw_tensor_bytes(&want.y) / 4),
                   distance(got.dx.data, want.dx.data, nw_tensor_bytes(&want.dx) / 4),
                   distance(got.dw, want.dw, nw_conv_weights(v))};
    for (int i = 0; i < 3; i++)
        if (!(d[i] <= *error)) *error = d[i]; /* NaN counts as larger */
    return NW_OK;
}

static void pool_autofree(nw_pool **pool) { nw_pool_free(*pool); }

nw_status nw_self_test(const nw_kernels *kernels, double *error)
{
    static const int shapes[][6] = {/* c, h, k, size, stride, pad */
                                    {3, 5, 24, 3, 1, 1},
                                    {48, 4, 40, 3, 2, 1},
                                    {64, 3, 16, 1, 1, 0}};
    *error = 0;
    nw_pool *made;
    NW_TRY(nw_pool_create(&made, 1));
    NW_CLEANUP(pool_autofree) nw_pool *pool = made;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int *s = shapes[i];
        nw_conv v;
        NW_TRY(nw_conv_make(&v, s[0], s[1], s[1], s[2], s[3], s[3], s[4], s[5]));
        for (int block = 16; block <= 32; block += 16) NW_TRY(compare_on(kernels, pool, &v, block, error));
    }
    NW_FAIL_IF(!(*error <= 1e-5), NW_E_NUMERIC,
               "the self-test of %s failed: results differ by %g from those of the generic set", kernels->isa, *error);
    return NW_OK;
}
