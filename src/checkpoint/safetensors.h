/*
 * safetensors.h - named tensors in the format that PyTorch's tools read as well.
 *
 *   8 bytes   length of the header, little-endian
 *   header    JSON: {"__metadata__": {text: text}, NAME: {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}}
 *             with spaces at its end so that the data begin at a multiple of 8
 *   data      the tensors without gaps, little-endian, offsets counted from here
 *
 * The writer puts tensors with wider elements first, otherwise in the order given, so that each is aligned, as some
 * readers demand. Before the reader returns anything, it checks that names are unique, that shape x type = bytes, and
 * that ranges cover the data exactly. Opening reads only the header; tensors are read when asked for. One reader may be
 * used from several threads.
 */
#ifndef NW_CHECKPOINT_SAFETENSORS_H
#define NW_CHECKPOINT_SAFETENSORS_H

#include "base/file.h"

typedef enum nw_saved_type {
    NW_SAVED_F32,
    NW_SAVED_F64,
    NW_SAVED_F16,
    NW_SAVED_BF16,
    NW_SAVED_I64,
    NW_SAVED_I32,
    NW_SAVED_I16,
    NW_SAVED_I8,
    NW_SAVED_U64,
    NW_SAVED_U32,
    NW_SAVED_U16,
    NW_SAVED_U8,
    NW_SAVED_BOOL,
    NW_SAVED_TYPES
} nw_saved_type;

const char *nw_saved_type_name(nw_saved_type type);
bool nw_saved_type_is_float(nw_saved_type type); /* F32, and what nw_safetensors_read_f32 converts to it */

enum { NW_SAVED_DIMS = 8 };

typedef struct nw_saved_tensor {
    const char *name;
    nw_saved_type type;
    int dims; /* 0: one number */
    int64_t shape[NW_SAVED_DIMS];
    const void *data; /* what is to be written; NULL in a reader's tensors */
} nw_saved_tensor;

bool nw_saved_tensor_same_shape(const nw_saved_tensor *a, const nw_saved_tensor *b);

/* "F32[64, 3, 7, 7]", for messages. */
void nw_saved_tensor_text(const nw_saved_tensor *tensor, char *text, size_t size);

/* ---- writing ---- */

/* A growing list of tensors to write. Names are copied, data are not. */
typedef struct nw_saved_list {
    nw_saved_tensor *at;
    int count;
} nw_saved_list;

nw_status nw_saved_list_add(nw_saved_list *list, const char *name, nw_saved_type type, int dims, const int64_t *shape,
                            const void *data);
void nw_saved_list_free(nw_saved_list *list);

/* One entry of __metadata__. */
typedef struct nw_saved_note {
    const char *key, *text;
} nw_saved_note;

/* Writes a whole file through `out`, which the caller opens and finishes. NW_E_ARGUMENT for two tensors of one name. */
nw_status nw_safetensors_write(nw_file_writer *out, const nw_saved_list *list, const nw_saved_note *notes,
                               int note_count);

/* ---- reading ---- */

typedef struct nw_safetensors nw_safetensors;

nw_status nw_safetensors_open(nw_safetensors **file, const char *path);
/* The same over bytes that stay where they are until nw_safetensors_close. */
nw_status nw_safetensors_open_memory(nw_safetensors **file, const void *data, size_t size, const char *name);
void nw_safetensors_close(nw_safetensors *file);

const char *nw_safetensors_path(const nw_safetensors *file);
int nw_safetensors_count(const nw_safetensors *file);
const nw_saved_tensor *nw_safetensors_at(const nw_safetensors *file, int index); /* in the order of the data */
int nw_safetensors_find(const nw_safetensors *file, const char *name);           /* its index, or -1 */
size_t nw_safetensors_bytes(const nw_safetensors *file, int index);
size_t nw_safetensors_elements(const nw_safetensors *file, int index);

/* The bytes of a tensor as they are. */
nw_status nw_safetensors_read(const nw_safetensors *file, int index, void *out);
/* The elements of a tensor of F32, F64, F16 or BF16 as f32; NW_E_FILE for any other type. */
nw_status nw_safetensors_read_f32(const nw_safetensors *file, int index, float *out);

#endif
