/*
 * schedule.c - learning rates; schedule.h has every formula.
 *
 * Origins: PETRA (steplr, polynomial, cosine, goyal, goyal-original, warm-up), DGC (cosine-annealing, its warm-up),
 * cifar10-fast (piecewise-linear), ACiD (acid), APAM (inverse-sqrt, constant).
 */
#include "optim/schedule.h"

#include "base/suggest.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PI                3.14159265358979323846
#define OWN_WARMUP_EPOCHS 5 /* of goyal, goyal-original, acid */
#define OWN_FACTOR        0.1
#define GOYAL_BATCH       256.0

enum { CONSTANT, STEPLR, POLYNOMIAL, COSINE, COSINE_ANNEALING }; /* with --warm-up */
enum { PIECEWISE_LINEAR = COSINE_ANNEALING + 1, GOYAL, GOYAL_ORIGINAL, ACID, INVERSE_SQRT, KINDS };

static const char *const names[KINDS] = {[CONSTANT] = "constant",
                                         [STEPLR] = "steplr",
                                         [POLYNOMIAL] = "polynomial",
                                         [COSINE] = "cosine",
                                         [COSINE_ANNEALING] = "cosine-annealing",
                                         [PIECEWISE_LINEAR] = "piecewise-linear",
                                         [GOYAL] = "goyal",
                                         [GOYAL_ORIGINAL] = "goyal-original",
                                         [ACID] = "acid",
                                         [INVERSE_SQRT] = "inverse-sqrt"};

nw_schedule_options nw_schedule_options_default(void)
{
    static const int milestones[] = {30, 60, 90};
    return (nw_schedule_options){.name = "steplr",
                                 .lr = 0.1,
                                 .epochs = 100,
                                 .batch_size = 128,
                                 .accumulation_steps = 1,
                                 .replicas = 1,
                                 .milestones = milestones,
                                 .milestone_count = 3,
                                 .factor = 0.1};
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static nw_status check_numbers(const nw_schedule_options *o)
{
    NW_FAIL_IF(!(o->lr >= 0 && isfinite(o->lr)), NW_E_ARGUMENT, "the learning rate is %g; it must not be negative",
               o->lr);
    NW_FAIL_IF(o->batches_per_epoch < 1, NW_E_ARGUMENT,
               "an epoch has %lld batches; it needs at least one: use a smaller batch or more data",
               (long long)o->batches_per_epoch);
    NW_FAIL_IF(o->epochs < 1, NW_E_ARGUMENT, "%d epochs: give at least 1", o->epochs);
    NW_FAIL_IF(o->batches_per_epoch > INT64_MAX / 4 / o->epochs / (o->replicas > 0 ? o->replicas : 1), NW_E_ARGUMENT,
               "%d epochs of %lld batches are too many to count", o->epochs, (long long)o->batches_per_epoch);
    NW_FAIL_IF(o->batch_size < 1 || o->accumulation_steps < 1 || o->replicas < 1, NW_E_ARGUMENT,
               "batch size %d, accumulation steps %d and replicas %d must each be at least 1", o->batch_size,
               o->accumulation_steps, o->replicas);
    NW_FAIL_IF(!(o->warmup_epochs >= 0 && isfinite(o->warmup_epochs)), NW_E_ARGUMENT,
               "the warm-up takes %g epochs; it must not be negative", o->warmup_epochs);
    NW_FAIL_IF(!(o->warmup_from >= 0 && isfinite(o->warmup_from)), NW_E_ARGUMENT,
               "the warm-up begins at %g of the learning rate; it must not be negative", o->warmup_from);
    NW_FAIL_IF(!(o->factor > 0 && isfinite(o->factor)), NW_E_ARGUMENT,
               "the decay factor is %g; it must be above 0, for example 0.1", o->factor);
    NW_FAIL_IF(!(o->t_max >= 0 && isfinite(o->t_max)), NW_E_ARGUMENT,
               "the half period of the cosine is %g epochs; give one above 0, or 0 for all epochs after the warm-up",
               o->t_max);
    NW_FAIL_IF(!(o->lr_max >= 0), NW_E_ARGUMENT, "the largest learning rate is %g; it must not be negative", o->lr_max);
    return NW_OK;
}

static nw_status copy_milestones(nw_schedule *s, const nw_schedule_options *o)
{
    NW_FAIL_IF(o->milestone_count < 0 || o->milestone_count > NW_SCHEDULE_MILESTONES, NW_E_ARGUMENT,
               "%d milestones: at most %d are supported", o->milestone_count, NW_SCHEDULE_MILESTONES);
    for (int i = 0; i < o->milestone_count; i++) {
        NW_FAIL_IF(o->milestones[i] < 0 || (i > 0 && o->milestones[i] < o->milestones[i - 1]), NW_E_ARGUMENT,
                   "milestone %d is epoch %d; milestones are epochs in ascending order", i + 1, o->milestones[i]);
        s->milestones[i] = o->milestones[i];
    }
    s->options.milestones = NULL;
    return NW_OK;
}

static nw_status copy_knots(nw_schedule *s, const nw_schedule_options *o)
{
    NW_FAIL_IF(s->kind == PIECEWISE_LINEAR && o->knot_count < 1, NW_E_ARGUMENT,
               "a piecewise-linear schedule needs knots, for example 0:0 5:0.4 24:0 (epoch:rate)");
    NW_FAIL_IF(o->knot_count < 0 || o->knot_count > NW_SCHEDULE_KNOTS, NW_E_ARGUMENT,
               "%d knots: at most %d are supported", o->knot_count, NW_SCHEDULE_KNOTS);
    for (int i = 0; i < o->knot_count; i++) {
        double at = o->knots[2 * i], value = o->knots[2 * i + 1];
        NW_FAIL_IF(!isfinite(at) || (i > 0 && at <= o->knots[2 * i - 2]), NW_E_ARGUMENT,
                   "knot %d is at epoch %g; the epochs of knots must rise", i + 1, at);
        NW_FAIL_IF(!(value >= 0 && isfinite(value)), NW_E_ARGUMENT, "knot %d has rate %g; it must not be negative",
                   i + 1, value);
        s->knots[2 * i] = at;
        s->knots[2 * i + 1] = value;
    }
    s->options.knots = NULL;
    return NW_OK;
}

static void warn(nw_schedule *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void warn(nw_schedule *s, const char *format, ...)
{
    size_t used = strlen(s->warning);
    if (used > 0 && used + 1 < sizeof s->warning) s->warning[used++] = ' ';
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->warning + used, sizeof s->warning - used, format, arguments);
    va_end(arguments);
}

static void warn_all(nw_schedule *s)
{
    nw_schedule_options *o = &s->options;
    bool own_scaling = s->kind == GOYAL || s->kind == GOYAL_ORIGINAL || (s->kind == ACID && o->use_linear_scaling);
    if (own_scaling && (o->goyal_lr_scaling || o->lr_scaling || o->replica_scaling))
        warn(s, "The schedule %s scales the learning rate itself, so that with %s it is scaled twice.", o->name,
             o->goyal_lr_scaling ? "goyal-lr-scaling"
             : o->lr_scaling     ? "lr-scaling"
                                 : "replica scaling");
    if (o->goyal_lr_scaling && o->lr_scaling) warn(s, "goyal-lr-scaling wins over lr-scaling.");
    if (o->use_linear_scaling && s->kind != ACID)
        warn(s, "use-linear-scaling belongs to the schedule acid and is ignored.");
    if (o->warmup_epochs > 0 && s->kind > COSINE_ANNEALING) {
        warn(s, "The schedule %s has a beginning of its own: the warm-up of %g epochs is ignored.", o->name,
             o->warmup_epochs);
        o->warmup_epochs = 0;
    }
    if (o->warmup_epochs >= o->epochs)
        warn(s, "The warm-up of %g epochs leaves none of the %d for training at the full rate.", o->warmup_epochs,
             o->epochs);
    if (s->kind == COSINE_ANNEALING && o->t_max > 0 && o->t_max < o->epochs - o->warmup_epochs)
        warn(s, "The cosine ends %g epochs after the warm-up and rises again until epoch %d.", o->t_max, o->epochs);
}

nw_status nw_schedule_make(nw_schedule *s, const nw_schedule_options *o)
{
    *s = (nw_schedule){.options = *o};
    NW_FAIL_IF(!o->name, NW_E_ARGUMENT, "no schedule is named; 'constant' is the simplest");
    NW_TRY(nw_name_find("schedule", o->name, names, sizeof names[0], KINDS, "", &s->kind));
    s->options.name = names[s->kind];
    NW_TRY(check_numbers(o));
    NW_TRY(copy_milestones(s, o));
    NW_TRY(copy_knots(s, o));
    s->lr0 = o->lr;
    if (o->goyal_lr_scaling)
        s->lr0 *= o->accumulation_steps * (double)o->batch_size / GOYAL_BATCH;
    else if (o->lr_scaling)
        s->lr0 *= o->accumulation_steps;
    if (o->replica_scaling) s->lr0 *= o->replicas;
    int64_t all = o->epochs * o->batches_per_epoch;
    s->total = o->shared ? all / o->replicas * o->replicas : all * o->replicas;
    NW_FAIL_IF(s->kind == ACID && s->total < 1, NW_E_ARGUMENT,
               "%d epochs of %lld batches are too few for %d replicas: some would make no step", o->epochs,
               (long long)o->batches_per_epoch, o->replicas);
    warn_all(s);
    return NW_OK;
}

/* ---- rates ------------------------------------------------------------------------------------------------------- */

/* How many of the milestones, in epochs of N batches, batch q has reached. */
static int epochs_passed(const nw_schedule *s, int64_t q)
{
    int passed = 0;
    for (int i = 0; i < s->options.milestone_count; i++) passed += q / s->options.batches_per_epoch >= s->milestones[i];
    return passed;
}

/* How many of the parts of the whole that goyal-original and acid decay at. */
static int parts_passed(const nw_schedule *s, int64_t done, int64_t total)
{
    static const double cifar[] = {0.5, 0.75, INFINITY}, others[] = {0.3, 0.6, 0.8};
    const double *parts = s->options.cifar_milestones ? cifar : others;
    int passed = 0;
    for (int i = 0; i < 3; i++) passed += (double)done >= parts[i] * (double)total;
    return passed;
}

static double goyal(const nw_schedule *s, int64_t q)
{
    const nw_schedule_options *o = &s->options;
    double f = o->batch_size * (double)o->accumulation_steps / GOYAL_BATCH;
    int64_t warm = OWN_WARMUP_EPOCHS * o->batches_per_epoch;
    if (q < warm) return s->lr0 * (1 + (double)q * (f - 1) / (double)warm);
    int passed = s->kind == GOYAL ? epochs_passed(s, q) : parts_passed(s, q, o->epochs * o->batches_per_epoch);
    return s->lr0 * f * pow(OWN_FACTOR, passed);
}

static double acid(const nw_schedule *s, int64_t q)
{
    const nw_schedule_options *o = &s->options;
    int64_t gradients = q * o->replicas, warm = OWN_WARMUP_EPOCHS * (s->total / o->epochs);
    if (!o->use_linear_scaling) return s->lr0 * pow(o->factor, parts_passed(s, o->compat ? q : gradients, s->total));
    double r = o->batch_size * (double)o->replicas / GOYAL_BATCH;
    if (gradients < warm) return s->lr0 * (1 + (double)gradients / (double)warm * (r - 1));
    return s->lr0 * r * pow(OWN_FACTOR, parts_passed(s, gradients, s->total));
}

static double piecewise_linear(const nw_schedule *s, double epoch)
{
    const double *k = s->knots;
    int last = s->options.knot_count - 1;
    if (epoch <= k[0]) return s->lr0 * k[1];
    if (epoch >= k[2 * last]) return s->lr0 * k[2 * last + 1];
    while (epoch >= k[2]) k += 2; /* ends before the last */
    return s->lr0 * (k[1] + (k[3] - k[1]) * (epoch - k[0]) / (k[2] - k[0]));
}

static double cosine_annealing(const nw_schedule *s, double j, double epochs)
{
    double period = s->options.t_max > 0 ? s->options.t_max : epochs;
    if (s->options.t_max == 0 && j > period) return 0; /* only a period that was asked for may rise again */
    return s->lr0 * (1 + cos(PI * j / period)) / 2;
}

static double polynomial(const nw_schedule *s, double after, double epochs)
{
    double left = 1 - (after + (s->options.compat ? 1 : 0)) / epochs;
    return left > 0 ? s->lr0 * left * left : 0;
}

double nw_schedule_lr(const nw_schedule *s, int64_t q)
{
    const nw_schedule_options *o = &s->options;
    double batches = (double)o->batches_per_epoch, warm = o->warmup_epochs * batches;
    int64_t update = q, together = o->shared && s->kind != ACID ? o->replicas : 1;
    double updated = (double)((q - q % o->accumulation_steps) * together); /* batches of the updates before */
    double after_it = (double)((q + 1) * together);
    q *= together;
    if ((double)q < warm) {
        double x = o->warmup == NW_WARMUP_STEP_END ? after_it : updated;
        double part = x < warm ? x / warm : 1;
        return s->lr0 * (o->warmup_from + (1 - o->warmup_from) * part);
    }
    double epoch = (double)(q / o->batches_per_epoch), epochs = o->epochs - o->warmup_epochs;
    if (epochs <= 0) epochs = 1; /* the run ends before its warm-up does */
    double after = epoch > o->warmup_epochs ? epoch - o->warmup_epochs : 0;
    switch (s->kind) {
    case STEPLR:
        return s->lr0 * pow(o->factor, epochs_passed(s, q));
    case POLYNOMIAL:
        return polynomial(s, after, epochs);
    case COSINE:
        return after <= epochs ? s->lr0 * (1 + cos(PI * after / (epochs + 1))) / 2 : 0;
    case COSINE_ANNEALING:
        return cosine_annealing(s, o->per_step ? updated / batches - o->warmup_epochs : after, epochs);
    case PIECEWISE_LINEAR:
        return piecewise_linear(s, after_it / batches);
    case GOYAL:
    case GOYAL_ORIGINAL:
        return goyal(s, q);
    case ACID:
        return acid(s, q);
    case INVERSE_SQRT: {
        double lr = s->lr0 / sqrt((double)update + 1);
        return o->lr_max > 0 && lr > o->lr_max ? o->lr_max : lr;
    }
    default:
        return s->lr0;
    }
}
