/*
 * clip.h - local gradient clipping (Lin et al., Deep Gradient Compression, 2018; --memory-clip-norm).
 *
 * A member multiplies its gradient g by min(1, X N^-1/2 / (|g| + 1e-6)) before it is compressed, so that the norm of the
 * sum of N independent gradients is at most X, as it would be for one replica. The norm is summed in double in a fixed
 * order, whatever the number of threads. optim/clip.c is the clipping of an update's gradient, after the exchange.
 */
#ifndef NW_CHANNEL_CLIP_H
#define NW_CHANNEL_CLIP_H

#include "base/pool.h"

#include <stddef.h>

/* The factor by which a gradient is clipped. `parts` needs room for nw_local_clip_parts(floats) partial sums. */
size_t nw_local_clip_parts(size_t floats);
float nw_local_clip_factor(const float *gradient, size_t floats, double norm, int members, double *parts,
                           nw_pool *pool);

#endif
