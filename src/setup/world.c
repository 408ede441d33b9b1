/* world.c - see world.h. */
#include "setup/world.h"

#include "base/machine.h"
#include "base/digest.h"
#include "config/cluster_file.h"
#include "setup/session.h"
#include "compute/isa.h"
#include "net/mpi.h"
#include "launch/preflight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- which world ------------------------------------------------------------------------------------------------- */

/* Whether an option is for this world: one that comes with the run that goes on was for another, which may have had
 * another size and mode. */
static bool is_asked_for(const nw_train_options *s, const char *option)
{
    const char *origin = nw_settings_origin(s->settings, option);
    bool earlier = s->job.resume[0] && s->job.recipe[0] && strncmp(origin, s->job.recipe, strlen(s->job.recipe)) == 0;
    return nw_settings_is_set(s->settings, option) && !earlier;
}

/* Simulated ranks; those that a run had are not wanted any more where a launcher has started real ones. */
static bool is_virtual(const nw_train_options *s)
{
    bool launched = nw_mpi_launched() && nw_mpi_environment_size() > 1;
    bool asked = is_asked_for(s, "virtual") || is_asked_for(s, "cluster");
    return (s->world.virtual_ranks > 0 || s->world.cluster[0]) && (asked || !launched);
}

static nw_status open_virtual(nw_world *w, const nw_train_options *s)
{
    NW_FAIL_IF(nw_mpi_launched() && nw_mpi_environment_size() > 1, NW_E_ARGUMENT,
               "--virtual simulates all ranks in one process, but a launcher started %d; start one, without mpirun",
               nw_mpi_environment_size());
    w->mode = NW_REPLICAS_VIRTUAL;
    NW_TRY(nw_cluster_load(&w->cluster, s->world.cluster[0] ? s->world.cluster : "ideal", s->world.virtual_ranks,
                           (uint64_t)s->all.seed));
    w->size = w->cluster->world;
    w->nodes = w->cluster->node_count;
    return NW_OK;
}

static nw_status check_size(const nw_world *w, const nw_train_options *s)
{
    bool asked = is_asked_for(s, "world-size") && s->world.world_size != w->size;
    NW_FAIL_IF(
        asked && w->size == 1, NW_E_ARGUMENT,
        "--world-size %d, but this is one process; start it with 'mpirun -np %d nowait train ...', 'nowait launch "
        "-n %d -- train ...', or simulate with --virtual %d",
        s->world.world_size, s->world.world_size, s->world.world_size, s->world.world_size);
    NW_FAIL_IF(asked, NW_E_ARGUMENT, "--world-size %d, but %d ranks were started; make the two agree",
               s->world.world_size, w->size);
    NW_FAIL_IF(w->size > 1 && strcmp(s->world.exchange, "none") == 0, NW_E_ARGUMENT,
               "%d replicas would train without each other; choose how they agree, for example with --exchange "
               "allreduce",
               w->size);
    return NW_OK;
}

/* What --threads says; else all CPUs that a rank may use, which ranks of one machine share unless they are bound to
 * some. */
static int threads_of_rank(const nw_train_options *s)
{
    int allowed = nw_machine_allowed_cpus(), online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (s->all.threads > 0) return s->all.threads;
    return allowed < online ? allowed : nw_max(1, allowed / nw_mpi_ranks_here());
}

nw_status nw_world_open(nw_world *w, const nw_train_options *s)
{
    *w = (nw_world){.mode = NW_REPLICAS_ALONE, .size = 1, .nodes = 1};
    if (is_virtual(s)) {
        NW_TRY(open_virtual(w, s));
    } else if (nw_mpi_launched()) {
        NW_TRY(nw_mpi_start((int64_t)(s->world.timeout * 1e9), &w->rank, &w->size));
        if (w->size > 1) w->mode = NW_REPLICAS_MPI;
    }
    w->threads = threads_of_rank(s);
    NW_TRY(check_size(w, s));
    NW_FAIL_IF(s->world.faults[0] && w->mode == NW_REPLICAS_ALONE, NW_E_ARGUMENT,
               "--faults is for several ranks; start them with mpirun, or simulate them with --virtual N");
    if (s->world.faults[0]) NW_TRY(nw_faults_load(&w->faults, s->world.faults, w->size));
    const nw_fault *fault = w->mode == NW_REPLICAS_VIRTUAL ? NULL : nw_faults_virtual_only(w->faults);
    NW_FAIL_IF(fault, NW_E_ARGUMENT,
               "%s:%d: only a virtual cluster can have a fault '%s'; use --virtual, or leave it out", s->world.faults,
               fault->line, nw_fault_name(fault->kind));
    return NW_OK;
}

void nw_world_close(nw_world *w)
{
    nw_cluster_free(w->cluster);
    nw_faults_free(w->faults);
    *w = (nw_world){.size = 1};
}

/* ---- is it what was meant ---------------------------------------------------------------------------------------- */

static nw_status digest_config(const nw_train_options *s, char *text, size_t size)
{
    NW_CLEANUP(nw_text_free) nw_text config = {0};
    char hex[65];
    NW_TRY(nw_session_config_text(s->settings, &config));
    nw_sha256_of(config.text, config.size, hex);
    snprintf(text, size, "%.16s", hex);
    return NW_OK;
}

static nw_status fill_facts(const nw_world *w, const nw_train_options *s, const nw_dataset *d, nw_rank_facts *f)
{
    const nw_kernels *kernels;
    const char *note;
    nw_rank_facts_here(f);
    f->threads = w->threads;
    snprintf(f->version, sizeof f->version, "%s", nw_version());
    snprintf(f->commit, sizeof f->commit, "%s", nw_build_commit());
    NW_TRY(digest_config(s, f->config, sizeof f->config));
    NW_TRY(nw_isa_select(nw_settings_precision(&s->net), &kernels, &note));
    snprintf(f->isa, sizeof f->isa, "%s", kernels->isa);
    snprintf(f->dataset, sizeof f->dataset, "%s: %lld, %lld", d->name, (long long)d->split[NW_SPLIT_TRAIN].count,
             (long long)d->split[NW_SPLIT_TEST].count);
    return NW_OK;
}

static int count_hosts(const nw_rank_facts *ranks, int size)
{
    int hosts = 0;
    for (int i = 0; i < size; i++) {
        int first = 0;
        while (strcmp(ranks[first].host, ranks[i].host) != 0) first++;
        hosts += first == i;
    }
    return hosts;
}

enum { CONFIG_MOST = 32 << 10 };

/* The option of a line of config.yaml, without what follows it as a comment; 0: it has none. */
static size_t option_length(const char *line)
{
    size_t length = strcspn(line, "\n");
    const char *comment = strstr(line, "  #");
    if (comment && (size_t)(comment - line) < length) length = (size_t)(comment - line);
    return *line == '#' ? 0 : length;
}

/* The first option that two texts have different values of. All ranks write the same options in the same order. */
static bool find_difference(const char *a, const char *b, const char **in_a, const char **in_b)
{
    while (*a && *b) {
        size_t length = option_length(a);
        if (length != option_length(b) || memcmp(a, b, length) != 0) {
            *in_a = a;
            *in_b = b;
            return true;
        }
        a += strcspn(a, "\n");
        b += strcspn(b, "\n");
        a += *a == '\n';
        b += *b == '\n';
    }
    return false;
}

/* What the options of ranks differ in, where they do: digests do not say it. All ranks know of it, and call. */
static nw_status name_difference(const nw_world *w, const nw_train_options *s, const nw_rank_facts *all)
{
    const char *first, *other;
    int r = 1;
    while (r < w->size && strcmp(all[0].config, all[r].config) == 0) r++;
    if (r >= w->size || strcmp(all[0].commit, all[r].commit) != 0) return NW_OK;
    NW_CLEANUP(nw_text_free) nw_text config = {0};
    NW_AUTOFREE char(*texts)[CONFIG_MOST] = calloc((size_t)w->size + 1, CONFIG_MOST);
    NW_FAIL_IF(!texts, NW_E_MEMORY, "no memory for the options of %d ranks", w->size);
    NW_TRY(nw_session_config_text(s->settings, &config));
    snprintf(texts[w->size], CONFIG_MOST, "%s", config.text);
    NW_TRY(nw_mpi_allgather(texts[w->size], CONFIG_MOST, texts));
    NW_FAIL_IF(find_difference(texts[0], texts[r], &first, &other), NW_E_ARGUMENT,
               "config of rank %d differs from that of rank 0: '%.*s' there, '%.*s' on rank 0; start all ranks with one "
               "command line, and have the same files of options on every host",
               r, (int)option_length(other), other, (int)option_length(first), first);
    return NW_OK;
}

nw_status nw_world_check(nw_world *w, const nw_train_options *s, const nw_dataset *d)
{
    if (!nw_mpi_launched() || w->mode == NW_REPLICAS_VIRTUAL) return NW_OK;
    NW_AUTOFREE nw_rank_facts *all = calloc((size_t)w->size, sizeof *all);
    NW_FAIL_IF(!all, NW_E_MEMORY, "no memory for facts about %d ranks", w->size);
    nw_rank_facts mine = {0};
    nw_findings findings;
    NW_TRY(fill_facts(w, s, d, &mine));
    NW_TRY(nw_mpi_allgather(&mine, sizeof mine, all));
    w->nodes = count_hosts(all, w->size);
    nw_preflight_facts facts = {.world = w->size, .library = nw_mpi_library(), .ranks = all};
    nw_preflight(&facts, &findings);
    NW_TRY(name_difference(w, s, all));
    NW_FAIL_IF(nw_findings_refuse(&findings), NW_E_ARGUMENT, "%s", findings.at[0].text);
    for (int i = 0; i < findings.count && nw_preflight_prints(&facts, w->rank); i++)
        if (findings.at[i].severity == NW_SEVERITY_WARN || !s->all.quiet)
            fprintf(stderr, "nowait: %s: %s\n", nw_severity_name(findings.at[i].severity), findings.at[i].text);
    return NW_OK;
}

/* ---- one word for all -------------------------------------------------------------------------------------------- */

typedef struct word {
    int32_t status, present;
    char text[4096];
} word;

nw_status nw_world_broadcast(const nw_world *w, nw_status status, char **text)
{
    if (w->mode != NW_REPLICAS_MPI) return status;
    NW_AUTOFREE word *all = calloc((size_t)w->size, sizeof *all);
    NW_FAIL_IF(!all, NW_E_MEMORY, "no memory for the words of %d ranks", w->size);
    word mine = {.status = (int32_t)status};
    if (nw_world_leads(w)) {
        mine.present = *text != NULL;
        snprintf(mine.text, sizeof mine.text, "%s", status != NW_OK ? nw_error_message() : *text ? *text : "");
    }
    NW_TRY(nw_mpi_allgather(&mine, sizeof mine, all));
    const word *first = &all[0];
    NW_FAIL_IF(first->status != NW_OK, (nw_status)first->status, "%s", first->text);
    if (nw_world_leads(w)) return NW_OK;
    free(*text);
    *text = NULL;
    return first->present ? nw_text_copy(text, first->text) : NW_OK;
}
