/* synthetic.c - see synthetic.h. */
#include "bench/synthetic.h"

#include "base/clock.h"
#include "base/rng.h"

#include <stdlib.h>

void nw_synthetic_fill(float *images, int32_t *labels, const nw_net_options *o)
{
    size_t pixels = (size_t)o->channels * (size_t)o->height * (size_t)o->width;
    for (int i = 0; i < o->batch_size; i++) {
        nw_rng rng = nw_rng_make(o->seed, NW_PURPOSE_SYNTHETIC, (uint64_t)i, 0);
        for (size_t p = 0; p < pixels; p++) images[(size_t)i * pixels + p] = nw_rng_normal(&rng);
        labels[i] = (int32_t)nw_rng_below(&rng, (uint32_t)o->classes);
    }
}

nw_status nw_synthetic_create(nw_synthetic *d, const nw_net_options *options)
{
    *d = (nw_synthetic){0};
    NW_TRY(nw_net_create(&d->net, options));
    const nw_net_options *o = &d->net->options;
    size_t pixels = (size_t)o->channels * (size_t)o->height * (size_t)o->width;
    NW_NEW(d->images, (size_t)o->batch_size * pixels, "a batch of %d images", o->batch_size);
    NW_NEW(d->labels, o->batch_size, "a batch of %d images", o->batch_size);
    NW_NEW(d->ready, d->net->model.count, "a table of stages");
    nw_synthetic_fill(d->images, d->labels, o);
    nw_model_final_from(&d->net->model, d->ready);
    return NW_OK;
}

void nw_synthetic_free(nw_synthetic *d)
{
    nw_net_free(d->net);
    free(d->images);
    free(d->labels);
    free(d->ready);
    *d = (nw_synthetic){0};
}

static void after_stage(void *context, int stage, bool backward)
{
    nw_synthetic *d = context;
    size_t first = d->ready[stage];
    if (d->marks) d->marks[(backward ? d->net->model.count : 0) + stage] = nw_now_ns();
    if (!d->announce) return;
    if (backward && first < d->final && first > 0) {
        d->final = first;
        d->announce->final(d->announce, first);
    }
    d->announce->between(d->announce);
}

static nw_status compute_batch(nw_synthetic *d)
{
    nw_pass *pass = &d->net->model.pass;
    d->final = SIZE_MAX;
    pass->hook = (nw_stage_hook){after_stage, d};
    nw_status status = nw_net_gradients(d->net, d->images, d->labels, d->net->options.batch_size, false, NULL);
    pass->hook = (nw_stage_hook){0};
    return status;
}

nw_status nw_synthetic_compute(nw_synthetic *d, int64_t *marks)
{
    d->marks = marks;
    d->announce = NULL;
    nw_status status = compute_batch(d);
    d->marks = NULL;
    return status;
}

static nw_status do_pass(nw_synthetic *d, nw_announce *announce)
{
    d->announce = announce;
    if (d->pretends) return NW_OK;
    nw_net_announce(d->net, announce);
    nw_status status = compute_batch(d);
    nw_net_announce(d->net, NULL);
    return status;
}

/* With a rate of nearly nothing, so that any number of steps leaves numbers that are finite. */
static nw_status update(nw_synthetic *d, const nw_task *task, nw_announce *announce)
{
    nw_params *params = &d->net->model.params;
    float *own = params->gradients;
    if (d->pretends) return NW_OK;
    params->gradients = task->gradient;
    nw_net_announce(d->net, announce);
    nw_status status = nw_net_apply(d->net, 1e-6, (double)task->scale);
    nw_net_announce(d->net, NULL);
    params->gradients = own;
    return status;
}

static nw_status do_task(void *worker, nw_task *task, nw_announce *announce)
{
    return task->kind == NW_TASK_PASS ? do_pass(worker, announce) : update(worker, task, announce);
}

const nw_worker_ops nw_synthetic_work = {.run = do_task};
