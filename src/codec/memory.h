/*
 * memory.h - error memories (--memory): they keep what a codec did not send, and add it to a later gradient. DGC's
 * momentum is kept here, too.
 *
 * A memory is called three times for each tile: `begin` computes from the gradient g what is encoded, v; `sent` gets
 * what receivers will decode, d; and when the mean over all members, G, has arrived, `reduced` may change what is
 * applied. c is the factor of gradient clipping (1: no clipping).
 *
 *   name    state     begin                     sent                     reduced
 *   none    -         v is g
 *   error   v         v += c g                  v -= d                                             error feedback
 *   ef21    v, h, H   v = c g - h               h += d; v -= d           H += G; G := H            EF21
 *   dgc     v, u      u = m u + c g; v += u     v -= d, and u = 0 where  dense items: u = m u + G; momentum correction
 *                                               an entry was sent        G := u
 *   momentum  v, m    v += b m + (1 - b) c g    v -= d                   m = G                     1-bit Adam
 *
 * error: Seide et al. 2014, Stich et al. 2018. What was sent plus what is kept equals the sum of all gradients, up to
 * rounding.
 *
 * ef21: Richtarik et al. 2021. A sender keeps an estimate h of its gradient, which each message corrects; H, the mean
 * of all estimates, is kept by all members and is what is applied. The codec must be contractive (nw_memory_check).
 *
 * dgc: Lin et al., Deep Gradient Compression, ICLR 2018. Momentum correction: momentum is applied before entries are
 * selected, so that what waits in v has the momentum that it would have had; therefore the optimizer has none
 * (dgc-sgd). Nesterov: u = m (u + c g), v += u + c g; dense: u = m (u + G), G := u + G. Momentum factor masking: u is
 * set to 0 where an entry was sent, so that old momentum does not push further there. Rounding errors of the values
 * stay in v. Dense items are sent uncompressed and get their momentum from the mean, so that it is equal on all
 * members.
 *
 * momentum: 1-bit Adam, see memory_momentum.c.
 *
 * In an uncompressed epoch of the warm-up (channel/warm_up.h) v is sent whole, with the codec none: error feedback then
 * sends all that it kept, once; EF21's h becomes g; and DGC's u is not masked, so that each member's momentum goes on:
 * the mean of u_i = m u_i + g_i is m u + G, ordinary momentum. A server's workers send everything with their codec in such
 * an epoch; it is not masked either.
 *
 * If a message turns out to have been refused, its content is put back: error and dgc: v += d (masked momentum stays
 * 0); ef21: h -= d.
 *
 * Threads: several tiles at the same time, each by one thread.
 */
#ifndef NW_CODEC_MEMORY_H
#define NW_CODEC_MEMORY_H

#include "codec/codec.h"

typedef struct nw_memory nw_memory;

typedef struct nw_memory_options {
    const char *name; /* NULL: none */
    double momentum;  /* dgc, momentum: in [0, 1) */
    bool nesterov, masking;
    double clip_norm; /* largest norm of a member's gradient, times sqrt(members); 0: any (channel/clip.h) */
    int64_t freeze;   /* momentum: the first `freeze` gradients are exchanged uncompressed */
} nw_memory_options;

typedef struct nw_memory_ops {
    const char *name, *summary;
    int vectors; /* how many of v, u and mean it has */
    void (*begin)(nw_memory *memory, const nw_tile *tile, const float *g, float clip);
    /* The value that begin will give element `kept` for the gradient g, without changing anything: for guesses. */
    float (*peek)(const nw_memory *memory, size_t kept, float g, float clip);
    void (*sent)(nw_memory *memory, const nw_tile *tile, const nw_seen *d);
    /* dense: the tile belongs to an uncompressed block, for which begin and sent are not called. May be NULL. */
    void (*reduced)(nw_memory *memory, const nw_tile *tile, float *mean, bool dense);
    bool estimates; /* u is the receivers' estimate; v is only needed during an encoding */
    bool common;    /* u is equal on all members, and is updated from every mean */
} nw_memory_ops;

struct nw_memory {
    const nw_memory_ops *ops;
    nw_memory_options o;
    size_t floats;
    float *v;    /* during an encoding: what is encoded; afterwards: what was not sent */
    float *u;    /* dgc: momentum; ef21: h; momentum: m */
    float *mean; /* ef21: H */
    bool early;  /* momentum: still in the first `freeze` batches; set by the exchange, which counts batches */
    bool whole;  /* dgc: all that v has is being sent, at a ratio of 1 */
};

/* For the name "none" or NULL *memory becomes NULL. NW_E_UNKNOWN: no memory has that name. */
nw_status nw_memory_create(nw_memory **memory, const nw_memory_options *options, size_t floats);
void nw_memory_free(nw_memory *memory);
int nw_memory_kinds(void);
const nw_memory_ops *nw_memory_at(int index); /* for help */
/* NW_E_UNKNOWN: no memory has that name; the message names the nearest. */
nw_status nw_memory_find(const char *name, const nw_memory_ops **ops);

/* `sent` of all memories with error feedback: v -= d. */
void nw_memory_sent_error(nw_memory *memory, const nw_tile *tile, const nw_seen *d);

/* What it allocates for so many floats; 0: nothing, or there is no such memory. */
size_t nw_memory_bytes(const nw_memory_options *options, size_t floats);

/* Refuses combinations in which the memory would grow without bound, for items of n floats. NW_E_ARGUMENT says why. */
nw_status nw_memory_check(const nw_codec *codec, const nw_memory_options *options, size_t n);

#endif
