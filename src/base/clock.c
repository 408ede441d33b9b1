/*
 * clock.c - the machine's monotonic time, and a process's own.
 *
 * Any thread may ask. The origin is arbitrary: only differences mean something.
 */
#define _GNU_SOURCE 1
#include "base/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t nw_now_ns(void) { return read_clock(CLOCK_MONOTONIC); }

int64_t nw_own_clock_now(nw_own_clock *c)
{
    int64_t real = nw_now_ns(), cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    int64_t gap = real - c->real_ns, most = cpu - c->cpu_ns + NW_OWN_GAP_NS;
    if (c->real_ns > 0) c->own_ns += gap < most ? gap : most;
    c->real_ns = real;
    c->cpu_ns = cpu;
    return c->own_ns;
}
