/*
 * revnet.c - reversible ResNets of PETRA (Rivaud et al. 2024): two streams, each as wide as the ResNet of that depth.
 *
 *   stem     conv 3 x 3, or conv 7 x 7 stride 2 and max pooling 2 x 2; 2w channels, batch norm, ReLU: w for each stream
 *   groups   four, with w, 2w, 4w, 8w channels a stream (bottleneck: 4w, 8w, 16w, 32w, and a quarter of it inside)
 *   block    basic: conv 3 x 3, BN, ReLU, conv 3 x 3, BN, ReLU; bottleneck: 1 x 1, 3 x 3, 1 x 1, each with BN and ReLU
 *   head     both streams, average over the map, linear
 *
 * The first block of a group that changes the shape is a transition. Basic: stride 2 in the first convolution, whose
 * rectified output is the new second stream. Bottleneck: stride in the 3 x 3, and a projection for each stream. All
 * other blocks are reversible. All convolutions have biases.
 *
 * revnet-fixed: a stem of `hidden_size` channels, `n_layers` reversible basic blocks, a head.
 *
 * Names are torchvision's; a bottleneck's second projection is "projection". revnet18 with w = 64: 11,185,802
 * parameters for 10 classes.
 */
#include "nn/model.h"

#include <stdio.h>

enum { NAME = 48 };

/* Module names of a block's unit: "layer2.0.conv1", "layer2.0.bn1". */
typedef struct unit_names {
    char conv[NAME], norm[NAME];
} unit_names;

static nw_unit_options unit(int k, int size, int stride, bool relu, const unit_names *names)
{
    nw_unit_options o = nw_model_conv(k, size, stride, names->conv, names->norm);
    o.bias = true;
    o.relu = relu;
    return o;
}

/* A block with k channels a stream: reversible where that keeps the shape. */
static nw_status add_block(nw_model *m, int group, int index, int k, int stride, bool bottleneck)
{
    char stage[24];
    unit_names names[NW_BRANCH_UNITS], down, second;
    snprintf(stage, sizeof stage, "layer%d.%d", group, index);
    for (int i = 0; i < NW_BRANCH_UNITS; i++) {
        snprintf(names[i].conv, NAME, "%s.conv%d", stage, i + 1);
        snprintf(names[i].norm, NAME, "%s.bn%d", stage, i + 1);
    }
    snprintf(down.conv, NAME, "%s.downsample.0", stage);
    snprintf(down.norm, NAME, "%s.downsample.1", stage);
    snprintf(second.conv, NAME, "%s.projection.0", stage);
    snprintf(second.norm, NAME, "%s.projection.1", stage);

    nw_transition_options o = {.projection = unit(k, 1, stride, false, &down),
                               .has_second = bottleneck,
                               .second = unit(k, 1, stride, false, &second)};
    if (bottleneck)
        o.branch =
            (nw_branch_options){.count = 3,
                                .units = {unit(k / 4, 1, 1, true, &names[0]), unit(k / 4, 3, stride, true, &names[1]),
                                          unit(k, 1, 1, true, &names[2])}};
    else
        o.branch = (nw_branch_options){.count = 2,
                                       .units = {unit(k, 3, stride, true, &names[0]), unit(k, 3, 1, true, &names[1])}};
    if (stride == 1 && m->builder.c == k)
        NW_ADD_STAGE(m, nw_stage_reversible, stage, &o.branch);
    else
        NW_ADD_STAGE(m, nw_stage_transition, stage, &o);
    return NW_OK;
}

/* A stem of w channels a stream. Also checks what no reversible network allows. */
static nw_status add_stem(nw_model *m, int w, bool large)
{
    NW_FAIL_IF(m->options.variant.zero_init_residual, NW_E_ARGUMENT,
               "'%s' cannot start with the last batch norm of its blocks at zero (last-bn-zero-init): the ReLU follows "
               "it directly, so its input and its derivative would be 0 for ever and no block would learn; leave the "
               "option out",
               m->options.name);
    const unit_names names = {"conv1", "bn1"};
    nw_unit_options stem = unit(2 * w, large ? 7 : 3, large ? 2 : 1, true, &names);
    NW_ADD_STAGE(m, nw_stage_stream_stem, "stem", &stem, large ? 2 : 0);
    return NW_OK;
}

nw_status nw_add_revnet(nw_model *m)
{
    bool large, bottleneck;
    const int *blocks = nw_model_resnet_blocks(m->family->variant, &bottleneck);
    NW_TRY(nw_model_wants_imagenet_stem(m, &large));
    int w = nw_model_width(m, 64, 64);
    NW_TRY(add_stem(m, w, large));
    for (int group = 0; group < 4; group++)
        for (int i = 0; i < blocks[group]; i++)
            NW_TRY(add_block(m, group + 1, i, (bottleneck ? 4 : 1) * (w << group), group > 0 && i == 0 ? 2 : 1,
                             bottleneck));
    NW_ADD_STAGE(m, nw_stage_stream_head, "head", "fc", m->options.classes);
    return NW_OK;
}

nw_status nw_add_revnet_fixed(nw_model *m)
{
    const nw_model_variant *v = &m->options.variant;
    bool large;
    NW_TRY(nw_model_wants_imagenet_stem(m, &large));
    NW_FAIL_IF(v->n_layers < 0 || v->hidden_size < 0 || v->hidden_size % 2 || v->hidden_size > 1 << 14, NW_E_ARGUMENT,
               "n_layers %d and hidden_size %d do not fit revnet-fixed: the layers must be at least 1, the hidden size "
               "an even number of channels of at most 16384, half of them in each stream",
               v->n_layers, v->hidden_size);
    int layers = v->n_layers ? v->n_layers : 20, hidden = v->hidden_size ? v->hidden_size : 256;
    int w = v->hidden_size ? hidden / 2 : nw_model_width(m, hidden / 2, hidden / 2);
    NW_TRY(add_stem(m, w, large));
    for (int i = 0; i < layers; i++) NW_TRY(add_block(m, 1, i, w, 1, false));
    NW_ADD_STAGE(m, nw_stage_stream_head, "head", "fc", m->options.classes);
    return NW_OK;
}
