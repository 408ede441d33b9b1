/*
 * model.c - between the flat vectors of a replica and tensors with PyTorch's names.
 *
 * A batch norm `bn` has in PyTorch, beside bn.running_mean and bn.running_var, the number of batches it has seen,
 * bn.num_batches_tracked (int64, no dimensions). Here all have seen the same number, which is written for each, so that
 * load_state_dict(strict=True) accepts the file; on reading it is taken from the first and may be missing.
 *
 * Reading a model checks everything first and then copies, so a refused file changes nothing.
 */
#define _GNU_SOURCE 1
#include "checkpoint/checkpoint.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static int segment_shape(const nw_segment *s, int64_t shape[NW_SAVED_DIMS])
{
    for (int d = 0; d < s->dims; d++) shape[d] = s->shape[d];
    return s->dims;
}

/* "bn1.num_batches_tracked" for the segment "bn1.running_mean", to be freed. */
static nw_status tracked_name(char **name, const nw_segment *mean)
{
    const char *dot = strrchr(mean->name, '.');
    int length = dot ? (int)(dot - mean->name) + 1 : 0;
    return nw_text_print(name, "%.*snum_batches_tracked", length, mean->name);
}

nw_status nw_saved_list_add_segments(nw_saved_list *list, const char *prefix, const nw_segments *segments,
                                     const float *vector)
{
    for (int i = 0; i < segments->count; i++) {
        const nw_segment *s = &segments->at[i];
        int64_t shape[NW_SAVED_DIMS];
        int dims = segment_shape(s, shape);
        NW_AUTOFREE char *name = NULL;
        NW_TRY(nw_text_print(&name, "%s%s", prefix, s->name));
        NW_TRY(nw_saved_list_add(list, name, NW_SAVED_F32, dims, shape, vector + s->offset));
    }
    return NW_OK;
}

/* Elements begin .. end of a segment; a segment that is cut is read whole first. */
static nw_status read_part(nw_checkpoint *checkpoint, const char *file, const char *name, const nw_segment *s,
                           size_t begin, size_t end, float *out)
{
    int64_t shape[NW_SAVED_DIMS];
    int dims = segment_shape(s, shape);
    bool whole = end - begin == s->count;
    float *all = whole ? out : malloc(s->count * sizeof *all);
    NW_FAIL_IF(!all, NW_E_MEMORY, "no memory for the tensor '%s'", name);
    nw_status status = nw_checkpoint_read_tensor(checkpoint, file, name, dims, shape, all);
    if (whole) return status;
    if (status == NW_OK) memcpy(out, all + begin, (end - begin) * sizeof *out);
    free(all);
    return status;
}

nw_status nw_checkpoint_read_range(nw_checkpoint *checkpoint, const char *file, const char *prefix,
                                   const nw_segments *segments, size_t first, size_t count, float *out)
{
    for (int i = 0; i < segments->count; i++) {
        const nw_segment *s = &segments->at[i];
        size_t begin = first > s->offset ? first - s->offset : 0;
        size_t end = first + count < s->offset + s->count ? first + count : s->offset + s->count;
        NW_AUTOFREE char *name = NULL;
        if (end <= s->offset + begin) continue;
        NW_TRY(nw_text_print(&name, "%s%s", prefix, s->name));
        NW_TRY(read_part(checkpoint, file, name, s, begin, end - s->offset, out + (s->offset + begin - first)));
    }
    return NW_OK;
}

nw_status nw_checkpoint_read_segments(nw_checkpoint *checkpoint, const char *file, const char *prefix,
                                      const nw_segments *segments, float *vector)
{
    return nw_checkpoint_read_range(checkpoint, file, prefix, segments, 0, segments->floats, vector);
}

static nw_status list_tracked(nw_saved_list *list, const nw_params *params, const int64_t *batches)
{
    for (int i = 0; i < params->running.count; i++) {
        NW_AUTOFREE char *name = NULL;
        if (params->running.at[i].role != NW_ROLE_RUNNING_MEAN) continue;
        NW_TRY(tracked_name(&name, &params->running.at[i]));
        NW_TRY(nw_saved_list_add(list, name, NW_SAVED_I64, 0, NULL, batches));
    }
    return NW_OK;
}

/* All that a model's file holds. */
static nw_status list_model(nw_saved_list *list, const nw_params *params, const int64_t *batches)
{
    NW_TRY(nw_saved_list_add_segments(list, "", &params->learned, params->values));
    NW_TRY(nw_saved_list_add_segments(list, "", &params->running, params->buffers));
    return list_tracked(list, params, batches);
}

nw_status nw_checkpoint_add_model(nw_checkpoint_writer *writer, const nw_params *params, int64_t batches)
{
    static const nw_saved_note notes[] = {{"format", "pt"}}; /* what PyTorch's own files say */
    NW_CLEANUP(nw_saved_list_free) nw_saved_list list = {0};
    NW_TRY(list_model(&list, params, &batches));
    return nw_checkpoint_add_tensors(writer, NW_CHECKPOINT_MODEL, &list, notes, 1);
}

/* ---- reading ---- */

typedef struct mismatch {
    const nw_safetensors *tensors;
    const char *model;
    char owner[128]; /* " of the model 'resnet18'", or nothing where the file does not say */
} mismatch;

static nw_status refuse(const mismatch *m, const char *what)
{
    return NW_FAIL(NW_E_FILE, "'%s'%s does not fit the model '%s': %s; give the model it was made for",
                   nw_safetensors_path(m->tensors), m->owner, m->model, what);
}

static nw_status compare_tensor(const mismatch *m, const nw_saved_tensor *wanted)
{
    char what[512], has[160], wants[160];
    bool counter = wanted->type == NW_SAVED_I64;
    int index = nw_safetensors_find(m->tensors, wanted->name);
    if (index < 0 && counter) return NW_OK;
    if (index < 0) {
        snprintf(what, sizeof what, "the tensor '%s' is missing", wanted->name);
        return refuse(m, what);
    }
    const nw_saved_tensor *found = nw_safetensors_at(m->tensors, index);
    bool right_type = counter ? found->type == NW_SAVED_I64 : nw_saved_type_is_float(found->type);
    if (right_type && nw_saved_tensor_same_shape(found, wanted)) return NW_OK;
    nw_saved_tensor_text(found, has, sizeof has);
    nw_saved_tensor_text(wanted, wants, sizeof wants);
    snprintf(what, sizeof what, "the tensor '%s' is %s there and %s here", wanted->name, has, wants);
    return refuse(m, what);
}

/* Every tensor wanted is there, and none beside them. */
static nw_status compare_model(const mismatch *m, const nw_saved_list *wanted)
{
    int matched = 0;
    for (int i = 0; i < wanted->count; i++) {
        NW_TRY(compare_tensor(m, &wanted->at[i]));
        if (nw_safetensors_find(m->tensors, wanted->at[i].name) >= 0) matched++;
    }
    if (matched == nw_safetensors_count(m->tensors)) return NW_OK;
    for (int i = 0; i < nw_safetensors_count(m->tensors); i++) {
        const char *name = nw_safetensors_at(m->tensors, i)->name;
        bool known = false;
        for (int j = 0; j < wanted->count && !known; j++) known = strcmp(name, wanted->at[j].name) == 0;
        if (known) continue;
        char what[512];
        snprintf(what, sizeof what, "it has a tensor '%.400s' that the model lacks", name);
        return refuse(m, what);
    }
    return NW_OK;
}

static nw_status read_tracked(const nw_safetensors *tensors, const nw_params *params, int64_t *batches)
{
    for (int i = 0; i < params->running.count; i++) {
        NW_AUTOFREE char *name = NULL;
        if (params->running.at[i].role != NW_ROLE_RUNNING_MEAN) continue;
        NW_TRY(tracked_name(&name, &params->running.at[i]));
        int index = nw_safetensors_find(tensors, name);
        return index < 0 ? NW_OK : nw_safetensors_read(tensors, index, batches);
    }
    return NW_OK;
}

nw_status nw_checkpoint_read_model(nw_checkpoint *checkpoint, const char *model, nw_params *params, int64_t *batches)
{
    mismatch m = {.model = model};
    int64_t tracked = 0;
    const nw_checkpoint_info *info = nw_checkpoint_get_info(checkpoint);
    if (info) snprintf(m.owner, sizeof m.owner, " of the model '%s'", info->model);
    NW_TRY(nw_checkpoint_tensors(checkpoint, NW_CHECKPOINT_MODEL, &m.tensors));
    NW_CLEANUP(nw_saved_list_free) nw_saved_list wanted = {0};
    NW_TRY(list_model(&wanted, params, &tracked));
    NW_TRY(compare_model(&m, &wanted));
    if (info && strcmp(info->model, model) != 0) return refuse(&m, "it is another model, although all shapes agree");
    NW_TRY(read_tracked(m.tensors, params, &tracked));
    NW_TRY(nw_checkpoint_read_segments(checkpoint, NW_CHECKPOINT_MODEL, "", &params->learned, params->values));
    NW_TRY(nw_checkpoint_read_segments(checkpoint, NW_CHECKPOINT_MODEL, "", &params->running, params->buffers));
    if (batches) *batches = tracked;
    return NW_OK;
}
