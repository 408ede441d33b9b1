/*
 * arena.c - one block of memory, handed out from front to back.
 *
 * Invariants: `used` is a multiple of NW_ALIGN, and so is `capacity` of a real arena, hence every address handed out is
 * aligned. Measuring and real arenas advance by the same rule, so what a measured run used is the capacity that the
 * real run needs. A measured size beyond what size_t holds saturates, and nw_arena_create then refuses it like any
 * other size that is too large.
 *
 * An arena belongs to one thread at a time; what is allocated in it may be used by all.
 */
#define _GNU_SOURCE 1
#include "base/arena.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/machine.h"

#define REMEDY "use a smaller batch size or model, or a machine with more memory"

/* Below this a block is too small to hold aligned huge pages that are worth their rounding. */
static const size_t huge_from = (size_t)4 << 20;
static const double bytes_per_gib = 1024.0 * 1024.0 * 1024.0;

nw_arena nw_arena_measure(void) { return (nw_arena){.capacity = SIZE_MAX}; }

/* An empty arena still maps something: its base must not be NULL, which would make it a measuring one. */
static size_t mapped_bytes(size_t capacity) { return capacity > 0 ? capacity : NW_ALIGN; }

nw_status nw_arena_create(nw_arena *arena, size_t bytes)
{
    *arena = (nw_arena){0};

    /* Linux maps more than it has and kills the process that touches it, so the refusal must come before. */
    size_t available = nw_machine_available_memory();
    double gib = (double)bytes / bytes_per_gib;
    NW_FAIL_IF(bytes > SIZE_MAX - (NW_ALIGN - 1) || (available > 0 && bytes > available), NW_E_MEMORY,
               "%.2f GiB of memory are needed but %.2f GiB are available: " REMEDY, gib,
               (double)available / bytes_per_gib);

    size_t capacity = nw_align_up(bytes);
    void *base = mmap(NULL, mapped_bytes(capacity), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NW_FAIL_IF(base == MAP_FAILED, NW_E_MEMORY,
               "the system refused %.2f GiB of memory (%s) although %.2f GiB are available: raise the process's limit "
               "(ulimit -v), or " REMEDY,
               gib, strerror(errno), (double)available / bytes_per_gib);

    /* Advice only: where huge pages are switched off the call fails and all still works, more slowly. */
    if (capacity > huge_from) (void)madvise(base, capacity, MADV_HUGEPAGE);

    arena->base = base;
    arena->capacity = capacity;
    return NW_OK;
}

void nw_arena_destroy(nw_arena *arena)
{
    if (arena->base != NULL) munmap(arena->base, mapped_bytes(arena->capacity));
    *arena = (nw_arena){0};
}

__attribute__((cold, noreturn)) static void die_exhausted(const nw_arena *arena, size_t bytes)
{
    fprintf(stderr,
            "nowait: bug: %zu bytes asked of an arena with %zu of %zu bytes used; "
            "its measuring pass asked for less\n",
            bytes, arena->used, arena->capacity);
    abort();
}

void *nw_arena_alloc(nw_arena *arena, size_t bytes)
{
    bool measuring = arena->base == NULL && arena->capacity == SIZE_MAX;
    size_t left = arena->capacity - arena->used;
    if (bytes > left || nw_align_up(bytes) > left || nw_align_up(bytes) < bytes) {
        if (!measuring) die_exhausted(arena, bytes);
        arena->used = SIZE_MAX;
        return NULL;
    }
    void *memory = measuring ? NULL : arena->base + arena->used;
    arena->used += nw_align_up(bytes);
    return memory;
}
