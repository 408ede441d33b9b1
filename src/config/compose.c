/* compose.c - the files of a composed run, in their order, and the run's name; see compose.h. */
#include "config/compose.h"

#include "base/text.h"
#include "config/option_file.h"
#include "config/recipe.h"

#include <stdlib.h>
#include <string.h>

enum { FILES_MOST = 256, FOLDERS_MOST = 8 };

/* A part of the files' names: "cifar" with "resnet20" below it. */
typedef struct part {
    const char *name;
    struct part *first, *last, *next;
} part;

typedef struct composition {
    nw_settings *settings;
    nw_bump *region;
    part names;
    const char *loaded[FILES_MOST];
    int count;
} composition;

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Sets the options of a file, unless it already was there. */
static nw_status load(composition *c, const char *path)
{
    NW_AUTOFREE char *real = realpath(path, NULL);
    NW_FAIL_IF(!real, NW_E_FILE, "%s cannot be opened", path);
    const char *name = nw_bump_text(c->region, real, strlen(real));
    NW_TRY_MEMORY(name);
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->loaded[i], name) == 0) return NW_OK;
    NW_FAIL_IF(c->count == FILES_MOST, NW_E_ARGUMENT, "--configs names more than %d files", FILES_MOST);
    c->loaded[c->count++] = name;
    return nw_config_apply(c->settings, path, NW_LAYER_CONFIGS);
}

/* The file that a name on the command line means: .py stands for .yaml, __init__ for _base. */
static nw_status find_file(const char *given, char path[NW_PATH_MOST])
{
    char name[NW_PATH_MOST];
    size_t length = strlen(given);
    NW_FAIL_IF(length + 6 > sizeof name, NW_E_ARGUMENT, "--configs: a path of %zu characters is too long", length);
    bool python = length > 3 && strcmp(given + length - 3, ".py") == 0;
    bool yaml = length > 5 && strcmp(given + length - 5, ".yaml") == 0;
    if (python) length -= 3;
    if (length >= 8 && python && strncmp(given + length - 8, "__init__", 8) == 0)
        snprintf(name, sizeof name, "%.*s_base.yaml", (int)length - 8, given);
    else
        snprintf(name, sizeof name, "%.*s%s", (int)length, given, yaml ? "" : ".yaml");
    NW_FAIL_IF(
        !nw_installed_find(name, path), NW_E_ARGUMENT,
        "--configs: there is no file %s, here or beside the program; 'configs' holds the tree that comes with it",
        name);
    return NW_OK;
}

/* Goes down to the part of that name, which is added where it is missing. */
static nw_status descend(composition *c, part **at, const char *name)
{
    part *p = (*at)->first;
    while (p && strcmp(p->name, name) != 0) p = p->next;
    if (!p) {
        p = nw_bump_alloc(c->region, sizeof *p);
        NW_TRY_MEMORY(p);
        *p = (part){.name = name};
        if ((*at)->last)
            (*at)->last->next = p;
        else
            (*at)->first = p;
        (*at)->last = p;
    }
    *at = p;
    return NW_OK;
}

/* Loads the base files of the file's folders, outermost first, then the file; notes its name. */
static nw_status load_with_bases(composition *c, const char *given)
{
    char path[NW_PATH_MOST], folder[NW_PATH_MOST], base[NW_PATH_MOST], found[NW_PATH_MOST];
    int ends[FOLDERS_MOST], folders = 0;
    NW_TRY(find_file(given, path));
    snprintf(folder, sizeof folder, "%s", path);
    /* How much of the path each folder with a base file takes, innermost first. */
    for (char *slash; folders < FOLDERS_MOST && (slash = strrchr(folder, '/'));) {
        *slash = 0;
        if (snprintf(base, sizeof base, "%s/_base.yaml", folder) >= (int)sizeof base || !nw_installed_find(base, found))
            break;
        ends[folders++] = (int)(slash - folder);
    }
    for (int i = folders - 1; i >= 0; i--) {
        snprintf(base, sizeof base, "%.*s/_base.yaml", ends[i], path);
        NW_TRY(load(c, base));
    }
    NW_TRY(load(c, path));

    const char *inside = folders ? path + ends[folders - 1] + 1 : strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    char *name = nw_bump_text(c->region, inside, strlen(inside) - strlen(".yaml"));
    NW_TRY_MEMORY(name);
    part *at = &c->names;
    for (const char *one; (one = strsep(&name, "/"));) NW_TRY(descend(c, &at, one));
    return NW_OK;
}

/* ---- the name ---------------------------------------------------------------------------------------------------- */

static void print_names(const part *above, FILE *out)
{
    bool several = above->first != above->last;
    if (several) fputc('[', out);
    for (const part *p = above->first; p; p = p->next) {
        if (p != above->first) fputc('+', out);
        fputs(p->name, out);
        if (p->first) fputc('.', out);
        print_names(p, out);
    }
    if (several) fputc(']', out);
}

static nw_status make_name(composition *c)
{
    NW_CLEANUP(nw_text_free) nw_text name = {0};
    NW_TRY(nw_text_begin(&name));
    print_names(&c->names, name.out);
    NW_TRY(nw_text_end(&name));
    c->settings->composed_name = nw_bump_text(c->region, name.text, name.size);
    NW_TRY_MEMORY(c->settings->composed_name);
    return NW_OK;
}

nw_status nw_compose(nw_settings *s)
{
    if (s->run.job.configs.count == 0) return NW_OK;
    composition *c = nw_bump_alloc(&s->region, sizeof *c);
    NW_TRY_MEMORY(c);
    *c = (composition){.settings = s, .region = &s->region};
    for (int i = 0; i < s->run.job.configs.count; i++) NW_TRY(load_with_bases(c, s->run.job.configs.at[i]));
    return make_name(c);
}
