/*
 * conv_weights.h - convolution, backward to the weights: dw[k][c][r][s] = sum over images and pixels of x dy.
 *
 * The work is cut in two ways. Over the reduction: a fixed number of partial sums (`partials`), each over a fixed range
 * of (block, chunk of output rows), because small filters offer too few independent outputs; their number depends on
 * the shape alone, and they are added in a fixed order. Over outputs: groups of output panels, as many as the threads
 * want, which changes no result.
 *
 * A task walks its chunks: it packs the x rows and the dy rows of the chunk (normalising them on the way) into panels
 * that the micro-kernel reads straight through, then runs all (output panel, channel panel, tap) products over the
 * chunk. Sums are kept as [tap][c][k] in f32 and turned to OIHW at the end.
 *
 * The instruction set gives: C_PANEL, x_panel_pixel, dy_panel_pixel, pack_x_pixel, pack_dy_pixel, accumulate.
 */

enum {
    CHUNK_BYTES = 3 << 20,   /* packed operands of a chunk, about */
    PARTIAL_BYTES = 4 << 20, /* partial sums together, at most (one is always allowed) */
    MAX_PARTIALS = 16,
};

typedef struct weights_plan {
    nw_conv conv; /* the geometry after gathering */
    bool gather;
    int c_panels, k_panels;
    size_t c_padded, k_padded;
    int chunk_rows, chunks; /* output rows in a chunk, chunks in a block */
    int x_rows;             /* x rows that a chunk reads, at most */
    int partials, groups;
    int row_pitch;     /* of the normalised row before packing */
    size_t sum_floats; /* of one partial sum */
    size_t x_bytes, dy_bytes, row_bytes;
} weights_plan;

typedef struct weights_job {
    weights_plan plan;
    nw_exec *exec;
    pixels_job gathered; /* for gather_rows */
    const nw_source *x, *dy;
    const nw_tensor *out; /* dy's tensor: batch, block */
    float *sums;
    float *dw;
    bool accumulate;
} weights_job;

static weights_plan plan_weights(const nw_conv *v, int n, int block, int threads)
{
    weights_plan p = {.conv = *v, .gather = is_gathered(v)};
    if (p.gather)
        p.conv = (nw_conv){.c = v->c * v->r * v->s,
                           .h = v->oh,
                           .w = v->ow,
                           .k = v->k,
                           .r = 1,
                           .s = 1,
                           .stride = 1,
                           .pad = 0,
                           .oh = v->oh,
                           .ow = v->ow};
    const nw_conv *u = &p.conv;
    p.c_panels = nw_div_up(u->c, C_PANEL);
    p.k_panels = nw_div_up(nw_channel_pitch(u->k), TILE);
    p.c_padded = (size_t)p.c_panels * C_PANEL;
    p.k_padded = (size_t)p.k_panels * TILE;
    p.sum_floats = (size_t)(u->r * u->s) * p.c_padded * p.k_padded;

    int limit = (int)((size_t)PARTIAL_BYTES / (p.sum_floats * sizeof(float))), blocks = nw_div_up(n, block);
    size_t x_row = (size_t)u->w * x_panel_pixel(block) * (size_t)p.c_panels * sizeof(mul_t);
    size_t dy_row = (size_t)u->ow * dy_panel_pixel(block) * (size_t)p.k_panels * sizeof(mul_t);
    int rows = (int)((size_t)CHUNK_BYTES / (x_row * (size_t)u->stride + dy_row)) - (u->r - u->stride);
    p.partials = 1;
    while (p.partials * 2 <= nw_min(limit, MAX_PARTIALS) && p.partials * 2 <= u->oh * blocks) p.partials *= 2;
    p.chunk_rows = nw_max(1, nw_min(rows, u->oh / nw_div_up(p.partials, blocks)));
    p.chunks = nw_div_up(u->oh, p.chunk_rows);
    p.groups = nw_max(1, nw_min(p.k_panels, nw_div_up(2 * threads, p.partials)));
    p.x_rows = nw_min(u->h, (p.chunk_rows - 1) * u->stride + u->r);
    p.x_bytes = nw_align_up((size_t)p.x_rows * x_row);
    p.dy_bytes = nw_align_up((size_t)p.chunk_rows * dy_row);
    p.row_pitch = nw_max(p.gather ? u->c : nw_channel_pitch(u->c), nw_channel_pitch(u->k));
    p.row_pitch = nw_round_up(p.row_pitch, REDUCE_ALIGN);
    size_t row_pixels = p.gather ? (size_t)u->ow : 1;
    p.row_bytes = nw_align_up(row_pixels * (size_t)block * (size_t)p.row_pitch * sizeof(mul_t));
    return p;
}

/* Outputs [first, last) along one axis whose source, out * stride + tap - pad, lies inside. */
typedef struct span {
    int first, last;
} span;
static span inside(int out, int in, int tap, int stride, int pad)
{
    int end = in - 1 + pad - tap; /* the largest out * stride allowed */
    return (span){pad > tap ? nw_div_up(pad - tap, stride) : 0, end < 0 ? 0 : nw_min(out, end / stride + 1)};
}

/* (output, tap) pairs along one axis whose source lies inside. */
static double taps_inside(int out, int in, int taps, int stride, int pad)
{
    int pairs = 0;
    for (int tap = 0; tap < taps; tap++) {
        span outputs = inside(out, in, tap, stride, pad);
        pairs += nw_max(0, outputs.last - outputs.first);
    }
    return pairs;
}

static nw_need weights_need(const nw_conv *v, int n, int block, int threads)
{
    weights_plan p = plan_weights(v, n, block, threads);
    return (nw_need){.worker = p.x_bytes + p.dy_bytes + p.row_bytes,
                     .shared = nw_align_up((size_t)p.partials * p.sum_floats * sizeof(float))};
}

/* Products of one chunk: rows [h0, h1) of block b, output panels [k0, k1), into `sums`. */
static void chunk_products(const weights_plan *p, int images, int block, int h0, int h1, int x_first, int k0, int k1,
                           const mul_t *xs, const mul_t *dys, float *sums)
{
    const nw_conv *v = &p->conv;
    size_t x_pixel = x_panel_pixel(block), dy_pixel = dy_panel_pixel(block);
    size_t x_panel = (size_t)(p->x_rows * v->w) * x_pixel, dy_panel = (size_t)(p->chunk_rows * v->ow) * dy_pixel;
    for (int k = k0; k < k1; k++)
        for (int c = 0; c < p->c_panels; c++)
            for (int r = 0; r < v->r; r++)
                for (int s = 0; s < v->s; s++) {
                    span w = inside(v->ow, v->w, s, v->stride, v->pad), h = inside(v->oh, v->h, r, v->stride, v->pad);
                    h.first = nw_max(h.first, h0);
                    h.last = nw_min(h.last, h1);
                    if (w.first >= w.last || h.first >= h.last) continue;
                    int y = h.first * v->stride + r - v->pad - x_first, x = w.first * v->stride + s - v->pad;
                    products job = {
                        .x = xs + (size_t)c * x_panel + (size_t)(y * v->w + x) * x_pixel,
                        .dy = dys + (size_t)(k - k0) * dy_panel + (size_t)((h.first - h0) * v->ow + w.first) * dy_pixel,
                        .x_step = x_pixel * (size_t)v->stride,
                        .x_row = x_pixel * (size_t)(v->w * v->stride),
                        .dy_step = dy_pixel,
                        .dy_row = dy_pixel * (size_t)v->ow,
                        .rows = h.last - h.first,
                        .pixels = w.last - w.first,
                        .images = images,
                        .block = block,
                        .out = sums + ((size_t)(r * v->s + s) * p->c_padded + (size_t)c * C_PANEL) * p->k_padded +
                               (size_t)k * TILE,
                        .out_pitch = p->k_padded,
                    };
                    accumulate(&job);
                }
}

static void pack_chunk_x(const weights_job *job, int b, int h0, int h1, int *first, mul_t *row, mul_t *xs)
{
    const weights_plan *p = &job->plan;
    const nw_conv *v = &p->conv;
    const nw_tensor *x = job->x->a.t;
    int block = job->out->block, rows = nw_tensor_valid(job->out, b);
    size_t pixel = x_panel_pixel(block), panel = (size_t)(p->x_rows * v->w) * pixel;
    if (p->gather) {
        *first = h0;
        for (int h = h0; h < h1; h++) {
            gather_rows(&job->gathered, b, h, h + 1, row);
            for (int w = 0; w < v->ow; w++)
                pack_x_pixel(row + (size_t)(w * block * p->row_pitch), p->row_pitch, v->c, block,
                             xs + (size_t)((h - h0) * v->w + w) * pixel, panel);
        }
        return;
    }
    *first = nw_max(0, h0 * v->stride - v->pad);
    int last = nw_min(v->h - 1, (h1 - 1) * v->stride + v->r - 1 - v->pad);
    source_reader reader = read_source(job->x, MUL_TYPE);
    bool direct = nw_source_is_plain(job->x) && x->dtype == MUL_TYPE && x->pitch % REDUCE_ALIGN == 0;
    for (int y = *first; y <= last; y++)
        for (int w = 0; w < v->w; w++) {
            size_t at = nw_tensor_at(x, b, y, w);
            if (!direct) read_pixel(&reader, at, rows, block, row, 0, p->row_pitch);
            pack_x_pixel(direct ? (const mul_t *)x->data + at : row, direct ? x->pitch : p->row_pitch, v->c, block,
                         xs + (size_t)((y - *first) * v->w + w) * pixel, panel);
        }
}

static void pack_chunk_dy(const weights_job *job, int b, int h0, int h1, int k0, int k1, mul_t *row, mul_t *dys)
{
    const weights_plan *p = &job->plan;
    const nw_conv *v = &p->conv;
    const nw_tensor *dy = job->dy->a.t;
    int block = job->out->block, rows = nw_tensor_valid(job->out, b);
    size_t pixel = dy_panel_pixel(block), panel = (size_t)(p->chunk_rows * v->ow) * pixel;
    source_reader reader = read_source(job->dy, MUL_TYPE);
    bool direct = nw_source_is_plain(job->dy) && dy->dtype == MUL_TYPE && dy->pitch % REDUCE_ALIGN == 0;
    for (int h = h0; h < h1; h++)
        for (int w = 0; w < v->ow; w++) {
            size_t at = nw_tensor_at(dy, b, h, w);
            if (!direct) read_pixel(&reader, at, rows, block, row, 0, p->row_pitch);
            pack_dy_pixel(direct ? (const mul_t *)dy->data + at : row, direct ? dy->pitch : p->row_pitch, k0 * TILE,
                          k1 * TILE, block, dys + (size_t)((h - h0) * v->ow + w) * pixel, panel);
        }
}

static void weights_task(void *context, int index, int worker)
{
    const weights_job *job = context;
    const weights_plan *p = &job->plan;
    const nw_conv *v = &p->conv;
    int group = index % p->groups, partial = index / p->groups, block = job->out->block;
    int units = nw_tensor_blocks(job->out) * p->chunks;
    int k0 = p->k_panels * group / p->groups, k1 = p->k_panels * (group + 1) / p->groups;
    unsigned char *scratch = job->exec->worker_scratch + (size_t)worker * job->exec->worker_bytes;
    mul_t *xs = (mul_t *)scratch, *dys = (mul_t *)(scratch + p->x_bytes);
    mul_t *row = (mul_t *)(scratch + p->x_bytes + p->dy_bytes);
    float *sums = job->sums + (size_t)partial * p->sum_floats;

    for (size_t at = 0; at < p->sum_floats; at += p->k_padded) /* this group's columns only */
        memset(sums + at + (size_t)k0 * TILE, 0, (size_t)(k1 - k0) * TILE * sizeof(float));
    micro_begin(block);
    for (int u = units * partial / p->partials; u < units * (partial + 1) / p->partials; u++) {
        int b = u / p->chunks, h0 = u % p->chunks * p->chunk_rows, h1 = nw_min(h0 + p->chunk_rows, v->oh), first;
        int64_t start = job->exec->profile ? nw_now_ns() : 0;
        pack_chunk_x(job, b, h0, h1, &first, row, xs);
        pack_chunk_dy(job, b, h0, h1, k0, k1, row, dys);
        if (job->exec->profile) job->exec->fused_ns[worker * 8 + 1] += nw_now_ns() - start;
        chunk_products(p, nw_tensor_valid(job->out, b), block, h0, h1, first, k0, k1, xs, dys, sums);
    }
    micro_end();
}

/* Adds the partial sums of one panel of outputs in their fixed order and writes them as OIHW. */
static void weights_gather_task(void *context, int panel, int worker)
{
    const weights_job *job = context;
    const weights_plan *p = &job->plan;
    const nw_conv *v = job->gathered.conv;
    size_t taps = (size_t)(v->r * v->s);
    int outputs = nw_min(TILE, v->k - panel * TILE);
    (void)worker;
    for (int c = 0; c < v->c; c++)
        for (size_t t = 0; t < taps; t++) {
            size_t row = p->gather ? t * (size_t)v->c + (size_t)c : t * p->c_padded + (size_t)c;
            const float *from = job->sums + row * p->k_padded + (size_t)(panel * TILE);
            float total[TILE];
            for (int j = 0; j < TILE; j++) total[j] = from[j];
            for (int q = 1; q < p->partials; q++)
                for (int j = 0; j < TILE; j++) total[j] += from[(size_t)q * p->sum_floats + (size_t)j];
            for (int j = 0; j < outputs; j++) {
                float *to = job->dw + ((size_t)(panel * TILE + j) * (size_t)v->c + (size_t)c) * taps + t;
                *to = job->accumulate ? *to + total[j] : total[j];
            }
        }
}

static void run_weights(const weights_job *job, nw_work work)
{
    nw_exec_run(job->exec, work, job->plan.partials * job->plan.groups, weights_task, (void *)job);
    nw_exec_run(job->exec, NW_WORK_PACK, job->plan.k_panels, weights_gather_task, (void *)job);
}

/* ---- bias ------------------------------------------------------------------------------------------------------- */

typedef struct bias_job {
    const nw_source *dy;
    float *dbias;
    bool accumulate;
} bias_job;

/* Sixteen channels a task, side by side as they lie in memory; each channel's sums have one fixed order. */
static void bias_task(void *context, int index, int worker)
{
    enum { GROUP = 16 };
    const bias_job *job = context;
    const nw_tensor *t = job->dy->a.t;
    int c0 = index * GROUP, count = nw_min(GROUP, t->c - c0);
    double total[GROUP] = {0};
    (void)worker;
    for (int b = 0; b < nw_tensor_blocks(t); b++)
        for (int h = 0; h < t->h; h++) {
            float sum[GROUP] = {0};
            for (int w = 0; w < t->w; w++)
                for (int i = 0; i < nw_tensor_valid(t, b); i++) {
                    size_t at = nw_tensor_at(t, b, h, w) + (size_t)(i * t->pitch + c0);
                    for (int c = 0; c < count; c++) sum[c] += source_get(job->dy, at + (size_t)c, c0 + c);
                }
            for (int c = 0; c < count; c++) total[c] += (double)sum[c];
        }
    for (int c = 0; c < count; c++)
        job->dbias[c0 + c] = (float)total[c] + (job->accumulate ? job->dbias[c0 + c] : 0.0f);
}
