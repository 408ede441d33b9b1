/*
 * test_self_test.c - the self-test of instruction sets: it finds what computes wrongly, in either size of blocks, survives
 * what dies, leaves no trace of that, and the choice of a set heeds it. Tables of the test's own stand for sets that
 * machines offer and refuse.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "compute/isa.h"
#include "compute/self_test.h"

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

extern const nw_kernels nw_kernels_generic;

static void assert_says(const char *text, const char *part)
{
    if (!text || !strstr(text, part)) fail_msg("expected '%s' in: %s", part, text);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void execute_what_no_cpu_has(void)
{
#ifdef __x86_64__
    __asm__ volatile("ud2");
#else
    for (;;) raise(SIGILL); /* again and again, as an instruction dies until a handler jumps away */
#endif
}

static void die_forward(nw_exec *exec, const nw_conv *v, const nw_source *x, const float *w, const float *bias,
                        nw_tensor *y, const nw_moments *moments, nw_work work)
{
    (void)exec, (void)v, (void)x, (void)w, (void)bias, (void)y, (void)moments, (void)work;
    execute_what_no_cpu_has();
}

static int wrong_block; /* in which the sums of the weight gradient lack something */

static void sum_wrongly(nw_exec *exec, const nw_conv *v, const nw_source *x, const nw_source *dy, float *dw,
                        float *dbias, bool accumulate, nw_work work)
{
    nw_kernels_generic.conv_backward_weights(exec, v, x, dy, dw, dbias, accumulate, work);
    if (x->a.t->block == wrong_block) dw[nw_conv_weights(v) / 2] += 1.0f;
}

static nw_kernels dying(const char *isa)
{
    nw_kernels k = nw_kernels_generic;
    k.isa = isa;
    k.conv_forward = die_forward;
    return k;
}
static nw_kernels wrong(const char *isa)
{
    nw_kernels k = nw_kernels_generic;
    k.isa = isa;
    k.conv_backward_weights = sum_wrongly;
    return k;
}

/* What the choice of a set asks, with sets that fare ill instead of those that CPU and system offer. */
nw_status __real_nw_self_test(const nw_kernels *kernels, double *error);
nw_status __wrap_nw_self_test(const nw_kernels *kernels, double *error);
static bool afflicted;
static int asked[16]; /* how often, by set: only of what CPU and system offer */

static int index_of(const char *isa)
{
    int i = 0;
    while (i < nw_isa_count() && strcmp(nw_isa_kernels(i)->isa, isa)) i++;
    return i;
}

nw_status __wrap_nw_self_test(const nw_kernels *kernels, double *error)
{
    nw_kernels k = *kernels;
    if (!afflicted) return __real_nw_self_test(kernels, error);
    int before = asked[index_of(k.isa)]++;
    wrong_block = 16;
    if (!strcmp(k.isa, "amx") || !strcmp(k.isa, "avx512")) k = dying(k.isa);
    if (!strcmp(k.isa, "avx2")) k = wrong(k.isa);
    NW_FAIL_IF(!strcmp(k.isa, "avx2-bf16") && before == 0, NW_E_MEMORY, "no memory for a self-test");
    return __real_nw_self_test(&k, error);
}

/* ---- the self-test ----------------------------------------------------------------------------------------------- */

/* What is offered passes; what is not dies, in earnest, and is survived. */
TEST(test_every_set_of_the_build)
{
    double error;
    for (int i = 0; i < nw_isa_count(); i++) {
        nw_status status = nw_self_test(nw_isa_kernels(i), &error);
        if (status != NW_OK && (asked[i] || status != NW_E_UNSUPPORTED)) fail_msg("%s", nw_error_message());
    }
}

TEST(test_both_sizes_of_blocks)
{
    double error;
    nw_kernels k = wrong("wrong");
    for (wrong_block = 16; wrong_block <= 32; wrong_block += 16) {
        assert_int_equal(nw_self_test(&k, &error), NW_E_NUMERIC);
        assert_says(nw_error_message(), "the self-test of wrong failed: results differ by ");
        assert_true(error > 1e-5);
    }
    wrong_block = 0;
    assert_int_equal(nw_self_test(&k, &error), NW_OK);
}

static _Thread_local sigjmp_buf own_way_out;
static void own_handler(int signal)
{
    (void)signal;
    siglongjmp(own_way_out, 1);
}
static void handle(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    assert_int_equal(sigaction(SIGILL, &action, NULL), 0);
}

/* Twice: what the first death leaves must not be in the way of a second one. */
TEST(test_death_leaves_no_trace)
{
    nw_kernels k = dying("doomed");
    double error;
    handle(own_handler);
    assert_int_equal(fesetround(FE_UPWARD), 0);
    for (int i = 0; i < 2; i++) {
        struct sigaction now;
        sigset_t blocked;
        assert_int_equal(nw_self_test(&k, &error), NW_E_UNSUPPORTED);
        assert_says(nw_error_message(), "the self-test of doomed died of an instruction ");
        assert_int_equal(fegetround(), FE_UPWARD);
        assert_int_equal(sigaction(SIGILL, NULL, &now), 0);
        assert_ptr_equal(now.sa_handler, own_handler);
        assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
        assert_false(sigismember(&blocked, SIGILL));
    }
    assert_int_equal(fesetround(FE_TONEAREST), 0);
    handle(SIG_DFL);
    assert_int_equal(nw_self_test(&nw_kernels_generic, &error), NW_OK);
}

/* The program's own handler gets what another thread does meanwhile. */
static void *die_elsewhere(void *survived)
{
    if (sigsetjmp(own_way_out, 1) == 0)
        execute_what_no_cpu_has();
    else
        *(bool *)survived = true;
    return NULL;
}

static bool others_survive;
static void watch_another_die(nw_exec *exec, const nw_conv *v, const nw_source *dy, const float *w, nw_tensor *dx,
                              const nw_sink *sink, nw_work work)
{
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, die_elsewhere, &others_survive), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    nw_kernels_generic.conv_backward_data(exec, v, dy, w, dx, sink, work);
}

TEST(test_other_threads_keep_their_handler)
{
    nw_kernels k = nw_kernels_generic;
    double error;
    k.conv_backward_data = watch_another_die;
    handle(own_handler);
    assert_int_equal(nw_self_test(&k, &error), NW_OK);
    assert_true(others_survive);
    handle(SIG_DFL);
}

/* ---- the choice of a set ------------------------------------------------------------------------------------------ */

static const char *refused(const char *isa)
{
    const nw_kernels *kernels;
    setenv("NOWAIT_ISA", isa, 1);
    assert_int_equal(nw_isa_select(NW_PRECISION_AUTO, &kernels, NULL), NW_E_UNSUPPORTED);
    unsetenv("NOWAIT_ISA");
    return nw_error_message();
}

/* First of all tests: the choice asks once. On a CPU that offers none of the sets there is nothing to pass over. */
TEST(test_ailing_sets_are_passed_over)
{
    const nw_kernels *kernels;
    const char *note;
    unsetenv("NOWAIT_ISA");
    afflicted = true;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nw_isa_select(NW_PRECISION_AUTO, &kernels, &note), NW_OK);
        assert_string_equal(kernels->isa, "generic");
    }
    int amx = index_of("amx"), avx512 = index_of("avx512"), avx2 = index_of("avx2");
    if (asked[amx]) assert_says(note, "the self-test of amx died of an instruction ");
    if (asked[avx512]) {
        if (!asked[amx]) assert_says(note, "the self-test of avx512 died of an instruction ");
        assert_says(nw_isa_why_not(avx512), "(SIGILL)");
        assert_false(nw_isa_usable(avx512));
        assert_says(refused("avx512"), "NOWAIT_ISA=avx512 cannot run here: the self-test of avx512 died of ");
    }
    if (asked[avx2]) {
        assert_true(nw_isa_usable(avx2)); /* tests must see it */
        assert_says(refused("avx2"), "NOWAIT_ISA=avx2 cannot run here: the self-test of avx2 failed: ");
    }
    for (int i = 0; i < 3 * nw_isa_count(); i++) (void)nw_isa_usable(i % nw_isa_count());
    for (int i = 0; i < nw_isa_count(); i++) /* again where there was no memory */
        assert_true(asked[i] <= (strcmp(nw_isa_kernels(i)->isa, "avx2-bf16") ? 1 : 2));
    if (asked[avx2]) assert_int_equal(asked[index_of("avx2-bf16")], 2);
}

static int recover(void **state)
{
    (void)state;
    afflicted = false;
    return unsetenv("NOWAIT_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_ailing_sets_are_passed_over, recover),
        cmocka_unit_test(test_every_set_of_the_build),
        cmocka_unit_test(test_both_sizes_of_blocks),
        cmocka_unit_test(test_death_leaves_no_trace),
        cmocka_unit_test(test_other_threads_keep_their_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
