/*
 * own_folder.h - each test of a program runs in an empty folder of its own: CASE(name) in the list of tests. Include in one
 * file of a test program.
 */
#ifndef NW_TESTS_OWN_FOLDER_H
#define NW_TESTS_OWN_FOLDER_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#define TEST(name) static void name(void **state __attribute__((unused)))
#define CASE(name) cmocka_unit_test_setup_teardown(name, enter_folder, leave_folder)

static char folder[] = "/tmp/nowait-test-XXXXXX";

static int enter_folder(void **state)
{
    (void)state;
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    return mkdtemp(folder) != NULL && chdir(folder) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
    (void)state;
    return chdir("/") == 0 && nw_directory_remove(folder) == NW_OK ? 0 : -1;
}

#endif
