/* clock.h - the machine's monotonic time. */
#ifndef NW_BASE_CLOCK_H
#define NW_BASE_CLOCK_H

#include <stdint.h>

int64_t nw_now_ns(void);
static inline double nw_seconds(int64_t ns) { return (double)ns * 1e-9; }

#endif
