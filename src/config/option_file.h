/*
 * option_file.h - files of options: YAML, flat, a key for each option with underscores in its name.
 *
 *   about: ResNet-9 on CIFAR-10 in 24 epochs        one line for lists of recipes
 *   base: _cifar10                                   its keys come first: NAME.yaml beside this file, or a recipe
 *   scale_with_epochs: true                          see nw_settings_finish
 *   model: resnet9
 *   lr_knots: [[0, 0], [5, 0.4], [24, 0]]            or "0:0,5:0.4,24:0"
 *
 * Lists are YAML lists, or texts as on the command line. All other spellings of a name are taken too. Keys cannot be
 * nested: a map is refused. An unknown key names the nearest.
 */
#ifndef NW_CONFIG_OPTION_FILE_H
#define NW_CONFIG_OPTION_FILE_H

#include "config/settings.h"
#include "config/yaml.h"

/* Sets every key of a file of options, at the layer of recipes or of --configs. */
nw_status nw_config_apply(nw_settings *settings, const char *path, nw_layer layer);
nw_status nw_config_apply_tree(nw_settings *settings, const char *name, const nw_yaml *root, nw_layer layer);

/* Whether an option says which files are read: it cannot stand in one. */
bool nw_config_is_of_line(const nw_option *option);

/* The text that nw_settings_set takes for a value; lists become lines. `where` ("x.yaml:3:1: ") is for messages. */
nw_status nw_config_value(nw_bump *region, const char *where, const char *key, const nw_yaml *node, const char **text);

#endif
