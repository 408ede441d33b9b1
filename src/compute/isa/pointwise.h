/*
 * pointwise.h - what is neither convolution nor update: writing sources down, gradients through sinks, pooling,
 * dropout.
 *
 * A task is one item: one row of one block of the output. It works pixel by pixel in buffers of [block][pitch] floats
 * in the worker's scratch (nw_pointwise_need) and ends in the epilogues of finish.h.
 */

typedef struct rows_job {
    nw_exec *exec;
    const nw_source *source;
    const nw_tensor *in; /* a gradient that is read as it is */
    nw_tensor *out;
    const nw_moments *moments;
    const nw_sink *sink;
    const nw_pool2d *pool;
    uint8_t *index;
    const uint8_t *index_in;
    float keep_scale;
    uint32_t drop_below;
    uint64_t seed, step;
    uint32_t layer;
} rows_job;

static void run_rows(nw_exec *exec, nw_pool_task task, rows_job *job)
{
    job->exec = exec;
    nw_exec_run(exec, NW_WORK_POINTWISE, nw_items(job->out), task, job);
}
static float *row_buffer(const rows_job *job, int worker, int which)
{
    size_t floats = (size_t)job->out->block * (size_t)job->out->pitch;
    return (float *)(job->exec->worker_scratch + (size_t)worker * job->exec->worker_bytes) + (size_t)which * floats;
}
/* The place of a whole pixel of the output. */
static tile_place pixel_place(const nw_tensor *t, int item, int w)
{
    int b = item / t->h;
    return (tile_place){.t = t,
                        .at = nw_tensor_at(t, b, item % t->h, w),
                        .k0 = 0,
                        .count = t->pitch,
                        .rows = nw_tensor_valid(t, b),
                        .item = (size_t)item,
                        .first = w == 0};
}

static void materialise_task(void *context, int item, int worker)
{
    const rows_job *job = context;
    float *buffer = row_buffer(job, worker, 0);
    source_reader reader = read_source(job->source, job->moments ? NW_F32 : job->out->dtype);
    for (int w = 0; w < job->out->w; w++) {
        tile_place place = pixel_place(job->out, item, w);
        if (!job->moments) {
            read_pixel(&reader, place.at, place.rows, job->out->block, job->out->data, place.at, job->out->pitch);
        } else {
            read_pixel(&reader, place.at, place.rows, job->out->block, buffer, 0, job->out->pitch);
            finish_value(buffer, job->out->pitch, &place, NULL, job->moments);
        }
    }
}
static void materialise(nw_exec *exec, const nw_source *source, nw_tensor *out, const nw_moments *moments)
{
    run_rows(exec, materialise_task, &(rows_job){.source = source, .out = out, .moments = moments});
}

static void gradient_task(void *context, int item, int worker)
{
    const rows_job *job = context;
    float *buffer = row_buffer(job, worker, 0);
    source_reader reader = read_source(job->source, NW_F32);
    for (int w = 0; w < job->out->w; w++) {
        tile_place place = pixel_place(job->out, item, w);
        read_pixel(&reader, place.at, place.rows, job->out->block, buffer, 0, job->out->pitch);
        finish_gradient(buffer, job->out->pitch, &place, job->sink);
    }
}
static void gradient(nw_exec *exec, const nw_source *source, nw_tensor *out, const nw_sink *sink)
{
    run_rows(exec, gradient_task, &(rows_job){.source = source, .out = out, .sink = sink});
}

/* ---- pooling ---------------------------------------------------------------------------------------------------- */

static void max_pool_task(void *context, int item, int worker)
{
    const rows_job *job = context;
    const nw_pool2d *p = job->pool;
    const nw_tensor *x = job->source->a.t;
    nw_tensor *y = job->out;
    float *value = row_buffer(job, worker, 0), *best = row_buffer(job, worker, 1);
    int32_t *winner = (int32_t *)row_buffer(job, worker, 2);
    source_reader reader = read_source(job->source, NW_F32);
    int b = item / y->h, h = item % y->h;
    for (int w = 0; w < y->w; w++) {
        tile_place place = pixel_place(y, item, w);
        int count = place.rows * y->pitch;
        bool any = false;
        for (int q = 0; q < p->r * p->s; q++) {
            int sy = h * p->stride + q / p->s - p->pad, sx = w * p->stride + q % p->s - p->pad;
            if (sy < 0 || sy >= p->h || sx < 0 || sx >= p->w) continue;
            read_pixel(&reader, nw_tensor_at(x, b, sy, sx), place.rows, place.rows, any ? value : best, 0, y->pitch);
            if (!any) {
                for (int i = 0; i < count; i++) winner[i] = q;
                any = true;
                continue;
            }
            for (int i = 0; i < count; i++) { /* NaN wins and stays, as in PyTorch */
                bool take = value[i] > best[i] || value[i] != value[i];
                best[i] = take ? value[i] : best[i];
                winner[i] = take ? q : winner[i];
            }
        }
        finish_value(best, y->pitch, &place, NULL, NULL);
        if (job->index)
            for (int i = 0; i < count; i++) job->index[place.at + (size_t)i] = (uint8_t)winner[i];
    }
}
static void max_pool(nw_exec *exec, const nw_pool2d *pool, const nw_source *x, nw_tensor *y, uint8_t *index)
{
    run_rows(exec, max_pool_task, &(rows_job){.pool = pool, .source = x, .out = y, .index = index});
}

/* The first window, of so many pixels, that contains index i. */
INLINE int first_window(int i, const nw_pool2d *p, int size)
{
    int start = i + p->pad - size + 1;
    return start > 0 ? nw_div_up(start, p->stride) : 0;
}

/* The gradient of one input pixel gathers from the windows that contain it. index == NULL: average pooling. */
static void pool_backward_task(void *context, int item, int worker)
{
    const rows_job *job = context;
    const nw_pool2d *p = job->pool;
    const nw_tensor *dy = job->in;
    nw_tensor *dx = job->out;
    float *sum = row_buffer(job, worker, 0), *value = row_buffer(job, worker, 1);
    nw_source source = nw_source_plain(dy);
    source_reader reader = read_source(&source, NW_F32);
    int b = item / dx->h, h = item % dx->h;
    int h0 = first_window(h, p, p->r), h1 = nw_min(p->oh - 1, (h + p->pad) / p->stride);
    float share = 1.0f / (float)(p->r * p->s);
    for (int w = 0; w < dx->w; w++) {
        tile_place place = pixel_place(dx, item, w);
        int count = place.rows * dx->pitch;
        int w0 = first_window(w, p, p->s), w1 = nw_min(p->ow - 1, (w + p->pad) / p->stride);
        memset(sum, 0, (size_t)count * sizeof(float));
        for (int oy = h0; oy <= h1; oy++)
            for (int ox = w0; ox <= w1; ox++) {
                size_t at = nw_tensor_at(dy, b, oy, ox);
                read_pixel(&reader, at, place.rows, place.rows, value, 0, dx->pitch);
                if (job->index_in) {
                    const uint8_t *index = job->index_in + at;
                    int q = (h + p->pad - oy * p->stride) * p->s + (w + p->pad - ox * p->stride);
                    for (int i = 0; i < count; i++) sum[i] += index[i] == q ? value[i] : 0.0f;
                } else {
                    for (int i = 0; i < count; i++) sum[i] += value[i] * share;
                }
            }
        finish_gradient(sum, dx->pitch, &place, job->sink);
    }
}
static void max_pool_backward(nw_exec *exec, const nw_pool2d *pool, const nw_tensor *dy, const uint8_t *index,
                              nw_tensor *dx, const nw_sink *sink)
{
    run_rows(exec, pool_backward_task, &(rows_job){.pool = pool, .in = dy, .index_in = index, .out = dx, .sink = sink});
}
static void avg_pool_backward(nw_exec *exec, const nw_pool2d *pool, const nw_tensor *dy, nw_tensor *dx,
                              const nw_sink *sink)
{
    run_rows(exec, pool_backward_task, &(rows_job){.pool = pool, .in = dy, .out = dx, .sink = sink});
}

static void avg_pool_task(void *context, int item, int worker)
{
    const rows_job *job = context;
    const nw_pool2d *p = job->pool;
    const nw_tensor *x = job->source->a.t;
    nw_tensor *y = job->out;
    float *value = row_buffer(job, worker, 0), *sum = row_buffer(job, worker, 1);
    source_reader reader = read_source(job->source, NW_F32);
    float share = 1.0f / (float)(p->r * p->s);
    int b = item / y->h, h = item % y->h;
    for (int w = 0; w < y->w; w++) {
        tile_place place = pixel_place(y, item, w);
        int count = place.rows * y->pitch;
        memset(sum, 0, (size_t)count * sizeof(float));
        for (int q = 0; q < p->r * p->s; q++) {
            int sy = h * p->stride + q / p->s - p->pad, sx = w * p->stride + q % p->s - p->pad;
            if (sy < 0 || sy >= p->h || sx < 0 || sx >= p->w) continue;
            read_pixel(&reader, nw_tensor_at(x, b, sy, sx), place.rows, place.rows, value, 0, y->pitch);
            for (int i = 0; i < count; i++) sum[i] += value[i];
        }
        for (int i = 0; i < count; i++) sum[i] *= share;
        finish_value(sum, y->pitch, &place, NULL, NULL);
    }
}
static void avg_pool(nw_exec *exec, const nw_pool2d *pool, const nw_source *x, nw_tensor *y)
{
    run_rows(exec, avg_pool_task, &(rows_job){.pool = pool, .source = x, .out = y});
}

/* ---- dropout ---------------------------------------------------------------------------------------------------- */

/* Elements are numbered (image, row, column, channel), whatever the block size; four share a Philox block. */
static void dropout_task(void *context, int item, int worker)
{
    const rows_job *job = context;
    const nw_tensor *t = job->out;
    float *x = row_buffer(job, worker, 0);
    source_reader reader = read_source(job->source, NW_F32);
    int b = item / t->h, h = item % t->h;
    for (int w = 0; w < t->w; w++) {
        tile_place place = pixel_place(t, item, w);
        read_pixel(&reader, place.at, place.rows, place.rows, x, 0, t->pitch);
        for (int i = 0; i < place.rows; i++) {
            uint64_t first =
                ((uint64_t)(b * t->block + i) * (uint64_t)t->h + (uint64_t)h) * (uint64_t)t->w + (uint64_t)w;
            nw_rng rng = nw_rng_make(job->seed, NW_PURPOSE_DROPOUT, job->step << 32 | job->layer, (uint32_t)first);
            for (int c = 0; c < t->c; c++)
                x[i * t->pitch + c] = nw_rng_u32(&rng) < job->drop_below ? 0.0f : x[i * t->pitch + c] * job->keep_scale;
        }
        finish_value(x, t->pitch, &place, NULL, NULL);
    }
}
static void dropout(nw_exec *exec, const nw_source *x, nw_tensor *y, float p, uint64_t seed, uint64_t step,
                    uint32_t layer)
{
    run_rows(exec, dropout_task,
             &(rows_job){.source = x,
                         .out = y,
                         .keep_scale = 1.0f / (1.0f - p),
                         .seed = seed,
                         .step = step,
                         .layer = layer,
                         .drop_below = (uint32_t)((double)p * 4294967296.0)});
}
