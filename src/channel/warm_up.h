/*
 * warm_up.h - two things that allreduce does before it sends a gradient: it sends whole epochs of DGC's warm-up
 * uncompressed, and it clips gradients locally.
 *
 * Plain epochs. In the first epochs codecs send larger shares (nw_codec_ratio). If an epoch's ratio is 1, or if entries
 * with positions would take more bytes than plain floats, the epoch is exchanged uncompressed: each member then sends 2
 * (N - 1) / N times 32 n bits. Compressed, k entries of x + 2 + ceil(log2(n / k)) bits are sent N - 1 times if they are
 * gathered, and 2 (N - 1) / N times through owners. The choice is a pure function of the batch number, so that all
 * members make the same one.
 *
 * Local gradient clipping (Lin et al. 2018): a member multiplies its gradient g by min(1, X N^-1/2 / (|g| + 1e-6)), so
 * that the norm of the sum of N independent gradients is at most X, as it would be for one replica. The norm is summed
 * in double in a fixed order, whatever the number of threads.
 */
#ifndef NW_CHANNEL_WARM_UP_H
#define NW_CHANNEL_WARM_UP_H

#include "base/pool.h"
#include "channel/layout.h"

/* Whether the gradient of batch `clock` is exchanged uncompressed. */
bool nw_warm_up_is_plain(const nw_layout *layout, int members, int64_t clock);
/* Whether there is any such batch. */
bool nw_warm_up_has_plain(const nw_layout *layout, int members);

/* The factor by which a gradient is clipped. `parts` needs room for nw_local_clip_parts(floats) partial sums. */
size_t nw_local_clip_parts(size_t floats);
float nw_local_clip_factor(const float *gradient, size_t floats, double norm, int members, double *parts,
                           nw_pool *pool);

#endif
