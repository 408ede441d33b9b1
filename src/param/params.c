/* params.c - the table of segments and the vectors behind it; init.c gives them their initial values. */
#include "param/params.h"

#include "base/digest.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

nw_status nw_segments_add(nw_segments *list, const char *name, nw_role role, int stage, int fan_in, int dims,
                          const int *shape, int *index)
{
    NW_FAIL_IF(strlen(name) >= NW_SEGMENT_NAME, NW_E_ARGUMENT, "the parameter name '%s' is longer than %d characters",
               name, NW_SEGMENT_NAME - 1);
    NW_FAIL_IF(!nw_grow(&list->at, (size_t)list->count, sizeof *list->at), NW_E_MEMORY,
               "no memory for a table of %d parameters", list->count + 1);
    nw_segment *s = &list->at[list->count];
    *s = (nw_segment){.offset = list->floats, .count = 1, .dims = dims, .fan_in = fan_in, .role = role, .stage = stage};
    strcpy(s->name, name);
    for (int d = 0; d < dims; d++) {
        s->shape[d] = shape[d];
        s->count *= (size_t)shape[d];
    }
    list->floats += s->count;
    *index = list->count++;
    return NW_OK;
}

void nw_params_bind(nw_params *params, nw_arena *arena)
{
    params->read = params->values = nw_arena_alloc(arena, params->learned.floats * sizeof(float));
    params->gradients = nw_arena_alloc(arena, params->learned.floats * sizeof(float));
    params->buffers = nw_arena_alloc(arena, params->running.floats * sizeof(float));
}

void nw_params_free(nw_params *params)
{
    free(params->learned.at);
    free(params->running.at);
    *params = (nw_params){0};
}

void nw_params_sha256(const nw_params *params, char text[65])
{
    nw_sha256_of(params->values, params->learned.floats * sizeof *params->values, text);
}
