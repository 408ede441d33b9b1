/*
 * compose_map.c - the keys of a composed tree, and the option that each one sets; see compose.h.
 *
 * The keys are those of the deep-gradient-compression configurations. A key that is none of them, nor begins with
 * `options.`, is an error that names the nearest. `x.func` and a plain value at `x` mean the same.
 */
#include "cli/compose.h"

#include "base/suggest.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum meaning {
    OPTION,      /* the value is the option's */
    RATIO,       /* above 1 it is one over the ratio */
    MILESTONES,  /* counted from the end of warm-up */
    DATASET,     /* cifar or imagenet; with dataset.num_classes */
    COMPRESSION, /* none, fp16, dgc */
    NO_EFFECT,   /* understood; says what holds anyway, or is used by another key */
    ONLY_NULL,   /* must stay empty */
} meaning;

static const struct row {
    const char *path, *option;
    meaning meaning;
    const char *when_null; /* what an empty value means; NULL: the default */
} rows[] = {
    {"seed", "seed", OPTION, NULL},
    {"deterministic", "deterministic", OPTION, NULL},
    {"device", "devices", OPTION, NULL},
    {"data.num_threads_per_worker", "workers", OPTION, NULL},
    {"train.dgc", NULL, NO_EFFECT, NULL},
    {"train.compression", NULL, COMPRESSION, NULL},
    {"train.compression.func", NULL, COMPRESSION, NULL},
    {"train.criterion", NULL, NO_EFFECT, NULL},
    {"train.criterion.func", NULL, NO_EFFECT, NULL},
    {"train.criterion.reduction", "loss-reduction", OPTION, NULL},
    {"train.criterion.label_smoothing", "label-smoothing", OPTION, NULL},
    {"train.optimizer", "optimizer", OPTION, NULL},
    {"train.optimizer.func", "optimizer", OPTION, NULL},
    {"train.optimizer.lr", "lr", OPTION, NULL},
    {"train.optimizer.momentum", "momentum", OPTION, NULL},
    {"train.optimizer.weight_decay", "weight-decay", OPTION, NULL},
    {"train.optimizer.nesterov", "nesterov", OPTION, NULL},
    {"train.optimizer.dampening", "dampening", OPTION, NULL},
    {"train.optimize_bn_separately", "optimize-bn-separately", OPTION, NULL},
    {"train.num_epochs", "max-epoch", OPTION, NULL},
    {"train.batch_size", "batch-size", OPTION, NULL},
    {"train.num_batches_per_step", "accumulation-steps", OPTION, NULL},
    {"train.schedule_lr_per_epoch", "schedule-lr-per-epoch", OPTION, NULL},
    {"train.warmup_lr_epochs", "warm-up", OPTION, NULL},
    {"train.scheduler", "scheduler", OPTION, "constant"},
    {"train.scheduler.func", "scheduler", OPTION, "constant"},
    {"train.scheduler.t_max", "t-max", OPTION, NULL},
    {"train.scheduler.T_max", "t-max", OPTION, NULL},
    {"train.scheduler.milestones", "lr-decay-milestones", MILESTONES, NULL},
    {"train.scheduler.gamma", "lr-decay-fact", OPTION, NULL},
    {"train.metric", "metric", OPTION, "none"},
    {"train.compression.compress_ratio", "ratio", RATIO, NULL},
    {"train.compression.sample_ratio", "sample-ratio", OPTION, NULL},
    {"train.compression.strided_sample", "strided-sample", OPTION, NULL},
    {"train.compression.compress_upper_bound", "compress-upper-bound", OPTION, NULL},
    {"train.compression.compress_lower_bound", "compress-lower-bound", OPTION, NULL},
    {"train.compression.max_adaptation_iters", "max-adaptation-iters", OPTION, NULL},
    {"train.compression.resample", "resample", OPTION, NULL},
    {"train.compression.fp16_values", "fp16-values", OPTION, NULL},
    {"train.compression.int32_indices", "int32-indices", OPTION, NULL},
    {"train.compression.warmup_epochs", "ratio-warm-up", OPTION, NULL},
    {"train.compression.warmup_coeff", "ratio-warm-up-list", OPTION, NULL},
    {"train.compression.memory.func", NULL, NO_EFFECT, NULL},
    {"train.compression.memory.momentum", "memory-momentum", OPTION, NULL},
    {"train.compression.memory.nesterov", "memory-nesterov", OPTION, NULL},
    {"train.compression.memory.gradient_clipping", "memory-clip-norm", OPTION, NULL},
    {"train.compression.memory.momentum_masking", "momentum-masking", OPTION, NULL},
    {"dataset", NULL, DATASET, NULL},
    {"dataset.func", NULL, DATASET, NULL},
    {"dataset.root", "data-dir", OPTION, NULL},
    {"dataset.num_classes", NULL, NO_EFFECT, NULL},
    {"dataset.image_size", "crop", OPTION, NULL},
    {"dataset.val_ratio", "val-ratio", OPTION, NULL},
    {"dataset.extra_train_transforms", NULL, ONLY_NULL, NULL},
    {"model", "model", OPTION, NULL},
    {"model.func", "model", OPTION, NULL},
    {"model.num_classes", NULL, NO_EFFECT, NULL},
    {"model.zero_init_residual", "last-bn-zero-init", OPTION, NULL},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* Keys under these are free: options by name; meters, since top-1 and top-5 are always taken. */
static const char options_prefix[] = "options.", meters_prefix[] = "train.meters.";

typedef struct applying {
    nw_settings *settings;
    nw_region *region;
    nw_key *root;
} applying;

static bool begins(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

static const struct row *find_row(const char *path)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].path, path) == 0) return &rows[i];
    return NULL;
}

static nw_status unknown_key(const nw_key *key, const char *path)
{
    const char *names[ROWS];
    for (int i = 0; i < ROWS; i++) names[i] = rows[i].path;
    nw_status status = key->layer == NW_LAYER_OVERRIDE ? NW_E_ARGUMENT : NW_E_FILE;
    return NW_FAIL(status, "%s: there is no key '%s'; the nearest is '%s'", key->where, path,
                   nw_suggest(path, names, ROWS));
}

static nw_status set_option(applying *a, const nw_key *key, const char *option, const char *text)
{
    nw_option_match match = nw_option_find(option, a->settings->memory->command);
    if (match.index < 0) return unknown_key(key, nw_key_path(a->region, key));
    const nw_option *o = nw_option_at(match.index);
    NW_FAIL_IF(o->field == NW_AT(recipe) || o->field == NW_AT(configs) || o->field == NW_AT(print_config), NW_E_FILE,
               "%s: %s belongs on the command line", key->where, o->name);
    NW_FAIL_IF(key->kind == NW_YAML_LIST && o->kind < NW_OPTION_INTS, NW_E_FILE, "%s: %s takes one value, not a list",
               key->where, nw_key_path(a->region, key));
    nw_setting_source source = {key->layer, key->where, nw_region_print(a->region, "%s: ", key->where)};
    NW_TRY_MEMORY(source.where);
    return nw_settings_set_match(a->settings, match, nw_key_path(a->region, key), text, &source);
}

/* A list as lines, a scalar as it is. */
static nw_status value_text(applying *a, const nw_key *key, const char **text)
{
    *text = key->text;
    if (key->kind != NW_YAML_LIST) return NW_OK;
    *text = "";
    for (const nw_key *k = key->first; k; k = k->next) {
        NW_FAIL_IF(k->kind != NW_YAML_SCALAR, NW_E_FILE, "%s: %s takes plain values in its list", key->where,
                   nw_key_path(a->region, key));
        *text = nw_region_print(a->region, "%s%s%s", *text, **text ? "\n" : "", k->text);
        NW_TRY_MEMORY(*text);
    }
    return NW_OK;
}

static double number_at(const applying *a, const char *path, double fallback)
{
    const nw_key *key = nw_key_find(a->root, path);
    return key && key->kind == NW_YAML_SCALAR && *key->text ? strtod(key->text, NULL) : fallback;
}

static nw_status set_milestones(applying *a, const nw_key *key, const struct row *row)
{
    double warm_up = number_at(a, "train.warmup_lr_epochs", 0);
    const char *text = "";
    NW_FAIL_IF(key->kind != NW_YAML_LIST, NW_E_FILE, "%s: %s takes a list: [25, 55, 75]", key->where, row->path);
    for (const nw_key *k = key->first; k; k = k->next) {
        char *end, number[32];
        double value = strtod(k->text, &end);
        NW_FAIL_IF(end == k->text || *end, NW_E_FILE, "%s: %s takes numbers, not '%s'", key->where, row->path, k->text);
        nw_number_print(value + warm_up, number);
        text = nw_region_print(a->region, "%s%s%s", text, *text ? "," : "", number);
        NW_TRY_MEMORY(text);
    }
    return set_option(a, key, row->option, text);
}

static nw_status set_dataset(applying *a, const nw_key *key)
{
    double classes = number_at(a, "dataset.num_classes", 0);
    char text[32];
    nw_number_print(classes, text);
    if (strcasecmp(key->text, "cifar") == 0) {
        NW_FAIL_IF(classes != 0 && classes != 10 && classes != 100, NW_E_FILE,
                   "%s: CIFAR has 10 or 100 classes, not %s (dataset.num_classes)", key->where, text);
        return set_option(a, key, "dataset", classes == 100 ? "cifar100" : "cifar10");
    }
    NW_TRY(set_option(a, key, "dataset", key->text));
    return classes != 0 && classes != 1000 ? set_option(a, key, "classes", text) : NW_OK;
}

static nw_status set_compression(applying *a, const nw_key *key)
{
    bool none = strcasecmp(key->text, "none") == 0;
    NW_TRY(set_option(a, key, "method", none ? "none" : key->text));
    return set_option(a, key, "compress", none ? "none" : "layerwise");
}

static nw_status set_ratio(applying *a, const nw_key *key, const struct row *row)
{
    char *end, number[32];
    double value = strtod(key->text, &end);
    NW_FAIL_IF(end == key->text || *end || !(value > 0), NW_E_FILE, "%s: %s takes a number above 0, not '%s'",
               key->where, row->path, key->text);
    nw_number_print(value > 1 ? 1 / value : value, number);
    return set_option(a, key, row->option, number);
}

static nw_status set_key(applying *a, nw_key *key, const char *path)
{
    const struct row *row = find_row(path);
    const char *text;
    if (key->layer == NW_LAYER_COMMAND || key->kind == NW_YAML_MAP || begins(path, meters_prefix)) return NW_OK;
    if (row && row->meaning == ONLY_NULL)
        NW_FAIL_IF(!key->null, NW_E_FILE, "%s: %s has no counterpart here; leave it empty", key->where, path);
    if (key->null) return row && row->when_null ? set_option(a, key, row->option, row->when_null) : NW_OK;
    NW_TRY(value_text(a, key, &text));
    if (!row) return set_option(a, key, path + strlen(options_prefix), text);
    if (row->meaning != OPTION && row->meaning != MILESTONES)
        NW_FAIL_IF(key->kind != NW_YAML_SCALAR, NW_E_FILE, "%s: %s takes one value, not a list", key->where, path);
    switch (row->meaning) {
    case OPTION:
        return set_option(a, key, row->option, text);
    case RATIO:
        return set_ratio(a, key, row);
    case MILESTONES:
        return set_milestones(a, key, row);
    case DATASET:
        return set_dataset(a, key);
    case COMPRESSION:
        return set_compression(a, key);
    case NO_EFFECT:
    case ONLY_NULL:
        break;
    }
    return NW_OK;
}

/* Visits every value and every empty group of the tree. The depth is that of the YAML files, which is limited. */
static nw_status visit(applying *a, nw_key *key, nw_status (*what)(applying *a, nw_key *key, const char *path))
{
    for (nw_key *k = key->first; k; k = k->next) {
        if (k->kind == NW_YAML_MAP && k->first)
            NW_TRY(visit(a, k, what));
        else
            NW_TRY(what(a, k, nw_key_path(a->region, k)));
    }
    return NW_OK;
}

static nw_status check_key(applying *a, nw_key *key, const char *path)
{
    (void)a;
    bool known = find_row(path) || begins(path, meters_prefix) || begins(path, options_prefix);
    for (int i = 0; i < ROWS && key->kind == NW_YAML_MAP; i++)
        known = known || (begins(rows[i].path, path) && rows[i].path[strlen(path)] == '.');
    return known ? NW_OK : unknown_key(key, path);
}

static nw_status evaluate_key(applying *a, nw_key *key, const char *path)
{
    (void)path;
    return nw_key_evaluate(a->region, a->root, key);
}

/* What the command line says holds in the tree too, so that derived values follow it. */
static void let_options_in(applying *a)
{
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].meaning != OPTION || nw_option_find(rows[i].option, a->settings->memory->command).translation)
            continue;
        const nw_slot *slot = nw_settings_slot(a->settings, rows[i].option);
        nw_key *key = nw_key_find(a->root, rows[i].path);
        if (!slot || slot->layer != NW_LAYER_COMMAND || !key || key->kind == NW_YAML_MAP) continue;
        key->kind = NW_YAML_SCALAR;
        key->first = key->last = NULL;
        key->text = slot->text;
        key->quoted = key->null = false;
        key->layer = NW_LAYER_COMMAND;
        key->where = slot->origin;
    }
}

nw_status nw_compose_apply(nw_settings *s, nw_key *root)
{
    applying a = {s, &s->memory->region, root};
    NW_TRY(visit(&a, root, check_key));
    let_options_in(&a);
    NW_TRY(visit(&a, root, evaluate_key));
    return visit(&a, root, set_key);
}
