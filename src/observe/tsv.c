/*
 * tsv.c - logs.tsv: the three columns that DAWNBench asks for, as cifar10-fast writes them.
 *
 *   epoch <tab> hours <tab> top1Accuracy        rows %d, %.8f, %.2f; no newline after the last row
 *
 * Hours count everything but validation (stopwatch.h), accuracy is percent. Epochs that were not evaluated have no row.
 * The whole file is replaced by one rename after each epoch, so that it is complete at every moment.
 *
 * A run that continues keeps the rows up to the epoch it continues from, byte for byte, and drops later ones.
 */
#define _GNU_SOURCE 1
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "observe/lines.h"
#include "observe/observers.h"

#define HEADER       "epoch\thours\ttop1Accuracy"
#define LARGEST_FILE ((size_t)64 << 20)

typedef struct tsv {
    nw_observer base;
    char *path;
    char *text;
    size_t size;
} tsv;

static nw_status add_text(tsv *self, const char *text, size_t length)
{
    char *grown = realloc(self->text, self->size + length);
    NW_FAIL_IF(grown == NULL, NW_E_MEMORY, "no memory for the rows of %s", self->path);
    memcpy(grown + self->size, text, length);
    self->text = grown;
    self->size += length;
    return NW_OK;
}

static nw_status keep_rows(tsv *self, const char *text, size_t size, int64_t last_epoch)
{
    size_t header = strlen(HEADER);
    bool known = size >= header && memcmp(text, HEADER, header) == 0 && (size == header || text[header] == '\n');
    NW_FAIL_IF(!known, NW_E_FILE,
               "%s, line 1: not the columns epoch, hours, top1Accuracy; move the file away, then resume", self->path);
    int64_t number = 2;
    for (size_t at = header; at < size; number++) {
        if (++at == size) break; /* past a newline; an editor may have added a last one */
        const char *newline = memchr(text + at, '\n', size - at);
        size_t length = newline != NULL ? (size_t)(newline - (text + at)) : size - at;
        int64_t epoch;
        NW_FAIL_IF(
            !nw_tsv_row_epoch(text + at, length, &epoch), NW_E_FILE,
            "%s, line %lld: not an epoch, hours and accuracy; remove the line or move the file away, then resume",
            self->path, (long long)number);
        if (epoch <= last_epoch) NW_TRY(add_text(self, text + at - 1, length + 1));
        at += length;
    }
    return NW_OK;
}

static nw_status continue_file(tsv *self, int64_t last_epoch)
{
    if (!nw_file_is_regular(self->path)) return NW_OK;
    NW_AUTOFREE char *text = NULL;
    size_t size;
    NW_TRY(nw_file_read(self->path, LARGEST_FILE, &text, &size));
    return keep_rows(self, text, size, last_epoch);
}

/* A number with `decimals` digits after the point, whatever the locale calls a point. */
static void format_plain(char *text, size_t size, double value, int decimals)
{
    snprintf(text, size, "%.*f", decimals, value);
    size_t whole = strspn(text, "0123456789-"), length = strlen(text);
    if (length <= (size_t)decimals) return;
    const char *fraction = text + length - (size_t)decimals;
    text[whole] = '.';
    memmove(text + whole + 1, fraction, (size_t)decimals + 1);
}

static nw_status observe(nw_observer *observer, nw_record_kind kind, const void *record)
{
    tsv *self = (tsv *)observer;
    if (kind != NW_RECORD_EPOCH) return NW_OK;
    const nw_epoch_record *epoch = record;
    if (!isfinite(epoch->test_top1) || !isfinite(epoch->dawnbench_seconds)) return NW_OK;
    char hours[400], accuracy[400], row[900]; /* a double has up to 309 digits before its point */
    format_plain(hours, sizeof hours, epoch->dawnbench_seconds / 3600, 8);
    format_plain(accuracy, sizeof accuracy, epoch->test_top1, 2);
    int length = snprintf(row, sizeof row, "\n%" PRId64 "\t%s\t%s", epoch->epoch, hours, accuracy);
    NW_TRY(add_text(self, row, (size_t)length));
    return nw_file_replace(self->path, self->text, self->size);
}

static nw_status close_tsv(nw_observer *observer)
{
    tsv *self = (tsv *)observer;
    free(self->path);
    free(self->text);
    free(self);
    return NW_OK;
}

static const nw_observer_ops ops = {.record = observe, .close = close_tsv};

static nw_status begin(tsv *self, const char *path, const nw_resume_point *resume)
{
    NW_TRY(nw_text_copy(&self->path, path));
    NW_TRY(add_text(self, HEADER, strlen(HEADER)));
    if (nw_resume_point_continues(resume)) NW_TRY(continue_file(self, resume->epoch));
    return nw_file_replace(self->path, self->text, self->size);
}

nw_status nw_tsv_create(nw_observer **observer, const char *path, const nw_resume_point *resume)
{
    *observer = NULL;
    tsv *self = calloc(1, sizeof *self);
    NW_FAIL_IF(self == NULL, NW_E_MEMORY, "no memory for %s", path);
    self->base.ops = &ops;
    nw_status status = begin(self, path, resume);
    if (status == NW_OK)
        *observer = &self->base;
    else
        close_tsv(&self->base);
    return status;
}
