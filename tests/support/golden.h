/*
 * golden.h - reads the tensors that PyTorch computed (tests/golden), and makes the numbers they were computed from.
 *
 * golden/make_golden.py documents the file format, the names and the generated numbers; golden.c is its C twin. A file
 * is untrusted until it has been read: every length is checked against the bytes that are there.
 */
#ifndef NW_TESTS_GOLDEN_H
#define NW_TESTS_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

#ifndef NW_GOLDEN_DIR
#define NW_GOLDEN_DIR "tests/golden"
#endif
#define GOLDEN_PATH(file) NW_GOLDEN_DIR "/" file /* GOLDEN_PATH("layers.nwg") */

#define GOLDEN_MAX_DIMS 8

/* ---- Stored tensors -------------------------------------------------------------------------------------------- */

typedef struct golden_tensor {
    const char *name;
    int ndim;
    uint32_t dims[GOLDEN_MAX_DIMS];
    size_t count;      /* the product of dims */
    const float *data; /* finite values, C order */
} golden_tensor;

typedef struct golden_file golden_file;

/*
 * A whole file, or the same from memory. NULL, and a sentence on stderr, if it is absent or corrupt. The label names
 * the bytes in that sentence; with NULL golden_parse is silent.
 */
golden_file *golden_load(const char *path);
golden_file *golden_parse(const void *bytes, size_t size, const char *label);
void golden_free(golden_file *file);

/* What the file holds, in its order. The tensors live as long as the file. */
size_t golden_count(const golden_file *file);
const golden_tensor *golden_at(const golden_file *file, size_t position);

/* By name; NULL if absent. golden_find says on stderr what is missing, golden_find_optional is silent. */
const golden_tensor *golden_find(const golden_file *file, const char *name);
const golden_tensor *golden_find_optional(const golden_file *file, const char *name);

/* ---- Generated numbers ----------------------------------------------------------------------------------------- */

enum {
    GOLDEN_STREAM_IMAGES = 1,
    GOLDEN_STREAM_LABELS = 2,
    GOLDEN_STREAM_STEP_IMAGES = 100, /* + step */
    GOLDEN_STREAM_STEP_LABELS = 200, /* + step */
    GOLDEN_STREAM_PARAMETERS = 1000, /* + position in the order of parameters() */
};

typedef enum golden_role { GOLDEN_WEIGHT, GOLDEN_BIAS, GOLDEN_GAMMA, GOLDEN_BETA } golden_role;

uint64_t golden_bits(uint64_t stream, uint64_t index);
float golden_value(uint64_t stream, uint64_t index);                     /* in [-1, 1), exact */
int32_t golden_label(uint64_t stream, uint64_t index, uint32_t classes); /* in [0, classes) */

/* out[i] = offset + scale * value(stream, i), in double, rounded once. */
void golden_fill(float *out, size_t count, uint64_t stream, double offset, double scale);

/* Images; and the parameter of that number, scaled by its role. fan_in (C R S, or C) matters for weights only. */
void golden_fill_images(float *out, size_t count, uint64_t stream);
void golden_fill_parameter(float *out, size_t count, uint64_t parameter, golden_role role, size_t fan_in);

/* |got - want| / |want| in the 2-norm; infinite if got is not finite. |got| if want is zero. */
double golden_distance(const float *got, const float *want, size_t count);

#endif
