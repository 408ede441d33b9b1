/*
 * session.h - what the commands that work with runs and checkpoints share: settings that continue a checkpoint's own,
 * signals, notes, evaluation of a checkpoint.
 */
#ifndef NW_SETUP_SESSION_H
#define NW_SETUP_SESSION_H

#include "base/text.h"
#include "config/command_options.h"
#include "train/run.h"

/* nw_options_parse; where a checkpoint is named (by --resume, or as the first argument of eval and predict) and neither
 * recipe nor configs are, the checkpoint's own config.yaml takes the recipe's place. Commands other than train take its
 * options too, since they look at what it made. */
nw_status nw_session_parse(unsigned command, int argc, char **argv, nw_settings **settings, int *positional);

/* Prints the settings' notes to stderr: what runs is not just what was typed. */
void nw_session_notes(const nw_settings *settings);

/* SIGINT, SIGTERM and SIGUSR1 set a flag; another one, more than a second later, ends the process. A reader
 * of the output that goes away does not. */
void nw_session_catch_signals(void);
const volatile sig_atomic_t *nw_session_stop(void);

/* The text of config.yaml. */
nw_status nw_session_config_text(const nw_settings *settings, nw_text *text);

/* When and where a run is made; *record, which is filled with it, points into it. */
typedef struct nw_session_origin {
    char started[32], cpu[128], host[128];
} nw_session_origin;
void nw_session_find_origin(nw_session_origin *origin, nw_run_record *record);

/* Who hears of a run, as the settings say; `shows`: progress goes to stderr. */
nw_observe_options nw_session_observe(const nw_job_settings *job, const char *run_dir, bool shows);

/* A network with the weights of a checkpoint: of their average where it has one, which *averaged tells. To be freed,
 * also after a failure. */
nw_status nw_session_load(const char *checkpoint, const nw_net_options *options, nw_net **net, bool *averaged);

/* Evaluates a checkpoint of a run and prints the result to stdout. */
nw_status nw_session_evaluate(const nw_eval_options *options, const char *checkpoint);

/* Help for a command with topics; of one topic if it is named behind --help. */
nw_status nw_session_print_help(unsigned command, int argc, char **argv);

#endif
