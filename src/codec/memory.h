/*
 * memory.h - what a sender was given and did not deliver, kept for the next time.
 *
 * Around every encoding of a tile: `begin` makes of the gradient g what is encoded, v; `sent` hears what receivers will
 * see of it, d.
 *
 *   name    keeps   begin             sent
 *   none    -       v is g
 *   error   e       e += g; v is e    e -= d            error feedback (Seide et al. 2014; Stich et al. 2018)
 *
 * So with error feedback what was delivered and what is kept add up to what was given, to rounding. Whoever learns that
 * something was not delivered after all adds it again (undo: v += d).
 *
 * Threads: tiles at once, each by one thread.
 */
#ifndef NW_CODEC_MEMORY_H
#define NW_CODEC_MEMORY_H

#include "codec/block.h"

typedef struct nw_memory nw_memory;

typedef struct nw_memory_ops {
    const char *name, *summary;
    void (*begin)(nw_memory *memory, const nw_tile *tile, const float *g);
    void (*sent)(nw_memory *memory, const nw_tile *tile, const float *d);
} nw_memory_ops;

struct nw_memory {
    const nw_memory_ops *ops;
    size_t floats;
    float *v; /* what is encoded; between two times, what was not delivered */
};

/* "none" or NULL makes none: *memory is NULL. NW_E_UNKNOWN names the nearest. */
nw_status nw_memory_create(nw_memory **memory, const char *name, size_t floats);
void nw_memory_free(nw_memory *memory);

#endif
