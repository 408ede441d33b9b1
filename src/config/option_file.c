/* option_file.c - reading files of options, and writing config.yaml; see option_file.h. */
#include "config/option_file.h"

#include "base/utf8.h"
#include "config/recipe.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BASES_MOST = 8 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

nw_status nw_config_value(nw_bump *region, const char *where, const char *key, const nw_yaml *node, const char **text)
{
    if (node->kind == NW_YAML_SCALAR) {
        *text = node->text;
        return NW_OK;
    }
    NW_FAIL_IF(node->kind == NW_YAML_MAP, NW_E_FILE, "%s%s holds a map; it takes a value or a list", where, key);
    size_t length = 1;
    for (const nw_yaml *i = node->first; i; i = i->next) {
        bool pair = i->kind == NW_YAML_LIST && i->count == 2 && i->first->kind == NW_YAML_SCALAR &&
                    i->last->kind == NW_YAML_SCALAR;
        NW_FAIL_IF(i->kind != NW_YAML_SCALAR && !pair, NW_E_FILE, "%s%s takes values or pairs in its list", where, key);
        length += pair ? strlen(i->first->text) + strlen(i->last->text) + 2 : strlen(i->text) + 1;
    }
    char *to = nw_bump_alloc(region, length);
    NW_TRY_MEMORY(to);
    *text = to;
    for (const nw_yaml *i = node->first; i; i = i->next) {
        bool pair = i->kind == NW_YAML_LIST;
        to += sprintf(to, "%s%s%s%s", i == node->first ? "" : "\n", pair ? i->first->text : i->text, pair ? ":" : "",
                      pair ? i->last->text : "");
    }
    return NW_OK;
}

/* Keys of a file that are no options. */
static nw_status reserved(nw_settings *s, const char *where, const nw_yaml *node, bool *taken)
{
    *taken = strcmp(node->key, "about") == 0 || strcmp(node->key, "scale_with_epochs") == 0 ||
             strcmp(node->key, "base") == 0;
    if (*taken) NW_FAIL_IF(node->kind != NW_YAML_SCALAR, NW_E_FILE, "%s%s takes one value", where, node->key);
    if (strcmp(node->key, "scale_with_epochs") == 0)
        NW_FAIL_IF(!nw_text_is_bool(node->text, &s->scale_with_epochs), NW_E_FILE, "%s%s takes true or false, not '%s'",
                   where, node->key, node->text);
    return NW_OK;
}

bool nw_config_is_of_line(const nw_option *o)
{
    return o->field == NW_AT(job.recipe) || o->field == NW_AT(job.configs) || o->field == NW_AT(job.print_config);
}

static nw_status apply_key(nw_settings *s, const char *name, const nw_yaml *node, nw_layer layer)
{
    nw_bump *region = &s->region;
    const char *where = nw_bump_print(region, "%s:%d:%d: ", name, node->line, node->column), *text = NULL;
    NW_TRY_MEMORY(where);
    bool taken;
    NW_TRY(reserved(s, where, node, &taken));
    if (taken) return NW_OK;
    nw_option_match match = nw_option_find(node->key, s->command);
    NW_FAIL_IF(match.index < 0 || strchr(node->key, '='), NW_E_FILE, "%sthere is no key '%s'%s", where, node->key,
               nw_option_nearest_key(node->key, s->command).text);
    const nw_option *o = nw_option_at(match.index);
    char *dashed = nw_bump_text(region, node->key, strlen(node->key)); /* '_' tells nothing in a file */
    NW_TRY_MEMORY(dashed);
    for (char *c = dashed; *c; c++)
        if (*c == '_') *c = '-';
    NW_TRY(nw_settings_add_hint(s, "", dashed));
    NW_FAIL_IF(nw_config_is_of_line(o), NW_E_FILE, "%s%s belongs on the command line, not in a file", where, node->key);
    NW_FAIL_IF(node->kind == NW_YAML_LIST && o->kind < NW_OPTION_INTS, NW_E_FILE, "%s%s takes one value, not a list",
               where, node->key);
    NW_FAIL_IF(nw_yaml_is_null(node) && o->kind != NW_OPTION_TEXT, NW_E_FILE,
               "%s%s has no value; remove the key for its default", where, node->key);
    NW_TRY(nw_config_value(region, where, node->key, node, &text));
    nw_setting_source source = {layer, nw_bump_print(region, "%s:%d", name, node->line), where};
    NW_TRY_MEMORY(source.origin);
    return nw_settings_set_match(s, match, node->key, text, &source);
}

nw_status nw_config_apply_tree(nw_settings *s, const char *name, const nw_yaml *root, nw_layer layer)
{
    NW_FAIL_IF(root->kind != NW_YAML_MAP, NW_E_FILE, "%s:%d:%d: a file of options is a map of keys", name, root->line,
               root->column);
    for (const nw_yaml *node = root->first; node; node = node->next) NW_TRY(apply_key(s, name, node, layer));
    return NW_OK;
}

/* A file, and those that name it as their base. */
typedef struct chain {
    const char *path;
    const struct chain *above;
} chain;

/* The file that `base: NAME` in `path` means. */
static nw_status find_base(const char *path, const nw_yaml *base, char found[NW_PATH_MOST])
{
    const char *slash = strrchr(path, '/'), *name = base->text, *end = strrchr(name, '.');
    NW_FAIL_IF(base->kind != NW_YAML_SCALAR || !*name, NW_E_FILE, "%s:%d:%d: base takes the name of one file", path,
               base->line, base->column);
    int length = snprintf(found, NW_PATH_MOST, "%.*s%s%s", slash ? (int)(slash + 1 - path) : 0, path, name,
                          end && strcmp(end, ".yaml") == 0 ? "" : ".yaml");
    if (length < NW_PATH_MOST && access(found, F_OK) == 0) return NW_OK;
    if (nw_recipe_find(name, found) == NW_OK) return NW_OK;
    return NW_FAIL(NW_E_FILE, "%s:%d:%d: base '%s' is neither a file beside this one nor a recipe", path, base->line,
                   base->column, name);
}

static nw_status apply_file(nw_settings *s, const char *path, nw_layer layer, const chain *above)
{
    nw_yaml *root;
    NW_AUTOFREE char *real = realpath(path, NULL), *of_base = NULL;
    NW_FAIL_IF(!real, NW_E_FILE, "%s cannot be opened", path);
    const chain here = {real, above};
    const char *name = nw_bump_text(&s->region, path, strlen(path));
    NW_TRY_MEMORY(name);
    NW_TRY(nw_yaml_read(path, &s->region, &root));
    const nw_yaml *base = root->kind == NW_YAML_MAP ? nw_yaml_find(root, "base") : NULL;
    if (base) {
        int depth = 0;
        char found[NW_PATH_MOST];
        NW_TRY(find_base(path, base, found));
        of_base = realpath(found, NULL);
        bool circle = false;
        for (const chain *c = &here; c; c = c->above, depth++) circle |= of_base && strcmp(of_base, c->path) == 0;
        NW_FAIL_IF(circle, NW_E_FILE, "%s:%d:%d: base '%s' leads back to itself; break the circle", path, base->line,
                   base->column, base->text);
        NW_FAIL_IF(depth > BASES_MOST, NW_E_FILE, "%s:%d:%d: a file has at most %d bases, one below the other", path,
                   base->line, base->column, (int)BASES_MOST);
        NW_TRY(apply_file(s, found, layer, &here));
    }
    return nw_config_apply_tree(s, name, root, layer);
}

nw_status nw_config_apply(nw_settings *s, const char *path, nw_layer layer) { return apply_file(s, path, layer, NULL); }

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_quoted(const char *text, size_t size, FILE *out)
{
    size_t length;
    const unsigned char *t = (const unsigned char *)text, *end = t + size;
    fputc('"', out);
    for (; t < end; t += length) {
        length = *t < 0x80 ? 1 : nw_utf8_length(t, (size_t)(end - t));
        bool valid = length > 0;
        if (!valid) length = 1;
        unsigned point = length == 1 ? *t : *t & (0x7fu >> length);
        for (size_t i = 1; i < length; i++) point = point << 6 | (t[i] & 0x3f);
        if (point == '"' || point == '\\')
            fprintf(out, "\\%c", (int)point);
        else if (!valid || point < 0x20 || (point >= 0x7f && point < 0xa0))
            fprintf(out, "\\x%02X", point);
        else if (point == 0x2028 || point == 0x2029 || point == 0xfeff || point == 0xfffe || point == 0xffff)
            fprintf(out, "\\u%04X", point);
        else
            fwrite(t, 1, length, out);
    }
    fputc('"', out);
}

static void write_text(const char *text, FILE *out)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    bool ignored, plain = *text && *text != '-' && strspn(text, safe) == strlen(text);
    if (plain && !nw_text_is_bool(text, &ignored) && strcmp(text, "null") != 0 && strcmp(text, "None") != 0)
        fputs(text, out);
    else
        write_quoted(text, strlen(text), out);
}

static void write_value(const nw_option *o, const char *text, FILE *out)
{
    if (o->kind == NW_OPTION_TEXT || o->kind == NW_OPTION_CHOICE || o->kind == NW_OPTION_KNOTS) {
        write_text(text, out);
    } else if (o->kind == NW_OPTION_INTS || o->kind == NW_OPTION_NUMBERS) {
        fprintf(out, "[%s]", text);
    } else if (o->kind == NW_OPTION_TEXTS) {
        fputc('[', out);
        for (const char *item = text; *item;) {
            size_t length = strcspn(item, "\n");
            write_quoted(item, length, out);
            item += length + (item[length] == '\n');
            if (*item) fputs(", ", out);
        }
        fputc(']', out);
    } else {
        fputs(text, out);
    }
}

/* An origin as part of a comment: one line. */
static void write_comment(const char *text, FILE *out)
{
    for (; *text; text++) fputc((unsigned char)*text < 0x20 ? ' ' : *text, out);
}

/* What made the settings but is not read again: it has done its work. */
static bool is_spent(const nw_option *o) { return nw_config_is_of_line(o) || o->field == NW_AT(training.shorten); }

nw_status nw_config_write(const nw_settings *s, FILE *out)
{
    fprintf(out,
            "# The options of one run, resolved; nowait %s, commit %s. Give it to --recipe to run the same again.\n",
            nw_version(), nw_build_commit());
    for (int topic = 0; topic < NW_TOPICS; topic++) {
        bool begun = false;
        for (int i = 0; i < nw_option_count(); i++) {
            const nw_option *o = nw_option_at(i);
            const nw_slot *slot = &s->slots[i];
            bool acts = o->status == NW_OPTION_MAIN || o->status == NW_OPTION_LIVE;
            if (!slot->text || (int)o->topic != topic) continue;
            if (!acts && slot->layer == NW_LAYER_DEFAULT) continue;
            if (is_spent(o) && slot->layer == NW_LAYER_DEFAULT) continue;
            if (!begun) fprintf(out, "\n# %s: %s\n", nw_topic_name(o->topic), nw_topic_summary(o->topic));
            begun = true;
            if (is_spent(o)) fputs("# ", out);
            for (const char *c = o->name; *c; c++) fputc(*c == '-' ? '_' : *c, out);
            fputs(": ", out);
            write_value(o, slot->text, out);
            fputs("  # ", out);
            write_comment(slot->origin, out);
            fputc('\n', out);
        }
    }
    NW_FAIL_IF(ferror(out), NW_E_SYSTEM, "the resolved options could not be written; is the disk full?");
    return NW_OK;
}

void nw_settings_print(const nw_settings *s, FILE *out)
{
    for (int i = 0; i < nw_option_count(); i++) {
        const nw_slot *slot = &s->slots[i];
        if (!slot->text || slot->layer == NW_LAYER_DEFAULT) continue;
        fprintf(out, "  %-24s ", nw_option_at(i)->name);
        for (const char *c = slot->text; *c; c++) fputc(*c == '\n' ? ' ' : *c, out);
        fputs("  (", out);
        write_comment(slot->origin, out);
        fputs(")\n", out);
    }
}
