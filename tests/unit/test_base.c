/*
 * test_base.c - failures and their texts, the arena, random numbers, the JSON writer, facts about the machine.
 *
 * Everything random has a fixed seed, so the statistical bounds, five standard deviations, hold always or never. What
 * must abort is tried in a child process.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/rng.h"
#include "base/status.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static bool aborts(void (*misuse)(void))
{
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
        misuse();
        _exit(0);
    }
    int result = 0;
    return waitpid(child, &result, 0) == child && WIFSIGNALED(result) && WTERMSIG(result) == SIGABRT;
}

/* ---- status ---- */
static nw_status origin(int value)
{
    NW_FAIL_IF(value < 0, NW_E_SHAPE, "%d channels are impossible: give at least %d", value, 1);
    return NW_OK;
}

static nw_status middle(int value)
{
    NW_TRY(origin(value));
    return NW_OK;
}

TEST(test_status_table)
{
    assert_string_equal(nw_status_name(NW_OK), "NW_OK");
    assert_string_equal(nw_status_name(NW_E_SHAPE), "NW_E_SHAPE");
    assert_string_equal(nw_status_text(NW_E_MEMORY), "not enough memory");
    assert_true(nw_status_exit_code(NW_OK) == 0 && nw_status_exit_code(NW_E_NUMERIC) == 1);
    assert_true(nw_status_exit_code(NW_E_UNKNOWN) == 2 && nw_status_exit_code(NW_E_FILE) == 3);
    assert_int_not_equal(nw_status_exit_code((nw_status)99), 0);
    assert_true(strlen(nw_version()) > 0 && strlen(nw_build_commit()) > 0);
}

TEST(test_failure_message_and_trace)
{
    assert_int_equal(middle(3), NW_OK);
    assert_int_equal(middle(-2), NW_E_SHAPE);
    assert_string_equal(nw_error_message(), "-2 channels are impossible: give at least 1");
    assert_non_null(strstr(nw_error_trace(), "NW_E_SHAPE: -2 channels"));
    const char *passed = strchr(nw_error_trace(), '\n');
    assert_true(passed != NULL && strstr(passed, "test_base.c:") != NULL && strchr(passed + 1, '\n') == NULL);
    assert_int_equal(origin(-7), NW_E_SHAPE);
    assert_null(strchr(nw_error_trace(), '\n'));
    assert_non_null(strstr(nw_error_trace(), "test_base.c:"));
    /* A failure may quote the one before; a status that nobody explained does not borrow an explanation. */
    NW_FAIL(NW_E_FILE, "while reading: %s", nw_error_message());
    assert_string_equal(nw_error_message(), "while reading: -7 channels are impossible: give at least 1");
    assert_int_equal(nw_pass_up_at(NW_E_SYSTEM, "x.c", 7), NW_E_SYSTEM);
    assert_string_equal(nw_error_message(), nw_status_text(NW_E_SYSTEM));
    assert_non_null(strstr(nw_error_trace(), "x.c:7"));
}

TEST(test_failure_longer_than_its_buffers)
{
    static char text[20000];
    for (size_t start = 0; start < 3; start++) {
        /* A three-byte character repeated: every cut but one in three would fall inside it. */
        memset(text, 'a', sizeof text);
        for (size_t i = start; i + 3 < sizeof text; i += 3) memcpy(text + i, "\xE2\x82\xAC", 3);
        text[sizeof text - 1] = '\0';
        (void)NW_FAIL(NW_E_FILE, "%s", text);
        size_t length = strlen(nw_error_message());
        assert_true(length > 500 && length < sizeof text - 1);
        assert_string_equal(nw_error_message() + length - 3, "...");
        assert_int_equal((length - 3 - start) % 3, 0);
    }
    for (int i = 0; i < 1000; i++) nw_pass_up_at(NW_E_FILE, "some/file.c", i);
    assert_non_null(strstr(nw_error_trace(), "\nsome/file.c:0\n"));
}

static void *fail_elsewhere(void *unused)
{
    (void)origin(-99);
    return unused;
}

TEST(test_failure_of_another_thread)
{
    (void)origin(-5);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_ptr_equal(strstr(nw_error_message(), "-5 channels"), nw_error_message());
}

/* ---- arena ---- */
/* Some building code. */
static void build(nw_arena *arena, void *pointers[12])
{
    static const size_t sizes[6] = {1, 64, 65, 1000, 0, 4097};
    for (int i = 0; i < 6; i++) {
        pointers[2 * i] = nw_arena_alloc(arena, sizes[i]);
        pointers[2 * i + 1] = nw_arena_alloc(arena, (size_t)(7 - i) * 3001);
    }
}

TEST(test_arena_measure_is_layout)
{
    void *pointers[12];
    nw_arena measured = nw_arena_measure();
    assert_true(nw_arena_is_measuring(&measured));
    build(&measured, pointers);
    for (int i = 0; i < 12; i++) assert_null(pointers[i]);
    assert_true(measured.used >= 27 * 3001);
    nw_arena real;
    assert_int_equal(nw_arena_create(&real, measured.used), NW_OK);
    assert_false(nw_arena_is_measuring(&real));
    build(&real, pointers);
    assert_true(real.used == measured.used && real.used == real.capacity);
    for (int i = 0; i < 12; i++) assert_true(pointers[i] != NULL && (uintptr_t)pointers[i] % NW_ALIGN == 0);
    assert_true((char *)pointers[6] >= (char *)pointers[4] + 65);
    nw_arena_destroy(&real);
}

TEST(test_arena_memory)
{
    const size_t bytes = (size_t)9 << 20; /* large enough for the path with huge pages */
    nw_arena arena;
    assert_int_equal(nw_arena_create(&arena, bytes), NW_OK);
    unsigned char *memory = nw_arena_alloc(&arena, bytes);
    for (size_t i = 0; i < bytes; i++) assert_true(memory[i]++ == 0);
    nw_arena_destroy(&arena);
    assert_true(nw_arena_create(&arena, 0) == NW_OK && !nw_arena_is_measuring(&arena));
    nw_arena_destroy(&arena);
}

static void exhaust(void)
{
    nw_arena arena;
    if (nw_arena_create(&arena, 128) != NW_OK || nw_arena_alloc(&arena, 65) == NULL) return;
    nw_arena_alloc(&arena, 1);
}

TEST(test_arena_refuses_too_much)
{
    nw_arena arena;
    assert_int_equal(nw_arena_create(&arena, (size_t)1 << 46), NW_E_MEMORY);
    assert_non_null(strstr(nw_error_message(), "65536.00 GiB"));
    assert_true(strstr(nw_error_message(), "available") && strstr(nw_error_message(), "smaller batch size"));
    nw_arena_destroy(&arena);
    /* Sizes that overflow while measuring end in the same refusal, not in a small block. */
    nw_arena measured = nw_arena_measure();
    for (int i = 0; i < 3; i++) nw_arena_alloc(&measured, SIZE_MAX / 2);
    assert_int_equal(nw_arena_create(&arena, measured.used), NW_E_MEMORY);
    measured = nw_arena_measure();
    nw_arena_alloc(&measured, SIZE_MAX - 3);
    assert_int_equal(nw_arena_create(&arena, measured.used), NW_E_MEMORY);
    assert_true(aborts(exhaust));
}

/* ---- random numbers ---- */
TEST(test_philox_known_answers)
{
    /* From the authors' distribution (Random123, kat_vectors). */
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t got[4];
        nw_philox(cases[i].counter, cases[i].key, got);
        assert_memory_equal(got, cases[i].want, sizeof got);
    }
}

TEST(test_streams)
{
    nw_rng base = nw_rng_make(7, NW_PURPOSE_TEST, 5, 6), again = base;
    nw_rng others[] = {
        nw_rng_make(8, NW_PURPOSE_TEST, 5, 6), nw_rng_make(7 | 1ull << 40, NW_PURPOSE_TEST, 5, 6),
        nw_rng_make(7, NW_PURPOSE_TEST, 4, 6), nw_rng_make(7, NW_PURPOSE_TEST, 5 | 1ull << 40, 6),
        nw_rng_make(7, NW_PURPOSE_INIT, 5, 6), nw_rng_make(7, NW_PURPOSE_TEST, 5, 7),
    };
    for (int i = 0; i < 1000; i++) {
        uint32_t word = nw_rng_u32(&base);
        assert_int_equal(word, nw_rng_u32(&again));
        int equal = 0;
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) equal += nw_rng_u32(&others[k]) == word;
        assert_int_equal(equal, 0);
    }
}

TEST(test_below)
{
    enum { DRAWS = 300000 };
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, 0, 0);
    int hits[10] = {0};
    for (int i = 0; i < DRAWS; i++) {
        uint32_t value = nw_rng_below(&rng, 10);
        assert_true(value < 10);
        hits[value]++;
    }
    for (int i = 0; i < 10; i++) assert_true(fabs(hits[i] - DRAWS / 10.0) < 5 * sqrt(DRAWS * 0.1 * 0.9));
    assert_int_equal(nw_rng_below(&rng, 1), 0);
    /* With 3 * 2^30, taking the remainder would give the lowest third twice as often as the others. */
    int low = 0;
    for (int i = 0; i < DRAWS; i++) low += nw_rng_below(&rng, 3u << 30) < 1u << 30;
    assert_true(fabs(low - DRAWS / 3.0) < 5 * sqrt(DRAWS * 2.0 / 9.0));
}

TEST(test_uniform_and_normal)
{
    enum { DRAWS = 400000 };
    nw_rng rng = nw_rng_make(2, NW_PURPOSE_TEST, 0, 0);
    int bins[16] = {0};
    for (int i = 0; i < DRAWS; i++) {
        float value = nw_rng_uniform(&rng);
        assert_true(value >= 0.0f && value < 1.0f);
        bins[(int)(value * 16)]++;
    }
    for (int i = 0; i < 16; i++) assert_true(fabs(bins[i] - DRAWS / 16.0) < 5 * sqrt(DRAWS / 16.0));
    double sums[5] = {0}, lagged = 0, last = 0;
    for (int i = 0; i < DRAWS; i++) {
        double value = (double)nw_rng_normal(&rng), power = 1;
        assert_true(isfinite(value));
        for (int k = 1; k <= 4; k++) sums[k] += power *= value;
        lagged += value * last;
        last = value;
    }
    /* The first four moments, each within its own standard deviation; and no correlation of neighbours. */
    static const double moments[5] = {0, 0, 1, 0, 3}, variances[5] = {0, 1, 2, 15, 96};
    for (int k = 1; k <= 4; k++) assert_true(fabs(sums[k] / DRAWS - moments[k]) < 5 * sqrt(variances[k] / DRAWS));
    assert_true(fabs(lagged / DRAWS) < 5 / sqrt(DRAWS));
}

/* Mean and variance are the shape; the logarithm's are the digamma and the trigamma function of it. */
TEST(test_gamma)
{
    enum { DRAWS = 200000 };
    static const struct {
        double shape, log_mean, log_variance;
    } want[] = {
        {0.02, -50.5448, 2501.597}, {0.3, -3.502524, 12.2454}, {1, -0.577216, 1.644934}, {7.5, 1.946757, 0.142616}};
    for (size_t k = 0; k < sizeof want / sizeof want[0]; k++) {
        nw_rng rng = nw_rng_make(9, NW_PURPOSE_TEST, k, 0);
        double shape = want[k].shape, sum = 0, squares = 0, log_sum = 0, log_squares = 0;
        for (int i = 0; i < DRAWS; i++) {
            double log_value = (double)nw_rng_log_gamma(&rng, shape), value = exp(log_value);
            assert_true(isfinite(log_value));
            sum += value;
            squares += (value - shape) * (value - shape);
            log_sum += log_value;
            log_squares += (log_value - want[k].log_mean) * (log_value - want[k].log_mean);
        }
        assert_true(fabs(sum / DRAWS - shape) < 5 * sqrt(shape / DRAWS));
        /* The fourth central moment is 3 k^2 + 6 k. */
        assert_true(fabs(squares / DRAWS - shape) < 5 * sqrt((2 * shape * shape + 6 * shape) / DRAWS));
        assert_true(fabs(log_sum / DRAWS - want[k].log_mean) < 5 * sqrt(want[k].log_variance / DRAWS));
        assert_true(fabs(log_squares / DRAWS / want[k].log_variance - 1) < 0.05);
    }
}

/* ---- machine and clock ---- */
TEST(test_machine)
{
    int cpus = nw_machine_allowed_cpus();
    assert_true(cpus >= 1 && cpus <= sysconf(_SC_NPROCESSORS_CONF));
    size_t total = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t available = nw_machine_available_memory();
    assert_true(available > (size_t)1 << 20 && available <= total && nw_machine_load() >= 0.0);
    char name[128];
    nw_machine_cpu_name(name, sizeof name);
    assert_true(strlen(name) > 0 && name[0] != ' ' && strchr(name, '\n') == NULL);
    /* The peak follows memory that is touched. */
    const size_t block = (size_t)64 << 20;
    size_t before = nw_machine_peak_memory();
    nw_arena arena;
    assert_int_equal(nw_arena_create(&arena, total), NW_E_MEMORY); /* though the system would map it */
    assert_int_equal(nw_arena_create(&arena, block), NW_OK);
    memset(nw_arena_alloc(&arena, block), 1, block);
    nw_arena_destroy(&arena);
    size_t after = nw_machine_peak_memory();
    assert_true(before > 0 && after >= before && after >= block && after < total);
}

TEST(test_ticks_and_clock)
{
    nw_cpu_ticks before = nw_machine_ticks();
    int64_t start = nw_now_ns();
    usleep(60000);
    int64_t elapsed = nw_now_ns() - start;
    nw_cpu_ticks after = nw_machine_ticks();
    assert_true(elapsed >= 59000000 && nw_seconds(elapsed) < 30.0);
    assert_true(before.total > 0 && before.idle + before.steal <= before.total && after.total > before.total);
    nw_cpu_ticks early = {.total = 1000, .steal = 10}, late = {.total = 1200, .steal = 60};
    assert_true(fabs(nw_machine_steal_percent(early, late) - 25.0) < 1e-9);
    assert_true(nw_machine_steal_percent(early, early) == 0.0);
}

/* ---- JSON ---- */
/* Makes one call a letter and returns what was written; 's' and 'd' take the value that the test has set. */
static const char *string_value;
static double double_value;
static const char *play(const char *script, bool pretty)
{
    static char written[512];
    nw_json json = nw_json_begin(fmemopen(written, sizeof written, "w"), pretty);
    for (; *script != '\0'; script++) {
        switch (*script) {
        case '{':
            nw_json_object(&json);
            break;
        case '}':
            nw_json_object_end(&json);
            break;
        case '[':
            nw_json_array(&json);
            break;
        case ']':
            nw_json_array_end(&json);
            break;
        case 'k':
            nw_json_key(&json, "k\"");
            break;
        case 'i':
            nw_json_int(&json, INT64_MIN);
            break;
        case 't':
            nw_json_bool(&json, true);
            break;
        case 'f':
            nw_json_bool(&json, false);
            break;
        case 's':
            nw_json_string(&json, string_value);
            break;
        case 'd':
            nw_json_double(&json, double_value);
            break;
        }
    }
    nw_json_end(&json);
    fclose(json.out);
    return written;
}

static const char *misuse_script;
static void play_misuse(void) { play(misuse_script, false); }

TEST(test_json_structure)
{
    string_value = NULL;
    double_value = (double)NAN;
    assert_string_equal(play("{k[itf[]]k{kd}ks}", false),
                        "{\"k\\\"\":[-9223372036854775808,true,false,[]],\"k\\\"\":{\"k\\\"\":null},\"k\\\"\":null}\n");
    assert_string_equal(play("{k[t{}]kf}", true),
                        "{\n  \"k\\\"\": [\n    true,\n    {}\n  ],\n  \"k\\\"\": false\n}\n");
    double_value = (double)-INFINITY;
    assert_string_equal(play("d", true), "null\n");
    static const char *const wrong[] = {
        "",    "k",   "tt", "{", "{t", "{]",
        "{kk", "{k}", "[k", "]", "[}", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        misuse_script = wrong[i];
        assert_true(aborts(play_misuse));
    }
}

TEST(test_json_strings)
{
    static const char *const pairs[][2] = {
        {"q\" b\\ n\n t\t \x01 \x7f", "\"q\\\" b\\\\ n\\n t\\t \\u0001 \\u007f\"\n"},
        {"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "\"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\"\n"},
        {"\xC0\xAF|\xED\xA0\x80", "\"\\u00c0\\u00af|\\u00ed\\u00a0\\u0080\"\n"},            /* overlong, surrogate */
        {"\xF4\x90\x80\x80|\xE2\x82", "\"\\u00f4\\u0090\\u0080\\u0080|\\u00e2\\u0082\"\n"}, /* too large, cut off */
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        string_value = pairs[i][0];
        assert_string_equal(play("s", false), pairs[i][1]);
    }
}

TEST(test_json_doubles)
{
    static const char *const texts[] = {"0.1\n", "0.3333333333333333\n", "100\n", "5e-324\n", "0.30000000000000004\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        double_value = strtod(texts[i], NULL);
        assert_string_equal(play("d", false), texts[i]);
    }
    nw_rng rng = nw_rng_make(3, NW_PURPOSE_TEST, 0, 0);
    for (int i = 0; i < 5000; i++) {
        uint32_t bits[2] = {nw_rng_u32(&rng), nw_rng_u32(&rng)};
        memcpy(&double_value, bits, sizeof double_value);
        if (isfinite(double_value)) assert_true(strtod(play("d", false), NULL) == double_value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_table),
        cmocka_unit_test(test_failure_message_and_trace),
        cmocka_unit_test(test_failure_longer_than_its_buffers),
        cmocka_unit_test(test_failure_of_another_thread),
        cmocka_unit_test(test_arena_measure_is_layout),
        cmocka_unit_test(test_arena_memory),
        cmocka_unit_test(test_arena_refuses_too_much),
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_uniform_and_normal),
        cmocka_unit_test(test_gamma),
        cmocka_unit_test(test_machine),
        cmocka_unit_test(test_ticks_and_clock),
        cmocka_unit_test(test_json_structure),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_doubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
