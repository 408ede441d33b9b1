/*
 * init.h - initialisation schemes by name.
 *
 * "Uniform" is PyTorch's default: uniform in +-1/sqrt(fan_in), with fan_in = C R S of a filter; biases with the bound
 * of their layer. "He-out" is normal with standard deviation sqrt(2 / (K R S)), "He-in" with sqrt(2 / (C R S)) (He et
 * al. 2015). Every scheme sets gamma 1 and beta 0.
 *
 *   scheme           convolutions                     their biases   linear          its bias   used by
 *   pytorch          uniform                          uniform        uniform         uniform    most models
 *   he-out           He-out                           uniform        uniform         uniform    ImageNet, resnet20...
 *   kaiming-fan-in   He-in                            0              He-in           0
 *   acid             He-out, but the first uniform    uniform        uniform         uniform    ACiD's CIFAR ResNets
 *   vgg              He-out                           0              normal 0.01     0          vgg16, vgg16_bn
 *   wrn              He-out                           0              uniform         0          wideresnet28_5, 28_10
 *   bn0              He-out                           uniform        normal 0.01     uniform    ImageNet's ResNet-50;
 *                                                     gammas that end a branch are 0
 */
#ifndef NW_PARAM_INIT_H
#define NW_PARAM_INIT_H

#include "param/params.h"

typedef enum nw_draw { NW_DRAW_UNIFORM, NW_DRAW_HE_OUT, NW_DRAW_HE_IN, NW_DRAW_SMALL, NW_DRAW_ZERO } nw_draw;

typedef struct nw_init_scheme {
    const char *name, *summary;
    nw_draw first_conv, conv, conv_bias, linear, linear_bias;
    bool zero_residual;
} nw_init_scheme;

int nw_init_schemes(void);
const nw_init_scheme *nw_init_scheme_at(int index);
/* NW_E_UNKNOWN names the nearest. */
nw_status nw_init_find(const char *name, const nw_init_scheme **scheme);

#endif
