/*
 * warm_up.h - what allreduce does with a gradient before it gives it away: epochs that are not compressed, and gradients
 * that are too long.
 *
 * Plain epochs. In the first epochs of training codecs may send larger shares of an item (nw_codec_ratio). An epoch in
 * which they would send all, or in which entries with their places would be longer than floats, is exchanged plainly: each
 * member sends 2 (N - 1) / N of 32 n bits then. Of k entries of x + 2 + ceil(log2(n / k)) bits each it would send N - 1
 * times as much if all get them, and 2 (N - 1) / N times as much if owners do. Which epochs these are is a pure function of
 * the batch's number, the same on all members.
 *
 * Clipping (Lin et al. 2018): a member's gradient g, all of it, is multiplied with min(1, X N^-1/2 / (|g| + 1e-6)), so that
 * the norm of the sum of N independent ones is X at most, as it would be of one replica. The norm is summed in double in
 * one order, whatever the number of threads.
 */
#ifndef NW_CHANNEL_WARM_UP_H
#define NW_CHANNEL_WARM_UP_H

#include "base/pool.h"
#include "channel/layout.h"

/* Whether the gradient of that batch is exchanged plainly. */
bool nw_warm_up_is_plain(const nw_layout *layout, int members, int64_t clock);
/* Whether that of any batch is. */
bool nw_warm_up_has_plain(const nw_layout *layout, int members);

/* Room for its partial sums: nw_local_clip_parts(floats). */
size_t nw_local_clip_parts(size_t floats);
float nw_local_clip_factor(const float *gradient, size_t floats, double norm, int members, double *parts,
                           nw_pool *pool);

#endif
