/*
 * Folder src/param: the parameters of a replica as flat vectors with a table of segments, and their initial values.
 * What is done with them (updates, sending, saving) lives elsewhere. May include: base.
 *
 * params.h - the parameters of one replica as flat vectors with a table of segments.
 *
 * `values` and `gradients` hold all learnable parameters one after the other, without gaps, in PyTorch's order of
 * modules and PyTorch's order of elements (OIHW), so that codecs, hashes, files and golden vectors agree; `buffers`
 * holds batch norm's running statistics in the same way. Optimizers, codecs and exchanges work on ranges of these
 * vectors; layers refer to segments by index. The vectors are 64-byte aligned and live in the network's arena.
 */
#ifndef NW_PARAM_PARAMS_H
#define NW_PARAM_PARAMS_H

#include "base/arena.h"

typedef enum nw_role {
    NW_ROLE_CONV,   /* filter, K x C x R x S */
    NW_ROLE_LINEAR, /* matrix, K x C */
    NW_ROLE_BIAS,
    NW_ROLE_NORM_SCALE, /* gamma */
    NW_ROLE_NORM_SHIFT, /* beta */
    NW_ROLE_RUNNING_MEAN,
    NW_ROLE_RUNNING_VAR,
} nw_role;

enum { NW_SEGMENT_NAME = 80, NW_SEGMENT_DIMS = 4 };

typedef struct nw_segment {
    char name[NW_SEGMENT_NAME];
    size_t offset, count; /* in floats, within its vector */
    int dims, shape[NW_SEGMENT_DIMS];
    int fan_in; /* values that one output sums; for initialisation */
    nw_role role;
    int stage;
    bool ends_residual; /* gamma of the last batch norm of a residual branch */
} nw_segment;

/* A growing list of segments of one vector. */
typedef struct nw_segments {
    nw_segment *at;
    int count;
    size_t floats;
} nw_segments;

struct nw_init_scheme;

typedef struct nw_params {
    nw_segments learned, running;
    const struct nw_init_scheme *init; /* how nw_params_init draws (init.h); NULL: as PyTorch does */
    bool zero_init_residual;           /* gammas that end a residual branch start at 0 */
    float *values, *gradients;         /* learned.floats each */
    const float *read;                 /* what passes read: the values, or an earlier copy of them */
    float *buffers;                    /* running.floats */
} nw_params;

/* Appends a segment; its index goes to *index. NW_E_MEMORY, or NW_E_ARGUMENT for a name that is too long. */
nw_status nw_segments_add(nw_segments *list, const char *name, nw_role role, int stage, int fan_in, int dims,
                          const int *shape, int *index);

void nw_params_bind(nw_params *params, nw_arena *arena);
void nw_params_free(nw_params *params);

/* Weights and biases by the scheme; gamma 1, beta 0, running mean 0, variance 1. Each segment draws from a stream of
 * its own, keyed by its index. */
void nw_params_init(nw_params *params, uint64_t seed);

/* Of the values, as hexadecimal text. */
void nw_params_sha256(const nw_params *params, char text[65]);

static inline const float *nw_param_value(const nw_params *p, int index)
{
    return p->read + p->learned.at[index].offset;
}
static inline float *nw_param_gradient(const nw_params *p, int index)
{
    return p->gradients + p->learned.at[index].offset;
}
static inline float *nw_param_buffer(const nw_params *p, int index) { return p->buffers + p->running.at[index].offset; }

#endif
