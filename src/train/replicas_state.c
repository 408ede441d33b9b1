/*
 * replicas_state.c - a whole world in a checkpoint, and back. See replicas.h, net/state.h and docs/checkpoints.md.
 *
 *   model.safetensors        rank 0's parameters and running statistics; where ranks differ, the mean of their parameters
 *   shared.safetensors       what all ranks have in common, and vectors of which each has a range
 *   replica<r>.safetensors   what rank r has for itself
 *   state.safetensors        integers of the world: cluster, clocks and queues of a virtual one; ledger, bytes sent so
 *                            far
 *
 * Each rank lists what it has (nw_rank_state). Rank 0 writes everything; what is elsewhere comes to it rank by rank:
 * the list, then what it lists. Every rank reads for itself.
 */
#define _GNU_SOURCE 1
#include "train/replicas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARED_FILE "shared.safetensors"
#define FIRST_FILE  "replica0.safetensors"
#define STATE_FILE  "state.safetensors"

static const nw_saved_type types[] = {NW_SAVED_F32, NW_SAVED_F64, NW_SAVED_I64, NW_SAVED_U8}; /* by nw_state_type */

static bool is_common(const nw_state_entry *e) { return e->rule == NW_STATE_KEPT || e->rule == NW_STATE_RANGE; }

static bool is_exchanges(const nw_state_entry *e)
{
    return strncmp(e->name, NW_STATE_EXCHANGE, strlen(NW_STATE_EXCHANGE)) == 0;
}

/* Adds the names of tensors that an exchange has: "exchange.delayed", of "exchange.memory.3" the first part. */
static void name_held(const nw_state *list, char *held, size_t size)
{
    for (int i = 0; i < list->count; i++) {
        char name[NW_STATE_NAME];
        size_t prefix = strlen(NW_STATE_EXCHANGE);
        if (list->at[i].dims == 0 || !is_exchanges(&list->at[i])) continue;
        snprintf(name, sizeof name, "%.*s", (int)(prefix + strcspn(list->at[i].name + prefix, ".")), list->at[i].name);
        nw_state_lose(held, size, name);
    }
}

static void name_file(char *file, size_t size, int rank) { snprintf(file, size, "replica%d.safetensors", rank); }

static const nw_segments *segments_of(const nw_replicas *group, const nw_state_entry *e)
{
    const nw_params *p = &nw_replicas_first(group)->net->model.params;
    return e->along == NW_ALONG_STATISTICS ? &p->running : &p->learned;
}

static bool is_whole(const nw_replicas *group, const nw_state_entry *e)
{
    return e->along != NW_ALONG_NOTHING && nw_state_count(e) == segments_of(group, e)->floats;
}

/* ---- what a member has ------------------------------------------------------------------------------------------- */

void nw_member_state(void *worker, nw_state *s)
{
    nw_member *m = worker;
    bool compresses = nw_assign_compresses(&m->group->options.codecs);
    nw_replica_state(m->replica, m->machine, s);
    if (compresses || nw_replicas_world(m->group) > 1)
        nw_channel_stats_state(&m->stats, m->group->assignment.codecs, compresses ? m->group->assignment.codec_count : 0, s);
    if (m->machine->lockstep) return;
    nw_position_state(&m->group->position, "world.", true, s);
    nw_state_integer(s, "world.epoch_batches", NW_STATE_KEPT, &m->group->position_batches);
    nw_state_tensor(s, "world.delays", NW_STATE_KEPT, NW_STATE_I64, 1, &(int64_t){NW_HISTOGRAM_INTEGERS},
                    &m->group->delays);
    if (!nw_replicas_is_gossip(m->group)) return;
    nw_state_real(s, "world.consensus", NW_STATE_KEPT, &m->group->consensus);
    nw_state_real(s, "world.consensus_sum", NW_STATE_KEPT, &m->group->consensus_sum);
    nw_state_integer(s, "world.consensus_count", NW_STATE_KEPT, &m->group->consensus_count);
}

nw_status nw_member_loaded(void *worker) { return nw_replica_loaded(((nw_member *)worker)->replica); }

/* ---- saving ------------------------------------------------------------------------------------------------------ */

typedef struct saving {
    nw_replicas *group;
    nw_checkpoint_writer *w; /* NULL: rank 0 is elsewhere */
    nw_saved_list shared;
    nw_state joined; /* vectors put together of ranges: their floats, and then a byte for each: it is there */
    char held[256];  /* tensors that the exchange has */
} saving;

/* A vector is one tensor a parameter. */
static nw_status add_entry(const saving *s, nw_saved_list *list, const nw_state_entry *e)
{
    char prefix[NW_STATE_NAME + 1];
    snprintf(prefix, sizeof prefix, "%s.", e->name);
    if (is_whole(s->group, e)) return nw_saved_list_add_segments(list, prefix, segments_of(s->group, e), e->data);
    return nw_saved_list_add(list, e->name, types[e->type], e->dims, e->shape, e->data);
}

/* What nobody has is 0. */
static nw_status join(saving *s, int rank, const nw_state_entry *e)
{
    size_t floats = segments_of(s->group, e)->floats, count = nw_state_count(e);
    nw_state_entry *all = nw_state_find(&s->joined, e->name), one = *e;
    if (!all) {
        one.first = 0;
        one.shape[0] = (int64_t)floats;
        one.data = NULL;
        nw_state_add(&s->joined, one);
        NW_TRY(s->joined.status);
        all = &s->joined.at[s->joined.count - 1];
        all->data = calloc(floats, sizeof(float) + 1);
        NW_FAIL_IF(!all->data, NW_E_MEMORY, "no memory for %zu floats of %s", floats, e->name);
    }
    char *there = (char *)((float *)all->data + floats) + e->first;
    NW_FAIL_IF(memchr(there, 1, count), NW_E_MESSAGE, "rank %d says that it has elements of %s that another has, too",
               rank, e->name);
    memset(there, 1, count);
    memcpy((float *)all->data + e->first, e->data, count * sizeof(float));
    return NW_OK;
}

static nw_status save_shared(saving *s)
{
    for (int i = 0; i < s->joined.count; i++) NW_TRY(add_entry(s, &s->shared, &s->joined.at[i]));
    NW_TRY(nw_checkpoint_add_text(s->w, "exchange_has", s->held));
    return nw_checkpoint_add_tensors(s->w, SHARED_FILE, &s->shared, NULL, 0);
}

/* What a rank has, on rank 0. */
static nw_status write_list(saving *s, int rank, const nw_state *list)
{
    NW_CLEANUP(nw_saved_list_free) nw_saved_list own = {0};
    char file[64];
    name_file(file, sizeof file, rank);
    name_held(list, s->held, sizeof s->held);
    for (int i = 0; i < list->count; i++) {
        const nw_state_entry *e = &list->at[i];
        if (e->rule == NW_STATE_RANGE && (rank > 0 || !is_whole(s->group, e)))
            NW_TRY(join(s, rank, e));
        else if (!is_common(e))
            NW_TRY(add_entry(s, &own, e));
        else if (rank == 0)
            NW_TRY(add_entry(s, &s->shared, e));
    }
    return nw_checkpoint_add_tensors(s->w, file, &own, NULL, 0);
}

enum { ENTRIES_MOST = 1 << 16 };

/* The list of another rank, if it makes sense, with room for what it lists. */
static nw_status take_list(nw_replicas *group, int rank, nw_state *list)
{
    const nw_params *p = &nw_replicas_first(group)->net->model.params;
    int64_t count = 0;
    NW_TRY(nw_driver_gather(group->driver, rank, &count, sizeof count));
    NW_FAIL_IF(count < 0 || count > ENTRIES_MOST, NW_E_MESSAGE,
               "rank %d says that it has %lld tensors; at most %d can be", rank, (long long)count, ENTRIES_MOST);
    NW_NEW(list->at, count + 1, "a list of %lld tensors", (long long)count);
    NW_TRY(nw_driver_gather(group->driver, rank, list->at, (size_t)count * sizeof *list->at));
    for (int i = 0; i < count; i++) {
        nw_state_entry *e = &list->at[i];
        NW_TRY(nw_state_check(e, rank, p->learned.floats, p->running.floats));
        e->remedy = NULL;
        e->data = malloc(nw_state_bytes(e) + 1);
        NW_FAIL_IF(!e->data, NW_E_MEMORY, "no memory for %zu bytes of rank %d", nw_state_bytes(e), rank);
        list->count = i + 1;
    }
    return NW_OK;
}

/* Of what each has for itself; of the rest rank 0's is as good. */
static nw_status give_list(nw_replicas *group, int rank, nw_state *list)
{
    int kept = 0;
    for (int i = 0; i < list->count; i++)
        if (list->at[i].rule != NW_STATE_KEPT) list->at[kept++] = list->at[i];
    int64_t count = list->count = kept;
    NW_TRY(nw_driver_gather(group->driver, rank, &count, sizeof count));
    return nw_driver_gather(group->driver, rank, list->at, (size_t)count * sizeof *list->at);
}

/* Collects what rank `rank` has on rank 0; both call. */
static nw_status collect(nw_replicas *group, int rank, nw_state *list)
{
    NW_TRY(nw_replicas_leads(group) ? take_list(group, rank, list) : give_list(group, rank, list));
    for (int i = 0; i < list->count; i++)
        NW_TRY(nw_driver_gather(group->driver, rank, list->at[i].data, nw_state_bytes(&list->at[i])));
    return NW_OK;
}

static void free_collected(nw_state *list)
{
    for (int i = 0; i < list->count; i++) free(list->at[i].data);
    nw_state_free(list);
}

static nw_status save_rank(saving *s, int rank)
{
    nw_replicas *group = s->group;
    int index = rank - group->driver->first;
    if (group->dropped[rank] && nw_replicas_is_gossip(group)) return NW_OK; /* what it has does not count */
    if (index >= 0 && index < group->count) {
        NW_CLEANUP(nw_state_free) nw_state own = {0};
        nw_state_owner owner = nw_rank_state(&group->ranks[index]);
        owner.list(owner.whose, &own);
        NW_TRY(own.status);
        return s->w ? write_list(s, rank, &own) : collect(group, rank, &own);
    }
    NW_CLEANUP(free_collected) nw_state brought = {0};
    if (!s->w || group->dropped[rank]) return NW_OK;
    NW_TRY(collect(group, rank, &brought));
    return write_list(s, rank, &brought);
}

static void free_ledger(nw_ledger **ledger) { nw_ledger_free(*ledger); }

/* All ranks call; what they counted comes to rank 0. */
static nw_status save_state(nw_replicas *group, nw_checkpoint_writer *w)
{
    NW_AUTOFREE int64_t *cluster = NULL, *rows = NULL;
    NW_CLEANUP(nw_saved_list_free) nw_saved_list list = {0};
    NW_CLEANUP(free_ledger) nw_ledger *made = NULL;
    nw_ledger *world;
    size_t count = 0;
    NW_TRY(nw_replicas_world_ledger(group, &world));
    if (world != group->ledger) made = world;
    if (w && group->driver->ops->save) {
        NW_TRY(group->driver->ops->save(group->driver, &cluster, &count));
        NW_TRY(nw_saved_list_add(&list, "cluster", NW_SAVED_I64, 1, (const int64_t[]){(int64_t)count}, cluster));
    }
    for (int rank = 0; world && rank < nw_replicas_world(group); rank++)
        if (group->dropped[rank]) nw_ledger_forget_links(world, rank);
    if (w && world) {
        NW_TRY(nw_ledger_save(world, &rows, &count));
        const int64_t shape[] = {(int64_t)count, NW_LEDGER_COLUMNS};
        NW_TRY(nw_saved_list_add(&list, "ledger", NW_SAVED_I64, 2, shape, rows));
    }
    return list.count > 0 ? nw_checkpoint_add_tensors(w, STATE_FILE, &list, NULL, 0) : NW_OK;
}

static void free_saving(saving *s)
{
    nw_saved_list_free(&s->shared);
    free_collected(&s->joined);
}

/* Rank 0's parameters and statistics, or those that are looked at. */
static nw_status save_model(nw_replicas *group, nw_checkpoint_writer *w)
{
    NW_TRY(nw_replicas_show_outer(group));
    nw_params p = nw_replicas_shown(group);
    nw_status status = w ? nw_checkpoint_add_model(w, &p, nw_replicas_position(group)->batches) : NW_OK;
    nw_replicas_hide_outer(group);
    return status;
}

nw_status nw_replicas_save(nw_replicas *group, nw_checkpoint_writer *w)
{
    NW_CLEANUP(free_saving) saving s = {.group = group, .w = w};
    NW_TRY(save_model(group, w));
    if (w) {
        NW_TRY(nw_checkpoint_add_int(w, "world_size", nw_replicas_world(group)));
        NW_TRY(nw_checkpoint_add_text(w, "exchange", group->members[0].machine->ops->name));
    }
    for (int rank = 0; rank < nw_replicas_world(group); rank++) NW_TRY(save_rank(&s, rank));
    if (w) NW_TRY(save_shared(&s));
    return save_state(group, w);
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

typedef struct reading {
    nw_replicas *group;
    nw_checkpoint *c;
    int world;      /* that was saved */
    bool same_kind; /* its exchange is this one */
} reading;

static bool has_member(void *context, int member)
{
    char file[64];
    name_file(file, sizeof file, member);
    return nw_checkpoint_has_file(((reading *)context)->c, file);
}

static nw_status read_entry(void *context, int member, const nw_state_entry *e, void *out, bool *there)
{
    const reading *r = context;
    char file[64] = SHARED_FILE, name[NW_STATE_NAME + NW_SEGMENT_NAME], prefix[NW_STATE_NAME + 1];
    const nw_segments *segments = segments_of(r->group, e);
    bool divided = e->rule == NW_STATE_RANGE || is_whole(r->group, e);
    int first = 0;
    if (!is_common(e)) name_file(file, sizeof file, member);
    snprintf(prefix, sizeof prefix, "%s.", e->name);
    while (divided && segments->at[first].offset + segments->at[first].count <= e->first) first++;
    snprintf(name, sizeof name, "%s%s", divided ? prefix : e->name, divided ? segments->at[first].name : "");
    NW_TRY(nw_checkpoint_has_tensor(r->c, file, name, there));
    if (!*there) return NW_OK;
    if (divided) return nw_checkpoint_read_range(r->c, file, prefix, segments, e->first, nw_state_count(e), out);
    return nw_checkpoint_read_raw(r->c, file, name, types[e->type], e->dims, e->shape, out);
}

/* Of another exchange only the number of updates is taken over, and what the pipeline has. */
static bool skips(void *context, const nw_state_entry *e)
{
    return !((reading *)context)->same_kind && is_exchanges(e) && strcmp(e->name, NW_STATE_EXCHANGE "updates") != 0 &&
           strcmp(e->name, NW_STATE_EXCHANGE "pending") != 0;
}

static nw_status load_member(reading *r, int index, char *lost, size_t size)
{
    nw_replicas *group = r->group;
    nw_member *m = &group->members[index];
    nw_replica *replica = m->replica;
    nw_channel_stats counted = m->stats;
    nw_state_owner owner = nw_rank_state(&group->ranks[index]);
    nw_state_source source = {r, r->world, read_entry, has_member, skips};
    int rank = group->driver->first + index, world = nw_replicas_world(group);
    m->stats.sent_floats = NW_STATS_UNKNOWN; /* until it is read */
    NW_TRY(nw_checkpoint_read_model(r->c, replica->net->model.options.name, &replica->net->model.params, NULL));
    NW_TRY(nw_state_load(&owner, &source, rank, world, lost, size));
    if (group->driver->generation > 0) m->stats = counted; /* bytes go on when all go back */
    group->ranks[index].step = replica->at.steps;
    return nw_replica_fit_world(replica, r->world, world);
}

/* A world of another size goes on at the same position; its workers share what is left of the epoch. */
static nw_status load_position(nw_replicas *group, nw_checkpoint *c, bool same_world)
{
    nw_position *at = &group->position;
    int64_t batches = group->position_batches;
    NW_FAIL_IF(batches < 1 || at->batch < 0 || at->batch > batches + group->options.replica.accumulation ||
                   at->epoch < 0 || !nw_histogram_is_sound(&group->delays),
               NW_E_FILE, "%s: the world cannot be at batch %lld of %lld in epoch %lld; take an earlier checkpoint",
               nw_checkpoint_path(c), (long long)at->batch, (long long)batches, (long long)at->epoch);
    group->position_batches = group->epoch_batches;
    if (batches != group->epoch_batches) /* another batch size or number of synchronous workers */
        at->batch = (int64_t)((double)at->batch * (double)group->epoch_batches / (double)batches);
    int workers = group->roles.replicas;
    for (int i = 0; !same_world && i < group->count; i++) {
        nw_position *own = &group->members[i].replica->at;
        int64_t all = nw_replica_batches(group->members[i].replica), done = at->batch;
        if (!group->options.exchange.sync) done = (done + workers - 1) / workers;
        own->epoch = at->epoch;
        own->batch = done < all ? done : all;
        own->batches = own->epoch * all + own->batch;
    }
    return NW_OK;
}

static nw_status load_driver(nw_replicas *group, nw_checkpoint *c, bool same_world)
{
    NW_AUTOFREE int64_t *state = NULL;
    size_t count;
    bool has = false;
    if (group->driver->ops->load && same_world) NW_TRY(nw_checkpoint_has_tensor(c, STATE_FILE, "cluster", &has));
    if (!has) return NW_OK;
    NW_TRY(nw_checkpoint_read_integers(c, STATE_FILE, "cluster", 0, &state, &count));
    return group->driver->ops->load(group->driver, state, count);
}

static nw_status load_ledger(nw_replicas *group, nw_checkpoint *c)
{
    NW_AUTOFREE int64_t *rows = NULL;
    size_t count;
    bool has = false;
    if (group->ledger && nw_replicas_leads(group)) NW_TRY(nw_checkpoint_has_tensor(c, STATE_FILE, "ledger", &has));
    if (!has) return NW_OK;
    NW_TRY(nw_checkpoint_read_integers(c, STATE_FILE, "ledger", NW_LEDGER_COLUMNS, &rows, &count));
    if (group->options.mode != NW_REPLICAS_MPI)
        return nw_ledger_add(group->ledger, rows, count, true, nw_checkpoint_path(c));
    free(group->earlier); /* other ranks' counts belong to the sum over the world */
    group->earlier = rows;
    group->earlier_rows = count;
    rows = NULL;
    return NW_OK;
}

/* What the checkpoint's exchange had and this one has not, as far as this process knows. */
static nw_status note_unread(const reading *r, const char *had, char *lost, size_t size)
{
    const nw_replicas *group = r->group;
    char has[512] = "", names[256], *rest = names;
    if (r->same_kind && group->options.mode == NW_REPLICAS_MPI && !nw_replicas_lockstep(group)) return NW_OK;
    for (int i = 0; r->same_kind && i < group->count; i++) {
        NW_CLEANUP(nw_state_free) nw_state s = {0};
        nw_state_owner owner = nw_rank_state(&group->ranks[i]);
        owner.list(owner.whose, &s);
        NW_TRY(s.status);
        name_held(&s, has, sizeof has);
    }
    snprintf(names, sizeof names, "%s", had);
    for (char *name; (name = strsep(&rest, ", "));) {
        size_t before = strlen(has);
        if (*name) nw_state_lose(has, sizeof has, name);
        if (strlen(has) > before) nw_state_lose(lost, size, name);
    }
    return NW_OK;
}

/* What the user is told. */
static void make_note(nw_replicas *group, bool same_world, const char *lost)
{
    int length = snprintf(group->note, sizeof group->note, "%s",
                          same_world ? ""
                                     : "the checkpoint was written by a world of another size: this one goes on at "
                                       "the next whole batch of the epoch, as docs/checkpoints.md says, and not "
                                       "bit for bit");
    if (lost[0])
        snprintf(group->note + length, sizeof group->note - (size_t)length, "%slost from the checkpoint: %s",
                 length ? "; " : "", lost);
}

nw_status nw_replicas_load(nw_replicas *group, nw_checkpoint *c, const char **note)
{
    int64_t world = 1;
    const char *kind, *had;
    char lost[256] = "";
    *note = NULL;
    NW_TRY(nw_checkpoint_get_int(c, "world_size", &world));
    NW_TRY(nw_checkpoint_get_text(c, "exchange", &kind));
    NW_TRY(nw_checkpoint_get_text(c, "exchange_has", &had));
    NW_FAIL_IF(world < 1 || world > NW_CLUSTER_RANKS, NW_E_FILE, "%s: a world of %lld ranks makes no sense",
               nw_checkpoint_path(c), (long long)world);
    bool same = world == nw_replicas_world(group), unequal;
    NW_TRY(nw_checkpoint_has_tensor(c, SHARED_FILE, "world.epoch", &unequal));
    NW_FAIL_IF(
        unequal == nw_replicas_lockstep(group), NW_E_ARGUMENT,
        "%s was written by ranks that computed %s, and cannot be continued by ranks that compute %s; --init starts a "
        "new run from its weights",
        nw_checkpoint_path(c), unequal ? "each at its own pace" : "in step",
        unequal ? "in step" : "each at its own pace");
    NW_TRY(nw_replicas_check_away(group, c));
    reading r = {group, c, (int)world, strcmp(kind, group->members[0].machine->ops->name) == 0};
    for (int i = 0; i < group->count; i++) NW_TRY(load_member(&r, i, lost, sizeof lost));
    if (unequal) NW_TRY(load_position(group, c, same));
    NW_TRY(note_unread(&r, had, lost, sizeof lost));
    make_note(group, same, lost);
    if (group->note[0]) *note = group->note;
    if (group->driver->generation > 0) return NW_OK; /* time and bytes go on when all go back */
    NW_TRY(load_driver(group, c, same));
    return load_ledger(group, c);
}

nw_status nw_replicas_read_average(nw_checkpoint *c, nw_params *p, bool *there)
{
    bool common, has;
    NW_TRY(nw_checkpoint_has_tensor(c, SHARED_FILE, "average_steps", &common));
    const char *file = common ? SHARED_FILE : FIRST_FILE;
    int64_t steps = -1;
    NW_TRY(nw_checkpoint_has_tensor(c, file, "average_steps", &has));
    if (has) NW_TRY(nw_checkpoint_read_raw(c, file, "average_steps", NW_SAVED_I64, 0, NULL, &steps));
    *there = steps >= 0;
    if (!*there) return NW_OK;
    NW_TRY(nw_checkpoint_read_segments(c, file, "average.", &p->learned, p->values));
    return nw_checkpoint_read_segments(c, FIRST_FILE, "average_statistics.", &p->running, p->buffers);
}
