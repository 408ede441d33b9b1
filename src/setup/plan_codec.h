/*
 * plan_codec.h - from settings to codecs: which method each tensor has, what is kept of what it loses, how it travels.
 */
#ifndef NW_SETUP_PLAN_CODEC_H
#define NW_SETUP_PLAN_CODEC_H

#include "config/command_options.h"
#include "train/replicas.h"

/* exchange: by which it travels; "": that is not known. update: of the optimizer; NULL: nothing is updated. Refuses what
 * makes no sense, in a sentence. To be freed, also after a failure. */
nw_status nw_plan_codecs(const nw_codec_settings *settings, const char *exchange, const nw_optimizer_settings *update,
                         uint64_t seed, nw_assign_options *options);
void nw_plan_codecs_free(nw_assign_options *options);

/* A table of the tensors of the settings' model with their codecs, as comments, if there are any codecs. The dataset is
 * not read: its classes are 10, and images 3 x 32 x 32, unless options say otherwise. */
nw_status nw_plan_codecs_print(const nw_train_options *options, FILE *out);

/* "topk 0.01 layerwise, memory error", for a line at the start. */
void nw_plan_codecs_describe(const nw_codec_settings *settings, char *text, size_t size);

#endif
