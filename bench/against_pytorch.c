/*
 * against_pytorch.c - what bench/against_pytorch.py calls: a network behind functions with plain arguments.
 *
 * Python reaches the library through ctypes, which would have to repeat the layout of nw_net_options byte by byte, and
 * would go wrong in silence when it changes. Here the compiler knows the layout. Functions that need no struct
 * (nw_net_parameters, nw_net_isa, nw_error_message, nw_net_free, ...) are called directly: the loader finds them
 * through this library. Always f32, SGD with momentum; one network is used from one thread at a time.
 */
#include <nowait.h>

/* A network for CIFAR-10, or NULL: nw_error_message() says why. width 0: the model's own; threads 0: all CPUs. */
NW_API nw_net *against_create(const char *model, int batch_size, int width, int threads, double momentum, bool nesterov,
                              double weight_decay)
{
    nw_net_options options = nw_net_options_default();
    options.model = model;
    options.batch_size = batch_size;
    options.base_width = width;
    options.threads = threads;
    options.precision = NW_PRECISION_F32;
    options.momentum = (float)momentum;
    options.nesterov = nesterov;
    options.weight_decay = (float)weight_decay;
    nw_net *net = NULL;
    return nw_net_create(&net, &options) == NW_OK ? net : NULL;
}

/* PyTorch's name of a parameter, and where it lies in the vector of nw_net_parameters. */
NW_API const char *against_parameter(const nw_net *net, int index, size_t *offset, size_t *count)
{
    nw_parameter_info info = nw_net_parameter(net, index);
    *offset = info.offset;
    *count = info.count;
    return info.name;
}

/* Gradients of one batch, then the update. The loss is the one before the update. */
NW_API nw_status against_step(nw_net *net, const float *images, const int32_t *labels, int n, double learning_rate,
                              double *loss)
{
    nw_step_result result = {0};
    nw_status status = nw_net_gradients(net, images, labels, n, false, &result);
    *loss = result.loss;
    return status == NW_OK ? nw_net_update(net, (float)learning_rate) : status;
}
