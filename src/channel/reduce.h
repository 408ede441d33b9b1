/*
 * reduce.h - the mean of a vector over the members of a group, bucket by bucket, as its elements become final.
 *
 * A bucket is reduced in one of three ways (mode.h):
 *
 *   owners      each part of it has an owner (layout.h). A member sends each part to its owner. The owner adds the
 *               contributions in the order of members, whatever the order in which they arrive, and sends the mean to
 *               all:  mean[i] = (((g_0[i] + g_1[i]) + g_2[i]) + ...) * (1 / N), in f32, each term as its codec decodes
 *               it. Every member sends 2 (N - 1) / N of the bucket. The owner compresses the mean again, with an error
 *               memory of its own, and itself uses the decoded result, as the others do.
 *   gathered    every member sends its whole bucket to all others, and all add them in the order of members.
 *   summed      the codec exchanges means of floats in rounds (summed.h).
 *
 * When a bucket's mean is complete, and before it is used, the memory may change it (memory.h, reduced).
 *
 * In all three ways the bits of the result depend only on the contributions: they are the same on all members, over MPI
 * and on a virtual cluster, with any timing.
 *
 * In place: if codecs are exact, the sums are made in the contributed vector itself, and its user multiplies by 1 / N.
 * An owner's own contribution stays where it is; the contributions of the members before it are summed in a separate
 * vector and then added to it, which gives the same bits because addition of two terms is commutative.
 *
 * A round is one mean of the whole vector. Members may be up to `slots` - 1 rounds ahead of each other; messages of
 * later rounds are held. Rounds of a bucket complete in order, because the messages of a link arrive in order. A round
 * need not have all buckets: it is over when all buckets that were contributed are complete and a later round is
 * complete, or is begun (nw_reduce_begin_at).
 */
#ifndef NW_CHANNEL_REDUCE_H
#define NW_CHANNEL_REDUCE_H

#include "channel/channel.h"

/* Called when a bucket of a round is complete. */
typedef nw_status (*nw_reduce_done)(void *context, nw_actions *actions, int64_t round, int bucket);

typedef struct nw_reduce_options {
    const nw_machine *machine; /* the exchange, for its group */
    int channel;               /* channel number of its messages */
    const nw_layout *layout;   /* cut into one part for each member */
    nw_memory_options memory;  /* memory of contributions; if there is one, owners have error feedback for means */
    nw_memory *share; /* uses the memory of another reduction of the same vector, without memories of owners; or NULL */
    nw_channel_stats *stats; /* counts the cost of encoding; may be NULL */
    nw_pool *pool;
    int slots;
    bool in_place;       /* requires exact codecs, memories that do not change means, and targets = contributions */
    float *targets[2];   /* where the means of even and of odd rounds go */
    nw_reduce_done done; /* may be NULL */
    void *context;
} nw_reduce_options;

typedef struct nw_reduce nw_reduce;

nw_status nw_reduce_create(nw_reduce **reduce, const nw_reduce_options *options);
void nw_reduce_free(nw_reduce *reduce);

/* Contributes the buckets of a round that lie at or after element `first` and were not contributed yet; `clock` is the
 * number of its batch. The vector must not change until the round is complete. Rounds follow each other. */
nw_status nw_reduce_contribute(nw_reduce *reduce, nw_actions *actions, int64_t round, int64_t clock, size_t first,
                               const float *vector);
/* Contributes one bucket; buckets may come in any order. */
nw_status nw_reduce_contribute_bucket(nw_reduce *reduce, nw_actions *actions, int64_t round, int64_t clock, int bucket,
                                      const float *vector);
/* Handles a message from member `from`, of the reduction's channel or of the channels of codecs' rounds. */
nw_status nw_reduce_take(nw_reduce *reduce, nw_actions *actions, nw_message *message, int from);
/* The number of rounds whose means are complete. */
int64_t nw_reduce_completed(const nw_reduce *reduce);
/* Continues with that round. All contributions of this member must be complete; messages of others for that round or
 * later ones are kept. */
void nw_reduce_begin_at(nw_reduce *reduce, int64_t round);
/* From now on its messages announce (header.until) that the run ends with round `until`; 0: they announce nothing. */
void nw_reduce_announce_end(nw_reduce *reduce, int64_t until);
/* From now on contributions to compressed buckets are multiplied by this factor (gradient clipping). */
void nw_reduce_clip(nw_reduce *reduce, float clip);
nw_memory *nw_reduce_memory(const nw_reduce *reduce); /* NULL: none */
void nw_reduce_waits(const nw_reduce *reduce, nw_wait *wait);
void nw_reduce_state(nw_reduce *reduce, nw_state *state);

#endif
