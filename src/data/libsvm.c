/*
 * libsvm.c - see libsvm.h.
 *
 * Numbers of at most 15 digits with a power of ten of at most 22 are converted here: digits and power are exact doubles,
 * so one multiplication or division rounds once, as the C library does. Longer ones go to the C library.
 */
#include "data/libsvm.h"

#include "base/machine.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 256, EXACT_DIGITS = 15, EXACT_POWER = 22 };

typedef struct text {
    const uint8_t *at, *end;
    const char *name;
    int64_t line;
} text;

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }
static bool is_blank(uint8_t c) { return c == ' ' || c == '\t' || c == '\r'; }
static bool at_end_of_row(const text *t) { return t->at == t->end || *t->at == '\n' || *t->at == '#'; }
static bool at_end_of_word(const text *t) { return at_end_of_row(t) || is_blank(*t->at); }
static void skip_blanks(text *t)
{
    while (t->at < t->end && is_blank(*t->at)) t->at++;
}
static void skip_line(text *t)
{
    const uint8_t *newline = t->at < t->end ? memchr(t->at, '\n', (size_t)(t->end - t->at)) : NULL;
    t->at = newline ? newline + 1 : t->end;
    t->line++;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------- */

typedef struct digits {
    uint64_t mantissa; /* right while significant <= EXACT_DIGITS */
    int significant;
    int all;
} digits;

static void read_digits(text *t, digits *d)
{
    for (; t->at < t->end && is_digit(*t->at) && d->all < NUMBER_BYTES; t->at++) {
        d->all++;
        if (d->significant > 0 || *t->at != '0') d->significant++;
        if (d->significant <= EXACT_DIGITS) d->mantissa = d->mantissa * 10 + (uint64_t)(*t->at - '0');
    }
}

/* What stands there, for a message. */
typedef struct word {
    char text[32];
} word;

static word word_at(const text *t, const uint8_t *start)
{
    word w = {""};
    size_t left = (size_t)(t->end - start);
    for (size_t i = 0; i < left && i < sizeof w.text - 1 && start[i] > ' ' && start[i] < 127; i++)
        w.text[i] = (char)start[i];
    return w;
}

static nw_status bad_number(const text *t, const uint8_t *start, const char *what)
{
    return NW_FAIL(NW_E_FILE,
                   "%s:%lld: the %s '%s' is not a finite number of less than %d decimal digits; correct the line",
                   t->name, (long long)t->line, what, word_at(t, start).text, NUMBER_BYTES);
}

static nw_status long_number(const uint8_t *start, size_t length, double *value)
{
    char copy[NUMBER_BYTES + 1];
    memcpy(copy, start, length);
    copy[length] = 0;
    return nw_number_convert(copy, value);
}

static nw_status read_number(text *t, const char *what, double *value)
{
    static const double powers[EXACT_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const uint8_t *start = t->at;
    bool minus = t->at < t->end && *t->at == '-', negative_power = false;
    if (t->at < t->end && (*t->at == '-' || *t->at == '+')) t->at++;
    digits d = {0}, e = {0};
    read_digits(t, &d);
    int before = d.all;
    if (t->at < t->end && *t->at == '.') {
        t->at++;
        read_digits(t, &d);
    }
    bool good = d.all > 0;
    if (good && t->at < t->end && (*t->at == 'e' || *t->at == 'E')) {
        t->at++;
        negative_power = t->at < t->end && *t->at == '-';
        if (t->at < t->end && (*t->at == '-' || *t->at == '+')) t->at++;
        read_digits(t, &e);
        good = e.all > 0;
    }
    if (!good || t->at - start >= NUMBER_BYTES) return bad_number(t, start, what);
    int64_t power = (negative_power ? -1 : 1) * (int64_t)e.mantissa - (d.all - before);
    if (d.significant <= EXACT_DIGITS && e.significant <= 3 && power >= -EXACT_POWER && power <= EXACT_POWER) {
        double mantissa = (double)d.mantissa;
        *value = power < 0 ? mantissa / powers[-power] : mantissa * powers[power];
        if (minus) *value = -*value;
    } else {
        NW_TRY(long_number(start, (size_t)(t->at - start), value));
    }
    return isfinite(*value) ? NW_OK : bad_number(t, start, what);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

/* The label as it is written, for now. */
static nw_status read_label(text *t, int8_t *label)
{
    double value;
    NW_TRY(read_number(t, "label", &value));
    NW_FAIL_IF(!at_end_of_word(t) || !(value == -1 || value == 0 || value == 1 || value == 2), NW_E_FILE,
               "%s:%lld: a row begins with a label, and labels are -1 and 1, 0 and 1, or 1 and 2; this is a file of "
               "another kind, or the label is missing",
               t->name, (long long)t->line);
    *label = (int8_t)value;
    return NW_OK;
}

static nw_status read_index(text *t, int32_t previous, int32_t *index)
{
    const uint8_t *start = t->at;
    int64_t value = 0;
    while (t->at < t->end && is_digit(*t->at) && value <= NW_SPARSE_FEATURES) value = value * 10 + (*t->at++ - '0');
    NW_FAIL_IF(value > NW_SPARSE_FEATURES, NW_E_FILE, "%s:%lld: an index above %d is more than this program holds",
               t->name, (long long)t->line, NW_SPARSE_FEATURES);
    NW_FAIL_IF(t->at == start || t->at == t->end || *t->at != ':', NW_E_FILE,
               "%s:%lld: '%s' stands where INDEX:VALUE is expected; a row is a label and then such pairs", t->name,
               (long long)t->line, word_at(t, start).text);
    t->at++;
    NW_FAIL_IF(value < 1, NW_E_FILE, "%s:%lld: index 0; the features of these files count from 1", t->name,
               (long long)t->line);
    NW_FAIL_IF(value <= previous, NW_E_FILE, "%s:%lld: index %lld follows %d; indices of a row must ascend", t->name,
               (long long)t->line, (long long)value, previous);
    *index = (int32_t)value;
    return NW_OK;
}

static nw_status read_row(text *t, nw_sparse *s)
{
    int32_t index = 0;
    int64_t first = s->entries;
    NW_TRY(read_label(t, &s->label[s->rows]));
    for (skip_blanks(t); !at_end_of_row(t); skip_blanks(t)) {
        double value;
        NW_TRY(read_index(t, index, &index));
        NW_TRY(read_number(t, "value", &value));
        NW_FAIL_IF(!at_end_of_word(t), NW_E_FILE, "%s:%lld: a blank must follow the value of index %d", t->name,
                   (long long)t->line, index);
        s->index[s->entries] = index - 1;
        s->value[s->entries++] = value;
        if (index > s->features) s->features = index;
    }
    if (s->entries - first > s->longest) s->longest = s->entries - first;
    s->begin[++s->rows] = s->entries;
    return NW_OK;
}

/* Which two labels these are, and then -1 and 1 for them. */
static nw_status settle_labels(nw_sparse *s, const char *name, const nw_sparse *like)
{
    static const int8_t lesser[] = {-1, 0, 1}, greater[] = {1, 1, 2};
    bool zero = memchr(s->label, 0, (size_t)s->rows) != NULL, two = memchr(s->label, 2, (size_t)s->rows) != NULL;
    s->pair = like ? like->pair : two ? NW_LABELS_ONE_TWO : zero ? NW_LABELS_ZERO_ONE : NW_LABELS_MINUS_PLUS;
    for (int64_t i = 0; i < s->rows; i++) {
        bool known = s->label[i] == lesser[s->pair] || s->label[i] == greater[s->pair];
        NW_FAIL_IF(!known, NW_E_FILE, "%s: row %lld has label %d, but %s has the labels %d and %d; use two labels only",
                   name, (long long)i + 1, s->label[i], like ? "the training file" : "this file", lesser[s->pair],
                   greater[s->pair]);
        s->label[i] = s->label[i] == greater[s->pair] ? 1 : -1;
    }
    return NW_OK;
}

/* ---- files --------------------------------------------------------------------------------------------------------- */

static nw_status allocate(nw_sparse *s, int64_t rows, int64_t entries, const char *name)
{
    size_t r = (size_t)rows, e = (size_t)entries, available = nw_machine_available_memory();
    size_t bytes = (r + 1) * sizeof *s->begin + r + e * (sizeof *s->index + sizeof *s->value);
    NW_FAIL_IF(available && bytes > available, NW_E_MEMORY,
               "%s needs %.1f GB of memory and %.1f GB are available; use --limit for fewer rows", name,
               (double)bytes / 1e9, (double)available / 1e9);
    s->begin = malloc((r + 1) * sizeof *s->begin);
    s->label = malloc(r + 1);
    s->index = malloc((e + 1) * sizeof *s->index);
    s->value = malloc((e + 1) * sizeof *s->value);
    NW_FAIL_IF(!s->begin || !s->label || !s->index || !s->value, NW_E_MEMORY, "%s: no memory for %lld rows", name,
               (long long)rows);
    s->begin[0] = 0;
    return NW_OK;
}

/* The rows, and at least as many pairs as they have. */
static void count(text t, int64_t most, int64_t *rows, int64_t *pairs)
{
    *rows = *pairs = 0;
    while (t.at < t.end && *rows < most) {
        skip_blanks(&t);
        *rows += !at_end_of_row(&t);
        for (; !at_end_of_row(&t); t.at++) *pairs += *t.at == ':';
        skip_line(&t);
    }
}

static nw_status parse_plain(nw_sparse *s, const uint8_t *data, size_t size, const char *name,
                             const nw_libsvm_options *o)
{
    text t = {data, data + size, name, 1};
    int64_t most = o->limit > 0 ? o->limit : INT64_MAX, rows, pairs;
    count(t, most, &rows, &pairs);
    NW_TRY(allocate(s, rows, pairs, name));
    while (t.at < t.end && s->rows < most) {
        skip_blanks(&t);
        if (!at_end_of_row(&t)) NW_TRY(read_row(&t, s));
        skip_line(&t);
    }
    NW_FAIL_IF(s->rows == 0, NW_E_FILE, "%s has no rows; a row is a label and then pairs INDEX:VALUE", name);
    return settle_labels(s, name, o->like);
}

nw_status nw_libsvm_parse(nw_sparse *s, const uint8_t *data, size_t size, const char *name, const nw_libsvm_options *o)
{
    *s = (nw_sparse){0};
    uint8_t *owned = NULL;
    bool bzip2 = size > 3 && memcmp(data, "BZh", 3) == 0, xz = size > 6 && memcmp(data,
                                                                                  "\xfd"
                                                                                  "7zXZ",
                                                                                  6) == 0;
    NW_FAIL_IF(bzip2 || xz, NW_E_FILE, "%s is packed with %s, which is not read here; unpack it with '%s -dk'", name,
               bzip2 ? "bzip2" : "xz", bzip2 ? "bzip2" : "xz");
    if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b) {
        NW_TRY(nw_gunzip(data, size, name, o->most ? o->most : UINT32_MAX, &owned, &size));
        data = owned;
    }
    nw_status status = parse_plain(s, data, size, name, o);
    free(owned);
    if (status != NW_OK) nw_sparse_free(s);
    return status;
}

nw_status nw_libsvm_read(nw_sparse *s, const char *path, const nw_libsvm_options *o)
{
    nw_file file;
    *s = (nw_sparse){0};
    NW_TRY(nw_file_map(&file, path));
    nw_status status = nw_libsvm_parse(s, file.data, file.size, path, o);
    nw_file_unmap(&file);
    return status;
}

void nw_sparse_free(nw_sparse *s)
{
    free(s->begin);
    free(s->index);
    free(s->value);
    free(s->label);
    *s = (nw_sparse){0};
}

/* ---- finding ------------------------------------------------------------------------------------------------------- */

static bool find_in(const char *dir, char path[NW_PATH_SIZE])
{
    static const char *const names[] = {"train", "train.txt", "train.svm", "train.libsvm", "rcv1_train.binary"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int packed = 0; packed < 2; packed++) {
            char name[64];
            snprintf(name, sizeof name, "%s%s", names[i], packed ? ".gz" : "");
            if (nw_path_put(path, dir, name) == NW_OK && nw_file_is_regular(path)) return true;
        }
    return false;
}

/* The test file beside a training file: rcv1_train.binary and rcv1_test.binary, a9a.gz and a9a.t.gz. */
static void find_test(const char *train, char path[NW_PATH_SIZE])
{
    const char *slash = strrchr(train, '/'), *name = slash ? slash + 1 : train, *stem = strstr(name, "train");
    size_t length = strlen(train);
    bool packed = length > 3 && strcmp(train + length - 3, ".gz") == 0;
    if (packed) length -= 3;
    for (int i = 0; i < 4; i++) { /* packed as the training file is, then the other way */
        const char *end = (i % 2 == 1) == packed ? "" : ".gz";
        int wrote = -1;
        if (i < 2 && stem)
            wrote = snprintf(path, NW_PATH_SIZE, "%.*stest%.*s%s", (int)(stem - train), train,
                             (int)(length - (size_t)(stem + 5 - train)), stem + 5, end);
        else if (i >= 2)
            wrote = snprintf(path, NW_PATH_SIZE, "%.*s.t%s", (int)length, train, end);
        if (wrote > 0 && wrote < NW_PATH_SIZE && nw_file_is_regular(path)) return;
    }
    path[0] = 0;
}

nw_status nw_libsvm_find(const char *place, const char *test, char train_path[NW_PATH_SIZE],
                         char test_path[NW_PATH_SIZE])
{
    char below[NW_PATH_SIZE];
    NW_FAIL_IF(strlen(place) >= NW_PATH_SIZE || strlen(test) >= NW_PATH_SIZE, NW_E_ARGUMENT,
               "the path of a dataset has more than %d bytes", NW_PATH_SIZE - 1);
    if (nw_file_is_regular(place)) {
        snprintf(train_path, NW_PATH_SIZE, "%s", place);
    } else {
        NW_TRY(nw_path_put(below, place, "libsvm"));
        NW_FAIL_IF(
            !find_in(place, train_path) && !find_in(below, train_path), NW_E_FILE,
            "%s is neither a file of LIBSVM nor a folder with a file train, train.txt, train.svm, train.libsvm or "
            "rcv1_train.binary, plain or .gz; name the training file itself with --data-dir",
            place);
    }
    if (test[0])
        snprintf(test_path, NW_PATH_SIZE, "%s", test);
    else
        find_test(train_path, test_path);
    return NW_OK;
}
