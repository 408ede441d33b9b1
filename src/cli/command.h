/*
 * Folder src/cli: the command: one short file per sub-command, which parses its options, calls the folders below and
 * prints. What a library user could need does not live here. May include: everything.
 *
 * command.h - the sub-commands. Each gets the arguments behind its name and returns a status; main prints failures.
 */
#ifndef NW_CLI_COMMAND_H
#define NW_CLI_COMMAND_H

#include "base/status.h"

/* X(name, arguments, summary, whose rows of the table of options: see options.h) */
#define NW_COMMAND_MAP(X)                                                                                     \
    X(train, "[DIR]", "train a network; without options, the demo", NW_COMMAND_TRAIN)                         \
    X(launch, "-n N -- train ...", "train with several ranks, over mpirun or srun; restart when one is lost", \
      NW_COMMAND_LAUNCH)                                                                                      \
    X(eval, "CHECKPOINT", "loss and accuracy of a checkpoint", NW_COMMAND_EVAL)                               \
    X(predict, "CHECKPOINT IMAGE...", "the most likely classes of image files", NW_COMMAND_PREDICT)           \
    X(sweep, "", "many runs as one resumable job: a grid of options, several seeds", NW_COMMAND_SWEEP)        \
    X(reproduce, "PAPER[/EXPERIMENT]", "run a published experiment and compare its numbers with ours",        \
      NW_COMMAND_REPRODUCE)                                                                                   \
    X(replay, "RUN", "repeat a run of several ranks from its event log, bit for bit", NW_COMMAND_REPLAY)      \
    X(bench, "train|conv|codec|exchange|loader",                                                              \
      "measure training steps, or one part: kernels, codecs, exchange, loader", NW_COMMAND_BENCH)             \
    X(plan, "MODEL", "which codec pays at a bandwidth, and how long steps will be", NW_COMMAND_PLAN)          \
    X(data, "fetch|info|import DATASET", "download a dataset, describe it, or convert it to one file",        \
      NW_COMMAND_DATA)                                                                                        \
    X(help, "[COMMAND [TOPIC]]", "options by topic; shell completion; manual page", 0)                        \
    X(info, "[MODEL]", "this machine and build, with a self-test; or the stages of a model", NW_COMMAND_INFO)

#define NW_COMMAND_DECLARE(name, arguments, summary, bits) nw_status nw_command_##name(int argc, char **argv);
NW_COMMAND_MAP(NW_COMMAND_DECLARE)
#undef NW_COMMAND_DECLARE

/* True if --help or -h is among the arguments. */
bool nw_wants_help(int argc, char **argv);

struct nw_train_options;
/* What `nowait train` with these options would run, as YAML on stdout; then refuses what it would refuse before it
 * looks for data. */
nw_status nw_train_show(const struct nw_train_options *options);
/* Where `nowait train` with these options would run, and the checkpoint that it would go on from, or NULL; both to be
 * freed. For those who start it. `tells`: on stderr what changes where a run goes on. */
nw_status nw_train_place(const struct nw_train_options *options, bool tells, char **run_dir, char **resume);

#endif
