/*
 * test_denormals.c - numbers below 2^-126, in every table: all sets keep them as the processor's mode (MXCSR) says, which
 * nobody changes; the tiles of AMX and its conversion to bf16 take them for zero, whatever the mode. micro_amx.h has the
 * rules.
 */
#include "support/kernel_fixture.h"

#include <string.h>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static bool is_amx(const nw_kernels *k) { return !strcmp(k->isa, "amx"); }

/* Whether denormals are zero as operands and results of the calling thread. */
#ifdef __SSE__
enum { HAS_MODE = 1, FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x40 };
static void set_mode(bool flush)
{
    unsigned mode = _mm_getcsr() & ~(unsigned)(FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
    _mm_setcsr(flush ? mode | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO : mode);
}
#else
enum { HAS_MODE = 0 };
static void set_mode(bool flush) { (void)flush; }
#endif

/* ---- products --------------------------------------------------------------------------------------------------- */

/* All exact in bf16. */
static const struct {
    const char *what;
    float a, b, product;
} products[] = {{"a denormal times a large number", 0x1p-130f, 0x1p40f, 0x1p-90f},
                {"a large number times a denormal", -0x1p40f, 0x1p-130f, -0x1p-90f},
                {"two numbers with a denormal product", 0x1p-80f, 0x1p-55f, 0x1p-135f}};

/* A tensor of one pixel whose first channel is `value`. */
static nw_tensor pixel(const fx_run *run, int c, float value, const char *name)
{
    double *values = fx_zeros((size_t)c);
    values[0] = (double)value;
    return fx_tensor_of(values, (fx_shape){1, c, 1, 1}, run->block, NW_F32, name);
}

static nw_exec conv_exec(const fx_run *run, const nw_conv *v)
{
    nw_need need = {0};
    for (int d = NW_FORWARD; d <= NW_BACKWARD_WEIGHTS; d++)
        need = nw_need_max(need, run->kernels->conv_need(v, 1, run->block, (nw_direction)d, run->threads));
    return fx_exec(run, need);
}

/* a b by a filter of 1 x 1, in all directions. */
static void multiply(const fx_run *run, int c, float a, float b, bool flush, float got[3])
{
    nw_conv v;
    assert_int_equal(nw_conv_make(&v, c, 1, 1, c, 1, 1, 1, 0), NW_OK);
    nw_exec exec = conv_exec(run, &v);
    nw_tensor x = pixel(run, c, a, "x"), dy = pixel(run, c, b, "dy"), y = pixel(run, c, 0, "y"),
              dx = pixel(run, c, 0, "dx");
    nw_source x_source = nw_source_plain(&x), dy_source = nw_source_plain(&dy);
    size_t bytes = nw_conv_weights(&v) * sizeof(float);
    float *w = memset(fx_alloc(bytes, "w"), 0, bytes), *w2 = memset(fx_alloc(bytes, "w2"), 0, bytes);
    float *dw = fx_alloc(bytes, "dw");
    w[0] = b;
    w2[0] = a;
    if (flush) set_mode(true);
    run->kernels->conv_forward(&exec, &v, &x_source, w, NULL, &y, NULL, NW_WORK_CONV_FORWARD);
    run->kernels->conv_backward_data(&exec, &v, &dy_source, w2, &dx, NULL, NW_WORK_CONV_DATA);
    run->kernels->conv_backward_weights(&exec, &v, &x_source, &dy_source, dw, NULL, false, NW_WORK_CONV_WEIGHTS);
    if (flush) set_mode(false);
    got[0] = *(float *)y.data;
    got[1] = *(float *)dx.data;
    got[2] = dw[0];
}

static uint64_t product_body(const fx_run *run, void *context)
{
    static const char *const directions[] = {"forward", "backward to the data", "backward to the weights"};
    (void)context;
    for (int i = 0; i < COUNT(products); i++)
        for (int c = 8; c <= 40; c += 32)
            for (int flush = 0; flush <= (run->threads == 1 && HAS_MODE); flush++) {
                float got[3], want = flush || is_amx(run->kernels) ? 0.0f : products[i].product;
                multiply(run, c, products[i].a, products[i].b, flush, got);
                for (int d = 0; d < 3; d++)
                    if (got[d] != want)
                        fx_fail("%s, %d channels, %s%s: %a instead of %a", products[i].what, c, directions[d],
                                flush ? ", flushed" : "", (double)got[d], (double)want);
            }
    return 0;
}

static void test_products(void **state)
{
    (void)state;
    fx_describe("products");
    fx_for_runs(NW_F32, product_body, NULL);
    fx_for_runs(NW_BF16, product_body, NULL);
    fx_release(0);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* What is only stored stays: rounding to bf16 is done with integers. AMX's own conversion flushes; tensors of up to 8
 * channels do not fill its vectors and are written without it. */
static uint64_t copy_body(const fx_run *run, void *context)
{
    (void)context;
    for (int c = 3; c <= 17; c += 14)
        for (int bf16 = 0; bf16 <= (run->kernels->dtype == NW_BF16); bf16++) {
            nw_tensor x = pixel(run, c, -0x1p-130f, "x");
            nw_tensor out = fx_tensor((fx_shape){1, c, 1, 1}, run->block, bf16 ? NW_BF16 : NW_F32, "out");
            nw_source source = nw_source_plain(&x);
            nw_exec exec = fx_exec(run, nw_pointwise_need(nw_channel_pitch(c), run->block));
            run->kernels->materialise(&exec, &source, &out, NULL);
            float got[17], want = is_amx(run->kernels) && bf16 && c > 8 ? 0.0f : -0x1p-130f;
            nw_tensor_export(&out, got);
            if (got[0] != want)
                fx_fail("%d channels, %s: %a instead of %a", c, bf16 ? "bf16" : "f32", (double)got[0], (double)want);
        }
    return 0;
}

static void test_copies(void **state)
{
    (void)state;
    fx_describe("copies");
    fx_for_runs(NW_F32, copy_body, NULL);
    fx_for_runs(NW_BF16, copy_body, NULL);
    fx_release(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
