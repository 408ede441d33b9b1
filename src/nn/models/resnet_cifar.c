/*
 * resnet_cifar.c - the ResNets that He et al. (2015) made for CIFAR: resnet20, 32, 44, 56, 110 and 1202.
 *
 *   stem    conv 3 x 3, 16 channels, batch norm, ReLU
 *   groups  three, with 16, 32, 64 channels and n = (depth - 2) / 6 basic blocks; the last two halve the map
 *   block   conv 3 x 3 (stride), BN, ReLU, conv 3 x 3, BN, + shortcut, ReLU; where the shape changes the shortcut takes
 *           every other pixel and gives the new channels zeros: no parameters
 *   head    average over the map, linear with bias
 *
 * No convolution biases. resnet20 has 269,722 parameters for 10 classes, resnet110 1,727,962. Convolutions start
 * He-out.
 */
#include "nn/model.h"

#include <stdio.h>

static nw_status add_block(nw_model *m, int group, int index, int k, int stride)
{
    char stage[32], name[4][64];
    static const char *const part[4] = {"conv1", "bn1", "conv2", "bn2"};
    snprintf(stage, sizeof stage, "layer%d.%d", group, index);
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "%s.%s", stage, part[i]);
    nw_unit_options first = {.k = k,
                             .size = 3,
                             .stride = stride,
                             .pad = 1,
                             .norm = true,
                             .relu = true,
                             .conv_name = name[0],
                             .norm_name = name[1]};
    nw_unit_options second = first;
    second.stride = 1;
    second.relu = false;
    second.ends_residual = true;
    second.conv_name = name[2];
    second.norm_name = name[3];
    nw_residual_options o = {.units = {first, second}, .count = 2, .subsample = stride, .relu_out = true};
    if (stride != 1 || m->builder.c != k) o.shortcut = NW_SHORTCUT_SUBSAMPLE;
    NW_ADD_STAGE(m, nw_stage_residual, stage, &o);
    return NW_OK;
}

nw_status nw_add_cifar_resnet(nw_model *m)
{
    int blocks = (m->family->variant - 2) / 6;
    nw_unit_options stem = {.k = nw_model_width(m, 16, 16),
                            .size = 3,
                            .stride = 1,
                            .pad = 1,
                            .norm = true,
                            .relu = true,
                            .conv_name = "conv1",
                            .norm_name = "bn1"};
    nw_head_options head = {.linear_name = "linear", .classes = m->options.classes, .bias = true, .output_scale = 1.0f};
    NW_ADD_STAGE(m, nw_stage_conv, "stem", &stem, NULL);
    for (int group = 0; group < 3; group++)
        for (int i = 0; i < blocks; i++)
            NW_TRY(add_block(m, group + 1, i, nw_model_width(m, 16 << group, 16), group > 0 && i == 0 ? 2 : 1));
    NW_ADD_STAGE(m, nw_stage_head, "head", &head);
    m->default_init = "he-out";
    return NW_OK;
}
