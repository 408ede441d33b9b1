/*
 * fuzz_yaml.c - bytes as a file of options, as a composed tree with its expressions, and the settings written out
 * again.
 */
#include "cli/compose.h"
#include "cli/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_options(const uint8_t *data, size_t size)
{
    nw_settings settings;
    nw_yaml *root;
    nw_status status = nw_settings_begin(&settings, NW_COMMAND_TRAIN);
    if (status == NW_OK) status = nw_yaml_parse("fuzz.yaml", data, size, &settings.memory->region, &root);
    if (status == NW_OK) status = nw_config_apply_tree(&settings, "fuzz.yaml", root);
    if (status == NW_OK) status = nw_settings_finish(&settings);
    if (status == NW_OK) {
        char *text = NULL;
        size_t length = 0;
        FILE *out = open_memstream(&text, &length);
        if (nw_config_write(&settings, out) != NW_OK) abort();
        nw_settings_print(&settings, out);
        fclose(out);
        free(text);
    }
    nw_settings_free(&settings);
}

static void as_tree(const uint8_t *data, size_t size)
{
    nw_settings settings;
    nw_yaml *yaml;
    nw_key root = {.kind = NW_YAML_MAP, .text = "", .where = "fuzz"};
    nw_status status = nw_settings_begin(&settings, NW_COMMAND_TRAIN);
    if (status == NW_OK) status = nw_yaml_parse("fuzz.yaml", data, size, &settings.memory->region, &yaml);
    if (status == NW_OK && yaml->kind == NW_YAML_MAP &&
        nw_key_assign(&settings.memory->region, &root, yaml, "fuzz.yaml", NW_LAYER_CONFIGS) == NW_OK &&
        nw_compose_apply(&settings, &root) == NW_OK)
        nw_settings_finish(&settings);
    nw_settings_free(&settings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    as_options(data, size);
    as_tree(data, size);
    return 0;
}
