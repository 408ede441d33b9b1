/*
 * loss.c - softmax cross-entropy with label smoothing: loss, gradient and the counts of correct answers.
 *
 *   target t = (1 - smoothing) [k == label] + smoothing / classes;  loss = -sum t log p;  dlogits = (p - t) / N
 * (without the division for a sum). Losses are kept per image and added in order.
 */
#include "compute/kernels.h"

#include <math.h>
#include <string.h>

typedef struct loss_job {
    const nw_tensor *logits;
    const int32_t *labels;
    const nw_loss_rule *rule;
    nw_tensor *dlogits;
    double *per_image;
    unsigned char *rank; /* of the label among the classes, at most 5 */
} loss_job;

/* Equal logits rank by their place. NaN ranks first, as in PyTorch, but a label whose logit is NaN is never right. */
static int label_rank(const float *z, int classes, int label)
{
    if (isnan(z[label])) return 5;
    int rank = 0;
    for (int k = 0; k < classes && rank < 5; k++) rank += !(z[k] <= z[label]) || (z[k] == z[label] && k < label);
    return rank;
}

static void loss_task(void *context, int block, int worker)
{
    const loss_job *job = context;
    const nw_tensor *t = job->logits;
    int classes = t->c, rows = nw_tensor_valid(t, block);
    double eps = (double)job->rule->smoothing, weight = job->rule->sum ? 1.0 : 1.0 / t->n;
    (void)worker;
    for (int i = 0; i < rows; i++) {
        int image = block * t->block + i, label = job->labels[image];
        const float *z = (const float *)t->data + nw_tensor_at(t, block, 0, 0) + (size_t)(i * t->pitch);
        double top = (double)z[0], sum = 0, mean = 0;
        for (int k = 1; k < classes; k++) top = (double)z[k] > top ? (double)z[k] : top;
        for (int k = 0; k < classes; k++) {
            sum += exp((double)z[k] - top);
            mean += (double)z[k] / classes;
        }
        double log_sum = top + log(sum);
        job->per_image[image] = (1 - eps) * (log_sum - (double)z[label]) + eps * (log_sum - mean);
        job->rank[image] = (unsigned char)label_rank(z, classes, label);
        if (!job->dlogits) continue;
        float *d = (float *)job->dlogits->data + nw_tensor_at(t, block, 0, 0) + (size_t)(i * t->pitch);
        for (int k = 0; k < classes; k++) {
            double target = (k == label ? 1 - eps : 0.0) + eps / classes;
            d[k] = (float)((exp((double)z[k] - log_sum) - target) * weight);
        }
    }
}

void nw_cross_entropy(nw_exec *exec, const nw_tensor *logits, const int32_t *labels, const nw_loss_rule *rule,
                      nw_tensor *dlogits, double *per_image, nw_loss_result *result)
{
    /* Ranks lie behind the losses: nw_loss_scratch_bytes counts both. */
    loss_job job = {logits, labels, rule, dlogits, per_image, (unsigned char *)(per_image + logits->n)};
    if (dlogits) memset(dlogits->data, 0, nw_tensor_bytes(dlogits));
    nw_exec_run(exec, NW_WORK_LOSS, nw_tensor_blocks(logits), loss_task, &job);
    *result = (nw_loss_result){0};
    for (int i = 0; i < logits->n; i++) {
        result->loss += per_image[i];
        result->top1 += job.rank[i] == 0;
        result->top5 += job.rank[i] < 5;
    }
    if (!rule->sum) result->loss /= logits->n;
}
