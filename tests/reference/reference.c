/*
 * reference.c - compiles the plain-loop operators of reference_impl.h for float and for double.
 *
 * NAME(x) pastes the suffix of the type to a name; REAL is the type. Index arithmetic lives here, once for both.
 */
#include "reference/reference.h"

#include <math.h>

int nw_ref_out(int extent, int window, int stride, int pad) { return (extent + 2 * pad - window) / stride + 1; }

/* The position of [i][j] in an array [.][J]. */
static size_t at2(int J, int i, int j) { return (size_t)i * (size_t)J + (size_t)j; }

/* The position of [i][j][k][l] in an array [.][J][K][L]. */
static size_t at4(int J, int K, int L, int i, int j, int k, int l)
{
    return ((((size_t)i * (size_t)J + (size_t)j) * (size_t)K + (size_t)k) * (size_t)L) + (size_t)l;
}

/* The number of elements of an array [i][j][k][l]. */
static size_t volume(int i, int j, int k, int l) { return (size_t)i * (size_t)j * (size_t)k * (size_t)l; }

static bool inside(int position, int extent) { return position >= 0 && position < extent; }

#define REAL    float
#define NAME(x) x##_f
#include "reference/reference_impl.h"
#undef REAL
#undef NAME

#define REAL    double
#define NAME(x) x##_d
#include "reference/reference_impl.h"
#undef REAL
#undef NAME
