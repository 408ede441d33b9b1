/*
 * agreed.h - encoded parameters between two members that average them: both must know, bit for bit, what each was taken
 * to have sent.
 *
 * Members i and j (the two ends of an edge) send each other a bucket of their vectors x, and move by s_i - s_j, which both
 * compute from the two messages and what both have. C is the bucket's codec, whose buckets are ranges of the vector.
 *
 *   way          s_i                                both have    the next time
 *   exactly      x_i                                nothing      the codec none
 *   plain        C(x_i)                             nothing      codecs that lose little; or random entries, the same at
 *                                                                both ends, of which alone s_i and s_j differ
 *   difference   c + C(x_i - c)                     a copy c     c := (s_i + s_j) / 2
 *   modulo       s_i - s_j from the last bits of    steps        from the largest difference that was seen
 *                both (codec/modulo.h)
 *
 * Difference: CHOCO-SGD (Koloskova et al. 2019), with one copy for an edge instead of one for each of its ends. A member
 * that moves by (s_j - s_i) / 2 then has c and what was not sent: x_i - c = x_i - s_i as it was. So nothing is lost, and
 * nothing else has to remember it. Codecs must contract (nw_memory_check), or miss every element by less than a threshold.
 *
 * Modulo: the bound of an item is at least four times the largest difference of the last exchange (of few floats 16 times),
 * and falls by half at most, unless the options say one for all. It begins with an eighth of the largest float, or more.
 *
 * Exchanges of an edge are numbered (header.version and step). Two messages go together if both are exact (codec none),
 * or if both are encoded with the same number and, modulo, no two floats were too far apart. Both ends find out alike. If
 * they do not, who has sent encoded values sends them once more, exactly. So an edge begins: the first exchange of
 * difference and modulo (number 0) is exact. And so it begins anew where one end has lost what both had
 * (nw_agreed_forget): it sends number 0, and the other has to follow.
 *
 * Random numbers of codecs are keyed by edge and number, so that both ends draw the same: where x_i = x_j, s_i = s_j.
 */
#ifndef NW_CHANNEL_AGREED_H
#define NW_CHANNEL_AGREED_H

#include "channel/channel.h"

typedef enum nw_agreeing {
    NW_AGREE_BY_CODEC, /* of options: what suits the codec */
    NW_AGREE_EXACTLY,
    NW_AGREE_PLAIN,
    NW_AGREE_DIFFERENCE,
    NW_AGREE_MODULO
} nw_agreeing;
const char *nw_agreeing_name(nw_agreeing how);

typedef struct nw_agreed_options {
    const nw_layout *layout; /* of one cut, whose buckets are ranges; must outlive this */
    nw_agreeing how;         /* BY_CODEC, PLAIN or DIFFERENCE: of all that are compressed */
    double bound;            /* modulo: of all items; 0: they follow what is seen */
    int members, me, rank;   /* rank: of this member, for messages to the user */
    int number;              /* in message headers */
    nw_channel_stats *stats; /* may be NULL */
    nw_pool *pool;           /* may be NULL */
} nw_agreed_options;

/* What both ends of an edge have, here for the other end. */
typedef struct nw_edge {
    int64_t next; /* version after the exchange under way; known from its first bucket on */
    float *copy;  /* difference; NULL: none yet */
    float *steps; /* modulo: of each item; NULL: none yet */
} nw_edge;

typedef struct nw_agreed {
    nw_agreed_options o;
    nw_channel channel;
    nw_agreeing *how; /* of each bucket */
    uint32_t *item;   /* its first item */
    double *share;    /* of its floats that is sent */
    uint32_t items;
    nw_edge *edges;      /* by member */
    int64_t *versions;   /* of them: the number of the next exchange; 0: the edge begins */
    int64_t *begun;      /* 62 bits each: members whose edges have something to be saved */
    float *values;       /* a vector of all parameters: what is sent */
    float *mine, *other; /* of a bucket */
    float *most;         /* by tile of a bucket */
} nw_agreed;

/* NW_E_ARGUMENT: some codec cannot travel so. */
nw_status nw_agreed_make(nw_agreed *agreed, const nw_agreed_options *options);
void nw_agreed_free(nw_agreed *agreed);
/* The bytes of a member's vectors: of what it encodes, and, where some tensor travels as a difference, of a copy for each
 * neighbour. 0 if nothing is encoded. */
size_t nw_agreed_bytes(const nw_layout_options *layout, nw_agreeing how, int neighbours);
/* How a codec travels, if that is possible at all. */
nw_agreeing nw_agreeing_of(const nw_codec *codec, nw_agreeing wanted);

/* Where the caller writes a bucket of x before it is encoded. */
static inline float *nw_agreed_values(const nw_agreed *a, int bucket)
{
    return a->values + a->o.layout->at[bucket].first;
}
/* Encodes that for a member; NW_PLAINLY: exactly. The header lacks its kind. clock: of the last gradient. */
nw_status nw_agreed_encode(nw_agreed *agreed, nw_actions *actions, int bucket, int with, int64_t clock, nw_plain plain,
                           nw_message **message);
static inline bool nw_agreed_is_exact(const nw_message *m) { return m->header->codec == NW_CODEC_NONE; }
/* NW_E_MESSAGE: the header fits nothing that may come. */
nw_status nw_agreed_check(const nw_agreed *agreed, const nw_header *header);
/* From both messages of a bucket: s of this member and of the other one, until the next call, and what both have from
 * now on. *joined is false if the two do not go together; then nothing has changed. NW_E_MESSAGE: theirs is invalid. */
nw_status nw_agreed_join(nw_agreed *agreed, nw_actions *actions, int with, const nw_message *mine,
                         const nw_message *theirs, const float **own, const float **other, bool *joined);
/* All buckets of an exchange are joined. */
void nw_agreed_end(nw_agreed *agreed, int with);
/* The edge begins anew. */
void nw_agreed_forget(nw_agreed *agreed, int with);

/* The squared distance of x to all copies: what is still to be sent. */
double nw_agreed_rest(const nw_agreed *agreed, const float *x);
/* Lists what edges have; in a world of other members they begin anew. Loaded: as in machine.h. */
void nw_agreed_state(nw_agreed *agreed, nw_state *state);
nw_status nw_agreed_loaded(nw_agreed *agreed);

#endif
