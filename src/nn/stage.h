/*
 * stage.h - a network is an array of stages; a stage knows its forward and its backward pass by heart.
 *
 * Between two stages travels an nw_value: how the next stage reads the activation (a source: perhaps not normalised and
 * rectified yet), and what has to happen to its gradient (a sink: gate, and sums for batch norm). The backward pass of
 * the next stage writes its input's gradient through that sink, so a stage's own backward starts with a gradient that
 * is gated and whose sums are taken: no pass over a tensor is spent on it.
 *
 * A stage owns what it must keep from forward to backward. Everything else lives in regions shared by all stages
 * (nw_pass): gradients come and go there. Memory is bound twice, over a measuring arena and over the real one.
 *
 * Reversible networks have two streams between stages, x (source) and x~ (second), f32 in every instruction set. A
 * reversible stage has `inverse` too; stages that cannot be inverted leave it NULL.
 *
 * The seam for drivers that move stages apart (pipelines, reversible training): backward uses what the stage itself
 * holds from its last forward or inverse, and the nw_value it is given, which need not be the object that forward
 * saw, only hold the same numbers (a copy from a queue or a message, as a plain source). A stage keeps no pointer into
 * its neighbours' tensors after a call; it may hand on what it was given, in the nw_value it returns. A driver that
 * gets a gradient from elsewhere passes it through the sinks of the stage's output (nw_kernels.gradient) before it
 * calls backward.
 */
#ifndef NW_NN_STAGE_H
#define NW_NN_STAGE_H

#include "compute/kernels.h"
#include "param/params.h"

enum { NW_REGIONS = 4 }; /* at most: nw_builder.regions of them have memory */
enum { NW_STAGE_UNITS = 8, NW_STAGE_TENSORS = 8 };

/* Called after each stage of a pass, for those who have something to do in between. */
typedef struct nw_stage_hook {
    void (*call)(void *context, int stage, bool backward); /* NULL: nobody */
    void *context;
} nw_stage_hook;

/* The state of a pass through a network: where it runs, on which parameters, and the shared regions for gradients. */
typedef struct nw_pass {
    nw_exec exec;
    nw_params *params;
    bool training;       /* batch statistics, and what backward needs is kept */
    bool accumulate;     /* gradients are added to what is there */
    bool freeze_running; /* forward leaves batch norm's running statistics alone: it computes something again */
    bool invert_running; /* inverse moves them; otherwise it leaves them alone */
    uint64_t seed, step; /* for dropout */
    nw_stage_hook hook;
    unsigned char *region[NW_REGIONS];
    bool busy[NW_REGIONS];
} nw_pass;

typedef struct nw_value {
    nw_source source; /* one view: source.b is unused */
    nw_sink sink;
    /* A second stream: of a reversible network; or, between pre-activation blocks, the raw sum that the identity
     * shortcut reads, beside its normalised and rectified view in `source`. second.a.t is NULL elsewhere. */
    nw_source second;
    nw_sink second_sink;
} nw_value;

/* Gradients of a value's streams, each through its sink, in regions; without data where there is none. */
typedef struct nw_gradient {
    nw_tensor main, second;
} nw_gradient;

static inline const nw_tensor *nw_value_tensor(const nw_value *value) { return value->source.a.t; }

/* A gradient-sized tensor of the given shape in a free region; give it back when its last reader is done. */
nw_tensor nw_region_take(nw_pass *pass, const nw_tensor *shape);
void nw_region_give(nw_pass *pass, const nw_tensor *tensor);

typedef struct nw_stage nw_stage;
typedef struct nw_unit nw_unit;

typedef struct nw_stage_ops {
    const char *kind;
    /* Place what the stage has beside its units, which are bound already, in the arena (called twice, see above). NULL:
     * nothing. */
    void (*bind)(nw_stage *stage, nw_arena *arena);
    void (*forward)(nw_stage *stage, nw_pass *pass, const nw_value *in, nw_value *out);
    /* `gradient`, of the stage's output and through its sinks, lies in regions, which the stage gives back. Returns the
     * input's gradient, through in's sinks, in regions; without data if `want_input` is false. */
    nw_gradient (*backward)(nw_stage *stage, nw_pass *pass, const nw_value *in, nw_gradient gradient, bool want_input);
    /* Recover the input from the output; NULL if the stage is not reversible. Writes in's source and second and leaves
     * its sinks as they are. One evaluation of the residual function, with batch statistics, serves this and the
     * backward pass that may follow: what forward would have kept is then in place. The tensors of `in` belong to `out`
     * or to the stage; the stage's may be the very tensor that its last forward gave out, which then holds other
     * numbers. */
    void (*inverse)(nw_stage *stage, nw_pass *pass, const nw_value *out, nw_value *in);
} nw_stage_ops;

struct nw_stage {
    const nw_stage_ops *ops;
    char name[NW_SEGMENT_NAME];
    int n, block; /* images of a full batch, and of a block */
    int out_c, out_h, out_w;
    bool two_streams;     /* the output has two streams of out_c channels each */
    size_t kept_bytes;    /* activations held from forward to backward */
    double macs;          /* multiply-adds of one image, forward */
    const char *shortcut; /* for drawings: "identity", "1 x 1 convolution", ...; NULL: no path around */
    nw_unit *units[NW_STAGE_UNITS];
    nw_tensor *tensors[NW_STAGE_TENSORS]; /* beside the units' */
    int unit_count, tensor_count;
};

/* What stages are made with: the input they will get, and what they tell the network. */
typedef struct nw_builder {
    nw_params *params;
    const nw_kernels *kernels;
    int threads;
    int n, block;        /* images of a full batch */
    int c, h, w;         /* of the next unit's input; each moves them on */
    bool two_streams;    /* the next stage's input has two streams of c channels each */
    int stage;           /* index of the stage being made ... */
    nw_stage *making;    /* ... and it */
    nw_need need;        /* scratch: the maximum over all operations */
    size_t region_bytes; /* the largest gradient */
    int regions;         /* gradients alive at a time, at most */
    int norm_pixels;     /* of the smallest map that a batch norm sees; 0: there is none ... */
    int norm;            /* ... and the segment of that one's scale */
} nw_builder;

/* ---- units: a convolution or linear layer with what belongs to it ------------------------------------------------ */

/* Convolution, optional bias, optional batch norm, optional ReLU. Keeps the raw output y; normalising and rectifying is
 * left to whoever reads its view. */
struct nw_unit {
    nw_conv conv;
    int weight, bias, gamma, beta; /* segments, -1 where absent */
    int first;                     /* output channel of the segments at which this unit starts; see streams */
    int running_mean, running_var;
    bool relu, linear;
    nw_dtype dtype; /* of y; set it between making and binding to change it */
    nw_tensor y;
    nw_norm norm;
};

typedef struct nw_unit_options {
    int k, size, stride, pad;
    bool bias, norm, relu;
    bool no_running;                   /* batch norm keeps no running statistics: evaluation uses the batch's as well */
    bool ends_residual;                /* the norm is the last of a residual branch, whose gamma may start at 0 */
    const char *conv_name, *norm_name; /* PyTorch's module names: "layer1.0.conv1" */
} nw_unit_options;

/* Makes a unit of the current stage for the builder's current input, registers its parameters, and moves the builder to
 * its output. */
nw_status nw_unit_make(nw_unit *unit, nw_builder *builder, const nw_unit_options *options);
/* Two units that share the segments of one with options->k outputs: the first half and the second half of its channels,
 * so that nothing has to be copied apart. dtype as given. */
nw_status nw_unit_make_streams(nw_unit units[2], nw_builder *builder, const nw_unit_options *options, nw_dtype dtype);
/* A linear layer over everything that is left of the image (flattened C x H x W, as PyTorch flattens). f32 output. */
nw_status nw_unit_make_linear(nw_unit *unit, nw_builder *builder, const char *name, int k, bool bias);
void nw_unit_forward(nw_unit *unit, nw_pass *pass, const nw_source *x);
nw_view nw_unit_view(const nw_unit *unit);
/* The sink for gradients of the unit's view; `gated` false leaves the ReLU's gate to the caller. */
nw_sink nw_unit_sink(const nw_unit *unit, bool gated);
static inline bool nw_unit_has_norm(const nw_unit *unit) { return unit->gamma >= 0; }
/* A batch norm of its own: a unit without convolution for the builder's current input. Whoever writes y takes the
 * moments (nw_unit_moments) and then calls nw_unit_normalise; nw_unit_before_norm turns the view's gradient into y's.
 */
nw_status nw_unit_make_norm(nw_unit *unit, nw_builder *builder, const char *name, bool relu);
/* Where the moments of y belong in this pass; NULL if running statistics will do. */
const nw_moments *nw_unit_moments(const nw_unit *unit, const nw_pass *pass);
/* y is written: scale and shift of the view. */
void nw_unit_normalise(nw_unit *unit, nw_pass *pass);
/* From g, the gradient of the view through the unit's sink: gamma's and beta's gradients, and y's as a source. */
nw_source nw_unit_before_norm(nw_unit *unit, nw_pass *pass, const nw_tensor *g);
/* From g, the gradient of the view through the unit's sink: parameter gradients, and dx through `sink` unless dx is
 * NULL. */
void nw_unit_backward(nw_unit *unit, nw_pass *pass, const nw_source *x, const nw_tensor *g, nw_tensor *dx,
                      const nw_sink *sink);

/* Units one after the other: all forward; and backward from g, the gradient of the last one's view through its sink, to
 * that of the first one's. Regions in between are given back, that of g if `give`. `inner`, unless NULL, is a gradient
 * of the first unit's view from elsewhere, in whose region the sum of both is returned. */
void nw_units_forward(nw_unit *units, int count, nw_pass *pass, const nw_source *x);
nw_tensor nw_units_backward(nw_unit *units, int count, nw_pass *pass, nw_tensor g, bool give, nw_tensor *inner);

/* For the functions that make stages: zeroed memory of a stage that begins with nw_stage; and, when it is made, its
 * output shape from the builder. The caller of nw_stage_* owns *stage, also after a failure. */
nw_status nw_stage_begin(nw_stage **stage, size_t bytes, const nw_stage_ops *ops, const char *name,
                         nw_builder *builder);
void nw_stage_end(nw_stage *stage, const nw_builder *builder);
/* For ops->bind: a tensor for the batch. */
void nw_stage_tensor(nw_stage *stage, nw_tensor *tensor, nw_arena *arena, int c, int h, int w, nw_dtype dtype);
/* Units and tensors of a stage: placed in the arena; of n images, at most those of a full batch. */
void nw_stage_bind(nw_stage *stage, nw_arena *arena);
void nw_stage_set_batch(nw_stage *stage, int n);

/* Tell the builder of a gradient tensor or a scratch need; and of a stream of a reversible network, whose gradients are
 * f32 in every instruction set. */
void nw_builder_gradient(nw_builder *builder, int c, int h, int w);
void nw_builder_stream(nw_builder *builder, int c, int h, int w);
/* The next unit gets what a convolution gives; or what the builder gave earlier. */
void nw_builder_advance(nw_builder *builder, const nw_conv *conv);
void nw_builder_return(nw_builder *builder, const nw_builder *earlier);
/* An error unless `side`, where the builder is, gives the shape that the branch gives, which ends in `last`. */
nw_status nw_builder_meets(const nw_builder *builder, const nw_conv *last, const char *side);
/* Max pooling of the builder's input, which moves the builder to its output; the stride 0 is the size. */
nw_status nw_builder_max_pool(nw_builder *builder, nw_pool2d *pool, int size, int stride, int pad);

/* ---- stages ------------------------------------------------------------------------------------------------------ */

typedef struct nw_pool_options {
    int size, stride, pad; /* stride 0: the size */
} nw_pool_options;

/* One unit, then max pooling unless `pool` is NULL. */
nw_status nw_stage_conv(nw_stage **stage, nw_builder *builder, const char *name, const nw_unit_options *unit,
                        const nw_pool_options *pool);

typedef enum nw_shortcut {
    NW_SHORTCUT_IDENTITY,
    NW_SHORTCUT_PROJECTION, /* a unit of its own */
    NW_SHORTCUT_SUBSAMPLE,  /* He et al.'s option A: every stride-th pixel, new channels are zero */
} nw_shortcut;

enum { NW_RESIDUAL_UNITS = 3 };

typedef struct nw_residual_options {
    nw_unit_options units[NW_RESIDUAL_UNITS];
    int count; /* of units: 2 or 3 */
    nw_shortcut shortcut;
    nw_unit_options projection;
    int subsample; /* the stride of NW_SHORTCUT_SUBSAMPLE */
    bool relu_out; /* ReLU after the sum (ResNet); otherwise the sum is the output (ResNet9) */
} nw_residual_options;

/* z = relu?(branch(x) + shortcut(x)), the branch being 2 or 3 units. Shortcuts that change the shape need relu_out. */
nw_status nw_stage_residual(nw_stage **stage, nw_builder *builder, const char *name,
                            const nw_residual_options *options);

typedef struct nw_preact_options {
    nw_unit_options units[2]; /* the second has no norm and no ReLU */
    bool has_projection;      /* of the normalised input; otherwise the raw input is added */
    nw_unit_options projection;
    const char *next_norm; /* module name of the batch norm that follows the sum, with a ReLU */
} nw_preact_options;

/* A pre-activation block from the first convolution on to the next block's batch norm; see stage_preact.c. */
nw_status nw_stage_preact(nw_stage **stage, nw_builder *builder, const char *name, const nw_preact_options *options);

typedef struct nw_linear_options {
    const char *linear_name;
    int k;
    bool bias, relu;
    float dropout; /* of the input, before the layer */
    bool logits;   /* the network's last layer: f32 output */
} nw_linear_options;

/* Flatten, dropout, linear, ReLU. */
nw_status nw_stage_linear(nw_stage **stage, nw_builder *builder, const char *name, const nw_linear_options *options);

/* PyTorch's adaptive average pooling to side x side, from one pixel (which is repeated) or from a multiple of it. */
nw_status nw_stage_adaptive_pool(nw_stage **stage, nw_builder *builder, const char *name, int side);

typedef struct nw_head_options {
    bool max_pool;           /* over the whole map; otherwise the average */
    const char *linear_name; /* NULL: the pooled channels are the logits */
    int classes;
    bool bias;
    float output_scale; /* logits are multiplied by it */
} nw_head_options;

/* Pool the map to one pixel, linear layer: f32 logits. */
nw_status nw_stage_head(nw_stage **stage, nw_builder *builder, const char *name, const nw_head_options *options);

/* ---- stages of reversible networks: see stage_reversible.c, stage_streams.c -------------------------------------- */

/* A unit whose channels are the two streams, the first half x and the second half x~; then max pooling of pool_size
 * unless that is 0. */
nw_status nw_stage_stream_stem(nw_stage **stage, nw_builder *builder, const char *name, const nw_unit_options *unit,
                               int pool_size);

enum { NW_BRANCH_UNITS = 3 };

/* F = the units one after the other, the last one with its ReLU. */
typedef struct nw_branch_options {
    nw_unit_options units[NW_BRANCH_UNITS];
    int count;
} nw_branch_options;

/* (y, y~) = (x~ + F(x), x): keeps the shape, and can be inverted. */
nw_status nw_stage_reversible(nw_stage **stage, nw_builder *builder, const char *name, const nw_branch_options *branch);

typedef struct nw_transition_options {
    nw_branch_options branch;
    nw_unit_options projection; /* P, of x~ */
    bool has_second;
    nw_unit_options second; /* Q, of x */
} nw_transition_options;

/* (y, y~) = (F(x) + P(x~), Q(x)), or with u, the output of F's first unit, instead of Q(x). Not reversible. */
nw_status nw_stage_transition(nw_stage **stage, nw_builder *builder, const char *name,
                              const nw_transition_options *options);

/* Both streams side by side, averaged over the map, linear layer with bias: f32 logits. */
nw_status nw_stage_stream_head(nw_stage **stage, nw_builder *builder, const char *name, const char *linear_name,
                               int classes);

#endif
