/*
 * Folder src/setup: settings into objects: datasets, networks, runs, the world of ranks, sessions with a checkpoint.
 * Combinations that make no sense are refused here. May include: base, compute, param, data, net, observe, train,
 * launch, config.
 *
 * plan.h - from settings, which are words and numbers, to what the library wants: datasets, models, optimizers,
 * schedules, runs. Every combination that makes no sense is refused here, in a sentence that names the options.
 */
#ifndef NW_SETUP_PLAN_H
#define NW_SETUP_PLAN_H

#include "config/command_options.h"
#include "setup/world.h"
#include "train/run.h"

/* Refuses what can be known to be wrong before any data are read: what this version lacks (nw_settings_check), names
 * and paths that are not there, options that do not go together. The model gets its usual spelling. */
nw_status nw_plan_check(const nw_train_options *options);

/* The dataset that the settings name, with its first `classes` classes (0: all). */
nw_status nw_plan_dataset(const nw_common_settings *all, const nw_data_settings *data, int classes,
                          nw_dataset **dataset);

/* Augmentation for training, or (augmented false) what is done to images that are only looked at. mean_image: for
 * --normalise mean-image, otherwise NULL. */
nw_status nw_plan_augment(const nw_data_settings *data, const nw_dataset *dataset, bool augmented,
                          const float *mean_image, nw_augment *augment);

/* What the settings say of the model beyond its name. Texts point into settings. */
nw_status nw_plan_variant(const nw_model_settings *net, nw_model_variant *variant);

/* The network without its images and variant, for those who have no dataset. */
nw_net_options nw_plan_net_alone(const nw_common_settings *all, const nw_model_settings *net, int batch_size);
/* The network for images that the augmentation makes out of the dataset. batch_size images at most. */
nw_status nw_plan_net(const nw_train_options *options, const nw_dataset *dataset, const nw_augment *augment,
                      int batch_size, nw_net_options *net);

/* The exchange of a rank of a world (NULL: alone), without its codecs; and what of its options makes no sense. */
nw_exchange_options nw_plan_exchange(const nw_train_options *options, const nw_world *world);
nw_status nw_plan_check_exchange(const nw_train_options *options);
nw_status nw_plan_optimizer(const nw_optimizer_settings *settings, nw_optimizer_options *optimizer);

/* Replicas whose batches make one update. */
int nw_plan_replicas(const nw_train_options *options, const nw_world *world);
/* Everything that decides the numbers of a run in a world (NULL: alone), which outlives the options. Texts point into
 * settings. What the caller adds: directories, texts, observers, stop, watch. */
nw_status nw_plan_run(const nw_train_options *options, const nw_dataset *dataset, const nw_world *world,
                      nw_run_options *run);

void nw_plan_free(nw_run_options *run);

#endif
