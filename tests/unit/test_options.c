/* test_options.c - the table of options and the command line: every option of the seeds, layers, refusals, help. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "config/settings.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 64 };

static nw_settings *settings;
static int positional;
static char *words[WORDS]; /* of the last line; positional ones in front */

/* Parses a line of words separated by spaces. The texts of `settings` stay valid until the next call. */
static nw_status parse_for(unsigned command, const char *line)
{
    static char copy[4096];
    int count = 0;
    nw_settings_free(&settings);
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word && count < WORDS; word = strtok(NULL, " ")) words[count++] = word;
    return nw_options_parse(command, count, words, &settings, &positional);
}

static void parse(const char *line)
{
    nw_status status = parse_for(NW_COMMAND_TRAIN, line);
    if (status != NW_OK) fail_msg("'%s' was refused: %s", line, nw_error_message());
}

static void refused(const char *line, const char *part)
{
    nw_status status = parse_for(NW_COMMAND_TRAIN, line);
    if (status == NW_OK) status = nw_settings_check(settings);
    if (status == NW_OK) fail_msg("'%s' was accepted", line);
    if (!strstr(nw_error_message(), part)) fail_msg("'%s': '%s' lacks '%s'", line, nw_error_message(), part);
}

/* Names are unique for each command, defaults are valid, help is short, fields are inside. */
static void test_table(void **state)
{
    (void)state;
    assert_true(nw_option_count() < NW_OPTIONS_MOST);
    for (int i = 0; i < nw_option_count(); i++) {
        const nw_option *o = nw_option_at(i);
        assert_true(strlen(o->help) > 0 && strlen(o->help) < 80);
        assert_true(o->field == NW_NO_FIELD || o->field < offsetof(nw_settings, region));
        for (unsigned bit = 1; bit <= o->commands; bit <<= 1)
            if (o->commands & bit) {
                nw_option_match match = nw_option_find(o->name, bit);
                if (match.index != i) fail_msg("--%s is found as row %d, not %d", o->name, match.index, i);
                if (o->letter) assert_int_equal(nw_option_find_letter(o->letter, bit).index, i);
            }
        for (const char *a = o->aliases; a && *a; a += strcspn(a, " ") + (a[strcspn(a, " ")] == ' ')) {
            char alias[64];
            snprintf(alias, sizeof alias, "%.*s", (int)strcspn(a, " "), a);
            assert_int_equal(nw_option_find(alias, o->commands & -o->commands).index, i);
        }
    }
    for (int i = 0; i < nw_translation_count(); i++) {
        assert_true(nw_option_find(nw_translation_at(i)->flag, NW_COMMAND_TRAIN).translation == nw_translation_at(i));
        assert_true(nw_option_find(nw_translation_at(i)->option, NW_COMMAND_TRAIN).index >= 0);
    }
}

/* Every option of every table of the seeds, with a value that it documents. */
static void test_every_seed_option(void **state)
{
    static const char *const lines[] = {
        /* PETRA */
        "--dataset cifar100",
        "--dataset imagenet --dir /data",
        "--model revnet50",
        "--last-bn-zero-init",
        "--max-epoch 100",
        "--optimizer lars",
        "--optimizer adam",
        "--lr 0.1",
        "--weight-decay 5e-4",
        "--no-bn-weight-decay",
        "--momentum 0.9",
        "--dampening 0.0",
        "--nesterov",
        "--beta1 0.9 --beta2 0.999",
        "--amsgrad",
        "--warm-up 5",
        "--scheduler polynomial",
        "--scheduler goyal_original",
        "--lr-scaling",
        "--goyal-lr-scaling",
        "--lr-decay-milestones 30 60 90",
        "--lr-decay-milestones 30,60,90",
        "--lr-decay-fact 0.1",
        "--synchronous",
        "--parallel",
        "--synchronization-period 2",
        "--batch-size 128",
        "--store-vjp",
        "--remove-ctx-input",
        "--remove-ctx-param",
        "--approximate-input",
        "--accumulation-steps 2",
        "--accumulate-steps 2",
        "--accumulation-averaging",
        "--quantizer QuantizQSGD",
        "--quantize-forward-com",
        "--quantize-backward-com",
        "--quantize-buffer",
        "--workers 4",
        "--ngpus 4",
        "-p 10",
        "--print-freq 10",
        "--resume ck.pth",
        "--name-checkpoint ck.pth",
        "--no-git",
        "--use-wandb",
        "--wandb-project X",
        "--wandb-entity me",
        "--wandb-offline",
        "--n-layers 20 --hidden-size 256",
        "--seed 1 --threads 2",
        "--schedule 1f1b",
        "--stages auto",
        "--partition 3,5",
        "--hop-delay 1",
        "--hop-delay real",
        "--drain never",
        "--order free",
        "--bn-stats backward",
        "--compat-ref",
        "--lr-clock batch",
        "--msg-dtype bf16",
        "--track-grad 5",
        "--max-batches 7",
        "--staleness-correction pipemare",
        "--metrics-file m.jsonl",
        /* APAM */
        "--data_name CINIC-10",
        "--data_name imagenet32 --data_dir ./data/imagenet32/",
        "--num_classes 10",
        "--model_name AllCNN",
        "--opt_name apam",
        "--alpha 1e-4",
        "--amsgrad True",
        "--amsgrad False",
        "--eps 1e-8",
        "--weight_decay 0",
        "--train_batch_size 40",
        "--test_batch_size 100",
        "--pred_train_batch_size 100",
        "--epochs 200",
        "--epoch 3",
        "--log_per_epoch 10",
        "--communication async",
        "--cuda True",
        "--cuda=False",
        "--max_delay 11",
        "--gpu_id 0",
        "--use_amsgrad 1",
        "--num_epochs 20",
        "--master_num_threads 2",
        "--mpi_thread_level MPI_THREAD_SINGLE",
        "--use_gpu 0",
        "--use_sparse 1",
        "--debug_comm 0",
        "--debug_sparse_outfile f",
        "--debug_time_outfile f",
        "--debug_grad_outfile f",
        "--timing 0",
        /* ACiD */
        "--optimizer_name SGD",
        "--dataset_name CIFAR10",
        "--dataset_name ImageNet",
        "--use_linear_scaling",
        "--apply_acid",
        "--non_iid_data",
        "--normalize_grads",
        "--deterministic_coms",
        "--deterministic_neighbor",
        "--batch_size 256",
        "--gamma_lr_scheduler 0.1",
        "--filter_bias_and_bn",
        "--rate_com 0.5",
        "--n_epoch_if_1_worker 80",
        "--graph_topology exponential",
        "--graph_topology ring",
        "--path_logs logs",
        "--acid_params 0.035 7.26",
        /* layer-wise */
        "--log_dir .",
        "-m tcp://192.168.0.1:2222",
        "--master_address x",
        "-r 1",
        "--rank 1",
        "-w 2",
        "--world_size 2",
        "-n Resent9",
        "--network Alexnet1",
        "-c layerwise",
        "--compress entiremodel",
        "--method Topk",
        "--method Randomk",
        "--method Thresholdv",
        "--method AdaptiveThreshold",
        "--method TernGrad",
        "--method RandomDithering",
        "--method QSGD",
        "-K 0.01",
        "--ratio 0.5",
        "-V 0.001",
        "--threshold 0.001",
        "-Q 255",
        "--qstates 4",
        "--phases x",
        "-j 8",
        "--start-epoch 0",
        "--wd 1e-4",
        "--init-bn0",
        "--no-bn-wd",
        "-e",
        "--evaluate",
        "--fp16",
        "--loss-scale 1024",
        "--distributed",
        "--dist-url env://",
        "--dist-backend nccl",
        "--local_rank 0",
        "--logdir l",
        "--name imagenet",
        "--short-epoch",
        "--log_all_workers 0",
        "--sparsification",
        "--randk 0.1",
        "--ddp",
        "--seed 2147483647",
        "-b 32",
        /* DGC, beside the files */
        "--devices gpu",
        "--device cpu",
        "--suffix .e500",
        "--compress_ratio 0.001",
        "--sample_ratio 0.01",
        "--strided_sample False",
        "--compress_upper_bound 1.3",
        "--compress_lower_bound 0.8",
        "--max_adaptation_iters 10",
        "--resample True",
        "--fp16_values",
        "--int32_indices",
        "--warmup_epochs 5",
        "--warmup_coeff 1 1 1 1 1",
        "--momentum_masking False",
        "--optimize_bn_separately",
        "--num_batches_per_step 2",
        "--warmup_lr_epochs 5",
        "--schedule_lr_per_epoch False",
        "--metric acc/test_top1",
        "--val_ratio 0.1",
        /* the design */
        "--exchange gossip",
        "--algorithm petra",
        "--virtual 8 --cluster c.yaml",
        "--pipeline 2",
        "--delay 1",
        "--max-staleness 4",
        "--in-flight 2",
        "--bn-sync average",
        "--server-correction inverse",
        "--stage-correction lwp",
        "--sampling replicate",
        "--calibrate f",
        "--dense-below 1024",
        "--loss-reduction sum",
        "--no-download",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "--model resnet18 %s", lines[i]);
        parse(line);
    }
}

static void test_values(void **state)
{
    (void)state;
    parse(
        "--model resnet18 --lr 0.3 --lr=0.05 --nesterov --no-flip --amsgrad=False --drop-last True --dataset CINIC-10 "
        "--lr-decay-milestones 150, 225 --lr-knots 0:0,5:0.4,24:0 --residual-layers layer1,layer3 --tta flip -p7 -j 3 "
        "--box -1,1 --weight_decay 1e-4 --dataset_name Fashion-MNIST --limit 12345678901");
    assert_true(settings->run.update.lr == 0.05 && settings->run.update.weight_decay == 1e-4);
    assert_true(settings->run.update.nesterov && !settings->run.update.amsgrad && settings->run.data.drop_last);
    assert_int_equal(settings->run.data.flip, NW_SWITCH_OFF);
    assert_int_equal(settings->run.data.resized_crop, NW_SWITCH_AUTO);
    assert_string_equal(settings->run.data.dataset, "fashion-mnist");
    assert_int_equal(settings->run.rate.milestones.count, 2);
    assert_int_equal(settings->run.rate.milestones.at[1], 225);
    assert_int_equal(settings->run.rate.lr_knots.count, 3);
    assert_true(settings->run.rate.lr_knots.at[1].x == 5 && settings->run.rate.lr_knots.at[1].y == 0.4);
    assert_int_equal(settings->run.net.residual_layers.count, 2);
    assert_string_equal(settings->run.net.residual_layers.at[1], "layer3");
    assert_int_equal(settings->run.job.print_freq, 7);
    assert_int_equal(settings->run.data.workers, 3);
    assert_true(settings->run.update.box.count == 2 && settings->run.update.box.at[0] == -1);
    assert_true(settings->run.data.limit == 12345678901);
    assert_string_equal(nw_settings_value(settings, "lr"), "0.05");
    assert_string_equal(nw_settings_origin(settings, "lr"), "command line");
    assert_string_equal(nw_settings_origin(settings, "momentum"), "default");
    assert_true(nw_settings_is_set(settings, "lr") && !nw_settings_is_set(settings, "momentum"));
    assert_null(nw_settings_value(settings, "nonsense"));

    /* translations of the reference codes' flags */
    parse("--model x --no-bn-weight-decay");
    assert_string_equal(settings->run.update.decay_filter, "no-norm-bias");
    parse("--model x --filter_bias_and_bn --normalize_grads --short-epoch --timing 0");
    assert_string_equal(settings->run.update.decay_filter, "no-1d");
    assert_true(settings->run.update.clip_norm == 1 && settings->run.training.max_batches == 11 &&
                settings->run.training.train_metrics);
    parse("--model x --no-bn-wd False");
    assert_string_equal(settings->run.update.decay_filter, "all");
    parse("--optimizer apam --model x");
    assert_int_equal(settings->run.update.amsgrad, NW_SWITCH_AUTO); /* of apam: on */
    parse("--optimizer apam --model x --no-amsgrad");
    assert_int_equal(settings->run.update.amsgrad, NW_SWITCH_OFF);
}

static void test_positional(void **state)
{
    (void)state;
    assert_int_equal(parse_for(NW_COMMAND_PREDICT, "ck a.png --top 3 b.png -- --odd.png"), NW_OK);
    assert_int_equal(positional, 4);
    assert_string_equal(words[0], "ck");
    assert_string_equal(words[3], "--odd.png");
    assert_int_equal(settings->look.top, 3);
    parse("/ --model x");
    assert_int_equal(positional, 0);
    assert_string_equal(settings->run.all.data_dir, "/");
    refused("resnet18", "--model resnet18");
    /* grids add up, other options are replaced */
    assert_int_equal(parse_for(NW_COMMAND_SWEEP, "--grid lr=0.1,0.2 --lr 1 --grid batch-size=8,16 --lr 2"), NW_OK);
    assert_int_equal(settings->experiment.grid.count, 2);
    assert_string_equal(settings->experiment.grid.at[0], "lr=0.1,0.2");
    assert_string_equal(settings->experiment.grid.at[1], "batch-size=8,16");
    assert_true(settings->run.update.lr == 2);
    /* a bench keeps its own defaults */
    assert_int_equal(parse_for(NW_COMMAND_BENCH_TRAIN, "--seed 3"), NW_OK);
    assert_int_equal(settings->run.net.classes, 10);
    assert_int_equal(settings->run.net.image_size, 0);
    assert_int_equal(parse_for(NW_COMMAND_BENCH_LOADER, ""), NW_OK);
    assert_string_equal(settings->run.data.dataset, "synthetic");
}

static void test_refusals(void **state)
{
    (void)state;
    refused("--model x --bach-size 3", "the nearest is --batch-size");
    refused("--model x --batch-size 0", "--batch-size is 0; it must be 1 to 1048576");
    refused("--model x --batch-size 1.5", "whole number, not '1.5'");
    refused("--model x --epochs 99999999999999999999", "must be");
    refused("--model x --lr nan", "takes a number, not 'nan'");
    refused("--model x --lr", "--lr needs a value: X");
    refused("--model x --lr-decay-milestones", "needs a value: EPOCH...");
    refused("--model x --lr-knots 0:0,0:1", "growing epochs");
    refused("--model x --lr-knots 3", "takes pairs");
    refused("--model x --nesterov=maybe", "true or false");
    refused("--model x --no-lr", "no option --no-lr");
    refused("--model x --scheduler cosin", "--scheduler is steplr|polynomial|cosine|");
    refused("--model x -z", "two dashes");
    refused("--model x ---", "no option ---");
    refused("--configs.train.lr 1 --model x", "add --configs");
    /* what later versions bring, in one place */
    refused("--model x --pipeline 2", "not part of this version");
    refused("--model x --algorithm petra", "--algorithm petra (command line) is not part of this version");
    refused("--model x --remove-ctx-param --remove_ctx_input",
            "--remove-ctx-input --remove-ctx-param (command line) is not part of this version");
    refused("--defaults petra", "--algorithm delayed (defaults petra) is not part");
    refused("--model x --algorithm dsp --remove-ctx-input", "--algorithm dsp does not agree with --remove-ctx-input");
    /* by the name that was typed */
    refused("--model x --num_epochs many", "--num_epochs takes a whole number");
    refused("--model x -b many", "-b takes a whole number");
    refused("--model x -b", "-b needs a value: N");
    refused("--model x --milestones", "--milestones needs a value: EPOCH...");
    parse("--model x --exchange none --ratio 0.50 --world_size 1");
    assert_int_equal(nw_settings_check(settings), NW_OK);
}

/* The matrix of the method flags. */
static void test_algorithms(void **state)
{
    static const char *const flags[] = {
        "--store-vjp",        "", "--remove-ctx-param", "--remove-ctx-input", "--remove-ctx-input --remove-ctx-param",
        "--approximate-input"};
    (void)state;
    for (int synchronous = 0; synchronous < 2; synchronous++)
        for (int i = 0; i < 6; i++) {
            char line[128], id[3] = {synchronous ? 's' : 'a', (char)('1' + i), 0};
            if (!synchronous && i == 1) continue; /* nothing given: --algorithm decides */
            snprintf(line, sizeof line, "--model x %s %s", flags[i], synchronous ? "--synchronous" : "");
            parse(line);
            assert_string_equal(settings->run.training.algorithm, id);
        }
    parse("--model x");
    assert_string_equal(settings->run.training.algorithm, "s1");
    parse("--model x --algorithm delayed");
    assert_string_equal(settings->run.training.algorithm, "a2");
    parse("--model x --synchronous --store-vjp --remove-ctx-input --remove-ctx-param --approximate-input=False");
    assert_string_equal(settings->run.training.algorithm, "s1");
    parse("--model x --algorithm backprop --synchronous --store-vjp");
    assert_int_equal(nw_settings_check(settings), NW_OK);
}

static void test_defaults_and_shorten(void **state)
{
    (void)state;
    parse("--defaults apam --lr 0.5");
    assert_string_equal(settings->run.update.optimizer, "apam");
    assert_true(settings->run.update.amsgrad == NW_SWITCH_ON && settings->run.update.lr == 0.5 &&
                settings->run.update.weight_decay == 0 && settings->run.net.batch_size == 40);
    assert_string_equal(nw_settings_origin(settings, "optimizer"), "defaults apam");
    parse("--defaults layerwise");
    assert_true(settings->run.update.momentum == 0 && !settings->run.update.nesterov);
    parse("--momentum 0.9 --defaults layerwise --max-epoch 12");
    assert_true(settings->run.update.nesterov && settings->run.rate.lr_knots.at[1].x == 5 &&
                settings->run.rate.lr_knots.at[2].x == 12);
    static const char *const sets[] = {"petra", "apam", "acid", "layerwise", "dgc"};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "--defaults %s", sets[i]);
        parse(line);
        assert_string_equal(settings->run.job.defaults, sets[i]);
    }

    parse("--model x --max-epoch 300 --warm-up 5 --lr-decay-milestones 150 225 --shorten 20 --t-max 30 --ema-epochs 3");
    assert_int_equal(settings->run.all.epochs, 20);
    assert_int_equal(settings->run.rate.milestones.at[0], 10);
    assert_int_equal(settings->run.rate.milestones.at[1], 15);
    assert_true(settings->run.rate.warm_up > 0.333 && settings->run.rate.warm_up < 0.334 &&
                settings->run.rate.t_max == 2);
    assert_int_equal(settings->run.training.ema_epochs, 1);
    assert_true(nw_settings_notes(settings) == 1 && strstr(nw_settings_note(settings, 0), "from 300 to 20 epochs"));
    /* an option by itself scales nothing */
    parse("--model x --max-epoch 20 --warm-up 5");
    assert_true(settings->run.rate.warm_up == 5 && nw_settings_notes(settings) == 0);
}

static void test_notes_and_names(void **state)
{
    (void)state;
    parse("--model resnet20 --cuda True --ngpus 4 --use-wandb --wandb-project PETRA --suffix .a/b");
    assert_int_equal(nw_settings_notes(settings), 3);
    assert_non_null(strstr(nw_settings_note(settings, 0), "warning: --cuda is"));
    assert_string_equal(nw_settings_note(settings, 1), "--cuda, --ngpus have no effect: this program has no GPU code");
    assert_string_equal(nw_settings_note(settings, 2), "--use-wandb has no effect: metrics.jsonl has such records");
    assert_string_equal(settings->run.job.run_name, "resnet20-cifar10.a-b");
    parse("--model resnet20 --defaults global --cuda False --device cpu");
    assert_int_equal(nw_settings_notes(settings), 0);
    parse("--model x --name mine --suffix 2");
    assert_string_equal(settings->run.job.run_name, "mine2");
}

static int lines_of(const char *text, size_t *longest)
{
    int lines = 0;
    *longest = 0;
    for (; *text; text += strcspn(text, "\n") + (text[strcspn(text, "\n")] != 0), lines++)
        if (strcspn(text, "\n") > *longest) *longest = strcspn(text, "\n");
    return lines;
}

static void test_help_fits_a_screen(void **state)
{
    (void)state;
    for (int topic = -1; topic < NW_TOPICS; topic++) {
        char *text = NULL;
        size_t size = 0, longest;
        FILE *out = open_memstream(&text, &size);
        unsigned command = topic == NW_TOPIC_LAUNCH ? NW_COMMAND_LAUNCH : NW_COMMAND_TRAIN;
        nw_status status = nw_options_help_topic(command, topic < 0 ? NULL : nw_topic_name((nw_topic)topic), out);
        fclose(out);
        if (topic != NW_TOPIC_MEASURE) {
            assert_int_equal(status, NW_OK);
            assert_true(lines_of(text, &longest) <= 40);
            if (longest > 130) fail_msg("help has a line of %zu characters:\n%s", longest, text);
        }
        free(text);
    }
    assert_int_equal(nw_options_help_topic(NW_COMMAND_TRAIN, "shedule", stderr), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "'schedule'"));
}

static const char *hint(void)
{
    for (int i = 0; i < nw_settings_notes(settings); i++)
        if (strncmp(nw_settings_note(settings, i), "warning: ", 9) == 0) return nw_settings_note(settings, i);
    return "";
}

/* Lines of the reference codes, without --defaults: said whose they are, by what, and nothing is switched. */
static void test_hints(void **state)
{
    static const struct {
        const char *line, *said;
    } lines[] = {
        {"--dataset cifar10 --model revnet18 --max-epoch 300 --batch-size 64 --no-bn-weight-decay --remove-ctx-input "
         "--accumulation-averaging -p 50",
         "warning: --no-bn-weight-decay, --remove-ctx-input are each an option of the reference code 'petra'"},
        {"--data_name CINIC-10 --model_name resnet18 --alpha 1e-4 --cuda False --epochs 200",
         "warning: --data_name, --alpha, --cuda are each an option of the reference code 'apam'"},
        {"--model_name resnet18 --lr 0.1 --apply_acid --rate_com 1", "--apply_acid, --rate_com"},
        {"--dataset_name CIFAR10 --batch_size 128", "--dataset_name is an option of the reference code 'acid'"},
        {"--network resnet9 --compress layerwise --method Topk --ratio 0.01 --world_size 2",
         "warning: --network is an option of the reference code 'layerwise'"},
        {"-n resnet9 -c layerwise -K 0.01", "warning: -n, -c, -K are each an option of the reference code 'layerwise'"},
        {"--model resnet20 --device gpu", "to train as it does add --defaults dgc"},
        /* our own words */
        {"--model x --lr 1 --apply-acid --rate-com 1 --non-iid-data --batch_size 3 --log-dir x", ""},
        {"--model x --alpha 0.1 --defaults apam", ""},
        {"--model x --alpha 0.1 --defaults global", ""}};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        parse(lines[i].line);
        if (!strstr(hint(), lines[i].said) || (!*lines[i].said && *hint()))
            fail_msg("%s: '%s' lacks '%s'", lines[i].line, hint(), lines[i].said);
    }
    parse("--data_name CINIC-10 --alpha 1e-4");
    assert_true(settings->run.net.batch_size == 128 && settings->run.update.lr == 1e-4);
    assert_string_equal(settings->run.job.defaults, "global");
    /* nothing to train is named: not the demo */
    refused("--alpha 1e-4 --epochs 20", "--alpha: this looks like a line of the reference code 'apam'");
    assert_int_equal(parse_for(NW_COMMAND_LAUNCH, "-n 2"), NW_OK);
    assert_string_equal(hint(), "");
}

/* Options that no command takes together fill no field of another's type: all defaults are there. */
static void test_every_command_has_defaults(void **state)
{
    (void)state;
    for (unsigned bit = 1; bit < NW_COMMAND_ALL; bit <<= 1) {
        assert_int_equal(parse_for(bit, bit == NW_COMMAND_TRAIN ? "--model x" : ""), NW_OK);
        assert_string_equal(settings->run.all.data_dir, "./data");
        assert_non_null(settings->run.net.model);
        assert_non_null(settings->look.url);
        assert_int_equal(settings->run.all.epochs, 100);
    }
}

static void parse_other(unsigned command, const char *line)
{
    if (parse_for(command, line) != NW_OK) fail_msg("'%s' was refused: %s", line, nw_error_message());
}

/* The struct of a command shows what its line says. */
static void test_every_command_has_a_struct(void **state)
{
    (void)state;
    parse_other(NW_COMMAND_EVAL | NW_COMMAND_TRAIN, "ck --split val --format json --lr 3 --model x");
    nw_eval_options eval = nw_eval_options_of(settings);
    assert_string_equal(eval.split, "val");
    assert_string_equal(eval.format, "json");
    assert_true(eval.run->update.lr == 3 && eval.run->settings == settings);
    parse_other(NW_COMMAND_PREDICT | NW_COMMAND_TRAIN, "ck a.png --top 2 --model y");
    assert_int_equal(nw_predict_options_of(settings).top, 2);
    assert_string_equal(nw_predict_options_of(settings).run->net.model, "y");
    parse_other(NW_COMMAND_SWEEP, "--grid lr=1,2 --seeds 3 --format json --name n --seed 8");
    nw_sweep_options sweep = nw_sweep_options_of(settings);
    assert_true(sweep.grid->count == 1 && sweep.seeds == 3 && sweep.all->seed == 8);
    assert_string_equal(sweep.run_name, "n");
    assert_string_equal(sweep.format, "json");
    parse_other(NW_COMMAND_REPRODUCE, "p --scale tiny --real --seeds 4");
    nw_reproduce_options reproduce = nw_reproduce_options_of(settings);
    assert_true(reproduce.real && !reproduce.dry_run && reproduce.seeds == 4 && !reproduce.dataset_given);
    assert_string_equal(reproduce.scale, "tiny");
    parse_other(NW_COMMAND_REPRODUCE, "p --dataset mnist --dry-run");
    assert_true(nw_reproduce_options_of(settings).dataset_given && nw_reproduce_options_of(settings).dry_run);
    parse_other(NW_COMMAND_REPLAY, "r --steps 7 --from c --show");
    nw_replay_options replay = nw_replay_options_of(settings);
    assert_true(replay.steps == 7 && replay.show);
    assert_string_equal(replay.from, "c");
    parse_other(NW_COMMAND_LAUNCH, "-n 5 --quiet");
    assert_true(nw_launch_options_of(settings).launch->ranks == 5 && nw_launch_options_of(settings).all->quiet);
    parse_other(NW_COMMAND_DATA, "info x --val-ratio 0.5 --limit 6 --classes 3 --url u --output o --format json");
    nw_data_options data = nw_data_options_of(settings);
    assert_true(data.val_ratio == 0.5 && data.limit == 6 && data.classes == 3);
    assert_string_equal(data.url, "u");
    assert_string_equal(data.output, "o");
    assert_string_equal(data.format, "json");
    parse_other(NW_COMMAND_INFO, "--models --graph g --width 9");
    nw_info_options info = nw_info_options_of(settings);
    assert_true(info.models && info.net->width == 9);
    assert_string_equal(info.graph, "g");
    parse_other(NW_COMMAND_BENCH_EXCHANGE, "--steps 3 --repeats 2 --batch-size 4 --delay 1 --threads 6");
    nw_bench_options bench = nw_bench_options_of(settings);
    assert_true(bench.bench->steps == 3 && bench.bench->repeats == 2 && bench.net->batch_size == 4);
    assert_true(bench.world->delay == 1 && bench.all->threads == 6);
    parse_other(NW_COMMAND_BENCH_LOADER, "--workers 3");
    assert_int_equal(nw_bench_options_of(settings).data->workers, 3);
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
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_every_seed_option),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_positional),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_algorithms),
        cmocka_unit_test(test_defaults_and_shorten),
        cmocka_unit_test(test_notes_and_names),
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_help_fits_a_screen),
        cmocka_unit_test(test_every_command_has_defaults),
        cmocka_unit_test(test_every_command_has_a_struct),
    };
    return cmocka_run_group_tests(tests, NULL, finish);
}
