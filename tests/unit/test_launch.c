/*
 * test_launch.c - command lines of launchers, and what their exit codes say of ranks that died.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "launch/launch.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static void assert_line(const nw_launch_spec *plan, const char *want)
{
    nw_words train = {0}, line = {0};
    char *text;
    assert_int_equal(nw_words_add(&train, "--model"), NW_OK);
    assert_int_equal(nw_words_add(&train, "resnet9"), NW_OK);
    assert_int_equal(nw_launch_line(plan, &train, &line), NW_OK);
    assert_int_equal(nw_words_quote(&line, &text), NW_OK);
    assert_string_equal(text, want);
    assert_null(line.at[line.count]);
    free(text);
    nw_words_free(&train);
    nw_words_free(&line);
}

static nw_launch_spec plan_of(nw_launcher launcher)
{
    return (nw_launch_spec){.launcher = launcher,
                            .starter = launcher == NW_LAUNCHER_SRUN ? "srun" : "mpirun",
                            .program = "/bin/nowait",
                            .ranks = 4,
                            .cpus = 8,
                            .hosts = "",
                            .launcher_args = ""};
}

TEST(lines_of_open_mpi)
{
    nw_launch_spec plan = plan_of(NW_LAUNCHER_OPEN_MPI);
    assert_line(&plan, "mpirun -np 4 --oversubscribe --bind-to none /bin/nowait train --model resnet9");
    plan.allocation = true; /* the scheduler says how many slots there are */
    assert_line(&plan, "mpirun -np 4 --bind-to none /bin/nowait train --model resnet9");
    plan.hosts = "my hosts";
    assert_line(&plan, "mpirun -np 4 --hostfile 'my hosts' --bind-to none /bin/nowait train --model resnet9");
    plan = plan_of(NW_LAUNCHER_OPEN_MPI);
    plan.launcher_args = "--map-by slot:PE=2";
    assert_line(&plan, "mpirun -np 4 --oversubscribe --map-by slot:PE=2 /bin/nowait train --model resnet9");
    plan.launcher_args = "--host a,b --bind-to core";
    assert_line(&plan, "mpirun -np 4 --host a,b --bind-to core /bin/nowait train --model resnet9");
}

TEST(lines_of_others)
{
    nw_launch_spec plan = plan_of(NW_LAUNCHER_MPICH);
    assert_line(&plan, "mpirun -n 4 /bin/nowait train --model resnet9");
    plan.hosts = "hosts";
    assert_line(&plan, "mpirun -n 4 -f hosts /bin/nowait train --model resnet9");
    plan = plan_of(NW_LAUNCHER_SRUN);
    assert_line(&plan, "srun --ntasks=4 --kill-on-bad-exit=1 /bin/nowait train --model resnet9");
    plan.launcher_args = "--mpi=pmix";
    assert_line(&plan, "srun --ntasks=4 --kill-on-bad-exit=1 --mpi=pmix /bin/nowait train --model resnet9");
    plan.hosts = "hosts";
    nw_words none = {0}, line = {0};
    assert_int_equal(nw_launch_line(&plan, &none, &line), NW_E_ARGUMENT);
    nw_words_free(&line);
    plan = plan_of(NW_LAUNCHER_DIRECT);
    plan.launcher_args = "not looked at";
    assert_line(&plan, "/bin/nowait train --model resnet9");
}

TEST(families)
{
    assert_int_equal(nw_launch_family("mpirun (Open MPI) 4.1.4\n"), NW_LAUNCHER_OPEN_MPI);
    assert_int_equal(nw_launch_family("mpirun (Open MPI) 5.0.3, with PRRTE\n"), NW_LAUNCHER_OPEN_MPI);
    assert_int_equal(nw_launch_family("HYDRA build details:\n    Version: 4.0.2\n"), NW_LAUNCHER_MPICH);
    assert_int_equal(nw_launch_family("Intel(R) MPI Library for Linux* OS, Version 2021.8"), NW_LAUNCHER_MPICH);
    assert_int_equal(nw_launch_family(""), NW_LAUNCHER_OPEN_MPI);
}

TEST(words_are_cut_like_a_shell_does)
{
    static const struct {
        const char *text, *words[5];
    } cases[] = {
        {"", {NULL}},
        {"  \t ", {NULL}},
        {"a", {"a"}},
        {" a  b\tc\n", {"a", "b", "c"}},
        {"'a b' \"c d\"", {"a b", "c d"}},
        {"a' 'b\"'\"c", {"a b'c"}},
        {"'' x", {"", "x"}},
        {"-x A=\"it's\"", {"-x", "A=it's"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nw_words words = {0};
        assert_int_equal(nw_words_add_cut(&words, cases[i].text), NW_OK);
        int count = 0;
        while (cases[i].words[count]) count++;
        assert_int_equal(words.count, count);
        for (int k = 0; k < count; k++) assert_string_equal(words.at[k], cases[i].words[k]);
        nw_words_free(&words);
    }
    nw_words words = {0};
    assert_int_equal(nw_words_add_cut(&words, "a 'b"), NW_E_ARGUMENT);
    nw_words_free(&words);
    char *text;
    for (int i = 0; i < 100; i++) assert_int_equal(nw_words_add_format(&words, "it's %d", i), NW_OK);
    assert_int_equal(nw_words_quote(&words, &text), NW_OK);
    assert_int_equal(strncmp(text, "'it'\\''s 0' 'it'\\''s 1' ", 24), 0);
    free(text);
    nw_words_free(&words);
}

TEST(signals_in_exit_codes)
{
    static const struct {
        nw_launcher launcher;
        int exit_code, signal;
    } cases[] = {
        {NW_LAUNCHER_OPEN_MPI, 137, SIGKILL}, {NW_LAUNCHER_SRUN, 139, SIGSEGV}, {NW_LAUNCHER_DIRECT, 134, SIGABRT},
        {NW_LAUNCHER_MPICH, 9, SIGKILL},      {NW_LAUNCHER_MPICH, 11, SIGSEGV}, {NW_LAUNCHER_MPICH, 139, SIGSEGV},
        {NW_LAUNCHER_MPICH, 137, SIGKILL},    {NW_LAUNCHER_OPEN_MPI, 9, 0},     {NW_LAUNCHER_DIRECT, 11, 0},
        {NW_LAUNCHER_OPEN_MPI, 255, 0}, /* a host that nobody reaches */
        {NW_LAUNCHER_OPEN_MPI, 205, 0},       {NW_LAUNCHER_MPICH, 127, 0},      {NW_LAUNCHER_OPEN_MPI, 128, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(nw_launch_signal(cases[i].launcher, cases[i].exit_code), cases[i].signal);
    for (int launcher = NW_LAUNCHER_DIRECT; launcher <= NW_LAUNCHER_SRUN; launcher++)
        for (int code = 0; code <= 5; code++) /* those of train itself */
            assert_int_equal(nw_launch_signal((nw_launcher)launcher, code), 0);
}

TEST(losses_in_exit_codes)
{
    for (int launcher = NW_LAUNCHER_DIRECT; launcher <= NW_LAUNCHER_SRUN; launcher++) {
        for (int code = 0; code <= 4; code++) assert_false(nw_launch_lost((nw_launcher)launcher, code));
        assert_true(nw_launch_lost((nw_launcher)launcher, 5));
        assert_true(nw_launch_lost((nw_launcher)launcher, 137));
        assert_false(nw_launch_lost((nw_launcher)launcher, 127)); /* there is no such program */
        assert_false(nw_launch_lost((nw_launcher)launcher, 255));
        assert_true(nw_launch_lost((nw_launcher)launcher, 205) == (launcher == NW_LAUNCHER_OPEN_MPI));
    }
}

TEST(questions)
{
    char answer[8];
    assert_int_equal(nw_launch_ask("echo", "one two three", answer, sizeof answer), NW_OK);
    assert_string_equal(answer, "one two"); /* cut */
    assert_int_equal(nw_launch_ask("/nowhere/at/all", "x", answer, sizeof answer), NW_OK);
    assert_string_equal(answer, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_open_mpi),
        cmocka_unit_test(lines_of_others),
        cmocka_unit_test(families),
        cmocka_unit_test(words_are_cut_like_a_shell_does),
        cmocka_unit_test(signals_in_exit_codes),
        cmocka_unit_test(losses_in_exit_codes),
        cmocka_unit_test(questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
