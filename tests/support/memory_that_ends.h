/*
 * memory_that_ends.h - lets one allocation of a test program fail, and counts what is not given back. Include in one
 * file of a program that is linked with these functions before the C library's, or the sanitizer's (memory_ends() in
 * CMakeLists.txt). What the C library takes for itself does not count and does not fail.
 */
#ifndef NW_TESTS_MEMORY_THAT_ENDS_H
#define NW_TESTS_MEMORY_THAT_ENDS_H

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_ENOUGH ((long long)1 << 60)
static atomic_llong memory_left = MEMORY_ENOUGH; /* allocations until one fails */
static atomic_llong memory_alive;                /* pieces that were not given back */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t most);
FILE *__real_open_memstream(char **text, size_t *size);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t most);
int __real_vasprintf(char **text, const char *format, va_list arguments);
int __wrap_vasprintf(char **text, const char *format, va_list arguments);
int __wrap_asprintf(char **text, const char *format, ...);
FILE *__wrap_open_memstream(char **text, size_t *size);
void __wrap_free(void *memory);

static bool memory_fails(void) { return atomic_fetch_sub(&memory_left, 1) == 0; }
static void *memory_counted(void *memory)
{
    atomic_fetch_add(&memory_alive, memory != NULL);
    return memory;
}

void *__wrap_malloc(size_t bytes) { return memory_fails() ? NULL : memory_counted(__real_malloc(bytes)); }
void *__wrap_calloc(size_t count, size_t bytes)
{
    return memory_fails() ? NULL : memory_counted(__real_calloc(count, bytes));
}
void *__wrap_realloc(void *old, size_t bytes)
{
    if (memory_fails()) return NULL;
    void *memory = __real_realloc(old, bytes);
    return old ? memory : memory_counted(memory);
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return memory_fails() ? NULL : memory_counted(__real_aligned_alloc(alignment, bytes));
}
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    if (memory_fails()) return ENOMEM;
    int error = __real_posix_memalign(memory, alignment, bytes);
    if (error == 0) memory_counted(*memory);
    return error;
}
char *__wrap_strdup(const char *text) { return memory_fails() ? NULL : memory_counted(__real_strdup(text)); }
char *__wrap_strndup(const char *text, size_t most)
{
    return memory_fails() ? NULL : memory_counted(__real_strndup(text, most));
}
int __wrap_vasprintf(char **text, const char *format, va_list arguments)
{
    int length = memory_fails() ? -1 : __real_vasprintf(text, format, arguments);
    if (length >= 0) memory_counted(*text);
    return length;
}
int __wrap_asprintf(char **text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = __wrap_vasprintf(text, format, arguments);
    va_end(arguments);
    return length;
}
/* The text is the caller's to free once the stream is closed. */
FILE *__wrap_open_memstream(char **text, size_t *size)
{
    FILE *stream = memory_fails() ? NULL : __real_open_memstream(text, size);
    memory_counted(stream);
    return stream;
}
void __wrap_free(void *memory)
{
    atomic_fetch_sub(&memory_alive, memory != NULL);
    __real_free(memory);
}

/* From here on the allocation behind the first n fails; and back to memory that suffices. How many were asked for since
 * is `asked`; true: one failed. */
static inline void memory_ends_after(int64_t n) { atomic_store(&memory_left, n); }
static inline bool memory_suffices(int64_t n, int64_t *asked)
{
    int64_t rest = atomic_exchange(&memory_left, MEMORY_ENOUGH);
    *asked = n - rest;
    return rest < 0;
}

#endif
