/*
 * test_formats.c - parsers of dataset files, on files that Python, numpy and gzip wrote, and on those cut at every
 * byte.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/digest.h"
#include "data/python_batch.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/npz.h"
#include "data/raw.h"
#include "support/files.h"

#include <stdlib.h>
#include <string.h>

/* The last failure is a bad file and its message has all these words. */
static void check_message(nw_status status, const char *first, const char *second)
{
    assert_int_equal(status, NW_E_FILE);
    if (!strstr(nw_error_message(), first) || !strstr(nw_error_message(), second))
        fail_msg("'%s' lacks '%s' or '%s'", nw_error_message(), first, second);
}

/* The examples of RFC 1321. */
static void test_md5(void **state)
{
    static const char *const cases[][2] = {
        {"", "d41d8cd98f00b204e9800998ecf8427e"},
        {"abc", "900150983cd24fb0d6963f7d28e17f72"},
        {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "57edf4a22be3c955ac49da2e2107b67a"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[65];
        for (size_t split = 0; split <= strlen(cases[i][0]); split++) {
            nw_digest hash = nw_md5_begin();
            nw_digest_add(&hash, cases[i][0], split);
            nw_digest_add(&hash, cases[i][0] + split, strlen(cases[i][0]) - split);
            nw_digest_end(&hash, text);
            assert_string_equal(text, cases[i][1]);
        }
    }
}

/* ---- Pickles ----------------------------------------------------------------------------------------------------- */

static void check_batch(const char *name, const char *label_key, const int32_t want[3], bool has_mean)
{
    bytes b = fixture(name);
    nw_python_batch batch;
    int32_t labels[3];
    uint8_t pixels[36];
    float mean[12];
    bool found;
    assert_int_equal(nw_python_batch_open_memory(&batch, b.data, b.size, name, label_key), NW_OK);
    assert_int_equal(batch.count, 3);
    assert_int_equal(nw_python_batch_labels(&batch, 1, 1000, labels), NW_OK);
    assert_memory_equal(labels, want, sizeof labels);
    assert_int_equal(nw_python_batch_pixels(&batch, 12, pixels), NW_OK);
    for (int i = 0; i < 36; i++) assert_int_equal(pixels[i], i);
    assert_int_equal(nw_python_batch_mean(&batch, 12, mean, &found), NW_OK);
    assert_int_equal(found, has_mean);
    for (int i = 0; i < 12 && has_mean; i++) assert_true(mean[i] == (float)i / 2);
    check_message(nw_python_batch_pixels(&batch, 11, pixels), name, "11 bytes");
    nw_python_batch_close(&batch);
    release(&b);
}

static void test_batches(void **state)
{
    const int32_t want[3] = {0, 999, 6}, python2[3] = {0, 254, 6};
    (void)state;
    check_batch("pickle/numpy-protocol2", "labels", want, true);
    check_batch("pickle/numpy-protocol3", "labels", want, true);
    check_batch("pickle/numpy-protocol4", "labels", want, true);
    check_batch("pickle/numpy-protocol5", "labels", want, true);
    check_batch("pickle/python2", "labels", python2, false);
    check_batch("npz/stored.npz", "labels", want, true);
#if NW_HAVE_ZLIB
    check_batch("npz/deflated.npz", "labels", want, true);
#endif
}

static void test_rows(void **state)
{
    bytes b = fixture("pickle/rows");
    nw_python_batch batch;
    int32_t labels[3];
    uint8_t pixels[36];
    (void)state;
    assert_int_equal(nw_python_batch_open_memory(&batch, b.data, b.size, "rows", "labels"), NW_OK);
    assert_int_equal(nw_python_batch_labels(&batch, 1, 1000, labels), NW_OK);
    assert_int_equal(labels[1], 999);
    assert_int_equal(nw_python_batch_pixels(&batch, 12, pixels), NW_OK);
    for (int i = 0; i < 36; i++) assert_int_equal(pixels[i], i);
    check_message(nw_python_batch_labels(&batch, 0, 10, labels), "rows", "image 1 ");
    nw_python_batch_close(&batch);
    release(&b);
}

static void test_pickle_values(void **state)
{
    bytes b = fixture("pickle/scalars");
    nw_pickle *pickle;
    (void)state;
    assert_int_equal(nw_pickle_read(&pickle, b.data, b.size, "scalars"), NW_OK);
    const nw_pickle_value *root = nw_pickle_root(pickle), *labels = nw_pickle_find(root, "labels");
    const nw_pickle_value *x = nw_pickle_find(root, "x");
    assert_int_equal(labels->count, 2);
    assert_int_equal(labels->items[0]->integer, 5);
    assert_int_equal(labels->items[1]->integer, 6);
    assert_int_equal(nw_pickle_find(root, "data")->size, 0);
    assert_int_equal(x->kind, NW_PICKLE_TUPLE);
    assert_true(x->items[0]->real == 1.5);
    assert_int_equal(x->items[1]->kind, NW_PICKLE_NONE);
    assert_int_equal(x->items[2]->integer, 1);
    assert_int_equal(x->items[3]->integer, -3);
    assert_null(nw_pickle_find(root, "absent"));
    assert_null(nw_pickle_find(x, "absent"));
    nw_pickle_free(pickle);
    release(&b);

    b = fixture("pickle/shared");
    assert_int_equal(nw_pickle_read(&pickle, b.data, b.size, "shared"), NW_OK);
    root = nw_pickle_root(pickle);
    assert_ptr_equal(nw_pickle_find(root, "a"), nw_pickle_find(root, "b"));
    assert_memory_equal(nw_pickle_find(root, "c")->bytes, "xyz", 3);
    assert_true(nw_pickle_find(root, "d")->integer == (int64_t)1 << 40);
    nw_pickle_free(pickle);
    release(&b);
}

static void test_pickle_executes_nothing(void **state)
{
    bytes b = fixture("pickle/hostile");
    nw_pickle *pickle;
    (void)state;
    check_message(nw_pickle_read(&pickle, b.data, b.size, "hostile"), "posix.system", "offset 2");
    assert_null(pickle);
    release(&b);
}

/* Programs that no pickler writes. */
static void test_pickle_hostile_programs(void **state)
{
    static const struct {
        const char *program;
        size_t size;
        const char *words;
    } cases[] = {
        {"", 0, "offset 0"},
        {"\x80\x09.", 3, "protocol"},
        {"\x80\x02.", 3, "something left"},
        {"\x80\x02NN.", 5, "something left"},
        {"\x80\x02(N.", 5, "something left"},
        {"\x80\x02"
         "e",
         3, "no mark"},
        {"\x80\x02"
         "a",
         3, "empty"},
        {"\x80\x02"
         "Na",
         4, "another kind"},
        {"\x80\x02NNa", 5, "another kind"},
        {"\x80\x02](Na", 6, "offset 5"},
        {"\x80\x02R", 3, "empty"},
        {"\x80\x02N)R.", 6, "no known function"},
        {"\x80\x02}(Nu.", 7, "no value"},
        {"\x80\x02h\x05.", 5, "never put"},
        {"\x80\x02Nr\xff\xff\xff\x7f.", 9, "leaps"},
        {"\x80\x02X\xff\xff\xff\xff", 7, "ends inside"},
        {"\x80\x02\x8e\xff\xff\xff\xff\xff\xff\xff\xff", 11, "ends inside"},
        {"\x80\x02\x8a\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01.", 14, "64 bits"},
        {"\x80\x02"
         "cnumpy\nndarray",
         16, "inside a name"},
        {"\x80\x02"
         "cnumpy\ndtype\nU\x01O\x85R.",
         20, "type 'O'"},
        {"\x80\x02"
         "cnumpy\nndarray\n)R.",
         20, "names a class"},
        {"\x80\x02i__main__\nX\n.", 15, "opcode 0x69"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bytes whole = {(uint8_t *)cases[i].program, cases[i].size}, b = cut(whole, cases[i].size);
        nw_pickle *pickle;
        check_message(nw_pickle_read(&pickle, b.data, b.size, "file"), "file", cases[i].words);
        release(&b);
    }
}

/* A text that is converted again and again would grow without end. */
static void test_pickle_bounds_conversions(void **state)
{
    enum { TEXT = 1000, TIMES = 100 };
    uint8_t program[2 + 5 + TEXT + 2 + 40 + TIMES * 16], *at = program;
    nw_pickle *pickle;
    (void)state;
    memcpy(at, "\x80\x02X\xe8\x03\0\0", 7), at += 7;
    memset(at, 'x', TEXT), at += TEXT;
    memcpy(at, "q\x01", 2), at += 2;
    memcpy(at, "c_codecs\nencode\nq\x02", 18), at += 18;
    for (int i = 0; i < TIMES; i++) memcpy(at, "h\x02h\x01\x85R", 6), at += 6;
    *at++ = '.';
    check_message(nw_pickle_read(&pickle, program, (size_t)(at - program), "bomb"), "bomb", "more bytes than");
}

/* Cut anywhere, a file is refused: no shorter file is a whole one, and no byte beyond is touched. */
static void check_cuts(const char *name, nw_status (*read)(const uint8_t *, size_t))
{
    bytes whole = fixture(name);
    assert_int_equal(read(whole.data, whole.size), NW_OK);
    for (size_t size = 0; size < whole.size; size += size < 600 ? 1 : 97) {
        bytes part = cut(whole, size);
        nw_status status = read(part.data, part.size);
        if (status != NW_E_FILE) fail_msg("%s cut at %zu: status %d", name, size, (int)status);
        release(&part);
    }
    release(&whole);
}

static nw_status read_pickle(const uint8_t *data, size_t size)
{
    nw_pickle *pickle;
    nw_status status = nw_pickle_read(&pickle, data, size, "file");
    nw_pickle_free(pickle);
    return status;
}

static nw_status read_npz(const uint8_t *data, size_t size)
{
    nw_array array;
    uint8_t *owned;
    bool found;
    nw_status status = nw_npz_read(&array, data, size, "file", "data", &found, &owned);
    free(owned);
    return status;
}

static nw_status read_npy(const uint8_t *data, size_t size)
{
    nw_array array;
    return nw_npy_read(&array, data, size, "file");
}

static nw_status read_idx(const uint8_t *data, size_t size)
{
    nw_array array;
    uint8_t *owned;
    nw_status status = nw_idx_read_packed(&array, data, size, "file", 1 << 20, &owned);
    free(owned);
    return status;
}

static nw_status read_raw(const uint8_t *data, size_t size)
{
    nw_dataset d = {0};
    char **names;
    nw_status status = nw_raw_parse(&d, data, size, "file", &names);
    free(names);
    return status;
}

static void test_cuts(void **state)
{
    (void)state;
    check_cuts("pickle/numpy-protocol2", read_pickle);
    check_cuts("pickle/numpy-protocol3", read_pickle);
    check_cuts("pickle/numpy-protocol4", read_pickle);
    check_cuts("pickle/python2", read_pickle);
    check_cuts("npz/stored.npz", read_npz);
    check_cuts("npz/big-endian.npy", read_npy);
    check_cuts("idx/images", read_idx);
    check_cuts("raw/tiny.nwraw", read_raw);
#if NW_HAVE_ZLIB
    check_cuts("npz/deflated.npz", read_npz);
    check_cuts("idx/images.gz", read_idx);
#endif
}

/* ---- npy and npz ------------------------------------------------------------------------------------------------- */

static void test_npy(void **state)
{
    bytes b = fixture("npz/big-endian.npy");
    nw_array array;
    (void)state;
    assert_int_equal(nw_npy_read(&array, b.data, b.size, "array"), NW_OK);
    assert_int_equal(array.dims, 2);
    assert_int_equal(array.shape[0], 3);
    assert_int_equal(array.shape[1], 2);
    for (uint64_t i = 0; i < 6; i++) assert_int_equal(nw_array_int(&array, i), i);
    b.data[6] = 9;
    check_message(nw_npy_read(&array, b.data, b.size, "array"), "array", "version 9");
    release(&b);
}

static void test_npz_members(void **state)
{
    bytes b = fixture("npz/stored.npz");
    nw_array array;
    uint8_t *owned;
    bool found;
    (void)state;
    assert_int_equal(nw_npz_read(&array, b.data, b.size, "file", "mean", &found, &owned), NW_OK);
    assert_true(found);
    assert_null(owned);
    assert_true(nw_array_float(&array, 11) == 5.5);
    assert_int_equal(nw_npz_read(&array, b.data, b.size, "file", "meat", &found, &owned), NW_OK);
    assert_false(found);
    release(&b);
#if NW_HAVE_ZLIB
    b = fixture("npz/deflated.npz");
    assert_int_equal(nw_npz_read(&array, b.data, b.size, "file", "labels", &found, &owned), NW_OK);
    assert_non_null(owned);
    assert_int_equal(nw_array_int(&array, 1), 1000);
    free(owned);
    b.data[100] ^= 0x55; /* inside the first member's data */
    assert_int_equal(nw_npz_read(&array, b.data, b.size, "file", "data", &found, &owned), NW_E_FILE);
    release(&b);
#endif
}

static void test_array_elements(void **state)
{
    const uint8_t data[8] = {0xff, 0xfe, 0, 0, 0, 0, 0xc0, 0x3f}; /* little-endian f4 at 4: 1.5 */
    nw_array a = {.dims = 1, .shape = {4}};
    (void)state;
    assert_int_equal(nw_array_type(&a, "<i2", 3, "t"), NW_OK);
    assert_int_equal(nw_array_finish(&a, data, 8, "t"), NW_OK);
    assert_int_equal(nw_array_int(&a, 0), -257);
    assert_int_equal(nw_array_type(&a, ">i2", 3, "t"), NW_OK);
    assert_int_equal(nw_array_int(&a, 0), -2);
    assert_int_equal(nw_array_type(&a, "|u1", 3, "t"), NW_OK);
    assert_int_equal(nw_array_int(&a, 0), 255);
    a.shape[0] = 2;
    assert_int_equal(nw_array_type(&a, "<f4", 3, "t"), NW_OK);
    assert_int_equal(nw_array_finish(&a, data, 8, "t"), NW_OK);
    assert_true(nw_array_float(&a, 1) == 1.5);
    assert_int_equal(nw_array_int(&a, 1), 1);
    a.dims = 2;
    a.shape[0] = (uint64_t)1 << 63;
    a.shape[1] = 2;
    check_message(nw_array_finish(&a, data, 8, "t"), "t", "overflows");
    check_message(nw_array_type(&a, "<c8", 3, "t"), "t", "<c8");
    check_message(nw_array_type(&a, "", 0, "t"), "t", "type ''");
}

/* ---- IDX --------------------------------------------------------------------------------------------------------- */

static void test_idx(void **state)
{
    bytes b = fixture("idx/images");
    nw_array array;
    uint8_t *owned;
    (void)state;
    assert_int_equal(nw_idx_read_packed(&array, b.data, b.size, "file", 1 << 20, &owned), NW_OK);
    assert_null(owned);
    assert_int_equal(array.dims, 3);
    assert_int_equal(array.shape[2], 5);
    assert_int_equal(array.data[59], 59);
    b.data[2] = 77;
    check_message(nw_idx_read(&array, b.data, b.size, "file"), "file", "offset 2");
    b.data[2] = 8;
    b.data[4] = 0x7f;
    check_message(nw_idx_read(&array, b.data, b.size, "file"), "file", "damaged");
    release(&b);
    b = fixture("idx/shorts");
    assert_int_equal(nw_idx_read(&array, b.data, b.size, "file"), NW_OK);
    assert_int_equal(nw_array_int(&array, 0), -2);
    assert_int_equal(nw_array_int(&array, 1), 300);
    release(&b);
}

static void test_idx_gz(void **state)
{
    (void)state;
#if NW_HAVE_ZLIB
    bytes b = fixture("idx/images.gz");
    nw_array array;
    uint8_t *owned;
    assert_int_equal(nw_idx_read_packed(&array, b.data, b.size, "file", 76, &owned), NW_OK);
    assert_int_equal(array.data[59], 59);
    free(owned);
    check_message(nw_idx_read_packed(&array, b.data, b.size, "file", 75, &owned), "file", "more than 75 bytes");
    b.data[40] ^= 0xff;
    check_message(nw_idx_read_packed(&array, b.data, b.size, "file", 1 << 20, &owned), "file", "damaged");
    release(&b);
    b = fixture("idx/labels.gz"); /* two members in a row */
    assert_int_equal(nw_idx_read_packed(&array, b.data, b.size, "file", 1 << 20, &owned), NW_OK);
    assert_int_equal(array.count, 3);
    assert_memory_equal(array.data, "\x07\x00\x09", 3);
    free(owned);
    release(&b);
#else
    skip();
#endif
}

/* ---- CIFAR ------------------------------------------------------------------------------------------------------- */

static void test_cifar(void **state)
{
    bytes b = fixture("cifar/cifar10.bin");
    int32_t labels[2];
    uint8_t *pixels = malloc(2 * NW_CIFAR_PIXELS);
    uint64_t count;
    (void)state;
    assert_int_equal(nw_cifar_count(b.size, "file", 1, &count), NW_OK);
    assert_int_equal(count, 2);
    assert_int_equal(nw_cifar_parse(b.data, b.size, "file", 1, 10, labels, pixels), NW_OK);
    assert_int_equal(labels[0], 3);
    assert_int_equal(labels[1], 9);
    for (int i = 0; i < 2 * NW_CIFAR_PIXELS; i++) assert_int_equal(pixels[i], i & 255);
    b.data[3073] = 10;
    check_message(nw_cifar_parse(b.data, b.size, "file", 1, 10, labels, pixels), "label 10", "offset 3073");
    check_message(nw_cifar_count(b.size - 1, "file", 1, &count), "file", "offset 3073");
    check_message(nw_cifar_count(0, "file", 1, &count), "file", "0 bytes");
    release(&b);
    b = fixture("cifar/cifar100.bin");
    assert_int_equal(nw_cifar_parse(b.data, b.size, "file", 2, 100, labels, pixels), NW_OK);
    assert_int_equal(labels[0], 99);
    b.data[1] = 100;
    check_message(nw_cifar_parse(b.data, b.size, "file", 2, 100, labels, pixels), "label 100", "offset 1");
    release(&b);
    free(pixels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_md5),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_pickle_values),
        cmocka_unit_test(test_pickle_executes_nothing),
        cmocka_unit_test(test_pickle_hostile_programs),
        cmocka_unit_test(test_pickle_bounds_conversions),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_npy),
        cmocka_unit_test(test_npz_members),
        cmocka_unit_test(test_array_elements),
        cmocka_unit_test(test_idx),
        cmocka_unit_test(test_idx_gz),
        cmocka_unit_test(test_cifar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
