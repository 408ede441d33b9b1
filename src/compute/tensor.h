/*
 * tensor.h - activations in the batch-blocked layout [ceil(N/B)][H][W][B][pitch].
 *
 * B (block, 32 or 16) images lie side by side at each pixel, channels innermost, so that one pixel of one block is a
 * B x C matrix. `pitch` is C rounded up so that rows suit the vectors; the last block may hold fewer than B images.
 *
 * Invariant: rows of missing images and channels beyond C are zero in every tensor. Kernels rely on it (a weight
 * gradient may run over a whole block) and keep it.
 */
#ifndef NW_COMPUTE_TENSOR_H
#define NW_COMPUTE_TENSOR_H

#include "base/arena.h"
#include "base/half.h"

typedef enum nw_dtype { NW_F32, NW_BF16 } nw_dtype;

typedef struct nw_tensor {
    void *data;
    int n, c, h, w;
    int pitch;
    int block;
    nw_dtype dtype;
} nw_tensor;

/* Images in a block for a batch: 16 where blocks of 32 would hold a quarter more images than there are. */
int nw_block_for_batch(int n);

/* Shape only; data is NULL. */
nw_tensor nw_tensor_shape(int n, int c, int h, int w, int block, nw_dtype dtype);
nw_tensor nw_tensor_alloc(nw_arena *arena, int n, int c, int h, int w, int block, nw_dtype dtype);
size_t nw_tensor_bytes(const nw_tensor *tensor);

static inline size_t nw_dtype_bytes(nw_dtype dtype) { return dtype == NW_BF16 ? 2 : 4; }
static inline int nw_round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }
static inline int nw_div_up(int value, int divisor) { return (value + divisor - 1) / divisor; }
static inline int nw_min(int a, int b) { return a < b ? a : b; }
static inline int nw_max(int a, int b) { return a > b ? a : b; }

int nw_channel_pitch(int c);
static inline int nw_tensor_blocks(const nw_tensor *t) { return nw_div_up(t->n, t->block); }
/* Images that block b really holds. */
static inline int nw_tensor_valid(const nw_tensor *t, int b) { return nw_min(t->block, t->n - b * t->block); }
/* Element index of image row 0, channel 0 of a pixel. */
static inline size_t nw_tensor_at(const nw_tensor *t, int b, int h, int w)
{
    return (((size_t)b * (size_t)t->h + (size_t)h) * (size_t)t->w + (size_t)w) * (size_t)t->block * (size_t)t->pitch;
}

/* Between plain NCHW arrays and tensors, rounding where the tensor is bf16. For inputs, tests and tools. */
void nw_tensor_import(nw_tensor *tensor, const float *nchw);
void nw_tensor_export(const nw_tensor *tensor, float *nchw);

#endif
