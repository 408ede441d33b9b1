/* evaluate.c - see evaluate.h. */
#include "train/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void nw_tally_add(nw_tally *tally, const nw_step_result *result, bool loss_is_sum)
{
    tally->loss += loss_is_sum ? result->loss : result->loss * result->images;
    tally->images += result->images;
    tally->top1 += result->top1;
    tally->top5 += result->top5;
}

void nw_tally_merge(nw_tally *into, const nw_tally *from)
{
    into->loss += from->loss;
    into->images += from->images;
    into->top1 += from->top1;
    into->top5 += from->top5;
}

static double per_image(const nw_tally *tally, double sum)
{
    return tally->images > 0 ? sum / (double)tally->images : (double)NAN;
}
double nw_tally_loss(const nw_tally *tally) { return per_image(tally, tally->loss); }
double nw_tally_top1(const nw_tally *tally) { return per_image(tally, 100.0 * (double)tally->top1); }
double nw_tally_top5(const nw_tally *tally) { return per_image(tally, 100.0 * (double)tally->top5); }

nw_status nw_evaluate(nw_net *net, nw_loader *loader, bool both_views, const volatile sig_atomic_t *stop,
                      nw_tally *tally, bool *complete)
{
    *tally = (nw_tally){0};
    if (complete) *complete = false;
    NW_TRY(nw_loader_start(loader, 0, 0));
    for (;;) {
        nw_batch batch;
        nw_step_result result;
        if (stop && *stop) return NW_OK;
        NW_TRY(nw_loader_next(loader, &batch));
        if (batch.n == 0) break;
        if (both_views)
            NW_TRY(nw_net_evaluate_both_views(net, batch.images, batch.labels, batch.n, NULL, &result));
        else
            NW_TRY(nw_net_evaluate(net, batch.images, batch.labels, batch.n, NULL, &result));
        nw_tally_add(tally, &result, net->options.loss_sum);
    }
    if (complete) *complete = true;
    return NW_OK;
}

/* From statistics of zero, one batch leaves a tenth of its own (momentum 0.1). */
nw_status nw_measure_statistics(nw_net *net, nw_loader *loader, int64_t epoch, int batches)
{
    nw_params *p = &net->model.params;
    size_t floats = p->running.floats;
    int64_t all = nw_loader_batches(loader);
    if (batches > all) batches = (int)all;
    NW_AUTOFREE double *sums = calloc(floats + 1, sizeof *sums);
    NW_FAIL_IF(!sums, NW_E_MEMORY, "no memory for statistics");
    for (int b = 0; b < batches; b++) {
        nw_batch batch;
        NW_TRY(nw_loader_batch(loader, epoch, b, &batch));
        memset(p->buffers, 0, floats * sizeof *p->buffers);
        NW_TRY(nw_net_observe(net, batch.images, batch.labels, batch.n));
        for (size_t i = 0; i < floats; i++) sums[i] += 10.0 * (double)p->buffers[i];
    }
    for (size_t i = 0; i < floats; i++) p->buffers[i] = (float)(sums[i] / batches);
    return NW_OK;
}
