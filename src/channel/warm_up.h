/*
 * warm_up.h - which epochs of DGC's warm-up are exchanged uncompressed. nw_codec_ratio (codec.h) has the ratios of the
 * others.
 *
 * Plain epochs. In the first epochs codecs send larger shares (nw_codec_ratio). If an epoch's ratio is 1, or if entries
 * with positions would take more bytes than plain floats, the epoch is exchanged uncompressed: each member then sends 2
 * (N - 1) / N times 32 n bits. Compressed, k entries of x + 2 + ceil(log2(n / k)) bits are sent N - 1 times if they are
 * gathered, and 2 (N - 1) / N times through owners. Buckets of other codecs than top-k have their usual size; while there
 * are any, a ratio of 1 alone makes no epoch plain. The choice is a pure function of the batch number, so that all members
 * make the same one.
 */
#ifndef NW_CHANNEL_WARM_UP_H
#define NW_CHANNEL_WARM_UP_H

#include "channel/layout.h"

/* Whether the gradient of batch `clock` is exchanged uncompressed. */
bool nw_warm_up_is_plain(const nw_layout *layout, int members, int64_t clock);
/* Whether there is any such batch. */
bool nw_warm_up_has_plain(const nw_layout *layout, int members);

#endif
