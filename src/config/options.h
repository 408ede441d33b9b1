/*
 * Folder src/config: words into settings: the option table, YAML, recipes, files of clusters and faults. It only reads
 * and checks; settings become objects in src/setup. May include: base, codec, net, sim, train.
 *
 * options.h - what options say, by purpose, and how their values come from the command line, files and defaults.
 *
 * One table (option_table.c) says of every option its name, other spellings, type, range, default, topic, help, the
 * commands that take it and where its value lives. Parsing, YAML keys, help, completion, the manual page, validation
 * and config.yaml are made from it. A command reads its values through a struct of its own (command_options.h).
 *
 * On the command line dashes and underscores are the same. A switch takes a bare flag, --x=False, --x True or --no-x.
 * Lists take values separated by spaces or commas. The last of repeated options wins. `--` ends the options. In YAML a
 * key is the option's name with underscores; files are flat.
 *
 * Where several places set an option, the later in this list wins, whatever their order on the command line:
 *
 *   default < defaults set (--defaults) < recipe (--recipe) < --configs files in order < --configs.a.b < options
 *
 * Every value remembers its origin. All texts and lists belong to the settings until nw_settings_free.
 */
#ifndef NW_CONFIG_OPTIONS_H
#define NW_CONFIG_OPTIONS_H

#include "base/status.h"

#include <stdio.h>

/* Commands as bits, for the table's column. */
enum {
    NW_COMMAND_INFO = 1 << 0,
    NW_COMMAND_BENCH_TRAIN = 1 << 1,
    NW_COMMAND_BENCH_CONV = 1 << 2,
    NW_COMMAND_BENCH_LOADER = 1 << 3,
    NW_COMMAND_TRAIN = 1 << 4,
    NW_COMMAND_EVAL = 1 << 5,
    NW_COMMAND_PREDICT = 1 << 6,
    NW_COMMAND_DATA = 1 << 7,
    NW_COMMAND_SWEEP = 1 << 8,
    NW_COMMAND_REPRODUCE = 1 << 9,
    NW_COMMAND_BENCH_CODEC = 1 << 10,
    NW_COMMAND_LAUNCH = 1 << 11,
    NW_COMMAND_BENCH_EXCHANGE = 1 << 12,
    NW_COMMAND_REPLAY = 1 << 13,
    NW_COMMAND_PLAN = 1 << 14,
    NW_COMMAND_PEER = 1 << 15, /* no command: a program that computes gradients itself (src/peer) */
    NW_COMMAND_BENCH = NW_COMMAND_BENCH_TRAIN | NW_COMMAND_BENCH_CONV | NW_COMMAND_BENCH_LOADER |
                       NW_COMMAND_BENCH_CODEC | NW_COMMAND_BENCH_EXCHANGE,
    NW_COMMAND_ALL = (1 << 15) - 1,
};

typedef struct nw_int_list {
    int count;
    const int *at;
} nw_int_list;

typedef struct nw_number_list {
    int count;
    const double *at;
} nw_number_list;

typedef struct nw_text_list {
    int count;
    const char *const *at;
    const char *lines; /* of an option: all of them, a line each; "": none */
} nw_text_list;

typedef struct nw_knot {
    double x, y;
} nw_knot;

typedef struct nw_knots {
    int count;
    const nw_knot *at;
} nw_knots;

/* A switch that may be left to the dataset. */
typedef enum nw_switch { NW_SWITCH_AUTO = -1, NW_SWITCH_OFF = 0, NW_SWITCH_ON = 1 } nw_switch;

/* Groups of options by purpose. Texts are never NULL unless said; "" means none. */

/* Every command. */
typedef struct nw_common_settings {
    const char *run_dir; /* where the run leaves its files; "": runs/<run_name> */
    const char *data_dir;
    int64_t seed;
    int threads; /* 0: all CPUs this process may use */
    bool quiet;
    int epochs;
    int64_t max_steps; /* 0: none */
} nw_common_settings;

/* train: where a run comes from, and what it leaves. */
typedef struct nw_job_settings {
    const char *run_name; /* made from name, suffix, recipe or composition; never empty */
    const char *name, *suffix;
    const char *recipe, *defaults; /* as resolved: "" and "global" where none */
    nw_text_list configs;
    bool git, tensorboard, print_config, evaluate;
    int print_freq;
    const char *metrics_file, *log_dir;   /* "": in the run directory */
    const char *path_logs;                /* of results.csv and com_logs; "": they are not written */
    const char *resume, *name_checkpoint; /* "" none */
    int64_t checkpoint_every;             /* steps; 0: after every epoch */
    int keep;
} nw_job_settings;

/* Commands that make a network. */
typedef struct nw_model_settings {
    const char *model, *stem, *init_scheme, *init;
    int width, classes, image_size, n_layers, hidden_size; /* 0: the model's or dataset's own */
    double dropout;                                        /* negative: the model's own */
    bool last_bn_zero_init, compat_ref;
    nw_int_list channels;                       /* resnet9: prep, layer1, layer2, layer3; empty: its own */
    nw_text_list residual_layers, extra_layers; /* resnet9; "none" alone: no layer */
    double output_weight;                       /* resnet9 and its kind; 0: the model's own */
    const char *precision;                      /* f32, bf16, auto: nw_settings_precision */
    const char *convolution;                    /* auto, direct */
    int batch_size;
} nw_model_settings;

/* Commands that read images. */
typedef struct nw_data_settings {
    const char *dataset;
    double val_ratio;
    int64_t limit; /* images of each split; 0: all */
    bool download, drop_last;
    const char *normalise;         /* auto: the dataset's own */
    int pad, cutout, crop, resize; /* -1: the dataset's own */
    const char *pad_mode;          /* auto, zero, reflect */
    int flip, resized_crop;        /* nw_switch */
    int workers;                   /* threads of the loader */
    const char *sampling;          /* shard, replicate */
    const char *epoch_of;          /* all, each */
    bool non_iid_data;
    double dirichlet_alpha;
} nw_data_settings;

/* train, as all that follow up to delays: the length, and when to evaluate. */
typedef struct nw_training_settings {
    int test_batch_size, train_eval_batch_size; /* 0: as batch_size */
    int start_epoch, max_batches, shorten;      /* 0 (the last two): none */
    int eval_every;
    bool train_metrics, evaluate_first;
    const char *metric; /* what "best" means: test_top1, test_top5, test_loss, val_top1, val_top5, val_loss, none */
    const char *on_divergence; /* stop, rollback, continue */
    double divergence_factor, rollback_lr;
    int max_rollbacks;
    const char *tta;           /* none, flip */
    double ema_decay;          /* 0: no average */
    int ema_every, ema_epochs; /* steps between two takes; only the last epochs (0: all) */
    double label_smoothing;
    const char *loss_reduction; /* mean, sum */
    const char *algorithm;      /* resolved: s1 to s6 and a1 to a6, as the method flags or --algorithm say */
} nw_training_settings;

typedef struct nw_optimizer_settings {
    const char *optimizer, *decay_filter; /* filter: all, no-norm-bias, no-1d, no-norm */
    double lr, momentum, dampening, beta1, beta2, eps, weight_decay, clip_norm, clip_value; /* clips: 0 is none */
    bool nesterov;
    int amsgrad; /* nw_switch; auto: the rule's own */
    int64_t freeze_variance; /* adam: after so many updates; 0: never */
    double lars_trust, lars_eps;
    bool lars_clip;
    nw_number_list box; /* apam-paper: least and greatest weight; empty: none */
    int accumulation_steps;
    bool accumulation_averaging;
} nw_optimizer_settings;

/* The learning rate over time. */
typedef struct nw_rate_settings {
    const char *scheduler;
    double warm_up;      /* epochs */
    double warm_up_from; /* share of the rate to begin with; negative: one over the number of workers */
    bool lr_scaling, goyal_lr_scaling, replica_lr_scaling, use_linear_scaling, schedule_lr_per_epoch;
    nw_int_list milestones; /* absolute epochs */
    double lr_decay_fact;
    nw_knots lr_knots; /* (epoch, multiple of lr) */
    double t_max;      /* cosine-annealing: half period in epochs; 0: the epochs after warm-up */
    double lr_max;     /* inverse-sqrt; 0: none */
} nw_rate_settings;

/* Several replicas. */
typedef struct nw_exchange_settings {
    const char *exchange, *cluster, *faults, *calibrate, *bn_sync; /* "" (cluster, faults, calibrate): none */
    const char *outer_optimizer, *outer_group; /* sgd, nesterov, adam; all, pairs */
    int sync_every, fragments;
    double outer_lr, outer_momentum; /* -1: that of the rule */
    int world_size, virtual_ranks, delay, recalibrate_batches;     /* virtual_ranks 0: none */
    int64_t bucket_bytes, compare_every, trace_events;
    double timeout; /* seconds; 0: none */
    bool trace, record_events;
} nw_exchange_settings;

/* Averaging in pairs. */
typedef struct nw_gossip_settings {
    const char *graph_topology, *pairing; /* pairing: handshake, first-come, scheduled */
    const char *values; /* auto, difference, plain */
    double rate_com, consensus_step, modulo_bound; /* modulo_bound 0: none */
    bool apply_acid, deterministic_coms, deterministic_neighbor;
    nw_number_list acid_params; /* eta, alpha; empty: of the graph */
    int64_t consensus_every;    /* updates; 0: some in an epoch */
    const char *log_averagings; /* of a program: a folder; "": none */
} nw_gossip_settings;

/* What travels between them; bench exchange has these too. */
typedef struct nw_codec_settings {
    const char *method;       /* one of codec.h; dgc: topk with memory dgc; onebit: sign with memory momentum */
    const char *compress;     /* none, layerwise, bucket, entiremodel */
    const char *collective;   /* auto, gather, owners */
    const char *memory;       /* none, error, ef21, momentum */
    const char *values;       /* f32, fp16, bf16, or a number of bits */
    const char *selection;    /* exact, sampled */
    const char *norm;         /* l2, max */
    const char *randomk_seed; /* shared, private */
    nw_text_list codec_for;   /* "layer1.*=topk:0.1" */
    double ratio, threshold, randk;
    int qstates, bucket, powersgd_rank, modulo_bits;
    int64_t dense_below;
    bool scaled, sparsification;
    double sample_ratio, compress_upper_bound, compress_lower_bound;
    int max_adaptation_iters;
    bool strided_sample, resample;
    int warmup_epochs;           /* -1: none */
    nw_number_list warmup_coeff; /* empty: geometric */
    double memory_momentum, memory_clip_norm;
    bool memory_nesterov, momentum_masking;
} nw_codec_settings;

typedef struct nw_server_settings {
    const char *communication, *staleness, *server_correction;
    int servers, in_flight, server_threads;
    int64_t max_staleness, server_memory;
    double dc_lambda;
    bool server_computes, global_batch;
} nw_server_settings;

/* Of one replica. */
typedef struct nw_delay_settings {
    int max_delay, delay_workers; /* models that gradients are taken at, 1: the newest alone */
    const char *delay_law;        /* uniform, fixed, heavy, worker */
    double delay_tail;
} nw_delay_settings;

typedef struct nw_bench_settings {
    const char *format; /* table, json */
    int steps, repeats, vectors;
    bool profile, fused;
} nw_bench_settings;

typedef struct nw_launch_settings {
    int ranks, max_restarts;
    double restart_delay; /* seconds */
    const char *launcher; /* auto, mpirun, srun */
    const char *hosts, *launcher_args;
    bool dry_run;
} nw_launch_settings;

/* All options of one command with their values and origins; only src/config sees inside (settings.h). */
typedef struct nw_settings nw_settings;

/* Makes settings from defaults, files and the arguments of one command. Positional arguments are moved to the front of
 * argv and counted. Whatever happens, nw_settings_free may follow. */
nw_status nw_options_parse(unsigned command, int argc, char **argv, nw_settings **settings, int *positional);
void nw_settings_free(nw_settings **settings); /* leaves NULL */

/* Makes run_name anew for a world of so many ranks, which is part of a composed run's name. */
nw_status nw_settings_name_run(nw_settings *settings, int ranks);

/* Refuses what this version understands but cannot do yet (exchanges, codecs, pipelines), in one sentence. Commands
 * that train call it before they begin; --print-config does without. */
nw_status nw_settings_check(nw_settings *settings);

/* What the user should be told once, on stderr: options that have no effect here, what was scaled, which recipe. */
int nw_settings_notes(const nw_settings *settings);
const char *nw_settings_note(const nw_settings *settings, int index);

/* The value of any option by name ("rate-com"), as config.yaml spells it; NULL if the command has no such option. */
const char *nw_settings_value(const nw_settings *settings, const char *option);
/* Where it came from, in words: "default", "defaults petra", "recipes/x.yaml:7", "command line". */
const char *nw_settings_origin(const nw_settings *settings, const char *option);
/* True unless it is a plain default. */
bool nw_settings_is_set(const nw_settings *settings, const char *option);

/* config.yaml: every option of the command with its value and, as a comment, its origin. Reading it with --recipe gives
 * the same settings. */
nw_status nw_config_write(const nw_settings *settings, FILE *out);
/* The start banner: what is not a plain default, a line each. */
void nw_settings_print(const nw_settings *settings, FILE *out);

/* Gives an option another value without changing who set it; `why` is added to its origin. */
nw_status nw_settings_replace(nw_settings *settings, const char *option, const char *text, const char *why);

/* From a text that the table has checked. */
nw_precision nw_settings_precision(const nw_model_settings *net);
bool nw_settings_direct(const nw_model_settings *net); /* no convolution by Winograd's algorithm */

/* Help. Without topic: the topics and the main options, within a screen. An unknown topic names the nearest. */
nw_status nw_options_help_topic(unsigned command, const char *topic, FILE *out);
/* One line an option, for all that `command` takes; for commands with few. */
void nw_options_help(unsigned command, FILE *out);

#endif
