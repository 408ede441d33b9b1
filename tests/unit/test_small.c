/* test_small.c - the small pieces of base: SHA-256 against published digests, suggestions for misspelt names. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/digest.h"
#include "base/suggest.h"

#include <string.h>

static void check_digest(const char *text, size_t times, const char *want)
{
    char got[65];
    nw_digest hash = nw_sha256_begin();
    for (size_t i = 0; i < times; i++) nw_digest_add(&hash, text, strlen(text));
    nw_digest_end(&hash, got);
    assert_string_equal(got, want);
}

/* The examples of FIPS 180-4, the last one a million times 'a'. */
static void test_sha256(void **state)
{
    (void)state;
    check_digest("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_digest("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check_digest("a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Cut anywhere, the digest is the same. */
static void test_sha256_in_pieces(void **state)
{
    unsigned char data[200];
    char whole[65], parts[65];
    (void)state;
    for (int i = 0; i < 200; i++) data[i] = (unsigned char)(i * 7);
    nw_digest hash = nw_sha256_begin();
    nw_digest_add(&hash, data, sizeof data);
    nw_digest_end(&hash, whole);
    for (size_t cut = 0; cut <= sizeof data; cut++) {
        hash = nw_sha256_begin();
        nw_digest_add(&hash, data, cut);
        nw_digest_add(&hash, data + cut, sizeof data - cut);
        nw_digest_end(&hash, parts);
        assert_string_equal(parts, whole);
    }
}

static void test_suggestions(void **state)
{
    static const char *const names[] = {"batch-size", "model", "momentum", "threads", "box", "scheduler"};
    static const char *const recipes[] = {"acid/cifar10-resnet18", "petra/cifar10-resnet18-backprop",
                                          "petra/cifar10-revnet18-backprop", "petra/imagenet-revnet18-backprop"};
    static const struct {
        const char *wrong, *text;
    } cases[] = {{"bathc-size", "; the nearest is 'batch-size', and see"},
                 {"mdoel", "; the nearest is 'model', and see"},
                 {"momentun", "; the nearest is 'momentum', and see"},
                 {"BATCH_SIZ", "; the nearest is 'batch-size', and see"},
                 {"sched", "; the nearest is 'scheduler', and see"}, /* cut short */
                 {"bix", "; the nearest is 'box', and see"},
                 {"foo", "; see"}, /* too far for its length, as are: */
                 {"mo", "; see"},
                 {"sync", "; see"},
                 {"thrust", "; see"},
                 {"", "; see"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(nw_suggest(cases[i].wrong, names, 6, "see").text, cases[i].text);
    assert_string_equal(nw_suggest("foo", names, 6, "").text, "");
    assert_string_equal(nw_suggest_option("mdoel", names, 6, "").text, "; the nearest is --model");
    char longest[300];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_string_equal(nw_suggest(longest, names, 6, "").text, "");
    /* A folder that is there is taken at its word. */
    assert_string_equal(nw_suggest("petra/cifar10-revnet18", recipes, 4, "").text,
                        "; the nearest is 'petra/cifar10-revnet18-backprop'");
    assert_string_equal(nw_suggest("petra/cifar10-revnet18x", recipes, 4, "").text, /* cut short and misspelt */
                        "; the nearest is 'petra/cifar10-revnet18-backprop'");
    assert_string_equal(nw_suggest("petra/cifar10-revnt18-bckprop", recipes, 4, "").text,
                        "; the nearest is 'petra/cifar10-revnet18-backprop'");
    assert_string_equal(nw_suggest("petra/cifar10-resnet18", recipes, 1, "").text,
                        "; the nearest is 'acid/cifar10-resnet18'");
}

static void test_names(void **state)
{
    (void)state;
    assert_true(nw_name_same("resnet-20", "resnet20"));
    assert_true(nw_name_same("vgg16bn", "vgg16_bn"));
    assert_true(nw_name_same("All-CNN", "allcnn"));
    assert_true(nw_name_same("lr_", "lr"));
    assert_false(nw_name_same("resnet2", "resnet20"));
    assert_false(nw_name_same("resnet20", "resnet2"));
    assert_true(nw_name_same_part("sgd", "sgd|adam", 3));
    assert_false(nw_name_same_part("sgd", "sgd|adam", 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_sha256_in_pieces),
        cmocka_unit_test(test_suggestions),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
