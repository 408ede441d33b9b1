/*
 * replicas_gather.c - what the ranks of an MPI run counted and saw, on rank 0: the ledger of the world, and trace.json.
 *
 * Each rank gives bytes of its own length; rank 0 takes them one after the other, so that it never holds those of two.
 */
#define _GNU_SOURCE 1
#include "train/replicas.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

/* A failure of `take` does not keep the others waiting. */
nw_status nw_replicas_gather(nw_replicas *group, void *mine, size_t size,
                             nw_status (*take)(void *context, const void *bytes, size_t size, int rank), void *context)
{
    int64_t sizes[NW_CLUSTER_RANKS] = {0}, own = (int64_t)size;
    nw_status taken = NW_OK;
    NW_TRY(nw_driver_allgather(group->driver, &own, sizeof own, sizes));
    for (int rank = 0; rank < nw_replicas_world(group); rank++) {
        if (group->dropped[rank]) continue;
        void *bytes = nw_replicas_leads(group) && rank > 0 ? malloc((size_t)sizes[rank] + 1) : mine;
        NW_FAIL_IF(!bytes, NW_E_MEMORY, "no memory for what rank %d counted", rank);
        nw_status status = nw_driver_gather(group->driver, rank, bytes, (size_t)sizes[rank]);
        if (status == NW_OK && taken == NW_OK && nw_replicas_leads(group))
            taken = take(context, bytes, (size_t)sizes[rank], rank);
        if (bytes != mine) free(bytes);
        NW_TRY(status);
    }
    return taken;
}

/* ---- the ledger ---- */

enum { ROW_BYTES = NW_LEDGER_COLUMNS * sizeof(int64_t) };

static nw_status take_ledger(void *context, const void *rows, size_t size, int rank)
{
    char source[32];
    snprintf(source, sizeof source, "rank %d", rank);
    return nw_ledger_add(context, rows, size / ROW_BYTES, false, source);
}

nw_status nw_replicas_world_ledger(nw_replicas *group, nw_ledger **world)
{
    NW_AUTOFREE int64_t *rows = NULL;
    size_t count;
    int ranks = nw_replicas_world(group);
    *world = NULL;
    if (!group->ledger) return NW_OK;
    if (group->options.mode != NW_REPLICAS_MPI) {
        *world = group->ledger;
        return NW_OK;
    }
    NW_TRY(nw_ledger_save(group->ledger, &rows, &count));
    if (nw_replicas_leads(group)) NW_TRY(nw_replicas_make_ledger(group, ranks, 0, ranks, world));
    NW_TRY(nw_replicas_gather(group, rows, count * ROW_BYTES, take_ledger, *world));
    if (!*world || !group->earlier) return NW_OK;
    return nw_ledger_add(*world, group->earlier, group->earlier_rows, true, "the checkpoint");
}

/* ---- the trace ---- */

/* Clocks of machines differ: what to add to each rank's to get rank 0's. All look at theirs as they leave a barrier;
 * the middle one of five looks counts. */
enum { LOOKS = 5 };
static nw_status measure_clocks(nw_replicas *group, int64_t *offsets)
{
    NW_AUTOFREE int64_t *all = calloc((size_t)nw_replicas_world(group) * LOOKS, sizeof *all);
    NW_FAIL_IF(!all, NW_E_MEMORY, "no memory for the clocks of %d ranks", nw_replicas_world(group));
    for (int i = 0; i < LOOKS; i++) {
        int64_t now = nw_driver_now(group->driver, group->driver->first);
        NW_TRY(nw_driver_allgather(group->driver, &now, sizeof now, all + i * nw_replicas_world(group)));
    }
    for (int rank = 0; rank < nw_replicas_world(group); rank++) {
        int64_t look[LOOKS];
        for (int i = 0; i < LOOKS; i++) { /* sorted as they come */
            int64_t offset = all[i * nw_replicas_world(group)] - all[i * nw_replicas_world(group) + rank];
            int at = i;
            for (; at > 0 && look[at - 1] > offset; at--) look[at] = look[at - 1];
            look[at] = offset;
        }
        offsets[rank] = look[LOOKS / 2];
    }
    return NW_OK;
}

typedef struct trace_gather {
    nw_replicas *group;
    nw_text mine; /* of this rank */
    bool called;
} trace_gather;

static nw_status take_trace(void *out, const void *bytes, size_t size, int rank)
{
    if (out && rank > 0) fwrite(bytes, 1, size, out); /* the caller checks for errors when it closes the file */
    return NW_OK;
}

static nw_status gather_trace(void *context, FILE *out)
{
    trace_gather *g = context;
    g->called = true;
    return nw_replicas_gather(g->group, g->mine.text, g->mine.size, take_trace, out);
}

/* All ranks learn what the file is about, and how far their clocks are off; those but rank 0 print theirs into
 * memory. */
static nw_status prepare_trace(nw_replicas *group, nw_trace_view *view, trace_gather *g)
{
    int64_t offsets[NW_CLUSTER_RANKS];
    NW_AUTOFREE nw_trace_view *all = calloc((size_t)nw_replicas_world(group), sizeof *all);
    NW_FAIL_IF(!all, NW_E_MEMORY, "no memory for the traces of %d ranks", nw_replicas_world(group));
    NW_TRY(measure_clocks(group, offsets));
    int64_t offset = offsets[group->driver->first];
    *view = nw_trace_look(group->hooks.trace, offset);
    NW_TRY(nw_driver_allgather(group->driver, view, sizeof *view, all));
    *view = (nw_trace_view){0};
    for (int rank = 0; rank < nw_replicas_world(group); rank++) nw_trace_view_join(view, &all[rank]);
    NW_TRY(nw_text_begin(&g->mine));
    if (!nw_replicas_leads(group)) NW_TRY(nw_trace_print(group->hooks.trace, view, offset, true, g->mine.out));
    return nw_text_end(&g->mine);
}

nw_status nw_replicas_write_trace(nw_replicas *group, const char *path, bool alone)
{
    nw_trace *trace = group->hooks.trace;
    bool all = group->options.mode == NW_REPLICAS_MPI && !alone;
    trace_gather g = {.group = group};
    if (!trace || (alone && !nw_replicas_leads(group))) return NW_OK;
    nw_trace_view view = nw_trace_look(trace, 0);
    nw_status status = all ? prepare_trace(group, &view, &g) : NW_OK;
    bool ready = status == NW_OK;
    if (ready && nw_replicas_leads(group)) status = nw_trace_write(trace, path, &view, all ? gather_trace : NULL, &g);
    if (ready && all &&
        !g.called) { /* the others; and rank 0, if it cannot make the file: they give theirs all the same */
        nw_status gathered = gather_trace(&g, NULL);
        if (status == NW_OK) status = gathered;
    }
    nw_text_free(&g.mine);
    return status;
}
