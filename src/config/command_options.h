/*
 * command_options.h - what each command may read: a struct per command, with the groups and single values of its own
 * options and nothing else. Code that reaches for an option of another command does not compile.
 *
 * nw_options_parse makes the settings of a command, nw_X_options_of looks at them as command X does. The structs point
 * into the settings and live as long; they see what is changed there later (nw_settings_replace, nw_settings_name_run).
 * A function that needs one or two groups takes these (const nw_model_settings *), not a command's struct.
 */
#ifndef NW_CONFIG_COMMAND_OPTIONS_H
#define NW_CONFIG_COMMAND_OPTIONS_H

#include "config/options.h"

/* All that decides a training run. */
typedef struct nw_train_options {
    nw_common_settings all;
    nw_job_settings job;
    nw_model_settings net;
    nw_data_settings data;
    nw_training_settings training;
    nw_optimizer_settings update;
    nw_rate_settings rate;
    nw_exchange_settings world;
    nw_codec_settings codec;
    nw_server_settings server;
    nw_delay_settings delays;
    nw_gossip_settings gossip;
    nw_settings *settings; /* that these are part of: origins, notes, config.yaml */
} nw_train_options;
const nw_train_options *nw_train_options_of(const nw_settings *settings);

/* eval and predict look at a run, so they have its options too. */
typedef struct nw_eval_options {
    const nw_train_options *run;
    const char *format, *split; /* table, json; test, val, train */
} nw_eval_options;
nw_eval_options nw_eval_options_of(const nw_settings *settings);

typedef struct nw_predict_options {
    const nw_train_options *run;
    const char *format;
    int top;
} nw_predict_options;
nw_predict_options nw_predict_options_of(const nw_settings *settings);

/* sweep and reproduce only hand options of train on to the processes that they start. */
typedef struct nw_sweep_options {
    const nw_common_settings *all;
    const char *run_name, *format;
    const nw_text_list *grid; /* "lr=0.1,0.2" */
    int seeds;
} nw_sweep_options;
nw_sweep_options nw_sweep_options_of(const nw_settings *settings);

typedef struct nw_reproduce_options {
    const nw_common_settings *all;
    const char *scale; /* tiny, small, paper */
    int seeds;
    bool real, dry_run;
    bool dataset_given; /* --dataset */
} nw_reproduce_options;
nw_reproduce_options nw_reproduce_options_of(const nw_settings *settings);

typedef struct nw_replay_options {
    const nw_settings *settings;
    const nw_common_settings *all;
    int steps;        /* 0: all */
    const char *from; /* "": the beginning */
    bool show;
} nw_replay_options;
nw_replay_options nw_replay_options_of(const nw_settings *settings);

typedef struct nw_launch_options {
    const nw_settings *settings;
    const nw_common_settings *all;
    const nw_launch_settings *launch;
} nw_launch_options;
nw_launch_options nw_launch_options_of(const nw_settings *settings);

typedef struct nw_data_options {
    const nw_common_settings *all;
    double val_ratio;
    int64_t limit; /* images of each split; 0: all */
    int classes;   /* 0: all */
    const char *format, *url, *output;
} nw_data_options;
nw_data_options nw_data_options_of(const nw_settings *settings);

typedef struct nw_info_options {
    const nw_common_settings *all;
    const nw_model_settings *net;
    bool models;
    const char *graph; /* "": none */
} nw_info_options;
nw_info_options nw_info_options_of(const nw_settings *settings);

typedef struct nw_plan_options {
    const nw_common_settings *all;
    const nw_model_settings *net;
    const char *bandwidth, *latency, *overhead; /* with units */
    const char *format, *svg;                   /* svg "": none */
    int ranks, repeats;
    int64_t bucket_bytes;
} nw_plan_options;
nw_plan_options nw_plan_options_of(const nw_settings *settings);

/* Each kind of benchmark gets those of these groups that it has options of. */
typedef struct nw_bench_options {
    const nw_common_settings *all;
    const nw_model_settings *net;
    const nw_data_settings *data;
    const nw_exchange_settings *world;
    const nw_codec_settings *codec;
    const nw_bench_settings *bench;
} nw_bench_options;
nw_bench_options nw_bench_options_of(const nw_settings *settings);

#endif
