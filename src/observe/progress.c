/*
 * progress.c - shows people how the run is doing.
 *
 * On a terminal: one live line, rewritten in place at most ten times a second and cut to the terminal's width, so that
 * it never wraps. It is erased before anything else is written: a result, a message of the command
 * (nw_observers_message).
 *
 *   epoch 3/24  45%  1234 images/s  loss 0.5123  top1 82.31%  lr 0.0801  ETA 12:33
 *
 * Elsewhere: a plain line every so many batches, value of the batch and, in brackets, mean of the epoch so far:
 *
 *   epoch 3/24  batch 20/391  time 0.131 s (0.135)  data 0.002 s (0.002)  loss 1.2345 (1.4000)  top1 ...
 *
 * Where replicas wait for each other, both say for how long ("exchange 0.012 s"); in a virtual cluster that is
 * simulated time, and the simulated time so far is shown too ("virtual 41.2 s").
 *
 * At the start: the model and its number of parameters.
 *
 * Means weight each batch with its own number of images. The time left is the mean time of a step since the start,
 * evaluations and checkpoints included, times the steps left.
 *
 * Threads: one at a time. A step record allocates nothing.
 */
#define _GNU_SOURCE 1
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/clock.h"
#include "observe/observers.h"
#include "observe/terminal.h"

enum { LINE_SIZE = 512 };
#define REDRAW_NS     INT64_C(100000000)
#define ERASE_TO_END  "\033[K"
#define SPEED_SECONDS 3.0 /* the speed shown forgets what is older, exponentially */

typedef struct text_line {
    char text[LINE_SIZE];
    size_t length;
} text_line;

typedef struct running_mean {
    double sum, weight;
} running_mean;

typedef struct progress {
    nw_observer base;
    nw_progress_options options;
    bool live;
    bool drawn; /* the live line is on the screen */
    int64_t drawn_ns, started_ns;
    int64_t first_step, last_step; /* of this process; of the run, or NW_UNKNOWN */
    int64_t epochs, batches;       /* of the run, of an epoch; or NW_UNKNOWN */
    int64_t epoch;                 /* that the means are of */
    int64_t batch;                 /* of it, of the last record */
    running_mean loss, top1, top5, time, data, exchange;
    running_mean speed; /* of a moving window */
    text_line live_line;
} progress;

static void add_text(text_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_text(text_line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(line->text + line->length, sizeof line->text - line->length, format, arguments);
    va_end(arguments);
    if (wrote > 0) line->length += (size_t)wrote;
    if (line->length >= sizeof line->text) line->length = sizeof line->text - 1;
}

static void mean_add(running_mean *mean, double value, double weight)
{
    if (isnan(value)) return;
    mean->sum += value * weight;
    mean->weight += weight;
}

static double mean_of(running_mean mean) { return mean.weight > 0 ? mean.sum / mean.weight : (double)NAN; }

/* ---- the terminal ---- */

static void wipe(progress *self)
{
    if (self->drawn) fputs("\r" ERASE_TO_END, self->options.out);
    self->drawn = false;
}

/* The last column stays free: some terminals wrap when it is written. */
static void draw(progress *self)
{
    int room = nw_terminal_width(self->options.out) - 1;
    int length = (int)self->live_line.length;
    fprintf(self->options.out, "\r%.*s" ERASE_TO_END, length < room ? length : room, self->live_line.text);
    self->drawn = true;
}

static nw_status finish_output(progress *self)
{
    NW_FAIL_IF(fflush(self->options.out) != 0 || ferror(self->options.out), NW_E_SYSTEM,
               "cannot write the progress: is the output closed or its disk full?");
    return NW_OK;
}

/* ---- lines ---- */

static void add_count(text_line *line, const char *name, int64_t at, int64_t of)
{
    add_text(line, "%s %" PRId64, name, at);
    if (of > 0) add_text(line, "/%" PRId64, of);
}

static void add_time_left(text_line *line, double seconds)
{
    int64_t left = (int64_t)(fmin(seconds, 1e9) + 0.5);
    int days = (int)(left / 86400), hours = (int)(left / 3600 % 24), minutes = (int)(left / 60 % 60);
    add_text(line, "  ETA ");
    if (days > 0) add_text(line, "%dd ", days);
    if (days > 0 || hours > 0) add_text(line, "%d:%02d:%02d", hours, minutes, (int)(left % 60));
    if (days == 0 && hours == 0) add_text(line, "%d:%02d", minutes, (int)(left % 60));
}

static void add_virtual(text_line *line, const nw_step_record *step)
{
    if (!isnan(step->virtual_seconds)) add_text(line, "  virtual %.1f s", step->virtual_seconds);
}

static void compose_live(progress *self, const nw_step_record *step, int64_t now)
{
    text_line *line = &self->live_line;
    line->length = 0;
    add_count(line, "epoch", step->epoch, self->epochs);
    if (self->batches > 0 && step->batch >= 0) add_text(line, "  %3d%%", (int)(100 * step->batch / self->batches));
    double speed = mean_of(self->speed), loss = mean_of(self->loss), top1 = mean_of(self->top1);
    if (!isnan(speed)) add_text(line, speed < 100 ? "  %.1f images/s" : "  %.0f images/s", speed);
    if (!isnan(loss)) add_text(line, "  loss %.4f", loss);
    if (!isnan(top1)) add_text(line, "  top1 %.2f%%", top1);
    if (!isnan(step->lr)) add_text(line, "  lr %.4g", step->lr);
    double exchange = mean_of(self->exchange);
    if (!isnan(exchange)) add_text(line, "  exchange %.3f s", exchange);
    add_virtual(line, step);
    int64_t done = step->step - self->first_step, left = self->last_step - step->step;
    if (self->last_step != NW_UNKNOWN && done > 0 && left >= 0) {
        add_time_left(line, nw_seconds(now - self->started_ns) / (double)done * (double)left);
    }
}

static void add_pair(text_line *line, const char *name, const char *unit, int decimals, double value, running_mean mean)
{
    if (isnan(value)) return;
    add_text(line, "  %s %.*f%s (%.*f)", name, decimals, value, unit, decimals, mean_of(mean));
}

static void print_plain(progress *self, const nw_step_record *step)
{
    text_line line = {.length = 0};
    add_count(&line, "epoch", step->epoch, self->epochs);
    add_text(&line, "  ");
    add_count(&line, "batch", step->batch, self->batches);
    add_pair(&line, "time", " s", 3, step->step_seconds, self->time);
    add_pair(&line, "data", " s", 3, step->data_wait_seconds, self->data);
    add_pair(&line, "exchange", " s", 3, step->exchange_seconds, self->exchange);
    add_pair(&line, "loss", "", 4, step->loss, self->loss);
    add_pair(&line, "top1", "", 2, step->top1, self->top1);
    add_pair(&line, "top5", "", 2, step->top5, self->top5);
    if (!isnan(step->lr)) add_text(&line, "  lr %.4g", step->lr);
    add_virtual(&line, step);
    fprintf(self->options.out, "%s\n", line.text);
}

static void print_epoch(progress *self, const nw_epoch_record *epoch)
{
    text_line line = {.length = 0};
    add_count(&line, "epoch", epoch->epoch, self->epochs);
    if (!isnan(epoch->train_loss)) add_text(&line, "  train loss %.4f", epoch->train_loss);
    if (!isnan(epoch->train_top1)) add_text(&line, " top1 %.2f%%", epoch->train_top1);
    if (!isnan(epoch->test_loss)) add_text(&line, "  test loss %.4f", epoch->test_loss);
    if (!isnan(epoch->test_top1)) add_text(&line, " top1 %.2f%%", epoch->test_top1);
    if (!isnan(epoch->test_top5)) add_text(&line, " top5 %.2f%%", epoch->test_top5);
    if (!isnan(epoch->test_top1_best)) add_text(&line, "  best %.2f%%", epoch->test_top1_best);
    if (!isnan(epoch->lr)) add_text(&line, "  lr %.4g", epoch->lr);
    if (epoch->peak_memory_bytes > 0) add_text(&line, "  memory %.2f GiB", (double)epoch->peak_memory_bytes / 0x1p30);
    if (!isnan(epoch->epoch_train_seconds)) add_text(&line, "  %.1f s", epoch->epoch_train_seconds);
    if (!isnan(epoch->epoch_validation_seconds)) add_text(&line, " + %.1f s", epoch->epoch_validation_seconds);
    fprintf(self->options.out, "%s\n", line.text);
}

/* ---- records ---- */

static void begin_run(progress *self, const nw_run_record *run)
{
    if (run->model && run->parameters > 0)
        fprintf(self->options.out, "model     %s, %" PRId64 " parameters\n", run->model, run->parameters);
    if (run->memory_bytes > 0)
        fprintf(self->options.out, "memory    %.1f MB for activations, parameters, optimizer and copies of them%s\n",
                (double)run->memory_bytes / 1e6, run->world_size > 1 ? ", in this process" : "");
    self->started_ns = self->options.now();
    self->first_step = run->step;
    self->epochs = run->max_epoch;
    self->batches = run->batches_per_epoch;
    self->last_step = NW_UNKNOWN;
    int64_t steps;
    bool fits = !__builtin_mul_overflow(run->max_epoch, run->batches_per_epoch, &steps);
    if (run->accumulation_steps > 1) steps /= run->accumulation_steps;
    if (fits && run->max_epoch > 0 && run->batches_per_epoch > 0) self->last_step = steps;
    if (run->max_steps > 0 && (self->last_step == NW_UNKNOWN || run->max_steps < self->last_step)) {
        self->last_step = run->max_steps;
    }
}

static void count_step(progress *self, const nw_step_record *step)
{
    if (step->epoch != self->epoch) {
        self->epoch = step->epoch;
        self->batch = 0;
        self->loss = self->top1 = self->top5 = self->time = self->data = self->exchange = (running_mean){0, 0};
    }
    double images = step->batch_images > 0 ? (double)step->batch_images : 1;
    mean_add(&self->loss, step->loss, images);
    mean_add(&self->top1, step->top1, images);
    mean_add(&self->top5, step->top5, images);
    mean_add(&self->time, step->step_seconds, 1);
    mean_add(&self->data, step->data_wait_seconds, 1);
    mean_add(&self->exchange, step->exchange_seconds, 1);
    if (isnan(step->images_per_second) || isnan(step->step_seconds)) return;
    double fade = exp(-step->step_seconds / SPEED_SECONDS);
    self->speed.sum *= fade;
    self->speed.weight *= fade;
    mean_add(&self->speed, step->images_per_second, step->step_seconds);
}

/* Whether the batches have come to a multiple of print_every, or passed one: an update may be of several. */
static bool is_line_due(progress *self, const nw_step_record *step)
{
    int64_t every = self->options.print_every, before = self->batch;
    self->batch = step->batch;
    return every > 0 && step->batch / every > before / every;
}

static nw_status observe_step(progress *self, const nw_step_record *step)
{
    count_step(self, step);
    if (self->live) {
        int64_t now = self->options.now();
        if (now - self->drawn_ns < REDRAW_NS) return NW_OK;
        compose_live(self, step, now);
        draw(self);
        self->drawn_ns = now;
        return finish_output(self);
    }
    if (!is_line_due(self, step)) return NW_OK;
    print_plain(self, step);
    return finish_output(self);
}

static nw_status observe(nw_observer *observer, nw_record_kind kind, const void *record)
{
    progress *self = (progress *)observer;
    switch (kind) {
    case NW_RECORD_RUN:
        begin_run(self, record);
        break;
    case NW_RECORD_STEP:
        return observe_step(self, record);
    case NW_RECORD_EPOCH:
        wipe(self);
        if (self->options.results) print_epoch(self, record);
        break;
    case NW_RECORD_END:
        wipe(self);
        if (self->options.results) nw_breakdown_print(self->options.out, record);
        break;
    case NW_RECORD_FAULT: /* for the files: what people must know comes as a message, or as the error that ends the run */
    case NW_RECORD_CHECKPOINT:
    case NW_RECORD_KINDS:
        return NW_OK;
    }
    return finish_output(self);
}

static nw_status close_progress(nw_observer *observer)
{
    progress *self = (progress *)observer;
    wipe(self);
    nw_status status = finish_output(self);
    free(self);
    return status;
}

static const nw_observer_ops ops = {.record = observe, .close = close_progress};

void nw_observers_message(nw_observers *observers, const char *text)
{
    bool shown = false;
    for (int i = 0; i < observers->count; i++) {
        if (observers->slots[i].observer->ops != &ops || observers->slots[i].status != NW_OK) continue;
        progress *self = (progress *)observers->slots[i].observer;
        bool again = self->drawn;
        wipe(self);
        fprintf(self->options.out, "%s\n", text);
        if (again) draw(self);
        fflush(self->options.out); /* a failure shows at the next record */
        shown = true;
    }
    if (!shown && observers->warnings != NULL) fprintf(observers->warnings, "nowait: %s\n", text);
}

nw_status nw_progress_create(nw_observer **observer, const nw_progress_options *options)
{
    *observer = NULL;
    progress *self = calloc(1, sizeof *self);
    NW_FAIL_IF(self == NULL, NW_E_MEMORY, "no memory for the progress line");
    *self = (progress){.base.ops = &ops,
                       .options = *options,
                       .live = options->style == NW_PROGRESS_LIVE,
                       .last_step = NW_UNKNOWN,
                       .epochs = NW_UNKNOWN,
                       .batches = NW_UNKNOWN,
                       .epoch = NW_UNKNOWN};
    if (options->style == NW_PROGRESS_AUTO) self->live = nw_terminal_can_rewrite(options->out);
    if (self->options.now == NULL) self->options.now = nw_now_ns;
    self->started_ns = self->options.now();
    self->drawn_ns = self->started_ns - REDRAW_NS;
    *observer = &self->base;
    return NW_OK;
}
