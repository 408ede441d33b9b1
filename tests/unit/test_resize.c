/*
 * test_resize.c - scaling of images and the way of a photograph: against Pillow's own bytes, a plain twin in double
 * precision, and each other. Photographs come from a stand-in for the decoder, so no image library is needed.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/photo.h"
#include "support/golden.h"

/* ---- Resizing ---------------------------------------------------------------------------------------------------- */

static void fill_bytes(uint8_t *bytes, size_t count, uint64_t stream)
{
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)golden_bits(stream, i);
}

static nw_resize whole(const uint8_t *pixels, int height, int width, int full_height, int full_width)
{
    return (nw_resize){.pixels = pixels,
                       .height = height,
                       .width = width,
                       .bottom = height,
                       .right = width,
                       .full_height = full_height,
                       .full_width = full_width,
                       .window_height = full_height,
                       .window_width = full_width};
}

static const char *const pillow_cases[] = {"same", "up", "down", "mixed", "part", "part_up", "one", "far"};

static void test_equals_pillow(void **state)
{
    (void)state;
    golden_file *golden = golden_load(GOLDEN_PATH("resize.nwg"));
    assert_non_null(golden);
    nw_resizer resizer = {0};
    for (size_t t = 0; t < sizeof pillow_cases / sizeof pillow_cases[0]; t++) {
        char name[32];
        snprintf(name, sizeof name, "%s/shape", pillow_cases[t]);
        const golden_tensor *shape = golden_find(golden, name);
        snprintf(name, sizeof name, "%s/y", pillow_cases[t]);
        const golden_tensor *want = golden_find(golden, name);
        assert_non_null(shape);
        assert_non_null(want);
        int v[8];
        for (int i = 0; i < 8; i++) v[i] = (int)shape->data[i];
        uint8_t *pixels = malloc((size_t)v[0] * (size_t)v[1] * 3);
        fill_bytes(pixels, (size_t)v[0] * (size_t)v[1] * 3, 300 + t);
        nw_resize job = whole(pixels, v[0], v[1], v[6], v[7]);
        job.top = v[2];
        job.left = v[3];
        job.bottom = v[2] + v[4];
        job.right = v[3] + v[5];
        const uint8_t *got;
        assert_int_equal(nw_resize_rgb(&resizer, &job, &got), NW_OK);
        assert_int_equal(want->count, (size_t)v[6] * (size_t)v[7] * 3);
        for (size_t i = 0; i < want->count; i++) assert_int_equal(got[i], (int)want->data[i]);
        free(pixels);
    }
    nw_resizer_free(&resizer);
    golden_free(golden);
}

static double triangle(double distance) { return fabs(distance) < 1 ? 1 - fabs(distance) : 0; }

/* The filter's definition in two dimensions at once, without rounding. */
static double plain_pixel(const nw_resize *job, int y, int x, int color)
{
    double sy = (job->bottom - job->top) / job->full_height, sx = (job->right - job->left) / job->full_width;
    double cy = job->top + (y + 0.5) * sy, cx = job->left + (x + 0.5) * sx, ry = fmax(sy, 1), rx = fmax(sx, 1);
    double sum = 0, weights = 0;
    for (int j = (int)floor(job->top); j < (int)ceil(job->bottom); j++)
        for (int i = (int)floor(job->left); i < (int)ceil(job->right); i++) {
            double w = triangle((j + 0.5 - cy) / ry) * triangle((i + 0.5 - cx) / rx);
            weights += w;
            sum += w * job->pixels[(j * job->width + i) * 3 + color];
        }
    return sum / weights;
}

static void test_equals_plain_twin(void **state)
{
    (void)state;
    nw_resizer resizer = {0};
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, 0, 0);
    for (int round = 0; round < 60; round++) {
        int height = 1 + (int)nw_rng_below(&rng, 40), width = 1 + (int)nw_rng_below(&rng, 40);
        uint8_t *pixels = malloc((size_t)height * (size_t)width * 3);
        fill_bytes(pixels, (size_t)height * (size_t)width * 3, (uint64_t)round);
        nw_resize job = whole(pixels, height, width, 1 + (int)nw_rng_below(&rng, 40), 1 + (int)nw_rng_below(&rng, 40));
        if (round % 2) { /* a part with edges inside pixels, as behind a shrinking decoder */
            job.top = height * 0.3 * (double)nw_rng_uniform(&rng);
            job.bottom = height * (1 - 0.3 * (double)nw_rng_uniform(&rng));
            job.left = width * 0.3 * (double)nw_rng_uniform(&rng);
            job.right = width * (1 - 0.3 * (double)nw_rng_uniform(&rng));
        }
        const uint8_t *got;
        assert_int_equal(nw_resize_rgb(&resizer, &job, &got), NW_OK);
        for (int y = 0; y < job.full_height; y++)
            for (int x = 0; x < job.full_width; x++)
                for (int c = 0; c < 3; c++) /* half a unit from each of two roundings, and those of the weights */
                    assert_true(fabs(got[(y * job.full_width + x) * 3 + c] - plain_pixel(&job, y, x, c)) < 1.01);
        free(pixels);
    }
    nw_resizer_free(&resizer);
}

static void test_window_is_cut_from_the_whole(void **state)
{
    (void)state;
    enum { H = 50, W = 70, FH = 33, FW = 91 };
    static uint8_t pixels[H * W * 3], all[FH * FW * 3];
    fill_bytes(pixels, sizeof pixels, 9);
    nw_resizer resizer = {0};
    nw_resize job = whole(pixels, H, W, FH, FW);
    const uint8_t *got;
    assert_int_equal(nw_resize_rgb(&resizer, &job, &got), NW_OK);
    memcpy(all, got, sizeof all);
    nw_rng rng = nw_rng_make(2, NW_PURPOSE_TEST, 0, 0);
    for (int round = 0; round < 50; round++) {
        job.window_top = (int)nw_rng_below(&rng, FH);
        job.window_left = (int)nw_rng_below(&rng, FW);
        job.window_height = 1 + (int)nw_rng_below(&rng, (uint32_t)(FH - job.window_top));
        job.window_width = 1 + (int)nw_rng_below(&rng, (uint32_t)(FW - job.window_left));
        assert_int_equal(nw_resize_rgb(&resizer, &job, &got), NW_OK);
        for (int y = 0; y < job.window_height; y++)
            assert_memory_equal(got + y * job.window_width * 3, all + ((job.window_top + y) * FW + job.window_left) * 3,
                                (size_t)job.window_width * 3);
    }
    nw_resizer_free(&resizer);
}

/* White stays white: however many weights are rounded, a sum may not run over. */
static void test_white_stays_white(void **state)
{
    (void)state;
    enum { W = 20000 };
    uint8_t *pixels = malloc((size_t)W * 3);
    memset(pixels, 255, (size_t)W * 3);
    nw_resizer resizer = {0};
    for (int to = 1; to < 8; to++) {
        nw_resize job = whole(pixels, 1, W, 3, to);
        const uint8_t *got;
        assert_int_equal(nw_resize_rgb(&resizer, &job, &got), NW_OK);
        for (int i = 0; i < 3 * to * 3; i++) assert_int_equal(got[i], 255);
    }
    nw_resizer_free(&resizer);
    free(pixels);
}

static void test_refuses_bad_parts(void **state)
{
    (void)state;
    uint8_t pixels[4 * 4 * 3] = {0};
    nw_resizer resizer = {0};
    const uint8_t *got;
    nw_resize good = whole(pixels, 4, 4, 2, 2), job = good;
    job.bottom = 4.5;
    assert_int_equal(nw_resize_rgb(&resizer, &job, &got), NW_E_ARGUMENT);
    job = good;
    job.left = NAN;
    assert_int_equal(nw_resize_rgb(&resizer, &job, &got), NW_E_ARGUMENT);
    job = good;
    job.window_left = 1;
    assert_int_equal(nw_resize_rgb(&resizer, &job, &got), NW_E_ARGUMENT);
    job = good;
    job.window_height = 0;
    assert_int_equal(nw_resize_rgb(&resizer, &job, &got), NW_E_ARGUMENT);
    nw_resizer_free(&resizer);
}

/* ---- Photographs ------------------------------------------------------------------------------------------------- */

/* The stand-in's file: what it holds, and what was asked of it. */
static struct {
    int height, width;
    uint8_t pixels[400 * 400 * 3];
    int decodes, least_side;
} file;

static nw_status fake_decode(const char *path, int least_side, nw_bitmap *bitmap, int *full_height, int *full_width)
{
    NW_FAIL_IF(strcmp(path, "photo") != 0, NW_E_FILE, "'%s' is no image", path);
    int shrink = 1;
    while (shrink < 8 && least_side > 0 && file.height / (2 * shrink) >= least_side &&
           file.width / (2 * shrink) >= least_side)
        shrink *= 2;
    *full_height = file.height;
    *full_width = file.width;
    bitmap->height = (file.height + shrink - 1) / shrink;
    bitmap->width = (file.width + shrink - 1) / shrink;
    bitmap->pixels = realloc(bitmap->pixels, (size_t)bitmap->height * (size_t)bitmap->width * 3);
    for (int y = 0; y < bitmap->height; y++)
        for (int x = 0; x < bitmap->width; x++)
            memcpy(bitmap->pixels + (y * bitmap->width + x) * 3, file.pixels + (y * file.width + x) * shrink * 3, 3);
    file.decodes++;
    file.least_side = least_side;
    return NW_OK;
}

static void make_file(int height, int width)
{
    file.height = height;
    file.width = width;
    fill_bytes(file.pixels, (size_t)height * (size_t)width * 3, 77);
    file.decodes = 0;
}

static const nw_augment colors = {.mean = {0.485f, 0.456f, 0.406f}, .deviation = {0.229f, 0.224f, 0.225f}};

/* Evaluation: scale all of it, then cut the middle out, pixel by pixel. Sizes at which nothing is shrunk in decoding.
 */
static void test_evaluation_cuts_the_middle(void **state)
{
    (void)state;
    static const int sizes[][4] = {/* height, width, resize, crop */
                                   {40, 60, 32, 28},
                                   {60, 40, 32, 28},
                                   {33, 33, 32, 27},
                                   {20, 31, 32, 31},
                                   {32, 45, 32, 32}};
    nw_photo photo = {0};
    nw_resizer resizer = {0};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int height = sizes[s][0], width = sizes[s][1], resize = sizes[s][2], crop = sizes[s][3];
        make_file(height, width);
        nw_augment augment = colors;
        augment.resize = resize;
        augment.crop = crop;
        nw_transform t;
        assert_int_equal(nw_transform_prepare(&t, &augment, false, 3, 0, 0), NW_OK);
        float *got = malloc((size_t)crop * (size_t)crop * 3 * sizeof *got);
        assert_int_equal(nw_photo_load(&photo, &t, fake_decode, "photo", NULL, got), NW_OK);
        assert_int_equal(file.least_side, resize);
        int full_height = height < width ? resize : resize * height / width;
        int full_width = height < width ? resize * width / height : resize;
        nw_resize job = whole(file.pixels, height, width, full_height, full_width);
        const uint8_t *all;
        assert_int_equal(nw_resize_rgb(&resizer, &job, &all), NW_OK);
        int top = (int)rint((full_height - crop) / 2.0), left = (int)rint((full_width - crop) / 2.0);
        for (int c = 0; c < 3; c++)
            for (int y = 0; y < crop; y++)
                for (int x = 0; x < crop; x++) {
                    float value = (float)all[((top + y) * full_width + left + x) * 3 + c] / 255.0f;
                    value = (value - colors.mean[c]) / colors.deviation[c];
                    assert_memory_equal(&got[(c * crop + y) * crop + x], &value, sizeof value);
                }
        free(got);
    }
    nw_resizer_free(&resizer);
    nw_photo_free(&photo);
}

/* Training without random parts: the padded window of the scaled photograph equals that of the same image in memory. */
static void test_padded_windows(void **state)
{
    (void)state;
    enum { SIDE = 24, PAD = 5, CROP = 26 };
    make_file(SIDE, SIDE);
    static uint8_t planes[3 * SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE * 3; i++) planes[i % 3 * SIDE * SIDE + i / 3] = file.pixels[i];
    nw_photo photo = {0};
    for (int reflect = 0; reflect < 2; reflect++) {
        nw_augment augment = colors;
        augment.crop = CROP;
        augment.pad = PAD;
        augment.pad_reflect = reflect;
        augment.flip = true;
        augment.cutout = 7;
        nw_transform memory, photographs;
        assert_int_equal(nw_transform_prepare(&memory, &augment, true, 3, SIDE, SIDE), NW_OK);
        augment.resize = SIDE;
        assert_int_equal(nw_transform_prepare(&photographs, &augment, true, 3, 0, 0), NW_OK);
        nw_raster view = {
            .pixels = planes, .height = SIDE, .width = SIDE, .plane = SIDE * SIDE, .row = SIDE, .column = 1};
        for (uint32_t sample = 0; sample < 100; sample++) {
            static float want[3 * CROP * CROP], got[3 * CROP * CROP];
            nw_rng one = nw_rng_make(3, NW_PURPOSE_AUGMENT, 0, sample), two = one;
            nw_choice choice = nw_transform_draw(&memory, SIDE, SIDE, &one);
            nw_transform_apply(&memory, &view, &choice, want);
            assert_int_equal(nw_photo_load(&photo, &photographs, fake_decode, "photo", &two, got), NW_OK);
            assert_memory_equal(got, want, sizeof want);
        }
    }
    nw_photo_free(&photo);
}

/* A random part equals cropping and scaling by hand, with the same draws. */
static void test_random_parts(void **state)
{
    (void)state;
    enum { CROP = 40 };
    make_file(50, 64);
    nw_augment augment = colors;
    augment.crop = CROP;
    augment.resized_crop = augment.flip = true;
    augment.pad = 4; /* means nothing here */
    nw_transform t;
    assert_int_equal(nw_transform_prepare(&t, &augment, true, 3, 0, 0), NW_OK);
    nw_photo photo = {0};
    nw_resizer resizer = {0};
    int mirrored = 0;
    for (uint32_t sample = 0; sample < 60; sample++) {
        static float got[3 * CROP * CROP];
        nw_rng one = nw_rng_make(4, NW_PURPOSE_AUGMENT, 0, sample), two = one;
        assert_int_equal(nw_photo_load(&photo, &t, fake_decode, "photo", &one, got), NW_OK);
        nw_part parts[NW_PART_TRIES];
        nw_part_draw(parts, &two);
        nw_box box = nw_part_place(parts, 50, 64, &two);
        bool mirror = nw_rng_u32(&two) >> 31;
        mirrored += mirror;
        nw_resize job = whole(file.pixels, 50, 64, CROP, CROP);
        job.top = box.top;
        job.left = box.left;
        job.bottom = box.top + box.height;
        job.right = box.left + box.width;
        const uint8_t *scaled;
        assert_int_equal(nw_resize_rgb(&resizer, &job, &scaled), NW_OK);
        for (int i = 0; i < CROP * CROP; i++)
            for (int c = 0; c < 3; c++) {
                int x = mirror ? CROP - 1 - i % CROP : i % CROP;
                float value = t.table[c][scaled[(i / CROP * CROP + x) * 3 + c]];
                assert_memory_equal(&got[c * CROP * CROP + i], &value, sizeof value);
            }
    }
    assert_in_range(mirrored, 15, 45);
    nw_resizer_free(&resizer);
    nw_photo_free(&photo);
}

/* The decoder may shrink, but never so far that the part had to be enlarged though the file has enough pixels. */
static void test_shrinks_no_further_than_the_part_allows(void **state)
{
    (void)state;
    enum { CROP = 24 };
    make_file(400, 300);
    nw_augment augment = colors;
    augment.crop = CROP;
    augment.resized_crop = true;
    nw_transform t;
    assert_int_equal(nw_transform_prepare(&t, &augment, true, 3, 0, 0), NW_OK);
    nw_photo photo = {0};
    int shrunk = 0, again = 0;
    for (uint32_t sample = 0; sample < 400; sample++) {
        static float got[3 * CROP * CROP];
        nw_rng one = nw_rng_make(5, NW_PURPOSE_AUGMENT, 0, sample), two = one;
        file.decodes = 0;
        assert_int_equal(nw_photo_load(&photo, &t, fake_decode, "photo", &one, got), NW_OK);
        nw_part parts[NW_PART_TRIES];
        nw_part_draw(parts, &two);
        nw_box box = nw_part_place(parts, 400, 300, &two);
        double scale = photo.bitmap.height / 400.0;
        assert_true(scale == 1 || (box.height * scale >= CROP - 0.5 && box.width * scale >= CROP - 0.5));
        shrunk += scale < 1;
        again += file.decodes == 2;
    }
    assert_true(shrunk > 300);
    assert_in_range(again, 1, 60);
    nw_photo_free(&photo);
}

static void test_photo_failures(void **state)
{
    (void)state;
    nw_photo photo = {0};
    nw_transform t;
    float out[3 * 4];
    nw_augment augment = colors;
    augment.crop = 2;
    augment.resize = 1 << 15;
    assert_int_equal(nw_transform_prepare(&t, &augment, false, 3, 0, 0), NW_OK);
    assert_int_equal(nw_photo_load(&photo, &t, fake_decode, "text", NULL, out), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "'text'"));
    make_file(400, 1); /* 400 * 2^15 pixels long: still computed, in the window only */
    assert_int_equal(nw_photo_load(&photo, &t, fake_decode, "photo", NULL, out), NW_OK);
    nw_photo_free(&photo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_pillow),
        cmocka_unit_test(test_equals_plain_twin),
        cmocka_unit_test(test_window_is_cut_from_the_whole),
        cmocka_unit_test(test_white_stays_white),
        cmocka_unit_test(test_refuses_bad_parts),
        cmocka_unit_test(test_evaluation_cuts_the_middle),
        cmocka_unit_test(test_padded_windows),
        cmocka_unit_test(test_random_parts),
        cmocka_unit_test(test_shrinks_no_further_than_the_part_allows),
        cmocka_unit_test(test_photo_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
