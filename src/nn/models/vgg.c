/*
 * vgg.c - VGG16 (Simonyan and Zisserman 2014, configuration D), and PETRA's small VGG.
 *
 *   vgg16      conv 3 x 3 with bias, ReLU; 64 64 M 128 128 M 256 256 256 M 512 512 512 M 512 512 512 M (M: max pool 2);
 *              adaptive average pool to 7 x 7; linear 4096, ReLU, dropout 1/2, linear 4096, ReLU, dropout 1/2, linear.
 *              134,301,514 parameters for 10 classes, whatever the image size
 *   vgg16_bn   batch norm between convolution and ReLU: 138,365,992 parameters for 1000 classes
 *   petra-vgg  eight conv 3 x 3 with bias, batch norm, ReLU; 64 128 256 256 512 512 512 512 with strides
 *              1 2 2 1 2 2 2 2, average over what is left, linear: 9,231,114 parameters for 10 classes
 *
 * VGG16 starts with He-out convolutions, normal 0.01 linear layers and biases of 0; PETRA's as in PyTorch.
 */
#include "nn/model.h"

#include <stdio.h>

static nw_status add_vgg16(nw_model *m, bool norm)
{
    static const int config[] = {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0};
    static const nw_pool_options pool = {.size = 2};
    int module = 0; /* torchvision numbers convolution, batch norm, ReLU and pool */
    for (size_t i = 0; i < sizeof config / sizeof config[0]; i++) {
        if (config[i] == 0) {
            module++;
            continue;
        }
        char conv[32], norm_name[32];
        snprintf(conv, sizeof conv, "features.%d", module);
        snprintf(norm_name, sizeof norm_name, "features.%d", module + 1);
        nw_unit_options unit = nw_model_conv(nw_model_width(m, config[i], 64), 3, 1, conv, norm ? norm_name : NULL);
        unit.bias = true;
        NW_ADD_STAGE(m, nw_stage_conv, conv, &unit, config[i + 1] == 0 ? &pool : NULL);
        module += norm ? 3 : 2;
    }
    if (m->builder.h != 7 || m->builder.w != 7) NW_ADD_STAGE(m, nw_stage_adaptive_pool, "avgpool", 7);

    float dropout = nw_model_dropout(m, 0.5f);
    int hidden = nw_model_width(m, 4096, 64);
    nw_linear_options linear[3] = {
        {.linear_name = "classifier.0", .k = hidden, .bias = true, .relu = true},
        {.linear_name = "classifier.3", .k = hidden, .bias = true, .relu = true, .dropout = dropout},
        {.linear_name = "classifier.6", .k = m->options.classes, .bias = true, .dropout = dropout, .logits = true}};
    for (int i = 0; i < 3; i++) NW_ADD_STAGE(m, nw_stage_linear, linear[i].linear_name, &linear[i]);
    m->default_init = "vgg";
    return NW_OK;
}

nw_status nw_add_vgg16(nw_model *m) { return add_vgg16(m, false); }
nw_status nw_add_vgg16_bn(nw_model *m) { return add_vgg16(m, true); }

nw_status nw_add_petra_vgg(nw_model *m)
{
    enum { CONVS = 8 };
    static const int channels[CONVS] = {64, 128, 256, 256, 512, 512, 512, 512};
    static const int strides[CONVS] = {1, 2, 2, 1, 2, 2, 2, 2};
    for (int i = 0; i < CONVS; i++) {
        char stage[16], conv[32], norm[32];
        snprintf(stage, sizeof stage, "layer%d", i + 1);
        snprintf(conv, sizeof conv, "layer%d.conv", i + 1);
        snprintf(norm, sizeof norm, "layer%d.bn", i + 1);
        nw_unit_options unit = nw_model_conv(nw_model_width(m, channels[i], 64), 3, strides[i], conv, norm);
        unit.bias = true;
        NW_ADD_STAGE(m, nw_stage_conv, stage, &unit, NULL);
    }
    nw_head_options head = {.linear_name = "fc", .classes = m->options.classes, .bias = true, .output_scale = 1.0f};
    NW_ADD_STAGE(m, nw_stage_head, "head", &head);
    return NW_OK;
}
