/*
 * Folder src/compute: tensors in the batch-blocked layout, the kernels of each instruction set, batch norm and loss. A
 * kernel knows shapes and numbers; layers, models and names of parameters are in src/nn. May include: base.
 *
 * kernels.h - what a kernel is given, and the table of kernels that each instruction set fills.
 *
 * Nothing here passes over a whole tensor that can be done while a convolution has the data at hand. Two ideas:
 *
 *   A *source* is a value that has not been written down: a tensor with a per-channel scale and shift and a ReLU still
 *   to be applied, perhaps plus a second one. Batch norm never stores its output: the consumer reads a source. In the
 *   backward pass the gradient that enters a convolution, dy = c1 g + c2 + c3 y, is a source as well.
 *
 *   A *sink* says what becomes of a gradient as it is produced: add the gradient of a second path, gate it with the
 *   ReLU that produced the forward value, and take the sums that batch norm's backward needs.
 *
 * Forward statistics are taken in the convolution's epilogue too (struct nw_moments). All sums are kept per (block,
 * row) item in `partial` arrays and combined in a fixed order, so results do not depend on the number of threads.
 *
 * Shapes are letters: N images, C input channels, K output channels, H x W input, R x S filter, OH x OW output.
 */
#ifndef NW_COMPUTE_KERNELS_H
#define NW_COMPUTE_KERNELS_H

#include "base/pool.h"
#include "compute/tensor.h"

/* ---- values ---------------------------------------------------------------------------------------------------- */

/* scale[c] * t + shift[c], then ReLU. scale NULL: as it is; `pitch` floats each. Only the second view of a source may
 * have a scale without a shift. */
typedef struct nw_view {
    const nw_tensor *t;
    const float *scale, *shift;
    bool relu;
} nw_view;

/* a, or a + b where b.t is not NULL (a - b with `minus`, to invert reversible stages), then ReLU. */
typedef struct nw_source {
    nw_view a, b;
    bool relu, minus;
} nw_source;

static inline nw_source nw_source_plain(const nw_tensor *t) { return (nw_source){.a = {.t = t}}; }
static inline nw_source nw_source_view(nw_view view) { return (nw_source){.a = view}; }
static inline bool nw_source_is_plain(const nw_source *s)
{
    return s->a.scale == NULL && !s->a.relu && s->b.t == NULL && !s->relu;
}

/* Per-channel moments of a tensor as it is written: item i (block * rows + row) gets shift, sum of (x - shift) and
 * sum of (x - shift)^2 at partial[i * 3 * pitch]; the shift is the item's first value, so nothing cancels. */
typedef struct nw_moments {
    float *partial;
} nw_moments;

enum { NW_SINK_NORMS = 2 };

/* For batch norm's backward: sums of g and of g (y - mean) per item, at sum_g and sum_gy [i * pitch]. */
typedef struct nw_norm_sums {
    const nw_tensor *y;
    const float *mean;
    float *sum_gy;
} nw_norm_sums;

typedef struct nw_sink {
    const nw_tensor *add;             /* may be the output tensor itself */
    nw_view gate;                     /* the gradient passes where scale * t + shift > 0; t == NULL: everywhere */
    float *sum_g;                     /* NULL: no sums */
    nw_norm_sums norm[NW_SINK_NORMS]; /* from the front, and only with sum_g; y == NULL: unused */
} nw_sink;

/* ---- geometry -------------------------------------------------------------------------------------------------- */

typedef struct nw_conv {
    int c, h, w; /* input */
    int k, r, s; /* filter: K x C x R x S */
    int stride, pad;
    int oh, ow;
} nw_conv;

enum { NW_MAX_POOL = 15 }; /* of a maximum: places in the window are kept as bytes */

typedef struct nw_pool2d {
    int c, h, w;
    int r, s, stride, pad; /* windows of r x s */
    int oh, ow;
} nw_pool2d;

/* Fill the geometry; NW_E_SHAPE with a sentence if no output pixel remains or a number is not positive. */
nw_status nw_conv_make(nw_conv *conv, int c, int h, int w, int k, int r, int s, int stride, int pad);
nw_status nw_pool2d_make(nw_pool2d *pool, int c, int h, int w, int size, int stride, int pad);
/* One window over the whole map. */
static inline nw_pool2d nw_pool2d_whole(int c, int h, int w)
{
    return (nw_pool2d){.c = c, .h = h, .w = w, .r = h, .s = w, .stride = 1, .oh = 1, .ow = 1};
}
static inline size_t nw_conv_weights(const nw_conv *v)
{
    return (size_t)v->k * (size_t)v->c * (size_t)v->r * (size_t)v->s;
}
static inline double nw_conv_flops(const nw_conv *v, int n) /* one direction; border taps counted as if inside */
{
    return 2.0 * n * v->oh * v->ow * (double)nw_conv_weights(v);
}

/* ---- execution ------------------------------------------------------------------------------------------------- */

/* What a step's time goes to. */
#define NW_WORK_MAP(X)                       \
    X(CONV_FORWARD, "conv forward")          \
    X(CONV_DATA, "conv backward data")       \
    X(CONV_WEIGHTS, "conv backward weights") \
    X(LINEAR, "linear")                      \
    X(NORM, "normalise on the fly")          \
    X(MOVES, "layout moves")                 \
    X(PACK, "weight packing")                \
    X(POINTWISE, "add, pool, activation")    \
    X(STATS, "statistics")                   \
    X(LOSS, "loss")                          \
    X(UPDATE, "update")                      \
    X(INPUT, "input")

typedef enum nw_work {
#define NW_WORK_ENUM(identifier, text) NW_WORK_##identifier,
    NW_WORK_MAP(NW_WORK_ENUM)
#undef NW_WORK_ENUM
        NW_WORK_KINDS
} nw_work;

const char *nw_work_text(nw_work work);

/* Where kernels run. Sizes of the scratch come from nw_need before the arena is taken. */
typedef struct nw_exec {
    nw_pool *pool;
    const struct nw_kernels *kernels;
    unsigned char *worker_scratch; /* worker_bytes for each thread of the pool */
    size_t worker_bytes;
    unsigned char *shared_scratch; /* packed weights, partial weight gradients */
    bool direct; /* convolutions sum what they are defined by, also where Winograd's products are fewer */
    bool profile;
    void (*between)(void *listener); /* called now and then in long work, by the thread that asked for it; NULL: nobody listens */
    void *listener;
    int64_t between_ns; /* when it was called last */
    int64_t work_ns[NW_WORK_KINDS]; /* wall time of the calling thread */
    int64_t *fused_ns;              /* [threads][8]: time inside convolutions on sources, moves and weights */
} nw_exec;

/* Scratch that an operation needs; networks take the maximum over their operations. */
typedef struct nw_need {
    size_t worker, shared;
} nw_need;

static inline nw_need nw_need_max(nw_need a, nw_need b)
{
    return (nw_need){a.worker > b.worker ? a.worker : b.worker, a.shared > b.shared ? a.shared : b.shared};
}

/* Runs tasks and books the time under `work`. */
void nw_exec_run(nw_exec *exec, nw_work work, int count, nw_pool_task task, void *context);

/* ---- the table ------------------------------------------------------------------------------------------------- */

typedef enum nw_direction { NW_FORWARD, NW_BACKWARD_DATA, NW_BACKWARD_WEIGHTS } nw_direction;

/* An update of a range of the flat vectors; the equations stand in isa/update.h. */
typedef enum nw_update_kind { NW_UPDATE_SGD, NW_UPDATE_DGC, NW_UPDATE_ADAM, NW_UPDATE_APAM_PAPER } nw_update_kind;

enum { NW_UPDATE_STATES = 3 };

/* What all ranges of a step share. (1 - x) comes along as its own number, taken in double. */
typedef struct nw_update_rule {
    nw_update_kind kind;
    bool first;     /* the state is empty, whatever it holds */
    float lr;       /* of adam: what multiplies m / (sqrt(v) / root + eps) */
    float clip;     /* elements of the scaled gradient are cut to +-clip; INFINITY: none */
    float momentum; /* sgd, dgc; 0: no state */
    float fresh;    /* 1 - dampening */
    bool nesterov;  /* sgd, dgc */
    float beta1, fresh1, beta2, fresh2, root, eps; /* adam and apam; root: sqrt(1 - beta2^t), or 1 */
    bool amsgrad;
    bool frozen;     /* adam: v stays, and what never had a gradient does not move */
    float low, high; /* apam-paper: the box; infinite: none */
} nw_update_rule;

typedef struct nw_update_range {
    float *w;
    const float *g;
    float *state[NW_UPDATE_STATES]; /* as many as the rule has; the others NULL */
    size_t count;
    float gradient_scale, weight_decay;
    float trust; /* sgd: of the gradient with its decay, 1 but for lars */
} nw_update_range;

typedef struct nw_kernels {
    const char *isa;
    nw_dtype dtype; /* of activations; the convolutions multiply in it and accumulate in f32 */

    /* Scratch of a convolution in one direction for tensors of n images in blocks of `block`. */
    nw_need (*conv_need)(const nw_conv *conv, int n, int block, nw_direction direction, int threads);
    /* Multiply-adds that it really does: taps inside of the image, or Winograd's. */
    double (*conv_products)(const nw_conv *conv, int n, nw_direction direction, bool direct);

    /* y = conv(x) + bias. w is OIHW; bias, moments may be NULL. y is f32 or bf16. `work` books it. */
    void (*conv_forward)(nw_exec *exec, const nw_conv *conv, const nw_source *x, const float *w, const float *bias,
                         nw_tensor *y, const nw_moments *moments, nw_work work);
    /* dx = conv transposed(dy), through the sink. */
    void (*conv_backward_data)(nw_exec *exec, const nw_conv *conv, const nw_source *dy, const float *w, nw_tensor *dx,
                               const nw_sink *sink, nw_work work);
    /* dw (+)= gradient of the filter, OIHW; dbias (may be NULL) (+)= sum of dy. */
    void (*conv_backward_weights)(nw_exec *exec, const nw_conv *conv, const nw_source *x, const nw_source *dy,
                                  float *dw, float *dbias, bool accumulate, nw_work work);

    /* out = source, written down. */
    void (*materialise)(nw_exec *exec, const nw_source *source, nw_tensor *out, const nw_moments *moments);
    /* out = source through the sink. */
    void (*gradient)(nw_exec *exec, const nw_source *source, nw_tensor *out, const nw_sink *sink);

    /* index: one byte per output element, the winner's place in its window (r, s <= NW_MAX_POOL). */
    void (*max_pool)(nw_exec *exec, const nw_pool2d *pool, const nw_source *x, nw_tensor *y, uint8_t *index);
    void (*max_pool_backward)(nw_exec *exec, const nw_pool2d *pool, const nw_tensor *dy, const uint8_t *index,
                              nw_tensor *dx, const nw_sink *sink);
    /* Divides by size^2, padding counted (PyTorch's default). Global pooling is size == h == w. */
    void (*avg_pool)(nw_exec *exec, const nw_pool2d *pool, const nw_source *x, nw_tensor *y);
    void (*avg_pool_backward)(nw_exec *exec, const nw_pool2d *pool, const nw_tensor *dy, nw_tensor *dx,
                              const nw_sink *sink);

    /* y = x keep / (1 - p); forward and backward are the same operation. The mask is drawn again each time from
     * (seed, step, layer), not stored. */
    void (*dropout)(nw_exec *exec, const nw_source *x, nw_tensor *y, float p, uint64_t seed, uint64_t step,
                    uint32_t layer);

    /* In the calling thread; the same bits for an element wherever the range begins and ends. */
    void (*update)(const nw_update_rule *rule, const nw_update_range *range);
    /* The sum of squares in double, in the calling thread and a fixed order. */
    double (*squares)(const float *x, size_t count);

    /* The micro-kernel fed from L1 with random operands on every thread; returns the operations. For measuring only. */
    double (*peak)(nw_exec *exec, int iterations);
} nw_kernels;

/* ---- batch norm ------------------------------------------------------------------------------------------------ */

/* What a batch norm over a tensor remembers; arrays are `pitch` floats, the sums those of a sink. */
typedef struct nw_norm {
    nw_moments moments;
    float *mean, *rstd, *scale, *shift; /* of the forward pass */
    float *sum_g, *sum_gy;
    float *c1, *c2, *c3; /* of the backward pass */
} nw_norm;

/* Finish what the kernels gathered; plain code, the same for every instruction set. */

/* From partial moments of y: mean, rstd (biased variance, eps 1e-5) and the forward source's scale and shift; running
 * statistics move by 0.1 (unbiased variance) unless NULL. gamma, beta, running: c floats. */
void nw_norm_forward(nw_exec *exec, const nw_tensor *y, const nw_norm *norm, const float *gamma, const float *beta,
                     float *running_mean, float *running_var);
/* Evaluation: scale and shift from running statistics. */
void nw_norm_eval(int c, int pitch, const float *gamma, const float *beta, const float *running_mean,
                  const float *running_var, float *scale, float *shift);
/* From the sink's sums: dgamma, dbeta (+)= and the gradient source's coefficients, dy = (c1 g + c2) + c3 y. */
void nw_norm_backward(nw_exec *exec, const nw_tensor *y, const nw_norm *norm, const float *gamma, float *dgamma,
                      float *dbeta, bool accumulate);
static inline int nw_items(const nw_tensor *t) { return nw_tensor_blocks(t) * t->h; }
static inline size_t nw_moments_floats(const nw_tensor *t) { return (size_t)nw_items(t) * 3 * (size_t)t->pitch; }
static inline size_t nw_sums_floats(const nw_tensor *t) { return (size_t)nw_items(t) * (size_t)t->pitch; }

/* Scratch of everything that is not a convolution, for tensors of up to `pitch` channels. */
static inline nw_need nw_pointwise_need(int pitch, int block)
{
    return (nw_need){.worker = 3 * nw_align_up((size_t)pitch * (size_t)block * sizeof(float))};
}

/* ---- loss ------------------------------------------------------------------------------------------------------- */

typedef struct nw_loss_result {
    double loss;    /* mean or sum over the batch */
    int top1, top5; /* images whose label is the best, or among the five best */
} nw_loss_result;

typedef struct nw_loss_rule {
    float smoothing; /* (1 - smoothing) CE + smoothing mean over classes of -log p */
    bool sum;        /* instead of the mean over images */
} nw_loss_rule;

static inline size_t nw_loss_scratch_bytes(int n) { return (size_t)n * (sizeof(double) + 1); }

/* Softmax cross-entropy of f32 logits (N x classes x 1 x 1); writes dlogits unless NULL. Labels lie in [0, classes).
 * per_image: nw_loss_scratch_bytes(N); afterwards it holds the N losses. */
void nw_cross_entropy(nw_exec *exec, const nw_tensor *logits, const int32_t *labels, const nw_loss_rule *rule,
                      nw_tensor *dlogits, double *per_image, nw_loss_result *result);

#endif
