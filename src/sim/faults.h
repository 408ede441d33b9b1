/*
 * faults.h - scripts of faults: what goes wrong, and when. Virtual clusters simulate all of them, MPI ranks some.
 *
 *   kind       whom            at           until            virtual cluster            MPI rank
 *   slow       rank            step, time   step or time     local work x factor        sleeps after a step
 *   pause      rank            step, time   at + duration    no local work              sleeps
 *   stop       rank            step, time   for ever         falls silent               raise(SIGSTOP)
 *   die        rank            step, time   for ever         dies                       raise(SIGKILL)
 *   link_down  pair of ranks   time         time             messages wait              -
 *   link_slow  pair of ranks   time         time             bandwidth / factor         -
 *
 * Step s is the (s+1)-th batch of a rank: a fault at step s happens before the rank begins that batch. Times count from
 * the start of the run. Windows are [at, until). Factors of overlapping windows are multiplied.
 *
 * All functions here are pure functions of the script, except nw_faults_due, whose state the caller keeps. Any number
 * of threads may call them.
 */
#ifndef NW_SIM_FAULTS_H
#define NW_SIM_FAULTS_H

#include "sim/cluster.h"

enum { NW_FAULTS_MOST = 4096, NW_FAULT_ANY = -1 /* every rank */ };

typedef enum nw_fault_kind {
    NW_FAULT_SLOW,
    NW_FAULT_PAUSE,
    NW_FAULT_STOP,
    NW_FAULT_DIE,
    NW_FAULT_LINK_DOWN,
    NW_FAULT_LINK_SLOW,
    NW_FAULT_JOIN, /* the rank is not there before `at`; nobody else knows of a rank that does not exist yet */
} nw_fault_kind;

typedef struct nw_fault {
    nw_fault_kind kind;
    int rank, peer; /* of links: sender and receiver; both_ways adds the other direction */
    bool both_ways;
    bool by_step;        /* at (and until, of slow) count steps, not nanoseconds */
    int64_t at, until;   /* until is NW_NEVER for what does not end; of stop and die always */
    int64_t duration_ns; /* of pause */
    double factor;       /* of slow, link_slow; > 0 */
    int line;            /* in its file, for logs; 0: none */
} nw_fault;

typedef struct nw_faults {
    nw_fault *at; /* by (by_step, at), then as given */
    int count;
} nw_faults;

/* Checks a fault for a world of that size. It fails with `status`; the message begins with `where`
 * ("faults.yaml:3"). */
nw_status nw_fault_check(const nw_fault *fault, int world, nw_status status, const char *where);

/* Copies, checks and sorts the list. NW_E_ARGUMENT says what is wrong. */
nw_status nw_faults_create(nw_faults **faults, const nw_fault *list, int count, int world);
void nw_faults_free(nw_faults *faults);
const char *nw_fault_name(nw_fault_kind kind);

/* In all functions below `faults` may be NULL: there are no faults. */

/* The time at which local work of `work_ns` (including the cluster's slowdown and noise) ends that began at `start_ns`.
 * Slow and pause windows by time stretch it; slow by step multiplies it. NW_NEVER if a pause does not end. It ignores
 * stop and die, and pauses by step. */
int64_t nw_faults_finish(const nw_faults *faults, int rank, int64_t step, int64_t start_ns, int64_t work_ns);
/* How long the rank sleeps before it begins that step: the sum of its pauses by step. */
int64_t nw_faults_step_pause(const nw_faults *faults, int rank, int64_t step);

/* How long its pauses by time, and the time before it joined, have lasted until `now_ns`; time in several windows counts
 * once. */
int64_t nw_faults_paused(const nw_faults *faults, int rank, int64_t now_ns);
/* The first time >= now at which it does not pause. */
int64_t nw_faults_awake(const nw_faults *faults, int rank, int64_t now_ns);
/* Whether it joins after the start. */
bool nw_faults_is_late(const nw_faults *faults, int rank);

/* Whether the rank has stopped or died: at a time <= now, or before a step <= step. */
typedef enum nw_rank_health { NW_RANK_LIVES, NW_RANK_STOPPED, NW_RANK_DEAD } nw_rank_health;
nw_rank_health nw_faults_health(const nw_faults *faults, int rank, int64_t step, int64_t now_ns);

/* The first time >= t at which the link is up. */
int64_t nw_faults_link_up(const nw_faults *faults, int from, int to, int64_t t);
/* The time at which a transfer of `work_ns` ends that began at `start_ns`; it does not progress while the link is
 * down. */
int64_t nw_faults_link_finish(const nw_faults *faults, int from, int to, int64_t start_ns, int64_t work_ns);

/* ---- real ranks ---- */

/* The state of a rank between calls; all zero at its start. */
typedef struct nw_faults_state {
    bool started;
    int64_t step, now_ns; /* of the call before */
    int64_t resumed_ns;   /* when the work since then began */
} nw_faults_state;

typedef struct nw_faults_action {
    int64_t sleep_ns;      /* first sleep that long (pauses, and what slowness adds to the step just done), */
    nw_rank_health end;    /* then NW_RANK_STOPPED: raise(SIGSTOP), NW_RANK_DEAD: raise(SIGKILL) */
    const nw_fault *cause; /* of `end`, else of the sleep; NULL: nothing to do */
} nw_faults_action;

/* What the rank must do to itself before it begins `step`, `now_ns` after its start. To be called before every step.
 * Each pause, stop or die is returned once. A run that resumes skips the faults by step before its first step, and its
 * time starts at 0 again. */
nw_faults_action nw_faults_due(const nw_faults *faults, int rank, int64_t step, int64_t now_ns, nw_faults_state *state);
/* The first fault that only a virtual cluster can simulate (of a link, or join), or NULL. */
const nw_fault *nw_faults_virtual_only(const nw_faults *faults);

#endif
