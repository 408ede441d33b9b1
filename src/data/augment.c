/*
 * augment.c - crop, flip, cutout and normalisation of one image; see augment.h for the order and the meaning.
 *
 * A byte has 256 values, so normalisation is a table of 256 floats a channel: as fast as a copy, and exact. Padding is
 * never stored: a row of the window is a border, a run of the image's own pixels, and a border again.
 *
 * No state: any thread may call anything.
 */
#define _GNU_SOURCE 1
#include "data/augment.h"

#include <math.h>
#include <string.h>

enum { MOST_SIDE = 1 << 15, PHOTO_SIDE = 224 };

static const double least_area = 0.08, least_aspect = 3.0 / 4.0, most_aspect = 4.0 / 3.0;

/* ---- Preparation ------------------------------------------------------------------------------------------------ */

static nw_status resolve_sizes(nw_transform *t, int height, int width)
{
    nw_augment *a = &t->augment;
    NW_FAIL_IF(a->crop < 0 || a->crop > MOST_SIDE, NW_E_ARGUMENT,
               "a crop of %d pixels is impossible: give 1 to %d, or 0", a->crop, MOST_SIDE);
    NW_FAIL_IF(a->pad < 0 || a->pad > MOST_SIDE, NW_E_ARGUMENT, "a padding of %d pixels is impossible: give 0 to %d",
               a->pad, MOST_SIDE);
    NW_FAIL_IF(a->resize < 0 || a->resize > MOST_SIDE, NW_E_ARGUMENT,
               "a short side of %d pixels is impossible: give 1 to %d, or 0", a->resize, MOST_SIDE);
    if (t->photographs) {
        if (a->crop == 0) a->crop = PHOTO_SIDE;
        if (a->resize == 0) a->resize = a->crop * 8 / 7;
        height = width = a->resize; /* the short side decides what fits */
    } else {
        NW_FAIL_IF(a->resized_crop || a->resize, NW_E_UNSUPPORTED,
                   "images of %d x %d pixels are not scaled: random resized crops and resizing are for image files",
                   height, width);
    }
    t->height = a->crop ? a->crop : height;
    t->width = a->crop ? a->crop : width;
    if (t->photographs && t->random && a->resized_crop) return NW_OK;
    NW_FAIL_IF(t->height > height + 2 * a->pad || t->width > width + 2 * a->pad, NW_E_ARGUMENT,
               "a crop of %d pixels is larger than an image of %d x %d with %d pixels of padding: use a smaller crop",
               a->crop, height, width, a->pad);
    NW_FAIL_IF(a->pad_reflect && (a->pad >= height || a->pad >= width), NW_E_ARGUMENT,
               "an image of %d x %d pixels cannot be reflected into %d pixels of padding: use less padding", height,
               width, a->pad);
    return NW_OK;
}

nw_status nw_transform_prepare(nw_transform *t, const nw_augment *augment, bool random, int channels, int height,
                               int width)
{
    *t = (nw_transform){.augment = *augment, .random = random, .photographs = height == 0, .channels = channels};
    NW_FAIL_IF(channels < 1 || channels > 4, NW_E_UNSUPPORTED, "images have 1 to 4 channels here, not %d", channels);
    NW_FAIL_IF(t->photographs && channels != 3, NW_E_UNSUPPORTED, "photographs are read with 3 channels, not %d",
               channels);
    NW_FAIL_IF(!t->photographs && (height < 1 || width < 1 || height > MOST_SIDE || width > MOST_SIDE), NW_E_SHAPE,
               "images of %d x %d pixels are impossible: a side has 1 to %d", height, width, MOST_SIDE);
    NW_TRY(resolve_sizes(t, height, width));
    int side = t->height < t->width ? t->height : t->width;
    NW_FAIL_IF(augment->cutout < 0 || augment->cutout > side, NW_E_ARGUMENT,
               "a cutout of %d pixels does not fit into images of %d x %d: use 0 to %d", augment->cutout, t->height,
               t->width, side);
    for (int c = 0; c < channels; c++) {
        float mean = augment->mean[c], deviation = augment->deviation[c];
        NW_FAIL_IF(!isfinite(mean) || !(deviation > 0) || !isfinite(deviation), NW_E_ARGUMENT,
                   "channel %d cannot be normalised with mean %g and deviation %g: the deviation must be positive", c,
                   (double)mean, (double)deviation);
        for (int v = 0; v < 256; v++) {
            float x = (float)v / 255.0f;
            t->table[c][v] = augment->mean_image ? x : (x - mean) / deviation;
        }
    }
    return NW_OK;
}

/* ---- Draws ------------------------------------------------------------------------------------------------------- */

int nw_middle(int left_over)
{
    int half = left_over / 2;
    return left_over % 2 && half % 2 ? half + 1 : half;
}

nw_choice nw_transform_draw(const nw_transform *t, int height, int width, nw_rng *rng)
{
    const nw_augment *a = &t->augment;
    int free_rows = height + 2 * a->pad - t->height, free_columns = width + 2 * a->pad - t->width;
    if (!t->random) return (nw_choice){.top = nw_middle(free_rows), .left = nw_middle(free_columns)};
    nw_choice choice = {.top = a->pad, .left = a->pad};
    if (!(t->photographs && a->resized_crop)) {
        choice.top = (int)nw_rng_below(rng, (uint32_t)free_rows + 1);
        choice.left = (int)nw_rng_below(rng, (uint32_t)free_columns + 1);
    }
    if (a->flip) choice.mirror = nw_rng_u32(rng) >> 31;
    if (a->cutout > 0) {
        choice.cut_top = (int)nw_rng_below(rng, (uint32_t)(t->height - a->cutout) + 1);
        choice.cut_left = (int)nw_rng_below(rng, (uint32_t)(t->width - a->cutout) + 1);
    }
    return choice;
}

void nw_part_draw(nw_part parts[NW_PART_TRIES], nw_rng *rng)
{
    for (int i = 0; i < NW_PART_TRIES; i++) {
        parts[i].area = least_area + (1.0 - least_area) * (double)nw_rng_uniform(rng);
        double turn = (double)nw_rng_uniform(rng);
        parts[i].aspect = exp(log(least_aspect) + (log(most_aspect) - log(least_aspect)) * turn);
    }
}

nw_box nw_part_place(const nw_part parts[NW_PART_TRIES], int height, int width, nw_rng *rng)
{
    double area = (double)height * (double)width;
    for (int i = 0; i < NW_PART_TRIES; i++) {
        double w = rint(sqrt(area * parts[i].area * parts[i].aspect));
        double h = rint(sqrt(area * parts[i].area / parts[i].aspect));
        if (w < 1 || h < 1 || w > width || h > height) continue;
        nw_box box = {.height = (int)h, .width = (int)w};
        box.top = (int)nw_rng_below(rng, (uint32_t)(height - box.height) + 1);
        box.left = (int)nw_rng_below(rng, (uint32_t)(width - box.width) + 1);
        return box;
    }
    /* A very long photograph: the middle, as much of it as the aspects allow. */
    nw_box box = {.height = height, .width = width};
    double aspect = (double)width / (double)height;
    if (aspect < least_aspect) box.height = (int)fmin(rint(width / least_aspect), height);
    if (aspect > most_aspect) box.width = (int)fmin(rint(height * most_aspect), width);
    box.top = (height - box.height) / 2;
    box.left = (width - box.width) / 2;
    return box;
}

/* ---- Application ------------------------------------------------------------------------------------------------- */

/* Where row or column i of an image of `size` lies, i counted from its edge; -1: in zero padding. */
static int source_index(int i, int size, bool reflect)
{
    if (i >= 0 && i < size) return i;
    if (!reflect) return -1;
    return i < 0 ? -i : 2 * (size - 1) - i;
}

static int clamp(int value, int least, int most) { return value < least ? least : value > most ? most : value; }

/* n pixels through the table. The step is a constant wherever this is inlined. */
static inline void look_up(float *restrict out, const uint8_t *restrict from, ptrdiff_t step, int n,
                           const float *restrict table)
{
    for (int i = 0; i < n; i++) out[i] = table[from[i * step]];
}

/* One row of the window: out[x] is column `left + x` of the row, or mirrored, column `left + width - 1 - x`. */
static void write_row(const nw_transform *t, const nw_raster *image, const uint8_t *row, int left, bool mirror,
                      const float *table, float *out)
{
    /* The image's own pixels are the window's columns [begin, end). */
    int begin = clamp(-left, 0, t->width), end = clamp(image->width - left, begin, t->width), n = end - begin;
    for (int x = begin > 0 ? 0 : end; x < t->width; x = x + 1 == begin ? end : x + 1) {
        int column = source_index(left + x, image->width, t->augment.pad_reflect);
        out[mirror ? t->width - 1 - x : x] = table[column < 0 ? 0 : row[(ptrdiff_t)column * image->column]];
    }
    if (n == 0) return;
    ptrdiff_t step = image->column;
    const uint8_t *from = row + (left + begin) * step;
    if (mirror) {
        out += t->width - end;
        from += (n - 1) * step;
        step = -step;
    } else {
        out += begin;
    }
    switch (step) {
    case 1:
        look_up(out, from, 1, n, table);
        break;
    case -1:
        look_up(out, from, -1, n, table);
        break;
    case 3:
        look_up(out, from, 3, n, table);
        break;
    case -3:
        look_up(out, from, -3, n, table);
        break;
    default:
        look_up(out, from, step, n, table);
    }
}

static void subtract_mean_image(const nw_transform *t, float *out)
{
    size_t plane = (size_t)t->height * (size_t)t->width;
    for (int c = 0; c < t->channels; c++) {
        const float *mean = t->augment.mean_image + (size_t)c * plane;
        float deviation = t->augment.deviation[c], *pixels = out + (size_t)c * plane;
        for (size_t i = 0; i < plane; i++) pixels[i] = (pixels[i] - mean[i]) / deviation;
    }
}

void nw_transform_apply(const nw_transform *t, const nw_raster *image, const nw_choice *choice, float *out)
{
    const nw_augment *a = &t->augment;
    int top = choice->top - a->pad, left = choice->left - a->pad;
    size_t plane = (size_t)t->height * (size_t)t->width;
    for (int c = 0; c < t->channels; c++) {
        const uint8_t *pixels = image->pixels + (ptrdiff_t)c * image->plane;
        for (int y = 0; y < t->height; y++) {
            float *to = out + (size_t)c * plane + (size_t)y * (size_t)t->width;
            int from = source_index(top + y, image->height, a->pad_reflect);
            if (from >= 0)
                write_row(t, image, pixels + (ptrdiff_t)from * image->row, left, choice->mirror, t->table[c], to);
            else
                for (int x = 0; x < t->width; x++) to[x] = t->table[c][0];
        }
    }
    if (a->mean_image) subtract_mean_image(t, out);
    if (!t->random || a->cutout == 0) return;
    for (int c = 0; c < t->channels; c++)
        for (int y = choice->cut_top; y < choice->cut_top + a->cutout; y++)
            memset(out + (size_t)c * plane + (size_t)y * (size_t)t->width + (size_t)choice->cut_left, 0,
                   (size_t)a->cutout * sizeof *out);
}

void nw_mirror_rows(float *images, int64_t rows, int width)
{
    for (int64_t r = 0; r < rows; r++, images += width)
        for (int x = 0; x < width / 2; x++) {
            float kept = images[x];
            images[x] = images[width - 1 - x];
            images[width - 1 - x] = kept;
        }
}
