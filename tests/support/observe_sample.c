/*
 * observe_sample.c - sends the records of a small invented run to the usual observers, for tests that read its files
 * with programs that are not ours, and to look at the progress line.
 *
 *   observe_sample DIR FIRST LAST [MILLISECONDS]
 *   observe_sample --tensorboard          succeeds if this build writes events
 *
 * Steps FIRST+1 to LAST of a run of 4 epochs of 6 batches of 8 images; FIRST > 0 continues. Numbers are such that a
 * reader can compute them from the step: loss 1 / step, top1 = step / 2, top5 = 50 + step, lr 0.1.
 */
#define _GNU_SOURCE 1
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observe/observers.h"

enum { EPOCHS = 4, BATCHES = 6, IMAGES = 8 };

static void require(nw_status status)
{
    if (status == NW_OK) return;
    fprintf(stderr, "observe_sample: %s\n", nw_error_message());
    exit(1);
}

static void send_step(nw_observers *observers, int step)
{
    nw_step_record record;
    nw_record_clear(NW_RECORD_STEP, &record);
    record.step = step;
    record.epoch = (step - 1) / BATCHES + 1;
    record.images = step * IMAGES;
    record.batch = (step - 1) % BATCHES + 1;
    record.batch_images = IMAGES;
    record.loss = 1.0 / step;
    record.top1 = step / 2.0;
    record.top5 = 50.0 + step;
    record.lr = 0.1;
    record.total_seconds = step;
    record.batch_seconds = 0.25;
    record.images_per_second = IMAGES / 0.25;
    record.exchange_seconds = 0.0625;
    record.bytes_sent = 1000 * step;
    record.messages_sent = 10;
    require(nw_observers_step(observers, &record));
}

static void send_epoch(nw_observers *observers, int step)
{
    nw_epoch_record record;
    nw_record_clear(NW_RECORD_EPOCH, &record);
    record.step = step;
    record.epoch = step / BATCHES;
    record.images = step * IMAGES;
    record.lr = 0.1;
    record.train_loss = 2.0 / step;
    record.train_top1 = step;
    record.test_loss = 3.0 / step;
    record.test_top1 = record.test_top1_best = 2.0 * step;
    record.test_top5 = 50.0 + step;
    record.best_epoch = record.epoch;
    record.dawnbench_seconds = 36.0 * step;
    record.bytes_sent = 500 * step * (step + 1);
    require(nw_observers_epoch(observers, &record));
}

static void send_checkpoint(nw_observers *observers, int step)
{
    nw_checkpoint_record record;
    nw_record_clear(NW_RECORD_CHECKPOINT, &record);
    record.step = step;
    record.path = "checkpoints/sample";
    record.bytes = 1000;
    require(nw_observers_checkpoint(observers, &record));
}

static void send_fault(nw_observers *observers, int step)
{
    nw_fault_record record;
    nw_record_clear(NW_RECORD_FAULT, &record);
    record.step = step;
    record.fault = "signal";
    record.detail = "SIGTERM";
    require(nw_observers_fault(observers, &record));
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--tensorboard") == 0) return nw_tensorboard_available() ? 0 : 1;
    if (count < 4) return 2;
    int first = atoi(arguments[2]), last = atoi(arguments[3]), pause_ms = count > 4 ? atoi(arguments[4]) : 0;
    nw_observers observers = {0};
    nw_observe_options options = {.run_dir = arguments[1],
                                  .resume = {first, first / BATCHES, first * IMAGES},
                                  .progress = stderr,
                                  .table = stdout,
                                  .print_every = 2,
                                  .tensorboard = nw_tensorboard_available()};
    require(nw_observers_open(&observers, &options));

    nw_run_record run;
    nw_record_clear(NW_RECORD_RUN, &run);
    run.step = first;
    run.epoch = first / BATCHES;
    run.images = first * IMAGES;
    run.model = "sample \"quoted\" \xC3\xA9";
    run.max_epoch = EPOCHS;
    run.batches_per_epoch = BATCHES;
    run.seed = 7;
    require(nw_observers_run(&observers, &run));
    for (int step = first + 1; step <= last; step++) {
        usleep((unsigned)pause_ms * 1000);
        send_step(&observers, step);
        if (step == 3) nw_observers_message(&observers, "a message of the command");
        if (step % BATCHES == 0) {
            send_epoch(&observers, step);
            send_checkpoint(&observers, step);
        }
    }
    if (last < EPOCHS * BATCHES) send_fault(&observers, last);
    nw_end_record end;
    nw_record_clear(NW_RECORD_END, &end);
    end.step = last;
    end.epoch = last / BATCHES;
    end.images = last * IMAGES;
    end.status = last == EPOCHS * BATCHES ? "done" : "interrupted";
    end.train_seconds = last * 0.25;
    end.load = (double)INFINITY; /* which JSON cannot say */
    require(nw_observers_end(&observers, &end));
    require(nw_observers_close(&observers));
    return 0;
}
