/*
 * launch.h - the parts of `nowait launch`: the command line that starts the ranks, and one attempt that is watched.
 * For command_launch.c and tests.
 */
#ifndef NW_CLI_LAUNCH_H
#define NW_CLI_LAUNCH_H

#include "net/heartbeat.h"

/* ---- the command line -------------------------------------------------------------------------------------------- */

typedef enum nw_launcher { NW_LAUNCHER_DIRECT, NW_LAUNCHER_OPEN_MPI, NW_LAUNCHER_MPICH, NW_LAUNCHER_SRUN } nw_launcher;

typedef struct nw_launch_plan {
    nw_launcher launcher;
    const char *starter; /* "mpirun", "srun"; not looked at for NW_LAUNCHER_DIRECT */
    const char *program; /* of each rank */
    int ranks;
    int cpus;                  /* of this machine */
    bool allocation;           /* inside one, whose scheduler says what slots there are */
    const char *hosts;         /* a file, or "" */
    const char *launcher_args; /* as the user wrote them, or "" */
} nw_launch_plan;

/* Words for exec, with a NULL at the end; to be freed with nw_words_free. */
typedef struct nw_words {
    char **at;
    int count, capacity;
} nw_words;

nw_status nw_words_add(nw_words *words, const char *text); /* copied */
nw_status nw_words_add_format(nw_words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Cuts a text as a shell would: at spaces, except inside quotes. Nothing is expanded. */
nw_status nw_words_add_cut(nw_words *words, const char *text);
void nw_words_free(nw_words *words);
/* As one could paste it into a shell; to be freed. */
nw_status nw_words_quote(const nw_words *words, char **text);

/* starter ... program train ARGUMENTS */
nw_status nw_launch_line(const nw_launch_plan *plan, const nw_words *train, nw_words *line);

/* What a program prints on stdout when called with one argument, cut to `size`; after ten seconds it is given up. */
nw_status nw_launch_ask(const char *program, const char *argument, char *answer, size_t size);
/* What `starter --version` prints makes it one of the two families of mpirun. */
nw_launcher nw_launch_family(const char *version);

/* ---- one attempt ------------------------------------------------------------------------------------------------- */

/* What an mpirun or srun says of a rank that ended badly. */
typedef struct nw_launch_word {
    int rank, signal, exit_code; /* -1: not said */
    int64_t pid;                 /* MPICH names no rank but a process; 0: not said */
} nw_launch_word;

/* Reads one line of its output; leaves *word as it is where the line says nothing of the kind. The first that names a
 * signal stays: others die of the first death. */
void nw_launch_hear(const char *line, nw_launch_word *word);

typedef struct nw_launch_job {
    const nw_words *line;
    const char *run_dir;
    int ranks;
    double timeout; /* seconds that a rank may stand still while others wait; some are added for the ranks' own watch */
    int stop_signal; /* that asks the job to write a checkpoint and end; 0: the one that came */
    bool hears;      /* stderr goes through us, so that we read what the launcher says */
    bool hears_out;  /* and stdout, where MPICH says it */
    bool root;       /* Open MPI wants to be told that this is meant */
} nw_launch_job;

typedef struct nw_launch_outcome {
    int exit_code;       /* of the launcher; 128 + its signal */
    bool asked, killed;  /* we were asked to stop; and asked again */
    bool stalled;        /* ended by us, since ranks stood still: see stuck */
    nw_launch_word word; /* what the launcher said */
    nw_beat *beats;      /* of each rank, the last seen; rank -1: none */
    bool *stuck;         /* of each rank */
    int64_t *quiet_ns;   /* of each rank: how long its heart had not beaten at the end */
    nw_beat *held; /* of each rank: where it stood in its longest pause of the last seconds; rank -1: none. The end */
    int64_t *held_ns; /* of a job wakes ranks up, who then say that they were interrupted. And how long that was. */
    bool stopped;     /* they were stopped by a signal */
    int64_t still_ns; /* how long they had stood still */
} nw_launch_outcome;

typedef struct nw_supervisor nw_supervisor;

/* From here on signals that ask to stop (INT, TERM, HUP, USR1) are taken by nw_launch_run and nw_supervisor_pause, and
 * orphans of our children are ours. One at a time in a process. */
nw_status nw_supervisor_create(nw_supervisor **supervisor);
void nw_supervisor_free(nw_supervisor *supervisor);

/* Runs a job to its end; nothing of it is left on this machine afterwards. `outcome` is to be freed in any case. */
nw_status nw_launch_run(nw_supervisor *supervisor, const nw_launch_job *job, nw_launch_outcome *outcome);
void nw_launch_outcome_free(nw_launch_outcome *outcome);

/* Waits. False if we were asked to stop meanwhile. */
bool nw_supervisor_pause(nw_supervisor *supervisor, double seconds);

/* ---- how it ended ------------------------------------------------------------------------------------------------ */

typedef enum nw_verdict {
    NW_VERDICT_FINISHED,
    NW_VERDICT_INTERRUPTED,
    NW_VERDICT_REFUSED, /* train, or the launcher, said why it does not go; it would say so again */
    NW_VERDICT_LOST,    /* a rank died or stood still: another attempt may go well */
} nw_verdict;

/* `attempt` counts from 1. */
nw_verdict nw_launch_judge(const nw_launch_plan *plan, const nw_launch_outcome *outcome, int attempt);

typedef struct nw_launch_counts {
    int seen, open, failed; /* ranks that had a heart; that had not come to an end; that said that they failed */
    int interrupted;        /* that said so */
} nw_launch_counts;

nw_launch_counts nw_launch_count(const nw_launch_plan *plan, const nw_launch_outcome *outcome);

/* Marks the ranks that are to blame for a loss, and returns how many. Where the end of the job has changed what a rank
 * last did, its beat is set back to what it did before. */
int nw_launch_blame(const nw_launch_plan *plan, nw_launch_outcome *outcome, bool *blamed);
/* "died of signal 9 (Killed)", "stood still for 12.0 s while others waited" */
void nw_launch_fate(const nw_launch_plan *plan, const nw_launch_outcome *outcome, int rank, char *text, size_t size);

#endif
