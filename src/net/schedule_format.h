/* schedule_format.h - what writer and readers of schedules share; see schedule.h. Private to them. */
#ifndef NW_NET_SCHEDULE_FORMAT_H
#define NW_NET_SCHEDULE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define NW_SCHEDULE_MAGIC  "NWSCHED" /* the version follows in the place of its zero */
#define NW_BLOCK_OF_HEADER 0xffffffffu
enum { NW_BLOCK_HEAD = 16, NW_BLOCK_MOST = 1 << 20 /* bytes of a block */ };

/* Whether a name in RUN/schedule is that of a part: its first step in decimal digits. */
static inline bool nw_schedule_part_name(const char *name, int64_t *step)
{
    size_t length = strlen(name);
    if (length == 0 || length > 18 || strspn(name, "0123456789") != length) return false;
    if (length > 1 && name[0] == '0') return false;
    *step = strtoll(name, NULL, 10);
    return true;
}

#endif
