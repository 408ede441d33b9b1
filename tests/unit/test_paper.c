/*
 * test_paper.c - papers as data: all their runs are accepted by train, their numbers are those that were published, and
 * what is wrong in a file is said with its line.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "config/recipe.h"
#include "experiment/paper.h"
#include "observe/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEST(name) static void name(void **state __attribute__((unused)))
#define CASE(name) cmocka_unit_test(name)

static nw_settings *settings; /* of reproduce */
static nw_reproduce_options asked;

static void settle(const char *scale, bool real)
{
    char scale_option[32], *words[] = {"list", "--scale", scale_option, real ? "--real" : "--no-real"};
    int positional;
    snprintf(scale_option, sizeof scale_option, "%s", scale);
    nw_settings_free(&settings);
    assert_int_equal(nw_options_parse(NW_COMMAND_REPRODUCE, 4, words, &settings, &positional), NW_OK);
    asked = nw_reproduce_options_of(settings);
}

/* All papers that there are, in their order. */
static void each_experiment(void (*look)(const nw_experiment *experiment))
{
    nw_bump region = {0};
    nw_text_list names;
    assert_int_equal(nw_paper_names(&region, &names), NW_OK);
    assert_true(names.count >= 6);
    for (int i = 0; i < names.count; i++) {
        nw_paper paper;
        if (nw_paper_read(&paper, names.at[i]) != NW_OK) fail_msg("%s", nw_error_message());
        assert_true(paper.count > 0);
        for (int k = 0; k < paper.count; k++) look(&paper.at[k]);
        nw_paper_free(&paper);
    }
    nw_bump_free(&region);
}

/* ---- what is run ------------------------------------------------------------------------------------------------- */

static void plan(const nw_experiment *e, nw_trials *trials)
{
    *trials = (nw_trials){.seeds = asked.seeds};
    if (nw_experiment_plan(e, &asked, trials) != NW_OK) fail_msg("%s: %s", e->name, nw_error_message());
    assert_true(trials->count > 0 && trials->count <= e->runs + 3); /* real ones: also of two workers */
}

/* Nothing is listed that this version refuses. */
static void accepts_runs(const nw_experiment *e)
{
    nw_trials trials;
    plan(e, &trials);
    for (int t = 0; t < trials.count; t++) {
        nw_settings *train = NULL;
        nw_words *options = &trials.at[t].options;
        char *line;
        int positional;
        assert_int_equal(nw_words_quote(options, &line), NW_OK);
        char **words = calloc((size_t)options->count, sizeof *words); /* parsing changes their order */
        assert_non_null(words);
        memcpy(words, options->at, (size_t)options->count * sizeof *words);
        nw_status status = nw_options_parse(NW_COMMAND_TRAIN, options->count, words, &train, &positional);
        if (status == NW_OK) status = nw_settings_check(train);
        if (status != NW_OK || positional) fail_msg("%s: '%s': %s", e->name, line, nw_error_message());
        for (int k = 0; k < t; k++) assert_string_not_equal(trials.at[t].name, trials.at[k].name);
        nw_settings_free(&train);
        free(words);
        free(line);
    }
    nw_trials_free(&trials);
}

static void accepts_real_runs(const nw_experiment *e)
{
    if (e->real.blocks) accepts_runs(e);
}

TEST(test_every_run_is_accepted_by_train)
{
    static const char *const scales[] = {"tiny", "small", "paper"};
    for (int s = 0; s < 3; s++) {
        settle(scales[s], false);
        each_experiment(accepts_runs);
        settle(scales[s], true);
        each_experiment(accepts_real_runs);
    }
}

static const char *recipe;
static bool used;

static void uses_recipe(const nw_experiment *e)
{
    nw_trials trials;
    plan(e, &trials);
    for (int t = 0; t < trials.count; t++)
        for (int i = 0; i < trials.at[t].options.count; i++) {
            const char *word = trials.at[t].options.at[i];
            used |= strcmp(word, recipe) == 0 || (strncmp(word, "--recipe=", 9) == 0 && strcmp(word + 9, recipe) == 0);
        }
    nw_trials_free(&trials);
}

/* A published experiment that has a recipe is listed. */
TEST(test_every_recipe_is_in_a_paper)
{
    nw_bump region = {0};
    nw_text_list names;
    settle("paper", false);
    assert_int_equal(nw_installed_names("recipes", &region, &names), NW_OK);
    for (int i = 0; i < names.count; i++) {
        recipe = names.at[i];
        if (strcmp(recipe, "demo") == 0 || strstr(recipe, "logit")) continue; /* our own; a second trainer's */
        used = false;
        each_experiment(uses_recipe);
        if (!used) fail_msg("the recipe %s is in no paper", recipe);
    }
    nw_bump_free(&region);
}

/* ---- what was published ------------------------------------------------------------------------------------------ */

static const nw_yaml *chart_of(const nw_experiment *e, const char *file)
{
    for (const nw_yaml *chart = e->charts->first; chart; chart = chart->next)
        if (strcmp(nw_yaml_find(chart, "file")->text, file) == 0) return chart;
    fail_msg("%s has no chart %s", e->name, file);
    return NULL;
}

static nw_paper apam;

static double published(const char *experiment, const char *file, const char *line, double x)
{
    for (int i = 0; i < apam.count; i++) {
        if (strcmp(apam.at[i].name, experiment) != 0) continue;
        const nw_yaml *chart = chart_of(&apam.at[i], file);
        const nw_yaml *at = nw_yaml_find(chart, "at")->first;
        const nw_yaml *y = nw_yaml_find(nw_yaml_find(chart, "published"), line)->first;
        for (; at; at = at->next, y = y->next)
            if (strtod(at->text, NULL) == x) return strtod(y->text, NULL);
    }
    fail_msg("%s %s %s has nothing at %g", experiment, file, line, x);
    return NAN;
}

static double speed_up(const char *line, double workers)
{
    return published("apam/speed", "speed-up", line, 1) / published("apam/speed", "speed-up", line, workers);
}

TEST(test_published_numbers)
{
    const double tiny = 1e-9;
    assert_int_equal(nw_paper_read(&apam, "apam"), NW_OK);
    assert_float_equal(published("apam/delays", "delays", "delay 0", 5), 76.26, tiny);
    assert_float_equal(published("apam/delays", "delays", "delay 20", 10), 70.93, tiny);
    assert_float_equal(published("apam/delays", "delays", "delay 100", 5), 37.78, tiny);
    assert_float_equal(published("apam/delays", "delays", "delay 400", 400), 87.99, tiny);
    assert_float_equal(published("apam/delays", "delays-train", "delay 200", 100), 84.58, tiny);
    assert_float_equal(published("apam/accuracy", "cinic10-test", "10 workers", 200), 86.24, tiny);
    assert_float_equal(published("apam/accuracy", "cinic10-train", "5 workers", 50), 96.57, tiny);
    assert_float_equal(published("apam/accuracy", "imagenet32-test5", "2 workers", 40), 74.40, tiny);
    assert_float_equal(published("apam/accuracy", "imagenet32-train5", "10 workers", 40), 89.47, tiny);
    assert_float_equal(published("apam/mnist-lenet5", "accuracy", "async", 20), 99.08, tiny);
    assert_float_equal(published("apam/speed", "hours", "sync", 20), 1.0776, tiny);
    /* Speed-ups were printed to two digits after the point; they follow from the times. */
    assert_float_equal(speed_up("async", 20), 9.98, 0.01);
    assert_float_equal(speed_up("async", 5), 4.56, 0.01);
    assert_float_equal(speed_up("sync", 10), 2.31, 0.01);
    assert_float_equal(speed_up("imagenet32 async", 20), 11.14, 0.01);
    assert_float_equal(speed_up("imagenet32 sync", 5), 3.73, 0.01);
    nw_paper_free(&apam);
}

static bool has_line(const nw_trials *trials, const char *line)
{
    for (int t = 0; t < trials->count; t++)
        if (strcmp(trials->at[t].line, line) == 0) return true;
    return false;
}

/* Points ascend, accuracies are percent, and a published line by epoch has a run to stand beside. */
static void is_sound(const nw_experiment *e)
{
    nw_trials trials;
    if (e->recipe) {
        if (!isnan(e->published)) assert_true(e->published > 1 && e->published < 100);
        return;
    }
    plan(e, &trials);
    for (const nw_yaml *chart = e->charts->first; chart; chart = chart->next) {
        const char *value = nw_yaml_find(chart, "value")->text, *x = nw_yaml_find(chart, "x")->text;
        if (!nw_yaml_find(chart, "published")) continue;
        for (const nw_yaml *at = nw_yaml_find(chart, "at")->first; at->next; at = at->next)
            assert_true(strtod(at->text, NULL) < strtod(at->next->text, NULL));
        for (const nw_yaml *line = nw_yaml_find(chart, "published")->first; line; line = line->next) {
            if (strcmp(x, "epoch") == 0 && !has_line(&trials, line->key)) fail_msg("%s: '%s'", e->name, line->key);
            for (const nw_yaml *y = line->first; y; y = y->next) {
                double number = strtod(y->text, NULL);
                assert_true(number > 0 && (!strstr(value, "top") || number <= 100));
            }
        }
    }
    nw_trials_free(&trials);
}

TEST(test_published_lines_are_sound)
{
    settle("paper", false);
    each_experiment(is_sound);
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static bool is_field(const char *name, bool in_summary)
{
    if (in_summary && strcmp(name, "seconds_per_step") == 0) return true; /* nw_child_done makes it */
    for (int kind = 0; kind < NW_RECORD_KINDS; kind++) {
        const nw_record_type *type = nw_record_type_of((nw_record_kind)kind);
        for (int i = 0; i < type->count; i++) {
            const char *given = in_summary ? type->fields[i].summary : type->fields[i].name;
            if ((in_summary || kind == NW_RECORD_EPOCH) && given && strcmp(given, name) == 0) return true;
        }
    }
    return false;
}

static void has_fields(const nw_experiment *e)
{
    for (const nw_yaml *chart = e->charts ? e->charts->first : NULL; chart; chart = chart->next) {
        const char *value = nw_yaml_find(chart, "value")->text;
        const nw_yaml *along = nw_yaml_find(chart, "along");
        bool by_epoch = along || strcmp(nw_yaml_find(chart, "x")->text, "epoch") == 0;
        if (!is_field(value, !by_epoch)) fail_msg("%s: no record has '%s'", e->name, value);
        if (along && !is_field(along->text, false)) fail_msg("%s: no record has '%s'", e->name, along->text);
    }
}

/* A field that no record has would leave an empty chart. */
TEST(test_charts_have_fields) { each_experiment(has_fields); }

/* ---- bad files --------------------------------------------------------------------------------------------------- */

static void bad(const char *text, const char *part)
{
    nw_paper paper;
    nw_trials trials = {.seeds = asked.seeds};
    nw_status status = nw_paper_parse(&paper, "x", "x.yaml", text, strlen(text));
    if (status == NW_OK) status = nw_experiment_plan(&paper.at[0], &asked, &trials);
    if (status != NW_E_FILE || !strstr(nw_error_message(), part))
        fail_msg("'%s': status %d and '%s', wanted '%s'", text, status, nw_error_message(), part);
    nw_trials_free(&trials);
    nw_paper_free(&paper);
}

#define RUNS(block, chart) \
    "experiments:\n  a:\n    what: b\n    runs:\n    - {" block "}\n    charts:\n    - {" chart "}\n"
#define GOOD_RUN   "name: 'r{i}', options: --lr=1, with: {i: [1, 2]}"
#define GOOD_CHART "file: f, title: t, x: epoch, y: y, value: v"

TEST(test_bad_papers)
{
    settle("small", false);
    bad("", "x.yaml:0: a paper needs a key 'experiments'");
    bad("experiments: []\n", "x.yaml:1: 'experiments' is a map");
    bad("experiments:\n  a: 1\n", "x.yaml:2: an experiment is a map of keys");
    bad("experiments:\n  a: {what: b, reciep: c}\n", "no key 'reciep'; the nearest is 'recipe'");
    bad("experiments:\n  a: {what: b}\n", "a 'recipe', or 'runs' and 'charts'");
    bad("experiments:\n  a: {recipe: b, epochs: 1}\n", "needs a key 'what'");
    bad("experiments:\n  a: {what: b, recipe: c}\n", "one run of a recipe has 'epochs'");
    bad("experiments:\n  a: {what: b, recipe: c, epochs: -1}\n", "'epochs'");
    bad("experiments:\n  ../a: {what: b, recipe: c, epochs: 1}\n", "without slashes");
    bad(RUNS("name: r", GOOD_CHART), "x.yaml:5: a block of runs needs a key 'options'");
    bad(RUNS("name: r, options: o, with: {a: [1, 2], b: [1]}", GOOD_CHART),
        "the list 'b' has 1 values, those before it 2");
    bad(RUNS("name: r, options: o, with: {a: [[1]]}", GOOD_CHART), "'a' takes one plain value");
    bad(RUNS("name: r, options: o, with: {a: []}", GOOD_CHART), "the list 'a' has 0 values");
    bad(RUNS("name: 'r{j}', options: o, with: {i: 1}", GOOD_CHART), "'r{j}': there is no value 'j' at this scale");
    bad(RUNS("name: 'r{i}', options: o, tiny: {i: 1}", GOOD_CHART), "there is no value 'i' at this scale");
    bad(RUNS("name: ../r, options: o", GOOD_CHART), "a run's name is that of a folder");
    bad(RUNS("name: r, options: o, x: far", GOOD_CHART), "'far'");
    bad(RUNS("name: r, options: o, stand-in: --lr=1", GOOD_CHART), "has a 'dataset' that it stands in for");
    bad(RUNS(GOOD_RUN, "file: f"), "a chart needs a key 'title'");
    bad(RUNS(GOOD_RUN, "file: ../f, title: t, x: epoch, y: y, value: v"), "without slashes");
    bad(RUNS(GOOD_RUN, GOOD_CHART ", at: [1]"), "'published' goes with 'at' and 'source'");
    bad(RUNS(GOOD_RUN, GOOD_CHART ", at: [1], source: s, published: {l: [1, 2]}"), "'l' takes a list of 1 numbers");
    bad(RUNS(GOOD_RUN, GOOD_CHART ", at: [1], source: s, published: {l: [x]}"), "'l'");
}

static int finish(void **state)
{
    (void)state;
    nw_settings_free(&settings);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_every_run_is_accepted_by_train), CASE(test_every_recipe_is_in_a_paper), CASE(test_published_numbers),
        CASE(test_published_lines_are_sound),      CASE(test_charts_have_fields),         CASE(test_bad_papers),
    };
    if (!NW_HAVE_YAML) {
        printf("skipped: this build is without libyaml (libyaml-dev)\n");
        return 77;
    }
    if (chdir(NW_SOURCE_DIR) != 0) return 1; /* where the papers are */
    return cmocka_run_group_tests(tests, NULL, finish);
}
