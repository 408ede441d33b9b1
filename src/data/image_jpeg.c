/*
 * image_jpeg.c - JPEG through libjpeg-turbo, shrunk by 2, 4 or 8 inside the inverse transform where that is allowed.
 *
 * libjpeg reports errors by calling a function that must not return: ours jumps back to nw_jpeg_decode, whose locals
 * are therefore in one struct. A file that ends too early is an error; other complaints, which many photographs of
 * ImageNet give rise to, are not. Any thread may decode; nothing is shared.
 */
#include "data/image.h"

#if NW_HAVE_JPEG

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <jpeglib.h>
#include <jerror.h>

/* A progressive file may repeat its scans for ever, each of which costs a pass over the image. */
enum { MOST_SCANS = 500 };

typedef struct decoder {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char message[JMSG_LENGTH_MAX];
    uint8_t *row; /* of CMYK */
} decoder;

static void fail(j_common_ptr common)
{
    decoder *d = common->client_data;
    common->err->format_message(common, d->message);
    longjmp(d->failed, 1);
}

static void complain(j_common_ptr common, int level)
{
    if (level == -1 && common->err->msg_code == JWRN_JPEG_EOF) fail(common);
}

static void watch(j_common_ptr common)
{
    decoder *d = common->client_data;
    if (d->info.input_scan_number <= MOST_SCANS) return;
    snprintf(d->message, sizeof d->message, "it has more than %d scans", MOST_SCANS);
    longjmp(d->failed, 1);
}

/* Adobe writes CMYK inverted, and so do all others that write it. */
static void cmyk_to_rgb(const uint8_t *from, uint8_t *to, unsigned width, bool inverted)
{
    for (unsigned x = 0; x < width; x++, from += 4, to += 3)
        for (int c = 0; c < 3; c++) {
            unsigned ink = inverted ? from[c] : 255u - from[c], black = inverted ? from[3] : 255u - from[3];
            to[c] = (uint8_t)((ink * black + 127) / 255);
        }
}

static void choose_scale(struct jpeg_decompress_struct *info, int least_side)
{
    unsigned least = least_side > 0 ? (unsigned)least_side : 0;
    info->scale_num = 1;
    info->scale_denom = 1;
    for (unsigned by = 8; by > 1 && least; by /= 2)
        if ((info->image_width + by - 1) / by >= least && (info->image_height + by - 1) / by >= least) {
            info->scale_denom = by;
            return;
        }
}

static nw_status decode(decoder *d, nw_image_job *job)
{
    struct jpeg_decompress_struct *info = &d->info;
    jpeg_mem_src(info, job->data, job->size);
    jpeg_read_header(info, TRUE);
    /* A block of 64 pixels takes at least one bit in any scan that is there. */
    NW_TRY(nw_image_check_size(job, info->image_height, info->image_width, 1024 * ((uint64_t)job->size + 64)));
    job->full_height = (int)info->image_height;
    job->full_width = (int)info->image_width;
    bool cmyk = info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
    info->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    choose_scale(info, job->least_side);
    jpeg_start_decompress(info);
    NW_TRY(nw_bitmap_reserve(job->bitmap, (int)info->output_height, (int)info->output_width, job->name));
    if (cmyk) d->row = malloc((size_t)info->output_width * 4);
    NW_FAIL_IF(cmyk && !d->row, NW_E_MEMORY, "%s: no memory for a row of pixels", job->name);
    while (info->output_scanline < info->output_height) {
        uint8_t *to = job->bitmap->pixels + (size_t)info->output_scanline * info->output_width * 3;
        JSAMPROW rows[1] = {cmyk ? d->row : to};
        jpeg_read_scanlines(info, rows, 1);
        if (cmyk) cmyk_to_rgb(d->row, to, info->output_width, info->saw_Adobe_marker);
    }
    jpeg_finish_decompress(info);
    return NW_OK;
}

nw_status nw_jpeg_decode(nw_image_job *job)
{
    decoder d = {0};
    nw_status status;
    d.info.err = jpeg_std_error(&d.errors);
    d.info.client_data = &d;
    d.errors.error_exit = fail;
    d.errors.emit_message = complain;
    d.progress.progress_monitor = watch;
    if (setjmp(d.failed) == 0) {
        jpeg_create_decompress(&d.info);
        d.info.client_data = &d;
        d.info.progress = &d.progress;
        status = decode(&d, job);
    } else {
        status = NW_FAIL(NW_E_FILE, "%s: it cannot be decoded as JPEG: %s", job->name, d.message);
    }
    free(d.row);
    jpeg_destroy_decompress(&d.info);
    return status;
}

#else

nw_status nw_jpeg_decode(nw_image_job *job)
{
    return NW_FAIL(NW_E_UNSUPPORTED,
                   "%s is a JPEG file and this build has no libjpeg; install libjpeg62-turbo-dev and build again",
                   job->name);
}

#endif
