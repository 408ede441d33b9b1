/*
 * test_safetensors.c - the file format: what is written byte for byte, what comes back, other widths of floats, and
 * files that are truncated, damaged or made to mislead, each refused with a sentence that names what is wrong.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_read.h"
#include "base/rng.h"
#include "support/scratch.h"
#include "checkpoint/safetensors.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static void save(const char *path, const nw_saved_list *list, const nw_saved_note *notes, int note_count)
{
    nw_file_writer out;
    assert_int_equal(nw_file_create(&out, path), NW_OK);
    assert_int_equal(nw_safetensors_write(&out, list, notes, note_count), NW_OK);
    assert_int_equal(nw_file_finish(&out, NULL), NW_OK);
}

/* A file made by hand: any header, any data. */
static nw_status open_made(nw_safetensors **file, const char *header, size_t data_bytes)
{
    static unsigned char bytes[4096];
    uint64_t length = strlen(header);
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    unsigned char *copy = malloc(8 + length + data_bytes);
    memcpy(copy, bytes, 8 + length + data_bytes);
    nw_status status = nw_safetensors_open_memory(file, copy, 8 + length + data_bytes, "made");
    if (status != NW_OK) free(copy); /* otherwise the file reads from it; such tests do not end here */
    return status;
}

TEST(test_bytes)
{
    static const float weights[4] = {1, -2, 0.5f, 4};
    static const int64_t counter = 77;
    static const uint8_t flags[3] = {1, 2, 3};
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                                 "\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},"
                                 "\"flags\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[24,27]}}";
    nw_saved_list list = {0};
    nw_saved_note note = {"format", "pt"};
    assert_int_equal(nw_saved_list_add(&list, "flags", NW_SAVED_U8, 1, (int64_t[]){3}, flags), NW_OK);
    assert_int_equal(nw_saved_list_add(&list, "w", NW_SAVED_F32, 2, (int64_t[]){2, 2}, weights), NW_OK);
    assert_int_equal(nw_saved_list_add(&list, "n", NW_SAVED_I64, 0, NULL, &counter), NW_OK);
    save(scratch("x"), &list, &note, 1);
    nw_saved_list_free(&list);
    char *data;
    size_t size;
    uint64_t length;
    assert_int_equal(nw_file_read(scratch("x"), 10000, &data, &size), NW_OK);
    memcpy(&length, data, 8);
    assert_int_equal(length, (strlen(header) + 7) / 8 * 8);
    assert_memory_equal(data + 8, header, strlen(header));
    for (size_t i = strlen(header); i < length; i++) assert_int_equal(data[8 + i], ' ');
    assert_int_equal(size, 8 + length + 27);
    assert_memory_equal(data + 8 + length, &counter, 8);
    assert_memory_equal(data + 8 + length + 8, weights, 16);
    assert_memory_equal(data + 8 + length + 24, flags, 3);
    free(data);
}

TEST(test_round_trip)
{
    enum { TENSORS = 50 };
    nw_rng rng = nw_rng_make(3, NW_PURPOSE_TEST, 0, 0);
    nw_saved_list list = {0};
    static float data[TENSORS][64];
    char name[64];
    for (int i = 0; i < TENSORS; i++) {
        int64_t shape[3] = {nw_rng_below(&rng, 4), 1 + nw_rng_below(&rng, 4), 1 + nw_rng_below(&rng, 4)};
        int dims = (int)nw_rng_below(&rng, 4);
        for (int j = 0; j < 64; j++) data[i][j] = nw_rng_normal(&rng);
        snprintf(name, sizeof name, "layer.%d \"\xc3\xa9\"\\", i);
        assert_int_equal(nw_saved_list_add(&list, name, NW_SAVED_F32, dims, shape, data[i]), NW_OK);
    }
    save(scratch("many"), &list, NULL, 0);
    nw_safetensors *file;
    assert_int_equal(nw_safetensors_open(&file, scratch("many")), NW_OK);
    assert_int_equal(nw_safetensors_count(file), TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        int index = nw_safetensors_find(file, list.at[i].name);
        assert_true(index >= 0);
        assert_true(nw_saved_tensor_same_shape(nw_safetensors_at(file, index), &list.at[i]));
        size_t elements = 1;
        for (int d = 0; d < list.at[i].dims; d++) elements *= (size_t)list.at[i].shape[d];
        assert_int_equal(nw_safetensors_elements(file, index), elements);
        float out[65];
        memset(out, 0xa5, sizeof out);
        assert_int_equal(nw_safetensors_read_f32(file, index, out), NW_OK);
        assert_memory_equal(out, data[i], elements * sizeof(float));
        uint32_t guard;
        memcpy(&guard, &out[elements], 4);
        assert_int_equal(guard, 0xa5a5a5a5u);
    }
    assert_int_equal(nw_safetensors_find(file, "layer.50"), -1);
    assert_int_equal(nw_safetensors_find(file, ""), -1);
    nw_safetensors_close(file);
    nw_saved_list_free(&list);
}

TEST(test_empty_list)
{
    nw_saved_list list = {0};
    nw_safetensors *file;
    save(scratch("empty"), &list, NULL, 0);
    assert_int_equal(nw_safetensors_open(&file, scratch("empty")), NW_OK);
    assert_int_equal(nw_safetensors_count(file), 0);
    nw_safetensors_close(file);
}

TEST(test_writer_refuses)
{
    nw_file_writer out;
    float x[1] = {0};
    assert_int_equal(nw_file_create(&out, scratch("bad")), NW_OK);
    nw_saved_list list = {0};
    assert_int_equal(nw_saved_list_add(&list, "a", NW_SAVED_F32, 9, (int64_t[9]){0}, x), NW_E_ARGUMENT);
    assert_int_equal(nw_saved_list_add(&list, "a", NW_SAVED_F32, 0, NULL, x), NW_OK);
    assert_int_equal(nw_saved_list_add(&list, "b", NW_SAVED_F32, 0, NULL, x), NW_OK);
    assert_int_equal(nw_saved_list_add(&list, "a", NW_SAVED_F32, 0, NULL, x), NW_OK);
    assert_int_equal(nw_safetensors_write(&out, &list, NULL, 0), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "'a'"));
    assert_int_equal(out.bytes, 0); /* nothing was written before that was found */
    list.at[2].shape[0] = -1;
    list.at[2].dims = 1;
    assert_int_equal(nw_safetensors_write(&out, &list, NULL, 0), NW_E_ARGUMENT);
    nw_saved_list_free(&list);
    assert_int_equal(nw_saved_list_add(&list, "__metadata__", NW_SAVED_F32, 0, NULL, x), NW_OK);
    assert_int_equal(nw_safetensors_write(&out, &list, NULL, 0), NW_E_ARGUMENT);
    nw_saved_list_free(&list);
    nw_file_abandon(&out);
}

/* Known bit patterns of the other widths. */
TEST(test_conversions)
{
    static const uint16_t half[] = {0x0000, 0x8000, 0x3c00, 0xc000, 0x7bff, 0x0400,
                                    0x0001, 0x83ff, 0x7c00, 0xfc00, 0x7e00, 0x3555};
    static const float half_value[] = {0,        -0.0f,         1,        -2,        65504, 0x1p-14f,
                                       0x1p-24f, -0x1.ff8p-15f, INFINITY, -INFINITY, NAN,   0x1.554p-2f};
    static const uint16_t brain[] = {0x3f80, 0xbfc0, 0x7f80, 0x0001};
    static const float brain_value[] = {1, -1.5f, INFINITY, 0x1p-133f};
    static const double wide[] = {1.0, 0.1, -1e300, 1e-300};
    static const float wide_value[] = {1.0f, 0.1f, -INFINITY, 0};
    static const int32_t integers[] = {1};
    nw_saved_list list = {0};
    assert_int_equal(nw_saved_list_add(&list, "half", NW_SAVED_F16, 1, (int64_t[]){12}, half), NW_OK);
    assert_int_equal(nw_saved_list_add(&list, "brain", NW_SAVED_BF16, 1, (int64_t[]){4}, brain), NW_OK);
    assert_int_equal(nw_saved_list_add(&list, "wide", NW_SAVED_F64, 1, (int64_t[]){4}, wide), NW_OK);
    assert_int_equal(nw_saved_list_add(&list, "int", NW_SAVED_I32, 1, (int64_t[]){1}, integers), NW_OK);
    save(scratch("mixed"), &list, NULL, 0);
    nw_saved_list_free(&list);
    nw_safetensors *file;
    float out[16];
    assert_int_equal(nw_safetensors_open(&file, scratch("mixed")), NW_OK);
    assert_int_equal(nw_safetensors_read_f32(file, nw_safetensors_find(file, "half"), out), NW_OK);
    for (int i = 0; i < 12; i++)
        if (isnan(half_value[i]))
            assert_true(isnan(out[i]));
        else
            assert_memory_equal(&out[i], &half_value[i], 4);
    assert_int_equal(nw_safetensors_read_f32(file, nw_safetensors_find(file, "brain"), out), NW_OK);
    assert_memory_equal(out, brain_value, sizeof brain_value);
    assert_int_equal(nw_safetensors_read_f32(file, nw_safetensors_find(file, "wide"), out), NW_OK);
    assert_memory_equal(out, wide_value, sizeof wide_value);
    assert_int_equal(nw_safetensors_read_f32(file, nw_safetensors_find(file, "int"), out), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "'int' has elements of type I32; expected F32"));
    nw_safetensors_close(file);
}

/* More elements than one piece of the conversion. */
TEST(test_long_conversion)
{
    enum { COUNT = 10001 };
    static double wide[COUNT];
    static float out[COUNT];
    for (int i = 0; i < COUNT; i++) wide[i] = i * 0.25;
    nw_saved_list list = {0};
    assert_int_equal(nw_saved_list_add(&list, "wide", NW_SAVED_F64, 1, (int64_t[]){COUNT}, wide), NW_OK);
    save(scratch("long"), &list, NULL, 0);
    nw_saved_list_free(&list);
    nw_safetensors *file;
    assert_int_equal(nw_safetensors_open(&file, scratch("long")), NW_OK);
    assert_int_equal(nw_safetensors_read_f32(file, 0, out), NW_OK);
    for (int i = 0; i < COUNT; i++) assert_true(out[i] == (float)i * 0.25f);
    nw_safetensors_close(file);
}

TEST(test_headers_that_mislead)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *expected; /* part of the sentence */
    } cases[] = {
        {"", 0, "the text ends"},
        {"[]", 0, "the header is an array"},
        {"{\"a\":1}", 0, "expected an object with 'dtype'"},
        {"{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, "no 'dtype'"},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "the type 'F31'"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no 'shape'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "integers from 0 on"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "integers from 0 on"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "9 numbers; at most 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "no 'data_offsets'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "does not lie within the 4 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "does not lie within"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "truncated"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "is F32[2] but has 4 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,0]}}", 0,
         "but has 0 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
         "begins at byte 4 of the data; expected 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 6, "2 bytes follow the last tensor"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4, "begins at byte 0 of the data; expected 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
         6, "begins at byte 2 of the data; expected 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "'a' stands twice"},
        {"{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "a tensor without name"},
        {"{\"__metadata__\":[]}", 0, "'__metadata__' is an array"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "expected a string"},
        {"{}", 1, "1 bytes follow"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nw_safetensors *file;
        if (open_made(&file, cases[i].header, cases[i].data_bytes) != NW_E_FILE)
            fail_msg("accepted: %s", cases[i].header);
        assert_null(file);
        if (!strstr(nw_error_message(), cases[i].expected) || !strstr(nw_error_message(), "made"))
            fail_msg("%s: expected '%s' in: %s", cases[i].header, cases[i].expected, nw_error_message());
    }
}

TEST(test_truncated_anywhere)
{
    static const float weights[4] = {1, 2, 3, 4};
    nw_saved_list list = {0};
    assert_int_equal(nw_saved_list_add(&list, "w", NW_SAVED_F32, 1, (int64_t[]){4}, weights), NW_OK);
    save(scratch("whole"), &list, NULL, 0);
    nw_saved_list_free(&list);
    char *data;
    size_t size;
    assert_int_equal(nw_file_read(scratch("whole"), 1000, &data, &size), NW_OK);
    nw_safetensors *file;
    for (size_t cut = 0; cut < size; cut++) {
        char *copy = malloc(cut ? cut : 1);
        memcpy(copy, data, cut);
        assert_int_equal(nw_safetensors_open_memory(&file, copy, cut, "cut"), NW_E_FILE);
        free(copy);
    }
    /* a header that claims to be larger than any */
    memset(data, 0xff, 8);
    assert_int_equal(nw_safetensors_open_memory(&file, data, size, "cut"), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "18446744073709551615 bytes"));
    free(data);
    assert_int_equal(nw_safetensors_open(&file, scratch("none")), NW_E_FILE);
    assert_int_equal(nw_safetensors_open(&file, scratch("")), NW_E_FILE);
}

/* A file that shrinks after it was opened is an error, not a signal. */
TEST(test_shrinking_file)
{
    static float weights[5000];
    nw_saved_list list = {0};
    nw_safetensors *file;
    assert_int_equal(nw_saved_list_add(&list, "w", NW_SAVED_F32, 1, (int64_t[]){5000}, weights), NW_OK);
    save(scratch("s"), &list, NULL, 0);
    nw_saved_list_free(&list);
    assert_int_equal(nw_safetensors_open(&file, scratch("s")), NW_OK);
    assert_int_equal(truncate(scratch("s"), 9000), 0);
    assert_int_equal(nw_safetensors_read_f32(file, 0, weights), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "the file ended"));
    nw_safetensors_close(file);
}

int main(void)
{
#define SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        SCRATCH(test_bytes),
        SCRATCH(test_round_trip),
        SCRATCH(test_empty_list),
        SCRATCH(test_writer_refuses),
        SCRATCH(test_conversions),
        SCRATCH(test_long_conversion),
        SCRATCH(test_truncated_anywhere),
        SCRATCH(test_shrinking_file),
        cmocka_unit_test(test_headers_that_mislead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
