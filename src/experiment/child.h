/* child.h - one training run by a process of its own, for commands that make many. See trials.h. */
#ifndef NW_EXPERIMENT_CHILD_H
#define NW_EXPERIMENT_CHILD_H

#include "launch/launch.h"

/* Runs `line`, "nowait train ..." in the folder `dir`, by this program. NW_E_INTERRUPTED if this process or the child
 * was asked to stop (SIGINT, SIGTERM): the child has ended then, with a checkpoint. */
nw_status nw_child_run(const nw_words *line, const char *dir);

/* Whether a folder holds a run that is done, and then a number of its summary.json: "test_top1", or "seconds_per_step",
 * in virtual time where the clock was simulated. NAN where it does not say. A field NULL asks for nothing. */
nw_status nw_child_done(const char *dir, bool *done, const char *field, double *value);

/* Of the arguments of a command that starts children, those for train go to `kept`: all but the options named `own` (up
 * to a NULL) with their values. Returns how many. */
int nw_child_keep(unsigned command, const char *const *own, int argc, char **argv, char **kept);

#endif
