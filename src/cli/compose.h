/*
 * compose.h - runs composed from files of a tree: --configs FILE... --configs.a.b VALUE --suffix TEXT.
 *
 * A file configs/x/y.yaml brings the base files of its folders, configs/_base.yaml and configs/x/_base.yaml, before
 * itself, each at most once. All write into one tree of keys; later writes win, key by key. A name that ends in .py
 * finds its .yaml. Overrides come last.
 *
 * Values are YAML, never code. An unquoted value with a '$' is an expression: references to keys ($train.num_epochs),
 * numbers, + - * / and brackets. Expressions are worked out when all files, overrides and options are in, so what is
 * derived follows what was overridden. Which keys exist, and which option each one sets, is the table of compose_map.c;
 * the keys under `options` are option names.
 *
 * The name of the run spells the composition: paths as a tree, siblings in order joined by + in brackets, the suffix,
 * and .np with the number of workers: [cifar.resnet20+dgc.[wm5+fp16]].e500.np1
 */
#ifndef NW_CLI_COMPOSE_H
#define NW_CLI_COMPOSE_H

#include "cli/settings.h"
#include "cli/yaml.h"

/* A key of the tree, or an item of a list. */
typedef struct nw_key {
    const char *name; /* NULL for an item */
    nw_yaml_kind kind;
    const char *text; /* of a scalar, as written; after nw_key_evaluate its value */
    bool quoted, null;
    const char *where; /* "configs/cifar/_base.yaml:7" or "--configs.train.num_epochs" */
    nw_layer layer;
    int state; /* of the evaluation: 0 not yet, 1 under way, 2 done */
    struct nw_key *parent, *first, *last, *next;
} nw_key;

/* The key at a path of names joined by dots; NULL if there is none. nw_key_make creates it. */
nw_key *nw_key_find(nw_key *root, const char *path);
nw_status nw_key_make(nw_region *region, nw_key *root, const char *path, nw_key **key);
/* "train.num_epochs" */
const char *nw_key_path(nw_region *region, const nw_key *key);
/* Writes a YAML value into a key; maps are merged. */
nw_status nw_key_assign(nw_region *region, nw_key *key, const nw_yaml *value, const char *file, nw_layer layer);

/* Works out the expression in a key, and in those it refers to. */
nw_status nw_key_evaluate(nw_region *region, nw_key *root, nw_key *key);

/* Checks that all keys exist, lets options of the command line into the tree, works out the expressions and sets the
 * options. */
nw_status nw_compose_apply(nw_settings *settings, nw_key *root);

/* An override: key without "--configs.", and its value. */
typedef struct nw_override {
    const char *key, *value;
} nw_override;

/* All of it: reads settings->configs, applies the overrides, sets options, name and printed tree. */
nw_status nw_compose(nw_settings *settings, const nw_override *overrides, int count);

#endif
