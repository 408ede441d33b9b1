/*
 * replicas_codecs.c - tables about compression for the user: the codec of each tensor, how buckets are reduced and how
 * many bytes that sends, and what encoding cost in the end.
 */
#include "train/replicas.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const nw_params *params_of(const nw_replicas *group) { return &nw_replicas_first(group)->net->model.params; }

/* Whether this run can have counts there: the same on all ranks. */
static bool is_used(const nw_replicas *group, int index)
{
    bool used = false;
    for (int i = 0; i < group->assignment.codec_count; i++)
        used |= nw_travel_index(group->assignment.codecs[i]) == index;
    return used;
}

static nw_status gather_counts(nw_replicas *group, nw_travel *sum, nw_travel_codec *all)
{
    int world = nw_replicas_world(group);
    for (int k = 0; k < NW_TRAVEL_CODECS; k++) {
        nw_travel_codec mine = sum->of[k];
        if (!is_used(group, k)) continue;
        NW_TRY(nw_driver_allgather(group->driver, &mine, sizeof mine, all));
        sum->of[k] = (nw_travel_codec){0};
        for (int i = 0; i < world; i++)
            if (!group->dropped[i]) nw_travel_merge(&sum->of[k], &all[i]);
    }
    return NW_OK;
}

/* What no codec has. */
typedef struct totals {
    int64_t sent_floats;
    double memory_square;
} totals;

static nw_status gather_totals(nw_replicas *group, nw_travel *sum, totals *all)
{
    totals mine = {sum->sent_floats, sum->memory_square};
    NW_TRY(nw_driver_allgather(group->driver, &mine, sizeof mine, all));
    sum->sent_floats = 0;
    sum->memory_square = 0;
    for (int i = 0; i < nw_replicas_world(group); i++) {
        if (group->dropped[i]) continue;
        sum->sent_floats += all[i].sent_floats;
        sum->memory_square += all[i].memory_square;
    }
    return NW_OK;
}

nw_status nw_replicas_travel(nw_replicas *group, nw_travel *sum)
{
    size_t world = (size_t)nw_replicas_world(group);
    *sum = (nw_travel){0};
    for (int i = 0; i < group->count; i++) {
        nw_travel *own = &group->members[i].travel;
        nw_travel_read_memory(own);
        for (int k = 0; k < NW_TRAVEL_CODECS; k++) nw_travel_merge(&sum->of[k], &own->of[k]);
        sum->sent_floats += own->sent_floats;
        sum->memory_square += own->memory_square;
    }
    if (group->options.mode != NW_REPLICAS_MPI) return NW_OK;
    NW_AUTOFREE nw_travel_codec *counts = calloc(world, sizeof *counts);
    NW_AUTOFREE totals *rest = calloc(world, sizeof *rest);
    NW_FAIL_IF(!counts || !rest, NW_E_MEMORY, "no memory for the counts of %zu ranks", world);
    NW_TRY(gather_totals(group, sum, rest));
    return gather_counts(group, sum, counts);
}

/* ---- kinds of buckets -------------------------------------------------------------------------------------------- */

/* Buckets that share a codec and a mode. */
typedef struct kind {
    const nw_codec *codec;
    nw_mode mode;
    int buckets;
    uint64_t floats, sends; /* sends: bytes of a member in a step, at the final ratio */
} kind;

enum { KINDS_MOST = 64 };

/* The bytes of a bucket: for codecs with rounds the floats of all rounds, for others the encoded size. */
static uint64_t bytes_of(const nw_bucket *b)
{
    const nw_codec *codec = b->block.codec;
    const nw_rounds *rounds = codec->ops->rounds;
    uint64_t floats = 0;
    for (int r = 0; rounds && r < rounds->count; r++)
        for (int i = 0; i < b->block.item_count; i++) floats += rounds->floats(&b->block, i, r);
    if (rounds) return floats * sizeof(float);
    return nw_mode_bytes(codec, b->block.floats, b->entries, (uint64_t)b->block.item_count);
}

/* members 0: what is sent goes to one of them. */
static int count_kinds(const nw_layout *l, uint64_t members, kind *kinds)
{
    int count = 0;
    for (int i = 0; i < l->count; i++) {
        const nw_bucket *b = &l->at[i];
        int k = 0;
        while (k < count && (kinds[k].codec != b->block.codec || kinds[k].mode != b->mode)) k++;
        if (k == KINDS_MOST) continue;
        if (k == count) kinds[count++] = (kind){.codec = b->block.codec, .mode = b->mode};
        kinds[k].buckets++;
        kinds[k].floats += b->block.floats;
        kinds[k].sends += members > 0 ? nw_mode_sends(b->mode, bytes_of(b), members) : bytes_of(b);
    }
    return count;
}

static nw_status find_kinds(const nw_replicas *group, kind *kinds, int *count)
{
    nw_layout_options o = group->options.exchange.layout;
    NW_CLEANUP(nw_layout_free) nw_layout layout = {0};
    int members = nw_replicas_world(group);
    bool pairs = nw_replicas_is_gossip(group);
    o.segments = &params_of(group)->learned;
    o.cuts = pairs ? 1 : members;
    NW_TRY(nw_layout_make(&layout, &o));
    *count = count_kinds(&layout, pairs ? 0 : (uint64_t)members, kinds);
    return NW_OK;
}

static bool is_served(const nw_replicas *group) { return strcmp(group->options.exchange.name, "server") == 0; }

nw_status nw_replicas_collective(const nw_replicas *group, char *text, size_t size)
{
    kind kinds[KINDS_MOST];
    int count;
    uint64_t sends[3] = {0};
    size_t used = 0;
    text[0] = 0;
    NW_TRY(find_kinds(group, kinds, &count));
    for (int k = 0; k < count && !is_served(group); k++) sends[kinds[k].mode] += kinds[k].sends;
    if (nw_replicas_is_gossip(group)) {
        snprintf(text, size, "pairs %llu B", (unsigned long long)(sends[0] + sends[1] + sends[2]));
        return NW_OK;
    }
    for (int m = 0; m < 3; m++)
        if (sends[m] > 0 && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s %llu B", used ? ", " : "",
                                     nw_mode_name((nw_mode)m), (unsigned long long)sends[m]);
    return NW_OK;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static const char *way_of(const nw_replicas *group, const kind *k)
{
    if (!nw_replicas_is_gossip(group)) return nw_mode_name(k->mode);
    return nw_agreeing_name(nw_agreeing_of(k->codec, group->options.exchange.gossip.values));
}

nw_status nw_replicas_print_codecs(const nw_replicas *group, FILE *out)
{
    kind kinds[KINDS_MOST];
    int count;
    char often[32] = "a step";
    if (group->members[0].machine->outer)
        snprintf(often, sizeof often, "in %d steps", group->options.exchange.sync_every);
    if (nw_replicas_is_gossip(group)) snprintf(often, sizeof often, "in an averaging");
    if (!nw_assign_compresses(&group->options.codecs)) return NW_OK;
    nw_assign_print(&group->assignment, &params_of(group)->learned, "", out);
    NW_TRY(find_kinds(group, kinds, &count));
    for (int k = 0; k < count && !is_served(group); k++) {
        char name[64];
        nw_assign_name(kinds[k].codec, name, sizeof name);
        fprintf(out, "%-24s %d %s of %llu floats, %s: a rank sends about %llu bytes %s\n",
                kinds[k].codec->exact ? "dense" : name, kinds[k].buckets, kinds[k].buckets == 1 ? "bucket" : "buckets",
                (unsigned long long)kinds[k].floats, way_of(group, &kinds[k]), (unsigned long long)kinds[k].sends, often);
    }
    return NW_OK;
}
