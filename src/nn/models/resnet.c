/*
 * resnet.c - ResNets of basic blocks and of bottlenecks (He et al. 2015), as torchvision has them, PETRA's, and those
 * that He et al. made for CIFAR.
 *
 *   stem        small images: conv 3 x 3, w channels, batch norm, ReLU
 *               large ones:   conv 7 x 7, stride 2, batch norm, ReLU, max pool 3 x 3, stride 2, padding 1
 *                             (PETRA: max pool 2 x 2, stride 2)
 *   groups      four, with w, 2w, 4w, 8w channels; the last three halve the map
 *   basic       conv 3 x 3 (stride), BN, ReLU, conv 3 x 3, BN, + shortcut, ReLU                    depths 18, 34
 *   bottleneck  conv 1 x 1, BN, ReLU, conv 3 x 3 (stride), BN, ReLU, conv 1 x 1 to four times the
 *               channels, BN, + shortcut, ReLU                                                depths 50, 101, 152
 *   shortcut    x, or conv 1 x 1 (stride), BN where the shape changes
 *   head        average over the map, linear with bias
 *
 * PETRA's convolutions have biases, also in front of batch norm. Its published code has the bottleneck's stride on the
 * first convolution and no ReLU behind the second: compat_ref. Names are torchvision's. With w = 64 and 10 classes,
 * resnet18 has 11,173,962 parameters, resnet50 23,520,842. Initial values: PyTorch's; with the large stem He-out, as
 * torchvision's, except PETRA's.
 *
 * For CIFAR (resnet20, 32, 44, 56, 110, 1202): the small stem with 16 channels, three groups with 16, 32, 64 channels
 * and n = (depth - 2) / 6 basic blocks; where the shape changes the shortcut takes every other pixel and gives the new
 * channels zeros: no parameters. resnet20 has 269,722 parameters for 10 classes, resnet110 1,727,962. Convolutions
 * start He-out.
 */
#include "nn/model.h"

#include <stdio.h>

typedef struct shape {
    const int *blocks; /* of the four groups */
    bool bottleneck, bias;
    bool early_stride; /* and no middle ReLU */
    bool subsample;    /* instead of projections */
} shape;

static const char *const part[8] = {"conv1", "bn1", "conv2", "bn2", "conv3", "bn3", "downsample.0", "downsample.1"};

static nw_status add_block(nw_model *m, const shape *r, int group, int index, int width, int stride)
{
    char stage[32], name[8][64];
    int out = r->bottleneck ? 4 * width : width, last = r->bottleneck ? 2 : 1;
    snprintf(stage, sizeof stage, "layer%d.%d", group, index);
    for (int i = 0; i < 8; i++) snprintf(name[i], sizeof name[i], "%s.%s", stage, part[i]);
    nw_residual_options o = {.count = last + 1, .relu_out = true};
    for (int i = 0; i <= last; i++) {
        bool wide = !r->bottleneck || i == 1;
        o.units[i] = nw_model_conv(i == last ? out : width, wide ? 3 : 1, 1, name[2 * i], name[2 * i + 1]);
        o.units[i].bias = r->bias;
        o.units[i].relu = i < last;
        o.units[i].ends_residual = i == last;
    }
    o.units[r->bottleneck && !r->early_stride ? 1 : 0].stride = stride;
    if (r->early_stride) o.units[1].relu = false;
    if (stride != 1 || m->builder.c != out) {
        o.shortcut = r->subsample ? NW_SHORTCUT_SUBSAMPLE : NW_SHORTCUT_PROJECTION;
        o.subsample = stride;
        o.projection = nw_model_conv(out, 1, stride, name[6], name[7]);
        o.projection.bias = r->bias;
        o.projection.relu = false;
    }
    NW_ADD_STAGE(m, nw_stage_residual, stage, &o);
    return NW_OK;
}

static nw_status add_resnet(nw_model *m, const shape *r, const nw_pool_options *pool)
{
    bool large;
    NW_TRY(nw_model_wants_imagenet_stem(m, &large));
    int w = nw_model_width(m, 64, 64);
    nw_unit_options stem = nw_model_conv(w, large ? 7 : 3, large ? 2 : 1, "conv1", "bn1");
    stem.bias = r->bias;
    nw_head_options head = {.linear_name = "fc", .classes = m->options.classes, .bias = true, .output_scale = 1.0f};
    NW_ADD_STAGE(m, nw_stage_conv, "stem", &stem, large ? pool : NULL);
    for (int group = 0; group < 4; group++)
        for (int i = 0; i < r->blocks[group]; i++)
            NW_TRY(add_block(m, r, group + 1, i, w << group, group > 0 && i == 0 ? 2 : 1));
    NW_ADD_STAGE(m, nw_stage_head, "head", &head);
    if (large && !r->bias) m->default_init = "he-out";
    return NW_OK;
}

const int *nw_model_resnet_blocks(int depth, bool *bottleneck)
{
    static const int blocks[][4] = {{2, 2, 2, 2}, {3, 4, 6, 3}, {3, 4, 23, 3}, {3, 8, 36, 3}};
    *bottleneck = depth >= 50;
    return blocks[depth == 18 ? 0 : depth <= 50 ? 1 : depth == 101 ? 2 : 3];
}

nw_status nw_add_resnet(nw_model *m)
{
    shape r = {0};
    r.blocks = nw_model_resnet_blocks(m->family->variant, &r.bottleneck);
    return add_resnet(m, &r, &(nw_pool_options){.size = 3, .stride = 2, .pad = 1});
}

nw_status nw_add_petra_resnet(nw_model *m)
{
    shape r = {.bias = true};
    r.blocks = nw_model_resnet_blocks(m->family->variant, &r.bottleneck);
    r.early_stride = r.bottleneck && m->options.variant.compat_ref;
    return add_resnet(m, &r, &(nw_pool_options){.size = 2});
}

nw_status nw_add_cifar_resnet(nw_model *m)
{
    shape r = {.subsample = true};
    int blocks = (m->family->variant - 2) / 6;
    nw_unit_options stem = nw_model_conv(nw_model_width(m, 16, 16), 3, 1, "conv1", "bn1");
    nw_head_options head = {.linear_name = "linear", .classes = m->options.classes, .bias = true, .output_scale = 1.0f};
    NW_ADD_STAGE(m, nw_stage_conv, "stem", &stem, NULL);
    for (int group = 0; group < 3; group++)
        for (int i = 0; i < blocks; i++)
            NW_TRY(add_block(m, &r, group + 1, i, nw_model_width(m, 16 << group, 16), group > 0 && i == 0 ? 2 : 1));
    NW_ADD_STAGE(m, nw_stage_head, "head", &head);
    m->default_init = "he-out";
    return NW_OK;
}
