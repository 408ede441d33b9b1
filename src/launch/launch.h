/*
 * Folder src/launch: starting jobs of several ranks: the command line for mpirun or srun, one attempt to run it, and
 * the checks at a rank's start. It trains nothing. May include: base, net.
 *
 * launch.h - the parts of `nowait launch`: the command line that starts the ranks, and one attempt to run it. For
 * command_launch.c and tests.
 */
#ifndef NW_LAUNCH_LAUNCH_H
#define NW_LAUNCH_LAUNCH_H

#include "base/status.h"

#include <signal.h>

/* ---- the command line -------------------------------------------------------------------------------------------- */

typedef enum nw_launcher { NW_LAUNCHER_DIRECT, NW_LAUNCHER_OPEN_MPI, NW_LAUNCHER_MPICH, NW_LAUNCHER_SRUN } nw_launcher;

typedef struct nw_launch_spec {
    nw_launcher launcher;
    const char *starter; /* "mpirun", "srun"; not looked at for NW_LAUNCHER_DIRECT */
    const char *program; /* of each rank */
    int ranks;
    int cpus;                  /* of this machine */
    bool allocation;           /* inside one, whose scheduler says what slots there are */
    const char *hosts;         /* a file, or "" */
    const char *launcher_args; /* as the user wrote them, or "" */
} nw_launch_spec;

/* Words for exec, with a NULL at the end; to be freed with nw_words_free. */
typedef struct nw_words {
    char **at;
    int count;
} nw_words;

nw_status nw_words_add(nw_words *words, const char *text); /* copied */
nw_status nw_words_add_format(nw_words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Cuts a text as a shell would: at spaces, except inside quotes. Nothing is expanded. */
nw_status nw_words_add_cut(nw_words *words, const char *text);
void nw_words_free(nw_words *words);
/* As one could paste it into a shell; to be freed. */
nw_status nw_words_quote(const nw_words *words, char **text);

/* starter ... program train ARGUMENTS */
nw_status nw_launch_line(const nw_launch_spec *plan, const nw_words *train, nw_words *line);

/* What a program prints on stdout when called with one argument, cut to `size`; after ten seconds it is given up. */
nw_status nw_launch_ask(const char *program, const char *argument, char *answer, size_t size);
/* What `starter --version` prints makes it one of the two families of mpirun. */
nw_launcher nw_launch_family(const char *version);

/* ---- one attempt ------------------------------------------------------------------------------------------------- */

typedef struct nw_launch_job {
    const nw_words *line;
    int stop_signal; /* asks the ranks to write a checkpoint and end */
    int kill_signal; /* makes the starter end them */
    bool root;       /* Open MPI wants to be told that this is meant */
} nw_launch_job;

typedef struct nw_supervisor {
    bool asked, killed; /* we were asked to stop; and asked again */
    sigset_t taken, before;
    struct sigaction pipe_before;
} nw_supervisor;

/* From here on signals that ask to stop (INT, TERM, HUP, USR1) are taken by nw_launch_run and nw_supervisor_pause. One
 * at a time in a process. */
void nw_supervisor_begin(nw_supervisor *supervisor);
void nw_supervisor_end(nw_supervisor *supervisor);

/* Runs a job to its end. The exit code is that of the starter; 128 + its signal, 127 if there is none. */
nw_status nw_launch_run(nw_supervisor *supervisor, const nw_launch_job *job, int *exit_code);
/* Waits. False if we were asked to stop meanwhile. */
bool nw_supervisor_pause(nw_supervisor *supervisor, double seconds);

/* The signal that a rank died of, as the exit code tells: 128 + signal, or from MPICH's launcher the signal itself,
 * where that is no exit code of train. 0: none. */
int nw_launch_signal(nw_launcher launcher, int exit_code);
/* Whether a rank was lost, so that another attempt may go well: the ranks say so (exit code 5), one died of a signal,
 * or mpirun lost a machine. */
bool nw_launch_lost(nw_launcher launcher, int exit_code);

#endif
