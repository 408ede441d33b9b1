/*
 * memory.h - what a sender was given and did not deliver, kept for the next time.
 *
 * Around every encoding of a tile: `begin` makes of the gradient g what is encoded, v; `sent` hears what receivers will
 * see of it, d; and when the mean over all members, G, is there, `reduced` may change what is applied. c: the factor by
 * which a gradient that is too long is shortened, else 1.
 *
 *   name    keeps   begin               sent      reduced
 *   none    -       v is g
 *   error   v       v += c g            v -= d              error feedback (Seide et al. 2014; Stich et al. 2018)
 *
 * So with error feedback what was delivered and what is kept add up to what was given, to rounding. Whoever learns that
 * something was not delivered after all adds it again (undo: v += d).
 *
 * Threads: tiles at once, each by one thread.
 */
#ifndef NW_CODEC_MEMORY_H
#define NW_CODEC_MEMORY_H

#include "codec/codec.h"

typedef struct nw_memory nw_memory;

typedef struct nw_memory_options {
    const char *name; /* NULL: none */
} nw_memory_options;

typedef struct nw_memory_ops {
    const char *name, *summary;
    void (*begin)(nw_memory *memory, const nw_tile *tile, const float *g, float clip);
    /* What begin will make of element `kept` if its gradient is g: for guesses. */
    float (*peek)(const nw_memory *memory, size_t kept, float g, float clip);
    void (*sent)(nw_memory *memory, const nw_tile *tile, const nw_seen *d);
    /* dense: of a block that has no codec but travels as it is, for which there is no begin and no sent. NULL: nothing */
    void (*reduced)(nw_memory *memory, const nw_tile *tile, float *mean, bool dense);
} nw_memory_ops;

struct nw_memory {
    const nw_memory_ops *ops;
    nw_memory_options o;
    size_t floats;
    float *v; /* what is encoded; between two times, what was not delivered */
};

/* "none" or NULL makes none: *memory is NULL. NW_E_UNKNOWN names the nearest. */
nw_status nw_memory_create(nw_memory **memory, const nw_memory_options *options, size_t floats);
void nw_memory_free(nw_memory *memory);

#endif
