/*
 * wideresnet.c - wide residual networks of depth 28 (Zagoruyko and Komodakis 2016), five or ten times as wide.
 *
 *   stem    conv 3 x 3, 16 channels
 *   groups  three of four pre-activation blocks, with 16f, 32f, 64f channels; the last two halve the map
 *   block   BN, ReLU, conv 3 x 3 (stride), BN, ReLU, conv 3 x 3, + shortcut; where the width changes the shortcut is a
 *           conv 1 x 1 (stride) of the input behind its batch norm and ReLU, otherwise the input as it is
 *   head    BN, ReLU, average over the map, linear with bias
 *
 * No convolution biases. A stage ends with the batch norm that opens the next block (stage_preact.c). f = 5 has
 * 9,132,634 parameters for 10 classes, f = 10 37,113,784 for 1000. Convolutions start He-out, the linear layer's bias
 * at 0.
 */
#include "nn/model.h"

#include <stdio.h>

enum { GROUPS = 3, BLOCKS = 4 };

static nw_status add_block(nw_model *m, int group, int index, int k)
{
    char stage[32], name[4][64], next[64];
    static const char *const part[4] = {"conv1", "bn2", "conv2", "convShortcut"};
    int stride = group > 0 && index == 0 ? 2 : 1;
    snprintf(stage, sizeof stage, "block%d.layer.%d", group + 1, index);
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "%s.%s", stage, part[i]);
    if (index + 1 < BLOCKS)
        snprintf(next, sizeof next, "block%d.layer.%d.bn1", group + 1, index + 1);
    else if (group + 1 < GROUPS)
        snprintf(next, sizeof next, "block%d.layer.0.bn1", group + 2);
    else
        snprintf(next, sizeof next, "bn1");
    nw_preact_options o = {
        .units = {nw_model_conv(k, 3, stride, name[0], name[1]),
                  {.k = k, .size = 3, .stride = 1, .pad = 1, .conv_name = name[2]}},
        .has_projection = index == 0,
        .projection = {.k = k, .size = 1, .stride = stride, .conv_name = name[3]},
        .next_norm = next,
    };
    NW_ADD_STAGE(m, nw_stage_preact, stage, &o);
    return NW_OK;
}

nw_status nw_add_wideresnet(nw_model *m)
{
    int factor = m->family->variant;
    nw_unit_options stem = nw_model_conv(nw_model_width(m, 16, 16), 3, 1, "conv1", "block1.layer.0.bn1");
    nw_head_options head = {.linear_name = "fc", .classes = m->options.classes, .bias = true, .output_scale = 1.0f};
    NW_ADD_STAGE(m, nw_stage_conv, "stem", &stem, NULL);
    for (int group = 0; group < GROUPS; group++)
        for (int i = 0; i < BLOCKS; i++) NW_TRY(add_block(m, group, i, nw_model_width(m, (16 << group) * factor, 16)));
    NW_ADD_STAGE(m, nw_stage_head, "head", &head);
    m->default_init = "wrn";
    return NW_OK;
}
