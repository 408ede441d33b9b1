/*
 * arena.h - all memory of a network in one block whose size is known before it is taken.
 *
 * The same building code runs twice: first over a measuring arena, which hands out no memory and adds up sizes,
 * then over a real one of exactly that size. After that nothing allocates, so a training step calls malloc zero times.
 *
 * Every allocation is aligned to 64 bytes. The block comes from the operating system zeroed and, where it is large,
 * with huge pages advised.
 */
#ifndef NW_BASE_ARENA_H
#define NW_BASE_ARENA_H

#include "base/status.h"

enum { NW_ALIGN = 64 };

typedef struct nw_arena {
    unsigned char *base; /* NULL while measuring */
    size_t used;
    size_t capacity; /* SIZE_MAX while measuring */
} nw_arena;

static inline size_t nw_align_up(size_t bytes) { return (bytes + (NW_ALIGN - 1)) & ~(size_t)(NW_ALIGN - 1); }

/* An arena that only measures: nw_arena_alloc returns NULL in it and .used grows. */
nw_arena nw_arena_measure(void);

/* Takes `bytes` of zeroed memory. NW_E_MEMORY names the size asked for and how much the machine has available; the
 * arena is then empty and may be destroyed. */
nw_status nw_arena_create(nw_arena *arena, size_t bytes);
void nw_arena_destroy(nw_arena *arena);
static inline bool nw_arena_is_measuring(const nw_arena *arena) { return arena->base == NULL; }

/* NULL while measuring. In a real arena it never fails: a request beyond the capacity is a bug and aborts. */
void *nw_arena_alloc(nw_arena *arena, size_t bytes);

#endif
