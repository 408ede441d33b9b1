/*
 * summed.h - reduces the buckets whose codecs work in rounds of floats (codec.h, nw_rounds). Each round is the mean of
 * a short vector over all members: a reduction of its own (reduce.h) of uncompressed floats.
 *
 * A bucket's round begins when its previous round is complete. A step that comes while the previous one is not complete
 * waits; its contribution must not change until then.
 */
#ifndef NW_CHANNEL_SUMMED_H
#define NW_CHANNEL_SUMMED_H

#include "channel/reduce.h"

typedef struct nw_summed nw_summed;

/* `channel` is that of the reduction to which these buckets belong; `done` is called when one of them is complete.
 * *summed is NULL if the layout has no such buckets. */
nw_status nw_summed_create(nw_summed **summed, const nw_reduce_options *options, nw_channel *channel,
                           nw_reduce_done done, void *context);
void nw_summed_free(nw_summed *summed);
nw_status nw_summed_contribute(nw_summed *summed, nw_actions *actions, int bucket, nw_moment when, const float *vector);
/* Handles a message of a round; the rounds have the channel numbers after the reduction's own. */
nw_status nw_summed_take(nw_summed *summed, nw_actions *actions, nw_message *message, int from);
void nw_summed_begin_at(nw_summed *summed, int64_t step);
void nw_summed_announce_end(nw_summed *summed, int64_t until);
/* Adds the members for which a bucket waits; false: it waits for none. */
bool nw_summed_waits(const nw_summed *summed, int bucket, nw_wait *wait);

#endif
