/*
 * test_datasets.c - opening datasets: every format from small trees that the test makes, where they are looked for,
 * what is said when something is missing or wrong; parts of a dataset; and the real ones where they are at hand.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/facts.h"
#include "data/raw.h"
#include "data/reader.h"
#include "support/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static nw_dataset *open_with(const nw_dataset_options *o)
{
    nw_dataset *d = NULL;
    if (nw_dataset_open(&d, o) != NW_OK) fail_msg("%s: %s", o->name, nw_error_message());
    return d;
}

static nw_dataset *open_in(const char *name, const char *dir)
{
    return open_with(&(nw_dataset_options){.name = name, .dir = dir});
}

/* Opening fails with this status, and the message has these words. */
static void refuse_with(const nw_dataset_options *o, nw_status want, const char *words)
{
    nw_dataset *d;
    nw_status status = nw_dataset_open(&d, o);
    if (status != want || !strstr(nw_error_message(), words))
        fail_msg("%s: status %d, '%s' lacks '%s'", o->name, (int)status, status ? nw_error_message() : "", words);
    assert_null(d);
}

static void refuse(const char *name, const char *dir, const char *words)
{
    refuse_with(&(nw_dataset_options){.name = name, .dir = dir}, NW_E_FILE, words);
}

static int make_root(void **state)
{
    char *root = malloc(PATH_SIZE);
    make_folder(root);
    *state = root;
    return 0;
}

static int remove_root(void **state)
{
    remove_tree(*state);
    free(*state);
    return 0;
}

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

static void check_cifar(const nw_dataset *d, int64_t train, int64_t test, int first_label, const char *name)
{
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, train);
    assert_int_equal(d->split[NW_SPLIT_VALID].count, 0);
    assert_int_equal(d->split[NW_SPLIT_TEST].count, test);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].labels[0], first_label);
    assert_int_equal(d->channels, 3);
    assert_int_equal(d->height, 32);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].pixels[1000], 1000 & 255);
    if (name)
        assert_string_equal(d->class_names[3], name);
    else
        assert_null(d->class_names);
}

static void test_cifar10(void **state)
{
    const char *root = *state;
    char name[64];
    put_folder(root, "cifar-10-batches-bin");
    put_folder(root, "python/cifar-10-batches-py");
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "cifar-10-batches-bin/data_batch_%d.bin", i);
        put_fixture(root, name, "cifar/cifar10.bin");
        snprintf(name, sizeof name, "python/cifar-10-batches-py/data_batch_%d", i);
        put_fixture(root, name, "pickle/cifar10-python2");
    }
    refuse("cifar10", root, "nowait data fetch cifar10");
    put_fixture(root, "cifar-10-batches-bin/test_batch.bin", "cifar/cifar10.bin");
    put_file(root, "cifar-10-batches-bin/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n", 21);
    put_fixture(root, "python/cifar-10-batches-py/test_batch", "pickle/cifar10-python2");
    put_fixture(root, "python/cifar-10-batches-py/batches.meta", "pickle/names-python2");

    nw_dataset *d = open_in("cifar10", root);
    check_cifar(d, 10, 2, 3, "d");
    assert_int_equal(d->classes, 10);
    assert_non_null(strstr(d->source, "cifar-10-batches-bin"));
    nw_dataset_close(d);

    snprintf(name, sizeof name, "%s/python", root);
    nw_dataset *python = open_in("cifar10", name);
    check_cifar(python, 10, 2, 3, "c3");
    nw_dataset_close(python);

    snprintf(name, sizeof name, "%s/cifar-10-batches-bin", root); /* its own folder */
    d = open_in("cifar10", name);
    check_cifar(d, 10, 2, 3, "d");
    nw_dataset_close(d);

    bytes b = fixture("cifar/cifar10.bin");
    put_file(root, "cifar-10-batches-bin/data_batch_3.bin", b.data, b.size - 5);
    refuse("cifar10", root, "data_batch_3.bin has 6141 bytes");
    b.data[0] = 11;
    put_file(root, "cifar-10-batches-bin/data_batch_3.bin", b.data, b.size);
    refuse("cifar10", root, "label 11 at offset 0");
    release(&b);
    snprintf(name, sizeof name, "%s/cifar-10-batches-bin/data_batch_3.bin", root);
    unlink(name);
    refuse("cifar10", root, "data_batch_3.bin cannot be opened");
}

static void test_cifar100(void **state)
{
    const char *root = *state;
    put_folder(root, "a/cifar-100-binary");
    put_folder(root, "b/cifar-100-python");
    put_fixture(root, "a/cifar-100-binary/train.bin", "cifar/cifar100.bin");
    put_fixture(root, "a/cifar-100-binary/test.bin", "cifar/cifar100.bin");
    put_fixture(root, "b/cifar-100-python/train", "pickle/cifar100-python2");
    put_fixture(root, "b/cifar-100-python/test", "pickle/cifar100-python2");
    for (int i = 0; i < 2; i++) {
        char dir[PATH_SIZE];
        snprintf(dir, sizeof dir, "%s/%c", root, 'a' + i);
        nw_dataset *d = open_in("cifar100", dir);
        check_cifar(d, 1, 1, 99, NULL);
        assert_int_equal(d->classes, 100);
        nw_dataset_close(d);
    }
}

static void test_mnist(void **state)
{
    const char *root = *state;
    put_folder(root, "mnist");
    put_fixture(root, "mnist/train-images-idx3-ubyte", "idx/images");
    refuse("mnist", root, "labels");
    put_fixture(root, "mnist/train-labels-idx1-ubyte", "idx/labels");
#if NW_HAVE_ZLIB
    put_fixture(root, "mnist/t10k-images-idx3-ubyte.gz", "idx/images.gz");
    put_fixture(root, "mnist/t10k-labels-idx1-ubyte.gz", "idx/labels.gz");
#else
    put_fixture(root, "mnist/t10k-images-idx3-ubyte", "idx/images");
    put_fixture(root, "mnist/t10k-labels-idx1-ubyte", "idx/labels");
#endif
    nw_dataset *d = open_in("mnist", root);
    assert_int_equal(d->channels, 1);
    assert_int_equal(d->height, 4);
    assert_int_equal(d->width, 5);
    for (int s = 0; s < NW_SPLITS; s++) {
        if (s == NW_SPLIT_VALID) continue;
        assert_int_equal(d->split[s].count, 3);
        assert_int_equal(d->split[s].labels[2], 9);
        assert_int_equal(d->split[s].pixels[59], 59);
    }
    nw_dataset_close(d);

    /* The same names are not taken for the other dataset's. */
    char own[PATH_SIZE];
    nw_dataset *other = NULL;
    snprintf(own, sizeof own, "%s/mnist", root);
    nw_status status = nw_dataset_open(&other, &(nw_dataset_options){.name = "fashion-mnist", .dir = own});
    if (status == NW_OK) assert_int_equal(other->height, 28); /* Debian's, elsewhere */
    nw_dataset_close(other);

    put_file(root, "mnist/train-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x03\x07\x0a\x09", 11);
    refuse("mnist", root, "label 10 of image 1");
    put_file(root, "mnist/train-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x02\x07\x00", 10);
    refuse("mnist", root, "3 images");
}

static void test_imagenet32(void **state)
{
    const char *root = *state;
    char name[64];
    put_folder(root, "imagenet32");
    put_fixture(root, "imagenet32/val_data", "pickle/imagenet32-python3");
    nw_dataset *d = open_in("imagenet32", root);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, 0);
    assert_int_equal(d->split[NW_SPLIT_TEST].count, 2);
    nw_dataset_close(d);
    for (int i = 1; i <= 10; i++) {
        if (i == 4) continue;
        snprintf(name, sizeof name, "imagenet32/train_data_batch_%d", i);
        put_fixture(root, name, "pickle/imagenet32-python3");
    }
    refuse("imagenet32", root, "no train_data_batch_4");
#if NW_HAVE_ZLIB
    put_fixture(root, "imagenet32/train_data_batch_4.npz", "npz/imagenet32.npz");
#else
    put_fixture(root, "imagenet32/train_data_batch_4", "pickle/imagenet32-python3");
#endif
    d = open_in("imagenet32", root);
    const nw_images *train = &d->split[NW_SPLIT_TRAIN];
    assert_int_equal(train->count, 20);
    assert_int_equal(d->classes, 1000);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(train->labels[i], i % 2 ? 999 : 0);
        for (int p = 0; p < 3072; p += 7) assert_int_equal(train->pixels[i * 3072 + p], (i % 2 * 3072 + p) & 255);
    }
    nw_dataset_close(d);
    /* Every 500th class: 0 and 500; the images of class 999 go. */
    d = open_with(&(nw_dataset_options){.name = "imagenet32", .dir = root, .classes = 2});
    assert_int_equal(d->classes, 2);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, 10);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].labels[9], 0);
    nw_dataset_close(d);
    put_fixture(root, "imagenet32/val_data", "pickle/hostile");
    refuse("imagenet32", root, "posix.system");
}

static void test_missing(void **state)
{
    const char *root = *state;
    char words[PATH_SIZE];
    snprintf(words, sizeof words, "looked in %s, %s/cifar-10-batches-bin, ", root, root);
    refuse("cifar10", root, words);
    refuse("cifar10", root, "data_batch_1.bin");
    refuse("cinic10", root, "valid/CLASS");
    refuse("folder", root, "--data-dir");
    refuse("imagenet", "/nonexistent", "/nonexistent/imagenet");
    refuse_with(&(nw_dataset_options){.name = "cifar01", .dir = root}, NW_E_UNKNOWN, "the nearest is 'cifar10'");
    refuse_with(&(nw_dataset_options){.name = "synthetic", .val_ratio = 1}, NW_E_ARGUMENT, "ratio is 1");
    refuse_with(&(nw_dataset_options){.name = "synthetic", .limit = -1}, NW_E_ARGUMENT, "negative");
    refuse_with(&(nw_dataset_options){.name = "synthetic", .classes = 1}, NW_E_ARGUMENT, "classes");
}

/* ---- Trees ------------------------------------------------------------------------------------------------------- */

static void put_tree(const char *root)
{
    static const char *const files[] = {"train/b/2.png",         "train/b/10.PNG",  "train/b/sub/0.png",
                                        "train/B/x.JPEG",        "train/a b/y.jpg", "train/a b/notes.txt",
                                        "train/a b/.hidden.png", "val/b/v.png",     "val/B/w.jpg"};
    put_folder(root, "train/b/sub");
    put_folder(root, "train/B");
    put_folder(root, "train/a b");
    put_folder(root, "val/b");
    put_folder(root, "val/B");
    put_folder(root, "val/a b");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) put_fixture(root, files[i], "image/small32.png");
    put_file(root, "train/README", "x", 1);
}

static void test_folder(void **state)
{
    const char *root = *state;
    static const char *const order[] = {"/train/B/x.JPEG", "/train/a b/y.jpg", "/train/b/10.PNG", "/train/b/2.png",
                                        "/train/b/sub/0.png"};
    static const int32_t labels[] = {0, 1, 2, 2, 2};
    put_tree(root);
    nw_dataset *d = open_in("folder", root);
    const nw_images *train = &d->split[NW_SPLIT_TRAIN];
    assert_int_equal(d->classes, 3);
    assert_string_equal(d->class_names[0], "B"); /* byte order */
    assert_string_equal(d->class_names[1], "a b");
    assert_string_equal(d->class_names[2], "b");
    assert_int_equal(train->count, 5);
    assert_null(train->pixels);
    assert_int_equal(d->height, 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(train->labels[i], labels[i]);
        assert_string_equal(train->paths[i] + strlen(root), order[i]);
    }
    assert_int_equal(d->split[NW_SPLIT_TEST].count, 2);
    assert_int_equal(d->split[NW_SPLIT_TEST].labels[1], 2);
    assert_int_equal(d->split[NW_SPLIT_VALID].count, 0);
    assert_non_null(strstr(d->source, "(2 other files ignored)"));
    nw_dataset_close(d);

    /* With test/ beside it, val/ is the validation split. */
    put_folder(root, "test/b");
    put_fixture(root, "test/b/t.png", "image/small32.png");
    d = open_in("folder", root);
    assert_int_equal(d->split[NW_SPLIT_TEST].count, 1);
    assert_int_equal(d->split[NW_SPLIT_VALID].count, 2);
    nw_dataset_close(d);
    refuse_with(&(nw_dataset_options){.name = "folder", .dir = root, .val_ratio = 0.5}, NW_E_ARGUMENT, "of its own");

    put_folder(root, "test/c");
    refuse("folder", root, "a class 'c' that the training images do not have");
}

static void test_folder_limit(void **state)
{
    const char *root = *state;
    put_tree(root);
    nw_dataset *d = open_with(&(nw_dataset_options){.name = "folder", .dir = root, .limit = 3});
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, 3); /* 0, 1, 3 of 5: all classes */
    assert_int_equal(d->split[NW_SPLIT_TRAIN].labels[0], 0);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].labels[1], 1);
    assert_non_null(strstr(d->split[NW_SPLIT_TRAIN].paths[2], "/2.png"));
    nw_dataset_close(d);
    d = open_with(&(nw_dataset_options){.name = "folder", .dir = root, .classes = 2});
    assert_int_equal(d->classes, 2);
    assert_string_equal(d->class_names[1], "a b");
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, 2);
    nw_dataset_close(d);
    refuse_with(&(nw_dataset_options){.name = "folder", .dir = root, .classes = 4}, NW_E_ARGUMENT, "3 classes; 4");
}

static void put_cinic(const char *root)
{
    for (int s = 0; s < 3; s++)
        for (int c = 0; c < 10; c++)
            for (int i = 0; i < 2; i++) {
                char folder[64], file[96];
                snprintf(folder, sizeof folder, "cinic10/%s/class%d", s == 0 ? "train" : s == 1 ? "valid" : "test", c);
                put_folder(root, folder);
                snprintf(file, sizeof file, "%s/%d.png", folder, i);
                put_fixture(root, file, "image/small32.png");
            }
}

static void test_cinic10(void **state)
{
    const char *root = *state;
    put_cinic(root);
#if NW_HAVE_PNG
    nw_dataset *d = open_in("cinic10", root);
    for (int s = 0; s < NW_SPLITS; s++) {
        assert_int_equal(d->split[s].count, 20);
        assert_null(d->split[s].paths);
        for (int i = 0; i < 20; i++) {
            const uint8_t *pixels = d->split[s].pixels + i * 3072;
            assert_int_equal(d->split[s].labels[i], i / 2);
            assert_int_equal(pixels[0], 0); /* red grows with x */
            assert_int_equal(pixels[31], 176);
            assert_int_equal(pixels[1024 + 31 * 32], 240); /* green with y */
            assert_int_equal(pixels[2048 + 500], 128);
        }
    }
    nw_dataset_close(d);
    put_fixture(root, "cinic10/valid/class3/1.png", "image/rgb.png");
    refuse("cinic10", root, "valid/class3/1.png has 16 x 12 pixels");
    put_file(root, "cinic10/valid/class2/0.png", "nothing", 7);
    refuse("cinic10", root, "valid/class2/0.png is neither");
#else
    refuse_with(&(nw_dataset_options){.name = "cinic10", .dir = root}, NW_E_UNSUPPORTED, "libpng-dev");
#endif
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

static void test_validation_split(void **state)
{
    (void)state;
    nw_dataset_options o = {.name = "synthetic", .image_size = 4, .limit = 1000, .classes = 7};
    nw_dataset *whole = open_with(&o);
    o.val_ratio = 0.1;
    o.limit = 0;
    nw_dataset *d = open_with(&o), *again = open_with(&o);
    const nw_images *train = &d->split[NW_SPLIT_TRAIN], *valid = &d->split[NW_SPLIT_VALID];
    assert_int_equal(train->count + valid->count, 10000);
    int64_t counts[7] = {0};
    for (int64_t i = 0; i < valid->count; i++) counts[valid->labels[i]]++;
    for (int c = 0; c < 7; c++) assert_in_range(counts[c], 142, 143); /* a tenth of 1428 or 1429 */
    assert_memory_equal(again->split[NW_SPLIT_VALID].pixels, valid->pixels, (size_t)valid->count * 48);
    /* Images keep their order, so a merge of the two by content gives the whole set again. */
    int64_t t = 0, v = 0;
    for (int64_t i = 0; i < 1000; i++) {
        const uint8_t *image = whole->split[NW_SPLIT_TRAIN].pixels + i * 48;
        if (memcmp(train->pixels + t * 48, image, 48) == 0)
            assert_int_equal(train->labels[t++], whole->split[NW_SPLIT_TRAIN].labels[i]);
        else {
            assert_memory_equal(valid->pixels + v * 48, image, 48);
            assert_int_equal(valid->labels[v++], whole->split[NW_SPLIT_TRAIN].labels[i]);
        }
    }
    assert_in_range(v, 60, 140);
    nw_dataset_close(whole);
    nw_dataset_close(d);
    nw_dataset_close(again);
    o.val_ratio = 1e-9;
    refuse_with(&o, NW_E_ARGUMENT, "10000 of the 10000");
}

static void test_synthetic(void **state)
{
    (void)state;
    nw_dataset_options o = {
        .name = "synthetic", .channels = 1, .image_size = 12, .classes = 5, .limit = 100, .seed = 3};
    nw_dataset *few = open_with(&o);
    o.limit = 0;
    nw_dataset *all = open_with(&o);
    o.seed = 4;
    nw_dataset *other = open_with(&o);
    assert_int_equal(all->split[NW_SPLIT_TRAIN].count, 10000);
    assert_int_equal(all->split[NW_SPLIT_TEST].count, 2000);
    assert_int_equal(few->split[NW_SPLIT_TEST].count, 100);
    assert_memory_equal(few->split[NW_SPLIT_TRAIN].pixels, all->split[NW_SPLIT_TRAIN].pixels, 100 * 144);
    assert_memory_not_equal(other->split[NW_SPLIT_TRAIN].pixels, all->split[NW_SPLIT_TRAIN].pixels, 144);
    assert_memory_not_equal(all->split[NW_SPLIT_TEST].pixels, all->split[NW_SPLIT_TRAIN].pixels, 144);
    nw_data_facts facts;
    assert_int_equal(nw_data_measure(&facts, all), NW_OK);
    for (int c = 0; c < 5; c++) assert_int_equal(facts.per_class[NW_SPLIT_TRAIN][c], 2000);
    assert_true(facts.mean[0] > 0.45 && facts.mean[0] < 0.55);
    assert_true(facts.deviation[0] > 0.12 && facts.deviation[0] < 0.25);
    nw_data_facts_free(&facts);
    nw_dataset_close(few);
    nw_dataset_close(all);
    nw_dataset_close(other);
}

/* A small network learns the textures; the best linear classifier by class means is near chance. */
static void test_synthetic_is_learnable(void **state)
{
    enum { BATCH = 64, STEPS = 60, SIZE = 16, PIXELS = 3 * SIZE * SIZE, CLASSES = 4, TRAIN = 1024, TEST = 256 };
    (void)state;
    nw_dataset *d = open_with(
        &(nw_dataset_options){.name = "synthetic", .image_size = SIZE, .classes = CLASSES, .limit = TRAIN, .seed = 1});
    nw_net_options o = nw_net_options_default();
    o.model = "resnet9";
    o.base_width = 8;
    o.batch_size = BATCH;
    o.height = o.width = SIZE;
    o.classes = CLASSES;
    o.precision = NW_PRECISION_F32;
    o.learning_rate = 0.05f;
    nw_net *net;
    nw_step_result result;
    assert_int_equal(nw_net_create(&net, &o), NW_OK);
    float *images = malloc(sizeof(float) * BATCH * PIXELS), *means = calloc(CLASSES * PIXELS, sizeof *means);
    const nw_images *train = &d->split[NW_SPLIT_TRAIN], *test = &d->split[NW_SPLIT_TEST];
    for (int step = 0; step < STEPS; step++) {
        int64_t first = step * BATCH % TRAIN;
        for (int i = 0; i < BATCH * PIXELS; i++)
            images[i] = ((float)train->pixels[first * PIXELS + i] / 255 - d->mean[0]) / d->deviation[0];
        assert_int_equal(nw_net_train_step(net, images, train->labels + first, BATCH, &result), NW_OK);
    }
    int right = 0, linear = 0;
    for (int first = 0; first < TEST; first += BATCH) {
        for (int i = 0; i < BATCH * PIXELS; i++)
            images[i] = ((float)test->pixels[first * PIXELS + i] / 255 - d->mean[0]) / d->deviation[0];
        assert_int_equal(nw_net_evaluate(net, images, test->labels + first, BATCH, NULL, &result), NW_OK);
        right += result.top1;
    }
    for (int i = 0; i < TRAIN; i++)
        for (int p = 0; p < PIXELS; p++)
            means[train->labels[i] * PIXELS + p] += (float)train->pixels[i * PIXELS + p] * (CLASSES / (float)TRAIN);
    for (int i = 0; i < TEST; i++) {
        int best = 0;
        double nearest = 1e30;
        for (int c = 0; c < CLASSES; c++) {
            double distance = 0;
            for (int p = 0; p < PIXELS; p++) {
                double difference = (double)test->pixels[i * PIXELS + p] - (double)means[c * PIXELS + p];
                distance += difference * difference;
            }
            if (distance < nearest) {
                nearest = distance;
                best = c;
            }
        }
        linear += best == test->labels[i];
    }
    print_message("%d of %d right; by class means %d\n", right, TEST, linear);
    assert_true(right > TEST * 9 / 10);
    assert_true(linear < TEST / 2);
    free(images);
    free(means);
    nw_net_free(net);
    nw_dataset_close(d);
}

/* ---- Shares of owners -------------------------------------------------------------------------------------------- */

enum { DEALT = 6000, DEAL_CLASSES = 11, DEAL_PARTS = 64 };

typedef struct deal {
    uint16_t owner[DEALT];
    int64_t by_class[DEAL_CLASSES][DEAL_PARTS], held[DEAL_PARTS];
} deal;

/* Ten classes in turn, and one that has no images. */
static void deal_out(deal *d, int parts, double alpha, int64_t least, uint64_t seed)
{
    static int32_t labels[DEALT];
    for (int i = 0; i < DEALT; i++) labels[i] = i % 10;
    nw_dataset set = {.name = "made", .classes = DEAL_CLASSES};
    set.split[NW_SPLIT_TRAIN] = (nw_images){.count = DEALT, .labels = labels};
    memset(d, 0, sizeof *d);
    memset(d->owner, 0xff, sizeof d->owner);
    assert_int_equal(nw_dataset_deal(&set, NW_SPLIT_TRAIN, parts, alpha, least, seed, d->owner), NW_OK);
    for (int i = 0; i < DEALT; i++) {
        assert_in_range(d->owner[i], 0, parts - 1); /* each image has one owner */
        d->by_class[labels[i]][d->owner[i]]++;
        d->held[d->owner[i]]++;
    }
}

static void test_shares(void **state)
{
    (void)state;
    static deal a, b;
    deal_out(&a, 4, 1e8, 16, 1); /* equal shares: of 600 images of a class, 150, but for cuts between two */
    for (int c = 0; c < 10; c++)
        for (int p = 0; p < 4; p++) assert_in_range(a.by_class[c][p], 148, 152);
    deal_out(&a, 4, 0.02, 16, 1); /* one owner has almost all of a class */
    int64_t largest = 0;
    for (int c = 0; c < 10; c++) {
        int64_t most = 0;
        for (int p = 0; p < 4; p++) most = a.by_class[c][p] > most ? a.by_class[c][p] : most;
        largest += most;
    }
    assert_true(largest > 10 * 540);
    for (int p = 0; p < 4; p++) assert_in_range(a.held[p], 16, 1500 + 600); /* who has his part gets no more classes */
    deal_out(&b, 4, 0.02, 16, 1);
    assert_memory_equal(&a, &b, sizeof a);
    deal_out(&b, 4, 0.02, 16, 2);
    assert_memory_not_equal(a.owner, b.owner, sizeof a.owner);
    for (uint64_t seed = 0; seed < 20; seed++) { /* more owners than classes: all have enough, if there is enough */
        deal_out(&a, DEAL_PARTS, 0.001, 32, seed);
        for (int p = 0; p < DEAL_PARTS; p++) assert_true(a.held[p] >= 32);
        deal_out(&a, DEAL_PARTS, 0.3, 4096, seed);
        for (int p = 0; p < DEAL_PARTS; p++) assert_true(a.held[p] >= DEALT / DEAL_PARTS);
    }
}

/* Of the first class, whose shares nothing bounds: mean 1 / K and variance (1 - 1 / K) / K / (K alpha + 1). */
static void test_shares_are_dirichlet(void **state)
{
    (void)state;
    enum { SEEDS = 1000, PARTS = 5 };
    static const double alphas[] = {0.1, 0.3, 3};
    for (int k = 0; k < 3; k++) {
        double sum[PARTS] = {0}, squares = 0, want = 0.2 * 0.8 / (PARTS * alphas[k] + 1);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            static deal d;
            deal_out(&d, PARTS, alphas[k], 0, seed);
            for (int p = 0; p < PARTS; p++) {
                double share = (double)d.by_class[0][p] / 600;
                sum[p] += share;
                squares += (share - 0.2) * (share - 0.2);
            }
        }
        for (int p = 0; p < PARTS; p++) assert_true(fabs(sum[p] / SEEDS - 0.2) < 5 * sqrt(want / SEEDS));
        assert_true(fabs(squares / SEEDS / PARTS / want - 1) < 0.15);
    }
}

/* ---- nowait-raw -------------------------------------------------------------------------------------------------- */

static void test_raw_from_python(void **state)
{
    (void)state;
    nw_dataset d = {0};
    char **names;
    bytes b = fixture("raw/tiny.nwraw");
    assert_int_equal(nw_raw_parse(&d, b.data, b.size, "tiny", &names), NW_OK);
    assert_int_equal(nw_raw_verify(b.data, b.size, "tiny"), NW_OK);
    assert_string_equal(d.name, "cifar10");
    assert_string_equal(names[1], "dog");
    assert_int_equal(d.split[NW_SPLIT_TRAIN].count, 3);
    assert_int_equal(d.split[NW_SPLIT_TRAIN].pixels[35], 35);
    assert_int_equal(d.split[NW_SPLIT_TEST].labels[0], 1);
    assert_true(d.mean[2] == 0.125f && d.deviation[1] == 2);
    assert_null(d.mean_image);
    free(names);
    b.data[b.size - 128 + 5] ^= 1; /* a pixel */
    assert_int_equal(nw_raw_parse(&d, b.data, b.size, "tiny", &names), NW_OK);
    free(names);
    assert_int_equal(nw_raw_verify(b.data, b.size, "tiny"), NW_E_FILE);
    b.data[330] ^= 1; /* a class name */
    assert_int_equal(nw_raw_parse(&d, b.data, b.size, "tiny", &names), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "offset 232"));
    release(&b);
    b = fixture("raw/mean.nwraw");
    assert_int_equal(nw_raw_parse(&d, b.data, b.size, "mean", &names), NW_OK);
    assert_null(names);
    assert_true(d.mean_image[3] == 4);
    release(&b);
}

static void test_import(void **state)
{
    const char *root = *state;
    char path[PATH_SIZE];
    put_folder(root, "mnist");
    put_fixture(root, "mnist/train-images-idx3-ubyte", "idx/images");
    put_fixture(root, "mnist/train-labels-idx1-ubyte", "idx/labels");
    nw_dataset *d = open_in("mnist", root);
    snprintf(path, sizeof path, "%s/mnist.nwraw", root);
    assert_int_equal(nw_data_import(d, path), NW_OK);
    nw_dataset_close(d);
    assert_int_equal(count_entries(root), 2);
    d = open_in("mnist", root);
    assert_string_equal(d->source, path);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, 3);
    assert_int_equal(d->split[NW_SPLIT_TEST].count, 0);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].labels[2], 9);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].pixels[59], 59);
    assert_true(d->mean[0] == 0.1307f);
    nw_data_facts facts;
    assert_int_equal(nw_data_measure(&facts, d), NW_OK); /* also verifies the pixels */
    nw_data_facts_free(&facts);
    nw_dataset_close(d);
    d = open_with(&(nw_dataset_options){.name = "mnist", .dir = root, .limit = 2});
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, 2);
    nw_dataset_close(d);
    d = open_with(&(nw_dataset_options){.name = "mnist", .dir = root, .published = true});
    assert_non_null(strstr(d->source, "/mnist"));
    assert_null(strstr(d->source, ".nwraw"));
    nw_dataset_close(d);
    put_fixture(root, "mnist.nwraw", "raw/tiny.nwraw");
    refuse("mnist", root, "holds 'cifar10', not 'mnist'");
    put_file(root, "mnist.nwraw", "nowait-raw 2\n", 13);
    refuse("mnist", root, "not a nowait-raw file of version 1");
}

static void test_import_folder(void **state)
{
    const char *root = *state;
    char path[PATH_SIZE];
    put_tree(root);
    snprintf(path, sizeof path, "%s/folder.nwraw", root);
#if NW_HAVE_PNG
    nw_dataset *d = open_in("folder", root);
    assert_int_equal(nw_data_import(d, path), NW_OK);
    nw_dataset_close(d);
    d = open_in("folder", root);
    assert_int_equal(d->height, 32);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].pixels[31], 176);
    assert_string_equal(d->class_names[1], "a b");
    nw_dataset_close(d);
    /* What cannot be written leaves nothing. */
    d = open_with(&(nw_dataset_options){.name = "folder", .dir = root, .published = true});
    assert_int_equal(nw_data_import(d, "/nonexistent/x.nwraw"), NW_E_SYSTEM);
    nw_dataset_close(d);
#else
    (void)path;
    skip();
#endif
}

/* ---- Real data --------------------------------------------------------------------------------------------------- */

static void count_per_class(const nw_dataset *d, nw_split split, int64_t want)
{
    nw_data_facts facts;
    assert_int_equal(nw_data_measure(&facts, d), NW_OK);
    for (int c = 0; c < d->classes; c++) assert_int_equal(facts.per_class[split][c], want);
    nw_data_facts_free(&facts);
}

static void test_real_cifar10(void **state)
{
    const char *root = real_data("cifar-10-batches-bin/test_batch.bin");
    (void)state;
    if (!root) skip();
    nw_dataset *d = open_in("cifar10", root);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, 50000);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].labels[0], 6); /* a frog */
    assert_int_equal(d->split[NW_SPLIT_TEST].labels[0], 3);  /* a cat */
    assert_string_equal(d->class_names[6], "frog");
    count_per_class(d, NW_SPLIT_TRAIN, 5000);
    count_per_class(d, NW_SPLIT_TEST, 1000);
    nw_dataset_close(d);
    d = open_with(&(nw_dataset_options){.name = "cifar10", .dir = root, .val_ratio = 0.1, .limit = 4000});
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, 4000);
    assert_int_equal(d->split[NW_SPLIT_VALID].count, 4000);
    nw_dataset_close(d);
}

static void test_real_mnist(void **state)
{
    const char *root = real_data("mnist/train-images-idx3-ubyte.gz");
    (void)state;
    if (!root || !NW_HAVE_ZLIB) skip();
    nw_dataset *d = open_in("mnist", root);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, 60000);
    assert_int_equal(d->split[NW_SPLIT_TEST].count, 10000);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].labels[0], 5);
    assert_int_equal(d->split[NW_SPLIT_TEST].labels[0], 7);
    nw_data_facts facts;
    assert_int_equal(nw_data_measure(&facts, d), NW_OK);
    assert_true(facts.mean[0] > 0.1306 && facts.mean[0] < 0.1308);
    assert_true(facts.deviation[0] > 0.308 && facts.deviation[0] < 0.3082);
    nw_data_facts_free(&facts);
    nw_dataset_close(d);
}

static void test_real_fashion_mnist(void **state)
{
    (void)state;
    if (!NW_HAVE_ZLIB || access("/usr/share/datasets/fashion-mnist", R_OK) != 0) {
        print_message("skipped: the package dataset-fashion-mnist or zlib is missing\n");
        skip();
    }
    nw_dataset *d = open_in("fashion-mnist", "/nonexistent");
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, 60000);
    assert_string_equal(d->class_names[9], "Ankle boot");
    count_per_class(d, NW_SPLIT_TRAIN, 6000);
    nw_dataset_close(d);
}

static void test_real_imagenet32(void **state)
{
    const char *root = real_data("imagenet32-val-subset/val_data");
    (void)state;
    if (!root) skip();
    nw_dataset *d = open_in("imagenet32", root);
    assert_int_equal(d->split[NW_SPLIT_TEST].count, 5000);
    count_per_class(d, NW_SPLIT_TEST, 5);
    nw_dataset_close(d);
    d = open_with(&(nw_dataset_options){.name = "imagenet32", .dir = root, .classes = 100});
    assert_int_equal(d->classes, 100);
    count_per_class(d, NW_SPLIT_TEST, 5);
    nw_dataset_close(d);
}

static void test_real_imagenette(void **state)
{
    const char *root = real_data("imagenette-sample/val");
    (void)state;
    if (!root || !NW_HAVE_JPEG) skip();
    nw_dataset *d = open_in("imagenet", root);
    assert_int_equal(d->classes, 10);
    assert_int_equal(d->split[NW_SPLIT_TRAIN].count, 600);
    assert_int_equal(d->split[NW_SPLIT_TEST].count, 200);
    assert_string_equal(d->class_names[0], "n01440764");
    nw_bitmap bitmap = {0};
    int height, width;
    for (int64_t i = 0; i < 200; i += 10) {
        assert_int_equal(nw_image_decode(d->split[NW_SPLIT_TEST].paths[i], 100, &bitmap, &height, &width), NW_OK);
        assert_int_equal(height, 224);
        assert_int_equal(bitmap.height, 112);
    }
    nw_bitmap_free(&bitmap);
    nw_dataset_close(d);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_cifar10),
        IN_FOLDER(test_cifar100),
        IN_FOLDER(test_mnist),
        IN_FOLDER(test_imagenet32),
        IN_FOLDER(test_missing),
        IN_FOLDER(test_folder),
        IN_FOLDER(test_folder_limit),
        IN_FOLDER(test_cinic10),
        cmocka_unit_test(test_validation_split),
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_synthetic_is_learnable),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_shares_are_dirichlet),
        cmocka_unit_test(test_raw_from_python),
        IN_FOLDER(test_import),
        IN_FOLDER(test_import_folder),
        cmocka_unit_test(test_real_cifar10),
        cmocka_unit_test(test_real_mnist),
        cmocka_unit_test(test_real_fashion_mnist),
        cmocka_unit_test(test_real_imagenet32),
        cmocka_unit_test(test_real_imagenette),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
