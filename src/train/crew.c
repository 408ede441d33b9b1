/* crew.c - see crew.h: making a crew, its work, and what it does at rest. Saving and loading is in crew_state.c. */
#include "train/crew.h"

#include "base/clock.h"
#include "base/hash.h"
#include "net/mpi.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank_of(const nw_member *m) { return m->crew->driver->first + (int)(m - m->crew->members); }
static nw_params *params_of(const nw_member *m) { return &m->replica->net->model.params; }

/* ---- the worker that a driver calls ------------------------------------------------------------------------------ */

/* A script of faults, as far as a real rank can act on it. */
static void suffer(nw_member *m, int64_t gradient)
{
    const nw_crew *crew = m->crew;
    if (!crew->options.faults || crew->options.place != NW_CREW_MPI) return;
    int64_t now = nw_now_ns() - crew->started_ns;
    nw_faults_action due = nw_faults_due(crew->options.faults, rank_of(m), gradient, now, &m->faults);
    if (due.sleep_ns > 0) {
        struct timespec t = {.tv_sec = due.sleep_ns / 1000000000, .tv_nsec = due.sleep_ns % 1000000000};
        nanosleep(&t, NULL);
    }
    if (due.end == NW_RANK_STOPPED) raise(SIGSTOP);
    if (due.end == NW_RANK_DEAD) raise(SIGKILL);
}

/* What there is to tell of a gradient. */
static void write_report(nw_member *m)
{
    const nw_params *p = params_of(m);
    const nw_tally *tally = &m->replica->at.gradient;
    memcpy(m->report, tally, sizeof *tally);
    if (p->running.floats > 0 && !m->machine->lockstep)
        memcpy(m->report + sizeof *tally, p->buffers, p->running.floats * sizeof(float));
}

static nw_status do_pass(nw_member *m, nw_task *task, nw_announce *announce)
{
    if (!task->adds) suffer(m, task->number);
    NW_TRY(nw_replica_pass(m->replica, task, announce));
    if (task->completes) write_report(m);
    return NW_OK;
}

static nw_status do_task(void *worker, nw_task *task, nw_announce *announce)
{
    nw_member *m = worker;
    nw_status status =
        task->kind == NW_TASK_PASS ? do_pass(m, task, announce) : nw_replica_update(m->replica, task, announce);
    if (status == NW_OK || nw_crew_world(m->crew) == 1) return status;
    char reason[512];
    snprintf(reason, sizeof reason, "%s", nw_error_message());
    return NW_FAIL(status, "rank %d: %s", rank_of(m), reason);
}

/* When what nw_replica_pass announces happens: after the backward passes of these stages. */
static int pass_cost(const nw_member *m, const nw_task *task, int64_t *ns, int most)
{
    const nw_compute_cost *cost = &m->crew->cost;
    int stages[NW_MAX_STAGES], count = nw_replica_announces(m->replica, task, stages), next = 0;
    int64_t work = cost->overhead_ns;
    for (int s = 0; s < cost->stages; s++) work += cost->forward_ns[s];
    for (int s = cost->stages - 1; s >= 0; s--) {
        work += cost->backward_ns[s];
        if (next < count && stages[next] == s && next < most) ns[next++] = work;
    }
    if (count < most) ns[count] = work;
    return count + 1;
}

static int find_task_cost(void *worker, const nw_task *task, int64_t *ns, int most)
{
    const nw_member *m = worker;
    if (task->kind == NW_TASK_PASS) return pass_cost(m, task, ns, most);
    double part = (double)task->count / (double)params_of(m)->learned.floats;
    if (most > 0) ns[0] = nw_time_scale(m->crew->cost.update_ns, part);
    return 1;
}

static const nw_worker_ops work = {do_task, find_task_cost, nw_member_state, nw_member_loaded};

/* ---- updates are counted ----------------------------------------------------------------------------------------- */

/* Takes note of what a member reported. */
static void take_report(nw_crew *crew, int member, const uint8_t *report, nw_tally *sum)
{
    size_t floats = params_of(&crew->members[0])->running.floats;
    nw_tally tally;
    memcpy(&tally, report, sizeof tally);
    nw_tally_merge(sum, &tally);
    if (nw_crew_lockstep(crew)) return;
    nw_group column = nw_roles_column(&crew->roles, crew->driver->first);
    int worker = nw_roles_of(&crew->roles, column.ranks[member]).replica;
    if (floats > 0) memcpy(crew->statistics + (size_t)worker * floats, report + sizeof tally, floats * sizeof(float));
    crew->reported[worker] = true;
}

/* Without lockstep, the world goes on by one update. An epoch that is over stays where it is until the next update,
 * so that the last one of a run stands at its end. */
static void move_place(nw_crew *crew, const nw_tally *tally)
{
    nw_place *at = &crew->place;
    if (at->batch >= crew->epoch_batches) {
        at->epoch += at->batch / crew->epoch_batches;
        at->batch %= crew->epoch_batches;
        at->tally = (nw_tally){0};
    }
    at->batch += crew->options.replica.accumulation;
    at->batches += crew->options.replica.accumulation;
    at->steps++;
    at->images += tally->images;
    nw_tally_merge(&at->tally, tally);
    if (at->batch >= crew->epoch_batches) nw_replica_start_average(nw_crew_first(crew), at->epoch + 1);
}

static nw_status counted(void *context, const nw_count *count)
{
    nw_crew *crew = context;
    const nw_replica *first = nw_crew_first(crew);
    bool lockstep = nw_crew_lockstep(crew);
    nw_crew_update u = {
        .updates = count->updates, .delay = lockstep ? -1 : count->delay, .lr = nw_replica_lr(first, count->clock)};
    for (int i = 0; i < count->from_count; i++) take_report(crew, count->from[i], count->reports[i], &u.tally);
    u.images = u.tally.images * (lockstep ? nw_crew_world(crew) : 1);
    if (lockstep) {
        u.wait_ns = first->wait_ns;
        if (first->history) u.delay = first->delay;
    } else {
        nw_histogram_add(&crew->delays, count->delay);
        crew->thrown_away = count->thrown_away;
        move_place(crew, &u.tally);
    }
    u.epoch_over = nw_crew_epoch_is_over(crew);
    return crew->options.updated ? crew->options.updated(crew->options.context, &u) : NW_OK;
}

static nw_status take_snapshot(void *context, const nw_snapshot *snapshot)
{
    const nw_crew_options *o = &((nw_crew *)context)->options;
    return o->snapshot ? o->snapshot(o->context, snapshot) : NW_OK;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Bytes that an update reads and writes: weight and gradient, and each vector of state twice. */
static double update_bytes(const nw_replica *r)
{
    double floats = (double)r->net->model.params.learned.floats;
    return floats * sizeof(float) * (3.0 + 2.0 * nw_optimizer_states(r->net->optimizer));
}

static nw_status find_cost(nw_crew *crew, const nw_replica *r)
{
    const nw_model *model = &r->net->model;
    double forward[NW_MAX_STAGES], backward[NW_MAX_STAGES];
    for (int i = 0; i < model->count; i++) {
        forward[i] = 2 * model->stages[i]->macs;
        backward[i] = (i > 0 ? 4 : 2) * model->stages[i]->macs; /* the first stage has no input gradient */
    }
    nw_workload load = {.model = model->options.name,
                        .precision = nw_net_precision(r->net),
                        .batch = r->options.loader.batch_size,
                        .stages = model->count,
                        .forward_flops = forward,
                        .backward_flops = backward,
                        .update_bytes = update_bytes(r)};
    return nw_cluster_cost(crew->options.cluster, &load, &crew->cost);
}

/* Buckets are those of gradients, whose number does not depend on how they are cut. */
nw_status nw_crew_make_ledger(const nw_crew *crew, int world, int first, int count, nw_ledger **ledger)
{
    const nw_segments *s = &params_of(&crew->members[0])->learned;
    nw_layout_options o = crew->options.exchange.layout;
    NW_CLEANUP(nw_layout_free) nw_layout layout = {0};
    NW_AUTOFREE char(*names)[160] = NULL;
    NW_AUTOFREE const char **list = NULL;
    o.segments = s;
    o.cuts = 1;
    NW_TRY(nw_layout_make(&layout, &o));
    NW_NEW(names, layout.count, "names of buckets");
    NW_NEW(list, layout.count, "names of buckets");
    for (int b = 0; b < layout.count; b++) {
        nw_layout_name(&layout, s, b, names[b], sizeof names[b]);
        list[b] = names[b];
    }
    nw_ledger_options options = {
        .world = world, .first_rank = first, .ranks = count, .segments = layout.count, .segment_names = list};
    return nw_ledger_create(ledger, &options);
}

static nw_status make_driver(nw_crew *crew, int first, int world)
{
    nw_driver_options options = crew->options.driver;
    const nw_replica *r = crew->members[0].replica;
    bool counts = world > 1 && crew->options.place != NW_CREW_REPLAY; /* a replay sends nothing */
    if (counts) NW_TRY(nw_crew_make_ledger(crew, world, first, crew->count, &crew->ledger));
    options.ledger = crew->ledger;
    options.counted = counted;
    options.snapshot = take_snapshot;
    options.context = crew;
    nw_crew_taps_options taps = {.trace = crew->options.trace,
                                 .trace_events = crew->options.trace_events,
                                 .world = world,
                                 .first = first,
                                 .count = crew->count,
                                 .dropped = crew->options.dropped,
                                 .context = crew->options.context};
    NW_TRY(nw_crew_taps_open(&crew->taps, &taps, &options.taps));
    if (crew->options.place == NW_CREW_ALONE) return nw_local_create(&crew->driver, &options);
    if (crew->options.place == NW_CREW_MPI) return nw_mpi_create(&crew->driver, &options);
    if (crew->options.place == NW_CREW_REPLAY) return nw_replay_create(&crew->driver, &options, crew->options.schedule);
    NW_TRY(find_cost(crew, r));
    nw_virtual_options v = {.cluster = crew->options.cluster,
                            .faults = crew->options.faults,
                            .touch_bytes_per_second = crew->cost.touch_bytes_per_second};
    return nw_virtual_create(&crew->driver, &options, &v);
}

static nw_status make_machine(nw_crew *crew, int index, int rank)
{
    nw_member *m = &crew->members[index];
    nw_exchange_options e = crew->options.exchange;
    nw_machine *exchange;
    int accumulation = m->replica->options.accumulation;
    e.group = nw_roles_column(&crew->roles, rank);
    e.params = params_of(m);
    e.accumulation = accumulation;
    e.pool = m->replica->net->model.pass.exec.pool;
    e.report = m->report;
    e.report_bytes = sizeof(nw_tally) + params_of(m)->running.floats * sizeof(float);
    NW_TRY(nw_exchange_create(&exchange, &e));
    NW_TRY_OR(nw_passes_create(&m->machine, exchange, params_of(m), accumulation), nw_exchange_free(exchange));
    crew->ranks[index] = (nw_rank){.index = rank, .machine = m->machine, .worker = m, .work = &work};
    return NW_OK;
}

static bool has_servers(const nw_crew *crew) { return strcmp(crew->options.exchange.name, "server") == 0; }

/* Batches of an epoch of the whole world, as updates count them: in step each is one of every worker's. */
static int64_t find_epoch_batches(const nw_crew *crew, int workers)
{
    const nw_replica_options *o = &crew->options.replica;
    int64_t samples = o->loader.dataset->split[o->loader.split].count;
    int64_t size = (int64_t)o->loader.batch_size * (crew->options.exchange.sync ? workers : 1);
    if (crew->options.global_batch > 0) size = crew->options.global_batch;
    int64_t batches = o->loader.drop_last ? samples / size : (samples + size - 1) / size;
    if (batches < 1) batches = 1;
    return o->max_batches > 0 && o->max_batches < batches ? o->max_batches : batches;
}

/* Which images are whose: the same on all ranks. Each worker has a batch of them at least. */
static nw_status deal_images(nw_crew *crew, int workers)
{
    const nw_crew_options *o = &crew->options;
    const nw_loader_options *l = &o->replica.loader;
    if (o->dirichlet_alpha <= 0 || workers < 2) return NW_OK;
    int64_t least = o->global_batch > 0 ? (o->global_batch + workers - 1) / workers : l->batch_size;
    NW_NEW(crew->owner, (size_t)l->dataset->split[l->split].count, "the owners of the training images");
    return nw_dataset_deal(l->dataset, l->split, workers, o->dirichlet_alpha, least, l->seed, crew->owner);
}

static nw_status make_member(nw_crew *crew, int index, int rank)
{
    nw_member *m = &crew->members[index];
    nw_replica_options o = crew->options.replica;
    int workers = crew->roles.replicas, worker = nw_roles_of(&crew->roles, rank).replica;
    if (has_servers(crew)) {
        o.epoch_batches = crew->epoch_batches = crew->place_batches = find_epoch_batches(crew, workers);
        int batch = crew->options.global_batch;
        if (batch > 0) o.loader.batch_size = batch / workers + (worker >= 0 && worker < batch % workers);
    } else if (crew->options.shared_epochs && o.loader.replicate) {
        o.sharers = workers;
    }
    if (!crew->owner) NW_TRY(deal_images(crew, workers));
    o.loader.owner = crew->owner;
    o.loader.rank = worker > 0 ? worker : 0;
    o.loader.world = workers > 1 ? workers : 0;
    o.schedule.replicas = has_servers(crew) && !crew->options.exchange.sync ? 1 : workers;
    m->crew = crew;
    NW_TRY(nw_replica_create(&m->replica, &o, index > 0 ? crew->members[0].replica : NULL));
    m->report = calloc(1, sizeof(nw_tally) + (params_of(m)->running.floats + 1) * sizeof(float));
    NW_FAIL_IF(!m->report, NW_E_MEMORY, "no memory for a report");
    return make_machine(crew, index, rank);
}

/* Every rank has all stages; servers are ranks of their own, or the first of those that compute. */
static nw_status make_roles(nw_crew *crew, int world)
{
    nw_exchange_options *e = &crew->options.exchange;
    e->group.count = world;
    int replicas = has_servers(crew) ? nw_server_workers(e) : world;
    return nw_roles_make(&crew->roles, world - replicas, replicas, 1, 0);
}

static nw_status create(nw_crew *crew)
{
    const nw_crew_options *o = &crew->options;
    int world = o->place == NW_CREW_ALONE ? 1 : o->world, first = o->place == NW_CREW_MPI ? o->rank : 0;
    NW_FAIL_IF(world < 1 || world > NW_CLUSTER_RANKS, NW_E_ARGUMENT, "a world of %d ranks: it can have 1 to %d", world,
               NW_CLUSTER_RANKS);
    crew->count = o->place == NW_CREW_VIRTUAL || o->place == NW_CREW_REPLAY ? world : 1;
    NW_NEW(crew->members, crew->count, "%d replicas", crew->count);
    NW_NEW(crew->ranks, crew->count, "%d replicas", crew->count);
    NW_TRY(make_roles(crew, world));
    NW_TRY(nw_codec_create(&crew->codec, &o->codec));
    crew->options.exchange.layout.codec = crew->codec;
    for (int i = 0; i < crew->count; i++) NW_TRY(make_member(crew, i, first + i));
    const nw_model *model = &crew->members[0].replica->net->model;
    NW_TRY(make_driver(crew, first, world));
    crew->dropped = crew->driver->dropped;
    NW_NEW(crew->statistics, (size_t)world * model->params.running.floats + 1, "the reports of %d ranks", world);
    NW_NEW(crew->reported, world, "the reports of %d ranks", world);
    crew->place.lr_factor = 1;
    crew->started_ns = nw_now_ns();
    return NW_OK;
}

nw_status nw_crew_create(nw_crew **out, const nw_crew_options *options)
{
    NW_NEW(*out, 1, "a crew");
    (*out)->options = *options;
    if (!options->exchange.name) (*out)->options.exchange.name = "none";
    if (!options->codec.name) (*out)->options.codec.name = "none";
    NW_TRY_OR(create(*out), (nw_crew_free(*out), *out = NULL));
    return NW_OK;
}

void nw_crew_free(nw_crew *crew)
{
    if (!crew) return;
    for (int i = crew->count - 1; crew->members && i >= 0; i--) { /* the eldest last: the others use its memory */
        nw_exchange_free(crew->members[i].machine); /* drops messages, so before the driver and its pool */
        nw_replica_free(crew->members[i].replica);
        free(crew->members[i].report);
    }
    nw_driver_free(crew->driver);
    nw_ledger_free(crew->ledger);
    nw_crew_taps_close(&crew->taps);
    free(crew->earlier);
    nw_codec_free(crew->codec);
    nw_compute_cost_free(&crew->cost);
    free(crew->statistics);
    free(crew->reported);
    free(crew->members);
    free(crew->ranks);
    nw_roles_free(&crew->roles);
    free(crew->owner);
    free(crew);
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

nw_status nw_crew_begin(nw_crew *crew)
{
    for (int i = 0; i < crew->count; i++) NW_TRY(nw_replica_begin(crew->members[i].replica));
    return NW_OK;
}

nw_status nw_crew_go_back(nw_crew *crew, nw_checkpoint *checkpoint, double lr_factor)
{
    const char *note;
    nw_driver_reset(crew->driver);
    for (int i = 0; i < crew->count; i++) {
        nw_exchange_free(crew->members[i].machine);
        crew->members[i].machine = NULL;
        NW_TRY(make_machine(crew, i, crew->driver->first + i));
    }
    NW_TRY(nw_crew_load(crew, checkpoint, &note));
    for (int i = 0; i < crew->count; i++) crew->members[i].replica->at.lr_factor = lr_factor;
    return nw_crew_begin(crew);
}

nw_status nw_crew_advance(nw_crew *crew, const nw_go *go) { return nw_driver_run(crew->driver, crew->ranks, go); }

int64_t nw_crew_epoch_batches(const nw_crew *crew)
{
    return nw_crew_lockstep(crew) ? nw_replica_batches(nw_crew_first(crew)) : crew->epoch_batches;
}

int64_t nw_crew_updates_of(const nw_crew *crew, int64_t epochs)
{
    int64_t batches = nw_crew_epoch_batches(crew), most = INT64_MAX / batches;
    return (epochs < most ? epochs : most) * batches / crew->options.replica.accumulation;
}

bool nw_crew_epoch_is_over(const nw_crew *crew) { return nw_crew_place_of(crew)->batch >= nw_crew_epoch_batches(crew); }

typedef struct world_place {
    nw_place place;
    int64_t reached;
} world_place;

nw_status nw_crew_agree_on_place(nw_crew *crew, bool *reached)
{
    world_place mine = {crew->place, *reached};
    NW_AUTOFREE world_place *all = NULL;
    if (crew->options.place != NW_CREW_MPI) return NW_OK;
    NW_NEW(all, nw_crew_world(crew), "the places of %d ranks", nw_crew_world(crew));
    NW_TRY(nw_driver_share(crew->driver, &mine, sizeof mine, all));
    crew->place = all[0].place;
    *reached = all[0].reached != 0;
    return NW_OK;
}

void nw_crew_copy_values(nw_crew *crew, const float *values, float *to)
{
    nw_replica *r = nw_crew_first(crew);
    const nw_params *p = params_of(&crew->members[0]);
    bool average = r->ema_running && values == p->values;
    memcpy(to, average ? nw_net_average(r->net)->values : values, p->learned.floats * sizeof *to);
}

void nw_crew_copy_statistics(nw_crew *crew, float *to)
{
    nw_replica *r = nw_crew_first(crew);
    const nw_params *p = params_of(&crew->members[0]);
    size_t floats = p->running.floats;
    int count = 0;
    if (floats == 0) return;
    memcpy(to, r->ema_running ? nw_net_average(r->net)->buffers : p->buffers, floats * sizeof *to);
    for (int w = 0; w < crew->roles.replicas; w++) { /* in the order of ranks */
        const float *said = crew->statistics + (size_t)w * floats;
        if (!crew->reported[w] || (count > 0 && crew->options.norms == NW_NORMS_LOCAL)) continue;
        for (size_t i = 0; i < floats; i++) to[i] = count > 0 ? to[i] + said[i] : said[i];
        count++;
    }
    for (size_t i = 0; count > 1 && i < floats; i++) to[i] /= (float)count;
}

nw_status nw_crew_end_epoch(nw_crew *crew)
{
    for (int i = 0; i < crew->count; i++) NW_TRY(nw_replica_end_epoch(crew->members[i].replica));
    return NW_OK;
}

double nw_crew_virtual_seconds(const nw_crew *crew)
{
    int64_t latest = 0;
    if (crew->options.place != NW_CREW_VIRTUAL) return (double)NAN;
    for (int i = 0; i < crew->count; i++) {
        int64_t now = nw_driver_now(crew->driver, i);
        if (now > latest) latest = now;
    }
    return (double)latest * 1e-9;
}

/* ---- at rest ----------------------------------------------------------------------------------------------------- */

nw_status nw_crew_agree(nw_crew *crew, bool mine, bool *any)
{
    int64_t all[NW_CLUSTER_RANKS] = {0}, said = mine;
    *any = mine;
    if (crew->options.place != NW_CREW_MPI) return NW_OK;
    NW_TRY(nw_driver_share(crew->driver, &said, sizeof said, all));
    for (int i = 0; i < nw_crew_world(crew); i++) *any |= all[i] != 0;
    return NW_OK;
}

nw_status nw_crew_agree_to_stop(nw_crew *crew, bool *stop)
{
    const volatile sig_atomic_t *asked = crew->options.driver.stop;
    return nw_crew_agree(crew, asked && *asked, stop);
}

static int64_t hash_weights(const nw_member *m)
{
    const nw_params *p = params_of(m);
    return (int64_t)nw_hash64(p->values, p->learned.floats * sizeof(float));
}

nw_status nw_crew_compare(nw_crew *crew)
{
    int64_t mine[NW_CLUSTER_RANKS], all[NW_CLUSTER_RANKS];
    if (nw_crew_world(crew) == 1 || !crew->members[0].machine->equal) return NW_OK;
    for (int i = 0; i < crew->count; i++) mine[i] = hash_weights(&crew->members[i]);
    NW_TRY(nw_driver_share(crew->driver, mine, sizeof *mine, all));
    for (int i = 1; i < nw_crew_world(crew); i++)
        NW_FAIL_IF(
            all[i] != all[0] && !crew->dropped[i], NW_E_NUMERIC,
            "after step %lld the weights of rank %d are not those of rank 0, although all apply the same updates: "
            "a fault of memory, of the network, or different machines; resume from the last checkpoint",
            (long long)nw_crew_updates(crew), i);
    return NW_OK;
}

typedef struct epoch_share {
    nw_tally tally;
    int64_t images;
} epoch_share;

/* Sums of all ranks, in their order. */
static nw_status sum_shares(nw_crew *crew, const epoch_share *mine, epoch_share *sum)
{
    NW_AUTOFREE epoch_share *all = NULL;
    NW_NEW(all, nw_crew_world(crew), "the results of %d ranks", nw_crew_world(crew));
    NW_TRY(nw_driver_share(crew->driver, mine, sizeof *mine, all));
    *sum = (epoch_share){0};
    for (int i = 0; i < nw_crew_world(crew); i++) {
        nw_tally_merge(&sum->tally, &all[i].tally);
        sum->images += all[i].images;
    }
    return NW_OK;
}

nw_status nw_crew_tally(nw_crew *crew, nw_tally *tally, int64_t *images)
{
    NW_AUTOFREE epoch_share *mine = NULL;
    epoch_share sum;
    NW_NEW(mine, crew->count, "the results of %d replicas", crew->count);
    for (int i = 0; i < crew->count; i++)
        mine[i] = (epoch_share){crew->members[i].replica->at.tally, crew->members[i].replica->at.images};
    NW_TRY(sum_shares(crew, mine, &sum));
    *tally = sum.tally;
    *images = sum.images;
    return NW_OK;
}

/* Whether a rank has statistics of its own: servers that do not compute and ranks that are lost have none. */
static bool has_statistics(const nw_crew *crew, int rank)
{
    return nw_roles_of(&crew->roles, rank).replica >= 0 && !crew->dropped[rank];
}

/* Makes running statistics the mean over all ranks that have some. */
static nw_status average_buffers(nw_crew *crew, float *const *mine)
{
    bool gives[NW_CLUSTER_RANKS];
    for (int r = 0; r < nw_crew_world(crew); r++) gives[r] = has_statistics(crew, r);
    return nw_driver_mean(crew->driver, mine, params_of(&crew->members[0])->running.floats, gives);
}

static nw_status recalibrate(const nw_crew *crew, const nw_replica *r)
{
    int64_t batches = crew->options.recalibrate_batches, all = nw_replica_batches(r);
    return nw_measure_statistics(r->net, r->loader, r->at.epoch, (int)(batches < all ? batches : all));
}

static nw_status recalibrate_all(nw_crew *crew)
{
    nw_status status = NW_OK;
    for (int i = 0; i < crew->count && status == NW_OK; i++) {
        nw_replica *r = crew->members[i].replica;
        nw_replica_swap_average(r);
        status = recalibrate(crew, r);
        nw_replica_swap_average(r);
        if (status == NW_OK && r->ema_running) /* both sets of weights have statistics of their own */
            status = recalibrate(crew, r);
    }
    return status;
}

nw_status nw_crew_sync_norms(nw_crew *crew)
{
    bool local = crew->options.norms == NW_NORMS_LOCAL && nw_roles_of(&crew->roles, 0).replica >= 0;
    if (params_of(&crew->members[0])->running.floats == 0 || local) return NW_OK;
    if (crew->options.norms == NW_NORMS_RECALIBRATE) NW_TRY(recalibrate_all(crew));
    float *mine[NW_CLUSTER_RANKS];
    for (int i = 0; i < crew->count; i++) mine[i] = params_of(&crew->members[i])->buffers;
    NW_TRY(average_buffers(crew, mine));
    if (!nw_crew_first(crew)->ema_running) return NW_OK;
    if (!nw_crew_lockstep(crew)) { /* only rank 0's average is looked at, with the statistics that workers have */
        memcpy(nw_net_average(nw_crew_first(crew)->net)->buffers, mine[0],
               params_of(&crew->members[0])->running.floats * sizeof(float));
        return NW_OK;
    }
    for (int i = 0; i < crew->count; i++) mine[i] = nw_net_average(crew->members[i].replica->net)->buffers;
    return average_buffers(crew, mine);
}

/* Under MPI every rank evaluates its share with what rank 0 has; its own statistics come back afterwards. */
static nw_status evaluate_with_first(nw_crew *crew, nw_loader *loader, bool both_views, nw_tally *tally, bool *complete)
{
    nw_params *p = params_of(&crew->members[0]);
    size_t floats = p->running.floats;
    bool borrows = crew->options.place == NW_CREW_MPI && floats > 0 && crew->options.norms == NW_NORMS_LOCAL;
    const volatile sig_atomic_t *stop = crew->options.place == NW_CREW_MPI ? NULL : crew->options.driver.stop;
    const bool gives[NW_CLUSTER_RANKS] = {true}; /* rank 0 alone: a mean of one */
    NW_AUTOFREE float *own = NULL;
    NW_NEW(own, floats + 1, "%zu running statistics", floats);
    if (borrows) memcpy(own, p->buffers, floats * sizeof *own);
    if (borrows) NW_TRY(nw_driver_mean(crew->driver, &p->buffers, floats, gives));
    nw_status status = nw_evaluate(nw_crew_first(crew)->net, loader, both_views, stop, tally, complete);
    if (borrows) memcpy(p->buffers, own, floats * sizeof *own);
    return status;
}

nw_status nw_crew_evaluate(nw_crew *crew, nw_loader *loader, bool both_views, nw_tally *tally, bool *complete)
{
    nw_replica *first = nw_crew_first(crew);
    nw_replica_swap_average(first);
    nw_status status = evaluate_with_first(crew, loader, both_views, tally, complete);
    nw_replica_swap_average(first);
    NW_TRY(status);
    if (crew->options.place != NW_CREW_MPI) return NW_OK;
    epoch_share mine = {.tally = *tally}, sum;
    NW_TRY(sum_shares(crew, &mine, &sum));
    *tally = sum.tally;
    return NW_OK;
}
