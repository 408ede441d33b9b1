/*
 * image.c - decodes image files whatever their names say: the first bytes decide between JPEG and PNG.
 */
#include "data/image.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

void nw_bitmap_free(nw_bitmap *bitmap)
{
    free(bitmap->pixels);
    *bitmap = (nw_bitmap){0};
}

nw_status nw_bitmap_reserve(nw_bitmap *bitmap, int height, int width, const char *name)
{
    size_t bytes = (size_t)height * (size_t)width * 3;
    bitmap->height = height;
    bitmap->width = width;
    if (bytes <= bitmap->capacity) return NW_OK;
    free(bitmap->pixels);
    bitmap->pixels = malloc(bytes);
    bitmap->capacity = bitmap->pixels ? bytes : 0;
    NW_FAIL_IF(!bitmap->pixels, NW_E_MEMORY, "%s: no memory for its %d x %d pixels", name, height, width);
    return NW_OK;
}

nw_status nw_image_check_size(const nw_image_job *job, uint64_t height, uint64_t width, uint64_t most_pixels)
{
    NW_FAIL_IF(height < 1 || width < 1 || height > NW_IMAGE_SIDE || width > NW_IMAGE_SIDE ||
                   height * width * 3 > NW_IMAGE_BYTES,
               NW_E_FILE, "%s: %llu x %llu pixels are out of range; a side has 1 to %d, and an image %d MB at most",
               job->name, (unsigned long long)height, (unsigned long long)width, NW_IMAGE_SIDE, NW_IMAGE_BYTES >> 20);
    NW_FAIL_IF(height * width > most_pixels, NW_E_FILE,
               "%s: %zu bytes cannot hold the %llu x %llu pixels that it promises; the file is damaged", job->name,
               job->size, (unsigned long long)height, (unsigned long long)width);
    return NW_OK;
}

nw_status nw_image_decode_memory(const uint8_t *data, size_t size, const char *name, int least_side, nw_bitmap *bitmap,
                                 int *full_height, int *full_width)
{
    nw_image_job job = {.data = data, .size = size, .name = name, .least_side = least_side, .bitmap = bitmap};
    if (size >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0)
        NW_TRY(nw_jpeg_decode(&job));
    else if (size >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0)
        NW_TRY(nw_png_decode(&job));
    else
        return NW_FAIL(NW_E_FILE, "%s is neither a JPEG nor a PNG file: its first bytes are of neither kind", name);
    if (full_height) *full_height = job.full_height;
    if (full_width) *full_width = job.full_width;
    return NW_OK;
}

/* Read, not mapped: for small files that is faster, and a file that shrinks meanwhile is an error, not a signal. */
nw_status nw_image_decode(const char *path, int least_side, nw_bitmap *bitmap, int *full_height, int *full_width)
{
    NW_AUTOFREE char *data = NULL;
    size_t size = 0;
    NW_TRY(nw_file_read(path, NW_IMAGE_BYTES, &data, &size));
    return nw_image_decode_memory((const uint8_t *)data, size, path, least_side, bitmap, full_height, full_width);
}
