/* clock.h - the machine's monotonic time, and a process's own. */
#ifndef NW_BASE_CLOCK_H
#define NW_BASE_CLOCK_H

#include <stdint.h>

int64_t nw_now_ns(void);
/* Time in which this process ran. Of the time between two looks at it at most NW_OWN_GAP_NS more counts than the
 * CPUs worked for the process meanwhile: one that was suspended, or held up by a slow disk, has not waited for
 * others in that time. Look often. All zero at its start, but for own_ns, which may be where it goes on. One thread. */
#define NW_OWN_GAP_NS 50000000
typedef struct nw_own_clock {
    int64_t own_ns, real_ns, cpu_ns;
} nw_own_clock;
int64_t nw_own_clock_now(nw_own_clock *clock);

static inline double nw_seconds(int64_t ns) { return (double)ns * 1e-9; }

#endif
