/* compose.c - the tree of keys: files and overrides into it, its printed form and the run's name; see compose.h. */
#include "cli/compose.h"

#include "cli/recipe.h"

#include <stdlib.h>
#include <string.h>

enum { FILES_MOST = 256, FOLDERS_MOST = 8 };

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static nw_key *child(const nw_key *parent, const char *name, size_t length)
{
    for (nw_key *k = parent->first; k; k = k->next)
        if (k->name && strncmp(k->name, name, length) == 0 && k->name[length] == 0) return k;
    return NULL;
}

static nw_status add_child(nw_region *region, nw_key *parent, const char *name, size_t length, nw_key **added)
{
    nw_key *k = nw_region_alloc(region, sizeof *k);
    NW_TRY_MEMORY(k);
    k->name = name ? nw_region_text(region, name, length) : NULL;
    if (name) NW_TRY_MEMORY(k->name);
    k->kind = NW_YAML_MAP;
    k->text = "";
    k->where = parent->where;
    k->parent = parent;
    if (parent->last)
        parent->last->next = k;
    else
        parent->first = k;
    parent->last = k;
    *added = k;
    return NW_OK;
}

nw_key *nw_key_find(nw_key *root, const char *path)
{
    nw_key *k = root;
    while (k && *path) {
        size_t length = strcspn(path, ".");
        k = k->kind == NW_YAML_MAP ? child(k, path, length) : NULL;
        path += length + (path[length] == '.');
    }
    return k;
}

nw_status nw_key_make(nw_region *region, nw_key *root, const char *path, nw_key **key)
{
    nw_key *k = root;
    int depth = 0;
    for (const char *p = path; *p;) {
        size_t length = strcspn(p, ".");
        NW_FAIL_IF(length == 0 || p[length + (p[length] == '.') - 1] == 0 || ++depth > NW_YAML_DEPTH, NW_E_ARGUMENT,
                   "'%s' is no key: write names joined by dots, as in train.num_epochs", path);
        /* What was a value becomes a group. */
        if (k->kind != NW_YAML_MAP) k->kind = NW_YAML_MAP, k->first = k->last = NULL, k->text = "";
        nw_key *next = child(k, p, length);
        if (!next) NW_TRY(add_child(region, k, p, length, &next));
        k = next;
        p += length + (p[length] == '.');
    }
    *key = k;
    return NW_OK;
}

const char *nw_key_path(nw_region *region, const nw_key *key)
{
    const char *path = "";
    for (; key && key->parent; key = key->parent)
        if (key->name && path) path = nw_region_print(region, "%s%s%s", key->name, *path ? "." : "", path);
    return path ? path : "?";
}

nw_status nw_key_assign(nw_region *region, nw_key *key, const nw_yaml *value, const char *file, nw_layer layer)
{
    if (value->kind == NW_YAML_MAP && key->kind == NW_YAML_MAP) {
        for (const nw_yaml *v = value->first; v; v = v->next) {
            nw_key *k = child(key, v->key, strlen(v->key));
            if (!k) NW_TRY(add_child(region, key, v->key, strlen(v->key), &k));
            NW_TRY(nw_key_assign(region, k, v, file, layer));
        }
        return NW_OK;
    }
    key->kind = value->kind;
    key->text = value->text;
    key->quoted = value->quoted;
    key->null = nw_yaml_is_null(value);
    key->layer = layer;
    key->first = key->last = NULL;
    key->where = layer == NW_LAYER_OVERRIDE ? file : nw_region_print(region, "%s:%d", file, value->line);
    NW_TRY_MEMORY(key->where);
    if (value->kind == NW_YAML_MAP) return nw_key_assign(region, key, value, file, layer);
    for (const nw_yaml *v = value->first; v; v = v->next) {
        nw_key *item;
        NW_TRY(add_child(region, key, NULL, 0, &item));
        NW_TRY(nw_key_assign(region, item, v, file, layer));
    }
    return NW_OK;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

typedef struct composition {
    nw_settings *settings;
    nw_region *region;
    nw_key root;
    nw_key names; /* the tree of file names, for the run's name */
    const char *loaded[FILES_MOST];
    int count;
} composition;

/* Reads a file into the tree, unless it already was. */
static nw_status load(composition *c, const char *path)
{
    char *real = realpath(path, NULL);
    NW_FAIL_IF(!real, NW_E_FILE, "%s cannot be opened", path);
    const char *name = nw_region_text(c->region, real, strlen(real));
    free(real);
    NW_TRY_MEMORY(name);
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->loaded[i], name) == 0) return NW_OK;
    NW_FAIL_IF(c->count == FILES_MOST, NW_E_ARGUMENT, "--configs names more than %d files", FILES_MOST);
    c->loaded[c->count++] = name;
    nw_yaml *root;
    const char *shown = nw_region_text(c->region, path, strlen(path));
    NW_TRY_MEMORY(shown);
    NW_TRY(nw_yaml_read(path, c->region, &root));
    NW_FAIL_IF(root->kind != NW_YAML_MAP, NW_E_FILE, "%s:%d:%d: a configuration is a map of keys", path, root->line,
               root->column);
    return nw_key_assign(c->region, &c->root, root, shown, NW_LAYER_CONFIGS);
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
        !nw_share_find(name, path), NW_E_ARGUMENT,
        "--configs: there is no file %s, here or beside the program; 'configs' holds the tree that comes with it",
        name);
    return NW_OK;
}

/* Loads the base files of the file's folders, outermost first, then the file; adds its name to the tree of names. */
static nw_status load_with_bases(composition *c, const char *given)
{
    char path[NW_PATH_MOST], folder[NW_PATH_MOST], base[NW_PATH_MOST], found[NW_PATH_MOST];
    int ends[FOLDERS_MOST], folders = 0;
    NW_TRY(find_file(given, path));
    snprintf(folder, sizeof folder, "%s", path);
    /* How much of the path each folder with a base file takes, innermost first. */
    for (char *slash; folders < FOLDERS_MOST && (slash = strrchr(folder, '/'));) {
        *slash = 0;
        if (snprintf(base, sizeof base, "%s/_base.yaml", folder) >= (int)sizeof base || !nw_share_find(base, found))
            break;
        ends[folders++] = (int)(slash - folder);
    }
    for (int i = folders - 1; i >= 0; i--) {
        snprintf(base, sizeof base, "%.*s/_base.yaml", ends[i], path);
        NW_TRY(load(c, base));
    }
    NW_TRY(load(c, path));

    const char *inside = folders ? path + ends[folders - 1] + 1 : strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    char *name = nw_region_text(c->region, inside, strlen(inside) - strlen(".yaml"));
    NW_TRY_MEMORY(name);
    nw_key *at = &c->names;
    for (char *part; (part = strsep(&name, "/"));) {
        nw_key *next = child(at, part, strlen(part));
        if (!next) NW_TRY(add_child(c->region, at, part, strlen(part), &next));
        at = next;
    }
    return NW_OK;
}

/* ---- names and the printed tree ---------------------------------------------------------------------------------- */

static void print_names(const nw_key *key, FILE *out)
{
    bool several = key->first != key->last;
    if (several) fputc('[', out);
    for (const nw_key *k = key->first; k; k = k->next) {
        if (k != key->first) fputc('+', out);
        fputs(k->name, out);
        if (k->first) fputc('.', out);
        print_names(k, out);
    }
    if (several) fputc(']', out);
}

static void print_value(const nw_key *key, FILE *out)
{
    if (key->kind != NW_YAML_LIST) {
        fputs(key->null ? "null" : key->text, out);
        return;
    }
    fputc('[', out);
    for (const nw_key *k = key->first; k; k = k->next) {
        if (k != key->first) fputs(", ", out);
        print_value(k, out);
    }
    fputc(']', out);
}

static void print_keys(const nw_key *key, int indent, FILE *out)
{
    for (const nw_key *k = key->first; k; k = k->next) {
        fprintf(out, "%*s[%s]", indent, "", k->name);
        if (k->kind == NW_YAML_MAP) {
            fputc('\n', out);
            print_keys(k, indent + 2, out);
        } else {
            fputs(" = ", out);
            print_value(k, out);
            fputc('\n', out);
        }
    }
}

/* What one of the functions above prints, as a text of the region. */
static nw_status print_to_text(composition *c, bool names, const char **text)
{
    char *buffer = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&buffer, &size);
    NW_TRY_MEMORY(out);
    if (names) {
        print_names(&c->names, out);
        fprintf(out, "%s.np%s", c->settings->suffix, nw_settings_value(c->settings, "world-size"));
    } else {
        print_keys(&c->root, 0, out);
    }
    bool failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed;
    *text = failed ? NULL : nw_region_text(c->region, buffer, size);
    free(buffer);
    NW_TRY_MEMORY(*text);
    return NW_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static nw_status apply_override(composition *c, const nw_override *o)
{
    const char *name = nw_region_print(c->region, "--configs.%s", o->key);
    nw_yaml *value;
    nw_key *key;
    NW_TRY_MEMORY(name);
    NW_TRY(nw_yaml_parse(name, o->value, strlen(o->value), c->region, &value));
    if (!*o->value) value->kind = NW_YAML_SCALAR; /* nothing is no group */
    NW_TRY(nw_key_make(c->region, &c->root, o->key, &key));
    return nw_key_assign(c->region, key, value, name, NW_LAYER_OVERRIDE);
}

nw_status nw_compose(nw_settings *s, const nw_override *overrides, int count)
{
    NW_FAIL_IF(s->configs.count == 0 && count > 0, NW_E_ARGUMENT,
               "--configs.%s overrides a key, but no files are given; add --configs FILE...", overrides[0].key);
    if (s->configs.count == 0) return NW_OK;
    composition *c = nw_region_alloc(&s->memory->region, sizeof *c);
    NW_TRY_MEMORY(c);
    c->settings = s;
    c->region = &s->memory->region;
    c->root = (nw_key){.kind = NW_YAML_MAP, .text = "", .where = "--configs"};
    c->names = c->root;
    for (int i = 0; i < s->configs.count; i++) NW_TRY(load_with_bases(c, s->configs.at[i]));
    for (int i = 0; i < count; i++) NW_TRY(apply_override(c, &overrides[i]));
    NW_TRY(nw_compose_apply(s, &c->root));
    NW_TRY(print_to_text(c, true, &s->memory->composed_name));
    return print_to_text(c, false, &s->memory->composed_tree);
}
