/*
 * resnet9.c - ResNet9 of cifar10-fast (David Page, 2018), for images whose sides are multiples of 8.
 *
 * With cb(i, o) = 3 x 3 convolution, batch norm, ReLU:
 *   prep cb(3, w) - layer1: cb(w, 2w), max pool 2, x + cb(cb(x)) - layer2: cb(2w, 4w), max pool 2 -
 *   layer3: cb(4w, 8w), max pool 2, x + cb(cb(x)) - maximum over the map - linear 8w -> classes, no bias - times 0.125
 * with w = 64: 6,573,120 parameters for 10 classes.
 *
 * Options, as in cifar10-fast: the width of each layer, which layers have a residual block, which have one more cb at
 * their end (`extra`), and the factor of the logits. The residual branch ends in a ReLU, so its last gamma must not
 * start at 0: the ReLU's input would be 0 everywhere and nothing would ever move.
 */
#include "nn/model.h"

#include <stdio.h>
#include <string.h>

enum { LAYERS = 4 };
static const char *const layer_names[LAYERS] = {"prep", "layer1", "layer2", "layer3"};

/* Adds the layers named in a list, separated by commas or on lines of their own, to the bits of *set. */
static nw_status parse_layers(const char *list, const char *what, unsigned *set)
{
    *set = 0;
    if (strcmp(list, "none") == 0) return NW_OK;
    while (*list) {
        size_t length = strcspn(list, ",\n");
        int at = 0;
        while (at < LAYERS && !(strlen(layer_names[at]) == length && strncmp(list, layer_names[at], length) == 0)) at++;
        NW_FAIL_IF(at == LAYERS, NW_E_ARGUMENT,
                   "%s: resnet9 has no layer '%.*s'; name prep, layer1, layer2 or layer3, separated by commas, or none",
                   what, (int)length, list);
        *set |= 1u << at;
        list += length + (list[length] != 0);
    }
    return NW_OK;
}

/* A 3 x 3 convolution with batch norm and ReLU, its module names in the caller's buffers. */
static nw_unit_options cb(int k, const char *module, char conv[64], char norm[64])
{
    snprintf(conv, 64, "%s.conv", module);
    snprintf(norm, 64, "%s.bn", module);
    return nw_model_conv(k, 3, 1, conv, norm);
}

static nw_status add_residual(nw_model *m, const char *layer, int k)
{
    char stage[24], module[32], name[4][64];
    snprintf(stage, sizeof stage, "%s.residual", layer);
    nw_residual_options o = {.count = 2};
    for (int i = 0; i < 2; i++) {
        snprintf(module, sizeof module, "%s.res%d", stage, i + 1);
        o.units[i] = cb(k, module, name[2 * i], name[2 * i + 1]);
    }
    NW_ADD_STAGE(m, nw_stage_residual, stage, &o);
    return NW_OK;
}

static nw_status add_layer(nw_model *m, int layer, int k, bool residual, bool extra)
{
    static const nw_pool_options pool = {.size = 2};
    char conv[64], norm[64], module[32];
    nw_unit_options unit = cb(k, layer_names[layer], conv, norm);
    NW_ADD_STAGE(m, nw_stage_conv, layer_names[layer], &unit, layer > 0 ? &pool : NULL);
    if (residual) NW_TRY(add_residual(m, layer_names[layer], k));
    if (extra) {
        snprintf(module, sizeof module, "%s.extra", layer_names[layer]);
        unit = cb(k, module, conv, norm);
        NW_ADD_STAGE(m, nw_stage_conv, module, &unit, NULL);
    }
    return NW_OK;
}

nw_status nw_add_resnet9(nw_model *m)
{
    const nw_model_variant *v = &m->options.variant;
    unsigned residuals, extras;
    NW_TRY(parse_layers(v->residuals ? v->residuals : "layer1,layer3", "residuals", &residuals));
    NW_TRY(parse_layers(v->extra_layers ? v->extra_layers : "none", "extra_layers", &extras));
    for (int i = 0; i < LAYERS; i++) {
        NW_FAIL_IF(v->widths[i] < 0 || v->widths[i] > 1 << 16, NW_E_ARGUMENT,
                   "%s of resnet9 cannot have %d channels: 1 to 65536, or 0 for the usual number", layer_names[i],
                   v->widths[i]);
        int k = v->widths[i] ? v->widths[i] : nw_model_width(m, 64 << i, 64);
        NW_TRY(add_layer(m, i, k, residuals >> i & 1, extras >> i & 1));
    }
    nw_head_options head = {.max_pool = true,
                            .linear_name = "linear",
                            .classes = m->options.classes,
                            .output_scale = v->output_weight != 0 ? v->output_weight : 0.125f};
    NW_ADD_STAGE(m, nw_stage_head, "head", &head);
    return NW_OK;
}
