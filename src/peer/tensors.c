/*
 * tensors.c - a program's tensors as segments. What they are for is seen from shape and name, as PyTorch gives them:
 *
 *   two dimensions          a matrix
 *   more                    a convolution's filter; dimensions behind the fourth are taken together with it
 *   one, and none           ".bias" behind a norm's scale: its shift; another ".bias": a bias; all else: a norm's scale
 *
 * Roles decide what weight decay leaves alone (--decay-filter), and what some codecs leave as it is.
 */
#include "peer/peer.h"

#include <stdio.h>

/* The part of a name before its last dot. */
static size_t module_length(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : 0;
}

static bool is_bias(const char *name)
{
    const char *dot = strrchr(name, '.');
    return strcmp(dot ? dot + 1 : name, "bias") == 0;
}

static nw_role role_of(const nw_parameter_info *t, const nw_segments *before)
{
    if (t->dims > 2) return NW_ROLE_CONV;
    if (t->dims == 2) return NW_ROLE_LINEAR;
    if (!is_bias(t->name)) return NW_ROLE_NORM_SCALE;
    const nw_segment *last = before->count > 0 ? &before->at[before->count - 1] : NULL;
    size_t length = module_length(t->name);
    bool shift = last && last->role == NW_ROLE_NORM_SCALE && module_length(last->name) == length &&
                 strncmp(last->name, t->name, length) == 0;
    return shift ? NW_ROLE_NORM_SHIFT : NW_ROLE_BIAS;
}

static nw_status add_tensor(nw_segments *segments, const nw_parameter_info *t, int number)
{
    int shape[NW_SEGMENT_DIMS] = {1}, dims = t->dims > 0 ? t->dims : 1, index;
    size_t floats = 1;
    NW_FAIL_IF(!t->name || !*t->name || t->dims < 0 || t->dims > NW_SEGMENT_DIMS, NW_E_ARGUMENT,
               "tensor %d needs a name and at most %d dimensions; take those behind together", number,
               NW_SEGMENT_DIMS);
    for (int i = 0; i < segments->count; i++)
        NW_FAIL_IF(strcmp(segments->at[i].name, t->name) == 0, NW_E_ARGUMENT, "two tensors are named '%s'", t->name);
    for (int i = 0; i < t->dims; i++) {
        shape[i] = t->shape[i];
        NW_FAIL_IF(shape[i] < 1 || floats > (size_t)INT32_MAX / (size_t)shape[i], NW_E_SHAPE,
                   "tensor '%s' has a dimension of %d, or more than 2^31 elements", t->name, shape[i]);
        floats *= (size_t)shape[i];
    }
    return nw_segments_add(segments, t->name, role_of(t, segments), 0, (int)(floats / (size_t)shape[0]), dims, shape,
                           &index);
}

nw_status nw_peer_list_tensors(nw_segments *segments, const nw_parameter_info *tensors, int count)
{
    NW_FAIL_IF(count < 1, NW_E_ARGUMENT, "a model has at least one tensor, not %d", count);
    for (int i = 0; i < count; i++) NW_TRY(add_tensor(segments, &tensors[i], i));
    return NW_OK;
}
