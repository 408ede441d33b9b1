/*
 * preflight.h - is this the job that its starter meant? Checks before the first step, over facts that a driver gathers.
 *
 * Wrong starts are silent: `srun` of an MPI library that does not speak its protocol starts N processes that each
 * believe to be alone; a rank bound to one core runs all its threads there; two hosts have two builds. The functions
 * here are pure: facts in, findings out, each with its remedy, each once. Nothing is printed.
 *
 *   every rank   nw_rank_facts mine; nw_rank_facts_here(&mine); fill in threads, version, ...; gather all to all
 *   every rank   nw_preflight(&facts, &findings);       the same facts give the same findings everywhere
 *   every rank   fails with NW_E_ARGUMENT and the text of the first finding if nw_findings_refuse(&findings)
 *   one rank     prints the other findings: that for which nw_preflight_prints(&facts, rank) is true
 *
 * Processes that were meant to be one job and are not cannot ask each other who speaks; nw_preflight_prints then goes
 * by the rank that the environment promised, so that the job says it once, not N times.
 */
#ifndef NW_LAUNCH_PREFLIGHT_H
#define NW_LAUNCH_PREFLIGHT_H

#include "base/status.h"
#include "net/launchers.h"

typedef enum nw_severity {
    NW_SEVERITY_NOTE,   /* worth knowing */
    NW_SEVERITY_WARN,   /* will work, but not well */
    NW_SEVERITY_REFUSE, /* would train something else than was meant */
} nw_severity;

const char *nw_severity_name(nw_severity severity); /* "note", "warning", "refused" */

enum { NW_FINDINGS_MOST = 16, NW_FINDING_TEXT = 768 };

typedef struct nw_finding {
    nw_severity severity;
    char text[NW_FINDING_TEXT]; /* cause and remedy, without a full stop */
} nw_finding;

typedef struct nw_findings {
    int count;
    nw_finding at[NW_FINDINGS_MOST];
} nw_findings;

enum { NW_CPU_SET_WORDS = 64 }; /* CPUs 0 .. 4095 */

/* One rank, as plain data without pointers: what ranks gather from each other. Zero it first. */
typedef struct nw_rank_facts {
    char host[64];
    int32_t threads;                    /* that it will run; 0: not known, counts as one */
    int32_t cpus;                       /* it may use: its CPU set, or less where a container's quota says so */
    int32_t host_cpus;                  /* that are online on its host */
    uint64_t cpu_set[NW_CPU_SET_WORDS]; /* bit c of word c / 64; all zero: not known */
    /* what must be equal on all ranks: texts or digests; "" on all ranks is equal too */
    char version[32], commit[48], config[72], isa[32], dataset[72];
} nw_rank_facts;

typedef struct nw_preflight_facts {
    nw_environment get; /* NULL: getenv */
    void *context;
    int world;                  /* ranks, as MPI says */
    const char *library;        /* MPI_Get_library_version; "" or NULL: built without MPI */
    const nw_rank_facts *ranks; /* `world` of them, by rank; NULL: only the environment is checked */
} nw_preflight_facts;

/* host, cpus, host_cpus, cpu_set of the calling process. The other fields are left. */
void nw_rank_facts_here(nw_rank_facts *facts);

/* All checks. Refusals come first, then warnings, then notes. */
void nw_preflight(const nw_preflight_facts *facts, nw_findings *findings);
bool nw_findings_refuse(const nw_findings *findings);

/* Whether the process of this rank is the one to print. */
bool nw_preflight_prints(const nw_preflight_facts *facts, int rank);

#endif
