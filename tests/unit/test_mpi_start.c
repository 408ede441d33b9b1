/*
 * test_mpi_start.c - what is said where MPI cannot be started: this program's own MPI_Init_thread, which takes the
 * place of the library's, refuses.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/mpi.h"

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided); /* as mpi.h has it */
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc, (void)argv, (void)required, (void)provided;
    return 1; /* all but MPI_SUCCESS, which is 0 */
}

static void refused(void **state)
{
    int rank, size;
    (void)state;
    assert_int_equal(nw_mpi_start(60000000000, &rank, &size), NW_E_PEER);
    assert_string_equal(nw_error_message(),
                        "MPI cannot be started; is this process run by mpirun or srun of the same MPI?");
    assert_int_equal(nw_mpi_ranks_here(), 1); /* nothing of MPI is asked then */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
