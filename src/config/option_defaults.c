/*
 * option_defaults.c - the defaults of the five reference codes, as `--defaults NAME` switches them on. Never inferred
 * from names.
 *
 * A set holds what its reference code does when nothing is said, where that differs from the global defaults or would
 * be missed if the global ones changed.
 */
#include "config/option_table.h"

#include <string.h>

static const nw_default petra[] = {
    {"dataset", "cifar10"},   {"model", "petra-vgg"}, {"max-epoch", "100"}, {"batch-size", "128"},
    {"optimizer", "sgd"},     {"lr", "0.1"},          {"momentum", "0.9"},  {"weight-decay", "5e-4"},
    {"scheduler", "steplr"},  {"warm-up", "0"},       {"t-max", "0"},       {"lr-decay-milestones", "30 60 90"},
    {"lr-decay-fact", "0.1"}, {"workers", "4"},       {"print-freq", "10"}, {"normalise", "auto"},
    {"pad-mode", "zero"},     {"drop-last", "false"}, {"algorithm", "a2"},
};

static const nw_default apam[] = {
    {"dataset", "cinic10"}, {"model", "resnet18"},      {"optimizer", "apam"},
    {"lr", "1e-4"},         {"momentum", "0"},          {"amsgrad", "true"},
    {"beta1", "0.9"},       {"beta2", "0.999"},         {"eps", "1e-8"},
    {"weight-decay", "0"},  {"scheduler", "constant"},  {"batch-size", "40"},
    {"max-epoch", "200"},   {"test-batch-size", "100"}, {"train-eval-batch-size", "100"},
    {"eval-every", "10"},   {"train-metrics", "true"},  {"sampling", "replicate"},
    {"in-flight", "1"},     {"global-batch", "true"},   {"evaluate-first", "true"},
};

/* Its workers always average in pairs; one worker alone trains as without. Step decay after one half and three quarters,
 * as that code's schedule has it for CIFAR-10. */
static const nw_default acid[] = {
    {"dataset", "cifar10"}, {"model", "resnet18"}, {"init-scheme", "acid"},  {"optimizer", "sgd"},
    {"lr", "0.05"},         {"momentum", "0.9"},   {"weight-decay", "5e-4"}, {"batch-size", "256"},
    {"max-epoch", "80"},    {"scheduler", "acid"}, {"lr-decay-fact", "0.1"}, {"sampling", "replicate"},
    {"epoch-of", "all"},    {"drop-last", "true"}, {"exchange", "gossip"},
};

/* cifar10-fast: the loss is a sum over 512 images, so rate and decay are given per image. Knots follow --max-epoch (see
 * settings.c), and Nesterov's form goes with momentum. */
static const nw_default layerwise[] = {
    {"dataset", "cifar10"},
    {"model", "resnet9"},
    {"batch-size", "512"},
    {"test-batch-size", "512"},
    {"max-epoch", "24"},
    {"loss-reduction", "sum"},
    {"optimizer", "sgd"},
    {"lr", "0.001953125"},
    {"momentum", "0"},
    {"nesterov", "true"},
    {"weight-decay", "0.256"},
    {"scheduler", "piecewise-linear"},
    {"lr-knots", "0:0,5:0.4,24:0"},
    {"pad", "4"},
    {"pad-mode", "reflect"},
    {"flip", "true"},
    {"cutout", "8"},
    {"normalise", "cifar10-fast"},
    {"drop-last", "true"},
    {"sampling", "replicate"},
    {"epoch-of", "each"},
};

static const nw_default dgc[] = {
    {"seed", "42"},
    {"dataset", "cifar10"},
    {"model", "resnet20"},
    {"workers", "4"},
    {"optimizer", "sgd"},
    {"lr", "0.1"},
    {"momentum", "0.9"},
    {"weight-decay", "1e-4"},
    {"batch-size", "128"},
    {"max-epoch", "200"},
    {"warm-up", "5"},
    {"warm-up-from", "-1"},
    {"scheduler", "cosine-annealing"},
    {"t-max", "0"},
    {"lr-scaling", "true"},
    {"replica-lr-scaling", "true"},
    {"exchange", "allreduce"},
    {"accumulation-averaging", "true"},
    {"pad-mode", "zero"},
    {"metric", "test_top1"},
    {"evaluate-first", "true"},
};

/* What a set says of one dataset. */
static const struct {
    const char *set, *dataset;
    nw_default row;
} of_datasets[] = {{"apam", "imagenet32", {"normalise", "mean-image"}}};

/* Words that mean something else in a set's program than here. */
static const struct {
    const char *set, *option, *word, *means;
} meanings[] = {{"petra", "model", "resnet18", "petra-resnet18"},
                {"petra", "model", "resnet34", "petra-resnet34"},
                {"petra", "model", "resnet50", "petra-resnet50"},
                {"petra", "model", "resnet101", "petra-resnet101"},
                {"petra", "model", "vgg", "petra-vgg"}};

/* How options are spelled that only one of the programs has, where a run of ours would hardly say it so: '-' is also
 * '_', and '_' is itself. */
static const char of_petra[] =
    "synchronous store-vjp remove-ctx-input remove-ctx-param approximate-input synchronization-period quantizer "
    "quantize-forward-com quantize-backward-com quantize-buffer no-bn-weight-decay accumulate-steps ngpus use-wandb "
    "wandb-project wandb-entity wandb-offline";
static const char of_apam[] =
    "data-name opt-name alpha train-batch-size pred-train-batch-size log-per-epoch use-amsgrad num-epochs cuda gpu-id "
    "use-gpu use-sparse master-num-threads mpi-thread-level timing debug-comm debug-sparse-outfile debug-time-outfile "
    "debug-grad-outfile";
static const char of_acid[] =
    "optimizer-name dataset-name n-epoch-if-1-worker normalize-grads gamma-lr-scheduler filter-bias-and-bn path_logs "
    "apply_acid rate_com graph_topology deterministic_coms deterministic_neighbor non_iid_data use_linear_scaling";
static const char of_layerwise[] = "network master-address rank local-rank phases init-bn0 no-bn-wd loss-scale "
                                   "distributed dist-url dist-backend logdir log_dir short-epoch log-all-workers ddp "
                                   "sparsification n c K V Q m r w";
static const char of_dgc[] = "devices device";

#define SET(name)                                            \
    {                                                        \
#name, name, sizeof name / sizeof name[0], of_##name \
    }
static const struct {
    const char *name;
    const nw_default *at;
    int count;
    const char *spellings;
} sets[] = {SET(petra), SET(apam), SET(acid), SET(layerwise), SET(dgc)};

const nw_default *nw_defaults_find(const char *name, int *count)
{
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        if (strcmp(sets[i].name, name) == 0) {
            *count = sets[i].count;
            return sets[i].at;
        }
    *count = 0;
    return NULL;
}

const nw_default *nw_defaults_of_dataset(const char *name, const char *dataset)
{
    for (size_t i = 0; i < sizeof of_datasets / sizeof of_datasets[0]; i++)
        if (strcmp(of_datasets[i].set, name) == 0 && strcmp(of_datasets[i].dataset, dataset) == 0)
            return &of_datasets[i].row;
    return NULL;
}

const char *nw_defaults_meaning(const char *name, const char *option, const char *word)
{
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        if (strcmp(meanings[i].set, name) == 0 && strcmp(meanings[i].option, option) == 0 &&
            nw_name_same(word, meanings[i].word))
            return meanings[i].means;
    return NULL;
}

static bool is_spelled(const char *typed, const char *spelling, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (typed[i] != spelling[i] && !(typed[i] == '_' && spelling[i] == '-')) return false;
    return typed[length] == 0;
}

const char *nw_defaults_of_spelling(const char *typed)
{
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        for (const char *s = sets[i].spellings; *s; s += strspn(s, " ")) {
            size_t length = strcspn(s, " ");
            if (is_spelled(typed, s, length)) return sets[i].name;
            s += length;
        }
    return NULL;
}
