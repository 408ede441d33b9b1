/*
 * update.h - optimizer steps over a range of the flat parameter vector.
 *
 * SGD as in PyTorch: d = g + weight_decay w; buffer = momentum buffer + (1 - dampening) d (the first time: d);
 * d = nesterov ? d + momentum buffer : buffer; w -= lr d. Ranges are cut at fixed places; elements are independent.
 */

enum { UPDATE_PIECE = 1 << 16 };

typedef struct sgd_job {
    const nw_sgd_rule *rule;
    float *w, *buffer;
    const float *g;
    size_t count;
} sgd_job;

static void sgd_task(void *context, int index, int worker)
{
    const sgd_job *job = context;
    const nw_sgd_rule rule = *job->rule;
    size_t first = (size_t)index * UPDATE_PIECE,
           last = first + UPDATE_PIECE < job->count ? first + UPDATE_PIECE : job->count;
    float *restrict w = job->w, *restrict m = job->buffer;
    const float *restrict g = job->g;
    float fresh = rule.first ? 1.0f : 1.0f - rule.dampening, old = rule.momentum;
    (void)worker;
    if (rule.first && old != 0.0f) memset(m + first, 0, (last - first) * sizeof *m); /* whatever it held, NaN too */
    if (rule.momentum == 0.0f) {
        for (size_t i = first; i < last; i++) w[i] -= rule.lr * (g[i] + rule.weight_decay * w[i]);
    } else if (rule.nesterov) {
        for (size_t i = first; i < last; i++) {
            float d = g[i] + rule.weight_decay * w[i];
            m[i] = old * m[i] + fresh * d;
            w[i] -= rule.lr * (d + rule.momentum * m[i]);
        }
    } else {
        for (size_t i = first; i < last; i++) {
            m[i] = old * m[i] + fresh * (g[i] + rule.weight_decay * w[i]);
            w[i] -= rule.lr * m[i];
        }
    }
}
static void sgd(nw_exec *exec, const nw_sgd_rule *rule, float *w, const float *g, float *buffer, size_t count)
{
    sgd_job job = {rule, w, buffer, g, count};
    nw_exec_run(exec, NW_WORK_UPDATE, (int)((count + UPDATE_PIECE - 1) / UPDATE_PIECE), sgd_task, &job);
}
