/*
 * clock.c - the machine's monotonic time.
 *
 * Any thread may ask. The origin is arbitrary: only differences mean something.
 */
#define _GNU_SOURCE 1
#include "base/clock.h"

#include <time.h>

int64_t nw_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
