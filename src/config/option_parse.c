/*
 * option_parse.c - the command line: options, files that they name, and what is left over.
 *
 * Options go into the highest layer as they are met; recipe, files and defaults set follow, each into its own layer, so
 * their order on the command line does not matter.
 */
#include "config/compose.h"
#include "config/option_file.h"
#include "config/recipe.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RUNS (NW_COMMAND_TRAIN | NW_COMMAND_SWEEP | NW_COMMAND_REPRODUCE)

typedef struct line {
    nw_settings *settings;
    int argc;
    char **argv;
    int at;
    nw_override *overrides;
    int override_count;
    const char *grids, *rules; /* all of --grid and of --codec-for so far */
} line;

static const nw_setting_source from_command_line = {NW_LAYER_COMMAND, "command line", "--"};

static nw_status unknown(const line *l, const char *text)
{
    char wrong[64];
    snprintf(wrong, sizeof wrong, "%.*s", (int)strcspn(text, "="), text);
    return NW_FAIL(NW_E_ARGUMENT, "there is no option --%s here%s", wrong,
                   nw_option_nearest(wrong, l->settings->command).text);
}

/* True if an argument looks like a value of a list, not like the next option: no dash, or a negative number. */
static bool is_item(const nw_option *o, const char *text)
{
    bool numbers = o->kind != NW_OPTION_TEXTS;
    if (numbers) return *text && strspn(text, "0123456789.,:+-eE ") == strlen(text) && strpbrk(text, "0123456789");
    return text[0] != '-';
}

/* The arguments that follow as items of a list, joined by newlines. */
static nw_status take_items(line *l, const nw_option *o, const char **text)
{
    nw_bump *region = &l->settings->region;
    *text = "";
    while (l->at + 1 < l->argc && is_item(o, l->argv[l->at + 1])) {
        *text = nw_bump_print(region, "%s%s%s", *text, **text ? "\n" : "", l->argv[++l->at]);
        NW_TRY_MEMORY(*text);
    }
    NW_FAIL_IF(!**text, NW_E_ARGUMENT, "%s needs a value: %s", l->argv[l->at], o->values);
    return NW_OK;
}

/* One option: `name` as given, `value` what follows '=' or is glued to a letter, or NULL. */
static nw_status take_option(line *l, nw_option_match match, const char *dashes, const char *name, const char *value)
{
    const nw_option *o = nw_option_at(match.index);
    bool flag = o->kind == NW_OPTION_FLAG || o->kind == NW_OPTION_SWITCH || match.translation, ignored;
    char shown[64];
    snprintf(shown, sizeof shown, "%.*s", (int)strcspn(name, "="), name);
    NW_TRY(nw_settings_add_hint(l->settings, dashes, shown));
    if (!value && flag) {
        const char *next = l->at + 1 < l->argc ? l->argv[l->at + 1] : "";
        bool automatic = o->kind == NW_OPTION_SWITCH && strcmp(next, "auto") == 0;
        value = automatic || nw_text_is_bool(next, &ignored) ? l->argv[++l->at] : "true";
    } else if (!value && o->kind >= NW_OPTION_INTS) {
        NW_TRY(take_items(l, o, &value));
    } else if (!value) {
        NW_FAIL_IF(l->at + 1 >= l->argc, NW_E_ARGUMENT, "%s%s needs a value: %s", dashes, shown, o->values);
        value = l->argv[++l->at];
    }
    const char **so_far = o->field == NW_BESIDE(experiment.grid)   ? &l->grids
                          : o->field == NW_AT(codec.codec_for) ? &l->rules
                                                               : NULL;
    if (so_far) { /* they add up: each grid is a dimension of its own, each rule is for other tensors */
        value = *so_far ? nw_bump_print(&l->settings->region, "%s\n%s", *so_far, value) : value;
        NW_TRY_MEMORY(value);
        *so_far = value;
    }
    const nw_setting_source source = {NW_LAYER_COMMAND, "command line", dashes};
    return nw_settings_set_match(l->settings, match, shown, value, &source);
}

/* --configs.a.b VALUE */
static nw_status take_override(line *l, const char *text)
{
    const char *equals = strchr(text, '=');
    nw_override *o = &l->overrides[l->override_count++];
    o->key = nw_bump_text(&l->settings->region, text, strcspn(text, "="));
    NW_TRY_MEMORY(o->key);
    NW_FAIL_IF(!equals && l->at + 1 >= l->argc, NW_E_ARGUMENT, "--configs.%s needs a value", o->key);
    o->value = equals ? equals + 1 : l->argv[++l->at];
    return NW_OK;
}

static nw_status take_long(line *l, const char *text)
{
    unsigned command = l->settings->command;
    const char *equals = strchr(text, '=');
    if ((command & RUNS) && strncmp(text, "configs.", 8) == 0) return take_override(l, text + 8);
    nw_option_match match = nw_option_find(text, command);
    if (match.index < 0) return unknown(l, text);
    return take_option(l, match, "--", text, equals ? equals + 1 : NULL);
}

static nw_status take_letter(line *l, const char *text)
{
    nw_option_match match = nw_option_find_letter(text[0], l->settings->command);
    NW_FAIL_IF(match.index < 0, NW_E_ARGUMENT,
               "'-%s': there is no such short option here; options begin with two dashes, and --help lists them", text);
    const char letter[2] = {text[0], 0}, *value = text[1] == 0 ? NULL : text[1] == '=' ? text + 2 : text + 1;
    return take_option(l, match, "-", letter, value);
}

static nw_status take_all(line *l, int *positional)
{
    bool options = true;
    for (; l->at < l->argc; l->at++) {
        char *text = l->argv[l->at];
        if (options && strcmp(text, "--") == 0)
            options = false;
        else if (options && strncmp(text, "--", 2) == 0)
            NW_TRY(take_long(l, text + 2));
        else if (options && text[0] == '-' && isalpha((unsigned char)text[1]))
            NW_TRY(take_letter(l, text + 1));
        else if (options && text[0] == '-' && text[1])
            return NW_FAIL(NW_E_ARGUMENT, "'%s': options begin with two dashes; --help lists them", text);
        else
            l->argv[(*positional)++] = text;
    }
    return NW_OK;
}

/* `nowait train DIR` means --data-dir DIR, as one of the reference codes has it. */
static nw_status take_folder(line *l, int *positional)
{
    struct stat s;
    if (l->settings->command != NW_COMMAND_TRAIN || *positional == 0) return NW_OK;
    NW_FAIL_IF(*positional > 1, NW_E_ARGUMENT, "'%s' is not understood here; options begin with two dashes",
               l->argv[1]);
    NW_FAIL_IF(
        stat(l->argv[0], &s) != 0 || !S_ISDIR(s.st_mode), NW_E_ARGUMENT,
        "'%s' is not understood here: it is neither an option nor a folder of data; to choose a network write --model %s",
        l->argv[0], l->argv[0]);
    *positional = 0;
    return nw_settings_set(l->settings, nw_option_find("data-dir", NW_COMMAND_TRAIN).index, "data-dir", l->argv[0],
                           &from_command_line);
}

/* Without any word on what to train, the demo is trained. */
static nw_status choose_demo(nw_settings *s)
{
    static const char *const words[] = {"recipe", "configs", "defaults", "model", "dataset", "resume", "evaluate"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (nw_settings_is_set(s, words[i])) return NW_OK;
    NW_FAIL_IF(
        s->hinted_set, NW_E_ARGUMENT,
        "%s: this looks like a line of the reference code '%s', and it names no model or dataset; add --defaults "
        "%s to train as that code does, or say what to train with --model, --dataset or --recipe",
        s->hints, s->hinted_set, s->hinted_set);
    nw_setting_source source = {NW_LAYER_DEFAULTS_SET, "nothing else was asked for", "--"};
    NW_TRY(nw_settings_set(s, nw_option_find("recipe", s->command).index, "recipe", "demo", &source));
    return nw_settings_add_note(s, "no model, dataset or recipe is given, so this is --recipe demo");
}

static nw_status take_files(line *l)
{
    nw_settings *s = l->settings;
    if (!(s->command & RUNS)) return NW_OK;
    if (s->command == NW_COMMAND_TRAIN) NW_TRY(choose_demo(s));
    if (strcmp(s->run.job.recipe, "list") == 0) return NW_OK;
    if (*s->run.job.recipe) {
        char path[NW_PATH_MOST];
        NW_TRY(nw_recipe_find(s->run.job.recipe, path));
        NW_TRY(nw_config_apply(s, path, NW_LAYER_RECIPE));
    }
    NW_TRY(nw_compose(s));
    NW_TRY(nw_override_apply(s, l->overrides, l->override_count, NW_OVERRIDE_PLAIN));
    if (strcmp(s->run.job.defaults, "global") != 0) NW_TRY(nw_settings_apply_defaults(s, s->run.job.defaults));
    return nw_override_apply(s, l->overrides, l->override_count, NW_OVERRIDE_DEPENDENT);
}

nw_status nw_options_parse(unsigned command, int argc, char **argv, nw_settings **settings, int *positional)
{
    *positional = 0;
    NW_TRY(nw_settings_begin(settings, command));
    line l = {.settings = *settings, .argc = argc, .argv = argv};
    l.overrides = nw_bump_alloc(&l.settings->region, ((size_t)argc + 1) * sizeof *l.overrides);
    NW_TRY_MEMORY(l.overrides);
    NW_TRY(take_all(&l, positional));
    NW_TRY(take_folder(&l, positional));
    NW_TRY(take_files(&l));
    return nw_settings_finish(l.settings);
}
