/*
 * compose.h - runs composed from files: --configs FILE... --configs.a.b VALUE --suffix TEXT.
 *
 * A file configs/x/y.yaml brings the base files of its folders, configs/_base.yaml and configs/x/_base.yaml, before
 * itself, each at most once. They are files of options (option_file.h); later values win, key by key. A name that ends in
 * .py finds its .yaml.
 *
 * --configs.train.num_epochs 500 is how the deep-gradient-compression code spells --max-epoch 500: override.c has the
 * table of its keys. Overrides win over files.
 *
 * The name of the run spells the composition: paths as a tree, siblings in order joined by + in brackets, the suffix,
 * and .np with the number of workers: [cifar.resnet20+dgc.[wm5+fp16]].e500.np1
 */
#ifndef NW_CONFIG_COMPOSE_H
#define NW_CONFIG_COMPOSE_H

#include "config/settings.h"

/* Sets the options of the files settings->configs, and the composed name. */
nw_status nw_compose(nw_settings *settings);

/* An override: key without "--configs.", and its value. */
typedef struct nw_override {
    const char *key, *value;
} nw_override;

/* What a key does by itself, and then what depends on other options, when all of those are in. */
typedef enum nw_override_pass { NW_OVERRIDE_PLAIN, NW_OVERRIDE_DEPENDENT } nw_override_pass;
nw_status nw_override_apply(nw_settings *settings, const nw_override *overrides, int count, nw_override_pass pass);

#endif
