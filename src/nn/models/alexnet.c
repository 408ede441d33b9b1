/*
 * alexnet.c - AlexNet cut to small images, in the two forms of the layer-wise compression study (Dutta et al. 2020).
 *
 * Both: conv 3 x 3, stride 2, 64 - max pool 2 - conv 3 x 3, 192 - max pool 2 - conv 384 - conv 256 - conv 256 - max
 * pool 2, with a ReLU behind each convolution.
 *   alexnet    batch norm and no biases; maximum over the map, linear without bias, times 0.125: 2,255,296 parameters
 *   alexnet1   biases and no batch norm; dropout 1/2, linear 4096, ReLU, dropout 1/2, linear 4096, ReLU, linear:
 *              23,272,266 parameters
 */
#include "nn/model.h"

enum { CONVS = 5 };
static const int channels[CONVS] = {64, 192, 384, 256, 256};
static const bool pooled[CONVS] = {true, true, false, false, true};
static const nw_pool_options pool = {.size = 2};

static nw_status add_conv(nw_model *m, int i, const char *stage, const char *conv, const char *norm)
{
    int k = nw_model_width(m, channels[i], channels[0]);
    nw_unit_options unit = nw_model_conv(k, 3, i == 0 ? 2 : 1, conv, norm);
    unit.bias = !norm;
    NW_ADD_STAGE(m, nw_stage_conv, stage, &unit, pooled[i] ? &pool : NULL);
    return NW_OK;
}

nw_status nw_add_alexnet(nw_model *m)
{
    static const char *const names[CONVS][3] = {{"prep", "prep.conv", "prep.bn"},
                                                {"layer1", "layer1.conv", "layer1.bn"},
                                                {"layer2", "layer2.conv", "layer2.bn"},
                                                {"layer3", "layer3.conv", "layer3.bn"},
                                                {"layer4", "layer4.conv", "layer4.bn"}};
    float weight = m->options.variant.output_weight;
    nw_head_options head = {.max_pool = true,
                            .linear_name = "linear",
                            .classes = m->options.classes,
                            .output_scale = weight != 0 ? weight : 0.125f};
    for (int i = 0; i < CONVS; i++) NW_TRY(add_conv(m, i, names[i][0], names[i][1], names[i][2]));
    NW_ADD_STAGE(m, nw_stage_head, "head", &head);
    return NW_OK;
}

nw_status nw_add_alexnet1(nw_model *m)
{
    static const char *const convs[CONVS] = {"features.0", "features.3", "features.6", "features.8", "features.10"};
    float dropout = nw_model_dropout(m, 0.5f);
    int hidden = nw_model_width(m, 4096, channels[0]);
    nw_linear_options linear[3] = {
        {.linear_name = "classifier.1", .k = hidden, .bias = true, .relu = true, .dropout = dropout},
        {.linear_name = "classifier.4", .k = hidden, .bias = true, .relu = true, .dropout = dropout},
        {.linear_name = "classifier.6", .k = m->options.classes, .bias = true, .logits = true}};
    for (int i = 0; i < CONVS; i++) NW_TRY(add_conv(m, i, convs[i], convs[i], NULL));
    for (int i = 0; i < 3; i++) NW_ADD_STAGE(m, nw_stage_linear, linear[i].linear_name, &linear[i]);
    return NW_OK;
}
