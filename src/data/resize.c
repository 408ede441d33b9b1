/*
 * resize.c - scaling of RGB bytes with a triangle filter, bit for bit as Pillow's BILINEAR does it.
 *
 * Along one axis, a part [a, b) of the source becomes n pixels. With scale s = (b - a) / n and reach r = max(s, 1),
 * pixel i has its centre at a + (i + 1/2) s and is the mean of the source pixels j around it, weighted by w(j) = max(0,
 * 1 - |j + 1/2 - centre| / r) normalised to sum 1 over the pixels of the part. Weights are rounded to 22 bits behind
 * the point, sums are integers, results are rounded to bytes. Columns are scaled first, then rows, with bytes in
 * between: this, too, is Pillow's.
 *
 * Only the rows and columns that the window needs are touched. Sums are integers and so the same on every machine.
 */
#define _GNU_SOURCE 1
#include "data/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POINT = 22, ONE_HALF = 1 << (POINT - 1), COLORS = 3, STRIP = 32 };

/* Weights of `count` neighbouring output pixels. */
typedef struct axis {
    int *first, *taps; /* of each output pixel: the source pixels it is made of */
    int32_t *weights;  /* count x most_taps */
    int count, most_taps;
} axis;

static double reach_of(double from, double to, int full) { return fmax((to - from) / full, 1.0); }

static int most_taps(double reach) { return 2 * (int)ceil(reach) + 1; }

/* Weights of the pixels [start, start + a->count) of `full`, into which the source's [from, to) is scaled. `part` is
 * room for the weights of one pixel before they are rounded. */
static void fill_axis(axis *a, double *part, double from, double to, int full, int start)
{
    double scale = (to - from) / full, reach = reach_of(from, to, full), slope = 1.0 / reach;
    int least = (int)floor(from), most = (int)ceil(to);
    for (int i = 0; i < a->count; i++) {
        double centre = from + (start + i + 0.5) * scale;
        int first = (int)(centre - reach + 0.5), end = (int)(centre + reach + 0.5);
        if (first < least) first = least;
        if (end > most) end = most;
        double sum = 0;
        for (int j = first; j < end; j++) {
            double distance = fabs((j - centre + 0.5) * slope);
            part[j - first] = distance < 1.0 ? 1.0 - distance : 0.0;
            sum += part[j - first];
        }
        int32_t *weights = a->weights + (size_t)i * (size_t)a->most_taps;
        int taps = 0; /* up to the last weight that is not zero */
        for (int j = 0; j < end - first; j++) {
            weights[j] = (int32_t)(0.5 + part[j] / sum * (1 << POINT));
            if (weights[j]) taps = j + 1;
        }
        a->first[i] = first;
        a->taps[i] = taps;
    }
}

static uint8_t to_byte(int32_t sum)
{
    sum >>= POINT;
    return (uint8_t)(sum > 255 ? 255 : sum); /* weights are not negative, but many of them may have been rounded up */
}

/* One row of the source, scaled along x. */
static void scale_columns(const axis *a, const uint8_t *row, uint8_t *out)
{
    const int32_t *weights = a->weights;
    for (int i = 0; i < a->count; i++, weights += a->most_taps, out += COLORS) {
        const uint8_t *pixel = row + (size_t)a->first[i] * COLORS;
        int32_t red = ONE_HALF, green = ONE_HALF, blue = ONE_HALF;
        for (int k = 0; k < a->taps[i]; k++, pixel += COLORS) {
            red += weights[k] * pixel[0];
            green += weights[k] * pixel[1];
            blue += weights[k] * pixel[2];
        }
        out[0] = to_byte(red);
        out[1] = to_byte(green);
        out[2] = to_byte(blue);
    }
}

/* `width` bytes from `taps` rows that lie `stride` bytes apart. */
static void scale_rows(const int32_t *weights, int taps, const uint8_t *rows, size_t stride, size_t width, uint8_t *out)
{
    size_t x = 0;
    for (; x + STRIP <= width; x += STRIP) {
        int32_t sums[STRIP];
        for (int j = 0; j < STRIP; j++) sums[j] = ONE_HALF;
        for (int k = 0; k < taps; k++) {
            const uint8_t *row = rows + (size_t)k * stride + x;
            for (int j = 0; j < STRIP; j++) sums[j] += weights[k] * row[j];
        }
        for (int j = 0; j < STRIP; j++) out[x + (size_t)j] = to_byte(sums[j]);
    }
    for (; x < width; x++) {
        int32_t sum = ONE_HALF;
        for (int k = 0; k < taps; k++) sum += weights[k] * rows[(size_t)k * stride + x];
        out[x] = to_byte(sum);
    }
}

static nw_status grow(void **memory, size_t *size, size_t needed)
{
    if (needed <= *size) return NW_OK;
    free(*memory);
    *size = 0;
    *memory = malloc(needed);
    NW_FAIL_IF(*memory == NULL, NW_E_MEMORY,
               "no memory for %zu bytes to scale an image: use fewer workers or smaller images", needed);
    *size = needed;
    return NW_OK;
}

static nw_status check(const nw_resize *job)
{
    NW_FAIL_IF(!(job->top >= 0 && job->top < job->bottom && job->bottom <= job->height) ||
                   !(job->left >= 0 && job->left < job->right && job->right <= job->width),
               NW_E_ARGUMENT, "the part (%g, %g) to (%g, %g) does not lie in an image of %d x %d pixels", job->top,
               job->left, job->bottom, job->right, job->height, job->width);
    NW_FAIL_IF(
        job->window_top < 0 || job->window_height < 1 || job->window_top > job->full_height - job->window_height ||
            job->window_left < 0 || job->window_width < 1 || job->window_left > job->full_width - job->window_width,
        NW_E_ARGUMENT, "a window of %d x %d pixels at (%d, %d) does not lie in a scaled image of %d x %d",
        job->window_height, job->window_width, job->window_top, job->window_left, job->full_height, job->full_width);
    return NW_OK;
}

nw_status nw_resize_rgb(nw_resizer *resizer, const nw_resize *job, const uint8_t **out)
{
    NW_TRY(check(job));
    axis x = {.count = job->window_width}, y = {.count = job->window_height};
    x.most_taps = most_taps(reach_of(job->left, job->right, job->full_width));
    y.most_taps = most_taps(reach_of(job->top, job->bottom, job->full_height));

    /* One block: room for the weights of one pixel, both axes' weights, their first pixels and numbers of taps. */
    size_t x_count = (size_t)x.count, y_count = (size_t)y.count;
    size_t x_weights = x_count * (size_t)x.most_taps, y_weights = y_count * (size_t)y.most_taps;
    size_t part = (size_t)(x.most_taps > y.most_taps ? x.most_taps : y.most_taps);
    NW_TRY(grow(&resizer->filters, &resizer->filters_size,
                part * sizeof(double) + (x_weights + y_weights + 2 * (x_count + y_count)) * sizeof(int32_t)));
    double *unrounded = resizer->filters;
    x.weights = (int32_t *)(unrounded + part);
    y.weights = x.weights + x_weights;
    x.first = (int *)(y.weights + y_weights);
    x.taps = x.first + x_count;
    y.first = x.taps + x_count;
    y.taps = y.first + y_count;
    fill_axis(&x, unrounded, job->left, job->right, job->full_width, job->window_left);
    fill_axis(&y, unrounded, job->top, job->bottom, job->full_height, job->window_top);

    int first = y.first[0], end = first;
    for (int i = 0; i < y.count; i++)
        if (y.first[i] + y.taps[i] > end) end = y.first[i] + y.taps[i];
    size_t stride = x_count * COLORS, source_stride = (size_t)job->width * COLORS;
    NW_TRY(grow(&resizer->bytes, &resizer->bytes_size, (y_count + (size_t)(end - first)) * stride));
    uint8_t *result = resizer->bytes, *rows = result + y_count * stride;
    for (int j = first; j < end; j++)
        scale_columns(&x, job->pixels + (size_t)j * source_stride, rows + (size_t)(j - first) * stride);
    for (int i = 0; i < y.count; i++)
        scale_rows(y.weights + (size_t)i * (size_t)y.most_taps, y.taps[i], rows + (size_t)(y.first[i] - first) * stride,
                   stride, stride, result + (size_t)i * stride);
    *out = result;
    return NW_OK;
}

void nw_resizer_free(nw_resizer *resizer)
{
    free(resizer->filters);
    free(resizer->bytes);
    *resizer = (nw_resizer){0};
}
