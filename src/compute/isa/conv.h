/*
 * conv.h - the convolutions of the table: each direction by the direct driver or, where it pays, by Winograd's. The
 * choice depends on the shape alone, and on nw_exec.direct.
 */

static void conv_pixels(pixels_job *job, nw_work work)
{
    if (!job->exec->direct &&
        winograd_suits(job->conv, job->out->n, job->plan.backward ? NW_BACKWARD_DATA : NW_FORWARD))
        winograd_pixels(job, work);
    else
        run_pixels(job, work);
}

static void conv_forward(nw_exec *exec, const nw_conv *v, const nw_source *x, const float *w, const float *bias,
                         nw_tensor *y, const nw_moments *moments, nw_work work)
{
    pixels_job job = {.plan = plan_pixels(v, y->n, y->block, false, nw_pool_threads(exec->pool)),
                      .exec = exec,
                      .conv = v,
                      .source = x,
                      .weights = w,
                      .out = y,
                      .bias = bias,
                      .moments = moments};
    conv_pixels(&job, work);
}

static void conv_backward_data(nw_exec *exec, const nw_conv *v, const nw_source *dy, const float *w, nw_tensor *dx,
                               const nw_sink *sink, nw_work work)
{
    pixels_job job = {.plan = plan_pixels(v, dx->n, dx->block, true, nw_pool_threads(exec->pool)),
                      .exec = exec,
                      .conv = v,
                      .source = dy,
                      .weights = w,
                      .out = dx,
                      .sink = sink};
    conv_pixels(&job, work);
}

static void conv_backward_weights(nw_exec *exec, const nw_conv *v, const nw_source *x, const nw_source *dy, float *dw,
                                  float *dbias, bool accumulate, nw_work work)
{
    const nw_tensor *out = dy->a.t;
    weights_job job = {.plan = plan_weights(v, out->n, out->block, nw_pool_threads(exec->pool)),
                       .exec = exec,
                       .x = x,
                       .dy = dy,
                       .out = out,
                       .sums = (float *)exec->shared_scratch,
                       .dw = dw,
                       .accumulate = accumulate};
    job.gathered = (pixels_job){.conv = v, .source = x, .plan = {.scratch_pitch = job.plan.row_pitch}};
    if (!exec->direct && winograd_suits(v, out->n, NW_BACKWARD_WEIGHTS))
        winograd_weights(&job, work);
    else
        run_weights(&job, work);
    if (dbias) {
        bias_job bias = {dy, dbias, accumulate};
        nw_exec_run(exec, work, nw_div_up(out->c, 16), bias_task, &bias);
    }
}

static nw_need conv_need(const nw_conv *v, int n, int block, nw_direction direction, int threads)
{
    nw_need direct = direction == NW_BACKWARD_WEIGHTS
                         ? weights_need(v, n, block, threads)
                         : pixels_need(v, n, block, direction == NW_BACKWARD_DATA, threads);
    return nw_need_max(direct, winograd_need(v, n, block, direction, threads)); /* a last batch may be small */
}

static double conv_products(const nw_conv *v, int n, nw_direction direction, bool direct)
{
    if (!direct && winograd_suits(v, n, direction)) return winograd_products(v, n, direction);
    return taps_inside(v->oh, v->h, v->r, v->stride, v->pad) * taps_inside(v->ow, v->w, v->s, v->stride, v->pad) *
           v->c * v->k * n;
}
