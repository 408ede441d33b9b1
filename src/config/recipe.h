/*
 * recipe.h - recipes by name, and where the files that come with the program are.
 *
 * Installed folders (recipes/, configs/, clusters/, experiments/) are looked for in this order: the current folder;
 * beside the folder of the executable (build/nowait finds recipes/ of its source); share/nowait beside that folder (an
 * installed bin/nowait).
 */
#ifndef NW_CONFIG_RECIPE_H
#define NW_CONFIG_RECIPE_H

#include "config/bump.h"
#include "config/options.h"

enum { NW_INSTALLED_FOLDERS = 3, NW_PATH_MOST = 4096 };

/* The path of a file that comes with the program; "./x" is shortened to "x". False if it is nowhere. */
bool nw_installed_find(const char *name, char path[NW_PATH_MOST]);

/* The file that `name` means: a path to a .yaml file, or NAME.yaml of an installed folder. An unknown name is
 * NW_E_ARGUMENT, which says the nearest, and `hint`. `what` is for messages: "recipe". */
nw_status nw_installed_named(const char *folder, const char *what, const char *hint, const char *name,
                             char path[NW_PATH_MOST]);

/* The file of a recipe: its name ("petra/cifar10-resnet18-backprop"), or a path to a .yaml file. An unknown name is an
 * error that says the nearest. */
nw_status nw_recipe_find(const char *name, char path[NW_PATH_MOST]);

/* Names of the .yaml files of an installed folder ("recipes") and of the folders in it, sorted, each once. They live in
 * the region. */
nw_status nw_installed_names(const char *folder, nw_bump *region, nw_text_list *names);

/* One line a recipe: its name and what it is about. */
nw_status nw_recipe_list(FILE *out);

#endif
