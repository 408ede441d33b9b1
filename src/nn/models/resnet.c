/*
 * resnet.c - ResNets of basic blocks (He et al. 2015) with the stem for small images.
 *
 *   stem    conv 3 x 3, 3 -> w, batch norm, ReLU
 *   groups  four, with w, 2w, 4w, 8w channels; the last three halve the map
 *   block   conv 3 x 3 (stride), BN, ReLU, conv 3 x 3, BN, + shortcut, ReLU; the shortcut is x, or conv 1 x 1
 *           (stride), BN where the shape changes
 *   head    average over the map, linear with bias
 *
 * Names are torchvision's. resnet18 with w = 64: 11,173,962 parameters for 10 classes.
 */
#include "nn/model.h"

#include <stdio.h>

static nw_status add_block(nw_model *m, int group, int index, int k, int stride)
{
    char stage[32], name[6][64];
    static const char *const part[6] = {"conv1", "bn1", "conv2", "bn2", "downsample.0", "downsample.1"};
    snprintf(stage, sizeof stage, "layer%d.%d", group, index);
    for (int i = 0; i < 6; i++) snprintf(name[i], sizeof name[i], "%s.%s", stage, part[i]);
    nw_residual_options o = {
        .units = {{.k = k,
                   .size = 3,
                   .stride = stride,
                   .pad = 1,
                   .norm = true,
                   .relu = true,
                   .conv_name = name[0],
                   .norm_name = name[1]},
                  {.k = k, .size = 3, .stride = 1, .pad = 1, .norm = true, .conv_name = name[2], .norm_name = name[3]}},
        .has_projection = stride != 1 || m->builder.c != k,
        .projection = {.k = k, .size = 1, .stride = stride, .norm = true, .conv_name = name[4], .norm_name = name[5]},
        .relu_out = true,
    };
    NW_ADD_STAGE(m, nw_stage_residual, stage, &o);
    return NW_OK;
}

static nw_status add_basic_resnet(nw_model *m, const int blocks[4])
{
    int w = m->options.base_width ? m->options.base_width : 64;
    nw_unit_options stem = {
        .k = w, .size = 3, .stride = 1, .pad = 1, .norm = true, .relu = true, .conv_name = "conv1", .norm_name = "bn1"};
    nw_head_options head = {.linear_name = "fc", .classes = m->options.classes, .bias = true, .output_scale = 1.0f};
    NW_ADD_STAGE(m, nw_stage_conv, "stem", &stem, 0);
    for (int group = 0; group < 4; group++)
        for (int i = 0; i < blocks[group]; i++)
            NW_TRY(add_block(m, group + 1, i, w << group, group > 0 && i == 0 ? 2 : 1));
    NW_ADD_STAGE(m, nw_stage_head, "head", &head);
    return NW_OK;
}

nw_status nw_add_resnet18(nw_model *m) { return add_basic_resnet(m, (const int[4]){2, 2, 2, 2}); }
