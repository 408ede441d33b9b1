/*
 * libsvm.h - rows of sparse numbers with one of two labels each, from text as LIBSVM's authors publish it.
 *
 *   LABEL INDEX:VALUE INDEX:VALUE ...  # comment
 *
 * A line is a row; indices count from 1 and ascend; what is not named is 0. Blank lines and comments are passed over. A file
 * has the labels -1 and 1, 0 and 1, or 1 and 2: the lesser becomes -1, the greater 1. A file of one label alone is read as
 * if it had -1 and 1, unless another file, read before, says otherwise: a test file takes the labels of its training file.
 *
 * In memory rows are compressed (CSR): row r has the entries begin[r] to begin[r + 1] - 1. Reading passes twice over the
 * text, first to count, so memory is taken once and never more than some times the file. gzip is unpacked.
 */
#ifndef NW_DATA_LIBSVM_H
#define NW_DATA_LIBSVM_H

#include "data/bytes.h"

enum { NW_SPARSE_FEATURES = 1 << 30 }; /* most */

typedef enum nw_label_pair { NW_LABELS_MINUS_PLUS, NW_LABELS_ZERO_ONE, NW_LABELS_ONE_TWO } nw_label_pair;

typedef struct nw_sparse {
    int64_t rows, entries;
    int32_t features; /* the greatest index of the file */
    nw_label_pair pair;
    int64_t longest; /* entries of the longest row */
    int64_t *begin;  /* rows + 1 */
    int32_t *index;  /* from 0 */
    double *value;
    int8_t *label; /* 1 or -1 */
} nw_sparse;

typedef struct nw_libsvm_options {
    int64_t limit;         /* the first rows only; 0: all */
    const nw_sparse *like; /* whose labels these are; NULL: its own */
    size_t most;           /* bytes that a packed file may unpack to; 0: four gigabytes */
} nw_libsvm_options;

/* NW_E_FILE names file, line and remedy. After a failure there is nothing to free. */
nw_status nw_libsvm_parse(nw_sparse *rows, const uint8_t *data, size_t size, const char *name,
                          const nw_libsvm_options *options);
nw_status nw_libsvm_read(nw_sparse *rows, const char *path, const nw_libsvm_options *options);
void nw_sparse_free(nw_sparse *rows);

/* The files that `place` means: a training file, or a folder that holds one (train, train.txt, train.svm, train.libsvm,
 * rcv1_train.binary, each plain or .gz). The test file is `test`, or what lies beside the training file: the same name
 * with test for train, or with .t behind it; test_path is "" where there is none. */
nw_status nw_libsvm_find(const char *place, const char *test, char train_path[NW_PATH_SIZE],
                         char test_path[NW_PATH_SIZE]);

#endif
