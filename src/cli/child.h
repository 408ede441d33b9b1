/*
 * child.h - one training run by a process of its own, for commands that make many. A run that is done is not repeated,
 * one that was interrupted is continued: calling again goes on where the last call was stopped.
 */
#ifndef NW_CLI_CHILD_H
#define NW_CLI_CHILD_H

#include "cli/launch.h"

/* From summary.json; NAN where it does not say. */
typedef struct nw_child_result {
    double test_top1, train_eval_loss, train_seconds, virtual_seconds, steps;
} nw_child_result;

typedef struct nw_child {
    const char *dir;        /* the run's folder */
    char *const *arguments; /* of train, without --run-dir and --resume */
    int count;
    int ranks; /* more than 1: that many real ranks, by 'nowait launch' */
    bool quiet;
} nw_child;

/* `nowait train ARGUMENTS... --run-dir DIR`. NW_E_INTERRUPTED if this process or the child was asked to stop (SIGINT,
 * SIGTERM): the child has ended then, with a checkpoint. */
nw_status nw_child_train(const nw_child *child, nw_child_result *result);

/* Whether a folder holds a run that is done, and then its result. Starts nothing. */
nw_status nw_child_done(const char *dir, bool *done, nw_child_result *result);

/* Of the arguments of a command that starts children, those for train go to `kept`: all but the options named `own` (up to
 * a NULL) with their values. Returns how many. */
int nw_child_keep(unsigned command, const char *const *own, int argc, char **argv, char **kept);

/* Prints the command line that nw_child_train would run. */
nw_status nw_child_print(const nw_child *child);

#endif
