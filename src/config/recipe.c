/* recipe.c - finding and listing recipes; see recipe.h. */
#include "config/recipe.h"

#include "base/file.h"
#include "base/suggest.h"
#include "config/yaml.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECIPES_MOST = 1024 };

/* The folder above the executable's; empty if it cannot be known. */
static void home(char path[NW_PATH_MOST])
{
    ssize_t length = readlink("/proc/self/exe", path, NW_PATH_MOST - 1);
    path[length > 0 ? length : 0] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (slash) *slash = 0;
    }
}

/* The path of `name` in one of the folders; false if that folder does not exist or the path is too long. */
static bool path_in(int index, const char *name, char path[NW_PATH_MOST])
{
    char base[NW_PATH_MOST];
    if (index == 0) return snprintf(path, NW_PATH_MOST, "%s", name) < NW_PATH_MOST;
    home(base);
    return *base &&
           snprintf(path, NW_PATH_MOST, "%s%s/%s", base, index == 1 ? "" : "/share/nowait", name) < NW_PATH_MOST;
}

bool nw_installed_find(const char *name, char path[NW_PATH_MOST])
{
    if (strncmp(name, "./", 2) == 0) name += 2;
    for (int i = 0; i < (name[0] == '/' ? 1 : NW_INSTALLED_FOLDERS); i++)
        if (path_in(i, name, path) && nw_file_is_regular(path)) return true;
    return false;
}

/* Adds the recipes of one folder; `prefix` is "" or "petra/". */
static nw_status add_folder(const char *folder, const char *prefix, nw_bump *region, const char **names, int *count)
{
    DIR *d = opendir(folder);
    nw_status status = NW_OK;
    if (!d) return NW_OK;
    for (struct dirent *e; status == NW_OK && (e = readdir(d)) && *count < RECIPES_MOST;) {
        size_t length = strlen(e->d_name);
        if (e->d_name[0] == '.' || e->d_name[0] == '_') continue; /* _x.yaml is a base of others */
        if (length > 5 && strcmp(e->d_name + length - 5, ".yaml") == 0) {
            names[*count] = nw_bump_print(region, "%s%.*s", prefix, (int)length - 5, e->d_name);
            if (!names[(*count)++]) status = NW_FAIL(NW_E_MEMORY, "no memory left for the list of recipes");
        } else if (!*prefix) {
            char inner[NW_PATH_MOST], inner_prefix[300];
            snprintf(inner_prefix, sizeof inner_prefix, "%s/", e->d_name);
            if (snprintf(inner, sizeof inner, "%s/%s", folder, e->d_name) < (int)sizeof inner)
                status = add_folder(inner, inner_prefix, region, names, count);
        }
    }
    closedir(d);
    return status;
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

nw_status nw_installed_names(const char *where, nw_bump *region, nw_text_list *list)
{
    const char **names = nw_bump_alloc(region, RECIPES_MOST * sizeof *names);
    char folder[NW_PATH_MOST];
    int count = 0, kept = 0;
    NW_TRY_MEMORY(names);
    for (int i = 0; i < NW_INSTALLED_FOLDERS; i++)
        if (path_in(i, where, folder)) NW_TRY(add_folder(folder, "", region, names, &count));
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; i < count; i++)
        if (kept == 0 || strcmp(names[i], names[kept - 1]) != 0) names[kept++] = names[i];
    *list = (nw_text_list){.count = kept, .at = names};
    return NW_OK;
}

static nw_status unknown_name(const char *folder, const char *what, const char *hint, const char *name)
{
    NW_CLEANUP(nw_bump_free) nw_bump region = {0};
    nw_text_list names;
    NW_TRY(nw_installed_names(folder, &region, &names));
    NW_FAIL_IF(names.count == 0, NW_E_ARGUMENT, "there is no %s '%s', and no folder '%s' here or beside the program",
               what, name, folder);
    return NW_FAIL(NW_E_ARGUMENT, "there is no %s '%s'%s", what, name,
                   nw_suggest(name, names.at, names.count, hint).text);
}

nw_status nw_installed_named(const char *folder, const char *what, const char *hint, const char *name,
                             char path[NW_PATH_MOST])
{
    size_t length = strlen(name);
    char file[NW_PATH_MOST];
    if (length > 5 && strcmp(name + length - 5, ".yaml") == 0) {
        NW_FAIL_IF(!nw_installed_find(name, path), NW_E_ARGUMENT, "there is no %s in a file %s", what, name);
        return NW_OK;
    }
    if (length > 0 && snprintf(file, sizeof file, "%s/%s.yaml", folder, name) < (int)sizeof file &&
        nw_installed_find(file, path))
        return NW_OK;
    return unknown_name(folder, what, hint, name);
}

nw_status nw_recipe_find(const char *name, char path[NW_PATH_MOST])
{
    return nw_installed_named("recipes", "recipe", "--recipe list shows all", name, path);
}

nw_status nw_recipe_list(FILE *out)
{
    NW_CLEANUP(nw_bump_free) nw_bump region = {0};
    nw_text_list names;
    NW_TRY(nw_installed_names("recipes", &region, &names));
    for (int i = 0; i < names.count; i++) {
        char path[NW_PATH_MOST];
        nw_yaml *root;
        NW_TRY(nw_recipe_find(names.at[i], path));
        NW_TRY(nw_yaml_read(path, &region, &root));
        const nw_yaml *about = root->kind == NW_YAML_MAP ? nw_yaml_find(root, "about") : NULL;
        fprintf(out, "%-36s %s\n", names.at[i], about ? about->text : "");
    }
    return NW_OK;
}
