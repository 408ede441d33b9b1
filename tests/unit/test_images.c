/*
 * test_images.c - JPEG and PNG of every kind that PIL writes, against the formula that they were drawn with: red = 16
 * x, green = 16 y, blue = 128, 12 wide and 16 high. Damaged ones are refused.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/dataset.h"
#include "support/files.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 12, HEIGHT = 16 };

static void decode(const char *name, nw_bitmap *bitmap, int least, int *height, int *width)
{
    bytes b = fixture(name);
    nw_status status = nw_image_decode_memory(b.data, b.size, name, least, bitmap, height, width);
    if (status != NW_OK) fail_msg("%s", nw_error_message());
    release(&b);
}

/* Every pixel of a ramp, within `tolerance`; gray ones have the red in all channels. */
static void check_ramp(const char *name, bool gray, int tolerance)
{
    nw_bitmap bitmap = {0};
    int height, width;
    decode(name, &bitmap, 0, &height, &width);
    assert_int_equal(bitmap.height, HEIGHT);
    assert_int_equal(bitmap.width, WIDTH);
    assert_int_equal(height, HEIGHT);
    assert_int_equal(width, WIDTH);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            const int want[3] = {16 * x, gray ? 16 * x : 16 * y, gray ? 16 * x : 128};
            for (int c = 0; c < 3; c++) {
                int got = bitmap.pixels[3 * (y * WIDTH + x) + c];
                if (abs(got - want[c]) > tolerance)
                    fail_msg("%s: channel %d at %d, %d is %d, not %d", name, c, x, y, got, want[c]);
            }
        }
    nw_bitmap_free(&bitmap);
}

static void test_png(void **state)
{
    (void)state;
    if (!NW_HAVE_PNG) skip();
    nw_bitmap bitmap = {0};
    check_ramp("image/rgb.png", false, 0);
    check_ramp("image/alpha.png", false, 0);
    check_ramp("image/gray.png", true, 0);
    check_ramp("image/deep.png", true, 0);
    check_ramp("image/palette.png", false, 8);
    decode("image/bits.png", &bitmap, 0, NULL, NULL);
    for (int x = 0; x < WIDTH; x++) assert_int_equal(bitmap.pixels[3 * x], 16 * x > 80 ? 255 : 0);
    decode("image/interlaced.png", &bitmap, 0, NULL, NULL);
    assert_int_equal(bitmap.height * 10 + bitmap.width, 22);
    for (int i = 0; i < 12; i++) assert_int_equal(bitmap.pixels[i], 10 * (i / 3 + 1));
    nw_bitmap_free(&bitmap);
}

static void test_jpeg(void **state)
{
    (void)state;
    if (!NW_HAVE_JPEG) skip();
    check_ramp("image/rgb.jpg", false, 24);
    check_ramp("image/gray.jpg", true, 6);
    check_ramp("image/cmyk.jpg", false, 24);
}

/* 96 x 128 shrinks as far as both sides stay long enough. */
static void test_scaled(void **state)
{
    (void)state;
    if (!NW_HAVE_JPEG) skip();
    static const int cases[][3] = {{0, 96, 128}, {96, 96, 128}, {49, 96, 128}, {48, 48, 64},  {24, 24, 32},
                                   {13, 24, 32}, {12, 12, 16},  {1, 12, 16},   {500, 96, 128}};
    nw_bitmap bitmap = {0};
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            int height, width;
            decode(kind ? "image/progressive.jpg" : "image/large.jpg", &bitmap, cases[i][0], &height, &width);
            assert_int_equal(bitmap.width, cases[i][1]);
            assert_int_equal(bitmap.height, cases[i][2]);
            assert_int_equal(width, 96);
            assert_int_equal(height, 128);
            /* The middle of the ramp has the middle of the colours at every scale. */
            const uint8_t *middle =
                bitmap.pixels + 3 * ((size_t)(bitmap.height / 2) * (size_t)bitmap.width + (size_t)bitmap.width / 2);
            assert_in_range(middle[0], 70, 110);
            assert_in_range(middle[1], 100, 150);
            assert_in_range(middle[2], 112, 144);
        }
    nw_bitmap_free(&bitmap);
}

/* Cut anywhere, an image is refused with its name. */
static void check_cuts(const char *name)
{
    bytes whole = fixture(name);
    nw_bitmap bitmap = {0};
    size_t end = strstr(name, "jpg") ? whole.size - 2 : whole.size; /* an end mark that is missing is forgiven */
    for (size_t size = 0; size < end; size++) {
        bytes part = cut(whole, size);
        nw_status status = nw_image_decode_memory(part.data, part.size, "photo", 0, &bitmap, NULL, NULL);
        if (status != NW_E_FILE || !strstr(nw_error_message(), "photo"))
            fail_msg("%s cut at %zu: status %d, '%s'", name, size, (int)status, nw_error_message());
        release(&part);
    }
    release(&whole);
    nw_bitmap_free(&bitmap);
}

static void test_cuts(void **state)
{
    (void)state;
    if (!NW_HAVE_PNG || !NW_HAVE_JPEG) skip();
    check_cuts("image/rgb.png");
    check_cuts("image/palette.png");
    check_cuts("image/gray.jpg");
    check_cuts("image/progressive.jpg");
}

static void test_refusals(void **state)
{
    nw_bitmap bitmap = {0};
    (void)state;
    assert_int_equal(nw_image_decode_memory((const uint8_t *)"GIF89a..", 8, "x.gif", 0, &bitmap, NULL, NULL),
                     NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "x.gif is neither"));
    assert_int_equal(nw_image_decode("/nonexistent/x.png", 0, &bitmap, NULL, NULL), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "/nonexistent/x.png"));
    assert_int_equal(nw_image_decode("/", 0, &bitmap, NULL, NULL), NW_E_FILE);
}

/* Few bytes that promise many pixels take no memory. */
static void test_bombs(void **state)
{
    nw_bitmap bitmap = {0};
    (void)state;
    if (!NW_HAVE_PNG || !NW_HAVE_JPEG) skip();
    bytes b = fixture("image/rgb.png");
    memcpy(b.data + 16, "\x00\x00\xff\x00\x00\x00\xff\x00", 8); /* 65280 x 65280 */
    assert_int_equal(nw_image_decode_memory(b.data, b.size, "bomb.png", 0, &bitmap, NULL, NULL), NW_E_FILE);
    release(&b);
    b = fixture("image/gray.jpg");
    for (size_t i = 0; i + 9 < b.size; i++)
        if (b.data[i] == 0xff && b.data[i + 1] == 0xc0) memcpy(b.data + i + 5, "\x2f\xff\x2f\xff", 4);
    assert_int_equal(nw_image_decode_memory(b.data, b.size, "bomb.jpg", 0, &bitmap, NULL, NULL), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "cannot hold the 12287 x 12287 pixels"));
    release(&b);
    assert_null(bitmap.pixels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_png),  cmocka_unit_test(test_jpeg),     cmocka_unit_test(test_scaled),
        cmocka_unit_test(test_cuts), cmocka_unit_test(test_refusals), cmocka_unit_test(test_bombs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
