/*
 * main.c - `nowait`: finds the sub-command, runs it, prints what went wrong. Results go to stdout, talk to stderr.
 * Exit codes: 0 done, 1 failed, 2 usage, 3 bad input file, 4 interrupted but resumable, 5 a peer was lost. Of several
 * ranks, one says what was wrong with all.
 */
#include "cli/command.h"

#include "base/suggest.h"
#include "net/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *summary;
    nw_status (*run)(int argc, char **argv);
} commands[] = {
#define ROW(name, arguments, summary, bits) {#name, summary, nw_command_##name},
    NW_COMMAND_MAP(ROW)
#undef ROW
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

bool nw_wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

static void usage(FILE *out)
{
    fprintf(out, "nowait %s: trains convolutional networks on CPUs\n\nusage: nowait COMMAND [options]\n\n",
            nw_version());
    for (int i = 0; i < COMMANDS; i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(
        out,
        "\n'nowait COMMAND --help' shows its options. NOWAIT_ISA=avx512|avx2|generic overrides the instruction set.\n");
}

static nw_status run_command(int argc, char **argv)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 2, argv + 2);
    }
    return NW_FAIL(NW_E_ARGUMENT, "there is no command '%s'%s", argv[1],
                   nw_suggest(argv[1], names, COMMANDS, "'nowait --help' lists all").text);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return nw_status_exit_code(NW_E_ARGUMENT);
    }
    bool help = strcmp(argv[1], "help") == 0 && argc == 2;
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || help) {
        usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("nowait %s (%s)\n", nw_version(), nw_build_commit());
        return 0;
    }
    nw_status status = run_command(argc, argv);
    if (status == NW_OK && fflush(stdout) != 0) status = NW_FAIL(NW_E_SYSTEM, "writing the result to stdout failed");
    /* Ranks that were asked to stop all know; one tells. */
    bool prints = nw_mpi_prints() && (status != NW_E_INTERRUPTED || nw_mpi_environment_rank() == 0);
    if (status != NW_OK && prints) {
        char rank[32] = "";
        if (nw_mpi_environment_rank() > 0) snprintf(rank, sizeof rank, "rank %d: ", nw_mpi_environment_rank());
        fprintf(stderr, "nowait: %s%s\n", rank, nw_error_message());
        if (getenv("NOWAIT_TRACE")) fprintf(stderr, "%s\n", nw_error_trace());
    }
    nw_mpi_end(nw_status_exit_code(status));
    return nw_status_exit_code(status);
}
