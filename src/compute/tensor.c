/* tensor.c - shapes, sizes and conversions of the batch-blocked layout. */
#include "compute/tensor.h"

#include <string.h>

int nw_block_for_batch(int n) { return nw_round_up(n, 32) * 4 > nw_round_up(n, 16) * 5 ? 16 : 32; }

int nw_channel_pitch(int c)
{
    /* Image-like tensors stay narrow: padding 3 channels to 16 would cost five times their memory. */
    return c <= 4 ? 4 : c <= 8 ? 8 : nw_round_up(c, 16);
}

nw_tensor nw_tensor_shape(int n, int c, int h, int w, int block, nw_dtype dtype)
{
    return (nw_tensor){.n = n, .c = c, .h = h, .w = w, .pitch = nw_channel_pitch(c), .block = block, .dtype = dtype};
}

size_t nw_tensor_bytes(const nw_tensor *t)
{
    return (size_t)nw_tensor_blocks(t) * (size_t)t->h * (size_t)t->w * (size_t)t->block * (size_t)t->pitch *
           nw_dtype_bytes(t->dtype);
}

nw_tensor nw_tensor_alloc(nw_arena *arena, int n, int c, int h, int w, int block, nw_dtype dtype)
{
    nw_tensor t = nw_tensor_shape(n, c, h, w, block, dtype);
    t.data = nw_arena_alloc(arena, nw_tensor_bytes(&t));
    return t;
}

void nw_tensor_import(nw_tensor *t, const float *nchw)
{
    memset(t->data, 0, nw_tensor_bytes(t));
    size_t plane = (size_t)t->h * (size_t)t->w;
    for (int n = 0; n < t->n; n++)
        for (int h = 0; h < t->h; h++)
            for (int w = 0; w < t->w; w++) {
                size_t to = nw_tensor_at(t, n / t->block, h, w) + (size_t)(n % t->block) * (size_t)t->pitch;
                const float *from = nchw + (size_t)n * (size_t)t->c * plane + (size_t)h * (size_t)t->w + (size_t)w;
                for (int c = 0; c < t->c; c++) {
                    float x = from[(size_t)c * plane];
                    if (t->dtype == NW_F32)
                        ((float *)t->data)[to + (size_t)c] = x;
                    else
                        ((nw_bf16 *)t->data)[to + (size_t)c] = nw_bf16_from_f32(x);
                }
            }
}

void nw_tensor_export(const nw_tensor *t, float *nchw)
{
    size_t plane = (size_t)t->h * (size_t)t->w;
    for (int n = 0; n < t->n; n++)
        for (int h = 0; h < t->h; h++)
            for (int w = 0; w < t->w; w++) {
                size_t from = nw_tensor_at(t, n / t->block, h, w) + (size_t)(n % t->block) * (size_t)t->pitch;
                float *to = nchw + (size_t)n * (size_t)t->c * plane + (size_t)h * (size_t)t->w + (size_t)w;
                for (int c = 0; c < t->c; c++)
                    to[(size_t)c * plane] = t->dtype == NW_F32
                                                ? ((const float *)t->data)[from + (size_t)c]
                                                : nw_bf16_to_f32(((const nw_bf16 *)t->data)[from + (size_t)c]);
            }
}
