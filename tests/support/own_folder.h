/*
 * own_folder.h - each test of a program runs in an empty folder of its own: CASE(name) in the list of tests. Include in
 * one file of a test program.
 */
#ifndef NW_TESTS_OWN_FOLDER_H
#define NW_TESTS_OWN_FOLDER_H

#include "support/folder.h"

#include <unistd.h>

#define TEST(name) static void name(void **state __attribute__((unused)))
#define CASE(name) cmocka_unit_test_setup_teardown(name, enter_folder, leave_folder)

static char folder[PATH_SIZE];

static int enter_folder(void **state)
{
    (void)state;
    make_folder(folder);
    return chdir(folder);
}

static int leave_folder(void **state)
{
    (void)state;
    return chdir("/") == 0 ? remove_tree(folder) : -1;
}

#endif
