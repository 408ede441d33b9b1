/*
 * table.h - includes the kernels in order and fills the table of one instruction set: NW_TABLE names it, ISA_NAME is
 * its text. The including file has defined VL, BF16, TILE, L2_WEIGHTS, perhaps MULTIPLY_F32, and chosen MICRO_KERNEL (a
 * header).
 */
#ifndef MULTIPLY_F32
#define MULTIPLY_F32 0
#endif
#include "compute/isa/vec.h"
#include "compute/isa/source.h"
#include "compute/isa/finish.h"
#include "compute/isa/filter.h"
#include MICRO_KERNEL
#include "compute/isa/conv_pixels.h"
#include "compute/isa/conv_weights.h"
#include "compute/isa/conv_winograd.h"
#include "compute/isa/conv.h"
#include "compute/isa/pointwise.h"
#include "compute/isa/update.h"
#include "compute/isa/peak.h"

const nw_kernels NW_TABLE = {
    .isa = ISA_NAME,
    .dtype = BF16 ? NW_BF16 : NW_F32,
    .conv_need = conv_need,
    .conv_products = conv_products,
    .conv_forward = conv_forward,
    .conv_backward_data = conv_backward_data,
    .conv_backward_weights = conv_backward_weights,
    .materialise = materialise,
    .gradient = gradient,
    .max_pool = max_pool,
    .max_pool_backward = max_pool_backward,
    .avg_pool = avg_pool,
    .avg_pool_backward = avg_pool_backward,
    .dropout = dropout,
    .update = update,
    .squares = squares,
    .peak = peak,
};
