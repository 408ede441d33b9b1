/*
 * peer_join.c - joining the other ranks and leaving them, by the owner's thread: MPI where a launcher has started several
 * ranks, else a world of one. See peer.h.
 */
#include "peer/peer.h"

#include "base/digest.h"
#include "base/hash.h"
#include "base/machine.h"
#include "base/text.h"
#include "net/mpi.h"
#include "setup/plan.h"
#include "setup/plan_gossip.h"

#include <stdio.h>

static const nw_train_options *options_of(const nw_peer *p) { return nw_train_options_of(p->settings); }

/* ---- is it what was meant ----------------------------------------------------------------------------------------- */

static nw_status check_world(const nw_peer *p)
{
    const nw_train_options *o = options_of(p);
    bool asked = nw_settings_is_set(p->settings, "world-size");
    NW_FAIL_IF(asked && o->world.world_size != p->size, NW_E_ARGUMENT,
               "--world-size %d, but %d ranks were started; make the two agree", o->world.world_size, p->size);
    NW_FAIL_IF(p->size > 1 && strcmp(o->world.exchange, "none") == 0, NW_E_ARGUMENT,
               "%d ranks would train without each other; choose how they agree, for example with --exchange allreduce",
               p->size);
    return NW_OK;
}

/* What must be equal on all ranks: build, options, tensors. */
static nw_status digest(const nw_peer *p, char hex[65])
{
    NW_CLEANUP(nw_text_free) nw_text text = {0};
    NW_TRY(nw_text_begin(&text));
    fprintf(text.out, "%s %s\n", nw_version(), nw_build_commit());
    NW_TRY(nw_config_write(p->settings, text.out));
    for (int i = 0; i < p->params.learned.count; i++) {
        const nw_segment *s = &p->params.learned.at[i];
        fprintf(text.out, "%s %zu\n", s->name, s->count);
    }
    NW_TRY(nw_text_end(&text));
    nw_sha256_of(text.text, text.size, hex);
    return NW_OK;
}

static nw_status compare(nw_peer *p)
{
    char mine[65];
    NW_AUTOFREE char(*all)[65] = NULL;
    NW_TRY(digest(p, mine));
    NW_NEW(all, p->size, "facts about %d ranks", p->size);
    NW_TRY(nw_driver_allgather(p->driver, mine, sizeof mine, all));
    for (int i = 1; i < p->size; i++)
        NW_FAIL_IF(
            memcmp(all[i], all[0], sizeof mine) != 0, NW_E_ARGUMENT,
            "rank %d has other options or tensors than rank 0, or another build of nowait; start the same program "
            "on all",
            i);
    return NW_OK;
}

/* ---- the world ---------------------------------------------------------------------------------------------------- */

static nw_status count_update(void *context, const nw_count *count)
{
    nw_peer *p = context;
    p->counted++;
    p->delays += count->delay;
    return NW_OK;
}

static void count_message(void *context, int from, int to, const nw_header *h, int64_t now_ns)
{
    nw_peer *p = context;
    (void)from, (void)to, (void)now_ns;
    p->messages++;
    p->bytes += NW_HEADER_BYTES + h->bytes;
}

static nw_status make_driver(nw_peer *p)
{
    nw_driver_options o = {.timeout_ns = (int64_t)(options_of(p)->world.timeout * 1e9),
                           .hooks = {.context = p, .sent = count_message},
                           .counted = count_update,
                           .context = p};
    return p->size > 1 ? nw_mpi_create(&p->driver, &o) : nw_local_create(&p->driver, &o);
}

/* Who may average with whom. */
static nw_status make_graph(nw_peer *p)
{
    const char *name;
    double chi1 = 0, chi2 = 0;
    if (strcmp(options_of(p)->world.exchange, "gossip") != 0) return nw_peer_log_open(p); /* which refuses */
    p->gossip = nw_plan_averaging(options_of(p), &name);
    NW_TRY(nw_graph_make(&p->gossip.graph, name, p->size, p->gossip.seed));
    NW_NEW(p->averaged.with, p->size, "the averagings of a rank");
    p->gossip.counts = &p->averaged;
    NW_TRY(nw_gossip_constants(&p->gossip, &chi1, &chi2));
    return nw_peer_log_open(p);
}

nw_status nw_peer_join(nw_peer *p, void *ignored)
{
    (void)ignored;
    p->size = 1;
    if (nw_mpi_launched()) {
        NW_FAIL_IF(nw_mpi_joined(), NW_E_UNSUPPORTED, "this process has a peer already, and can have one at a time");
        p->joined = true;
        NW_TRY(nw_mpi_start((int64_t)(options_of(p)->world.timeout * 1e9), &p->index, &p->size));
    }
    NW_TRY(check_world(p));
    NW_NEW(p->ranks, p->size, "a list of %d ranks", p->size);
    for (int i = 0; i < p->size; i++) p->ranks[i] = (uint16_t)i;
    NW_TRY(make_graph(p));
    NW_TRY(make_driver(p));
    NW_TRY(compare(p));
    return nw_peer_make_machine(p);
}

/* Linux lets programs allocate memory that it does not have. */
static nw_status check_copies(const nw_peer *p, const nw_exchange_options *e)
{
    nw_layout_options l = e->layout;
    size_t available = nw_machine_available_memory();
    l.segments = &p->params.learned;
    if (!e->gossip.graph) return NW_OK;
    size_t bytes =
        nw_agreed_bytes(&l, e->gossip.values, nw_graph_neighbours(e->gossip.graph, p->index, NULL, NULL));
    NW_FAIL_IF(available > 0 && bytes > available, NW_E_MEMORY,
               "%zu bytes are needed for copies of what this rank and its neighbours agreed on last, but %zu are available: "
               "use a --graph-topology with fewer neighbours, --gossip-values plain with --method int8 or bf16, or --method "
               "modulo",
               bytes, available);
    return NW_OK;
}

nw_status nw_peer_make_machine(nw_peer *p)
{
    const nw_train_options *o = options_of(p);
    const nw_world world = {.rank = p->index, .size = p->size};
    nw_exchange_options e = nw_plan_exchange(o, &world);
    nw_machine *exchange;
    e.group.ranks = p->ranks;
    e.params = &p->params;
    e.accumulation = 1;
    e.pool = p->pool;
    e.stats = &p->stats;
    e.gossip = p->gossip;
    e.memory = p->codecs.memory;
    nw_assign_fill(&p->assignment, &p->codecs, &e.layout);
    NW_TRY(check_copies(p, &e));
    nw_exchange_free(p->rank.machine);
    p->rank.machine = NULL;
    NW_TRY(nw_exchange_create(&exchange, &e));
    NW_TRY_OR(nw_program_create(&p->rank.machine, exchange, &p->params), nw_exchange_free(exchange));
    p->rank.index = p->index;
    p->rank.worker = p;
    p->rank.work = &nw_peer_work;
    return NW_OK;
}

nw_status nw_peer_leave(nw_peer *p, void *exit_code)
{
    int code = *(const int *)exit_code;
    pthread_mutex_lock(&p->lock);
    bool early = p->running;
    p->running = false;
    pthread_mutex_unlock(&p->lock);
    if (early) nw_driver_fail(p->driver, NW_E_PEER, "its program left before the end of the run");
    nw_exchange_free(p->rank.machine);
    p->rank.machine = NULL;
    nw_driver_free(p->driver);
    p->driver = NULL;
    if (p->log) fclose(p->log); /* of a run that was not finished */
    p->log = NULL;
    if (p->joined) nw_mpi_end(code);
    p->joined = false;
    return NW_OK;
}
