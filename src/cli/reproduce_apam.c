/*
 * reproduce_apam.c - the experiments of APAM (asynchronous parallel AMSGrad) that consist of several runs.
 *
 *   delays        a gradient is that of a model up to D - 1 updates old, D - 1 = 0 to 400; accuracy by epoch
 *   speed         time of an epoch for 1 to 20 workers of one server, asynchronous and synchronous
 *   accuracy      accuracy by epoch for 1 to 10 workers, asynchronous, and for the synchronous method
 *   mnist-lenet5  accuracy and speed-up of the C++ program
 *   logit         the shared-memory program: logistic regression, by threads
 *
 * Workers are ranks 1 and up of a virtual cluster that has the published costs; rank 0 is the server. A synchronous worker
 * takes its share of the batch that an asynchronous worker takes whole, so that updates are made of as many images.
 *
 * Speed. The published machine needs 5.74 s a gradient; what the network that is really computed here costs does not
 * matter to the virtual clock. So it is lenet5, on made images, and the cluster's links are slower in the ratio of
 * lenet5's messages to resnet18's: a message takes as long as the published 44.7 MB. Time of an epoch = time of an update
 * times the 1125 updates of an epoch of CINIC-10.
 */
#include "cli/reproduce.h"

#include "base/machine.h"
#include "data/dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVER "--exchange=server --servers=1 --communication=%s --in-flight=%d"

enum { BATCH = 80, UPDATES = 1125 /* of an epoch of CINIC-10: its 90,000 images in batches of 80 */ };

/* ---- delays ------------------------------------------------------------------------------------------------------ */

static nw_status plan_delays(nw_grid *grid)
{
    static const int delays[] = {0, 5, 10, 20, 50, 100, 200, 400};
    for (size_t i = 0; i < sizeof delays / sizeof delays[0]; i++) {
        nw_trial *trial;
        NW_TRY(nw_grid_add(grid, &trial, "delay%d", delays[i]));
        snprintf(trial->label, sizeof trial->label, "delay %d", delays[i]);
        snprintf(trial->variant, sizeof trial->variant, "%d", delays[i]);
        NW_TRY(nw_trial_options(trial, "--recipe apam/cifar10-allcnn --max-delay=%d", delays[i] + 1));
        NW_TRY(nw_trial_shorten(grid, trial, 400));
    }
    return NW_OK;
}

static nw_status report_delays(nw_grid *grid)
{
    NW_TRY(nw_grid_chart_epochs(grid, "delay", "delays", "AllCNN on CIFAR-10, gradients of earlier models",
                                "test accuracy, %", "test_top1", "test_top1"));
    return nw_grid_chart_epochs(grid, "delay", "delays-train", "AllCNN on CIFAR-10, on training images",
                                "train accuracy, %", "train_eval_top1", "train_top1");
}

/* ---- speed ------------------------------------------------------------------------------------------------------- */

static const struct method {
    const char *name, *label, *communication, *published;
    int in_flight;
} methods[] = {
    {"async", "async", "async", "cinic10 async", 2},
    {"async-waiting", "async, one in flight", "async", NULL, 1},
    {"sync", "sync", "sync", "cinic10 sync", 1},
};
enum { METHODS = sizeof methods / sizeof methods[0] };

/* Real ranks want cores: with more workers than those, they would measure the scheduler. Two can always be tried. */
static bool worth_it(const nw_grid *grid, int workers)
{
    int cores = nw_machine_allowed_cpus();
    return grid->settings->real ? workers <= (cores > 2 ? cores : 2) : workers != 2;
}

static nw_status add_speed(nw_grid *grid, const struct method *method, int workers)
{
    bool async = strcmp(method->communication, "async") == 0;
    bool real = grid->settings->real, tiny = grid->scale == NW_SCALE_TINY;
    int steps = workers * (tiny && real ? 4 : tiny ? 20 : 100);
    nw_trial *trial;
    NW_TRY(nw_grid_add(grid, &trial, "%s%d", method->name, workers));
    trial->workers = workers;
    if (grid->scale == NW_SCALE_PAPER || steps > UPDATES) steps = UPDATES;
    if (!async && steps > 200) steps = 200; /* every one takes as long as the other */
    NW_TRY(nw_trial_options(trial, "--defaults apam --optimizer apam --lr=1e-4 --dataset synthetic --limit=%d",
                            tiny && real ? 400 : 2000));
    NW_TRY(nw_trial_options(trial, "--train-metrics=false"));
    NW_TRY(nw_trial_options(trial, SERVER, method->communication, method->in_flight));
    NW_TRY(nw_trial_options(trial,
                            "--batch-size=%d --max-steps=%d --max-epoch=100000 --eval-every=100000 "
                            "--checkpoint-every=1000000000",
                            BATCH, steps)); /* in step divided among the workers */
    if (real) {
        trial->ranks = workers + 1;
        return nw_trial_options(trial, "--model resnet18 --threads=1");
    }
    return nw_trial_options(trial, "--model lenet5 --virtual=%d --cluster apam-paper-lenet5", workers + 1);
}

static nw_status plan_speed(nw_grid *grid)
{
    static const int workers[] = {1, 2, 5, 10, 20};
    for (int m = 0; m < METHODS; m++)
        for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++)
            if (worth_it(grid, workers[i])) NW_TRY(add_speed(grid, &methods[m], workers[i]));
    snprintf(grid->remark, sizeof grid->remark, "%s",
             grid->settings->real
                 ? "resnet18 on made images, real ranks of one thread on this machine"
                 : "a virtual cluster with the published costs; lenet5 is computed in place of resnet18");
    return NW_OK;
}

static double seconds_of_update(const nw_grid *grid, const nw_trial *trial)
{
    double seconds = grid->settings->real ? trial->result.train_seconds : trial->result.virtual_seconds;
    return trial->done && trial->result.steps > 0 ? seconds / trial->result.steps : NAN;
}

/* Times of the trials whose name is `name` and a number of workers. */
static nw_status add_times(const nw_grid *grid, const char *name, double unit, nw_curve *curve)
{
    for (int t = 0; t < grid->count; t++) {
        const nw_trial *trial = &grid->trials[t];
        char wanted[64];
        snprintf(wanted, sizeof wanted, "%s%d", name, trial->workers);
        double seconds = seconds_of_update(grid, trial);
        if (strcmp(wanted, trial->name) == 0 && isfinite(seconds))
            NW_TRY(nw_curve_add(curve, trial->workers, seconds * unit));
    }
    return NW_OK;
}

/* Times become speed-ups over one worker; without its time there is none. */
static void invert(nw_curve *curve)
{
    double one = nw_curve_at(curve, 1);
    for (int i = 0; i < curve->count; i++) curve->y[i] = one / curve->y[i];
    if (!isfinite(one)) curve->count = 0;
}

static nw_status report_speed(nw_grid *grid)
{
    static const char *const others[] = {"imagenet32 async", "imagenet32 sync"};
    for (int speed_up = 0; speed_up < 2; speed_up++) {
        nw_chart *chart;
        NW_TRY(nw_grid_chart(grid, &chart, speed_up ? "speed-up" : "hours",
                             speed_up ? "Speed-up over one worker" : "Time of an epoch of CINIC-10 with ResNet18",
                             "workers", speed_up ? "speed-up" : "hours", speed_up ? 2 : 4));
        for (int m = 0; m < METHODS; m++) {
            nw_chart_line *line;
            const nw_published *published =
                methods[m].published ? nw_published_find("apam/speed", methods[m].published, "hours") : NULL;
            NW_TRY(nw_chart_line_add(chart, published, &line, "%s", methods[m].label));
            NW_TRY(add_times(grid, methods[m].name, UPDATES / 3600.0, &line->here));
        }
        for (int i = 0; i < 2 && speed_up; i++)
            NW_TRY(
                nw_chart_line_add(chart, nw_published_find("apam/speed", others[i], "hours"), NULL, "%s", others[i]));
        for (int i = 0; i < chart->count && speed_up; i++) {
            invert(&chart->lines[i].here);
            invert(&chart->lines[i].published);
        }
    }
    return NW_OK;
}

/* ---- accuracy ---------------------------------------------------------------------------------------------------- */

static const struct task {
    const char *dataset, *recipe, *stand_in, *stand_in_text;
    int epochs;
} tasks[] = {
    {"cinic10", "apam/cinic10-resnet18", "--dataset cifar10", "CIFAR-10 stands in for CINIC-10", 200},
    {"imagenet32", "apam/imagenet32-wrn28-5", "--dataset synthetic --normalise auto",
     "made images of 10 classes stand in for ImageNet32", 40},
};
enum { TASKS = sizeof tasks / sizeof tasks[0] };

static bool has_training_images(const nw_settings *s, const char *dataset)
{
    nw_dataset *d;
    if (nw_dataset_open(&d, &(nw_dataset_options){.name = dataset, .dir = s->data_dir}) != NW_OK) return false;
    bool has = d->split[NW_SPLIT_TRAIN].count > 0;
    nw_dataset_close(d);
    return has;
}

static nw_status add_accuracy(nw_grid *grid, const struct task *task, const char *communication, int workers,
                              bool stands_in)
{
    bool async = strcmp(communication, "async") == 0;
    nw_trial *trial;
    NW_TRY(nw_grid_add(grid, &trial, "%s-%s%d", task->dataset, communication, workers));
    snprintf(trial->label, sizeof trial->label, "%d worker%s%s", workers, workers == 1 ? "" : "s",
             async ? "" : ", sync");
    if (async) snprintf(trial->variant, sizeof trial->variant, "%s %d", task->dataset, workers);
    NW_TRY(nw_trial_options(trial, "--recipe %s " SERVER, task->recipe, communication, async ? 2 : 1));
    NW_TRY(nw_trial_options(trial, "--virtual=%d --cluster apam-paper", workers + 1));
    if (stands_in) NW_TRY(nw_trial_options(trial, "%s", task->stand_in));
    return nw_trial_shorten(grid, trial, task->epochs);
}

static nw_status plan_accuracy(nw_grid *grid)
{
    static const int workers[] = {1, 2, 5, 10};
    for (int k = 0; k < TASKS; k++) {
        bool stands_in =
            !nw_settings_is_set(grid->settings, "dataset") && !has_training_images(grid->settings, tasks[k].dataset);
        if (stands_in) {
            size_t used = strlen(grid->remark);
            snprintf(grid->remark + used, sizeof grid->remark - used, "%s%s", used ? "; " : "", tasks[k].stand_in_text);
        }
        for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++)
            NW_TRY(add_accuracy(grid, &tasks[k], "async", workers[i], stands_in));
        NW_TRY(add_accuracy(grid, &tasks[k], "sync", 10, stands_in));
    }
    return NW_OK;
}

/* Published training accuracies are of augmented images, those here are not augmented. */
static nw_status report_accuracy(nw_grid *grid)
{
    static const struct {
        const char *prefix, *file, *title, *y, *field, *quantity;
    } charts[] = {
        {"cinic10", "cinic10-test", "CINIC-10, ResNet18", "test top-1, %", "test_top1", "test_top1"},
        {"cinic10", "cinic10-train", "CINIC-10, ResNet18", "train top-1, %", "train_eval_top1", "train_top1"},
        {"imagenet32", "imagenet32-test", "ImageNet32, WideResNet-28-5", "test top-1, %", "test_top1", "test_top1"},
        {"imagenet32", "imagenet32-test5", "ImageNet32, WideResNet-28-5", "test top-5, %", "test_top5", "test_top5"},
        {"imagenet32", "imagenet32-train", "ImageNet32, WideResNet-28-5", "train top-1, %", "train_eval_top1",
         "train_top1"},
        {"imagenet32", "imagenet32-train5", "ImageNet32, WideResNet-28-5", "train top-5, %", "train_eval_top5",
         "train_top5"},
    };
    for (size_t i = 0; i < sizeof charts / sizeof charts[0]; i++)
        NW_TRY(nw_grid_chart_epochs(grid, charts[i].prefix, charts[i].file, charts[i].title, charts[i].y,
                                    charts[i].field, charts[i].quantity));
    return NW_OK;
}

/* ---- LeNet5 ------------------------------------------------------------------------------------------------------ */

static nw_status plan_lenet5(nw_grid *grid)
{
    static const int workers[] = {1, 2, 5, 10, 20};
    for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++) {
        nw_trial *trial;
        NW_TRY(nw_grid_add(grid, &trial, "async%d", workers[i]));
        trial->workers = workers[i];
        NW_TRY(nw_trial_options(trial, "--recipe apam/mnist-lenet5"));
        NW_TRY(nw_trial_options(trial, SERVER " --virtual=%d --cluster apam-lenet5", "async", 1, workers[i] + 1));
        NW_TRY(nw_trial_shorten(grid, trial, 200));
    }
    return NW_OK;
}

static nw_status report_lenet5(nw_grid *grid)
{
    nw_chart *chart;
    nw_chart_line *line;
    NW_TRY(nw_grid_chart(grid, &chart, "accuracy", "LeNet5 on MNIST", "workers", "test accuracy, %", 2));
    NW_TRY(nw_chart_line_add(chart, nw_published_find("apam/mnist-lenet5", "async", "test_top1"), &line, "async"));
    for (int t = 0; t < grid->count; t++)
        if (grid->trials[t].done)
            NW_TRY(nw_curve_add(&line->here, grid->trials[t].workers, grid->trials[t].result.test_top1));
    NW_TRY(
        nw_grid_chart(grid, &chart, "speed-up", "LeNet5 on MNIST, speed-up over one worker", "workers", "speed-up", 2));
    NW_TRY(nw_chart_line_add(chart, nw_published_find("apam/mnist-lenet5", "async", "seconds"), &line, "async"));
    NW_TRY(add_times(grid, "async", 1, &line->here));
    invert(&line->here);
    invert(&line->published);
    return NW_OK;
}

/* ---- logistic regression ----------------------------------------------------------------------------------------- */

static nw_status plan_logit(nw_grid *grid)
{
    for (int threads = 1; threads <= 32; threads *= 2) {
        if (threads > nw_machine_allowed_cpus()) continue;
        nw_trial *trial;
        NW_TRY(nw_grid_add(grid, &trial, "threads%d", threads));
        trial->workers = threads;
        NW_TRY(
            nw_trial_options(trial, "--defaults apam --model logit --dataset libsvm --batch-size=64 --max-epoch=100"));
        NW_TRY(nw_trial_options(trial, "--optimizer apam-paper --scheduler inverse-sqrt --lr=10 --lr-max=0.01"));
        NW_TRY(nw_trial_options(trial, "--loss-reduction sum --threads=%d", threads));
        if (grid->scale != NW_SCALE_PAPER)
            NW_TRY(nw_trial_options(trial, "--shorten=%d", nw_scale_epochs(grid->scale, 100)));
    }
    snprintf(grid->remark, sizeof grid->remark, "here on the rows that --data-dir names, published on those of rcv1");
    return NW_OK;
}

static nw_status report_logit(nw_grid *grid)
{
    static const struct {
        const char *quantity, *file, *y;
        int decimals;
    } charts[] = {{"train_loss", "loss", "train loss", 5},
                  {"test_top1", "accuracy", "test accuracy, %", 2},
                  {"seconds", "speed-up", "speed-up", 2}};
    for (size_t i = 0; i < sizeof charts / sizeof charts[0]; i++) {
        nw_chart *chart;
        nw_chart_line *line;
        bool times = strcmp(charts[i].quantity, "seconds") == 0;
        NW_TRY(nw_grid_chart(grid, &chart, charts[i].file, "Logistic regression in shared memory", "threads",
                             charts[i].y, charts[i].decimals));
        NW_TRY(nw_chart_line_add(chart, nw_published_find("apam/logit", "async", charts[i].quantity), &line, "async"));
        for (int t = 0; t < grid->count; t++) {
            const nw_trial *trial = &grid->trials[t];
            if (!trial->done) continue;
            double value = times                                          ? trial->result.train_seconds
                           : strcmp(charts[i].quantity, "test_top1") == 0 ? trial->result.test_top1
                                                                          : trial->result.train_eval_loss;
            NW_TRY(nw_curve_add(&line->here, trial->workers, value));
        }
        if (!times) continue;
        invert(&line->here);
        invert(&line->published);
    }
    return NW_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ */

const nw_experiment nw_apam_experiments[] = {
    {"apam/delays", "artificial delays of 0 to 400 updates, AllCNN on CIFAR-10 (figure 9)", 8, NULL, plan_delays,
     report_delays},
    {"apam/speed", "time of an epoch, 1 to 20 workers, async and sync (figure 10); --real: ranks here", 12, NULL,
     plan_speed, report_speed},
    {"apam/accuracy", "accuracy of 1 to 10 workers on CINIC-10 and ImageNet32 (figures 11, 12)", 10, NULL,
     plan_accuracy, report_accuracy},
    {"apam/mnist-lenet5", "accuracy and speed-up of 1 to 20 workers (README of the C++ program)", 5, NULL, plan_lenet5,
     report_lenet5},
    {"apam/logit", "logistic regression by 1 to 32 threads (README of the OpenMP program)", 6,
     "a LIBSVM file, the published one is rcv1", plan_logit, report_logit},
};
const int nw_apam_experiment_count = sizeof nw_apam_experiments / sizeof nw_apam_experiments[0];
