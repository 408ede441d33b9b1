/* settings.c - slots and layers of nw_settings, and what is derived when all layers are in; see settings.h. */
#include "config/settings.h"

#include "net/mpi.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field_of(nw_settings *settings, const nw_option *option)
{
    return option->field == NW_NO_FIELD ? NULL : (char *)settings + option->field;
}

nw_status nw_settings_begin(nw_settings **settings, unsigned command)
{
    nw_settings *s = *settings = calloc(1, sizeof *s);
    NW_TRY_MEMORY(s);
    s->command = command;
    s->run.settings = s;
    /* No text is NULL, also of options that this command does not take. */
    for (int i = 0; i < nw_option_count(); i++) {
        const nw_option *o = nw_option_at(i);
        if (o->field != NW_NO_FIELD && (o->kind == NW_OPTION_TEXT || o->kind == NW_OPTION_CHOICE))
            *(const char **)field_of(s, o) = "";
    }
    s->run.job.run_name = "run";
    for (int i = 0; i < nw_option_count(); i++) {
        const nw_option *o = nw_option_at(i);
        nw_slot *slot = &s->slots[i];
        if (!(o->commands & command)) continue;
        slot->origin = "default";
        NW_TRY(nw_option_read(o, "the default of --", o->name, o->fallback, NW_E_INTERNAL, &s->region, field_of(s, o),
                              &slot->text));
    }
    return NW_OK;
}

void nw_settings_free(nw_settings **settings)
{
    if (!*settings) return;
    nw_bump_free(&(*settings)->region);
    free(*settings);
    *settings = NULL;
}

nw_status nw_settings_set(nw_settings *s, int index, const char *name, const char *text,
                          const nw_setting_source *source)
{
    const nw_option *o = nw_option_at(index);
    nw_slot *slot = &s->slots[index];
    nw_bump *region = &s->region;
    nw_status bad = source->layer == NW_LAYER_RECIPE || source->layer == NW_LAYER_CONFIGS ? NW_E_FILE : NW_E_ARGUMENT;
    bool wins = source->layer >= slot->layer;
    const char *canonical;
    NW_TRY(nw_option_read(o, source->where, name, text, bad, region, wins ? field_of(s, o) : NULL, &canonical));
    bool recipe = source->layer == NW_LAYER_RECIPE;
    if (recipe || source->layer == NW_LAYER_DEFAULTS_SET) {
        if (o->field == NW_AT(all.epochs)) *(recipe ? &s->recipe_epochs : &s->defaults_epochs) = atoi(canonical);
        if (o->field == NW_AT(net.batch_size)) *(recipe ? &s->recipe_batch : &s->defaults_batch) = atoi(canonical);
    }
    if (wins) *slot = (nw_slot){source->layer, canonical, source->origin};
    return NW_OK;
}

nw_status nw_settings_set_match(nw_settings *s, nw_option_match match, const char *name, const char *text,
                                const nw_setting_source *source)
{
    const nw_translation *t = match.translation;
    if (!match.inverted && !t) return nw_settings_set(s, match.index, name, text, source);
    bool value;
    nw_status bad = source->layer == NW_LAYER_RECIPE || source->layer == NW_LAYER_CONFIGS ? NW_E_FILE : NW_E_ARGUMENT;
    NW_FAIL_IF(!nw_text_is_bool(text, &value), bad, "%s%s takes true or false, not '%s'", source->where, name, text);
    if (match.inverted) return nw_settings_set(s, match.index, name, value ? "false" : "true", source);
    return nw_settings_set(s, match.index, t->option, value ? t->when_true : t->when_false, source);
}

nw_status nw_settings_add_note(nw_settings *s, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (s->note_count == NW_NOTES_MOST) return NW_OK;
    const char *note = nw_bump_text(&s->region, text, strlen(text));
    NW_TRY_MEMORY(note);
    s->notes[s->note_count++] = note;
    return NW_OK;
}

nw_status nw_settings_add_hint(nw_settings *s, const char *dashes, const char *typed)
{
    const char *set = nw_defaults_of_spelling(typed), **list = &s->hints;
    if (!set || (s->hinted_set && strcmp(s->hinted_set, set) != 0)) return NW_OK; /* the first program that was met */
    *list = nw_bump_print(&s->region, "%s%s%s%s", *list ? *list : "", *list ? ", " : "", dashes, typed);
    NW_TRY_MEMORY(*list);
    s->hinted_set = set;
    return NW_OK;
}

/* Defaults are never switched by themselves, but a line of another program shall not train something else unnoticed. */
static nw_status note_hints(nw_settings *s)
{
    if (!s->hinted_set || nw_settings_is_set(s, "defaults")) return NW_OK;
    return nw_settings_add_note(s,
                                "warning: %s %s an option of the reference code '%s', whose defaults are not those "
                                "used here; to train as it does add --defaults %s",
                                s->hints, strchr(s->hints, ',') ? "are each" : "is", s->hinted_set, s->hinted_set);
}

int nw_settings_notes(const nw_settings *s) { return s->note_count; }
const char *nw_settings_note(const nw_settings *s, int index) { return s->notes[index]; }

const nw_slot *nw_settings_slot(const nw_settings *s, const char *option)
{
    int index = nw_option_find(option, s->command).index;
    return index < 0 ? NULL : &s->slots[index];
}

const char *nw_settings_value(const nw_settings *s, const char *option)
{
    const nw_slot *slot = nw_settings_slot(s, option);
    return slot ? slot->text : NULL;
}

const char *nw_settings_origin(const nw_settings *s, const char *option)
{
    const nw_slot *slot = nw_settings_slot(s, option);
    return slot ? slot->origin : NULL;
}

bool nw_settings_is_set(const nw_settings *s, const char *option)
{
    const nw_slot *slot = nw_settings_slot(s, option);
    return slot && slot->layer > NW_LAYER_DEFAULT;
}

nw_status nw_settings_apply_defaults(nw_settings *s, const char *name)
{
    int count;
    const nw_default *set = nw_defaults_find(name, &count);
    nw_setting_source source = {NW_LAYER_DEFAULTS_SET, nw_bump_print(&s->region, "defaults %s", name), "defaults: "};
    NW_TRY_MEMORY(source.origin);
    for (int i = 0; i < count; i++) {
        int index = nw_option_find(set[i].option, s->command).index;
        if (index >= 0) NW_TRY(nw_settings_set(s, index, set[i].option, set[i].value, &source));
    }
    const nw_default *own = nw_defaults_of_dataset(name, s->run.data.dataset);
    if (!own) return NW_OK;
    return nw_settings_set(s, nw_option_find(own->option, s->command).index, own->option, own->value, &source);
}

/* ---- scaling to another number of epochs, or another batch ------------------------------------------------------- */

nw_status nw_settings_replace(nw_settings *s, const char *option, const char *text, const char *why)
{
    int index = nw_option_find(option, s->command).index;
    nw_slot *slot = &s->slots[index];
    nw_setting_source source = {slot->layer, nw_bump_print(&s->region, "%s%s", slot->origin, why), "--"};
    NW_TRY_MEMORY(source.origin);
    return nw_settings_set(s, index, option, text, &source);
}

/* A list of numbers as text; `y` NULL or the second halves of pairs. */
static nw_status print_list(nw_settings *s, int count, const double *x, const double *y, const char **text)
{
    char *to = nw_bump_alloc(&s->region, (size_t)count * 66 + 1);
    NW_TRY_MEMORY(to);
    *text = to;
    for (int i = 0; i < count; i++) {
        char a[32], b[32] = "";
        nw_number_print(x[i], a);
        if (y) nw_number_print(y[i], b);
        to += sprintf(to, "%s%s%s%s", i ? "," : "", a, y ? ":" : "", b);
    }
    return NW_OK;
}

/* Which options stretch with the run: those whose slot lies in [lowest, highest]. *scaled: there were some. */
static nw_status scale(nw_settings *s, double factor, nw_layer lowest, nw_layer highest, bool knots_only,
                       const char *why, bool *scaled)
{
    static const char *const names[] = {"lr-knots", "warm-up", "lr-decay-milestones", "t-max", "ema-epochs"};
    *scaled = false;
    for (int i = 0; i < (knots_only ? 1 : 5); i++) {
        const nw_slot *slot = nw_settings_slot(s, names[i]);
        int count = i == 0 ? s->run.rate.lr_knots.count : i == 2 ? s->run.rate.milestones.count : 1;
        if (slot->layer < lowest || slot->layer > highest || count == 0) continue;
        double *x = nw_bump_alloc(&s->region, 2 * (size_t)count * sizeof *x), *y = x + count;
        NW_TRY_MEMORY(x);
        for (int k = 0; k < count; k++) {
            if (i == 0) x[k] = s->run.rate.lr_knots.at[k].x * factor, y[k] = s->run.rate.lr_knots.at[k].y;
            if (i == 1) x[k] = s->run.rate.warm_up * factor;
            if (i == 2) x[k] = fmax(1, round(s->run.rate.milestones.at[k] * factor));
            if (i == 3) x[k] = s->run.rate.t_max * factor;
            if (i == 4) x[k] = s->run.training.ema_epochs ? fmax(1, round(s->run.training.ema_epochs * factor)) : 0;
        }
        const char *text = NULL;
        NW_TRY(print_list(s, count, x, i == 0 ? y : NULL, &text));
        if (strcmp(text, slot->text) == 0) continue;
        NW_TRY(nw_settings_replace(s, names[i], text, why));
        *scaled = true;
    }
    return NW_OK;
}

/* Where the loss is a sum over the batch, a rate is one per image and a decay is of the whole batch: what a recipe or a
 * defaults set says of them, for a batch of its own, follows a batch size that comes from elsewhere. */
static nw_status scale_to_batch(nw_settings *s)
{
    static const char *const names[] = {"lr", "weight-decay"};
    char why[96], number[32];
    bool scaled = false;
    int before = 0;
    bool per_image = strcmp(s->run.training.loss_reduction, "sum") == 0;
    for (int i = 0; i < 2 && per_image; i++) {
        nw_layer layer = nw_settings_slot(s, names[i])->layer;
        int own = layer == NW_LAYER_RECIPE ? s->recipe_batch : layer == NW_LAYER_DEFAULTS_SET ? s->defaults_batch : 0;
        if (own == 0 || own == s->run.net.batch_size || nw_settings_slot(s, "batch-size")->layer <= layer) continue;
        double factor = (double)s->run.net.batch_size / own;
        nw_number_print(i == 0 ? s->run.update.lr / factor : s->run.update.weight_decay * factor, number);
        snprintf(why, sizeof why, ", scaled from batches of %d to %d", own, s->run.net.batch_size);
        NW_TRY(nw_settings_replace(s, names[i], number, why));
        before = own;
        scaled = true;
    }
    if (!scaled) return NW_OK;
    return nw_settings_add_note(
        s,
        "the loss is a sum, so lr and weight decay of batches of %d are scaled to batches of %d: "
        "--lr %g, --weight-decay %g",
        before, s->run.net.batch_size, s->run.update.lr, s->run.update.weight_decay);
}

/* The last knot of a defaults set goes to the end of the run; the others stay, as far as there is room. */
static nw_status move_last_knot(nw_settings *s, const char *why, bool *moved)
{
    int count = s->run.rate.lr_knots.count;
    *moved = false;
    if (nw_settings_slot(s, "lr-knots")->layer != NW_LAYER_DEFAULTS_SET || count == 0) return NW_OK;
    if (count > 1 && s->run.rate.lr_knots.at[count - 2].x >= s->run.all.epochs) return NW_OK;
    double *x = nw_bump_alloc(&s->region, 2 * (size_t)count * sizeof *x), *y = x + count;
    const char *text;
    NW_TRY_MEMORY(x);
    for (int k = 0; k < count; k++) x[k] = s->run.rate.lr_knots.at[k].x, y[k] = s->run.rate.lr_knots.at[k].y;
    x[count - 1] = s->run.all.epochs;
    *moved = true;
    NW_TRY(print_list(s, count, x, y, &text));
    return nw_settings_replace(s, "lr-knots", text, why);
}

/* --shorten scales all; a recipe that says scale_with_epochs scales its own values; the last knot of a
 * defaults set is the end of the run, since a schedule that ends elsewhere makes no sense. */
static nw_status scale_to_epochs(nw_settings *s)
{
    char why[64];
    bool scaled;
    if (s->run.training.shorten > 0 && s->run.all.epochs > 0 && s->run.training.shorten != s->run.all.epochs) {
        snprintf(why, sizeof why, ", scaled from %d to %d epochs", s->run.all.epochs, s->run.training.shorten);
        NW_TRY(scale(s, (double)s->run.training.shorten / s->run.all.epochs, NW_LAYER_DEFAULT, NW_LAYER_COMMAND, false,
                     why, &scaled));
        if (scaled)
            NW_TRY(nw_settings_add_note(s, "warm-up, knots and milestones are scaled from %d to %d epochs (--shorten)",
                                        s->run.all.epochs, s->run.training.shorten));
        snprintf(why, sizeof why, "%d", s->run.training.shorten);
        return nw_settings_replace(s, "max-epoch", why, ", then --shorten");
    }
    nw_layer epochs_layer = nw_settings_slot(s, "max-epoch")->layer;
    bool recipe = s->scale_with_epochs && s->recipe_epochs > 0 && epochs_layer > NW_LAYER_RECIPE;
    int before = recipe ? s->recipe_epochs : s->defaults_epochs;
    if (before <= 0 || before == s->run.all.epochs || s->run.all.epochs == 0 || epochs_layer <= NW_LAYER_DEFAULTS_SET)
        return NW_OK;
    snprintf(why, sizeof why, ", scaled from %d to %d epochs", before, s->run.all.epochs);
    if (!recipe) NW_TRY(move_last_knot(s, why, &scaled));
    if (!recipe && scaled) return NW_OK;
    nw_layer layer = recipe ? NW_LAYER_RECIPE : NW_LAYER_DEFAULTS_SET;
    NW_TRY(scale(s, (double)s->run.all.epochs / before, layer, layer, !recipe, why, &scaled));
    if (!recipe || !scaled) return NW_OK;
    return nw_settings_add_note(s, "the recipe's warm-up, knots and milestones are scaled from %d to %d epochs", before,
                                s->run.all.epochs);
}

/* ---- the algorithm ----------------------------------------------------------------------------------------------- */

static const char *const method_flags[] = {"synchronous", "store-vjp", "remove-ctx-input", "remove-ctx-param",
                                           "approximate-input"};
enum { METHOD_FLAGS = 5 };

static bool is_on(const nw_settings *s, int flag)
{
    return strcmp(nw_settings_slot(s, method_flags[flag])->text, "true") == 0;
}

/* How the algorithm was asked for: by the flags that are on, or by name. */
static void say_algorithm(const nw_settings *s, char text[NW_WORDS_MOST])
{
    const nw_option *o = nw_option_at(nw_option_find("algorithm", s->command).index);
    const char *word = nw_choice_find(o->values, s->run.training.algorithm), *other = word + strcspn(word, "|=");
    size_t used = 0;
    for (int i = 0; i < METHOD_FLAGS && s->by_flags; i++)
        if (is_on(s, i))
            used += (size_t)snprintf(text + used, NW_WORDS_MOST - used, "%s--%s", used ? " " : "", method_flags[i]);
    if (s->by_flags) return;
    if (*other == '=') word = other + 1;
    snprintf(text, NW_WORDS_MOST, "--algorithm %.*s", (int)strcspn(word, "|="), word);
}

/* PETRA's method flags, if one is on, name one of s1..s6, a1..a6 (petra 1.2); beside them --algorithm must agree,
 * unless one of the two comes from a higher layer. */
static nw_status resolve_algorithm(nw_settings *s)
{
    bool on[METHOD_FLAGS], any = false;
    nw_layer layer = NW_LAYER_DEFAULT;
    const char *origin = "default";
    for (int i = 0; i < METHOD_FLAGS; i++) {
        const nw_slot *slot = nw_settings_slot(s, method_flags[i]);
        on[i] = is_on(s, i);
        if (!on[i]) continue;
        any = true;
        if (slot->layer >= layer) layer = slot->layer, origin = slot->origin;
    }
    nw_slot *slot = &s->slots[nw_option_find("algorithm", s->command).index];
    if (!any || slot->layer > layer) return NW_OK;
    int number = on[4] ? 6 : on[1] ? 1 : on[2] && on[3] ? 5 : on[2] ? 4 : on[3] ? 3 : 2;
    const char *id = nw_bump_print(&s->region, "%c%d", on[0] ? 's' : 'a', number);
    NW_TRY_MEMORY(id);
    char named[NW_WORDS_MOST], flags[NW_WORDS_MOST];
    say_algorithm(s, named);
    s->by_flags = true;
    say_algorithm(s, flags);
    NW_FAIL_IF(slot->layer == layer && strcmp(slot->text, id) != 0, NW_E_ARGUMENT,
               "%s does not agree with %s; leave one of the two out", named, flags);
    *slot = (nw_slot){layer, id, origin};
    s->run.training.algorithm = id;
    return NW_OK;
}

/* ---- names and notes --------------------------------------------------------------------------------------------- */

nw_status nw_settings_name_run(nw_settings *s, int ranks)
{
    nw_bump *region = &s->region;
    char *name;
    if (*s->run.job.name) {
        name = nw_bump_print(region, "%s%s", s->run.job.name, s->run.job.suffix);
    } else if (s->composed_name) {
        name = nw_bump_print(region, "%s%s.np%d", s->composed_name, s->run.job.suffix, ranks);
    } else if (*s->run.job.recipe) {
        /* A recipe's whole name, but only the last part of a file's. */
        const char *end = strrchr(s->run.job.recipe, '.'), *slash = strrchr(s->run.job.recipe, '/');
        bool file = end && strcmp(end, ".yaml") == 0;
        const char *from = file && slash ? slash + 1 : s->run.job.recipe;
        name = nw_bump_print(region, "%.*s%s", (int)(file ? end - from : (long)strlen(from)), from, s->run.job.suffix);
    } else {
        name = nw_bump_print(region, "%s-%s%s", s->run.net.model, s->run.data.dataset, s->run.job.suffix);
    }
    NW_TRY_MEMORY(name);
    for (char *c = name; *c; c++)
        if (*c == '/') *c = '-';
    s->run.job.run_name = name;
    return NW_OK;
}

/* How many ranks there will be, as far as options and the launcher's environment tell. */
static int expected_ranks(const nw_settings *s)
{
    if (s->run.world.virtual_ranks > 0) return s->run.world.virtual_ranks;
    return nw_mpi_launched() ? nw_mpi_environment_size() : s->run.world.world_size;
}

/* Whether an option has another value than the table gives it. */
static nw_status is_changed(nw_settings *s, int index, bool *changed)
{
    const nw_option *o = nw_option_at(index);
    const nw_slot *slot = &s->slots[index];
    const char *canonical;
    *changed = slot->layer != NW_LAYER_DEFAULT;
    if (!*changed) return NW_OK;
    NW_TRY(nw_option_read(o, "--", o->name, o->fallback, NW_E_INTERNAL, &s->region, NULL, &canonical));
    *changed = strcmp(slot->text, canonical) != 0;
    return NW_OK;
}

/* A sentence for each reason. */
static nw_status note_ignored(nw_settings *s)
{
    for (int i = 0; i < nw_option_count(); i++) {
        const char *why = nw_option_at(i)->help;
        char list[512] = "";
        int count = 0;
        for (int k = 0; k < nw_option_count(); k++) {
            const nw_option *o = nw_option_at(k);
            bool changed;
            if (o->status != NW_OPTION_IGNORED || strcmp(o->help, why) != 0) continue;
            if (k < i) break; /* said */
            NW_TRY(is_changed(s, k, &changed));
            size_t used = strlen(list);
            if (changed) snprintf(list + used, sizeof list - used, "%s--%s", count++ ? ", " : "", o->name);
        }
        if (count) NW_TRY(nw_settings_add_note(s, "%s %s no effect: %s", list, count == 1 ? "has" : "have", why));
    }
    return NW_OK;
}

/* A model's name means what it means in the program whose defaults hold. */
static nw_status take_meaning(nw_settings *s)
{
    const char *means = nw_defaults_meaning(s->run.job.defaults, "model", s->run.net.model), *word = s->run.net.model;
    if (!means) return NW_OK;
    NW_TRY(nw_settings_replace(s, "model", means, ", as --defaults mean it"));
    return nw_settings_add_note(s, "with --defaults %s, --model %s is %s", s->run.job.defaults, word, means);
}

/* PETRA's synchronous modes differ in what they keep for backward, not in the gradient. */
static nw_status note_algorithm(nw_settings *s)
{
    static const char *const modes[] = {"recomputes stages from their inputs", "recomputes stages from their inputs",
                                        "inverts stages with stashed weights", "inverts stages", "inverts stages"};
    int mode = s->run.training.algorithm[0] == 's' ? s->run.training.algorithm[1] - '0' : 0;
    if (mode < 2 || mode > 6) return NW_OK;
    char asked[NW_WORDS_MOST];
    say_algorithm(s, asked);
    return nw_settings_add_note(
        s, "%s means that backward %s; here plain backprop computes the same gradient, with all activations kept",
        asked, modes[mode - 2]);
}

nw_status nw_settings_finish(nw_settings *s)
{
    if (s->command & NW_COMMAND_BENCH_EXCHANGE) return nw_settings_finish_codec(s);
    if (s->command & NW_COMMAND_PEER) {
        NW_TRY(nw_settings_finish_codec(s));
        return note_ignored(s);
    }
    if (!(s->command & (NW_COMMAND_TRAIN | NW_COMMAND_SWEEP | NW_COMMAND_REPRODUCE))) return NW_OK;
    NW_TRY(take_meaning(s));
    NW_TRY(scale_to_epochs(s));
    NW_TRY(scale_to_batch(s));
    /* The layer-wise seed takes Nesterov's form whenever there is momentum. */
    if (s->run.update.nesterov && s->run.update.momentum == 0 &&
        nw_settings_slot(s, "nesterov")->layer == NW_LAYER_DEFAULTS_SET)
        NW_TRY(nw_settings_replace(s, "nesterov", "false", ", without momentum"));
    NW_TRY(resolve_algorithm(s));
    NW_TRY(note_algorithm(s));
    NW_TRY(nw_settings_finish_codec(s));
    NW_TRY(nw_settings_name_run(s, expected_ranks(s)));
    NW_TRY(note_hints(s));
    return note_ignored(s);
}

/* Words that the table has, but not this version. */
static nw_status check_choice(const nw_settings *s, const nw_option *o, const nw_slot *slot)
{
    const char *word = nw_choice_find(o->values, slot->text);
    char asked[NW_WORDS_MOST], words[NW_WORDS_MOST];
    if (!word || word == o->values || word[-1] != '~') return NW_OK;
    nw_option_words(o, '|', words);
    snprintf(asked, sizeof asked, "--%s %s", o->name, slot->text);
    if (o->field == NW_AT(training.algorithm)) {
        say_algorithm(s, asked);
        snprintf(words, sizeof words, "the gradients of backprop: --algorithm backprop, or PETRA's --synchronous");
    }
    return NW_FAIL(NW_E_ARGUMENT, "%s (%s) is not part of this version, which has %s", asked, slot->origin, words);
}

nw_status nw_settings_check(nw_settings *s)
{
    for (int i = 0; i < nw_option_count(); i++)
        if (s->slots[i].text && nw_option_at(i)->kind == NW_OPTION_CHOICE)
            NW_TRY(check_choice(s, nw_option_at(i), &s->slots[i]));
    for (int i = 0; i < nw_option_count(); i++) {
        const nw_option *o = nw_option_at(i);
        const nw_slot *slot = &s->slots[i];
        bool changed;
        if (!slot->text || o->status != NW_OPTION_LATER) continue;
        NW_TRY(is_changed(s, i, &changed));
        NW_FAIL_IF(changed, NW_E_ARGUMENT, "--%s %s (%s) is not part of this version; leave it at %s", o->name,
                   slot->text, slot->origin, *o->fallback ? o->fallback : "nothing");
    }
    return NW_OK;
}

nw_precision nw_settings_precision(const nw_model_settings *net)
{
    return strcmp(net->precision, "f32") == 0    ? NW_PRECISION_F32
           : strcmp(net->precision, "bf16") == 0 ? NW_PRECISION_BF16
                                                 : NW_PRECISION_AUTO;
}

bool nw_settings_direct(const nw_model_settings *net) { return strcmp(net->convolution, "direct") == 0; }
