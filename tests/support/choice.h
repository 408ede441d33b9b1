/*
 * choice.h - with which instruction sets and threads tests run, and which tests; by default all.
 *
 * Three variables of the environment narrow the tests that go through every set (those of kernels, optimizers and whole
 * networks), for where there is no time for all of them: under an emulator, or while one kernel is worked on.
 *
 *   NOWAIT_TEST_SETS=amx,avx512     only these sets, by the names of `nowait info`; each must be usable, or the program
 *                                   ends before its first test: what was asked for is never skipped in silence
 *   NOWAIT_TEST_THREADS=N           N threads, 1 to 7, are compared with one; 1: one thread alone. Else 2, 3 and 7 in turn
 *   NOWAIT_TEST_FILTER=test_lin*    only the tests of these names, with * and ?
 */
#ifndef NW_TESTS_CHOICE_H
#define NW_TESTS_CHOICE_H

#include <stdbool.h>

enum { MOST_THREADS = 7 };

/* Whether a set, by its index in isa.h, can be used here and is not excluded. */
bool is_chosen(int set);

/* The number of threads to compare with one. More than the machine has CPUs, too: what a thread count changes is how work
 * is divided. In turn, so that every test meets all of them, if not in every combination. */
int other_threads(void);

#endif
