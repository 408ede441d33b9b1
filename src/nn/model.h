/*
 * Folder src/nn: networks: units, stages, and one file per family of models in models/. A stage computes forward and
 * backward of one replica; optimizers and other ranks are not its business. May include: base, compute, param.
 *
 * model.h - a model: its stages in order, the values between them, its parameters; and the models known by name.
 *
 *   nw_model_make     stages, segments, scratch needs; no tensor memory yet
 *   nw_model_bind     twice: over a measuring arena, then over the real one
 *   nw_model_forward  input tensor -> f32 logits;  nw_model_backward  logits' gradient -> parameter gradients
 */
#ifndef NW_NN_MODEL_H
#define NW_NN_MODEL_H

#include "nn/stage.h"

enum { NW_MAX_STAGES = 640 }; /* resnet1202 has 602 */

struct nw_model;

typedef struct nw_model_options {
    const char *name;            /* or an alias; case and '-' or '_' do not matter */
    int channels, height, width; /* of an image; 0: what the model was published for */
    int classes;
    int base_width; /* channels of the first stage; the others keep their ratio to it. 0: the model's own */
    nw_model_variant variant;
} nw_model_options;

/* One model that can be named. `add_stages` may serve several and tell them apart by model->family->variant. */
typedef struct nw_model_family {
    const char *name, *summary;
    nw_status (*add_stages)(struct nw_model *model);
    int variant;      /* the depth of a ResNet, ... */
    const int *input; /* channels, height, width it was published for; NULL: 3 x 32 x 32 */
} nw_model_family;

typedef struct nw_model {
    nw_stage *stages[NW_MAX_STAGES];
    int count;
    nw_value values[NW_MAX_STAGES + 1]; /* values[i] enters stage i */
    nw_params params;
    nw_pass pass;
    nw_builder builder;       /* what building found: needs and sizes */
    nw_model_options options; /* complete: the family's own name, no zeros left in the shape */
    const nw_model_family *family;
    const char *default_init; /* the scheme it was published with; families set it, NULL: "pytorch" */
} nw_model;

int nw_model_families(void);
const nw_model_family *nw_model_family_at(int index);
/* By name or alias ("AllCNN", "Resent9", "vgg"). NW_E_UNKNOWN names the nearest. */
nw_status nw_model_find(const char *name, const nw_model_family **family);

/* NW_E_UNKNOWN names the nearest model; NW_E_SHAPE if the images do not fit it. On failure everything is freed. */
nw_status nw_model_make(nw_model *model, const nw_model_options *options, const nw_kernels *kernels, int batch_size,
                        int threads);
void nw_model_free(nw_model *model);
void nw_model_bind(nw_model *model, nw_arena *arena);
/* The next passes have n images. */
void nw_model_set_batch(nw_model *model, int n);

/* Logits of a bound input tensor (kept until backward). */
const nw_tensor *nw_model_forward(nw_model *model, const nw_tensor *input);
/* dlogits lies in a region of model->pass (nw_region_take with the logits' shape) and is given back. */
void nw_model_backward(nw_model *model, nw_tensor dlogits);

/* first[s]: after the backward pass of stage s, all gradients from this element of the vector on are final, since they
 * belong to stages >= s. */
void nw_model_final_from(const nw_model *model, size_t *first);

/* For families: the stage that `make_stage` stored is appended, or freed if the status is a failure. */
nw_status nw_model_add(nw_model *model, nw_stage *stage, nw_status status);
#define NW_ADD_STAGE(model, function, ...)                                         \
    do {                                                                           \
        nw_stage *nw_stage_ = NULL;                                                \
        nw_status nw_made_ = function(&nw_stage_, &(model)->builder, __VA_ARGS__); \
        NW_TRY(nw_model_add(model, nw_stage_, nw_made_));                          \
    } while (0)

/* For families: `own` channels of a model whose first stage has `first`, scaled to options.base_width and rounded to a
 * multiple of 8; `own` where no width is asked for. */
int nw_model_width(const nw_model *model, int own, int first);
/* For families: the probability of dropout that is asked for, `own` if none is. */
float nw_model_dropout(const nw_model *model, float own);
/* For families: a convolution whose padding keeps the map (but for the stride), batch norm unless norm_name is NULL,
 * ReLU. The caller changes what is different. */
nw_unit_options nw_model_conv(int k, int size, int stride, const char *conv_name, const char *norm_name);
/* For families: how many blocks the four groups of a ResNet of this depth have, and whether they are bottlenecks. */
const int *nw_model_resnet_blocks(int depth, bool *bottleneck);
/* For families with stems: true for the one of large images. NW_E_ARGUMENT for an unknown stem. */
nw_status nw_model_wants_imagenet_stem(const nw_model *model, bool *large);

/* Families, one file each in models/. */
nw_status nw_add_alexnet(nw_model *model);
nw_status nw_add_alexnet1(nw_model *model);
nw_status nw_add_allcnn(nw_model *model);
nw_status nw_add_cifar_resnet(nw_model *model);
nw_status nw_add_lenet5(nw_model *model);
nw_status nw_add_logit(nw_model *model);
nw_status nw_add_mlp(nw_model *model);
nw_status nw_add_petra_resnet(nw_model *model);
nw_status nw_add_petra_vgg(nw_model *model);
nw_status nw_add_resnet(nw_model *model);
nw_status nw_add_resnet9(nw_model *model);
nw_status nw_add_vgg16(nw_model *model);
nw_status nw_add_vgg16_bn(nw_model *model);
nw_status nw_add_wideresnet(nw_model *model);
nw_status nw_add_revnet(nw_model *model);
nw_status nw_add_revnet_fixed(nw_model *model);

#endif
