/*
 * allocations.h - counts calls of malloc, calloc, realloc and aligned_alloc by standing before the C library's. Include
 * in one file of a test program. Under a sanitizer, which stands there itself, COUNTS_ALLOCATIONS is 0 and nothing is
 * counted.
 */
#ifndef NW_TESTS_ALLOCATIONS_H
#define NW_TESTS_ALLOCATIONS_H

#include <stdatomic.h>
#include <stddef.h>

static atomic_int allocations;

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ || !defined __GLIBC__
#define COUNTS_ALLOCATIONS 0
#else
#define COUNTS_ALLOCATIONS 1
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(alignment, bytes);
}
#endif

#endif
