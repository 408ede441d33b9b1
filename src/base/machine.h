/*
 * machine.h - what this machine is and what it did meanwhile: for reports, never for decisions that change results.
 */
#ifndef NW_BASE_MACHINE_H
#define NW_BASE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

int nw_machine_allowed_cpus(void);                 /* that this process may run on: affinity, cgroup quota rounded up */
void nw_machine_cpu_name(char *text, size_t size); /* "AMD EPYC", or "unknown" */
size_t nw_machine_available_memory(void);          /* bytes: MemAvailable, capped by the cgroup's limit; 0 if unknown */
size_t nw_machine_peak_memory(void);               /* this process's peak resident bytes (VmHWM) */
double nw_machine_load(void);                      /* one-minute load average, -1 if unknown */

/* CPU ticks of the whole machine so far, for steal time between two readings. */
typedef struct nw_cpu_ticks {
    uint64_t total, steal, idle;
} nw_cpu_ticks;

nw_cpu_ticks nw_machine_ticks(void);
double nw_machine_steal_percent(nw_cpu_ticks before, nw_cpu_ticks after); /* of all ticks between; 0 if none passed */

#endif
