/*
 * faults.h - what goes wrong, and when: a script that a virtual cluster obeys, and MPI ranks where they can.
 *
 *   kind       whom            at           until            virtual cluster            MPI rank
 *   slow       rank            step, time   step or time     local work x factor        sleeps after a step
 *   pause      rank            step, time   at + duration    no local work              sleeps
 *   stop       rank            step, time   for ever         falls silent               raise(SIGSTOP)
 *   die        rank            step, time   for ever         dies                       raise(SIGKILL)
 *   link_down  pair of ranks   time         time             messages wait              -
 *   link_slow  pair of ranks   time         time             bandwidth / factor         -
 *
 * Step s is the (s+1)-th batch of a rank: a fault at step s meets the rank before it begins that batch. Times are since
 * the start of the run. Windows are [at, until). Factors of windows that overlap are multiplied.
 *
 * Everything here is a pure function of the script but nw_faults_due, whose only memory is the state that it is given.
 * Threads: any number may ask.
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

/* Whether a fault makes sense in a world of that size; `where` ("faults.yaml:3") is for the message, of status
 * `status`. */
nw_status nw_fault_check(const nw_fault *fault, int world, nw_status status, const char *where);

/* Copies, checks and sorts. NW_E_ARGUMENT says what makes no sense. */
nw_status nw_faults_create(nw_faults **faults, const nw_fault *list, int count, int world);
void nw_faults_free(nw_faults *faults);
const char *nw_fault_name(nw_fault_kind kind);

/* In all queries faults may be NULL: nothing goes wrong. */

/* When local work of `work_ns` (slowdown and noise of the cluster already in it), begun at `start_ns`, is done: slow
 * and pause windows by time stretch it, slow by step multiplies it. NW_NEVER if a pause does not end. Does not look at
 * stop and die, nor at pauses by step. */
int64_t nw_faults_finish(const nw_faults *faults, int rank, int64_t step, int64_t start_ns, int64_t work_ns);
/* What the rank sleeps before it begins that step: the sum of its pauses by step. */
int64_t nw_faults_step_pause(const nw_faults *faults, int rank, int64_t step);

/* How long its pauses by time lasted until then; windows do not overlap. */
int64_t nw_faults_paused(const nw_faults *faults, int rank, int64_t now_ns);

/* Whether the rank has stopped or died: at a time <= now, or before a step <= step. */
typedef enum nw_rank_health { NW_RANK_LIVES, NW_RANK_STOPPED, NW_RANK_DEAD } nw_rank_health;
nw_rank_health nw_faults_health(const nw_faults *faults, int rank, int64_t step, int64_t now_ns);

/* The first time >= t at which the link is up. */
int64_t nw_faults_link_up(const nw_faults *faults, int from, int to, int64_t t);
/* When a transfer of `work_ns`, begun at `start_ns`, is through: it stands still while the link is down. */
int64_t nw_faults_link_finish(const nw_faults *faults, int from, int to, int64_t start_ns, int64_t work_ns);

/* ---- real ranks ---- */

/* What a rank keeps between calls; all zero at its start. */
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

/* What the rank has to do to itself now, before it begins `step` at `now_ns` since its start. Call it before every
 * step. Each pause, stop or die comes due once. A run that resumes behind a step meets none of the faults by step
 * before it; its time begins anew. */
nw_faults_action nw_faults_due(const nw_faults *faults, int rank, int64_t step, int64_t now_ns, nw_faults_state *state);
/* Whether the script asks for what only a virtual cluster can do (faults of links): the first such fault, or NULL. */
const nw_fault *nw_faults_virtual_only(const nw_faults *faults);

#endif
