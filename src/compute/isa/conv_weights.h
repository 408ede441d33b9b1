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
 * chunk. Sums are kept as [k panel][tap][c][TILE] in f32 and turned to OIHW at the end.
 *
 * Large filters over small maps, whose sums would not stay in a cache, are fused as in conv_pixels.h: a task packs all
 * operands that it needs, and then sums and writes one panel of outputs after another.
 *
 * The instruction set gives: C_PANEL, x_panel_pixel, dy_panel_pixel, pack_x_pixel, pack_dy_pixel, accumulate.
 */

enum {
    CHUNK_BYTES = 3 << 20,   /* packed operands of a chunk, about */
    PARTIAL_BYTES = 4 << 20, /* partial sums together, at most (one is always allowed) */
    MAX_PARTIALS = 16,
    FUSE_OPERANDS = 16 << 20, /* packed operands of all chunks, at most */
};
_Static_assert((int)PARTIAL_BYTES <= (int)FUSE_FROM, "what is fused has no partial sums");

typedef struct weights_plan {
    nw_conv conv; /* the geometry after gathering */
    bool gather;
    int c_panels, k_panels;
    size_t c_padded;
    int chunk_rows, chunks; /* output rows in a chunk, chunks in a block */
    int x_rows;             /* x rows that a chunk reads, at most */
    int partials, groups;
    int row_pitch;                   /* of the normalised row before packing */
    size_t panel_floats, sum_floats; /* of one partial sum: of a panel of outputs, and of all */
    size_t x_bytes, dy_bytes, row_bytes;
    bool fused; /* packed operands of all chunks are kept, and sums are those of one panel */
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

/* As far as it does not depend on the number of images. */
static bool may_fuse_weights(const weights_plan *p, int threads)
{
    return p->sum_floats * sizeof(float) >= FUSE_FROM && threads <= p->k_panels / 8;
}

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
    p.panel_floats = (size_t)(u->r * u->s) * p.c_padded * TILE;
    p.sum_floats = (size_t)p.k_panels * p.panel_floats;

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
    p.fused = may_fuse_weights(&p, threads) && (size_t)(blocks * p.chunks) * (p.x_bytes + p.dy_bytes) <= FUSE_OPERANDS;
    if (p.fused) p.groups = threads;
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
    size_t chunk = p.x_bytes + p.dy_bytes, panel = nw_align_up(p.panel_floats * sizeof(float));
    if (p.fused) return (nw_need){.worker = (size_t)(nw_div_up(n, block) * p.chunks) * chunk + p.row_bytes + panel};
    nw_need need = {.worker = chunk + p.row_bytes,
                    .shared = nw_align_up((size_t)p.partials * p.sum_floats * sizeof(float))};
    return may_fuse_weights(&p, threads) ? nw_need_max(need, (nw_need){.worker = FUSE_OPERANDS + p.row_bytes + panel})
                                         : need;
}

/* Rows [h0, h1) of block b. */
typedef struct chunk_at {
    int b, h0, h1;
    int x_first; /* row of x that its operands begin with */
} chunk_at;

static chunk_at find_chunk(const weights_plan *p, int unit)
{
    const nw_conv *v = &p->conv;
    int h0 = unit % p->chunks * p->chunk_rows;
    return (chunk_at){.b = unit / p->chunks,
                      .h0 = h0,
                      .h1 = nw_min(h0 + p->chunk_rows, v->oh),
                      .x_first = p->gather ? h0 : nw_max(0, h0 * v->stride - v->pad)};
}

/* Products of one chunk and one panel of outputs, into its sums. */
static void chunk_products(const weights_plan *p, const nw_tensor *out, const chunk_at *at, const mul_t *xs,
                           const mul_t *dys, float *sums)
{
    const nw_conv *v = &p->conv;
    int block = out->block;
    size_t x_pixel = x_panel_pixel(block), dy_pixel = dy_panel_pixel(block),
           x_panel = (size_t)(p->x_rows * v->w) * x_pixel;
    for (int c = 0; c < p->c_panels; c++)
        for (int r = 0; r < v->r; r++)
            for (int s = 0; s < v->s; s++) {
                span w = inside(v->ow, v->w, s, v->stride, v->pad), h = inside(v->oh, v->h, r, v->stride, v->pad);
                h.first = nw_max(h.first, at->h0);
                h.last = nw_min(h.last, at->h1);
                if (w.first >= w.last || h.first >= h.last) continue;
                int y = h.first * v->stride + r - v->pad - at->x_first, x = w.first * v->stride + s - v->pad;
                products job = {
                    .x = xs + (size_t)c * x_panel + (size_t)(y * v->w + x) * x_pixel,
                    .dy = dys + (size_t)((h.first - at->h0) * v->ow + w.first) * dy_pixel,
                    .x_step = x_pixel * (size_t)v->stride,
                    .x_row = x_pixel * (size_t)(v->w * v->stride),
                    .dy_step = dy_pixel,
                    .dy_row = dy_pixel * (size_t)v->ow,
                    .rows = h.last - h.first,
                    .pixels = w.last - w.first,
                    .images = nw_tensor_valid(out, at->b),
                    .block = block,
                    .out = sums + ((size_t)(r * v->s + s) * p->c_padded + (size_t)(c * C_PANEL)) * TILE,
                    .out_pitch = TILE,
                };
                accumulate(&job);
            }
}

/* Elements of dy's operands from one panel of outputs to the next. */
static size_t dy_panel(const weights_plan *p, int block)
{
    return (size_t)(p->chunk_rows * p->conv.ow) * dy_panel_pixel(block);
}

static void pack_chunk_x(const weights_job *job, const chunk_at *at, mul_t *row, mul_t *xs)
{
    const weights_plan *p = &job->plan;
    const nw_conv *v = &p->conv;
    const nw_tensor *x = job->x->a.t;
    int block = job->out->block, rows = nw_tensor_valid(job->out, at->b);
    size_t pixel = x_panel_pixel(block), panel = (size_t)(p->x_rows * v->w) * pixel;
    if (p->gather) {
        for (int h = at->h0; h < at->h1; h++) {
            gather_rows(&job->gathered, at->b, h, h + 1, row);
            for (int w = 0; w < v->ow; w++)
                pack_x_pixel(row + (size_t)(w * block * p->row_pitch), p->row_pitch, v->c, block,
                             xs + (size_t)((h - at->h0) * v->w + w) * pixel, panel);
        }
        return;
    }
    int last = nw_min(v->h - 1, (at->h1 - 1) * v->stride + v->r - 1 - v->pad);
    source_reader reader = read_source(job->x, MUL_TYPE);
    bool direct = nw_source_is_plain(job->x) && x->dtype == MUL_TYPE && x->pitch % REDUCE_ALIGN == 0;
    for (int y = at->x_first; y <= last; y++)
        for (int w = 0; w < v->w; w++) {
            size_t from = nw_tensor_at(x, at->b, y, w);
            if (!direct) read_pixel(&reader, from, rows, block, row, 0, p->row_pitch);
            pack_x_pixel(direct ? (const mul_t *)x->data + from : row, direct ? x->pitch : p->row_pitch, v->c, block,
                         xs + (size_t)((y - at->x_first) * v->w + w) * pixel, panel);
        }
}

static void pack_chunk_dy(const weights_job *job, const chunk_at *at, int k0, int k1, mul_t *row, mul_t *dys)
{
    const weights_plan *p = &job->plan;
    const nw_conv *v = &p->conv;
    const nw_tensor *dy = job->dy->a.t;
    int block = job->out->block, rows = nw_tensor_valid(job->out, at->b);
    size_t pixel = dy_panel_pixel(block);
    source_reader reader = read_source(job->dy, MUL_TYPE);
    bool direct = nw_source_is_plain(job->dy) && dy->dtype == MUL_TYPE && dy->pitch % REDUCE_ALIGN == 0;
    for (int h = at->h0; h < at->h1; h++)
        for (int w = 0; w < v->ow; w++) {
            size_t from = nw_tensor_at(dy, at->b, h, w);
            if (!direct) read_pixel(&reader, from, rows, block, row, 0, p->row_pitch);
            pack_dy_pixel(direct ? (const mul_t *)dy->data + from : row, direct ? dy->pitch : p->row_pitch, k0 * TILE,
                          k1 * TILE, block, dys + (size_t)((h - at->h0) * v->ow + w) * pixel, dy_panel(p, block));
        }
}

/* Both operands of one chunk, for panels of outputs [k0, k1). */
static void pack_chunk(const weights_job *job, const chunk_at *at, int k0, int k1, int worker, mul_t *row, mul_t *xs,
                       mul_t *dys)
{
    int64_t start = job->exec->profile ? nw_now_ns() : 0;
    pack_chunk_x(job, at, row, xs);
    pack_chunk_dy(job, at, k0, k1, row, dys);
    if (job->exec->profile) job->exec->fused_ns[worker * 8 + 1] += nw_now_ns() - start;
}

static void weights_task(void *context, int index, int worker)
{
    const weights_job *job = context;
    const weights_plan *p = &job->plan;
    int group = index % p->groups, partial = index / p->groups, block = job->out->block;
    int units = nw_tensor_blocks(job->out) * p->chunks;
    int k0 = p->k_panels * group / p->groups, k1 = p->k_panels * (group + 1) / p->groups;
    unsigned char *scratch = job->exec->worker_scratch + (size_t)worker * job->exec->worker_bytes;
    mul_t *xs = (mul_t *)scratch, *dys = (mul_t *)(scratch + p->x_bytes);
    mul_t *row = (mul_t *)(scratch + p->x_bytes + p->dy_bytes);
    float *sums = job->sums + (size_t)partial * p->sum_floats;

    memset(sums + (size_t)k0 * p->panel_floats, 0, (size_t)(k1 - k0) * p->panel_floats * sizeof(float));
    micro_begin(block);
    for (int u = units * partial / p->partials; u < units * (partial + 1) / p->partials; u++) {
        chunk_at at = find_chunk(p, u);
        pack_chunk(job, &at, k0, k1, worker, row, xs, dys);
        for (int k = k0; k < k1; k++)
            chunk_products(p, job->out, &at, xs, dys + (size_t)(k - k0) * dy_panel(p, block),
                           sums + (size_t)k * p->panel_floats);
    }
    micro_end();
}

/* Adds the partial sums of one panel of outputs in their fixed order and writes them as OIHW. */
static void write_panel(const weights_job *job, int panel, const float *sums)
{
    const weights_plan *p = &job->plan;
    const nw_conv *v = job->gathered.conv;
    tap_walk walk = {.taps = (size_t)(v->r * v->s), .channels = p->gather ? (size_t)v->c : p->c_padded};
    size_t pairs = (size_t)v->c * walk.taps;
    int outputs = nw_min(TILE, v->k - panel * TILE);
    float *dw = job->dw + (size_t)(panel * TILE) * pairs;
    for (size_t q = 0; q < pairs; q += VL) {
        int count = (int)(pairs - q < VL ? pairs - q : VL);
        const float *from[VL];
        for (int i = 0; i < VL; i++) from[i] = i < count ? sums + next_pair(&walk) * TILE : from[0];
        for (int k = 0; k < outputs; k += VL) {
            vf square[VL];
            UNROLL_FOR(i, VL) square[i] = v_load(from[i] + k);
            for (int partial = 1; partial < p->partials; partial++)
                UNROLL_FOR(i, VL) square[i] += v_load(from[i] + (size_t)partial * p->sum_floats + k);
            v_transpose(square);
            for (int j = 0; j < nw_min(VL, outputs - k); j++) {
                float *to = dw + (size_t)(k + j) * pairs + q;
                if (count == VL)
                    v_store(to, job->accumulate ? v_load(to) + square[j] : square[j]);
                else
                    for (int i = 0; i < count; i++) to[i] = job->accumulate ? to[i] + square[j][i] : square[j][i];
            }
        }
    }
}

static void weights_write_task(void *context, int panel, int worker)
{
    const weights_job *job = context;
    (void)worker;
    write_panel(job, panel, job->sums + (size_t)panel * job->plan.panel_floats);
}

static void weights_fused_task(void *context, int group, int worker)
{
    const weights_job *job = context;
    const weights_plan *p = &job->plan;
    int units = nw_tensor_blocks(job->out) * p->chunks, block = job->out->block;
    int k0 = p->k_panels * group / p->groups, k1 = p->k_panels * (group + 1) / p->groups;
    size_t chunk = p->x_bytes + p->dy_bytes;
    unsigned char *scratch = job->exec->worker_scratch + (size_t)worker * job->exec->worker_bytes;
    mul_t *row = (mul_t *)(scratch + (size_t)units * chunk);
    float *sums = (float *)((unsigned char *)row + p->row_bytes);

    for (int u = 0; u < units; u++) {
        chunk_at at = find_chunk(p, u);
        mul_t *xs = (mul_t *)(scratch + (size_t)u * chunk);
        pack_chunk(job, &at, k0, k1, worker, row, xs, xs + p->x_bytes / sizeof(mul_t));
    }
    for (int k = k0; k < k1; k++) {
        memset(sums, 0, p->panel_floats * sizeof(float));
        micro_begin(block);
        for (int u = 0; u < units; u++) {
            chunk_at at = find_chunk(p, u);
            const mul_t *xs = (const mul_t *)(scratch + (size_t)u * chunk), *dys = xs + p->x_bytes / sizeof(mul_t);
            chunk_products(p, job->out, &at, xs, dys + (size_t)(k - k0) * dy_panel(p, block), sums);
        }
        micro_end();
        int64_t start = job->exec->profile ? nw_now_ns() : 0;
        write_panel(job, k, sums);
        if (job->exec->profile) job->exec->fused_ns[worker * 8 + 2] += nw_now_ns() - start;
    }
}

static void run_weights(const weights_job *job, nw_work work)
{
    if (job->plan.fused) {
        nw_exec_run(job->exec, work, job->plan.groups, weights_fused_task, (void *)job);
        return;
    }
    nw_exec_run(job->exec, work, job->plan.partials * job->plan.groups, weights_task, (void *)job);
    nw_exec_run(job->exec, NW_WORK_PACK, job->plan.k_panels, weights_write_task, (void *)job);
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
