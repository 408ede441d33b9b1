/* evaluate.h - how good a network is on a split: loss and correct answers over all batches of a loader. */
#ifndef NW_TRAIN_EVALUATE_H
#define NW_TRAIN_EVALUATE_H

#include "data/loader.h"
#include "train/net.h"

#include <signal.h>

/* Sums over images. */
typedef struct nw_tally {
    double loss;
    int64_t images, top1, top5;
} nw_tally;

/* Adds a batch's result; a loss that is a mean over the batch counts once an image. */
void nw_tally_add(nw_tally *tally, const nw_step_result *result, bool loss_is_sum);
void nw_tally_merge(nw_tally *into, const nw_tally *from);
/* NAN where there are no images. Accuracies in percent. */
double nw_tally_loss(const nw_tally *tally);
double nw_tally_top1(const nw_tally *tally);
double nw_tally_top5(const nw_tally *tally);

/* Runs over the loader's epoch 0. both_views: logits are the mean of those of the image and of its mirror image. When
 * *stop becomes non-zero the rest is left out and *complete is false (both may be NULL). */
nw_status nw_evaluate(nw_net *net, nw_loader *loader, bool both_views, const volatile sig_atomic_t *stop,
                      nw_tally *tally, bool *complete);

/* Makes batch norm's running statistics the mean over the first batches of a training epoch, at the present weights. */
nw_status nw_measure_statistics(nw_net *net, nw_loader *loader, int64_t epoch, int batches);

#endif
