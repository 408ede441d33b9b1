/*
 * rule.h - the inside of an optimizer: pieces of the flat vector, and what an update rule provides.
 *
 * Private to src/optim. A rule is a table of functions in a file of its own; a new one is that file and a line in
 * optimizer.c. The work on the vectors is done by nw_kernels.update, piece by piece.
 *
 * Pieces are cut once: each has one weight decay and, for rules that treat segments differently, lies in one segment;
 * none is longer than NW_PIECE. Small neighbours are grouped into tasks, so that a batch norm's 64 numbers cost no
 * parallel region, and hardly a task. Nothing of this depends on the number of threads.
 */
#ifndef NW_OPTIM_RULE_H
#define NW_OPTIM_RULE_H

#include "optim/optimizer.h"

enum { NW_PIECE = 1 << 16 };

typedef struct nw_piece {
    size_t offset, count;
    int segment; /* the first that it touches */
    float decay;
    float trust; /* lars writes both each step; 1 and false for others */
    bool bare;   /* no decay this time */
} nw_piece;

/* A range of the vectors, in whole-vector offsets, on which a step works. */
typedef struct nw_stretch {
    size_t first, last;
} nw_stretch;

typedef struct nw_rule {
    const char *name;
    bool amsgrad;    /* usually */
    bool by_segment; /* pieces stay inside segments, ranges are whole segments */
    const char *state_names[NW_UPDATE_STATES];
    int (*states)(const nw_optimizer_options *options);
    nw_status (*check)(const nw_optimizer_options *options);
    nw_update_rule (*scalars)(const nw_optimizer_options *options, uint64_t step, double lr);
    /* Before the update of the pieces; may be NULL. It may fail, and changes no weight. */
    nw_status (*before)(nw_optimizer *o, nw_exec *exec, const nw_params *params, double lr, double gradient_scale,
                        nw_stretch stretch);
} nw_rule;

extern const nw_rule nw_rule_sgd, nw_rule_lars, nw_rule_adam, nw_rule_apam, nw_rule_apam_paper, nw_rule_dgc_sgd;

struct nw_optimizer {
    nw_optimizer_options options;
    const nw_rule *rule;
    size_t floats;
    uint64_t steps;
    nw_piece *pieces;
    int piece_count;
    int *tasks; /* task t is pieces [tasks[t], tasks[t + 1]) */
    int task_count;
    int state_count;
    float *state[NW_UPDATE_STATES];
    double *sums[2]; /* one a piece, for norms */
};

/* ---- working on pieces (clip.c) ---------------------------------------------------------------------------------- */

/* A piece, or the part of it that lies in the stretch: `index` names its place in `sums`. */
typedef void (*nw_visit)(void *context, int index, size_t offset, size_t count);

/* Visits every piece that overlaps the stretch, in parallel. */
void nw_pieces_visit(const nw_optimizer *o, nw_exec *exec, nw_stretch stretch, nw_visit visit, void *context);

/* sums[i] = the sum of squares of piece i of a vector. */
void nw_pieces_squares(const nw_optimizer *o, nw_exec *exec, nw_stretch stretch, const float *vector, double *sums);

/* For a norm that is not finite: names the first segment of `vector` (values or gradients; `what` says which) that has
 * a bad element in the stretch. */
nw_status nw_fail_not_finite(const nw_params *params, const float *vector, const char *what, nw_stretch stretch);

/* ---- options that rules share ------------------------------------------------------------------------------------ */

nw_status nw_check_momentum(const nw_optimizer_options *o);
nw_status nw_check_betas(const nw_optimizer_options *o);
nw_status nw_check_moments(const nw_optimizer_options *o); /* betas and eps */
int nw_states_momentum(const nw_optimizer_options *o);     /* 1, or 0 without momentum */
int nw_states_moments(const nw_optimizer_options *o);      /* 2, or 3 with AMSGrad */
/* The scalars of SGD, which lars and dgc-sgd share but for the kind; and those of adam, as far as they need no t. */
nw_update_rule nw_scalars_momentum(const nw_optimizer_options *o, uint64_t step, double lr);
nw_update_rule nw_scalars_moments(const nw_optimizer_options *o, uint64_t step, double lr);

#endif
