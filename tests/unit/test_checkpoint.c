/*
 * test_checkpoint.c - whole checkpoints: what goes in comes out, which one of a run is opened, damage of every kind,
 * another model, replacing, keeping the newest. Full disks and kills are in test_checkpoint_faults.c.
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

#include "support/scratch.h"
#include "checkpoint/checkpoint.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static const nw_checkpoint_info info = {.step = 12,
                                        .epoch = 3,
                                        .seed = UINT64_MAX,
                                        .model = "tiny",
                                        .precision = "bf16",
                                        .isa = "avx2",
                                        .weights_sha256 = "abc"};

#define OK(call)                                                            \
    do {                                                                    \
        if ((call) != NW_OK) fail_msg("%s: %s", #call, nw_error_message()); \
    } while (0)

static void assert_says(const char *part)
{
    if (!strstr(nw_error_message(), part)) fail_msg("expected '%s' in: %s", part, nw_error_message());
}

/* A small checkpoint: three numbers that tell the step. */
static void write_step(const char *target, int64_t step)
{
    nw_checkpoint_writer *w;
    nw_checkpoint_info at = info;
    float data[3] = {(float)step, 2, 3};
    nw_saved_list list = {0};
    at.step = step;
    OK(nw_checkpoint_begin(&w, target, &at));
    OK(nw_saved_list_add(&list, "x", NW_SAVED_F32, 1, (int64_t[]){3}, data));
    OK(nw_checkpoint_add_tensors(w, "replica0.safetensors", &list, NULL, 0));
    data[0] = -1; /* what was added was written */
    OK(nw_checkpoint_add_int(w, "step", step));
    OK(nw_checkpoint_commit(w));
    nw_saved_list_free(&list);
}

static void write_run_step(int64_t step)
{
    char *path;
    OK(nw_checkpoint_step_path(&path, scratch("run"), step));
    write_step(path, step);
    free(path);
}

/* Opens, compares with write_step, and gives the step. */
static int64_t opened_step(const char *path, const char *note)
{
    nw_checkpoint *c;
    float data[3];
    int64_t step;
    OK(nw_checkpoint_open(&c, path));
    OK(nw_checkpoint_read_tensor(c, "replica0.safetensors", "x", 1, (int64_t[]){3}, data));
    OK(nw_checkpoint_get_int(c, "step", &step));
    assert_true(data[0] == (float)step && data[1] == 2);
    assert_int_equal(nw_checkpoint_get_info(c)->step, step);
    if (note)
        assert_non_null(strstr(nw_checkpoint_note(c), note));
    else
        assert_null(nw_checkpoint_note(c));
    nw_checkpoint_close(c);
    return step;
}

static void flip_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    int byte = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(byte ^ 1, f);
    fclose(f);
}

TEST(test_everything_comes_back)
{
    static const double numbers[] = {0.1, -0.0, 3.0, 1e300, 4.9406564584124654e-324, INFINITY, -INFINITY, NAN, 93.86};
    nw_checkpoint_writer *w;
    char key[32];
    OK(nw_checkpoint_begin(&w, scratch("c"), &info));
    for (int i = 0; i < 9; i++) {
        snprintf(key, sizeof key, "number%d", i);
        OK(nw_checkpoint_add_double(w, key, numbers[i]));
    }
    OK(nw_checkpoint_add_int(w, "images", INT64_MAX));
    OK(nw_checkpoint_add_int(w, "images", INT64_MIN)); /* the last one counts */
    OK(nw_checkpoint_add_text(w, "best", "old"));
    OK(nw_checkpoint_add_text(w, "best", "caf\xc3\xa9 \"x\"\n"));
    OK(nw_checkpoint_add_file(w, NW_CHECKPOINT_CONFIG, "model: tiny\n", 12));
    OK(nw_checkpoint_add_file(w, "empty", NULL, 0));
    OK(nw_checkpoint_commit(w));

    nw_checkpoint *c;
    OK(nw_checkpoint_open(&c, scratch("c")));
    const nw_checkpoint_info *read = nw_checkpoint_get_info(c);
    assert_true(read->step == info.step && read->epoch == info.epoch && read->seed == info.seed);
    assert_string_equal(read->model, info.model);
    assert_string_equal(read->precision, info.precision);
    assert_string_equal(read->isa, info.isa);
    assert_string_equal(read->weights_sha256, info.weights_sha256);
    assert_false(nw_checkpoint_is_bare(c));
    for (int i = 0; i < 9; i++) {
        double value;
        snprintf(key, sizeof key, "number%d", i);
        OK(nw_checkpoint_get_double(c, key, &value));
        if (isnan(numbers[i]))
            assert_true(isnan(value));
        else
            assert_memory_equal(&value, &numbers[i], sizeof value);
    }
    int64_t integer;
    double number;
    const char *text;
    OK(nw_checkpoint_get_int(c, "images", &integer));
    assert_true(integer == INT64_MIN);
    OK(nw_checkpoint_get_text(c, "best", &text));
    assert_string_equal(text, "caf\xc3\xa9 \"x\"\n");
    assert_true(nw_checkpoint_has(c, "best") && !nw_checkpoint_has(c, "worst"));
    assert_int_equal(nw_checkpoint_get_int(c, "worst", &integer), NW_E_FILE);
    assert_says("no 'worst'");
    assert_int_equal(nw_checkpoint_get_int(c, "number0", &integer), NW_E_FILE);
    assert_says("not an integer");
    assert_int_equal(nw_checkpoint_get_double(c, "best", &number), NW_E_FILE);
    assert_int_equal(nw_checkpoint_get_text(c, "images", &text), NW_E_FILE);
    char *data;
    size_t size;
    OK(nw_checkpoint_read_file(c, NW_CHECKPOINT_CONFIG, &data, &size));
    assert_string_equal(data, "model: tiny\n");
    free(data);
    OK(nw_checkpoint_read_file(c, "empty", &data, &size));
    assert_int_equal(size, 0);
    free(data);
    assert_true(nw_checkpoint_has_file(c, "empty") && !nw_checkpoint_has_file(c, "replica0.safetensors"));
    assert_int_equal(nw_checkpoint_read_file(c, "../c/empty", &data, &size), NW_E_FILE);
    nw_checkpoint_close(c);
}

/* Numbers go where their list says; one that came later may be missing in the file, others may not. */
TEST(test_lists_of_numbers)
{
    int64_t whole = -7, added = 5;
    double real = 0.1;
    const nw_saved_number numbers[] = {
        {"whole", .whole = &whole}, {"real", .real = &real}, {"added", .whole = &added, .later = true}};
    const int64_t table[6] = {1, -2, 3, INT64_MAX, 5, INT64_MIN};
    nw_checkpoint_writer *w;
    OK(nw_checkpoint_begin(&w, scratch("c"), &info));
    OK(nw_checkpoint_add_numbers(w, "all.", numbers, 3));
    OK(nw_checkpoint_add_numbers(w, "some.", numbers, 2));
    OK(nw_checkpoint_add_numbers(w, "few.", numbers, 1));
    nw_saved_list list = {0};
    OK(nw_saved_list_add(&list, "table", NW_SAVED_I64, 2, (const int64_t[]){2, 3}, table));
    OK(nw_checkpoint_add_tensors(w, "state.safetensors", &list, NULL, 0));
    nw_saved_list_free(&list);
    OK(nw_checkpoint_commit(w));
    whole = added = 0;
    real = 0;
    nw_checkpoint *c;
    OK(nw_checkpoint_open(&c, scratch("c")));
    OK(nw_checkpoint_get_numbers(c, "all.", numbers, 3));
    assert_true(whole == -7 && real == 0.1 && added == 5);
    added = 6;
    OK(nw_checkpoint_get_numbers(c, "some.", numbers, 3));
    assert_int_equal(added, 6);
    assert_int_equal(nw_checkpoint_get_numbers(c, "few.", numbers, 3), NW_E_FILE);
    assert_says("no 'few.real'");
    int64_t *integers;
    size_t rows;
    OK(nw_checkpoint_read_integers(c, "state.safetensors", "table", 3, &integers, &rows));
    assert_int_equal(rows, 2);
    assert_memory_equal(integers, table, sizeof table);
    free(integers);
    assert_int_equal(nw_checkpoint_read_integers(c, "state.safetensors", "table", 2, &integers, &rows), NW_E_FILE);
    assert_says("is I64[2, 3]; expected I64[2, 2]");
    assert_int_equal(nw_checkpoint_read_integers(c, "state.safetensors", "table", 0, &integers, &rows), NW_E_FILE);
    assert_int_equal(nw_checkpoint_read_integers(c, "state.safetensors", "none", 0, &integers, &rows), NW_E_FILE);
    static const char *const asked[][2] = {
        {"state.safetensors", "table"}, {"state.safetensors", "none"}, {"no.safetensors", "table"}};
    for (int i = 0; i < 3; i++) {
        bool has;
        assert_int_equal(nw_checkpoint_has_tensor(c, asked[i][0], asked[i][1], &has), NW_OK);
        assert_int_equal(has, i == 0);
    }
    nw_checkpoint_close(c);
}

TEST(test_tensors)
{
    nw_checkpoint *c;
    float out[3];
    write_step(scratch("c"), 5);
    OK(nw_checkpoint_open(&c, scratch("c")));
    assert_int_equal(nw_checkpoint_read_tensor(c, "replica0.safetensors", "x", 1, (int64_t[]){4}, out), NW_E_FILE);
    assert_says("'x' is F32[3]; expected F32[4]");
    assert_int_equal(nw_checkpoint_read_tensor(c, "replica0.safetensors", "y", 1, (int64_t[]){3}, out), NW_E_FILE);
    assert_says("no tensor 'y'");
    assert_int_equal(nw_checkpoint_read_tensor(c, "replica1.safetensors", "x", 1, (int64_t[]){3}, out), NW_E_FILE);
    assert_says("no file 'replica1.safetensors'");
    nw_checkpoint_close(c);
}

TEST(test_which_one_is_opened)
{
    nw_checkpoint *c;
    assert_false(nw_checkpoint_exists(scratch("run")));
    assert_int_equal(nw_checkpoint_open(&c, scratch("run")), NW_E_FILE);
    assert_says("there is no checkpoint");
    OK(nw_directory_make(scratch("run/checkpoints/notes")));
    assert_false(nw_checkpoint_exists(scratch("run")));
    assert_int_equal(nw_checkpoint_open(&c, scratch("run")), NW_E_FILE);
    assert_says("holds no checkpoint");
    write_run_step(9);
    write_run_step(100);
    write_run_step(20);
    OK(nw_directory_make(scratch("run/checkpoints/0300"))); /* not a name that we give */
    assert_true(nw_checkpoint_exists(scratch("run")));
    assert_true(nw_checkpoint_exists(scratch("run/checkpoints")));
    assert_true(nw_checkpoint_exists(scratch("run/checkpoints/20")));
    assert_int_equal(opened_step(scratch("run"), NULL), 100);
    assert_int_equal(opened_step(scratch("run/"), NULL), 100);
    assert_int_equal(opened_step(scratch("run/checkpoints"), NULL), 100);
    assert_int_equal(opened_step(scratch("run/checkpoints/20"), NULL), 20);
    OK(nw_checkpoint_open(&c, scratch("run/checkpoints/20/replica0.safetensors")));
    assert_true(nw_checkpoint_is_bare(c));
    assert_null(nw_checkpoint_get_info(c));
    float data[3];
    OK(nw_checkpoint_read_tensor(c, NW_CHECKPOINT_MODEL, "x", 1, (int64_t[]){3}, data));
    assert_true(data[0] == 20);
    assert_int_equal(nw_checkpoint_read_tensor(c, "replica0.safetensors", "x", 1, (int64_t[]){3}, data), NW_E_FILE);
    assert_says("weights only");
    nw_checkpoint_close(c);
}

/* Each kind of damage to the newest is named, and the one before it is taken. */
TEST(test_damage)
{
    nw_checkpoint *c;
    write_run_step(1);
    write_run_step(2);
    write_run_step(3);
    flip_byte(scratch("run/checkpoints/3/replica0.safetensors"), -2);
    assert_int_equal(nw_checkpoint_open(&c, scratch("run/checkpoints/3")), NW_E_FILE);
    assert_says("replica0.safetensors' is corrupt");
    assert_int_equal(opened_step(scratch("run"), "step 2"), 2);
    assert_int_equal(truncate(scratch("run/checkpoints/3/replica0.safetensors"), 50), 0);
    assert_int_equal(nw_checkpoint_open(&c, scratch("run/checkpoints/3")), NW_E_FILE);
    assert_says("has 50 bytes");
    assert_says("truncated");
    assert_int_equal(unlink(scratch("run/checkpoints/3/replica0.safetensors")), 0);
    assert_int_equal(nw_checkpoint_open(&c, scratch("run/checkpoints/3")), NW_E_FILE);
    assert_says("is missing");
    assert_int_equal(opened_step(scratch("run"), "is missing"), 2);
    assert_int_equal(unlink(scratch("run/checkpoints/3/manifest.json")), 0);
    assert_int_equal(opened_step(scratch("run"), "manifest.json"), 2);
    assert_int_equal(truncate(scratch("run/checkpoints/2/manifest.json"), 100), 0);
    assert_int_equal(opened_step(scratch("run"), "the 2 newest checkpoints are damaged"), 1);
    assert_int_equal(truncate(scratch("run/checkpoints/1/manifest.json"), 0), 0);
    assert_int_equal(nw_checkpoint_open(&c, scratch("run")), NW_E_FILE);
    assert_says("none of the 3 checkpoints");
    /* the run goes on over damaged ones */
    write_run_step(2);
    assert_true(nw_file_is_regular(scratch("run/checkpoints/2.set-aside-1/replica0.safetensors")));
    write_run_step(3);
    assert_int_equal(opened_step(scratch("run/checkpoints"), NULL), 3);
}

/* Every byte of a manifest counts. */
TEST(test_manifest_damage)
{
    char *data;
    size_t size;
    write_step(scratch("c"), 7);
    OK(nw_file_read(scratch("c/manifest.json"), 10000, &data, &size));
    nw_manifest m;
    for (size_t i = 0; i < size; i++) {
        data[i] ^= 1;
        if (nw_manifest_parse(&m, data, size, "flipped") == NW_OK) fail_msg("byte %zu may be changed", i);
        data[i] ^= 1;
        if (nw_manifest_parse(&m, data, i, "cut") == NW_OK) fail_msg("%zu bytes suffice", i);
    }
    OK(nw_manifest_parse(&m, data, size, "whole"));
    nw_manifest_free(&m);
    /* Another format is called that, not damaged, and no older checkpoint is taken instead. */
    char *version = strstr(data, "\"version\": 3");
    version[11] = '2';
    assert_int_equal(nw_manifest_parse(&m, data, size, "older"), NW_E_UNSUPPORTED);
    assert_says("written by an older version of nowait");
    version[11] = '4';
    assert_int_equal(nw_manifest_parse(&m, data, size, "newer"), NW_E_UNSUPPORTED);
    assert_says("format version 4");
    write_run_step(1);
    write_run_step(2);
    OK(nw_file_replace(scratch("run/checkpoints/2/manifest.json"), data, size));
    nw_checkpoint *c;
    assert_int_equal(nw_checkpoint_open(&c, scratch("run")), NW_E_UNSUPPORTED);
    free(data);
}

/* Manifests that are valid but ask for something bad: names that lead elsewhere, texts that are too long. */
TEST(test_hostile_manifest)
{
    static const char *const names[] = {"../x", "/etc/passwd", "a/b", ".", "..", ".hidden", "", "a b"};
    nw_manifest m = {.info = info}, read;
    char *text;
    size_t size;
    static const char digits[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_false(nw_manifest_name_is_plain(names[i]));
        OK(nw_manifest_add_file(&m, names[i], 0, digits));
        OK(nw_manifest_write(&m, &text, &size));
        assert_int_equal(nw_manifest_parse(&read, text, size, "hostile"), NW_E_FILE);
        free(text);
        m.file_count = 0;
    }
    assert_int_equal(nw_manifest_add_int(&m, "a b", 1), NW_E_ARGUMENT);
    OK(nw_manifest_add_file(&m, "short", 0, "abc"));
    OK(nw_manifest_write(&m, &text, &size));
    assert_int_equal(nw_manifest_parse(&read, text, size, "hostile"), NW_E_FILE);
    assert_says("64 hexadecimal digits");
    free(text);
    nw_manifest_free(&m);
}

TEST(test_replacing)
{
    for (int64_t step = 1; step <= 3; step++) {
        write_step(scratch("named.ckpt"), step);
        assert_int_equal(opened_step(scratch("named.ckpt"), NULL), step);
    }
    nw_names names;
    OK(nw_directory_list(&names, scratch_dir));
    assert_int_equal(names.count, 1);
    nw_names_free(&names);
    /* cancelled: as it was */
    nw_checkpoint_writer *w;
    OK(nw_checkpoint_begin(&w, scratch("named.ckpt"), &info));
    OK(nw_checkpoint_add_file(w, "x", "x", 1));
    nw_checkpoint_cancel(w);
    assert_int_equal(opened_step(scratch("named.ckpt"), NULL), 3);
    OK(nw_directory_list(&names, scratch_dir));
    assert_int_equal(names.count, 1);
    nw_names_free(&names);
    /* killed between the two renames of a file system that cannot exchange */
    assert_int_equal(rename(scratch("named.ckpt"), scratch(".named.ckpt.old")), 0);
    assert_int_equal(opened_step(scratch("named.ckpt"), NULL), 3);
}

TEST(test_nothing_is_lost)
{
    nw_checkpoint_writer *w;
    /* what is no checkpoint is refused */
    OK(nw_directory_make(scratch("thesis")));
    OK(nw_file_replace(scratch("thesis/chapter1"), "x", 1));
    assert_int_equal(nw_checkpoint_begin(&w, scratch("thesis"), &info), NW_E_ARGUMENT);
    assert_says("is not a checkpoint");
    assert_null(w);
    assert_int_equal(nw_checkpoint_begin(&w, scratch("thesis/chapter1"), &info), NW_E_ARGUMENT);
    assert_int_equal(nw_checkpoint_begin(&w, scratch("thesis/chapter1/x"), &info), NW_E_SYSTEM);
    assert_int_equal(symlink(scratch("thesis"), scratch("link")), 0);
    assert_int_equal(nw_checkpoint_begin(&w, scratch("link"), &info), NW_E_ARGUMENT);
    assert_true(nw_file_is_regular(scratch("thesis/chapter1")));
    /* a checkpoint to which somebody added a file, and a damaged one, are set aside */
    write_step(scratch("c"), 1);
    OK(nw_file_replace(scratch("c/notes.txt"), "x", 1));
    write_step(scratch("c"), 2);
    assert_int_equal(opened_step(scratch("c"), NULL), 2);
    assert_true(nw_file_is_regular(scratch("c.set-aside-1/notes.txt")));
    assert_int_equal(truncate(scratch("c/manifest.json"), 10), 0);
    write_step(scratch("c"), 3);
    assert_int_equal(opened_step(scratch("c"), NULL), 3);
    assert_true(nw_file_is_regular(scratch("c.set-aside-2/replica0.safetensors")));
    /* an empty directory is in nobody's way */
    OK(nw_directory_make(scratch("empty")));
    write_step(scratch("empty"), 4);
    assert_int_equal(opened_step(scratch("empty"), NULL), 4);
}

TEST(test_names_that_cannot_be)
{
    nw_checkpoint_writer *w;
    OK(nw_checkpoint_begin(&w, scratch("c"), &info));
    assert_int_equal(nw_checkpoint_add_file(w, "../x", "x", 1), NW_E_ARGUMENT);
    /* the first failure sticks */
    assert_int_equal(nw_checkpoint_add_file(w, "fine", "x", 1), NW_E_ARGUMENT);
    assert_int_equal(nw_checkpoint_commit(w), NW_E_ARGUMENT);
    assert_says("'../x'");
    assert_says("was not written");
    assert_false(nw_file_is_directory(scratch("c")));
    OK(nw_checkpoint_begin(&w, scratch("c"), &info));
    OK(nw_checkpoint_add_file(w, "twice", "x", 1));
    assert_int_equal(nw_checkpoint_add_file(w, "twice", "x", 1), NW_E_ARGUMENT);
    nw_checkpoint_cancel(w);
    OK(nw_checkpoint_begin(&w, scratch("c"), &info));
    assert_int_equal(nw_checkpoint_add_file(w, NW_CHECKPOINT_MANIFEST, "x", 1), NW_E_ARGUMENT);
    nw_checkpoint_cancel(w);
    nw_names names;
    OK(nw_directory_list(&names, scratch_dir));
    assert_int_equal(names.count, 0);
    nw_names_free(&names);
}

static void assert_steps(const char *expected)
{
    nw_names names;
    char text[200] = "";
    OK(nw_directory_list(&names, scratch("run/checkpoints")));
    for (int i = 0; i < names.count; i++) strcat(strcat(text, names.at[i]), " ");
    assert_string_equal(text, expected);
    nw_names_free(&names);
}

TEST(test_pruning)
{
    for (int64_t step = 1; step <= 6; step++) write_run_step(step);
    OK(nw_directory_make(scratch("run/checkpoints/mine")));
    OK(nw_checkpoint_prune(scratch("run"), 0, -1));
    assert_steps("1 2 3 4 5 6 mine ");
    OK(nw_checkpoint_prune(scratch("run"), 3, 2));
    assert_steps("2 4 5 6 mine ");
    OK(nw_checkpoint_prune(scratch("run"), 1, 6));
    assert_steps("6 mine ");
    assert_int_equal(opened_step(scratch("run"), NULL), 6);
    /* what a killed writer left is cleared by the next one, whatever its step */
    OK(nw_directory_make(scratch("run/checkpoints/.7.tmp-999999-3")));
    OK(nw_file_replace(scratch("run/checkpoints/.7.tmp-999999-3/x"), "x", 1));
    write_run_step(8);
    assert_steps("6 8 mine ");
}

/* ---- models ---- */

static void make_params(nw_params *params, int width, bool extra)
{
    int index, shape[4] = {width, 3, 3, 3};
    *params = (nw_params){0};
    OK(nw_segments_add(&params->learned, "conv1.weight", NW_ROLE_CONV, 0, 27, 4, shape, &index));
    OK(nw_segments_add(&params->learned, "bn1.weight", NW_ROLE_NORM_SCALE, 0, 1, 1, shape, &index));
    OK(nw_segments_add(&params->learned, "bn1.bias", NW_ROLE_NORM_SHIFT, 0, 1, 1, shape, &index));
    if (extra) OK(nw_segments_add(&params->learned, "fc.bias", NW_ROLE_BIAS, 1, 8, 1, shape, &index));
    OK(nw_segments_add(&params->running, "bn1.running_mean", NW_ROLE_RUNNING_MEAN, 0, 1, 1, shape, &index));
    OK(nw_segments_add(&params->running, "bn1.running_var", NW_ROLE_RUNNING_VAR, 0, 1, 1, shape, &index));
    params->values = calloc(params->learned.floats, sizeof(float));
    params->buffers = calloc(params->running.floats, sizeof(float));
}

static void free_params(nw_params *params)
{
    free(params->values);
    free(params->buffers);
    nw_params_free(params);
}

TEST(test_model)
{
    nw_params a, b;
    make_params(&a, 8, false);
    make_params(&b, 8, false);
    for (size_t i = 0; i < a.learned.floats; i++) a.values[i] = (float)i;
    for (size_t i = 0; i < a.running.floats; i++) a.buffers[i] = -(float)i;
    nw_checkpoint_writer *w;
    nw_saved_list list = {0};
    OK(nw_checkpoint_begin(&w, scratch("c"), &info));
    OK(nw_checkpoint_add_model(w, &a, 391));
    OK(nw_saved_list_add_segments(&list, "momentum/", &a.learned, a.values));
    OK(nw_checkpoint_add_tensors(w, "replica0.safetensors", &list, NULL, 0));
    OK(nw_checkpoint_commit(w));
    nw_saved_list_free(&list);

    nw_checkpoint *c;
    const nw_safetensors *model;
    int64_t batches = 0, tracked = 0;
    OK(nw_checkpoint_open(&c, scratch("c")));
    OK(nw_checkpoint_read_model(c, "tiny", &b, &batches));
    assert_int_equal(batches, 391);
    assert_memory_equal(a.values, b.values, a.learned.floats * sizeof(float));
    assert_memory_equal(a.buffers, b.buffers, a.running.floats * sizeof(float));
    OK(nw_checkpoint_tensors(c, NW_CHECKPOINT_MODEL, &model));
    OK(nw_safetensors_read(model, nw_safetensors_find(model, "bn1.num_batches_tracked"), &tracked));
    assert_int_equal(tracked, 391);
    memset(b.values, 0, b.learned.floats * sizeof(float));
    OK(nw_checkpoint_read_segments(c, "replica0.safetensors", "momentum/", &b.learned, b.values));
    assert_memory_equal(a.values, b.values, a.learned.floats * sizeof(float));
    assert_int_equal(nw_checkpoint_read_model(c, "other", &b, NULL), NW_E_FILE);
    assert_says("of the model 'tiny' does not fit the model 'other'");
    nw_checkpoint_close(c);
    free_params(&a);
    free_params(&b);
}

/* A refused model changes nothing, and the first tensor that differs is named. */
TEST(test_another_model)
{
    nw_params small, wide, more;
    nw_checkpoint *c;
    nw_checkpoint_writer *w;
    make_params(&small, 8, false);
    make_params(&wide, 16, false);
    make_params(&more, 8, true);
    OK(nw_checkpoint_begin(&w, scratch("small"), &info));
    OK(nw_checkpoint_add_model(w, &small, 1));
    OK(nw_checkpoint_commit(w));
    OK(nw_checkpoint_begin(&w, scratch("more"), &info));
    OK(nw_checkpoint_add_model(w, &more, 1));
    OK(nw_checkpoint_commit(w));
    for (size_t i = 0; i < wide.learned.floats; i++) wide.values[i] = 5;
    OK(nw_checkpoint_open(&c, scratch("small")));
    assert_int_equal(nw_checkpoint_read_model(c, "wide", &wide, NULL), NW_E_FILE);
    assert_says("of the model 'tiny' does not fit the model 'wide'");
    assert_says("'conv1.weight' is F32[8, 3, 3, 3] there and F32[16, 3, 3, 3] here");
    for (size_t i = 0; i < wide.learned.floats; i++) assert_true(wide.values[i] == 5);
    assert_int_equal(nw_checkpoint_read_model(c, "more", &more, NULL), NW_E_FILE);
    assert_says("'fc.bias' is missing");
    nw_checkpoint_close(c);
    OK(nw_checkpoint_open(&c, scratch("more")));
    assert_int_equal(nw_checkpoint_read_model(c, "small", &small, NULL), NW_E_FILE);
    assert_says("'fc.bias' that the model lacks");
    nw_checkpoint_close(c);
    /* a bare file has no model's name; counters may be missing */
    nw_saved_list list = {0};
    nw_file_writer out;
    OK(nw_saved_list_add_segments(&list, "", &small.learned, small.values));
    OK(nw_saved_list_add_segments(&list, "", &small.running, small.buffers));
    OK(nw_file_create(&out, scratch("bare.safetensors")));
    OK(nw_safetensors_write(&out, &list, NULL, 0));
    OK(nw_file_finish(&out, NULL));
    nw_saved_list_free(&list);
    int64_t batches = 9;
    OK(nw_checkpoint_open(&c, scratch("bare.safetensors")));
    OK(nw_checkpoint_read_model(c, "whatever", &small, &batches));
    assert_int_equal(batches, 0);
    assert_int_equal(nw_checkpoint_read_model(c, "wide", &wide, NULL), NW_E_FILE);
    assert_says("bare.safetensors' does not fit the model 'wide'");
    nw_checkpoint_close(c);
    free_params(&small);
    free_params(&wide);
    free_params(&more);
}

int main(void)
{
#define SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        SCRATCH(test_everything_comes_back), SCRATCH(test_lists_of_numbers), SCRATCH(test_tensors),
        SCRATCH(test_which_one_is_opened),   SCRATCH(test_damage),           SCRATCH(test_manifest_damage),
        SCRATCH(test_hostile_manifest),      SCRATCH(test_replacing),        SCRATCH(test_nothing_is_lost),
        SCRATCH(test_names_that_cannot_be),  SCRATCH(test_pruning),          SCRATCH(test_model),
        SCRATCH(test_another_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
