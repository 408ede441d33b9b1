/* command.h - the sub-commands. Each gets the arguments behind its name and returns a status; main prints failures. */
#ifndef NW_CLI_COMMAND_H
#define NW_CLI_COMMAND_H

#include "base/status.h"

nw_status nw_command_bench(int argc, char **argv);
nw_status nw_command_data(int argc, char **argv);
nw_status nw_command_eval(int argc, char **argv);
nw_status nw_command_help(int argc, char **argv);
nw_status nw_command_info(int argc, char **argv);
nw_status nw_command_launch(int argc, char **argv);
nw_status nw_command_predict(int argc, char **argv);
nw_status nw_command_replay(int argc, char **argv);
nw_status nw_command_reproduce(int argc, char **argv);
nw_status nw_command_sweep(int argc, char **argv);
nw_status nw_command_train(int argc, char **argv);

/* True if --help or -h is among the arguments. */
bool nw_wants_help(int argc, char **argv);

struct nw_settings;
/* Where `nowait train` with these settings would run, and the checkpoint that it would go on from, or NULL; both to be
 * freed. For those who start it. */
nw_status nw_train_place(const struct nw_settings *settings, char **run_dir, char **resume);

/* `nowait train --dataset libsvm`: logistic regression by threads that share the weights. */
nw_status nw_train_logit(const struct nw_settings *settings);

#endif
