/*
 * resnet9.c - ResNet9 of cifar10-fast (David Page, 2018), for images whose sides are multiples of 8.
 *
 * With cb(i, o) = 3 x 3 convolution, batch norm, ReLU:
 *   prep cb(3, w) - layer1: cb(w, 2w), max pool 2, x + cb(cb(x)) - layer2: cb(2w, 4w), max pool 2 -
 *   layer3: cb(4w, 8w), max pool 2, x + cb(cb(x)) - maximum over the map - linear 8w -> classes, no bias - times 0.125
 * with w = 64: 6,573,120 parameters for 10 classes.
 */
#include "nn/model.h"

static nw_unit_options cb(int k, const char *conv, const char *norm)
{
    return (nw_unit_options){
        .k = k, .size = 3, .stride = 1, .pad = 1, .norm = true, .relu = true, .conv_name = conv, .norm_name = norm};
}

nw_status nw_add_resnet9(nw_model *m)
{
    int w = m->options.base_width ? m->options.base_width : 64;
    nw_unit_options prep = cb(w, "prep.conv", "prep.bn"), layer1 = cb(2 * w, "layer1.conv", "layer1.bn");
    nw_unit_options layer2 = cb(4 * w, "layer2.conv", "layer2.bn"), layer3 = cb(8 * w, "layer3.conv", "layer3.bn");
    nw_residual_options residual1 = {.units = {cb(2 * w, "layer1.residual.res1.conv", "layer1.residual.res1.bn"),
                                               cb(2 * w, "layer1.residual.res2.conv", "layer1.residual.res2.bn")}};
    nw_residual_options residual3 = {.units = {cb(8 * w, "layer3.residual.res1.conv", "layer3.residual.res1.bn"),
                                               cb(8 * w, "layer3.residual.res2.conv", "layer3.residual.res2.bn")}};
    nw_head_options head = {
        .max_pool = true, .linear_name = "linear", .classes = m->options.classes, .output_scale = 0.125f};
    NW_ADD_STAGE(m, nw_stage_conv, "prep", &prep, 0);
    NW_ADD_STAGE(m, nw_stage_conv, "layer1", &layer1, 2);
    NW_ADD_STAGE(m, nw_stage_residual, "layer1.residual", &residual1);
    NW_ADD_STAGE(m, nw_stage_conv, "layer2", &layer2, 2);
    NW_ADD_STAGE(m, nw_stage_conv, "layer3", &layer3, 2);
    NW_ADD_STAGE(m, nw_stage_residual, "layer3.residual", &residual3);
    NW_ADD_STAGE(m, nw_stage_head, "head", &head);
    return NW_OK;
}
