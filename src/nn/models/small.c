/*
 * small.c - small networks of APAM's experiments on MNIST: lenet5, mlp and logit, for images of any size.
 *
 *   lenet5   conv 5 x 5, 6 - ReLU - max pool 2 - conv 5 x 5, 16 - ReLU - max pool 2 - linear 120 - ReLU - linear 84 -
 *            ReLU - linear: 44,426 parameters for 1 x 28 x 28
 *   mlp      linear 390 - ReLU - linear: 310,060
 *   logit    linear: 7,850
 */
#include "nn/model.h"

static nw_status add_linear(nw_model *m, const char *name, int k, bool last)
{
    nw_linear_options o = {.linear_name = name, .k = k, .bias = true, .relu = !last, .logits = last};
    NW_ADD_STAGE(m, nw_stage_linear, name, &o);
    return NW_OK;
}

nw_status nw_add_lenet5(nw_model *m)
{
    static const nw_pool_options pool = {.size = 2};
    static const char *const names[2] = {"conv1", "conv2"};
    static const int channels[2] = {6, 16};
    for (int i = 0; i < 2; i++) {
        nw_unit_options unit = nw_model_conv(nw_model_width(m, channels[i], 6), 5, 1, names[i], NULL);
        unit.pad = 0;
        unit.bias = true;
        NW_ADD_STAGE(m, nw_stage_conv, names[i], &unit, &pool);
    }
    NW_TRY(add_linear(m, "fc1", nw_model_width(m, 120, 6), false));
    NW_TRY(add_linear(m, "fc2", nw_model_width(m, 84, 6), false));
    return add_linear(m, "fc3", m->options.classes, true);
}

nw_status nw_add_mlp(nw_model *m)
{
    NW_TRY(add_linear(m, "fc1", nw_model_width(m, 390, 390), false));
    return add_linear(m, "fc2", m->options.classes, true);
}

nw_status nw_add_logit(nw_model *m) { return add_linear(m, "fc", m->options.classes, true); }
