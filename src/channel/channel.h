/*
 * Folder src/channel: how the members of a group send each other floats, and compute means over the group: which
 * tensors share a message and a codec, encoding and decoding with error memories, sums in the order of members. It
 * never decides when something is sent; the state machines of src/exchange do. May include: base, param, codec, net.
 *
 * channel.h - one direction of an exchange: it encodes floats into messages and decodes them, according to a layout
 * (which floats share a message, with which codec), with an error memory.
 *
 *   encode   encodes a bucket whose elements are all final: one message for each cut
 *   decode   decodes a message into a vector, or adds it to the vector
 *   reduced  tells the memory that the mean of a bucket over all members is complete; the memory may change the mean
 *   undo     puts the content of a refused message back into the memory
 *
 * The work runs on the pool. Every function reports the memory that it touches (nw_actions_touch), from which virtual
 * clusters compute the cost. A channel that sends only one cut (of an owner or a server) has a memory for that cut
 * only.
 *
 * Each message header says how the message is encoded: with the codec of its bucket, or plainly (uncompressed).
 */
#ifndef NW_CHANNEL_H
#define NW_CHANNEL_H

#include "codec/run.h"
#include "channel/layout.h"
#include "channel/stats.h"
#include "net/machine.h"

typedef struct nw_channel_options {
    const nw_layout *layout; /* must outlive the channel */
    nw_memory_options memory;
    nw_memory *share; /* uses the memory of another channel, which must outlive this one and saves it; NULL: its own */
    const char *name; /* name of its memory in checkpoints */
    bool restarts;    /* in a world of another size its memory starts at zero */
    bool mean;        /* receivers take the mean over members of what it sends, not the sum */
    int number;       /* in message headers: NW_CHANNEL_EXCHANGE or above */
    int member, rank; /* the sender; its rank, for messages to the user */
    const char *what; /* of it is encoded, for messages to the user; NULL: its gradient */
    int only;         /* the only cut that it sends; -1: it sends all */
    bool whole;       /* buckets have one cut, and the part in headers is none: others use that field */
    nw_channel_stats *stats; /* counts the cost of encoding; may be NULL */
    nw_pool *pool;           /* must outlive the channel; NULL: the calling thread does all the work */
} nw_channel_options;

typedef struct nw_channel {
    nw_channel_options o;
    nw_block *parts; /* for each bucket, if only one cut is sent: the block of that cut */
    nw_memory *memory;
    float clip;   /* factor of gradient clipping, applied by the memory; 1 unless the exchange sets it */
    uint32_t key; /* the member in keys of random numbers: the sender, unless the exchange sets what several share */
    const float *steps; /* of the items of a bucket (nw_encoding), if the exchange sets them before it encodes that */
    float *copy; /* for codecs with rounds but without a memory: the gradient, which may change before the last round */
    float ***kept;       /* for codecs with rounds, by bucket and item: their state */
    nw_partial *partial; /* working memory of an encoding, as are the next three */
    nw_scratch scratch;
    uint8_t **out;
    nw_encoded *encoded;
} nw_channel;

nw_status nw_channel_make(nw_channel *channel, const nw_channel_options *options);
void nw_channel_free(nw_channel *channel);

typedef enum nw_plain { NW_CODED, NW_PLAINLY } nw_plain;

/* What is encoded: the number of the sender's gradient, the number of its batch, the version of its parameters. */
typedef struct nw_moment {
    int64_t step, clock, version;
} nw_moment;

/* Encodes a bucket of `vector` (a vector of all parameters) into one message for each cut, whose headers are complete
 * except for the kind. by_cut gets NULL for empty cuts and for cut `skip`. NW_PLAINLY ignores codec and memory. */
nw_status nw_channel_encode(nw_channel *channel, nw_actions *actions, int bucket, nw_moment when, const float *vector,
                            int skip, nw_plain plain, nw_message **by_cut);
/* For a bucket whose codec has rounds. Give writes this member's contribution of a round to `out`. Turn reads the mean
 * of all contributions; after the last round it writes the decoded bucket to `target`, which is NULL before. */
nw_status nw_channel_contribute(nw_channel *channel, nw_actions *actions, int bucket, nw_moment when,
                                const float *vector, int round, float *out);
void nw_channel_use_mean(nw_channel *channel, nw_actions *actions, int bucket, nw_moment when, const float *vector,
                         int round, const float *mean, float *target);

/* To be called when the mean of a bucket is complete in `mean`, a vector of all parameters, and before it is used. */
void nw_channel_reduced(nw_channel *channel, nw_actions *actions, int bucket, float *mean);

/* NW_E_MESSAGE: the message does not fit the layout, or is empty. To be called before any other use of a message. */
nw_status nw_channel_check(const nw_channel *channel, const nw_header *header);
static inline const nw_block *nw_channel_block(const nw_channel *c, const nw_header *h)
{
    return &c->o.layout->at[h->bucket].block;
}
/* A message as a codec reads it; `from`: the member in the keys of its random numbers. */
nw_decoding nw_channel_read(nw_channel *channel, const nw_message *message, int from);
/* Decodes a message of member `from`; `where` says how `out` is indexed. */
nw_status nw_channel_decode(nw_channel *channel, nw_actions *actions, const nw_message *message, int from, float *out,
                            nw_where where, bool add);
/* Decodes a message that this channel has sent, into a vector indexed like its memory; only if it sends a single
 * cut. */
nw_status nw_channel_decode_own(nw_channel *channel, nw_actions *actions, const nw_message *message, float *out,
                                bool add);
/* Puts the content of a message that this channel has sent back into the memory. *kept is false if there is none. */
nw_status nw_channel_undo(nw_channel *channel, nw_actions *actions, const nw_message *message, bool *kept);

void nw_channel_state(nw_channel *channel, nw_state *state);
/* Reports that a handler reads or writes the floats of a cut. */
void nw_channel_touch(nw_actions *actions, const nw_block *block, int cut, const float *vector, bool write);

#endif
