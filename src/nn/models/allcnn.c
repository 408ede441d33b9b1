/*
 * allcnn.c - the all-convolutional network of APAM's experiments (after Springenberg et al. 2014).
 *
 * Nine blocks of conv 3 x 3 without bias, batch norm, ReLU: 96 96 96 192 192 192 192 192 and as many channels as
 * classes, strides 1 1 2 1 1 2 1 1 1, padding 1 except 0 in the seventh; average over the map, times 0.125: the logits.
 * Batch norm keeps no running statistics, so evaluation depends on the batch. 1,681,268 parameters for 10 classes.
 */
#include "nn/model.h"

#include <stdio.h>

nw_status nw_add_allcnn(nw_model *m)
{
    enum { BLOCKS = 9 };
    static const int channels[BLOCKS - 1] = {96, 96, 96, 192, 192, 192, 192, 192};
    static const int strides[BLOCKS] = {1, 1, 2, 1, 1, 2, 1, 1, 1};
    for (int i = 0; i < BLOCKS; i++) {
        char stage[16], conv[16], norm[16];
        snprintf(stage, sizeof stage, "block%d", i + 1);
        snprintf(conv, sizeof conv, "conv%d", i + 1);
        snprintf(norm, sizeof norm, "bn%d", i + 1);
        int k = i < BLOCKS - 1 ? nw_model_width(m, channels[i], channels[0]) : m->options.classes;
        nw_unit_options unit = nw_model_conv(k, 3, strides[i], conv, norm);
        unit.no_running = true;
        if (i == 6) unit.pad = 0;
        NW_ADD_STAGE(m, nw_stage_conv, stage, &unit, NULL);
    }
    float weight = m->options.variant.output_weight;
    nw_head_options head = {.classes = m->options.classes, .output_scale = weight != 0 ? weight : 0.125f};
    NW_ADD_STAGE(m, nw_stage_head, "head", &head);
    return NW_OK;
}
