/*
 * override.c - the keys of the deep-gradient-compression configurations, and the option that each one sets; see
 * compose.h.
 *
 * Values are YAML, never code; None and an empty value mean the default. A key that is none of these, nor begins with
 * `options.` (an option by its name), is an error that names the nearest.
 */
#include "config/compose.h"

#include "base/suggest.h"
#include "config/option_file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct row;
typedef struct overriding {
    nw_settings *settings;
    const char *name; /* "--configs.train.num_epochs" */
    const struct row *row;
} overriding;

typedef nw_status setter(const overriding *o, const char *text);
static setter set_ratio, set_milestones, set_dataset, set_classes, set_compression, refuse;

static const struct row {
    const char *key, *option; /* no option, no setter: understood, without effect */
    setter *set;              /* NULL: the value is the option's */
    const char *when_null;    /* NULL: the option's default */
} rows[] = {
    {"seed", "seed", NULL, NULL},
    {"deterministic", "deterministic", NULL, NULL},
    {"device", "devices", NULL, NULL},
    {"data.num_threads_per_worker", "workers", NULL, NULL},
    {"train.dgc", NULL, NULL, NULL},
    {"train.meters", NULL, NULL, NULL}, /* top-1 and top-5 are always taken */
    {"train.compression", "method", set_compression, NULL},
    {"train.compression.func", "method", set_compression, NULL},
    {"train.criterion", NULL, NULL, NULL},
    {"train.criterion.func", NULL, NULL, NULL},
    {"train.criterion.reduction", "loss-reduction", NULL, NULL},
    {"train.criterion.label_smoothing", "label-smoothing", NULL, NULL},
    {"train.optimizer", "optimizer", NULL, NULL},
    {"train.optimizer.func", "optimizer", NULL, NULL},
    {"train.optimizer.lr", "lr", NULL, NULL},
    {"train.optimizer.momentum", "momentum", NULL, NULL},
    {"train.optimizer.weight_decay", "weight-decay", NULL, NULL},
    {"train.optimizer.nesterov", "nesterov", NULL, NULL},
    {"train.optimizer.dampening", "dampening", NULL, NULL},
    {"train.optimize_bn_separately", "optimize-bn-separately", NULL, "false"},
    {"train.num_epochs", "max-epoch", NULL, NULL},
    {"train.batch_size", "batch-size", NULL, NULL},
    {"train.num_batches_per_step", "accumulation-steps", NULL, NULL},
    {"train.schedule_lr_per_epoch", "schedule-lr-per-epoch", NULL, NULL},
    {"train.warmup_lr_epochs", "warm-up", NULL, NULL},
    {"train.scheduler", "scheduler", NULL, "constant"},
    {"train.scheduler.func", "scheduler", NULL, "constant"},
    {"train.scheduler.t_max", "t-max", NULL, NULL},
    {"train.scheduler.T_max", "t-max", NULL, NULL},
    {"train.scheduler.milestones", "lr-decay-milestones", set_milestones, NULL},
    {"train.scheduler.gamma", "lr-decay-fact", NULL, NULL},
    {"train.metric", "metric", NULL, "none"},
    {"train.compression.compress_ratio", "ratio", set_ratio, NULL},
    {"train.compression.sample_ratio", "sample-ratio", NULL, NULL},
    {"train.compression.strided_sample", "strided-sample", NULL, NULL},
    {"train.compression.compress_upper_bound", "compress-upper-bound", NULL, NULL},
    {"train.compression.compress_lower_bound", "compress-lower-bound", NULL, NULL},
    {"train.compression.max_adaptation_iters", "max-adaptation-iters", NULL, NULL},
    {"train.compression.resample", "resample", NULL, NULL},
    {"train.compression.fp16_values", "fp16-values", NULL, "false"},
    {"train.compression.int32_indices", "int32-indices", NULL, NULL},
    {"train.compression.warmup_epochs", "ratio-warm-up", NULL, NULL},
    {"train.compression.warmup_coeff", "ratio-warm-up-list", NULL, NULL},
    {"train.compression.memory.func", NULL, NULL, NULL},
    {"train.compression.memory.momentum", "memory-momentum", NULL, NULL},
    {"train.compression.memory.nesterov", "memory-nesterov", NULL, NULL},
    {"train.compression.memory.gradient_clipping", "memory-clip-norm", NULL, NULL},
    {"train.compression.memory.momentum_masking", "momentum-masking", NULL, NULL},
    {"dataset", "dataset", set_dataset, NULL},
    {"dataset.func", "dataset", set_dataset, NULL},
    {"dataset.root", "data-dir", NULL, NULL},
    {"dataset.num_classes", "classes", set_classes, NULL},
    {"dataset.image_size", "crop", NULL, NULL},
    {"dataset.val_ratio", "val-ratio", NULL, NULL},
    {"dataset.extra_train_transforms", NULL, refuse, NULL},
    {"model", "model", NULL, NULL},
    {"model.func", "model", NULL, NULL},
    {"model.num_classes", NULL, NULL, NULL},
    {"model.zero_init_residual", "last-bn-zero-init", NULL, NULL},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static nw_status set_option(const overriding *o, const char *option, const char *text)
{
    const nw_setting_source source = {NW_LAYER_OVERRIDE, o->name, ""};
    nw_option_match match = nw_option_find(option, o->settings->command);
    return nw_settings_set_match(o->settings, match, o->name, text, &source);
}

/* ---- values that are not the option's ---------------------------------------------------------------------------- */

static nw_status read_number(const overriding *o, const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    NW_FAIL_IF(end == text || *end, NW_E_ARGUMENT, "%s takes numbers, not '%s'", o->name, text);
    return NW_OK;
}

/* Above 1 it is one over the ratio. */
static nw_status set_ratio(const overriding *o, const char *text)
{
    char number[32];
    double value;
    NW_TRY(read_number(o, text, &value));
    NW_FAIL_IF(!(value > 0), NW_E_ARGUMENT, "%s takes a number above 0, not '%s'", o->name, text);
    nw_number_print(value > 1 ? 1 / value : value, number);
    if (value > 1) NW_TRY(nw_settings_add_note(o->settings, "%s %s means a ratio of %s", o->name, text, number));
    return set_option(o, o->row->option, number);
}

/* Counted from the end of warm-up; the option counts from the start. */
static nw_status set_milestones(const overriding *o, const char *text)
{
    nw_bump *region = &o->settings->region;
    char *rest = nw_bump_text(region, text, strlen(text));
    const char *all = "";
    NW_TRY_MEMORY(rest);
    for (const char *item; (item = strsep(&rest, "\n"));) {
        char number[32];
        double value;
        NW_TRY(read_number(o, item, &value));
        nw_number_print(value + o->settings->run.rate.warm_up, number);
        all = nw_bump_print(region, "%s%s%s", all, *all ? "," : "", number);
        NW_TRY_MEMORY(all);
    }
    return set_option(o, o->row->option, all);
}

static nw_status set_dataset(const overriding *o, const char *text)
{
    return set_option(o, o->row->option, strcasecmp(text, "cifar") == 0 ? "cifar10" : text);
}

/* CIFAR is two datasets here; of others a part of the classes is taken. */
static nw_status set_classes(const overriding *o, const char *text)
{
    bool cifar = strncmp(o->settings->run.data.dataset, "cifar", 5) == 0, ten = strcmp(text, "10") == 0;
    if (!cifar) return set_option(o, o->row->option, text);
    NW_FAIL_IF(!ten && strcmp(text, "100") != 0, NW_E_ARGUMENT, "%s: CIFAR has 10 or 100 classes, not %s", o->name,
               text);
    return set_option(o, "dataset", ten ? "cifar10" : "cifar100");
}

/* A cast to 16 bits takes values as they come; what chooses among values does so tensor by tensor. */
static nw_status set_compression(const overriding *o, const char *text)
{
    bool plain = strcasecmp(text, "none") == 0 || strcasecmp(text, "fp16") == 0;
    NW_TRY(set_option(o, "method", text));
    return set_option(o, "compress", plain ? "none" : "layerwise");
}

static nw_status refuse(const overriding *o, const char *text)
{
    return NW_FAIL(NW_E_ARGUMENT, "%s has no counterpart here; leave it empty, not '%s'", o->name, text);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static nw_status find_row(overriding *o, const char *key, struct row *by_name)
{
    static const char options[] = "options.";
    const char *names[ROWS];
    for (int i = 0; i < ROWS; i++) {
        names[i] = rows[i].key;
        if (strcmp(rows[i].key, key) == 0) o->row = &rows[i];
    }
    if (o->row) return NW_OK;
    nw_option_match match = {.index = -1};
    if (strncmp(key, options, strlen(options)) == 0)
        match = nw_option_find(key + strlen(options), o->settings->command);
    NW_FAIL_IF(match.index < 0 || nw_config_is_of_line(nw_option_at(match.index)), NW_E_ARGUMENT,
               "there is no key '%s'%s", key, nw_suggest(key, names, ROWS, "").text);
    *by_name = (struct row){.key = key, .option = key + strlen(options)};
    o->row = by_name;
    return NW_OK;
}

static nw_status apply(nw_settings *s, const nw_override *override, nw_override_pass pass)
{
    nw_bump *region = &s->region;
    struct row by_name;
    overriding o = {.settings = s, .name = nw_bump_print(region, "--configs.%s", override->key)};
    NW_TRY_MEMORY(o.name);
    NW_TRY(find_row(&o, override->key, &by_name));
    bool dependent = o.row->set == set_milestones || o.row->set == set_classes;
    if (dependent != (pass == NW_OVERRIDE_DEPENDENT) || (!o.row->option && !o.row->set)) return NW_OK;
    nw_yaml *value;
    const char *text;
    NW_TRY(nw_yaml_parse(o.name, override->value, strlen(override->value), region, &value));
    const char *name = o.row->option;
    const nw_option *option = name ? nw_option_at(nw_option_find(name, s->command).index) : NULL;
    if (!*override->value || nw_yaml_is_null(value))
        return option ? set_option(&o, name, o.row->when_null ? o.row->when_null : option->fallback) : NW_OK;
    NW_FAIL_IF(value->kind == NW_YAML_LIST && (!option || option->kind < NW_OPTION_INTS), NW_E_ARGUMENT,
               "%s takes one value, not a list", o.name);
    NW_TRY(nw_config_value(region, "", o.name, value, &text));
    return o.row->set ? o.row->set(&o, text) : set_option(&o, o.row->option, text);
}

nw_status nw_override_apply(nw_settings *s, const nw_override *overrides, int count, nw_override_pass pass)
{
    NW_FAIL_IF(s->run.job.configs.count == 0 && count > 0, NW_E_ARGUMENT,
               "--configs.%s overrides a key, but no files are given; add --configs FILE...", overrides[0].key);
    for (int i = 0; i < count; i++) NW_TRY(apply(s, &overrides[i], pass));
    return NW_OK;
}
