/* preflight.c - see preflight.h. */
#define _GNU_SOURCE 1
#include "launch/preflight.h"

#include "net/roles.h"

#include "base/machine.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_CPUS = NW_CPU_SET_WORDS * 64 };

const char *nw_severity_name(nw_severity severity)
{
    return severity == NW_SEVERITY_REFUSE ? "refused" : severity == NW_SEVERITY_WARN ? "warning" : "note";
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

/* Keeps the order of severities, and within one that of the checks. */
static void add_finding(nw_findings *f, nw_severity severity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add_finding(nw_findings *f, nw_severity severity, const char *format, ...)
{
    if (f->count == NW_FINDINGS_MOST) return;
    int at = f->count++;
    for (; at > 0 && f->at[at - 1].severity < severity; at--) f->at[at] = f->at[at - 1];
    f->at[at].severity = severity;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->at[at].text, sizeof f->at[at].text, format, arguments);
    va_end(arguments);
}

bool nw_findings_refuse(const nw_findings *findings)
{
    return findings->count > 0 && findings->at[0].severity == NW_SEVERITY_REFUSE;
}

/* ---- the environment --------------------------------------------------------------------------------------------- */

static int number(const nw_preflight_facts *facts, const char *name)
{
    return nw_launchers_number(facts->get, facts->context, name);
}

static nw_promise nearest_promise(const nw_preflight_facts *facts)
{
    return nw_launchers_promise(facts->get, facts->context);
}

static nw_mpi_family library_family(const nw_preflight_facts *facts)
{
    const char *library = facts->library ? facts->library : "";
    if (strstr(library, "Open MPI")) return NW_MPI_OPEN;
    if (strstr(library, "MPICH") || strstr(library, "MVAPICH") || strstr(library, "Intel")) return NW_MPI_MPICH;
    return NW_MPI_UNKNOWN;
}

bool nw_preflight_prints(const nw_preflight_facts *facts, int rank)
{
    nw_promise p = nearest_promise(facts);
    if (rank > 0) return false;
    return facts->world > 1 || p.rank <= 0; /* alone against the promise: only the first of those who are */
}

static const char *family_name(nw_mpi_family f)
{
    return f == NW_MPI_OPEN ? "Open MPI" : f == NW_MPI_MPICH ? "MPICH" : "another MPI";
}

/* Processes that were started together, each alone. */
static void find_singletons(const nw_preflight_facts *facts, const nw_promise *p, nw_findings *f)
{
    nw_mpi_family library = library_family(facts);
    bool none = !facts->library || !facts->library[0];
    if (none)
        add_finding(
            f, NW_SEVERITY_REFUSE,
            "%s=%d: %d copies of this program were started together, but it was built without MPI and each would train "
            "alone in the same place; build it with MPI (Debian: libopenmpi-dev), or start one process",
            p->variable, p->size, p->size);
    else if (p->slurm)
        add_finding(
            f, NW_SEVERITY_REFUSE,
            "srun started %d singletons: MPI says that each is rank 0 of 1, because the MPI library (%s) does not speak "
            "this launcher's PMI; use srun --mpi=pmix ('srun --mpi=list' lists the others), or mpirun inside the "
            "allocation",
            p->size, family_name(library));
    else if (p->starter != library && library != NW_MPI_UNKNOWN)
        add_finding(
            f, NW_SEVERITY_REFUSE,
            "the mpirun of %s started %d processes, but this program uses %s, so that each takes itself for rank 0 of 1; "
            "start it with the mpirun of %s (Debian: mpirun.%s)",
            family_name(p->starter), p->size, family_name(library), family_name(library),
            library == NW_MPI_OPEN ? "openmpi" : "mpich");
    else
        add_finding(
            f, NW_SEVERITY_REFUSE,
            "%s=%d, but MPI says that this is rank 0 of 1: mpirun and the MPI library are of different installations; "
            "start the program with the mpirun of the installation that its library belongs to",
            p->variable, p->size);
}

static void check_promises(const nw_preflight_facts *facts, nw_findings *f)
{
    nw_promise p = nearest_promise(facts);
    nw_mpi_family library = library_family(facts);
    int tasks = number(facts, "SLURM_NTASKS"), pmix = number(facts, "PMIX_RANK");
    if (p.size > 1 && facts->world == 1) {
        find_singletons(facts, &p, f);
    } else if (p.size > 0 && p.size != facts->world) {
        add_finding(
            f, NW_SEVERITY_REFUSE,
            "%s promises %d ranks, but MPI's world has %d; start the job with the launcher of the MPI library that this "
            "program uses, and with one program only",
            p.variable, p.size, facts->world);
    } else if (p.size < 0 && pmix >= facts->world) {
        add_finding(
            f, NW_SEVERITY_REFUSE,
            "PMIX_RANK=%d, but MPI's world has %d: the MPI library does not speak this launcher's PMIx; start the job "
            "with the mpirun of its own installation",
            pmix, facts->world);
    } else if (p.size < 0 && facts->world == 1 && tasks > 1) {
        add_finding(
            f, NW_SEVERITY_WARN,
            "SLURM gave this job %d tasks (SLURM_NTASKS), but one process runs, alone; start it with srun or mpirun, or "
            "with 'nowait launch -n %d -- train ...'",
            tasks, tasks);
    } else if (p.size > 0 && p.starter != NW_MPI_UNKNOWN && library != NW_MPI_UNKNOWN && p.starter != library) {
        add_finding(
            f, NW_SEVERITY_WARN,
            "%s was set by the mpirun of %s, but this program uses %s; that works for one rank only: use the mpirun of "
            "%s",
            p.variable, family_name(p.starter), family_name(library), family_name(library));
    }
}

/* ---- CPUs -------------------------------------------------------------------------------------------------------- */

static int count_bits(const uint64_t *set)
{
    int count = 0;
    for (int i = 0; i < NW_CPU_SET_WORDS; i++) count += __builtin_popcountll(set[i]);
    return count;
}

static int threads_of(const nw_rank_facts *r) { return r->threads > 0 ? r->threads : 1; }

/* One host: its ranks, their threads, and the CPUs that they have together. */
typedef struct host_load {
    const char *name;
    int ranks, threads, cpus;
    bool known;
} host_load;

/* `unbound`: as if no rank were tied to some of the CPUs. */
static host_load load_of(const nw_preflight_facts *facts, int first, bool unbound)
{
    uint64_t together[NW_CPU_SET_WORDS] = {0};
    host_load load = {.name = facts->ranks[first].host, .known = true};
    int quota = 0, online = 0;
    for (int r = first; r < facts->world; r++) {
        const nw_rank_facts *rank = &facts->ranks[r];
        if (strcmp(rank->host, load.name) != 0) continue;
        int own = count_bits(rank->cpu_set);
        load.known &= own > 0;
        load.ranks++;
        load.threads += threads_of(rank);
        if (rank->cpus > 0 && rank->cpus < own && rank->cpus > quota) quota = rank->cpus;
        if (rank->host_cpus > online) online = rank->host_cpus;
        for (int i = 0; i < NW_CPU_SET_WORDS; i++) together[i] |= rank->cpu_set[i];
    }
    load.cpus = count_bits(together);
    if (unbound && online > load.cpus) load.cpus = online;
    if (quota > 0 && quota < load.cpus)
        load.cpus = quota; /* a container's quota is for all of its processes together */
    return load;
}

static bool is_first_of_host(const nw_preflight_facts *facts, int rank)
{
    for (int r = 0; r < rank; r++)
        if (strcmp(facts->ranks[r].host, facts->ranks[rank].host) == 0) return false;
    return true;
}

/* The worst host is named, others are counted: one finding, however many hosts. */
static void check_load(const nw_preflight_facts *facts, bool unbound, nw_findings *f)
{
    host_load worst = {0};
    int crowded = 0;
    for (int r = 0; r < facts->world; r++) {
        if (!is_first_of_host(facts, r)) continue;
        host_load load = load_of(facts, r, unbound);
        if (!load.known || load.threads <= load.cpus) continue;
        crowded++;
        if (crowded == 1 || (int64_t)load.threads * worst.cpus > (int64_t)worst.threads * load.cpus) worst = load;
    }
    if (crowded == 0) return;
    char others[48] = "";
    if (crowded > 1) snprintf(others, sizeof others, " (and %d more hosts like it)", crowded - 1);
    if (worst.ranks > worst.cpus)
        add_finding(
            f, NW_SEVERITY_WARN,
            "%d ranks on %s share %d CPU%s%s: they take turns, and each step waits for the slowest; start at most %d "
            "rank%s on such a host, with --threads 1",
            worst.ranks, worst.name, worst.cpus, worst.cpus == 1 ? "" : "s", others, worst.cpus,
            worst.cpus == 1 ? "" : "s");
    else
        add_finding(f, NW_SEVERITY_WARN,
                    "%d ranks on %s run %d threads on %d CPUs%s: they compete for the cores; use --threads %d",
                    worst.ranks, worst.name, worst.threads, worst.cpus, others, worst.cpus / worst.ranks);
}

static const char *binding_remedy(const nw_preflight_facts *facts)
{
    if (nearest_promise(facts).slurm) return "start srun with --cpus-per-task=T or --cpu-bind=none";
    if (library_family(facts) == NW_MPI_MPICH) return "start mpiexec with -bind-to none";
    return "start mpirun with --bind-to none, or with --map-by slot:PE=T for T threads per rank";
}

/* Ranks that were tied to fewer CPUs than they have threads. */
static bool check_binding(const nw_preflight_facts *facts, nw_findings *f)
{
    int first = -1, count = 0;
    for (int r = 0; r < facts->world; r++) {
        const nw_rank_facts *rank = &facts->ranks[r];
        int own = count_bits(rank->cpu_set);
        if (own == 0 || own >= threads_of(rank) || own >= rank->host_cpus) continue;
        if (count++ == 0) first = r;
    }
    if (count == 0) return false;
    const nw_rank_facts *rank = &facts->ranks[first];
    char others[48] = "";
    if (count > 1) snprintf(others, sizeof others, ", and so are %d other ranks", count - 1);
    add_finding(f, NW_SEVERITY_WARN, "rank %d on %s is bound to %d of %d CPUs but runs %d threads%s; %s", first,
                rank->host, count_bits(rank->cpu_set), rank->host_cpus, threads_of(rank), others,
                binding_remedy(facts));
    return true;
}

/* A launcher that gives every rank one core, on a host that has many more: each rank then chooses one thread. */
static void check_idle(const nw_preflight_facts *facts, nw_findings *f)
{
    int ranks = 0, online = facts->ranks[0].host_cpus;
    uint64_t together[NW_CPU_SET_WORDS] = {0};
    for (int r = 0; r < facts->world; r++) {
        const nw_rank_facts *rank = &facts->ranks[r];
        if (strcmp(rank->host, facts->ranks[0].host) != 0) continue;
        if (count_bits(rank->cpu_set) != 1 || threads_of(rank) != 1) return;
        ranks++;
        for (int i = 0; i < NW_CPU_SET_WORDS; i++) together[i] |= rank->cpu_set[i];
    }
    if (ranks < 2 || count_bits(together) != ranks || ranks > online / 2) return;
    add_finding(f, NW_SEVERITY_NOTE,
                "each of the %d ranks on %s is bound to one of its %d CPUs and runs one thread; for more, %s", ranks,
                facts->ranks[0].host, online, binding_remedy(facts));
}

/* ---- all ranks alike --------------------------------------------------------------------------------------------- */

static const struct field {
    const char *name, *remedy;
    size_t offset, size;
} fields[] = {
#define FIELD(name, remedy)                                                            \
    {                                                                                  \
#name, remedy, offsetof(nw_rank_facts, name), sizeof((nw_rank_facts *)0)->name \
    }
    FIELD(version, "install the same build on every host"),
    FIELD(commit, "install the same build on every host"),
    FIELD(config, "start all ranks with one command line, and have the same files of options on every host"),
    FIELD(isa, "set NOWAIT_ISA for all ranks to what every host can do, for instance mpirun -x NOWAIT_ISA=avx2"),
    FIELD(dataset, "have the same data on every host"),
#undef FIELD
};

static const char *text_of(const nw_rank_facts *rank, const struct field *field)
{
    return (const char *)rank + field->offset;
}

static bool differs(const nw_preflight_facts *facts, int rank, const struct field *field)
{
    return strncmp(text_of(&facts->ranks[0], field), text_of(&facts->ranks[rank], field), field->size) != 0;
}

static void check_field(const nw_preflight_facts *facts, const struct field *field, int *ranks, nw_findings *f)
{
    int count = 0;
    for (int r = 1; r < facts->world; r++)
        if (differs(facts, r, field)) ranks[count++] = r;
    if (count == 0) return;
    char list[160];
    nw_rank_list_print(list, sizeof list, ranks, count);
    const nw_rank_facts *other = &facts->ranks[ranks[0]];
    add_finding(f, NW_SEVERITY_REFUSE,
                "%s of %s differs from that of rank 0 ('%.16s' on %s, '%.16s' on %s for rank %d); %s", field->name,
                list, text_of(&facts->ranks[0], field), facts->ranks[0].host, text_of(other, field), other->host,
                ranks[0], field->remedy);
}

static void check_alike(const nw_preflight_facts *facts, nw_findings *f)
{
    int *ranks = calloc((size_t)facts->world, sizeof *ranks);
    if (!ranks) {
        add_finding(f, NW_SEVERITY_REFUSE, "no memory to compare %d ranks", facts->world);
        return;
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) check_field(facts, &fields[i], ranks, f);
    free(ranks);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

void nw_preflight(const nw_preflight_facts *facts, nw_findings *findings)
{
    findings->count = 0;
    check_promises(facts, findings);
    if (!facts->ranks) return;
    check_alike(facts, findings);
    bool bound = check_binding(facts, findings);
    check_load(facts, bound, findings);
    check_idle(facts, findings);
}

void nw_rank_facts_here(nw_rank_facts *facts)
{
    memset(facts->cpu_set, 0, sizeof facts->cpu_set);
    memset(facts->host, 0, sizeof facts->host);
    if (gethostname(facts->host, sizeof facts->host - 1) != 0) snprintf(facts->host, sizeof facts->host, "unknown");
    facts->cpus = nw_machine_allowed_cpus();
    facts->host_cpus = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t *set = CPU_ALLOC(MOST_CPUS);
    size_t bytes = CPU_ALLOC_SIZE(MOST_CPUS);
    if (set && sched_getaffinity(0, bytes, set) == 0)
        for (size_t c = 0; c < MOST_CPUS; c++)
            if (CPU_ISSET_S(c, bytes, set)) facts->cpu_set[c / 64] |= 1ull << (c % 64);
    CPU_FREE(set);
}
