/*
 * test_augment.c - crop, flip, cutout, padding and normalisation: bit for bit against a plain twin that stores the
 * padded image; draws against their distributions.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/augment.h"

static const nw_augment cifar = {.mean = {0.4914f, 0.4822f, 0.4465f, 0.5f},
                                 .deviation = {0.2023f, 0.1994f, 0.2010f, 0.25f}};

/* ---- Application ------------------------------------------------------------------------------------------------- */

/* Step by step, as the words say it: pad, crop, mirror, normalise, cut out. */
static void plain_apply(const nw_augment *a, const uint8_t *planes, int channels, int height, int width, int out_height,
                        int out_width, const nw_choice *choice, float *out)
{
    int padded_height = height + 2 * a->pad, padded_width = width + 2 * a->pad;
    uint8_t *padded = calloc((size_t)padded_height * (size_t)padded_width, 1);
    for (int c = 0; c < channels; c++) {
        for (int y = 0; y < padded_height; y++)
            for (int x = 0; x < padded_width; x++) {
                int sy = y - a->pad, sx = x - a->pad;
                if (a->pad_reflect) {
                    sy = sy < 0 ? -sy : sy >= height ? 2 * height - 2 - sy : sy;
                    sx = sx < 0 ? -sx : sx >= width ? 2 * width - 2 - sx : sx;
                }
                bool inside = sy >= 0 && sy < height && sx >= 0 && sx < width;
                padded[y * padded_width + x] = inside ? planes[(c * height + sy) * width + sx] : 0;
            }
        for (int y = 0; y < out_height; y++)
            for (int x = 0; x < out_width; x++) {
                int column = choice->left + (choice->mirror ? out_width - 1 - x : x);
                float value = (float)padded[(choice->top + y) * padded_width + column] / 255.0f;
                int at = (c * out_height + y) * out_width + x;
                value = (value - (a->mean_image ? a->mean_image[at] : a->mean[c])) / a->deviation[c];
                bool cut = y >= choice->cut_top && y < choice->cut_top + a->cutout && x >= choice->cut_left &&
                           x < choice->cut_left + a->cutout;
                out[at] = cut ? 0.0f : value;
            }
    }
    free(padded);
}

static void test_equals_plain_twin(void **state)
{
    (void)state;
    enum { SIDE = 14, MOST = 4 * 3 * SIDE * 3 * SIDE };
    static uint8_t planes[4 * SIDE * SIDE], interleaved[4 * SIDE * SIDE];
    static float mean_image[MOST], got[MOST], want[MOST];
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, 0, 0);
    for (int i = 0; i < MOST; i++) mean_image[i] = nw_rng_uniform(&rng);
    for (int round = 0; round < 2000; round++) {
        int channels = 1 + (int)nw_rng_below(&rng, 4), height = 2 + (int)nw_rng_below(&rng, SIDE - 1);
        int width = 2 + (int)nw_rng_below(&rng, SIDE - 1), shorter = height < width ? height : width;
        for (int i = 0; i < channels * height * width; i++) planes[i] = (uint8_t)nw_rng_u32(&rng);
        nw_augment augment = cifar;
        augment.pad_reflect = round & 1;
        augment.flip = round & 2;
        augment.pad = (int)nw_rng_below(&rng, (uint32_t)(augment.pad_reflect ? shorter : SIDE));
        augment.crop = (int)nw_rng_below(&rng, (uint32_t)(shorter + 2 * augment.pad + 1)); /* 0: the image's size */
        int least_out = augment.crop ? augment.crop : shorter;
        augment.cutout = (int)nw_rng_below(&rng, (uint32_t)least_out + 1);
        if (round % 5 == 0) augment.mean_image = mean_image;
        nw_transform t;
        assert_int_equal(nw_transform_prepare(&t, &augment, true, channels, height, width), NW_OK);
        nw_rng draws = nw_rng_make(2, NW_PURPOSE_AUGMENT, 7, (uint32_t)round);
        nw_choice choice = nw_transform_draw(&t, height, width, &draws);
        size_t count = (size_t)t.channels * (size_t)t.height * (size_t)t.width;
        plain_apply(&augment, planes, channels, height, width, t.height, t.width, &choice, want);

        nw_raster view = {planes, height, width, height * width, width, 1};
        nw_transform_apply(&t, &view, &choice, got);
        assert_memory_equal(got, want, count * sizeof *got);

        /* The same image with its channels side by side. */
        for (int i = 0; i < channels * height * width; i++)
            interleaved[i % (height * width) * channels + i / (height * width)] = planes[i];
        memset(got, 1, sizeof got);
        view = (nw_raster){interleaved, height, width, 1, width * channels, channels};
        nw_transform_apply(&t, &view, &choice, got);
        assert_memory_equal(got, want, count * sizeof *got);
    }
}

/* As PyTorch: torch.tensor(v).div(255).sub(mean).div(deviation) in f32. */
static void test_table_equals_pytorch(void **state)
{
    (void)state;
    static const struct {
        int channel, byte;
        float value;
    } pytorch[] = {
        {0, 0, -2.4290657f},  {0, 1, -2.40968084f},     {0, 128, 0.0522037111f}, {0, 255, 2.51408792f},
        {1, 0, -2.41825485f}, {1, 77, -0.903907776f},   {1, 200, 1.51511407f},   {1, 255, 2.59679031f},
        {2, 0, -2.22139311f}, {2, 113, -0.0167300738f}, {2, 254, 2.73422098f},   {2, 255, 2.75373125f},
    };
    nw_transform t;
    assert_int_equal(nw_transform_prepare(&t, &cifar, false, 3, 32, 32), NW_OK);
    for (size_t i = 0; i < sizeof pytorch / sizeof pytorch[0]; i++)
        assert_memory_equal(&t.table[pytorch[i].channel][pytorch[i].byte], &pytorch[i].value, sizeof(float));
}

/* Without randomness nothing but the normalised image comes out, whatever the training options are. */
static void test_evaluation_leaves_the_image(void **state)
{
    (void)state;
    static uint8_t planes[3 * 9 * 9];
    static float out[3 * 9 * 9];
    for (int i = 0; i < 3 * 81; i++) planes[i] = (uint8_t)(i * 7);
    nw_augment augment = cifar;
    augment.pad = 4;
    augment.flip = true;
    augment.cutout = 3;
    nw_transform t;
    assert_int_equal(nw_transform_prepare(&t, &augment, false, 3, 9, 9), NW_OK);
    nw_choice choice = nw_transform_draw(&t, 9, 9, NULL);
    nw_transform_apply(&t, &(nw_raster){planes, 9, 9, 81, 9, 1}, &choice, out);
    for (int i = 0; i < 3 * 81; i++) assert_memory_equal(&out[i], &t.table[i / 81][planes[i]], sizeof(float));
}

/* 28 x 28 in a frame of 32 x 32: padding serves evaluation too where the output is larger than the image. */
static void test_enlarges_by_padding(void **state)
{
    (void)state;
    static uint8_t plane[28 * 28];
    static float out[32 * 32];
    memset(plane, 255, sizeof plane);
    nw_augment augment = {.crop = 32, .pad = 2, .deviation = {1}};
    nw_transform t;
    assert_int_equal(nw_transform_prepare(&t, &augment, false, 1, 28, 28), NW_OK);
    nw_choice choice = nw_transform_draw(&t, 28, 28, NULL);
    nw_transform_apply(&t, &(nw_raster){plane, 28, 28, 784, 28, 1}, &choice, out);
    for (int y = 0; y < 32; y++)
        for (int x = 0; x < 32; x++)
            assert_true(out[y * 32 + x] == (y >= 2 && y < 30 && x >= 2 && x < 30 ? 1.0f : 0.0f));
}

static void test_middle_rounds_as_python(void **state)
{
    (void)state;
    for (int n = 0; n < 100; n++) assert_int_equal(nw_middle(n), (int)rint(n / 2.0));
}

static void test_mirror_rows(void **state)
{
    (void)state;
    float odd[2][5] = {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}}, even[1][4] = {{1, 2, 3, 4}};
    const float odd_mirrored[2][5] = {{5, 4, 3, 2, 1}, {10, 9, 8, 7, 6}}, even_mirrored[1][4] = {{4, 3, 2, 1}};
    nw_mirror_rows(odd[0], 2, 5);
    nw_mirror_rows(even[0], 1, 4);
    assert_memory_equal(odd, odd_mirrored, sizeof odd);
    assert_memory_equal(even, even_mirrored, sizeof even);
}

/* ---- Draws ------------------------------------------------------------------------------------------------------- */

/* The largest of |count - expected| / sqrt(expected): over 5 is an accident of less than one in a million. */
static double worst_deviation(const int *counts, int cells, double total)
{
    double expected = total / cells, worst = 0;
    for (int i = 0; i < cells; i++) worst = fmax(worst, fabs(counts[i] - expected) / sqrt(expected));
    return worst;
}

static void test_draws_are_uniform(void **state)
{
    (void)state;
    enum { SAMPLES = 100000 };
    static int corner[81], cut[25 * 25], mirror[2];
    nw_augment augment = cifar;
    augment.pad = 4;
    augment.flip = true;
    augment.cutout = 8;
    nw_transform t;
    assert_int_equal(nw_transform_prepare(&t, &augment, true, 3, 32, 32), NW_OK);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        nw_rng rng = nw_rng_make(42, NW_PURPOSE_AUGMENT, 3, i);
        nw_choice choice = nw_transform_draw(&t, 32, 32, &rng);
        assert_in_range(choice.top, 0, 8);
        assert_in_range(choice.left, 0, 8);
        assert_in_range(choice.cut_top, 0, 24);
        assert_in_range(choice.cut_left, 0, 24);
        corner[choice.top * 9 + choice.left]++;
        cut[choice.cut_top * 25 + choice.cut_left]++;
        mirror[choice.mirror]++;
    }
    assert_true(worst_deviation(corner, 81, SAMPLES) < 5);
    assert_true(worst_deviation(cut, 25 * 25, SAMPLES) < 5);
    assert_true(worst_deviation(mirror, 2, SAMPLES) < 5);
}

/* What is not asked for is not drawn, so it does not move the rest. */
static void test_draws_only_what_is_asked(void **state)
{
    (void)state;
    nw_augment augment = cifar;
    augment.pad = 4;
    nw_transform t;
    assert_int_equal(nw_transform_prepare(&t, &augment, true, 3, 32, 32), NW_OK);
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_AUGMENT, 0, 0), twin = rng;
    nw_choice choice = nw_transform_draw(&t, 32, 32, &rng);
    assert_int_equal(choice.top, nw_rng_below(&twin, 9));
    assert_int_equal(choice.left, nw_rng_below(&twin, 9));
    assert_false(choice.mirror);
    assert_int_equal(nw_rng_u32(&rng), nw_rng_u32(&twin));
}

/* Of a square photograph: area uniform in 0.08..1, the logarithm of the aspect uniform, both by tenths. */
static void test_parts_are_distributed_as_published(void **state)
{
    (void)state;
    enum { SAMPLES = 50000 };
    int areas[10] = {0}, aspects[10] = {0}, lefts[2] = {0};
    for (uint32_t i = 0; i < SAMPLES; i++) {
        nw_rng rng = nw_rng_make(42, NW_PURPOSE_AUGMENT, 0, i);
        nw_part parts[NW_PART_TRIES];
        nw_part_draw(parts, &rng);
        for (int k = 0; k < NW_PART_TRIES; k++) {
            assert_true(parts[k].area >= 0.08 && parts[k].area <= 1);
            assert_true(parts[k].aspect >= 0.7499 && parts[k].aspect <= 1.3334);
        }
        areas[(int)((parts[0].area - 0.08) / 0.92001 * 10)]++;
        double turn = log(parts[9].aspect / 0.75) / log(16.0 / 9.0);
        aspects[(int)(fmin(fmax(turn, 0), 0.99999) * 10)]++;

        nw_box box = nw_part_place(parts, 900, 1000, &rng);
        assert_true(box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0);
        assert_true(box.top + box.height <= 900 && box.left + box.width <= 1000);
        lefts[2 * box.left + box.width > 1000] += 2 * box.left + box.width != 1000;
        double area = box.height * (double)box.width / 900e3, aspect = box.width / (double)box.height;
        bool fits = false;
        for (int k = 0; k < NW_PART_TRIES; k++)
            fits |= fabs(area / parts[k].area - 1) < 0.01 && fabs(aspect / parts[k].aspect - 1) < 0.01;
        assert_true(fits);
    }
    assert_true(worst_deviation(areas, 10, SAMPLES) < 5);
    assert_true(worst_deviation(aspects, 10, SAMPLES) < 5);
    assert_true(worst_deviation(lefts, 2, lefts[0] + lefts[1]) < 5);
}

static void test_long_photographs_fall_back_to_the_middle(void **state)
{
    (void)state;
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_AUGMENT, 0, 0);
    nw_part parts[NW_PART_TRIES];
    nw_part_draw(parts, &rng);
    nw_box box = nw_part_place(parts, 10, 1000, &rng); /* 0.08 of the area is wider than high by far */
    assert_int_equal(box.height, 10);
    assert_int_equal(box.width, 13);
    assert_int_equal(box.top, 0);
    assert_int_equal(box.left, 493);
    box = nw_part_place(parts, 1001, 10, &rng);
    assert_int_equal(box.height, 13);
    assert_int_equal(box.width, 10);
    assert_int_equal(box.top, 494);
    box = nw_part_place(parts, 1, 1, &rng);
    assert_int_equal(box.height * box.width, 1);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void refused(nw_augment augment, int channels, int height, int width, nw_status status, const char *words)
{
    nw_transform t;
    assert_int_equal(nw_transform_prepare(&t, &augment, true, channels, height, width), status);
    if (!strstr(nw_error_message(), words)) fail_msg("'%s' does not say '%s'", nw_error_message(), words);
}

static void test_refusals(void **state)
{
    (void)state;
    nw_augment a = cifar;
    a.crop = 41, a.pad = 4;
    refused(a, 3, 32, 32, NW_E_ARGUMENT, "crop of 41");
    a = cifar, a.pad = 32, a.pad_reflect = true;
    refused(a, 3, 32, 32, NW_E_ARGUMENT, "reflected");
    a = cifar, a.cutout = 33;
    refused(a, 3, 32, 32, NW_E_ARGUMENT, "cutout of 33");
    a = cifar, a.deviation[1] = 0;
    refused(a, 3, 32, 32, NW_E_ARGUMENT, "channel 1");
    a = cifar, a.mean[2] = NAN;
    refused(a, 3, 32, 32, NW_E_ARGUMENT, "channel 2");
    a = cifar, a.resized_crop = true;
    refused(a, 3, 32, 32, NW_E_UNSUPPORTED, "image files");
    a = cifar, a.resize = 40;
    refused(a, 3, 32, 32, NW_E_UNSUPPORTED, "image files");
    refused(cifar, 5, 32, 32, NW_E_UNSUPPORTED, "channels");
    refused(cifar, 1, 0, 0, NW_E_UNSUPPORTED, "3 channels");
    refused(cifar, 3, -1, 32, NW_E_SHAPE, "-1 x 32");
    a = cifar, a.crop = 224, a.resize = 200;
    refused(a, 3, 0, 0, NW_E_ARGUMENT, "crop of 224");
    a = cifar, a.pad = -1;
    refused(a, 3, 32, 32, NW_E_ARGUMENT, "padding of -1");
    a = cifar, a.crop = -1;
    refused(a, 3, 32, 32, NW_E_ARGUMENT, "crop of -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_plain_twin),
        cmocka_unit_test(test_table_equals_pytorch),
        cmocka_unit_test(test_evaluation_leaves_the_image),
        cmocka_unit_test(test_enlarges_by_padding),
        cmocka_unit_test(test_middle_rounds_as_python),
        cmocka_unit_test(test_mirror_rows),
        cmocka_unit_test(test_draws_are_uniform),
        cmocka_unit_test(test_draws_only_what_is_asked),
        cmocka_unit_test(test_parts_are_distributed_as_published),
        cmocka_unit_test(test_long_photographs_fall_back_to_the_middle),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
