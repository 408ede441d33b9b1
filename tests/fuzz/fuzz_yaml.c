/*
 * fuzz_yaml.c - bytes as a file of options, with the settings written out again, and as the value of an override.
 */
#include "config/compose.h"
#include "config/option_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_options(const uint8_t *data, size_t size)
{
    nw_settings *settings = NULL;
    nw_yaml *root;
    nw_status status = nw_settings_begin(&settings, NW_COMMAND_TRAIN);
    if (status == NW_OK) status = nw_yaml_parse("fuzz.yaml", data, size, &settings->region, &root);
    if (status == NW_OK) status = nw_config_apply_tree(settings, "fuzz.yaml", root, NW_LAYER_RECIPE);
    if (status == NW_OK) status = nw_settings_finish(settings);
    if (status == NW_OK) {
        char *text = NULL;
        size_t length = 0;
        FILE *out = open_memstream(&text, &length);
        if (nw_config_write(settings, out) != NW_OK) abort();
        nw_settings_print(settings, out);
        fclose(out);
        free(text);
    }
    nw_settings_free(&settings);
}

/* As the value of every kind of override. */
static void as_override(const uint8_t *data, size_t size)
{
    static const char *const keys[] = {"train.batch_size",    "train.scheduler.milestones",
                                       "dataset.num_classes", "train.compression.compress_ratio",
                                       "train.compression",   "options.lr_knots"};
    char *value = strndup((const char *)data, size);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const nw_override override = {keys[i], value};
        nw_settings *settings = NULL;
        if (nw_settings_begin(&settings, NW_COMMAND_TRAIN) != NW_OK) abort();
        settings->run.job.configs.count = 1; /* overrides go with files */
        if (nw_override_apply(settings, &override, 1, NW_OVERRIDE_PLAIN) == NW_OK)
            nw_override_apply(settings, &override, 1, NW_OVERRIDE_DEPENDENT);
        nw_settings_free(&settings);
    }
    free(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    as_options(data, size);
    as_override(data, size);
    return 0;
}
