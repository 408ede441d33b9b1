/*
 * image_png.c - PNG through libpng: any depth, palette, gray and interlaced files become 8-bit RGB; alpha is dropped.
 *
 * libpng reports errors by a function that must not return: ours jumps back to nw_png_decode, whose locals are
 * therefore in one struct. Any thread may decode; nothing is shared.
 */
#include "data/image.h"

#if NW_HAVE_PNG

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <png.h>

typedef struct decoder {
    png_structp png;
    png_infop info;
    nw_image_job *job;
    size_t at;
    png_bytep *rows;
    jmp_buf failed;
    char message[160];
} decoder;

static void fail(png_structp png, png_const_charp message)
{
    decoder *d = png_get_error_ptr(png);
    snprintf(d->message, sizeof d->message, "%s", message);
    longjmp(d->failed, 1);
}

static void ignore(png_structp png, png_const_charp message) { (void)png, (void)message; }

static void give(png_structp png, png_bytep to, size_t bytes)
{
    decoder *d = png_get_io_ptr(png);
    if (bytes > d->job->size - d->at) png_error(png, "the file ends too early");
    memcpy(to, d->job->data + d->at, bytes);
    d->at += bytes;
}

static nw_status decode(decoder *d)
{
    nw_image_job *job = d->job;
    png_set_read_fn(d->png, d, give);
    png_set_user_limits(d->png, NW_IMAGE_SIDE, NW_IMAGE_SIDE);
    png_set_chunk_malloc_max(d->png, 8 << 20);
    png_read_info(d->png, d->info);
    png_uint_32 width = png_get_image_width(d->png, d->info), height = png_get_image_height(d->png, d->info);
    unsigned bits = (unsigned)png_get_bit_depth(d->png, d->info) * png_get_channels(d->png, d->info);
    /* Deflate makes at most 1032 bytes of one. */
    NW_TRY(nw_image_check_size(job, height, width, 1032 * ((uint64_t)job->size + 64) * 8 / bits));
    job->full_height = (int)height;
    job->full_width = (int)width;
    png_set_palette_to_rgb(d->png);
    png_set_expand_gray_1_2_4_to_8(d->png);
    png_set_scale_16(d->png);
    png_set_gray_to_rgb(d->png);
    png_set_strip_alpha(d->png);
    png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
    if (png_get_rowbytes(d->png, d->info) != (size_t)width * 3) png_error(d->png, "its rows have an unknown form");
    NW_TRY(nw_bitmap_reserve(job->bitmap, (int)height, (int)width, job->name));
    d->rows = malloc(height * sizeof *d->rows);
    NW_FAIL_IF(!d->rows, NW_E_MEMORY, "%s: no memory for %u rows", job->name, height);
    for (png_uint_32 y = 0; y < height; y++) d->rows[y] = job->bitmap->pixels + (size_t)y * width * 3;
    png_read_image(d->png, d->rows);
    png_read_end(d->png, NULL);
    return NW_OK;
}

nw_status nw_png_decode(nw_image_job *job)
{
    decoder d = {.job = job};
    nw_status status;
    if (setjmp(d.failed) == 0) {
        d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, fail, ignore);
        if (d.png) d.info = png_create_info_struct(d.png);
        status = d.info ? decode(&d) : NW_FAIL(NW_E_MEMORY, "%s: no memory to decode it", job->name);
    } else {
        status =
            NW_FAIL(NW_E_FILE, "%s: it cannot be decoded as PNG: %s (near offset %zu)", job->name, d.message, d.at);
    }
    free(d.rows);
    png_destroy_read_struct(&d.png, &d.info, NULL);
    return status;
}

#else

nw_status nw_png_decode(nw_image_job *job)
{
    return NW_FAIL(NW_E_UNSUPPORTED,
                   "%s is a PNG file and this build has no libpng; install libpng-dev and build again", job->name);
}

#endif
