/*
 * conv_pixels.h - convolution forward, and backward to the data, as one driver.
 *
 * Both are, for each output pixel of each block, a sum over filter taps of (block x c) x (c x outputs) products: a
 * batch-reduced matrix product in the layout of tensor.h, with no im2col and no padding copies. They differ in which
 * source pixel a tap reads,
 *     forward    source = out * stride + tap - pad
 *     backward   source = (out + pad - tap) / stride      where that divides,
 * and in how the filter is packed. Taps that fall outside are skipped; a pixel without taps becomes zero.
 *
 * A task is a band of output rows of one block and a range of outputs. It first writes the source rows that it needs
 * to its worker's scratch (normalised, rectified, converted), unless the source is a plain tensor of the right type.
 * Inside, weights are walked in chunks that stay in the second-level cache.
 *
 * Large filters over small maps, linear layers above all, are bound by memory. There a task packs a panel of weights
 * into its own scratch and multiplies all images by it, so that weights are read once and never written.
 *
 * Inputs of fewer than 16 channels would leave the reduction short: their taps are gathered into one row of R*S*C
 * values, and the convolution becomes 1 x 1.
 *
 * The instruction set gives (micro_*.h): mul_t, MUL_TYPE, TILE, REDUCE_ALIGN, L2_WEIGHTS, panel_bytes, pack_panel,
 * multiply, micro_begin, micro_end.
 */

enum {
    GATHER_BELOW = 16,    /* input channels */
    BAND_BYTES = 5 << 19, /* source rows in scratch: 2.5 MiB */
    MAX_TAPS = 1024,
    FUSE_FROM = 4 << 20, /* bytes of packed weights, or of their gradient: more than a core's own caches hold */
};

typedef struct pixels_plan {
    bool backward, gather;
    int c;             /* values reduced per tap */
    int taps;          /* of the packed filter: R * S, or 1 when gathered */
    int scratch_pitch; /* of a source row in scratch */
    int out_c, out_pitch, out_h, out_w, src_h, src_w;
    int panels, chunk_panels;
    size_t panel_bytes;
    int band_rows, bands; /* output rows in a task */
    int parts;            /* ranges of panels */
    size_t scratch_bytes; /* of a task's source rows */
    bool fused;           /* a task is a range of panels for all blocks and rows */
    size_t block_bytes;   /* of a block's source rows, when fused */
} pixels_plan;

typedef struct pixels_job {
    pixels_plan plan;
    nw_exec *exec;
    const nw_conv *conv;
    const nw_source *source;
    bool direct;
    const float *weights;
    unsigned char *packed;
    nw_tensor *out;
    const float *bias;
    const nw_moments *moments;
    const nw_sink *sink;
} pixels_job;

/* The source index that `tap` reads for output index `out`, or -1. */
INLINE int tap_source(bool backward, int out, int tap, int stride, int pad, int length)
{
    int at = backward ? out + pad - tap : out * stride + tap - pad;
    if (at < 0) return -1;
    if (backward) {
        if (at % stride) return -1;
        at /= stride;
    }
    return at < length ? at : -1;
}

static bool is_gathered(const nw_conv *v) { return v->c < GATHER_BELOW && v->r * v->s > 1; }

/* Source rows [*first, *last] that output rows [h0, h1) read; first > last if none. */
static void rows_needed(const nw_conv *v, const pixels_plan *p, int h0, int h1, int *first, int *last)
{
    *first = p->src_h;
    *last = -1;
    for (int h = h0; h < h1; h++)
        for (int r = 0; r < v->r; r++) {
            int at = tap_source(p->backward, h, r, v->stride, v->pad, p->src_h);
            if (at < 0) continue;
            *first = nw_min(*first, at);
            *last = nw_max(*last, at);
        }
}

/* As far as it does not depend on the number of images: a last batch may be small. */
static bool may_fuse(const pixels_plan *p, int threads)
{
    return (size_t)p->panels * p->panel_bytes >= FUSE_FROM && threads <= p->panels;
}

static pixels_plan plan_pixels(const nw_conv *v, int n, int block, bool backward, int threads)
{
    pixels_plan p = {.backward = backward, .gather = !backward && is_gathered(v)};
    p.taps = p.gather ? 1 : v->r * v->s;
    p.c = p.gather ? v->c * v->r * v->s : backward ? v->k : v->c;
    p.out_c = backward ? v->c : v->k;
    p.out_pitch = nw_channel_pitch(p.out_c);
    p.out_h = backward ? v->h : v->oh;
    p.out_w = backward ? v->w : v->ow;
    p.src_h = backward ? v->oh : v->h;
    p.src_w = backward ? v->ow : v->w;
    p.scratch_pitch = nw_round_up(p.gather ? p.c : nw_channel_pitch(p.c), REDUCE_ALIGN);
    p.panels = nw_div_up(p.out_pitch, TILE);
    p.panel_bytes = panel_bytes(p.taps, p.c);
    p.chunk_panels = nw_max(1, nw_min(p.panels, (int)((size_t)L2_WEIGHTS / p.panel_bytes)));

    size_t row_bytes = (size_t)(p.gather ? p.out_w : p.src_w) * (size_t)block * (size_t)p.scratch_pitch * sizeof(mul_t);
    int blocks = nw_div_up(n, block), budget_rows = (int)((size_t)BAND_BYTES / row_bytes), rows;
    if (p.gather)
        rows = budget_rows;
    else if (backward)
        rows = (budget_rows - (v->r - 1) / v->stride) * v->stride;
    else
        rows = (budget_rows - v->r) / v->stride + 1;
    /* Enough tasks to balance the threads, but not so thin that halo rows are normalised again and again. */
    int fair = nw_div_up(p.out_h * blocks, 4 * threads);
    rows = nw_min(rows, nw_max(fair, 4));
    p.band_rows = nw_max(1, nw_min(rows, p.out_h));
    p.bands = nw_div_up(p.out_h, p.band_rows);
    p.parts = nw_max(1, nw_min(p.panels, nw_div_up(4 * threads, blocks * p.bands)));
    int held = p.gather   ? p.band_rows
               : backward ? (p.band_rows + v->r - 2) / v->stride + 1
                          : (p.band_rows - 1) * v->stride + v->r;
    p.scratch_bytes = nw_align_up((size_t)nw_min(held, nw_max(p.src_h, p.out_h)) * row_bytes);
    p.block_bytes = nw_align_up((size_t)nw_max(p.src_h, p.out_h) * row_bytes);
    p.fused = may_fuse(&p, threads) && (size_t)blocks * p.block_bytes <= (size_t)p.panels * p.panel_bytes;
    if (p.fused) p.parts = nw_min(p.panels, 4 * threads);
    return p;
}

/* One tap of one pixel: C values of each image, to rows `pitch` apart. */
INLINE void gather_tap(const nw_source *source, bool plain, size_t from, int rows, mul_t *out, size_t pitch)
{
    const nw_tensor *x = source->a.t;
    if (plain && x->dtype == MUL_TYPE && x->c == 3) { /* colour images, in every step */
        const mul_t *data = (const mul_t *)x->data + from;
        for (int i = 0; i < rows; i++, data += x->pitch, out += pitch) {
            out[0] = data[0];
            out[1] = data[1];
            out[2] = data[2];
        }
        return;
    }
    for (int i = 0; i < rows; i++, from += (size_t)x->pitch, out += pitch)
        for (int c = 0; c < x->c; c++)
            x_put(out, (size_t)c,
                  plain ? x_get(x->data, from + (size_t)c, x->dtype) : source_get(source, from + (size_t)c, c),
                  MUL_TYPE);
}

/* Gather the taps of output rows [h0, h1) of block b. */
static void gather_rows(const pixels_job *job, int b, int h0, int h1, mul_t *out)
{
    const nw_conv *v = job->conv;
    const nw_tensor *x = job->source->a.t;
    size_t pitch = (size_t)job->plan.scratch_pitch, pixel = (size_t)x->block * pitch;
    int rows = nw_tensor_valid(x, b);
    bool plain = nw_source_is_plain(job->source);
    source_reader whole = read_source(job->source, MUL_TYPE);
    if (x->c != x->pitch) whole.rows = NULL; /* what is beyond the channels would go to the next tap */
    for (int h = h0; h < h1; h++)
        for (int w = 0; w < v->ow; w++, out += pixel) {
            memset(out, 0, pixel * sizeof(mul_t));
            for (int r = 0; r < v->r; r++) {
                int y = tap_source(false, h, r, v->stride, v->pad, v->h);
                if (y < 0) continue;
                for (int s = 0; s < v->s; s++) {
                    int z = tap_source(false, w, s, v->stride, v->pad, v->w);
                    if (z < 0) continue;
                    size_t from = nw_tensor_at(x, b, y, z);
                    mul_t *to = out + (r * v->s + s) * v->c;
                    if (whole.rows)
                        whole.rows(job->source, from, rows, x->pitch, to, 0, job->plan.scratch_pitch);
                    else
                        gather_tap(job->source, plain, from, rows, to, pitch);
                }
            }
        }
}

/* The source rows that output rows [h0, h1) of block b read: in scratch, or where they are. */
typedef struct rows_read {
    const mul_t *at;
    size_t pitch;
    int first; /* row */
} rows_read;

static rows_read read_rows(const pixels_job *job, int b, int h0, int h1, int worker, mul_t *scratch)
{
    const pixels_plan *p = &job->plan;
    const nw_tensor *t = job->source->a.t;
    int last, block = job->out->block;
    rows_read rows = {.at = scratch, .pitch = (size_t)p->scratch_pitch};
    rows_needed(job->conv, p, h0, h1, &rows.first, &last);
    if (job->direct) {
        rows.pitch = (size_t)t->pitch;
        rows.at = (const mul_t *)t->data + nw_tensor_at(t, b, rows.first <= last ? rows.first : 0, 0);
        return rows;
    }
    int64_t start = job->exec->profile ? nw_now_ns() : 0;
    if (p->gather) {
        gather_rows(job, b, h0, h1, scratch);
    } else {
        source_reader reader = read_source(job->source, MUL_TYPE);
        for (int y = rows.first; y <= last; y++)
            for (int x = 0; x < p->src_w; x++, scratch += (size_t)block * rows.pitch)
                read_pixel(&reader, nw_tensor_at(t, b, y, x), nw_tensor_valid(t, b), block, scratch, 0,
                           (int)rows.pitch);
    }
    if (job->exec->profile) job->exec->fused_ns[worker * 8] += nw_now_ns() - start;
    return rows;
}

/* Output rows [h0, h1) of block b, panels [panel0, panel1), whose weights begin at `packed`. */
static void multiply_rows(const pixels_job *job, const rows_read *source, int b, int h0, int h1, int panel0, int panel1,
                          const unsigned char *packed)
{
    const pixels_plan *p = &job->plan;
    const nw_conv *v = job->conv;
    nw_tensor *out = job->out;
    int rows = nw_tensor_valid(out, b);
    _Alignas(64) float tile[32 * TILE];
    tap_t taps[MAX_TAPS];
    size_t pixel = (size_t)out->block * source->pitch;
    for (int h = h0; h < h1; h++)
        for (int w = 0; w < p->out_w; w++) {
            int count = 0;
            if (p->gather) {
                taps[count++] = (tap_t){source->at + ((size_t)(h - h0) * (size_t)p->out_w + (size_t)w) * pixel, 0};
            } else {
                for (int r = 0; r < v->r; r++) {
                    int y = tap_source(p->backward, h, r, v->stride, v->pad, p->src_h);
                    if (y < 0) continue;
                    const mul_t *row = source->at + (size_t)(y - source->first) * (size_t)p->src_w * pixel;
                    for (int s = 0; s < v->s; s++) {
                        int x = tap_source(p->backward, w, s, v->stride, v->pad, p->src_w);
                        if (x >= 0) taps[count++] = (tap_t){row + (size_t)x * pixel, r * v->s + s};
                    }
                }
            }
            tile_place place = {.t = out,
                                .at = nw_tensor_at(out, b, h, w),
                                .rows = rows,
                                .item = (size_t)(b * p->out_h + h),
                                .first = w == 0};
            for (int panel = panel0; panel < panel1; panel++) {
                place.k0 = panel * TILE;
                place.count = nw_min(TILE, p->out_pitch - place.k0);
                multiply(taps, count, p->c, (int)source->pitch,
                         (const mul_t *)(packed + (size_t)(panel - panel0) * p->panel_bytes), rows, place.count, tile);
                if (p->backward)
                    finish_gradient(tile, TILE, &place, job->sink);
                else
                    finish_value(tile, TILE, &place, job->bias, job->moments);
            }
        }
}

static void pixels_task(void *context, int index, int worker)
{
    const pixels_job *job = context;
    const pixels_plan *p = &job->plan;
    int part = index % p->parts, band = index / p->parts % p->bands, b = index / p->parts / p->bands;
    int h0 = band * p->band_rows, h1 = nw_min(h0 + p->band_rows, p->out_h);
    int panel0 = p->panels * part / p->parts, panel1 = p->panels * (part + 1) / p->parts;
    mul_t *scratch = (mul_t *)(job->exec->worker_scratch + (size_t)worker * job->exec->worker_bytes);
    rows_read rows = read_rows(job, b, h0, h1, worker, scratch);
    micro_begin(32);
    for (int chunk = panel0; chunk < panel1; chunk += p->chunk_panels)
        multiply_rows(job, &rows, b, h0, h1, chunk, nw_min(chunk + p->chunk_panels, panel1),
                      job->packed + (size_t)chunk * p->panel_bytes);
    micro_end();
}

/* Fused, source rows that have to be converted are so for all tasks at once. */
static void fused_read_task(void *context, int index, int worker)
{
    const pixels_job *job = context;
    const pixels_plan *p = &job->plan;
    read_rows(job, index, 0, p->out_h, worker, (mul_t *)(job->packed + (size_t)index * p->block_bytes));
}

static void fused_task(void *context, int part, int worker)
{
    const pixels_job *job = context;
    const pixels_plan *p = &job->plan;
    const nw_tensor *t = job->source->a.t;
    unsigned char *packed = job->exec->worker_scratch + (size_t)worker * job->exec->worker_bytes;
    rows_read rows = {.pitch = (size_t)(job->direct ? t->pitch : p->scratch_pitch)};
    int last;
    rows_needed(job->conv, p, 0, p->out_h, &rows.first, &last);
    micro_begin(32);
    for (int panel = p->panels * part / p->parts; panel < p->panels * (part + 1) / p->parts; panel++) {
        int64_t start = job->exec->profile ? nw_now_ns() : 0;
        pack_panel(job->conv, p->backward, p->gather, job->weights, panel, packed);
        if (job->exec->profile) job->exec->fused_ns[worker * 8 + 2] += nw_now_ns() - start;
        for (int b = 0; b < nw_tensor_blocks(job->out); b++) {
            rows.at = job->direct ? (const mul_t *)t->data + nw_tensor_at(t, b, rows.first <= last ? rows.first : 0, 0)
                                  : (const mul_t *)(job->packed + (size_t)b * p->block_bytes);
            multiply_rows(job, &rows, b, 0, p->out_h, panel, panel + 1, packed);
        }
    }
    micro_end();
}

static void pack_task(void *context, int panel, int worker)
{
    const pixels_job *job = context;
    (void)worker;
    pack_panel(job->conv, job->plan.backward, job->plan.gather, job->weights, panel,
               job->packed + (size_t)panel * job->plan.panel_bytes);
}

static void run_pixels(pixels_job *job, nw_work work)
{
    nw_exec *exec = job->exec;
    const nw_tensor *src = job->source->a.t;
    const pixels_plan *p = &job->plan;
    int blocks = nw_tensor_blocks(job->out);
    job->packed = exec->shared_scratch;
    job->direct =
        !p->gather && nw_source_is_plain(job->source) && src->dtype == MUL_TYPE && src->pitch % REDUCE_ALIGN == 0;
    if (p->fused) {
        if (!job->direct) nw_exec_run(exec, work, blocks, fused_read_task, job);
        nw_exec_run(exec, work, p->parts, fused_task, job);
        return;
    }
    nw_exec_run(exec, NW_WORK_PACK, p->panels, pack_task, job);
    nw_exec_run(exec, work, blocks * p->bands * p->parts, pixels_task, job);
}

static nw_need pixels_need(const nw_conv *v, int n, int block, bool backward, int threads)
{
    pixels_plan p = plan_pixels(v, n, block, backward, threads);
    nw_need need = {.worker = p.fused ? 0 : p.scratch_bytes,
                    .shared = p.fused ? (size_t)nw_div_up(n, block) * p.block_bytes
                                      : nw_align_up((size_t)p.panels * p.panel_bytes)};
    return may_fuse(&p, threads) ? nw_need_max(need, (nw_need){.worker = nw_align_up(p.panel_bytes)}) : need;
}
