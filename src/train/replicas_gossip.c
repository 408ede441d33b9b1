/*
 * replicas_gossip.c - where replicas differ and average in pairs (exchange gossip): the graph that they share, how far they
 * are apart, their mean, and what each has counted.
 *
 * The mean over all members is what is looked at: snapshots are means, checkpoints keep it as their model, and at the end
 * of a run all members get it, with batch norm's statistics. It is made piece by piece, so that nobody needs another
 * vector of the model's size for it.
 *
 * Consensus is the sum over members of the squared distance to their mean. It is known of every snapshot, of looks in
 * between (nw_gossip_options.measure_every), and exactly when all are quiescent.
 */
#include "train/replicas.h"

#include "base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static nw_params *params_of(const nw_replicas *group, int i) { return &group->members[i].replica->net->model.params; }

/* ---- making ------------------------------------------------------------------------------------------------------ */

enum { LOOKS = 8 /* at the distances, in an epoch */ };

static nw_status list_late(nw_replicas *group, int world)
{
    const nw_faults *faults = group->options.faults;
    bool any = false;
    for (int r = 0; r < world; r++) any |= nw_faults_is_late(faults, r);
    NW_FAIL_IF(
        any && !nw_replicas_is_gossip(group), NW_E_ARGUMENT,
        "a rank can join after the start only with --exchange gossip, where no other needs it; use a 'pause' from "
        "0 s on");
    NW_FAIL_IF(nw_faults_is_late(faults, 0), NW_E_ARGUMENT,
               "rank 0 counts the updates of all others, so it cannot join after them; let another rank be late");
    if (!any) return NW_OK;
    NW_NEW(group->late, world, "a list of %d ranks", world);
    for (int r = 0; r < world; r++) group->late[r] = nw_faults_is_late(faults, r);
    group->options.exchange.gossip.late = group->late;
    return NW_OK;
}

bool nw_replicas_keeps_constants(const nw_replicas *group)
{
    const nw_gossip_options *g = &group->options.exchange.gossip;
    nw_graph *rest;
    double chi1, chi2;
    if (!nw_replicas_is_gossip(group) || !g->acid || !g->follows) return false;
    if (nw_graph_without(group->graph, group->dropped, &rest) != NW_OK) return true;
    bool known = nw_graph_present(rest) < 2 || nw_graph_constants(rest, g->rate, &chi1, &chi2) == NW_OK;
    nw_graph_release(rest);
    return !known;
}

nw_status nw_replicas_check_away(const nw_replicas *group, nw_checkpoint *c)
{
    static const char file[] = "shared.safetensors", name[] = NW_STATE_EXCHANGE "away";
    bool there, replays = group->options.mode == NW_REPLICAS_REPLAY && group->options.recorded->skip > 0;
    int64_t away = 0;
    if (!replays || !nw_replicas_is_gossip(group)) return NW_OK;
    NW_TRY(nw_checkpoint_has_tensor(c, file, name, &there));
    if (there) NW_TRY(nw_checkpoint_read_raw(c, file, name, NW_SAVED_I64, 0, NULL, &away));
    NW_FAIL_IF(away > 0, NW_E_UNSUPPORTED,
               "%s was written while %lld ranks were away, of whom it has nothing; replay from the beginning, without "
               "--from",
               nw_checkpoint_path(c), (long long)away);
    return NW_OK;
}

nw_status nw_replicas_make_graph(nw_replicas *group, int world)
{
    nw_gossip_options *g = &group->options.exchange.gossip;
    const char *name = group->options.graph ? group->options.graph : "complete";
    group->chi1 = group->chi2 = (double)NAN;
    NW_TRY(list_late(group, world));
    if (!nw_replicas_is_gossip(group)) return NW_OK;
    group->options.exchange.sync = false;
    NW_TRY(nw_graph_make(&group->graph, name, world, g->seed));
    g->graph = group->graph;
    return nw_gossip_constants(g, &group->chi1, &group->chi2);
}

size_t nw_replicas_copy_bytes(const nw_replicas *group, int first)
{
    const nw_exchange_options *e = &group->options.exchange;
    nw_layout_options l = e->layout;
    size_t bytes = 0;
    l.segments = &nw_replicas_first(group)->net->model.params.learned;
    for (int i = 0; i < group->count && group->graph; i++)
        bytes += nw_agreed_bytes(&l, e->gossip.values, nw_graph_neighbours(group->graph, first + i, NULL, NULL));
    return bytes;
}

nw_status nw_replicas_join_gossip(nw_member *m, nw_gossip_options *g)
{
    const nw_replicas *group = m->group;
    int64_t epoch = group->epoch_batches / group->options.replica.accumulation;
    if (!nw_replicas_is_gossip(group)) return NW_OK;
    if (!m->averaged.with) NW_NEW(m->averaged.with, nw_roles_world(&group->roles), "the exchanges of a rank");
    g->counts = &m->averaged;
    if (g->measure_every == 0) g->measure_every = epoch > LOOKS ? epoch / LOOKS : 1;
    return NW_OK;
}

/* ---- how far apart ----------------------------------------------------------------------------------------------- */

void nw_replicas_note_spread(nw_replicas *group, double spread)
{
    group->consensus = spread;
    group->consensus_sum += spread;
    group->consensus_count++;
}

/* ---- means ------------------------------------------------------------------------------------------------------- */

/* One piece of the mean, to wherever it is wanted; adds what members of this process are apart from it. */
typedef struct joining {
    float *room, *out; /* out: NULL, or the mean of all pieces */
    bool unites;       /* the members get it */
    double *apart;     /* by member of this process */
    bool gives[NW_CLUSTER_RANKS];
} joining;

static nw_status join_piece(nw_replicas *group, joining *j, size_t first, size_t floats)
{
    float *pieces[NW_CLUSTER_RANKS];
    for (int i = 0; i < group->count; i++) {
        pieces[i] = j->room + (size_t)i * floats;
        memcpy(pieces[i], params_of(group, i)->values + first, floats * sizeof(float));
    }
    NW_TRY(nw_driver_mean(group->driver, pieces, floats, j->gives));
    for (int i = 0; i < group->count; i++) {
        float *x = params_of(group, i)->values + first;
        for (size_t k = 0; k < floats; k++) j->apart[i] += pow((double)x[k] - (double)pieces[i][k], 2);
        if (j->unites) memcpy(x, pieces[i], floats * sizeof(float));
    }
    if (j->out) memcpy(j->out + first, pieces[0], floats * sizeof(float));
    return NW_OK;
}

static nw_status add_apart(nw_replicas *group, const joining *j, double *spread)
{
    NW_AUTOFREE double *all = NULL;
    NW_NEW(all, nw_replicas_world(group), "the distances of %d ranks", nw_replicas_world(group));
    NW_TRY(nw_driver_allgather(group->driver, j->apart, sizeof *all, all));
    *spread = 0;
    for (int r = 0; r < nw_replicas_world(group); r++) *spread += j->gives[r] ? all[r] : 0;
    return NW_OK;
}

/* A mean of what is equal would change its last bits. */
static nw_status are_equal(nw_replicas *group, bool *equal)
{
    int64_t mine[NW_CLUSTER_RANKS], all[NW_CLUSTER_RANKS];
    int first = -1;
    for (int i = 0; i < group->count; i++) {
        const nw_params *p = params_of(group, i);
        mine[i] = (int64_t)nw_hash64(p->values, p->learned.floats * sizeof(float));
    }
    NW_TRY(nw_driver_allgather(group->driver, mine, sizeof *mine, all));
    *equal = true;
    for (int r = 0; r < nw_replicas_world(group); r++) {
        if (group->dropped[r]) continue;
        if (first < 0) first = r;
        *equal &= all[r] == all[first];
    }
    return NW_OK;
}

static nw_status join(nw_replicas *group, joining *j, double *spread)
{
    bool equal;
    const size_t most = (size_t)1 << 20;
    size_t all = params_of(group, 0)->learned.floats, piece = most / (size_t)group->count;
    NW_AUTOFREE float *room = NULL;
    NW_AUTOFREE double *apart = NULL;
    *spread = 0;
    NW_TRY(are_equal(group, &equal));
    if (equal && j->out) memcpy(j->out, params_of(group, 0)->values, all * sizeof(float));
    if (equal) return NW_OK;
    if (piece < 4096) piece = 4096;
    if (piece > all) piece = all;
    NW_NEW(room, (size_t)group->count * piece + 1, "pieces of a mean");
    NW_NEW(apart, group->count, "the distances of %d replicas", group->count);
    j->room = room;
    j->apart = apart;
    for (int r = 0; r < nw_replicas_world(group); r++) j->gives[r] = !group->dropped[r];
    for (size_t first = 0; first < all; first += piece)
        NW_TRY(join_piece(group, j, first, all - first < piece ? all - first : piece));
    return add_apart(group, j, spread);
}

nw_status nw_replicas_mean(nw_replicas *group, float *out)
{
    joining j = {.out = out};
    double spread;
    return join(group, &j, &spread);
}

nw_status nw_replicas_average(nw_replicas *group)
{
    joining j = {.unites = true};
    double spread;
    if (!nw_replicas_is_gossip(group)) return NW_OK;
    NW_TRY(join(group, &j, &spread));
    nw_replicas_note_spread(group, spread);
    return NW_OK;
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

typedef struct count_row {
    int64_t gradients, exchanges, refused, idle_ns, again;
} count_row;

static nw_status take_counts(void *context, const void *bytes, size_t size, int rank)
{
    nw_averagings *a = context;
    count_row row;
    if (!a) return NW_OK;
    NW_FAIL_IF(size != sizeof row + (size_t)a->world * sizeof(int64_t), NW_E_MESSAGE,
               "rank %d brought %zu bytes of exchanges, which do not fit", rank, size);
    memcpy(&row, bytes, sizeof row);
    a->gradients[rank] = row.gradients;
    a->exchanges[rank] = row.exchanges;
    a->refused[rank] = row.refused;
    a->idle_ns[rank] = row.idle_ns;
    a->again[rank] = row.again;
    memcpy(a->with + (size_t)rank * (size_t)a->world, (const char *)bytes + sizeof row,
           (size_t)a->world * sizeof(int64_t));
    return NW_OK;
}

static nw_status gather_counts(nw_replicas *group, nw_averagings *a)
{
    size_t with = (size_t)nw_replicas_world(group) * sizeof(int64_t), size = sizeof(count_row) + with;
    NW_AUTOFREE char *mine = NULL;
    NW_NEW(mine, size, "what a rank counted");
    for (int i = 0; i < group->count; i++) {
        const nw_gossip_counts *c = &group->members[i].averaged;
        count_row row = {c->gradients, c->exchanges, c->refused, c->idle_ns, c->again};
        memcpy(mine, &row, sizeof row);
        memcpy(mine + sizeof row, c->with, with);
        if (group->options.mode == NW_REPLICAS_MPI) return nw_replicas_gather(group, mine, size, take_counts, a);
        NW_TRY(take_counts(a, mine, size, i));
    }
    return NW_OK;
}

nw_status nw_replicas_averagings(nw_replicas *group, nw_averagings *a)
{
    size_t world = (size_t)nw_replicas_world(group);
    *a = (nw_averagings){0};
    if (!nw_replicas_is_gossip(group)) return NW_OK;
    int64_t *all = calloc(world * (world + 5), sizeof *all);
    NW_FAIL_IF(!all, NW_E_MEMORY, "no memory for the exchanges of %zu ranks", world);
    *a = (nw_averagings){(int)world,     all, all + world, all + 2 * world, all + 3 * world, all + 4 * world,
                         all + 5 * world};
    NW_TRY(gather_counts(group, a));
    return NW_OK;
}

void nw_averagings_free(nw_averagings *a)
{
    free(a->gradients);
    *a = (nw_averagings){0};
}
