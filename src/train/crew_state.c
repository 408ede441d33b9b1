/*
 * crew_state.c - a whole world in a checkpoint, and back. See crew.h and docs/checkpoints.md.
 *
 *   model.safetensors, replica0.safetensors   rank 0's replica
 *   replica<r>.safetensors                    what rank r has for itself
 *   exchange.safetensors                      vectors that the exchange holds back, of rank 0
 *   state.safetensors                         integers of the world: cluster, clocks and queues of a virtual one; ledger,
 *                                             bytes sent so far; delays of gradients, where the work is handed out
 *
 * Rank 0 writes everything; what is elsewhere comes to it replica by replica, into one more replica that is made for
 * the purpose. Every rank reads for itself.
 */
#include "train/crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXCHANGE_FILE "exchange.safetensors"
#define STATE_FILE    "state.safetensors"

/* ---- saving ------------------------------------------------------------------------------------------------------ */

static nw_saved_as follower_kind(const nw_crew *crew)
{
    return crew->members[0].machine->equal ? NW_SAVED_FOLLOWER : NW_SAVED_STRANGER;
}

/* Brings what replica `rank` has for itself into `vessel` on rank 0. All ranks call; it is another's there. */
static nw_status bring(nw_crew *crew, int rank, nw_replica *vessel)
{
    nw_replica *r = crew->driver->first == rank ? nw_crew_first(crew) : vessel;
    nw_saved_vector vectors[NW_STATE_VECTORS];
    uint64_t steps = r ? *nw_optimizer_steps(r->net->optimizer) : 0;
    NW_TRY(nw_driver_collect(crew->driver, rank, r ? (void *)&r->at : NULL, sizeof r->at));
    NW_TRY(nw_driver_collect(crew->driver, rank, &steps, sizeof steps));
    if (r == vessel && r) *nw_optimizer_steps(r->net->optimizer) = steps;
    nw_replica *shape = r ? r : nw_crew_first(crew); /* ranks that only stand by */
    int count = nw_replica_vectors(shape, follower_kind(crew), vectors);
    for (int i = 0; i < count; i++)
        NW_TRY(nw_driver_collect(crew->driver, rank, r ? vectors[i].data : NULL,
                                 vectors[i].segments->floats * sizeof(float)));
    return NW_OK;
}

static nw_status save_followers_from_elsewhere(nw_crew *crew, nw_checkpoint_writer *w)
{
    nw_replica *vessel = NULL;
    nw_status status = NW_OK;
    if (nw_crew_leads(crew)) {
        status = nw_replica_create(&vessel, &nw_crew_first(crew)->options, nw_crew_first(crew));
        if (status == NW_OK) vessel->ema_running = nw_crew_first(crew)->ema_running;
    }
    for (int rank = 1; rank < nw_crew_world(crew) && status == NW_OK; rank++) {
        status = bring(crew, rank, vessel);
        if (status == NW_OK && w) status = nw_replica_save(vessel, w, rank, follower_kind(crew));
    }
    nw_replica_free(vessel);
    return status;
}

enum { INTEGERS_MOST = 16 };

/* The integers of a rank's machines, in their order. */
static void list_integers(nw_machine *m, int64_t *list)
{
    nw_state s = {0};
    m->ops->state(m, &s);
    for (int i = 0, k = 0; i < s.count; i++)
        if (s.at[i].dims == 0) list[k++] = *(int64_t *)s.at[i].data;
    nw_state_free(&s);
}

static void name_integer(char *key, size_t size, int rank, const char *name)
{
    snprintf(key, size, "rank%d.exchange.%s", rank, name);
}

/* Vectors are the same on all ranks; integers need not be. All ranks call. */
static nw_status save_machines(nw_crew *crew, nw_checkpoint_writer *w)
{
    int world = nw_crew_world(crew);
    int64_t(*all)[INTEGERS_MOST] = calloc((size_t)world, sizeof *all), (*mine)[INTEGERS_MOST];
    mine = calloc((size_t)crew->count, sizeof *mine);
    nw_status status = all && mine ? NW_OK : NW_FAIL(NW_E_MEMORY, "no memory for the state of %d ranks", world);
    for (int i = 0; status == NW_OK && i < crew->count; i++) list_integers(crew->members[i].machine, mine[i]);
    if (status == NW_OK) status = nw_driver_share(crew->driver, mine, sizeof *mine, all);
    for (int r = 0; w && status == NW_OK && r < world; r++) {
        nw_machine *m = crew->members[r < crew->count ? r : 0].machine;
        nw_state s = {0};
        m->ops->state(m, &s);
        for (int i = 0, k = 0; i < s.count && status == NW_OK; i++) {
            char key[96 + NW_STATE_NAME];
            if (s.at[i].dims > 0) continue;
            name_integer(key, sizeof key, r, s.at[i].name);
            status = nw_checkpoint_add_int(w, key, all[r][k++]);
        }
        nw_state_free(&s);
    }
    free(all);
    free(mine);
    return status;
}

static nw_status save_vectors(nw_crew *crew, nw_checkpoint_writer *w)
{
    nw_machine *m = crew->members[0].machine;
    nw_state s = {0};
    nw_saved_list list = {0};
    nw_status status = nw_checkpoint_add_text(w, "exchange", m->ops->name);
    m->ops->state(m, &s);
    for (int i = 0; i < s.count && status == NW_OK; i++) {
        char prefix[96];
        if (!s.at[i].vector) continue;
        snprintf(prefix, sizeof prefix, "%.90s.", s.at[i].name);
        status =
            nw_saved_list_add_segments(&list, prefix, &nw_crew_first(crew)->net->model.params.learned, s.at[i].data);
    }
    nw_state_free(&s);
    if (status == NW_OK && list.count > 0) status = nw_checkpoint_add_tensors(w, EXCHANGE_FILE, &list, NULL, 0);
    nw_saved_list_free(&list);
    return status;
}

/* All ranks call; what they counted comes to rank 0. */
static nw_status save_state(nw_crew *crew, nw_checkpoint_writer *w)
{
    nw_ledger *world;
    int64_t *cluster = NULL, *rows = NULL, shape[] = {0, NW_LEDGER_COLUMNS};
    size_t count = 0;
    nw_saved_list list = {0};
    NW_TRY(nw_crew_world_ledger(crew, &world));
    nw_status status = NW_OK;
    if (w && crew->driver->ops->save) {
        status = crew->driver->ops->save(crew->driver, &cluster, &count);
        shape[0] = (int64_t)count;
        if (status == NW_OK) status = nw_saved_list_add(&list, "cluster", NW_SAVED_I64, 1, shape, cluster);
    }
    for (int rank = 0; world && rank < nw_crew_world(crew); rank++)
        if (crew->dropped[rank]) nw_ledger_forget_links(world, rank);
    if (w && world && status == NW_OK) {
        status = nw_ledger_save(world, &rows, &count);
        shape[0] = (int64_t)count;
        if (status == NW_OK) status = nw_saved_list_add(&list, "ledger", NW_SAVED_I64, 2, shape, rows);
    }
    if (w && !nw_crew_lockstep(crew) && status == NW_OK) status = nw_saved_list_add_histogram(&list, &crew->delays);
    if (list.count > 0 && status == NW_OK) status = nw_checkpoint_add_tensors(w, STATE_FILE, &list, NULL, 0);
    nw_saved_list_free(&list);
    if (world != crew->ledger) nw_ledger_free(world);
    free(cluster);
    free(rows);
    return status;
}

/* The place of the world, where it is not that of rank 0's replica. */
enum { PLACE_NUMBERS = 9 };

static void list_place(nw_place *at, nw_saved_number list[PLACE_NUMBERS])
{
    const nw_saved_number all[PLACE_NUMBERS] = {{"epoch", .whole = &at->epoch},
                                                {"batch", .whole = &at->batch},
                                                {"batches", .whole = &at->batches},
                                                {"steps", .whole = &at->steps},
                                                {"images", .whole = &at->images},
                                                {"tally_loss", .real = &at->tally.loss},
                                                {"tally_images", .whole = &at->tally.images},
                                                {"tally_top1", .whole = &at->tally.top1},
                                                {"tally_top5", .whole = &at->tally.top5}};
    memcpy(list, all, sizeof all);
}

static nw_status save_place(nw_crew *crew, nw_checkpoint_writer *w)
{
    nw_saved_number place[PLACE_NUMBERS];
    list_place(&crew->place, place);
    NW_TRY(nw_checkpoint_add_numbers(w, "world.", place, PLACE_NUMBERS));
    return nw_checkpoint_add_int(w, "world.epoch_batches", crew->epoch_batches);
}

/* What each server knows of its range comes to rank 0, whose vectors then are complete. All ranks call. */
static nw_status bring_ranges(nw_crew *crew)
{
    const nw_machine *mine = crew->members[0].machine;
    int64_t range[2] = {(int64_t)mine->first, (int64_t)mine->count}, all[2 * NW_CLUSTER_RANKS] = {0};
    nw_replica *first = nw_crew_first(crew);
    if (crew->options.place == NW_CREW_MPI) NW_TRY(nw_driver_share(crew->driver, range, sizeof range, all));
    for (int rank = 1; rank < nw_crew_world(crew); rank++) {
        const nw_machine *theirs = crew->options.place == NW_CREW_MPI ? NULL : crew->members[rank].machine;
        size_t begin = theirs ? theirs->first : (size_t)all[2 * rank];
        size_t count = theirs ? theirs->count : (size_t)all[2 * rank + 1];
        size_t floats = first->net->model.params.learned.floats;
        NW_FAIL_IF(
            begin > floats || count > floats - begin, NW_E_MESSAGE,
            "rank %d says that it owns %zu parameters from %zu on, and there are %zu; do all ranks run the same build?",
            rank, count, begin, floats);
        for (int i = 0; count > 0 && i < nw_optimizer_states(first->net->optimizer); i++) {
            float *to = nw_optimizer_state_at(first->net->optimizer, i).data + begin;
            NW_TRY(nw_driver_collect(crew->driver, rank, to, count * sizeof *to));
            if (!theirs) continue;
            const nw_optimizer *other = crew->members[rank].replica->net->optimizer;
            memcpy(to, nw_optimizer_state_at(other, i).data + begin, count * sizeof *to);
        }
    }
    return NW_OK;
}

nw_status nw_crew_save(nw_crew *crew, nw_checkpoint_writer *w)
{
    const nw_replica *first = nw_crew_first(crew);
    if (!nw_crew_lockstep(crew)) NW_TRY(bring_ranges(crew));
    if (w && !nw_crew_lockstep(crew)) NW_TRY(save_place(crew, w));
    NW_TRY(save_machines(crew, w));
    if (w) {
        NW_TRY(nw_checkpoint_add_model(w, &first->net->model.params, nw_crew_place_of(crew)->batches));
        NW_TRY(nw_replica_save(nw_crew_first(crew), w, 0, NW_SAVED_LEADER));
        NW_TRY(nw_checkpoint_add_int(w, "world_size", nw_crew_world(crew)));
        NW_TRY(save_vectors(crew, w));
    }
    if (crew->options.place == NW_CREW_MPI && nw_crew_world(crew) > 1)
        NW_TRY(save_followers_from_elsewhere(crew, w));
    else
        for (int i = 1; i < crew->count; i++)
            NW_TRY(nw_replica_save(crew->members[i].replica, w, i, follower_kind(crew)));
    return save_state(crew, w);
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* Statistics of replica `index`, which the model's own are replaced by. */
static nw_status load_own(nw_crew *crew, nw_replica *r, nw_checkpoint *c, int index, bool same_world)
{
    char file[64];
    snprintf(file, sizeof file, "replica%d.safetensors", index);
    if (same_world) return nw_replica_load(r, c, index, follower_kind(crew), true);
    if (!nw_checkpoint_has_file(c, file)) return NW_OK;
    nw_params *p = &r->net->model.params;
    return nw_checkpoint_read_segments(c, file, "", &p->running, p->buffers);
}

/* Sums of the epoch so far are those of the whole world, and rank 0 takes them all. */
static nw_status take_sums(nw_replica *r, nw_checkpoint *c, int rank, int from_world)
{
    r->at.tally = (nw_tally){0};
    r->at.images = 0;
    for (int i = 0; rank == 0 && i < from_world; i++) {
        nw_tally t;
        int64_t images;
        char prefix[32];
        const nw_saved_number sums[] = {{"tally_loss", .real = &t.loss},
                                        {"tally_images", .whole = &t.images},
                                        {"tally_top1", .whole = &t.top1},
                                        {"tally_top5", .whole = &t.top5},
                                        {"images", .whole = &images}};
        snprintf(prefix, sizeof prefix, "replica%d.", i);
        NW_TRY(nw_checkpoint_get_numbers(c, prefix, sums, sizeof sums / sizeof sums[0]));
        nw_tally_merge(&r->at.tally, &t);
        r->at.images += images;
    }
    return NW_OK;
}

static nw_status load_member(nw_crew *crew, nw_member *m, nw_checkpoint *c, int from_world)
{
    nw_replica *r = m->replica;
    int rank = crew->driver->first + (int)(m - crew->members), world = nw_crew_world(crew);
    bool same = from_world == world;
    NW_TRY(nw_checkpoint_read_model(c, r->net->model.options.name, &r->net->model.params, NULL));
    NW_TRY(nw_replica_load(r, c, 0, NW_SAVED_LEADER, same));
    if (rank % from_world > 0) NW_TRY(load_own(crew, r, c, rank % from_world, same));
    if (same) return NW_OK;
    NW_TRY(take_sums(r, c, rank, from_world));
    return nw_replica_move(r, c, 0, from_world, world);
}

/* Of another exchange, and in another world, only what belongs to all is taken over: how many updates there were,
 * and what a machine of the same kind shares with the others. */
static nw_status load_integers(nw_machine *m, nw_checkpoint *c, int rank, bool same_kind, bool same_world)
{
    nw_state s = {0};
    m->ops->state(m, &s);
    nw_status status = s.status;
    for (int i = 0; i < s.count && status == NW_OK; i++) {
        char key[96 + NW_STATE_NAME];
        bool updates = strcmp(s.at[i].name, "updates") == 0, own = s.at[i].rule == NW_STATE_OWN;
        if (s.at[i].dims > 0 || (!updates && !(own ? same_world && same_kind : same_kind))) continue;
        name_integer(key, sizeof key, same_world ? rank : 0, s.at[i].name);
        status = nw_checkpoint_get_int(c, key, s.at[i].data);
    }
    nw_state_free(&s);
    NW_TRY(status);
    return m->ops->loaded ? m->ops->loaded(m) : NW_OK;
}

static nw_status load_machine(nw_crew *crew, nw_member *m, nw_checkpoint *c, bool same_world, const char **note)
{
    const char *name = "none";
    nw_state s = {0};
    int index = (int)(m - crew->members);
    if (nw_checkpoint_has(c, "exchange")) NW_TRY(nw_checkpoint_get_text(c, "exchange", &name));
    bool same_kind = strcmp(name, m->machine->ops->name) == 0;
    if (!same_kind && nw_checkpoint_has_file(c, EXCHANGE_FILE))
        *note = "the checkpoint's exchange held back an update, which is lost since this run has another exchange";
    NW_TRY(load_integers(m->machine, c, crew->driver->first + index, same_kind, same_world));
    crew->ranks[index].step = m->replica->at.steps;
    m->machine->ops->state(m->machine, &s);
    nw_status status = s.status;
    for (int i = 0; same_kind && i < s.count && status == NW_OK; i++) {
        char prefix[96];
        if (!s.at[i].vector) continue;
        snprintf(prefix, sizeof prefix, "%.90s.", s.at[i].name);
        status =
            nw_checkpoint_read_segments(c, EXCHANGE_FILE, prefix, &m->replica->net->model.params.learned, s.at[i].data);
    }
    nw_state_free(&s);
    return status;
}

/* A world of another size goes on at the same place; its workers share what is left of the epoch. */
static nw_status load_place(nw_crew *crew, nw_checkpoint *c, bool same_world)
{
    nw_saved_number place[PLACE_NUMBERS];
    int64_t batches = 0;
    list_place(&crew->place, place);
    NW_TRY(nw_checkpoint_get_numbers(c, "world.", place, PLACE_NUMBERS));
    NW_TRY(nw_checkpoint_get_int(c, "world.epoch_batches", &batches));
    nw_place *at = &crew->place;
    NW_FAIL_IF(batches < 1 || at->batch < 0 || at->batch > batches + crew->options.replica.accumulation ||
                   at->epoch < 0,
               NW_E_FILE, "%s: the world cannot be at batch %lld of %lld in epoch %lld; take an earlier checkpoint",
               nw_checkpoint_path(c), (long long)at->batch, (long long)batches, (long long)at->epoch);
    if (batches != crew->epoch_batches) /* another batch size or number of workers in step */
        at->batch = (int64_t)((double)at->batch * (double)crew->epoch_batches / (double)batches);
    int workers = crew->roles.replicas;
    for (int i = 0; !same_world && i < crew->count; i++) {
        nw_place *own = &crew->members[i].replica->at;
        int64_t all = nw_replica_batches(crew->members[i].replica), done = at->batch;
        if (!crew->options.exchange.sync) done = (done + workers - 1) / workers;
        own->epoch = at->epoch;
        own->batch = done < all ? done : all;
        own->batches = own->epoch * all + own->batch;
    }
    return nw_checkpoint_read_histogram(c, STATE_FILE, &crew->delays);
}

static nw_status load_driver(nw_crew *crew, nw_checkpoint *c, bool same_world)
{
    int64_t *state;
    size_t count;
    if (!crew->driver->ops->load || !same_world || !nw_checkpoint_has_tensor(c, STATE_FILE, "cluster")) return NW_OK;
    NW_TRY(nw_checkpoint_read_integers(c, STATE_FILE, "cluster", 0, &state, &count));
    nw_status status = crew->driver->ops->load(crew->driver, state, count);
    free(state);
    return status;
}

static nw_status load_ledger(nw_crew *crew, nw_checkpoint *c)
{
    int64_t *rows;
    size_t count;
    if (!crew->ledger || !nw_crew_leads(crew) || !nw_checkpoint_has_tensor(c, STATE_FILE, "ledger")) return NW_OK;
    NW_TRY(nw_checkpoint_read_integers(c, STATE_FILE, "ledger", NW_LEDGER_COLUMNS, &rows, &count));
    if (crew->options.place == NW_CREW_MPI) { /* other ranks' counts belong to the sum over the world */
        free(crew->earlier);
        crew->earlier = rows;
        crew->earlier_rows = count;
        return NW_OK;
    }
    nw_status status = nw_ledger_add(crew->ledger, rows, count, true, nw_checkpoint_path(c));
    free(rows);
    return status;
}

nw_status nw_crew_load(nw_crew *crew, nw_checkpoint *c, const char **note)
{
    int64_t world = 1;
    *note = NULL;
    if (nw_checkpoint_has(c, "world_size")) NW_TRY(nw_checkpoint_get_int(c, "world_size", &world));
    NW_FAIL_IF(world < 1 || world > NW_CLUSTER_RANKS, NW_E_FILE, "%s: a world of %lld ranks makes no sense",
               nw_checkpoint_path(c), (long long)world);
    bool same = world == nw_crew_world(crew), handed = nw_checkpoint_has(c, "world.epoch");
    NW_FAIL_IF(handed == nw_crew_lockstep(crew), NW_E_ARGUMENT,
               "%s was written %s a parameter server, and cannot be continued %s one; --init starts a new run from its "
               "weights",
               nw_checkpoint_path(c), handed ? "with" : "without", handed ? "without" : "with");
    for (int i = 0; i < crew->count; i++) {
        NW_TRY(load_member(crew, &crew->members[i], c, (int)world));
        NW_TRY(load_machine(crew, &crew->members[i], c, same, note));
    }
    if (handed) NW_TRY(load_place(crew, c, same));
    if (!same)
        *note =
            "the checkpoint was written by a world of another size: this one goes on at the next whole batch of the "
            "epoch, as docs/checkpoints.md says, and not bit for bit";
    if (crew->driver->generation > 0) return NW_OK; /* time and bytes go on when all go back */
    NW_TRY(load_driver(crew, c, same));
    return load_ledger(crew, c);
}
