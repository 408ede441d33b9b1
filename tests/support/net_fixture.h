/*
 * net_fixture.h - narrow networks and batches of generated images for the tests of whole networks.
 */
#ifndef NW_TESTS_NET_FIXTURE_H
#define NW_TESTS_NET_FIXTURE_H

#include "compute/isa.h"
#include "support/choice.h"
#include "support/golden.h"
#include "train/net.h"

#include <string.h>

enum { PIXELS = 3 * 32 * 32, NARROW = 8 };

/* Emulated sets and those that store bf16 are the same code everywhere: whole networks in them are left to x86, since
 * qemu takes an hour. */
static inline bool is_tested(int table)
{
#ifndef __x86_64__
    const char *isa = nw_isa_kernels(table)->isa;
    if (strstr(isa, "-emulated") || strstr(isa, "-bf16")) return false;
#endif
    return is_chosen(table);
}

/* Runs a check for every usable table of a type. */
#define FOR_EACH_TABLE(k, type)                                                              \
    for (int table_ = 0; table_ < nw_isa_count(); table_++)                                  \
        for (const nw_kernels *k = nw_isa_kernels(table_); k && is_tested(table_); k = NULL) \
            if (k->dtype == (type))

static inline nw_net_options narrow(const char *model, int batch, int threads)
{
    nw_net_options o = nw_net_options_default();
    o.model = model;
    o.batch_size = batch;
    o.base_width = NARROW;
    o.threads = threads;
    return o;
}

static inline nw_net *make_as(const nw_kernels *kernels, nw_net_options options)
{
    nw_net *net;
    if (nw_net_create_with(&net, &options, kernels) != NW_OK) fail_msg("%s", nw_error_message());
    return net;
}

static inline nw_net *make_variant(const nw_kernels *kernels, const char *model, nw_model_variant variant, int batch,
                                   int threads)
{
    nw_net_options o = narrow(model, batch, threads);
    o.variant = variant;
    return make_as(kernels, o);
}

static inline nw_net *make(const nw_kernels *kernels, const char *model, int batch, int threads)
{
    return make_as(kernels, narrow(model, batch, threads));
}

static inline void fill_batch(float *images, int32_t *labels, int n, uint64_t image_stream, uint64_t label_stream)
{
    golden_fill_images(images, (size_t)n * PIXELS, image_stream);
    for (int i = 0; i < n; i++) labels[i] = golden_label(label_stream, (uint64_t)i, 10);
}

/* The parameters that the golden files were computed with. */
static inline void set_golden_parameters(nw_net *net)
{
    float *values = nw_net_parameters(net, NULL);
    for (int i = 0; i < net->model.params.learned.count; i++) {
        const nw_segment *s = &net->model.params.learned.at[i];
        golden_role role = s->role == NW_ROLE_NORM_SCALE   ? GOLDEN_GAMMA
                           : s->role == NW_ROLE_NORM_SHIFT ? GOLDEN_BETA
                           : s->role == NW_ROLE_BIAS       ? GOLDEN_BIAS
                                                           : GOLDEN_WEIGHT;
        golden_fill_parameter(values + s->offset, s->count, (uint64_t)i, role, (size_t)s->fan_in);
    }
}

#endif
