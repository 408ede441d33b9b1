/*
 * conv_winograd.h - 3 x 3 convolutions of stride 1 with a quarter of the products: Winograd's F(4 x 4, 3 x 3).
 *
 * A tile of 4 x 4 outputs needs 6 x 6 inputs d. As products of polynomials, taken at the points 0, a, -a, b, -b and
 * infinity in both directions, with a = 1/sqrt(2) and b = sqrt(2), a tile costs 36 products a channel instead of 144:
 *     forward               y  = A' [ (G g G') * (B' d B) ] A         * : element by element, summed over channels
 *     backward to the data  the same on dy with the filter turned by 180 degrees
 *     backward to weights   dg = G' [ (B' d B) * (A dy A') ] G        summed over tiles and images
 * Rounding errors are a few times those of the sums, smaller than with the textbook's points 1 and 2; tests hold both
 * to the same bounds. Only tables that multiply in f32 do it: bf16 has too few digits for the transforms.
 *
 * In the layout of tensor.h a transform is the same for all images and channels of a block, so it runs in whole
 * vectors, and at each of the 36 points a (images x channels) x (channels x outputs) product remains for the
 * micro-kernel of conv_pixels.h.
 *
 * Forward and to the data: a task is a row of tiles of one block and a range of outputs; it transforms some tiles,
 * multiplies point by point, and transforms back into the same epilogues as the direct kernels. To the weights: chunks
 * of tiles are transformed by all threads and then multiplied by all threads, point by point, into one set of sums:
 * the order of additions depends on the shape alone.
 */

#if BF16
static bool winograd_suits(const nw_conv *v, int n, nw_direction direction)
{
    (void)v, (void)n, (void)direction;
    return false;
}
static double winograd_products(const nw_conv *v, int n, nw_direction direction)
{
    (void)v, (void)n, (void)direction;
    return 0;
}
static void winograd_pixels(const pixels_job *direct, nw_work work) { (void)direct, (void)work; }
static void winograd_weights(const weights_job *direct, nw_work work) { (void)direct, (void)work; }
static nw_need winograd_need(const nw_conv *v, int n, int block, nw_direction direction, int threads)
{
    (void)v, (void)n, (void)block, (void)direction, (void)threads;
    return (nw_need){0};
}
#else

enum {
    WG_OUT = 4,
    WG_IN = 6,
    WG_POINTS = WG_IN * WG_IN,
    WG_LANE = 16,            /* channels transformed at a time: a cache line */
    WG_LANES = WG_LANE / VL, /* vectors of them */
    WG_IMAGES = 4,           /* images whose pixels are read at a time */
    WG_APART = 16,           /* floats between arrays that are walked side by side, so that they share no cache set */
    WG_TASK_BYTES = 1 << 20, /* transformed tiles and their products in a task, about */
    WG_SHARE = 8,            /* images of a tile that a task transforms for the weights' gradient; divides a block */
    WG_POSITIONS = 128,      /* (tile, image) pairs in a chunk: a panel of them stays in the first-level cache */
};

/* ---- the transforms along one axis ------------------------------------------------------------------------------ */

#define WG_A  0.70710678118654752f
#define WG_B  1.41421356237309505f
#define WG_NA (-2.0f / 3.0f) /* 1 / (2 a^2 (a^2 - b^2)) */
#define WG_NB (1.0f / 6.0f)  /* 1 / (2 b^2 (b^2 - a^2)) */

INLINE void wg_input(const vf d[WG_IN], vf v[WG_IN]) /* B' */
{
    vf even_a = d[4] - 2.0f * d[2], odd_a = d[3] - 2.0f * d[1], even_b = d[4] - 0.5f * d[2], odd_b = d[3] - 0.5f * d[1];
    v[0] = d[0] + d[4] - 2.5f * d[2];
    v[1] = even_a + WG_A * odd_a;
    v[2] = even_a - WG_A * odd_a;
    v[3] = even_b + WG_B * odd_b;
    v[4] = even_b - WG_B * odd_b;
    v[5] = d[1] + d[5] - 2.5f * d[3];
}
INLINE void wg_output(const vf m[WG_IN], vf y[WG_OUT]) /* A' */
{
    vf sum_a = m[1] + m[2], dif_a = m[1] - m[2], sum_b = m[3] + m[4], dif_b = m[3] - m[4];
    y[0] = m[0] + sum_a + sum_b;
    y[1] = WG_A * dif_a + WG_B * dif_b;
    y[2] = 0.5f * sum_a + 2.0f * sum_b;
    y[3] = 0.5f * WG_A * dif_a + 2.0f * WG_B * dif_b + m[5];
}
INLINE void wg_spread(const vf y[WG_OUT], vf z[WG_IN]) /* A */
{
    vf even_a = y[0] + 0.5f * y[2], odd_a = WG_A * y[1] + 0.5f * WG_A * y[3];
    vf even_b = y[0] + 2.0f * y[2], odd_b = WG_B * y[1] + 2.0f * WG_B * y[3];
    z[0] = y[0];
    z[1] = even_a + odd_a;
    z[2] = even_a - odd_a;
    z[3] = even_b + odd_b;
    z[4] = even_b - odd_b;
    z[5] = y[3];
}
INLINE void wg_filter(const vf g[3], vf u[WG_IN]) /* G */
{
    vf even_a = WG_NA * g[0] + 0.5f * WG_NA * g[2], odd_a = WG_NA * WG_A * g[1];
    vf even_b = WG_NB * g[0] + 2.0f * WG_NB * g[2], odd_b = WG_NB * WG_B * g[1];
    u[0] = g[0];
    u[1] = even_a + odd_a;
    u[2] = even_a - odd_a;
    u[3] = even_b + odd_b;
    u[4] = even_b - odd_b;
    u[5] = g[2];
}
INLINE void wg_gather(const vf p[WG_IN], vf g[3]) /* G' */
{
    vf sum_a = WG_NA * (p[1] + p[2]), dif_a = WG_NA * (p[1] - p[2]);
    vf sum_b = WG_NB * (p[3] + p[4]), dif_b = WG_NB * (p[3] - p[4]);
    g[0] = p[0] + sum_a + sum_b;
    g[1] = WG_A * dif_a + WG_B * dif_b;
    g[2] = 0.5f * sum_a + 2.0f * sum_b + p[5];
}

/* ---- tiles ------------------------------------------------------------------------------------------------------ */

/* Where the size x size pixels of a tile are for some images: in the tensor itself, in scratch where the source had to
 * be read, or zero outside of the image. */
typedef struct wg_patch {
    const float *pixel[WG_POINTS];
    size_t step[WG_POINTS]; /* floats from image to image */
} wg_patch;

typedef struct wg_reader {
    source_reader source;
    bool direct;
    float *scratch, *zeros; /* WG_POINTS * WG_IMAGES * pitch and pitch floats */
} wg_reader;

static size_t wg_reader_floats(int pitch) { return (size_t)(WG_POINTS * WG_IMAGES + 1) * (size_t)pitch; }

static wg_reader wg_open(const nw_source *source, unsigned char *scratch)
{
    wg_reader r = {.source = read_source(source, NW_F32), .direct = nw_source_is_plain(source)};
    size_t pitch = (size_t)source->a.t->pitch;
    r.zeros = (float *)scratch;
    r.scratch = r.zeros + pitch;
    memset(r.zeros, 0, pitch * sizeof(float));
    return r;
}

static void wg_read(const wg_reader *r, int b, int y0, int x0, int size, int image, int images, wg_patch *out)
{
    const nw_tensor *t = r->source.source->a.t;
    size_t pitch = (size_t)t->pitch;
    for (int p = 0; p < size * size; p++) {
        int y = y0 + p / size, x = x0 + p % size;
        if (y < 0 || x < 0 || y >= t->h || x >= t->w) {
            out->pixel[p] = r->zeros;
            out->step[p] = 0;
            continue;
        }
        size_t at = nw_tensor_at(t, b, y, x) + (size_t)image * pitch;
        float *copy = r->scratch + (size_t)(p * WG_IMAGES) * pitch;
        if (!r->direct) r->source.rows(r->source.source, at, images, (int)pitch, copy, 0, (int)pitch);
        out->pixel[p] = r->direct ? (const float *)t->data + at : copy;
        out->step[p] = pitch;
    }
}

/* One image's tile at all points, WG_LANE channels at a time: B' d B of 6 x 6 pixels, or A dy A' of 4 x 4. */
#define DEFINE_WG_TRANSFORM(NAME, SIZE, ALONG)                                                                        \
    static void NAME(const wg_patch *patch, int image, int channels, float *out, size_t point_step)                   \
    {                                                                                                                 \
        const float *pixel[(SIZE) * (SIZE)];                                                                          \
        for (int p = 0; p < (SIZE) * (SIZE); p++) pixel[p] = patch->pixel[p] + (size_t)image * patch->step[p];        \
        for (size_t c = 0; c < (size_t)channels; c += WG_LANE) {                                                      \
            vf half[WG_IN][WG_LANES][SIZE];                                                                           \
            UNROLL_FOR(x, SIZE)                                                                                       \
                UNROLL_FOR(l, WG_LANES) {                                                                             \
                    vf column[SIZE], points[WG_IN];                                                                   \
                    UNROLL_FOR(y, SIZE) column[y] = v_load(pixel[y * (SIZE) + x] + c + l * VL);                       \
                    ALONG(column, points);                                                                            \
                    UNROLL_FOR(i, WG_IN) half[i][l][x] = points[i];                                                   \
                }                                                                                                     \
            for (int i = 0; i < WG_IN; i++)                                                                           \
                UNROLL_FOR(l, WG_LANES) {                                                                             \
                    vf points[WG_IN];                                                                                 \
                    ALONG(half[i][l], points);                                                                        \
                    UNROLL_FOR(j, WG_IN) v_store(out + (size_t)(i * WG_IN + j) * point_step + c + l * VL, points[j]); \
                }                                                                                                     \
        }                                                                                                             \
    }
DEFINE_WG_TRANSFORM(wg_transform_input, WG_IN, wg_input)
DEFINE_WG_TRANSFORM(wg_transform_output, WG_OUT, wg_spread)

static int wg_pitch(int c) { return nw_channel_pitch(c) + WG_APART; }

/* ---- forward and backward to the data --------------------------------------------------------------------------- */

typedef struct wg_pixels_plan {
    bool backward;
    int c, out_pitch, out_h, out_w, pad;
    int panels, parts, tiles_y, tiles_x, tiles; /* tiles transformed at a time */
    size_t pitch, tile_step, point_step;        /* of transformed inputs [point][tile][image][channel], in floats */
    size_t product;                             /* [image][TILE] at one point */
    size_t reader_bytes, input_bytes, product_bytes, back_bytes;
} wg_pixels_plan;

typedef struct wg_pixels_job {
    wg_pixels_plan plan;
    const pixels_job *direct;
    float *filter; /* [point][panel][c][TILE] */
} wg_pixels_job;

static wg_pixels_plan wg_plan_pixels(const nw_conv *v, int n, int block, bool backward, int threads)
{
    wg_pixels_plan p = {.backward = backward,
                        .c = backward ? v->k : v->c,
                        .out_pitch = nw_channel_pitch(backward ? v->c : v->k),
                        .out_h = backward ? v->h : v->oh,
                        .out_w = backward ? v->w : v->ow,
                        .pad = backward ? 2 - v->pad : v->pad};
    p.panels = nw_div_up(p.out_pitch, TILE);
    p.tiles_y = nw_div_up(p.out_h, WG_OUT);
    p.tiles_x = nw_div_up(p.out_w, WG_OUT);
    p.parts = nw_max(1, nw_min(p.panels, nw_div_up(2 * threads, nw_div_up(n, block) * p.tiles_y)));
    p.pitch = (size_t)wg_pitch(p.c);
    p.tile_step = (size_t)block * p.pitch;
    p.product = (size_t)block * TILE + WG_APART;
    int part_panels = nw_div_up(p.panels, p.parts);
    size_t tile_bytes = WG_POINTS * (p.tile_step + (size_t)part_panels * p.product) * sizeof(float);
    p.tiles = nw_max(1, nw_min(p.tiles_x, (int)((size_t)WG_TASK_BYTES / tile_bytes)));
    p.point_step = (size_t)p.tiles * p.tile_step + WG_APART;
    p.reader_bytes = nw_align_up(wg_reader_floats(nw_channel_pitch(p.c)) * sizeof(float));
    p.input_bytes = nw_align_up(WG_POINTS * p.point_step * sizeof(float));
    p.product_bytes = nw_align_up((size_t)(part_panels * p.tiles * WG_POINTS) * p.product * sizeof(float));
    p.back_bytes = nw_align_up(WG_OUT * WG_OUT * p.product * sizeof(float));
    return p;
}

static size_t wg_filter_bytes(const wg_pixels_plan *p)
{
    return nw_align_up((size_t)(WG_POINTS * p->panels * p->c * TILE) * sizeof(float));
}

static void wg_pack_task(void *context, int panel, int worker)
{
    const wg_pixels_job *job = context;
    const wg_pixels_plan *p = &job->plan;
    filter_view f = view_filter(job->direct->conv, p->backward, job->direct->weights, panel);
    (void)worker;
    for (int c = 0; c < f.reduced; c++) {
        _Alignas(64) float taps[9][TILE];
        for (int t = 0; t < 9; t++) {
            const float *from = f.w + (size_t)c * f.c_step + (p->backward ? 8 - t : t);
            for (int j = 0; j < TILE; j++) taps[t][j] = j < f.outputs ? from[(size_t)j * f.k_step] : 0.0f;
        }
        for (int l = 0; l < VECS; l++) {
            vf half[WG_IN][3];
            UNROLL_FOR(x, 3) {
                vf column[3], points[WG_IN];
                UNROLL_FOR(y, 3) column[y] = v_load(taps[y * 3 + x] + l * VL);
                wg_filter(column, points);
                UNROLL_FOR(i, WG_IN) half[i][x] = points[i];
            }
            UNROLL_FOR(i, WG_IN) {
                vf points[WG_IN];
                wg_filter(half[i], points);
                UNROLL_FOR(j, WG_IN) {
                    size_t at = ((size_t)((i * WG_IN + j) * p->panels + panel) * (size_t)p->c + (size_t)c) * TILE;
                    v_store(job->filter + at + (size_t)(l * VL), points[j]);
                }
            }
        }
    }
}

/* A' m A: the products of one tile and panel at all points into 4 x 4 pixels [image][TILE], `product` apart. */
static void wg_back(const float *points, size_t product, int rows, int cols, float *out)
{
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < cols; v += VL) {
            const float *from = points + (size_t)(i * TILE + v);
            float *to = out + (size_t)(i * TILE + v);
            vf half[WG_OUT][WG_IN];
            UNROLL_FOR(x, WG_IN) {
                vf column[WG_IN], y[WG_OUT];
                UNROLL_FOR(j, WG_IN) column[j] = v_load(from + (size_t)(j * WG_IN + x) * product);
                wg_output(column, y);
                UNROLL_FOR(j, WG_OUT) half[j][x] = y[j];
            }
            UNROLL_FOR(j, WG_OUT) {
                vf y[WG_OUT];
                wg_output(half[j], y);
                UNROLL_FOR(x, WG_OUT) v_store(to + (size_t)(j * WG_OUT + x) * product, y[x]);
            }
        }
}

/* The 4 x 4 pixels of a tile to where they belong, as far as they lie inside. */
static void wg_finish(const wg_pixels_job *job, int b, int ty, int tx, int panel, int rows, const float *pixels)
{
    const wg_pixels_plan *p = &job->plan;
    const pixels_job *d = job->direct;
    tile_place place = {.t = d->out, .rows = rows, .k0 = panel * TILE};
    place.count = nw_min(TILE, p->out_pitch - place.k0);
    for (int y = ty * WG_OUT; y < nw_min((ty + 1) * WG_OUT, p->out_h); y++)
        for (int x = tx * WG_OUT; x < nw_min((tx + 1) * WG_OUT, p->out_w); x++) {
            const float *tile = pixels + (size_t)(y % WG_OUT * WG_OUT + x % WG_OUT) * p->product;
            place.at = nw_tensor_at(d->out, b, y, x);
            place.item = (size_t)(b * p->out_h + y);
            place.first = x == 0;
            if (p->backward)
                finish_gradient(tile, TILE, &place, d->sink);
            else
                finish_value(tile, TILE, &place, d->bias, d->moments);
        }
}

static void wg_pixels_task(void *context, int index, int worker)
{
    const wg_pixels_job *job = context;
    const wg_pixels_plan *p = &job->plan;
    nw_exec *exec = job->direct->exec;
    int part = index % p->parts, ty = index / p->parts % p->tiles_y, b = index / p->parts / p->tiles_y;
    int panel0 = p->panels * part / p->parts, panel1 = p->panels * (part + 1) / p->parts;
    int block = job->direct->out->block, rows = nw_tensor_valid(job->direct->out, b);
    unsigned char *scratch = exec->worker_scratch + (size_t)worker * exec->worker_bytes;
    wg_reader reader = wg_open(job->direct->source, scratch);
    float *inputs = (float *)(scratch + p->reader_bytes);
    float *results = (float *)(scratch + p->reader_bytes + p->input_bytes);
    float *back = (float *)(scratch + p->reader_bytes + p->input_bytes + p->product_bytes);
    int channels = job->direct->source->a.t->pitch;

    for (int x0 = 0; x0 < p->tiles_x; x0 += p->tiles) {
        int tiles = nw_min(p->tiles, p->tiles_x - x0);
        int64_t start = exec->profile ? nw_now_ns() : 0;
        for (int t = 0; t < tiles; t++)
            for (int image = 0; image < block; image += WG_IMAGES) {
                float *to = inputs + (size_t)t * p->tile_step + (size_t)image * p->pitch;
                int images = nw_max(0, nw_min(WG_IMAGES, rows - image));
                wg_patch patch;
                wg_read(&reader, b, ty * WG_OUT - p->pad, (x0 + t) * WG_OUT - p->pad, WG_IN, image, images, &patch);
                for (int i = 0; i < images; i++)
                    wg_transform_input(&patch, i, channels, to + (size_t)i * p->pitch, p->point_step);
                for (int point = 0; images < WG_IMAGES && point < WG_POINTS; point++)
                    memset(to + (size_t)point * p->point_step + (size_t)images * p->pitch, 0,
                           (size_t)(WG_IMAGES - images) * p->pitch * sizeof(float));
            }
        if (exec->profile) exec->fused_ns[worker * 8] += nw_now_ns() - start;
        for (int point = 0; point < WG_POINTS; point++)
            for (int panel = panel0; panel < panel1; panel++) {
                const float *filter = job->filter + (size_t)((point * p->panels + panel) * p->c) * TILE;
                int cols = nw_min(TILE, p->out_pitch - panel * TILE);
                for (int t = 0; t < tiles; t++) {
                    tap_t tap = {inputs + (size_t)point * p->point_step + (size_t)t * p->tile_step, 0};
                    size_t to = (size_t)(((panel - panel0) * tiles + t) * WG_POINTS + point) * p->product;
                    multiply(&tap, 1, p->c, (int)p->pitch, filter, rows, cols, results + to);
                }
            }
        for (int panel = panel0; panel < panel1; panel++)
            for (int t = 0; t < tiles; t++) {
                const float *from = results + (size_t)(((panel - panel0) * tiles + t) * WG_POINTS) * p->product;
                wg_back(from, p->product, rows, nw_min(TILE, p->out_pitch - panel * TILE), back);
                wg_finish(job, b, ty, x0 + t, panel, rows, back);
            }
    }
}

static void winograd_pixels(const pixels_job *direct, nw_work work)
{
    nw_exec *exec = direct->exec;
    const nw_tensor *out = direct->out;
    wg_pixels_job job = {
        .plan = wg_plan_pixels(direct->conv, out->n, out->block, direct->plan.backward, nw_pool_threads(exec->pool)),
        .direct = direct,
        .filter = (float *)exec->shared_scratch};
    nw_exec_run(exec, NW_WORK_PACK, job.plan.panels, wg_pack_task, &job);
    nw_exec_run(exec, work, nw_tensor_blocks(out) * job.plan.tiles_y * job.plan.parts, wg_pixels_task, &job);
}

/* ---- backward to the weights ------------------------------------------------------------------------------------ */

typedef struct wg_weights_plan {
    int tiles_y, tiles_x, tiles, chunk; /* tiles of all blocks, and of a chunk */
    int c_panels, k_panels, groups;
    size_t c_pitch, k_pitch, c_step, k_step; /* [point][position][channel]: from position to position, point to point */
    size_t k_padded, sum;                    /* sums [point][c][k] */
    size_t x_bytes, dy_bytes, reader_bytes;
} wg_weights_plan;

typedef struct wg_weights_job {
    wg_weights_plan plan;
    const weights_job *direct;
    const nw_conv *conv;
    float *x, *dy, *sums;
    int first, count; /* tiles of this chunk */
} wg_weights_job;

static wg_weights_plan wg_plan_weights(const nw_conv *v, int n, int block, int threads)
{
    wg_weights_plan p = {.tiles_y = nw_div_up(v->oh, WG_OUT), .tiles_x = nw_div_up(v->ow, WG_OUT)};
    p.tiles = nw_div_up(n, block) * p.tiles_y * p.tiles_x;
    p.c_panels = nw_div_up(v->c, CROWS);
    p.k_panels = nw_div_up(v->k, TILE);
    p.groups = nw_max(1, nw_min(p.k_panels, nw_div_up(4 * threads, WG_POINTS)));
    p.c_pitch = (size_t)wg_pitch(v->c);
    p.k_pitch = (size_t)wg_pitch(v->k);
    p.chunk = nw_min(p.tiles, WG_POSITIONS / block);
    p.c_step = (size_t)(p.chunk * block) * p.c_pitch + WG_APART;
    p.k_step = (size_t)(p.chunk * block) * p.k_pitch + WG_APART;
    p.k_padded = (size_t)p.k_panels * TILE;
    p.sum = (size_t)(p.c_panels * CROWS) * p.k_padded;
    p.x_bytes = nw_align_up(WG_POINTS * p.c_step * sizeof(float));
    p.dy_bytes = nw_align_up(WG_POINTS * p.k_step * sizeof(float));
    p.reader_bytes = nw_align_up(wg_reader_floats(nw_channel_pitch(nw_max(v->c, v->k))) * sizeof(float));
    return p;
}

/* The first position of a tile: images of the blocks before it, in each of their tiles, and of its own. */
static size_t wg_position(const wg_weights_job *job, int tile)
{
    const nw_tensor *out = job->direct->out;
    int each = job->plan.tiles_y * job->plan.tiles_x, b = tile / each;
    if (b == nw_tensor_blocks(out)) return (size_t)out->n * (size_t)each;
    return (size_t)b * (size_t)(out->block * each) + (size_t)(tile % each * nw_tensor_valid(out, b));
}

/* WG_SHARE images of one tile, of x or of dy. */
static void wg_spread_task(void *context, int index, int worker)
{
    const wg_weights_job *job = context;
    const wg_weights_plan *p = &job->plan;
    const nw_tensor *out = job->direct->out;
    nw_exec *exec = job->direct->exec;
    int shares = out->block / WG_SHARE, share = index % shares, tile = job->first + index / shares / 2;
    bool is_x = index / shares % 2 == 0;
    int b = tile / (p->tiles_y * p->tiles_x), ty = tile / p->tiles_x % p->tiles_y, tx = tile % p->tiles_x;
    const nw_source *source = is_x ? job->direct->x : job->direct->dy;
    wg_reader reader = wg_open(source, exec->worker_scratch + (size_t)worker * exec->worker_bytes);
    int pad = is_x ? job->conv->pad : 0, channels = source->a.t->pitch;
    size_t pitch = is_x ? p->c_pitch : p->k_pitch, step = is_x ? p->c_step : p->k_step;
    float *to = (is_x ? job->x : job->dy) + (wg_position(job, tile) - wg_position(job, job->first)) * pitch;
    for (int image = share * WG_SHARE; image < nw_min((share + 1) * WG_SHARE, nw_tensor_valid(out, b));
         image += WG_IMAGES) {
        int images = nw_min(WG_IMAGES, nw_tensor_valid(out, b) - image);
        wg_patch patch;
        wg_read(&reader, b, ty * WG_OUT - pad, tx * WG_OUT - pad, is_x ? WG_IN : WG_OUT, image, images, &patch);
        for (int i = 0; i < images; i++)
            (is_x ? wg_transform_input : wg_transform_output)(&patch, i, channels, to + (size_t)(image + i) * pitch,
                                                              step);
    }
}

/* out[CROWS][TILE] (+)= sum over positions of x dy. */
static void wg_accumulate(const float *x, size_t x_pitch, const float *dy, size_t dy_pitch, size_t positions,
                          bool fresh, float *out, size_t out_pitch)
{
    vf acc[CROWS][VECS];
    UNROLL_FOR(j, CROWS)
        UNROLL_FOR(v, VECS) acc[j][v] = fresh ? (vf){0} : v_load(out + (size_t)j * out_pitch + v * VL);
    add_products(acc, x, x_pitch, dy, dy_pitch, positions);
    UNROLL_FOR(j, CROWS)
        UNROLL_FOR(v, VECS) v_store(out + (size_t)j * out_pitch + v * VL, acc[j][v]);
}

static void wg_products_task(void *context, int index, int worker)
{
    const wg_weights_job *job = context;
    const wg_weights_plan *p = &job->plan;
    int point = index / p->groups, group = index % p->groups;
    size_t positions = wg_position(job, job->first + job->count) - wg_position(job, job->first);
    const float *x = job->x + (size_t)point * p->c_step, *dy = job->dy + (size_t)point * p->k_step;
    float *sums = job->sums + (size_t)point * p->sum;
    (void)worker;
    for (int k = p->k_panels * group / p->groups; k < p->k_panels * (group + 1) / p->groups; k++)
        for (int c = 0; c < p->c_panels; c++)
            wg_accumulate(x + c * CROWS, p->c_pitch, dy + k * TILE, p->k_pitch, positions, job->first == 0,
                          sums + (size_t)(c * CROWS) * p->k_padded + (size_t)(k * TILE), p->k_padded);
}

/* G' p G of one input channel, written as OIHW. */
static void wg_gather_task(void *context, int c, int worker)
{
    const wg_weights_job *job = context;
    const wg_weights_plan *p = &job->plan;
    const nw_conv *v = job->conv;
    (void)worker;
    for (int k = 0; k < v->k; k += VL) {
        const float *from = job->sums + (size_t)c * p->k_padded + (size_t)k;
        vf half[3][WG_IN], taps[9];
        UNROLL_FOR(x, WG_IN) {
            vf column[WG_IN], g[3];
            UNROLL_FOR(i, WG_IN) column[i] = v_load(from + (size_t)(i * WG_IN + x) * p->sum);
            wg_gather(column, g);
            UNROLL_FOR(i, 3) half[i][x] = g[i];
        }
        UNROLL_FOR(i, 3) wg_gather(half[i], taps + 3 * i);
        for (int j = 0; j < nw_min(VL, v->k - k); j++) {
            float *to = job->direct->dw + ((size_t)(k + j) * (size_t)v->c + (size_t)c) * 9;
            for (int t = 0; t < 9; t++) to[t] = job->direct->accumulate ? to[t] + taps[t][j] : taps[t][j];
        }
    }
}

static void winograd_weights(const weights_job *direct, nw_work work)
{
    nw_exec *exec = direct->exec;
    const nw_tensor *out = direct->out;
    const nw_conv *v = direct->gathered.conv;
    wg_weights_job job = {.plan = wg_plan_weights(v, out->n, out->block, nw_pool_threads(exec->pool)),
                          .direct = direct,
                          .conv = v,
                          .x = (float *)exec->shared_scratch};
    const wg_weights_plan *p = &job.plan;
    job.dy = (float *)(exec->shared_scratch + p->x_bytes);
    job.sums = (float *)(exec->shared_scratch + p->x_bytes + p->dy_bytes);
    for (; job.first < p->tiles; job.first += job.count) {
        job.count = nw_min(p->chunk, p->tiles - job.first);
        nw_exec_run(exec, NW_WORK_MOVES, job.count * 2 * (out->block / WG_SHARE), wg_spread_task, &job);
        nw_exec_run(exec, work, WG_POINTS * p->groups, wg_products_task, &job);
    }
    nw_exec_run(exec, NW_WORK_PACK, v->c, wg_gather_task, &job);
}

/* ---- when ------------------------------------------------------------------------------------------------------- */

static bool winograd_may_suit(const nw_conv *v)
{
    return v->r == 3 && v->s == 3 && v->stride == 1 && v->pad <= 2 && v->c >= 16 && v->k >= 16;
}

static double winograd_products(const nw_conv *v, int n, nw_direction direction)
{
    int h = direction == NW_BACKWARD_DATA ? v->h : v->oh, w = direction == NW_BACKWARD_DATA ? v->w : v->ow;
    return (double)WG_POINTS * nw_div_up(h, WG_OUT) * nw_div_up(w, WG_OUT) * v->c * v->k * n;
}

/* The transforms cost something, small images fill their last tiles badly, and the filter's transform needs images to
 * share it. */
static bool winograd_suits(const nw_conv *v, int n, nw_direction direction)
{
    if (!winograd_may_suit(v)) return false;
    double direct = taps_inside(v->oh, v->h, 3, 1, v->pad) * taps_inside(v->ow, v->w, 3, 1, v->pad) * v->c * v->k * n;
    double fewer = winograd_products(v, n, direction);
    return direct >= 1.5 * fewer && fewer >= 32.0 * WG_POINTS * v->c * v->k;
}

static nw_need winograd_need(const nw_conv *v, int n, int block, nw_direction direction, int threads)
{
    if (!winograd_may_suit(v)) return (nw_need){0};
    if (direction == NW_BACKWARD_WEIGHTS) {
        wg_weights_plan p = wg_plan_weights(v, n, block, threads);
        return (nw_need){.worker = p.reader_bytes,
                         .shared = p.x_bytes + p.dy_bytes + nw_align_up(WG_POINTS * p.sum * sizeof(float))};
    }
    wg_pixels_plan p = wg_plan_pixels(v, n, block, direction == NW_BACKWARD_DATA, threads);
    return (nw_need){.worker = p.reader_bytes + p.input_bytes + p.product_bytes + p.back_bytes,
                     .shared = wg_filter_bytes(&p)};
}

#endif
