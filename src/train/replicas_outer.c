/*
 * replicas_outer.c - outer parameters (net/machine.h): replicas that make steps of their own have, beside their values,
 * parameters that only outer steps change. These are what is looked at: evaluated, compared and kept as the model.
 *
 * Where all members have the same ones, each looks at its own. Where each has its own (outer steps of pairs), the mean
 * over all ranks is looked at, in the order of ranks; it is made in the vectors of gradients, unless one is kept there
 * for the next run.
 */
#include "train/replicas.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static nw_machine *machine_of(const nw_replicas *group, int i) { return group->members[i].machine; }
static nw_params *params_of(const nw_replicas *group, int i) { return &group->members[i].replica->net->model.params; }

static nw_status mean_of_all(nw_replicas *group, float *const *vectors)
{
    size_t floats = params_of(group, 0)->learned.floats;
    bool gives[NW_CLUSTER_RANKS];
    for (int r = 0; r < nw_replicas_world(group); r++) gives[r] = !group->dropped[r];
    for (int i = 0; i < group->count; i++) memcpy(vectors[i], machine_of(group, i)->outer, floats * sizeof(float));
    return nw_driver_mean(group->driver, vectors, floats, gives);
}

/* A vector of each replica that nobody needs now; those that were made for it are in `shown`. */
static nw_status find_room(nw_replicas *group, float **room)
{
    NW_NEW(group->shown, group->count, "vectors of %d replicas", group->count);
    for (int i = 0; i < group->count; i++) {
        room[i] = params_of(group, i)->gradients;
        if (group->members[i].replica->at.pending == 0) continue;
        NW_NEW(group->shown[i], params_of(group, i)->learned.floats, "a mean of parameters");
        room[i] = group->shown[i];
    }
    return NW_OK;
}

static nw_status show_mean(nw_replicas *group)
{
    float *room[NW_CLUSTER_RANKS];
    NW_TRY(find_room(group, room));
    NW_TRY(mean_of_all(group, room));
    for (int i = 0; i < group->count; i++) params_of(group, i)->read = room[i];
    return NW_OK;
}

nw_status nw_replicas_show_outer(nw_replicas *group)
{
    const nw_machine *m = machine_of(group, 0);
    if (!m->outer || group->showing++ > 0) return NW_OK;
    for (int i = 0; i < group->count && m->outer_equal; i++) params_of(group, i)->read = machine_of(group, i)->outer;
    if (m->outer_equal) return NW_OK;
    NW_TRY_OR(show_mean(group), nw_replicas_hide_outer(group));
    return NW_OK;
}

void nw_replicas_hide_outer(nw_replicas *group)
{
    if (!machine_of(group, 0)->outer || --group->showing > 0) return;
    for (int i = 0; i < group->count; i++) {
        params_of(group, i)->read = params_of(group, i)->values;
        if (group->shown) free(group->shown[i]);
    }
    free(group->shown);
    group->shown = NULL;
}

/* A mean of what is equal would change its last bits. */
static nw_status are_equal(nw_replicas *group, bool *equal)
{
    int64_t mine[NW_CLUSTER_RANKS], all[NW_CLUSTER_RANKS];
    size_t bytes = params_of(group, 0)->learned.floats * sizeof(float);
    for (int i = 0; i < group->count; i++) mine[i] = (int64_t)nw_hash64(machine_of(group, i)->outer, bytes);
    NW_TRY(nw_driver_allgather(group->driver, mine, sizeof *mine, all));
    *equal = true;
    for (int r = 1; r < nw_replicas_world(group); r++) *equal &= all[r] == all[0];
    return NW_OK;
}

nw_status nw_replicas_merge_outer(nw_replicas *group)
{
    bool equal;
    const nw_machine *m = machine_of(group, 0);
    if (!m->outer || m->outer_equal) return NW_OK;
    NW_TRY(are_equal(group, &equal));
    if (equal) return NW_OK;
    NW_TRY(nw_replicas_show_outer(group));
    for (int i = 0; i < group->count; i++) {
        nw_params *p = params_of(group, i);
        memcpy(machine_of(group, i)->outer, p->read, p->learned.floats * sizeof(float));
        memcpy(p->values, p->read, p->learned.floats * sizeof(float));
    }
    nw_replicas_hide_outer(group);
    return NW_OK;
}

void nw_replicas_print_outer(const nw_replicas *group, FILE *out)
{
    const nw_exchange_options *e = &group->options.exchange;
    const nw_replica *r = nw_replicas_first(group);
    size_t floats = params_of(group, 0)->learned.floats;
    if (!machine_of(group, 0)->outer || !r->outer) return;
    double mib = 1024 * 1024, world = nw_replicas_world(group),
           dense = nw_local_sends(e, e->sync_every, floats) / world;
    double steps = 2 * (world - 1) / world * (double)floats * sizeof(float) * e->sync_every;
    size_t state = (size_t)nw_optimizer_states(r->outer) * floats * sizeof(float);
    int fragments = e->layout.fragments > 1 ? e->layout.fragments : 1;
    fprintf(out,
            "outer steps: every %d inner steps, %s, %d fragment%s; uncompressed a rank sends %.0f bytes in %d steps "
            "(allreduce: %.0f)\n",
            e->sync_every, e->pairs ? "random pairs" : "all ranks", fragments, fragments > 1 ? "s" : "", dense,
            e->sync_every, steps);
    fprintf(
        out,
        "outer memory: %.2f MiB per rank for outer parameters, differences and error memory, %.2f MiB for the outer "
        "optimizer\n",
        (double)nw_local_bytes(e, floats) / mib, (double)state / mib);
}
