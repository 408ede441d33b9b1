/* replicas.c - see replicas.h: making a group, its work, and what it does when quiescent. Saving and loading is in
 * replicas_state.c. */
#include "train/replicas.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/machine.h"
#include "net/mpi.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank_of(const nw_member *m) { return m->group->driver->first + (int)(m - m->group->members); }
static nw_params *params_of(const nw_member *m) { return &m->replica->net->model.params; }

/* ---- the worker that a driver calls ------------------------------------------------------------------------------ */

/* A script of faults, as far as a real rank can act on it. */
static void inject_faults(nw_member *m, int64_t gradient)
{
    const nw_replicas *group = m->group;
    if (!group->options.faults || group->options.mode != NW_REPLICAS_MPI) return;
    int64_t now = nw_now_ns() - group->started_ns;
    nw_faults_action due = nw_faults_due(group->options.faults, rank_of(m), gradient, now, &m->faults);
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
    if (!task->adds) inject_faults(m, task->number);
    NW_TRY(nw_replica_pass(m->replica, task, announce));
    if (task->completes) write_report(m);
    return NW_OK;
}

static nw_status do_task(void *worker, nw_task *task, nw_announce *announce)
{
    nw_member *m = worker;
    nw_status status =
        task->kind == NW_TASK_PASS ? do_pass(m, task, announce) : nw_replica_update(m->replica, task, announce);
    if (status == NW_OK || nw_replicas_world(m->group) == 1) return status;
    char reason[512];
    snprintf(reason, sizeof reason, "%s", nw_error_message());
    return NW_FAIL(status, "rank %d: %s", rank_of(m), reason);
}

/* When what nw_replica_pass announces happens: after the backward passes of these stages. */
static int pass_cost(const nw_member *m, const nw_task *task, int64_t *ns, int most)
{
    const nw_compute_cost *cost = &m->group->cost;
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
    if (most > 0) ns[0] = nw_time_scale(m->group->cost.update_ns, part);
    return 1;
}

static const nw_worker_ops work = {do_task, find_task_cost, nw_member_state, nw_member_loaded};

/* ---- updates are counted ----------------------------------------------------------------------------------------- */

/* Takes note of what a member reported. */
static void take_report(nw_replicas *group, int member, const uint8_t *report, nw_tally *sum)
{
    size_t floats = params_of(&group->members[0])->running.floats;
    nw_tally tally;
    memcpy(&tally, report, sizeof tally);
    nw_tally_merge(sum, &tally);
    if (nw_replicas_lockstep(group)) return;
    nw_group column = nw_roles_column(&group->roles, group->driver->first);
    int worker = nw_roles_of(&group->roles, column.ranks[member]).replica;
    if (floats > 0) memcpy(group->statistics + (size_t)worker * floats, report + sizeof tally, floats * sizeof(float));
    group->reported[worker] = true;
}

/* Without lockstep, the world goes on by one update. An epoch that is over stays where it is until the next update,
 * so that the last one of a run stands at its end. */
static void move_position(nw_replicas *group, const nw_tally *tally)
{
    nw_position *at = &group->position;
    if (at->batch >= group->epoch_batches) {
        at->epoch += at->batch / group->epoch_batches;
        at->batch %= group->epoch_batches;
        at->tally = (nw_tally){0};
    }
    at->batch += group->options.replica.accumulation;
    at->batches += group->options.replica.accumulation;
    at->steps++;
    at->images += tally->images;
    nw_tally_merge(&at->tally, tally);
    if (at->batch >= group->epoch_batches) nw_replica_start_average(nw_replicas_first(group), at->epoch + 1);
}

static nw_status counted(void *context, const nw_count *count)
{
    nw_replicas *group = context;
    const nw_replica *first = nw_replicas_first(group);
    bool lockstep = nw_replicas_lockstep(group);
    nw_replicas_update u = {
        .updates = count->updates, .delay = lockstep ? -1 : count->delay, .lr = nw_replica_lr(first, count->clock)};
    for (int i = 0; i < count->from_count; i++) take_report(group, count->from[i], count->reports[i], &u.tally);
    u.images = u.tally.images * (lockstep ? nw_replicas_world(group) : 1);
    if (lockstep) {
        u.wait_ns = first->wait_ns;
        if (first->history) u.delay = first->delay;
    } else {
        nw_histogram_add(&group->delays, count->delay);
        group->thrown_away = count->thrown_away;
        move_position(group, &u.tally);
    }
    u.epoch_over = nw_replicas_epoch_is_over(group);
    return group->options.updated ? group->options.updated(group->options.context, &u) : NW_OK;
}

static nw_status take_snapshot(void *context, const nw_snapshot *snapshot)
{
    const nw_replicas_options *o = &((nw_replicas *)context)->options;
    if (nw_replicas_is_gossip(context)) nw_replicas_note_spread(context, snapshot->spread);
    return o->snapshot && !snapshot->unasked ? o->snapshot(o->context, snapshot) : NW_OK;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Bytes that an update reads and writes: weight and gradient, and each vector of state twice. */
static double update_bytes(const nw_replica *r)
{
    double floats = (double)r->net->model.params.learned.floats;
    return floats * sizeof(float) * (3.0 + 2.0 * nw_optimizer_states(r->net->optimizer));
}

static nw_status find_cost(nw_replicas *group, const nw_replica *r)
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
    return nw_cluster_cost(group->options.cluster, &load, &group->cost);
}

static nw_status make_driver(nw_replicas *group, int first, int world)
{
    nw_driver_options options = group->options.driver;
    const nw_replica *r = group->members[0].replica;
    bool counts = world > 1 && group->options.mode != NW_REPLICAS_REPLAY; /* a replay sends nothing */
    if (counts) NW_TRY(nw_replicas_make_ledger(group, world, first, group->count, &group->ledger));
    options.ledger = group->ledger;
    options.counted = counted;
    options.snapshot = take_snapshot;
    options.context = group;
    nw_replicas_hooks_options hooks = {.trace = group->options.trace,
                                       .trace_events = group->options.trace_events,
                                       .world = world,
                                       .first = first,
                                       .count = group->count,
                                       .dropped = group->options.dropped,
                                       .context = group->options.context};
    NW_TRY(nw_replicas_hooks_open(&group->hooks, &hooks, &options.hooks));
    if (group->options.mode == NW_REPLICAS_ALONE) return nw_local_create(&group->driver, &options);
    if (group->options.mode == NW_REPLICAS_MPI) return nw_mpi_create(&group->driver, &options);
    if (group->options.mode == NW_REPLICAS_REPLAY)
        return nw_replay_create(&group->driver, &options, group->options.recorded);
    NW_TRY(find_cost(group, r));
    nw_virtual_options v = {.cluster = group->options.cluster,
                            .faults = group->options.faults,
                            .touch_bytes_per_second = group->cost.touch_bytes_per_second};
    return nw_virtual_create(&group->driver, &options, &v);
}

static nw_status make_machine(nw_replicas *group, int index, int rank)
{
    nw_member *m = &group->members[index];
    nw_exchange_options e = group->options.exchange;
    nw_machine *exchange;
    int accumulation = m->replica->options.accumulation;
    e.group = nw_roles_column(&group->roles, rank);
    e.params = params_of(m);
    e.accumulation = accumulation;
    e.pool = m->replica->net->model.pass.exec.pool;
    e.stats = &m->stats;
    NW_TRY(nw_replicas_join_gossip(m, &e.gossip));
    e.report = m->report;
    e.report_bytes = sizeof(nw_tally) + params_of(m)->running.floats * sizeof(float);
    NW_TRY(nw_exchange_create(&exchange, &e));
    NW_TRY_OR(nw_passes_create(&m->machine, exchange, params_of(m), accumulation), nw_exchange_free(exchange));
    group->ranks[index] = (nw_rank){.index = rank, .machine = m->machine, .worker = m, .work = &work};
    return NW_OK;
}

static bool has_servers(const nw_replicas *group) { return strcmp(group->options.exchange.name, "server") == 0; }

/* Batches of an epoch of the whole world, as updates count them: where they are synchronous, each is one of every
 * worker's. */
static int64_t find_epoch_batches(const nw_replicas *group, int workers)
{
    const nw_replica_options *o = &group->options.replica;
    int64_t samples = o->loader.dataset->split[o->loader.split].count;
    int64_t size = (int64_t)o->loader.batch_size * (group->options.exchange.sync ? workers : 1);
    if (group->options.global_batch > 0) size = group->options.global_batch;
    int64_t batches = o->loader.drop_last ? samples / size : (samples + size - 1) / size;
    if (batches < 1) batches = 1;
    return o->max_batches > 0 && o->max_batches < batches ? o->max_batches : batches;
}

/* Which images are whose: the same on all ranks. Each worker has a batch of them at least. */
static nw_status deal_images(nw_replicas *group, int workers)
{
    const nw_replicas_options *o = &group->options;
    const nw_loader_options *l = &o->replica.loader;
    if (o->dirichlet_alpha <= 0 || workers < 2) return NW_OK;
    int64_t least = o->global_batch > 0 ? (o->global_batch + workers - 1) / workers : l->batch_size;
    NW_NEW(group->owner, (size_t)l->dataset->split[l->split].count, "the owners of the training images");
    return nw_dataset_deal(l->dataset, l->split, workers, o->dirichlet_alpha, least, l->seed, group->owner);
}

/* Codecs of all tensors, once these are known, and how many batches their warm-ups count as an epoch. */
static nw_status make_assignment(nw_replicas *group)
{
    nw_assign_options *o = &group->options.codecs;
    nw_exchange_options *e = &group->options.exchange;
    bool at_own_pace = has_servers(group) || nw_replicas_is_gossip(group);
    o->codec.warm_up.batches = at_own_pace ? group->epoch_batches : nw_replica_batches(nw_replicas_first(group));
    for (int i = 0; i < o->rule_count; i++) o->rules[i].codec.warm_up.batches = o->codec.warm_up.batches;
    NW_TRY(nw_assign_make(&group->assignment, o, &params_of(&group->members[0])->learned));
    nw_assign_fill(&group->assignment, o, &e->layout);
    e->memory = o->memory;
    return NW_OK;
}

static nw_status make_member(nw_replicas *group, int index, int rank)
{
    nw_member *m = &group->members[index];
    nw_replica_options o = group->options.replica;
    int workers = group->roles.replicas, worker = nw_roles_of(&group->roles, rank).replica;
    if (has_servers(group) || nw_replicas_is_gossip(group)) { /* all go through their data at their own pace */
        o.gradients_only = has_servers(group) && rank >= nw_server_servers(&group->options.exchange);
        o.epoch_batches = group->epoch_batches = group->position_batches = find_epoch_batches(group, workers);
        int batch = group->options.global_batch;
        if (batch > 0) o.loader.batch_size = batch / workers + (worker >= 0 && worker < batch % workers);
    } else if (group->options.shared_epochs && o.loader.replicate) {
        o.sharers = workers;
    }
    if (!group->owner) NW_TRY(deal_images(group, workers));
    o.loader.owner = group->owner;
    o.loader.rank = worker > 0 ? worker : 0;
    o.loader.world = workers > 1 ? workers : 0;
    o.schedule.replicas = has_servers(group) && !group->options.exchange.sync ? 1 : workers;
    m->group = group;
    NW_TRY(nw_replica_create(&m->replica, &o, index > 0 ? group->members[0].replica : NULL));
    m->report = calloc(1, sizeof(nw_tally) + (params_of(m)->running.floats + 1) * sizeof(float));
    NW_FAIL_IF(!m->report, NW_E_MEMORY, "no memory for a report");
    if (index == 0) NW_TRY(make_assignment(group));
    return make_machine(group, index, rank);
}

/* Every rank has all stages; servers are ranks of their own, or the first of those that compute. */
static nw_status make_roles(nw_replicas *group, int world)
{
    nw_exchange_options *e = &group->options.exchange;
    e->group.count = world;
    int replicas = has_servers(group) ? nw_server_workers(e) : world;
    return nw_roles_make(&group->roles, world - replicas, replicas, 1, 0);
}

/* The bytes that a rank needs for outer steps. */
static double outer_bytes(const nw_replicas *group)
{
    const nw_replica *r = nw_replicas_first(group);
    size_t floats = params_of(&group->members[0])->learned.floats;
    return (double)nw_local_bytes(&group->options.exchange, floats) + (double)r->outer_room.capacity;
}

/* Linux lets programs allocate memory that it does not have, and kills them when they use it. So the needs of all
 * replicas and servers are compared with the available memory before any of it is allocated. The first replica exists
 * already. */
static nw_status check_memory(const nw_replicas *group, int first)
{
    const nw_replicas_options *o = &group->options;
    const nw_exchange_options *e = &o->exchange;
    size_t available = o->available_memory ? o->available_memory : nw_machine_available_memory();
    int servers = !has_servers(group) || first >= nw_server_servers(e) ? 0
                  : group->count > 1                                   ? nw_server_servers(e)
                                                                       : 1;
    double mib = 1024 * 1024, all = (double)nw_net_memory(nw_replicas_first(group)->net);
    double each = group->count > 1 ? (double)nw_net_memory(group->members[1].replica->net) : 0;
    const nw_segments *learned = &params_of(&group->members[0])->learned;
    double memory = (double)nw_memory_bytes(&o->codecs.memory, learned->floats);
    all += memory;
    each += group->count > 1 ? memory : 0;
    if (group->members[0].machine->outer) all += (double)group->count * outer_bytes(group);
    double held = (double)servers * (double)nw_server_holds(e, learned->floats);
    double shadows = (double)servers * (double)(servers ? nw_server_shadow_bytes(e, learned) : 0);
    all += each * (group->count - 1) + held + shadows;
    if (nw_replicas_is_gossip(group)) /* momentum, and the messages of a pair */
        all += group->count * (e->gossip.acid + 2.0) * (double)learned->floats * sizeof(float);
    double copies = (double)nw_replicas_copy_bytes(group, first);
    all += copies;
    NW_FAIL_IF(
        available > 0 && copies > 0 && all > (double)available, NW_E_MEMORY,
        "%.0f MiB of memory are needed, %.0f MiB of these for copies of what each worker and its neighbours agreed on "
        "last, but %.0f MiB are available: use a --graph-topology with fewer neighbours, --gossip-values plain with "
        "--method int8 or bf16, or --method modulo",
        all / mib, copies / mib, (double)available / mib);
    NW_FAIL_IF(
        available > 0 && (group->count > 1 || servers > 0) && all > (double)available, NW_E_MEMORY,
        "%.0f MiB of memory are needed (%d more replicas of %.2f MiB each, %.0f MiB of gradients that may wait at "
        "servers, %.0f MiB of what workers have there), but %.0f MiB are available: use fewer ranks or a smaller "
        "model%s",
        all / mib, group->count - 1, each / mib, held / mib, shadows / mib, (double)available / mib,
        servers > 0 ? ", or less --server-memory" : "");
    return NW_OK;
}

static nw_status create(nw_replicas *group)
{
    const nw_replicas_options *o = &group->options;
    int world = o->mode == NW_REPLICAS_ALONE ? 1 : o->world, first = o->mode == NW_REPLICAS_MPI ? o->rank : 0;
    NW_FAIL_IF(world < 1 || world > NW_CLUSTER_RANKS, NW_E_ARGUMENT, "a world of %d ranks: it can have 1 to %d", world,
               NW_CLUSTER_RANKS);
    group->count = o->mode == NW_REPLICAS_VIRTUAL || o->mode == NW_REPLICAS_REPLAY ? world : 1;
    NW_NEW(group->members, group->count, "%d replicas", group->count);
    NW_NEW(group->ranks, group->count, "%d replicas", group->count);
    NW_TRY(make_roles(group, world));
    NW_TRY(nw_replicas_make_graph(group, world));
    for (int i = 0; i < group->count; i++) {
        NW_TRY(make_member(group, i, first + i));
        if (i == (group->count > 1)) NW_TRY(check_memory(group, first));
    }
    const nw_model *model = &group->members[0].replica->net->model;
    NW_TRY(make_driver(group, first, world));
    NW_TRY(nw_replicas_make_layout(group));
    group->dropped = group->driver->dropped;
    NW_NEW(group->statistics, (size_t)world * model->params.running.floats + 1, "the reports of %d ranks", world);
    NW_NEW(group->reported, world, "the reports of %d ranks", world);
    group->position.lr_factor = 1;
    group->started_ns = nw_now_ns();
    return NW_OK;
}

nw_status nw_replicas_create(nw_replicas **out, const nw_replicas_options *options)
{
    NW_NEW(*out, 1, "a group");
    (*out)->options = *options;
    if (!options->exchange.name) (*out)->options.exchange.name = "none";
    if (!options->codecs.codec.name) (*out)->options.codecs.codec.name = "none";
    NW_TRY_OR(create(*out), (nw_replicas_free(*out), *out = NULL));
    return NW_OK;
}

void nw_replicas_free(nw_replicas *group)
{
    if (!group) return;
    for (int i = group->count - 1; group->members && i >= 0; i--) { /* the first one last: the others use its memory */
        nw_exchange_free(group->members[i].machine); /* drops messages, so before the driver and its pool */
        nw_replica_free(group->members[i].replica);
        free(group->members[i].report);
        free(group->members[i].averaged.with);
    }
    nw_driver_free(group->driver);
    nw_ledger_free(group->ledger);
    nw_replicas_hooks_close(&group->hooks);
    free(group->earlier);
    nw_layout_free(&group->layout);
    nw_assign_free(&group->assignment);
    nw_compute_cost_free(&group->cost);
    free(group->statistics);
    free(group->reported);
    free(group->members);
    free(group->ranks);
    nw_roles_free(&group->roles);
    free(group->owner);
    nw_graph_free(group->graph);
    free(group->late);
    free(group);
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

nw_status nw_replicas_begin(nw_replicas *group)
{
    for (int i = 0; i < group->count; i++) {
        const nw_params *p = params_of(&group->members[i]);
        const nw_machine *m = group->members[i].machine;
        if (m->outer && m->updates == 0) memcpy(m->outer, p->values, p->learned.floats * sizeof(float));
        NW_TRY(nw_replica_begin(group->members[i].replica));
    }
    return NW_OK;
}

nw_status nw_replicas_go_back(nw_replicas *group, nw_checkpoint *checkpoint, double lr_factor)
{
    const char *note;
    nw_driver_reset(group->driver);
    for (int i = 0; i < group->count; i++) {
        nw_exchange_free(group->members[i].machine);
        group->members[i].machine = NULL;
        NW_TRY(make_machine(group, i, group->driver->first + i));
    }
    NW_TRY(nw_replicas_load(group, checkpoint, &note));
    for (int i = 0; i < group->count; i++) group->members[i].replica->at.lr_factor = lr_factor;
    return nw_replicas_begin(group);
}

nw_status nw_replicas_advance(nw_replicas *group, const nw_go *go)
{
    return nw_driver_run(group->driver, group->ranks, go);
}

int64_t nw_replicas_epoch_batches(const nw_replicas *group)
{
    return nw_replicas_lockstep(group) ? nw_replica_batches(nw_replicas_first(group)) : group->epoch_batches;
}

int64_t nw_replicas_updates_of(const nw_replicas *group, int64_t epochs)
{
    int64_t batches = nw_replicas_epoch_batches(group), most = INT64_MAX / batches;
    return (epochs < most ? epochs : most) * batches / group->options.replica.accumulation;
}

bool nw_replicas_epoch_is_over(const nw_replicas *group)
{
    return nw_replicas_position(group)->batch >= nw_replicas_epoch_batches(group);
}

typedef struct world_position {
    nw_position position;
    int64_t reached;
} world_position;

nw_status nw_replicas_agree_on_position(nw_replicas *group, bool *reached)
{
    world_position mine = {group->position, *reached};
    NW_AUTOFREE world_position *all = NULL;
    if (group->options.mode != NW_REPLICAS_MPI) return NW_OK;
    NW_NEW(all, nw_replicas_world(group), "the positions of %d ranks", nw_replicas_world(group));
    NW_TRY(nw_driver_allgather(group->driver, &mine, sizeof mine, all));
    group->position = all[0].position;
    *reached = all[0].reached != 0;
    return NW_OK;
}

void nw_replicas_copy_values(nw_replicas *group, const float *values, float *to)
{
    nw_replica *r = nw_replicas_first(group);
    const nw_params *p = params_of(&group->members[0]);
    bool average = r->ema_running && values == p->values;
    memcpy(to, average ? nw_net_average(r->net)->values : values, p->learned.floats * sizeof *to);
}

/* Whether a rank has statistics of its own: servers that do not compute and ranks that are lost have none. */
static bool has_statistics(const nw_replicas *group, int rank)
{
    return nw_roles_of(&group->roles, rank).replica >= 0 && !group->dropped[rank];
}

void nw_replicas_copy_statistics(nw_replicas *group, float *to)
{
    nw_replica *r = nw_replicas_first(group);
    const nw_params *p = params_of(&group->members[0]);
    size_t floats = p->running.floats;
    int count = 0;
    if (floats == 0) return;
    memcpy(to, r->ema_running ? nw_net_average(r->net)->buffers : p->buffers, floats * sizeof *to);
    for (int rank = 0; rank < nw_replicas_world(group); rank++) {
        int w = nw_roles_of(&group->roles, rank).replica;
        if (!has_statistics(group, rank) || !group->reported[w]) continue;
        if (count > 0 && group->options.norms == NW_NORMS_LOCAL) break;
        const float *said = group->statistics + (size_t)w * floats;
        for (size_t i = 0; i < floats; i++) to[i] = count > 0 ? to[i] + said[i] : said[i];
        count++;
    }
    for (size_t i = 0; count > 1 && i < floats; i++) to[i] /= (float)count;
}

nw_status nw_replicas_end_epoch(nw_replicas *group)
{
    for (int i = 0; i < group->count; i++) NW_TRY(nw_replica_end_epoch(group->members[i].replica));
    return NW_OK;
}

double nw_replicas_virtual_seconds(const nw_replicas *group)
{
    int64_t latest = 0;
    if (group->options.mode != NW_REPLICAS_VIRTUAL) return (double)NAN;
    for (int i = 0; i < group->count; i++) {
        int64_t now = nw_driver_now(group->driver, i);
        if (now > latest) latest = now;
    }
    return (double)latest * 1e-9;
}

/* ---- quiescent --------------------------------------------------------------------------------------------------- */

nw_status nw_replicas_agree(nw_replicas *group, bool mine, bool *any)
{
    int64_t all[NW_CLUSTER_RANKS] = {0}, said = mine;
    *any = mine;
    if (group->options.mode != NW_REPLICAS_MPI) return NW_OK;
    NW_TRY(nw_driver_allgather(group->driver, &said, sizeof said, all));
    for (int i = 0; i < nw_replicas_world(group); i++) *any |= all[i] != 0;
    return NW_OK;
}

nw_status nw_replicas_agree_to_stop(nw_replicas *group, bool *stop)
{
    const volatile sig_atomic_t *asked = group->options.driver.stop;
    return nw_replicas_agree(group, asked && *asked, stop);
}

static int64_t hash_weights(const nw_member *m)
{
    const nw_params *p = params_of(m);
    return (int64_t)nw_hash64(m->machine->outer ? m->machine->outer : p->values, p->learned.floats * sizeof(float));
}

nw_status nw_replicas_compare(nw_replicas *group)
{
    int64_t mine[NW_CLUSTER_RANKS], all[NW_CLUSTER_RANKS];
    const nw_machine *m = group->members[0].machine;
    if (nw_replicas_world(group) == 1 || !(m->outer ? m->outer_equal : m->equal)) return NW_OK;
    for (int i = 0; i < group->count; i++) mine[i] = hash_weights(&group->members[i]);
    NW_TRY(nw_driver_allgather(group->driver, mine, sizeof *mine, all));
    for (int i = 1; i < nw_replicas_world(group); i++)
        NW_FAIL_IF(
            all[i] != all[0] && !group->dropped[i], NW_E_MISMATCH,
            "after step %lld the weights of rank %d are not those of rank 0, although all apply the same updates: "
            "a fault of memory, of the network, or different machines; resume from the last checkpoint",
            (long long)nw_replicas_updates(group), i);
    return NW_OK;
}

typedef struct epoch_share {
    nw_tally tally;
    int64_t images;
} epoch_share;

/* Sums of all ranks, in their order. */
static nw_status sum_shares(nw_replicas *group, const epoch_share *mine, epoch_share *sum)
{
    NW_AUTOFREE epoch_share *all = NULL;
    NW_NEW(all, nw_replicas_world(group), "the results of %d ranks", nw_replicas_world(group));
    NW_TRY(nw_driver_allgather(group->driver, mine, sizeof *mine, all));
    *sum = (epoch_share){0};
    for (int i = 0; i < nw_replicas_world(group); i++) {
        nw_tally_merge(&sum->tally, &all[i].tally);
        sum->images += all[i].images;
    }
    return NW_OK;
}

nw_status nw_replicas_tally(nw_replicas *group, nw_tally *tally, int64_t *images)
{
    NW_AUTOFREE epoch_share *mine = NULL;
    epoch_share sum;
    NW_NEW(mine, group->count, "the results of %d replicas", group->count);
    for (int i = 0; i < group->count; i++)
        mine[i] = (epoch_share){group->members[i].replica->at.tally, group->members[i].replica->at.images};
    NW_TRY(sum_shares(group, mine, &sum));
    *tally = sum.tally;
    *images = sum.images;
    return NW_OK;
}

/* Makes running statistics the mean over all ranks that have some. */
static nw_status average_buffers(nw_replicas *group, float *const *mine)
{
    bool gives[NW_CLUSTER_RANKS];
    for (int r = 0; r < nw_replicas_world(group); r++) gives[r] = has_statistics(group, r);
    return nw_driver_mean(group->driver, mine, params_of(&group->members[0])->running.floats, gives);
}

static nw_status recalibrate(const nw_replicas *group, const nw_replica *r)
{
    int64_t batches = group->options.recalibrate_batches, all = nw_replica_batches(r);
    return nw_measure_statistics(r->net, r->loader, r->at.epoch, (int)(batches < all ? batches : all));
}

static nw_status recalibrate_all(nw_replicas *group)
{
    nw_status status = NW_OK;
    for (int i = 0; i < group->count && status == NW_OK; i++) {
        nw_replica *r = group->members[i].replica;
        nw_replica_swap_average(r);
        status = recalibrate(group, r);
        nw_replica_swap_average(r);
        if (status == NW_OK && r->ema_running) /* both sets of weights have statistics of their own */
            status = recalibrate(group, r);
    }
    return status;
}

nw_status nw_replicas_sync_norms(nw_replicas *group)
{
    bool local = group->options.norms == NW_NORMS_LOCAL && nw_roles_of(&group->roles, 0).replica >= 0;
    if (params_of(&group->members[0])->running.floats == 0 || local) return NW_OK;
    if (group->options.norms == NW_NORMS_RECALIBRATE) NW_TRY(recalibrate_all(group));
    float *mine[NW_CLUSTER_RANKS];
    for (int i = 0; i < group->count; i++) mine[i] = params_of(&group->members[i])->buffers;
    NW_TRY(average_buffers(group, mine));
    if (!nw_replicas_first(group)->ema_running) return NW_OK;
    if (!nw_replicas_lockstep(group)) { /* only rank 0's average is looked at, with the statistics that workers have */
        memcpy(nw_net_average(nw_replicas_first(group)->net)->buffers, mine[0],
               params_of(&group->members[0])->running.floats * sizeof(float));
        return NW_OK;
    }
    for (int i = 0; i < group->count; i++) mine[i] = nw_net_average(group->members[i].replica->net)->buffers;
    return average_buffers(group, mine);
}

/* Under MPI every rank evaluates its share with what rank 0 has; its own statistics come back afterwards. */
static nw_status evaluate_with_first(nw_replicas *group, nw_loader *loader, bool both_views, nw_tally *tally,
                                     bool *complete)
{
    nw_params *p = params_of(&group->members[0]);
    size_t floats = p->running.floats;
    bool borrows = group->options.mode == NW_REPLICAS_MPI && floats > 0 && group->options.norms == NW_NORMS_LOCAL;
    const volatile sig_atomic_t *stop = group->options.mode == NW_REPLICAS_MPI ? NULL : group->options.driver.stop;
    const bool gives[NW_CLUSTER_RANKS] = {true}; /* rank 0 alone: a mean of one */
    NW_AUTOFREE float *own = NULL;
    NW_NEW(own, floats + 1, "%zu running statistics", floats);
    if (borrows) memcpy(own, p->buffers, floats * sizeof *own);
    if (borrows) NW_TRY(nw_driver_mean(group->driver, &p->buffers, floats, gives));
    nw_status status = nw_evaluate(nw_replicas_first(group)->net, loader, both_views, stop, tally, complete);
    if (borrows) memcpy(p->buffers, own, floats * sizeof *own);
    return status;
}

nw_status nw_replicas_evaluate(nw_replicas *group, nw_loader *loader, bool both_views, nw_tally *tally, bool *complete)
{
    nw_replica *first = nw_replicas_first(group);
    nw_replica_swap_average(first);
    nw_status status = evaluate_with_first(group, loader, both_views, tally, complete);
    nw_replica_swap_average(first);
    NW_TRY(status);
    if (group->options.mode != NW_REPLICAS_MPI) return NW_OK;
    epoch_share mine = {.tally = *tally}, sum;
    NW_TRY(sum_shares(group, &mine, &sum));
    *tally = sum.tally;
    return NW_OK;
}
