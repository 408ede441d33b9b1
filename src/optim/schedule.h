/*
 * schedule.h - the learning rate as a pure function of the number of batches.
 *
 * nw_schedule_lr(s, q): q is the number of batches (forward passes) that this replica finished before the present one,
 * so the first batch has q = 0, and epoch e = floor(q / N) with N batches an epoch. Accumulation does not change q: an
 * update that closes an accumulation uses the q of its last batch. Nothing is remembered between calls: resuming needs
 * q only.
 *
 *   lr0 = lr k B / 256 (goyal_lr_scaling), else lr k (lr_scaling), else lr;  times the replicas with replica_scaling
 *
 * Names (e' = max(e - W, 0), E' = E - W, W warm-up epochs of E; f = B k / 256; m = milestones that have been reached):
 *   constant           lr0
 *   steplr             lr0 factor^m, milestones in absolute epochs
 *   polynomial         lr0 (1 - e' / E')^2; with compat (1 - (e' + 1) / E')^2, whose last epoch has rate 0
 *   cosine             lr0 (1 + cos(pi e' / (E' + 1))) / 2
 *   cosine-annealing   lr0 (1 + cos(pi j / T)) / 2, j = e' or, with per_step, (q - q mod k) / N - W; T = t_max, or E'
 *   piecewise-linear   lr0 times the line through the knots at (q + 1) / N epochs, level outside
 *   goyal              lr0 (1 + q (f - 1) / 5N) for 5 epochs, then lr0 f 0.1^m, milestones in epochs
 *   goyal-original     the same with milestones at 50 and 75 % (cifar_milestones) or 30, 60 and 80 % of all batches
 *   acid               n replicas share T = floor(E N / n) n gradients, N those of an epoch of all of them.
 *                      With g = q n and use_linear_scaling: lr0 (1 + g (R - 1) / F) while g < F = 5 floor(T / E), then
 *                      lr0 R 0.1^m, R = B n / 256; else lr0 factor^m; milestones as in goyal-original, in parts of T
 *   inverse-sqrt       lr0 / sqrt(q + 1), at most lr_max
 *
 * Warm-up, for the first five: while q < W N the rate is lr0 (from + (1 - from) x / (W N)), where x = q + 1 (PETRA) or,
 * with NW_WARMUP_STEP_START, x = q - q mod k, those of earlier updates (DGC, which begins at from = 1 / replicas).
 * The others have a beginning of their own.
 */
#ifndef NW_OPTIM_SCHEDULE_H
#define NW_OPTIM_SCHEDULE_H

#include "base/status.h"

enum { NW_SCHEDULE_MILESTONES = 64, NW_SCHEDULE_KNOTS = 64, NW_SCHEDULE_WARNING = 512 };

typedef enum nw_warmup { NW_WARMUP_STEP_END, NW_WARMUP_STEP_START } nw_warmup;

typedef struct nw_schedule_options {
    const char *name; /* '-' and '_' are the same */
    double lr;
    int64_t batches_per_epoch; /* N */
    int epochs;                /* E */
    int batch_size;            /* B, of one forward pass of one replica */
    int accumulation_steps;    /* k */
    int replicas;              /* n */
    bool shared;               /* N batches make an epoch of all replicas together, each of which does 1 / n of them */
    bool lr_scaling, goyal_lr_scaling, replica_scaling, use_linear_scaling;
    double warmup_epochs; /* W; may be fractional */
    double warmup_from;   /* part of lr0 */
    nw_warmup warmup;
    const int *milestones; /* epochs, ascending; copied */
    int milestone_count;
    double factor;
    bool cifar_milestones; /* goyal-original, acid */
    bool compat;           /* polynomial: as PETRA's code; acid: milestones in local steps, as its code */
    double t_max;          /* cosine-annealing; 0: E - W */
    bool per_step;
    const double *knots; /* piecewise-linear: epoch, value, epoch, value, ...; epochs ascending; copied */
    int knot_count;      /* pairs */
    double lr_max;       /* inverse-sqrt; 0: none */
} nw_schedule_options;

/* steplr 0.1, factor 0.1 at 30, 60, 90 of 100 epochs; batch 128, one replica, no accumulation, no warm-up. N must be
 * set. */
nw_schedule_options nw_schedule_options_default(void);

typedef struct nw_schedule {
    nw_schedule_options options; /* name is a constant; milestones and knots are NULL here: see below */
    int kind;
    double lr0;
    int64_t total; /* acid: T */
    int milestones[NW_SCHEDULE_MILESTONES];
    double knots[2 * NW_SCHEDULE_KNOTS];
    char warning[NW_SCHEDULE_WARNING]; /* what runs but is hardly meant, in sentences; "" if nothing */
} nw_schedule;

/* Checks everything and copies what it needs: a schedule is a plain value. NW_E_UNKNOWN, NW_E_ARGUMENT. */
nw_status nw_schedule_make(nw_schedule *schedule, const nw_schedule_options *options);
double nw_schedule_lr(const nw_schedule *schedule, int64_t step);

#endif
