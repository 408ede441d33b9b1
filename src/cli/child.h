/*
 * child.h - one training run by a process of its own, for commands that make many. A run that is done is not repeated,
 * one that was interrupted is continued: calling again goes on where the last call was stopped.
 */
#ifndef NW_CLI_CHILD_H
#define NW_CLI_CHILD_H

#include "base/status.h"

typedef struct nw_child_result {
    double test_top1, train_seconds;
} nw_child_result;

/* `nowait train ARGUMENTS... --run-dir DIR`. NW_E_INTERRUPTED if this process or the child was asked to stop (SIGINT,
 * SIGTERM): the child has ended then, with a checkpoint. */
nw_status nw_child_train(const char *dir, char *const *arguments, int count, bool quiet, nw_child_result *result);

#endif
