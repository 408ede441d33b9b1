/*
 * observe_fixture.h - for the tests of observers: an empty folder for each test, its files, and the records of an
 * invented run of 3 epochs of 10 batches. Include in one file of a test program.
 */
#ifndef NW_TESTS_OBSERVE_FIXTURE_H
#define NW_TESTS_OBSERVE_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "observe/observers.h"
#include "support/own_folder.h"

static const char *content(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    return text;
}

/* ---- records of an invented run ---- */
static nw_run_record make_run(void)
{
    nw_run_record record;
    nw_record_clear(NW_RECORD_RUN, &record);
    record.step = record.epoch = record.images = 0;
    record.model = "resnet9";
    record.max_epoch = 3;
    record.batches_per_epoch = 10;
    record.batch_size = 512;
    record.seed = 42;
    return record;
}

static nw_step_record make_step(int step)
{
    nw_step_record record;
    nw_record_clear(NW_RECORD_STEP, &record);
    record.step = step;
    record.epoch = (step - 1) / 10 + 1;
    record.batch = (step - 1) % 10 + 1;
    record.batch_images = step % 10 == 0 ? 4 : 8; /* the last batch of an epoch is smaller */
    record.images = (step - 1) / 10 * 76 + record.batch * 8 - (step % 10 == 0 ? 4 : 0);
    record.loss = step;
    record.top1 = 50;
    record.top5 = 75.5;
    record.lr = 0.05;
    record.total_seconds = step * 0.5;
    record.batch_seconds = 0.5;
    record.data_wait_seconds = 0.125;
    record.images_per_second = 16;
    return record;
}

static nw_epoch_record make_epoch(int epoch)
{
    nw_epoch_record record;
    nw_record_clear(NW_RECORD_EPOCH, &record);
    record.step = epoch * 10;
    record.epoch = epoch;
    record.images = epoch * 76;
    record.lr = 0.05;
    record.train_loss = 1.5;
    record.train_top1 = 43.21;
    record.test_loss = 1.25;
    record.test_top1 = 50 + epoch;
    record.test_top5 = 90;
    record.test_top1_best = 50 + epoch;
    record.best_epoch = epoch;
    record.epoch_train_seconds = 5;
    record.epoch_validation_seconds = 1.25;
    record.dawnbench_seconds = epoch * 5.5;
    record.total_seconds = epoch * 6.75;
    record.peak_memory_bytes = (int64_t)3 << 29;
    return record;
}

static nw_end_record make_end(int step)
{
    nw_end_record record;
    nw_record_clear(NW_RECORD_END, &record);
    record.step = step;
    record.epoch = step / 10;
    record.images = step / 10 * 76;
    record.status = "done";
    record.train_seconds = 15;
    record.validation_seconds = 3.75;
    record.total_seconds = 20.25;
    record.dawnbench_seconds = 16.5;
    return record;
}

static void play(nw_observers *observers, int first, int last)
{
    for (int step = first; step <= last; step++) {
        nw_step_record record = make_step(step);
        assert_int_equal(nw_observers_step(observers, &record), NW_OK);
        nw_epoch_record epoch = make_epoch(step / 10);
        if (step % 10 == 0) assert_int_equal(nw_observers_epoch(observers, &epoch), NW_OK);
    }
}

static void add(nw_observers *observers, nw_status created, nw_observer **observer)
{
    assert_int_equal(created, NW_OK);
    nw_observers_add(observers, *observer);
}

#endif
