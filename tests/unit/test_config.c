/* test_config.c - files of options, recipes and composed runs; what is wrong in them is said with file and line. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "config/compose.h"
#include "config/option_file.h"
#include "config/recipe.h"
#include "support/own_folder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORDS = 64 };

static nw_settings *settings;

static nw_status parse(const char *line)
{
    static char copy[4096];
    char *words[WORDS];
    int count = 0, positional;
    nw_settings_free(&settings);
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word && count < WORDS; word = strtok(NULL, " ")) words[count++] = word;
    return nw_options_parse(NW_COMMAND_TRAIN, count, words, &settings, &positional);
}

static void accepted(const char *line)
{
    if (parse(line) != NW_OK) fail_msg("'%s' was refused: %s", line, nw_error_message());
}

static void refused(const char *line, nw_status want, const char *part)
{
    nw_status status = parse(line);
    if (status != want || !strstr(nw_error_message(), part))
        fail_msg("'%s': status %d and '%s', wanted %d and '%s'", line, status, nw_error_message(), want, part);
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Parses a text as a file called x.yaml. */
static nw_status apply_text(const char *text, size_t size)
{
    nw_yaml *root;
    nw_settings_free(&settings);
    nw_status status = nw_settings_begin(&settings, NW_COMMAND_TRAIN);
    if (status == NW_OK) status = nw_yaml_parse("x.yaml", text, size, &settings->region, &root);
    if (status == NW_OK) status = nw_config_apply_tree(settings, "x.yaml", root, NW_LAYER_RECIPE);
    return status;
}

static void bad_text(const char *text, const char *part)
{
    nw_status status = apply_text(text, strlen(text));
    if (status != NW_E_FILE || !strstr(nw_error_message(), part))
        fail_msg("'%s': status %d and '%s', wanted '%s'", text, status, nw_error_message(), part);
}

static void test_good_files(void **state)
{
    static const char text[] = "about: x\nmodel: resnet9\nlr: 0.25\nno_git: true\nlr_knots: [[0, 0], [5, 0.4]]\n"
                               "lr_decay_milestones: [3, 4]\nresidual_layers: [layer1]\nno_bn_weight_decay: true\n"
                               "epochs: 7\nflip: false\n";
    (void)state;
    if (apply_text(text, sizeof text - 1) != NW_OK) fail_msg("%s", nw_error_message());
    assert_string_equal(settings->run.net.model, "resnet9");
    assert_true(settings->run.update.lr == 0.25 && !settings->run.job.git && settings->run.all.epochs == 7);
    assert_true(settings->run.rate.lr_knots.count == 2 && settings->run.rate.lr_knots.at[1].y == 0.4);
    assert_true(settings->run.rate.milestones.count == 2 && settings->run.rate.milestones.at[1] == 4);
    assert_string_equal(settings->run.net.residual_layers.at[0], "layer1");
    assert_string_equal(settings->run.update.decay_filter, "no-norm-bias");
    assert_string_equal(nw_settings_origin(settings, "lr"), "x.yaml:3");
    assert_int_equal(apply_text("", 0), NW_OK);
}

static void test_bad_files(void **state)
{
    char deep[64], many[8192] = "";
    (void)state;
    bad_text("lr: 1\nmodle: resnet9\n", "x.yaml:2:1: there is no key 'modle'; the nearest is 'model'");
    bad_text("lr: 1\nlr: 2\n", "x.yaml:2:1: the key 'lr' is already there in line 1");
    bad_text("lr: fast\n", "x.yaml:1:1: lr takes a number, not 'fast'");
    bad_text("lr: [1, 2]\n", "x.yaml:1:1: lr takes one value");
    bad_text("lr:\n", "x.yaml:1:1: lr has no value");
    bad_text("lr: {a: 1}\n", "x.yaml:1:1: lr holds a map");
    bad_text("lr_decay_milestones: [[1, 2, 3]]\n", "values or pairs");
    bad_text("batch_size: 0\n", "batch_size is 0; it must be 1");
    bad_text("a: &x 1\n", "x.yaml:1:4: anchors");
    bad_text("a: *x\n", "x.yaml:1:4: aliases");
    bad_text("a: !!int 1\n", "tags");
    bad_text("--- {}\n--- {}\n", "second document");
    bad_text("- 1\n", "map of keys");
    bad_text("[a]: 1\n", "key must be a plain text");
    bad_text("a: [1\n", "no valid YAML");
    bad_text("a: \"\\0\"\n", "zero byte");
    bad_text("lr: 1\n\xff\xfe\n", "UTF-8");
    bad_text("recipe: x\n", "belongs on the command line");
    bad_text("scale_with_epochs: maybe\n", "true or false");
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    bad_text(deep, "16 levels");
    for (int i = 0; i < 600; i++) sprintf(many + strlen(many), "k%d: 1\n", i);
    bad_text(many, "512 keys");
    char *large = calloc(1, NW_YAML_BYTES + 2);
    memset(large, '#', NW_YAML_BYTES + 1);
    bad_text(large, "1 MiB");
    free(large);
    refused("--recipe nosuch.yaml", NW_E_ARGUMENT, "nosuch.yaml");
    refused("--recipe cifar10-fats", NW_E_ARGUMENT, "the nearest is 'cifar10-fast'");
    mkdir("dir.yaml", 0700);
    refused("--recipe dir.yaml", NW_E_ARGUMENT, "dir.yaml");
    rmdir("dir.yaml");
}

/* One file's keys before another's. */
static void test_bases(void **state)
{
    (void)state;
    mkdir("bases", 0700);
    write_file("bases/_a.yaml", "base: _b.yaml\nlr: 2\nmax_epoch: 8\nscale_with_epochs: true\nwarm_up: 4\n");
    write_file("bases/_b.yaml", "lr: 1\nmomentum: 0.5\nbase: cifar10-fast\n");
    write_file("bases/c.yaml", "momentum: 0.7\nbase: _a\n"); /* wherever the key stands */
    accepted("--recipe bases/c.yaml");
    assert_true(settings->run.update.momentum == 0.7 && settings->run.update.lr == 2 && settings->run.all.epochs == 8 &&
                settings->run.net.batch_size == 512);
    assert_string_equal(nw_settings_origin(settings, "lr"), "bases/_a.yaml:2");
    assert_string_equal(settings->run.job.run_name, "c");
    accepted("--recipe bases/c.yaml --max-epoch 4");
    assert_true(settings->run.rate.warm_up == 2);
    accepted("--configs bases/c.yaml --recipe demo");
    assert_true(settings->run.update.momentum == 0.7 && settings->run.net.width == 16);
    write_file("bases/_b.yaml", "lr: 1\nbase: c\n");
    refused("--recipe bases/c.yaml", NW_E_FILE, "bases/_b.yaml:2:1: base 'c' leads back to itself");
    write_file("bases/_b.yaml", "base: _b\n");
    refused("--recipe bases/c.yaml", NW_E_FILE, "bases/_b.yaml:1:1: base '_b' leads back to itself");
    write_file("bases/_b.yaml", "base: nosuch\n");
    refused("--recipe bases/c.yaml", NW_E_FILE, "bases/_b.yaml:1:1: base 'nosuch' is neither");
    write_file("bases/_b.yaml", "base: [a, b]\n");
    refused("--recipe bases/c.yaml", NW_E_FILE, "bases/_b.yaml:1:1: base takes the name of one file");
    write_file("bases/_b.yaml", "lrr: 1\n");
    refused("--recipe bases/c.yaml", NW_E_FILE, "bases/_b.yaml:1:1: there is no key 'lrr'");
    for (int i = 0; i <= 9; i++) {
        char path[64], text[64];
        snprintf(path, sizeof path, "bases/d%d.yaml", i);
        snprintf(text, sizeof text, i ? "base: d%d\n" : "lr: %d\n", i ? i - 1 : 3);
        write_file(path, text);
    }
    accepted("--recipe bases/d8.yaml");
    assert_true(settings->run.update.lr == 3);
    refused("--recipe bases/d9.yaml", NW_E_FILE, "at most 8 bases");
    if (system("rm -r bases") != 0) fail_msg("bases stays");
}

/* All recipes can be run, but for what they name that is not here: data. */
static void test_recipes(void **state)
{
    nw_bump region = {0};
    nw_text_list names;
    (void)state;
    assert_int_equal(nw_installed_names("recipes", &region, &names), NW_OK);
    assert_true(names.count >= 35);
    for (int i = 0; i < names.count; i++) {
        char line[256];
        snprintf(line, sizeof line, "--recipe %s", names.at[i]);
        accepted(line);
        if (nw_settings_check(settings) != NW_OK) fail_msg("%s: %s", line, nw_error_message());
        if (nw_settings_notes(settings)) fail_msg("%s: %s", line, nw_settings_note(settings, 0));
    }
    nw_bump_free(&region);

    /* keys of a file tell as options do whose it is, but for '_', and where it says no defaults */
    write_file("hints.yaml", "model: x\nrate_com: 1\nno_bn_wd: true\n");
    accepted("--recipe hints.yaml");
    assert_int_equal(nw_settings_notes(settings), 1);
    assert_non_null(
        strstr(nw_settings_note(settings, 0), "warning: no-bn-wd is an option of the reference code 'layer"));
    write_file("hints.yaml", "model: x\nno_bn_wd: true\ndefaults: global\n");
    accepted("--recipe hints.yaml");
    assert_int_equal(nw_settings_notes(settings), 0);
    unlink("hints.yaml");

    accepted("--recipe cifar10-fast");
    assert_true(settings->run.all.epochs == 24 && settings->run.net.batch_size == 512 &&
                settings->run.update.lr * 512 == 1);
    assert_true(settings->run.update.weight_decay == 5e-4 * 512 && settings->run.update.nesterov &&
                settings->run.data.cutout == 8);
    assert_string_equal(settings->run.job.run_name, "cifar10-fast");
    accepted("--max-epoch 6 --recipe cifar10-fast");
    assert_true(settings->run.all.epochs == 6 && settings->run.rate.lr_knots.at[1].x == 1.25 &&
                settings->run.rate.lr_knots.at[2].x == 6);
    assert_non_null(strstr(nw_settings_note(settings, 0), "from 24 to 6 epochs"));
    accepted("--max-epoch 6 --recipe cifar10-fast --lr-knots 0:1,6:0");
    assert_int_equal(settings->run.rate.lr_knots.count, 2);
    assert_true(settings->run.rate.lr_knots.at[1].x == 6);
    accepted("--recipe petra/cifar10-resnet18-backprop --shorten 20");
    assert_true(settings->run.rate.milestones.at[0] == 10 && settings->run.rate.milestones.at[1] == 15 &&
                settings->run.all.epochs == 20);
    assert_true(settings->run.rate.warm_up > 0.333 && settings->run.rate.warm_up < 0.334);
    assert_string_equal(settings->run.net.model, "petra-resnet18");
    assert_string_equal(settings->run.job.run_name, "petra-cifar10-resnet18-backprop");
    accepted("");
    assert_string_equal(settings->run.job.recipe, "demo");
    assert_string_equal(settings->run.data.dataset, "fashion-mnist");
}

/* What config.yaml says, --recipe understands, to the last bit. */
static void test_round_trip(void **state)
{
    static const char *const lines[] = {
        "--recipe cifar10-fast --max-epoch 7 --name \"quo\\ted\"",
        "--model resnet18 --lr 0.1234567890123456789 --init a:b --box -1e-30,2.5 --no-flip --cutout 3 --configs "
        "configs/cifar/resnet20.py --residual-layers a,b --metrics-file caf\xc3\xa9\x7f#x --name true",
        "--defaults apam --epochs 3 --cuda True",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char *first = NULL, *second = NULL;
        size_t size;
        accepted(lines[i]);
        FILE *out = open_memstream(&first, &size);
        assert_int_equal(nw_config_write(settings, out), NW_OK);
        fclose(out);
        write_file("again.yaml", first);
        nw_settings *before = settings;
        settings = NULL;
        accepted("--recipe again.yaml");
        out = open_memstream(&second, &size);
        assert_int_equal(nw_config_write(settings, out), NW_OK);
        fclose(out);
        for (int o = 0; o < nw_option_count(); o++) {
            const nw_option *row = nw_option_at(o);
            if (!(row->commands & NW_COMMAND_TRAIN) || row->field == NW_AT(job.recipe) ||
                row->field == NW_AT(job.configs))
                continue;
            assert_string_equal(nw_settings_value(before, row->name), nw_settings_value(settings, row->name));
        }
        assert_memory_equal(&before->run.update.lr, &settings->run.update.lr, sizeof(double));
        nw_settings_free(&before);
        free(first);
        free(second);
        unlink("again.yaml");
    }
}

static void test_composition(void **state)
{
    (void)state;
    accepted(
        "--configs configs/cifar/resnet20.yaml configs/dgc/wm5.yaml --configs.train.num_epochs 500 --suffix .e500");
    assert_string_equal(settings->run.job.run_name, "[cifar.resnet20+dgc.wm5].e500.np1");
    assert_true(settings->run.all.epochs == 500 && settings->run.rate.t_max == 0 && settings->run.rate.warm_up == 5);
    assert_string_equal(settings->run.net.model, "resnet20");
    assert_string_equal(settings->run.data.dataset, "cifar10");
    assert_string_equal(settings->run.update.optimizer, "dgc-sgd");
    assert_string_equal(settings->run.job.defaults, "dgc");
    assert_string_equal(nw_settings_value(settings, "method"), "dgc");
    assert_string_equal(nw_settings_value(settings, "compress"), "layerwise");
    assert_string_equal(nw_settings_value(settings, "ratio"), "0.001");
    assert_string_equal(nw_settings_value(settings, "memory-momentum"), "-1"); /* as --momentum */
    assert_string_equal(nw_settings_origin(settings, "max-epoch"), "--configs.train.num_epochs");
    assert_int_equal(nw_settings_check(settings), NW_OK);

    /* names of the seed; groups; order */
    accepted("--configs configs/cifar/resnet20.py configs/dgc/wm5.py configs/dgc/fp16.py configs/dgc/int32.py");
    assert_string_equal(settings->run.job.run_name, "[cifar.resnet20+dgc.[wm5+fp16+int32]].np1");
    accepted("--configs configs/cifar/resnet20.py --suffix .e500");
    assert_string_equal(settings->run.job.run_name, "cifar.resnet20.e500.np1");
    assert_int_equal(nw_settings_check(settings), NW_OK);
    assert_true(settings->run.rate.t_max == 0 && settings->run.rate.lr_scaling && settings->run.all.seed == 42);

    /* a half period of 0 is the epochs after warm-up, whoever says how many these are */
    accepted("--configs configs/cifar/resnet20.py --max-epoch 50 --warm-up 2");
    assert_true(settings->run.rate.t_max == 0 && settings->run.all.epochs == 50);
    accepted("--configs configs/imagenet/resnet50.yaml --configs.train.warmup_lr_epochs=10");
    assert_true(settings->run.rate.milestones.count == 3 && settings->run.rate.milestones.at[0] == 30 &&
                settings->run.rate.milestones.at[2] == 80);
    assert_string_equal(settings->run.update.decay_filter, "no-norm");
    assert_true(settings->run.update.nesterov && settings->run.update.weight_decay == 1e-4 &&
                settings->run.net.last_bn_zero_init && settings->run.data.crop == 224);
    accepted("--configs configs/imagenet/resnet50.yaml --configs.train.scheduler.milestones [10,20]");
    assert_true(settings->run.rate.milestones.count == 2 && settings->run.rate.milestones.at[0] == 15);
    accepted("--configs.train.scheduler.milestones [10,20] --configs.train.warmup_lr_epochs 7 --configs "
             "configs/imagenet/resnet50.yaml");
    assert_true(settings->run.rate.milestones.count == 2 && settings->run.rate.milestones.at[0] == 17 &&
                settings->run.rate.milestones.at[1] == 27);
    accepted(
        "--configs configs/dgc/wm0.yaml configs/cifar/resnet110.yaml --configs.train.compression.compress_ratio 500 "
        "--configs.train.compression.memory.momentum 0.8 --configs.train.compression.warmup_coeff [1,0.5]");
    assert_string_equal(nw_settings_value(settings, "ratio"), "0.002");
    assert_string_equal(nw_settings_value(settings, "memory-momentum"), "0.8");
    assert_string_equal(nw_settings_value(settings, "ratio-warm-up-list"), "1,0.5");
    accepted("--configs configs/cifar/resnet20.py --configs.train.optimizer.momentum None --configs.train.meters x");
    assert_true(settings->run.update.momentum == 0.9);
    accepted("--configs configs/imagenet/resnet50.yaml --configs.dataset.num_classes 100 --configs.dataset.root '/a'");
    assert_true(settings->run.net.classes == 100);
    assert_string_equal(settings->run.all.data_dir, "/a");
    accepted("--configs configs/cifar/resnet20.yaml --configs.dataset.num_classes 100 --configs.train.scheduler None");
    assert_string_equal(settings->run.data.dataset, "cifar100");
    assert_string_equal(settings->run.rate.scheduler, "constant");
    accepted("--configs configs/cifar/resnet20.yaml --configs.options.label_smoothing 0.1");
    assert_true(settings->run.training.label_smoothing == 0.1);

    /* the number of ranks is part of the name, whoever says it */
    accepted("--configs configs/cifar/resnet20.yaml --virtual 4");
    assert_string_equal(settings->run.job.run_name, "cifar.resnet20.np4");
    accepted("--configs configs/cifar/resnet20.yaml --suffix .x");
    assert_int_equal(nw_settings_name_run(settings, 8), NW_OK);
    assert_string_equal(settings->run.job.run_name, "cifar.resnet20.x.np8");
    accepted("--configs configs/cifar/resnet20.py --configs.train.compression fp16");
    assert_string_equal(settings->run.codec.method, "fp16");
    assert_int_equal(nw_settings_check(settings), NW_OK);

    /* layers: file < override < option, whatever their order */
    accepted("--lr 3 --configs.train.optimizer.lr 2 --configs configs/cifar/resnet20.yaml");
    assert_true(settings->run.update.lr == 3);
    accepted("--configs.train.optimizer.lr 2 --configs configs/cifar/resnet20.yaml --recipe cifar10-fast");
    assert_true(settings->run.update.lr == 2 && settings->run.net.batch_size == 128 && settings->run.data.cutout == 8);
    assert_string_equal(nw_settings_origin(settings, "lr"), "--configs.train.optimizer.lr");
}

static void test_bad_composition(void **state)
{
    (void)state;
    refused("--configs configs/cifar/resnet21.py", NW_E_ARGUMENT, "no file configs/cifar/resnet21.yaml");
    refused("--configs configs/cifar/resnet20.py --configs.train.num_epoch 5", NW_E_ARGUMENT,
            "no key 'train.num_epoch'; the nearest is 'train.num_epochs'");
    refused("--configs configs/cifar/resnet20.py --configs.train.batch_size x", NW_E_ARGUMENT, "whole number, not 'x'");
    refused("--configs configs/cifar/resnet20.py --configs.train..x 5", NW_E_ARGUMENT, "no key 'train..x'");
    refused("--configs configs/cifar/resnet20.py --configs.train.num_epochs", NW_E_ARGUMENT, "needs a value");
    refused("--configs configs/cifar/resnet20.py --configs.train.num_epochs [1,2]", NW_E_ARGUMENT, "one value, not");
    refused("--configs configs/cifar/resnet20.py --configs.options.recipe demo", NW_E_ARGUMENT,
            "no key 'options.recipe'");
    refused("--configs configs/cifar/resnet20.py --configs.options.labels 1", NW_E_ARGUMENT, "no key 'options.labels'");
    refused("--configs configs/cifar/resnet20.py --configs.dataset.num_classes 50", NW_E_ARGUMENT, "10 or 100 classes");
    refused("--configs configs/cifar/resnet20.py --configs.train.scheduler.milestones x", NW_E_ARGUMENT, "numbers");
    refused("--configs configs/cifar/resnet20.py --configs.train.compression.compress_ratio 0", NW_E_ARGUMENT, "above");
    refused("--configs configs/cifar/resnet20.py --configs.dataset.extra_train_transforms x", NW_E_ARGUMENT, "empty");

    mkdir("tree", 0700);
    write_file("tree/_base.yaml", "max_epoch: 3\nmodel: resnet20\n");
    write_file("tree/a.yaml", "lr: 1\nbach_size: 3\n");
    write_file("tree/b.yaml", "batch_size: 3\nlr: {}\n");
    write_file("tree/c.yaml", "batch_size: 0\n");
    refused("--configs tree/a.yaml", NW_E_FILE, "tree/a.yaml:2:1: there is no key 'bach_size'");
    refused("--configs tree/b.yaml", NW_E_FILE, "tree/b.yaml:2:1: lr holds a map");
    refused("--configs tree/c.yaml", NW_E_FILE, "tree/c.yaml:1:1: batch_size is 0; it must be");
    write_file("tree/a.yaml", "batch_size: 9\n");
    write_file("tree/c.yaml", "batch_size: 7\n");
    accepted("--configs tree/c.yaml tree/a.yaml tree/c.yaml"); /* each file once */
    assert_true(settings->run.all.epochs == 3 && settings->run.net.batch_size == 9);
    assert_string_equal(settings->run.job.run_name, "[c+a].np1");
    for (const char *const *f = (const char *const[]){"_base", "a", "b", "c", NULL}; *f; f++) {
        char path[64];
        snprintf(path, sizeof path, "tree/%s.yaml", *f);
        unlink(path);
    }
    rmdir("tree");
}

static int finish(void **state)
{
    nw_settings_free(&settings);
    return leave_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_files),      cmocka_unit_test(test_bad_files),  cmocka_unit_test(test_recipes),
        cmocka_unit_test(test_bases),           cmocka_unit_test(test_round_trip), cmocka_unit_test(test_composition),
        cmocka_unit_test(test_bad_composition),
    };
    if (!NW_HAVE_YAML) {
        printf("skipped: this build is without libyaml (libyaml-dev)\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, enter_folder, finish);
}
