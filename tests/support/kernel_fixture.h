/*
 * kernel_fixture.h - what the kernel tests share: runs over every table, guarded memory, random sources and sinks.
 *
 * A test makes its values and the twin's answer once, as plain NCHW arrays of double, and gives a body to fx_for_runs,
 * which calls it for every usable table of a type, blocks of 16 and 32 images, and one thread and 2, 3 or 7 in turn
 * (fewer where choice.h is told so).
 * The body builds tensors, calls the kernel, compares, and returns a hash of every byte the kernel wrote; the hashes of
 * both thread counts must agree.
 *
 * Numbers. For f32 tables inputs are normal deviates. For bf16 tables they are multiples of a power of two with few
 * bits, scales and shifts are eighths: then every source is exact in f32, whether or not the compiler fuses, and its
 * rounding to bf16 is known to the twin. What is left to tolerate is the order of f32 sums and the rounding of outputs.
 *
 * Memory from fx_alloc is filled with 0xFF, a NaN in both types, and followed by guard bytes (under the address
 * sanitizer by its own), so that reads of what nobody wrote and writes beyond the end are found.
 */
#ifndef NW_TESTS_KERNEL_FIXTURE_H
#define NW_TESTS_KERNEL_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "compute/isa.h"
#include "compute/kernels.h"

typedef struct fx_shape {
    int n, c, h, w;
} fx_shape;

static inline size_t fx_count(fx_shape s) { return (size_t)s.n * (size_t)s.c * (size_t)s.h * (size_t)s.w; }

/* ---- failures and memory --------------------------------------------------------------------------------------- */

/* What is being tested, for the messages of failures. Forgets fx_expect_size. */
void fx_describe(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Fails the test, naming table, block, threads and description. */
void fx_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Aligned to 64 bytes, as the arena does. Freed by fx_release, in the order of a stack. */
void *fx_alloc(size_t bytes, const char *name);
size_t fx_mark(void);
void fx_release(size_t mark);
void fx_check_guards(void);

/* ---- runs ------------------------------------------------------------------------------------------------------- */

typedef struct fx_run {
    const nw_kernels *kernels;
    int block, threads;
} fx_run;

typedef uint64_t (*fx_body)(const fx_run *run, void *context);

void fx_for_runs(nw_dtype table, fx_body body, void *context);
/* Scratch of exactly `need`. */
nw_exec fx_exec(const fx_run *run, nw_need need);
uint64_t fx_hash(uint64_t hash, const void *bytes, size_t count);
uint64_t fx_hash_tensor(uint64_t hash, const nw_tensor *t);
enum { FX_HASH_START = 1469598103 };

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* Values for a tensor of `type` in a table of type `table`; see above. */
double *fx_values(nw_rng *rng, size_t count, nw_dtype table, nw_dtype type);
double *fx_zeros(size_t count);
double *fx_doubles(const float *values, size_t count);
float *fx_floats(const double *values, size_t count, const char *name);
/* As a kernel of this table multiplies them: rounded to bf16 or as they are. */
double *fx_rounded(const double *values, size_t count, nw_dtype table);
/* Per-channel factors or terms in +-2, never near zero: `pitch` floats, zero beyond c. */
float *fx_channels(nw_rng *rng, int c, nw_dtype table, const char *name);
int fx_pick(nw_rng *rng, const int *list, int count);
bool fx_chance(nw_rng *rng, uint32_t one_in);

nw_tensor fx_tensor(fx_shape shape, int block, nw_dtype type, const char *name); /* of NaNs */
nw_tensor fx_tensor_of(const double *values, fx_shape shape, int block, nw_dtype type, const char *name);

/* ---- comparing -------------------------------------------------------------------------------------------------- */

/* Relative to the root mean square of what is wanted. Sums of L products in f32 differ from the exact ones by about
 * 0.3 sqrt(L) 2^-24: 2e-6 for the longest here (10^4); the worst of 10^5 elements lies 5 times higher. Seen so
 * far: 9e-7 and 7e-6. */
#define FX_L2      2e-6
#define FX_ELEMENT 2e-5
/* Of one rounding to bf16: half of the last of 8 bits. */
#define FX_BF16 (0.501 / 128)

/* The root mean square of the values that are now compared, if their sums did not cancel. It counts where it is larger
 * than that of what is wanted: few values may all be small by chance, and then say nothing about the error. */
void fx_expect_size(double size);
/* Elements may differ by FX_ELEMENT of the root mean square, for bf16 by a rounding more; all together by FX_L2. */
void fx_compare(const char *what, const float *got, const double *want, fx_shape shape, nw_dtype type);
/* The same, and the zeros of tensor.h's invariant. */
void fx_compare_tensor(const char *what, const nw_tensor *got, const double *want);
void fx_check_invariant(const char *what, const nw_tensor *t);
/* |got - want| <= allowed, which NaN is not. */
void fx_near(const char *what, int index, double got, double want, double allowed);
/* The partial moments of a tensor whose values should be `want`. */
void fx_check_moments(const nw_tensor *y, const float *partial, const double *want);

/* ---- sources ---------------------------------------------------------------------------------------------------- */

typedef enum fx_form {
    FX_PLAIN,
    FX_RELU,
    FX_AFFINE,
    FX_AFFINE_RELU,     /* what batch norm leaves to its consumer */
    FX_GRADIENT,        /* (c1 g + c2) + c3 y */
    FX_RESIDUAL,        /* relu(affine + plain) */
    FX_RESIDUAL_AFFINE, /* relu(affine + affine) */
    FX_RELUS,           /* relu(affine) + relu(affine) */
    FX_INVERSE,         /* affine - relu(affine) */
    FX_FORMS
} fx_form;

typedef struct fx_source_values {
    fx_shape shape;
    fx_form form;
    nw_dtype table, type[2];
    double *view[2]; /* [1] is NULL where there is one view */
    float *scale[2], *shift[2];
    double *value;
} fx_source_values;

/* type_a, type_b: of the tensors behind the views. */
fx_source_values fx_make_source(nw_rng *rng, fx_shape shape, fx_form form, nw_dtype table, nw_dtype type_a,
                                nw_dtype type_b);
nw_source fx_source(const fx_source_values *values, int block, nw_tensor tensors[2]);
const char *fx_form_name(fx_form form);
nw_dtype fx_type(nw_rng *rng, nw_dtype table); /* f32, or by chance bf16 in a bf16 table */
static inline const char *fx_type_name(nw_dtype type) { return type == NW_BF16 ? "bf16" : "f32"; }

/* ---- sinks ------------------------------------------------------------------------------------------------------ */

typedef enum fx_add { FX_ADD_NONE, FX_ADD_OTHER, FX_ADD_OUTPUT, FX_ADDS } fx_add;
typedef enum fx_gate { FX_GATE_NONE, FX_GATE_PLAIN, FX_GATE_AFFINE, FX_GATES } fx_gate;

typedef struct fx_sink_values {
    fx_shape shape;
    fx_add add;
    fx_gate gate;
    bool sums;
    int norms;
    nw_dtype add_type, gate_type, norm_type[NW_SINK_NORMS];
    double *added, *gated, *y[NW_SINK_NORMS];
    float *scale, *shift, *mean[NW_SINK_NORMS];
} fx_sink_values;

typedef struct fx_sink {
    nw_sink sink;
    nw_tensor add, gate, y[NW_SINK_NORMS];
} fx_sink;

/* A random one for a gradient of `type`; its tensors have that type too, or by chance another one. */
fx_sink_values fx_make_sink(nw_rng *rng, fx_shape shape, nw_dtype table, nw_dtype type);
/* What the sink makes of a gradient, in place. */
void fx_sink_apply(const fx_sink_values *values, double *gradient);
/* Tensors and sums for a run; fills `out` if it is added to. */
void fx_sink_open(const fx_sink_values *values, nw_tensor *out, fx_sink *sink);
/* Checks the sums for the gradient that is wanted; returns the hash with them. */
uint64_t fx_sink_check(const fx_sink_values *values, const fx_sink *sink, const nw_tensor *out, const double *want,
                       uint64_t hash);
const char *fx_sink_name(const fx_sink_values *values); /* in a static buffer */

#endif
