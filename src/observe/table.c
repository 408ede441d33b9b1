/*
 * table.c - a row an epoch on the console, as cifar10-fast prints it, and where the time went at the end.
 *
 *   epoch  lr  train time  train loss  train acc  test time  test loss  test acc  total time
 *
 * Columns are 12 wide, right-aligned, separated by a space; numbers have 4 decimals. As there: accuracies are
 * fractions, times are seconds, total time leaves out validation, and a learning rate that acts on summed losses is
 * shown times the batch size, so that it compares with one that acts on means. What is unknown is a dash.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "observe/observers.h"
#include "observe/terminal.h"

enum { COLUMNS = 9, WIDE = 12, NARROW = 8, WIDE_TABLE = COLUMNS * (WIDE + 1) };

static const struct column {
    const char *name, *short_name;
    int short_decimals;
} columns[COLUMNS] = {{"epoch", "epoch", 0},     {"lr", "lr", 4},         {"train time", "train s", 1},
                      {"train loss", "loss", 4}, {"train acc", "acc", 4}, {"test time", "test s", 1},
                      {"test loss", "loss", 4},  {"test acc", "acc", 4},  {"total time", "total s", 1}};

typedef struct table {
    nw_observer base;
    FILE *out;
    double lr_factor;
    bool narrow, begun;
} table;

static void print_header(table *self)
{
    int width = nw_terminal_width(self->out);
    self->narrow = width > 0 && width < WIDE_TABLE;
    self->begun = true;
    for (int i = 0; i < COLUMNS; i++) {
        const char *name = self->narrow ? columns[i].short_name : columns[i].name;
        fprintf(self->out, "%*s%c", self->narrow ? NARROW : WIDE, name, i + 1 < COLUMNS ? ' ' : '\n');
    }
}

static void print_row(table *self, const nw_epoch_record *epoch)
{
    const double values[COLUMNS] = {(double)epoch->epoch, epoch->lr * self->lr_factor, epoch->epoch_train_seconds,
                                    epoch->train_loss,    epoch->train_top1 / 100,     epoch->epoch_validation_seconds,
                                    epoch->test_loss,     epoch->test_top1 / 100,      epoch->dawnbench_seconds};
    int width = self->narrow ? NARROW : WIDE;
    for (int i = 0; i < COLUMNS; i++) {
        int decimals = i == 0 ? 0 : self->narrow ? columns[i].short_decimals : 4;
        if (isnan(values[i])) {
            fprintf(self->out, "%*s", width, "-");
        } else {
            fprintf(self->out, "%*.*f", width, decimals, values[i]);
        }
        fputc(i + 1 < COLUMNS ? ' ' : '\n', self->out);
    }
}

static nw_status observe(nw_observer *observer, nw_record_kind kind, const void *record)
{
    table *self = (table *)observer;
    if (kind == NW_RECORD_RUN) {
        const nw_run_record *run = record;
        bool summed = run->loss_reduction != NULL && strcmp(run->loss_reduction, "sum") == 0;
        self->lr_factor = summed && run->batch_size > 0 ? (double)run->batch_size : 1;
        return NW_OK;
    }
    if (kind != NW_RECORD_EPOCH && kind != NW_RECORD_END) return NW_OK;
    if (kind == NW_RECORD_EPOCH && !self->begun) print_header(self);
    if (kind == NW_RECORD_EPOCH) print_row(self, record);
    if (kind == NW_RECORD_END) nw_breakdown_print(self->out, record);
    NW_FAIL_IF(fflush(self->out) != 0 || ferror(self->out), NW_E_SYSTEM,
               "cannot print the table of epochs: is the output closed or its disk full?");
    return NW_OK;
}

static nw_status close_table(nw_observer *observer)
{
    free(observer);
    return NW_OK;
}

static const nw_observer_ops ops = {.record = observe, .close = close_table};

nw_status nw_table_create(nw_observer **observer, FILE *out)
{
    *observer = NULL;
    table *self = calloc(1, sizeof *self);
    NW_FAIL_IF(self == NULL, NW_E_MEMORY, "no memory for the table of epochs");
    *self = (table){.base.ops = &ops, .out = out, .lr_factor = 1};
    *observer = &self->base;
    return NW_OK;
}

void nw_breakdown_print(FILE *out, const nw_end_record *record)
{
    const struct {
        const char *name;
        double seconds;
    } parts[] = {{"preprocessing", record->preprocess_seconds},
                 {"training", record->train_seconds},
                 {"validation", record->validation_seconds},
                 {"checkpoints", record->checkpoint_seconds},
                 {"other", record->other_seconds},
                 {"total", record->total_seconds},
                 {"without validation (DAWNBench)", record->dawnbench_seconds}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!isnan(parts[i].seconds)) fprintf(out, "%-32s %12.2f s\n", parts[i].name, parts[i].seconds);
    }
}
