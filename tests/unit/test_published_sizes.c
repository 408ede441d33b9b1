/*
 * test_published_sizes.c - the compression ratios that Lin et al. (Deep Gradient Compression, ICLR 2018) publish for 0.1 %
 * of resnet50 and AlexNet, counted from the shapes as the paper counts; and what this format takes for random gradients of
 * these shapes, at the same sparsity: it must be less.
 *
 * The paper counts 32 bits for a value and 16 for the distance to it, of a thousandth of all weights, not rounded, and 32
 * bits for each element of biases and batch norm, against 32 bits for every element: 277 and 597 times.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "support/blocks.h"

#include <math.h>

enum { TENSORS_MOST = 64, SPARSITY = 1000 };

typedef struct network {
    nw_extent tensors[TENSORS_MOST]; /* of at least two dimensions */
    int count;
    size_t weights, dense; /* elements of these, and of all others */
} network;

static void add(network *n, size_t floats)
{
    assert_true(n->count < TENSORS_MOST);
    n->tensors[n->count] = (nw_extent){n->weights, floats, n->count, 1};
    n->count++;
    n->weights += floats;
}

/* torchvision's: blocks of 1 x 1, 3 x 3 and 1 x 1; batch norm behind each; the classifier has a bias. */
static network resnet50(void)
{
    static const int blocks[] = {3, 4, 6, 3};
    network n = {.dense = 2 * 64 + 1000};
    size_t in = 64;
    add(&n, 64 * 3 * 49);
    for (size_t stage = 0, width = 64; stage < 4; stage++, width *= 2)
        for (int i = 0; i < blocks[stage]; i++, in = 4 * width) {
            add(&n, width * in);
            add(&n, width * width * 9);
            add(&n, 4 * width * width);
            n.dense += 2 * (width + width + 4 * width);
            if (i > 0) continue;
            add(&n, 4 * width * in); /* the shortcut's */
            n.dense += 2 * 4 * width;
        }
    add(&n, in * 1000);
    return n;
}

/* The published one, whose second, fourth and fifth convolutions have two groups; everything has a bias. */
static network alexnet(void)
{
    network n = {.dense = 96 + 256 + 384 + 384 + 256 + 4096 + 4096 + 1000};
    static const size_t weights[] = {96 * 3 * 121,  256 * 48 * 25, 384 * 256 * 9, 384 * 192 * 9,
                                     256 * 192 * 9, 9216 * 4096,   4096 * 4096,   4096 * 1000};
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) add(&n, weights[i]);
    return n;
}

static double dense_bytes(const network *n) { return 4.0 * (double)(n->weights + n->dense); }

static double published_ratio(const network *n)
{
    return dense_bytes(n) / (6 * (double)n->weights / SPARSITY + 4 * (double)n->dense);
}

/* Of one message; elements that are not compressed take 32 bits, as they do in the paper. */
static double own_ratio(const network *n, nw_values values, const float *v)
{
    nw_codec_options o = nw_codec_options_default("topk");
    nw_codec *codec;
    nw_block b;
    uint8_t *bytes = malloc(n->weights / 50);
    o.ratio = 1.0 / SPARSITY;
    o.counting = NW_COUNT_CEIL;
    o.values = values;
    assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
    assert_int_equal(nw_block_make(&b, codec, n->tensors, n->count, (size_t[]){0, n->weights}, 1, 0), NW_OK);
    nw_encoded e = encode_block(&b, NULL, (nw_codec_key){0}, v, bytes, NULL);
    uint32_t entries;
    memcpy(&entries, bytes + 8, sizeof entries);
    assert_true(entries >= n->weights / SPARSITY && entries <= n->weights / SPARSITY + (size_t)n->count);
    nw_block_free(&b);
    nw_codec_free(codec);
    free(bytes);
    return dense_bytes(n) / ((double)e.bytes + 4 * (double)n->dense);
}

static void check(network n, size_t parameters, double published, double least_f32, double least_fp16)
{
    float *v = malloc(n.weights * sizeof *v);
    nw_rng rng = nw_rng_make(50, NW_PURPOSE_TEST, 0, 0);
    assert_int_equal(n.weights + n.dense, parameters);
    for (size_t i = 0; i < n.weights; i++) v[i] = nw_rng_normal(&rng);
    double f32 = own_ratio(&n, NW_VALUES_F32, v), fp16 = own_ratio(&n, NW_VALUES_FP16, v);
    print_message("published %.1f; here %.1f with values of 32 bits, %.1f with 16\n", published_ratio(&n), f32, fp16);
    assert_true(fabs(published_ratio(&n) - published) < 0.05);
    assert_true(f32 > published && f32 > least_f32 && fp16 > least_fp16);
    free(v);
}

static void test_resnet50(void **state)
{
    (void)state;
    network n = resnet50();
    assert_int_equal(n.dense, 54120);
    check(n, 25557032, 276.7, 287, 335);
}

static void test_alexnet(void **state)
{
    (void)state;
    check(alexnet(), 60965224, 597.7, 650, 960);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resnet50), cmocka_unit_test(test_alexnet)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
