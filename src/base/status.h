/*
 * Folder src/base: what every other folder needs and no other library at hand gives: errors, memory, threads, random
 * numbers, clocks, texts, JSON, files that survive a crash. Nothing here knows of tensors, ranks or training. May
 * include: nothing.
 *
 * status.h - how functions of the library fail.
 *
 * A function that can fail returns nw_status and gives its results through pointers. NW_FAIL records, for the
 * calling thread, one sentence that names the cause and the remedy, with file and line; NW_TRY passes a failure up
 * and adds a line to the trace. The library never prints and never exits: the command prints nw_error_message().
 *
 * Codes, names, texts and the command's exit code come from the one table NW_STATUS_MAP.
 */
#ifndef NW_BASE_STATUS_H
#define NW_BASE_STATUS_H

#include "nowait.h"

#include <stdlib.h>
#include <string.h>

/* Records the failure of the calling thread and returns `status`. Starts a new trace. */
nw_status nw_fail_at(nw_status status, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));

/* Adds one place to the trace of the failure that is being passed up, and returns `status`. If the calling thread's
 * last recorded failure is another one, starts a new trace with the general text of `status`. */
nw_status nw_pass_up_at(nw_status status, const char *file, int line) __attribute__((cold));

/* What a local variable owns is released when its block is left, by whatever return. `NW_AUTOFREE char *path = NULL;`
 * is freed; NW_CLEANUP(nw_names_free) calls that with the address of the variable, which begins empty. To keep what it
 * has, give it away and leave NULL. */
static inline void nw_autofree(void *variable)
{
    void *owned;
    memcpy(&owned, variable, sizeof owned); /* a pointer of any type */
    free(owned);
}
#define NW_AUTOFREE         __attribute__((cleanup(nw_autofree)))
#define NW_CLEANUP(release) __attribute__((cleanup(release)))

#define NW_FAIL(status, ...) nw_fail_at((status), __FILE__, __LINE__, __VA_ARGS__)
#define NW_FAIL_IF(condition, status, ...)                  \
    do {                                                    \
        if (condition) return NW_FAIL(status, __VA_ARGS__); \
    } while (0)
#define NW_TRY(expression)                                                                     \
    do {                                                                                       \
        nw_status nw_try_status_ = (expression);                                               \
        if (nw_try_status_ != NW_OK) return nw_pass_up_at(nw_try_status_, __FILE__, __LINE__); \
    } while (0)
/* Also undoes something before it passes a failure up; nothing that fails itself. */
#define NW_TRY_OR(expression, undo)                                   \
    do {                                                              \
        nw_status nw_try_status_ = (expression);                      \
        if (nw_try_status_ != NW_OK) {                                \
            undo;                                                     \
            return nw_pass_up_at(nw_try_status_, __FILE__, __LINE__); \
        }                                                             \
    } while (0)
/* Gives `pointer` memory for `count` of what it points to, all zero, or returns "no memory for ...". */
#define NW_NEW(pointer, count, ...)                                        \
    do {                                                                   \
        (pointer) = calloc((size_t)(count), sizeof *(pointer));            \
        NW_FAIL_IF(!(pointer), NW_E_MEMORY, "no memory for " __VA_ARGS__); \
    } while (0)

#endif
