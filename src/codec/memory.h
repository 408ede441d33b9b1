/*
 * memory.h - what a sender was given and did not deliver, kept for the next time.
 *
 * Around every encoding of a tile: `begin` makes of the gradient g what is encoded, v; `sent` hears what receivers will
 * see of it, d; and when the mean over all members, G, is there, `reduced` may change what is applied. c: the factor by
 * which a gradient that is too long is shortened, else 1.
 *
 *   name    keeps     begin                     sent                     reduced
 *   none    -         v is g
 *   error   v         v += c g                  v -= d                                             error feedback
 *   ef21    v, h, H   v = c g - h               h += d                   H += G; G := H            EF21
 *   dgc     v, u      u = m u + c g; v += u     v -= d, and u = 0 where  dense items: u = m u + G; momentum correction
 *                                               an entry was chosen      G := u
 *   momentum  v, m    v += b m + (1 - b) c g    v -= d                   m = G                     momentum travels
 *
 * error: Seide et al. 2014, Stich et al. 2018. What was delivered and what is kept add up to what was given, to rounding.
 *
 * ef21: Richtarik et al. 2021. Everybody keeps an estimate h of each sender's gradient, which what is sent corrects; H is
 * the mean of these, on all members, and is what is applied. Codecs must contract (nw_memory_check).
 *
 * dgc: Lin et al., Deep Gradient Compression, ICLR 2018. Momentum is taken before something is chosen, so that what waits
 * in v carries the momentum that it would have had; the optimizer has none (dgc-sgd). Nesterov: u = m (u + c g), v += u +
 * c g; dense: u = m (u + G), G := u + G. Masking clears u of what was chosen, so that old momentum does not go on pushing
 * where v has just been delivered. What rounding lost of values stays in v. Dense items travel as they are and get their
 * momentum from the mean, which is the same everywhere.
 *
 * momentum: 1-bit Adam, see memory_momentum.c.
 *
 * An epoch in which nothing is compressed (exchange/allreduce.c) sends v whole, with the codec that loses nothing: what
 * error feedback kept is delivered then, once; EF21's h becomes g; and DGC's u, which nothing is chosen of and so nothing
 * is cleared of, goes on on each member: the mean of u_i = m u_i + g_i is m u + G, ordinary momentum.
 *
 * Whoever learns that something was not delivered after all takes it back: error, dgc: v += d (what masking cleared stays
 * cleared); ef21: h -= d.
 *
 * Threads: tiles at once, each by one thread.
 */
#ifndef NW_CODEC_MEMORY_H
#define NW_CODEC_MEMORY_H

#include "codec/codec.h"

typedef struct nw_memory nw_memory;

typedef struct nw_memory_options {
    const char *name; /* NULL: none */
    double momentum;  /* dgc, momentum: in [0, 1) */
    bool nesterov, masking;
    double clip_norm; /* of a member's whole gradient, at most this / sqrt(members); 0: any. See channel/warm_up.h */
    int64_t freeze;   /* momentum: so many gradients come first that travel as they are */
} nw_memory_options;

typedef struct nw_memory_ops {
    const char *name, *summary;
    int vectors; /* v, u, mean */
    void (*begin)(nw_memory *memory, const nw_tile *tile, const float *g, float clip);
    /* What begin will make of element `kept` if its gradient is g: for guesses. */
    float (*peek)(const nw_memory *memory, size_t kept, float g, float clip);
    void (*sent)(nw_memory *memory, const nw_tile *tile, const nw_seen *d);
    /* dense: of a block that has no codec but travels as it is, for which there is no begin and no sent. NULL: nothing */
    void (*reduced)(nw_memory *memory, const nw_tile *tile, float *mean, bool dense);
    bool estimates; /* u is what receivers know, which is corrected, and v does not last */
    bool common;    /* u is the same on all members, and follows all means */
} nw_memory_ops;

struct nw_memory {
    const nw_memory_ops *ops;
    nw_memory_options o;
    size_t floats;
    float *v;    /* what is encoded; between two times, what was not delivered */
    float *u;    /* dgc: momentum; ef21: h; momentum: m */
    float *mean; /* ef21: H */
    bool early;  /* momentum: gradients travel still; written by whoever counts batches */
};

/* "none" or NULL makes none: *memory is NULL. NW_E_UNKNOWN names the nearest. */
nw_status nw_memory_create(nw_memory **memory, const nw_memory_options *options, size_t floats);
void nw_memory_free(nw_memory *memory);
int nw_memory_kinds(void);
const nw_memory_ops *nw_memory_at(int index); /* for help */
/* Those of that name; NW_E_UNKNOWN names the nearest. */
nw_status nw_memory_find(const char *name, const nw_memory_ops **ops);

/* For memories that have error feedback: v -= d. */
void nw_memory_sent_error(nw_memory *memory, const nw_tile *tile, const nw_seen *d);

/* Whether what a codec does to items of n floats leaves a memory bounded. NW_E_ARGUMENT says why not. */
nw_status nw_memory_check(const nw_codec *codec, const nw_memory_options *options, size_t n);

#endif
