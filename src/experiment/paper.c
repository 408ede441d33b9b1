/*
 * paper.c - papers read and checked, and the trials of an experiment; see paper.h.
 *
 * Everything in a file is checked when it is read, but for what depends on a run and the scale: texts with {KEY}.
 */
#define _GNU_SOURCE 1
#include "experiment/paper.h"

#include "base/machine.h"
#include "base/text.h"
#include "config/recipe.h"
#include "config/yaml_get.h"
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TINY_IMAGES = 2048, SCALES = 4 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct block {
    const nw_yaml *values[SCALES]; /* with, tiny, small, paper; NULL: none */
    const char *name, *line, *x, *ranks, *options, *dataset, *stand_in, *stand_in_remark;
    int64_t epochs;
    int runs;
} block;

/* A list has one value a run. */
static nw_status check_values(const char *file, block *b, const nw_yaml *map)
{
    for (const nw_yaml *v = map ? map->first : NULL; v; v = v->next) {
        const char *text;
        bool list = v->kind == NW_YAML_LIST;
        NW_YAML_FAIL_IF(list && (v->count == 0 || (b->runs && v->count != b->runs)), file, v,
                        "the list '%s' has %d values, those before it %d", v->key, v->count, b->runs);
        if (list) b->runs = v->count;
        for (const nw_yaml *item = list ? v->first : v; item; item = list ? item->next : NULL)
            NW_TRY(nw_yaml_scalar(file, item, v->key, &text));
    }
    return NW_OK;
}

static nw_status read_block(const char *file, const nw_yaml *node, block *b)
{
    static const nw_yaml_field fields[] = {
        {"with", NW_YAML_KEYS_OF, offsetof(block, values[0]), false},
        {"tiny", NW_YAML_KEYS_OF, offsetof(block, values[1]), false},
        {"small", NW_YAML_KEYS_OF, offsetof(block, values[2]), false},
        {"paper", NW_YAML_KEYS_OF, offsetof(block, values[3]), false},
        {"line", NW_YAML_TEXT, offsetof(block, line), false},
        {"x", NW_YAML_TEXT, offsetof(block, x), false},
        {"ranks", NW_YAML_TEXT, offsetof(block, ranks), false},
        {"epochs", NW_YAML_INT, offsetof(block, epochs), false},
        {"dataset", NW_YAML_TEXT, offsetof(block, dataset), false},
        {"stand-in", NW_YAML_TEXT, offsetof(block, stand_in), false},
        {"stand-in-remark", NW_YAML_TEXT, offsetof(block, stand_in_remark), false},
        {"name", NW_YAML_TEXT, offsetof(block, name), true},
        {"options", NW_YAML_TEXT, offsetof(block, options), true},
    };
    *b = (block){0};
    NW_TRY(NW_YAML_FILL(file, node, "a block of runs", fields, b));
    for (int i = 0; i < SCALES; i++) NW_TRY(check_values(file, b, b->values[i]));
    NW_YAML_FAIL_IF(!b->stand_in != !b->dataset, file, node, "a 'stand-in' has a 'dataset' that it stands in for");
    if (b->runs == 0) b->runs = 1;
    return NW_OK;
}

static nw_status count_runs(const char *file, const nw_setup *setup, int *runs)
{
    *runs = 0;
    for (const nw_yaml *node = setup->blocks->first; node; node = node->next) {
        block b;
        NW_TRY(read_block(file, node, &b));
        *runs += b.runs;
    }
    return NW_OK;
}

static nw_status read_several(nw_experiment *e, const nw_yaml *node)
{
    static const nw_yaml_field fields[] = {
        {"remark", NW_YAML_TEXT, offsetof(nw_setup, remark), false},
        {"options", NW_YAML_TEXT, offsetof(nw_setup, options), false},
        {"runs", NW_YAML_ITEMS, offsetof(nw_setup, blocks), true},
    };
    int runs;
    NW_YAML_FAIL_IF(!e->here.blocks || !e->charts, e->file, node,
                    "an experiment has a 'recipe', or 'runs' and 'charts'");
    NW_TRY(count_runs(e->file, &e->here, &e->runs));
    if (e->real_map) NW_TRY(NW_YAML_FILL(e->file, e->real_map, "'real'", fields, &e->real));
    if (e->real_map) NW_TRY(count_runs(e->file, &e->real, &runs));
    return nw_experiment_check_charts(e);
}

static nw_status read_experiment(nw_experiment *e, const nw_yaml *node)
{
    static const nw_yaml_field fields[] = {
        {"what", NW_YAML_TEXT, offsetof(nw_experiment, what), true},
        {"recipe", NW_YAML_TEXT, offsetof(nw_experiment, recipe), false},
        {"epochs", NW_YAML_INT, offsetof(nw_experiment, epochs), false},
        {"published", NW_YAML_NUMBER, offsetof(nw_experiment, published), false},
        {"remark", NW_YAML_TEXT, offsetof(nw_experiment, here.remark), false},
        {"options", NW_YAML_TEXT, offsetof(nw_experiment, here.options), false},
        {"runs", NW_YAML_ITEMS, offsetof(nw_experiment, here.blocks), false},
        {"real", NW_YAML_KEYS_OF, offsetof(nw_experiment, real_map), false},
        {"charts", NW_YAML_ITEMS, offsetof(nw_experiment, charts), false},
    };
    NW_TRY(NW_YAML_FILL(e->file, node, "an experiment", fields, e));
    NW_YAML_FAIL_IF(strchr(node->key, '/') || *node->key == '.', e->file, node,
                    "an experiment's name is that of a folder, without slashes");
    if (!e->recipe) return read_several(e, node);
    NW_YAML_FAIL_IF(!e->epochs || e->here.blocks || e->charts, e->file, node,
                    "one run of a recipe has 'epochs', and neither 'runs' nor 'charts'");
    e->runs = 1;
    return NW_OK;
}

static nw_status read_tree(nw_paper *paper, const char *name, const char *file, const nw_yaml *root)
{
    static const nw_yaml_field field = {"experiments", NW_YAML_KEYS_OF, 0, true};
    const nw_yaml *all;
    NW_TRY(nw_yaml_fill(file, root, "a paper", &field, 1, &all));
    paper->at = nw_bump_alloc(&paper->region, (size_t)all->count * sizeof *paper->at);
    file = nw_bump_text(&paper->region, file, strlen(file));
    NW_TRY_MEMORY(paper->at && file);
    for (const nw_yaml *node = all->first; node; node = node->next) {
        nw_experiment *e = &paper->at[paper->count++];
        *e = (nw_experiment){.file = file, .published = NAN};
        e->name = nw_bump_print(&paper->region, "%s/%s", name, node->key);
        NW_TRY_MEMORY(e->name);
        NW_TRY(read_experiment(e, node));
    }
    return NW_OK;
}

nw_status nw_paper_parse(nw_paper *paper, const char *name, const char *file, const void *data, size_t size)
{
    nw_yaml *root;
    *paper = (nw_paper){0};
    NW_TRY(nw_yaml_parse(file, data, size, &paper->region, &root));
    return read_tree(paper, name, file, root);
}

nw_status nw_paper_read(nw_paper *paper, const char *name)
{
    char path[NW_PATH_MOST];
    nw_yaml *root;
    *paper = (nw_paper){0};
    NW_TRY(nw_installed_named("experiments", "paper", "'nowait reproduce list' shows all", name, path));
    NW_TRY(nw_yaml_read(path, &paper->region, &root));
    return read_tree(paper, name, path, root);
}

void nw_paper_free(nw_paper *paper)
{
    nw_bump_free(&paper->region);
    *paper = (nw_paper){0};
}

nw_status nw_paper_names(nw_bump *region, nw_text_list *names)
{
    return nw_installed_names("experiments", region, names);
}

/* ---- trials ------------------------------------------------------------------------------------------------------ */

int nw_scale_epochs(const char *scale, int64_t epochs)
{
    int64_t eighth = epochs / 8 > 5 ? epochs / 8 : 5;
    return (int)(strcmp(scale, "tiny") == 0 ? 1 : strcmp(scale, "small") == 0 && eighth < epochs ? eighth : epochs);
}

static nw_status shorten(nw_trial *trial, const char *scale, int64_t epochs)
{
    if (strcmp(scale, "paper") == 0) return NW_OK;
    NW_TRY(nw_words_add_format(&trial->options, "--shorten=%d", nw_scale_epochs(scale, epochs)));
    return strcmp(scale, "tiny") == 0 ? nw_words_add_format(&trial->options, "--limit=%d", TINY_IMAGES) : NW_OK;
}

/* One run of a block. */
typedef struct block_run {
    const nw_experiment *experiment;
    const nw_reproduce_options *options;
    const nw_yaml *node;
    block block;
    int scale; /* of the block's values */
    int index;
    nw_bump *region;
} block_run;

/* The value of a key that stands between braces. */
static nw_status value_of(const block_run *r, const char *key, const char *text, const char **value)
{
    const nw_yaml *maps[] = {r->block.values[r->scale], r->block.values[0]}, *node = NULL;
    for (int m = 0; m < 2 && !node; m++) node = maps[m] ? nw_yaml_find(maps[m], key) : NULL;
    NW_YAML_FAIL_IF(!node, r->experiment->file, r->node, "'%s': there is no value '%s' at this scale", text, key);
    if (node->kind == NW_YAML_LIST) {
        node = node->first;
        for (int i = 0; i < r->index; i++) node = node->next;
    }
    *value = node->text;
    return NW_OK;
}

/* A text of the block with its values in it. */
static nw_status expand(const block_run *r, const char *text, const char **expanded)
{
    const char *done = "", *rest = text, *open, *close, *value = "";
    while ((open = strchr(rest, '{')) && (close = strchr(open, '}'))) {
        const char *name = nw_bump_text(r->region, open + 1, (size_t)(close - open) - 1);
        NW_TRY_MEMORY(name);
        NW_TRY(value_of(r, name, text, &value));
        done = nw_bump_print(r->region, "%s%.*s%s", done, (int)(open - rest), rest, value);
        NW_TRY_MEMORY(done);
        rest = close + 1;
    }
    *expanded = nw_bump_print(r->region, "%s%s", done, rest);
    NW_TRY_MEMORY(*expanded);
    return NW_OK;
}

static nw_status expand_number(const block_run *r, const char *text, double *number)
{
    const char *expanded, *wrong;
    nw_complaint complaint;
    if (!text) return NW_OK;
    NW_TRY(expand(r, text, &expanded));
    wrong = nw_units_number(expanded, 0, 1e9, number, &complaint);
    NW_YAML_FAIL_IF(wrong, r->experiment->file, r->node, "'%s': %s", text, wrong);
    return NW_OK;
}

/* Real ranks want cores: with more workers than those, they would measure the scheduler. Two can always be tried. */
static bool worth_it(double ranks)
{
    int cores = nw_machine_allowed_cpus();
    return ranks - 1 <= (cores > 2 ? cores : 2);
}

static nw_status add_words(const block_run *r, nw_trial *trial, const char *text)
{
    const char *words;
    if (!text) return NW_OK;
    NW_TRY(expand(r, text, &words));
    return nw_words_add_cut(&trial->options, words);
}

static nw_status add_run(const block_run *r, nw_trials *trials, const char *shared, bool stands_in)
{
    const block *b = &r->block;
    const char *name, *line;
    double ranks = 0, x = NAN;
    nw_trial *trial;
    NW_TRY(expand(r, b->name, &name));
    NW_TRY(expand(r, b->line ? b->line : b->name, &line));
    NW_TRY(expand_number(r, b->x, &x));
    NW_TRY(expand_number(r, b->ranks, &ranks));
    NW_YAML_FAIL_IF(!*name || *name == '.' || strchr(name, '/'), r->experiment->file, r->node,
                    "a run's name is that of a folder, without slashes; not '%.60s'", name);
    if (!worth_it(ranks)) return NW_OK;
    NW_TRY(nw_trials_add(trials, name, &trial));
    NW_TRY(nw_text_copy(&trial->line, line));
    trial->x = x;
    trial->ranks = (int)ranks;
    NW_TRY(add_words(r, trial, shared));
    NW_TRY(add_words(r, trial, b->options));
    if (stands_in) NW_TRY(add_words(r, trial, b->stand_in));
    return b->epochs ? shorten(trial, r->options->scale, b->epochs) : NW_OK;
}

static nw_status add_remark(nw_trials *trials, const char *text)
{
    NW_AUTOFREE char *before = trials->remark;
    return nw_text_print(&trials->remark, "%s%s%s", before ? before : "", before ? "; " : "", text);
}

static bool lacks_images(const nw_reproduce_options *o, const char *dataset)
{
    NW_CLEANUP(nw_dataset_autoclose) nw_dataset *d = NULL;
    if (o->dataset_given) return false;
    if (nw_dataset_open(&d, &(nw_dataset_options){.name = dataset, .dir = o->all->data_dir}) != NW_OK) return true;
    return d->split[NW_SPLIT_TRAIN].count == 0;
}

static nw_status add_blocks(block_run *r, const nw_setup *setup, nw_trials *trials)
{
    const char *scale = r->options->scale;
    r->scale = strcmp(scale, "tiny") == 0 ? 1 : strcmp(scale, "small") == 0 ? 2 : 3;
    if (setup->remark) NW_TRY(add_remark(trials, setup->remark));
    for (r->node = setup->blocks->first; r->node; r->node = r->node->next) {
        NW_TRY(read_block(r->experiment->file, r->node, &r->block));
        bool stands_in = r->block.dataset && lacks_images(r->options, r->block.dataset);
        if (stands_in && r->block.stand_in_remark) NW_TRY(add_remark(trials, r->block.stand_in_remark));
        for (r->index = 0; r->index < r->block.runs; r->index++) NW_TRY(add_run(r, trials, setup->options, stands_in));
    }
    return NW_OK;
}

nw_status nw_experiment_plan(const nw_experiment *e, const nw_reproduce_options *o, nw_trials *trials)
{
    NW_FAIL_IF(o->real && !e->real.blocks, NW_E_ARGUMENT, "%s has no runs with real ranks; leave out --real", e->name);
    NW_TRY(nw_text_print(&trials->dir, "%s/%s-%s%s", o->all->run_dir[0] ? o->all->run_dir : "runs/reproduce", e->name,
                         o->scale, o->real ? "-real" : ""));
    if (!e->recipe) {
        NW_CLEANUP(nw_bump_free) nw_bump region = {0};
        return add_blocks(&(block_run){.experiment = e, .options = o, .region = &region}, o->real ? &e->real : &e->here,
                          trials);
    }
    nw_trial *trial;
    NW_TRY(nw_trials_add(trials, "", &trial));
    NW_TRY(nw_words_add_format(&trial->options, "--recipe=%s", e->recipe));
    return shorten(trial, o->scale, e->epochs);
}
