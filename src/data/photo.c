/*
 * photo.c - from an image file to the floats that a network reads; see photo.h.
 *
 * Training, random resized crop: ten tries of (area, aspect) are drawn before the file is opened, because the JPEG
 * decoder shrinks for little money but must be told beforehand. If the shorter side of the decoded bitmap is at least
 *   crop / sqrt(area * min(aspect, 1 / aspect))
 * then the part of the first try, which mostly is the one that fits, has at least `crop` pixels both ways and is not
 * blurred by enlarging. Where another try was taken and needs more, the file is decoded again.
 *
 * Evaluation, or training without random parts: the short side is scaled to `resize`, of which only the window and what
 * its padding reflects are computed.
 *
 * Distinct nw_photo may be used from distinct threads. What comes out depends on the file and the draws alone.
 */
#define _GNU_SOURCE 1
#include "data/photo.h"

#include <math.h>
#include <stdlib.h>

enum { LONGEST = 1 << 28 };

static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }

/* The rows or columns [*begin, *end) of a scaled image of `size` that a window at `at` needs; `at` counts from the
 * edge, and what lies in the padding may be reflected from inside. */
static void needed(int at, int window, int pad, int size, int *begin, int *end)
{
    *begin = most(0, at - 2 * pad);
    *end = least(size, at + window + 2 * pad);
}

static nw_status load_part(nw_photo *photo, const nw_transform *t, nw_decode decode, const char *path, nw_rng *rng,
                           nw_resize *job)
{
    nw_part parts[NW_PART_TRIES];
    nw_part_draw(parts, rng);
    double crop = t->height, narrow = fmin(parts[0].aspect, 1 / parts[0].aspect);
    int full_height, full_width;
    NW_TRY(decode(path, (int)ceil(crop / sqrt(parts[0].area * narrow)), &photo->bitmap, &full_height, &full_width));
    nw_box box = nw_part_place(parts, full_height, full_width, rng);
    int shrunk = least(photo->bitmap.height, photo->bitmap.width), full = least(full_height, full_width);
    int wanted = (int)fmin(ceil(crop * full / least(box.height, box.width)), full);
    if (shrunk < wanted) NW_TRY(decode(path, wanted, &photo->bitmap, &full_height, &full_width));

    const nw_bitmap *bitmap = &photo->bitmap;
    double y = (double)bitmap->height / full_height, x = (double)bitmap->width / full_width;
    *job = (nw_resize){
        .top = box.top * y,
        .left = box.left * x,
        .bottom = fmin((box.top + box.height) * y, bitmap->height),
        .right = fmin((box.left + box.width) * x, bitmap->width),
        .full_height = t->height,
        .full_width = t->width,
        .window_height = t->height,
        .window_width = t->width,
    };
    return NW_OK;
}

static nw_status load_whole(nw_photo *photo, const nw_transform *t, nw_decode decode, const char *path, nw_rng *rng,
                            nw_resize *job, nw_choice *choice)
{
    const nw_augment *a = &t->augment;
    int full_height, full_width;
    NW_TRY(decode(path, a->resize, &photo->bitmap, &full_height, &full_width));
    int short_side = least(full_height, full_width);
    int64_t height = (int64_t)full_height * a->resize / short_side,
            width = (int64_t)full_width * a->resize / short_side;
    NW_FAIL_IF(height > LONGEST || width > LONGEST, NW_E_FILE,
               "'%s' has %d x %d pixels, too long and narrow to be scaled to a short side of %d: remove it", path,
               full_height, full_width, a->resize);
    *choice = nw_transform_draw(t, (int)height, (int)width, rng);
    int top, left, bottom, right;
    needed(choice->top - a->pad, t->height, a->pad, (int)height, &top, &bottom);
    needed(choice->left - a->pad, t->width, a->pad, (int)width, &left, &right);
    choice->top -= top;
    choice->left -= left;
    *job = (nw_resize){
        .bottom = photo->bitmap.height,
        .right = photo->bitmap.width,
        .full_height = (int)height,
        .full_width = (int)width,
        .window_top = top,
        .window_left = left,
        .window_height = bottom - top,
        .window_width = right - left,
    };
    return NW_OK;
}

nw_status nw_photo_load(nw_photo *photo, const nw_transform *t, nw_decode decode, const char *path, nw_rng *rng,
                        float *out)
{
    nw_resize job;
    nw_choice choice;
    if (t->random && t->augment.resized_crop) {
        NW_TRY(load_part(photo, t, decode, path, rng, &job));
        choice = nw_transform_draw(t, t->height, t->width, rng);
    } else {
        NW_TRY(load_whole(photo, t, decode, path, rng, &job, &choice));
    }
    job.pixels = photo->bitmap.pixels;
    job.height = photo->bitmap.height;
    job.width = photo->bitmap.width;
    const uint8_t *scaled;
    NW_TRY(nw_resize_rgb(&photo->resizer, &job, &scaled));
    nw_raster view = {.pixels = scaled,
                      .height = job.window_height,
                      .width = job.window_width,
                      .plane = 1,
                      .row = 3 * job.window_width,
                      .column = 3};
    nw_transform_apply(t, &view, &choice, out);
    return NW_OK;
}

void nw_photo_free(nw_photo *photo)
{
    free(photo->bitmap.pixels);
    nw_resizer_free(&photo->resizer);
    *photo = (nw_photo){0};
}
