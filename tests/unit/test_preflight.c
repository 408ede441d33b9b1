/*
 * test_preflight.c - wrong starts with made-up facts: what each is told, with which remedy, by whom and how often; and
 * right starts, of which nothing is said.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/preflight.h"
#include "net/roles.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static const char open_mpi[] = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4";
static const char mpich[] = "MPICH Version:      4.0.2";

/* ---- made-up facts ----------------------------------------------------------------------------------------------- */

/* "A=1 B=2": the value is what follows the name. */
static const char *from_text(void *context, const char *name)
{
    static char value[64];
    const char *at = context;
    size_t length = strlen(name);
    while (*at) {
        size_t word = strcspn(at, " ");
        if (word > length && strncmp(at, name, length) == 0 && at[length] == '=') {
            snprintf(value, sizeof value, "%.*s", (int)(word - length - 1), at + length + 1);
            return value;
        }
        at += word;
        at += *at == ' ';
    }
    return NULL;
}

static nw_preflight_facts facts_of(const char *environment, int world, const char *library)
{
    return (nw_preflight_facts){
        .get = from_text, .context = (void *)(uintptr_t)environment, .world = world, .library = library};
}

static void show(const nw_findings *f)
{
    for (int i = 0; i < f->count; i++) print_message("  %s: %s\n", nw_severity_name(f->at[i].severity), f->at[i].text);
}

/* Exactly one finding, of this severity, with both texts in it. */
static void assert_one(const nw_findings *f, nw_severity severity, const char *cause, const char *remedy)
{
    if (f->count != 1 || f->at[0].severity != severity || !strstr(f->at[0].text, cause) ||
        !strstr(f->at[0].text, remedy)) {
        show(f);
        fail_msg("expected one %s with '%s' and '%s'", nw_severity_name(severity), cause, remedy);
    }
    assert_true(nw_findings_refuse(f) == (severity == NW_SEVERITY_REFUSE));
}

static void assert_none(const nw_findings *f)
{
    show(f);
    assert_int_equal(f->count, 0);
    assert_false(nw_findings_refuse(f));
}

static void use_cpus(nw_rank_facts *r, int first, int count)
{
    memset(r->cpu_set, 0, sizeof r->cpu_set);
    for (int c = first; c < first + count; c++) r->cpu_set[c / 64] |= 1ull << (c % 64);
    r->cpus = count;
}

/* `world` ranks that are alike, `per_host` on a host of `cpus`, free to run on all of them. */
static nw_rank_facts *ranks_of(int world, int per_host, int cpus, int threads)
{
    nw_rank_facts *ranks = calloc((size_t)world, sizeof *ranks);
    assert_non_null(ranks);
    for (int r = 0; r < world; r++) {
        snprintf(ranks[r].host, sizeof ranks[r].host, "node%d", r / per_host);
        ranks[r].threads = threads;
        ranks[r].host_cpus = cpus;
        use_cpus(&ranks[r], 0, cpus);
        strcpy(ranks[r].version, "0.1.0");
        strcpy(ranks[r].commit, "abcdef123456");
        strcpy(ranks[r].config, "11223344556677889900");
        strcpy(ranks[r].isa, "avx2");
    }
    return ranks;
}

/* ---- the environment --------------------------------------------------------------------------------------------- */

typedef struct start {
    const char *environment;
    int world;
    const char *library;
    nw_severity severity;
    const char *cause, *remedy; /* NULL: nothing is found */
} start;

static const start starts[] = {
    /* right ones */
    {"", 1, open_mpi, 0, NULL, NULL},
    {"", 1, "", 0, NULL, NULL},
    {"", 1, NULL, 0, NULL, NULL},
    {"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2", 4, open_mpi, 0, NULL, NULL},
    {"OMPI_COMM_WORLD_SIZE=1", 1, open_mpi, 0, NULL, NULL},
    {"PMI_SIZE=3 PMI_RANK=0", 3, mpich, 0, NULL, NULL},
    {"MV2_COMM_WORLD_SIZE=2", 2, "MVAPICH2 Version: 2.3", 0, NULL, NULL},
    {"PMI_SIZE=3", 3, "Intel(R) MPI Library 2021.8", 0, NULL, NULL},
    {"SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1 PMIX_RANK=1", 4, open_mpi, 0, NULL, NULL},
    {"SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 PMI_SIZE=4 PMI_RANK=0", 4, open_mpi, 0, NULL, NULL},
    {"SLURM_NTASKS=1 SLURM_PROCID=0", 1, open_mpi, 0, NULL, NULL},
    {"PMIX_RANK=3", 4, open_mpi, 0, NULL, NULL},
    /* mpirun inside an allocation: its daemons are a step of their own */
    {"OMPI_COMM_WORLD_SIZE=8 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=1", 8, open_mpi, 0, NULL, NULL},
    {"PMI_SIZE=8 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2", 8, mpich, 0, NULL, NULL},
    /* numbers that are none are not believed */
    {"OMPI_COMM_WORLD_SIZE=many", 1, open_mpi, 0, NULL, NULL},
    {"OMPI_COMM_WORLD_SIZE= ", 1, open_mpi, 0, NULL, NULL},
    {"OMPI_COMM_WORLD_SIZE=-4", 1, open_mpi, 0, NULL, NULL},
    {"OMPI_COMM_WORLD_SIZE=0", 1, open_mpi, 0, NULL, NULL},
    {"OMPI_COMM_WORLD_SIZE=99999999999999999999", 1, open_mpi, 0, NULL, NULL},
    {"SLURM_NTASKS=4x", 1, open_mpi, 0, NULL, NULL},
    /* singletons */
    {"SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0", 1, open_mpi, NW_SEVERITY_REFUSE,
     "srun started 4 singletons", "srun --mpi=pmix"},
    {"SLURM_STEP_NUM_TASKS=4 PMI_SIZE=4 PMI_RANK=0", 1, open_mpi, NW_SEVERITY_REFUSE, "srun started 4 singletons",
     "Open MPI) does not speak this launcher's PMI"},
    {"SLURM_STEP_NUM_TASKS=4 PMIX_RANK=2", 1, mpich, NW_SEVERITY_REFUSE, "(MPICH) does not speak", "or mpirun"},
    {"SLURM_STEP_NUM_TASKS=4", 1, "", NW_SEVERITY_REFUSE, "built without MPI", "libopenmpi-dev"},
    {"OMPI_COMM_WORLD_SIZE=4", 1, NULL, NW_SEVERITY_REFUSE, "4 copies", "libopenmpi-dev"},
    {"OMPI_COMM_WORLD_SIZE=4", 1, mpich, NW_SEVERITY_REFUSE, "the mpirun of Open MPI started 4 processes",
     "mpirun.mpich"},
    {"PMI_SIZE=4", 1, open_mpi, NW_SEVERITY_REFUSE, "the mpirun of MPICH started 4 processes", "mpirun.openmpi"},
    {"MV2_COMM_WORLD_SIZE=4", 1, open_mpi, NW_SEVERITY_REFUSE, "started 4 processes", "the mpirun of Open MPI"},
    {"OMPI_COMM_WORLD_SIZE=4", 1, open_mpi, NW_SEVERITY_REFUSE, "different installations",
     "that its library belongs to"},
    {"OMPI_COMM_WORLD_SIZE=4", 1, "Some MPI 1.0", NW_SEVERITY_REFUSE, "OMPI_COMM_WORLD_SIZE=4",
     "that its library belongs to"},
    {"PMIX_RANK=3", 1, mpich, NW_SEVERITY_REFUSE, "PMIX_RANK=3, but MPI's world has 1", "mpirun of its own"},
    /* another number */
    {"OMPI_COMM_WORLD_SIZE=4", 2, open_mpi, NW_SEVERITY_REFUSE, "promises 4 ranks, but MPI's world has 2", "start the"},
    {"OMPI_COMM_WORLD_SIZE=1", 2, open_mpi, NW_SEVERITY_REFUSE, "promises 1 ranks, but MPI's world has 2", "start the"},
    {"SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS=8", 4, open_mpi, NW_SEVERITY_REFUSE, "SLURM_STEP_NUM_TASKS promises 8",
     "start the"},
    /* one process in an allocation for many; the wrong mpirun for one rank */
    {"SLURM_NTASKS=4 SLURM_PROCID=0", 1, open_mpi, NW_SEVERITY_WARN, "SLURM gave this job 4 tasks",
     "nowait launch -n 4 -- train"},
    {"SLURM_NTASKS=4", 1, "", NW_SEVERITY_WARN, "one process runs", "srun or mpirun"},
    {"OMPI_COMM_WORLD_SIZE=1", 1, mpich, NW_SEVERITY_WARN, "set by the mpirun of Open MPI", "use the mpirun of MPICH"},
    {"PMI_SIZE=1", 1, open_mpi, NW_SEVERITY_WARN, "set by the mpirun of MPICH", "use the mpirun of Open MPI"},
};

TEST(promises_of_the_environment)
{
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        const start *s = &starts[i];
        nw_preflight_facts facts = facts_of(s->environment, s->world, s->library);
        nw_findings found;
        nw_preflight(&facts, &found);
        print_message("%s, world %d\n", s->environment, s->world);
        if (s->cause)
            assert_one(&found, s->severity, s->cause, s->remedy);
        else
            assert_none(&found);
    }
}

/* The nearest starter counts, and a rank may be said where no size is. */
TEST(promises_of_launchers)
{
    static const struct {
        const char *environment;
        int size, rank;
        const char *variable;
        nw_mpi_family starter;
        bool slurm;
    } cases[] = {
        {"", -1, -1, NULL, NW_MPI_UNKNOWN, false},
        {"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3", 4, 3, "OMPI_COMM_WORLD_SIZE", NW_MPI_OPEN, false},
        {"MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_RANK=1", 4, 1, "MV2_COMM_WORLD_SIZE", NW_MPI_MPICH, false},
        {"PMI_SIZE=2 PMI_RANK=0", 2, 0, "PMI_SIZE", NW_MPI_MPICH, false},
        {"SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=7", 8, 7, "SLURM_STEP_NUM_TASKS", NW_MPI_UNKNOWN, true},
        {"PMI_SIZE=8 PMI_RANK=7 SLURM_STEP_NUM_TASKS=8", 8, 7, "PMI_SIZE", NW_MPI_UNKNOWN, true},
        {"SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 PMI_SIZE=8 PMI_RANK=5", 8, 5, "PMI_SIZE", NW_MPI_MPICH, false},
        {"PMIX_RANK=3", -1, 3, NULL, NW_MPI_UNKNOWN, false},
        {"SLURM_PROCID=0 PMIX_RANK=3", -1, 3, NULL, NW_MPI_UNKNOWN, false},
        {"SLURM_PROCID=0 SLURM_NTASKS=4", -1, 0, NULL, NW_MPI_UNKNOWN, false},
        {"PMIX_RANK=2 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=2", 4, 2, "SLURM_STEP_NUM_TASKS", NW_MPI_UNKNOWN, true},
        {"OMPI_COMM_WORLD_SIZE=x OMPI_COMM_WORLD_RANK=-1 PMI_SIZE=999999999", -1, -1, NULL, NW_MPI_UNKNOWN, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nw_promise p = nw_launchers_promise(from_text, (void *)(uintptr_t)cases[i].environment);
        print_message("%s\n", cases[i].environment);
        assert_int_equal(p.size, cases[i].size);
        assert_int_equal(p.rank, cases[i].rank);
        assert_string_equal(p.variable ? p.variable : "", cases[i].variable ? cases[i].variable : "");
        assert_int_equal(p.starter, cases[i].starter);
        assert_int_equal(p.slurm, cases[i].slurm);
    }
}

TEST(one_process_speaks)
{
    nw_preflight_facts world = facts_of("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3", 4, open_mpi);
    for (int rank = 0; rank < 4; rank++) assert_true(nw_preflight_prints(&world, rank) == (rank == 0));
    static const char *const first[] = {"SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0",
                                        "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0",
                                        "PMI_SIZE=4 PMI_RANK=0",
                                        "MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_RANK=0",
                                        "PMIX_RANK=0",
                                        "OMPI_COMM_WORLD_SIZE=4",
                                        ""};
    static const char *const others[] = {"SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1",
                                         "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3", "PMI_SIZE=4 PMI_RANK=2",
                                         "MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_RANK=1", "PMIX_RANK=3"};
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) { /* each believes to be rank 0 of 1 */
        nw_preflight_facts alone = facts_of(first[i], 1, mpich);
        assert_true(nw_preflight_prints(&alone, 0));
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        nw_preflight_facts alone = facts_of(others[i], 1, mpich);
        assert_false(nw_preflight_prints(&alone, 0));
    }
}

/* ---- CPUs -------------------------------------------------------------------------------------------------------- */

static void check(const nw_rank_facts *ranks, int world, const char *environment, const char *library, nw_findings *f)
{
    nw_preflight_facts facts = facts_of(environment, world, library);
    facts.ranks = ranks;
    nw_preflight(&facts, f);
}

TEST(threads_that_fit)
{
    nw_findings found;
    nw_rank_facts *ranks = ranks_of(4, 4, 8, 2);
    check(ranks, 4, "", open_mpi, &found);
    assert_none(&found);
    for (int r = 0; r < 4; r++) use_cpus(&ranks[r], 2 * r, 2); /* bound, two cores each */
    check(ranks, 4, "", open_mpi, &found);
    assert_none(&found);
    for (int r = 0; r < 4; r++) ranks[r].threads = 1, memset(ranks[r].cpu_set, 0, sizeof ranks[r].cpu_set);
    ranks[0].threads = 100; /* CPU sets that are not known: nothing is said of them */
    check(ranks, 4, "", open_mpi, &found);
    assert_none(&found);
    free(ranks);
}

TEST(more_threads_than_cpus)
{
    nw_findings found;
    nw_rank_facts *ranks = ranks_of(4, 4, 8, 8);
    check(ranks, 4, "", open_mpi, &found);
    assert_one(&found, NW_SEVERITY_WARN, "4 ranks on node0 run 32 threads on 8 CPUs:", "use --threads 2");
    free(ranks);

    ranks = ranks_of(6, 2, 16, 16); /* three hosts; the second is the worst */
    for (int r = 2; r < 4; r++) use_cpus(&ranks[r], 0, 4), ranks[r].host_cpus = 4;
    for (int r = 4; r < 6; r++) ranks[r].threads = 8;
    check(ranks, 6, "", open_mpi, &found);
    assert_int_equal(found.count, 1);
    assert_non_null(strstr(found.at[0].text, "2 ranks on node1 run 32 threads on 4 CPUs (and 1 more hosts like it)"));
    assert_non_null(strstr(found.at[0].text, "use --threads 2"));
    free(ranks);

    ranks = ranks_of(3, 3, 2, 1);
    check(ranks, 3, "", open_mpi, &found);
    assert_one(&found, NW_SEVERITY_WARN, "3 ranks on node0 share 2 CPUs", "at most 2 ranks on such a host");
    free(ranks);

    ranks = ranks_of(2, 2, 64, 0); /* threads that are not known count as one */
    check(ranks, 2, "", open_mpi, &found);
    assert_none(&found);
    free(ranks);
}

TEST(a_container_with_a_quota)
{
    nw_findings found;
    nw_rank_facts *ranks = ranks_of(2, 2, 64, 4);
    for (int r = 0; r < 2; r++) ranks[r].cpus = 6;
    check(ranks, 2, "", open_mpi, &found);
    assert_one(&found, NW_SEVERITY_WARN, "8 threads on 6 CPUs", "use --threads 3");
    for (int r = 0; r < 2; r++) ranks[r].cpus = 8;
    check(ranks, 2, "", open_mpi, &found);
    assert_none(&found);
    free(ranks);
}

TEST(ranks_bound_to_one_core)
{
    nw_findings found;
    nw_rank_facts *ranks = ranks_of(4, 4, 64, 8);
    for (int r = 0; r < 4; r++) use_cpus(&ranks[r], r, 1);
    check(ranks, 4, "", open_mpi, &found);
    assert_one(&found, NW_SEVERITY_WARN, "rank 0 on node0 is bound to 1 of 64 CPUs but runs 8 threads, and so are 3",
               "--bind-to none, or with --map-by slot:PE=T");
    check(ranks, 4, "", mpich, &found);
    assert_one(&found, NW_SEVERITY_WARN, "bound to 1 of 64", "-bind-to none");
    check(ranks, 4, "SLURM_STEP_NUM_TASKS=4", open_mpi, &found);
    assert_one(&found, NW_SEVERITY_WARN, "bound to 1 of 64", "--cpus-per-task=T");
    for (int r = 0; r < 3; r++) use_cpus(&ranks[r], 8 * r, 8);
    check(ranks, 4, "", open_mpi, &found);
    assert_one(&found, NW_SEVERITY_WARN, "rank 3 on node0 is bound to 1 of 64 CPUs but runs 8 threads;", "--bind-to");
    free(ranks);

    ranks = ranks_of(4, 4, 8, 8); /* bound, and unbound it would still be too much */
    for (int r = 0; r < 4; r++) use_cpus(&ranks[r], r, 1);
    check(ranks, 4, "", open_mpi, &found);
    assert_int_equal(found.count, 2);
    assert_non_null(strstr(found.at[0].text, "is bound to 1 of 8"));
    assert_non_null(strstr(found.at[1].text, "32 threads on 8 CPUs"));
    assert_non_null(strstr(found.at[1].text, "use --threads 2"));
    free(ranks);
}

TEST(cores_that_idle)
{
    nw_findings found;
    nw_rank_facts *ranks = ranks_of(4, 4, 64, 1);
    for (int r = 0; r < 4; r++) use_cpus(&ranks[r], r, 1);
    check(ranks, 4, "", open_mpi, &found);
    assert_one(&found, NW_SEVERITY_NOTE, "each of the 4 ranks on node0 is bound to one of its 64 CPUs", "--map-by");
    for (int r = 0; r < 4; r++) ranks[r].host_cpus = 7; /* nearly all in use */
    check(ranks, 4, "", open_mpi, &found);
    assert_none(&found);
    check(ranks, 1, "", open_mpi, &found); /* one rank in a small container */
    assert_none(&found);
    free(ranks);
}

/* ---- all ranks alike --------------------------------------------------------------------------------------------- */

TEST(ranks_that_differ)
{
    static const struct {
        size_t offset;
        const char *name, *remedy;
    } fields[] = {
        {offsetof(nw_rank_facts, version), "version of", "the same build on every host"},
        {offsetof(nw_rank_facts, commit), "commit of", "the same build on every host"},
        {offsetof(nw_rank_facts, config), "config of", "one command line"},
        {offsetof(nw_rank_facts, isa), "isa of", "NOWAIT_ISA"},
        {offsetof(nw_rank_facts, dataset), "dataset of", "the same data on every host"},
    };
    nw_findings found;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        nw_rank_facts *ranks = ranks_of(8, 2, 16, 2);
        strcpy((char *)&ranks[5] + fields[i].offset, "other");
        check(ranks, 8, "", open_mpi, &found);
        assert_one(&found, NW_SEVERITY_REFUSE, fields[i].name, fields[i].remedy);
        assert_non_null(strstr(found.at[0].text, "of rank 5 differs from that of rank 0"));
        assert_non_null(strstr(found.at[0].text, "'other' on node2 for rank 5"));
        strcpy((char *)&ranks[2] + fields[i].offset, "third");
        check(ranks, 8, "", open_mpi, &found);
        assert_int_equal(found.count, 1);
        assert_non_null(strstr(found.at[0].text, "of ranks 2 and 5 differs"));
        free(ranks);
    }
    nw_rank_facts *ranks = ranks_of(4, 4, 2, 4);
    strcpy(ranks[3].config, "x");
    strcpy(ranks[1].isa, "avx512");
    check(ranks, 4, "OMPI_COMM_WORLD_SIZE=5", open_mpi, &found);
    assert_int_equal(found.count, 4); /* refusals first, in the order of the checks */
    for (int i = 0; i < 3; i++) assert_int_equal(found.at[i].severity, NW_SEVERITY_REFUSE);
    assert_non_null(strstr(found.at[0].text, "promises 5"));
    assert_non_null(strstr(found.at[1].text, "config of rank 3"));
    assert_non_null(strstr(found.at[2].text, "isa of rank 1"));
    assert_int_equal(found.at[3].severity, NW_SEVERITY_WARN);
    free(ranks);
}

TEST(fields_without_end)
{
    nw_findings found;
    nw_rank_facts *ranks = ranks_of(2, 2, 16, 2);
    for (int r = 0; r < 2; r++) memset(ranks[r].dataset, 'x', sizeof ranks[r].dataset);
    check(ranks, 2, "", open_mpi, &found);
    assert_none(&found); /* compared within the field, as far as it goes */
    ranks[1].dataset[sizeof ranks[1].dataset - 1] = 'y';
    check(ranks, 2, "", open_mpi, &found);
    assert_one(&found, NW_SEVERITY_REFUSE, "dataset of rank 1", "the same data");
    free(ranks);
}

/* ---- words and gathering ----------------------------------------------------------------------------------------- */

TEST(lists_of_ranks)
{
    static const struct {
        int ranks[8], count;
        const char *text;
    } lists[] = {
        {{3}, 1, "rank 3"},
        {{2, 5}, 2, "ranks 2 and 5"},
        {{2, 3}, 2, "ranks 2 and 3"},
        {{2, 3, 4}, 3, "ranks 2-4"},
        {{0, 1, 2, 3, 7, 9}, 6, "ranks 0-3, 7 and 9"},
        {{0, 2, 3, 5, 6, 7}, 6, "ranks 0, 2, 3 and 5-7"},
    };
    char text[64];
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        nw_rank_list_print(text, sizeof text, lists[i].ranks, lists[i].count);
        assert_string_equal(text, lists[i].text);
    }
    int many[100];
    for (int i = 0; i < 100; i++) many[i] = 3 * i;
    nw_rank_list_print(text, 24, many, 100);
    assert_string_equal(text, "ranks 0, 3, 6, 9, 12...");
    for (size_t size = 1; size < 60; size++) { /* never past the end */
        memset(text, '#', sizeof text);
        nw_rank_list_print(text, size, many, 100);
        assert_non_null(memchr(text, 0, size));
        assert_int_equal(text[size], '#');
    }
}

TEST(facts_of_this_process)
{
    nw_rank_facts facts = {.threads = 3};
    nw_rank_facts_here(&facts);
    int cpus = 0;
    for (int i = 0; i < NW_CPU_SET_WORDS; i++) cpus += __builtin_popcountll(facts.cpu_set[i]);
    assert_true(facts.host[0] != 0);
    assert_true(cpus >= 1 && facts.cpus >= 1 && facts.cpus <= cpus && facts.host_cpus >= 1);
    assert_int_equal(facts.threads, 3);
    facts.threads = 1;
    nw_findings found;
    check(&facts, 1, "", open_mpi, &found);
    assert_none(&found);
}

TEST(words)
{
    assert_string_equal(nw_severity_name(NW_SEVERITY_NOTE), "note");
    assert_string_equal(nw_severity_name(NW_SEVERITY_WARN), "warning");
    assert_string_equal(nw_severity_name(NW_SEVERITY_REFUSE), "refused");
    nw_findings found;
    setenv("OMPI_COMM_WORLD_SIZE", "7", 1); /* without a getter it is the environment of the process */
    nw_preflight(&(nw_preflight_facts){.world = 1, .library = open_mpi}, &found);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    assert_one(&found, NW_SEVERITY_REFUSE, "OMPI_COMM_WORLD_SIZE=7", "mpirun");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promises_of_the_environment),
        cmocka_unit_test(promises_of_launchers),
        cmocka_unit_test(one_process_speaks),
        cmocka_unit_test(threads_that_fit),
        cmocka_unit_test(more_threads_than_cpus),
        cmocka_unit_test(a_container_with_a_quota),
        cmocka_unit_test(ranks_bound_to_one_core),
        cmocka_unit_test(cores_that_idle),
        cmocka_unit_test(ranks_that_differ),
        cmocka_unit_test(fields_without_end),
        cmocka_unit_test(lists_of_ranks),
        cmocka_unit_test(facts_of_this_process),
        cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
